//! Two threads and a cell: ordered by a lock, silent under ThreadSanitizer; not ordered, seen by it. `cargo xtask tsan`
//! sets `RADDLE_TSAN_PLANT` for the second.

#![cfg(not(loom))]

use raddle_sync::UnsafeCell;
use std::{
    sync::{Barrier, Mutex},
    thread,
};

struct Shared(UnsafeCell<u64>);

// SAFETY: it is this test's business whether accesses are ordered: by the lock, or by design not at all.
unsafe impl Sync for Shared {}

fn increment_on_two_threads(ordered: bool) -> u64 {
    let shared = Shared(UnsafeCell::new(0));
    let lock = Mutex::new(());
    // Both are past it before either starts, or one could end before the other is made, and be ordered by that.
    let barrier = Barrier::new(2);
    let increment = || {
        barrier.wait();
        for _ in 0..1000 {
            let _held = ordered.then(|| lock.lock().unwrap());
            let shared = &shared;
            shared.0.with_mut(|value| {
                // SAFETY: the pointer is valid for the call; under the lock no other thread uses it.
                unsafe { *value += 1 }
            });
        }
    };
    thread::scope(|scope| {
        scope.spawn(increment);
        scope.spawn(increment);
    });
    // SAFETY: both threads are gone.
    shared.0.with(|value| unsafe { *value })
}

#[test]
fn ordered() {
    assert_eq!(increment_on_two_threads(true), 2000);
}

#[test]
fn planted() {
    // Without a sanitizer a lost increment is all that would be seen, and not always.
    if std::env::var_os("RADDLE_TSAN_PLANT").is_some() {
        assert!(increment_on_two_threads(false) <= 2000);
    }
}
