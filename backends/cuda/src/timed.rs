//! The launches of a device that are timed, and the telling of it. `timing` says how.

use crate::{
    driver::{Driver, Event},
    inside::Inside,
    process,
    queue::Queue,
    shared::Shared,
    timing::{Fix, NOTE_COUNT_MAX, Notes, Purse, Timed},
};
use raddle_hal::{
    DeviceError, Launch, Wait,
    trace::{self, Timestamp, Work},
};
use raddle_sync::{Arc, atomic::Ordering::*, global};
use std::cell::Cell;

/// Notes that are asked for by a launch: more than it makes, so that what has piled up goes (guess).
const TOLD_BY_LAUNCH: usize = 4;

thread_local! {
    static PURSE: Cell<Purse> = const { Cell::new(Purse::new()) };
}

/// A launch that is being timed.
pub struct Started {
    submitted: Timestamp,
    fix: Arc<Fix<Event>>,
}

impl Shared {
    /// Times the launch that comes now, behind its waits, if it is worth it.
    #[cold]
    pub fn begin_timed(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Option<Started> {
        let takes_none = matches!(
            launch,
            Launch::Nothing
                | Launch::Gate(_)
                | Launch::TimingEvent(_)
                | Launch::FillBytes { size_bytes: 0, .. }
        );
        if takes_none {
            return None;
        }
        let submitted = Timestamp::now();
        let mut purse = PURSE.get();
        let may = purse.may(submitted);
        PURSE.set(purse);
        let started = if may { self.start(driver, queue, sequence, waits, submitted) } else { None };
        if started.is_none() {
            queue.untimed.fetch_add(1, Relaxed);
        }
        started
    }

    fn start(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        sequence: u64,
        waits: &[Wait],
        submitted: Timestamp,
    ) -> Option<Started> {
        let fix = self.timing.newest(submitted)?;
        let mut notes = queue.notes.lock();
        self.tell_some(driver, queue, &mut notes);
        let is_behind = notes.last == Some(sequence - 1) && waits.is_empty() && !queue.is_foreign();
        let has_start =
            notes.has_room() && (is_behind || note(driver, queue, &mut notes, sequence, None, &fix).is_ok());
        spend(submitted);
        has_start.then_some(Started { submitted, fix })
    }

    /// Puts the note behind a launch that is on its stream, and isn't published yet.
    #[cold]
    pub fn end_timed(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        sequence: u64,
        launch: &Launch<'_>,
        started: Started,
    ) {
        let start = Timestamp::now();
        let Started { submitted, fix } = started;
        let timed = Timed { sequence, name: launch.name(), submitted };
        if note(driver, queue, &mut queue.notes.lock(), sequence, Some(timed), &fix).is_err() {
            queue.untimed.fetch_add(1, Relaxed);
        }
        spend(start);
    }

    /// What is known without asking the driver whether the device is past it.
    fn tell_some(&self, driver: Driver<'_>, queue: &Queue, notes: &mut Notes<Event>) {
        if notes.list.front().is_some_and(|note| note.covers <= queue.executed()) {
            let executed = queue.executed();
            self.tell_notes(driver, queue, notes, TOLD_BY_LAUNCH, |covers, _| covers <= executed);
        }
    }

    fn tell_notes(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        notes: &mut Notes<Event>,
        count_max: usize,
        is_past: impl FnMut(u64, Event) -> bool,
    ) {
        let moved = trace::moved();
        let moment = |fix: &Fix<Event>, event| {
            let elapsed_ms = driver.event_elapsed_ms(fix.event, event).ok()?;
            Some(moved(fix.moment, (f64::from(elapsed_ms) * 1e6) as i64))
        };
        notes.tell(count_max, is_past, moment, |sequence, name, start, end| {
            let work = Work { source: self.info.source, queue: queue.id.0, sequence };
            trace::ran_late(work, name, start, end);
        });
    }

    /// All that the device is past by now.
    fn tell_all(&self, driver: Driver<'_>) {
        for (_, queue) in self.open_queues() {
            trace::untimed(queue.untimed.swap(0, Relaxed));
            // Who holds it for long isn't there any more.
            let Some(mut notes) = queue.notes.try_lock() else { continue };
            let is_past =
                |covers, event| queue.executed() >= covers || driver.event_query(event).unwrap_or(false);
            self.tell_notes(driver, queue, &mut notes, NOTE_COUNT_MAX, is_past);
        }
    }
}

/// Takes what the thread has done since out of its purse.
fn spend(start: Timestamp) {
    let mut purse = PURSE.get();
    purse.spend(start, Timestamp::now());
    PURSE.set(purse);
}

fn note(
    driver: Driver<'_>,
    queue: &Queue,
    notes: &mut Notes<Event>,
    covers: u64,
    behind: Option<Timed>,
    fix: &Arc<Fix<Event>>,
) -> Result<(), DeviceError> {
    let make = || driver.timing_event_create();
    notes.add(covers, behind, fix, make, |event| driver.event_record(event, queue.stream()))
}

impl trace::Late for Shared {
    fn tell(&self) {
        if process::check().is_err() {
            return;
        }
        let _inside = Inside::new();
        if let Ok(driver) = self.context.enter() {
            self.tell_all(driver);
        }
    }
}

/// Devices that are asked at the end of the process, when nobody else is in the driver any more and handlers of traces come
/// too late for it.
static DEVICES: global::Mutex<Vec<std::sync::Weak<Shared>>> = global::Mutex::new(Vec::new());

/// Has a device asked.
pub fn ask_at_end(shared: &Arc<Shared>) {
    let device = Arc::downgrade(shared);
    trace::ask(device.clone());
    if let Ok(mut devices) = DEVICES.lock() {
        devices.retain(|known| known.strong_count() > 0);
        devices.push(device);
    }
}

/// For the handler at the end of the process, once it has found nobody inside.
pub fn tell_at_end() {
    let Ok(devices) = DEVICES.try_lock() else { return };
    for shared in devices.iter().filter_map(std::sync::Weak::upgrade) {
        if let Some(driver) = shared.context.enter_last() {
            shared.tell_all(driver);
        }
    }
}
