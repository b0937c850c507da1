//! Forked children. A child has one thread and a copy of the memory, in which locks may be held for ever by threads that
//! exist only in the parent. So it never takes one of them: a flag is looked at first. Locks of the process itself (who
//! is the CPU?) are taken by the fork before it happens, and are free on both sides of it.
//!
//! With the CPU device a child goes on, serially: each op runs on the spot, under a lock of the child's own, without
//! marks, and is complete when the call returns, so that streams, which it may use as before, order nothing. It reads
//! what was complete when the process forked; a buffer that was still being written is an error. What it allocates it
//! gives back; what the parent had stays as it is. Any other device gives a clear error at first use. The parent doesn't
//! notice.

use super::{Core, Error, Result};
use raddle_sync::{
    fault,
    global::{AtomicU32, Ordering::*, yield_now},
    locks_at_fork,
};

/// Held for one op of a child, whose threads may be several by now: the count of forks of the process whose thread has it, 0
/// if none has. So what a child finds taken by a thread of its parent, which is not here, is free.
static TURN: AtomicU32 = AtomicU32::new(0);

/// See [`locks_at_fork::fork_count`].
pub(crate) fn count() -> u32 {
    locks_at_fork::fork_count()
}

/// Was the device opened by a parent of this process?
#[inline]
pub(crate) fn is_child(device: &Core) -> bool {
    fault!(child_takes_locks => return false);
    count() != device.forks
}

/// To be asked when code of the user returns that a device has called: is this the child of a fork that it has made?
#[inline]
pub(crate) fn has_forked_in(device: &Core) -> bool {
    fault!(child_goes_on_as_parent => return false);
    is_child(device)
}

/// Has it stayed in the parent? Then nothing of it may be called here.
#[inline]
pub(crate) fn is_out_of_reach(device: &Core) -> bool {
    is_child(device) && !device.hal.info().survives_fork
}

/// See [`TURN`].
pub(crate) struct Turn;

impl Turn {
    pub(crate) fn take() -> Turn {
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
pub(crate) fn check(device: &Core) -> Result<()> {
    let mut is_refused = !device.hal.info().survives_fork;
    fault!(child_is_not_refused => is_refused = false);
    if is_refused {
        return Err(Error::Forked { device: device.name().into() });
    }
    if device.forks_seen.swap(count(), Relaxed) != count() {
        device.hal.after_fork();
    }
    Ok(())
}
