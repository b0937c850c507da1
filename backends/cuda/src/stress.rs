//! Kernels that only tests want: one that takes its time, so that races have room, and one that loses the device.

use crate::driver::Function;
use raddle_sync::atomic::AtomicU64;
use std::sync::OnceLock;

/// Launches that take longer than they need, at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spin {
    /// How probably a launch has to wait, and, independently, how probably it lasts.
    pub probability: f64,
    /// For how long at most.
    pub ns_max: u64,
    /// Names what is drawn.
    pub seed: u64,
}

/// The kernels, once they are wanted.
#[derive(Default)]
pub struct Stress {
    pub spin: OnceLock<Function>,
    pub add: OnceLock<Function>,
    pub trap: OnceLock<Function>,
    pub drawn: AtomicU64,
}

/// splitmix64: the n-th number of a seed.
fn draw(seed: u64, n: u64) -> u64 {
    let mut bits = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

impl Spin {
    /// For how long the n-th draw spins; 0 mostly.
    pub fn ns(&self, n: u64) -> u64 {
        let bits = draw(self.seed, n);
        let chance = (bits >> 40) as f64 / (1_u64 << 24) as f64;
        if chance < self.probability { bits % self.ns_max.max(1) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_spin_as_were_asked_for() {
        let spin = Spin { probability: 0.25, ns_max: 1000, seed: 7 };
        let drawn: Vec<u64> = (0..10_000).map(|n| spin.ns(n)).collect();
        let spinning = drawn.iter().filter(|ns| **ns > 0).count();
        assert!((2300..2700).contains(&spinning), "{spinning}");
        assert!(drawn.iter().all(|ns| *ns < 1000));
        let again: Vec<u64> = (0..10_000).map(|n| spin.ns(n)).collect();
        assert_eq!(drawn, again);
    }
}
