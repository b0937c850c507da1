//! How many bytes there are of something, and the most that there have been since somebody said so.
//!
//! Who adds raises the number, then the peak; who resets lowers the peak, then raises it to the number. All by
//! read-modify-writes of the same words, so that one of the two sees the other: what is there after a reset is in the peak.

use raddle_sync::{
    atomic::{AtomicU64, Ordering::*},
    fault,
};

/// A number of bytes, which threads may count so that it is below 0 for a while, and its peak.
pub(crate) struct PeakGauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl PeakGauge {
    pub(crate) fn new() -> PeakGauge {
        PeakGauge { now: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, bytes: i64) {
        // AcqRel, here and below: whoever changes the peak sees the numbers that made it what it was.
        let now = self.now.fetch_add(bytes as u64, AcqRel).wrapping_add(bytes as u64) as i64;
        if bytes > 0 && now > 0 {
            self.peak.fetch_max(now as u64, AcqRel);
        }
    }

    /// The bytes.
    pub(crate) fn now(&self) -> usize {
        (self.now.load(Acquire) as i64).max(0) as usize
    }

    /// The bytes, and the most since the last reset.
    pub(crate) fn now_and_peak(&self) -> (usize, usize) {
        let now = self.now();
        (now, (self.peak.fetch_max(now as u64, AcqRel) as usize).max(now))
    }

    /// The peak starts again from what there is now.
    pub(crate) fn reset_peak(&self) {
        if fault!(peak_overwritten) {
            return self.peak.store(self.now() as u64, Relaxed);
        }
        self.peak.swap(0, AcqRel);
        self.peak.fetch_max(self.now() as u64, AcqRel);
    }
}
