//! What a machine lacks that GPUs are used by.

use raddle_hal::{BackendError, DeviceError};
use std::{error::Error, fmt};

/// Why a GPU can't be used, as a [`DeviceError::Backend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The driver is too old.
    OldDriver {
        /// Its version, major and minor.
        found: [u32; 2],
        /// The least that works.
        needed: [u32; 2],
    },
    /// A library that the device works with can't be loaded.
    MissingLibrary {
        /// Its name.
        library: &'static str,
        /// How to get it.
        remedy: &'static str,
    },
}

impl SetupError {
    fn told(self) -> DeviceError {
        DeviceError::Backend(BackendError::new(self))
    }

    /// Versions as the driver tells them: 12040 is 12.4.
    pub(crate) fn old_driver(found: i32, needed: i32) -> DeviceError {
        let parts = |version: i32| [version as u32 / 1000, version as u32 % 1000 / 10];
        SetupError::OldDriver { found: parts(found), needed: parts(needed) }.told()
    }

    pub(crate) fn missing(library: &'static str, remedy: &'static str) -> DeviceError {
        SetupError::MissingLibrary { library, remedy }.told()
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::OldDriver { found, needed } => write!(
                f,
                "the driver is too old, expected version {}.{} or later, found {}.{}",
                needed[0], needed[1], found[0], found[1]
            ),
            SetupError::MissingLibrary { library, remedy } => {
                write!(f, "{library} can't be loaded; {remedy}")
            }
        }
    }
}
impl Error for SetupError {}
