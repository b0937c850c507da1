//! What a device has of memory: its slabs, the lists of free blocks that all threads share, the stores of the threads, and its
//! counts. A slab goes back to the device only when all uses of all its blocks are complete (T3).

use super::{
    block::{Block, FreeBlock},
    central::{ForeignList, FreeList},
    classes::{CLASS_COUNT, LARGE},
    hooks::Hooks,
    large::{Grain, Large},
    magazine::{Counts, Local, Magazine, ThreadCache},
    peak::PeakGauge,
    private::{PoolInner, Pools},
    transit::Transit,
};
use crate::{
    ground::{Core, Floor, Result, fork},
    order::{Streams, Tick, Uses},
};
use raddle_hal::{DeviceError, Slab, trace};
use raddle_sync::{
    Mutex, MutexGuard, Rank,
    atomic::{AtomicU64, AtomicUsize, Ordering::*},
    fault, global, thread,
};
use std::ops::Deref;

/// A magazine's counts are added to the device's once they come to so many bytes: `allocated` may lag by this for each
/// thread, and threads don't meet at a counter.
pub(crate) const COUNT_BYTES_MAX: i64 = 1 << 16;

/// What memory asks of the floors above it, where work is put on streams and threads have theirs.
pub(crate) trait Above: Sync {
    /// Waits for everything that has been submitted on any stream, and for what others have put on wrapped ones.
    fn synchronize_all(&self, device: &'static Core) -> Result<()>;
    /// Fills a block with junk, in the order of the thread's stream.
    fn poison(&self, block: &Block, value: u8);
    /// Marks a block as used by all that is on the stream of a slot, also by what others have put there.
    fn fence(&self, block: &Block, slot: usize);
    /// Calls a closure, on a thread of the runtime and under no lock, once a tick is complete, or says that the device can't tell.
    fn when_complete(&self, device: &'static Core, tick: Tick, closure: Box<dyn FnOnce(bool) + Send>);
    /// The slot of the thread's stream; the thread is bound to one if it wasn't.
    fn bound_slot(&self, device: &'static Core) -> usize;
}

/// The memory of a device.
pub(crate) struct Memory {
    pub(crate) streams: &'static Streams,
    pub(crate) above: &'static dyn Above,
    /// By class.
    pub(crate) central: Box<[Mutex<FreeList>]>,
    pub(crate) large: Mutex<Large>,
    pub(crate) foreign: Mutex<ForeignList>,
    pub(crate) transit: Transit,
    pub(crate) hooks: Hooks,
    pools: Mutex<Pools>,
    /// What stands for all pools that a forked child makes. Only children touch it.
    child_pool: global::OnceLock<&'static PoolInner>,
    /// Of every thread that has used the device, alive or idle.
    pub(crate) locals: Mutex<Vec<&'static Local>>,
    idle_locals: Mutex<Vec<&'static Local>>,
    /// How often a hook or a resource of the user was called: it may have submitted anything.
    pub(crate) user_calls: AtomicU64,
    pub(crate) limit_bytes: AtomicUsize,
    /// Held bytes past which what is unused is given back before more is asked for.
    pub(crate) low_bytes: AtomicUsize,
    /// In slabs of the device, and in those that it is just being asked for, which count against the limit: who finds none left for
    /// that waits for what becomes of them.
    claimed_bytes: AtomicUsize,
    /// In slabs of the device.
    pub(crate) reserved: PeakGauge,
    /// In blocks that are given out.
    pub(crate) allocated: PeakGauge,
    /// In memory of others that hasn't been given back.
    pub(crate) foreign_bytes: AtomicUsize,
    pub(crate) allocations: AtomicU64,
    pub(crate) frees: AtomicU64,
    pub(crate) slab_allocations: AtomicU64,
    pub(crate) out_of_memory: AtomicU64,
    pub(crate) out_of_memory_retries: AtomicU64,
}

// SAFETY: no other floor has the number.
unsafe impl Floor for Memory {
    const NUMBER: usize = 1;
}

// As for `Core`.
impl std::panic::RefUnwindSafe for Memory {}

impl Deref for Memory {
    type Target = Streams;
    fn deref(&self) -> &Streams {
        self.streams
    }
}

/// Bytes that the device is being asked for. They are claimed no more when it is dropped.
struct Claim<'a> {
    of: &'a AtomicUsize,
    size_bytes: usize,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.size_bytes, Relaxed);
    }
}

