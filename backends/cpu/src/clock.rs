//! Stamps: a word on the heap each, by its address.

use raddle_hal::Stamp;
use raddle_sync::{
    RaceOnce,
    global::{AtomicU64, Ordering::Relaxed},
};
use std::time::Instant;

fn origin() -> &'static Instant {
    static ORIGIN: RaceOnce<Instant> = RaceOnce::new();
    ORIGIN.get_or_init(Instant::now)
}

/// A stamp that has noted nothing.
pub fn make() -> Stamp {
    origin();
    Stamp(Box::into_raw(Box::new(AtomicU64::new(0))) as u64)
}

/// Notes the time.
///
/// # Safety
/// - The stamp is live.
pub unsafe fn note(stamp: Stamp) {
    // SAFETY: by the contract it came from `make` and has not been released.
    // Relaxed: who reads it has seen the launch complete.
    unsafe { &*(stamp.0 as *const AtomicU64) }.store(origin().elapsed().as_nanos() as u64, Relaxed);
}

/// Milliseconds from one to the other.
///
/// # Safety
/// - Both are live.
pub unsafe fn elapsed_ms(start: Stamp, end: Stamp) -> f64 {
    // SAFETY: as above.
    let [start, end] = [start, end].map(|stamp| unsafe { &*(stamp.0 as *const AtomicU64) }.load(Relaxed));
    end.wrapping_sub(start) as i64 as f64 / 1e6
}

/// Frees it.
///
/// # Safety
/// - It is live, and nobody uses it any more.
pub unsafe fn release(stamp: Stamp) {
    // SAFETY: by the contract it came from `Box::into_raw` in `make`, and is freed once.
    drop(unsafe { Box::from_raw(stamp.0 as *mut AtomicU64) });
}
