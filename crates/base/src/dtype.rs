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
    /// Its bytes (native order), and zeros behind them.
    fn to_word(self) -> [u8; 8];
}

/// How the numbers of a float dtype lie: its significant binary digits, the hidden one among them, and the exponent of the
/// least normal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Significant binary digits.
    pub digits: u32,
    /// `2^exponent_min` is the least normal number.
    pub exponent_min: i32,
}

impl FloatFormat {
    /// The largest finite number.
    pub fn largest(self) -> f64 {
        (2.0 - f64::powi(2.0, 1 - self.digits as i32)) * f64::powi(2.0, 1 - self.exponent_min)
    }

    /// The smallest positive number.
    pub fn least_positive(self) -> f64 {
        f64::powi(2.0, self.exponent_min) * f64::powi(2.0, 1 - self.digits as i32)
    }

    /// The distance from a number to the next one that is larger in magnitude.
    pub fn ulp(self, value: f64) -> f64 {
        // The exponent: of zero and subnormals the least.
        let exponent = match value == 0.0 {
            true => self.exponent_min,
            false => ((value.abs().to_bits() >> 52) as i32 - 1023).max(self.exponent_min),
        };
        (f64::powi(2.0, exponent) * f64::powi(2.0, 1 - self.digits as i32)).max(f64::from_bits(1))
    }
}

