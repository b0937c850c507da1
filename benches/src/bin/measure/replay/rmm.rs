//! The pool of the RAPIDS Memory Manager over plain device memory, without an initial size, written from its documentation.
//! `--check` compares its decisions with those of the library (see `benches/README.md`).
//!
//! Sizes are rounded to 256 bytes. Each stream has a list of free blocks by address. In order: the best fit of the own list;
//! the best fit of another stream's, whose whole list then joins the own one, behind an event; the best fit after joining
//! them one by one; and else as much new memory as the pool has already, or what is asked if that is more. What is left of a
//! block stays in the list. A block that comes back to a list is merged with its neighbours there. One lock for all.
//!
//! A block comes back to the list of the stream that it was allocated on, as with `rmm::device_buffer`. RMM isn't told of uses
//! on other streams: its user has to wait for them before, which no time is counted for here; nor for its events.

use super::policy::{Counts, Policy, Slabs};
use raddle::runtime::hal::QUEUE_COUNT_MAX;
use raddle_cli::output::Outcome;
use std::sync::{Mutex, MutexGuard, PoisonError};

const ROUND_BYTES: u64 = 256;

#[derive(Clone, Copy)]
pub struct Block {
    address: u64,
    size_bytes: u64,
    /// Does it start a slab? Then it isn't merged with what is before.
    is_head: bool,
    stream: u8,
}

impl Block {
    fn is_before(&self, other: &Block) -> bool {
        self.address + self.size_bytes == other.address && !other.is_head
    }
}

/// Free blocks by address. A vector, which is faster than the linked list that the library has.
type List = Vec<Block>;

fn insert(list: &mut List, block: Block) {
    let next = list.iter().position(|other| other.address > block.address).unwrap_or(list.len());
    let joins_next = next < list.len() && block.is_before(&list[next]);
    if next > 0 && list[next - 1].is_before(&block) {
        list[next - 1].size_bytes += block.size_bytes;
        if joins_next {
            list[next - 1].size_bytes += list.remove(next).size_bytes;
        }
    } else if joins_next {
        list[next] = Block { size_bytes: block.size_bytes + list[next].size_bytes, ..block };
    } else {
        list.insert(next, block);
    }
}

/// Takes the best fit out, of several the first.
fn take(list: &mut List, size_bytes: u64) -> Option<Block> {
    let fits = list.iter().enumerate().filter(|(_, block)| block.size_bytes >= size_bytes);
    let (index, _) = fits.min_by_key(|(_, block)| block.size_bytes)?;
    Some(list.remove(index))
}

struct State {
    slabs: Slabs,
    counts: Counts,
    /// By stream.
    lists: Vec<List>,
}

impl State {
    fn find(&mut self, size_bytes: u64, stream: usize) -> Block {
        if let Some(block) = take(&mut self.lists[stream], size_bytes) {
            return block;
        }
        let others = || (0..QUEUE_COUNT_MAX).filter(|&other| other != stream);
        for other in others() {
            if let Some(block) = take(&mut self.lists[other], size_bytes) {
                self.join(stream, other);
                return block;
            }
        }
        for other in others() {
            self.join(stream, other);
            if let Some(block) = take(&mut self.lists[stream], size_bytes) {
                return block;
            }
        }
        let grown_bytes = size_bytes.max(self.counts.reserved_bytes);
        self.counts.reserve(grown_bytes);
        Block { address: self.slabs.next(grown_bytes), size_bytes: grown_bytes, is_head: true, stream: 0 }
    }

    fn join(&mut self, stream: usize, other: usize) {
        let blocks = std::mem::take(&mut self.lists[other]);
        blocks.into_iter().for_each(|block| insert(&mut self.lists[stream], block));
    }
}

pub struct Rmm(Mutex<State>);

impl Rmm {
    pub fn new(slabs: Slabs) -> Rmm {
        let lists = vec![List::new(); QUEUE_COUNT_MAX];
        Rmm(Mutex::new(State { slabs, counts: Counts::default(), lists }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Policy for Rmm {
    /// Of size 0 for no bytes.
    type Block = Block;

    fn allocate(&self, size_bytes: u64, stream: u8) -> Outcome<Block> {
        let size_bytes = size_bytes.next_multiple_of(ROUND_BYTES);
        if size_bytes == 0 {
            return Ok(Block { address: 0, size_bytes, is_head: false, stream });
        }
        let mut state = self.state();
        let block = state.find(size_bytes, stream as usize);
        let (address, rest_bytes) = (block.address + size_bytes, block.size_bytes - size_bytes);
        if rest_bytes > 0 {
            let rest = Block { address, size_bytes: rest_bytes, is_head: false, stream };
            insert(&mut state.lists[stream as usize], rest);
        }
        state.counts.allocate(size_bytes);
        Ok(Block { size_bytes, stream, ..block })
    }

    fn note_use(&self, _: &Block, _: u8) -> Outcome {
        Ok(())
    }

    fn free(&self, block: Block) {
        if block.size_bytes > 0 {
            let mut state = self.state();
            state.counts.allocated_bytes -= block.size_bytes;
            insert(&mut state.lists[block.stream as usize], block);
        }
    }

    fn synchronize(&self, _: u8) -> Outcome {
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.state().counts
    }
}
