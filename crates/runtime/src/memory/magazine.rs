//! A thread's own store of free blocks, so that allocating and freeing take no lock that others want.
//!
//! Blocks whose uses are over, or ordered before the thread's next work, are `ready`; others are `pending`. Marks stay
//! with the block, so handing out a pending one is right, too: its first use waits. The store is bounded in bytes and
//! in blocks a class (T9); what is too much goes to the central lists. It is a lock that belongs to its thread, so the owner pays next
//! to nothing, and others can still take the whole store when memory runs out.
//!
//! Of large blocks it keeps the latest few as they are, for those who ask for that size again. What is kept here isn't split
//! or merged, so whoever finds nothing in the list takes it there before new memory is asked for.

use super::{
    block::FreeBlock,
    classes::{CLASS_COUNT, LARGE, class_size_bytes},
    large::Grain,
};
use crate::{
    ground::Core,
    order::{Tick, Uses},
};
use raddle_sync::{Biased, fault};
use std::{cell::Cell, collections::VecDeque};

/// Blocks of a class that a magazine keeps, of each kind, and their bytes. Few in tests, so that they meet the bound.
pub(crate) const BLOCK_COUNT_MAX: usize = if cfg!(test) { 2 } else { 64 }; // guess
pub(crate) const CLASS_BYTES_MAX: usize = 1 << 19; // guess
/// Large blocks that a magazine keeps, and their bytes. That is much, but it comes back before anybody asks for new memory.
pub(crate) const LARGE_COUNT_MAX: usize = 16; // guess
pub(crate) const LARGE_BYTES_MAX: usize = 256 << 20; // guess
/// Pending blocks looked at when none is ready.
const LOOK_COUNT: usize = 8; // guess

/// What a class keeps, bounded in blocks and bytes.
#[inline]
pub(crate) fn keep_count_max(class: usize) -> usize {
    /// Since each free asks, and a division takes as long as all the rest of it.
    const OF_CLASSES: [usize; CLASS_COUNT] = {
        let mut counts = [0; CLASS_COUNT];
        let mut class = 0;
        while class < CLASS_COUNT {
            let fit = CLASS_BYTES_MAX / class_size_bytes(class);
            let count = if fit < BLOCK_COUNT_MAX { fit } else { BLOCK_COUNT_MAX };
            counts[class] = if count > 2 { count } else { 2 };
            class += 1;
        }
        counts
    };
    OF_CLASSES[class]
}

#[derive(Default)]
pub(crate) struct CachedClass {
    ready: Vec<FreeBlock>,
    pending: VecDeque<FreeBlock>,
}

/// Counts since the last time that they were collected.
#[derive(Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) allocated_bytes: i64,
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
}

/// A thread's store, which others may visit.
pub(crate) type Magazine = Biased<ThreadCache>;

/// What a thread has of a device's memory. Its magazine is its own, and others visit it. What each allocation needs lies on the
/// first line, and no line is another thread's as well.
#[repr(C, align(128))]
pub(crate) struct Local {
    pub(crate) device: &'static Core,
    /// The slot of the stream that the thread's work goes to; none before the thread is bound.
    slot: Cell<Option<u8>>,
    pub(crate) magazine: Magazine,
}

// SAFETY: `slot` is touched only by the thread that the `Local` belongs to at the time: it is handed out under the lock of
// `idle_locals` and comes back by it. The rest is `Sync`.
unsafe impl Sync for Local {}
// SAFETY: as above.
unsafe impl Send for Local {}

impl Local {
    pub(crate) fn new(device: &'static Core) -> Local {
        Local { device, slot: Cell::new(None), magazine: Magazine::new(ThreadCache::new()) }
    }

    /// The slot of the stream that the thread's work goes to; of the default one before the thread is bound. This and what
    /// follows is for the thread that it belongs to.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot.get().map_or(0, usize::from)
    }

    /// Has the thread a stream?
    pub(crate) fn is_bound(&self) -> bool {
        self.slot.get().is_some()
    }

    #[inline]
    pub(crate) fn set_slot(&self, slot: Option<usize>) {
        self.slot.set(slot.map(|slot| slot as u8));
    }
}

/// What a magazine holds; in front what each allocation and free counts.
#[repr(C)]
pub(crate) struct ThreadCache {
    pub(crate) counts: Counts,
    /// Large blocks with their sizes, the one that came last at the end.
    large: Vec<(usize, FreeBlock)>,
    large_bytes: usize,
    classes: [CachedClass; CLASS_COUNT],
}

impl ThreadCache {
    pub(crate) fn new() -> ThreadCache {
        ThreadCache {
            counts: Counts::default(),
            large: Vec::new(),
            large_bytes: 0,
            classes: std::array::from_fn(|_| CachedClass::default()),
        }
    }

