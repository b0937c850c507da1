//! The contract with a device: allocate a slab, open a queue, submit a launch, tell what is complete.
//!
//! It is object-safe and coarse, so that logging, limits, fault injection and the race checker can wrap one device in
//! another. It validates nothing: shapes, dtypes, overlap, lifetimes and the order of work are the caller's, that is
//! `tensor`'s and `runtime`'s. What is declared `unsafe` says in bullets what the caller answers for.
//!
//! How it meets each kind of device:
//!
//! | here | CPU | CUDA | Metal | simulator |
//! |---|---|---|---|---|
//! | queue | a list of tasks, run by whoever gets to it | stream | command queue and its open command buffer | a list of steps |
//! | `submit` | says [`Submitted::Inline`] when it may run at once | waits for events, launches | encodes waits and a dispatch | appends |
//! | wait for `(queue, sequence)` | the other queue's number | an event recorded on the producer at or after `sequence` | a shared event's value | the other queue's number |
//! | `flush` | nothing | nothing | commits the open command buffer | nothing |
//! | `completed` | a counter | events and a progress mark in pinned memory | the shared event's value | a counter |
//! | address | pointer | device pointer | buffer and offset | pointer of the wrapped device |
//! | a stream of other code | there is none | a stream | a command queue | a list that tests append to |
//! | a timing event | a word | an event with a time | a sample of a counter | the wrapped device's |
//! | scratch memory of a kernel | what [`Device::prepare`] asks for, where fixed blocks of the thread's own won't do | all that `prepare` asks for | the same | what the wrapped device asks for |
//! | a gate | a queue whose head isn't run | a word that a stream waits for | a shared event's value | a flag |
//! | a graph | its nodes, one after the other | an executable graph, made when it is first prepared | an encoder for all nodes | the pieces of its nodes |

mod graph;
mod limits;
mod operand;
pub mod trace;

pub use graph::{Draw, Graph, Node};
pub use limits::{Bounds, Fixed, Limit, LimitError, Limits, OWN, Preset, Unit, VARIABLES};
pub use operand::{Address, Operand, Slab, View};
pub use raddle_base::DTypes;
pub use raddle_sync::CacheCounts;

pub use raddle_op::{Checked, Cut, Kernel, KernelError};

use std::{fmt, sync::Arc};

/// The most queues of a device; a queue's id is below it.
pub const QUEUE_COUNT_MAX: usize = 128;

/// Names a queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u8);

/// "Everything on that queue up to this sequence number".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// The queue that is waited for.
    pub queue: QueueId,
    /// The number that has to be complete there. It has been submitted before.
    pub sequence: u64,
}

/// How urgent the work of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Priority {
    /// As any other.
    #[default]
    Normal,
    /// Before others, where the device can.
    High,
}

/// Where a device notes a time, from [`Device::make_timing_event`]; what it knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimingEvent(pub u64);

/// Where a queue is held until somebody lets it go on, from [`Device::make_gate`]; what the device knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gate(pub u64);

/// One launch.
#[derive(Clone, Copy, Debug)]
pub enum Launch<'a> {
    /// A kernel on operands.
    Kernel {
        /// The kernel.
        kernel: &'a Kernel,
        /// Outputs first, as the kernel says.
        operands: &'a [Operand],
    },
    /// Host bytes to the device. The source has been read when `submit` (or `run`) returns.
    Upload {
        /// The bytes that are read.
        from: HostBytes,
        /// Where they are written, as many bytes.
        to: Address,
    },
    /// Device bytes to the host; they are there when the launch is complete.
    Download {
        /// Where the bytes are read.
        from: Address,
        /// The memory that they are written to, as many bytes.
        to: HostBytes,
    },
    /// Every byte of a region set to `value`.
    FillBytes {
        /// Where the region begins.
        to: Address,
        /// The size of the region.
        size_bytes: usize,
        /// The byte.
        value: u8,
    },
    /// The kernels of a graph in order, as one launch.
    Graph {
        /// Which. Whoever needs it for longer than the call keeps a count.
        graph: &'a Arc<Graph>,
        /// For each of its nodes that draws random numbers, in order: from where.
        draws: &'a [Draw],
    },
    /// Notes the time when it is reached, in place of what the event had noted.
    TimingEvent(TimingEvent),
    /// Takes so many nanoseconds, or a little more, from when it is reached: for tests. It is never `Inline`, unless the system
    /// gives no thread.
    Spin(u64),
    /// Takes until the gate is opened: for tests. It is never `Inline`.
    Gate(Gate),
    /// Does nothing, in order: an event, a wait.
    Nothing,
}

