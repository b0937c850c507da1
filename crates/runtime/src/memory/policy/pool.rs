//! Private pools: memory that is used by those only who ask for it.
//!
//! Guarantees: a block of a pool goes back to its pool, whatever thread frees it; nobody else gets memory of the pool while
//! a handle of it, a guard or one of its blocks is there; when the last of them goes, its memory joins the device's, behind
//! its marks as ever, so that nothing has to be waited for, and `empty_cache` or need gives it back to the driver. When
//! memory is scarce, slabs of a pool of which nothing is in use are given back, too.
//!
//! A pool is one list with best fit, splits and merges for blocks of all sizes, behind one lock: no thread keeps some of it.
//!
//! Captures: what is allocated inside of one while a guard is there stands in the pool until the capture ends; the arenas
//! and outputs of a graph's instances come from the pool that is current where an instance is made: that is, at its replay.

use crate::{
    ground::{Core, Device, Floor, fork},
    memory::{
        private::{self, PoolInner},
        store::Memory,
    },
};
use raddle_sync::atomic::Ordering::*;
use std::marker::PhantomData;

/// Memory of a device for those only who [enter](MemoryPool::enter) it. Clones are handles of the same pool; they may be
/// used from any thread.
pub struct MemoryPool(&'static PoolInner);

impl MemoryPool {
    pub(crate) fn new(device: &'static Core) -> MemoryPool {
        let memory = Memory::of(device);
        MemoryPool(if fork::is_child(device) { memory.take_pool_in_child() } else { memory.take_pool() })
    }

    /// Makes what this thread allocates on the pool's device come from the pool until the guard is dropped (also by a
    /// panic). Guards nest, the innermost counts.
    pub fn enter(&self) -> MemoryPoolGuard {
        private::enter(self.0);
        self.0.device.add_watcher();
        MemoryPoolGuard { pool: self.clone(), _here: PhantomData }
    }

    /// Its device.
    pub fn device(&self) -> Device {
        Device(self.0.device)
    }

    /// Its number, as [`memory_stats`](Device::memory_stats) and snapshots show it.
    pub fn number(&self) -> u64 {
        self.0.number.load(Relaxed)
    }
}

impl Clone for MemoryPool {
    fn clone(&self) -> MemoryPool {
        self.0.hold();
        MemoryPool(self.0)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        Memory::of(self.0.device).let_go_of_pool(self.0);
    }
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryPool({} of {})", self.number(), self.device().name())
    }
}

/// Ends what [`MemoryPool::enter`] began. Stays on its thread.
#[must_use = "allocations come from the pool until the guard is dropped"]
pub struct MemoryPoolGuard {
    pool: MemoryPool,
    _here: PhantomData<*const ()>,
}

impl Drop for MemoryPoolGuard {
    fn drop(&mut self) {
        private::leave(self.pool.0);
        self.pool.0.device.remove_watcher();
    }
}