impl Memory {
    pub(crate) fn new(core: &'static Core, above: &'static dyn Above) -> Memory {
        let bounds = core.bounds();
        Memory {
            streams: Streams::of(core),
            above,
            central: (0..CLASS_COUNT).map(|_| Mutex::new(Rank::Centre, FreeList::default())).collect(),
            large: Mutex::new(Rank::Slabs, Large::new(Grain::LARGE, bounds)),
            foreign: Mutex::new(Rank::Slabs, ForeignList::default()),
            transit: Transit::new(),
            hooks: Hooks::new(),
            pools: Mutex::new(Rank::Leaf, Pools::default()),
            child_pool: global::OnceLock::new(),
            locals: Mutex::new(Rank::Pool, Vec::new()),
            idle_locals: Mutex::new(Rank::Leaf, Vec::new()),
            user_calls: AtomicU64::new(0),
            limit_bytes: AtomicUsize::new(bounds.memory_high_bytes),
            low_bytes: AtomicUsize::new(bounds.memory_low_bytes),
            claimed_bytes: AtomicUsize::new(0),
            reserved: PeakGauge::new(),
            allocated: PeakGauge::new(),
            foreign_bytes: AtomicUsize::new(0),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            slab_allocations: AtomicU64::new(0),
            out_of_memory: AtomicU64::new(0),
            out_of_memory_retries: AtomicU64::new(0),
        }
    }

    /// Counts a block that a magazine gives out.
    #[inline]
    pub(crate) fn count_allocation(&self, counts: &mut Counts, size_bytes: i64) {
        counts.allocations += 1;
        counts.allocated_bytes += size_bytes;
        if counts.allocated_bytes > COUNT_BYTES_MAX {
            self.collect_bytes(counts);
        }
    }

    /// Adds the bytes that a magazine has counted. A thread may free more than it has allocated.
    pub(crate) fn collect_bytes(&self, counts: &mut Counts) {
        self.allocated.add(std::mem::take(&mut counts.allocated_bytes));
    }

    /// Adds all that a magazine has counted.
    pub(crate) fn collect(&self, counts: &mut Counts) {
        self.collect_bytes(counts);
        let Counts { allocations, frees, .. } = std::mem::take(counts);
        if fault!(lost_count) {
            self.allocations.store(self.allocations.load(Relaxed) + allocations, Relaxed);
        } else {
            self.allocations.fetch_add(allocations, Relaxed);
        }
        self.frees.fetch_add(frees, Relaxed);
    }

    /// A slab of the device, within the limit.
    pub(crate) fn slab(&self, size_bytes: usize) -> std::result::Result<Slab, DeviceError> {
        let sum = |claimed: usize| claimed.saturating_add(size_bytes);
        if sum(self.claimed_bytes.load(Relaxed)) > self.low_bytes.load(Relaxed) {
            self.drain_magazines();
            self.release_unused();
        }
        let limit = if fault!(limit_ignored) { usize::MAX } else { self.limit_bytes.load(Relaxed) };
        let fits = |claimed: usize| Some(sum(claimed)).filter(|&sum| sum <= limit);
        while self.claimed_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
            // What the device is just being asked for by others may be refused, and then there is room.
            let mut is_full = sum(self.reserved.now()) > limit;
            fault!(asked_is_taken => is_full = true);
            if is_full {
                return Err(DeviceError::OutOfMemory { size_bytes });
            }
            thread::yield_now();
        }
        // Others may wait for what becomes of it: it is given back also where the device panics.
        let claim = Claim { of: &self.claimed_bytes, size_bytes };
        if fault!(asked_is_reserved) {
            self.reserved.add(size_bytes as i64);
        }
        let slab = self.hal.allocate_slab(size_bytes);
        if fault!(asked_is_reserved) {
            self.reserved.add(-(size_bytes as i64));
        }
        let slab = slab?;
        self.reserved.add(size_bytes as i64);
        std::mem::forget(claim);
        self.slab_allocations.fetch_add(1, Relaxed);
        if let Some(now) = trace::start() {
            trace::reserved(self.source, size_bytes as i64, now);
        }
        Ok(slab)
    }

    /// Gives a slab back.
    ///
    /// # Safety
    /// - It came from `slab`, once; all uses of its memory are complete; nobody has a block of it.
    unsafe fn release(&self, slab: Slab) {
        let size_bytes = slab.size_bytes;
        // SAFETY: by the contract.
        unsafe { self.hal.release_slab(slab) };
        // Now, and not before: else another thread would take as much while the device still has this.
        self.reserved.add(-(size_bytes as i64));
        self.claimed_bytes.fetch_sub(size_bytes, Relaxed);
        if let Some(now) = trace::start() {
            trace::reserved(self.source, -(size_bytes as i64), now);
        }
    }

    /// Has the device given no slab, and is it being asked for none? Nor has it memory of others?
    pub(crate) fn is_empty(&self) -> bool {
        self.claimed_bytes.load(Relaxed) == 0 && self.foreign_bytes.load(Relaxed) == 0
    }
}

