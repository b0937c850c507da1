//! Atomics, cells, locks with ranks and threads: std's, or loom's in models (`--cfg loom`), so that the code that is
//! model-checked is the code that ships. No other crate names `std::sync` or `std::thread` for these.
//!
//! Also here: [`Cache`], which builds once for all threads, and [`fault!`], which plants the faults that the checks must
//! catch.

mod biased;
mod cache;
pub mod faults;
mod lock;
pub mod locks_at_fork;
mod race_once;
mod rank;
mod timestamp;

pub use biased::Biased;
pub use cache::{Cache, CacheCounts, Retired};
pub use lock::{Condvar, GlobalGuard, Mutex, MutexGuard};
pub use race_once::RaceOnce;
pub use rank::{Rank, assert_no_lock_is_held};
pub use timestamp::{Reading, Timestamp};

/// Atomic integers and pointers. Use acquire, release and read-modify-writes; bare fences are not modelled well.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::*,
    };
    #[cfg(not(loom))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::*,
    };
}

/// Raises a number to at least `value`, for numbers that tell what is complete. AcqRel: whoever loads it sees what everybody
/// saw who has raised it. Not `fetch_max`, which the thread sanitizer doesn't see, so that it reports races where there are
/// none.
pub fn raise(number: &atomic::AtomicU64, value: u64) {
    use atomic::Ordering::{AcqRel, Acquire};
    let larger = |known: u64| (value > known).then_some(value);
    let order = if fault!(completed_relaxed) { atomic::Ordering::Relaxed } else { AcqRel };
    _ = number.fetch_update(order, Acquire, larger);
}

/// What code of somebody else returns, or nothing if it panics: a thread that others wait for goes on. The panic's hook has
/// printed it. What was thrown may panic once more when it is dropped.
pub fn caught<R>(body: impl FnOnce() -> R) -> Option<R> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let thrown = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => return Some(result),
        Err(thrown) => thrown,
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(again);
    }
    None
}

/// Threads.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Builder, JoinHandle, ThreadId, current, spawn, yield_now};
    #[cfg(not(loom))]
    pub use std::thread::{Builder, JoinHandle, ThreadId, current, scope, spawn, yield_now};
}

/// For statics of the process and other things that no model has: always std's. A static that is made once is a [`RaceOnce`].
pub mod global {
    pub use std::sync::{
        Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    };
    pub use std::thread::{current as current_thread, sleep, yield_now};
}

#[cfg(loom)]
pub use loom::sync::Arc;
/// Shared ownership, modelled.
#[cfg(not(loom))]
pub use std::sync::Arc;

/// A cell whose accesses loom checks for races. One argument a method, so that both versions read alike.
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(#[cfg(loom)] loom::cell::UnsafeCell<T>, #[cfg(not(loom))] std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell with a value.
    pub fn new(value: T) -> Self {
        #[cfg(loom)]
        return UnsafeCell(loom::cell::UnsafeCell::new(value));
        #[cfg(not(loom))]
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// A pointer for reading, for the length of the call.
    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with(read);
        #[cfg(not(loom))]
        read(self.0.get())
    }

    /// A pointer for writing, for the length of the call.
    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with_mut(write);
        #[cfg(not(loom))]
        write(self.0.get())
    }
}

/// Keeps what it holds on cache lines of its own. Two lines, since the prefetcher of x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One turn of a wait for somebody who holds something for a moment: spins, then gives the core away.
///
/// In models a wait of more than a few turns is finished but not branched: two waiters can hand each other the turn for
/// ever.
pub fn pause(turns: &mut u32) {
    *turns += 1;
    #[cfg(loom)]
    if *turns > 8 {
        loom::skip_branch();
    }
    if cfg!(loom) || *turns > 64 {
        // 64: guess
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
