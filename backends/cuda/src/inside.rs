//! Who is inside of the driver, and that nobody gets in any more once the process ends (`exit`).
//!
//! Whoever calls the driver, or touches memory that it has pinned, is [`Inside`] meanwhile. One counter for each thread, so
//! that threads don't meet: it is raised, then the flag is read; the handler sets the flag, then reads the counters; all by
//! sequentially consistent operations, so one of the two sees the other.

use crate::process;
use raddle_hal::DeviceError;
use raddle_sync::{
    Padded, fault,
    global::{AtomicBool, AtomicU32, Mutex, Ordering::*, PoisonError, yield_now},
};
use std::{
    cell::Cell,
    marker::PhantomData,
    time::{Duration, Instant},
};

/// How often its thread is inside.
type Count = Padded<AtomicU32>;

/// What is told once the process ends.
pub const REASON: &str = "the process is ending";

static ENDS: AtomicBool = AtomicBool::new(false);
/// Of all threads; and those of threads that have ended.
static COUNTS: Mutex<(Vec<&'static Count>, Vec<&'static Count>)> = Mutex::new((Vec::new(), Vec::new()));
/// Of threads that come in for the first time when their thread-locals are gone.
static LATE: Count = Padded(AtomicU32::new(0));

thread_local! {
    /// Without a destructor, so that it is there to the very end of the thread.
    static OWN: Cell<Option<&'static Count>> = const { Cell::new(None) };
    /// How often this thread is inside: its count may be another thread's, too, once this one is ending.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static GUARD: Guard = const { Guard };
}

/// Gives the count of a thread that ends to whoever wants one.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that there isn't.
        if let Some(count) = OWN.get()
            && process::check().is_ok()
        {
            COUNTS.lock().unwrap_or_else(PoisonError::into_inner).1.push(count);
        }
    }
}

#[inline]
fn count() -> &'static Count {
    OWN.get().unwrap_or_else(register)
}

#[cold]
fn register() -> &'static Count {
    if GUARD.try_with(|_| ()).is_err() {
        return &LATE;
    }
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (all, idle) = &mut *counts;
    let count = idle.pop().unwrap_or_else(|| {
        let count: &'static Count = Box::leak(Box::default());
        all.push(count);
        count
    });
    OWN.set(Some(count));
    count
}

/// The driver stays while this lives, unless [`process_ends`]. Stays on its thread.
pub struct Inside {
    count: &'static Count,
    _here: PhantomData<*const ()>,
}

impl Inside {
    #[inline]
    pub fn new() -> Inside {
        let count = count();
        count.fetch_add(1, SeqCst);
        DEPTH.set(DEPTH.get() + 1);
        Inside { count, _here: PhantomData }
    }

    /// As [`Inside::new`], for whoever has no context yet that would refuse. Not in a child of a process that has one.
    pub fn enter() -> Result<Inside, DeviceError> {
        process::check()?;
        let inside = Inside::new();
        if process_ends() {
            return Err(DeviceError::Lost { reason: REASON, suspects: Vec::new() });
        }
        Ok(inside)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        self.count.fetch_sub(1, Release); // pairs with the loads of the handler
    }
}

/// Is the driver about to shut down, or has it done so? Who is inside and sees that it isn't can rely on it.
#[inline]
pub fn process_ends() -> bool {
    ENDS.load(SeqCst)
}

/// The driver is about to shut down: from now on nobody gets in. Has that been said before?
pub fn close() -> bool {
    ENDS.swap(true, SeqCst)
}

/// Waits for those who are inside, but for no longer than `time_max`; false if somebody is left then.
pub fn wait_for_others(time_max: Duration) -> bool {
    let own = count();
    let all = COUNTS.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
    let start = Instant::now();
    for count in all.into_iter().chain([&LATE]) {
        // Who calls `exit` from inside, as a signal handler may, doesn't wait for itself.
        let depth = if std::ptr::eq(count, own) { DEPTH.get() } else { 0 };
        while count.load(SeqCst) > depth {
            let mut is_over = start.elapsed() > time_max;
            fault!(end_waits_for_ever => is_over = false);
            if is_over {
                return false;
            }
            yield_now();
        }
    }
    true
}

/// Is this thread inside?
pub fn is_here() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{in_child, quiet};

    /// A thread of a child ends whose parent had the list locked.
    #[test]
    fn a_child_leaves_the_counts_alone() {
        let _quiet = quiet();
        process::claim();
        count();
        let counts = COUNTS.lock();
        let is_left = in_child(|| {
            drop(Guard);
            true
        });
        drop(counts);
        assert!(is_left, "the child waits for the lock of a thread that there isn't");
    }
}
