//! The simulator: a device that reorders work on purpose, so that a missing wait shows.
//!
//! It wraps another device, which gives it memory and executes, one piece at a time, what it decides to run. `submit` runs
//! nothing. Work runs *late*, when somebody asks (`completed`, `flush`, `synchronize`) or the queue is full, and then in an
//! order drawn from the seed: any queue may be next whose head has its waits behind it, a starved queue hardly ever is, and
//! launches are cut into pieces between which other queues run. So two launches that hal's waits don't order do get
//! swapped, and torn. It obeys those waits and the order of each queue, and knows nothing of the runtime above: a wait that
//! the runtime wrongly elides can't hide from it.
//!
//! **Time** is counted in turns: a [`Launch::Spin`] lets one pass for each microsecond.
//!
//! **Other code** ([`Others`]) has streams of its own here, which the runtime may wrap, and work on them of which it isn't told;
//! and it can hold a queue, so that nothing of it starts.
//!
//! **Faults on demand** ([`SimOptions`]): out of memory, a lost device, slow launches, a full queue; and [`Info::poison`] is
//! set, so the runtime fills memory with junk when it is handed out and when it is freed.
//!
//! **Replay.** All chance comes from one generator, and there are no threads here: the same calls with the same seed
//! execute the same pieces in the same order. [`Sim::history`] lists the last ones for the report of a failure.
//!
//! **Locks.** The state is behind one `Leaf` lock that is never held while a piece runs (so `completed` may be called under
//! any lock of the runtime): whoever runs a piece takes the *turn*, and only one has it. A thread that asks while another
//! has the turn is answered with what is known, or, in `synchronize`, sleeps until the turn is over.
//!
//! The wrapped device computes with the kernels that it always has, and launches are cut only where that changes no bit, so
//! the numbers are its own.

mod addresses;
mod options;
mod others;
mod piece;
mod random;
mod shared;
mod state;
#[cfg(test)]
mod tests;

pub use addresses::{AddressSpace, Completion};
pub use options::{OutOfMemory, SimOptions};
pub use others::Others;
pub use shared::History;

use raddle_hal::{
    CacheStats, Device, DeviceError, Gate, Info, KernelError, Launch, Priority, QueueId, Slab, Submitted,
    TimingEvent, Wait,
    trace::{self, Source, Work},
};
use raddle_sync::{Arc, Condvar, Mutex, Rank};
use shared::Shared;
use state::{Begun, Executed, Pick, State, Turn};

/// The simulator, a [`Device`] named `sim:SEED`.
pub struct Sim {
    info: Info,
    inner: Box<dyn Device>,
    shared: Arc<Shared>,
}

/// The queue of the wrapped device that executes everything.
const INNER_QUEUE: QueueId = QueueId(0);

impl Sim {
    /// Wraps a device that nobody else uses. Errors are its own.
    pub fn new(inner: Box<dyn Device>, options: SimOptions) -> Result<Sim, DeviceError> {
        inner.open_queue(INNER_QUEUE, Priority::Normal)?;
        let info = Info {
            name: format!("sim:{}", options.seed),
            description: format!("simulator over {}", inner.info().name),
            in_flight_count_max: options.in_flight_count_max,
            dtypes: inner.info().dtypes.and(options.dtypes),
            poison: true,
            survives_fork: false,
            prepares: false,
            source: Source::new(),
            ..inner.info().clone()
        };
        let state = Mutex::new(Rank::Leaf, State::new(options));
        Ok(Sim { info, inner, shared: Arc::new(Shared { state, turn_over: Condvar::new() }) })
    }

    /// What was executed last; stays readable when the device has been handed on.
    pub fn history(&self) -> History {
        History(self.shared.clone())
    }

    /// What other code does with the device; stays usable when the device has been handed on.
    pub fn others(&self) -> Others {
        Others(self.shared.clone())
    }

