//! Recording. Off, it costs an allocation, a free and a launch one load each.
//!
//! **Order.** Every event draws a number by one read-modify-write on one counter. What happens before something else, on
//! whatever threads, has the smaller number, since the counter's values are in one order that agrees with it; so sorting by
//! number gives an order in which an allocation comes before its uses, and all of them before its free. (Times don't: two
//! threads may read the same.) Frees are recorded before the block is given back, allocations after it was given out.
//!
//! **Whole or nothing.** Ending a recording closes the counter, so what is recorded is all that came before one moment,
//! and nothing that came after it; that many events must be there, or it is an error.
//!
//! **Bounds.** Events lie in a fixed number of shards, chosen by the thread, so that threads seldom meet and leave nothing
//! behind when they end (T9). A recording with too many events is an error at its end.

use super::{MemoryTrace, TRACE_EVENT_COUNT_MAX, TraceError, TraceEvent, TraceOp};
use crate::{
    ground::{Core, Device, Floor, fork},
    memory::{block::Block, local, report::history::thread_number, store::Memory},
    order::StreamInner,
};
use raddle_sync::{
    RaceOnce, fault,
    global::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering::*, PoisonError},
};
use std::{
    collections::{HashMap, HashSet},
    ptr,
    time::Instant,
};

/// Set in the counter while nothing is recorded.
const CLOSED: u64 = 1 << 63;
/// guess: more than there are cores in most machines
const SHARD_COUNT: usize = 64;

/// Is there a [`Recording`]?
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// The address of the device that is recorded; 0 if none is.
static RECORDED: AtomicUsize = AtomicUsize::new(0);
/// The number of the next event.
static NEXT: AtomicU64 = AtomicU64::new(CLOSED);
/// Counts recordings: a block that was given out during another one than the present isn't known.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static SHARDS: [Mutex<Vec<Raw>>; SHARD_COUNT] = [const { Mutex::new(Vec::new()) }; SHARD_COUNT];

/// An event as it is recorded: allocations have the number of the event that made them.
#[derive(Clone, Copy)]
struct Raw {
    number: u64,
    time_us: u64,
    thread: u32,
    stream: u8,
    op: TraceOp,
}

fn lock(shard: &Mutex<Vec<Raw>>) -> MutexGuard<'_, Vec<Raw>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_us() -> u64 {
    static ORIGIN: RaceOnce<Instant> = RaceOnce::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_micros() as u64
}

/// Is the device recorded? Acquire pairs with the Release in `end`: who sees that a recording is over, sees the counter
/// closed, and so does everybody who comes after.
#[inline]
pub(crate) fn is_on(device: &Core) -> bool {
    RECORDED.load(Acquire) == ptr::from_ref(device).addr()
}

/// Records what `op` says, which is given the generation; returns that and the number of the event, as a block keeps them. The
/// device is looked at again under the shard's lock, which whoever ends a recording takes after closing the counter: so
/// until the lock is released no other recording begins.
fn record(device: &Core, stream: usize, op: impl FnOnce(u32) -> Option<TraceOp>) -> Option<u64> {
    let thread = thread_number() as u32;
    let mut shard = lock(&SHARDS[thread as usize % SHARD_COUNT]);
    if !is_on(device) {
        return None;
    }
    let generation = GENERATION.load(Relaxed); // stored before the device, which was seen
    let op = op(generation)?;
    let number = NEXT.fetch_add(1, Relaxed);
    if number >= TRACE_EVENT_COUNT_MAX as u64 {
        return None;
    }
    let mut is_kept = true;
    fault!(lost_trace_event => is_kept = number % 16 != 15);
    if is_kept {
        shard.push(Raw { number, time_us: now_us(), thread, stream: stream as u8, op });
    }
    Some(u64::from(generation) << 32 | number)
}

/// Which allocation of a recording a block is, if it is one. Whoever has the block got it by a synchronized way.
fn allocation(block: &Block, generation: u32) -> Option<u32> {
    let traced = block.traced.load(Relaxed);
    ((traced >> 32) as u32 == generation).then_some(traced as u32)
}

/// A block has been given out on this thread. Binds the thread to its stream, since that is where it is going to be used.
#[cold]
pub(crate) fn allocated(block: &Block) {
    let stream = Memory::of(block.device).above.bound_slot(block.device);
    let size_bytes = block.asked_bytes.load(Relaxed) as u64;
    if let Some(traced) = record(block.device, stream, |_| Some(TraceOp::Allocate { size_bytes })) {
        block.traced.store(traced, Relaxed);
    }
}

/// A block is about to be given back by this thread. What touches it from now on is no use of the allocation.
#[cold]
pub(crate) fn freed(block: &Block) {
    let stream = local::get(block.device).map_or(0, |local| local.slot());
    let op = |generation| Some(TraceOp::Free { allocation: allocation(block, generation)? });
    record(block.device, stream, op);
    block.traced.store(0, Relaxed);
}

