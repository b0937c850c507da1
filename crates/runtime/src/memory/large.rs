//! Large blocks: best fit among free pieces of slabs, split when much is left, merged when their uses are over.
//!
//! Guarantee: the pieces of a slab always tile it, each in one hand (a test keeps the sums). A piece that is split off
//! starts with the marks of the whole; only pieces with no use in flight are merged, so no mark is lost.
//!
//! Pieces know their neighbours, and free ones stand in bins by size, so that taking, splitting and merging touch a few
//! pieces whatever number there is. What looks at all of them comes before more memory is asked for.
//!
//! A private pool is such a list, too, of finer pieces and for blocks of any size.

use super::{
    bins::{Bins, NONE},
    block::{Block, BlockRef, FreeBlock, Source},
    classes::LARGE,
};
use crate::{
    ground::Core,
    order::{Marks, Tick, Uses},
};
use raddle_hal::{Address, Bounds, Slab};
use raddle_sync::fault;
use std::iter;

/// How finely a list cuts.
#[derive(Clone, Copy)]
pub(crate) struct Grain {
    /// Sizes are rounded up to it.
    round_bytes: usize,
    /// What is left of a piece is split off from this size on.
    split_bytes_min: usize,
    /// Slabs are at least so large, as long as the device has room.
    slab_bytes_min: usize,
}

impl Grain {
    /// Of the device's large blocks; but for `round_bytes` guesses. With 64 KiB the trace `inference` peaks at 26.7 MiB on a
    /// device that completes at once and at 28.3 on one that completes when somebody waits; with 32, 16 or 4 at 25.6 and 26.5.
    pub(crate) const LARGE: Grain =
        Grain { round_bytes: 1 << 15, split_bytes_min: 1 << 18, slab_bytes_min: 1 << 16 };
    /// Of private pools, whose blocks may be small. 256: the alignment of any device.
    pub(crate) const PRIVATE: Grain =
        Grain { round_bytes: 256, split_bytes_min: 256, slab_bytes_min: 2 << 20 }; // guesses

    /// The size of the piece that holds `size_bytes`; none if there is no such size.
    pub(crate) fn round(self, size_bytes: usize) -> Option<usize> {
        size_bytes
            .max(1)
            .checked_next_multiple_of(self.round_bytes)
            .filter(|&size| isize::try_from(size).is_ok())
    }

    /// Is a piece of that size given out whole for what is rounded to `wanted`?
    #[inline]
    pub(crate) fn fits_whole(self, size_bytes: usize, wanted: usize) -> bool {
        size_bytes >= wanted && size_bytes - wanted < self.split_bytes_min
    }
}

/// A slab has at least this part of what the list has, so that there are few of them, and little is left over. Peaks of the
/// three traces in `benches` with 4, 8, 16, 32, in MiB, whenever work is complete: 402, 381, 339, 339; 28, 31, 27, 26; 173,
/// 148, 127, 126.
const SLAB_PART: usize = 32;

/// Free pieces looked at before the list is tidied up, and all of them are.
const LOOK_COUNT: usize = 16; // guess
/// Blocks without memory that are kept for the next pieces.
pub(crate) const SPARE_COUNT_MAX: usize = 64; // guess

#[derive(Clone, Copy)]
pub(crate) struct LargePiece {
    pub(crate) offset_bytes: usize,
    pub(crate) size_bytes: usize,
    pub(crate) reference: BlockRef,
    /// Here while it is free.
    pub(crate) free: Option<FreeBlock>,
    /// Its neighbours in the slab.
    previous: u32,
    next: u32,
}

struct LargeSlab {
    slab: Slab,
    /// The piece that it starts with.
    first: u32,
}

pub(crate) struct Large {
    grain: Grain,
    /// Of the limits.
    slab_bytes_max: usize,
    pending_ratio: usize,
    slabs: Vec<LargeSlab>,
    slab_bytes: usize,
    /// Blocks name their piece by its index.
    pieces: Vec<LargePiece>,
    /// Indices of `pieces` that can be used again.
    vacant: Vec<u32>,
    spare: Vec<FreeBlock>,
    free: Bins,
}

impl Large {
    pub(crate) fn new(grain: Grain, bounds: &Bounds) -> Large {
        Large::empty(grain, bounds.slab_bytes, bounds.pending_ratio)
    }

