//! Large blocks: best fit among free pieces of slabs, split when much is left, merged when their uses are over.
//!
//! Guarantee: the pieces of a slab always tile it, each in one hand (a test keeps the sums). A piece that is split off
//! starts with the marks of the whole; only pieces with no use in flight are merged, so no mark is lost.
//!
//! A private pool is such a list, too, of finer pieces and for blocks of any size.

use crate::{
    alloc::LARGE,
    block::{Block, FreeBlock, Known, Source},
    device::DeviceInner,
    marks::{Marks, Uses},
    pool::PoolInner,
    tick::Tick,
};
use raddle_hal::{Address, Slab};
use raddle_sync::fault;
use std::collections::{BTreeMap, BTreeSet};

/// How finely a list cuts.
#[derive(Clone, Copy)]
pub(crate) struct Grain {
    /// Sizes are rounded up to it.
    round_bytes: usize,
    /// What is left of a piece is split off from this size on.
    split_bytes_min: usize,
    /// Slabs are at least so large, as long as the device has room.
    slab_bytes: usize,
}

impl Grain {
    /// Of the device's large blocks.
    pub(crate) const LARGE: Grain =
        Grain { round_bytes: 1 << 16, split_bytes_min: 1 << 18, slab_bytes: 32 << 20 }; // guesses
    /// Of private pools, whose blocks may be small. 256: the alignment of any device.
    pub(crate) const PRIVATE: Grain = Grain { round_bytes: 256, split_bytes_min: 256, slab_bytes: 2 << 20 }; // guesses

    /// The size of the piece that holds `size_bytes`; none if there is no such size.
    pub(crate) fn round(self, size_bytes: usize) -> Option<usize> {
        size_bytes
            .max(1)
            .checked_next_multiple_of(self.round_bytes)
            .filter(|&size| isize::try_from(size).is_ok())
    }

    /// The size of the slab to ask for.
    pub(crate) fn slab_bytes(self, wanted: usize) -> usize {
        wanted.max(self.slab_bytes)
    }
}

/// Free pieces looked at before the next larger one that needs no wait is given up on.
const LOOK_COUNT: usize = 16; // guess
/// Free bytes in flight, as a multiple of what is asked, past which a wait is better than growth.
const PENDING_RATIO_MAX: usize = 8; // guess

pub(crate) struct Piece {
    pub(crate) size_bytes: usize,
    pub(crate) known: Known,
    /// Here while it is free.
    pub(crate) free: Option<FreeBlock>,
}

impl Piece {
    fn new(block: Block) -> Piece {
        let (size_bytes, block) = (block.capacity_bytes, FreeBlock::new(block));
        // SAFETY: a block is destroyed after it has left its piece, which then goes, too, or with its slab.
        let known = unsafe { block.known() };
        Piece { size_bytes, known, free: Some(block) }
    }
}

pub(crate) struct LargeSlab {
    pub(crate) slab: Slab,
    /// By offset.
    pub(crate) pieces: BTreeMap<usize, Piece>,
}

pub(crate) struct Large {
    grain: Grain,
    slabs: Vec<Option<LargeSlab>>,
    /// (size, slab, offset) of every free piece.
    free: BTreeSet<(usize, u32, usize)>,
}

impl Large {
    pub(crate) fn new(grain: Grain) -> Large {
        Large { grain, slabs: Vec::new(), free: BTreeSet::new() }
    }