impl Launch<'_> {
    /// The name under which it appears in traces.
    pub fn name(&self) -> &'static str {
        match self {
            Launch::Kernel { kernel, .. } => kernel.name(),
            Launch::Upload { .. } => "upload",
            Launch::Download { .. } => "download",
            Launch::FillBytes { .. } => "fill_bytes",
            Launch::Graph { .. } => "graph",
            Launch::TimingEvent(_) => "timing_event",
            Launch::Spin(_) => "spin",
            Launch::Gate(_) => "hold",
            Launch::Nothing => "nothing",
        }
    }

    /// May a device want scratch memory for it? Then [`Device::prepare`] is asked. Pointwise kernels and copies do without.
    #[inline]
    pub fn may_want_scratch(&self) -> bool {
        match self {
            Launch::Kernel { kernel, .. } => !matches!(kernel, Kernel::Pointwise { .. }),
            _ => false,
        }
    }

    /// Can it fail on the device with a [`KernelError`]?
    #[inline]
    pub fn is_fallible(&self) -> bool {
        match self {
            Launch::Kernel { kernel, .. } => kernel.is_fallible(),
            Launch::Graph { graph, .. } => graph.is_fallible(),
            _ => false,
        }
    }
}

/// Memory of the host as a plain address, so that a launch can be kept by a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    /// Where it starts.
    pub address: usize,
    /// How long it is.
    pub size_bytes: usize,
}

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The device has it, and will complete it by itself (after `flush`).
    Queued,
    /// The queue is idle and all waits are over: the caller runs it by [`Device::run`], once, outside of its locks. Until
    /// then the queue counts as busy, and later submissions to it line up behind.
    Inline,
}

/// What only the device can know. Everything else has been checked above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// No memory for a slab of this size.
    OutOfMemory {
        /// Asked for.
        size_bytes: usize,
    },
    /// The device is gone; nothing that was submitted can be trusted, and nothing else will run.
    Lost {
        /// What the driver said.
        reason: &'static str,
        /// Work that may have caused it.
        suspects: Vec<Wait>,
    },
    /// A call of the driver failed.
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's code.
        code: i64,
    },
    /// The device has no such thing.
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// A handle of other code that can't be used.
    Refused {
        /// The handle.
        handle: u64,
        /// The reason.
        reason: &'static str,
    },
    /// The driver has no device of that number.
    NoDevice {
        /// How many it has.
        count: usize,
    },
    /// What only the backend has a name for: what it needs is not installed, or too old.
    Backend(BackendError),
    /// The driver is a parent's, from whom this process was forked.
    Forked {
        /// The number of the process that has initialized it.
        owner: u32,
    },
    /// The source of a kernel was refused: a bug of ours, or a compiler that is too old.
    Compile {
        /// The kernel.
        kernel: &'static str,
        /// The first lines of what the compiler said.
        log: String,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::OutOfMemory { size_bytes } => write!(f, "the device has no {size_bytes} bytes left"),
            DeviceError::Lost { reason, suspects } => {
                write!(f, "the device is lost: {reason}")?;
                for suspect in suspects {
                    write!(f, ", suspect: op {} of queue {}", suspect.sequence, suspect.queue.0)?;
                }
                Ok(())
            }
            DeviceError::Driver { call, code } => write!(f, "{call} failed with code {code}"),
            DeviceError::Unsupported { what } => write!(f, "the device has no {what}"),
            DeviceError::Refused { handle, reason } => {
                write!(f, "the handle {handle:#x} is refused: {reason}")
            }
            DeviceError::NoDevice { count } => write!(f, "no such device, the driver shows {count}"),
            DeviceError::Backend(error) => error.fmt(f),
            DeviceError::Forked { owner } => write!(
                f,
                "the driver has been used by process {owner}, from which this one was forked; expected its first use \
                 after the fork, or a child that is started anew"
            ),
            DeviceError::Compile { kernel, log } => write!(f, "the kernel {kernel} doesn't compile: {log}"),
        }
    }
}
impl std::error::Error for DeviceError {}

