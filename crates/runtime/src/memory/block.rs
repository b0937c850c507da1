//! Blocks of device memory: a block is one piece of a slab, with the marks that stay with it for life.

use crate::{
    ground::{Core, Floor},
    order::{Marks, SLOT_COUNT, StreamInner, Streams, Tick, Uses},
};
use raddle_hal::Address;
use raddle_sync::{
    Padded,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*},
    fault,
};
use std::ptr::NonNull;

// As for `Core`.
impl std::panic::RefUnwindSafe for Block {}

const RECORDED_COUNT: usize = SLOT_COUNT.div_ceil(64);

/// Where a block goes when it is free.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    /// Index of its size class, or [`LARGE`](super::classes::LARGE).
    pub(crate) class: u8,
    /// Which slab it is of, in the list of its class; of a large block, which piece; of memory of others, its place in their list.
    pub(crate) index: u32,
    /// The number of the private pool whose list that is; 0 for the device's.
    pub(crate) pool: u32,
}

/// A piece of a slab.
///
/// | field | stored by | loaded by |
/// |---|---|---|
/// | `id`, `device`, `address` | nobody, but for [`FreeBlock::renew`] | anybody |
/// | `capacity_bytes`, `source` | the allocator, while it owns the block alone | anybody who has a buffer |
/// | `asked_bytes`, `traced` | whoever gives the block out | anybody who has a buffer, or the lock of the slab's list |
/// | `resource` | whoever gives the block out, or takes it back | the same |
/// | `recorded` | anybody who has a buffer, by read-modify-write | the allocator, when it takes the block back |
/// | `taint` | holder of the block's write claim | holder of a claim, or of the only handle |
/// | `version` | holder of the block's write claim | anybody who has a buffer; it is exact under a claim |
/// | `marks` | see there | see there |
/// | `handles` | anybody who has a buffer | the same; on a line of its own, since clones would disturb readers |
// In this order: an allocation and a free touch the first 64 bytes, `recorded` and `handles`, a submission the first 128.
#[repr(C)]
pub(crate) struct Block {
    pub(crate) device: &'static Core,
    pub(crate) source: Source,
    pub(crate) asked_bytes: AtomicUsize,
    pub(crate) marks: Marks,
    pub(crate) taint: AtomicU64,
    version: AtomicU64,
    /// In the order in which the device's blocks were made: claims are taken in this order, which a run that is repeated
    /// repeats, as it would not that of addresses.
    pub(crate) id: u64,
    pub(crate) address: Address,
    pub(crate) capacity_bytes: usize,
    /// Slots of streams on which code outside of the runtime may use the block, until it is freed.
    recorded: [AtomicU64; RECORDED_COUNT],
    /// Which [resource](crate::MemoryResource) gave it out, by number; 0 for none.
    pub(crate) resource: AtomicU32,
    /// Which allocation of which recording it is.
    pub(crate) traced: AtomicU64,
    pub(crate) handles: Padded<AtomicUsize>,
}

impl Block {
    pub(crate) fn new(
        device: &'static Core,
        address: Address,
        capacity_bytes: usize,
        source: Source,
        marks: Marks,
    ) -> Block {
        Block {
            id: device.block_count.fetch_add(1, Relaxed),
            device,
            address,
            capacity_bytes,
            source,
            asked_bytes: AtomicUsize::new(0),
            resource: AtomicU32::new(0),
            traced: AtomicU64::new(0),
            recorded: std::array::from_fn(|_| AtomicU64::new(0)),
            taint: AtomicU64::new(0),
            version: AtomicU64::new(0),
            marks,
            handles: Padded(AtomicUsize::new(0)),
        }
    }
}