    /// The smallest free piece that fits and needs no wait. One that has to be waited for only with `anyway`, or when
    /// much is in flight already.
    pub(crate) fn take(
        &mut self,
        wanted: usize,
        slot: usize,
        anyway: bool,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<FreeBlock> {
        if let Some(key) = self.find(wanted, slot, &is_complete) {
            return Some(self.cut(key, wanted));
        }
        self.merge_all(&is_complete);
        if let Some(key) = self.find(wanted, slot, &is_complete) {
            return Some(self.cut(key, wanted));
        }
        let fits = || self.free.range((wanted, 0, 0)..);
        let much = fits().map(|(size, ..)| size).sum::<usize>() / PENDING_RATIO_MAX >= wanted;
        let key =
            (anyway || much && !fault!(growth_without_end)).then(|| fits().next().copied()).flatten()?;
        let mut block = self.cut(key, wanted);
        if fault!(forget_marks) {
            block.forget_uses();
        }
        Some(block)
    }

    fn find(
        &mut self,
        wanted: usize,
        slot: usize,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<(usize, u32, usize)> {
        let keys: Vec<_> = self.free.range((wanted, 0, 0)..).take(LOOK_COUNT).copied().collect();
        keys.into_iter().find(|&(_, slab, offset)| {
            self.free_block(slab, offset).uses(slot, &is_complete) != Uses::Pending
        })
    }

    fn slab(&mut self, slab: u32) -> &mut LargeSlab {
        self.slabs[slab as usize].as_mut().expect("a block's slab is in the list")
    }

    fn free_block(&mut self, slab: u32, offset: usize) -> &mut FreeBlock {
        let piece = self.slab(slab).pieces.get_mut(&offset).expect("a free piece is in its slab");
        piece.free.as_mut().expect("a piece in the free set is free")
    }

    /// Takes a free piece, and splits off what is too much.
    fn cut(&mut self, key: (usize, u32, usize), wanted: usize) -> FreeBlock {
        let (size_bytes, index, offset) = key;
        let Grain { split_bytes_min, round_bytes, .. } = self.grain;
        self.free.remove(&key);
        let slab = self.slab(index);
        let piece = slab.pieces.get_mut(&offset).expect("a free piece is in its slab");
        let mut block = piece.free.take().expect("a piece in the free set is free");
        let rest = size_bytes - wanted;
        if rest >= split_bytes_min {
            piece.size_bytes = wanted;
            block.set_capacity_bytes(wanted);
            let rest = if fault!(split_loses_bytes) { rest - round_bytes } else { rest };
            let marks = block.split_marks();
            let whole = block.get();
            let address = Address { offset_bytes: offset + wanted, ..whole.address };
            let split = Block::new(whole.device, address, rest, whole.source, marks);
            slab.pieces.insert(offset + wanted, Piece::new(split));
            self.free.insert((rest, index, offset + wanted));
        }
        block
    }

    /// A place in the list.
    fn vacancy(&mut self) -> u32 {
        let index = self.slabs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        index as u32
    }

    /// Takes a new slab in and cuts the first piece off it.
    pub(crate) fn add(
        &mut self,
        device: &'static DeviceInner,
        pool: Option<&'static PoolInner>,
        slab: Slab,
        wanted: usize,
    ) -> FreeBlock {
        let index = self.vacancy();
        let address = Address { handle: slab.handle, offset_bytes: 0 };
        let source = Source { class: LARGE, slab: index, pool };
        let piece = Piece::new(Block::new(device, address, slab.size_bytes, source, Marks::new()));
        self.slabs[index as usize] = Some(LargeSlab { slab, pieces: BTreeMap::from([(0, piece)]) });
        let key = (slab.size_bytes, index, 0);
        self.free.insert(key);
        self.cut(key, wanted)
    }

    /// Takes all slabs out, for another list. Every piece is free.
    pub(crate) fn take_slabs(&mut self) -> Vec<LargeSlab> {
        self.free.clear();
        std::mem::take(&mut self.slabs).into_iter().flatten().collect()
    }

    /// Takes slabs in whose pieces are all free.
    pub(crate) fn put_slabs(&mut self, slabs: Vec<LargeSlab>) {
        for mut slab in slabs {
            let index = self.vacancy();
            for (&offset, piece) in &mut slab.pieces {
                let block = piece.free.as_mut().expect("every piece is free");
                block.set_source(Source { class: LARGE, slab: index, pool: None });
                self.free.insert((piece.size_bytes, index, offset));
            }
            self.slabs[index as usize] = Some(slab);
        }
    }

    /// The slabs, to be shown.
    pub(crate) fn slabs(&mut self) -> impl Iterator<Item = &mut LargeSlab> {
        self.slabs.iter_mut().flatten()
    }

    /// Takes a block back, and merges it with free neighbours if no use of any is in flight.
    pub(crate) fn put(&mut self, block: FreeBlock, is_complete: impl Fn(Tick) -> bool) {
        let (index, offset) = (block.get().source.slab, block.get().address.offset_bytes);
        let size_bytes = block.get().capacity_bytes;
        let piece = self.slab(index).pieces.get_mut(&offset).expect("a block's piece is in its slab");
        debug_assert!(piece.free.is_none() && piece.size_bytes == size_bytes);
        piece.free = Some(block);
        self.free.insert((size_bytes, index, offset));
        let before = self.slab(index).pieces.range(..offset).next_back().map(|(&offset, _)| offset);
        self.merge_next(index, offset, &is_complete);
        if let Some(before) = before {
            self.merge_next(index, before, &is_complete);
        }
    }

    /// Merges a piece with the one behind it if both are free and over; tells whether it did.
    fn merge_next(&mut self, index: u32, offset: usize, is_complete: impl Fn(Tick) -> bool) -> bool {
        let pieces = &mut self.slab(index).pieces;
        let mut two = pieces.range_mut(offset..);
        let (Some((_, first)), Some((&next_offset, second))) = (two.next(), two.next()) else { return false };
        let (Some(own), Some(next)) = (&mut first.free, &mut second.free) else { return false };
        let over = |block: &mut FreeBlock| {
            block.uses(usize::MAX, &is_complete) == Uses::Over || fault!(merge_in_flight)
        };
        if !over(own) || !over(next) {
            return false;
        }
        let (first_bytes, second_bytes) = (first.size_bytes, second.size_bytes);
        first.size_bytes += second_bytes;
        own.set_capacity_bytes(first.size_bytes);
        let gone = pieces.remove(&next_offset).and_then(|piece| piece.free).expect("it was just seen free");
        // SAFETY: it has left its piece, the only place that had it.
        unsafe { gone.destroy() };
        self.free.remove(&(first_bytes, index, offset));
        self.free.remove(&(second_bytes, index, next_offset));
        self.free.insert((first_bytes + second_bytes, index, offset));
        true
    }

    fn merge_all(&mut self, is_complete: impl Fn(Tick) -> bool) {
        for index in 0..self.slabs.len() as u32 {
            let Some(slab) = &self.slabs[index as usize] else { continue };
            let mut next = slab.pieces.keys().next().copied();
            while let Some(offset) = next {
                if !self.merge_next(index, offset, &is_complete) {
                    next = self.slab(index).pieces.range(offset + 1..).next().map(|(&offset, _)| offset);
                }
            }
        }
    }

    /// Takes out the slabs that are one free piece with no use in flight.
    pub(crate) fn release_unused(&mut self, is_complete: impl Fn(Tick) -> bool) -> Vec<Slab> {
        self.merge_all(&is_complete);
        let mut released = Vec::new();
        for index in 0..self.slabs.len() {
            let Some(slab) = &mut self.slabs[index] else { continue };
            let Some(Piece { size_bytes, free: Some(block), .. }) = slab.pieces.get_mut(&0) else { continue };
            let whole = *size_bytes == slab.slab.size_bytes;
            if whole && block.uses(usize::MAX, &is_complete) == Uses::Over {
                // SAFETY: it leaves with its slab, the only place that has it.
                unsafe { block.destroy() };
                self.free.remove(&(*size_bytes, index as u32, 0));
                released.extend(self.slabs[index].take().map(|slab| slab.slab));
            }
        }
        released
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn check(&self) {
        let mut free = 0;
        for (index, slab) in
            self.slabs.iter().enumerate().filter_map(|(index, slab)| Some((index, slab.as_ref()?)))
        {
            let mut end = 0;
            for (&offset, piece) in &slab.pieces {
                assert_eq!(offset, end, "pieces tile their slab");
                end += piece.size_bytes;
                if let Some(block) = &piece.free {
                    free += 1;
                    assert_eq!(block.get().capacity_bytes, piece.size_bytes);
                    assert!(self.free.contains(&(piece.size_bytes, index as u32, offset)));
                }
            }
            assert_eq!(end, slab.slab.size_bytes);
        }
        assert_eq!(free, self.free.len());
    }
}