/// An op that touches blocks has been put on a stream.
#[cold]
pub(crate) fn used<'a>(stream: &StreamInner, blocks: impl Iterator<Item = &'a Block>) {
    for block in blocks {
        let op = |generation| Some(TraceOp::Use { allocation: allocation(block, generation)? });
        record(stream.device, stream.slot, op);
    }
}

/// Everything that was on a stream is complete.
#[cold]
pub(crate) fn synchronized(stream: &StreamInner) {
    record(stream.device, stream.slot, |_| Some(TraceOp::Synchronize));
}

/// A recording of a device's allocations, from [`Device::record_memory`]. Dropping it ends and forgets it.
#[derive(Debug)]
#[must_use = "the recording ends when it is dropped"]
pub struct Recording {
    start_us: u64,
    /// The process's count of forks when it was begun: what is recorded lies behind locks of that process.
    forks: u32,
}

impl Recording {
    fn is_parents(&self) -> bool {
        fault!(child_takes_locks => return false);
        self.forks != fork::count()
    }
}

impl Device {
    /// Records what is allocated on the device from now on, by all threads, until [`Recording::finish`]. Buffers that are
    /// there already are no part of it. One recording at a time in a process; meanwhile allocations, frees and launches
    /// take some 100 ns longer.
    ///
    /// Errors: [`TraceError::Recording`].
    pub fn record_memory(&self) -> Result<Recording, TraceError> {
        if UNDER_WAY.swap(true, Acquire) {
            return Err(TraceError::Recording);
        }
        GENERATION.fetch_add(1, Relaxed);
        NEXT.store(0, Relaxed);
        RECORDED.store(ptr::from_ref(self.0).addr(), Release); // pairs with the Acquire in `is_on`
        Ok(Recording { start_us: now_us(), forks: fork::count() })
    }
}

/// How many numbers have been drawn, and the events.
fn end() -> (u64, Vec<Raw>) {
    // In this order: otherwise one thread might leave out a free that another one, which still records, goes on from.
    let count = NEXT.fetch_or(CLOSED, Relaxed);
    RECORDED.store(0, Release); // pairs with the Acquire in `is_on`
    let mut events = Vec::new();
    SHARDS.iter().for_each(|shard| events.append(&mut std::mem::take(&mut *lock(shard))));
    UNDER_WAY.store(false, Release); // pairs with the Acquire in `record_memory`: the shards are empty
    (count, events)
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_parents() {
            end();
        }
    }
}

impl Recording {
    /// Ends it. What other threads do at the same time is in the trace up to one moment. Of the uses of an allocation on one
    /// stream the last one is kept, which covers the others.
    ///
    /// Errors: more than [`TRACE_EVENT_COUNT_MAX`] events or [`TRACE_THREAD_COUNT_MAX`](super::TRACE_THREAD_COUNT_MAX)
    /// threads; [`TraceError::Forked`].
    pub fn finish(self) -> Result<MemoryTrace, TraceError> {
        if self.is_parents() {
            return Err(TraceError::Forked);
        }
        let (expected, mut events) = end();
        let start_us = self.start_us;
        std::mem::forget(self); // it has ended
        if expected > TRACE_EVENT_COUNT_MAX as u64 {
            return Err(TraceError::Full { count_max: TRACE_EVENT_COUNT_MAX });
        }
        if events.len() as u64 != expected {
            return Err(TraceError::Lost { expected, found: events.len() });
        }
        if !fault!(unordered_trace) {
            events.sort_unstable_by_key(|event| event.number);
        }
        let mut later = HashSet::new();
        let mut is_last = |event: &Raw| match event.op {
            TraceOp::Use { allocation } => later.insert((allocation, event.stream)),
            _ => true,
        };
        let mut kept: Vec<Raw> = events.into_iter().rev().filter(|event| is_last(event)).collect();
        kept.reverse();
        // From numbers of events to numbers of allocations, and from threads of the process to those of the trace.
        let (mut allocations, mut threads) = (HashMap::new(), HashMap::new());
        let mut time_us = 0;
        MemoryTrace::new(kept.into_iter().map(|event| {
            let known = |number: u32| allocations.get(&number).copied().unwrap_or(u32::MAX);
            let op = match event.op {
                TraceOp::Use { allocation } => TraceOp::Use { allocation: known(allocation) },
                TraceOp::Free { allocation } => TraceOp::Free { allocation: known(allocation) },
                op => op,
            };
            if let TraceOp::Allocate { .. } = op {
                allocations.insert(event.number as u32, allocations.len() as u32);
            }
            let next_thread = threads.len();
            let thread = *threads.entry(event.thread).or_insert(next_thread);
            // A thread may be held up between drawing its number and reading the time.
            time_us = event.time_us.saturating_sub(start_us).max(time_us);
            let thread = u16::try_from(thread).unwrap_or(u16::MAX);
            TraceEvent { time_us, thread, stream: event.stream, op }
        }))
    }
}
