//! CUDA as a device, over the driver; nothing of it is linked, so one program runs with and without a GPU.
//!
//! - `driver`: its calls, checked. `queue`: a stream, its events and its progress. `transfers`, `staging`: copies through
//!   pinned memory. `errors`: launches that fail on the device.
//! - [`kernels`] plans a launch as steps, [`plan`], and writes their source; `compile` and `disk` make what is
//!   launched, a `Cache` and each thread (`local`) keep it; `matmul` asks cuBLASLt.
//! - `graph`: recorded kernels as executable graphs.
//! - `nvtx`: names of ops for a profiler.
//! - `prepared`: what a thread does before it takes a lock, so that `submit` never waits for a compiler, an allocation or
//!   the device.
//!
//! Every launch is queued, none inline. A wait is an event recorded on the producer at or after the awaited launch, and put
//! before the launch that waits (`events`).
//!
//! **Loss.** When a call of the driver says that the context is beyond repair, everything counts as complete, everybody is
//! told why and which launches may have done it, and the driver isn't called any more.
//!
//! A device lives as long as the process: dropping one gives nothing back but slabs that were released before, and there
//! is no call of the driver from any destructor (trap 16).

mod compile;
mod disk;
mod doctor;
mod driver;
mod errors;
mod events;
mod exit;
mod graph;
pub mod kernels;
mod local;
mod matmul;
mod nvtx;
pub mod plan;
mod prepared;
mod queue;
mod staging;
mod stress;
#[cfg(test)]
mod tests;
mod transfers;

pub use doctor::{DeviceReport, LibraryReport, Report, report};
pub use stress::{Control, Spin};

/// The GPUs that the driver shows; 0 if there is no driver. An error if there is one that doesn't work.
pub fn device_count() -> Result<usize, DeviceError> {
    let _inside = Inside::enter()?;
    if driver::open::is_present() { driver::open::device_count() } else { Ok(0) }
}

use compile::Compiler;
use disk::Disk;
use driver::{Context, Driver, Event};
use errors::{RECORD_BYTES, RECORD_COUNT};
use exit::Inside;
use kernels::Key;
use local::Held;
use matmul::{Algorithm, Shape};
use plan::{Place, Step};
use prepared::{Call, Here, Loaded, Steps, Used};
use queue::Queue;
use raddle_hal::{
    Address, Bounds, CacheStats, Device, DeviceError, Fixed, Info, Kernel, KernelError, Launch, Operand,
    Priority, QUEUE_COUNT_MAX, QueueId, Slab, Stamp, Submitted, Wait,
    trace::{self, Source},
};
use raddle_sync::{
    Arc, Cache, Mutex, Rank, Retired,
    atomic::{AtomicUsize, Ordering::*},
    global,
};
use staging::{Block, Staging};
use std::{ffi::CString, path::PathBuf, ptr, sync::OnceLock};

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

/// A GPU, a [`Device`] named `cuda:ORDINAL`.
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
    /// Of the marks: where the host and where the device finds it; 0 if streams can't write numbers.
    words: [u64; 2],
    allocated_bytes: AtomicUsize,
    stress: stress::Stress,
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
    /// A GPU with the defaults. Errors: no driver or one that is too old, no such device, no NVRTC.
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
            words,
            allocated_bytes: AtomicUsize::new(0),
            stress: stress::Stress::default(),
            suspects: OnceLock::new(),
        });
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

/// Where the steps of a plan find their scratch memory: in the last operand, if there is some.
fn scratch_of(plan: &plan::Plan, operands: &[Operand]) -> u64 {
    match operands.last() {
        Some(Operand::Out(view)) if plan.scratch_bytes > 0 => address(&view.address),
        _ => 0,
    }
}

