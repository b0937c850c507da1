//! Blocks of device memory and the handles that share them.
//!
//! A block is one piece of a slab, with the marks that stay with it for life. While it is in use, [`Buffer`]s count how
//! many they are; the last one to go hands it to the allocator, whatever is still in flight. `Drop` neither blocks nor
//! panics, on any thread, in any order, also after the handles of the device are gone.

use crate::{
    Device,
    device::DeviceInner,
    marks::{Marks, Uses},
    tick::{SLOT_COUNT, Tick},
};
use raddle_hal::Address;
use raddle_sync::{
    Padded,
    atomic::{AtomicU64, AtomicUsize, Ordering::*},
};
use std::ptr::NonNull;

// As for `DeviceInner`.
impl std::panic::RefUnwindSafe for Block {}

const RECORDED_COUNT: usize = SLOT_COUNT.div_ceil(64);

/// A piece of a slab.
///
/// | field | stored by | loaded by |
/// |---|---|---|
/// | `id`, `device`, `address`, `capacity_bytes`, `class`, `slab` | the allocator, while it owns the block alone | anybody |
/// | `asked_bytes`, `traced` | whoever gives the block out | anybody who has a buffer |
/// | `recorded` | anybody who has a buffer, by read-modify-write | the allocator, when it takes the block back |
/// | `taint` | holder of the block's write claim | holder of a claim, or of the only handle |
/// | `marks` | see there | see there |
/// | `handles` | anybody who has a buffer | the same; on a line of its own, since clones would disturb readers |
pub(crate) struct Block {
    /// In the order in which the device's blocks were made: claims are taken in this order, which a run that is repeated
    /// repeats, as it would not that of addresses.
    pub(crate) id: u64,
    pub(crate) device: &'static DeviceInner,
    pub(crate) address: Address,
    pub(crate) capacity_bytes: usize,
    /// Index of its size class, or [`LARGE`](crate::alloc::LARGE).
    pub(crate) class: u8,
    /// Which slab it is of, in the allocator's list for its kind.
    pub(crate) slab: u32,
    pub(crate) asked_bytes: AtomicUsize,
    /// Which allocation of which recording it is.
    pub(crate) traced: AtomicU64,
    /// Slots of streams on which code outside of the runtime may use the block, until it is freed.
    recorded: [AtomicU64; RECORDED_COUNT],
    pub(crate) taint: AtomicU64,
    pub(crate) marks: Marks,
    handles: Padded<AtomicUsize>,
}

impl Block {
    pub(crate) fn new(
        device: &'static DeviceInner,
        address: Address,
        capacity_bytes: usize,
        class: u8,
        slab: u32,
        marks: Marks,
    ) -> Block {
        Block {
            id: device.next_block_id.fetch_add(1, Relaxed),
            device,
            address,
            capacity_bytes,
            class,
            slab,
            asked_bytes: AtomicUsize::new(0),
            traced: AtomicU64::new(0),
            recorded: std::array::from_fn(|_| AtomicU64::new(0)),
            taint: AtomicU64::new(0),
            marks,
            handles: Padded(AtomicUsize::new(0)),
        }
    }
}

impl Block {
    /// Notes that code outside of the runtime uses the block on a stream.
    pub(crate) fn record(&self, slot: usize) {
        self.recorded[slot / 64].fetch_or(1 << (slot % 64), Relaxed); // read after the handles' count reached 0
    }

    /// The slots noted, which are forgotten.
    #[inline]
    pub(crate) fn take_recorded(&mut self) -> impl Iterator<Item = usize> + use<> {
        let mut words: [u64; RECORDED_COUNT] = std::array::from_fn(|word| self.recorded[word].load(Relaxed));
        if words.iter().any(|word| *word != 0) {
            self.recorded.iter().for_each(|word| word.store(0, Relaxed));
        }
        std::iter::from_fn(move || {
            let word = words.iter().position(|word| *word != 0)?;
            let slot = words[word].trailing_zeros() as usize;
            words[word] &= words[word] - 1;
            Some(word * 64 + slot)
        })
    }
}

/// A block that is owned alone: in a magazine, the centre, or a list of free pieces. Made by `Box::into_raw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FreeBlock(pub(crate) NonNull<Block>);

// SAFETY: a block is `Sync` in all its parts, and whoever has the `FreeBlock` owns it alone.
unsafe impl Send for FreeBlock {}

impl FreeBlock {
    pub(crate) fn new(block: Block) -> FreeBlock {
        FreeBlock(NonNull::from(Box::leak(Box::new(block))))
    }

    pub(crate) fn get(&self) -> &Block {
        // SAFETY: made by `new`, and not given up by `destroy`, which takes the value for good.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut Block {
        // SAFETY: as for `get`; a free block is owned alone.
        unsafe { self.0.as_mut() }
    }

    /// Gives the block out, to one handle.
    #[inline]
    pub(crate) fn give(self, asked_bytes: usize) -> Buffer {
        let block = self.get();
        block.asked_bytes.store(asked_bytes, Relaxed); // whoever gets the buffer, gets it by a synchronised way
        block.handles.store(1, Relaxed);
        Buffer(self.0)
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

/// Device memory that handles share. Cloning counts a handle and copies nothing; the last one to go gives the memory
/// back, at once and without waiting, however much work that touches it is in flight.
pub struct Buffer(NonNull<Block>);

// SAFETY: the block is shared by counted handles and is `Sync` in all its parts (see the table at `Block`).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
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
            .then(|| unsafe { self.0.as_mut() }.marks.uses(own, is_complete))
    }

    /// Forgets the slots noted by `record`, which it returns. For whoever has the only handle.
    pub(crate) fn take_recorded(&mut self) -> impl Iterator<Item = usize> + use<> {
        debug_assert_eq!(self.handle_count(), 1);
        // SAFETY: as above.
        unsafe { self.0.as_mut() }.take_recorded()
    }

    /// Gives it out anew, for another number of bytes. For whoever has the only handle.
    pub(crate) fn give_again(&self, asked_bytes: usize) -> Buffer {
        debug_assert!(self.handle_count() == 1 && asked_bytes <= self.block().capacity_bytes);
        self.block().asked_bytes.store(asked_bytes, Relaxed);
        self.clone()
    }

    /// Is it the same memory?
    pub fn is(&self, other: &Buffer) -> bool {
        self.0 == other.0
    }

    /// How many handles share it at the moment.
    pub fn handle_count(&self) -> usize {
        self.block().handles.load(Relaxed)
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
            crate::alloc::free(FreeBlock(self.0));
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes on {})", self.size_bytes(), self.device().name())
    }
}
