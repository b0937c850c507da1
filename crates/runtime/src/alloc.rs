//! The allocator: size classes with magazines in front for small blocks, best fit with splits and merges for large ones.
//!
//! Guarantees: a block is in one hand only; its marks stay with it, so whoever gets it is ordered behind its former uses
//! (T1) and the policy here only decides how often that means a wait; a slab goes back to the device only when all uses
//! of all its blocks are complete (T3); when memory runs out, everything that can be given back is, before an error
//! says so (T10).
//!
//! In order: the thread's magazine; the centre; a new slab; and when the device has no more: pending frees are awaited,
//! magazines of all threads emptied, pieces merged, unused slabs released, and the search made once more.

use crate::{
    Buffer, Error, Result,
    block::{Block, FreeBlock},
    device::DeviceInner,
    large::Large,
    local,
    magazine::{Counts, keep_count_max},
    marks::{Marks, Uses},
    memory_trace,
    tick::Tick,
};
use raddle_hal::{Address, DeviceError, Slab, trace};
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU64, AtomicUsize, Ordering::*},
    fault,
};
use std::collections::VecDeque;

/// Blocks are multiples of it: large enough for any device's alignment.
const UNIT_BYTES: usize = 256;
/// Four classes for each doubling from 1 KiB to 256 KiB, and four below.
pub(crate) const CLASS_COUNT: usize = 36;
/// The class of blocks past those.
pub(crate) const LARGE: u8 = u8::MAX;
/// Slabs of small blocks hold about so many, within bounds.
const SLAB_BLOCK_COUNT: usize = if cfg!(loom) { 1 } else { 16 }; // guess
const SLAB_BYTES_MIN: usize = if cfg!(loom) { UNIT_BYTES } else { 1 << 16 }; // guess
/// Blocks that go from the centre to a magazine at once.
const BATCH_COUNT: usize = 16; // guess
/// Blocks of a class in the centre, as a multiple of what a magazine keeps, past which a wait for one in flight is better than
/// growth.
const PENDING_RATIO_MAX: usize = 8; // guess
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
pub(crate) fn class_size_bytes(class: usize) -> usize {
    let units = if class < 4 { class + 1 } else { (class % 4 + 5) << (class / 4 - 1) };
    units * UNIT_BYTES
}

/// A slab of blocks of one class.
struct SmallSlab {
    slab: Slab,
    block_count: usize,
}

/// Free blocks of one class, of all threads. The oldest come first: their uses are the likeliest to be over.
#[derive(Default)]
struct Shelf {
    blocks: VecDeque<FreeBlock>,
    slabs: Vec<Option<SmallSlab>>,
}

/// What a device has given out and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryStats {
    /// In buffers that are alive, as rounded to blocks. Small blocks are counted in steps of up to 64 KiB a thread.
    pub allocated_bytes: usize,
    /// The most that `allocated_bytes` has been.
    pub allocated_peak_bytes: usize,
    /// In slabs of the device.
    pub reserved_bytes: usize,
    /// The most that `reserved_bytes` has been.
    pub reserved_peak_bytes: usize,
    /// Buffers given out so far.
    pub allocations: u64,
    /// Buffers given back so far.
    pub frees: u64,
    /// Calls of the device for memory.
    pub slab_allocations: u64,
}

pub(crate) struct Allocator {
    centre: [Mutex<Shelf>; CLASS_COUNT],
    pub(crate) large: Mutex<Large>,
    reserved_bytes: AtomicUsize,
    reserved_peak_bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    allocated_bytes: AtomicU64,
    allocated_peak_bytes: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
    slab_allocations: AtomicU64,
}

impl Allocator {
    pub(crate) fn new() -> Allocator {
        Allocator {
            centre: std::array::from_fn(|_| Mutex::new(Rank::Centre, Shelf::default())),
            large: Mutex::new(Rank::Slabs, Large::default()),
            reserved_bytes: AtomicUsize::new(0),
            reserved_peak_bytes: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(usize::MAX),
            allocated_bytes: AtomicU64::new(0),
            allocated_peak_bytes: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            slab_allocations: AtomicU64::new(0),
        }
    }

    /// Adds what a magazine has counted. Wrapping: a thread may free more than it has allocated.
    fn collect(&self, counts: &mut Counts) {
        let Counts { allocated_bytes, allocations, frees } = std::mem::take(counts);
        let now = self
            .allocated_bytes
            .fetch_add(allocated_bytes as u64, Relaxed)
            .wrapping_add(allocated_bytes as u64);
        if allocated_bytes > 0 && (now as i64) > 0 {
            self.allocated_peak_bytes.fetch_max(now, Relaxed);
        }
        self.allocations.fetch_add(allocations, Relaxed);
        self.frees.fetch_add(frees, Relaxed);
    }

