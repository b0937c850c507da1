//! The dtypes: one row each. The enum, sizes, names, element types and the list in the docs are made from the row.

use crate::{Kind, Scalar};
use half::{bf16, f16};

/// A Rust type that tensors hold.
pub trait Element: Copy + Send + Sync + PartialEq + std::fmt::Debug + 'static {
    /// The dtype of this type.
    const DTYPE: DType;
    /// Converts as a cast of tensors does: floats are rounded to nearest even; to integers they are truncated and
    /// saturate, NaN becomes 0; integers wrap; to `bool` everything but zero is `true`.
    fn from_scalar(value: Scalar) -> Self;
    /// The value, exactly.
    fn to_scalar(self) -> Scalar;
    /// Reads one element from its bytes, which must be [`DType::size_bytes`] long. Any non-zero byte is `true`.
    fn from_bytes(bytes: &[u8]) -> Self;
    /// Appends its bytes (native order).
    fn append_bytes(self, bytes: &mut Vec<u8>);
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $t:ident, $kind:ident, $size:literal, $text:literal, $from:expr, $decode:expr, $encode:expr;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType { $($(#[$doc])* $name),* }

        impl DType {
            /// Every dtype, in the order of promotion.
            pub const ALL: &[DType] = &[$(DType::$name),*];

            /// Size of one element.
            pub const fn size_bytes(self) -> usize {
                match self { $(DType::$name => $size),* }
            }
            /// Bool, integer or float.
            pub const fn kind(self) -> Kind {
                match self { $(DType::$name => Kind::$kind),* }
            }
            /// The name, as in Rust: `f32`, `i64`, ….
            pub const fn name(self) -> &'static str {
                match self { $(DType::$name => $text),* }
            }
            /// One element from its bytes, which must be [`size_bytes`](DType::size_bytes) long.
            pub fn scalar_from_bytes(self, bytes: &[u8]) -> Scalar {
                match self { $(DType::$name => <$t>::from_bytes(bytes).to_scalar()),* }
            }
            /// The dtype of that name.
            pub fn from_name(name: &str) -> Option<DType> {
                match name { $($text => Some(DType::$name),)* _ => None }
            }
        }

        $(impl Element for $t {
            const DTYPE: DType = DType::$name;
            fn from_scalar(value: Scalar) -> $t { let from: fn(Scalar) -> $t = $from; from(value) }
            fn to_scalar(self) -> Scalar { self.into() }
            fn from_bytes(bytes: &[u8]) -> $t {
                let decode: fn([u8; $size]) -> $t = $decode;
                decode(bytes.try_into().expect("one element has the size of its dtype"))
            }
            fn append_bytes(self, bytes: &mut Vec<u8>) {
                let encode: fn($t) -> [u8; $size] = $encode;
                bytes.extend_from_slice(&encode(self));
            }
        })*
    };
}

/// To `f32`, rounded to odd: what is not exact gets a last bit of 1. Rounding that to a shorter format gives what one
/// rounding of the `f64` would (Boldo & Melquiond 2008, "Emulation of FMA and correctly rounded sums"); rounding twice to
/// nearest doesn't, and `half`'s own conversion from `f64` drops the low bits.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let exact = f64::from(nearest) == value || value.is_nan() || nearest.is_infinite();
    if exact || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // The neighbour on the other side of the value has an odd last bit.
    let toward_zero = f64::from(nearest).abs() > value.abs();
    f32::from_bits(if toward_zero { nearest.to_bits() - 1 } else { nearest.to_bits() + 1 })
}

/// Integers wrap when they are cast to a narrower type; floats saturate.
fn to_int(value: Scalar, from_float: fn(f64) -> i64) -> i64 {
    match value {
        Scalar::Float(value) => from_float(value),
        other => other.to_i64(),
    }
}

