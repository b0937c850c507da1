//! The runtime: it alone orders work and decides when memory is free.
//!
//! Any buffer may be used from any thread on any stream, with no lock and no synchronisation in user code. Everything
//! follows from *ticks* (a place in the work of one stream) and from the marks that each block of memory keeps: the tick
//! of its last write, and of its last read on each stream. `tick`, `marks` and `submit` hold the argument; `stream` and
//! `event` what users see of it; `alloc`, `magazine` and `large` the memory; `taint` errors; `capture` and `graph` ops that
//! are recorded once and replayed; `fork` and `local` the ends of processes and threads.

mod alloc;
mod block;
mod capture;
mod device;
mod error;
mod event;
mod file;
mod fork;
mod graph;
mod large;
mod local;
mod magazine;
mod marks;
mod memory_trace;
#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod oracle;
mod stream;
mod submit;
mod taint;
#[cfg(all(test, not(loom)))]
mod tests;
mod tick;

pub use alloc::MemoryStats;
pub use block::Buffer;
pub use capture::{Capture, uncaptured};
pub use device::{Device, StreamStats};
pub use error::{Error, Misfit, NotCapturable, Result};
pub use event::Event;
pub use file::MappedFile;
pub use graph::{Graph, GraphStats, Replacement};
pub use memory_trace::{
    MemoryTrace, Recording, TRACE_EVENT_COUNT_MAX, TRACE_THREAD_COUNT_MAX, TraceError, TraceEvent, TraceOp,
};
pub use raddle_hal::{self as hal, Draw, Priority};
pub use stream::{Stream, StreamGuard, StreamId};

use raddle_base::{DType, Layout};

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
