//! Casts: floats round to nearest, halves to even, once, whatever lies between; to integers they are truncated and
//! saturate, NaN becomes 0; integers wrap; to `bool` everything but zero is `true`. As `Element::from_scalar` has it.
//!
//! The 16-bit floats are converted by integer arithmetic that vectorizes at every level, and gives what the hardware's
//! instructions give: NaN stays NaN with its upper payload bits, made quiet.

use super::level::map1;
use super::level::{Level, LoopFn};
use super::loops::copied;
use half::{bf16, f16};
use raddle_base::DType;

/// The 16-bit float with these bits, as `f32`. The exponent is moved over; subnormals are normalized by a subtraction
/// of floats (F. Giesen's method).
#[inline(always)]
pub fn f16_to_f32(value: f16) -> f32 {
    const EXPONENT: u32 = 0x7c00 << 13;
    let bits = u32::from(value.to_bits());
    let shifted = (bits & 0x7fff) << 13;
    let exponent = shifted & EXPONENT;
    let rebased = shifted + ((127 - 15) << 23);
    let special = (rebased + ((128 - 16) << 23)) | (u32::from(shifted > EXPONENT) << 22);
    let subnormal = (f32::from_bits(rebased + (1 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let magnitude = if exponent == EXPONENT {
        special
    } else if exponent == 0 {
        subnormal
    } else {
        rebased
    };
    f32::from_bits(magnitude | ((bits & 0x8000) << 16))
}

/// To the nearest, halves to even; too large is infinite. (F. Giesen's method: an addition of floats rounds subnormals.)
#[inline(always)]
pub fn f32_to_f16(value: f32) -> f16 {
    const INFINITE: u32 = 255 << 23;
    const TOO_LARGE: u32 = (127 + 16) << 23;
    const NORMAL: u32 = 113 << 23;
    const ALIGN: u32 = ((127 - 15) + (23 - 10) + 1) << 23;
    let sign = value.to_bits() & 0x8000_0000;
    let bits = value.to_bits() ^ sign;
    let special = if bits > INFINITE { 0x7e00 | ((bits >> 13) & 0x3ff) } else { 0x7c00 };
    let subnormal = (f32::from_bits(bits) + f32::from_bits(ALIGN)).to_bits().wrapping_sub(ALIGN);
    let normal =
        bits.wrapping_add((15u32.wrapping_sub(127) << 23).wrapping_add(0xfff)).wrapping_add((bits >> 13) & 1)
            >> 13;
    let magnitude = if bits >= TOO_LARGE {
        special
    } else if bits < NORMAL {
        subnormal
    } else {
        normal
    };
    f16::from_bits((magnitude | (sign >> 16)) as u16)
}

/// The upper half of an `f32` has all its bits.
#[inline(always)]
pub fn bf16_to_f32(value: bf16) -> f32 {
    let bits = u32::from(value.to_bits()) << 16;
    f32::from_bits(bits | (u32::from(bits & 0x7fff_ffff > 0x7f80_0000) << 22))
}

/// To the nearest, halves to even.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits((if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16)
}

/// To `f32` rounded to odd, so that rounding once more, to 16 bits, is as rounding once.
#[inline(always)]
pub fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    let bits = near.to_bits() - u32::from(back.abs() > value.abs());
    let inexact = back != value && !value.is_nan();
    f32::from_bits(bits | u32::from(inexact))
}

/// The loop that converts packed elements.
pub fn convert(from: DType, to: DType, level: Level) -> LoopFn {
    use DType::*;
    // `number` is the type to whose values `as` converts from the loaded one.
    macro_rules! to {
        ($t:ty, |$x:ident| $number:expr, $f16:expr, $bf16:expr, $truth:expr) => {
            match to {
                Bool => map1!(level, $t => u8, |$x| u8::from($truth)),
                U8 => map1!(level, $t => u8, |$x| $number as u8),
                I32 => map1!(level, $t => i32, |$x| $number as i32),
                I64 => map1!(level, $t => i64, |$x| $number as i64),
                F32 => map1!(level, $t => f32, |$x| $number as f32),
                F64 => map1!(level, $t => f64, |$x| $number as f64),
                F16 => map1!(level, $t => f16, |$x| $f16),
                BF16 => map1!(level, $t => bf16, |$x| $bf16),
            }
        };
    }
    macro_rules! to_from_int {
        ($t:ty) => {
            to!($t, |x| x, f32_to_f16(round_to_odd(x as f64)), f32_to_bf16(round_to_odd(x as f64)), x != 0)
        };
    }
    if from == to {
        return copied(from.size_bytes(), level);
    }
    match from {
        Bool | U8 => to_from_int!(u8),
        I32 => to_from_int!(i32),
        I64 => to_from_int!(i64),
        F32 => to!(f32, |x| x, f32_to_f16(x), f32_to_bf16(x), x != 0.0),
        F64 => to!(f64, |x| x, f32_to_f16(round_to_odd(x)), f32_to_bf16(round_to_odd(x)), x != 0.0),
        F16 => {
            to!(f16, |x| f16_to_f32(x), x, f32_to_bf16(f16_to_f32(x)), f16_to_f32(x) != 0.0)
        }
        BF16 => {
            to!(bf16, |x| bf16_to_f32(x), f32_to_f16(bf16_to_f32(x)), x, bf16_to_f32(x) != 0.0)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The bits, all quiet NaN of one sign and payload being themselves.
    fn quiet(bits: u16, infinite: u16, quiet: u16) -> u16 {
        if bits & 0x7fff > infinite { bits | quiet } else { bits }
    }

    #[test]
    fn all_16_bit_floats_go_there_and_back() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let (wide, wide_brain) = (f16_to_f32(half), bf16_to_f32(brain));
            assert!(
                wide.to_bits() == half.to_f32().to_bits() || (wide.is_nan() && half.is_nan()),
                "{bits:x}"
            );
            assert!(wide_brain == brain.to_f32() || (wide_brain.is_nan() && brain.is_nan()), "{bits:x}");
            assert_eq!(f32_to_f16(wide).to_bits(), quiet(bits, 0x7c00, 0x200));
            assert_eq!(f32_to_bf16(wide_brain).to_bits(), quiet(bits, 0x7f80, 0x40));
        }
    }

    #[test]
    fn numbers_between_16_bit_floats_go_to_the_nearest_and_ties_to_even() {
        for bits in 0..0x7f80u16 {
            for (value, next, is_half) in [
                (f16_to_f32(f16::from_bits(bits)), f16_to_f32(f16::from_bits(bits + 1)), true),
                (bf16_to_f32(bf16::from_bits(bits)), bf16_to_f32(bf16::from_bits(bits + 1)), false),
            ] {
                if is_half && bits >= 0x7bff || !next.is_finite() {
                    continue;
                }
                let middle = 0.5 * f64::from(value) + 0.5 * f64::from(next);
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                for (between, expected) in
                    [(middle, even), (middle * (1.0 - 1e-12), bits), (middle * (1.0 + 1e-12), bits + 1)]
                {
                    let (once, twice) = (round_to_odd(between), between as f32);
                    let round =
                        |x: f32| if is_half { f32_to_f16(x).to_bits() } else { f32_to_bf16(x).to_bits() };
                    assert_eq!(round(once), expected, "{between:e}");
                    assert_eq!(round(-once), expected | 0x8000);
                    // Rounded by way of f32, all three are the tie.
                    assert_eq!(round(twice), even);
                }
            }
        }
        assert_eq!(f32_to_f16(65_519.996), f16::MAX);
        assert_eq!(f32_to_f16(65_520.0), f16::INFINITY);
        assert_eq!(f32_to_bf16(f32::MAX), bf16::INFINITY);
    }
}
