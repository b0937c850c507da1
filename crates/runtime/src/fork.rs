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
};
use raddle_hal::{Address, Launch, QueueId, Slab};
use raddle_sync::{
    fault,
    global::{AtomicBool, Ordering::*, yield_now},
    locks_at_fork,
};

/// Held for one op of a child, whose threads may be several by now.
static CHILD: AtomicBool = AtomicBool::new(false);
/// In place of a slab's number: the block has one of its own, which a child has allocated.
const OWN_SLAB: u32 = u32::MAX;

extern "C" fn in_child() {
    // The lock may have been held by a thread that is not here.
    CHILD.store(false, Relaxed);
    // A child writes no trace, and its only thread's record may have been locked by a thread that is not here.
    raddle_hal::trace::forked();
}

/// Arranges for children to know. A second handler, of threads that are the first at once, does no harm.
pub(crate) fn watch() {
    locks_at_fork::watch();
    static WATCHES: AtomicBool = AtomicBool::new(false);
    if !WATCHES.load(Acquire) {
        // SAFETY: the handler doesn't unwind and lives as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        WATCHES.store(true, Release); // with the Acquire above: whoever sees it may fork
    }
}

/// See [`locks_at_fork::fork_count`].
pub(crate) fn count() -> u32 {
    locks_at_fork::fork_count()
}

/// Was the device opened by a parent of this process?
#[inline]
pub(crate) fn is_child(device: &DeviceInner) -> bool {
    count() != device.forks && !fault!(child_takes_locks)
}

/// Has it stayed in the parent? Then nothing of it may be called here.
#[inline]
pub(crate) fn is_out_of_reach(device: &DeviceInner) -> bool {
    is_child(device) && !device.hal.info().survives_fork
}

struct Turn;

impl Turn {
    fn take() -> Turn {
        while CHILD.swap(true, Acquire) {
            yield_now();
        }
        Turn
    }
}
impl Drop for Turn {
    fn drop(&mut self) {
        CHILD.store(false, Release);
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
    // SAFETY: after `after_fork` the device runs everything on the spot, one launch at a time (the turn), so everything
    // is ordered; the caller has checked the operands, and their blocks are never given back in a child.
    let run = |launch: &Launch<'_>| unsafe {
        device.hal.submit(QueueId(0), 0, &[], launch).map(|_| device.hal.run(QueueId(0), 0, launch))
    };
    // SAFETY: it is run next.
    let scratch_bytes =
        if device.wants_prepared(launch) { unsafe { device.hal.prepare(launch) } } else { Ok(0) };
    let result = match (scratch_bytes, *launch) {
        (Ok(size_bytes @ 1..), Launch::Kernel { kernel, operands }) => {
            device.hal.allocate_slab(size_bytes).and_then(|slab| {
                let address = Address { handle: slab.handle, offset_bytes: 0 };
                let operands = with_scratch(operands, address, size_bytes);
                let result = run(&Launch::Kernel { kernel, operands: &operands });
                // SAFETY: it is this launch's, which is over.
                unsafe { device.hal.release_slab(slab) };
                result
            })
        }
        (scratch_bytes, _) => scratch_bytes.and_then(|_| run(launch)),
    };
    let result = result.map_err(|error| device.error(error))?;
    result.map_err(|error| Error::Kernel { op, error, stream: 0, sequence: 0 })?;
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

/// Memory in a child: a slab for each buffer, since what the parent's threads have cut and kept is behind their locks.
#[cold]
pub(crate) fn allocate(device: &'static DeviceInner, size_bytes: usize) -> Result<Buffer> {
    let _turn = Turn::take();
    check(device)?;
    if size_bytes == 0 {
        return Ok(device.empty());
    }
    let slab = device.hal.allocate_slab(size_bytes).map_err(|error| device.error(error))?;
    let address = Address { handle: slab.handle, offset_bytes: 0 };
    let source = Source { class: LARGE, index: OWN_SLAB, pool: None };
    let block = Block::new(device, address, slab.size_bytes, source, Marks::new());
    Ok(FreeBlock::new(block).give(size_bytes))
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
