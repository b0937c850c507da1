//! Waiting: for what is on a stream, and for room there.

use crate::{
    ground::{Result, fork},
    memory::report::trace as recording,
    order::{State, StreamInner},
};
use raddle_hal::trace;
use raddle_sync::{MutexGuard, atomic::Ordering::*, fault};

impl StreamInner {
    /// Blocks until a sequence number is complete. Holds no lock.
    pub(crate) fn synchronize(&self, sequence: u64) -> Result<()> {
        raddle_sync::assert_no_lock_is_held();
        if fork::is_child(self.device) {
            return fork::check(self.device);
        }
        let sequence = if fault!(synchronizes_early) { sequence.saturating_sub(1) } else { sequence };
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
        if recording::is_on(self.device) && sequence >= self.latest().sequence() {
            recording::synchronized(self);
        }
        Ok(())
    }

    /// The lock, when there is room: threads that have seen some before may be many.
    #[cold]
    pub(super) fn state_in_room(
        &'static self,
        mut state: MutexGuard<'static, State>,
    ) -> Result<MutexGuard<'static, State>> {
        while !self.has_room() {
            drop(state);
            self.wait_for_room()?;
            state = self.state.lock();
        }
        Ok(state)
    }

    /// Under the lock it is exact, but for what has been completed since. In models, of which none fills a stream, there always
    /// is: the loads would only add stale values to try.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        if cfg!(loom) {
            return true;
        }
        fault!(no_backpressure => return true);
        fault!(room_seen_once => return true);
        let in_flight = self.enqueued.load(Relaxed).saturating_sub(self.completed.load(Relaxed));
        in_flight < self.device.in_flight_count_max
    }

    /// Blocks while the stream has as much in flight as its queue holds. Nothing is held meanwhile.
    #[inline]
    pub(crate) fn wait_for_room(&'static self) -> Result<()> {
        let in_flight_max = self.device.in_flight_count_max;
        let enqueued = self.enqueued.load(Relaxed);
        if enqueued.saturating_sub(self.completed.load(Relaxed)) < in_flight_max
            || enqueued.saturating_sub(self.poll()) < in_flight_max
        {
            return Ok(());
        }
        if fault!(no_backpressure) {
            return Ok(());
        }
        let mut _held = None;
        fault!(wait_under_lock => _held = Some(self.state.lock()));
        self.synchronize(enqueued - in_flight_max / 2)
    }
}
