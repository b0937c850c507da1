//! From a kernel and its operands to a [`Plan`], and from a [`Key`] to source text.

use crate::plan::Plan;
use raddle_hal::{Kernel, Operand};

/// Names a kernel: small, cheap to compare and to hash; everything that its source depends on, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key;

impl Key {
    /// The whole CUDA C++ source, without includes. It defines one `extern "C" __global__` function, [`Key::entry`].
    pub fn source(&self) -> String {
        String::new()
    }
    /// The name of the kernel in the source.
    pub fn entry(&self) -> &'static str {
        "kernel"
    }
}

/// What the plans depend on.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    /// Streaming multiprocessors.
    pub sm_count: u32,
}

/// Plans a launch.
pub fn plan(kernel: &Kernel, operands: &[Operand], card: Card) -> Plan {
    let _ = (kernel, operands, card);
    Plan::default()
}
