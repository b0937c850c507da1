//! CUDA as a device, over the driver; nothing of it is linked, so one program runs with and without a GPU.
//!
//! - `driver`: its calls, checked. `queue`: a stream, its events and its progress. `transfers`, `staging`: copies through
//!   pinned memory. `errors`: launches that fail on the device.
//! - [`kernels`] plans a launch as steps, [`plan`], and writes their source; `compile` and `disk` make what is
//!   launched, a `Cache` and each thread (`local`) keep it; `matmul` asks cuBLASLt.
//! - `graph`: recorded kernels as executable graphs.
//! - `timing`: when launches ran, for a trace. `nvtx`: names of ops for a profiler.
//! - `device`: the hal's methods; `launch`, `caches`: what they do.
//! - `prepared`: what a thread does before it takes a lock, so that `submit` never waits for a compiler, an allocation or
//!   the device.
//!
//! Every launch is queued, none inline. A wait is an event recorded on the producer at or after the awaited launch, and put
//! before the launch that waits (`events`).
//!
//! **Loss.** When a call of the driver says that the context is beyond repair, everything counts as complete, everybody is
//! told why and which launches may have done it, and the driver isn't called any more.
//!
//! **Fork.** The driver belongs to the process that has initialised it (`process`): a forked child is refused at once.
//!
//! A device lives as long as the process: dropping one gives nothing back but slabs that were released before, and there
//! is no call of the driver from any destructor (trap 16).

mod caches;
mod compile;
mod device;
mod disk;
mod doctor;
mod driver;
mod errors;
mod events;
mod exit;
mod gates;
mod graph;
pub mod kernels;
mod launch;
mod local;
mod matmul;
mod nvtx;
pub mod plan;
mod prepared;
mod process;
mod queue;
mod staging;
mod stress;
#[cfg(test)]
mod tests;
mod timing;
mod transfers;

pub use doctor::{DeviceReport, LibraryReport, Report, report};
pub use stress::{Control, Spin};

/// The GPUs that the driver shows; 0 if there is no driver. An error if there is one that doesn't work, and in a forked child
/// whose parent has used it.
pub fn device_count() -> Result<usize, DeviceError> {
    let _inside = Inside::enter()?;
    if driver::open::is_present() { driver::open::device_count() } else { Ok(0) }
}

use compile::Compiler;
use disk::Disk;
use driver::{Context, Driver};
use errors::{RECORD_BYTES, RECORD_COUNT};
use exit::Inside;
use kernels::Key;
use matmul::{Algorithm, Shape};
use prepared::Loaded;
use queue::Queue;
use raddle_hal::{
    Address, Bounds, DeviceError, Fixed, Info, Priority, QUEUE_COUNT_MAX, QueueId, Slab, Wait, trace::Source,
};
use raddle_sync::{
    Arc, Cache, Mutex, Rank, Retired,
    atomic::{AtomicUsize, Ordering::*},
    global,
};
use staging::{Block, Need, Staging};
use std::{path::PathBuf, ptr, sync::OnceLock};

/// Launches that a queue holds. The driver blocks when about a thousand are pending, and a launch may be several (guess).
const IN_FLIGHT_COUNT_MAX: u64 = 256;
/// What `cuMemAlloc` promises.
const ALIGNMENT_BYTES: usize = 256;
/// The first with all that is called here.
const DRIVER_VERSION_MIN: i32 = 12000;
/// The words of two queues are on different cache lines.
const WORD_STRIDE_BYTES: u64 = 128;
/// Launches of a queue that are named when the device is lost, and of all queues.
const SUSPECT_COUNT_MAX: [u64; 2] = [8, 32];

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

/// Where compiled kernels are kept across runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DiskCache {
    /// `RADDLE_CACHE_DIR`, or the folder for such things of this user.
    #[default]
    OfUser,
    /// Here.
    At(PathBuf),
    /// Nowhere.
    Off,
}