/// An error of a backend's own type: [`downcast_ref`](BackendError::downcast_ref) tells. Two are equal if their texts are.
#[derive(Clone, Debug)]
pub struct BackendError(Arc<dyn std::error::Error + Send + Sync>);

impl BackendError {
    /// Of a backend's error.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> BackendError {
        BackendError(Arc::new(error))
    }

    /// The error, if it is one of that type.
    pub fn downcast_ref<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for BackendError {
    fn eq(&self, other: &BackendError) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}
impl Eq for BackendError {}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a device is like.
#[derive(Clone, Debug)]
pub struct Info {
    /// As the user names it: `cpu`, `cuda:0`, `sim:7`.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Memory in all, if there is a limit.
    pub memory_bytes: Option<usize>,
    /// The most launches that a queue holds before `submit` would block; the caller keeps below it.
    pub in_flight_count_max: u64,
    /// Blocks are aligned to it.
    pub alignment_bytes: usize,
    /// The dtypes that its kernels know. No tensor on it has another one.
    pub dtypes: DTypes,
    /// The runtime fills memory with junk when it is allocated and when it is freed, in stream order.
    pub poison: bool,
    /// May a forked child go on with it?
    pub survives_fork: bool,
    /// Does it compute in memory of the host, so that any of that may be an [`Address`], its handle being a pointer?
    pub is_host: bool,
    /// Does it want [`Device::prepare`] before each launch, not only before those that may want scratch memory? Then to prepare is
    /// dear: it compiles, loads, pins.
    pub prepares: bool,
    /// What it, and the runtime with it, keeps to.
    pub bounds: Bounds,
    /// Whose work it is in a trace.
    pub source: trace::Source,
}

/// What a device keeps so as not to make it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Compiled kernels. What a thread has used last it keeps, and finds without being counted here.
    pub kernels: CacheCounts,
    /// Algorithms of matrix products.
    pub algorithms: CacheCounts,
    /// Kernels and algorithms that have left the cache and that something may still use.
    pub retired_count: u64,
    /// Executable graphs, of captured ones and of those that work in flight may be of.
    pub executable_count: u64,
    /// Pinned memory that copies go through, in use and free.
    pub pinned_bytes: u64,
    /// Descriptions of launches that the calling thread keeps.
    pub thread_count: u64,
    /// Scratch memory of kernels that the calling thread keeps.
    pub thread_bytes: u64,
    /// What else the backend counts.
    pub own: Counters,
}

/// The most counters of a backend's own.
pub const COUNTER_COUNT_MAX: usize = 8;

/// Counters that a backend has names for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    names: &'static [&'static str],
    values: [u64; COUNTER_COUNT_MAX],
}

