//! Streams: the pool of a device, the binding of threads to them, and what user code can do with one.
//!
//! A device has [`QUEUE_COUNT_MAX`](raddle_hal::QUEUE_COUNT_MAX) slots: 0 is the default stream, then 32 of normal and 32
//! of high priority, made when they are first wanted. A thread is bound to the least shared of the default and the
//! normal streams at its first op and lets go of it when it ends (or by [`Device::release_current_thread`]); streams may
//! be shared, so the number of threads has no limit. Streams live as long as the process, so a handle is `Copy`.

use crate::{
    Device, Error, Event, NotCapturable, Result, capture,
    device::DeviceInner,
    local, memory_trace,
    submit::State,
    tick::{Clock, Tick},
};
use raddle_hal::{Launch, Priority, QueueId};
use raddle_sync::{
    Mutex, Padded, Rank,
    atomic::{AtomicU32, AtomicU64, Ordering::*},
    fault,
};
use std::{collections::VecDeque, marker::PhantomData};

/// Streams of each priority.
pub(crate) const POOL_COUNT: usize = if cfg!(loom) { 1 } else { 32 };

/// Names a stream for other programs: which device, which pool, which index, in 64 bits.
///
/// | bits | meaning |
/// |---|---|
/// | 0–15 | index in its pool |
/// | 16–23 | pool: 0 default, 1 normal, 2 high |
/// | 24–31 | origin: 0 made by the runtime |
/// | 32–47 | device |
/// | 48–63 | 0x5244, so that a stray number isn't taken for an id |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    const MAGIC: u64 = 0x5244;

    fn encode(device: u8, slot: usize) -> StreamId {
        let (pool, index) = match slot {
            0 => (0, 0),
            slot if slot <= POOL_COUNT => (1, slot - 1),
            slot => (2, slot - 1 - POOL_COUNT),
        };
        StreamId(Self::MAGIC << 48 | u64::from(device) << 32 | pool << 16 | index as u64)
    }

    /// The slot, if the id names a stream that the device can have.
    fn decode(self, device: u8) -> Option<usize> {
        let (pool, index) = (self.0 >> 16 & 0xff, (self.0 & 0xffff) as usize);
        let slot = match pool {
            0 if index == 0 => 0,
            1 if index < POOL_COUNT => 1 + index,
            2 if index < POOL_COUNT => 1 + POOL_COUNT + index,
            _ => return None,
        };
        (self == StreamId::encode(device, slot)).then_some(slot)
    }
}

/// A stream of a device. Everything that a thread submits goes to its current stream, in order.
///
/// | field | stored by | loaded by |
/// |---|---|---|
/// | `state` | holder of its lock | holder of its lock |
/// | `enqueued` | holder of `state`, Release | anybody; Acquire pairs with it: what has a tick has been submitted |
/// | `completed` | anybody, by maximum, after asking the device | anybody: a lower bound |
/// | `history` | holder of `state` and of its own lock | anybody under its lock |
/// | `users` | threads that bind or let go | anybody |
pub(crate) struct StreamInner {
    pub(crate) device: &'static DeviceInner,
    pub(crate) slot: usize,
    pub(crate) priority: Priority,
    pub(crate) state: Padded<Mutex<State>>,
    pub(crate) enqueued: Padded<AtomicU64>,
    pub(crate) completed: Padded<AtomicU64>,
    /// (sequence, the clock from then on), oldest first.
    pub(crate) history: Mutex<VecDeque<(u64, Box<Clock>)>>,
    /// Threads that are bound to it.
    pub(crate) users: AtomicU32,
}

// As for `DeviceInner`.
impl std::panic::RefUnwindSafe for StreamInner {}

impl StreamInner {
    pub(crate) fn new(device: &'static DeviceInner, slot: usize, priority: Priority) -> StreamInner {
        StreamInner {
            device,
            slot,
            priority,
            state: Padded(Mutex::new(Rank::Stream, State::new())),
            enqueued: Padded(AtomicU64::new(0)),
            completed: Padded(AtomicU64::new(0)),
            history: Mutex::new(Rank::History, VecDeque::new()),
            users: AtomicU32::new(0),
        }
    }

    pub(crate) fn queue(&self) -> QueueId {
        QueueId(self.slot as u8)
    }

    pub(crate) fn tick(&self, sequence: u64) -> Tick {
        Tick::new(self.device.index, self.slot, sequence)
    }

    /// Everything that has been enqueued so far.
    pub(crate) fn latest(&self) -> Tick {
        self.tick(self.enqueued.load(Acquire)) // pairs with the Release in `submit`
    }

    /// Is a sequence number complete? Asks the device only if the last answer doesn't do.
    #[inline]
    pub(crate) fn is_complete(&self, sequence: u64) -> bool {
        sequence <= self.completed.load(Acquire) || self.poll() >= sequence
    }

    /// Asks the device what is complete. AcqRel: whoever loads the number sees what the device has written before.
    #[inline]
    pub(crate) fn poll(&self) -> u64 {
        let completed = self.device.hal.completed(self.queue());
        if completed > self.completed.load(Relaxed) {
            raddle_sync::raise(&self.completed, completed);
        }
        completed
    }

    /// Is a sequence number complete? If not, makes sure that it will be without another call.
    pub(crate) fn query(&self, sequence: u64) -> bool {
        let complete = self.is_complete(sequence);
        if !complete {
            self.device.hal.flush(self.queue());
        }
        complete
    }