    fn empty(grain: Grain, slab_bytes_max: usize, pending_ratio: usize) -> Large {
        Large {
            grain,
            slab_bytes_max,
            pending_ratio,
            slabs: Vec::new(),
            slab_bytes: 0,
            pieces: Vec::new(),
            vacant: Vec::new(),
            spare: Vec::new(),
            free: Bins::new(grain.round_bytes),
        }
    }

    /// The size of the slab to ask for.
    pub(crate) fn slab_bytes(&self, wanted: usize) -> usize {
        let part = (self.slab_bytes / SLAB_PART).next_multiple_of(self.grain.round_bytes);
        wanted.max(part.max(self.grain.slab_bytes_min).min(self.slab_bytes_max))
    }

    /// A small one of the free pieces that fit and need no wait, of the first few.
    pub(crate) fn take(
        &mut self,
        wanted: usize,
        slot: usize,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<FreeBlock> {
        let index = self.find(wanted, slot, LOOK_COUNT, is_complete)?;
        Some(self.cut(index, wanted))
    }

    /// As `take`, of all, merged as far as they can be. One that has to be waited for only with `anyway`, or when much is in
    /// flight already.
    pub(crate) fn take_of_all(
        &mut self,
        wanted: usize,
        slot: usize,
        anyway: bool,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<FreeBlock> {
        self.merge_all(&is_complete);
        let look_count = if fault!(growth_without_end) { LOOK_COUNT } else { usize::MAX };
        if let Some(index) = self.find(wanted, slot, look_count, &is_complete) {
            return Some(self.cut(index, wanted));
        }
        let fits = || self.free.from(wanted).filter(|&index| self.piece(index).size_bytes >= wanted);
        let size_bytes = |index| self.piece(index).size_bytes;
        let mut much = fits().map(size_bytes).sum::<usize>() / self.pending_ratio >= wanted;
        fault!(growth_without_end => much = false);
        let index = if anyway || much {
            fits().min_by_key(|&index| size_bytes(index))?
        } else {
            return None;
        };
        let mut block = self.cut(index, wanted);
        if fault!(forget_marks) {
            block.forget_uses();
        }
        Some(block)
    }

    /// The smallest that fits and needs no wait of the first bin that has one, of so many pieces.
    fn find(
        &self,
        wanted: usize,
        slot: usize,
        look_count: usize,
        is_complete: impl Fn(Tick) -> bool,
    ) -> Option<u32> {
        let mut best: Option<(usize, usize, u32)> = None;
        for index in self.free.from(wanted).take(look_count) {
            let LargePiece { size_bytes, free, .. } = *self.piece(index);
            let bin = self.free.bin(size_bytes);
            if best.is_some_and(|(found, ..)| found < bin) {
                break;
            }
            if size_bytes < wanted || best.is_some_and(|(_, found_bytes, _)| found_bytes <= size_bytes) {
                continue;
            }
            let mut block = free.expect("a piece in a bin is free");
            if block.uses(slot, &is_complete) != Uses::Pending {
                if size_bytes == wanted {
                    return Some(index);
                }
                best = Some((bin, size_bytes, index));
            }
        }
        best.map(|(.., index)| index)
    }

    #[inline]
    fn piece(&self, index: u32) -> &LargePiece {
        &self.pieces[index as usize]
    }

    #[inline]
    fn piece_mut(&mut self, index: u32) -> &mut LargePiece {
        &mut self.pieces[index as usize]
    }

    /// Makes it free, for whoever finds it.
    fn put_in_bin(&mut self, index: u32, block: FreeBlock) {
        let piece = self.piece_mut(index);
        piece.free = Some(block);
        let size_bytes = piece.size_bytes;
        self.free.insert(index, size_bytes);
    }

    /// Takes a free piece, and splits off what is too much.
    fn cut(&mut self, index: u32, wanted: usize) -> FreeBlock {
        let piece = self.piece_mut(index);
        let mut block = piece.free.take().expect("a piece in a bin is free");
        let LargePiece { offset_bytes, size_bytes, next, .. } = *piece;
        self.free.remove(index, size_bytes);
        let Grain { round_bytes, .. } = self.grain;
        if self.grain.fits_whole(size_bytes, wanted) {
            return block;
        }
        let rest = size_bytes - wanted;
        self.piece_mut(index).size_bytes = wanted;
        block.set_capacity_bytes(wanted);
        let rest = if fault!(split_loses_bytes) { rest - round_bytes } else { rest };
        let marks = if fault!(split_forgets_marks) { Marks::new() } else { block.split_marks() };
        let Block { device, address, source, .. } = *block.get();
        let address = Address { offset_bytes: offset_bytes + wanted, ..address };
        let split = self.add_piece(device, source.pool, address, rest, marks);
        let split_piece = self.piece_mut(split);
        (split_piece.previous, split_piece.next) = (index, next);
        self.piece_mut(index).next = split;
        if next != NONE {
            self.piece_mut(next).previous = split;
        }
        block
    }

    /// A free piece with no neighbours yet.
    fn add_piece(
        &mut self,
        device: &'static Core,
        pool: u32,
        address: Address,
        size_bytes: usize,
        marks: Marks,
    ) -> u32 {
        let index = self.vacant.pop().unwrap_or(self.pieces.len() as u32);
        let source = Source { class: LARGE, index, pool };
        let made = Block::new(device, address, size_bytes, source, marks);
        let block = match self.spare.pop() {
            // SAFETY: it has left its piece, by which alone others look at it, and they do under the lock that is held.
            Some(spare) => unsafe { spare.renew(made) },
            None => FreeBlock::new(made),
        };
        // SAFETY: a block is destroyed, or becomes a spare one, after it has left its piece.
        let reference = unsafe { block.reference() };
        let offset_bytes = address.offset_bytes;
        let piece =
            LargePiece { offset_bytes, size_bytes, reference, free: None, previous: NONE, next: NONE };
        self.set_piece(index, piece);
        self.put_in_bin(index, block);
        index
    }

    fn set_piece(&mut self, index: u32, piece: LargePiece) {
        match self.pieces.get_mut(index as usize) {
            Some(place) => *place = piece,
            None => self.pieces.push(piece),
        }
    }

    /// Takes a new slab in and cuts the first piece off it.
    pub(crate) fn add(&mut self, device: &'static Core, pool: u32, slab: Slab, wanted: usize) -> FreeBlock {
        let address = Address { handle: slab.handle, offset_bytes: 0 };
        let first = self.add_piece(device, pool, address, slab.size_bytes, Marks::new());
        self.add_slab(slab, first);
        self.cut(first, wanted)
    }

    fn add_slab(&mut self, slab: Slab, first: u32) {
        self.slabs.push(LargeSlab { slab, first });
        self.slab_bytes += slab.size_bytes;
    }

    /// Takes all slabs out with their pieces, for another list. Every piece is free.
    pub(crate) fn take_slabs(&mut self) -> Vec<(Slab, Vec<LargePiece>)> {
        let slabs = self.slabs().map(|(slab, pieces)| (slab, pieces.copied().collect())).collect();
        self.destroy_spare();
        *self = Large::empty(self.grain, self.slab_bytes_max, self.pending_ratio);
        slabs
    }

    /// Takes slabs in whose pieces are all free.
    pub(crate) fn put_slabs(&mut self, slabs: Vec<(Slab, Vec<LargePiece>)>) {
        for (slab, pieces) in slabs {
            let (mut first, mut previous) = (NONE, NONE);
            for piece in pieces {
                let index = self.vacant.pop().unwrap_or(self.pieces.len() as u32);
                let mut block = piece.free.expect("every piece is free");
                block.set_source(Source { class: LARGE, index, pool: 0 });
                self.set_piece(index, LargePiece { previous, next: NONE, ..piece });
                self.put_in_bin(index, block);
                match previous {
                    NONE => first = index,
                    previous => self.piece_mut(previous).next = index,
                }
                previous = index;
            }
            self.add_slab(slab, first);
        }
    }

    /// The slabs and their pieces, to be looked at.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = (Slab, impl Iterator<Item = &LargePiece>)> {
        let at = |index: u32| (index != NONE).then(|| self.piece(index));
        self.slabs
            .iter()
            .map(move |large| (large.slab, iter::successors(at(large.first), move |piece| at(piece.next))))
    }

    /// Takes a block back, and merges it with free neighbours if no use of any is in flight.
    pub(crate) fn put(&mut self, block: FreeBlock, is_complete: impl Fn(Tick) -> bool) {
        let index = block.get().source.index;
        let piece = self.piece(index);
        debug_assert!(piece.free.is_none() && piece.size_bytes == block.get().capacity_bytes);
        let previous = piece.previous;
        self.put_in_bin(index, block);
        self.merge_next(index, &is_complete);
        if previous != NONE {
            self.merge_next(previous, &is_complete);
        }
    }

    /// Merges a piece with the one behind it if both are free and over; tells whether it did.
    fn merge_next(&mut self, index: u32, is_complete: impl Fn(Tick) -> bool) -> bool {
        let first = *self.piece(index);
        if first.next == NONE {
            return false;
        }
        let second = *self.piece(first.next);
        let (Some(mut own), Some(mut other)) = (first.free, second.free) else { return false };
        let over = |block: &mut FreeBlock| {
            fault!(merge_in_flight => return true);
            block.uses(usize::MAX, &is_complete) == Uses::Over
        };
        if !over(&mut own) || !over(&mut other) {
            return false;
        }
        self.free.remove(index, first.size_bytes);
        self.remove_piece(first.next);
        let piece = self.piece_mut(index);
        piece.size_bytes += second.size_bytes;
        piece.next = second.next;
        own.set_capacity_bytes(piece.size_bytes);
        if second.next != NONE {
            self.piece_mut(second.next).previous = index;
        }
        self.put_in_bin(index, own);
        true
    }

    /// Takes a free piece out of its bin and the list.
    fn remove_piece(&mut self, index: u32) {
        let LargePiece { size_bytes, free, .. } = *self.piece(index);
        self.free.remove(index, size_bytes);
        self.vacant.push(index);
        self.spare.extend(free);
        if self.spare.len() > SPARE_COUNT_MAX {
            self.destroy_spare();
        }
    }

    fn destroy_spare(&mut self) {
        for block in self.spare.drain(..) {
            // SAFETY: it has left its piece, the only place that had it.
            unsafe { block.destroy() };
        }
    }

    fn merge_all(&mut self, is_complete: impl Fn(Tick) -> bool) {
        for slab in 0..self.slabs.len() {
            let mut index = self.slabs[slab].first;
            while index != NONE {
                if !self.merge_next(index, &is_complete) {
                    index = self.piece(index).next;
                }
            }
        }
    }

    /// Takes out the slabs that are one free piece with no use in flight.
    pub(crate) fn release_unused(&mut self, is_complete: impl Fn(Tick) -> bool) -> Vec<Slab> {
        self.merge_all(&is_complete);
        let slabs = std::mem::take(&mut self.slabs);
        let (unused, used): (Vec<_>, Vec<_>) = slabs.into_iter().partition(|LargeSlab { slab, first }| {
            let LargePiece { size_bytes, free, .. } = *self.piece(*first);
            size_bytes == slab.size_bytes
                && free.is_some_and(|mut block| block.uses(usize::MAX, &is_complete) == Uses::Over)
        });
        self.slabs = used;
        let release = |LargeSlab { slab, first }| {
            self.remove_piece(first);
            self.slab_bytes -= slab.size_bytes;
            slab
        };
        let released = unused.into_iter().map(release).collect();
        self.destroy_spare();
        released
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn check(&self) {
        let (mut free, mut slab_bytes) = (0, 0);
        for (slab, pieces) in self.slabs() {
            let mut end = 0;
            for piece in pieces {
                assert_eq!(piece.offset_bytes, end, "pieces tile their slab");
                end += piece.size_bytes;
                if let Some(block) = &piece.free {
                    free += 1;
                    assert_eq!(block.get().capacity_bytes, piece.size_bytes);
                    let index = block.get().source.index;
                    assert_eq!(self.piece(index).reference, piece.reference);
                    assert!(self.free.from(piece.size_bytes).any(|other| other == index));
                }
            }
            assert_eq!(end, slab.size_bytes);
            slab_bytes += slab.size_bytes;
        }
        assert_eq!((free, slab_bytes), (self.free.from(0).count(), self.slab_bytes));
    }
}
