//! Functions of `f32`.
//!
//! The ones that benchmarks and models live on (`exp`, `log`, `tanh`, `erf`) compute in `f32`. The others compute in
//! `f64` with polynomials good for about 2^-33, which costs half the lanes and saves all care. Coefficients without a
//! source are Chebyshev fits of our own to the function named, or its Taylor series.

#![expect(clippy::excessive_precision, reason = "coefficients stand as their source or fit gives them")]

use crate::kernels::level::{Level, Loop, LoopFn, at, in_slice, out_slice};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, LOG10_E, PI};
use std::marker::PhantomData;

extremes!(f32);

/// Adding it leaves the nearest integer (halves to even) in the lowest bits; for numbers below 2^22 (2^51).
const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23
const ROUND_F64: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

/// A polynomial, the constant first, by Estrin's scheme: neighbours are paired, then the pairs, so that the chain of
/// operations that wait for each other is short.
macro_rules! polynomial {
    ($x:expr, $c:expr $(,)?) => { $c };
    ($x:expr, $($c:expr),+ $(,)?) => {{
        let x = $x;
        polynomial!(@pair x, x * x; ; $($c),+)
    }};
    (@pair $x:ident, $square:expr; $($done:expr),*; $a:expr, $b:expr, $($rest:expr),+) => {
        polynomial!(@pair $x, $square; $($done,)* $a + $x * $b; $($rest),+)
    };
    (@pair $x:ident, $square:expr; $($done:expr),*; $a:expr, $b:expr) => {
        polynomial!($square, $($done,)* $a + $x * $b)
    };
    (@pair $x:ident, $square:expr; $($done:expr),*; $a:expr) => {
        polynomial!($square, $($done,)* $a)
    };
}

/// A polynomial, the constant first, by Horner's scheme in fused multiply-adds: the fewest operations.
macro_rules! fused_polynomial {
    ($x:expr, $c:expr $(,)?) => { $c };
    ($x:expr, $c:expr, $($rest:expr),+ $(,)?) => { f32::mul_add(fused_polynomial!($x, $($rest),+), $x, $c) };
}

/// eˣ: `x = n ln 2 + r`, then 2ⁿ (1 + r + r² p(r)), the power of two in two steps so that subnormal results are rounded
/// once. (Cephes' `expf`, with a fit of our own.)
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Past these all results are 0 or infinite; NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let n_float = rounded - ROUND;
    // ln 2 in two parts, the first of so few bits that n times it is exact (Cephes).
    let r = (x - n_float * 0.693_359_375) - n_float * -2.121_944_4e-4;
    let p = polynomial!(r, 0.5, 0.166_666_67, 0.041_666_464, 0.008_333_311, 0.001_393_373_1, 0.000_198_910_8);
    let mantissa = 1.0 + (r + r * r * p);
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    mantissa * power(half) * power(n - half)
}

/// Natural logarithm.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 33_554_432.0 } else { x }; // 2^25
    let result = log_scaled(scaled, if subnormal { 25 } else { 0 });
    logarithm_specials(x, result)
}

/// −2 ln x of a positive, normal, finite number, as Box and Muller want it: `x = 2ᵏ (1 − g/2)`, `1 − g/2` from ⅔ to 4/3,
/// then `g + g² p(g) − 2k ln 2`. Within 1.1 units in the last place of what numbers up to 1 give.
#[inline(always)]
pub fn minus_two_log(x: f32) -> f32 {
    const TWO_THIRDS: u32 = 0x3f2a_aaab;
    let bits = x.to_bits();
    // 2²³ k
    let k = bits.wrapping_sub(TWO_THIRDS) & 0xff80_0000;
    let g = f32::from_bits(bits.wrapping_sub(k)).mul_add(-2.0, 2.0);
    #[rustfmt::skip]
    let p = fused_polynomial!(g, 0.249_999_87, 0.083_331_935, 0.031_258_11, 0.012_518_143, 0.005_134_480_5, 0.002_150_492,
        0.001_198_390_7, 0.000_585_465_63);
    // −2 ln 2 / 2²³
    (p * g).mul_add(g, (k as i32 as f32).mul_add(-1.652_591_7e-7, g))
}

/// Of the bits of a positive normal number: `k` and `f` with `x = 2ᵏ (1 + f)`, `1 + f` from √½ to √2.
#[inline(always)]
fn split(bits: u32) -> (f32, f32) {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    const ONE: u32 = 0x3f80_0000;
    let shifted = bits.wrapping_add(ONE - SQRT_HALF);
    let k = (shifted >> 23) as i32 - 127;
    (k as f32, f32::from_bits((shifted & 0x007f_ffff) + SQRT_HALF) - 1.0)
}

