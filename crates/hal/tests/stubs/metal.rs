//! How Metal meets the contract: a queue is a command queue and its open command buffer; every launch signals the queue's
//! shared event with its number; a wait is a wait for another queue's event. What isn't committed never runs, so a wait
//! commits what it waits for, and nobody above needs to know.

use crate::driver::{Command, Driver};
use raddle_hal::*;
use raddle_sync::{Arc, Mutex, Rank};
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::*},
};

struct Queue {
    stream: usize,
    /// A shared event: its value is the completed number.
    event: usize,
    /// The open command buffer. Other threads commit it, so it is locked while something is encoded: a few microseconds.
    /// Two queues' buffers are never locked at once.
    open: Mutex<Vec<Command>>,
}

pub struct Metal {
    info: Info,
    driver: Arc<Driver>,
    queues: [OnceLock<Queue>; 4],
    /// Buffers are objects: the handle is an index, never a pointer to add to.
    next_buffer: AtomicU64,
}

impl Metal {
    pub fn new(driver: Arc<Driver>) -> Metal {
        let info = crate::info("metal:0", 64);
        Metal { info, driver, queues: Default::default(), next_buffer: AtomicU64::new(1) }
    }
    fn queue(&self, id: QueueId) -> &Queue {
        self.queues[id.0 as usize].get().expect("the caller has opened it")
    }
}

impl Device for Metal {
    fn info(&self) -> &Info {
        &self.info
    }
    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        Ok(Slab { handle: self.next_buffer.fetch_add(1, Relaxed), size_bytes })
    }
    unsafe fn release_slab(&self, _slab: Slab) {}
    fn open_queue(&self, id: QueueId, _priority: Priority) -> Result<(), DeviceError> {
        let queue = Queue {
            stream: self.driver.stream_create(),
            event: self.driver.event_create(),
            open: Mutex::new(Rank::Queue, Vec::new()),
        };
        assert!(self.queues[id.0 as usize].set(queue).is_ok(), "not opened twice");
        Ok(())
    }
    unsafe fn submit(
        &self,
        id: QueueId,
        sequence: u64,
        waits: &[Wait],
        _launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        // Before the own buffer is locked.
        waits.iter().for_each(|wait| self.flush(wait.queue));
        let queue = self.queue(id);
        let mut open = queue.open.lock();
        for wait in waits {
            let event = self.queue(wait.queue).event;
            open.push(Command::Wait { event, value: wait.sequence }); // encodeWaitForEvent:value:
        }
        open.push(Command::Launch { queue: id.0, sequence }); // dispatchThreads; an upload goes through a shared buffer
        open.push(Command::Signal { event: queue.event, value: sequence }); // encodeSignalEvent:value:
        Ok(Submitted::Queued)
    }
    unsafe fn run(&self, _: QueueId, _: u64, _: &Launch<'_>) -> Result<(), KernelError> {
        unreachable!("never inline")
    }
    /// `signaledValue`. An open but empty buffer holds no launch, so it doesn't count.
    fn completed(&self, id: QueueId) -> u64 {
        self.driver.event_value(self.queue(id).event)
    }
    fn flush(&self, id: QueueId) {
        let queue = self.queue(id);
        let mut open = queue.open.lock();
        self.driver.enqueue(queue.stream, open.drain(..)); // commit, in the order of encoding since the lock is held
    }
    fn synchronize(&self, id: QueueId, sequence: u64) -> Result<(), DeviceError> {
        self.flush(id);
        while self.completed(id) < sequence {
            assert!(self.driver.step(), "metal: nothing can run"); // waitUntilSignaledValue:timeoutMS:
        }
        Ok(())
    }
    fn take_kernel_error(&self, _: QueueId, _: u64) -> Option<KernelError> {
        None
    }
}
