//! One number of any dtype, as user code writes it, and its kind.

/// What a number, or a dtype, counts as in promotion; ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `bool`
    Bool,
    /// `u8`, `i32`, `i64`
    Int,
    /// `f16`, `bf16`, `f32`, `f64`
    Float,
}

/// A number that isn't a tensor. In promotion it counts by its kind only: an `i64` next to an `f16` tensor stays `f16`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// An integer; every `i32` and `u8` fits.
    Int(i64),
    /// A floating-point number; every `f32`, `f16` and `bf16` fits.
    Float(f64),
}

impl Scalar {
    /// Bool, integer or float.
    pub fn kind(self) -> Kind {
        match self {
            Scalar::Bool(_) => Kind::Bool,
            Scalar::Int(_) => Kind::Int,
            Scalar::Float(_) => Kind::Float,
        }
    }

    /// As `f64`; integers past 2^53 are rounded, `true` is 1.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// As `i64`; floats are truncated and saturate, NaN is 0, `true` is 1.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(value) => i64::from(value),
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
        }
    }

    /// `true` unless it is zero; NaN is `true`, as in C.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(value) => value,
            Scalar::Int(value) => value != 0,
            Scalar::Float(value) => value != 0.0,
        }
    }
}

macro_rules! from {
    ($($t:ty => $variant:ident),*) => { $(
        impl From<$t> for Scalar {
            fn from(value: $t) -> Scalar { Scalar::$variant(value.into()) }
        }
    )* };
}
from!(bool => Bool, i64 => Int, i32 => Int, u8 => Int, f64 => Float, f32 => Float, half::f16 => Float, half::bf16 => Float);

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Bool(value) => value.fmt(f),
            Scalar::Int(value) => value.fmt(f),
            Scalar::Float(value) => value.fmt(f),
        }
    }
}
