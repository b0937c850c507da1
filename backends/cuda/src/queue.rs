//! A queue: a stream, what is complete of it, and what has to be done when it is.
//!
//! **Progress.** Every [`MARK_EVERY_COUNT`] launches, and sooner if somebody has asked, the submitter has the stream
//! write its number into a word of pinned memory; `completed` is then a load. Only submitters write it, whose calls don't
//! overlap, so the word never falls. Behind the last mark somebody who asks has an event recorded: `flush` does, and so does
//! every [`ASK_EVERY_COUNT`]-th question that brought nothing, if the submitter has come to rest. While the device is far
//! behind, an event is recorded every [`SLEEP_EVERY_COUNT`] launches that threads can sleep on, so that who waits for room
//! waits for half of the queue and not for its end. A download is marked at once, since somebody waits for it: that one
//! watches the word for a while before it asks the driver for anything.
//!
//! **Launches of nothing**, such as the fence of a block that is freed, put nothing on the stream: they are executed when
//! what was before them is. But where other code may use the stream, its work is before them as well, so there they are
//! marked as any other.
//!
//! **Calls of the driver.** They take locks that all threads share, so each costs every thread. A launch on operands that no
//! other stream uses: `cuLaunchKernel`; one `cuStreamWriteValue64` for 64 launches, and one more for each time that the
//! room for 256 seems used up, which is every 192 or so while the device keeps up. No event is recorded or asked. While the
//! device doesn't keep up, one `cuEventRecord` for 64 launches, and for 128 what waiting takes.
//!
//! | field | stored by | loaded by |
//! |---|---|---|
//! | `stream` | who opens the queue, Release, while it is closed and complete | anybody; Acquire pairs with it (1) |
//! | `submitted` | the submitter, Release | anybody; Acquire pairs with it: the launch is on the stream, its transfer listed |
//! | `completed` | anybody, by maximum | anybody |
//! | `word` | the device, at a mark | anybody |
//! | `worked` | the submitter, Release, before anything is put on the stream | anybody; Acquire: no work beyond it is on the stream up to a `submitted` that was loaded before |
//! | `is_foreign` | who gives the stream's handle to other code, before | the submitter |
//! | `marked` | the submitter | anybody: a hint |
//! | `marked_last`, `slept_last` | the submitter | the submitter |
//! | `is_asked` | anybody; the submitter at a mark | the submitter: a hint |
//! | `asked` | who asks | the same: a count of questions |
//! | `asked_at` | who asks, under the lock of `events` | the same |
//!
//! (1) A queue that stands for a stream of other code and has been closed is complete or has an event, so that nobody puts
//! anything there.

use crate::{
    driver::{Driver, Event, Stream},
    errors::{Errors, Record},
    events::{Events, Kind},
    inside::process_ends,
    timing::Notes,
    transfers::Transfers,
};
use raddle_hal::{DeviceError, KernelError, QueueId};
use raddle_sync::{
    Mutex, MutexGuard, Padded, Rank,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
    pause,
};
use std::{
    ptr,
    time::{Duration, Instant},
};

/// A mark takes the driver 1.9 µs where a launch takes 3.7 (H100). Guess: a quarter of the launches that a queue holds, so that
/// who waits for room knows of nearly all that is over.
pub const MARK_EVERY_COUNT: u64 = 64;
/// While somebody asks, and the last one has been reached.
const ASKED_MARK_EVERY_COUNT: u64 = 8;
/// Guess: often enough for whoever waits for room, seldom enough not to be felt.
pub const SLEEP_EVERY_COUNT: u64 = 64;
/// Questions from submitters come with each op and are mostly too early; a poll by user code flushes (guess).
const ASK_EVERY_COUNT: u32 = 8;
/// How long a thread watches a mark before it asks the driver: a forward of a small model is over by then. Others get the core
/// meanwhile.
const AWAKE_MAX: Duration = Duration::from_micros(500);
/// Turns for which a thread then polls before it sleeps (guess: about as long as waking takes).
const POLL_COUNT: u32 = 64;