/// The stores of threads.
impl Memory {
    /// A thread's: an idle one of a thread that has ended, or a new one.
    pub(crate) fn take_local(&self) -> &'static Local {
        if let Some(local) = self.idle_locals.lock().pop() {
            return local;
        }
        let local: &'static Local = Box::leak(Box::new(Local::new(self.core)));
        self.locals.lock().push(local);
        local
    }

    /// Takes back what [`Memory::take_local`] gave to a thread that is ending.
    pub(crate) fn put_local(&self, local: &'static Local) {
        let mut blocks = Vec::new();
        // Whoever looks through all magazines does so under this lock: it finds the blocks here or in the central lists, never on
        // their way. So a device closes behind a scope of threads, whose ends come after the scope.
        let all = self.locals.lock();
        let empty = |cache: &mut ThreadCache| {
            cache.drain(&mut blocks);
            self.collect(&mut cache.counts);
        };
        // SAFETY: it is this thread's until `idle_locals` has it.
        unsafe { local.magazine.own(empty) };
        if !fault!(exit_loses_magazine) {
            self.to_central(blocks);
        }
        drop(all);
        local.set_slot(None);
        self.idle_locals.lock().push(local);
    }

    /// Takes the stores of all threads to the central lists.
    pub(crate) fn drain_magazines(&self) {
        self.drain(ThreadCache::drain);
    }

    /// Looks into the stores of all threads; whoever does so waits for the lock that is returned.
    pub(crate) fn visit_magazines(
        &self,
        work: impl FnMut(&mut ThreadCache),
    ) -> MutexGuard<'_, Vec<&'static Local>> {
        let locals = self.locals.lock();
        Magazine::visit_all(locals.iter().map(|local| &local.magazine), work);
        locals
    }

    /// Takes some of the store of each thread to the central lists.
    pub(crate) fn drain(&self, take: impl Fn(&mut ThreadCache, &mut Vec<FreeBlock>)) {
        let mut blocks = Vec::new();
        let locals = self.visit_magazines(|cache| take(cache, &mut blocks));
        let locals = if fault!(blocks_on_their_way) {
            drop(locals);
            thread::yield_now();
            None
        } else {
            Some(locals)
        };
        // Under the lock, so that to the next who drains no block is on its way.
        self.to_central(blocks);
        drop(locals);
    }
}

/// Lists that all threads share.
impl Memory {
    /// Puts blocks of the device's own memory where all threads find them.
    pub(crate) fn to_central(&self, blocks: Vec<FreeBlock>) {
        for block in blocks {
            match block.get().source.class {
                LARGE => self.large.lock().put(block, |tick| self.is_complete(tick)),
                class => self.central[class as usize].lock().blocks.push_back(block),
            }
        }
    }

    pub(crate) fn put_central(&self, class: usize, batch: &mut Vec<FreeBlock>) {
        if !batch.is_empty() {
            self.central[class].lock().blocks.extend(batch.drain(..));
        }
    }

