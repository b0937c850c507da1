//! A device for tests that runs nothing and knows everything: it keeps what it is told, completes ops on request in any
//! order that its waits allow, and checks by brute force that every two conflicting accesses are ordered. It knows
//! nothing of ticks, marks and clocks.

use crate::{Access, Buffer, Device, Operand, Result, Stream, StreamStats, order::SLOT_COUNT};
use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_hal::*;
use raddle_sync::atomic::{AtomicU32, Relaxed};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Clock = [u64; SLOT_COUNT];
type Range = (u64, usize, usize);

#[derive(Debug)]
enum Entry {
    Launch { at: Wait, waits: Vec<Wait>, touches: Vec<(Range, bool)> },
    Complete(Wait),
    Release(u64),
}

struct Look(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Look")
    }
}

#[derive(Debug, Default)]
struct Log {
    entries: Vec<Entry>,
    completed: HashMap<u8, u64>,
    slabs: u64,
    errors: HashMap<(u8, u64), KernelError>,
    inline_error: Option<KernelError>,
    slab_bytes_left: Option<usize>,
    /// Slabs that were refused for that.
    refused: u64,
    /// No slab is given back before so many have been refused.
    held_until_refused: u64,
    /// Called when the device refuses a slab, once, on the thread that asks.
    look_when_refused: Option<Look>,
    releasing: bool,
    priorities: HashMap<u8, Priority>,
}

/// Its lock is std's even in models, so that it orders nothing there. `beat` is the model's, relaxed, and orders nothing
/// either: it shows loom that completions and submissions depend on each other, so that it tries them in any order.
#[derive(Debug)]
pub(crate) struct Oracle {
    log: Mutex<Log>,
    beat: AtomicU32,
}

struct Hal {
    oracle: Arc<Oracle>,
    info: Info,
}

/// A device in service whose hal is an oracle.
pub(crate) fn open(in_flight_count_max: u64) -> (Device, Arc<Oracle>) {
    open_within(in_flight_count_max, raddle_hal::Bounds::default())
}

pub(crate) fn open_within(in_flight_count_max: u64, bounds: raddle_hal::Bounds) -> (Device, Arc<Oracle>) {
    let oracle = Arc::new(Oracle { log: Mutex::default(), beat: AtomicU32::new(0) });
    let info = Info {
        name: "oracle".into(),
        description: "runs nothing".into(),
        memory_bytes: None,
        in_flight_count_max,
        alignment_bytes: 1,
        dtypes: raddle_hal::DTypes::ALL,
        poison: false,
        survives_fork: false,
        is_host: false,
        prepares: false,
        bounds,
        source: raddle_hal::trace::Source::new(),
    };
    let hal = Box::new(Hal { oracle: oracle.clone(), info });
    let device = if cfg!(loom) {
        // The list of open devices is the process's, not the model's.
        crate::device::build(hal, 0, 0)
    } else {
        Device::open(hal).unwrap()
    };
    (device, oracle)
}

fn range(address: Address, view: &View) -> Range {
    let size = view.dtype.size_bytes();
    let start = address.offset_bytes + view.layout.offset() * size;
    (address.handle, start, address.offset_bytes + view.layout.end() * size)
}

impl Oracle {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the oldest open op of a queue if all that it waits for is complete: a device that obeys waits only.
    pub(crate) fn complete_next(&self, slot: usize) -> bool {
        self.beat.fetch_add(1, Relaxed);
        let mut log = self.log();
        let queue = QueueId(slot as u8);
        let done =
            |log: &Log, wait: Wait| log.completed.get(&wait.queue.0).copied().unwrap_or(0) >= wait.sequence;
        let next = log.entries.iter().find_map(|entry| match entry {
            Entry::Launch { at, waits, .. } if at.queue == queue && !done(&log, *at) => {
                Some((*at, waits.clone()))
            }
            _ => None,
        });
        match next {
            Some((at, waits)) if waits.iter().all(|wait| done(&log, *wait)) => {
                log.entries.push(Entry::Complete(at)); // before anybody can know
                log.completed.insert(queue.0, at.sequence);
                true
            }
            _ => false,
        }
    }

    /// A point where a completion may come between, in models: of several loads of one word loom remembers the last only.
    #[cfg(loom)]
    pub(crate) fn meet(&self) {
        self.beat.load(Relaxed);
    }

    pub(crate) fn complete_all(&self) {
        while (0..SLOT_COUNT).any(|slot| self.complete_next(slot)) {}
    }

    /// The next op of a queue will turn out to have failed.
    pub(crate) fn fail(&self, slot: usize, sequence: u64, error: KernelError) {
        self.log().errors.insert((slot as u8, sequence), error);
    }

