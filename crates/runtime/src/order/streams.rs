//! Streams: the table of a device's streams, what each has enqueued and completed, and handles of them.
//!
//! A device has [`QUEUE_COUNT_MAX`](raddle_hal::QUEUE_COUNT_MAX) slots: 0 is the default stream, then 32 of normal and 32
//! of high priority, made when they are first wanted, and 63 for streams that other code has made.
//!
//! A slot's stream lives as long as the process, so a handle is `Copy`: a pointer, and the *generation* of what the slot
//! stood for when the handle was made. The slot of a wrapped stream is used again, continuing its sequence, so that ticks
//! and marks stay right; a handle of its former life is told by the generation and refused (pointers would be equal).

use super::{
    callbacks::Callbacks,
    gates::Gates,
    id::StreamId,
    taint::{Failure, Launches, Taints},
    tick::{Clock, EXTERNAL_FIRST, POOL_COUNT, SLOT_COUNT, Tick},
    timing_events::SpareTimingEvents,
};
use crate::ground::{Core, Device, Error, Floor, Result, fork};
use raddle_hal::{self as hal, KernelError, Priority, QueueId};
use raddle_sync::{
    Condvar, Mutex, MutexGuard, Padded, Rank,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    fault,
};
use std::{collections::VecDeque, ops::Deref, ptr};

/// Behind the lock that is held while a stream is made, chosen, dedicated or given back.
#[derive(Debug, Default)]
pub(crate) struct StreamPool {
    /// Holds that there have been; the last one's name.
    pub(crate) holds: u64,
    /// Threads that wait for a stream of their own.
    pub(crate) waiting: u32,
}

/// The streams of a device, and what hangs on their ticks.
pub(crate) struct Streams {
    pub(crate) core: &'static Core,
    slots: [AtomicPtr<StreamInner>; SLOT_COUNT],
    /// Streams of each pool that are used.
    pub(crate) pool_count: usize,
    pub(crate) pool: Mutex<StreamPool>,
    /// Signalled under the lock of `pool` when a stream may have become free.
    pub(crate) freed: Condvar,
    pub(crate) next_normal: AtomicU32,
    pub(crate) next_high: AtomicU32,
    pub(crate) taints: Taints,
    pub(crate) timing_events: SpareTimingEvents,
    pub(crate) gates: Gates,
}

// SAFETY: no other floor has the number.
unsafe impl Floor for Streams {
    const NUMBER: usize = 0;
}

// As for `Core`.
impl std::panic::RefUnwindSafe for Streams {}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Streams of {}", self.name())
    }
}

impl Deref for Streams {
    type Target = Core;
    fn deref(&self) -> &Core {
        self.core
    }
}

impl Streams {
    pub(crate) fn new(core: &'static Core) -> Streams {
        let bounds = core.bounds();
        let mut pool_count = bounds.stream_count.min(POOL_COUNT);
        fault!(streams_unlimited => pool_count = POOL_COUNT);
        Streams {
            core,
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            pool_count,
            pool: Mutex::new(Rank::Pool, StreamPool::default()),
            freed: Condvar::new(),
            next_normal: AtomicU32::new(0),
            next_high: AtomicU32::new(0),
            taints: Taints::new(bounds.failure_count),
            timing_events: SpareTimingEvents::new(),
            gates: Gates::new(),
        }
    }

