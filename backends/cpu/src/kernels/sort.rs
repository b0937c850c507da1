//! (A stand-in.)

use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand};

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    let _ = (operands, threads);
    unimplemented!("{}", kernel.name())
}
