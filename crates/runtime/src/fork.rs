//! Forked children. A child has one thread and a copy of the memory, in which locks may be held for ever by threads that
//! exist only in the parent. So it never takes one of them: a flag is looked at first.
//!
//! With the CPU device a child goes on, serially: each op runs on the spot, under a lock of the child's own, without
//! marks. It reads what was complete when the process forked; a buffer that was still being written is an error. Any
//! other device gives a clear error at first use. The parent doesn't notice.

use crate::{
    Access, Buffer, Error, Result,
    block::{Block, FreeBlock, Source},
    device::DeviceInner,
    submit::Touch,
};
use raddle_hal::{Address, Launch, QueueId};
use raddle_sync::global::{AtomicBool, AtomicU32, Once, Ordering::*, yield_now};

/// How often this process descends by fork from the one that first opened a device.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Held for one op of a child, whose threads may be several by now.
static CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // The lock may have been held by a thread that is not here; atomics are safe in a handler.
    FORKS.fetch_add(1, Relaxed);
    CHILD.store(false, Relaxed);
}

/// Arranges for children to know. Once a process.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches atomics only, and lives as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

pub(crate) fn count() -> u32 {
    FORKS.load(Relaxed)
}

/// Was the device opened by a parent of this process?
#[inline]
pub(crate) fn is_child(device: &DeviceInner) -> bool {
    FORKS.load(Relaxed) != device.forks
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

fn check(device: &'static DeviceInner) -> Result<()> {
    if !device.hal.info().survives_fork {
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
        if !device.is_complete(touch.block.marks.last_write()) {
            return Err(Error::LostAtFork { device: device.name().into() });
        }
    }
    // SAFETY: after `after_fork` the device runs everything on the spot, one launch at a time (the turn), so everything
    // is ordered; the caller has checked the operands, and their blocks are never given back in a child.
    let result = unsafe {
        _ = device.hal.submit(QueueId(0), 0, &[], launch).map_err(|error| device.error(error))?;
        device.hal.run(QueueId(0), 0, launch)
    };
    result.map_err(|error| Error::Kernel { op, error, stream: 0, sequence: 0 })
}

/// Memory in a child: a slab for each buffer, kept for ever. Children that go on for long open a device of their own.
#[cold]
pub(crate) fn allocate(device: &'static DeviceInner, size_bytes: usize) -> Result<Buffer> {
    let _turn = Turn::take();
    check(device)?;
    let slab = device.hal.allocate_slab(size_bytes.max(1)).map_err(|error| device.error(error))?;
    let address = Address { handle: slab.handle, offset_bytes: 0 };
    let marks = crate::marks::Marks::new();
    let source = Source { class: crate::alloc::LARGE, slab: 0, pool: None };
    let block = Block::new(device, address, slab.size_bytes, source, marks);
    Ok(FreeBlock::new(block).give(size_bytes))
}