    /// A stream that has been made. Acquire pairs with the Release in `publish`.
    #[inline]
    pub(crate) fn made(&self, slot: usize) -> Option<&'static StreamInner> {
        let stream = self.slots[slot].load(Acquire);
        // SAFETY: made by `Box::into_raw` and never freed.
        (!stream.is_null()).then(|| unsafe { &*stream })
    }

    /// A stream that a tick names.
    #[inline]
    pub(crate) fn opened(&self, slot: usize) -> &'static StreamInner {
        self.made(slot).expect("a tick names a stream that has been made")
    }

    /// The stream of a slot of the runtime's own; made if it is wanted for the first time.
    pub(crate) fn stream(&'static self, slot: usize) -> Result<&'static StreamInner> {
        match self.made(slot) {
            Some(stream) => Ok(stream),
            None if fork::is_child(self) => self.stream_in_child(slot),
            None => self.stream_in_pool(slot, &self.pool.lock()),
        }
    }

    /// One that the parent hasn't made.
    #[cold]
    fn stream_in_child(&'static self, slot: usize) -> Result<&'static StreamInner> {
        let _turn = fork::Turn::take();
        fork::check(self)?;
        match self.made(slot) {
            Some(stream) => Ok(stream),
            None => self.make_stream(slot),
        }
    }

    pub(crate) fn stream_in_pool(
        &'static self,
        slot: usize,
        _pool: &MutexGuard<'_, StreamPool>,
    ) -> Result<&'static StreamInner> {
        match self.made(slot) {
            Some(stream) => Ok(stream),
            None => self.make_stream(slot),
        }
    }

    /// For whoever keeps others from doing the same.
    pub(crate) fn make_stream(&'static self, slot: usize) -> Result<&'static StreamInner> {
        let priority = if slot > POOL_COUNT { Priority::High } else { Priority::Normal };
        let queue = hal::QueueId(slot as u8);
        self.hal.open_queue(queue, priority).map_err(|error| self.error(error))?;
        Ok(self.publish(StreamInner::new(self, slot, priority)))
    }

    /// Gives a stream, whose queue is open, to everybody. For whoever keeps others from doing the same.
    pub(crate) fn publish(&self, stream: StreamInner) -> &'static StreamInner {
        let slot = stream.slot;
        self.slots[slot].store(Box::into_raw(Box::new(stream)), Release);
        self.opened(slot)
    }

    pub(crate) fn all_streams(&self) -> impl Iterator<Item = &'static StreamInner> + '_ {
        (0..SLOT_COUNT).filter_map(|slot| self.made(slot))
    }

    #[inline]
    pub(crate) fn is_complete(&self, tick: Tick) -> bool {
        tick == Tick::NONE || self.opened(tick.slot()).is_complete(tick.sequence()) || self.lost.load(Acquire)
    }

    /// What is told to whoever depends on a failure.
    pub(crate) fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Kernel { op, tick, error } => {
                let stream = self.opened(tick.slot()).handle().id().0;
                Error::Kernel { op, error, stream, sequence: tick.sequence() }
            }
            Failure::Captured => Error::Captured { device: self.name().into() },
        }
    }
}

impl Launches for Streams {
    fn is_complete(&self, tick: Tick) -> bool {
        self.is_complete(tick)
    }
    fn take_error(&self, tick: Tick) -> Option<KernelError> {
        self.hal.take_kernel_error(QueueId(tick.slot() as u8), tick.sequence())
    }
}

/// Behind a stream's lock.
pub(crate) struct State {
    pub(crate) sequence: u64,
    /// For each other stream the sequence number that the next op here is ordered behind.
    pub(crate) clock: Box<Clock>,
    pub(crate) inserted: u64,
    pub(crate) elided: u64,
}

impl State {
    pub(crate) fn new() -> State {
        State { sequence: 0, clock: Box::new(Clock::new()), inserted: 0, elided: 0 }
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
/// | `generation` | holder of `state`, Release | holder of `state`; anybody, for whom it is a moment old |
/// | `is_shown` | whoever asks for the raw handle | anybody; who knows of foreign work comes after |
/// | `users` | threads that bind or let go, and those that want a stream alone (`sharing`), by read-modify-write | anybody |
/// | `owner` | holder of the pool's lock | the same; anybody, for whom it is a moment old |
/// | `callbacks` | see there | |
pub(crate) struct StreamInner {
    pub(crate) device: &'static Streams,
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
    /// Threads whose current stream it is, or was when they entered another one; and the bit `sharing::WANTED`.
    pub(crate) users: AtomicU32,
    /// Names the hold of the thread that it is dedicated to; 0 for none.
    pub(crate) owner: AtomicU64,
    pub(crate) callbacks: Callbacks,
}

// As for `Core`.
impl std::panic::RefUnwindSafe for StreamInner {}

impl StreamInner {
    pub(crate) fn new(device: &'static Streams, slot: usize, priority: Priority) -> StreamInner {
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
        fault!(exhausted_is_given => return false);
        self.enqueued.load(Relaxed) >= Tick::SEQUENCE_MAX
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
        if self.is_complete(sequence) {
            return true;
        }
        fault!(refused_stays_open => return false);
        self.device.lost.load(Acquire)
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
    /// Its id.
    pub fn id(self) -> StreamId {
        StreamId::encode(self.0.device.id, self.0.slot, self.1)
    }

    /// Its device.
    pub fn device(self) -> Device {
        Device(self.0.device.core)
    }

    /// How urgent its work is.
    pub fn priority(self) -> Priority {
        self.0.priority
    }

    /// Does the handle name what the slot stands for?
    #[inline]
    pub(crate) fn check_open(self) -> Result<()> {
        let generation = self.0.generation.load(Relaxed); // exact under the stream's lock
        let mut is_same = generation == self.1;
        fault!(stale_handle => is_same = true);
        if generation.is_multiple_of(2) && is_same {
            return Ok(());
        }
        Err(Error::StreamClosed { device: self.0.device.name().into(), stream: self.id().0 })
    }
}
