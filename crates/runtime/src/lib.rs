//! The runtime: it alone orders work and decides when memory is free.
//!
//! Any buffer may be used from any thread on any stream, with no lock and no synchronisation in user code. Everything
//! follows from *ticks* (a place in the work of one stream) and from the marks that each block of memory keeps: the tick
//! of its last write, and of its last read on each stream. `tick`, `marks` and `submit` hold the argument; `stream`,
//! `external`, `dedicated`, `event` and `callback` what users see of it; `alloc`, `magazine`, `large` and `bins` the memory,
//! `watch`, `pool`, `resource` and `hooks` what users put in its way, `stats` and `snapshot` what they see of it; `taint` errors;
//! `capture` and `graph` ops that are recorded once and replayed; `fork` and `local` the ends of processes and threads;
//! `trace` and `cache` what it shows and keeps.

mod alloc;
mod bins;
mod block;
mod cache;
mod callback;
mod capture;
mod dedicated;
mod device;
mod error;
mod event;
mod external;
mod file;
mod fork;
mod graph;
mod history;
mod hooks;
mod id;
mod large;
mod level;
mod local;
mod magazine;
mod marks;
mod memory;
#[cfg(all(test, not(loom)))]
mod memory_tests;
mod memory_trace;
#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
#[cfg_attr(loom, expect(dead_code, reason = "models need less of it than tests"))]
mod oracle;
#[cfg(all(test, not(loom)))]
mod planted;
mod pool;
#[cfg(all(feature = "process", not(loom)))]
pub mod process;
mod resource;
mod snapshot;
mod stats;
mod stream;
mod submit;
mod taint;
pub mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
mod tick;
pub mod trace;
mod transit;
mod watch;
mod witness;

pub use block::Buffer;
pub use cache::{CacheStats, GraphCounts};
pub use capture::{Capture, uncaptured};
pub use dedicated::{DedicatedStream, Exhausted};
pub use device::{Device, StreamStats};
pub use error::{Error, Misfit, NoTime, NotCapturable, Result, Which};
pub use event::{Event, EventFuture};
pub use external::ExternalStream;
pub use file::{FileReplacement, MappedFile, keep_access, replaceable};
pub use graph::{Graph, GraphStats, Replacement};
pub use history::{MemoryEvent, MemoryEventKind};
pub use hooks::{AfterNeed, HookGuard, MemoryNeed, OUT_OF_MEMORY_RETRY_COUNT_MAX};
pub use id::StreamId;
pub use memory::Watermarks;
pub use memory_trace::{
    MemoryTrace, Recording, TRACE_EVENT_COUNT_MAX, TRACE_THREAD_COUNT_MAX, TraceError, TraceEvent, TraceOp,
};
pub use pool::{MemoryPool, MemoryPoolGuard};
pub use raddle_hal::{self as hal, Draw, Priority};
pub use resource::{
    Allocation, DeviceMemory, FailAt, FailingResource, LimitingResource, LogFormat, LoggingResource,
    MemoryResource, ResourceStatistics, StatisticsResource,
};
pub use snapshot::MemorySnapshot;
pub use stats::{
    MemoryStats, Piece, PieceBytes, PieceState, PoolKind, PoolStats, SlabSnapshot, StreamMemory,
};
pub use stream::{Stream, StreamGuard};
pub use witness::{Claimed, Witness, witnessed};

use raddle_base::{DType, Layout};

/// The bounds of the runtime that can't be set.
pub const FIXED: &[hal::Fixed] = &[
    hal::Fixed {
        name: "streams of a device",
        value: hal::QUEUE_COUNT_MAX,
        says: "Default, pools, and those of other libraries; marks of buffers have a place for each.",
    },
    hal::Fixed {
        name: "axes of a tensor",
        value: raddle_base::MAX_RANK,
        says: "One more is an error; shapes lie in arrays, without the heap.",
    },
    hal::Fixed {
        name: "devices open at once",
        value: device::DEVICE_COUNT_MAX,
        says: "One more is an error; a tick has 8 bits for them.",
    },
    hal::Fixed {
        name: "free blocks of a class that a thread keeps",
        value: magazine::BLOCK_COUNT_MAX,
        says: "The older half goes to the centre; each allocation and free compares with it.",
    },
    hal::Fixed {
        name: "bytes of a class that a thread keeps free",
        value: magazine::CLASS_BYTES_MAX,
        says: "As above, but two blocks in any case.",
    },
    hal::Fixed {
        name: "free large blocks that a thread keeps",
        value: magazine::LARGE_COUNT_MAX,
        says: "Those that were freed first go to the centre; all do before anybody asks the device for new memory.",
    },
    hal::Fixed {
        name: "bytes of large blocks that a thread keeps free",
        value: magazine::LARGE_BYTES_MAX,
        says: "As above.",
    },
    hal::Fixed {
        name: "descriptions of large blocks without memory",
        value: large::SPARE_COUNT_MAX,
        says: "Kept for the next pieces of a device's slabs; one more, and all are freed.",
    },
    hal::Fixed {
        name: "times that an allocation looks again",
        value: alloc::LOOK_COUNT_MAX,
        says: "When it has found no memory and some was on its way between threads; then hooks are asked.",
    },
    hal::Fixed {
        name: "times that hooks are asked for the memory of one allocation",
        value: OUT_OF_MEMORY_RETRY_COUNT_MAX as usize,
        says: "Then it is out of memory.",
    },
    hal::Fixed {
        name: "wrapped streams of a device",
        value: tick::SLOT_COUNT - stream::EXTERNAL_FIRST,
        says: "One more is an error; they are part of the streams above.",
    },
    hal::Fixed {
        name: "records of launches that may fail",
        value: taint::OPEN_COUNT,
        says: "So many, or twice those in flight: one more, and those of launches that went well are forgotten.",
    },
    hal::Fixed {
        name: "callbacks that wait on a stream",
        value: callback::CALLBACK_COUNT_MAX,
        says: "One more is an error.",
    },
    hal::Fixed {
        name: "places for times that are kept for later",
        value: event::SPARE_COUNT_MAX,
        says: "Of events that take the time and are gone; one more, and the oldest is given back to the device.",
    },
    hal::Fixed {
        name: "events of a recording of allocations",
        value: TRACE_EVENT_COUNT_MAX,
        says: "More make it an error when it is read: 96 MiB of memory.",
    },
    hal::Fixed {
        name: "threads of a recording of allocations",
        value: TRACE_THREAD_COUNT_MAX,
        says: "As above.",
    },
];

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
