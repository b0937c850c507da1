//! What all that works for a device shares: the driver's context, caches, queues, memory.

use crate::{
    CudaOptions,
    compile::Compiler,
    driver::{Context, Driver, Stream},
    errors::{RECORD_BYTES, RECORD_COUNT},
    executable::Executable,
    gates::{self, Gates},
    kernels::Key,
    matmul::{self, Algorithm, Shape},
    prepared::Loaded,
    queue::Queue,
    staging::{Block, Need, Staging},
    stress::Stress,
    timing::Timing,
};
use raddle_hal::{DeviceError, Gate, Info, Priority, QueueId, Slab, Wait};
use raddle_sync::{
    Arc, Cache, Mutex, Retired,
    atomic::{AtomicUsize, Ordering::*},
};
use std::sync::OnceLock;

/// The words of two queues are on different cache lines.
pub const WORD_STRIDE_BYTES: u64 = 128;
/// Launches of a queue that are named when the device is lost, and of all queues.
const SUSPECT_COUNT_MAX: [u64; 2] = [8, 32];

/// What a device has.
pub struct Shared {
    /// Tells devices of this process apart in thread-locals.
    pub id: u64,
    pub info: Info,
    pub options: CudaOptions,
    pub context: Context,
    pub compiler: Compiler,
    pub kernels: Cache<Key, Loaded>,
    pub retired_kernels: Retired<Loaded, Wait>,
    /// Made when the first product is prepared.
    pub matmul: OnceLock<Result<matmul::Handle, DeviceError>>,
    pub algorithms: Cache<Shape, Algorithm>,
    pub retired_algorithms: Retired<Algorithm, Wait>,
    pub staging: Arc<Staging>,
    /// All executable graphs, until nothing uses them.
    pub executables: Retired<Executable, Wait>,
    /// Streams that capture, while they don't. As many as threads that have captured at once.
    pub capture_streams: Mutex<Vec<Stream>>,
    pub queues: Box<[OnceLock<Queue>]>,
    pub gates: Gates,
    /// Of the marks: where the host and where the device finds it; 0 if streams can't write numbers.
    pub words: [u64; 2],
    pub allocated_bytes: AtomicUsize,
    pub stress: Stress,
    pub timing: Timing,
    /// Of a loss, as they were when it was met.
    pub suspects: OnceLock<Vec<Wait>>,
}

impl Shared {
    pub fn queue(&self, queue: QueueId) -> &Queue {
        self.queues[queue.0 as usize].get().expect("a queue is open before it is used")
    }

    pub fn open_queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter().enumerate().filter_map(|(index, queue)| Some((QueueId(index as u8), queue.get()?)))
    }

    /// Adds to a loss what was in flight when it was met.
    #[cold]
    pub fn told(&self, error: DeviceError) -> DeviceError {
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
    pub fn in_flight(&self) -> Vec<Wait> {
        let wait =
            |(queue, state): (QueueId, &Queue)| Wait { queue, sequence: state.submitted.load(Acquire) };
        self.open_queues().map(wait).collect()
    }

    pub fn is_executed(&self, wait: &Wait) -> bool {
        self.queue(wait.queue).executed() >= wait.sequence
    }

    /// A pinned block; none if there is no room for it.
    pub fn stage(
        &self,
        driver: Driver<'_>,
        size_bytes: usize,
        need: Need,
    ) -> Result<Option<Block>, DeviceError> {
        if let Some(block) = self.staging.find(size_bytes) {
            return Ok(Some(block));
        }
        self.open_queues().for_each(|(_, queue)| queue.transfers.free_uploads(queue.executed()));
        if let Some(block) = self.staging.find(size_bytes) {
            return Ok(Some(block));
        }
        // The driver lets who pins memory wait for all streams, and whoever holds one may be who is about to copy.
        if need == Need::May && gates::any_is_closed() {
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

    pub fn open_queue(&self, id: QueueId, priority: Priority) -> Result<(), DeviceError> {
        gates::check_none_is_closed("way to make a stream while another is held")?;
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
    pub unsafe fn open_external(&self, id: QueueId, handle: u64) -> Result<(), DeviceError> {
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
        stream: Stream,
        word: [u64; 2],
    ) -> Result<(), DeviceError> {
        let size_bytes = RECORD_COUNT * RECORD_BYTES;
        let records = driver.mem_alloc(size_bytes)?;
        let [copies, _] = driver.mem_host_zeroed(size_bytes)?;
        // SAFETY: it was just allocated, so large, and is known to nobody.
        unsafe { driver.memset(records, 0, size_bytes, stream) }?;
        let opened = self.queues[id.0 as usize].set(Queue::new(id, stream, word, [records, copies]));
        assert!(opened.is_ok(), "cuda: a queue is opened once");
        Ok(())
    }

    pub fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
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

    /// For a caller that is inside.
    pub fn make_gate(&self) -> Result<Gate, DeviceError> {
        let driver = self.context.enter()?;
        if self.words[0] == 0 {
            return Err(DeviceError::Unsupported { what: "stream that waits for a number" });
        }
        // What can't be loaded any more while it is closed.
        self.load_spin()?;
        self.gates.make(driver)
    }
}
