//! When launches ran, for a trace. Off, a launch pays one relaxed load.
//!
//! On, a thread has an event *noted* behind its launch: the device keeps the time when it gets there. What lies between that
//! and the note before is the launch's time. If other work was put on the stream in between, or a wait for other streams,
//! another note comes in front of the launch. Whoever submits there later, or looks at the trace, asks for the times of
//! notes that the device is known to be past, and never waits for one.
//!
//! **The host's clock.** Events tell how far they are from each other. So every tenth of a second one is noted on a stream that is
//! always idle, and the host looks at its own clock before and after: a [`Fix`]. Times are told by how far they are from the
//! newest fix there was when they were noted. (One fix for all would not do: the clocks drift apart by some 10 µs a second, and
//! the driver tells distances in 24 bits.)
//!
//! **What it costs** is bounded by the thread that pays it: it times launches for one part in [`SHARE`] of its time at most
//! ([`Purse`]), and others not at all, which the trace counts. It times some in a row, and then none for a while, as the first
//! of a row takes two notes. A launch that isn't timed takes one look at the processor's counter.
//!
//! Notes of a queue are bounded, too: who finds no room doesn't time. Events are used again.

use crate::driver::{Driver, Event, Stream};
use raddle_hal::{DeviceError, trace::Timestamp};
use raddle_sync::{
    Arc, Mutex, Rank,
    atomic::{AtomicBool, Ordering::*},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Of a thread's time, to look after the times of its launches.
const SHARE: u64 = 20;
/// What a thread may save up, as processors count, and what it has when a row begins, as when it begins itself: a third of a
/// millisecond at 3 GHz, and a tenth (guess: some dozens of launches).
const SAVED_MAX: i64 = 1 << 20;
const ROW_MIN: i64 = SAVED_MAX / 3;
/// Notes of a queue that aren't told yet (guess: two for each launch that a queue holds).
pub const NOTE_COUNT_MAX: usize = 512;
/// The age of a fix at which a new one is wanted, and at which it isn't used any more, as processors count: a tenth of a second at
/// 2.7 GHz, and two. Drifting 50 ppm the clocks are 5 µs apart by then.
const FIX_AGES: [u64; 2] = [1 << 28, 1 << 29];
/// Who finds no fix looks for one at most so often.
const FIT_EVERY: Duration = Duration::from_millis(10);
/// The best of so many looks at both clocks is taken.
const LOOK_COUNT: usize = 3;
/// A device that doesn't get to a note by then is left alone for this time.
const LOOK_MAX: Duration = Duration::from_millis(1);

/// What a thread has to spend, as moments are counted.
#[derive(Clone, Copy)]
pub struct Purse {
    saved: i64,
    since: Option<Timestamp>,
    in_row: bool,
}

impl Purse {
    pub const fn new() -> Purse {
        Purse { saved: ROW_MIN, since: None, in_row: false }
    }

    /// May the thread time a launch now?
    pub fn may(&mut self, now: Timestamp) -> bool {
        let passed = self.since.replace(now).map_or(0, |since| now.counted_since(since));
        self.saved = self.saved.saturating_add_unsigned(passed / SHARE).min(SAVED_MAX);
        self.in_row = if self.in_row { self.saved > 0 } else { self.saved >= ROW_MIN };
        self.in_row
    }

    pub fn spend(&mut self, start: Timestamp, end: Timestamp) {
        self.saved = self.saved.saturating_sub_unsigned(end.counted_since(start));
    }
}

/// An event, and when on the host's clock the device was there.
#[derive(Debug)]
pub struct Fix<E> {
    pub event: E,
    pub moment: Timestamp,
}

/// A launch behind which there is a note.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub sequence: u64,
    pub name: &'static str,
    /// When it was about to be submitted.
    pub submitted: Timestamp,
}