/// Can one of the steps fail on the device?
fn wants_record(plan: &plan::Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Kernel(step) if step.args.has_error_record()))
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

    /// A loaded kernel. Compiles and loads it if need be.
    fn kernel(&self, driver: Driver<'_>, key: &Key) -> Result<Arc<Loaded>, DeviceError> {
        let (loaded, evicted) = self.kernels.get(key, || {
            let start_ns = trace::start();
            let image = self.compiler.image(key.entry(), &key.source())?;
            let entry = CString::new(key.entry()).expect("names have no zeros");
            let (module, function) = driver.module_load(&image, &entry)?;
            exit::watch();
            if let Some(start_ns) = start_ns {
                trace::here("compile and load", start_ns);
            }
            Ok((Loaded { module, function }, image.len()))
        })?;
        evicted.into_iter().for_each(|evicted| self.retired_kernels.add(evicted));
        self.unload_unused(driver)?;
        Ok(loaded)
    }

    fn unload_unused(&self, driver: Driver<'_>) -> Result<(), DeviceError> {
        for unused in self.retired_kernels.collect(|| self.in_flight(), |wait| self.is_executed(wait)) {
            // SAFETY: it was evicted, no thread holds it, and all launches of it are over.
            unsafe { driver.module_unload(unused.module) }?;
        }
        Ok(())
    }

    fn clear_caches(&self) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        self.kernels.clear().into_iter().for_each(|kernel| self.retired_kernels.add(kernel));
        self.algorithms.clear().into_iter().for_each(|algorithm| self.retired_algorithms.add(algorithm));
        self.clear_thread_caches();
        self.destroy_unused(driver)?;
        self.unload_unused(driver)?;
        self.retired_algorithms.collect(|| self.in_flight(), |wait| self.is_executed(wait));
        self.open_queues().for_each(|(_, queue)| queue.transfers.free_uploads(queue.executed()));
        for address in self.staging.take_free() {
            // SAFETY: it was free, and is known to nobody any more.
            unsafe { driver.mem_free_host(address) }?;
        }
        Ok(())
    }

    fn clear_thread_caches(&self) {
        prepared::with(|here| {
            if let Some(Here { used, .. }) = here {
                used.kernels.clear(self.id);
                used.algorithms.clear(self.id);
            }
        });
    }

    fn cache_stats(&self) -> CacheStats {
        let compiled = self.compiler.counts();
        let thread_count = prepared::with(|here| {
            here.map_or(0, |here| here.used.kernels.count(self.id) + here.used.algorithms.count(self.id))
        });
        CacheStats {
            kernels: self.kernels.counts(),
            algorithms: self.algorithms.counts(),
            retired_count: (self.retired_kernels.count() + self.retired_algorithms.count()) as u64,
            executable_count: self.executables.count() as u64,
            pinned_bytes: self.staging.total_bytes() as u64,
            thread_count: thread_count as u64,
            ..compiled
        }
    }

    fn matmul(&self) -> Result<&matmul::Handle, DeviceError> {
        self.matmul
            .get_or_init(|| matmul::Handle::new(self.options.tf32))
            .as_ref()
            .map_err(DeviceError::clone)
    }

    fn algorithm(&self, shape: &Shape) -> Result<Arc<Algorithm>, DeviceError> {
        let (algorithm, evicted) = self.algorithms.get(shape, || {
            Ok((self.matmul()?.choose(shape).inspect(|_| exit::watch())?, size_of::<Algorithm>()))
        })?;
        evicted.into_iter().for_each(|evicted| self.retired_algorithms.add(evicted));
        self.retired_algorithms.collect(|| self.in_flight(), |wait| self.is_executed(wait));
        Ok(algorithm)
    }

    /// Plans a kernel and finds what its steps call: what this thread keeps, if it keeps things. What was in `steps` is gone
    /// in any case.
    fn plan(
        &self,
        driver: Driver<'_>,
        mut used: Option<&mut Used>,
        kernel: &Kernel,
        operands: &[Operand],
        steps: &mut Steps,
    ) -> Result<(), DeviceError> {
        kernels::plan_over(&mut steps.plan, kernel, operands);
        steps.calls.clear();
        for step in &steps.plan.steps {
            steps.calls.push(match step {
                Step::Kernel(step) => {
                    let find = || self.kernel(driver, &step.key);
                    Call::Kernel(match &mut used {
                        Some(used) => {
                            used.kernels.get(self.id, self.kernels.generation(), &step.key, find)?
                        }
                        None => Held(find()?).into(),
                    })
                }
                Step::MatMul(step) => {
                    let shape = Shape::of(step);
                    let find = || self.algorithm(&shape);
                    Call::MatMul(match &mut used {
                        Some(used) => {
                            used.algorithms.get(self.id, self.algorithms.generation(), &shape, find)?
                        }
                        None => Held(find()?).into(),
                    })
                }
                Step::Fill { .. } => Call::Fill,
            });
        }
        Ok(())
    }

    /// A pinned block; none if there is no room for it.
    fn stage(&self, driver: Driver<'_>, size_bytes: usize) -> Result<Option<Block>, DeviceError> {
        if let Some(block) = self.staging.find(size_bytes) {
            return Ok(Some(block));
        }
        self.open_queues().for_each(|(_, queue)| queue.transfers.free_uploads(queue.executed()));
        if let Some(block) = self.staging.find(size_bytes) {
            return Ok(Some(block));
        }
        let Some(room) = self.staging.room(size_bytes) else { return Ok(None) };
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

    /// # Safety
    /// - As `Device::prepare`.
    unsafe fn prepare(&self, launch: &Launch<'_>) -> Result<usize, DeviceError> {
        let driver = self.context.enter()?;
        let block = match *launch {
            Launch::Kernel { kernel, operands } => {
                return prepared::with(|here| {
                    let Some(here) = here else {
                        // For the caches, so that `submit` finds all that takes long.
                        let mut steps = Steps::default();
                        self.plan(driver, None, kernel, operands, &mut steps)?;
                        return Ok(steps.plan.scratch_bytes);
                    };
                    // Until it is whole there is nothing.
                    here.take_steps(self.id);
                    self.plan(driver, Some(&mut here.used), kernel, operands, &mut here.steps)?;
                    here.put_steps(self.id);
                    Ok(here.steps.plan.scratch_bytes)
                });
            }
            Launch::Upload { from, .. } => {
                let block = self.stage(driver, from.size_bytes)?;
                if let Some(block) = &block {
                    // SAFETY: by contract the source can be read; the block is so large and ours alone.
                    unsafe {
                        ptr::copy_nonoverlapping(
                            from.address as *const u8,
                            block.address as *mut u8,
                            from.size_bytes,
                        );
                    }
                }
                block
            }
            Launch::Download { to, .. } => self.stage(driver, to.size_bytes)?,
            Launch::Graph { graph, draws } => self.prepare_graph(driver, graph, draws)?,
            Launch::FillBytes { .. } | Launch::Stamp(_) | Launch::Nothing => return Ok(0),
        };
        prepared::with(|here| {
            if let Some(here) = here {
                here.put_block(self.id, block);
            }
        });
        Ok(0)
    }

    /// # Safety
    /// - As `Device::submit`.
    unsafe fn submit(
        &self,
        id: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        let driver = self.context.enter()?;
        let queue = self.queue(id);
        let _range = nvtx::range(launch.name());
        if !matches!(launch, Launch::Nothing) || !waits.is_empty() || self.options.spin.is_some() {
            queue.begin_work(sequence);
        }
        for wait in waits {
            self.queue(wait.queue).hold_up(driver, queue.stream(), wait.sequence)?;
        }
        self.perhaps_spin(id)?;
        let block = || prepared::with(|here| here?.take_block(self.id));
        // The steps of a kernel that wasn't prepared.
        let mut late = None;
        // SAFETY: by the contract.
        unsafe {
            match *launch {
                Launch::Kernel { kernel, operands } => {
                    prepared::with(|here| match here.and_then(|here| here.take_steps(self.id)) {
                        Some(steps) => self.launch(driver, queue, sequence, kernel, operands, steps),
                        None => {
                            let steps = late.insert(Steps::default());
                            self.plan(driver, None, kernel, operands, steps)?;
                            self.launch(driver, queue, sequence, kernel, operands, steps)
                        }
                    })?;
                }
                Launch::Upload { from, to } => {
                    let (size_bytes, to) = (from.size_bytes, address(&to));
                    match block() {
                        Some(block) => {
                            driver.memcpy_htod(to, block.address, size_bytes, queue.stream())?;
                            queue.transfers.add(sequence, block, None);
                            // The block is wanted back.
                            queue.ask_for_mark();
                        }
                        None => driver.memcpy_htod(to, from.address, size_bytes, queue.stream())?,
                    }
                }
                Launch::Download { from, to } => {
                    let (size_bytes, from) = (to.size_bytes, address(&from));
                    match block() {
                        Some(block) => {
                            driver.memcpy_dtoh(block.address, from, size_bytes, queue.stream())?;
                            queue.transfers.add(sequence, block, Some(to));
                        }
                        None => driver.memcpy_dtoh(to.address, from, size_bytes, queue.stream())?,
                    }
                }
                Launch::Graph { graph, .. } => self.launch_graph(driver, queue, sequence, graph, block())?,
                Launch::Stamp(stamp) => driver.event_record(Event::from_handle(stamp.0), queue.stream())?,
                Launch::FillBytes { size_bytes: 0, .. } | Launch::Nothing => {}
                Launch::FillBytes { to, size_bytes, value } => {
                    driver.memset(address(&to), value, size_bytes, queue.stream())?;
                }
            }
        }
        // The launch is on the stream; what comes after it can't undo that.
        _ = self.perhaps_spin(id);
        queue.publish(driver, sequence);
        // Not before: who lets go of a kernel has published its launches.
        drop(late);
        if matches!(launch, Launch::Kernel { .. }) {
            prepared::with(|here| {
                if let Some(here) = here {
                    here.steps.calls.clear();
                }
            });
        }
        if sequence.is_power_of_two() {
            exit::watch();
        }
        Ok(Submitted::Queued)
    }

    /// Puts the steps of a kernel on a queue, with an error record around them if one of them wants it.
    ///
    /// # Safety
    /// - As `Device::submit`; what is prepared is of this kernel with these operands.
    unsafe fn launch(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        sequence: u64,
        kernel: &Kernel,
        operands: &[Operand],
        steps: &mut Steps,
    ) -> Result<(), DeviceError> {
        let scratch = scratch_of(&steps.plan, operands);
        if !wants_record(&steps.plan) {
            // SAFETY: by the contract.
            return unsafe { self.steps(driver, queue.stream(), steps, scratch, 0) };
        }
        let axis_size = errors::axis_size(kernel, operands);
        let read = |record| queue.record_at(record);
        let given = queue.errors.lock().give(sequence, axis_size, queue.executed(), read);
        let given = given.expect("the caller keeps below `in_flight_count_max`");
        let offset = given.record * RECORD_BYTES;
        let (record, copy) = (queue.records[0] + offset as u64, queue.records[1] as usize + offset);
        // SAFETY: the record is inside the ring, and no other launch in flight uses it; the rest is by the contract.
        let result = unsafe {
            let cleared =
                if given.is_dirty { driver.memset(record, 0, RECORD_BYTES, queue.stream()) } else { Ok(()) };
            cleared
                .and_then(|()| self.steps(driver, queue.stream(), steps, scratch, record))
                .and_then(|()| driver.memcpy_dtoh(copy, record, RECORD_BYTES, queue.stream()))
        };
        result.inspect_err(|_| queue.errors.lock().give_back())
    }

    /// # Safety
    /// - As `Shared::launch`; `scratch` and `record` are the addresses that the arguments point to, if they do.
    unsafe fn steps(
        &self,
        driver: Driver<'_>,
        stream: driver::Stream,
        steps: &mut Steps,
        scratch: u64,
        record: u64,
    ) -> Result<(), DeviceError> {
        let at = |place: Place| match place {
            Place::At(address) => address,
            Place::Scratch(offset) => scratch + offset as u64,
        };
        for (step, call) in steps.plan.steps.iter_mut().zip(&steps.calls) {
            // SAFETY: by the contract the operands are as the kernel's doc says, and the plan was made for them; functions
            // and algorithms are held by `calls`.
            unsafe {
                match (step, call) {
                    (Step::Kernel(step), Call::Kernel(loaded)) => driver.launch_kernel(
                        loaded.function,
                        [step.grid, step.block],
                        step.shared_bytes,
                        stream,
                        step.args.resolve(scratch, record),
                    )?,
                    (Step::MatMul(step), Call::MatMul(algorithm)) => {
                        self.matmul()?.launch(algorithm, step, at, stream)?;
                    }
                    (Step::Fill { size_bytes: 0, .. }, _) => {}
                    (Step::Fill { at: place, size_bytes, value }, _) => {
                        driver.memset(at(*place), *value, *size_bytes, stream)?;
                    }
                    _ => unreachable!("calls are those of the steps"),
                }
            }
        }
        Ok(())
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
        let opened = self.queues[id.0 as usize].set(Queue::new(stream, word, [records, copies]));
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

impl Device for Cuda {
    fn info(&self) -> &Info {
        &self.0.info
    }

    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        let _inside = Inside::new();
        self.0.allocate_slab(size_bytes).map_err(|error| self.0.told(error))
    }

    unsafe fn release_slab(&self, slab: Slab) {
        let _inside = Inside::new();
        self.0.allocated_bytes.fetch_sub(slab.size_bytes, Relaxed);
        if let Ok(driver) = self.0.context.enter() {
            // SAFETY: by contract it came from `allocate_slab`, is given back once, and no launch names it. Of a failure
            // there is nobody to tell; a loss is seen by the next call.
            _ = unsafe { driver.mem_free(slab.handle) };
        }
    }

    fn open_queue(&self, queue: QueueId, priority: Priority) -> Result<(), DeviceError> {
        let _inside = Inside::new();
        self.0.open_queue(queue, priority).map_err(|error| self.0.told(error))
    }

    unsafe fn open_external(&self, queue: QueueId, handle: u64) -> Result<(), DeviceError> {
        let _inside = Inside::new();
        // SAFETY: the contract is the same.
        unsafe { self.0.open_external(queue, handle) }.map_err(|error| self.0.told(error))
    }

    fn close_external(&self, queue: QueueId) {
        let _inside = Inside::new();
        // On a lost device nothing is left to wait for. No other failure can be met with a stream that lives.
        _ = self.0.context.enter().and_then(|driver| self.0.queue(queue).close(driver));
    }

    fn raw_queue(&self, queue: QueueId) -> Option<u64> {
        let queue = self.0.queue(queue);
        queue.expose();
        Some(queue.stream().handle())
    }

    fn is_idle(&self, queue: QueueId) -> Option<bool> {
        let _inside = Inside::new();
        let stream = self.0.queue(queue).stream();
        // A failure is told to who waits.
        self.0.context.enter().and_then(|driver| driver.stream_query(stream)).ok()
    }

    fn make_stamp(&self) -> Result<Stamp, DeviceError> {
        let _inside = Inside::new();
        let made = self.0.context.enter().and_then(Driver::timing_event_create);
        made.map(|event| Stamp(event.handle())).map_err(|error| self.0.told(error))
    }

    unsafe fn release_stamp(&self, stamp: Stamp) {
        let _inside = Inside::new();
        if let Ok(driver) = self.0.context.enter() {
            // SAFETY: by contract it came from `make_stamp`, is given back once, and no launch names it.
            _ = unsafe { driver.event_destroy(Event::from_handle(stamp.0)) };
        }
    }

    unsafe fn is_noted(&self, stamp: Stamp) -> bool {
        let _inside = Inside::new();
        // SAFETY: by contract it came from `make_stamp` and lives.
        let event = unsafe { Event::from_handle(stamp.0) };
        self.0.context.enter().and_then(|driver| driver.event_query(event)).unwrap_or(false)
    }

    unsafe fn elapsed_ms(&self, start: Stamp, end: Stamp) -> Result<f64, DeviceError> {
        let _inside = Inside::new();
        // SAFETY: by contract both came from `make_stamp` and live.
        let [start, end] = [start, end].map(|stamp| unsafe { Event::from_handle(stamp.0) });
        let elapsed = self.0.context.enter().and_then(|driver| driver.event_elapsed_ms(start, end));
        elapsed.map(f64::from).map_err(|error| self.0.told(error))
    }

    unsafe fn prepare(&self, launch: &Launch<'_>) -> Result<usize, DeviceError> {
        let _inside = Inside::new();
        // SAFETY: the contract is the same.
        unsafe { self.0.prepare(launch) }.map_err(|error| self.0.told(error))
    }

    #[inline]
    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        let _inside = Inside::new();
        // SAFETY: the contract is the same.
        unsafe { self.0.submit(queue, sequence, waits, launch) }.map_err(|error| self.0.told(error))
    }

    unsafe fn run(&self, _queue: QueueId, _sequence: u64, _launch: &Launch<'_>) -> Result<(), KernelError> {
        unreachable!("cuda: nothing is inline")
    }

    #[inline]
    fn completed(&self, queue: QueueId) -> u64 {
        let _inside = Inside::new();
        let shared = &*self.0;
        let state = shared.queue(queue);
        match shared.context.enter().and_then(|driver| state.poll(driver)) {
            Ok(completed) => completed,
            Err(error) if matches!(error, DeviceError::Lost { .. }) => {
                shared.told(error);
                state.transfers.abandon();
                state.submitted.load(Acquire)
            }
            // It will be asked again.
            Err(_) => state.transfers.complete(state.executed(), false),
        }
    }

    fn flush(&self, queue: QueueId) {
        let _inside = Inside::new();
        if let Ok(driver) = self.0.context.enter() {
            // What fails here fails again where it can be told.
            _ = self.0.queue(queue).flush(driver);
        }
    }

    fn synchronize(&self, queue: QueueId, sequence: u64) -> Result<(), DeviceError> {
        let _inside = Inside::new();
        let state = self.0.queue(queue);
        let result = self.0.context.enter().and_then(|driver| state.synchronize(driver, sequence));
        result.map_err(|error| {
            if self.0.context.is_lost() {
                state.transfers.abandon();
            }
            self.0.told(error)
        })
    }

    fn take_kernel_error(&self, queue: QueueId, sequence: u64) -> Option<KernelError> {
        let _inside = Inside::new();
        // Of a lost device no record can be trusted.
        if self.0.context.is_lost() { None } else { self.0.queue(queue).take_error(sequence) }
    }

    fn cache_stats(&self) -> CacheStats {
        let _inside = Inside::new();
        self.0.cache_stats()
    }

    fn clear_caches(&self) -> Result<(), DeviceError> {
        let _inside = Inside::new();
        self.0.clear_caches().map_err(|error| self.0.told(error))
    }

    fn clear_thread_caches(&self) {
        self.0.clear_thread_caches();
    }
}
