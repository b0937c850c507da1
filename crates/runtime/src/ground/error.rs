//! What can go wrong below tensors.

use raddle_hal::{DeviceError, KernelError, LimitError};
use std::fmt;

/// An error of the runtime. Data, not sentences; the text says where, what, expected, found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error {
    /// No memory for a block, after everything that could be given back was. The program can go on.
    #[error(
        "{device}: out of memory, {asked_bytes} bytes asked, {allocated_bytes} allocated, {free_bytes} free in the \
         cache, {pending_bytes} freed but waiting for work in flight, {}",
        bound(*bound_bytes)
    )]
    OutOfMemory {
        device: String,
        asked_bytes: usize,
        allocated_bytes: usize,
        free_bytes: usize,
        pending_bytes: usize,
        /// What all of that and what is asked may come to: the least of the limit that was set and what the device has, if
        /// either is known. Other programs may hold some of it.
        bound_bytes: Option<usize>,
    },
    /// The device or its driver failed.
    #[error("{device}: {error}")]
    Device { device: String, error: DeviceError },
    /// A kernel failed on the device. Told to whoever depends on its results, and to nobody else.
    #[error("{op}: {error}, in op {sequence} of stream {stream}")]
    Kernel { op: &'static str, error: KernelError, stream: u64, sequence: u64 },
    /// The device belongs to the process that opened it.
    #[error(
        "{device}: used in a forked child, where only the CPU device works; open the device after the fork"
    )]
    Forked { device: String },
    /// Work that was in flight when the process forked is done in the parent only.
    #[error("{device}: the child reads a buffer that was still being written when the process forked")]
    LostAtFork { device: String },
    /// A stream id that doesn't name a stream of the device.
    #[error("{device}: no stream has the id {id:#x}")]
    UnknownStream { device: String, id: u64 },
    /// The stream is of another device.
    #[error("{op}: expected a stream of {expected}, found one of {found}")]
    StreamDevice { op: &'static str, expected: String, found: String },
    /// The buffer is of another device.
    #[error("{op}: expected a buffer of {expected}, found one of {found}")]
    BufferDevice { op: &'static str, expected: String, found: String },
    /// Bytes that a buffer doesn't have.
    #[error(
        "{op}: expected a range within {buffer_bytes} bytes, found {size_bytes} bytes from {offset_bytes} on"
    )]
    BufferRange { op: &'static str, offset_bytes: usize, size_bytes: usize, buffer_bytes: usize },
    /// An op would write [memory of others](crate::Foreign) that is there to be read.
    #[error(
        "{op}: the output is memory of others that may only be read, {size_bytes} bytes on {device}; use copy() first"
    )]
    ReadOnly { op: &'static str, device: String, size_bytes: usize },
    /// The stream has given out all its sequence numbers (2^48).
    #[error("{device}: stream {stream:#x} has used up its sequence numbers, use another one")]
    StreamExhausted { device: String, stream: u64 },
    /// A handle of a wrapped stream that has been closed.
    #[error("{device}: stream {stream:#x} was wrapped and has been closed; wrap it again")]
    StreamClosed { device: String, stream: u64 },
    /// All slots for wrapped streams are taken.
    #[error(
        "{device}: no room for another wrapped stream, expected less than {count_max}, found {open_count} open and \
         {pending_count} closed with work in flight"
    )]
    ExternalStreamsExhausted { device: String, count_max: usize, open_count: usize, pending_count: usize },
    /// No stream is free for a thread that wants one for itself.
    #[error(
        "dedicated: all {count_max} streams of {device} are dedicated or in use; wait, or use shared ones"
    )]
    StreamsTaken { device: String, count_max: usize },
    /// A thread has one dedicated stream of a device at most.
    #[error("dedicated: this thread has a stream of {device} for itself already")]
    AlreadyDedicated { device: String },
    /// Callbacks are bounded.
    #[error("on_complete: {count_max} callbacks wait on stream {stream:#x} of {device} already")]
    TooManyCallbacks { device: String, stream: u64, count_max: usize },
    /// A call that waits for all callbacks, in one of them.
    #[error("{op}: called in a callback of a stream of {device}, for which it would wait for ever")]
    InCallback { op: &'static str, device: String },
    /// The time between two events can't be told.
    #[error("elapsed: the {which} event {reason}")]
    Elapsed { which: Which, reason: NoTime },
    /// The process has opened as many devices as ticks can name.
    #[error("open: no room for {name}, {count_max} devices are open")]
    TooManyDevices { name: String, count_max: usize },
    /// A call that a capture can't hold.
    #[error("{op}: can't be captured on {device}, {reason}")]
    NotCapturable { op: &'static str, device: String, reason: NotCapturable },
    /// The value of something that was made inside of a capture and kept outside.
    #[error(
        "{device}: a value is read that was made inside of a capture, where nothing runs; return it from the captured \
         closure, and each replay gives one"
    )]
    Captured { device: String },
    /// An operand of a graph can't be replaced by what was given for it.
    #[error("replay: replacement {index} doesn't fit, {reason}")]
    Replacement { index: usize, reason: Misfit },
    /// Not a part of a device's memory.
    #[error("set_memory_fraction: {device}, expected a number from 0 to 1, found {found}")]
    MemoryFraction { device: String, found: f64 },
    /// The device doesn't say how much memory it has.
    #[error("set_memory_fraction: {device} doesn't say how much memory it has, use set_memory_limit")]
    UnknownMemory { device: String },
    /// Watermarks in the wrong order.
    #[error(
        "{op}: {device}, expected a low mark up to the high one of {high_bytes} bytes, found {low_bytes}"
    )]
    Watermarks { op: &'static str, device: String, low_bytes: usize, high_bytes: usize },
    /// A memory resource for another device.
    #[error("set_memory_resource: expected a resource of {expected}, found one of {found}")]
    ResourceDevice { expected: String, found: String },
    /// A memory resource gave something else than was asked for.
    #[error(
        "{device}: the memory resource was asked for {expected_bytes} bytes, found {found_bytes} of {found_device}"
    )]
    ResourceMisfit { device: String, expected_bytes: usize, found_device: String, found_bytes: usize },
    /// A text that isn't a memory snapshot.
    #[error("memory snapshot: {reason}")]
    Snapshot { reason: String },
    /// A limit that was asked for, by the program or by the environment, is none.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A file could not be mapped or written.
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
}