#[derive(Debug)]
pub struct Note<E> {
    event: E,
    fix: Arc<Fix<E>>,
    /// The device is past it when it has executed this.
    pub covers: u64,
    /// None in front of a launch.
    behind: Option<Timed>,
}

/// The notes on a queue, in its order.
#[derive(Debug)]
pub struct Notes<E> {
    pub list: VecDeque<Note<E>>,
    spare: Vec<E>,
    /// The launch that the last note is behind.
    pub last: Option<u64>,
    /// When the device was at the last note that was told.
    told: Option<Timestamp>,
}

impl<E: Copy> Notes<E> {
    pub fn new() -> Notes<E> {
        Notes { list: VecDeque::new(), spare: Vec::new(), last: None, told: None }
    }

    /// Is there room for a launch?
    pub fn has_room(&self) -> bool {
        self.list.len() + 2 <= NOTE_COUNT_MAX
    }

    /// Adds a note that `record` puts on the stream.
    pub fn add<Error>(
        &mut self,
        covers: u64,
        behind: Option<Timed>,
        fix: &Arc<Fix<E>>,
        make: impl FnOnce() -> Result<E, Error>,
        record: impl FnOnce(E) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.last = None;
        let event = match self.spare.pop() {
            Some(event) => event,
            None => make()?,
        };
        if let Err(error) = record(event) {
            self.spare.push(event);
            return Err(error);
        }
        self.last = behind.map(|timed| timed.sequence);
        self.list.push_back(Note { event, fix: fix.clone(), covers, behind });
        Ok(())
    }

    /// Tells the times of the oldest notes, of so many at most, as long as the device is past them. `moment` is when it was at
    /// an event, if that can be found out.
    pub fn tell(
        &mut self,
        count_max: usize,
        mut is_past: impl FnMut(u64, E) -> bool,
        mut moment: impl FnMut(&Fix<E>, E) -> Option<Timestamp>,
        mut tell: impl FnMut(u64, &'static str, Timestamp, Timestamp),
    ) {
        for _ in 0..count_max {
            let Some(note) = self.list.pop_front_if(|note| is_past(note.covers, note.event)) else { return };
            let end = moment(&note.fix, note.event);
            self.spare.push(note.event);
            // Nothing runs before it was submitted, nor before what was in front of it was over. If that isn't known, nor is this.
            if let (Some(Timed { sequence, name, submitted }), Some(before), Some(end)) =
                (note.behind, self.told, end)
            {
                let start = submitted.max(before);
                tell(sequence, name, start, start.max(end));
            }
            // Of two fixes the newer may put a note before what the older one has put earlier.
            self.told = end.map(|end| self.told.map_or(end, |before| before.max(end)));
        }
    }
}

/// What a device has for timing.
pub struct Timing {
    clock: Mutex<Clock>,
    /// A fix is wanted: a launch has found none, or an old one. Everything else is behind the lock.
    is_due: AtomicBool,
    is_fitting: AtomicBool,
}

struct Clock {
    fix: Option<Arc<Fix<Event>>>,
    /// When somebody last looked, whatever came of it.
    looked: Option<Instant>,
    /// Those that notes may still be told by.
    former: Vec<Arc<Fix<Event>>>,
    spare: Vec<Event>,
    stream: Option<Stream>,
}

impl Timing {
    pub fn new() -> Timing {
        let clock = Clock { fix: None, looked: None, former: Vec::new(), spare: Vec::new(), stream: None };
        let (is_due, is_fitting) = (AtomicBool::new(true), AtomicBool::new(false));
        Timing { clock: Mutex::new(Rank::Leaf, clock), is_due, is_fitting }
    }

    /// Looks at both clocks if it is time. Under no lock.
    #[inline]
    pub fn fit(&self, driver: Driver<'_>) {
        if self.is_due.load(Relaxed) {
            self.fit_now(driver);
        }
    }

