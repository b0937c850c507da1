//! PyTorch's caching allocator for CUDA with its default settings, written from what its documentation and its memory
//! snapshots show. `--check` compares its decisions with those of the library (see `benches/README.md`).
//!
//! Sizes are rounded to 512 bytes. Up to 1 MiB they come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, past
//! that from segments of their own, rounded to 2 MiB. The best fit *of the same stream* is split if what is left is 512
//! bytes or more (small), or more than 1 MiB (large), and merged with free neighbours when it comes back. A block that was
//! used on other streams comes back when the events recorded there at its free are seen to be over, which is looked at
//! when something is allocated. One lock for all.

use super::policy::{Counts, Policy, Slabs};
use raddle::{Completion, runtime::hal::QUEUE_COUNT_MAX};
use raddle_cli::output::Outcome;
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

const ROUND_BYTES: u64 = 512;
const SMALL_BYTES_MAX: u64 = 1 << 20;
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
const LARGE_SEGMENT_BYTES: u64 = 20 << 20;
const OWN_SEGMENT_BYTES_MIN: u64 = 10 << 20;
const OWN_SEGMENT_ROUND_BYTES: u64 = 2 << 20;

struct Block {
    address: u64,
    size_bytes: u64,
    stream: u8,
    is_small: bool,
    is_allocated: bool,
    /// A bit for each other stream that it was used on.
    uses: u128,
    /// Events that it waits for.
    event_count: u32,
    previous: Option<u32>,
    next: Option<u32>,
}

#[derive(Default)]
struct State {
    slabs: Slabs,
    counts: Counts,
    blocks: Vec<Block>,
    /// Indices of `blocks` that can be used again.
    unused: Vec<u32>,
    /// Free blocks, (stream, size, address, index): the small ones and the large ones.
    free: [BTreeSet<(u8, u64, u64, u32)>; 2],
    /// For each stream what was recorded and not yet seen to be over: (number of the event, block).
    events: Vec<VecDeque<(u64, u32)>>,
    recorded: Vec<u64>,
    /// The highest number that is over.
    over: Vec<u64>,
}

pub struct PyTorch {
    state: Mutex<State>,
    completion: Completion,
}

