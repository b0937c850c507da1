//! CUDA as a device, over the driver; nothing of it is linked, so one program runs with and without a GPU.
//!
//! - `driver`: its calls, checked. `queue`: a stream, its events and its progress. `transfers`, `staging`: copies through
//!   pinned memory. `errors`: launches that fail on the device.
//! - [`kernels`] plans a launch as [steps](plan), and writes their source; `compile` and `disk` make what is
//!   launched, a `Cache` and each thread (`local`) keep it; `matmul` asks cuBLASLt.
//! - `graph`: recorded kernels as executable graphs.
//! - `timing`, `timed`: when launches ran, for a trace. `nvtx`: names of ops for a profiler.
//! - `device`: the hal's methods; `launch`, `caches`: what they do, with what a device's parts share (`shared`).
//! - `inside`, `exit`: who is in the driver, and the end of the process.
//! - `prepared`: what a thread does before it takes a lock, so that `submit` never waits for a compiler, an allocation or
//!   the device.
//!
//! Every launch is queued, none inline. A wait is an event recorded on the producer at or after the awaited launch, and put
//! before the launch that waits (`events`).
//!
//! **Loss.** When a call of the driver says that the context is beyond repair, everything counts as complete, everybody is
//! told why and which launches may have done it, and the driver isn't called any more.
//!
//! **Fork.** The driver belongs to the process that has initialized it (`process`): a forked child is refused at once.
//!
//! A device lives as long as the process: dropping one gives nothing back but slabs that were released before, and there
//! is no call of the driver from any destructor, which may run when the driver is gone.

mod caches;
mod compile;
mod control;
mod device;
mod disk;
mod doctor;
mod driver;
mod errors;
mod events;
mod executable;
mod exit;
mod gates;
mod graph;
mod inside;
pub mod kernels;
mod launch;
mod local;
mod matmul;
mod nvtx;
mod options;
mod prepared;
mod process;
mod queue;
mod setup;
mod shared;
mod staging;
mod stress;
#[cfg(test)]
mod tests;
mod timed;
mod timing;
mod transfers;

pub use control::Control;
pub use doctor::{DeviceReport, LibraryReport, Report, report};
pub use kernels::steps as plan;
pub use options::{CudaOptions, DiskCache};
pub use setup::SetupError;
pub use stress::Spin;

/// The GPUs that the driver shows; 0 if there is no driver. An error if there is one that doesn't work, and in a forked child
/// whose parent has used it.
pub fn device_count() -> Result<usize, DeviceError> {
    let _inside = Inside::enter()?;
    if driver::open::is_present() { driver::open::device_count() } else { Ok(0) }
}

use compile::Compiler;
use disk::Disk;
use errors::RECORD_COUNT;
use inside::Inside;
use raddle_hal::{DTypes, DeviceError, Fixed, Info, QUEUE_COUNT_MAX, trace::Source};
use raddle_sync::{
    Arc, Cache, Mutex, Rank, Retired,
    atomic::{AtomicUsize, Ordering::*},
    global,
};
use shared::{Shared, WORD_STRIDE_BYTES};
use staging::Staging;
use std::sync::OnceLock;

/// Launches that a queue holds. The driver blocks when about a thousand are pending, and a launch may be several (guess).
const IN_FLIGHT_COUNT_MAX: u64 = 256;
/// What `cuMemAlloc` promises.
const ALIGNMENT_BYTES: usize = 256;
/// The first with all that is called here.
const DRIVER_VERSION_MIN: i32 = 12000;

/// The dtypes that its kernels know.
pub const DTYPES: DTypes = DTypes::ALL;

/// The bounds that can't be set.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "launches in flight on a CUDA stream",
        value: IN_FLIGHT_COUNT_MAX as usize,
        says: "The most that RADDLE_IN_FLIGHT can ask for there: each has room for its error.",
    },
    Fixed {
        name: "records of errors of a CUDA stream",
        value: RECORD_COUNT,
        says: "More than it has launches in flight, so that the oldest is free when it is wanted.",
    },
    Fixed {
        name: "errors of kernels that a CUDA stream keeps",
        value: errors::FOUND_COUNT_MAX,
        says: "Until somebody asks; beyond it the oldest is forgotten.",
    },
    Fixed {
        name: "bytes of a pinned block",
        value: staging::BLOCK_BYTES_MAX,
        says: "Larger copies aren't pinned; there is a list for each power of two up to it.",
    },
    Fixed {
        name: "kernels, and algorithms, that a thread keeps",
        value: local::LOCAL_COUNT,
        says: "Those that share a place take turns; it is an array, so that a launch finds one at once.",
    },
];