/// What a queue has of its own; see the module.
pub struct Queue {
    pub id: QueueId,
    stream: AtomicU64,
    pub submitted: Padded<AtomicU64>,
    /// The last launch that put something on the stream, or tried to.
    worked: AtomicU64,
    /// May other code put work on the stream?
    is_foreign: AtomicBool,
    completed: Padded<AtomicU64>,
    /// In pinned memory; the address as the host sees it, and as the device does. 0 if streams can't write numbers.
    word: [u64; 2],
    marked: AtomicU64,
    /// The launches of the last mark, whether or not streams can write numbers, and of the last event of `mark`.
    marked_last: AtomicU64,
    slept_last: AtomicU64,
    asked: AtomicU32,
    /// Since the last mark.
    is_asked: AtomicBool,
    /// What was worked on when it was last asked in earnest.
    asked_at: AtomicU64,
    events: Mutex<Events<Event>>,
    /// For traces: when launches ran, and of how many it isn't known, since somebody asked.
    pub notes: Mutex<Notes<Event>>,
    pub untimed: AtomicU64,
    pub transfers: Transfers,
    pub errors: Mutex<Errors>,
    /// Records in device memory, and their copies in pinned memory.
    pub records: [u64; 2],
}

impl Queue {
    /// `word` and `records` are memory that the driver frees at its end, by its address for the host and for the device.
    pub fn new(id: QueueId, stream: Stream, word: [u64; 2], records: [u64; 2]) -> Queue {
        Queue {
            id,
            stream: AtomicU64::new(stream.handle()),
            submitted: Padded(AtomicU64::new(0)),
            worked: AtomicU64::new(0),
            is_foreign: AtomicBool::new(false),
            completed: Padded(AtomicU64::new(0)),
            word,
            marked: AtomicU64::new(0),
            marked_last: AtomicU64::new(0),
            slept_last: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
            asked_at: AtomicU64::new(0),
            events: Mutex::new(Rank::Queue, Events::new()),
            notes: Mutex::new(Rank::Queue, Notes::new()),
            untimed: AtomicU64::new(0),
            transfers: Transfers::new(),
            errors: Mutex::new(Rank::Queue, Errors::new()),
            records,
        }
    }

    /// The driver's stream.
    #[inline]
    pub fn stream(&self) -> Stream {
        // SAFETY: it was a stream when it was stored. One of other code lives until the queue is closed, after which nobody
        // puts anything on it: see the table.
        unsafe { Stream::from_handle(self.stream.load(Acquire)) }
    }

    /// Stands for another stream from now on. Everything on the former one is complete, and it has been closed.
    pub fn reopen(&self, stream: Stream) {
        self.stream.store(stream.handle(), Release); // pairs with the Acquire in `stream`
    }

    /// Ends the use of a stream of other code: an event tells when what is submitted is complete. Not while anybody submits.
    pub fn close(&self, driver: Driver<'_>) -> Result<(), DeviceError> {
        let mut events = self.events.lock();
        if self.executed() < self.submitted.load(Acquire) {
            // One that all can wait for, threads too; it stays until it is known to be complete.
            self.record(driver, &mut events, Kind::Sleep)?;
        }
        Ok(())
    }

    /// What the device is known to have executed. Asks nobody.
    #[inline]
    pub fn executed(&self) -> u64 {
        // First, so that `worked` is at least that of this number. Pairs with the Release in `publish`: what the host did for
        // these launches is visible, too.
        let submitted = self.submitted.load(Acquire);
        let mut executed = self.completed.load(Acquire); // pairs with the Release in `raise`
        if self.word[0] != 0 && !process_ends() {
            // SAFETY: an aligned word of pinned memory that the driver frees at its end, and we are inside; the device writes it
            // whole. Acquire pairs with the device's fence before the mark: what was executed before is visible.
            executed = executed.max(unsafe { AtomicU64::from_ptr(self.word[0] as *mut u64) }.load(Acquire));
        }
        if executed < self.worked.load(Acquire) {
            return executed.min(submitted);
        }
        // Kept, or it would fall when work follows.
        if submitted > executed {
            self.raise(submitted);
        }
        submitted
    }

