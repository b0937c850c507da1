//! Whose the driver is: that of the process that has initialised it.
//!
//! A forked child has a copy of the driver's memory, without its threads and connections: calls there fail or wait for ever, as
//! may locks of ours that other threads held. So a child is refused by a look at numbers, before any of them. One whose parent
//! hasn't used the driver has a driver of its own.

use raddle_hal::DeviceError;
use raddle_sync::{
    fault,
    global::{AtomicU32, Ordering::*},
};

/// No process has this number.
const NOBODY: u32 = 0;

static OWNER: AtomicU32 = AtomicU32::new(NOBODY);

/// An error if a process that this one was forked from has initialised the driver.
#[inline]
pub fn check() -> Result<(), DeviceError> {
    match OWNER.load(Relaxed) {
        NOBODY => Ok(()),
        owner if owner == std::process::id() || fault!(child_opens_driver) => Ok(()),
        owner => Err(DeviceError::Forked { owner }),
    }
}

/// This process is about to initialise the driver.
pub fn claim() {
    // The numbers are of processes, not of threads: nobody else writes another one.
    _ = OWNER.compare_exchange(NOBODY, std::process::id(), Relaxed, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cuda, device_count, tests::quiet};
    use raddle_sync::faults::{Fault, assert_caught};

    /// A child that takes longer hangs.
    const TIME_S_MAX: u32 = 10;

    #[test]
    fn a_child_of_a_process_with_a_driver_is_refused() {
        let _quiet = quiet();
        claim();
        // SAFETY: the child looks at numbers, and ends without running anything else of this process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no handler is installed, so the signal ends the child.
            unsafe { libc::alarm(TIME_S_MAX) };
            let owner = OWNER.load(Relaxed);
            let refused = Err(DeviceError::Forked { owner });
            let is_refused = Cuda::new(0).map(drop) == refused && device_count().map(drop) == refused;
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!is_refused)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours, and `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child wasn't refused");
        // The parent isn't.
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn fault_child_opens_driver() {
        assert_caught(
            Fault::child_opens_driver,
            "process::tests::a_child_of_a_process_with_a_driver_is_refused",
        );
    }
}