    /// A block that needs no wait, or nothing. With `anyway`, the oldest pending one if there is no other.
    #[inline]
    pub(crate) fn take(
        &mut self,
        class: usize,
        slot: usize,
        anyway: bool,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<FreeBlock> {
        let kept = &mut self.classes[class];
        if let Some(block) = kept.ready.pop() {
            if fault!(block_in_two_hands) {
                kept.ready.push(block);
            }
            return Some(block);
        }
        self.take_pending(class, slot, anyway, is_complete)
    }

    /// As `take`, when none is ready.
    #[inline(never)]
    fn take_pending(
        &mut self,
        class: usize,
        slot: usize,
        anyway: bool,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<FreeBlock> {
        let kept = &mut self.classes[class];
        for _ in 0..kept.pending.len().min(LOOK_COUNT) {
            let mut block = kept.pending.pop_front().expect("counted");
            match block.uses(slot, &is_complete) {
                Uses::Over | Uses::Ordered => kept.ready.push(block),
                Uses::Pending => kept.pending.push_back(block),
            }
        }
        kept.ready.pop().or_else(|| {
            // Full of what is in flight: a wait is better than growth without end.
            let mut full = kept.pending.len() >= keep_count_max(class);
            fault!(growth_without_end => full = false);
            let mut block = if full || anyway { kept.pending.pop_front() } else { None }?;
            if fault!(forget_marks) {
                block.forget_uses();
            }
            Some(block)
        })
    }

    /// The large block that came last of those that need no wait and would be given out whole for `wanted`, or nothing.
    #[inline]
    pub(crate) fn take_large(
        &mut self,
        wanted: usize,
        slot: usize,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<FreeBlock> {
        let position = self.large.iter_mut().rposition(|(size_bytes, block)| {
            Grain::LARGE.fits_whole(*size_bytes, wanted) && block.uses(slot, &is_complete) != Uses::Pending
        })?;
        let (size_bytes, block) = self.large.remove(position);
        self.large_bytes -= size_bytes;
        Some(block)
    }

    /// Puts a large block back; those that were put back longest ago make room.
    fn put_large(&mut self, block: FreeBlock, overflow: &mut Vec<FreeBlock>) {
        let size_bytes = block.get().capacity_bytes;
        self.large.push((size_bytes, block));
        self.large_bytes += size_bytes;
        while self.large.len() > LARGE_COUNT_MAX || self.large_bytes > LARGE_BYTES_MAX {
            let (size_bytes, block) = self.large.remove(0);
            self.large_bytes -= size_bytes;
            overflow.push(block);
        }
    }

    /// Puts a small block back that was never used, or whose uses are known to be over, if there is room: the shortest way.
    #[inline]
    pub(crate) fn put_unused(&mut self, block: FreeBlock) -> bool {
        let class = block.get().source.class as usize;
        let Some(kept) = self.classes.get_mut(class) else { return false };
        let has_room = block.is_unused() && kept.ready.len() < keep_count_max(class);
        if has_room {
            kept.ready.push(block);
        }
        has_room
    }

    /// Puts a block back. Of a full class the older half goes to `overflow`, so that a thread that only frees goes to the
    /// central lists rarely, and what was used last stays.
    #[inline(never)]
    pub(crate) fn put(
        &mut self,
        mut block: FreeBlock,
        slot: usize,
        is_complete: impl Fn(Tick) -> bool,
        overflow: &mut Vec<FreeBlock>,
    ) {
        let class = block.get().source.class;
        if class == LARGE {
            return self.put_large(block, overflow);
        }
        let class = class as usize;
        let CachedClass { ready, pending } = &mut self.classes[class];
        let (half, full) = (keep_count_max(class) / 2, keep_count_max(class));
        let uses = block.uses(slot, is_complete);
        if uses == Uses::Ordered {
            fault!(forget_ordered => block.forget_uses());
        }
        if uses == Uses::Pending {
            if pending.len() >= full {
                overflow.extend(pending.drain(..half));
            }
            pending.push_back(block);
        } else {
            if ready.len() >= full {
                overflow.extend(ready.drain(..half));
            }
            ready.push(block);
        }
    }

    /// Shows all blocks, which stay.
    pub(crate) fn visit(&mut self, mut look: impl FnMut(&mut FreeBlock)) {
        for kept in &mut self.classes {
            kept.ready.iter_mut().chain(&mut kept.pending).for_each(&mut look);
        }
        self.large.iter_mut().for_each(|(_, block)| look(block));
    }

    /// Takes the large blocks.
    pub(crate) fn drain_large(&mut self, into: &mut Vec<FreeBlock>) {
        into.extend(self.large.drain(..).map(|(_, block)| block));
        self.large_bytes = 0;
    }

    /// Takes everything.
    pub(crate) fn drain(&mut self, into: &mut Vec<FreeBlock>) {
        self.drain_large(into);
        for kept in &mut self.classes {
            into.append(&mut kept.ready);
            into.extend(kept.pending.drain(..));
        }
    }
}