impl Block {
    /// How many ops that write have claimed it.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Counts a write. For the holder of the write claim, so nobody else stores.
    #[inline]
    pub(crate) fn count_write(&self) {
        if !fault!(version_not_bumped) {
            self.version.store(self.version.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Notes that code outside of the runtime uses the block on a stream.
    pub(crate) fn record(&self, slot: usize) {
        self.recorded[slot / 64].fetch_or(1 << (slot % 64), Relaxed); // read after the handles' count reached 0
    }

    /// Is a slot noted? For the block's only owner.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// The slots noted, which are forgotten. For the block's only owner.
    pub(crate) fn take_recorded(&self) -> impl Iterator<Item = usize> + use<> {
        let mut words: [u64; RECORDED_COUNT] = std::array::from_fn(|word| self.recorded[word].load(Relaxed));
        self.recorded.iter().for_each(|word| word.store(0, Relaxed));
        std::iter::from_fn(move || {
            let word = words.iter().position(|word| *word != 0)?;
            let slot = words[word].trailing_zeros() as usize;
            words[word] &= words[word] - 1;
            Some(word * 64 + slot)
        })
    }
}

/// Who has the memory of a block that was adopted.
pub(crate) struct Owner {
    /// The process's count of forks when that was.
    pub(super) forks: u32,
    /// Dropping it gives the memory back.
    pub(super) memory: Box<dyn Send>,
}

/// A block of memory of others. The block is in front, so that a pointer to it is one to the whole.
#[repr(C)]
struct Adopted {
    block: Block,
    /// Touched by whoever has the block alone.
    owner: Owner,
}

/// A block that is owned alone: in a magazine, the central lists, or a list of free pieces. Made by `Box::into_raw`. Its owner makes
/// no `&mut Block`, since others may look at its atomics at any time: see [`BlockRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FreeBlock(NonNull<Block>);

// SAFETY: a block is `Sync` in all its parts, and whoever has the `FreeBlock` owns it alone.
unsafe impl Send for FreeBlock {}

impl FreeBlock {
    pub(crate) fn new(block: Block) -> FreeBlock {
        FreeBlock(NonNull::from(Box::leak(Box::new(block))))
    }

    /// A block of memory of others, with its owner.
    pub(crate) fn adopted(block: Block, owner: Owner) -> FreeBlock {
        FreeBlock(NonNull::from(Box::leak(Box::new(Adopted { block, owner }))).cast())
    }

    /// Frees the description of memory of others, which is left with its owner.
    ///
    /// # Safety
    /// - It was made by [`FreeBlock::adopted`], and no copy of it is used any more.
    pub(crate) unsafe fn disown(self) -> Owner {
        // SAFETY: made by `Box::leak` in `adopted`; by the contract it is freed once.
        unsafe { Box::from_raw(self.0.cast::<Adopted>().as_ptr()) }.owner
    }

    /// The block whose last handle has gone.
    ///
    /// # Safety
    /// - It came from [`FreeBlock::into_given`], and its count of handles has become 0 just now.
    pub(crate) unsafe fn taken_back(block: NonNull<Block>) -> FreeBlock {
        FreeBlock(block)
    }

    pub(crate) fn get(&self) -> &Block {
        // SAFETY: made by `new`, and not given up by `destroy`, which takes the value for good.
        unsafe { self.0.as_ref() }
    }

    /// What is left of its uses, seen from a stream's slot.
    #[inline]
    pub(crate) fn uses(&mut self, own: usize, is_complete: impl Fn(Tick) -> bool) -> Uses {
        if fault!(slow_holds_all) {
            let is_idle = |stream: &StreamInner| stream.is_complete(stream.latest().sequence());
            if !Streams::of(self.get().device).all_streams().all(is_idle) {
                return Uses::Pending;
            }
        }
        // SAFETY: a free block is owned alone.
        unsafe { self.get().marks.uses(own, is_complete) }
    }

    /// The tick of a use that isn't complete, if there is one.
    pub(crate) fn incomplete(&mut self, is_complete: impl Fn(Tick) -> bool) -> Option<Tick> {
        // SAFETY: a free block is owned alone.
        unsafe { self.get().marks.incomplete(is_complete) }
    }

    /// Has it no uses, or forgotten all? Then `uses` would say that they are over.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        fault!(slow_holds_all => return false);
        self.get().marks.are_none()
    }

    /// Forgets its uses, for a planted fault.
    #[cold]
    pub(crate) fn forget_uses(&mut self) {
        // SAFETY: a free block is owned alone.
        unsafe { self.get().marks.forget() };
    }

    /// The marks of a piece that is split off it.
    pub(crate) fn split_marks(&mut self) -> Marks {
        // SAFETY: a free block is owned alone.
        unsafe { self.get().marks.split() }
    }

    /// Makes it shorter or longer.
    pub(crate) fn set_capacity_bytes(&mut self, capacity_bytes: usize) {
        // SAFETY: a free block is owned alone, and only owners and holders of handles read the field.
        unsafe { (*self.0.as_ptr()).capacity_bytes = capacity_bytes };
    }

    /// Moves it to another list.
    pub(crate) fn set_source(&mut self, source: Source) {
        // SAFETY: as above.
        unsafe { (*self.0.as_ptr()).source = source };
    }

    /// Makes it another block, of other memory.
    ///
    /// # Safety
    /// - Nobody looks at it as a [`BlockRef`] meanwhile.
    pub(crate) unsafe fn renew(self, block: Block) -> FreeBlock {
        // SAFETY: it is owned alone; by the contract nobody else looks.
        unsafe { *self.0.as_ptr() = block };
        self
    }

    /// For the list of its slab.
    ///
    /// # Safety
    /// - It is not used any more once the block is destroyed.
    pub(crate) unsafe fn reference(&self) -> BlockRef {
        BlockRef(self.0)
    }

    /// It has one handle from now on, for so many bytes.
    #[inline]
    pub(crate) fn into_given(self, asked_bytes: usize) -> NonNull<Block> {
        let block = self.get();
        block.asked_bytes.store(asked_bytes, Relaxed); // whoever gets the buffer, gets it by a synchronized way
        block.handles.store(1, Relaxed);
        self.0
    }

    /// Frees the description of the memory, not the memory.
    ///
    /// # Safety
    /// - No copy of this `FreeBlock` is used any more.
    pub(crate) unsafe fn destroy(self) {
        // SAFETY: made by `Box::leak` in `new`; by the contract it is freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A block as the list of its slab knows it, whoever has it at the time. Only atomics are looked at through it, under the
/// lock of the list, so that the block isn't destroyed or made another meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockRef(NonNull<Block>);

// SAFETY: it gives access to atomics only.
unsafe impl Send for BlockRef {}

impl BlockRef {
    fn handles(&self) -> &AtomicUsize {
        // SAFETY: by the contract of `FreeBlock::known` the block is there; no `&mut` to it is ever made.
        unsafe { &(*self.0.as_ptr()).handles }
    }

    /// Has somebody a handle?
    pub(crate) fn is_given_out(&self) -> bool {
        self.handles().load(Relaxed) > 0
    }

    /// Where it lies, and how long it is; of memory of others, which are nobody's to change.
    pub(crate) fn adopted_range(&self) -> (Address, usize) {
        // SAFETY: as in `handles`; nobody stores these fields while the list of the memory of others has the block.
        unsafe { ((*self.0.as_ptr()).address, (*self.0.as_ptr()).capacity_bytes) }
    }

    /// How many bytes were asked for, the last time.
    pub(crate) fn asked_bytes(&self) -> usize {
        // SAFETY: as in `handles`.
        unsafe { &(*self.0.as_ptr()).asked_bytes }.load(Relaxed)
    }

    /// See [`Marks::last_use`].
    pub(crate) fn last_use(&self) -> Tick {
        // SAFETY: as in `handles`; marks are atomics.
        unsafe { &(*self.0.as_ptr()).marks }.last_use()
    }

    /// One more handle, if there is one. Acquire pairs with the Release in `Buffer::drop` as for any handle that is the
    /// last to go.
    pub(crate) fn share(&self) -> Option<NonNull<Block>> {
        let more = |count: usize| {
            fault!(freed_is_live => return Some(count + 1));
            (count > 0).then_some(count + 1)
        };
        self.handles().fetch_update(Acquire, Relaxed, more).ok().map(|_| self.0)
    }
}
