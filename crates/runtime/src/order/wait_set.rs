//! What an op has to wait for, collected while it claims its operands.

use super::{
    streams::StreamInner,
    tick::{Clock, Tick},
};
use raddle_hal::{QueueId, Wait};
use raddle_sync::{atomic::Ordering::*, fault};
use smallvec::SmallVec;

/// The waits that one op needs.
pub(crate) struct WaitSet<'a> {
    stream: &'a StreamInner,
    clock: &'a mut Clock,
    pub(crate) waits: Waits,
    /// Dependencies on other streams that needed no wait.
    pub(crate) elided: u64,
}

/// Few in nearly all cases: moving them costs what they hold inline.
pub(crate) type Waits = SmallVec<[Wait; 4]>;

impl<'a> WaitSet<'a> {
    /// None yet, of an op on a stream that knows what its clock says.
    #[inline]
    pub(crate) fn new(stream: &'a StreamInner, clock: &'a mut Clock) -> WaitSet<'a> {
        WaitSet { stream, clock, waits: Waits::new(), elided: 0 }
    }

    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.stream.slot
    }

    /// Free if the tick is of this stream, in its clock, or complete; one wait otherwise.
    #[inline]
    pub(crate) fn behind(&mut self, tick: Tick) {
        if tick.slot() == self.stream.slot || tick == Tick::NONE {
            return;
        }
        if self.is_behind(tick) {
            self.elided += 1;
        } else {
            self.wait(tick);
        }
    }

    #[inline]
    pub(crate) fn is_behind(&mut self, tick: Tick) -> bool {
        let (slot, sequence) = (tick.slot(), tick.sequence());
        if slot == self.stream.slot || sequence <= self.clock.get(slot) {
            return true;
        }
        let producer = self.stream.device.opened(slot);
        let mut is_over = producer.is_complete(sequence);
        fault!(elide_enqueued => is_over = true);
        if is_over {
            self.clock.raise(slot, producer.completed.load(Acquire).max(sequence));
            return true;
        }
        false
    }

    #[cold]
    fn wait(&mut self, tick: Tick) {
        // Only what the producer knew *at the tick*: what it has learnt since is not ordered before the tick.
        let history = self.stream.device.opened(tick.slot()).history.lock();
        let mut versions = history.iter().rev();
        let known = if fault!(current_clock) {
            versions.next()
        } else {
            versions.find(|(from, _)| *from <= tick.sequence())
        };
        if let Some((_, clock)) = known {
            self.clock.merge(clock);
        }
        drop(history);
        self.clock.raise(tick.slot(), tick.sequence());
        let sequence = if fault!(waits_for_tail) {
            self.stream.device.opened(tick.slot()).enqueued.load(Acquire)
        } else {
            tick.sequence()
        };
        let wait = Wait { queue: QueueId(tick.slot() as u8), sequence };
        match self.waits.iter_mut().find(|known| known.queue == wait.queue) {
            Some(earlier) => *earlier = wait,
            None => self.waits.push(wait),
        }
    }
}
