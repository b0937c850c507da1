//! How a launch is prepared, and put on a queue.

use super::{
    driver::{self, Driver, Event},
    errors::{self, RECORD_BYTES},
    exit, gates,
    kernels::steps::{Place, Plan, Step},
    nvtx,
    prepared::{self, Call, Steps},
    queue::Queue,
    shared::Shared,
    staging::Need,
};
use raddle_hal::{Address, DeviceError, Kernel, Launch, Operand, QueueId, Submitted, Wait, trace};
use std::ptr;

fn address(at: &Address) -> u64 {
    at.handle + at.offset_bytes as u64
}

/// Where the steps of a plan find their scratch memory: in the last operand, if there is some.
pub fn scratch_of(plan: &Plan, operands: &[Operand]) -> u64 {
    match operands.last() {
        Some(Operand::Out(view)) if plan.scratch_bytes > 0 => address(&view.address),
        _ => 0,
    }
}

/// Can one of the steps fail on the device?
pub fn wants_record(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Kernel(step) if step.args.has_error_record()))
}

impl Shared {
    /// # Safety
    /// - As `Device::prepare`.
    pub(crate) unsafe fn prepare(&self, launch: &Launch<'_>) -> Result<usize, DeviceError> {
        let driver = self.context.enter()?;
        if trace::is_on() {
            self.timing.fit(driver);
        }
        let block = match *launch {
            Launch::Kernel { kernel, operands } => {
                return prepared::with(|here| {
                    let Some(here) = here else {
                        // For the caches, so that `submit` finds all that takes long.
                        let mut steps = Steps::default();
                        self.plan(driver, None, kernel, operands, &mut steps)?;
                        return Ok(steps.plan.scratch_bytes);
                    };
                    // Until it is whole there is nothing.
                    here.take_steps(self.id);
                    self.plan(driver, Some(&mut here.used), kernel, operands, &mut here.steps)?;
                    here.put_steps(self.id);
                    Ok(here.steps.plan.scratch_bytes)
                });
            }
            Launch::Upload { from, .. } => {
                let block = self.stage(driver, from.size_bytes, Need::May)?;
                if let Some(block) = &block {
                    // SAFETY: by contract the source can be read; the block is so large and ours alone.
                    unsafe {
                        ptr::copy_nonoverlapping(
                            from.address as *const u8,
                            block.address as *mut u8,
                            from.size_bytes,
                        );
                    }
                }
                block
            }
            Launch::Download { to, .. } => self.stage(driver, to.size_bytes, Need::May)?,
            Launch::Graph { graph, draws } => self.prepare_graph(driver, graph, draws)?,
            Launch::Spin(_) => return self.load_spin().map(|_| 0),
            Launch::FillBytes { .. } | Launch::TimingEvent(_) | Launch::Gate(_) | Launch::Nothing => {
                return Ok(0);
            }
        };
        prepared::with(|here| {
            if let Some(here) = here {
                here.put_block(self.id, block);
            }
        });
        Ok(0)
    }

    /// # Safety
    /// - As `Device::submit`.
    pub(crate) unsafe fn submit(
        &self,
        id: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        let driver = self.context.enter()?;
        let queue = self.queue(id);
        let _range = nvtx::range(launch.name());
        if !matches!(launch, Launch::Nothing) || !waits.is_empty() || self.options.spin.is_some() {
            queue.begin_work(sequence);
        }
        for wait in waits {
            self.queue(wait.queue).hold_up(driver, queue.stream(), wait.sequence)?;
        }
        let timed =
            if trace::is_on() { self.begin_timed(driver, queue, sequence, waits, launch) } else { None };
        self.perhaps_spin(id)?;
        let block = || prepared::with(|here| here?.take_block(self.id));
        // The steps of a kernel that wasn't prepared.
        let mut late = None;
        // SAFETY: by the contract.
        unsafe {
            match *launch {
                Launch::Kernel { kernel, operands } => {
                    prepared::with(|here| match here.and_then(|here| here.take_steps(self.id)) {
                        Some(steps) => self.launch(driver, queue, sequence, kernel, operands, steps),
                        None => {
                            let steps = late.insert(Steps::default());
                            self.plan(driver, None, kernel, operands, steps)?;
                            self.launch(driver, queue, sequence, kernel, operands, steps)
                        }
                    })?;
                }
                Launch::Upload { from, to } => {
                    let (size_bytes, to) = (from.size_bytes, address(&to));
                    match block() {
                        Some(block) => {
                            driver.memcpy_htod(to, block.address, size_bytes, queue.stream())?;
                            queue.transfers.add(sequence, block, None);
                            // The block is wanted back.
                            queue.ask_for_mark();
                        }
                        None => driver.memcpy_htod(to, from.address, size_bytes, queue.stream())?,
                    }
                }
                Launch::Download { from, to } => {
                    let (size_bytes, from) = (to.size_bytes, address(&from));
                    match block() {
                        Some(block) => {
                            driver.memcpy_dtoh(block.address, from, size_bytes, queue.stream())?;
                            queue.transfers.add(sequence, block, Some(to));
                        }
                        None => driver.memcpy_dtoh(to.address, from, size_bytes, queue.stream())?,
                    }
                }
                Launch::Graph { graph, .. } => self.launch_graph(driver, queue, sequence, graph, block())?,
                Launch::TimingEvent(timing) => {
                    driver.event_record(Event::from_handle(timing.0), queue.stream())?
                }
                Launch::Spin(ns) => self.spin(id, ns)?,
                Launch::Gate(gate) => {
                    // Or who waits for what is in front of the gate would wait for what is behind it, too.
                    queue.flush(driver)?;
                    driver.stream_wait_value(queue.stream(), self.gates.word(gate), gates::OPEN)?
                }
                Launch::FillBytes { size_bytes: 0, .. } | Launch::Nothing => {}
                Launch::FillBytes { to, size_bytes, value } => {
                    driver.memset(address(&to), value, size_bytes, queue.stream())?;
                }
            }
        }
        // The launch is on the stream; what comes after it can't undo that.
        _ = self.perhaps_spin(id);
        if let Some(timed) = timed {
            self.end_timed(driver, queue, sequence, launch, timed);
        }
        queue.publish(driver, sequence, matches!(launch, Launch::Download { .. }));
        // Not before: who lets go of a kernel has published its launches.
        drop(late);
        if matches!(launch, Launch::Kernel { .. }) {
            prepared::with(|here| {
                if let Some(here) = here {
                    here.steps.calls.clear();
                }
            });
        }
        if sequence.is_power_of_two() {
            exit::install();
        }
        Ok(Submitted::Queued)
    }

