//! The CPU as a device.
//!
//! - `queue` orders the work: an op runs on the thread that submits it when its queue is idle and its waits are
//!   over (no hop, no lock, no allocation); otherwise the queue keeps a copy, and workers, as many as cores, run it in
//!   order.
//! - A *gate* is a queue of its own whose only op is claimed when it is made and finished when it is opened: what is held waits
//!   for that as for any other op, and holds no worker.
//! - `threads` gives large kernels several threads, and steps aside when other queues are busy.
//! - `memory` hands out slabs and moves bytes; `kernels` computes; `clock` notes times.
//!
//! A kernel that panics is a bug, and what it has written can't be told: the op is completed, the device is *lost*, and
//! every later submission says so with the op as suspect. Nothing hangs: queued work is completed without being run, and
//! the numbers of what was refused are waited for by nobody.

mod clock;
mod kernels;
mod memory;
mod queue;
mod task;
mod threads;

use queue::Queues;
use raddle_hal::{
    Bounds, CacheStats, DTypes, Device, DeviceError, Fixed, Gate, Info, KernelError, Launch, OWN, Priority,
    QUEUE_COUNT_MAX, QueueId, Slab, Submitted, TimingEvent, Wait,
    trace::{self, Source, Work},
};
use raddle_sync::{
    Arc, Mutex, Rank,
    atomic::{AtomicU8, AtomicUsize, Relaxed},
    thread,
};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
};
use task::Task;
use threads::Threads;

/// Launches that a queue should hold at most. A guess: enough to keep a worker busy, little enough to stay in the cache.
const IN_FLIGHT_COUNT_MAX: u64 = 1000;
/// Kernel errors that wait to be taken; beyond it the oldest is forgotten. A guess, above what one queue holds.
const ERROR_COUNT_MAX: usize = 4096;
/// A launch gets helpers only if an operand, or all together, has at least so many elements (guess: below, a kernel is over
/// before a helper has come).
const PARALLEL_ELEMENTS_MIN: usize = 8192;

/// The dtypes that its kernels know.
pub const DTYPES: DTypes = DTypes::ALL;

/// The bounds that can't be set.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "launches in flight on a CPU stream",
        value: IN_FLIGHT_COUNT_MAX as usize,
        says: "The most that RADDLE_IN_FLIGHT can ask for there.",
    },
    Fixed {
        name: "errors of kernels that the CPU keeps",
        value: ERROR_COUNT_MAX,
        says: "Until somebody asks; beyond it the oldest is forgotten.",
    },
    Fixed {
        name: "bytes of an upload of which a busy CPU stream keeps a copy",
        value: task::COPIED_BYTES_MAX,
        says: "A larger one waits for its turn, and so do others that submit to the stream meanwhile.",
    },
    Fixed {
        name: "buffers of scratch that a thread keeps for CPU kernels",
        value: kernels::SCRATCH_COUNT_MAX,
        says: "Others are freed; `clear_current_thread_caches` frees all.",
    },
    Fixed {
        name: "bytes of such a buffer",
        value: kernels::SCRATCH_BYTES_MAX,
        says: "None is larger: what grows with the operands of a kernel is memory of the device.",
    },
    Fixed {
        name: "bytes of registers that a thread keeps for pointwise CPU kernels",
        value: kernels::KEPT_BYTES_MAX,
        says: "More is freed after its kernel.",
    },
    Fixed {
        name: "elements of a sort whose scratch a thread of the CPU keeps",
        value: kernels::SHORT_COUNT_MAX,
        says: "Longer lines take memory of the device.",
    },
];

/// Gates that there can be at once, behind the queues of the caller (guess: tests hold a few).
const GATE_COUNT_MAX: usize = 64;

/// The CPU, a [`Device`] named `cpu`.
pub struct Cpu {
    shared: Arc<Shared>,
    workers: OnceLock<Vec<thread::JoinHandle<()>>>,
}

/// The device works, is lost, or lives on in a forked child. In one word, so that a submission looks once.
const WORKS: u8 = 0;
const LOST: u8 = 1;
const FORKED: u8 = 2;

struct Shared {
    info: Info,
    thread_count: usize,
    queues: Queues<Task>,
    /// `WORKS`, or a set of the other two.
    mode: AtomicU8,
    /// Launches that panicked.
    suspects: Mutex<Vec<Wait>>,
    /// Errors of queued launches, oldest first, until somebody asks.
    errors: Mutex<VecDeque<(Wait, KernelError)>>,
    allocated_bytes: AtomicUsize,
    gates: Mutex<Gates>,
}

/// Each is the op that is next on its queue.
#[derive(Default)]
struct Gates {
    /// How many queues have been used.
    made_count: usize,
    free: Vec<Wait>,
}