/// Of `x / 2^down`: `x = 2ᵏ (1 + f)`, then fdlibm's `logf`.
#[inline(always)]
fn log_scaled(x: f32, down: i32) -> f32 {
    let (k, f) = split(x.to_bits());
    let k = k - down as f32;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let r = z * (0.666_666_63 + w * 0.284_987_87) + w * (0.400_009_72 + w * 0.242_790_79);
    let half_square = 0.5 * f * f;
    s * (half_square + r) + k * 9.058_000_6e-6 - half_square + f + k * 0.693_138_12
}

#[inline(always)]
fn logarithm_specials(x: f32, result: f32) -> f32 {
    let special = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    let special = if x > 0.0 || x.is_nan() { x } else { special };
    if x > 0.0 && x < f32::INFINITY { result } else { special }
}

/// Hyperbolic tangent: an odd polynomial near 0, else 1 − 2 / (e²ˣ + 1). (As Cephes' `tanhf`.)
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let p = polynomial!(z, -0.333_333_28, 0.133_327_19, -0.053_843_264, 0.020_961_33, -0.006_045_165);
    let small = a + a * z * p;
    let large = 1.0 - 2.0 / (exp(a + a) + 1.0);
    (if a < 0.63 { small } else { large }).copysign(x)
}

/// Error function: x p(x²) up to 1, then 1 − exp(p(x)), where p fits ln erfc; from 4 on it rounds to 1.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    #[rustfmt::skip]
    let small = a * polynomial!(z, std::f32::consts::FRAC_2_SQRT_PI, -0.376_126_26, 0.112_835_95, -0.026_854_213, 0.005_189_087_4,
        -0.000_801_686_44, 7.875_875e-5);
    let a = if a > 4.0 { 4.0 } else { a };
    #[rustfmt::skip]
    let p = polynomial!(a, 0.000_320_138_05, -1.130_233_4, -0.631_826_04, -0.110_080_086, 0.026_421_136, -0.004_759_596_5,
        0.000_596_805_6, -4.605_804_2e-5, 1.637_151_4e-6);
    (if a < 1.0 { small } else { 1.0 - exp(p) }).copysign(x)
}

// ------------------------------------------------------------------------------------------- in f64

/// `(n, eʳ − 1)` for `x = n ln 2 + r`; Taylor's series.
#[inline(always)]
fn exp_parts(x: f64) -> (f64, f64) {
    let rounded = x * LOG2_E + ROUND_F64;
    let n = rounded.to_bits().wrapping_sub(ROUND_F64.to_bits());
    let n_float = rounded - ROUND_F64;
    let r = x - n_float * LN_2;
    let p = polynomial!(
        r,
        1.0,
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
        1.0 / 362_880.0,
        1.0 / 3_628_800.0
    );
    (f64::from_bits(n.wrapping_add(1023) << 52), r * p)
}

/// eˣ − 1
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (power, part) = exp_parts(f64::from(x));
    (if power == 1.0 { part } else { power * part + (power - 1.0) }) as f32
}

/// 1 − erf(x): for positive x, `e^(−x²) p((x − 2) / (x + 2)) / (1 + 2 x)`, as Shepherd and Laframboise have it (1981);
/// for negative, 2 − that.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let a = if a > 10.2 { 10.2 } else { a }; // 0 from here on
    let q = (a - 2.0) / (a + 2.0);
    #[rustfmt::skip]
    let p = polynomial!(q, 1.276_978_381_700_251_5, -0.092_763_830_080_808_05, -0.166_030_419_355_088_92,
        0.164_051_411_058_064_23, -0.054_219_457_493_019_83, -0.008_035_261_674_981_814, 0.008_717_579_701_615_953,
        0.001_274_850_204_235_079, -0.001_435_458_071_777_011_5, -0.000_450_628_438_439_703_9,
        0.000_166_594_887_618_615_74, 0.000_120_607_471_295_309_7, 1.992_706_473_292_262e-5);
    let (power, part) = exp_parts(-a * a);
    let value = (power + power * part) * p / (1.0 + 2.0 * a);
    (if x < 0.0 { 2.0 - value } else { value }) as f32
}

/// `(k, ln m)` for a positive, normal, finite `x = 2ᵏ m`: ln m = 2 artanh((m − 1) / (m + 1)); Taylor's series.
#[inline(always)]
fn log_parts(x: f64) -> (f64, f64) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const TWO_52: u64 = 0x4330_0000_0000_0000;
    let shifted = x.to_bits().wrapping_add(ONE - SQRT_HALF);
    // The exponent becomes the mantissa of 2^52 + exponent: there is no conversion of 64-bit integers below AVX-512.
    let k = f64::from_bits((shifted >> 52) | TWO_52) - (4_503_599_627_370_496.0 + 1023.0);
    let m = f64::from_bits((shifted & (ONE - 1) & 0x000f_ffff_ffff_ffff) + SQRT_HALF);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    #[rustfmt::skip]
    let p = polynomial!(z, 2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0, 2.0 / 15.0);
    (k, s * p)
}

