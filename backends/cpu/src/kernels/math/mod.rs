//! Elementary functions.
//!
//! Those of `f32` are branch-free, so that loops over them vectorize; the error stays below 2 ulp (`tan`, `tanh`, `erf`,
//! `pow`: 4), over the whole range, subnormals, infinities, NaN and negative zero included. They use `+ - * /` and bits
//! only, never a library, so they give the same bits on every machine. The two that numbers are drawn by also fuse
//! multiply-adds, which are rounded once everywhere: from AVX2 on they are an instruction, below a call, and slow.
//!
//! Those of `f64` are the library's; `erf` is the `libm` crate's port of fdlibm's (below 1 ulp).

/// The larger and the smaller of two numbers, IEEE 754-2019's `maximum` and `minimum`: NaN if one is, and -0 is below 0. So
/// their order doesn't matter, and neither does in which a reduction meets them.
macro_rules! extremes {
    ($t:ident) => {
        /// The larger
        #[inline(always)]
        pub fn larger(a: $t, b: $t) -> $t {
            if a.is_nan() || a > b || (a == b && a.is_sign_positive()) { a } else { b }
        }

        /// The smaller
        #[inline(always)]
        pub fn smaller(a: $t, b: $t) -> $t {
            if a.is_nan() || a < b || (a == b && a.is_sign_negative()) { a } else { b }
        }
    };
}

#[path = "f32.rs"]
pub mod f32;
#[path = "f64.rs"]
pub mod f64;

#[cfg(all(test, not(loom)))]
mod tests;
