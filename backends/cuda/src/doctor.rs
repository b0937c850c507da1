//! What of CUDA is installed, what works, and how to get what is missing.

use crate::{Cuda, compile, driver, matmul};
use raddle_hal::{Device, DeviceError};

/// A device and whether it can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    /// `cuda:0`, …
    pub name: String,
    /// What it is, in words; nothing if even that can't be told.
    pub description: String,
    /// All of its memory.
    pub memory_bytes: usize,
    /// Free at the moment.
    pub free_bytes: usize,
    /// What keeps it from being used.
    pub why: Option<String>,
}

/// A library and whether it is found.
#[derive(Clone, Debug, PartialEq)]
pub struct LibraryReport {
    /// What it is called.
    pub name: &'static str,
    /// Its version, if it is found and says so.
    pub version: Option<String>,
    /// How to get it.
    pub remedy: &'static str,
    /// Can it be loaded?
    pub is_found: bool,
}

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The driver, NVRTC, cuBLASLt.
    pub libraries: Vec<LibraryReport>,
    /// Those that the driver shows.
    pub devices: Vec<DeviceReport>,
    /// Why the driver shows none, if it fails.
    pub driver_error: Option<String>,
}

fn version_of(number: usize) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Looks at everything. Opens each device and runs a kernel on it; blocks for a second or so.
pub fn report() -> Report {
    let library = |name, remedy, is_found: bool, version: &dyn Fn() -> Option<String>| LibraryReport {
        name,
        version: if is_found { version() } else { None },
        remedy,
        is_found,
    };
    let libraries = vec![
        library(driver::LIBRARY, driver::REMEDY, driver::open::is_present(), &|| {
            Some(version_of(driver::open::version() as usize))
        }),
        library(compile::LIBRARY, compile::REMEDY, compile::is_present(), &|| {
            compile::version().ok().map(|(major, minor)| format!("{major}.{minor}"))
        }),
        library(matmul::LIBRARY, matmul::REMEDY, matmul::is_present(), &|| {
            let version = matmul::version();
            Some(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
        }),
    ];
    let (count, driver_error) = match crate::device_count() {
        Ok(count) => (count, None),
        Err(error) => (0, Some(error.to_string())),
    };
    Report { libraries, devices: (0..count).map(device).collect(), driver_error }
}

fn device(ordinal: usize) -> DeviceReport {
    let card = driver::open::card(ordinal);
    let memory_bytes = card.as_ref().map_or(0, |card| card.memory_bytes);
    let description = card.map_or_else(|_| String::new(), |card| card.name);
    let tried = try_out(ordinal);
    let free_bytes = tried.as_ref().map_or(0, |free_bytes| *free_bytes);
    let why = tried.err().map(|error| error.to_string());
    DeviceReport { name: format!("cuda:{ordinal}"), description, memory_bytes, free_bytes, why }
}

/// Opens a device and runs a kernel. The bytes that are free.
fn try_out(ordinal: usize) -> Result<usize, DeviceError> {
    let cuda = Cuda::new(ordinal)?;
    let queue = raddle_hal::QueueId(0);
    cuda.open_queue(queue, raddle_hal::Priority::Normal)?;
    cuda.control().launch_empty(queue, 1)?;
    cuda.0.matmul()?;
    Ok(cuda.0.context.enter()?.mem_info()?.0)
}