macro_rules! dtypes {
    ($d:tt; $($(#[$doc:meta])* $name:ident = $t:ident, $kind:ident, $size:literal, $text:literal, $names:tt, $from:expr, $decode:expr, $encode:expr;)*) => {
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
            /// PyTorch's names, the usual one first.
            pub const fn torch_names(self) -> &'static [&'static str] {
                match self { $(DType::$name => &$names),* }
            }
            /// "a number that fits u8", for messages.
            pub const fn fitting(self) -> &'static str {
                match self { $(DType::$name => concat!("a number that fits ", $text)),* }
            }
            /// The number after a cast to the dtype: see [`Element::from_scalar`].
            pub fn round(self, value: Scalar) -> Scalar {
                match self { $(DType::$name => <$t>::from_scalar(value).to_scalar()),* }
            }
            /// The bytes of an element of that value (native order), and zeros behind them.
            pub fn word_of(self, value: Scalar) -> [u8; 8] {
                match self { $(DType::$name => <$t>::from_scalar(value).to_word()),* }
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
            fn to_word(self) -> [u8; 8] {
                let (mut word, encode): (_, fn($t) -> [u8; $size]) = ([0; 8], $encode);
                word[..$size].copy_from_slice(&encode(self));
                word
            }
        })*

        /// The type of the elements of each dtype, under the dtype's name.
        #[allow(missing_docs)]
        pub mod elements {
            use half::{bf16, f16};
            $(pub type $name = $t;)*
        }

        /// Runs the body with the type name bound to the element type of a dtype. That of `bool` can be another one:
        /// `by_element!(dtype, T => body, u8)`.
        ///
        /// ```
        /// use raddle_base::{DType, by_element};
        /// assert_eq!(by_element!(DType::F16, T => size_of::<T>()), 2);
        /// ```
        #[macro_export]
        macro_rules! by_element {
            ($d dtype:expr, $d T:ident => $d body:expr) => {
                $d crate::by_element!($d dtype, $d T => $d body, bool)
            };
            ($d dtype:expr, $d T:ident => $d body:expr, $d bool:ty) => {
                match $d dtype {
                    $($d crate::DType::$name => {
                        $d crate::by_element!(@ $name $d T $d bool);
                        $d body
                    })*
                }
            };
            (@ Bool $d T:ident $d bool:ty) => { type $d T = $d bool; };
            (@ $d name:ident $d T:ident $d bool:ty) => { type $d T = $d crate::elements::$d name; };
        }
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

dtypes! { $;
    /// Truth values, one byte each: 0 or 1.
    Bool = bool, Bool, 1, "bool", ["bool"], |v| v.to_bool(), |b: [u8; 1]| b[0] != 0, |v: bool| [u8::from(v)];
    /// Unsigned bytes.
    U8 = u8, Int, 1, "u8", ["uint8"], |v| to_int(v, |v| i64::from(v as u8)) as u8, u8::from_ne_bytes, u8::to_ne_bytes;
    /// 32-bit integers.
    I32 = i32, Int, 4, "i32", ["int32", "int"], |v| to_int(v, |v| i64::from(v as i32)) as i32, i32::from_ne_bytes, i32::to_ne_bytes;
    /// 64-bit integers; the dtype of indices.
    I64 = i64, Int, 8, "i64", ["int64", "long"], |v| v.to_i64(), i64::from_ne_bytes, i64::to_ne_bytes;
    /// IEEE half precision; arithmetic is done in `f32`.
    F16 = f16, Float, 2, "f16", ["float16", "half"], |v| f16::from_f32(to_odd(v.to_f64())), f16::from_ne_bytes, f16::to_ne_bytes;
    /// The upper half of an `f32`; arithmetic is done in `f32`.
    BF16 = bf16, Float, 2, "bf16", ["bfloat16"], |v| bf16::from_f32(to_odd(v.to_f64())), bf16::from_ne_bytes, bf16::to_ne_bytes;
    /// IEEE single precision; the default of floats.
    F32 = f32, Float, 4, "f32", ["float32", "float"], |v| match v { Scalar::Int(v) => v as f32, v => v.to_f64() as f32 }, f32::from_ne_bytes, f32::to_ne_bytes;
    /// IEEE double precision.
    F64 = f64, Float, 8, "f64", ["float64", "double"], |v| v.to_f64(), f64::from_ne_bytes, f64::to_ne_bytes;
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

    /// `i64` or `i32`: those that indices may have.
    pub const fn is_index(self) -> bool {
        matches!(self, DType::I64 | DType::I32)
    }

    /// The floats, in the order of promotion.
    pub const FLOATS: &[DType] = {
        let mut first = 0;
        while !DType::ALL[first].is_float() {
            first += 1;
        }
        DType::ALL.split_at(first).1
    };

    /// How the numbers of a float lie; none of all others.
    pub const fn format(self) -> Option<FloatFormat> {
        let (digits, exponent_min) = match self {
            DType::F16 => (11, -14),
            DType::BF16 => (8, -126),
            DType::F32 => (24, -126),
            DType::F64 => (53, -1022),
            _ => return None,
        };
        Some(FloatFormat { digits, exponent_min })
    }

    /// The least and the largest integer; none of bools and floats.
    pub fn integer_range(self) -> Option<(i64, i64)> {
        let end = |value: f64| self.round(Scalar::Float(value)).to_i64();
        self.is_int().then(|| (end(f64::NEG_INFINITY), end(f64::INFINITY)))
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

/// A set of dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypes(u32);

impl DTypes {
    /// All of them.
    pub const ALL: DTypes = DTypes((1 << DType::ALL.len()) - 1);

    /// The set without one.
    pub const fn without(self, dtype: DType) -> DTypes {
        DTypes(self.0 & !(1 << dtype as u32))
    }

    /// Is it one of them?
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 >> dtype as u32 & 1 == 1
    }

    /// Those that are in both.
    pub const fn and(self, other: DTypes) -> DTypes {
        DTypes(self.0 & other.0)
    }

    /// One after the other, in the order of promotion.
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.iter().copied().filter(move |&dtype| self.contains(dtype))
    }
}

impl std::fmt::Display for DTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.iter()
            .enumerate()
            .try_for_each(|(at, dtype)| write!(f, "{}{dtype}", if at == 0 { "" } else { ", " }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_formats_are_those_of_the_types() {
        assert_eq!(DType::U8.integer_range(), Some((0, 255)));
        assert_eq!(DType::I32.integer_range(), Some((i32::MIN.into(), i32::MAX.into())));
        assert_eq!(DType::I64.integer_range(), Some((i64::MIN, i64::MAX)));
        assert_eq!((DType::Bool.integer_range(), DType::F32.integer_range()), (None, None));
        assert_eq!(DType::FLOATS, [DType::F16, DType::BF16, DType::F32, DType::F64]);
        let format = |dtype: DType| dtype.format().map(|format| (format.largest(), format.least_positive()));
        assert_eq!(format(DType::F16), Some((f16::MAX.to_f64(), f16::MIN_POSITIVE_SUBNORMAL.to_f64())));
        assert_eq!(format(DType::BF16), Some((bf16::MAX.to_f64(), bf16::MIN_POSITIVE_SUBNORMAL.to_f64())));
        assert_eq!(format(DType::F32), Some((f32::MAX.into(), f32::from_bits(1).into())));
        assert_eq!(format(DType::F64), Some((f64::MAX, f64::from_bits(1))));
        assert_eq!(format(DType::I64), None);
    }

    #[test]
    fn a_set_lacks_what_was_taken_out() {
        let set = DTypes::ALL.without(DType::F64).without(DType::Bool);
        assert!(!set.contains(DType::F64) && !set.contains(DType::Bool) && set.contains(DType::F32));
        assert_eq!(set.to_string(), "u8, i32, i64, f16, bf16, f32");
        assert_eq!(DTypes::ALL.iter().count(), DType::ALL.len());
    }

    #[test]
    fn words_begin_with_the_bytes_of_the_element() {
        let mut bytes = Vec::new();
        f16::from_f32(1.5).append_bytes(&mut bytes);
        bytes.resize(8, 0);
        assert_eq!(DType::F16.word_of(Scalar::Float(1.5)), *bytes);
        assert_eq!(DType::I64.word_of(Scalar::Int(-7)), (-7i64).to_ne_bytes());
    }

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
