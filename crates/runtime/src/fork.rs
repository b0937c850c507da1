//! Forked children. A child has one thread and a copy of the memory, in which locks may be held for ever by threads that
//! exist only in the parent. So it never takes one of them: a flag is looked at first. Locks of the process itself (who
//! is the CPU?) are taken by the fork before it happens, and are free on both sides of it.
//!
//! With the CPU device a child goes on, serially: each op runs on the spot, under a lock of the child's own, without
//! marks, and is complete when the call returns, so that streams, which it may use as before, order nothing. It reads
//! what was complete when the process forked; a buffer that was still being written is an error. What it allocates it
//! gives back; what the parent had stays as it is. Any other device gives a clear error at first use. The parent doesn't
//! notice.

use crate::{
    Access, Buffer, Error, Result,
    alloc::LARGE,
    block::{Block, FreeBlock, Source},
    device::{DeviceInner, with_scratch},
    marks::Marks,
    stream::StreamInner,
    submit::Touch,
    witness,
};
use raddle_hal::{Address, Launch, QueueId, Slab};
use raddle_sync::{
    fault,
    global::{AtomicU32, Ordering::*, yield_now},
    locks_at_fork,
};

/// Held for one op of a child, whose threads may be several by now: the count of forks of the process whose thread has it, 0
/// if none has. So what a child finds taken by a thread of its parent, which is not here, is free.
static TURN: AtomicU32 = AtomicU32::new(0);
/// In place of a slab's number: the block has one of its own, which a child has allocated.
const OWN_SLAB: u32 = u32::MAX;

/// See [`locks_at_fork::fork_count`].
pub(crate) fn count() -> u32 {
    locks_at_fork::fork_count()
}

/// Was the device opened by a parent of this process?
#[inline]
pub(crate) fn is_child(device: &DeviceInner) -> bool {
    count() != device.forks && !fault!(child_takes_locks)
}

/// To be asked when code of the user returns that a device has called: is this the child of a fork that it has made?
#[inline]
pub(crate) fn has_forked_in(device: &DeviceInner) -> bool {
    is_child(device) && !fault!(child_goes_on_as_parent)
}

/// Has it stayed in the parent? Then nothing of it may be called here.
#[inline]
pub(crate) fn is_out_of_reach(device: &DeviceInner) -> bool {
    is_child(device) && !device.hal.info().survives_fork
}

struct Turn;

impl Turn {
    fn take() -> Turn {
        let is_free = |holder: u32| (holder != count()).then_some(count());
        while TURN.fetch_update(Acquire, Relaxed, is_free).is_err() {
            yield_now();
        }
        Turn
    }
}
impl Drop for Turn {
    fn drop(&mut self) {
        TURN.store(0, Release);
    }
}

/// In a child: may it use the device? If so, nothing is in flight.
#[cold]
pub(crate) fn check(device: &'static DeviceInner) -> Result<()> {
    if !device.hal.info().survives_fork && !fault!(child_is_not_refused) {
        return Err(Error::Forked { device: device.name().into() });
    }
    if device.forks_seen.swap(count(), Relaxed) != count() {
        device.hal.after_fork();
    }
    Ok(())
}