impl PyTorch {
    pub fn new(slabs: Slabs, completion: Completion) -> PyTorch {
        let state = State {
            slabs,
            events: vec![VecDeque::new(); QUEUE_COUNT_MAX],
            recorded: vec![0; QUEUE_COUNT_MAX],
            over: vec![0; QUEUE_COUNT_MAX],
            ..State::default()
        };
        PyTorch { state: Mutex::new(state), completion }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn address(&self, block: Option<u32>) -> u64 {
        self.state().blocks[block.expect("it has bytes") as usize].address
    }
}

impl State {
    fn block(&mut self, index: u32) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    fn add(&mut self, block: Block) -> u32 {
        match self.unused.pop() {
            Some(index) => {
                *self.block(index) = block;
                index
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
        }
    }

    fn key(&self, index: u32) -> (u8, u64, u64, u32) {
        let block = &self.blocks[index as usize];
        (block.stream, block.size_bytes, block.address, index)
    }

    fn process_events(&mut self, completion: Completion) {
        for stream in 0..self.events.len() {
            while let Some(&(number, index)) = self.events[stream].front()
                && (completion == Completion::AtOnce || number <= self.over[stream])
            {
                self.events[stream].pop_front();
                self.block(index).event_count -= 1;
                if self.block(index).event_count == 0 {
                    self.put(index);
                }
            }
        }
    }

    fn take(&mut self, size_bytes: u64, stream: u8) -> u32 {
        let is_small = size_bytes <= SMALL_BYTES_MAX;
        let fits = self.free[usize::from(!is_small)].range((stream, size_bytes, 0, 0)..).next().copied();
        let index = match fits.filter(|fit| fit.0 == stream) {
            Some(fit) => {
                self.free[usize::from(!is_small)].remove(&fit);
                fit.3
            }
            None => {
                let segment_bytes = if is_small {
                    SMALL_SEGMENT_BYTES
                } else if size_bytes < OWN_SEGMENT_BYTES_MIN {
                    LARGE_SEGMENT_BYTES
                } else {
                    size_bytes.next_multiple_of(OWN_SEGMENT_ROUND_BYTES)
                };
                self.counts.reserve(segment_bytes);
                let address = self.slabs.next(segment_bytes);
                self.add(Block {
                    address,
                    size_bytes: segment_bytes,
                    stream,
                    is_small,
                    is_allocated: false,
                    uses: 0,
                    event_count: 0,
                    previous: None,
                    next: None,
                })
            }
        };
        let rest_bytes = self.block(index).size_bytes - size_bytes;
        if if is_small { rest_bytes >= ROUND_BYTES } else { rest_bytes > SMALL_BYTES_MAX } {
            let (address, next) = (self.block(index).address, self.block(index).next);
            let rest = self.add(Block {
                address: address + size_bytes,
                size_bytes: rest_bytes,
                stream,
                is_small,
                is_allocated: false,
                uses: 0,
                event_count: 0,
                previous: Some(index),
                next,
            });
            if let Some(next) = next {
                self.block(next).previous = Some(rest);
            }
            self.block(index).size_bytes = size_bytes;
            self.block(index).next = Some(rest);
            let key = self.key(rest);
            self.free[usize::from(!is_small)].insert(key);
        }
        let block = self.block(index);
        block.is_allocated = true;
        let size_bytes = block.size_bytes;
        self.counts.allocate(size_bytes);
        index
    }

    /// Takes a block back, and merges it with its neighbours.
    fn put(&mut self, mut index: u32) {
        let is_small = self.block(index).is_small;
        if let Some(previous) = self.block(index).previous.filter(|&previous| self.is_free(previous)) {
            self.merge_next(previous, previous);
            index = previous;
        }
        if let Some(next) = self.block(index).next.filter(|&next| self.is_free(next)) {
            self.merge_next(index, next);
        }
        let key = self.key(index);
        self.free[usize::from(!is_small)].insert(key);
    }

    fn is_free(&self, index: u32) -> bool {
        let block = &self.blocks[index as usize];
        !block.is_allocated && block.event_count == 0
    }

    /// Adds the block behind one to it; `free` of the two is in the set and leaves it.
    fn merge_next(&mut self, index: u32, free: u32) {
        let key = self.key(free);
        let is_small = self.block(index).is_small;
        self.free[usize::from(!is_small)].remove(&key);
        let Some(gone) = self.block(index).next else { return };
        let (size_bytes, next) = (self.block(gone).size_bytes, self.block(gone).next);
        self.block(index).size_bytes += size_bytes;
        self.block(index).next = next;
        if let Some(next) = next {
            self.block(next).previous = Some(index);
        }
        self.unused.push(gone);
    }
}

impl Policy for PyTorch {
    /// None for no bytes.
    type Block = Option<u32>;

    fn allocate(&self, size_bytes: u64, stream: u8) -> Outcome<Option<u32>> {
        if size_bytes == 0 {
            return Ok(None);
        }
        let mut state = self.state();
        state.process_events(self.completion);
        Ok(Some(state.take(size_bytes.next_multiple_of(ROUND_BYTES), stream)))
    }

    /// `record_stream`, which does nothing for the stream that the block was allocated on.
    fn note_use(&self, block: &Option<u32>, stream: u8) -> Outcome {
        if let Some(index) = *block {
            let mut state = self.state();
            let block = state.block(index);
            if block.stream != stream {
                block.uses |= 1 << stream;
            }
        }
        Ok(())
    }

    fn free(&self, block: Option<u32>) {
        let Some(index) = block else { return };
        let state = &mut *self.state();
        let block = &mut state.blocks[index as usize];
        block.is_allocated = false;
        state.counts.allocated_bytes -= block.size_bytes;
        let mut uses = std::mem::take(&mut block.uses);
        block.event_count = uses.count_ones();
        if uses == 0 {
            return state.put(index);
        }
        while uses != 0 {
            let stream = uses.trailing_zeros() as usize;
            uses &= uses - 1;
            state.recorded[stream] += 1;
            state.events[stream].push_back((state.recorded[stream], index));
        }
    }

    fn synchronize(&self, stream: u8) -> Outcome {
        let state = &mut *self.state();
        state.over[stream as usize] = state.recorded[stream as usize];
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.state().counts
    }
}