    /// Runs a piece, or lets a turn pass.
    fn turn(&self, pick: Pick) -> Turn {
        let mut state = self.shared.state.lock();
        let Begun { queue, launch, name, piece, inner_sequence } = match state.begin(pick) {
            Ok(Some(begun)) => begun,
            Ok(None) => return Turn::Passed,
            Err(turn) => return turn,
        };
        drop(state);
        // A panic must give the turn back, or everybody would wait for ever.
        let panicked = DeviceError::Lost { reason: "the wrapped device panicked", suspects: Vec::new() };
        let mut end = EndOfTurn { sim: self, queue, result: Some(Err(panicked)) };
        let start = trace::start();
        end.result = Some(self.execute(inner_sequence, &piece.launch()));
        if let (Some(start), Some(Wait { queue, sequence })) = (start, launch) {
            trace::ran(Work { source: self.info.source, queue: queue.0, sequence }, name, start);
        }
        Turn::Ran
    }

    /// Executes a launch on the wrapped device, to its end. Only for whoever has the turn.
    fn execute(&self, sequence: u64, launch: &Launch<'_>) -> Executed {
        // SAFETY: calls don't overlap, since one thread has the turn; numbers grow by one, since `sequence` is only used up
        // if this succeeds; what the launch names lives until it is complete, which the caller reports after this; the
        // contract of the launch itself was given to us with it.
        unsafe {
            match self.inner.submit(INNER_QUEUE, sequence, &[], launch)? {
                Submitted::Inline => Ok(self.inner.run(INNER_QUEUE, sequence, launch)),
                Submitted::Queued => {
                    self.inner.flush(INNER_QUEUE);
                    self.inner.synchronize(INNER_QUEUE, sequence)?;
                    Ok(self.inner.take_kernel_error(INNER_QUEUE, sequence).map_or(Ok(()), Err))
                }
            }
        }
    }

    /// A random number of turns, often none: work runs behind the back of whoever asks.
    fn drift(&self) {
        let turn_count = self.shared.state.lock().drift();
        for _ in 0..turn_count {
            if self.turn(Pick::Any) != Turn::Ran {
                break;
            }
        }
    }

    /// Turns until `is_reached`.
    fn turn_until(&self, queue: QueueId, is_reached: impl Fn(&State) -> bool) {
        let pick = self.shared.state.lock().pick_for(queue);
        loop {
            if is_reached(&self.shared.state.lock()) {
                return;
            }
            match self.turn(pick) {
                Turn::Ran | Turn::Passed => {}
                Turn::Taken => {
                    let mut state = self.shared.state.lock();
                    while state.turn_is_taken() {
                        state = self.shared.turn_over.wait(state);
                    }
                }
                // Waits name only what has been submitted, so this is a bug above, or here.
                Turn::Nothing => {
                    let mut state = self.shared.state.lock();
                    if is_reached(&state) || !state.is_stuck(pick) {
                        continue;
                    }
                    if state.is_any_held() {
                        state.waiting_count += 1;
                        state = self.shared.turn_over.wait(state); // whoever lets go of it wakes us
                        state.waiting_count -= 1;
                    } else {
                        let report = state.to_string();
                        drop(state);
                        panic!("sim: queue {} never gets there, nothing can run\n{report}", queue.0);
                    }
                }
            }
        }
    }
}

/// Gives the turn back, whatever happened in it.
struct EndOfTurn<'a> {
    sim: &'a Sim,
    queue: QueueId,
    /// `None` only once it has been handed in.
    result: Option<Executed>,
}

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        if let Some(result) = self.result.take() {
            self.sim.shared.state.lock().end(self.queue, result);
            self.sim.shared.turn_over.notify_all();
        }
    }
}