    /// Puts the steps of a kernel on a queue, with an error record around them if one of them wants it.
    ///
    /// # Safety
    /// - As `Device::submit`; what is prepared is of this kernel with these operands.
    pub(crate) unsafe fn launch(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        sequence: u64,
        kernel: &Kernel,
        operands: &[Operand],
        steps: &mut Steps,
    ) -> Result<(), DeviceError> {
        let scratch = scratch_of(&steps.plan, operands);
        let checked = match wants_record(&steps.plan) {
            true => errors::Indices::of(kernel, operands),
            false => None,
        };
        let Some(indices) = checked else {
            // SAFETY: by the contract.
            return unsafe { self.steps(driver, queue.stream(), steps, scratch, 0) };
        };
        let read = |record| queue.record_at(record);
        let given = queue.errors.lock().give(sequence, indices, queue.executed(), read);
        let given = given.expect("the caller keeps below `in_flight_count_max`");
        let offset = given.record * RECORD_BYTES;
        let (record, copy) = (queue.records[0] + offset as u64, queue.records[1] as usize + offset);
        // SAFETY: the record is inside the ring, and no other launch in flight uses it; the rest is by the contract.
        let result = unsafe {
            let cleared =
                if given.is_dirty { driver.memset(record, 0, RECORD_BYTES, queue.stream()) } else { Ok(()) };
            cleared
                .and_then(|()| self.steps(driver, queue.stream(), steps, scratch, record))
                .and_then(|()| driver.memcpy_dtoh(copy, record, RECORD_BYTES, queue.stream()))
        };
        result.inspect_err(|_| queue.errors.lock().give_back())
    }

    /// # Safety
    /// - As `Shared::launch`; `scratch` and `record` are the addresses that the arguments point to, if they do.
    pub(crate) unsafe fn steps(
        &self,
        driver: Driver<'_>,
        stream: driver::Stream,
        steps: &mut Steps,
        scratch: u64,
        record: u64,
    ) -> Result<(), DeviceError> {
        let at = |place: Place| match place {
            Place::At(address) => address,
            Place::Scratch(offset) => scratch + offset as u64,
        };
        for (step, call) in steps.plan.steps.iter_mut().zip(&steps.calls) {
            // SAFETY: by the contract the operands are as the kernel's doc says, and the plan was made for them; functions
            // and algorithms are held by `calls`.
            unsafe {
                match (step, call) {
                    (Step::Kernel(step), Call::Kernel(loaded)) => driver.launch_kernel(
                        loaded.function,
                        [step.grid, step.block],
                        step.shared_bytes,
                        stream,
                        step.args.resolve(scratch, record),
                    )?,
                    (Step::MatMul(step), Call::MatMul(algorithm)) => {
                        self.matmul()?.launch(algorithm, step, at, stream)?;
                    }
                    (Step::Fill { size_bytes: 0, .. }, _) => {}
                    (Step::Fill { at: place, size_bytes, value }, _) => {
                        driver.memset(at(*place), *value, *size_bytes, stream)?;
                    }
                    _ => unreachable!("calls are those of the steps"),
                }
            }
        }
        Ok(())
    }
}