    /// Blocks until a sequence number is complete. Holds no lock.
    pub(crate) fn synchronize(&self, sequence: u64) -> Result<()> {
        raddle_sync::assert_no_lock_is_held();
        if !self.is_complete(sequence) {
            self.device.hal.flush(self.queue());
        }
        // Also when it is complete: after a loss everything is, and only the device says which of the two it was.
        self.device.hal.synchronize(self.queue(), sequence).map_err(|error| self.device.error(error))?;
        self.poll();
        if memory_trace::is_on(self.device) && sequence >= self.latest().sequence() {
            memory_trace::synchronized(self);
        }
        Ok(())
    }
}

/// A handle of a stream. May be used from any thread; several threads may use one stream.
#[derive(Clone, Copy)]
pub struct Stream(pub(crate) &'static StreamInner);

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Stream {}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({}, slot {}, {:?})", self.device().name(), self.0.slot, self.0.priority)
    }
}

impl Stream {
    /// The default stream of a device. Doesn't synchronise with others by itself: nothing here needs that.
    pub fn default(device: &Device) -> Result<Stream> {
        device.0.stream(0).map(Stream)
    }

    /// The next stream of a pool, round-robin; 32 of each priority, made when first wanted.
    pub fn from_pool(device: &Device, priority: Priority) -> Result<Stream> {
        let (next, first) = match priority {
            Priority::Normal => (&device.0.next_normal, 1),
            Priority::High => (&device.0.next_high, 1 + POOL_COUNT),
        };
        let index = next.fetch_add(1, Relaxed) as usize % POOL_COUNT;
        device.0.stream(first + index).map(Stream)
    }

    /// The stream that this thread's work on a device goes to; binds the thread if it has none.
    pub fn current(device: &Device) -> Result<Stream> {
        local::current(device.0).map(Stream)
    }

    /// Makes this the current stream of this thread until the guard is dropped (also by a panic); guards nest.
    pub fn enter(self) -> StreamGuard {
        StreamGuard {
            device: self.0.device,
            outer: local::replace(self.0.device, Some(self.0)),
            _here: PhantomData,
        }
    }

    /// Makes this the current stream of this thread.
    pub fn set_current(self) {
        local::replace(self.0.device, Some(self.0));
    }

    /// The stream that an id names.
    pub fn from_id(device: &Device, id: StreamId) -> Result<Stream> {
        match id.decode(device.0.index) {
            Some(slot) => device.0.stream(slot).map(Stream),
            None => Err(Error::UnknownStream { device: device.name().into(), id: id.0 }),
        }
    }

    /// Its id.
    pub fn id(self) -> StreamId {
        StreamId::encode(self.0.device.index, self.0.slot)
    }

    /// Its device.
    pub fn device(self) -> Device {
        Device(self.0.device)
    }

    /// How urgent its work is.
    pub fn priority(self) -> Priority {
        self.0.priority
    }

    /// Is everything complete that has been put on it? An open but empty command buffer is. Doesn't block.
    pub fn query(self) -> bool {
        self.0.query(self.0.latest().sequence())
    }

    /// Blocks until everything that has been put on it is complete; waits for no other stream but for what that work
    /// itself waits for.
    pub fn synchronize(self) -> Result<()> {
        capture::refuse(self.0.device, "synchronize", NotCapturable::Wait)?;
        self.0.synchronize(self.0.latest().sequence())
    }

    /// Puts whatever is submitted to this stream from now on behind what an event has recorded. An event that was never
    /// recorded holds nothing up. Doesn't block.
    pub fn wait_event(self, event: &Event) -> Result<()> {
        match event.tick() {
            Some((device, tick)) if std::ptr::eq(device, self.0.device) => self.wait_tick(tick),
            Some((device, _)) => Err(Error::StreamDevice {
                op: "wait_event",
                expected: self.device().name().into(),
                found: Device(device).name().into(),
            }),
            None => Ok(()),
        }
    }

    /// Puts whatever is submitted to this stream from now on behind everything that is on another one. Doesn't block.
    pub fn wait_stream(self, other: Stream) -> Result<()> {
        if !std::ptr::eq(self.0.device, other.0.device) {
            return Err(Error::StreamDevice {
                op: "wait_stream",
                expected: self.device().name().into(),
                found: other.device().name().into(),
            });
        }
        self.wait_tick(other.0.latest())
    }

    fn wait_tick(self, tick: Tick) -> Result<()> {
        if tick.slot() == self.0.slot || self.0.device.is_complete(tick) {
            return Ok(());
        }
        self.0.submit("wait", &Launch::Nothing, &mut [], &[tick])
    }

    /// An event that has recorded everything that is on the stream now.
    pub fn record(self) -> Event {
        let event = Event::new();
        event.record(self);
        event
    }

    pub(crate) fn recorded(self) -> Tick {
        let latest = self.0.latest();
        let early = u64::from(fault!(event_early) && latest.sequence() > 1);
        self.0.tick(latest.sequence() - early)
    }
}

/// Restores the stream that was current before. Stays on its thread.
#[must_use = "the stream is current until the guard is dropped"]
pub struct StreamGuard {
    device: &'static DeviceInner,
    outer: Option<&'static StreamInner>,
    _here: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        local::replace(self.device, self.outer);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_name_what_they_came_from_and_nothing_else() {
        for device in [0, 7, 255] {
            for slot in 0..=2 * POOL_COUNT {
                let id = StreamId::encode(device, slot);
                assert_eq!(id.decode(device), Some(slot));
                assert_eq!(id.decode(device ^ 1), None);
            }
        }
        for stray in [0, 1, u64::MAX, StreamId::MAGIC << 48 | 3 << 16, StreamId::MAGIC << 48 | 1 << 16 | 32] {
            assert_eq!(StreamId(stray).decode(0), None);
        }
    }
}
