//! The search for memory: size classes with the thread's own store in front for small blocks, best fit with splits and merges for
//! large ones.
//!
//! Guarantees: a block is in one hand only; its marks stay with it, so whoever gets it is ordered behind its former uses
//! (T1) and the policy here only decides how often that means a wait; a slab goes back to the device only when all uses
//! of all its blocks are complete (T3); when memory runs out, everything that can be given back is, before an error
//! says so (T10).
//!
//! In order: the thread's magazine; the central lists, or the list of large blocks; of large blocks what other threads keep; a new
//! slab (past the low watermark, what is unused is given back first); and when the device has no more: pending frees are
//! awaited, magazines of all threads emptied, pieces merged, unused slabs released, and the search made once more; at last
//! hooks of the user are asked whether they have freed something.
//!
//! Nothing of this is for blocks of no bytes: there is always room for those ([`EMPTY`](super::classes::EMPTY)).
//!
//! Histories, resources and private pools (`policy::intercept`) cost nothing until there is one: a load that is false.

use super::{
    block::{Block, FreeBlock, Source},
    central::SmallSlab,
    child,
    classes::{LARGE, class_of, class_size_bytes},
    hooks::MemoryNeed,
    large::Grain,
    local,
    magazine::{Counts, Local, ThreadCache, keep_count_max},
    private::{self, PoolInner},
    store::{COUNT_BYTES_MAX, Memory},
};
use crate::{
    ground::{Error, Floor, Result, fork},
    order::{Marks, Uses},
};
use raddle_hal::{Address, DeviceError};
use raddle_sync::{atomic::Ordering::*, fault};

/// Slabs of small blocks hold a quarter of what the class has already, at most so many or, if that is more, so many bytes.
const SLAB_BLOCK_COUNT_MAX: usize = if cfg!(loom) { 1 } else { 16 }; // guess
const SLAB_BYTES_MIN: usize = if cfg!(loom) { 256 } else { 1 << 16 }; // guess
/// Blocks that go from the central lists to a magazine at once, and their bytes.
const BATCH_COUNT_MAX: usize = 16; // guess
const BATCH_BYTES_MAX: usize = 1 << 16; // guess
/// How often a thread that finds no memory looks again because some was on its way, before it is told that there is none.
pub(crate) const LOOK_COUNT_MAX: usize = 16; // guess

/// How many blocks of a class go from the central lists to a magazine at once.
fn batch_count(class: usize) -> usize {
    let fit = BATCH_BYTES_MAX / class_size_bytes(class);
    BATCH_COUNT_MAX.min(fit).min(keep_count_max(class) / 2).max(1)
}