    /// A slab of the device, within the limit.
    fn slab(&self, device: &DeviceInner, size_bytes: usize) -> std::result::Result<Slab, DeviceError> {
        let reserved = self.reserved_bytes.fetch_add(size_bytes, Relaxed) + size_bytes;
        let slab = if reserved > self.limit_bytes.load(Relaxed) {
            Err(DeviceError::OutOfMemory { size_bytes })
        } else {
            device.hal.allocate_slab(size_bytes)
        };
        match &slab {
            Ok(_) => {
                self.reserved_peak_bytes.fetch_max(reserved, Relaxed);
                self.slab_allocations.fetch_add(1, Relaxed);
            }
            Err(_) => _ = self.reserved_bytes.fetch_sub(size_bytes, Relaxed),
        }
        slab
    }

    /// Gives a slab back.
    ///
    /// # Safety
    /// - It came from `slab`, once; all uses of its memory are complete; nobody has a block of it.
    unsafe fn release(&self, device: &DeviceInner, slab: Slab) {
        self.reserved_bytes.fetch_sub(slab.size_bytes, Relaxed);
        // SAFETY: by the contract.
        unsafe { device.hal.release_slab(slab) };
    }
}

impl DeviceInner {
    /// Memory with undefined content.
    #[inline]
    pub(crate) fn allocate(&'static self, size_bytes: usize) -> Result<Buffer> {
        let class = class_of(size_bytes);
        let block = if class == LARGE {
            self.allocate_large(size_bytes)?
        } else {
            let class = class as usize;
            match local::get(self) {
                Some(local) => {
                    let slot = local.slot();
                    let block = local.magazine.with(|shelves| {
                        let block = shelves.take(class, slot, false, |tick| self.is_complete(tick));
                        if block.is_some() {
                            shelves.counts.allocations += 1;
                            shelves.counts.allocated_bytes += class_size_bytes(class) as i64;
                            if shelves.counts.allocated_bytes > COUNT_BYTES_MAX {
                                self.allocator.collect(&mut shelves.counts);
                            }
                        }
                        block
                    });
                    match block {
                        Some(block) => block,
                        None => self.refill(size_bytes, slot, Some(local))?,
                    }
                }
                None => self.refill(size_bytes, 0, None)?,
            }
        };
        if let Some(now) = trace::start() {
            trace::memory(block.get().capacity_bytes as i64, now);
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

    /// From the centre or a new slab; leaves a batch in the magazine.
    #[cold]
    fn refill(
        &'static self,
        asked_bytes: usize,
        slot: usize,
        local: Option<&'static local::Local>,
    ) -> Result<FreeBlock> {
        let class = class_of(asked_bytes) as usize;
        let size_bytes = class_size_bytes(class);
        let (mut batch, is_full) = {
            let mut shelf = self.allocator.centre[class].lock();
            let is_full = shelf.blocks.len() > PENDING_RATIO_MAX * keep_count_max(class);
            let count = BATCH_COUNT.min(keep_count_max(class) / 2).max(1).min(shelf.blocks.len());
            (shelf.blocks.drain(..count).collect::<Vec<FreeBlock>>(), is_full)
        };
        let ready = |block: &mut FreeBlock| {
            block.get_mut().marks.uses(slot, |tick| self.is_complete(tick)) != Uses::Pending
        };
        let found = batch.iter_mut().position(ready);
        let block = match found {
            Some(position) => batch.swap_remove(position),
            // Everything at hand is in flight, and there is much of it: whoever uses the block first waits.
            None if is_full => batch.swap_remove(0),
            // New memory, unless the device has none.
            None => match self.carve(class, &mut batch) {
                Ok(block) => block,
                Err(DeviceError::OutOfMemory { .. }) => {
                    self.put_centre(class, &mut batch);
                    return self.allocate_scarce(asked_bytes, || self.take_centre(class));
                }
                Err(error) => return Err(self.error(error)),
            },
        };
        let mut counts = Counts { allocated_bytes: size_bytes as i64, allocations: 1, ..Counts::default() };
        if let Some(local) = local {
            let mut rest = batch.split_off(batch.len().min(keep_count_max(class) / 2));
            local.magazine.with(|shelves| {
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
        let block_count = (SLAB_BYTES_MIN / size_bytes).max(SLAB_BLOCK_COUNT);
        let slab = self.allocator.slab(self, block_count * size_bytes)?;
        let index = {
            let mut shelf = self.allocator.centre[class].lock();
            let entry = Some(SmallSlab { slab, block_count });
            match shelf.slabs.iter().position(Option::is_none) {
                Some(index) => {
                    shelf.slabs[index] = entry;
                    index
                }
                None => {
                    shelf.slabs.push(entry);
                    shelf.slabs.len() - 1
                }
            }
        };
        let mut blocks = (0..block_count).map(|position| {
            let address = Address { handle: slab.handle, offset_bytes: position * size_bytes };
            FreeBlock::new(Block::new(self, address, size_bytes, class as u8, index as u32, Marks::new()))
        });
        let first = blocks.next().expect("a slab has at least one block");
        batch.extend(blocks);
        Ok(first)
    }

    #[cold]
    fn allocate_large(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        let slot = local::get(self).map_or(0, |local| local.slot());
        let Some(wanted) = Large::round(size_bytes) else {
            return Err(self.out_of_memory(size_bytes));
        };
        let find =
            |anyway| self.allocator.large.lock().take(wanted, slot, anyway, |tick| self.is_complete(tick));
        let block = match find(false) {
            Some(block) => block,
            None => {
                let slab_bytes = Large::slab_bytes(wanted);
                let slab =
                    self.allocator.slab(self, slab_bytes).or_else(|_| self.allocator.slab(self, wanted));
                match slab {
                    Ok(slab) => self.allocator.large.lock().add(self, slab, wanted),
                    Err(DeviceError::OutOfMemory { .. }) => self.allocate_scarce(size_bytes, || {
                        find(true).or_else(|| {
                            let slab = self.allocator.slab(self, wanted).ok()?;
                            Some(self.allocator.large.lock().add(self, slab, wanted))
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
        Ok(block)
    }

    /// The device has no more. First what is freed but in flight (with a wait in the block's marks), then what other
    /// threads keep, then, once everything in flight is over, what slabs that are unused give back.
    #[cold]
    fn allocate_scarce(
        &'static self,
        size_bytes: usize,
        find: impl Fn() -> Option<FreeBlock>,
    ) -> Result<FreeBlock> {
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
        let class = class_of(size_bytes);
        if class != LARGE {
            let mut batch = Vec::new();
            if let Ok(block) = self.carve(class as usize, &mut batch) {
                self.put_centre(class as usize, &mut batch);
                return Ok(block);
            }
        }
        Err(self.out_of_memory(size_bytes))
    }

    fn out_of_memory(&self, asked_bytes: usize) -> Error {
        let stats = self.memory_stats();
        let pending_bytes = self.pending_bytes();
        Error::OutOfMemory {
            device: self.name().into(),
            asked_bytes,
            allocated_bytes: stats.allocated_bytes,
            free_bytes: stats.reserved_bytes.saturating_sub(stats.allocated_bytes + pending_bytes),
            pending_bytes,
        }
    }

    fn pending_bytes(&self) -> usize {
        let is_pending = |block: &mut FreeBlock| {
            block.get_mut().marks.uses(usize::MAX, |tick| self.is_complete(tick)) != Uses::Over
        };
        let small = self.allocator.centre.iter().map(|shelf| {
            let mut shelf = shelf.lock();
            let pending = shelf
                .blocks
                .iter_mut()
                .filter_map(|block| is_pending(block).then(|| block.get().capacity_bytes));
            pending.sum::<usize>()
        });
        small.sum::<usize>() + self.allocator.large.lock().pending_bytes(|tick| self.is_complete(tick))
    }

    /// Takes the stores of all threads to the centre.
    pub(crate) fn drain_magazines(&self) {
        let mut blocks = Vec::new();
        for local in self.locals.lock().iter() {
            local.magazine.with(|shelves| {
                shelves.drain(&mut blocks);
                self.allocator.collect(&mut shelves.counts);
            });
        }
        self.to_centre(blocks);
    }

    pub(crate) fn to_centre(&self, blocks: Vec<FreeBlock>) {
        for block in blocks {
            self.allocator.centre[block.get().class as usize].lock().blocks.push_back(block);
        }
    }

    /// Adds what a magazine has counted to the device's counts.
    pub(crate) fn collect(&self, counts: &mut Counts) {
        self.allocator.collect(counts);
    }

    /// Gives slabs back of which every block is free and no use is in flight.
    pub(crate) fn release_unused(&self) {
        let is_complete = |tick: Tick| fault!(release_in_flight) || self.is_complete(tick);
        for class in &self.allocator.centre {
            let mut shelf = class.lock();
            let Shelf { blocks, slabs } = &mut *shelf;
            let mut over = vec![0usize; slabs.len()];
            for block in blocks.iter_mut() {
                if block.get_mut().marks.uses(usize::MAX, is_complete) == Uses::Over {
                    over[block.get().slab as usize] += 1;
                }
            }
            let mut unused = Vec::new();
            for (index, entry) in slabs.iter_mut().enumerate() {
                if entry.as_ref().is_some_and(|slab| slab.block_count == over[index]) {
                    unused.extend(entry.take().map(|slab| slab.slab));
                }
            }
            blocks.retain(|block| {
                let keep = slabs[block.get().slab as usize].is_some();
                if !keep {
                    // SAFETY: it leaves the list, the only place that has it.
                    unsafe { block.destroy() };
                }
                keep
            });
            for slab in unused {
                // SAFETY: every block of it was in the list, with all uses complete, and is gone.
                unsafe { self.allocator.release(self, slab) };
            }
        }
        for slab in self.allocator.large.lock().release_unused(is_complete) {
            // SAFETY: it was one free piece, with all uses complete, which is gone.
            unsafe { self.allocator.release(self, slab) };
        }
    }

    /// What is given out and kept. Collects the counts of all threads.
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        for local in self.locals.lock().iter() {
            local.magazine.with(|shelves| self.allocator.collect(&mut shelves.counts));
        }
        let allocator = &self.allocator;
        let allocated_bytes = (allocator.allocated_bytes.load(Relaxed) as i64).max(0) as usize;
        MemoryStats {
            allocated_bytes,
            allocated_peak_bytes: (allocator.allocated_peak_bytes.load(Relaxed) as usize)
                .max(allocated_bytes),
            reserved_bytes: allocator.reserved_bytes.load(Relaxed),
            reserved_peak_bytes: allocator.reserved_peak_bytes.load(Relaxed),
            allocations: allocator.allocations.load(Relaxed),
            frees: allocator.frees.load(Relaxed),
            slab_allocations: allocator.slab_allocations.load(Relaxed),
        }
    }

    pub(crate) fn set_limit_bytes(&self, limit_bytes: usize) {
        self.allocator.limit_bytes.store(limit_bytes, Relaxed);
    }
}

/// Takes back a block whose last handle is gone. Neither blocks nor fails, on any thread.
#[inline]
pub(crate) fn free(mut block: FreeBlock) {
    let device = block.get().device;
    if crate::fork::is_child(device) {
        return; // its memory and its locks are the parent's
    }
    if let Some(now) = trace::start() {
        trace::memory(-(block.get().capacity_bytes as i64), now);
    }
    for slot in block.get_mut().take_recorded() {
        device.opened(slot).fence(block.get());
    }
    if memory_trace::is_on(device) {
        memory_trace::freed(block.get());
    }
    if fault!(free_without_fence) {
        block.get_mut().marks = Marks::new();
    }
    if device.poison {
        block = local::poison_free(device, block);
    }
    let block_mut = block.get_mut();
    block_mut.taint.store(0, Relaxed);
    if block_mut.class == LARGE {
        return free_large(device, block);
    }
    let size_bytes = block_mut.capacity_bytes as i64;
    let class = block_mut.class as usize;
    let Some(local) = local::get(device) else {
        device.allocator.collect(&mut Counts { allocated_bytes: -size_bytes, frees: 1, ..Counts::default() });
        return device.to_centre(vec![block]);
    };
    let slot = local.slot();
    let mut overflow = Vec::new();
    local.magazine.with(|shelves| {
        shelves.counts.frees += 1;
        shelves.counts.allocated_bytes -= size_bytes;
        if shelves.counts.allocated_bytes < -COUNT_BYTES_MAX {
            device.allocator.collect(&mut shelves.counts);
        }
        shelves.put(block, slot, |tick| device.is_complete(tick), &mut overflow);
    });
    if !overflow.is_empty() {
        device.put_centre(class, &mut overflow);
    }
}

#[cold]
fn free_large(device: &'static DeviceInner, block: FreeBlock) {
    let capacity = block.get().capacity_bytes as i64;
    device.allocator.collect(&mut Counts { allocated_bytes: -capacity, frees: 1, ..Counts::default() });
    device.allocator.large.lock().put(block, |tick| device.is_complete(tick));
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
