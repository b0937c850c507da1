//! How often values were seen, in constant memory and with no lock.
//!
//! Values below 8 have a bin each; from there on each doubling is cut into 8 bins, so that a bin is at most an eighth as wide
//! as what it holds. A quantile is the upper end of its bin, and so at most 12.5 % too large.

use raddle_sync::atomic::{AtomicU64, Ordering::Relaxed};

const PER_DOUBLING: u64 = 8;
/// From 2^3 on, up to 2^36 (in µs: 19 hours).
const DOUBLINGS: u64 = 33;
/// All bins; what is larger than the last is put into it.
pub const BIN_COUNT: usize = (PER_DOUBLING * (DOUBLINGS + 1)) as usize;

/// Counts by bin at one moment.
pub type Bins = [u64; BIN_COUNT];

/// See the [module](self). Each number is exact; numbers read together may be of slightly different moments, as they are only
/// shown to people.
pub struct Histogram {
    bins: [AtomicU64; BIN_COUNT],
    sum: AtomicU64,
}

fn bin(value: u64) -> usize {
    if value < PER_DOUBLING {
        return value as usize;
    }
    let shift = u64::from(value.ilog2()) - u64::from(PER_DOUBLING.ilog2());
    (((shift << 3) + (value >> shift)) as usize).min(BIN_COUNT - 1)
}

/// The largest value of a bin.
fn largest(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < PER_DOUBLING {
        return bin;
    }
    let shift = bin / PER_DOUBLING - 1;
    ((bin % PER_DOUBLING + PER_DOUBLING + 1) << shift) - 1
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { bins: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        // Relaxed: nothing else is read because of these.
        self.bins[bin(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// All counts.
    pub fn bins(&self) -> Bins {
        std::array::from_fn(|bin| self.bins[bin].load(Relaxed))
    }

    /// Of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }
}

/// The value below which a part of all stands, from 0 to 1; `None` if there is none.
pub fn quantile(bins: &Bins, part: f64) -> Option<u64> {
    let all: u64 = bins.iter().sum();
    let rank = ((part * all as f64).ceil() as u64).max(1);
    let mut below = 0;
    bins.iter()
        .position(|count| {
            below += count;
            below >= rank && all > 0
        })
        .map(largest)
}

/// How many values are at most 2^`exponent` − 1.
pub fn at_most(bins: &Bins, exponent: u32) -> u64 {
    bins.iter().enumerate().take_while(|(bin, _)| largest(*bin) < 1 << exponent).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_narrow_and_leave_nothing_out() {
        let mut last = 0;
        for value in (0..100_000u64).chain((17..36).map(|power| (1 << power) + 12_345)) {
            let bin = bin(value);
            assert!(bin == last || bin == last + 1 || value > 100_000, "{value}");
            last = bin;
            assert!(value <= largest(bin) && largest(bin) - value <= value / 8, "{value}: {}", largest(bin));
            assert!(bin == 0 || largest(bin - 1) < value);
        }
        assert_eq!(bin(u64::MAX), BIN_COUNT - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let histogram = Histogram::default();
        assert_eq!(quantile(&histogram.bins(), 0.5), None);
        (1..=1000).for_each(|value| histogram.record(value));
        let bins = histogram.bins();
        for (part, value) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0), (0.0, 1.0)] {
            let found = quantile(&bins, part).unwrap() as f64;
            assert!((value..=value * 1.125).contains(&found), "{part}: {found}");
        }
        assert_eq!((at_most(&bins, 9), at_most(&bins, 3), histogram.sum()), (511, 7, 500_500));
    }
}
