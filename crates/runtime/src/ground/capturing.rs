//! Does this thread record its ops instead of submitting them? The switch alone: what is recorded, and where, is
//! [`graph::capture`](crate::graph)'s.

use super::{Core, Error, NotCapturable, Result};
use raddle_sync::fault;
use std::{cell::Cell, ptr};

// Without destructors, so that looking at them costs a load.
thread_local! {
    /// The device whose ops this thread records just now.
    static ON: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// The device of the recording that this thread has begun and not ended.
    static BEGUN: Cell<*const Core> = const { Cell::new(ptr::null()) };
}

/// Does this thread record the ops of a device?
#[inline]
pub(crate) fn is_on(device: &Core) -> bool {
    ptr::eq(ON.get(), device)
}

/// Has this thread begun a recording of a device, and not ended it? It may be [`uncaptured`] just now.
pub(crate) fn is_begun(device: &Core) -> bool {
    ptr::eq(BEGUN.get(), device)
}

/// This thread has begun a recording of a device.
pub(crate) fn begin(device: &'static Core) {
    BEGUN.set(device);
    ON.set(device);
}

/// It has ended it.
pub(crate) fn end(device: &'static Core) {
    if is_begun(device) {
        BEGUN.set(ptr::null());
    }
    if is_on(device) {
        ON.set(ptr::null());
    }
}

/// An error if this thread records the ops of a device.
#[inline]
pub(crate) fn refuse(device: &Core, op: &'static str, reason: NotCapturable) -> Result<()> {
    if is_on(device) { Err(refusal(device, op, reason)) } else { Ok(()) }
}

#[cold]
pub(crate) fn refusal(device: &Core, op: &'static str, reason: NotCapturable) -> Error {
    Error::NotCapturable { op, device: device.name().into(), reason }
}

/// Runs `body` as if nothing were captured by this thread: what it allocates is real, and what it submits runs now. For
/// state that is made at the first use and kept. A capture may begin and end inside.
pub fn uncaptured<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(*const Core);
    impl Drop for Restore {
        fn drop(&mut self) {
            // The recording may have ended meanwhile.
            let is_begun = !self.0.is_null() && ptr::eq(BEGUN.get(), self.0);
            let mut goes_on = is_begun;
            fault!(ended_capture_goes_on => goes_on = true);
            if goes_on {
                ON.set(self.0);
            }
        }
    }
    let _restore = Restore(ON.replace(ptr::null()));
    body()
}
