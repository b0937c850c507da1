//! Timestamps: a look at the time for less than half of what the system's clock takes, to be told in nanoseconds later.

use crate::RaceOnce;
use std::time::Instant;

/// When it was, on a clock that all threads share, as nearly as processors keep together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// When so much had been counted; for tests.
    pub const fn at(counted: u64) -> Timestamp {
        Timestamp(counted)
    }

    /// What has been counted since an earlier one: processors count a few billions a second, or nanoseconds.
    #[inline]
    pub fn counted_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The middle between this one and a later one.
    pub fn middle(self, later: Timestamp) -> Timestamp {
        Timestamp(self.0 + later.counted_since(self) / 2)
    }

    /// Now: what the processor has counted, if it counts evenly, else the system's clock.
    #[inline]
    pub fn now() -> Timestamp {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if *counts_evenly() {
            // SAFETY: the instruction is there on every x86-64 and touches nothing but its registers.
            return Timestamp(unsafe { std::arch::x86_64::_rdtsc() });
        }
        Timestamp(system().elapsed().as_nanos() as u64)
    }
}

/// A moment on the system's clock as well. What lies between two of these can be told in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    moment: Timestamp,
    instant: Instant,
}

impl Reading {
    /// Of now.
    pub fn now() -> Reading {
        Reading { moment: Timestamp::now(), instant: Instant::now() }
    }

    /// Nanoseconds since this reading, for moments that lie between it and a later one or near by; 0 for those before it.
    pub fn nanoseconds(&self, later: &Reading) -> impl Fn(Timestamp) -> u64 + use<> {
        let start = self.moment.0;
        let counted = later.moment.0.saturating_sub(start).max(1) as u128;
        let passed = later.instant.saturating_duration_since(self.instant).as_nanos();
        move |moment| (moment.0.saturating_sub(start) as u128 * passed / counted) as u64
    }

    /// The moment so many nanoseconds after another one, or before it: by how fast moments passed from this reading to a later
    /// one.
    pub fn moved(&self, later: &Reading) -> impl Fn(Timestamp, i64) -> Timestamp + use<> {
        let counted = later.moment.0.saturating_sub(self.moment.0) as i128;
        let passed = (later.instant.saturating_duration_since(self.instant).as_nanos() as i128).max(1);
        move |moment, ns| {
            Timestamp(moment.0.saturating_add_signed((i128::from(ns) * counted / passed) as i64))
        }
    }
}

/// Does the counter of this processor run at one speed on all cores, whatever they do? (AMD's manual, volume 3, CPUID function
/// 8000_0007, `TscInvariant`; Intel's, volume 3, "Invariant TSC".)
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counts_evenly() -> &'static bool {
    use std::arch::x86_64::__cpuid;
    static EVENLY: RaceOnce<bool> = RaceOnce::new();
    EVENLY.get_or_init(|| __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0)
}

/// What the system's clock counts from.
fn system() -> &'static Instant {
    static START: RaceOnce<Instant> = RaceOnce::new();
    START.get_or_init(Instant::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within what looking at two clocks one after the other can differ by; a thread may lose its core in between, so the
    /// nearest of many.
    #[test]
    fn moments_are_told_as_the_systems_clock_tells_them() {
        let start = Reading::now();
        let apart_ns = (0..1000).map(|_| {
            let middle = Reading::now();
            let later = loop {
                let later = Reading::now();
                if later.instant > middle.instant + std::time::Duration::from_micros(50) {
                    break later;
                }
            };
            let told = start.nanoseconds(&later)(middle.moment);
            let is = middle.instant.duration_since(start.instant).as_nanos() as u64;
            told.abs_diff(is)
        });
        assert!(apart_ns.min().is_some_and(|apart_ns| apart_ns < 1000));
    }

    #[test]
    fn moments_are_moved_as_they_are_told() {
        let start = Reading::now();
        let later = loop {
            let later = Reading::now();
            if later.instant > start.instant + std::time::Duration::from_micros(50) {
                break later;
            }
        };
        let (told, moved) = (start.nanoseconds(&later), start.moved(&later));
        for ns in [0, 1000, 40_000, 1_000_000] {
            let there = moved(start.moment, ns);
            assert!(told(there).abs_diff(ns as u64) <= 10, "{ns} ns are told as {}", told(there));
            assert!(moved(there, -ns).0.abs_diff(start.moment.0) <= 10);
        }
        assert_eq!(start.moment.middle(start.moment), start.moment);
    }

    #[test]
    fn moments_before_the_first_reading_are_its_own() {
        let before = Timestamp::now();
        let (start, later) = (Reading::now(), Reading::now());
        let told = start.nanoseconds(&later);
        assert_eq!(told(before), 0);
        assert!(told(later.moment) >= told(start.moment));
        assert!(before <= start.moment && start.moment <= later.moment);
    }
}
