//! The latest allocations and frees of a device, when somebody wants them: a ring, so that it stays bounded (T9).

use raddle_sync::global;
use serde::{Deserialize, Serialize};
use std::{cell::Cell, collections::VecDeque, time::Instant};

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryEventKind {
    /// It was given out.
    Allocate,
    /// Its last handle went.
    Free,
    /// [Memory of others](crate::Foreign) was adopted.
    Adopt,
    /// The last handle of memory of others went, which is given back once what is in flight is over.
    Release,
}

/// An entry of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEvent {
    /// Nanoseconds since the history was begun.
    pub time_ns: u64,
    /// What happened.
    pub kind: MemoryEventKind,
    /// Where the block starts.
    pub address: u64,
    /// The size of the block.
    pub size_bytes: usize,
    /// How many bytes were asked for.
    pub asked_bytes: usize,
    /// The slot of the stream that was current: 0 for the default stream, then those of the pools.
    pub stream: usize,
    /// Numbers the threads of the process in the order in which histories met them.
    pub thread: u64,
}

pub(crate) struct History {
    start: Instant,
    capacity: usize,
    events: VecDeque<MemoryEvent>,
    dropped: u64,
}

/// The number of this thread.
pub(crate) fn thread_number() -> u64 {
    static NEXT: global::AtomicU64 = global::AtomicU64::new(1);
    thread_local! {
        /// Without a destructor, so that it is there to the end.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, global::Ordering::Relaxed));
    }
    NUMBER.get()
}

impl History {
    pub(crate) fn new(capacity: usize) -> History {
        History { start: Instant::now(), capacity: capacity.max(1), events: VecDeque::new(), dropped: 0 }
    }

    pub(crate) fn push(
        &mut self,
        kind: MemoryEventKind,
        address: u64,
        size_bytes: usize,
        asked_bytes: usize,
        stream: usize,
    ) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.dropped += 1;
        }
        let time_ns = self.start.elapsed().as_nanos() as u64;
        let thread = thread_number();
        self.events.push_back(MemoryEvent {
            time_ns,
            kind,
            address,
            size_bytes,
            asked_bytes,
            stream,
            thread,
        });
    }

    pub(crate) fn events(&self) -> (Vec<MemoryEvent>, u64) {
        (self.events.iter().copied().collect(), self.dropped)
    }
}
