//! The kernels. [`execute`] runs one launch to its end on the calling thread and the helpers that it may use.
//!
//! A kernel takes no memory that grows with its operands but what it has asked the device for: see [`scratch`].
//!
//! hal's contract holds on entry: shapes, dtypes and overlap have been checked above, so nothing here checks them again.
//! Every kernel gives the same bits on any number of threads and in any layout (T8), and at any [`level`] but for matrix
//! products where there is no fused multiply-add.

mod attention;
mod axis;
mod block;
mod convert;
mod element;
mod few_rows;
mod fill;
mod fold;
mod fused;
mod index;
mod layer_norm;
mod level;
mod loops;
mod math;
mod matmul;
mod matrix;
mod plan;
mod pointwise;
mod random;
mod reduce;
mod scan;
mod scratch;
mod softmax;
mod sort;
mod sparse;
#[cfg(all(test, not(loom)))]
mod structured_tests;
#[cfg(all(test, not(loom)))]
mod testing;
mod view;

pub use pointwise::KEPT_BYTES_MAX;
pub use scratch::{SCRATCH_BYTES_MAX, SCRATCH_COUNT_MAX};
pub use sort::SHORT_COUNT_MAX;

use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand};
use raddle_sync::fault;

/// Scratch memory that a kernel needs of the device: what grows with its operands.
pub fn scratch_bytes(kernel: &Kernel, operands: &[Operand], threads: Threads) -> usize {
    use Kernel::*;
    use raddle_op::ScatterMode;
    if let ArgReduce { .. } = kernel {
        let longest = || operands.iter().map(|operand| operand.view().layout.element_count()).max();
        fault!(searched_lines_are_copied => return 8 * longest().unwrap_or(0));
    }
    let need = match *kernel {
        MatMul { .. } => matmul::need(operands),
        Attention { mask, .. } => attention::need(operands, mask, threads),
        LayerNormBackward { axes, .. } => layer_norm::backward_need(axes, operands[0].view()),
        Sort { axis, descending } => {
            sort::need(sort::Order::all(axis, descending, operands), operands, threads)
        }
        TopK { axis, k, largest } => sort::need(sort::Order::first(axis, k, largest), operands, threads),
        Scatter { axis, mode: ScatterMode::Add, .. } => index::scatter_need(axis, operands, threads),
        SparseMatMul { .. } | SparseMatMulByValues => sparse::columns_need(operands[3].view()),
        SparseMatMulByWeight => sparse::by_weight_need(operands),
        Pointwise { .. }
        | Iota { .. }
        | Random { .. }
        | Triangle { .. }
        | Reduce { .. }
        | ArgReduce { .. }
        | Scan { .. }
        | Softmax { .. }
        | SoftmaxBackward { .. }
        | LayerNorm { .. }
        | Gather { .. }
        | Scatter { .. }
        | NonZero => return 0,
    };
    need.device_bytes()
}

/// Scratch memory that the calling thread keeps for its next kernels.
pub fn kept_bytes() -> usize {
    scratch::kept_bytes() + pointwise::kept_bytes() + sort::kept_bytes()
}

/// Lets go of it.
pub fn let_go() {
    scratch::let_go();
    pointwise::let_go();
    sort::let_go();
}

/// Runs a kernel.
///
/// # Safety
/// - The operands are as the kernel's doc says; each view lies inside live memory. If it needs [scratch](scratch_bytes), for as
///   many threads as these or more, that is the last operand.
/// - Nobody else touches what is written, and nobody writes what is read, until this returns.
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    use Kernel::*;
    let view = |index: usize| operands[index].view();
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        if let Some(checked) = kernel.checked() {
            let size = view::layout(view(checked.target)).shape()[checked.axis];
            index::check(view(checked.indices), size, checked.repeats, threads)?;
        }
        match *kernel {
            Pointwise { ref program, compute, ref params, groups } => {
                pointwise::execute(program, compute, params, groups, operands, threads);
            }
            Iota { start, step } => fill::iota(view(0), start, step, threads),
            Random { distribution, key, counter } => {
                let probability = operands.get(1).map(Operand::view);
                random::execute(distribution, key, counter, view(0), probability, threads);
            }
            Triangle { upper, diagonal } => fill::triangle(view(0), view(1), upper, diagonal, threads),
            Reduce { op, axes, divisor } => reduce::reduce(op, axes, divisor, view(0), view(1), threads),
            ArgReduce { largest, axis } => scan::arg_reduce(largest, axis, operands, threads),
            Scan { op, axis } => scan::scan(op, axis, view(0), view(1), threads),
            MatMul { alpha, beta, bias, accumulate, activation } => {
                matmul::matmul([alpha, beta], bias, accumulate, activation, operands, threads);
            }
            Attention { scale, causal, mask } => attention::attention(scale, causal, mask, operands, threads),
            Softmax { axis, log } => softmax::softmax(axis, log, operands, threads),
            SoftmaxBackward { axis, log } => softmax::backward(axis, log, operands, threads),
            LayerNorm { axes, eps, weight, bias, addend } => {
                layer_norm::layer_norm(axes, eps, [weight, bias, addend], operands, threads);
            }
            LayerNormBackward { axes, weight, bias } => {
                layer_norm::layer_norm_backward(axes, (weight, bias), operands, threads);
            }
            Sort { axis, descending } => {
                sort::execute(sort::Order::all(axis, descending, operands), operands, threads);
            }
            TopK { axis, k, largest } => {
                sort::execute(sort::Order::first(axis, k, largest), operands, threads);
            }
            Gather { axis, .. } => index::gather(axis, view(0), view(1), view(2), threads),
            Scatter { axis, mode, .. } => index::scatter(axis, mode, operands, threads),
            NonZero => index::non_zero(view(0), view(1), threads),
            SparseMatMul { bias } => sparse::product(bias, operands, threads),
            SparseMatMulByValues => sparse::by_values(operands, threads),
            SparseMatMulByWeight => sparse::by_weight(operands, threads),
        }
    }
    Ok(())
}
