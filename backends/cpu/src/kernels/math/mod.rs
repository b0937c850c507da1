//! Elementary functions.
//!
//! Those of `f32` are branch-free, so that loops over them vectorise; the error stays below 2 ulp (`tan`, `tanh`, `erf`,
//! `pow`: 4), over the whole range, subnormals, infinities, NaN and negative zero included. They use `+ - * /` and bits
//! only, never a library or a fused multiply-add, so they give the same bits on every machine.
//!
//! Those of `f64` are the library's; `erf` is the `libm` crate's port of fdlibm's (below 1 ulp).

#[path = "f32.rs"]
pub mod f32;
#[path = "f64.rs"]
pub mod f64;

#[cfg(all(test, not(loom)))]
mod tests;
