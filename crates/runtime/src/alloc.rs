//! The allocator: size classes with magazines in front for small blocks, best fit with splits and merges for large ones.
//!
//! Guarantees: a block is in one hand only; its marks stay with it, so whoever gets it is ordered behind its former uses
//! (T1) and the policy here only decides how often that means a wait; a slab goes back to the device only when all uses
//! of all its blocks are complete (T3); when memory runs out, everything that can be given back is, before an error
//! says so (T10).
//!
//! In order: the thread's magazine; the centre, or the list of large blocks; of large blocks what other threads keep; a new
//! slab (past the low watermark, what is unused is given back first); and when the device has no more: pending frees are
//! awaited, magazines of all threads emptied, pieces merged, unused slabs released, and the search made once more; at last
//! hooks of the user are asked whether they have freed something.
//!
//! Nothing of this is for blocks of no bytes: there is always room for those ([`EMPTY`]).
//!
//! Histories, resources and private pools ([`watch`](crate::watch)) cost nothing until there is one: a load that is false.

use crate::{
    Buffer, Error, Result,
    block::{Block, FreeBlock, Known, Source},
    device::DeviceInner,
    fork,
    hooks::{Hooks, MemoryNeed},
    large::{Grain, Large},
    level::Level,
    local,
    magazine::{Counts, Magazine, Shelves, keep_count_max},
    marks::{Marks, Uses},
    memory_trace,
    pool::PoolInner,
    tick::Tick,
    transit::Transit,
    watch::Watch,
};
use raddle_hal::{Address, Bounds, DeviceError, Slab, trace};
use raddle_sync::{
    Mutex, MutexGuard, Rank,
    atomic::{AtomicU64, AtomicUsize, Ordering::*},
    fault, thread,
};
use std::collections::VecDeque;

/// Blocks are multiples of it: large enough for any device's alignment.
const UNIT_BYTES: usize = 256;
/// Four classes for each doubling from 1 KiB to 256 KiB, and four below.
pub(crate) const CLASS_COUNT: usize = 36;
/// The class of blocks past those.
pub(crate) const LARGE: u8 = u8::MAX;
/// Of blocks of no bytes, which are in no list: they come and go by themselves, and take nothing of the device.
pub(crate) const EMPTY: u8 = LARGE - 1;
/// Slabs of small blocks hold a quarter of what the class has already, at most so many or, if that is more, so many bytes.
const SLAB_BLOCK_COUNT_MAX: usize = if cfg!(loom) { 1 } else { 16 }; // guess
const SLAB_BYTES_MIN: usize = if cfg!(loom) { UNIT_BYTES } else { 1 << 16 }; // guess
/// Blocks that go from the centre to a magazine at once, and their bytes.
const BATCH_COUNT_MAX: usize = 16; // guess
const BATCH_BYTES_MAX: usize = 1 << 16; // guess
/// How often a thread that finds no memory looks again because some was on its way, before it is told that there is none.
pub(crate) const LOOK_COUNT_MAX: usize = 16; // guess
/// A magazine's counts are added to the device's once they come to so many bytes: `allocated` may lag by this for each
/// thread, and threads don't meet at a counter.
const COUNT_BYTES_MAX: i64 = 1 << 16;

/// The class that holds `size_bytes`.
#[inline]
pub(crate) fn class_of(size_bytes: usize) -> u8 {
    let last_unit = size_bytes.saturating_sub(1) / UNIT_BYTES;
    if last_unit < 4 {
        return last_unit as u8;
    }
    let shift = last_unit.ilog2() as usize - 2;
    let class = 4 * shift + (last_unit >> shift);
    if class < CLASS_COUNT { class as u8 } else { LARGE }
}

/// The size of a class's blocks.
#[inline]
pub(crate) const fn class_size_bytes(class: usize) -> usize {
    let units = if class < 4 { class + 1 } else { (class % 4 + 5) << (class / 4 - 1) };
    units * UNIT_BYTES
}

/// How many blocks of a class go from the centre to a magazine at once.
fn batch_count(class: usize) -> usize {
    let fit = BATCH_BYTES_MAX / class_size_bytes(class);
    BATCH_COUNT_MAX.min(fit).min(keep_count_max(class) / 2).max(1)
}

/// A slab of blocks of one class.
pub(crate) struct SmallSlab {
    pub(crate) slab: Slab,
    /// In the order of their addresses.
    pub(crate) blocks: Box<[Known]>,
}

