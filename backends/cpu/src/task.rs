//! A launch: kept by a queue, and executed.

use crate::{clock, kernels, memory, threads::Threads};
use raddle_hal::{Address, Draw, Graph, HostBytes, Kernel, KernelError, Launch, Operand};
use raddle_sync::fault;
use std::{sync::Arc, time::Duration};

/// A larger upload isn't copied: it would double what the process holds, past every limit (guess: as CUDA's staging).
pub const COPIED_BYTES_MAX: usize = if cfg!(test) { 4 << 10 } else { 64 << 20 };

/// A launch that owns what `submit` only lent.
pub enum Task {
    Kernel {
        kernel: Kernel,
        operands: Box<[Operand]>,
    },
    /// The source has to be read at once, so it is copied.
    Upload {
        bytes: Box<[u8]>,
        to: Address,
    },
    Graph {
        graph: Arc<Graph>,
        draws: Box<[Draw]>,
    },
    /// Everything else lends nothing.
    Plain(Launch<'static>),
}

impl Task {
    /// An owned copy; none of an upload that is large, or if there is no memory for it.
    ///
    /// # Safety
    /// - The source of an upload is readable.
    pub unsafe fn new(launch: &Launch<'_>) -> Option<Task> {
        Some(match *launch {
            Launch::Kernel { kernel, operands } => {
                Task::Kernel { kernel: kernel.clone(), operands: operands.into() }
            }
            Launch::Upload { from, to } => {
                fault!(upload_borrows => return Some(Task::Plain(Launch::Upload { from, to })));
                let bytes = match from.size_bytes {
                    0 => &[], // with any address
                    size if size > COPIED_BYTES_MAX => return None,
                    // SAFETY: by contract the bytes are readable.
                    size => unsafe { std::slice::from_raw_parts(from.address as *const u8, size) },
                };
                let mut copy = Vec::new();
                copy.try_reserve_exact(bytes.len()).ok()?;
                copy.extend_from_slice(bytes);
                Task::Upload { bytes: copy.into_boxed_slice(), to }
            }
            Launch::Graph { graph, draws } => Task::Graph { graph: graph.clone(), draws: draws.into() },
            Launch::Download { from, to } => Task::Plain(Launch::Download { from, to }),
            Launch::FillBytes { to, size_bytes, value } => {
                Task::Plain(Launch::FillBytes { to, size_bytes, value })
            }
            Launch::TimingEvent(event) => Task::Plain(Launch::TimingEvent(event)),
            Launch::Spin(ns) => Task::Plain(Launch::Spin(ns)),
            Launch::Gate(gate) => Task::Plain(Launch::Gate(gate)),
            Launch::Nothing => Task::Plain(Launch::Nothing),
        })
    }

    /// The launch again.
    pub fn launch(&self) -> Launch<'_> {
        match self {
            Task::Kernel { kernel, operands } => Launch::Kernel { kernel, operands },
            Task::Upload { bytes, to } => {
                let from = HostBytes { address: bytes.as_ptr() as usize, size_bytes: bytes.len() };
                Launch::Upload { from, to: *to }
            }
            Task::Graph { graph, draws } => Launch::Graph { graph, draws },
            Task::Plain(launch) => *launch,
        }
    }
}

fn pointer(address: Address) -> usize {
    address.handle as usize + address.offset_bytes
}

/// Executes a launch on this thread, and helpers where it may; `threads` says how many each kernel of it may use. The error
/// is that of the first kernel that has one.
///
/// # Safety
/// - It is as the kernel's doc says; what it names is live.
/// - Nobody else touches what is written, and nobody writes what is read, until this returns.
pub unsafe fn perform(
    launch: &Launch<'_>,
    threads: impl Fn(&Launch<'_>) -> Threads,
) -> Result<(), KernelError> {
    if let Launch::Graph { graph, draws } = *launch {
        let mut result = Ok(());
        graph.for_each(draws, |kernel, operands| {
            let launch = Launch::Kernel { kernel, operands };
            // SAFETY: the contract is the same; the kernels run one after the other.
            let own = unsafe { perform_one(&launch, threads(&launch)) };
            result = result.and(own);
        });
        return result;
    }
    // SAFETY: the contract is the same.
    unsafe { perform_one(launch, threads(launch)) }
}

/// As [`perform`], of anything but a graph.
///
/// # Safety
/// - As of `perform`.
unsafe fn perform_one(launch: &Launch<'_>, threads: Threads) -> Result<(), KernelError> {
    // SAFETY, for all: the contract is the same; device and host memory don't overlap.
    match *launch {
        // SAFETY: as above.
        Launch::Kernel { kernel, operands } => return unsafe { kernels::execute(kernel, operands, threads) },
        // SAFETY: as above.
        Launch::Upload { from, to } => unsafe {
            memory::copy(from.address, pointer(to), from.size_bytes, threads)
        },
        // SAFETY: as above.
        Launch::Download { from, to } => unsafe {
            memory::copy(pointer(from), to.address, to.size_bytes, threads)
        },
        // SAFETY: as above.
        Launch::FillBytes { to, size_bytes, value } => unsafe {
            memory::fill(pointer(to), size_bytes, value, threads)
        },
        Launch::Graph { .. } => unreachable!("cpu: no graph is a node of another"),
        // SAFETY: as above: a timing event in flight is live.
        Launch::TimingEvent(event) => unsafe { clock::note(event) },
        // Work that takes its time; the core may do something else meanwhile.
        Launch::Spin(ns) => raddle_sync::global::sleep(Duration::from_nanos(ns)),
        Launch::Gate(_) | Launch::Nothing => {}
    }
    Ok(())
}