/// The op that stands for a gate.
fn op_of(gate: Gate) -> Wait {
    Wait { queue: QueueId(gate.0 as u8), sequence: gate.0 >> 8 }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new()
    }
}

impl Cpu {
    /// The device with its defaults. Makes no thread yet.
    pub fn new() -> Cpu {
        Cpu::with_bounds(Bounds::default())
    }

    /// The device with bounds: of its memory, at most that of the machine, and of its threads. Makes no thread yet.
    pub fn with_bounds(bounds: Bounds) -> Cpu {
        let thread_count = match bounds.thread_count {
            OWN => threads::core_count(),
            count => count.max(1),
        };
        threads::want_helpers_for(thread_count);
        let machine_bytes = memory::machine_bytes();
        let memory_bytes = machine_bytes.map_or(bounds.memory_bytes, |bytes| bytes.min(bounds.memory_bytes));
        let info = Info {
            name: "cpu".into(),
            description: format!("{} processor, {thread_count} threads a kernel", std::env::consts::ARCH),
            memory_bytes: (memory_bytes < OWN).then_some(memory_bytes),
            in_flight_count_max: IN_FLIGHT_COUNT_MAX,
            alignment_bytes: memory::ALIGNMENT_BYTES,
            dtypes: DTYPES,
            poison: false,
            survives_fork: true,
            is_host: true,
            prepares: false,
            bounds,
            source: Source::new(),
        };
        let shared = Shared {
            info,
            thread_count,
            queues: Queues::new(QUEUE_COUNT_MAX + GATE_COUNT_MAX),
            mode: AtomicU8::new(WORKS),
            suspects: Mutex::new(Rank::Leaf, Vec::new()),
            errors: Mutex::new(Rank::Leaf, VecDeque::new()),
            allocated_bytes: AtomicUsize::new(0),
            gates: Mutex::new(Rank::Leaf, Gates::default()),
        };
        Cpu { shared: Arc::new(shared), workers: OnceLock::new() }
    }

    /// For a launch that can't run at once. Apart from `submit`, whose other way is taken in tens of nanoseconds.
    ///
    /// # Safety
    /// - As `Device::submit`.
    #[inline(never)]
    unsafe fn queue_up(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Submitted {
        if self.has_workers() {
            // SAFETY: by contract the source of an upload is readable now.
            if let Some(task) = unsafe { Task::new(launch) } {
                let gate = if let Launch::Gate(gate) = *launch { Some(op_of(gate)) } else { None };
                self.shared.queues.push(queue, waits.iter().copied().chain(gate), task);
                return Submitted::Queued;
            }
        }
        // The system gives no thread, or what is uploaded is too much to keep a copy of. All that was submitted is being run
        // by workers or by those who did, who need nothing that the caller may hold to get to its end. So waiting for it here
        // is slow, and no more.
        let before = Wait { queue, sequence: sequence - 1 };
        for wait in waits.iter().chain([&before]) {
            self.shared.queues.synchronize(wait.queue, wait.sequence, &|queue, sequence, task| {
                self.shared.run_task(queue, sequence, task);
            });
        }
        // Whoever ran the last one may still be about to leave.
        let mut turns = 0;
        while !self.shared.queues.claim(queue, sequence, waits) {
            raddle_sync::pause(&mut turns);
        }
        Submitted::Inline
    }

    /// Makes the workers if this is the first launch that needs them. Are there any?
    fn has_workers(&self) -> bool {
        let start = |index| {
            let shared = self.shared.clone();
            let body =
                move || shared.queues.work(&|queue, sequence, task| shared.run_task(queue, sequence, task));
            thread::Builder::new().name(format!("raddle-cpu-{index}")).spawn(body)
        };
        let workers = self.workers.get_or_init(|| {
            // A machine that refuses some threads does with fewer.
            (0..self.shared.thread_count).map_while(|index| start(index).ok()).collect()
        });
        !workers.is_empty()
    }
}

impl Drop for Cpu {
    /// Waits for the tasks that are running; what is still queued never runs.
    fn drop(&mut self) {
        if self.shared.mode.load(Relaxed) & FORKED != 0 {
            return; // The workers have stayed in the parent.
        }
        self.shared.queues.stop();
        for worker in self.workers.take().into_iter().flatten() {
            // A worker catches what its tasks raise, so it has nothing to report.
            _ = worker.join();
        }
    }
}

impl Shared {
    /// How many threads a launch may use. Cores are shared by the queues that run just now, and asking which do costs a
    /// look at each, so small launches don't ask.
    fn threads_for(&self, launch: &Launch<'_>) -> Threads {
        if self.thread_count == 1 {
            return Threads(1);
        }
        let size = match launch {
            Launch::Kernel { operands, .. } => operands.iter().map(|operand| operand.shape().product()).sum(),
            Launch::Upload { from: host, .. } | Launch::Download { to: host, .. } => host.size_bytes,
            Launch::FillBytes { size_bytes, .. } => *size_bytes,
            Launch::TimingEvent(_) | Launch::Spin(_) | Launch::Gate(_) | Launch::Nothing => 0,
            Launch::Graph { .. } => 0, // the nodes of a graph are asked for one by one
        };
        if size < PARALLEL_ELEMENTS_MIN {
            return Threads(1);
        }
        Threads((self.thread_count / self.queues.running_count().max(1)).max(1))
    }

