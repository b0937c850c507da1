//! What a program does with a stream, but for events and for what is current on its thread.
//!
//! A thread is bound to the least shared of the default and the normal streams at its first op and lets go of it when it ends (or
//! by [`Device::release_current_thread`](crate::Device::release_current_thread)); streams may be shared, so the number of threads
//! has no limit. Who wants one for a thread alone takes it ([`Stream::dedicated`]).

use crate::{
    ground::{Device, Error, Floor, NotCapturable, Result, capturing, fork},
    order::{EXTERNAL_FIRST, POOL_COUNT, Stream, StreamId, StreamInner, Streams, Tick},
};
use raddle_hal::{Launch, Priority};
use raddle_sync::{atomic::Ordering::*, fault};

impl Stream {
    /// The default stream of a device. Doesn't synchronize with others by itself: nothing here needs that.
    pub fn default(device: &Device) -> Result<Stream> {
        Streams::of(device.0).stream(0).map(StreamInner::handle)
    }

    /// The next stream of a pool, round-robin; 32 of each priority unless limited, made when first wanted. Streams that are
    /// dedicated to a thread, or have used their numbers up, are passed over; the default stream if all are.
    pub fn from_pool(device: &Device, priority: Priority) -> Result<Stream> {
        let streams = Streams::of(device.0);
        let (next, first) = match priority {
            Priority::Normal => (&streams.next_normal, 1),
            Priority::High => (&streams.next_high, 1 + POOL_COUNT),
        };
        for _ in 0..streams.pool_count {
            let index = next.fetch_add(1, Relaxed) as usize % streams.pool_count;
            let index = if fault!(streams_from_the_front) { index / 2 } else { index };
            let stream = streams.stream(first + index)?;
            if stream.owner.load(Relaxed) == 0 && !stream.is_exhausted() {
                return Ok(stream.handle());
            }
        }
        Stream::default(device)
    }

    /// The stream that an id names. Any number may be given: one that names nothing, another device's, or a wrapped stream
    /// that has been closed is an error.
    pub fn from_id(device: &Device, id: StreamId) -> Result<Stream> {
        let streams = Streams::of(device.0);
        let stream = match id.decode(device.0.id) {
            Some(slot) if slot >= EXTERNAL_FIRST => streams.made(slot),
            Some(slot) => Some(streams.stream(slot)?),
            None => None,
        };
        let unknown = || Error::UnknownStream { device: device.name().into(), id: id.0 };
        let is_named = |stream: &Stream| {
            fault!(stray_id_decodes => return true);
            stream.id() == id
        };
        let stream = stream.map(StreamInner::handle).filter(is_named).ok_or_else(unknown)?;
        stream.check_open().map(|()| stream)
    }

    /// Is everything complete that has been put on it? An open but empty command buffer is. On a wrapped stream that includes
    /// what others have put there; of one that is closed, up to then. Doesn't block.
    pub fn query(self) -> bool {
        if self.0.generation.load(Acquire) > self.1.saturating_add(1) {
            return true; // the slot was opened again, which is done when its work is complete
        }
        let is_complete = || self.0.query(self.0.latest().sequence());
        if !is_complete() {
            return false;
        }
        if !self.0.is_external() {
            return true;
        }
        match self.is_idle() {
            Some(idle) => idle,
            // What others have put there has no tick, so it gets one.
            None => self.mark().is_err() || is_complete(),
        }
    }

    /// What the device says of a wrapped stream, if it can and the stream is open.
    fn is_idle(self) -> Option<bool> {
        if fork::is_child(self.0.device) {
            return None;
        }
        // Under the lock that closing takes, so that the stream lives.
        let _state = self.0.state.lock();
        self.check_open().ok().and_then(|()| self.0.device.hal.is_idle(self.0.queue()))
    }

    /// Blocks until everything that has been put on it is complete; waits for no other stream but for what that work
    /// itself waits for. On a wrapped stream that includes what others have put there.
    pub fn synchronize(self) -> Result<()> {
        capturing::refuse(self.0.device, "synchronize", NotCapturable::Wait)?;
        self.0.synchronize(self.now()?.sequence())
    }

    /// A tick of everything that is on the stream now, also of what others have put on a wrapped one. Blocks only while a
    /// wrapped one is full.
    pub(crate) fn now(self) -> Result<Tick> {
        let mut is_fenced = self.0.is_external();
        fault!(foreign_work_unseen => is_fenced = false);
        if is_fenced {
            self.0.wait_for_room()?;
            self.mark()?;
        }
        Ok(self.0.latest())
    }

    /// Puts nothing on it, which gives a tick to what others have put there before.
    pub(crate) fn mark(self) -> Result<()> {
        self.enqueue("mark", &Launch::Nothing, &mut [], &[]).map(drop)
    }

    /// Puts whatever is submitted to this stream from now on behind everything that is on another one. Doesn't wait for that;
    /// if there is something it takes a place on this stream (and on the other one, if that is wrapped), and blocks while
    /// there is none.
    pub fn wait_stream(self, other: Stream) -> Result<()> {
        if !std::ptr::eq(self.0.device, other.0.device) {
            return Err(Error::StreamDevice {
                op: "wait_stream",
                expected: self.device().name().into(),
                found: other.device().name().into(),
            });
        }
        self.check_open()?;
        self.wait_tick(other.now()?)
    }

    pub(super) fn wait_tick(self, tick: Tick) -> Result<()> {
        if fork::is_child(self.0.device) {
            return fork::check(self.0.device);
        }
        if tick.slot() == self.0.slot || self.0.device.is_complete(tick) {
            return Ok(());
        }
        self.submit("wait", &Launch::Nothing, &mut [], &[tick]).map(drop)
    }

    /// As [`Stream::now`]. Of a stream that takes no more work what it has taken: all of it, if it is closed.
    pub(crate) fn recorded(self) -> Tick {
        let latest = self.now().unwrap_or_else(|_| self.0.latest());
        let mut sequence = latest.sequence();
        fault!(event_early => if sequence > 1 { sequence -= 1 });
        self.0.tick(sequence)
    }
}
