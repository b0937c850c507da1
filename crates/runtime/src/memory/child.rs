//! Memory in a forked child: a slab for each block, since what the parent's threads have cut and kept is behind their locks.

use super::{
    block::{Block, FreeBlock, Source},
    classes::LARGE,
};
use crate::{
    ground::{Core, Result, fork},
    order::Marks,
};
use raddle_hal::{Address, Slab};

/// In place of a slab's number: the block has one of its own, which a child has allocated.
const OWN_SLAB: u32 = u32::MAX;

/// A block of so many bytes.
#[cold]
pub(crate) fn block(device: &'static Core, size_bytes: usize) -> Result<FreeBlock> {
    let _turn = fork::Turn::take();
    fork::check(device)?;
    let slab = device.hal.allocate_slab(size_bytes).map_err(|error| device.error(error))?;
    let address = Address { handle: slab.handle, offset_bytes: 0 };
    let source = Source { class: LARGE, index: OWN_SLAB, pool: 0 };
    Ok(FreeBlock::new(Block::new(device, address, slab.size_bytes, source, Marks::new())))
}

/// Takes back a block whose last handle is gone in a child.
#[cold]
pub(crate) fn free(block: FreeBlock) {
    let (device, address) = (block.get().device, block.get().address);
    if block.get().source.index != OWN_SLAB {
        return; // the memory is the parent's
    }
    let _turn = fork::Turn::take();
    // SAFETY: `block` made both, in a process that this one descends from; the last handle is gone, and whatever named
    // the slab is over, since each launch of a child is when its call returns.
    unsafe {
        device.hal.release_slab(Slab { handle: address.handle, size_bytes: block.get().capacity_bytes });
        block.destroy();
    }
}