    fn raise(&self, executed: u64) {
        raddle_sync::raise(&self.completed, executed); // pairs with the Acquire in `executed`
    }

    /// Says that a launch is about to put something on the stream, also if it will be refused halfway: then the empty one that
    /// takes its number is behind what is there. Only for the submitter.
    #[inline]
    pub fn begin_work(&self, sequence: u64) {
        self.worked.store(sequence, Release); // pairs with the Acquire in `executed`
    }

    /// Publishes a launch that is on the stream, and marks progress when it is time, if it put something there; at once if
    /// somebody is going to wait for it. Only for the submitter.
    #[inline]
    pub fn publish(&self, driver: Driver<'_>, sequence: u64, is_awaited: bool) {
        if self.is_foreign.load(Relaxed) {
            self.begin_work(sequence);
        }
        self.submitted.store(sequence, Release); // pairs with the Acquire in `executed` and `Events::record`
        if self.worked.load(Relaxed) == sequence {
            let marked_last = self.marked_last.load(Relaxed);
            let unmarked = sequence - marked_last;
            // Whoever asks learns nothing sooner by a second mark on its way.
            let is_wanted = || self.is_asked.load(Relaxed) && self.executed() >= marked_last;
            if is_awaited || unmarked >= MARK_EVERY_COUNT || unmarked >= ASKED_MARK_EVERY_COUNT && is_wanted()
            {
                self.mark(driver, sequence);
            }
        }
    }

    /// From now on other code may put work on the stream.
    pub fn expose(&self) {
        self.is_foreign.store(true, Relaxed); // whoever has the stream's handle got it after this
    }

    /// May others have put work on the stream in between?
    pub fn is_foreign(&self) -> bool {
        self.is_foreign.load(Relaxed)
    }

    /// Somebody would like to know soon what is complete.
    #[inline]
    pub fn ask_for_mark(&self) {
        if !self.is_asked.load(Relaxed) {
            self.is_asked.store(true, Relaxed);
        }
    }

    /// A mark that fails is no failure of the launch: it is known by other means, and a lost device is seen there.
    #[cold]
    fn mark(&self, driver: Driver<'_>, sequence: u64) {
        self.is_asked.store(false, Relaxed);
        self.marked_last.store(sequence, Relaxed);
        if self.word[1] != 0 {
            // SAFETY: a word of pinned memory that the driver frees at its end.
            if unsafe { driver.stream_write_value(self.stream(), self.word[1], sequence) }.is_ok() {
                self.marked.store(sequence, Relaxed);
            }
        }
        // Who keeps up never waits for room.
        if sequence - self.slept_last.load(Relaxed) >= SLEEP_EVERY_COUNT
            && sequence - self.executed() > SLEEP_EVERY_COUNT
        {
            self.slept_last.store(sequence, Relaxed);
            _ = self.record(driver, &mut self.events.lock(), Kind::Sleep);
        }
    }

    fn record(
        &self,
        driver: Driver<'_>,
        events: &mut MutexGuard<'_, Events<Event>>,
        kind: Kind,
    ) -> Result<Event, DeviceError> {
        events.recycle(self.executed());
        let make = || driver.event_create(kind == Kind::Sleep);
        events.record(kind, &self.submitted, make, |event| driver.event_record(event, self.stream()))
    }

    /// Puts another stream behind this queue's number, unless that is complete. Takes no lock that is held while anybody
    /// waits.
    pub fn hold_up(&self, driver: Driver<'_>, other: Stream, sequence: u64) -> Result<(), DeviceError> {
        if self.executed() >= sequence {
            return Ok(());
        }
        let mut events = self.events.lock();
        if self.executed() >= sequence {
            return Ok(()); // by now, so that the event is gone
        }
        let event = match events.covering(sequence) {
            Some(event) => event,
            None => self.record(driver, &mut events, Kind::Stream)?,
        };
        // Under the lock, so that nobody records it anew before.
        driver.stream_wait_event(other, event)
    }

