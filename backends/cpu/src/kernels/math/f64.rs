//! Functions of `f64`: the library's.

use crate::kernels::level::{Level, LoopFn, map1};

extremes!(f64);

macro_rules! library {
    ($($(#[$doc:meta])* $name:ident = $method:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f64) -> f64 {
            x.$method()
        }
    )* };
}
library! {
    /// eˣ
    exp = exp,
    /// eˣ − 1
    expm1 = exp_m1,
    /// Natural logarithm
    log = ln,
    /// ln(1 + x)
    log1p = ln_1p,
    /// Binary logarithm
    log2 = log2,
    /// Decimal logarithm
    log10 = log10,
    /// Hyperbolic tangent
    tanh = tanh,
    /// Arc sine
    asin = asin,
    /// Arc cosine
    acos = acos,
    /// Arc tangent
    atan = atan,
}

/// Error function
#[inline(always)]
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// 1 − erf(x)
#[inline(always)]
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// Power
#[inline(always)]
pub fn pow(x: f64, y: f64) -> f64 {
    x.powf(y)
}

/// Angle of the point (`x`, `y`)
#[inline(always)]
pub fn atan2(y: f64, x: f64) -> f64 {
    y.atan2(x)
}

/// The loop of the sine.
pub fn sin_loop(level: Level) -> LoopFn {
    map1!(level, f64 => f64, |x| x.sin())
}

/// The loop of the cosine.
pub fn cos_loop(level: Level) -> LoopFn {
    map1!(level, f64 => f64, |x| x.cos())
}

/// The loop of the tangent.
pub fn tan_loop(level: Level) -> LoopFn {
    map1!(level, f64 => f64, |x| x.tan())
}