/// Free blocks of one class, of all threads. The oldest come first: their uses are the likeliest to be over.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) blocks: VecDeque<FreeBlock>,
    pub(crate) slabs: Vec<Option<SmallSlab>>,
}

pub(crate) struct Allocator {
    /// By class.
    pub(crate) centre: Box<[Mutex<Shelf>]>,
    pub(crate) large: Mutex<Large>,
    pub(crate) transit: Transit,
    pub(crate) watch: Watch,
    pub(crate) hooks: Hooks,
    /// How often a hook or a resource of the user was called: it may have submitted anything.
    pub(crate) user_calls: AtomicU64,
    pub(crate) limit_bytes: AtomicUsize,
    /// Held bytes past which what is unused is given back before more is asked for.
    pub(crate) low_bytes: AtomicUsize,
    /// In slabs of the device, and in those that it is just being asked for, which count against the limit: who finds none left for
    /// that waits for what becomes of them.
    claimed_bytes: AtomicUsize,
    /// In slabs of the device.
    pub(crate) reserved: Level,
    /// In blocks that are given out.
    pub(crate) allocated: Level,
    pub(crate) allocations: AtomicU64,
    pub(crate) frees: AtomicU64,
    pub(crate) slab_allocations: AtomicU64,
    pub(crate) out_of_memory: AtomicU64,
    pub(crate) out_of_memory_retries: AtomicU64,
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

impl Allocator {
    pub(crate) fn new(bounds: &Bounds) -> Allocator {
        Allocator {
            centre: (0..CLASS_COUNT).map(|_| Mutex::new(Rank::Centre, Shelf::default())).collect(),
            large: Mutex::new(Rank::Slabs, Large::new(Grain::LARGE, bounds)),
            transit: Transit::new(),
            watch: Watch::new(),
            hooks: Hooks::new(),
            user_calls: AtomicU64::new(0),
            limit_bytes: AtomicUsize::new(bounds.memory_high_bytes),
            low_bytes: AtomicUsize::new(bounds.memory_low_bytes),
            claimed_bytes: AtomicUsize::new(0),
            reserved: Level::new(),
            allocated: Level::new(),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            slab_allocations: AtomicU64::new(0),
            out_of_memory: AtomicU64::new(0),
            out_of_memory_retries: AtomicU64::new(0),
        }
    }

    /// Counts a block that a magazine gives out.
    #[inline]
    fn count_allocation(&self, counts: &mut Counts, size_bytes: i64) {
        counts.allocations += 1;
        counts.allocated_bytes += size_bytes;
        if counts.allocated_bytes > COUNT_BYTES_MAX {
            self.collect_bytes(counts);
        }
    }

    /// Adds the bytes that a magazine has counted. A thread may free more than it has allocated.
    fn collect_bytes(&self, counts: &mut Counts) {
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
    fn slab(&self, device: &DeviceInner, size_bytes: usize) -> std::result::Result<Slab, DeviceError> {
        let sum = |claimed: usize| claimed.saturating_add(size_bytes);
        if sum(self.claimed_bytes.load(Relaxed)) > self.low_bytes.load(Relaxed) {
            device.drain_magazines();
            device.release_unused();
        }
        let limit = if fault!(limit_ignored) { usize::MAX } else { self.limit_bytes.load(Relaxed) };
        let fits = |claimed: usize| Some(sum(claimed)).filter(|&sum| sum <= limit);
        while self.claimed_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
            // What the device is just being asked for by others may be refused, and then there is room.
            if sum(self.reserved.now()) > limit || fault!(asked_is_taken) {
                return Err(DeviceError::OutOfMemory { size_bytes });
            }
            thread::yield_now();
        }
        // Others may wait for what becomes of it: it is given back also where the device panics.
        let claim = Claim { of: &self.claimed_bytes, size_bytes };
        if fault!(asked_is_reserved) {
            self.reserved.add(size_bytes as i64);
        }
        let slab = device.hal.allocate_slab(size_bytes);
        if fault!(asked_is_reserved) {
            self.reserved.add(-(size_bytes as i64));
        }
        let slab = slab?;
        self.reserved.add(size_bytes as i64);
        std::mem::forget(claim);
        self.slab_allocations.fetch_add(1, Relaxed);
        if let Some(now) = trace::start() {
            trace::reserved(device.source, size_bytes as i64, now);
        }
        Ok(slab)
    }