impl Device for Sim {
    fn info(&self) -> &Info {
        &self.info
    }

    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        self.shared.state.lock().allow_slab(size_bytes)?;
        self.inner.allocate_slab(size_bytes)
    }

    /// Sees a launch that is in flight and still names the slab: the one bullet of the contract that can be checked.
    unsafe fn release_slab(&self, slab: Slab) {
        {
            let state = self.shared.state.lock();
            if let Some(user) = state.user_of(slab.handle) {
                let Wait { queue, sequence } = user;
                panic!(
                    "sim: a slab is released that op {sequence} of queue {} still names\n{}",
                    queue.0, *state
                );
            }
        }
        // SAFETY: the contract is the same; a launch that is complete here is complete there.
        unsafe { self.inner.release_slab(slab) };
    }

    fn open_queue(&self, queue: QueueId, _priority: Priority) -> Result<(), DeviceError> {
        self.shared.state.lock().open(queue)
    }

    unsafe fn open_external(&self, queue: QueueId, handle: u64) -> Result<(), DeviceError> {
        self.shared.state.lock().open_external(queue, handle)
    }

    fn raw_queue(&self, queue: QueueId) -> Option<u64> {
        Some(self.shared.state.lock().raw(queue))
    }

    fn make_timing_event(&self) -> Result<TimingEvent, DeviceError> {
        self.inner.make_timing_event()
    }

    unsafe fn release_timing_event(&self, event: TimingEvent) {
        // SAFETY: the contract is the same; a launch that is complete here is complete there.
        unsafe { self.inner.release_timing_event(event) };
    }

    unsafe fn elapsed_ms(&self, start: TimingEvent, end: TimingEvent) -> Result<f64, DeviceError> {
        // SAFETY: as above.
        unsafe { self.inner.elapsed_ms(start, end) }
    }

    fn make_gate(&self) -> Result<Gate, DeviceError> {
        Ok(self.shared.state.lock().make_gate())
    }

    /// A gate has no place that could be given back.
    unsafe fn open_gate(&self, gate: Gate) {
        self.shared.state.lock().open_gate(gate);
        self.shared.turn_over.notify_all();
    }

    /// A piece of a launch needs no more scratch memory than the whole does, and pieces of one launch don't meet.
    unsafe fn prepare(&self, launch: &Launch<'_>) -> Result<usize, DeviceError> {
        // SAFETY: the contract is the same.
        unsafe { self.inner.prepare(launch) }
    }

    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        if self.shared.state.lock().is_full(queue) {
            self.shared.state.lock().flush(queue);
            self.turn_until(queue, |state| !state.is_full(queue));
        }
        // SAFETY: by contract the source of an upload is readable.
        unsafe { self.shared.state.lock().submit(queue, sequence, waits, launch)? };
        Ok(Submitted::Queued)
    }

    unsafe fn run(&self, _queue: QueueId, _sequence: u64, _launch: &Launch<'_>) -> Result<(), KernelError> {
        unreachable!("sim: nothing is inline")
    }

    fn completed(&self, queue: QueueId) -> u64 {
        self.drift();
        self.shared.state.lock().completed(queue)
    }

    fn flush(&self, queue: QueueId) {
        self.shared.state.lock().flush(queue);
        self.drift();
    }

    fn synchronize(&self, queue: QueueId, sequence: u64) -> Result<(), DeviceError> {
        self.shared.state.lock().flush(queue);
        // A lost device has refused launches whose numbers the runtime has used up: nobody may wait for those.
        self.turn_until(queue, |state| state.completed(queue) >= sequence || state.check().is_err());
        self.shared.state.lock().check()
    }

    fn take_kernel_error(&self, queue: QueueId, sequence: u64) -> Option<KernelError> {
        self.shared.state.lock().take_kernel_error(Wait { queue, sequence })
    }

    fn cache_stats(&self) -> CacheStats {
        self.inner.cache_stats()
    }

    fn clear_caches(&self) -> Result<(), DeviceError> {
        self.inner.clear_caches()
    }

    fn clear_thread_caches(&self) {
        self.inner.clear_thread_caches();
    }
}
