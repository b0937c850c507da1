//! Streams: the pool of a device, and what user code can do with one.
//!
//! A device has [`QUEUE_COUNT_MAX`](raddle_hal::QUEUE_COUNT_MAX) slots: 0 is the default stream, then 32 of normal and 32
//! of high priority, made when they are first wanted, and 63 for streams that other code has made (`external`). A thread
//! is bound to the least shared of the default and the normal streams at its first op and lets go of it when it ends (or
//! by [`Device::release_current_thread`]); streams may be shared, so the number of threads has no limit. Who wants one for
//! a thread alone takes it ([`Stream::dedicated`]).
//!
//! A slot's stream lives as long as the process, so a handle is `Copy`: a pointer, and the *generation* of what the slot
//! stood for when the handle was made. The slot of a wrapped stream is used again, continuing its sequence, so that ticks
//! and marks stay right; a handle of its former life is told by the generation and refused (pointers would be equal).

use crate::{
    Device, Error, Event, NotCapturable, Result, StreamId,
    callback::Callbacks,
    capture,
    device::DeviceInner,
    fork,
    local::{self, Current},
    memory_trace,
    submit::State,
    tick::{Clock, Tick},
};
use raddle_hal::{Launch, Priority, QueueId, trace};
use raddle_sync::{
    Mutex, Padded, Rank,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
    fault,
};
use std::{collections::VecDeque, marker::PhantomData};

/// Streams of each priority.
pub(crate) const POOL_COUNT: usize = if cfg!(loom) { 1 } else { 32 };
/// The slots from here on are for wrapped streams.
pub(crate) const EXTERNAL_FIRST: usize = 1 + 2 * POOL_COUNT;