/// Which of two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one from which the time is counted.
    Start,
    /// The other one.
    End,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Which::Start => "start",
            Which::End => "end",
        })
    }
}

/// Why an event has no time that could be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTime {
    /// It was made by [`Event::new`](crate::Event::new).
    Untimed,
    /// It has recorded nothing.
    NotRecorded,
    /// The work before it is in flight.
    NotComplete,
    /// It was recorded on another device than the start.
    Device,
    /// It was recorded in a capture, where nothing runs.
    Captured,
}

impl fmt::Display for NoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoTime::Untimed => "takes no time, make it by Event::timing()",
            NoTime::NotRecorded => "has not been recorded",
            NoTime::NotComplete => "is not complete, synchronize it first",
            NoTime::Device => "was recorded on another device than the start event",
            NoTime::Captured => "was recorded inside of a capture, where nothing runs",
        })
    }
}

/// Why a call can't be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCapturable {
    /// It reads what hasn't been computed.
    Download,
    /// It copies from memory of the host, which a replay would not find again.
    Upload,
    /// It waits for work that isn't there.
    Wait,
    /// This thread is capturing already.
    Nested,
    /// Graphs don't contain graphs.
    Replay,
    /// This thread is ending, and what it records into is gone.
    Ending,
}

impl fmt::Display for NotCapturable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotCapturable::Download => "nothing has run whose values could be read; read them after a replay",
            NotCapturable::Upload => "a replay won't find these bytes of the host; upload them before",
            NotCapturable::Wait => "nothing has been submitted that could be waited for",
            NotCapturable::Nested => "this thread is capturing already",
            NotCapturable::Ending => "the thread is ending and its thread-locals are being destroyed",
            NotCapturable::Replay => "a graph can't contain another one; replay it outside",
        })
    }
}

/// Why something can't stand for an operand of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The graph has no such operand.
    Unknown,
    /// It is replaced twice.
    Repeated,
    /// It is on another device.
    Device,
    /// The graph reads or writes more of the operand's memory than the replacement has.
    Range,
    /// Its first element lies elsewhere modulo 256 bytes, for which the kernels would have to be chosen anew.
    Alignment,
    /// Its memory is another operand's, and one of the two is written.
    Shared,
    /// It is written, and its memory may only be read.
    ReadOnly,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misfit::Unknown => "expected a tensor that was made outside and is used inside of the captured closure",
            Misfit::Repeated => "the operand is replaced twice",
            Misfit::Device => "it is on another device than the graph",
            Misfit::Range => "the graph uses more of the operand's storage than the replacement's has",
            Misfit::Alignment => {
                "expected a start that differs by a multiple of 256 bytes from the operand's, use copy() first"
            }
            Misfit::ReadOnly => "the graph writes it, and it is memory of others that may only be read, use copy() first",
            Misfit::Shared => "its memory is another operand's, and one of the two is written, use copy() first",
        })
    }
}

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

fn bound(bytes: Option<usize>) -> String {
    bytes.map_or("and no limit but the device's".into(), |bytes| format!("of {bytes} that it may hold"))
}
