//! How CUDA meets the contract: a queue is a stream; a wait is an event recorded on the producer; completion is a progress
//! mark that the stream writes into pinned memory every few launches, and on demand.

use crate::driver::{Command, Driver};
use raddle_hal::*;
use raddle_sync::{
    Arc, Mutex, Rank,
    atomic::{AtomicU64, Ordering::*},
};
use std::sync::OnceLock;

/// A mark costs a launch about a tenth more, a query per op much more (ANCHORS: 4.54 µs, with marks every 8: 4.60 µs).
const MARK_EVERY_COUNT: u64 = 8;

struct Stream {
    stream: usize,
    /// A word in pinned memory, which `cuStreamWriteValue64` raises.
    mark: usize,
    /// Loaded by other threads that record an event here, before they record: the event then covers at least this.
    enqueued: AtomicU64,
    /// The highest number that a mark has been enqueued for.
    marked: AtomicU64,
    /// Events recorded here: the number each covers at least, and its handle. Bounded; a later one serves earlier waits.
    events: Mutex<Vec<(u64, usize)>>,
}

pub struct Cuda {
    info: Info,
    driver: Arc<Driver>,
    streams: [OnceLock<Stream>; 4],
    next_pointer: AtomicU64,
}

impl Cuda {
    pub fn new(driver: Arc<Driver>) -> Cuda {
        let info = crate::info("cuda:0", 256);
        Cuda { info, driver, streams: Default::default(), next_pointer: AtomicU64::new(0x7000_0000) }
    }

    fn stream(&self, queue: QueueId) -> &Stream {
        self.streams[queue.0 as usize].get().expect("the caller has opened it")
    }

    /// An event at or after `sequence`, recorded on the producer's stream without its lock if there is none yet.
    fn event_behind(&self, wait: &Wait) -> usize {
        let producer = self.stream(wait.queue);
        let mut events = producer.events.lock();
        if let Some((_, event)) = events.iter().find(|(covered, _)| *covered >= wait.sequence) {
            return *event;
        }
        let covered = producer.enqueued.load(Acquire); // pairs with the Release in `submit`
        let event = self.driver.event_create();
        self.driver.enqueue(producer.stream, [Command::Signal { event, value: 1 }]); // cuEventRecord
        events.push((covered, event));
        if events.len() > 64 {
            events.remove(0);
        }
        event
    }

    fn mark(&self, stream: &Stream, sequence: u64) {
        self.driver.enqueue(stream.stream, [Command::Signal { event: stream.mark, value: sequence }]);
        stream.marked.fetch_max(sequence, Relaxed);
    }
}

impl Device for Cuda {
    fn info(&self) -> &Info {
        &self.info
    }
    /// cuMemAlloc: may synchronize the device, which the contract allows here and nowhere in `submit`.
    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        Ok(Slab { handle: self.next_pointer.fetch_add(size_bytes as u64, Relaxed), size_bytes })
    }
    unsafe fn release_slab(&self, _slab: Slab) {}
    fn open_queue(&self, queue: QueueId, _priority: Priority) -> Result<(), DeviceError> {
        // cuStreamCreateWithPriority, non-blocking.
        let stream = Stream {
            stream: self.driver.stream_create(),
            mark: self.driver.event_create(),
            enqueued: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            events: Mutex::new(Rank::Queue, Vec::new()),
        };
        assert!(self.streams[queue.0 as usize].set(stream).is_ok(), "not opened twice");
        Ok(())
    }
    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        _launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        // Kernel: cuLaunchKernel, the module was loaded before. Upload: into a pinned staging ring, then cuMemcpyAsync.
        let stream = self.stream(queue);
        for wait in waits {
            let event = self.event_behind(wait);
            self.driver.enqueue(stream.stream, [Command::Wait { event, value: 1 }]); // cuStreamWaitEvent
        }
        self.driver.enqueue(stream.stream, [Command::Launch { queue: queue.0, sequence }]);
        stream.enqueued.store(sequence, Release); // pairs with the Acquire in `event_behind`
        if sequence.is_multiple_of(MARK_EVERY_COUNT) {
            self.mark(stream, sequence);
        }
        Ok(Submitted::Queued)
    }
    unsafe fn run(&self, _: QueueId, _: u64, _: &Launch<'_>) -> Result<(), KernelError> {
        unreachable!("never inline")
    }
    /// A load from pinned memory; no call of the driver.
    fn completed(&self, queue: QueueId) -> u64 {
        self.driver.event_value(self.stream(queue).mark)
    }
    /// Launches run by themselves; what could stay unseen is their completion, between two marks.
    fn flush(&self, queue: QueueId) {
        let stream = self.stream(queue);
        let enqueued = stream.enqueued.load(Acquire);
        if stream.marked.load(Relaxed) < enqueued {
            self.mark(stream, enqueued);
        }
    }
    fn synchronize(&self, queue: QueueId, sequence: u64) -> Result<(), DeviceError> {
        self.flush(queue);
        while self.completed(queue) < sequence {
            assert!(self.driver.step(), "cuda: nothing can run"); // cuEventSynchronize on an event of its own
        }
        Ok(())
    }
    /// The kernel writes an error word with the number; here it would be read and cleared.
    fn take_kernel_error(&self, _: QueueId, _: u64) -> Option<KernelError> {
        None
    }
}