    /// The next op is to be run inline, at which it fails. Its queue is idle.
    pub(crate) fn fail_inline(&self, error: KernelError) {
        self.log().inline_error = Some(error);
    }

    /// As it was when the queue was opened.
    pub(crate) fn priority(&self, slot: usize) -> Option<Priority> {
        self.log().priorities.get(&(slot as u8)).copied()
    }

    pub(crate) fn set_slab_bytes_left(&self, bytes: usize) {
        self.log().slab_bytes_left = Some(bytes);
    }

    /// Calls it when the device refuses a slab the next time, before the thread that has asked knows.
    #[cfg(not(loom))]
    pub(crate) fn look_when_refused(&self, look: impl FnOnce() + Send + 'static) {
        self.log().look_when_refused = Some(Look(Box::new(look)));
    }

    /// From now on whoever gives a slab back is held until so many have been refused.
    #[cfg(not(loom))]
    pub(crate) fn hold_releases(&self, refused: u64) {
        let mut log = self.log();
        log.held_until_refused = log.refused + refused;
    }

    /// Has anybody begun to give a slab back?
    #[cfg(not(loom))]
    pub(crate) fn is_releasing(&self) -> bool {
        self.log().releasing
    }

    /// The launches that write to a buffer, and those that touch nothing, in the order in which they were given: the tick, and
    /// whether it writes.
    #[cfg(loom)]
    pub(crate) fn writes_and_nothings(&self, buffer: &Buffer) -> Vec<(crate::order::Tick, bool)> {
        let address = buffer.block().address;
        let is_there = |range: &Range| (range.0, range.1) == (address.handle, address.offset_bytes);
        let launch = |entry: &Entry| {
            let Entry::Launch { at, touches, .. } = entry else { return None };
            let writes = touches.iter().any(|(range, writes)| *writes && is_there(range));
            (writes || touches.is_empty())
                .then(|| (crate::order::Tick::new(0, at.queue.0 as usize, at.sequence), writes))
        };
        self.log().entries.iter().filter_map(launch).collect()
    }

    /// Conflicting accesses are ordered, sequences have no holes, no wait is for the future, and no slab is released
    /// before everything that touches it is complete.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let join = |clock: &mut Clock, other: &Clock| {
            clock.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b))
        };
        let mut queues = [[0; SLOT_COUNT]; SLOT_COUNT];
        let mut ops: HashMap<Wait, Clock> = HashMap::new();
        let mut complete: Clock = [0; SLOT_COUNT];
        let mut accesses: HashMap<u64, Vec<(Wait, Range, bool)>> = HashMap::new();
        for entry in &self.log().entries {
            match entry {
                Entry::Complete(at) => join(&mut complete, &ops[at]),
                Entry::Release(slab) => {
                    for (at, ..) in accesses.get(slab).into_iter().flatten() {
                        if complete[at.queue.0 as usize] < at.sequence {
                            return Err(format!("slab {slab} is released while {at:?} is in flight"));
                        }
                    }
                }
                Entry::Launch { at, waits, touches } => {
                    let own = at.queue.0 as usize;
                    let clock = &mut queues[own];
                    join(clock, &complete); // an op starts after all that was complete when it was launched
                    for wait in waits {
                        let known = ops.get(wait);
                        join(clock, known.ok_or(format!("{at:?} waits for {wait:?}, not yet enqueued"))?);
                    }
                    if clock[own] + 1 != at.sequence {
                        return Err(format!("{at:?} follows {}", clock[own]));
                    }
                    clock[own] = at.sequence;
                    ops.insert(*at, *clock);
                    for &(range, writes) in touches {
                        let earlier = accesses.entry(range.0).or_default();
                        for &(other, (_, start, end), other_writes) in earlier.iter() {
                            let meet = start < range.2 && range.1 < end;
                            let ordered = clock[other.queue.0 as usize] >= other.sequence;
                            if meet && (writes || other_writes) && !ordered {
                                return Err(format!("race on {range:?}: {other:?} and {at:?}"));
                            }
                        }
                        earlier.push((*at, range, writes));
                    }
                }
            }
        }
        Ok(())
    }
}