    #[cold]
    fn fit_now(&self, driver: Driver<'_>) {
        self.is_due.store(false, Relaxed);
        if !driver.tells_times() {
            return;
        }
        let is_time = {
            let clock = self.clock.lock();
            clock.looked.is_none_or(|looked| looked.elapsed() > FIT_EVERY)
        };
        if is_time && !self.is_fitting.swap(true, Acquire) {
            // A failure is seen by the launch.
            _ = self.look(driver);
            self.is_fitting.store(false, Release);
        }
    }

    fn look(&self, driver: Driver<'_>) -> Result<(), DeviceError> {
        let (stream, mut spare) = {
            let mut clock = self.clock.lock();
            clock.looked = Some(Instant::now());
            (clock.stream, std::mem::take(&mut clock.spare))
        };
        let stream = match stream {
            Some(stream) => stream,
            None => driver.stream_create(true)?,
        };
        let mut best: Option<(u64, Fix<Event>)> = None;
        for _ in 0..LOOK_COUNT {
            let event = match spare.pop() {
                Some(event) => event,
                None => driver.timing_event_create()?,
            };
            match look_once(driver, stream, event)? {
                Some((width, moment)) if best.as_ref().is_none_or(|(least, _)| width < *least) => {
                    let former = best.replace((width, Fix { event, moment }));
                    spare.extend(former.map(|(_, fix)| fix.event));
                }
                found => {
                    spare.push(event);
                    if found.is_none() {
                        break;
                    }
                }
            }
        }
        let mut clock = self.clock.lock();
        clock.stream = Some(stream);
        clock.spare = spare;
        if let Some((_, fix)) = best {
            let former = clock.fix.replace(Arc::new(fix));
            clock.former.extend(former);
        }
        for fix in std::mem::take(&mut clock.former) {
            match Arc::try_unwrap(fix) {
                Ok(Fix { event, .. }) => clock.spare.push(event),
                Err(held) => clock.former.push(held),
            }
        }
        Ok(())
    }

