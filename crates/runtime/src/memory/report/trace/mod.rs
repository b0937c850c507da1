//! Allocation traces: what a program allocates, uses and frees, on which threads and streams, in one order in which it might
//! have done so alone. A trace names no address and no content, so it can be replayed against any allocator.
//!
//! Guarantees: in a [`MemoryTrace`], whoever made it, an allocation is used and freed after it was made, and freed once at
//! most; a recording holds every event of its time or is an error, so that what is missing can't pass for a better
//! allocator. `record` holds the argument, `format` what a file looks like.

mod events;
mod format;
mod record;
#[cfg(all(test, not(loom)))]
#[path = "../../../tests/memory/trace.rs"]
mod tests;

pub use events::{
    MemoryTrace, TRACE_EVENT_COUNT_MAX, TRACE_THREAD_COUNT_MAX, TraceError, TraceEvent, TraceOp,
};
pub use record::Recording;
pub(crate) use record::{allocated, freed, is_on, synchronized, used};
