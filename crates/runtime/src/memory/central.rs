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

/// The blocks of memory of others, each in its place until its owner is dropped.
#[derive(Default)]
pub(crate) struct ForeignList(Vec<Option<BlockRef>>);

impl ForeignList {
    pub(crate) fn place(&self) -> u32 {
        self.0.iter().position(Option::is_none).unwrap_or(self.0.len()) as u32
    }

    pub(crate) fn put(&mut self, place: u32, block: BlockRef) {
        match self.0.get_mut(place as usize) {
            Some(vacant) => *vacant = Some(block),
            None => self.0.push(Some(block)),
        }
    }

    pub(crate) fn take(&mut self, place: u32) {
        self.0[place as usize] = None;
        while let Some(None) = self.0.last() {
            self.0.pop();
        }
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        self.0.iter().flatten()
    }
}