/// A stream of a device. Everything that a thread submits goes to its current stream, in order.
///
/// | field | stored by | loaded by |
/// |---|---|---|
/// | `state` | holder of its lock | holder of its lock |
/// | `enqueued` | holder of `state`, Release | anybody; Acquire pairs with it: what has a tick has been submitted |
/// | `completed` | anybody, by maximum, after asking the device | anybody: a lower bound |
/// | `history` | holder of `state` and of its own lock | anybody under its lock |
/// | `generation` | holder of `state`, Release | holder of `state`; anybody, for whom it is a moment old |
/// | `is_shown` | whoever asks for the raw handle | anybody; who knows of foreign work comes after |
/// | `users` | threads that bind or let go, and those that want a stream alone (`dedicated`), by read-modify-write | anybody |
/// | `owner` | holder of the pool's lock | the same; anybody, for whom it is a moment old |
/// | `callbacks` | see there | |
pub(crate) struct StreamInner {
    pub(crate) device: &'static DeviceInner,
    pub(crate) slot: usize,
    pub(crate) priority: Priority,
    pub(crate) state: Padded<Mutex<State>>,
    pub(crate) enqueued: Padded<AtomicU64>,
    pub(crate) completed: Padded<AtomicU64>,
    /// (sequence, the clock from then on), oldest first.
    pub(crate) history: Mutex<VecDeque<(u64, Box<Clock>)>>,
    /// How often the slot was opened and closed; even while it is open. 0 for ever on streams of the runtime.
    pub(crate) generation: AtomicU32,
    /// Has other code been given the handle that it needs to put work there? On wrapped streams it has one of its own.
    pub(crate) is_shown: AtomicBool,
    /// Threads whose current stream it is, or was when they entered another one; and the bit `dedicated::WANTED`.
    pub(crate) users: AtomicU32,
    /// Names the hold of the thread that it is dedicated to; 0 for none.
    pub(crate) owner: AtomicU64,
    pub(crate) callbacks: Callbacks,
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
            generation: AtomicU32::new(0),
            is_shown: AtomicBool::new(slot >= EXTERNAL_FIRST),
            users: AtomicU32::new(0),
            owner: AtomicU64::new(0),
            callbacks: Callbacks::new(),
        }
    }

    pub(crate) fn queue(&self) -> QueueId {
        QueueId(self.slot as u8)
    }

    pub(crate) fn tick(&self, sequence: u64) -> Tick {
        Tick::new(self.device.index, self.slot, sequence)
    }

    /// A handle of what the slot stands for just now. Of a closed one it is refused.
    #[inline]
    pub(crate) fn handle(&'static self) -> Stream {
        Stream(self, self.generation.load(Acquire)) // pairs with the Release in `external`
    }

    pub(crate) fn is_external(&self) -> bool {
        self.slot >= EXTERNAL_FIRST
    }

    /// Has it used its numbers up, so that it takes no more work?
    pub(crate) fn is_exhausted(&self) -> bool {
        self.enqueued.load(Relaxed) >= Tick::SEQUENCE_MAX && !fault!(exhausted_is_given)
    }

    /// Everything that the runtime has enqueued so far.
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
        if fork::is_out_of_reach(self.device) {
            return self.completed.load(Acquire);
        }
        let completed = self.device.hal.completed(self.queue());
        if fault!(completed_falls) {
            self.completed.store(completed, Release);
        } else if completed > self.completed.load(Relaxed) {
            raddle_sync::raise(&self.completed, completed);
        }
        completed
    }

    /// Is a sequence number complete? If not, makes sure that it will be without another call.
    pub(crate) fn query(&self, sequence: u64) -> bool {
        if self.is_complete(sequence) {
            return true;
        }
        if fork::is_child(self.device) {
            return false;
        }
        self.device.hal.flush(self.queue());
        // A device may have to look closer than it does for each of many questions. One that is lost knows nothing of numbers
        // that it has refused.
        self.is_complete(sequence) || self.device.lost.load(Acquire) && !fault!(refused_stays_open)
    }

    /// Blocks until a sequence number is complete. Holds no lock.
    pub(crate) fn synchronize(&self, sequence: u64) -> Result<()> {
        raddle_sync::assert_no_lock_is_held();
        if fork::is_child(self.device) {
            return fork::check(self.device);
        }
        let start = trace::start();
        if !self.is_complete(sequence) {
            self.device.hal.flush(self.queue());
        }
        if fault!(waits_for_all) {
            let others = self.device.all_streams();
            others
                .for_each(|other| _ = other.device.hal.synchronize(other.queue(), other.latest().sequence()));
        }
        // Also when it is complete: after a loss everything is, and only the device says which of the two it was.
        let result = match fault!(complete_hides_loss) && self.is_complete(sequence) {
            false => self.device.hal.synchronize(self.queue(), sequence),
            true => Ok(()),
        };
        if let Some(start) = start {
            trace::here("synchronize", start);
        }
        result.map_err(|error| self.device.error(error))?;
        self.poll();
        if memory_trace::is_on(self.device) && sequence >= self.latest().sequence() {
            memory_trace::synchronized(self);
        }
        Ok(())
    }
}