/// A GPU, a [`Device`](raddle_hal::Device) named `cuda:ORDINAL`.
pub struct Cuda(Arc<Shared>);

/// The card of an ordinal, after checking that there is one that can be used.
fn find(ordinal: usize) -> Result<driver::Card, DeviceError> {
    if !driver::open::is_present() {
        return Err(SetupError::missing(driver::LIBRARY, driver::REMEDY));
    }
    let version = driver::open::version();
    if version < DRIVER_VERSION_MIN {
        return Err(SetupError::old_driver(version, DRIVER_VERSION_MIN));
    }
    let count = driver::open::device_count()?;
    if ordinal >= count {
        return Err(DeviceError::NoDevice { count });
    }
    driver::open::card(ordinal)
}

impl Cuda {
    /// A GPU with the defaults. Errors: no driver or one that is too old, no such device, no NVRTC; a forked child whose parent
    /// has used the driver.
    pub fn new(ordinal: usize) -> Result<Cuda, DeviceError> {
        Cuda::with_options(ordinal, CudaOptions::default())
    }

    /// A GPU with choices.
    pub fn with_options(ordinal: usize, options: CudaOptions) -> Result<Cuda, DeviceError> {
        static NEXT_ID: global::AtomicU64 = global::AtomicU64::new(1);
        let _inside = Inside::enter()?;
        let card = find(ordinal)?;
        let bounds = options.bounds;
        nvtx::attach();
        let disk = match &options.disk_cache {
            DiskCache::OfUser => Disk::of_user(&bounds),
            DiskCache::At(folder) => Some(Disk::at(folder.clone(), &bounds)),
            DiskCache::Off => None,
        };
        let compiler = Compiler::new(card.capability, disk)?;
        let (major, minor) = (card.capability / 10, card.capability % 10);
        let info = Info {
            name: format!("cuda:{ordinal}"),
            description: format!("{}, compute capability {major}.{minor}", card.name),
            memory_bytes: Some(card.memory_bytes.min(bounds.memory_bytes)),
            in_flight_count_max: IN_FLIGHT_COUNT_MAX,
            alignment_bytes: ALIGNMENT_BYTES,
            dtypes: DTYPES,
            poison: false,
            survives_fork: false,
            is_host: false,
            prepares: true,
            bounds,
            source: Source::new(),
        };
        let writes_values = card.writes_values;
        let context = driver::open::context(ordinal, card)?;
        exit::install();
        let words = if writes_values {
            let driver = context.enter()?;
            driver.mem_host_zeroed(QUEUE_COUNT_MAX * WORD_STRIDE_BYTES as usize)?
        } else {
            [0; 2]
        };
        let shared = Arc::new(Shared {
            id: NEXT_ID.fetch_add(1, Relaxed),
            info,
            options,
            context,
            compiler,
            kernels: Cache::new(bounds.kernel_count, bounds.kernel_bytes),
            retired_kernels: Retired::default(),
            matmul: OnceLock::new(),
            algorithms: Cache::new(bounds.algorithm_count, usize::MAX),
            retired_algorithms: Retired::default(),
            staging: Staging::new(bounds.pinned_bytes),
            executables: Retired::default(),
            capture_streams: Mutex::new(Rank::Leaf, Vec::new()),
            queues: (0..QUEUE_COUNT_MAX).map(|_| OnceLock::new()).collect(),
            gates: gates::Gates::new(),
            words,
            allocated_bytes: AtomicUsize::new(0),
            stress: stress::Stress::default(),
            timing: timing::Timing::new(),
            suspects: OnceLock::new(),
        });
        timed::ask_at_end(&shared);
        if shared.options.spin.is_some() {
            shared.load_spin()?;
        }
        Ok(Cuda(shared))
    }

    /// For tests: a handle that stays when the device has been handed on.
    pub fn control(&self) -> Control {
        Control(self.0.clone())
    }
}
