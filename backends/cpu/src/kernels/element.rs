//! Elements, and the types that the structured kernels compute in: `f32` (for the 16-bit floats, too), `f64`, `i64` (for
//! all integers), and truth values.

use super::convert;
use super::scratch::Plain;
use half::{bf16, f16};
use raddle_base::DType;

/// A truth value in memory: a byte that is true unless it is zero. (Rust's `bool` must not be read from foreign bytes.)
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
#[repr(transparent)]
pub struct Truth(pub u8);

/// What an element of an operand converts to and from; conversions are those of a cast.
pub trait Source: Copy + Send + Sync + 'static {
    /// Its dtype.
    const DTYPE: DType;
    /// As `f32`.
    fn f32(self) -> f32;
    /// As `f64`.
    fn f64(self) -> f64;
    /// As `i64`.
    fn i64(self) -> i64;
    /// Is it not zero?
    fn truth(self) -> bool;
    /// From `f32`.
    fn from_f32(value: f32) -> Self;
    /// From `f64`.
    fn from_f64(value: f64) -> Self;
    /// From `i64`.
    fn from_i64(value: i64) -> Self;
}

macro_rules! plain_source {
    ($($t:ident $dtype:ident),*) => { $(
        impl Source for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn truth(self) -> bool { self != 0 as $t }
            #[inline(always)]
            fn from_f32(value: f32) -> $t { value as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn from_i64(value: i64) -> $t { value as $t }
        }
    )* };
}
plain_source!(f32 F32, f64 F64, i64 I64, i32 I32, u8 U8);

macro_rules! half_source {
    ($($t:ident $dtype:ident $to:ident $from:ident),*) => { $(
        impl Source for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn f32(self) -> f32 { convert::$to(self) }
            #[inline(always)]
            fn f64(self) -> f64 { f64::from(convert::$to(self)) }
            #[inline(always)]
            fn i64(self) -> i64 { convert::$to(self) as i64 }
            #[inline(always)]
            fn truth(self) -> bool { self.to_bits() & 0x7fff != 0 }
            #[inline(always)]
            fn from_f32(value: f32) -> $t { convert::$from(value) }
            #[inline(always)]
            fn from_f64(value: f64) -> $t { convert::$from(convert::round_to_odd(value)) }
            #[inline(always)]
            fn from_i64(value: i64) -> $t { Self::from_f64(value as f64) }
        }
    )* };
}
half_source!(f16 F16 f16_to_f32 f32_to_f16, bf16 BF16 bf16_to_f32 f32_to_bf16);

impl Source for Truth {
    const DTYPE: DType = DType::Bool;
    #[inline(always)]
    fn f32(self) -> f32 {
        f32::from(u8::from(self.truth()))
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(u8::from(self.truth()))
    }
    #[inline(always)]
    fn i64(self) -> i64 {
        i64::from(self.truth())
    }
    #[inline(always)]
    fn truth(self) -> bool {
        self.0 != 0
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Truth {
        Truth(u8::from(value != 0.0))
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Truth {
        Truth(u8::from(value != 0.0))
    }
    #[inline(always)]
    fn from_i64(value: i64) -> Truth {
        Truth(u8::from(value != 0))
    }
}

// SAFETY: a byte.
unsafe impl Plain for Truth {}

/// A type that kernels compute in.
pub trait Compute: Source + PartialOrd + Plain {
    /// Converts an element.
    fn take<E: Source>(element: E) -> Self;
    /// Converts to an element.
    fn give<E: Source>(self) -> E;
    /// Is it no number?
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

macro_rules! compute {
    ($($t:ident $take:ident $give:ident),*) => { $(
        impl Compute for $t {
            #[inline(always)]
            fn take<E: Source>(element: E) -> $t { element.$take() }
            #[inline(always)]
            fn give<E: Source>(self) -> E { E::$give(self) }
        }
    )* };
}
compute!(f32 f32 from_f32, f64 f64 from_f64, i64 i64 from_i64);

impl Compute for Truth {
    #[inline(always)]
    fn take<E: Source>(element: E) -> Truth {
        Truth(u8::from(element.truth()))
    }
    #[inline(always)]
    fn give<E: Source>(self) -> E {
        E::from_i64(i64::from(self.0 != 0))
    }
}

/// A float that kernels compute in.
pub trait Real:
    Compute
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::AddAssign
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// −0, which changes nothing that it is added to.
    const NEGATIVE_ZERO: Self;
    /// √
    fn sqrt(self) -> Self;
    /// `self · a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
}

macro_rules! real {
    ($($t:ident),*) => { $(
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NEGATIVE_ZERO: $t = -0.0;
            #[inline(always)]
            fn sqrt(self) -> $t { $t::sqrt(self) }
            #[inline(always)]
            fn mul_add(self, a: $t, b: $t) -> $t { $t::mul_add(self, a, b) }
        }
    )* };
}
real!(f32, f64);

/// Runs the body with the type name bound to the element type of a dtype.
macro_rules! by_dtype {
    ($dtype:expr, $E:ident => $body:expr) => {
        raddle_base::by_element!($dtype, $E => $body, $crate::kernels::element::Truth)
    };
}
pub(crate) use by_dtype;

/// Runs the body with the type name bound to the float that this float dtype is computed in.
macro_rules! by_real {
    ($dtype:expr, $A:ident => $body:expr) => {
        match $dtype {
            raddle_base::DType::F64 => {
                type $A = f64;
                $body
            }
            _ => {
                type $A = f32;
                $body
            }
        }
    };
}
pub(crate) use by_real;

/// Runs the body with the type name bound to the type that this dtype is computed in: `f32`, `f64` or `i64`.
macro_rules! by_compute {
    ($dtype:expr, $A:ident => $body:expr) => {
        match $dtype {
            raddle_base::DType::F64 => {
                type $A = f64;
                $body
            }
            dtype if dtype.is_float() => {
                type $A = f32;
                $body
            }
            _ => {
                type $A = i64;
                $body
            }
        }
    };
}
pub(crate) use by_compute;