impl Memory {
    /// A block of the device's own memory.
    #[inline]
    pub(crate) fn block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        let class = class_of(size_bytes);
        if class == LARGE {
            return self.large_block(size_bytes);
        }
        let class = class as usize;
        let kept = local::get(self.core).and_then(|local| {
            local.own_magazine(|cache| {
                let block = cache.take(class, local.slot(), false, |tick| self.is_complete(tick))?;
                self.count_allocation(&mut cache.counts, block.get().capacity_bytes as i64);
                Some(block)
            })
        });
        kept.map_or_else(|| self.refill(size_bytes), Ok)
    }

    /// A block from this thread's pool, or else of the device's own memory.
    pub(crate) fn pooled_block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        match private::current(self.core) {
            Some(pool) => self.allocate_large(size_bytes, Some(pool)),
            None => self.block(size_bytes),
        }
    }

    /// From the thread's large blocks, or those of all.
    #[inline(never)]
    fn large_block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        let kept = local::get(self.core).zip(Grain::LARGE.round(size_bytes)).and_then(|(local, wanted)| {
            local.own_magazine(|cache| {
                let block = cache.take_large(wanted, local.slot(), |tick| self.is_complete(tick))?;
                self.count_allocation(&mut cache.counts, block.get().capacity_bytes as i64);
                Some(block)
            })
        });
        kept.map_or_else(|| self.allocate_large(size_bytes, None), Ok)
    }

    /// From the central lists or a new slab; leaves a batch in the magazine.
    #[cold]
    fn refill(&'static self, asked_bytes: usize) -> Result<FreeBlock> {
        let slot = local::get(self.core).map_or(0, |local| local.slot());
        let class = class_of(asked_bytes) as usize;
        let size_bytes = class_size_bytes(class);
        let mut on_the_way = Some(self.transit.begin());
        let (mut batch, is_full) = {
            let mut list = self.central[class].lock();
            let full_count = self.bounds().pending_ratio * keep_count_max(class);
            let mut is_full = list.blocks.len() > full_count;
            fault!(growth_without_end => is_full = false);
            let count = batch_count(class).min(list.blocks.len());
            (list.blocks.drain(..count).collect::<Vec<FreeBlock>>(), is_full)
        };
        let ready = |block: &mut FreeBlock| block.uses(slot, |tick| self.is_complete(tick)) != Uses::Pending;
        let found = batch.iter_mut().position(ready);
        let block = match found {
            Some(position) => batch.swap_remove(position),
            // Everything at hand is in flight, and there is much of it: whoever uses the block first waits.
            None if is_full => batch.swap_remove(0),
            // New memory, unless the device has none.
            None => match self.carve(class, &mut batch) {
                Ok(block) => block,
                Err(error) => {
                    self.put_central(class, &mut batch);
                    drop(on_the_way.take());
                    if !matches!(error, DeviceError::OutOfMemory { .. }) {
                        return Err(self.error(error));
                    }
                    self.allocate_scarce(asked_bytes, || {
                        self.take_central(class).or_else(|| {
                            let block = self.carve(class, &mut batch).ok()?;
                            self.put_central(class, &mut batch);
                            Some(block)
                        })
                    })?
                }
            },
        };
        let mut counts = Counts { allocated_bytes: size_bytes as i64, allocations: 1, ..Counts::default() };
        // Anew: where memory is scarce, hooks of the user have run on this thread, and may have let go of what it had.
        if !batch.is_empty()
            && let Some(local) = local::get(self.core)
        {
            let mut rest = batch.split_off(batch.len().min(batch_count(class)));
            local.own_magazine(|cache| {
                batch.drain(..).for_each(|block| {
                    cache.put(block, slot, |tick| self.is_complete(tick), &mut rest);
                });
            });
            batch = rest;
        }
        self.put_central(class, &mut batch);
        self.collect(&mut counts);
        Ok(block)
    }

    /// Cuts a new slab into blocks of a class; one is returned, the others go to `batch`.
    fn carve(
        &'static self,
        class: usize,
        batch: &mut Vec<FreeBlock>,
    ) -> std::result::Result<FreeBlock, DeviceError> {
        let size_bytes = class_size_bytes(class);
        let there: usize =
            self.central[class].lock().slabs.iter().flatten().map(|slab| slab.blocks.len()).sum();
        let block_count = (there / 4).min(SLAB_BLOCK_COUNT_MAX).max(SLAB_BYTES_MIN / size_bytes).max(1);
        let slab = self.slab(block_count * size_bytes)?;
        let mut list = self.central[class].lock();
        let index = list.slabs.iter().position(Option::is_none).unwrap_or_else(|| {
            list.slabs.push(None);
            list.slabs.len() - 1
        });
        let source = Source { class: class as u8, index: index as u32, pool: 0 };
        let start = batch.len();
        batch.extend((0..block_count).map(|position| {
            let address = Address { handle: slab.handle, offset_bytes: position * size_bytes };
            FreeBlock::new(Block::new(self.core, address, size_bytes, source, Marks::new()))
        }));
        // SAFETY: blocks are destroyed after their slab has left the list.
        let blocks = batch[start..].iter().map(|block| unsafe { block.reference() }).collect();
        list.slabs[index] = Some(SmallSlab { slab, blocks });
        Ok(batch.remove(start))
    }

    /// From the list of a private pool, or of the device's large blocks.
    #[cold]
    pub(crate) fn allocate_large(
        &'static self,
        size_bytes: usize,
        pool: Option<&'static PoolInner>,
    ) -> Result<FreeBlock> {
        let slot = local::get(self.core).map_or(0, |local| local.slot());
        let pool = if fault!(pool_leaks) { pool.or(self.pools().first().copied()) } else { pool };
        let (large, grain, index) = match pool {
            Some(pool) => (&pool.large, Grain::PRIVATE, pool.index),
            None => (&self.large, Grain::LARGE, 0),
        };
        let Some(wanted) = grain.round(size_bytes) else {
            self.out_of_memory.fetch_add(1, Relaxed);
            return Err(self.refuse(size_bytes));
        };
        let is_complete = |tick| self.is_complete(tick);
        let find_of_all = |anyway| large.lock().take_of_all(wanted, slot, anyway, is_complete);
        let found = large.lock().take(wanted, slot, is_complete);
        let found = found.or_else(|| {
            let mut gives_back = pool.is_none();
            fault!(hoarded_large => gives_back = false);
            if gives_back {
                self.drain(ThreadCache::drain_large);
            }
            find_of_all(false)
        });
        let block = match found {
            Some(block) => block,
            None => {
                let slab_bytes = large.lock().slab_bytes(wanted);
                let slab = self.slab(slab_bytes).or_else(|_| self.slab(wanted));
                match slab {
                    Ok(slab) => large.lock().add(self.core, index, slab, wanted),
                    Err(DeviceError::OutOfMemory { .. }) => self.allocate_scarce(size_bytes, || {
                        find_of_all(true).or_else(|| {
                            let slab = self.slab(wanted).ok()?;
                            Some(large.lock().add(self.core, index, slab, wanted))
                        })
                    })?,
                    Err(error) => return Err(self.error(error)),
                }
            }
        };
        let mut counts = Counts {
            allocated_bytes: block.get().capacity_bytes as i64,
            allocations: 1,
            ..Counts::default()
        };
        self.collect(&mut counts);
        if let Some(pool) = pool {
            pool.hold();
        }
        Ok(block)
    }

    /// The device has no more. First what is freed but in flight (with a wait in the block's marks), then what other
    /// threads keep, then, once everything in flight is over, what slabs that are unused give back; again, if any of it was on
    /// its way; then what hooks free.
    #[cold]
    fn allocate_scarce(
        &'static self,
        size_bytes: usize,
        mut find: impl FnMut() -> Option<FreeBlock>,
    ) -> Result<FreeBlock> {
        for attempt in 0.. {
            for _ in 0..LOOK_COUNT_MAX {
                let ended = self.transit.ended();
                if let Some(block) = find() {
                    return Ok(block);
                }
                self.drain_magazines();
                if let Some(block) = find() {
                    return Ok(block);
                }
                self.above.synchronize_all(self.core)?;
                self.release_unused();
                if let Some(block) = find() {
                    return Ok(block);
                }
                // One is that of this thread, which has just ended. (Past the low watermark there are more of its own: it then
                // looks again for nothing.)
                if fault!(looks_once) || !self.transit.has_ended_since(ended + 1) {
                    break;
                }
            }
            let is_retried = self.hooks_free_memory(size_bytes, attempt);
            if fork::has_forked_in(self) {
                return child::block(self.core, size_bytes);
            }
            if !is_retried {
                break;
            }
            self.out_of_memory_retries.fetch_add(1, Relaxed);
        }
        self.out_of_memory.fetch_add(1, Relaxed);
        Err(self.refuse(size_bytes))
    }

    /// Asks all hooks; did any free something?
    fn hooks_free_memory(&self, asked_bytes: usize, attempt: u32) -> bool {
        let Some(asking) = self.hooks.begin(attempt) else { return false };
        self.user_calls.fetch_add(1, Relaxed);
        let need = MemoryNeed { attempt, ..self.need(asked_bytes) };
        let mut _held = None;
        fault!(hook_under_lock => _held = Some(self.large.lock()));
        asking.ask(self, need)
    }

    pub(crate) fn refuse(&self, asked_bytes: usize) -> Error {
        let MemoryNeed { allocated_bytes, free_bytes, pending_bytes, .. } = self.need(asked_bytes);
        let device = self.name().into();
        let set = Some(self.limit_bytes.load(Relaxed)).filter(|limit| *limit != usize::MAX);
        let bound_bytes = set.into_iter().chain(self.hal.info().memory_bytes).min();
        Error::OutOfMemory { device, asked_bytes, allocated_bytes, free_bytes, pending_bytes, bound_bytes }
    }
}

