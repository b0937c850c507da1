//! The hal's methods: who is inside, who is told of a loss.

use super::{
    Cuda,
    driver::{Driver, Event},
    inside::Inside,
};
use raddle_hal::{
    CacheStats, Device, DeviceError, Gate, Info, KernelError, Launch, Priority, QueueId, Slab, Submitted,
    TimingEvent, Wait,
};
use raddle_sync::atomic::Ordering::*;

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

    fn make_timing_event(&self) -> Result<TimingEvent, DeviceError> {
        let _inside = Inside::new();
        let made = self.0.context.enter().and_then(Driver::timing_event_create);
        made.map(|event| TimingEvent(event.handle())).map_err(|error| self.0.told(error))
    }

    unsafe fn release_timing_event(&self, timing: TimingEvent) {
        let _inside = Inside::new();
        if let Ok(driver) = self.0.context.enter() {
            // SAFETY: by contract it came from `make_timing_event`, is given back once, and no launch names it.
            _ = unsafe { driver.event_destroy(Event::from_handle(timing.0)) };
        }
    }

    unsafe fn is_noted(&self, timing: TimingEvent) -> bool {
        let _inside = Inside::new();
        // SAFETY: by contract it came from `make_timing_event` and lives.
        let event = unsafe { Event::from_handle(timing.0) };
        self.0.context.enter().and_then(|driver| driver.event_query(event)).unwrap_or(false)
    }

    unsafe fn elapsed_ms(&self, start: TimingEvent, end: TimingEvent) -> Result<f64, DeviceError> {
        let _inside = Inside::new();
        // SAFETY: by contract both came from `make_timing_event` and live.
        let [start, end] = [start, end].map(|timing| unsafe { Event::from_handle(timing.0) });
        let elapsed = self.0.context.enter().and_then(|driver| driver.event_elapsed_ms(start, end));
        elapsed.map(f64::from).map_err(|error| self.0.told(error))
    }

    fn make_gate(&self) -> Result<Gate, DeviceError> {
        let _inside = Inside::new();
        self.0.make_gate().map_err(|error| self.0.told(error))
    }

    unsafe fn open_gate(&self, gate: Gate) {
        let _inside = Inside::new();
        self.0.gates.open(gate);
    }

    unsafe fn release_gate(&self, gate: Gate) {
        self.0.gates.release(gate);
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