impl raddle_hal::Device for Hal {
    fn info(&self) -> &Info {
        &self.info
    }
    fn allocate_slab(&self, size_bytes: usize) -> std::result::Result<Slab, DeviceError> {
        let mut log = self.oracle.log();
        if let Some(left) = log.slab_bytes_left {
            let Some(left) = left.checked_sub(size_bytes) else {
                log.refused += 1;
                let look = log.look_when_refused.take();
                drop(log);
                look.into_iter().for_each(|Look(look)| look());
                return Err(DeviceError::OutOfMemory { size_bytes });
            };
            log.slab_bytes_left = Some(left);
        }
        log.slabs += 1;
        // Apart, so that addresses are.
        Ok(Slab { handle: log.slabs << 40, size_bytes })
    }
    unsafe fn release_slab(&self, slab: Slab) {
        let mut log = self.oracle.log();
        log.releasing = true;
        while log.refused < log.held_until_refused {
            drop(log);
            std::thread::yield_now();
            log = self.oracle.log();
        }
        if let Some(left) = &mut log.slab_bytes_left {
            *left += slab.size_bytes;
        }
        log.entries.push(Entry::Release(slab.handle));
    }
    fn open_queue(&self, queue: QueueId, priority: Priority) -> std::result::Result<(), DeviceError> {
        self.oracle.log().priorities.insert(queue.0, priority);
        Ok(())
    }
    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> std::result::Result<Submitted, DeviceError> {
        let touch =
            |operand: &raddle_hal::Operand| (range(operand.view().address, operand.view()), operand.is_out());
        let touches = match launch {
            Launch::Kernel { operands, .. } => operands.iter().map(touch).collect(),
            Launch::Graph { graph, .. } => {
                graph.nodes().iter().flat_map(|node| &node.operands).map(touch).collect()
            }
            _ => Vec::new(),
        };
        self.oracle.beat.fetch_add(1, Relaxed);
        let mut log = self.oracle.log();
        log.entries.push(Entry::Launch { at: Wait { queue, sequence }, waits: waits.to_vec(), touches });
        Ok(if log.inline_error.is_some() { Submitted::Inline } else { Submitted::Queued })
    }
    unsafe fn run(
        &self,
        queue: QueueId,
        sequence: u64,
        _: &Launch<'_>,
    ) -> std::result::Result<(), KernelError> {
        let mut log = self.oracle.log();
        log.completed.insert(queue.0, sequence);
        log.entries.push(Entry::Complete(Wait { queue, sequence }));
        log.inline_error.take().map_or(Ok(()), Err)
    }
    fn completed(&self, queue: QueueId) -> u64 {
        self.oracle.log().completed.get(&queue.0).copied().unwrap_or(0)
    }
    fn flush(&self, _: QueueId) {}
    fn synchronize(&self, queue: QueueId, sequence: u64) -> std::result::Result<(), DeviceError> {
        // Another thread may complete what this one was about to, so that a round finds nothing; many in a row mean a circle.
        let mut idle_rounds = 0;
        while self.completed(queue) < sequence {
            let advanced = (0..SLOT_COUNT).filter(|slot| self.oracle.complete_next(*slot)).count();
            idle_rounds = if advanced == 0 { idle_rounds + 1 } else { 0 };
            assert!(idle_rounds < 10_000, "queue {queue:?} waits for {sequence} for ever");
        }
        Ok(())
    }
    fn take_kernel_error(&self, queue: QueueId, sequence: u64) -> Option<KernelError> {
        self.oracle.log().errors.remove(&(queue.0, sequence))
    }
}

/// Puts an op that touches whole buffers on a stream.
pub(crate) fn op(stream: Stream, reads: &[&Buffer], writes: &[&Buffer]) -> Result<()> {
    op_of(&copy_kernel(), stream, reads, writes)
}

pub(crate) fn op_of(kernel: &Kernel, stream: Stream, reads: &[&Buffer], writes: &[&Buffer]) -> Result<()> {
    let layout = |buffer: &Buffer| Layout::contiguous(Dims::new(&[buffer.size_bytes()]).unwrap());
    let layouts: Vec<Layout> = writes.iter().chain(reads).map(|buffer| layout(buffer)).collect();
    let operands: Vec<Operand<'_>> = writes
        .iter()
        .map(|buffer| (buffer, Access::Write))
        .chain(reads.iter().map(|buffer| (buffer, Access::Read)))
        .zip(&layouts)
        .map(|((buffer, access), layout)| Operand { buffer, access, dtype: DType::U8, layout })
        .collect();
    stream.submit_kernel("op", kernel, &operands)
}

pub(crate) fn copy_kernel() -> Kernel {
    Kernel::Pointwise {
        program: raddle_op::Pointwise::copy.into(),
        compute: DType::U8,
        params: [Scalar::Int(0); raddle_op::PARAM_COUNT_MAX],
        groups: 1,
    }
}

/// Waits that the device was asked for.
pub(crate) fn waits(device: Device) -> u64 {
    let StreamStats { waits_inserted, .. } = device.stream_stats();
    waits_inserted
}
