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
    if fault!(searched_lines_are_copied) && matches!(kernel, ArgReduce { .. }) {
        return 8 * operands.iter().map(|operand| operand.view().layout.element_count()).max().unwrap_or(0);
    }
    let need = match *kernel {
        MatMul { .. } => matmul::need(operands),
        Attention { mask, .. } => attention::need(operands, mask, threads),
        LayerNormBackward { axes, .. } => layer_norm::backward_need(axes, operands[0].view()),
        Sort { .. } | TopK { .. } => sort::need(kernel, operands, threads),
        Scatter { axis, mode: ScatterMode::Add, .. } => index::scatter_need(axis, operands, threads),
        SparseMatMul { .. } | SparseMatMulByValues | SparseMatMulByWeight => sparse::need(kernel, operands),
        _ => return 0,
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
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match kernel {
            Pointwise { program, compute, params, groups } => {
                pointwise::execute(program, *compute, params, *groups, operands, threads);
                Ok(())
            }
            Iota { start, step } => {
                fill::iota(operands[0].view(), *start, *step, threads);
                Ok(())
            }
            Random { distribution, key, counter } => {
                let probability = operands.get(1).map(Operand::view);
                random::execute(*distribution, *key, *counter, operands[0].view(), probability, threads);
                Ok(())
            }
            Triangle { upper, diagonal } => {
                fill::triangle(operands[0].view(), operands[1].view(), *upper, *diagonal, threads);
                Ok(())
            }
            Reduce { .. } => reduce::execute(kernel, operands, threads),
            ArgReduce { .. } | Scan { .. } => scan::execute(kernel, operands, threads),
            MatMul { .. } => matmul::execute(kernel, operands, threads),
            Attention { .. } => attention::execute(kernel, operands, threads),
            Softmax { .. } | SoftmaxBackward { .. } => softmax::execute(kernel, operands, threads),
            LayerNorm { .. } | LayerNormBackward { .. } => layer_norm::execute(kernel, operands, threads),
            Sort { .. } | TopK { .. } => sort::execute(kernel, operands, threads),
            Gather { .. } | Scatter { .. } | NonZero => index::execute(kernel, operands, threads),
            SparseMatMul { .. } | SparseMatMulByValues | SparseMatMulByWeight => {
                sparse::execute(kernel, operands, threads)
            }
        }
    }
}