/// ln(1 + x)
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let wide = f64::from(x);
    let (k, m) = log_parts(1.0 + wide);
    let far = k * LN_2 + m;
    // The sum above keeps 2^-53 of 1, not of x.
    let near = wide * (1.0 - 0.5 * wide);
    let result = if wide.abs() < 1.0 / 1_048_576.0 { near } else { far } as f32;
    let special = if x == -1.0 { f32::NEG_INFINITY } else { f32::NAN };
    let special = if x > 0.0 || x.is_nan() { x } else { special };
    if x > -1.0 && x < f32::INFINITY { result } else { special }
}

/// Binary logarithm
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let (k, m) = log_parts(f64::from(x));
    logarithm_specials(x, (k + m * LOG2_E) as f32)
}

/// Decimal logarithm
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    let (k, m) = log_parts(f64::from(x));
    logarithm_specials(x, ((k * LN_2 + m) * LOG10_E) as f32)
}

/// Power, with C's rules: `pow(x, 0)` and `pow(1, y)` are 1 even of NaN; a negative base needs a whole power.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let (a, wide) = (x.abs(), f64::from(y));
    let (k, m) = log_parts(f64::from(a));
    let log2 = k + m * LOG2_E;
    let log2 = if a == 0.0 { f64::NEG_INFINITY } else { log2 };
    let log2 = if a < f32::INFINITY { log2 } else { f64::from(a) };
    let exponent = wide * log2 * LN_2;
    // Past these all results are 0 or infinite in f32; NaN passes.
    let exponent = if exponent > 200.0 { 200.0 } else { exponent };
    let exponent = if exponent < -200.0 { -200.0 } else { exponent };
    let (power, part) = exp_parts(exponent);
    let magnitude = (power + power * part) as f32;
    let whole = y.trunc() == y;
    let odd = whole && (0.5 * y).trunc() != 0.5 * y;
    let signed = if odd { magnitude.copysign(x) } else { magnitude };
    let real = if x < 0.0 && a < f32::INFINITY && !whole { f32::NAN } else { signed };
    let one = y == 0.0 || x == 1.0 || (a == 1.0 && y.abs() == f32::INFINITY);
    if one { 1.0 } else { real }
}

/// Arc tangent of a number of [0, 1].
#[inline(always)]
fn atan_unit(t: f64) -> f64 {
    #[rustfmt::skip]
    let p = polynomial!(t * t, 0.999_999_999_929_303_7, -0.333_333_312_908_899_9, 0.199_999_011_021_715_54,
        -0.142_838_132_557_431_94, 0.110_919_229_636_832_02, -0.089_741_719_583_638_81, 0.072_282_783_453_772_52,
        -0.053_956_680_571_371_72, 0.033_826_218_952_786_87, -0.015_828_322_749_149_416, 0.004_732_484_193_421_921,
        -0.000_663_395_457_110_478_7);
    t * p
}

/// Arc tangent
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let far = a > 1.0;
    let p = atan_unit(if far { 1.0 / a } else { a });
    ((if far { FRAC_PI_2 - p } else { p }) as f32).copysign(x)
}

/// Angle of the point (`x`, `y`)
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    let (a, b) = (f64::from(y.abs()), f64::from(x.abs()));
    let steep = a > b;
    let (near, far) = if steep { (b, a) } else { (a, b) };
    let ratio = near / far;
    let ratio = if far == 0.0 { 0.0 } else { ratio };
    let ratio = if near == f64::INFINITY { 1.0 } else { ratio };
    let p = atan_unit(ratio);
    let p = if steep { FRAC_PI_2 - p } else { p };
    let p = if x.is_sign_negative() { PI - p } else { p };
    let p = (p as f32).copysign(y);
    if x.is_nan() || y.is_nan() { x + y } else { p }
}

/// `(|x| > ½, arc sine of |x|, or half the arc cosine of |x| if |x| > ½)`
#[inline(always)]
fn asin_parts(x: f32) -> (bool, f64) {
    let a = f64::from(x.abs());
    let far = a > 0.5;
    let z = if far { 0.5 * (1.0 - a) } else { a * a };
    let s = if far { z.sqrt() } else { a };
    #[rustfmt::skip]
    let p = polynomial!(z, 0.999_999_999_986_353_7, 0.166_666_673_641_864_45, 0.074_999_419_087_547_18,
        0.044_661_139_308_668_96, 0.030_102_506_899_661_488, 0.024_650_862_660_604_088, 0.007_401_007_239_075_379,
        0.034_748_424_808_083_896);
    (far, s * p)
}

/// Arc sine
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let (far, p) = asin_parts(x);
    ((if far { FRAC_PI_2 - 2.0 * p } else { p }) as f32).copysign(x)
}

