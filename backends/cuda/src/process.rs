//! Whose the driver is: that of the process that has initialized it.
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

/// An error if a process that this one was forked from has initialized the driver.
#[inline]
pub fn check() -> Result<(), DeviceError> {
    match OWNER.load(Relaxed) {
        NOBODY => Ok(()),
        owner if owner == std::process::id() => Ok(()),
        owner => {
            fault!(child_opens_driver => return Ok(()));
            Err(DeviceError::Forked { owner })
        }
    }
}

/// This process is about to initialize the driver.
pub fn claim() {
    // The numbers are of processes, not of threads: nobody else writes another one.
    _ = OWNER.compare_exchange(NOBODY, std::process::id(), Relaxed, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cuda, device_count,
        tests::{in_child, quiet},
    };
    use raddle_sync::faults::{Fault, assert_caught};

    #[test]
    fn a_child_of_a_process_with_a_driver_is_refused() {
        let _quiet = quiet();
        claim();
        let is_refused = in_child(|| {
            let refused = Err(DeviceError::Forked { owner: OWNER.load(Relaxed) });
            Cuda::new(0).map(drop) == refused && device_count().map(drop) == refused
        });
        assert!(is_refused, "the child wasn't refused");
        // The parent isn't.
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn fault_child_opens_driver() {
        for test in [
            "process::tests::a_child_of_a_process_with_a_driver_is_refused",
            "inside::tests::a_child_leaves_the_counts_alone",
        ] {
            assert_caught(Fault::child_opens_driver, test);
        }
    }
}
