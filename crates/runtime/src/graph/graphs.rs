//! The graphs of a device: what all have done, and a list of those that are alive, so that
//! [`Device::clear_caches`](crate::Device::clear_caches) reaches their instances.

use super::instances::Instances;
use crate::ground::Floor;
use raddle_sync::{
    Mutex, Rank, fault,
    global::{AtomicU64, Ordering::Relaxed},
};
use serde::Serialize;
use std::sync::{Arc, Weak};

/// What the graphs of a device hold and have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GraphCounts {
    /// Graphs that were captured.
    pub captured: u64,
    /// Graphs that are alive.
    pub alive_count: u64,
    /// Instances that there are.
    pub instance_count: u64,
    /// Their memory: arenas and outputs.
    pub instance_bytes: u64,
    /// Replays that were submitted.
    pub replays: u64,
}

/// The graphs of a device.
pub(crate) struct Graphs {
    alive: Mutex<Vec<Weak<Instances>>>,
    captured: AtomicU64,
    replays: AtomicU64,
}

// SAFETY: no other floor has the number.
unsafe impl Floor for Graphs {
    const NUMBER: usize = 3;
}

impl Graphs {
    pub(crate) fn new() -> Graphs {
        let alive = Mutex::new(Rank::Leaf, Vec::new());
        Graphs { alive, captured: AtomicU64::new(0), replays: AtomicU64::new(0) }
    }

    /// A graph was captured, with these instances.
    pub(crate) fn add(&self, instances: &Arc<Instances>) {
        self.captured.fetch_add(1, Relaxed);
        let mut alive = self.alive.lock();
        alive.retain(|instances| instances.strong_count() > 0);
        alive.push(Arc::downgrade(instances));
    }

    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Relaxed);
    }

    /// The instances of those that are alive, for use without the lock.
    fn alive(&self) -> Vec<Arc<Instances>> {
        self.alive.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn stats(&self) -> GraphCounts {
        let mut counts = GraphCounts {
            captured: self.captured.load(Relaxed),
            replays: self.replays.load(Relaxed),
            ..GraphCounts::default()
        };
        for instances in self.alive() {
            let count = instances.count() as u64;
            counts.alive_count += 1;
            counts.instance_count += count;
            counts.instance_bytes += count * instances.size_bytes as u64;
        }
        counts
    }

    pub(crate) fn clear(&self) {
        self.alive().iter().for_each(|instances| instances.clear());
        if fault!(clear_forgets_counts) {
            self.replays.store(0, Relaxed);
        }
    }
}
