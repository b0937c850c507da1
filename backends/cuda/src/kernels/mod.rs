//! From a kernel and its operands to a [`Plan`], and from a [`Key`] to source text.
//!
//! Guarantee: how work is split, and so each bit of a result, depends on shapes and layouts only, never on the card, the
//! stream or the load (T8); no sum uses atomic operations. Every output element is written, and nothing else (T7): what
//! a kernel can't write with the strides that it has is made in scratch memory and copied.
//!
//! Structured kernels see rows without holes. Operands that aren't like that are staged by the pointwise copy, which runs
//! near the bandwidth of memory for any permutation of axes: so only pointwise kernels and reductions know strides.
//!
//! The texts beside this file are CUDA C++ without includes; `common.cu` comes before each of them.

mod attention;
mod build;
mod catalogue;
mod fill;
mod geometry;
mod index;
mod key;
mod matmul;
mod normalize;
mod pack;
mod pointwise;
mod pointwise_source;
mod random;
mod reduce;
mod rows;
mod scan;
mod sort;
mod source;
mod sparse;
pub mod steps;
#[cfg(test)]
mod tests;

use build::Builder;
pub use catalogue::catalogue;
pub use key::Key;
use raddle_hal::{Kernel, Operand};
use steps::Plan;

/// Plans a launch. No split depends on the card, or results would.
pub fn plan(kernel: &Kernel, operands: &[Operand]) -> Plan {
    let mut plan = Plan::default();
    plan_over(&mut plan, kernel, operands);
    plan
}

/// The same in the memory of a plan that isn't needed any more.
pub fn plan_over(plan: &mut Plan, kernel: &Kernel, operands: &[Operand]) {
    let mut builder = Builder::over(std::mem::take(plan));
    let view = |index: usize| operands[index].view();
    match kernel {
        Kernel::Pointwise { program, compute, params, groups } => {
            pointwise::plan(&mut builder, program, *compute, params, *groups, operands);
        }
        Kernel::Iota { start, step } => fill::iota(&mut builder, view(0), *start, *step),
        Kernel::Triangle { upper, diagonal } => {
            fill::triangle(&mut builder, view(0), view(1), *upper, *diagonal);
        }
        Kernel::Random { distribution, key, counter } => {
            random::plan(
                &mut builder,
                *distribution,
                *key,
                *counter,
                view(0),
                operands.get(1).map(Operand::view),
            );
        }
        Kernel::Reduce { .. } | Kernel::ArgReduce { .. } => reduce::plan(&mut builder, kernel, operands),
        Kernel::Scan { op, axis } => scan::scan(&mut builder, *op, *axis, view(0), view(1)),
        Kernel::MatMul { .. } => matmul::plan(&mut builder, kernel, operands),
        Kernel::Softmax { .. } | Kernel::SoftmaxBackward { .. } => {
            normalize::softmax(&mut builder, kernel, operands)
        }
        Kernel::Attention { .. } => attention::plan(&mut builder, kernel, operands),
        Kernel::LayerNorm { .. } => normalize::layer_norm(&mut builder, kernel, operands),
        Kernel::LayerNormBackward { .. } => normalize::layer_norm_backward(&mut builder, kernel, operands),
        Kernel::Sort { axis, descending } => sort::sort(&mut builder, *axis, *descending, operands),
        Kernel::TopK { axis, k, largest } => sort::topk(&mut builder, *axis, *k, *largest, operands),
        Kernel::Gather { axis, .. } => index::gather(&mut builder, *axis, operands),
        Kernel::Scatter { axis, mode, .. } => index::scatter(&mut builder, *axis, *mode, operands),
        Kernel::NonZero => scan::non_zero(&mut builder, view(0), view(1)),
        Kernel::SparseMatMul { bias } => sparse::product(&mut builder, *bias, operands),
        Kernel::SparseMatMulByValues => sparse::by_values(&mut builder, operands),
        Kernel::SparseMatMulByWeight => sparse::by_weight(&mut builder, operands),
    }
    *plan = builder.finish();
}