/// Runs a launch on the spot.
#[cold]
pub(crate) fn submit(
    device: &'static DeviceInner,
    op: &'static str,
    launch: &Launch<'_>,
    touches: &[Touch<'_>],
) -> Result<()> {
    let _turn = Turn::take();
    check(device)?;
    for touch in touches.iter().filter(|touch| touch.access == Access::Read) {
        let failure = match touch.block.taint.load(Relaxed) {
            0 => Some(None),
            _ if fault!(child_forgets_failures) => Some(None),
            taint => device.taints.try_failure(taint, device),
        };
        match failure {
            Some(None)
                if device.is_complete(touch.block.marks.last_write()) || fault!(child_reads_unwritten) => {}
            Some(Some(failure)) => return Err(device.failed(failure)),
            _ => return Err(Error::LostAtFork { device: device.name().into() }),
        }
    }
    // SAFETY: the launch could be submitted; it is what runs next.
    let prepared = if device.wants_prepared(launch) { unsafe { device.hal.prepare(launch) } } else { Ok(0) };
    let size_bytes = prepared.map_err(|error| device.error(error))?;
    let scratch = match *launch {
        Launch::Kernel { kernel, operands } if size_bytes > 0 => {
            let slab = device.hal.allocate_slab(size_bytes).map_err(|error| device.error(error))?;
            let address = Address { handle: slab.handle, offset_bytes: 0 };
            Some((slab, kernel, with_scratch(operands, address, size_bytes)))
        }
        _ => None,
    };
    let whole = match &scratch {
        Some((_, kernel, operands)) => Launch::Kernel { kernel, operands },
        None => *launch,
    };
    // SAFETY: after `after_fork` the device runs everything on the spot, one launch at a time (the turn), so everything
    // is ordered; the caller has checked the operands, and their blocks are never given back in a child.
    let result = witness::tell(touches).then(|| unsafe {
        device.hal.submit(QueueId(0), 0, &[], &whole).map(|_| device.hal.run(QueueId(0), 0, &whole))
    });
    if let Some((slab, ..)) = scratch {
        // SAFETY: it is this launch's, which is over.
        unsafe { device.hal.release_slab(slab) };
    }
    let Some(result) = result else { return Ok(()) };
    let result = result.map_err(|error| device.error(error))?;
    result.map_err(|error| Error::Kernel { op, error, stream: 0, sequence: 0 })?;
    touches.iter().filter(|touch| touch.access == Access::Write).for_each(|touch| touch.block.count_write());
    // What it depended on in the parent is gone.
    let whole = touches.iter().filter(|touch| touch.access == Access::Write && touch.whole);
    whole.for_each(|touch| touch.block.taint.store(0, Relaxed));
    Ok(())
}

/// A stream that the parent hasn't made.
#[cold]
pub(crate) fn stream(device: &'static DeviceInner, slot: usize) -> Result<&'static StreamInner> {
    let _turn = Turn::take();
    check(device)?;
    match device.made(slot) {
        Some(stream) => Ok(stream),
        None => device.make_stream(slot),
    }
}

/// Memory in a child: see [`block`].
#[cold]
pub(crate) fn allocate(device: &'static DeviceInner, size_bytes: usize) -> Result<Buffer> {
    if size_bytes == 0 {
        check(device)?;
        return Ok(device.empty());
    }
    block(device, size_bytes).map(|block| block.give(size_bytes))
}

/// A slab for each block, since what the parent's threads have cut and kept is behind their locks.
#[cold]
pub(crate) fn block(device: &'static DeviceInner, size_bytes: usize) -> Result<FreeBlock> {
    let _turn = Turn::take();
    check(device)?;
    let slab = device.hal.allocate_slab(size_bytes).map_err(|error| device.error(error))?;
    let address = Address { handle: slab.handle, offset_bytes: 0 };
    let source = Source { class: LARGE, index: OWN_SLAB, pool: None };
    Ok(FreeBlock::new(Block::new(device, address, slab.size_bytes, source, Marks::new())))
}

/// Takes back a block whose last handle is gone in a child.
#[cold]
pub(crate) fn free(block: FreeBlock) {
    let (device, address) = (block.get().device, block.get().address);
    if block.get().source.index != OWN_SLAB {
        return; // the memory is the parent's
    }
    let _turn = Turn::take();
    // SAFETY: `allocate` made both, in a process that this one descends from; the last handle is gone, and whatever named
    // the slab is over, since each launch of a child is when its call returns.
    unsafe {
        device.hal.release_slab(Slab { handle: address.handle, size_bytes: block.get().capacity_bytes });
        block.destroy();
    }
}
