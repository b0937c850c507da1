//! The end of the process.
//!
//! The driver and the libraries beside it shut down by exit handlers of their own: their memory goes, and who is inside of
//! them then crashes. Handlers run in the reverse order of their registration, and the libraries register some when they are
//! first used for something. So ours is registered again and again, ever more rarely ([`watch`]), and what is registered before
//! the context was made comes after the driver's end. Ours sets a flag, and waits for those who are inside: at most as long
//! as the device takes for what they wait for. From then on nobody gets in, and every context counts as lost.
//!
//! Whoever calls the driver, or touches memory that it has pinned, is [`Inside`] meanwhile. One counter for each thread, so
//! that threads don't meet: it is raised, then the flag is read; the handler sets the flag, then reads the counters; all by
//! sequentially consistent operations, so one of the two sees the other.

use crate::process;
use raddle_hal::DeviceError;
use raddle_sync::{
    Padded,
    global::{AtomicBool, AtomicU32, Mutex, Ordering::*, PoisonError, yield_now},
};
use std::{cell::Cell, marker::PhantomData};

/// How often its thread is inside.
type Count = Padded<AtomicU32>;

/// Calls of [`watch`] that all count (guess: by then every library has been used for all that it can do).
const WATCHED_ALWAYS_COUNT: u32 = 1000;

/// What is told then.
pub const REASON: &str = "the process is ending";

static ENDS: AtomicBool = AtomicBool::new(false);
/// The process that the handler is for: a forked child has a copy of the counters, and nobody in the driver.
static PROCESS: AtomicU32 = AtomicU32::new(0);
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

extern "C" fn end() {
    ENDS.store(true, SeqCst);
    if PROCESS.load(Relaxed) != std::process::id() {
        return;
    }
    let own = count();
    let all = COUNTS.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
    for count in all.into_iter().chain([&LATE]) {
        // Who calls `exit` from inside, as a signal handler may, doesn't wait for itself.
        let depth = if std::ptr::eq(count, own) { DEPTH.get() } else { 0 };
        while count.load(SeqCst) > depth {
            yield_now();
        }
    }
}

/// Arranges for the end: called when the driver has a context, when something was built for the first time, and at the
/// first, second, fourth, … launch of each queue. After the first thousand calls only every power of two counts.
#[cold]
pub fn watch() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let calls = CALLS.fetch_add(1, Relaxed) + 1;
    PROCESS.store(std::process::id(), Relaxed);
    if calls <= WATCHED_ALWAYS_COUNT || calls.is_power_of_two() {
        // SAFETY: the handler touches statics only, and lives as long as the process. If there is no room for it the flag stays
        // down, and the driver tells late callers by itself that it has shut down.
        unsafe { libc::atexit(end) };
    }
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