    pub(crate) fn take_central(&self, class: usize) -> Option<FreeBlock> {
        self.central[class].lock().blocks.pop_front()
    }

    /// Takes all small blocks of the central lists, for a model.
    #[cfg(all(test, loom))]
    pub(crate) fn take_all(&self, into: &mut Vec<FreeBlock>) {
        self.central.iter().for_each(|list| into.extend(list.lock().blocks.drain(..)));
    }

    /// Gives slabs back of which every block is free and no use is in flight.
    pub(crate) fn release_unused(&self) {
        let is_complete = |tick: Tick| {
            fault!(release_in_flight => return true);
            self.is_complete(tick)
        };
        let _on_the_way = self.transit.begin();
        for class in &self.central {
            let mut list = class.lock();
            let FreeList { blocks, slabs } = &mut *list;
            let mut over = vec![0usize; slabs.len()];
            for block in blocks.iter_mut() {
                if block.uses(usize::MAX, is_complete) == Uses::Over {
                    over[block.get().source.index as usize] += 1;
                }
            }
            let mut unused = Vec::new();
            for (index, entry) in slabs.iter_mut().enumerate() {
                if entry.as_ref().is_some_and(|slab| slab.blocks.len() == over[index]) {
                    unused.extend(entry.take().map(|slab| slab.slab));
                }
            }
            blocks.retain(|block| {
                let keep = slabs[block.get().source.index as usize].is_some();
                if !keep {
                    // SAFETY: it leaves the list, the only place that has it.
                    unsafe { block.destroy() };
                }
                keep
            });
            drop(list); // to give a slab back may take the device long
            for slab in unused {
                // SAFETY: every block of it was in the list, with all uses complete, and is gone.
                unsafe { self.release(slab) };
            }
        }
        let private = self.pools();
        for large in private.iter().map(|pool| &pool.large).chain([&self.large]) {
            let unused = large.lock().release_unused(is_complete);
            for slab in unused {
                // SAFETY: it was one free piece, with all uses complete, which is gone.
                unsafe { self.release(slab) };
            }
        }
    }
}

/// Private pools.
impl Memory {
    /// Those that are in use.
    pub(crate) fn pools(&self) -> Vec<&'static PoolInner> {
        self.pools.lock().used.clone()
    }

    /// The one that a block names.
    pub(crate) fn pool(&self, index: u32) -> &'static PoolInner {
        self.pools.lock().all[index as usize - 1]
    }

    /// A new one, with one user.
    pub(crate) fn take_pool(&self) -> &'static PoolInner {
        let mut pools = self.pools.lock();
        let pool = pools.idle.pop().unwrap_or_else(|| {
            let pool = PoolInner::leaked(self.core, pools.all.len() as u32 + 1);
            pools.all.push(pool);
            pool
        });
        pools.made += 1;
        pool.begin(pools.made);
        pools.used.push(pool);
        pool
    }

    /// In a forked child, where the lists are behind a lock of the parent and memory comes from no pool, a name is enough.
    pub(crate) fn take_pool_in_child(&self) -> &'static PoolInner {
        self.child_pool.get_or_init(|| PoolInner::leaked(self.core, 0))
    }

    /// One user less. When the last has gone its memory joins the device's.
    pub(crate) fn let_go_of_pool(&self, pool: &'static PoolInner) {
        if fork::is_child(self) {
            return; // its locks are the parent's
        }
        if !pool.let_go() {
            return;
        }
        let mut on_the_way = None;
        if !fault!(pool_on_its_way) {
            on_the_way = Some(self.transit.begin());
        }
        let refused = self.out_of_memory.load(Relaxed); // before anybody can meet the fault
        let slabs = pool.large.lock().take_slabs();
        while fault!(pool_on_its_way) && self.out_of_memory.load(Relaxed) == refused {
            thread::yield_now();
        }
        self.large.lock().put_slabs(slabs);
        drop(on_the_way);
        let mut pools = self.pools.lock();
        pools.used.retain(|other| !std::ptr::eq(*other, pool));
        pools.idle.push(pool);
    }
}