/// Arc cosine
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let (far, p) = asin_parts(x);
    let negative = x < 0.0;
    let near = if negative { FRAC_PI_2 + p } else { FRAC_PI_2 - p };
    let far_value = if negative { PI - 2.0 * p } else { 2.0 * p };
    (if far { far_value } else { near }) as f32
}

/// Up to here the range reduction below is exact enough; past it the library's `f64` functions take over, which are
/// right for any argument. 2^19 quarter turns: times the 33 bits of `PI_2_HIGH` they still fit 53 bits.
const TURN_MAX: f32 = 800_000.0;

/// `(quarter turns modulo 4, sine, cosine)` of what is left; Taylor's series. (Cody and Waite's reduction with fdlibm's
/// two parts of π/2.)
#[inline(always)]
fn turn(x: f32) -> (u64, f64, f64) {
    const PI_2_HIGH: f64 = 1.570_796_326_734_125_6;
    const PI_2_LOW: f64 = 6.077_100_506_506_192e-11;
    let x = f64::from(x);
    let rounded = x * FRAC_2_PI + ROUND_F64;
    let n = rounded - ROUND_F64;
    let r = (x - n * PI_2_HIGH) - n * PI_2_LOW;
    let z = r * r;
    #[rustfmt::skip]
    let sine = r * polynomial!(z, 1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0);
    #[rustfmt::skip]
    let cosine = polynomial!(z, 1.0, -1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0,
        1.0 / 479_001_600.0);
    (rounded.to_bits() & 3, sine, cosine)
}

/// A function that is computed by [`turn`], and by the library where that doesn't reach.
trait Circular {
    fn near(x: f32) -> f32;
    fn far(x: f32) -> f32;
}
struct Sine;
struct Cosine;
struct Tangent;

#[inline(always)]
fn quadrant(quarters: u64, sine: f64, cosine: f64) -> f32 {
    let value = if quarters & 1 == 0 { sine } else { cosine };
    f64::from_bits(value.to_bits() ^ (quarters & 2) << 62) as f32
}

impl Circular for Sine {
    #[inline(always)]
    fn near(x: f32) -> f32 {
        let (quarters, sine, cosine) = turn(x);
        quadrant(quarters, sine, cosine)
    }
    fn far(x: f32) -> f32 {
        f64::from(x).sin() as f32
    }
}
impl Circular for Cosine {
    #[inline(always)]
    fn near(x: f32) -> f32 {
        let (quarters, sine, cosine) = turn(x);
        quadrant(quarters + 1, sine, cosine)
    }
    fn far(x: f32) -> f32 {
        f64::from(x).cos() as f32
    }
}
impl Circular for Tangent {
    #[inline(always)]
    fn near(x: f32) -> f32 {
        let (quarters, sine, cosine) = turn(x);
        let odd = quarters & 1 == 1;
        (if odd { -cosine } else { sine } / if odd { sine } else { cosine }) as f32
    }
    fn far(x: f32) -> f32 {
        f64::from(x).tan() as f32
    }
}

struct CircularLoop<C>(PhantomData<C>);
impl<C: Circular> Loop for CircularLoop<C> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`.
        let (out, a) = unsafe { (out_slice::<f32>(out, count), in_slice::<f32>(a, count, false)) };
        let mut far = 0u32;
        for (out, a) in out.iter_mut().zip(a) {
            out.write(C::near(*a));
            far |= u32::from(a.abs() > TURN_MAX);
        }
        if far != 0 {
            for (out, a) in out.iter_mut().zip(a).filter(|(_, a)| a.abs() > TURN_MAX) {
                out.write(C::far(*a));
            }
        }
    }
}

/// The loop of the sine.
pub fn sin_loop(level: Level) -> LoopFn {
    at::<CircularLoop<Sine>>(level)
}

/// The loop of the cosine.
pub fn cos_loop(level: Level) -> LoopFn {
    at::<CircularLoop<Cosine>>(level)
}

/// The loop of the tangent.
pub fn tan_loop(level: Level) -> LoopFn {
    at::<CircularLoop<Tangent>>(level)
}

/// Cosine and sine of `v` quarter turns, `v` in [−1, 1]: within 2.3 units in the last place, near the zeros too.
#[inline(always)]
pub fn quarter_turns(v: f32) -> (f32, f32) {
    let z = v * v;
    #[rustfmt::skip]
    let cosine = (-v).mul_add(v, 1.0)
        * fused_polynomial!(z, 1.0, -0.233_700_5, 0.019_968_59, -0.000_893_509_83, 2.358_791_4e-5);
    #[rustfmt::skip]
    let sine = v * fused_polynomial!(z, 1.570_796_4, -0.645_963_8, 0.079_689_704, -0.004_673_766_4, 0.000_151_485_13);
    (cosine, sine)
}
