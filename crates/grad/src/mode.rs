//! Whether ops of this thread are recorded. The only state of this crate that isn't in a tensor.

use raddle_tensor::record::{is_recording, set_recording};
use std::marker::PhantomData;

/// Puts the thread's mode back when it is dropped.
#[must_use = "the mode lasts as long as the guard"]
#[derive(Debug)]
pub struct ModeGuard {
    was: bool,
    /// The mode is the thread's, so the guard stays there.
    _thread: PhantomData<*const ()>,
}

impl ModeGuard {
    /// Turns recording on or off until the guard is dropped.
    pub fn new(on: bool) -> ModeGuard {
        ModeGuard { was: set_recording(on), _thread: PhantomData }
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        set_recording(self.was);
    }
}

/// Runs `body` without recording on this thread: its results require no grad, and leaves may be changed in place.
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    let _guard = ModeGuard::new(false);
    body()
}

/// Runs `body` with recording on this thread, inside of [`no_grad`] too.
pub fn enable_grad<R>(body: impl FnOnce() -> R) -> R {
    let _guard = ModeGuard::new(true);
    body()
}

/// Are ops of this thread recorded?
pub fn is_grad_enabled() -> bool {
    is_recording()
}
