//! Timing events of a device that nobody holds. They are used again when the tick that noted them is complete; so there are as many as
//! were held or in flight at once, and of those that wait to be used again at most [`SPARE_COUNT_MAX`].

use super::tick::Tick;
use raddle_hal::TimingEvent;
use raddle_sync::{Mutex, Rank, fault};
use std::collections::VecDeque;

/// Timing events that are kept for later (guess: more than a profiler of one step takes).
pub(crate) const SPARE_COUNT_MAX: usize = 1024;

/// With the tick of their last use, oldest first.
pub(crate) struct SpareTimingEvents(Mutex<VecDeque<(TimingEvent, Tick)>>);

impl SpareTimingEvents {
    pub(crate) fn new() -> SpareTimingEvents {
        SpareTimingEvents(Mutex::new(Rank::Leaf, VecDeque::new()))
    }

    /// One that is in no use.
    pub(crate) fn take(&self, is_complete: impl Fn(Tick) -> bool) -> Option<TimingEvent> {
        let oldest = self.0.lock().pop_front();
        oldest.and_then(|spare| self.free(spare, is_complete))
    }

    /// It, if it is in no use; else it waits on.
    fn free(
        &self,
        (timing, tick): (TimingEvent, Tick),
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<TimingEvent> {
        let mut is_free = is_complete(tick);
        fault!(stamp_in_flight => is_free = true);
        if is_free {
            return Some(timing);
        }
        self.0.lock().push_back((timing, tick));
        None
    }

    /// Takes back one that nobody holds. If there are too many, one that is in no use, for the device.
    #[must_use]
    pub(crate) fn keep(
        &self,
        timing: TimingEvent,
        tick: Tick,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<TimingEvent> {
        let surplus = {
            let mut spare = self.0.lock();
            spare.push_back((timing, tick));
            if spare.len() > SPARE_COUNT_MAX { spare.pop_front() } else { None }
        };
        surplus.and_then(|spare| self.free(spare, is_complete))
    }

    /// Takes out all that are in no use. Other threads may be recording.
    pub(crate) fn drain(&self, is_complete: impl Fn(Tick) -> bool) -> impl Iterator<Item = TimingEvent> {
        let spare = std::mem::take(&mut *self.0.lock());
        let (over, in_flight): (VecDeque<_>, VecDeque<_>) =
            spare.into_iter().partition(|(_, tick)| is_complete(*tick));
        self.0.lock().extend(in_flight);
        over.into_iter().map(|(timing, _)| timing)
    }

    /// How many wait to be used again.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}