/// A handle of a stream. May be used from any thread; several threads may use one stream.
///
/// A handle of a wrapped stream ([`Stream::wrap`]) that has been closed is refused with [`Error::StreamClosed`] by whatever
/// would put work there or wait for it.
#[derive(Clone, Copy)]
pub struct Stream(pub(crate) &'static StreamInner, pub(crate) u32);

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        std::ptr::eq(self.0, other.0) && self.1 == other.1
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
        device.0.stream(0).map(StreamInner::handle)
    }

    /// The next stream of a pool, round-robin; 32 of each priority unless limited, made when first wanted. Streams that are
    /// dedicated to a thread, or have used their numbers up, are passed over; the default stream if all are.
    pub fn from_pool(device: &Device, priority: Priority) -> Result<Stream> {
        let (next, first) = match priority {
            Priority::Normal => (&device.0.next_normal, 1),
            Priority::High => (&device.0.next_high, 1 + POOL_COUNT),
        };
        for _ in 0..device.0.pool_count {
            let index = next.fetch_add(1, Relaxed) as usize % device.0.pool_count;
            let stream = device.0.stream(first + index)?;
            if stream.owner.load(Relaxed) == 0 && !stream.is_exhausted() {
                return Ok(stream.handle());
            }
        }
        Stream::default(device)
    }

    /// The stream that this thread's work on a device goes to; binds the thread if it has none.
    pub fn current(device: &Device) -> Result<Stream> {
        local::current(device.0)
    }

    /// Makes this the current stream of this thread until the guard is dropped (also by a panic); guards nest, and guards
    /// of different devices don't meet.
    pub fn enter(self) -> StreamGuard {
        StreamGuard { device: self.0.device, outer: local::enter(self), _here: PhantomData }
    }

    /// Makes this the current stream of this thread for work on the stream's device; that on others goes where it went.
    pub fn set_current(self) {
        local::set(self);
    }

    /// The stream that an id names. Any number may be given: one that names nothing, another device's, or a wrapped stream
    /// that has been closed is an error.
    pub fn from_id(device: &Device, id: StreamId) -> Result<Stream> {
        let stream = match id.decode(device.0.id) {
            Some(slot) if slot >= EXTERNAL_FIRST => device.0.made(slot),
            Some(slot) => Some(device.0.stream(slot)?),
            None => None,
        };
        let unknown = || Error::UnknownStream { device: device.name().into(), id: id.0 };
        let stream =
            stream.map(StreamInner::handle).filter(|stream| stream.id() == id).ok_or_else(unknown)?;
        stream.check_open().map(|()| stream)
    }

    /// Its id.
    pub fn id(self) -> StreamId {
        StreamId::encode(self.0.device.id, self.0.slot, self.1)
    }

    /// Its device.
    pub fn device(self) -> Device {
        Device(self.0.device)
    }

    /// How urgent its work is.
    pub fn priority(self) -> Priority {
        self.0.priority
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
        capture::refuse(self.0.device, "synchronize", NotCapturable::Wait)?;
        self.0.synchronize(self.now()?.sequence())
    }

    /// A tick of everything that is on the stream now, also of what others have put on a wrapped one. Blocks only while a
    /// wrapped one is full.
    pub(crate) fn now(self) -> Result<Tick> {
        if self.0.is_external() && !fault!(foreign_work_unseen) {
            self.0.wait_for_room()?;
            self.mark()?;
        }
        Ok(self.0.latest())
    }

    /// Puts nothing on it, which gives a tick to what others have put there before.
    pub(crate) fn mark(self) -> Result<()> {
        self.enqueue("mark", &Launch::Nothing, &mut [], &[]).map(drop)
    }

    /// Does the handle name what the slot stands for?
    #[inline]
    pub(crate) fn check_open(self) -> Result<()> {
        let generation = self.0.generation.load(Relaxed); // exact under the stream's lock
        if generation.is_multiple_of(2) && (generation == self.1 || fault!(stale_handle)) {
            return Ok(());
        }
        Err(Error::StreamClosed { device: self.0.device.name().into(), stream: self.id().0 })
    }

    /// Puts whatever is submitted to this stream from now on behind what an event has recorded. An event that was never
    /// recorded holds nothing up. Doesn't wait for the event; if there is something to wait behind it takes a place on this
    /// stream, and blocks while there is none.
    pub fn wait_event(self, event: &Event) -> Result<()> {
        self.check_open()?;
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

    fn wait_tick(self, tick: Tick) -> Result<()> {
        if fork::is_child(self.0.device) {
            return fork::check(self.0.device);
        }
        if tick.slot() == self.0.slot || self.0.device.is_complete(tick) {
            return Ok(());
        }
        self.submit("wait", &Launch::Nothing, &mut [], &[tick]).map(drop)
    }

    /// An event that has recorded everything that is on the stream now; see [`Event::record`].
    pub fn record(self) -> Event {
        let event = Event::new();
        event.record(self);
        event
    }

    /// As [`Stream::now`]. Of a stream that takes no more work what it has taken: all of it, if it is closed.
    pub(crate) fn recorded(self) -> Tick {
        let latest = self.now().unwrap_or_else(|_| self.0.latest());
        let early = u64::from(fault!(event_early) && latest.sequence() > 1);
        self.0.tick(latest.sequence() - early)
    }
}

/// Restores the stream that was current before. Stays on its thread. Guards are dropped in the opposite order of their making, as
/// scopes do; in another order the stream stays current that was so when the last one to be dropped was made.
#[must_use = "the stream is current until the guard is dropped"]
pub struct StreamGuard {
    device: &'static DeviceInner,
    outer: Option<Current>,
    _here: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        local::leave(self.device, self.outer);
    }
}