impl Counters {
    /// As many values as names.
    pub fn new<const N: usize>(names: &'static [&'static str; N], values: [u64; N]) -> Counters {
        let mut all = [0; COUNTER_COUNT_MAX];
        all[..N].copy_from_slice(&values);
        Counters { names, values: all }
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.names.iter().copied().zip(self.values)
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// A device. All methods may be called from any thread at any time.
pub trait Device: Send + Sync {
    /// What it is like; the same at every call.
    fn info(&self) -> &Info;

    /// Memory with undefined content, aligned to [`Info::alignment_bytes`]. May block.
    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError>;

    /// Gives a slab back. May block.
    ///
    /// # Safety
    /// - `slab` came from this device and has not been given back.
    /// - No submitted and not yet completed launch names it, and none will.
    unsafe fn release_slab(&self, slab: Slab);

    /// Makes a queue. Not called twice for one id.
    fn open_queue(&self, queue: QueueId, priority: Priority) -> Result<(), DeviceError>;

    /// Takes a stream that other code has made as a queue, whose numbers go on from where they were.
    ///
    /// # Safety
    /// - `queue` was never opened; or it was opened by this, closed, and all its numbers are complete.
    /// - `handle` names a live stream of the device's API until [`Device::close_external`] has returned, and it doesn't
    ///   capture meanwhile.
    unsafe fn open_external(&self, queue: QueueId, handle: u64) -> Result<(), DeviceError> {
        _ = (queue, handle);
        Err(DeviceError::Unsupported { what: "streams of other code" })
    }

    /// Ends the use of such a stream: from now on `completed`, `synchronize`, `flush` and waits for what has been submitted
    /// do without it, so it may be destroyed. Doesn't block; doesn't overlap with a `submit` to the queue.
    fn close_external(&self, queue: QueueId) {
        _ = queue;
    }

    /// An open queue as the device's API knows it.
    fn raw_queue(&self, queue: QueueId) -> Option<u64> {
        _ = queue;
        None
    }

    /// Makes a place for a time. May block.
    fn make_timing_event(&self) -> Result<TimingEvent, DeviceError> {
        Err(DeviceError::Unsupported { what: "clock" })
    }

    /// Makes a gate, which is closed; for one launch. May block.
    fn make_gate(&self) -> Result<Gate, DeviceError> {
        Err(DeviceError::Unsupported { what: "queue that can be held" })
    }

    /// Opens a gate. Doesn't block.
    ///
    /// # Safety
    /// - It came from this device, is opened once, and has not been given back.
    unsafe fn open_gate(&self, gate: Gate) {
        _ = gate;
    }

    /// Gives a gate back.
    ///
    /// # Safety
    /// - It came from this device, has been opened, and has not been given back; nothing in flight names it, and nothing will.
    unsafe fn release_gate(&self, gate: Gate) {
        _ = gate;
    }

    /// Is an open queue, which stands for a stream of other code, idle, with all that others have put there? None if only a
    /// launch behind that can tell. Doesn't block.
    fn is_idle(&self, queue: QueueId) -> Option<bool> {
        _ = queue;
        None
    }

    /// Gives a timing event back.
    ///
    /// # Safety
    /// - It came from this device and has not been given back; nothing in flight names it, and nothing will.
    unsafe fn release_timing_event(&self, event: TimingEvent) {
        _ = event;
    }

    /// Is it known that the last launch of a timing event is complete? False if only [`Device::completed`] tells.
    ///
    /// # Safety
    /// - The event is of this device and lives, and its last launch has been submitted.
    unsafe fn is_noted(&self, event: TimingEvent) -> bool {
        _ = event;
        false
    }

    /// Milliseconds from what one timing event has noted to what another has; negative if it was earlier.
    ///
    /// # Safety
    /// - Both are of this device and live, and the last launch of each is complete.
    unsafe fn elapsed_ms(&self, start: TimingEvent, end: TimingEvent) -> Result<f64, DeviceError> {
        _ = (start, end);
        Err(DeviceError::Unsupported { what: "clock" })
    }

    /// Does for a launch what may block: compiles and loads its kernel, finds staging for a copy and fills it. Called with
    /// no lock held, before each launch where [`Info::prepares`], elsewhere before those that
    /// [may want scratch memory](Launch::may_want_scratch); where `prepares`, the next `submit` of a kernel or a copy by this
    /// thread is of the launch that it has prepared last, if there is one.
    ///
    /// Returns the bytes of scratch memory that the launch needs: if more than 0, then at `submit` its last operand is
    /// [`Operand::scratch`] of so many. (A graph needs none: its nodes have theirs.) So scratch memory comes from whoever hands
    /// out the device's memory, counts there, and is refused before anything is written. A kernel that grows its scratch
    /// with its operands asks for it here; what a device takes by itself is bounded, whatever the operands are.
    ///
    /// # Safety
    /// - The launch is one that may be submitted; its memory needn't be ready yet, but the source of an upload can be read.
    /// - A graph is prepared before each of its submissions, and no other thread prepares or submits it in between.
    unsafe fn prepare(&self, launch: &Launch<'_>) -> Result<usize, DeviceError> {
        _ = launch;
        Ok(0)
    }

    /// Puts a launch on a queue, behind everything on it and behind `waits`. It must not block for long: the caller holds
    /// the lock of one stream. On an error, or a panic, nothing has been put there.
    ///
    /// # Safety
    /// - `queue` is open, `sequence` is one more than at the last successful call for this queue, and such calls for one
    ///   queue don't overlap. A call that failed used no number.
    /// - Every wait names an open queue other than `queue` and a sequence for which `submit` has returned.
    /// - The operands are as the kernel's doc says; each view lies inside a live slab.
    /// - Memory that it names stays allocated until the launch is complete; so does the destination of a download.
    /// - Any two launches that touch the same bytes, one of them writing, are ordered by queues and waits. Any two launches of
    ///   one graph are.
    /// - On `Inline` the caller calls [`Device::run`] with the same arguments soon and whatever happens.
    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError>;

    /// Runs on this thread what `submit` has just called [`Submitted::Inline`], and completes it. Devices that never say
    /// so never see it. On an error the launch is complete and has written nothing; of a graph all other nodes have run.
    ///
    /// # Safety
    /// - The last `submit` for this queue and sequence answered `Inline`; the arguments are the same; it is the only call.
    unsafe fn run(&self, queue: QueueId, sequence: u64, launch: &Launch<'_>) -> Result<(), KernelError>;

    /// The highest number of the queue that is known to be complete; all below are, too. Doesn't block; never decreases.
    /// What complete launches wrote is visible to a caller that sees their number. After a loss everything is complete.
    fn completed(&self, queue: QueueId) -> u64;

    /// Makes sure that what has been submitted will run without another call.
    fn flush(&self, queue: QueueId);

    /// Blocks until the queue has completed `sequence`, which has been submitted. An error if the device is lost.
    fn synchronize(&self, queue: QueueId, sequence: u64) -> Result<(), DeviceError>;

    /// The error of a queued, fallible launch that is complete, if it had one. It is told once and then forgotten.
    fn take_kernel_error(&self, queue: QueueId, sequence: u64) -> Option<KernelError>;

    /// What it keeps so as not to make it again. Counters only grow. Doesn't block for long.
    fn cache_stats(&self) -> CacheStats {
        CacheStats::default()
    }

    /// Lets go of everything of that kind, but for what is in use: that goes when it isn't. Other threads let go of theirs at
    /// their next launch. Called with no lock held; may block.
    fn clear_caches(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Lets go of what the calling thread keeps. Doesn't block.
    fn clear_thread_caches(&self) {}

    /// Called in a forked child before anything else there (single-threaded). Only for devices that survive it: from
    /// now on `submit` always answers `Inline` and `run` uses no other thread. Calls don't overlap any more, a launch is
    /// complete when `run` returns, and it uses no number: numbers stay as they were, so that what was in flight in the
    /// parent, and is lost to the child, stays incomplete. `synchronize` returns at once.
    fn after_fork(&self) {}
}
