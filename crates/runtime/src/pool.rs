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
    Device,
    device::DeviceInner,
    fork,
    large::{Grain, Large},
};
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU64, Ordering::*},
    fault, thread,
};
use std::{cell::RefCell, marker::PhantomData};

/// Lives as long as the process, and serves one pool after the other, so that blocks name it without counting. There are as
/// many as there were pools at once.
pub(crate) struct PoolInner {
    device: &'static DeviceInner,
    /// Numbers pools of a device in the order in which they were made.
    pub(crate) number: AtomicU64,
    /// Handles, and blocks that are given out.
    users: AtomicU64,
    pub(crate) large: Mutex<Large>,
}

// As for `DeviceInner`.
impl std::panic::RefUnwindSafe for PoolInner {}

/// The pools of a device that are idle, and how many were made.
#[derive(Default)]
pub(crate) struct IdlePools {
    idle: Vec<&'static PoolInner>,
    made: u64,
}

impl PoolInner {
    fn leaked(device: &'static DeviceInner) -> &'static PoolInner {
        Box::leak(Box::new(PoolInner {
            device,
            number: AtomicU64::new(0),
            users: AtomicU64::new(0),
            large: Mutex::new(Rank::Slabs, Large::new(Grain::PRIVATE, device.bounds())),
        }))
    }

    /// One user more, for whom another one is there already.
    pub(crate) fn hold(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// One user less. AcqRel: the last one sees what the others have done.
    pub(crate) fn let_go(&'static self) {
        if fork::is_child(self.device) {
            return; // its locks are the parent's
        }
        if self.users.fetch_sub(1, AcqRel) == 1 {
            let allocator = &self.device.allocator;
            let on_the_way = (!fault!(pool_on_its_way)).then(|| allocator.transit.begin());
            let refused = allocator.out_of_memory.load(Relaxed); // before anybody can meet the fault
            let slabs = self.large.lock().take_slabs();
            while fault!(pool_on_its_way) && allocator.out_of_memory.load(Relaxed) == refused {
                thread::yield_now();
            }
            allocator.large.lock().put_slabs(slabs);
            drop(on_the_way);
            self.device.allocator.watch.remove_pool(self);
            self.device.idle_pools.lock().idle.push(self);
        }
    }
}

thread_local! {
    /// The pools that this thread's allocations come from, the innermost last.
    static CURRENT: RefCell<Vec<&'static PoolInner>> = const { RefCell::new(Vec::new()) };
}

/// The pool that this thread's allocations on a device come from.
pub(crate) fn current(device: &'static DeviceInner) -> Option<&'static PoolInner> {
    let innermost = |pools: &RefCell<Vec<&'static PoolInner>>| {
        pools.borrow().iter().rev().find(|pool| std::ptr::eq(pool.device, device)).copied()
    };
    CURRENT.try_with(innermost).ok().flatten()
}

/// Memory of a device for those only who [enter](MemoryPool::enter) it. Clones are handles of the same pool; they may be
/// used from any thread.
pub struct MemoryPool(&'static PoolInner);

impl MemoryPool {
    pub(crate) fn new(device: &'static DeviceInner) -> MemoryPool {
        if fork::is_child(device) {
            // The list is behind a lock of the parent, and a child's memory comes from no pool: a name is enough.
            return MemoryPool(device.child_pool.get_or_init(|| PoolInner::leaked(device)));
        }
        let mut pools = device.idle_pools.lock();
        let pool = pools.idle.pop().unwrap_or_else(|| PoolInner::leaked(device));
        pools.made += 1;
        pool.number.store(pools.made, Relaxed);
        drop(pools);
        pool.users.store(1, Relaxed); // nobody else has it
        device.allocator.watch.add_pool(pool);
        MemoryPool(pool)
    }

    /// Makes what this thread allocates on the pool's device come from the pool until the guard is dropped (also by a
    /// panic). Guards nest, the innermost counts.
    pub fn enter(&self) -> MemoryPoolGuard {
        // Where the thread is ending there is none to make current, and memory comes from the device's own.
        _ = CURRENT.try_with(|pools| pools.borrow_mut().push(self.0));
        self.0.device.allocator.watch.add_reason();
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
        self.0.let_go();
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
        // Guards may be dropped in any order.
        _ = CURRENT.try_with(|pools| {
            let mut pools = pools.borrow_mut();
            if let Some(position) = pools.iter().rposition(|pool| std::ptr::eq(*pool, self.pool.0)) {
                pools.remove(position);
            }
        });
        self.pool.0.device.allocator.watch.remove_reason();
    }
}
