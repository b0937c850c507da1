//! The kernels. [`execute`] runs one launch to its end on the calling thread and the helpers that it may use.
//!
//! hal's contract holds on entry: shapes, dtypes and overlap have been checked above, so nothing here checks them again.

mod view;

use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand};

/// Runs a kernel.
///
/// # Safety
/// - The operands are as the kernel's doc says; each view lies inside live memory.
/// - Nobody else touches what is written, and nobody writes what is read, until this returns.
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    let _ = (operands, threads);
    match kernel {
        _ => unimplemented!("{}", kernel.name()),
    }
}
