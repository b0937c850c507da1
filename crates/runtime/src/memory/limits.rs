//! How much memory a device may hold, and which buffer lies at an address.

use super::{block::BlockRef, buffer::Buffer, central::SmallSlab, large::Large, store::Memory};
use crate::ground::{Error, Result};
use raddle_hal::{Bounds, Slab};

/// Marks of how much memory a device may hold in slabs. At first they are as [`Limits`](raddle_hal::Limits) and the environment
/// say, or there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// A new slab past it is asked for only after what is unused in caches has been given back.
    pub low_bytes: usize,
    /// Past it there is no new slab.
    pub high_bytes: usize,
}

impl Watermarks {
    /// Those that a device begins with.
    pub(crate) fn of(bounds: &Bounds) -> Watermarks {
        Watermarks { low_bytes: bounds.memory_low_bytes, high_bytes: bounds.memory_high_bytes }
    }

    /// Is the low one, if there is one, not above the high one?
    pub(crate) fn check(self, op: &'static str, device: &str) -> Result<()> {
        let Watermarks { low_bytes, high_bytes } = self;
        if low_bytes > high_bytes && low_bytes != usize::MAX {
            return Err(Error::Watermarks { op, device: device.into(), low_bytes, high_bytes });
        }
        Ok(())
    }
}

impl Memory {
    /// A handle of the buffer in whose memory an address lies.
    pub(crate) fn buffer_at(&self, address: u64) -> Option<Buffer> {
        let offset = |slab: &Slab| {
            let offset = usize::try_from(address.checked_sub(slab.handle)?).ok()?;
            (offset < slab.size_bytes).then_some(offset)
        };
        let in_small = |slab: &SmallSlab| -> Option<BlockRef> {
            let block_bytes = slab.slab.size_bytes / slab.blocks.len();
            slab.blocks.get(offset(&slab.slab)? / block_bytes).copied()
        };
        let in_large = |large: &Large| {
            large.slabs().find_map(|(slab, mut pieces)| {
                let offset = offset(&slab)?;
                pieces
                    .find(|piece| offset - piece.offset_bytes < piece.size_bytes)
                    .map(|piece| piece.reference)
            })
        };
        // The handle is taken under the lock of the list, so that the block isn't destroyed meanwhile.
        for list in &self.central {
            let list = list.lock();
            if let Some(block) = list.slabs.iter().flatten().find_map(in_small) {
                return self.share(block);
            }
        }
        let private = self.pools();
        for large in private.iter().map(|pool| &pool.large).chain([&self.large]) {
            let large = large.lock();
            if let Some(block) = in_large(&large) {
                return self.share(block);
            }
        }
        let foreign = self.foreign.lock();
        let has = |block: &&BlockRef| {
            let (start, size_bytes) = block.adopted_range();
            address.checked_sub(start.number()).is_some_and(|offset| offset < size_bytes as u64)
        };
        // Several may have the same memory: one that is alive.
        foreign.blocks().filter(has).find_map(|block| self.share(*block))
    }
}
