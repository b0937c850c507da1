//! What an op does with memory.

use crate::memory::{Block, Buffer};
use raddle_base::{DType, Layout};
use raddle_hal as hal;
use smallvec::SmallVec;

/// What an op does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it (and may read it).
    Write,
}

/// An operand of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The memory.
    pub buffer: &'a Buffer,
    /// What is done with it.
    pub access: Access,
    /// The type of the elements.
    pub dtype: DType,
    /// Where they lie.
    pub layout: &'a Layout,
}

/// A block that an op touches.
#[derive(Clone, Copy)]
pub(crate) struct BlockAccess<'a> {
    pub(crate) block: &'a Block,
    pub(crate) access: Access,
    /// Is every byte of it written, and none read?
    pub(crate) whole: bool,
}

/// The operands of a kernel, and its scratch memory.
pub(crate) fn with_scratch(
    operands: &[hal::Operand],
    address: hal::Address,
    size_bytes: usize,
) -> SmallVec<[hal::Operand; 8]> {
    operands.iter().copied().chain([hal::Operand::scratch(address, size_bytes)]).collect()
}