    /// The newest fix, if it will do.
    pub fn newest(&self, now: Timestamp) -> Option<Arc<Fix<Event>>> {
        let fix = self.clock.lock().fix.clone();
        let age = fix.as_ref().map_or(u64::MAX, |fix| now.counted_since(fix.moment));
        if age > FIX_AGES[0] {
            self.is_due.store(true, Relaxed);
        }
        fix.filter(|_| age <= FIX_AGES[1])
    }
}

/// The middle of when the device may have been at an event, and how far apart that is; none if it doesn't get there.
fn look_once(
    driver: Driver<'_>,
    stream: Stream,
    event: Event,
) -> Result<Option<(u64, Timestamp)>, DeviceError> {
    let (start, before) = (Instant::now(), Timestamp::now());
    driver.event_record(event, stream)?;
    while !driver.event_query(event)? {
        if start.elapsed() > LOOK_MAX {
            return Ok(None);
        }
    }
    let after = Timestamp::now();
    Ok(Some((after.counted_since(before), before.middle(after))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Counts that a launch takes, and that timing one does.
    const LAUNCH: u64 = 10_000;
    const COST: u64 = 4000;

    /// How many of so many launches are timed, in how many rows, and what of the time went there.
    fn spend(gap: u64, count: u64) -> (u64, u64, f64) {
        let (mut purse, mut now, mut spent, mut timed, mut rows, mut in_row) =
            (Purse::new(), 0, 0, 0, 0, false);
        for _ in 0..count {
            now += gap;
            let may = purse.may(Timestamp::at(now));
            if may {
                purse.spend(Timestamp::at(now), Timestamp::at(now + COST));
                (now, spent, timed) = (now + COST, spent + COST, timed + 1);
                rows += u64::from(!in_row);
            }
            in_row = may;
        }
        (timed, rows, spent as f64 / now as f64)
    }

    #[test]
    fn a_thread_times_in_rows_and_for_a_bounded_part_of_its_time() {
        let (timed, rows, part) = spend(LAUNCH, 100_000);
        assert!(part < 1.01 / SHARE as f64 && part > 0.9 / SHARE as f64, "{part}");
        assert!(timed / rows >= 50, "{timed} in {rows} rows");
        // Slow launches are all timed, and the first ones in any case.
        let slow = COST * (SHARE + 2);
        assert_eq!(spend(slow, 1000).0, 1000);
        assert_eq!(spend(LAUNCH, 50).0, 50);
    }

    /// A device that is at the moment of an event when it has executed as many launches.
    struct Device {
        notes: Notes<u64>,
        fix: Arc<Fix<u64>>,
        told: Vec<(u64, u64, u64)>,
    }

    impl Device {
        fn new() -> Device {
            let fix = Arc::new(Fix { event: 0, moment: Timestamp::at(1000) });
            Device { notes: Notes::new(), fix, told: Vec::new() }
        }

        /// An event that the device meets at a moment, made for that.
        fn note(&mut self, covers: u64, behind: Option<u64>, met: u64) {
            let timed =
                |submitted| Timed { sequence: covers, name: "add", submitted: Timestamp::at(submitted) };
            let Ok(()) =
                self.notes.add(covers, behind.map(timed), &self.fix, || Ok::<u64, Infallible>(0), |_| Ok(()));
            self.notes.list.back_mut().unwrap().event = met;
        }

        /// What is told when so many launches are executed.
        fn tell(&mut self, executed: u64) -> Vec<(u64, u64, u64)> {
            let told = &mut self.told;
            let start = told.len();
            let moment = |fix: &Fix<u64>, met| {
                (met > 0).then(|| Timestamp::at(fix.moment.counted_since(Timestamp::at(0)) + met))
            };
            let since = |moment: Timestamp| moment.counted_since(Timestamp::at(1000));
            self.notes.tell(
                100,
                |covers, _| covers <= executed,
                moment,
                |sequence, name, start, end| {
                    assert_eq!(name, "add");
                    told.push((sequence, since(start), since(end)));
                },
            );
            told[start..].to_vec()
        }
    }

    #[test]
    fn a_launch_is_what_lies_between_two_notes() {
        let mut device = Device::new();
        device.note(1, None, 10);
        device.note(1, Some(1005), 20);
        assert_eq!(device.notes.last, Some(1));
        device.note(2, Some(1006), 50);
        // The stream had run dry.
        device.note(3, Some(1070), 80);
        assert!(device.tell(0).is_empty());
        assert_eq!(device.tell(2), [(1, 10, 20), (2, 20, 50)]);
        assert_eq!(device.tell(3), [(3, 70, 80)]);
        // Others were in between, or the clocks are off: time doesn't go back.
        device.note(9, None, 75);
        assert_eq!(device.notes.last, None);
        device.note(9, Some(1072), 78);
        assert_eq!(device.tell(9), [(9, 80, 80)]);
        assert_eq!(device.notes.spare.len(), 4, "events are used again");
    }

    #[test]
    fn what_cannot_be_found_out_is_not_told() {
        let mut device = Device::new();
        // In front of it there is nothing.
        device.note(1, Some(1000), 5);
        device.note(2, Some(1000), 0);
        device.note(3, Some(1000), 9);
        device.note(4, Some(1000), 12);
        assert_eq!(device.tell(4), [(4, 9, 12)]);
        // A note that fails leaves its event to others, and nothing to go on from.
        let spare = device.notes.spare.len();
        assert_eq!(device.notes.add(5, None, &device.fix, || Ok(1), |_| Err("refused")), Err("refused"));
        assert_eq!((device.notes.spare.len(), device.notes.last), (spare, None));
    }

    #[test]
    fn notes_are_bounded() {
        let mut device = Device::new();
        for sequence in 1.. {
            if !device.notes.has_room() {
                break;
            }
            device.note(sequence, None, 1);
            device.note(sequence, Some(1), 2);
        }
        assert_eq!(device.notes.list.len(), NOTE_COUNT_MAX);
    }
}
