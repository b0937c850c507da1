//! The lists of small blocks that all threads share.

use super::block::{BlockRef, FreeBlock};
use raddle_hal::Slab;
use std::collections::VecDeque;

/// A slab of blocks of one class.
pub(crate) struct SmallSlab {
    pub(crate) slab: Slab,
    /// In the order of their addresses.
    pub(crate) blocks: Box<[BlockRef]>,
}

/// Free blocks of one class, of all threads. The oldest come first: their uses are the likeliest to be over.
#[derive(Default)]
pub(crate) struct FreeList {
    pub(crate) blocks: VecDeque<FreeBlock>,
    pub(crate) slabs: Vec<Option<SmallSlab>>,
}