dtypes! {
    /// Truth values, one byte each: 0 or 1.
    Bool = bool, Bool, 1, "bool", |v| v.to_bool(), |b: [u8; 1]| b[0] != 0, |v: bool| [u8::from(v)];
    /// Unsigned bytes.
    U8 = u8, Int, 1, "u8", |v| to_int(v, |v| i64::from(v as u8)) as u8, u8::from_ne_bytes, u8::to_ne_bytes;
    /// 32-bit integers.
    I32 = i32, Int, 4, "i32", |v| to_int(v, |v| i64::from(v as i32)) as i32, i32::from_ne_bytes, i32::to_ne_bytes;
    /// 64-bit integers; the dtype of indices.
    I64 = i64, Int, 8, "i64", |v| v.to_i64(), i64::from_ne_bytes, i64::to_ne_bytes;
    /// IEEE half precision; arithmetic is done in `f32`.
    F16 = f16, Float, 2, "f16", |v| f16::from_f32(to_odd(v.to_f64())), f16::from_ne_bytes, f16::to_ne_bytes;
    /// The upper half of an `f32`; arithmetic is done in `f32`.
    BF16 = bf16, Float, 2, "bf16", |v| bf16::from_f32(to_odd(v.to_f64())), bf16::from_ne_bytes, bf16::to_ne_bytes;
    /// IEEE single precision; the default of floats.
    F32 = f32, Float, 4, "f32", |v| match v { Scalar::Int(v) => v as f32, v => v.to_f64() as f32 }, f32::from_ne_bytes, f32::to_ne_bytes;
    /// IEEE double precision.
    F64 = f64, Float, 8, "f64", |v| v.to_f64(), f64::from_ne_bytes, f64::to_ne_bytes;
}

impl DType {
    /// `f16`, `bf16`, `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float)
    }

    /// `u8`, `i32` or `i64`.
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), Kind::Int)
    }

    /// The type in which kernels compute: `f32` for the 16-bit floats, itself for all others.
    pub const fn compute(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// The smallest dtype that both convert to, as PyTorch's: bool < integers < floats, and `f16` with `bf16` is `f32`.
    ///
    /// ```
    /// use raddle_base::DType::*;
    /// assert_eq!(I64.promote(F16), F16);
    /// assert_eq!(F16.promote(BF16), F32);
    /// assert_eq!(U8.promote(I32), I32);
    /// ```
    pub fn promote(self, other: DType) -> DType {
        match (self, other) {
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
            _ => self.max(other),
        }
    }

    /// The dtype of a [`Scalar`] of this kind when nothing else decides: `bool`, `i64`, `f32`.
    pub const fn default_of(kind: Kind) -> DType {
        match kind {
            Kind::Bool => DType::Bool,
            Kind::Int => DType::I64,
            Kind::Float => DType::F32,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_commutative_and_idempotent() {
        for &a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for &b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                assert!(a.promote(b).kind() == a.kind().max(b.kind()));
            }
        }
    }

    #[test]
    fn casts_saturate_from_floats_and_wrap_from_integers() {
        assert_eq!(u8::from_scalar(Scalar::Float(300.0)), 255);
        assert_eq!(u8::from_scalar(Scalar::Int(300)), 44);
        assert_eq!(i32::from_scalar(Scalar::Float(f64::NAN)), 0);
        assert!(bool::from_scalar(Scalar::Float(f64::NAN)));
    }

    #[test]
    fn sixteen_bit_floats_are_rounded_once() {
        let bf16 = |value: f64| bf16::from_scalar(Scalar::Float(value)).to_f64();
        // 17.8125 lies between 17.75 and 17.875; a little more must go up, however little.
        assert_eq!((bf16(17.8125), bf16(17.8125 + 1e-9), bf16(17.8125 - 1e-9)), (17.75, 17.875, 17.75));
        assert_eq!((bf16(-17.8125 - 1e-9), bf16(-0.0).to_bits()), (-17.875, (-0.0f64).to_bits()));
        let f16 = |value: f64| f16::from_scalar(Scalar::Float(value)).to_f64();
        assert_eq!((f16(2049.0), f16(2049.0 + 1e-10), f16(65520.0 - 1e-9)), (2048.0, 2050.0, 65504.0));
        assert_eq!(
            (f16(65520.0), f16(2f64.powi(-25)), f16(2f64.powi(-25) * 1.0001)),
            (f64::INFINITY, 0.0, 2f64.powi(-24))
        );
        assert!(f16(f64::NAN).is_nan() && f16(f64::NEG_INFINITY) == f64::NEG_INFINITY);
    }

    #[test]
    fn bytes_go_there_and_back() {
        let mut bytes = Vec::new();
        f16::from_f32(1.5).append_bytes(&mut bytes);
        (-7i64).append_bytes(&mut bytes);
        assert_eq!(f16::from_bytes(&bytes[..2]).to_f32(), 1.5);
        assert_eq!(i64::from_bytes(&bytes[2..]), -7);
    }
}
