//! What can go wrong below tensors.

use raddle_hal::{DeviceError, KernelError};

/// An error of the runtime. Data, not sentences; the text says where, what, expected, found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error {
    /// No memory for a block, after everything that could be given back was. The program can go on.
    #[error(
        "{device}: out of memory, {asked_bytes} bytes asked, {allocated_bytes} allocated, {free_bytes} free in the \
         cache, {pending_bytes} freed but waiting for work in flight"
    )]
    OutOfMemory {
        device: String,
        asked_bytes: usize,
        allocated_bytes: usize,
        free_bytes: usize,
        pending_bytes: usize,
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
    /// The stream has given out all its sequence numbers (2^48).
    #[error("{device}: stream {stream:#x} has used up its sequence numbers, use another one")]
    StreamExhausted { device: String, stream: u64 },
    /// The process has opened as many devices as ticks can name.
    #[error("open: no room for {name}, {count_max} devices are open")]
    TooManyDevices { name: String, count_max: usize },
    /// A file could not be mapped.
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
}

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