/// Puts a block that nobody uses any more, but for what is in flight, where others find it.
#[inline]
pub(crate) fn put_back(block: FreeBlock) {
    let device = block.get().device;
    if device.poison {
        // Whoever still reads it, unordered, reads junk.
        Memory::of(device).above.poison(block.get(), 0xDB);
    }
    block.get().taint.store(0, Relaxed);
    if block.get().source.pool != 0 {
        return Memory::of(device).put_back_private(block);
    }
    let local = local::get(device);
    fault!(strangers_free_nothing => if !local.is_some_and(Local::is_bound) { return });
    let Some(local) = local else { return Memory::of(device).put_back_without_magazine(block) };
    let overflow = local.own_magazine(|cache| {
        cache.counts.frees += 1;
        cache.counts.allocated_bytes -= block.get().capacity_bytes as i64;
        if cache.counts.allocated_bytes < -COUNT_BYTES_MAX {
            Memory::of(device).collect_bytes(&mut cache.counts);
        }
        if cache.put_unused(block) {
            return None;
        }
        let memory = Memory::of(device);
        let mut overflow = Vec::new();
        cache.put(block, local.slot(), |tick| memory.is_complete(tick), &mut overflow);
        // From now on until the central lists have them.
        (!overflow.is_empty()).then(|| (memory, memory.transit.begin(), overflow))
    });
    if let Some((memory, _on_the_way, mut overflow)) = overflow {
        match overflow[0].get().source.class {
            LARGE => memory.to_central(overflow),
            class => memory.put_central(class as usize, &mut overflow),
        }
    }
}

impl Memory {
    /// As [`put_back`], once the thread-locals are gone.
    #[cold]
    fn put_back_without_magazine(&self, block: FreeBlock) {
        let allocated_bytes = -(block.get().capacity_bytes as i64);
        self.collect(&mut Counts { allocated_bytes, frees: 1, ..Counts::default() });
        self.to_central(vec![block]);
    }

    #[cold]
    fn put_back_private(&self, block: FreeBlock) {
        let pool = self.pool(block.get().source.pool);
        let allocated_bytes = -(block.get().capacity_bytes as i64);
        self.collect(&mut Counts { allocated_bytes, frees: 1, ..Counts::default() });
        pool.large.lock().put(block, |tick| self.is_complete(tick));
        self.let_go_of_pool(pool);
    }
}
