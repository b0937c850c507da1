//! What can be computed, apart from where: the op table, its expressions, and the descriptors of the structured ops.
//!
//! - `table`: one row a pointwise op. Enum, methods, kernels, derivatives, tests and docs come from the row.
//! - [`pointwise`]: what the rows are made into here.
//! - [`expr`]: the language in which rows and fused closures are written. Writing one records a [`Program`].
//! - [`program`]: the recorded form, which every backend runs or renders as source text; `derive` differentiates it.
//! - [`render`]: programs as source text, for devices that compile it.
//! - [`mod@catalogue`]: every op by name, for lists.
//! - [`kernel`]: what a backend is asked to launch: a program, or one of a few structured kernels.
#![forbid(unsafe_code)]

pub mod catalogue;
mod derive;
#[cfg(test)]
mod eval;
pub mod expr;
pub mod kernel;
pub mod pointwise;
pub mod program;
pub mod render;
mod table;
#[cfg(test)]
mod tests;

pub use expr::{Expr, Mask};
pub use kernel::{
    Activation, Cut, Distribution, Kernel, KernelError, PARAM_COUNT_MAX, ProgramRef, ReduceOp, ScanOp,
    ScatterMode, last_below, least_positive, takes_more_bits,
};
pub use pointwise::Pointwise;
pub use program::{Binary, Compare, Id, Inst, Logic, Program, Unary};
