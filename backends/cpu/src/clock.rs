//! Timing events: a word on the heap each, by its address.

use raddle_hal::TimingEvent;
use raddle_sync::{
    RaceOnce,
    global::{AtomicU64, Ordering::Relaxed},
};
use std::time::Instant;

fn origin() -> &'static Instant {
    static ORIGIN: RaceOnce<Instant> = RaceOnce::new();
    ORIGIN.get_or_init(Instant::now)
}

/// A timing event that has noted nothing.
pub fn make() -> TimingEvent {
    origin();
    TimingEvent(Box::into_raw(Box::new(AtomicU64::new(0))) as u64)
}

/// Notes the time.
///
/// # Safety
/// - The timing event is live.
pub unsafe fn note(event: TimingEvent) {
    // SAFETY: by the contract it came from `make` and has not been released.
    // Relaxed: who reads it has seen the launch complete.
    unsafe { &*(event.0 as *const AtomicU64) }.store(origin().elapsed().as_nanos() as u64, Relaxed);
}

/// Milliseconds from one to the other.
///
/// # Safety
/// - Both are live.
pub unsafe fn elapsed_ms(start: TimingEvent, end: TimingEvent) -> f64 {
    // SAFETY: as above.
    let [start, end] = [start, end].map(|event| unsafe { &*(event.0 as *const AtomicU64) }.load(Relaxed));
    end.wrapping_sub(start) as i64 as f64 / 1e6
}

/// Frees it.
///
/// # Safety
/// - It is live, and nobody uses it any more.
pub unsafe fn release(event: TimingEvent) {
    // SAFETY: by the contract it came from `Box::into_raw` in `make`, and is freed once.
    drop(unsafe { Box::from_raw(event.0 as *mut AtomicU64) });
}