/// What can be chosen about the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CudaOptions {
    /// Of its memory, its caches, and of the runtime.
    pub bounds: Bounds,
    /// Matrix products of `f32` may round their factors to 11 bits, which is several times as fast. Default: no.
    pub tf32: bool,
    /// Where compiled kernels are kept.
    pub disk_cache: DiskCache,
    /// For tests: launches that take their time.
    pub spin: Option<Spin>,
}

/// A GPU, a [`Device`](raddle_hal::Device) named `cuda:ORDINAL`.
pub struct Cuda(Arc<Shared>);

struct Shared {
    /// Tells devices of this process apart in thread-locals.
    id: u64,
    info: Info,
    options: CudaOptions,
    context: Context,
    compiler: Compiler,
    kernels: Cache<Key, Loaded>,
    retired_kernels: Retired<Loaded, Wait>,
    /// Made when the first product is prepared.
    matmul: OnceLock<Result<matmul::Handle, DeviceError>>,
    algorithms: Cache<Shape, Algorithm>,
    retired_algorithms: Retired<Algorithm, Wait>,
    staging: Arc<Staging>,
    /// All executable graphs, until nothing uses them.
    executables: Retired<graph::Executable, Wait>,
    /// Streams that capture, while they don't. As many as threads that have captured at once.
    capture_streams: Mutex<Vec<driver::Stream>>,
    queues: Box<[OnceLock<Queue>]>,
    gates: gates::Gates,
    /// Of the marks: where the host and where the device finds it; 0 if streams can't write numbers.
    words: [u64; 2],
    allocated_bytes: AtomicUsize,
    stress: stress::Stress,
    timing: timing::Timing,
    /// Of a loss, as they were when it was met.
    suspects: OnceLock<Vec<Wait>>,
}