    /// Makes sure that somebody who asks will see everything complete that is on the queue now.
    pub fn flush(&self, driver: Driver<'_>) -> Result<(), DeviceError> {
        let submitted = self.submitted.load(Acquire);
        if self.executed() >= submitted {
            return Ok(());
        }
        let mut events = self.events.lock();
        self.look(driver, &mut events)?;
        if self.executed() < submitted && !events.can_sleep(submitted) {
            self.record(driver, &mut events, Kind::Sleep)?;
        }
        Ok(())
    }

    /// Learns from the oldest events what has been executed.
    fn look(&self, driver: Driver<'_>, events: &mut Events<Event>) -> Result<(), DeviceError> {
        events.recycle(self.executed());
        while let Some((covers, event)) = events.oldest()
            && covers > self.executed()
            && driver.event_query(event)?
        {
            self.raise(covers);
            events.recycle(covers);
        }
        Ok(())
    }

    /// What is complete, downloads included. Calls the driver only now and then, and never waits for it.
    pub fn poll(&self, driver: Driver<'_>) -> Result<u64, DeviceError> {
        let submitted = self.submitted.load(Acquire);
        if self.executed() < submitted {
            self.ask_for_mark();
            if self.asked.fetch_add(1, Relaxed) % ASK_EVERY_COUNT == ASK_EVERY_COUNT - 1
                && let Some(mut events) = self.events.try_lock()
            {
                self.look(driver, &mut events)?;
                let executed = self.executed();
                let is_covered = events.newest().max(self.marked.load(Relaxed)) > executed;
                // A submitter that is at work will mark.
                let worked = self.worked.load(Relaxed);
                let is_at_work = self.asked_at.load(Relaxed) != worked && self.word[1] != 0;
                self.asked_at.store(worked, Relaxed);
                if executed < submitted && !is_covered && !is_at_work {
                    self.record(driver, &mut events, Kind::Stream)?;
                }
            }
        }
        Ok(self.transfers.complete(self.executed(), false))
    }

    /// Blocks until a number, which is submitted, is complete. Holds no lock meanwhile.
    pub fn synchronize(&self, driver: Driver<'_>, sequence: u64) -> Result<(), DeviceError> {
        // A launch that was refused is on no stream.
        let sequence = sequence.min(self.submitted.load(Acquire));
        let mut turns = 0;
        if self.marked.load(Relaxed) >= sequence {
            // The mark will tell, without a call of the driver.
            let start = Instant::now();
            while self.executed() < sequence && start.elapsed() < AWAKE_MAX {
                pause(&mut turns);
            }
            turns = 0;
        }
        while self.executed() < sequence {
            let mut events = self.events.lock();
            let (covers, event) = match events.hold(sequence) {
                Some(held) => held,
                None if self.executed() >= sequence => break, // by now, so that the event is gone
                None => {
                    self.record(driver, &mut events, Kind::Sleep)?;
                    continue;
                }
            };
            drop(events);
            let over = self.wait(driver, event, sequence, &mut turns);
            self.events.lock().let_go(event);
            if over? {
                self.raise(covers);
            }
        }
        self.transfers.complete(self.executed(), true);
        Ok(())
    }

    /// Polls for a while, then sleeps. Is the event over? (If not, the number is complete by a mark.)
    fn wait(
        &self,
        driver: Driver<'_>,
        event: Event,
        sequence: u64,
        turns: &mut u32,
    ) -> Result<bool, DeviceError> {
        while *turns < POLL_COUNT {
            if self.executed() >= sequence {
                return Ok(false);
            }
            if driver.event_query(event)? {
                return Ok(true);
            }
            pause(turns);
        }
        driver.event_synchronize(event)?;
        Ok(true)
    }

    /// The error of a complete launch.
    pub fn take_error(&self, sequence: u64) -> Option<KernelError> {
        self.errors.lock().take(sequence, |record| self.record_at(record))
    }

    /// A record of a launch that is complete.
    pub fn record_at(&self, record: usize) -> Record {
        // SAFETY: inside the pinned memory of the ring, which the driver frees at its end, and we are inside; the device wrote it before the launch was
        // complete, and writes it again only for a later launch of the record, which isn't given out meanwhile.
        unsafe { ptr::read_volatile((self.records[1] as *const Record).add(record)) }
    }
}