    /// Executes a launch to its end. A panic doesn't come out.
    ///
    /// # Safety
    /// - What the launch names is live and is touched by nobody else in a conflicting way until this returns.
    /// - It is as the kernel's doc says.
    unsafe fn perform(&self, queue: QueueId, sequence: u64, launch: &Launch<'_>) -> Result<(), KernelError> {
        if self.mode.load(Relaxed) & LOST != 0 {
            return Ok(());
        }
        let threads = |launch: &Launch<'_>| self.threads_for(launch);
        // SAFETY: the contract is the same.
        match catch_unwind(AssertUnwindSafe(|| unsafe { task::perform(launch, threads) })) {
            Ok(result) => result,
            Err(_) => {
                // The hook has printed the panic. In a forked child the lock may be held for ever.
                if let Some(mut suspects) = self.suspects.try_lock() {
                    suspects.push(Wait { queue, sequence });
                }
                self.mode.fetch_or(LOST, Relaxed);
                Ok(())
            }
        }
    }

    /// What workers, and threads that wait, do with a queued launch.
    fn run_task(&self, queue: QueueId, sequence: u64, task: Task) {
        let launch = task.launch();
        let start = trace::start();
        // SAFETY: by the contract of `submit` what the task names lives, and is as the kernel says, until the task is
        // complete, which it is when this has returned; the queue runs it behind everything that touches the same memory.
        let result = unsafe { self.perform(queue, sequence, &launch) };
        if let Some(start) = start {
            let work = Work { source: self.info.source, queue: queue.0, sequence };
            trace::ran(work, launch.name(), start);
        }
        if let Err(error) = result {
            let mut errors = self.errors.lock();
            if errors.len() == ERROR_COUNT_MAX {
                errors.pop_front();
            }
            errors.push_back((Wait { queue, sequence }, error));
        }
    }

    #[cold]
    fn lost(&self) -> DeviceError {
        let suspects = self.suspects.try_lock().map_or_else(Vec::new, |suspects| suspects.clone());
        DeviceError::Lost { reason: "a kernel panicked", suspects }
    }
}

impl Device for Cpu {
    fn info(&self) -> &Info {
        &self.shared.info
    }

    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        // The system promises more than it has, and kills whoever believes it: refuse what can't be held.
        let limit_bytes = self.shared.info.memory_bytes.unwrap_or(usize::MAX);
        let add = |allocated: usize| allocated.checked_add(size_bytes).filter(|&total| total <= limit_bytes);
        let out_of_memory = DeviceError::OutOfMemory { size_bytes };
        if self.shared.allocated_bytes.fetch_update(Relaxed, Relaxed, add).is_err() {
            return Err(out_of_memory);
        }
        let Some(handle) = memory::allocate(size_bytes) else {
            self.shared.allocated_bytes.fetch_sub(size_bytes, Relaxed);
            return Err(out_of_memory);
        };
        Ok(Slab { handle, size_bytes })
    }

    unsafe fn release_slab(&self, slab: Slab) {
        // SAFETY: by contract it came from `allocate_slab`, is given back once, and no launch names it.
        unsafe { memory::release(slab.handle, slab.size_bytes) };
        self.shared.allocated_bytes.fetch_sub(slab.size_bytes, Relaxed);
    }

    fn open_queue(&self, queue: QueueId, priority: Priority) -> Result<(), DeviceError> {
        self.shared.queues.open(queue, priority == Priority::High);
        Ok(())
    }

    fn make_timing_event(&self) -> Result<TimingEvent, DeviceError> {
        Ok(clock::make())
    }

    unsafe fn release_timing_event(&self, event: TimingEvent) {
        // SAFETY: the contract is the same.
        unsafe { clock::release(event) };
    }

    unsafe fn elapsed_ms(&self, start: TimingEvent, end: TimingEvent) -> Result<f64, DeviceError> {
        // SAFETY: the contract is the same.
        Ok(unsafe { clock::elapsed_ms(start, end) })
    }

