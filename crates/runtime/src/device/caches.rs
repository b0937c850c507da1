//! What a device keeps so as not to make it again, as users see it: the caches of its hal, and the graphs captured on it.

use crate::{
    graph::{GraphCounts, Graphs},
    ground::{Device, Floor, Result, fork},
};
use raddle_hal as hal;
use serde::{Serialize, Serializer};

/// What a device keeps so as not to make it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    /// What its hal keeps; all 0 on the CPU and the simulator, but for what threads keep: they compile nothing. A GPU counts runs of the compiler and files on the disk, too.
    #[serde(flatten, with = "OfHal")]
    pub device: hal::CacheStats,
    /// Captured graphs.
    pub graphs: GraphCounts,
}

#[derive(Serialize)]
#[serde(remote = "hal::CacheCounts")]
struct Counts {
    cached_count: u64,
    cached_bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

#[derive(Serialize)]
#[serde(remote = "hal::CacheStats")]
struct OfHal {
    #[serde(with = "Counts")]
    kernels: hal::CacheCounts,
    #[serde(with = "Counts")]
    algorithms: hal::CacheCounts,
    retired_count: u64,
    executable_count: u64,
    pinned_bytes: u64,
    thread_count: u64,
    thread_bytes: u64,
    #[serde(flatten, serialize_with = "by_name")]
    own: hal::Counters,
}

fn by_name<S: Serializer>(counters: &hal::Counters, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter())
}

impl Device {
    /// What it keeps so as not to make it again: kernels, graphs. Counters never run backwards (all is 0 in a
    /// forked child). From any thread; doesn't block.
    pub fn cache_stats(&self) -> CacheStats {
        if fork::is_child(self.0) {
            return CacheStats::default(); // as below
        }
        CacheStats { device: self.0.hal.cache_stats(), graphs: Graphs::of(self.0).stats() }
    }

    /// Lets go of all that the device keeps so as not to make it again: compiled kernels, algorithms, pinned memory,
    /// instances of graphs. What is in use stays until it isn't; captured graphs can be replayed, and make what they need
    /// anew. Files of compiled kernels stay, and memory of tensors is not touched ([`Device::empty_cache`]). May be called
    /// at any time from any thread; may block.
    pub fn clear_caches(&self) -> Result<()> {
        if fork::is_child(self.0) {
            return Ok(()); // Locks may be held by threads that are not here.
        }
        Graphs::of(self.0).clear();
        self.0.hal.clear_caches().map_err(|error| self.0.error(error))
    }

    /// Lets go of what the calling thread keeps of this device so as not to make it again: prepared launches, scratch memory
    /// of kernels. Its stream and its free blocks stay ([`Device::release_current_thread`]). Doesn't block.
    pub fn clear_current_thread_caches(&self) {
        self.0.hal.clear_thread_caches();
    }
}
