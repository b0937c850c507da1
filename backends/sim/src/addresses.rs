//! A device that has addresses only, so that the runtime's allocator can be driven and measured alone.

use raddle_hal::{
    Bounds, Device, DeviceError, Info, KernelError, Launch, Priority, QUEUE_COUNT_MAX, QueueId, Slab,
    Submitted, Wait, trace::Source,
};
use raddle_sync::{
    Padded,
    atomic::{AtomicU64, AtomicUsize, Ordering::*},
};

/// When the work on an [`AddressSpace`] is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// At once: a device that is faster than any host.
    AtOnce,
    /// When somebody waits for it: a device that is slower than any host.
    AtSync,
}

/// A device without memory and without compute: it hands out addresses and completes what it is given. What is downloaded
/// from it is undefined: nothing is written to the host.
///
/// | field | stored by | loaded by |
/// |---|---|---|
/// | `completed` | `submit`, whose calls for one queue don't overlap, or `synchronize`, never both: see [`Completion`] | anybody |
/// | `end` | `allocate_slab`, by read-modify-write | nobody else |
#[derive(Debug)]
pub struct AddressSpace {
    info: Info,
    completion: Completion,
    completed: Vec<Padded<AtomicU64>>,
    /// Where the next slab starts. Addresses aren't used again: 64 bits last.
    end: AtomicUsize,
}

impl AddressSpace {
    /// A device that refuses no slab.
    pub fn new(completion: Completion) -> AddressSpace {
        let info = Info {
            name: "addresses".into(),
            description: "addresses without memory".into(),
            memory_bytes: None,
            in_flight_count_max: 1024,
            alignment_bytes: 256,
            dtypes: raddle_hal::DTypes::ALL,
            poison: false,
            survives_fork: false,
            is_host: false,
            prepares: false,
            bounds: Bounds::default(),
            source: Source::new(),
        };
        let completed = (0..QUEUE_COUNT_MAX).map(|_| Padded(AtomicU64::new(0))).collect();
        AddressSpace { info, completion, completed, end: AtomicUsize::new(1 << 20) }
    }

    fn queue(&self, queue: QueueId) -> &AtomicU64 {
        &self.completed[queue.0 as usize]
    }
}

impl Device for AddressSpace {
    fn info(&self) -> &Info {
        &self.info
    }

    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        let grown = |end: usize| end.checked_add(size_bytes.next_multiple_of(self.info.alignment_bytes));
        match self.end.fetch_update(Relaxed, Relaxed, grown) {
            Ok(start) => Ok(Slab { handle: start as u64, size_bytes }),
            Err(_) => Err(DeviceError::OutOfMemory { size_bytes }),
        }
    }

    unsafe fn release_slab(&self, _: Slab) {}

    fn open_queue(&self, _: QueueId, _: Priority) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        _: &[Wait],
        _: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        if self.completion == Completion::AtOnce {
            self.queue(queue).store(sequence, Release); // pairs with the Acquire in `completed`
        }
        Ok(Submitted::Queued)
    }

    unsafe fn run(&self, _: QueueId, _: u64, _: &Launch<'_>) -> Result<(), KernelError> {
        unreachable!("it never says Inline")
    }

    fn completed(&self, queue: QueueId) -> u64 {
        self.queue(queue).load(Acquire)
    }

    fn flush(&self, _: QueueId) {}

    fn synchronize(&self, queue: QueueId, sequence: u64) -> Result<(), DeviceError> {
        raddle_sync::raise(self.queue(queue), sequence);
        Ok(())
    }

    fn take_kernel_error(&self, _: QueueId, _: u64) -> Option<KernelError> {
        None
    }
}