/// The card of an ordinal, after checking that there is one that can be used.
fn find(ordinal: usize) -> Result<driver::Card, DeviceError> {
    if !driver::open::is_present() {
        return Err(DeviceError::MissingLibrary { library: doctor::DRIVER, remedy: doctor::DRIVER_REMEDY });
    }
    let version = driver::open::version();
    if version < DRIVER_VERSION_MIN {
        let parts = |version: i32| [version as u32 / 1000, version as u32 % 1000 / 10];
        return Err(DeviceError::OldDriver { found: parts(version), needed: parts(DRIVER_VERSION_MIN) });
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
            poison: false,
            survives_fork: false,
            prepares: true,
            bounds,
            source: Source::new(),
        };
        let writes_values = card.writes_values;
        let context = driver::open::context(ordinal, card)?;
        let words = if writes_values {
            let driver = context.enter()?;
            zeroed(driver, QUEUE_COUNT_MAX * WORD_STRIDE_BYTES as usize)?
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
        timing::watch(&shared);
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

/// Pinned memory full of zeros that the driver frees at its end: where the host and where the device finds it.
fn zeroed(driver: Driver<'_>, size_bytes: usize) -> Result<[u64; 2], DeviceError> {
    let address = driver.mem_host_alloc(size_bytes)?;
    // SAFETY: it was just allocated, so large.
    unsafe { ptr::write_bytes(address as *mut u8, 0, size_bytes) };
    Ok([address as u64, driver.mem_host_device_pointer(address)?])
}

fn address(at: &Address) -> u64 {
    at.handle + at.offset_bytes as u64
}

impl Shared {
    fn queue(&self, queue: QueueId) -> &Queue {
        self.queues[queue.0 as usize].get().expect("a queue is open before it is used")
    }

    fn open_queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter().enumerate().filter_map(|(index, queue)| Some((QueueId(index as u8), queue.get()?)))
    }

    /// Adds to a loss what was in flight when it was met.
    #[cold]
    fn told(&self, error: DeviceError) -> DeviceError {
        let DeviceError::Lost { reason, .. } = error else { return error };
        let [of_queue, of_all] = SUSPECT_COUNT_MAX;
        let suspects = self.suspects.get_or_init(|| {
            let in_flight = |(queue, state): (QueueId, &Queue)| {
                let first = state.executed() + 1;
                let last = state.submitted.load(Acquire).min(first + of_queue - 1);
                (first..=last).map(move |sequence| Wait { queue, sequence })
            };
            self.open_queues().flat_map(in_flight).take(of_all as usize).collect()
        });
        DeviceError::Lost { reason, suspects: suspects.clone() }
    }

    /// The newest number of each queue.
    fn in_flight(&self) -> Vec<Wait> {
        let wait =
            |(queue, state): (QueueId, &Queue)| Wait { queue, sequence: state.submitted.load(Acquire) };
        self.open_queues().map(wait).collect()
    }

    fn is_executed(&self, wait: &Wait) -> bool {
        self.queue(wait.queue).executed() >= wait.sequence
    }

    /// A pinned block; none if there is no room for it.
    fn stage(&self, driver: Driver<'_>, size_bytes: usize, need: Need) -> Result<Option<Block>, DeviceError> {
        if let Some(block) = self.staging.find(size_bytes) {
            return Ok(Some(block));
        }
        self.open_queues().for_each(|(_, queue)| queue.transfers.free_uploads(queue.executed()));
        if let Some(block) = self.staging.find(size_bytes) {
            return Ok(Some(block));
        }
        // The driver lets who pins memory wait for all streams, and whoever holds one may be who is about to copy.
        if need == Need::May && self.gates.any_is_closed() {
            return Ok(None);
        }
        let Some(room) = self.staging.room(size_bytes, need) else { return Ok(None) };
        for address in room.unpin {
            // SAFETY: it was free, and is known to nobody any more.
            unsafe { driver.mem_free_host(address) }?;
        }
        match driver.mem_host_alloc(room.size_bytes) {
            Ok(address) => Ok(Some(self.staging.adopt(address, room.size_bytes))),
            Err(error) => {
                self.staging.forget(room.size_bytes);
                // The host may have no memory to pin; a copy works without.
                if self.context.is_lost() { Err(error) } else { Ok(None) }
            }
        }
    }

    fn open_queue(&self, id: QueueId, priority: Priority) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        let stream = driver.stream_create(priority == Priority::High)?;
        let word = match self.words {
            [0, _] => [0; 2],
            words => words.map(|start| start + u64::from(id.0) * WORD_STRIDE_BYTES),
        };
        self.adopt(driver, id, stream, word)
    }

    /// # Safety
    /// - As `Device::open_external`.
    unsafe fn open_external(&self, id: QueueId, handle: u64) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        // SAFETY: by the contract.
        let stream = unsafe { driver.stream_of(handle) }?;
        match self.queues[id.0 as usize].get() {
            Some(queue) => {
                queue.reopen(stream);
                Ok(())
            }
            // No marks: a stream of other code isn't made to write into memory, and events do.
            None => {
                self.adopt(driver, id, stream, [0; 2])?;
                self.queue(id).expose();
                Ok(())
            }
        }
    }

    /// Makes a queue of a stream.
    fn adopt(
        &self,
        driver: Driver<'_>,
        id: QueueId,
        stream: driver::Stream,
        word: [u64; 2],
    ) -> Result<(), DeviceError> {
        let size_bytes = RECORD_COUNT * RECORD_BYTES;
        let records = driver.mem_alloc(size_bytes)?;
        let [copies, _] = zeroed(driver, size_bytes)?;
        // SAFETY: it was just allocated, so large, and is known to nobody.
        unsafe { driver.memset(records, 0, size_bytes, stream) }?;
        let opened = self.queues[id.0 as usize].set(Queue::new(id, stream, word, [records, copies]));
        assert!(opened.is_ok(), "cuda: a queue is opened once");
        Ok(())
    }

    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        let driver = self.context.enter()?;
        let limit_bytes = self.options.bounds.memory_bytes;
        let add = |allocated: usize| allocated.checked_add(size_bytes).filter(|&total| total <= limit_bytes);
        if self.allocated_bytes.fetch_update(Relaxed, Relaxed, add).is_err() {
            return Err(DeviceError::OutOfMemory { size_bytes });
        }
        let allocated = driver.mem_alloc(size_bytes);
        allocated.map(|handle| Slab { handle, size_bytes }).inspect_err(|_| {
            self.allocated_bytes.fetch_sub(size_bytes, Relaxed);
        })
    }
}
