//! Free memory that is in no list: one thread has taken it out of a list and is about to put it into another, or to give it
//! back to the device. Whoever finds no memory waits for it and looks again before saying that there is none: else two
//! threads that are short at once would be told so while everything is free (T10).

use raddle_sync::{
    atomic::{AtomicU64, Ordering::*},
    thread,
};

pub(crate) struct Transit {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Some is on its way while this lives. It begins before the memory leaves its list; whoever has one waits for nobody.
pub(crate) struct OnTheWay<'a>(&'a Transit);

impl Transit {
    pub(crate) fn new() -> Transit {
        Transit { begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    pub(crate) fn begin(&self) -> OnTheWay<'_> {
        // Relaxed: who misses the memory in its list has the list's lock after this thread, and so sees this.
        self.begun.fetch_add(1, Relaxed);
        OnTheWay(self)
    }

    /// How many have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Acquire)
    }

    /// Has any ended since there were so many, or does one now? Waits for those that have begun.
    pub(crate) fn has_ended_since(&self, before: u64) -> bool {
        loop {
            // In this order: one that begins and ends in between makes no difference that stays.
            let ended = self.ended();
            if ended != before {
                return true;
            }
            if self.begun.load(Relaxed) == ended {
                return false;
            }
            thread::yield_now();
        }
    }
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire above.
        self.0.ended.fetch_add(1, Release);
    }
}
