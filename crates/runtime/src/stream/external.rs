//! Streams that other code has made, as streams of a device.
//!
//! A wrapped stream takes ops, waits and events like any other. What others put on it has no tick: whenever the runtime
//! has to know of all that is there (`query`, `synchronize`, `record`, `wait_stream`, the fence at the free of a block that
//! was noted by [`Device::record_stream`]) it puts *nothing* on the stream, in order, and that has one.
//!
//! **Close.** The owner, [`ExternalStream`], puts a last tick on the stream, then the device takes what it needs to tell later
//! when that is complete, and the handle isn't looked at again: what is freed later, or still waits, has that tick. So the
//! foreign stream may be destroyed at once, with work in flight, as its own API allows.
//!
//! **Slots.** There are 63. A slot is used again when it is closed and its last tick is complete, and continues its
//! sequence, so what is marked with its ticks stays right, and nothing has to be ordered between the two lives. Blocks hold
//! no slot: they have ticks. Handles of the former life are told by their generation.

use crate::{
    ground::{Device, Error, Floor, Result, fork},
    order::{EXTERNAL_FIRST, SLOT_COUNT, Stream, StreamInner, Streams},
};
use raddle_hal::{Priority, QueueId};
use raddle_sync::{atomic::Ordering::*, fault};
use std::ops::Deref;

/// Owns a wrapped stream: what is derived from it, by `Deref` or as an id, is refused once this is closed or dropped. May be
/// used and closed from any thread.
#[derive(Debug)]
#[must_use = "the stream is closed when this is dropped"]
pub struct ExternalStream {
    stream: Stream,
    is_open: bool,
}

impl Deref for ExternalStream {
    type Target = Stream;
    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Stream {
    /// Wraps a stream that other code has made; on CUDA a `CUstream`, as a number. The legacy default stream (0 or 1) can be
    /// wrapped. Doesn't wait for its work. Its priority is whatever it was made with; [`Stream::priority`] doesn't know it.
    ///
    /// What others do on the stream with the runtime's memory is theirs to order, by events, or by putting it behind ops
    /// of the runtime on this stream; and [`Device::record_stream`] keeps the memory from being used again too early.
    ///
    /// Errors: [`Error::Device`] if the device has no such streams (the CPU), or refuses the handle: per-thread default
    /// streams, streams of another context. [`Error::ExternalStreamsExhausted`].
    ///
    /// # Safety
    /// - The handle names a live stream of the device's API, and does so until this has been closed or dropped.
    /// - It doesn't capture a graph while it is wrapped.
    pub unsafe fn wrap(device: &Device, handle: u64) -> Result<ExternalStream> {
        // SAFETY: the contract is the same.
        let stream = unsafe { open(Streams::of(device.0), handle) }?;
        Ok(ExternalStream { stream, is_open: true })
    }

    /// The stream as the device's API knows it, for other code: on CUDA a `CUstream`. None if the device has no such thing.
    /// What others put on it, the runtime doesn't know of; if they want it ordered, they use events of that API, or wrap
    /// a stream of their own and use that.
    pub fn as_raw(self) -> Option<u64> {
        self.check_open().ok()?;
        // Whoever uses the handle, has it from here.
        self.0.is_shown.store(true, Relaxed);
        self.0.device.hal.raw_queue(self.0.queue())
    }

    /// Was it made by other code?
    pub fn is_external(self) -> bool {
        self.0.is_external()
    }
}

impl ExternalStream {
    /// Ends the use of the stream, behind everything that is on it, without waiting for that. From now on the runtime doesn't
    /// touch it, and it may be destroyed. Dropping does the same, and tells no error. An error means that the stream
    /// could take no last op; it is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_open, false) { close(self.stream) } else { Ok(()) }
    }
}

impl Drop for ExternalStream {
    fn drop(&mut self) {
        // A device that is lost holds nothing any more; there is nobody to tell.
        _ = self.close_once();
    }
}

/// # Safety
/// - As `Stream::wrap`.
unsafe fn open(device: &'static Streams, handle: u64) -> Result<Stream> {
    if fork::is_child(device) {
        return Err(Error::Forked { device: device.name().into() });
    }
    let _pool = device.pool.lock();
    let (mut open_count, mut pending_count) = (0, 0);
    let take = |slot: usize| {
        // SAFETY: the queue was never opened, or is closed and complete; the handle is by the contract.
        unsafe { device.hal.open_external(QueueId(slot as u8), handle) }.map_err(|error| device.error(error))
    };
    for slot in EXTERNAL_FIRST..SLOT_COUNT {
        let Some(stream) = device.made(slot) else {
            take(slot)?;
            return Ok(device.publish(StreamInner::new(device, slot, Priority::Normal)).handle());
        };
        let state = stream.state.lock();
        let generation = stream.generation.load(Relaxed);
        if generation.is_multiple_of(2) {
            open_count += 1;
        } else if !stream.is_complete(state.sequence) || fault!(closed_slots_stay) {
            pending_count += 1;
        } else {
            take(slot)?;
            stream.generation.store(generation.wrapping_add(1), Release); // pairs with the Acquire in `handle`
            return Ok(stream.handle());
        }
    }
    let (device, count_max) = (device.name().into(), SLOT_COUNT - EXTERNAL_FIRST);
    Err(Error::ExternalStreamsExhausted { device, count_max, open_count, pending_count })
}

fn close(stream: Stream) -> Result<()> {
    let inner = stream.0;
    if fork::is_child(inner.device) {
        return Ok(()); // its locks, and the stream, are the parent's
    }
    let last = if fault!(unfenced_close) { Ok(()) } else { stream.mark() };
    // What another thread puts there in between is before this, too.
    let _state = inner.state.lock();
    inner.device.hal.close_external(inner.queue());
    inner.generation.store(stream.1.wrapping_add(1), Release); // pairs with the Acquire in `handle`
    last
}
