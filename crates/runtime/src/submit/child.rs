//! Ops of a forked child: each runs on the spot.

use super::{
    access::{Access, BlockAccess, with_scratch},
    witness,
};
use crate::{
    ground::{Error, Result, fork},
    order::Streams,
};
use raddle_hal::{Address, Launch, QueueId};
use raddle_sync::{atomic::Ordering::*, fault};

/// Runs a launch on the spot.
#[cold]
pub(crate) fn submit(
    device: &'static Streams,
    op: &'static str,
    launch: &Launch<'_>,
    touches: &[BlockAccess<'_>],
) -> Result<()> {
    let _turn = fork::Turn::take();
    fork::check(device)?;
    for touch in touches.iter().filter(|touch| touch.access == Access::Read) {
        let mut taint = touch.block.taint.load(Relaxed);
        fault!(child_forgets_failures => taint = 0);
        let failure = match taint {
            0 => Some(None),
            taint => device.taints.try_failure(taint, device),
        };
        let mut is_written = device.is_complete(touch.block.marks.last_write());
        fault!(child_reads_unwritten => is_written = true);
        match failure {
            Some(None) if is_written => {}
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