    /// Gives a slab back.
    ///
    /// # Safety
    /// - It came from `slab`, once; all uses of its memory are complete; nobody has a block of it.
    unsafe fn release(&self, device: &DeviceInner, slab: Slab) {
        let size_bytes = slab.size_bytes;
        // SAFETY: by the contract.
        unsafe { device.hal.release_slab(slab) };
        // Now, and not before: else another thread would take as much while the device still has this.
        self.reserved.add(-(size_bytes as i64));
        self.claimed_bytes.fetch_sub(size_bytes, Relaxed);
        if let Some(now) = trace::start() {
            trace::reserved(device.source, -(size_bytes as i64), now);
        }
    }
}

impl Allocator {
    /// Has the device given no slab, and is it being asked for none?
    pub(crate) fn is_empty(&self) -> bool {
        self.claimed_bytes.load(Relaxed) == 0
    }
}

impl DeviceInner {
    /// Memory with undefined content.
    #[inline]
    pub(crate) fn allocate(&'static self, size_bytes: usize) -> Result<Buffer> {
        if size_bytes == 0 && !fault!(empty_takes_memory) {
            return Ok(self.empty());
        }
        let block = if self.allocator.watch.is_on() {
            self.watched_block(size_bytes)?
        } else {
            self.block(size_bytes)?
        };
        if let Some(now) = trace::start() {
            trace::allocated(self.source, block.get().capacity_bytes as i64, now);
        }
        let buffer = block.give(size_bytes);
        if memory_trace::is_on(self) {
            memory_trace::allocated(buffer.block());
        }
        if self.poison {
            local::poison(self, &buffer, 0xA5);
        }
        Ok(buffer)
    }

    /// A buffer of no bytes. Its address is no slab's; it isn't 0, which isn't allowed for an empty slice either.
    #[cold]
    pub(crate) fn empty(&'static self) -> Buffer {
        let address = Address { handle: UNIT_BYTES as u64, offset_bytes: 0 };
        let source = Source { class: EMPTY, index: 0, pool: None };
        FreeBlock::new(Block::new(self, address, 0, source, Marks::new())).give(0)
    }

    /// A block of the device's own memory.
    #[inline]
    pub(crate) fn block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        let class = class_of(size_bytes);
        if class == LARGE {
            return self.large_block(size_bytes);
        }
        let class = class as usize;
        let kept = local::get(self).and_then(|local| {
            local.own_magazine(|shelves| {
                let block = shelves.take(class, local.slot(), false, |tick| self.is_complete(tick))?;
                self.allocator.count_allocation(&mut shelves.counts, block.get().capacity_bytes as i64);
                Some(block)
            })
        });
        kept.map_or_else(|| self.refill(size_bytes), Ok)
    }

