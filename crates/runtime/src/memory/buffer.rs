//! Buffers: blocks that are given out, and the handles that share them.
//!
//! While a block is in use, [`Buffer`]s count how many they are; the last one to go hands it to the allocator, whatever is still
//! in flight. `Drop` neither blocks nor panics, on any thread, in any order, also after the handles of the device are gone.

use super::{
    allocate::put_back,
    block::{Block, BlockRef, FreeBlock, Source},
    child,
    classes::{EMPTY, UNIT_BYTES, is_unlisted},
    policy,
    release::free_foreign,
    report::trace as recording,
    store::Memory,
};
use crate::{
    ground::{Core, Device, Floor, Result, fork},
    order::{Marks, Tick, Uses},
};
use raddle_hal::{Address, trace};
use raddle_sync::{atomic::Ordering::*, fault};
use std::ptr::NonNull;

impl Memory {
    /// Memory with undefined content.
    #[inline]
    pub(crate) fn allocate(&'static self, size_bytes: usize) -> Result<Buffer> {
        let mut is_empty = size_bytes == 0;
        fault!(empty_takes_memory => is_empty = false);
        if is_empty {
            return Ok(Buffer::empty(self.core));
        }
        let block = if self.is_watched() {
            policy::watched_block(self, size_bytes)?
        } else {
            self.block(size_bytes)?
        };
        if let Some(now) = trace::start() {
            trace::allocated(self.source, block.get().capacity_bytes as i64, now);
        }
        let buffer = Buffer::give(block, size_bytes);
        if recording::is_on(self) {
            recording::allocated(buffer.block());
        }
        if self.poison {
            self.above.poison(buffer.block(), 0xA5);
        }
        Ok(buffer)
    }

    /// As [`Memory::allocate`], in a forked child.
    #[cold]
    pub(crate) fn allocate_in_child(&'static self, size_bytes: usize) -> Result<Buffer> {
        if size_bytes == 0 {
            return fork::check(self).map(|()| Buffer::empty(self.core));
        }
        child::block(self.core, size_bytes).map(|block| Buffer::give(block, size_bytes))
    }

    /// A handle of what is given out of a block, if something is.
    pub(crate) fn share(&self, block: BlockRef) -> Option<Buffer> {
        block.share().map(Buffer)
    }
}

/// Takes back a block whose last handle is gone. Neither blocks nor fails, on any thread.
#[inline]
fn free(mut block: FreeBlock) {
    let device = block.get().device;
    if is_unlisted(block.get().source.class) {
        return free_unlisted(block);
    }
    if fork::is_child(device) {
        return child::free(block);
    }
    if let Some(now) = trace::start() {
        trace::allocated(device.source, -(block.get().capacity_bytes as i64), now);
    }
    if block.get().is_recorded() {
        fence_recorded(&block);
    }
    if recording::is_on(device) {
        recording::freed(block.get());
    }
    if fault!(free_without_fence) {
        block.forget_uses();
    }
    if device.is_watched() { policy::free_watched(block) } else { put_back(block) }
}

/// Of no bytes, or memory of others.
#[cold]
fn free_unlisted(block: FreeBlock) {
    if block.get().source.class != EMPTY {
        if block.get().is_recorded() && !fork::is_child(block.get().device) {
            fence_recorded(&block);
        }
        return free_foreign(block);
    }
    // SAFETY: the last handle is gone, no list has it, and work in flight touches no byte of it.
    unsafe { block.destroy() };
}

/// Covers what other code has put on the streams that were noted.
#[cold]
fn fence_recorded(block: &FreeBlock) {
    for slot in block.get().take_recorded() {
        Memory::of(block.get().device).above.fence(block.get(), slot);
    }
}

/// Device memory that handles share. Cloning counts a handle and copies nothing; the last one to go gives the memory
/// back, at once and without waiting, however much work that touches it is in flight.
pub struct Buffer(NonNull<Block>);

// SAFETY: the block is shared by counted handles and is `Sync` in all its parts (see the table at `Block`).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Gives a block out, to one handle.
    #[inline]
    pub(crate) fn give(block: FreeBlock, asked_bytes: usize) -> Buffer {
        Buffer(block.into_given(asked_bytes))
    }

    /// A buffer of no bytes. Its address is no slab's; it isn't 0, which isn't allowed for an empty slice either.
    #[cold]
    pub(super) fn empty(device: &'static Core) -> Buffer {
        let address = Address { handle: UNIT_BYTES as u64, offset_bytes: 0 };
        let source = Source { class: EMPTY, index: 0, pool: 0 };
        Buffer::give(FreeBlock::new(Block::new(device, address, 0, source, Marks::new())), 0)
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        // SAFETY: the block is alive while a handle is counted, and this one is.
        unsafe { self.0.as_ref() }
    }

    /// The device that it lies on.
    pub fn device(&self) -> Device {
        Device(self.block().device)
    }

    /// How many bytes were asked for.
    pub fn size_bytes(&self) -> usize {
        self.block().asked_bytes.load(Relaxed)
    }

    /// What is left of the uses if this is the only handle; nothing if there are others. Acquire pairs with the Release in
    /// `Drop`: what was done by other handles comes before.
    pub(crate) fn uses_if_alone(&mut self, own: usize, is_complete: impl Fn(Tick) -> bool) -> Option<Uses> {
        // SAFETY: the block lives while this handle does; there is no other handle, and whoever submits has one; nobody
        // can make one, since this one is borrowed mutably.
        (self.block().handles.load(Acquire) == 1)
            .then(|| unsafe { self.block().marks.uses(own, is_complete) })
    }

    /// Forgets the slots noted by `record`, which it returns. For whoever has the only handle.
    pub(crate) fn take_recorded(&mut self) -> impl Iterator<Item = usize> + use<> {
        self.block().take_recorded()
    }

    /// Gives it out anew, for another number of bytes. For whoever has the only handle.
    pub(crate) fn give_again(&self, asked_bytes: usize) -> Buffer {
        debug_assert!(asked_bytes <= self.block().capacity_bytes);
        self.block().asked_bytes.store(asked_bytes, Relaxed);
        self.clone()
    }

    /// Is it the same memory?
    pub fn is(&self, other: &Buffer) -> bool {
        self.0 == other.0
    }

    /// How many handles share it at the moment. Acquire pairs with the Release in `Drop`: what was done by handles that have gone
    /// comes before.
    pub fn handle_count(&self) -> usize {
        self.block().handles.load(Acquire)
    }

    /// Where the memory starts, as code in C knows it. (A device whose memory has no addresses gives numbers that only tell
    /// its memory apart.)
    pub fn address(&self) -> u64 {
        self.block().address.number()
    }

    /// How many ops that write to the memory have been put on streams, in this life of it and in former ones.
    ///
    /// An op counts while it claims its operands. So if the number is the same before an op that reads the memory is put on
    /// a stream and after, the op reads what was there before; what it has read is no longer what is there if the number
    /// has grown since. An op's own [witness](crate::Witness) is told the exact number. From any thread; doesn't block.
    pub fn version(&self) -> u64 {
        self.block().version()
    }

    /// A number that names the memory; buffers that live at the same time have different ones.
    pub fn id(&self) -> u64 {
        self.block().id
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        self.block().handles.fetch_add(1, Relaxed); // the handle at hand keeps the block alive
        Buffer(self.0)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // Release: what this thread did with the block comes before its next life; Acquire: so does what others did.
        if self.block().handles.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: it was the last.
            free(unsafe { FreeBlock::taken_back(self.0) });
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes on {})", self.size_bytes(), self.device().name())
    }
}