    fn make_gate(&self) -> Result<Gate, DeviceError> {
        // Without a worker who submits has to wait, and nobody would open it.
        if !self.has_workers() {
            return Err(DeviceError::Unsupported { what: "thread that could go on with what is held" });
        }
        let mut gates = self.shared.gates.lock();
        let op = match gates.free.pop() {
            Some(op) => op,
            None if gates.made_count == GATE_COUNT_MAX => {
                return Err(DeviceError::Unsupported { what: "gate left, of 64" });
            }
            None => {
                gates.made_count += 1;
                Wait { queue: QueueId((QUEUE_COUNT_MAX + gates.made_count - 1) as u8), sequence: 1 }
            }
        };
        drop(gates);
        let is_claimed = self.shared.queues.claim(op.queue, op.sequence, &[]);
        assert!(is_claimed, "cpu: a gate that is free has been opened");
        Ok(Gate(op.sequence << 8 | u64::from(op.queue.0)))
    }

    unsafe fn open_gate(&self, gate: Gate) {
        let Wait { queue, sequence } = op_of(gate);
        self.shared.queues.finish(queue, sequence);
    }

    unsafe fn release_gate(&self, gate: Gate) {
        let Wait { queue, sequence } = op_of(gate);
        self.shared.gates.lock().free.push(Wait { queue, sequence: sequence + 1 });
    }

    unsafe fn prepare(&self, launch: &Launch<'_>) -> Result<usize, DeviceError> {
        Ok(match launch {
            Launch::Kernel { kernel, operands } => {
                kernels::scratch_bytes(kernel, operands, Threads(self.shared.thread_count))
            }
            _ => 0,
        })
    }

    #[inline]
    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        let mode = self.shared.mode.load(Relaxed);
        if mode == WORKS {
            let takes_its_time = matches!(launch, Launch::Spin(_) | Launch::Gate(_));
            if !takes_its_time && self.shared.queues.claim(queue, sequence, waits) {
                return Ok(Submitted::Inline);
            }
            // SAFETY: by the contract.
            return Ok(unsafe { self.queue_up(queue, sequence, waits, launch) });
        }
        if mode & LOST != 0 {
            return Err(self.shared.lost());
        }
        Ok(Submitted::Inline) // In a forked child: it runs there and then, and has no place on the queue.
    }

    #[inline]
    unsafe fn run(&self, queue: QueueId, sequence: u64, launch: &Launch<'_>) -> Result<(), KernelError> {
        // SAFETY: by the contract of `submit`; `Inline` meant that everything it has to wait for is over.
        let result = unsafe { self.shared.perform(queue, sequence, launch) };
        if self.shared.mode.load(Relaxed) & FORKED == 0 {
            self.shared.queues.finish(queue, sequence);
        }
        result
    }

    #[inline]
    fn completed(&self, queue: QueueId) -> u64 {
        self.shared.queues.completed(queue)
    }

    /// Queued launches are run without being asked for.
    fn flush(&self, _queue: QueueId) {}

    fn synchronize(&self, queue: QueueId, sequence: u64) -> Result<(), DeviceError> {
        let shared = &*self.shared;
        let mode = shared.mode.load(Relaxed);
        // In a forked child there is nobody to wait for.
        if mode & FORKED == 0 {
            // A number that was refused came after the loss, so who knows of it sees that here.
            let sequence = match mode & LOST {
                0 => sequence,
                _ => sequence.min(shared.queues.submitted(queue)),
            };
            shared.queues.synchronize(queue, sequence, &|queue, sequence, task| {
                shared.run_task(queue, sequence, task);
            });
        }
        if shared.mode.load(Relaxed) & LOST != 0 { Err(shared.lost()) } else { Ok(()) }
    }

    fn take_kernel_error(&self, queue: QueueId, sequence: u64) -> Option<KernelError> {
        let is_forked = self.shared.mode.load(Relaxed) & FORKED != 0;
        // The lock may have been held when the process forked; then what it guards can't be told.
        let mut errors = if is_forked { self.shared.errors.try_lock()? } else { self.shared.errors.lock() };
        let position = errors.iter().position(|(launch, _)| *launch == Wait { queue, sequence })?;
        errors.remove(position).map(|(_, error)| error)
    }

    /// Nothing is compiled; what a kernel needs beside its operands stays with the thread that ran it.
    fn cache_stats(&self) -> CacheStats {
        CacheStats { thread_bytes: kernels::kept_bytes() as u64, ..CacheStats::default() }
    }

    fn clear_thread_caches(&self) {
        kernels::let_go();
    }

    /// The words of the queues stay as they were; no lock is looked at again.
    fn after_fork(&self) {
        self.shared.mode.fetch_or(FORKED, Relaxed);
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
