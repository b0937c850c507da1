//! The runtime: it alone orders work and decides when memory is free.
//!
//! Any buffer may be used from any thread on any stream, with no lock and no synchronization in user code. Everything
//! follows from *ticks* (a place in the work of one stream) and from the marks that each block of memory keeps: the tick
//! of its last write, and of its last read on each stream.
//!
//! The folders are floors: each knows those below it, and no circle is among their files (`cargo xtask layers` draws them).
//!
//! | floor | what stands there |
//! |---|---|
//! | `device` | the door: what a program asks of a device |
//! | `graph` | ops that are recorded once and replayed |
//! | `stream` | what a program does with streams and events, and which stream is a thread's |
//! | `submit` | an op on its way into a queue, the only one |
//! | `memory` | which block an allocation gets, and what users see of it or put in its way |
//! | `order` | ticks, marks, waits, streams, failures that travel with the data: the argument |
//! | `host` | files and traces, of no device |
//! | `ground` | a device as all know it, errors, forked children |

mod device;
mod graph;
mod ground;
mod host;
mod memory;
mod order;
mod stream;
mod submit;
#[cfg(test)]
mod tests;

pub use device::{CacheStats, Ready, StreamStats};
pub use graph::{Capture, Graph, GraphCounts, GraphStats, Replacement};
pub use ground::{Device, Error, Misfit, NoTime, NotCapturable, Result, Which, capturing::uncaptured};
#[cfg(all(feature = "process", not(loom)))]
pub use host::harness as process;
pub use host::{FileReplacement, MappedFile, keep_access, replaceable, trace};
pub use memory::{
    AfterNeed, Buffer, Foreign, HookGuard, MemoryNeed, OUT_OF_MEMORY_RETRY_COUNT_MAX, Plain, Watermarks,
    on_release,
    policy::{
        Allocation, DeviceMemory, FailAt, FailingResource, LimitingResource, LogFormat, LoggingResource,
        MemoryPool, MemoryPoolGuard, MemoryResource, ResourceStatistics, StatisticsResource,
    },
    report::{
        MemoryEvent, MemoryEventKind, MemorySnapshot, MemoryStats, Piece, PieceBytes, PieceState, PoolKind,
        PoolStats, SlabSnapshot, StreamMemory,
        trace::{
            MemoryTrace, Recording, TRACE_EVENT_COUNT_MAX, TRACE_THREAD_COUNT_MAX, TraceError, TraceEvent,
            TraceOp,
        },
    },
};
pub use order::{Stream, StreamId};
pub use raddle_hal::{self as hal, Draw, Priority};
pub use stream::{DedicatedStream, Event, EventFuture, Exhausted, ExternalStream, StreamGuard, testing};
pub use submit::{Access, Claimed, Operand, Witness, witnessed};

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
        value: ground::DEVICE_COUNT_MAX,
        says: "One more is an error; a tick has 8 bits for them.",
    },
    hal::Fixed {
        name: "free blocks of a class that a thread keeps",
        value: memory::BLOCK_COUNT_MAX,
        says: "The older half goes to the central lists; each allocation and free compares with it.",
    },
    hal::Fixed {
        name: "bytes of a class that a thread keeps free",
        value: memory::CLASS_BYTES_MAX,
        says: "As above, but two blocks in any case.",
    },
    hal::Fixed {
        name: "free large blocks that a thread keeps",
        value: memory::LARGE_COUNT_MAX,
        says: "Those that were freed first go to the central lists; all do before anybody asks the device for new memory.",
    },
    hal::Fixed {
        name: "bytes of large blocks that a thread keeps free",
        value: memory::LARGE_BYTES_MAX,
        says: "As above.",
    },
    hal::Fixed {
        name: "descriptions of large blocks without memory",
        value: memory::SPARE_COUNT_MAX,
        says: "Kept for the next pieces of a device's slabs; one more, and all are freed.",
    },
    hal::Fixed {
        name: "times that an allocation looks again",
        value: memory::LOOK_COUNT_MAX,
        says: "When it has found no memory and some was on its way between threads; then hooks are asked.",
    },
    hal::Fixed {
        name: "times that hooks are asked for the memory of one allocation",
        value: OUT_OF_MEMORY_RETRY_COUNT_MAX as usize,
        says: "Then it is out of memory.",
    },
    hal::Fixed {
        name: "wrapped streams of a device",
        value: order::SLOT_COUNT - order::EXTERNAL_FIRST,
        says: "One more is an error; they are part of the streams above.",
    },
    hal::Fixed {
        name: "records of launches that may fail",
        value: order::taint::OPEN_COUNT,
        says: "So many, or twice those in flight: one more, and those of launches that went well are forgotten.",
    },
    hal::Fixed {
        name: "callbacks that wait on a stream",
        value: order::callbacks::CALLBACK_COUNT_MAX,
        says: "One more is an error.",
    },
    hal::Fixed {
        name: "places for times that are kept for later",
        value: order::SPARE_COUNT_MAX,
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