    /// From the thread's large blocks, or those of all.
    #[inline(never)]
    fn large_block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        let kept = local::get(self).zip(Grain::LARGE.round(size_bytes)).and_then(|(local, wanted)| {
            local.own_magazine(|shelves| {
                let block = shelves.take_large(wanted, local.slot(), |tick| self.is_complete(tick))?;
                self.allocator.count_allocation(&mut shelves.counts, block.get().capacity_bytes as i64);
                Some(block)
            })
        });
        kept.map_or_else(|| self.allocate_large(size_bytes, None), Ok)
    }

    /// From the centre or a new slab; leaves a batch in the magazine.
    #[cold]
    fn refill(&'static self, asked_bytes: usize) -> Result<FreeBlock> {
        let slot = local::get(self).map_or(0, |local| local.slot());
        let class = class_of(asked_bytes) as usize;
        let size_bytes = class_size_bytes(class);
        let mut on_the_way = Some(self.allocator.transit.begin());
        let (mut batch, is_full) = {
            let mut shelf = self.allocator.centre[class].lock();
            let full_count = self.bounds().pending_ratio * keep_count_max(class);
            let is_full = shelf.blocks.len() > full_count && !fault!(growth_without_end);
            let count = batch_count(class).min(shelf.blocks.len());
            (shelf.blocks.drain(..count).collect::<Vec<FreeBlock>>(), is_full)
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
                    self.put_centre(class, &mut batch);
                    drop(on_the_way.take());
                    if !matches!(error, DeviceError::OutOfMemory { .. }) {
                        return Err(self.error(error));
                    }
                    self.allocate_scarce(asked_bytes, || {
                        self.take_centre(class).or_else(|| {
                            let block = self.carve(class, &mut batch).ok()?;
                            self.put_centre(class, &mut batch);
                            Some(block)
                        })
                    })?
                }
            },
        };
        let mut counts = Counts { allocated_bytes: size_bytes as i64, allocations: 1, ..Counts::default() };
        // Anew: where memory is scarce, hooks of the user have run on this thread, and may have let go of what it had.
        if !batch.is_empty()
            && let Some(local) = local::get(self)
        {
            let mut rest = batch.split_off(batch.len().min(batch_count(class)));
            local.own_magazine(|shelves| {
                batch.drain(..).for_each(|block| {
                    shelves.put(block, slot, |tick| self.is_complete(tick), &mut rest);
                });
            });
            batch = rest;
        }
        self.put_centre(class, &mut batch);
        self.allocator.collect(&mut counts);
        Ok(block)
    }

    fn put_centre(&self, class: usize, batch: &mut Vec<FreeBlock>) {
        if !batch.is_empty() {
            self.allocator.centre[class].lock().blocks.extend(batch.drain(..));
        }
    }

    /// Takes all small blocks of the centre, for a model.
    #[cfg(all(test, loom))]
    pub(crate) fn take_all(&self, into: &mut Vec<FreeBlock>) {
        self.allocator.centre.iter().for_each(|shelf| into.extend(shelf.lock().blocks.drain(..)));
    }

    fn take_centre(&self, class: usize) -> Option<FreeBlock> {
        self.allocator.centre[class].lock().blocks.pop_front()
    }

    /// Cuts a new slab into blocks of a class; one is returned, the others go to `batch`.
    fn carve(
        &'static self,
        class: usize,
        batch: &mut Vec<FreeBlock>,
    ) -> std::result::Result<FreeBlock, DeviceError> {
        let size_bytes = class_size_bytes(class);
        let there: usize =
            self.allocator.centre[class].lock().slabs.iter().flatten().map(|slab| slab.blocks.len()).sum();
        let block_count = (there / 4).min(SLAB_BLOCK_COUNT_MAX).max(SLAB_BYTES_MIN / size_bytes).max(1);
        let slab = self.allocator.slab(self, block_count * size_bytes)?;
        let mut shelf = self.allocator.centre[class].lock();
        let index = shelf.slabs.iter().position(Option::is_none).unwrap_or_else(|| {
            shelf.slabs.push(None);
            shelf.slabs.len() - 1
        });
        let source = Source { class: class as u8, index: index as u32, pool: None };
        let start = batch.len();
        batch.extend((0..block_count).map(|position| {
            let address = Address { handle: slab.handle, offset_bytes: position * size_bytes };
            FreeBlock::new(Block::new(self, address, size_bytes, source, Marks::new()))
        }));
        // SAFETY: blocks are destroyed after their slab has left the list.
        let blocks = batch[start..].iter().map(|block| unsafe { block.known() }).collect();
        shelf.slabs[index] = Some(SmallSlab { slab, blocks });
        Ok(batch.remove(start))
    }

    /// From the list of a private pool, or of the device's large blocks.
    #[cold]
    pub(crate) fn allocate_large(
        &'static self,
        size_bytes: usize,
        pool: Option<&'static PoolInner>,
    ) -> Result<FreeBlock> {
        let slot = local::get(self).map_or(0, |local| local.slot());
        let pool =
            if fault!(pool_leaks) { pool.or(self.allocator.watch.pools().first().copied()) } else { pool };
        let (large, grain) = match pool {
            Some(pool) => (&pool.large, Grain::PRIVATE),
            None => (&self.allocator.large, Grain::LARGE),
        };
        let Some(wanted) = grain.round(size_bytes) else {
            self.allocator.out_of_memory.fetch_add(1, Relaxed);
            return Err(self.out_of_memory(size_bytes));
        };
        let is_complete = |tick| self.is_complete(tick);
        let find_of_all = |anyway| large.lock().take_of_all(wanted, slot, anyway, is_complete);
        let found = large.lock().take(wanted, slot, is_complete);
        let found = found.or_else(|| {
            if pool.is_none() && !fault!(hoarded_large) {
                self.drain(Shelves::drain_large);
            }
            find_of_all(false)
        });
        let block = match found {
            Some(block) => block,
            None => {
                let slab_bytes = large.lock().slab_bytes(wanted);
                let slab =
                    self.allocator.slab(self, slab_bytes).or_else(|_| self.allocator.slab(self, wanted));
                match slab {
                    Ok(slab) => large.lock().add(self, pool, slab, wanted),
                    Err(DeviceError::OutOfMemory { .. }) => self.allocate_scarce(size_bytes, || {
                        find_of_all(true).or_else(|| {
                            let slab = self.allocator.slab(self, wanted).ok()?;
                            Some(large.lock().add(self, pool, slab, wanted))
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
        self.allocator.collect(&mut counts);
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
                let ended = self.allocator.transit.ended();
                if let Some(block) = find() {
                    return Ok(block);
                }
                self.drain_magazines();
                if let Some(block) = find() {
                    return Ok(block);
                }
                self.synchronize_all()?;
                self.release_unused();
                if let Some(block) = find() {
                    return Ok(block);
                }
                // One is that of this thread, which has just ended. (Past the low watermark there are more of its own: it then
                // looks again for nothing.)
                if fault!(looks_once) || !self.allocator.transit.has_ended_since(ended + 1) {
                    break;
                }
            }
            let is_retried = self.hooks_free_memory(size_bytes, attempt);
            if fork::has_forked_in(self) {
                return fork::block(self, size_bytes);
            }
            if !is_retried {
                break;
            }
            self.allocator.out_of_memory_retries.fetch_add(1, Relaxed);
        }
        self.allocator.out_of_memory.fetch_add(1, Relaxed);
        Err(self.out_of_memory(size_bytes))
    }

    pub(crate) fn out_of_memory(&self, asked_bytes: usize) -> Error {
        let MemoryNeed { allocated_bytes, free_bytes, pending_bytes, .. } = self.need(asked_bytes);
        let device = self.name().into();
        let set = Some(self.allocator.limit_bytes.load(Relaxed)).filter(|limit| *limit != usize::MAX);
        let bound_bytes = set.into_iter().chain(self.hal.info().memory_bytes).min();
        Error::OutOfMemory { device, asked_bytes, allocated_bytes, free_bytes, pending_bytes, bound_bytes }
    }

    /// Takes the stores of all threads to the centre.
    pub(crate) fn drain_magazines(&self) {
        self.drain(Shelves::drain);
    }

    /// Looks into the stores of all threads; whoever does so waits for the lock that is returned.
    pub(crate) fn visit_magazines(
        &self,
        work: impl FnMut(&mut Shelves),
    ) -> MutexGuard<'_, Vec<&'static local::Local>> {
        let locals = self.locals.lock();
        Magazine::visit_all(locals.iter().map(|local| &local.magazine), work);
        locals
    }

    /// Takes some of the store of each thread to the centre.
    fn drain(&self, take: impl Fn(&mut Shelves, &mut Vec<FreeBlock>)) {
        let mut blocks = Vec::new();
        let locals = self.visit_magazines(|shelves| take(shelves, &mut blocks));
        let locals = if fault!(blocks_on_their_way) {
            drop(locals);
            thread::yield_now();
            None
        } else {
            Some(locals)
        };
        // Under the lock, so that to the next who drains no block is on its way.
        self.to_centre(blocks);
        drop(locals);
    }

    /// Puts blocks of the device's own memory where all threads find them.
    pub(crate) fn to_centre(&self, blocks: Vec<FreeBlock>) {
        for block in blocks {
            match block.get().source.class {
                LARGE => self.allocator.large.lock().put(block, |tick| self.is_complete(tick)),
                class => self.allocator.centre[class as usize].lock().blocks.push_back(block),
            }
        }
    }

    /// Adds what a magazine has counted to the device's counts.
    pub(crate) fn collect(&self, counts: &mut Counts) {
        self.allocator.collect(counts);
    }

    /// Gives slabs back of which every block is free and no use is in flight.
    pub(crate) fn release_unused(&self) {
        let is_complete = |tick: Tick| fault!(release_in_flight) || self.is_complete(tick);
        let _on_the_way = self.allocator.transit.begin();
        for class in &self.allocator.centre {
            let mut shelf = class.lock();
            let Shelf { blocks, slabs } = &mut *shelf;
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
            drop(shelf); // to give a slab back may take the device long
            for slab in unused {
                // SAFETY: every block of it was in the list, with all uses complete, and is gone.
                unsafe { self.allocator.release(self, slab) };
            }
        }
        let private = self.allocator.watch.pools();
        for large in private.iter().map(|pool| &pool.large).chain([&self.allocator.large]) {
            let unused = large.lock().release_unused(is_complete);
            for slab in unused {
                // SAFETY: it was one free piece, with all uses complete, which is gone.
                unsafe { self.allocator.release(self, slab) };
            }
        }
    }
}

/// Takes back a block whose last handle is gone. Neither blocks nor fails, on any thread.
#[inline]
pub(crate) fn free(mut block: FreeBlock) {
    let device = block.get().device;
    if block.get().source.class == EMPTY {
        // SAFETY: the last handle is gone, no list has it, and work in flight touches no byte of it.
        return unsafe { block.destroy() };
    }
    if fork::is_child(device) {
        return fork::free(block);
    }
    if let Some(now) = trace::start() {
        trace::allocated(device.source, -(block.get().capacity_bytes as i64), now);
    }
    if block.get().is_recorded() {
        fence_recorded(&block);
    }
    if memory_trace::is_on(device) {
        memory_trace::freed(block.get());
    }
    if fault!(free_without_fence) {
        block.forget_uses();
    }
    if device.allocator.watch.is_on() { device.free_watched(block) } else { put_back(block) }
}

/// Covers what other code has put on the streams that were noted.
#[cold]
fn fence_recorded(block: &FreeBlock) {
    for slot in block.get().take_recorded() {
        block.get().device.opened(slot).fence(block.get());
    }
}

/// Puts a block that nobody uses any more, but for what is in flight, where others find it.
#[inline]
pub(crate) fn put_back(mut block: FreeBlock) {
    let device = block.get().device;
    if device.poison {
        block = local::poison_free(device, block);
    }
    block.get().taint.store(0, Relaxed);
    if let Some(pool) = block.get().source.pool {
        return free_private(device, pool, block);
    }
    let local = local::get(device);
    if fault!(strangers_free_nothing) && !local.is_some_and(local::Local::is_bound) {
        return;
    }
    let Some(local) = local else { return put_back_without_magazine(block) };
    let overflow = local.own_magazine(|shelves| {
        shelves.counts.frees += 1;
        shelves.counts.allocated_bytes -= block.get().capacity_bytes as i64;
        if shelves.counts.allocated_bytes < -COUNT_BYTES_MAX {
            device.allocator.collect_bytes(&mut shelves.counts);
        }
        if shelves.put_unused(block) {
            return None;
        }
        let mut overflow = Vec::new();
        shelves.put(block, local.slot(), |tick| device.is_complete(tick), &mut overflow);
        // From now on until the centre has them.
        (!overflow.is_empty()).then(|| (device.allocator.transit.begin(), overflow))
    });
    if let Some((_on_the_way, mut overflow)) = overflow {
        match overflow[0].get().source.class {
            LARGE => device.to_centre(overflow),
            class => device.put_centre(class as usize, &mut overflow),
        }
    }
}

/// As `put_back`, once the thread-locals are gone.
#[cold]
fn put_back_without_magazine(block: FreeBlock) {
    let device = block.get().device;
    let allocated_bytes = -(block.get().capacity_bytes as i64);
    device.allocator.collect(&mut Counts { allocated_bytes, frees: 1, ..Counts::default() });
    device.to_centre(vec![block]);
}

#[cold]
fn free_private(device: &'static DeviceInner, pool: &'static PoolInner, block: FreeBlock) {
    let capacity = block.get().capacity_bytes as i64;
    device.allocator.collect(&mut Counts { allocated_bytes: -capacity, frees: 1, ..Counts::default() });
    pool.large.lock().put(block, |tick| device.is_complete(tick));
    pool.let_go();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for_and_waste_at_most_a_quarter() {
        for size_bytes in 0..300_000 {
            let class = class_of(size_bytes);
            if class == LARGE {
                assert!(size_bytes > 256 << 10);
                continue;
            }
            let held = class_size_bytes(class as usize);
            assert!(held >= size_bytes, "{size_bytes} in a block of {held}");
            assert!(
                size_bytes <= 1024 || held * 4 <= size_bytes * 5 + 4 * UNIT_BYTES,
                "{size_bytes} in {held}"
            );
            assert!(class == 0 || class_size_bytes(class as usize - 1) < size_bytes.max(1));
        }
    }
}
