//! What needs no GPU; the rest is in `conformance`.

use crate::{Cuda, driver};
use raddle_hal::{Device, DeviceError};
use raddle_sync::faults::{self, Fault, Planted};
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Tests that plant a fault, and those that it would break, run one by one.
pub fn quiet() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plants a fault for a test.
pub fn plant(fault: Fault) -> (Planted, MutexGuard<'static, ()>) {
    let turn = quiet();
    (faults::plant(fault), turn)
}

/// What a body says in a forked child, which has this thread only; false if it hangs.
pub fn in_child(body: impl FnOnce() -> bool) -> bool {
    /// A child that takes longer hangs.
    const TIME_S_MAX: u32 = 10;
    // SAFETY: the child runs the body, and ends without running anything else of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no handler is installed, so the signal ends the child.
        unsafe { libc::alarm(TIME_S_MAX) };
        let is_right = body();
        // SAFETY: it ends the child.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status == 0
}

#[test]
fn a_device_that_is_not_there_is_told() {
    let error = match Cuda::new(1_000) {
        Ok(cuda) => panic!("{} opens", cuda.info().name),
        Err(error) => error,
    };
    if driver::open::is_present() {
        assert!(matches!(error, DeviceError::NoDevice { .. } | DeviceError::Driver { .. }), "{error}");
    } else {
        assert!(error.to_string().starts_with("the CUDA driver (libcuda.so) can't be loaded; "), "{error}");
    }
}
