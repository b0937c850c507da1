//! Graphs of hal as executable graphs of CUDA.
//!
//! An executable is made when a graph is first prepared: its nodes are planned and their kernels loaded as for any launch,
//! then the same calls of the driver are made on a stream that captures. The stream is private to whoever makes the
//! executable, and captures in relaxed mode, so what other threads call meanwhile doesn't matter. Before each node the stream
//! is told which nodes it is to be behind (`Graph::dependencies` of hal): others run beside it, if there is room. (Drivers
//! before 12.3 can't be told; nodes then form a chain.)
//!
//! - **Random numbers**: the key and the counter are parameters of a kernel, which `prepare` sets anew in the executable.
//!   The driver copies them at the launch, so launches in flight keep theirs.
//! - **Errors**: each node that can fail has a record of its own, which the graph clears first. Behind the launch all are
//!   copied to a pinned block, in stream order, where they stay until somebody asks (`errors`).
//! - **Life**: the hal's graph holds the executable, and so does a list here. It is destroyed when the list alone holds it
//!   and no launch in flight can be of it: at the next time that an executable is made.
//!
//! The driver orders launches of one executable by itself, though the caller has done so already.

use crate::{
    driver::{self, Driver, GraphNode, Stream},
    errors::{self, Copies, RECORD_BYTES},
    executable::{DrawNode, Executable, Records},
    gates,
    kernels::{self, steps::Step},
    launch::{scratch_of, wants_record},
    local::Held,
    prepared::{Call, Steps},
    queue::Queue,
    shared::Shared,
    staging::{Block, Need},
};
use raddle_hal::{DeviceError, Draw, Graph, Kernel, Operand};
use raddle_sync::Arc;

/// A node of the hal, ready to be launched.
struct Planned {
    steps: Steps,
    scratch: u64,
    /// Which record, if it wants one.
    record: Option<usize>,
}

fn executable(graph: &Graph) -> Option<&Executable> {
    graph.made().get().and_then(|made| made.downcast_ref())
}

impl Shared {
    /// Makes the executable if there is none yet, gives it its draws, and finds memory for what it may tell.
    pub fn prepare_graph(
        &self,
        driver: Driver<'_>,
        graph: &Graph,
        draws: &[Draw],
    ) -> Result<Option<Block>, DeviceError> {
        if graph.made().get().is_none() {
            let made = Arc::new(self.make(driver, graph)?);
            self.executables.add(made.clone());
            // Nobody else prepares it, so it is still empty.
            _ = graph.made().set(made);
        }
        let executable = executable(graph).expect("it has just been made");
        for (DrawNode { node, function, index }, draw) in executable.draws.iter().zip(draws) {
            let hal = &graph.nodes()[*index];
            let Kernel::Random { distribution, .. } = hal.kernel else { unreachable!("it draws") };
            let kernel = Kernel::Random { distribution, key: draw.key, counter: draw.counter };
            let mut plan = kernels::plan(&kernel, &hal.operands);
            let [Step::Kernel(step)] = &mut plan.steps[..] else { unreachable!("cuda: a draw is one step") };
            let args = step.args.resolve(0, 0);
            // SAFETY: the node is the executable's; the kernel is the same with another key and counter.
            unsafe {
                driver.graph_exec_set_kernel(
                    executable.raw,
                    *node,
                    *function,
                    [step.grid, step.block],
                    step.shared_bytes,
                    args,
                )
            }?;
        }
        let Some(records) = &executable.records else { return Ok(None) };
        self.stage_records(driver, records).map(Some)
    }

    fn stage_records(&self, driver: Driver<'_>, records: &Records) -> Result<Block, DeviceError> {
        let out_of_memory = DeviceError::Driver { call: "cuMemHostAlloc", code: 2 };
        // There are no more than launches in flight, and without one the graph couldn't run.
        self.stage(driver, records.size_bytes(), Need::Must)?.ok_or(out_of_memory)
    }

    /// Puts a graph that was prepared on a queue.
    ///
    /// # Safety
    /// - As `Device::submit`.
    pub unsafe fn launch_graph(
        &self,
        driver: Driver<'_>,
        queue: &Queue,
        sequence: u64,
        graph: &Graph,
        block: Option<Block>,
    ) -> Result<(), DeviceError> {
        let executable = executable(graph).expect("a graph is prepared before it is submitted");
        let block = match (&executable.records, block) {
            (None, _) => None,
            (Some(_), Some(block)) => Some(block),
            // The thread-locals are gone.
            (Some(records), None) => Some(self.stage_records(driver, records)?),
        };
        // SAFETY: it is destroyed only when no launch of it is in flight; what its nodes touch is as the contract says.
        unsafe { driver.graph_launch(executable.raw, queue.stream()) }?;
        let Some((records, block)) = executable.records.as_ref().zip(block) else { return Ok(()) };
        // SAFETY: the block is so large and stays until the copy is complete; the records live as long as the executable.
        unsafe { driver.memcpy_dtoh(block.address, records.address, records.size_bytes(), queue.stream()) }?;
        let copies = Copies { block, indices: records.indices.clone() };
        queue.errors.lock().add_copies(sequence, copies, queue.executed());
        // The block is wanted back.
        queue.ask_for_mark();
        Ok(())
    }

    fn make(&self, driver: Driver<'_>, graph: &Graph) -> Result<Executable, DeviceError> {
        self.destroy_unused(driver)?;
        // All that may block comes before the capture.
        let mut indices = Vec::new();
        let mut planned: Vec<Planned> = Vec::with_capacity(graph.nodes().len());
        for node in graph.nodes() {
            planned.push(self.planned(driver, &node.kernel, &node.operands, &mut indices)?);
        }
        let (mut kernels, mut algorithms) = (Vec::new(), Vec::new());
        for call in planned.iter().flat_map(|planned| &planned.steps.calls) {
            match call {
                Call::Kernel(loaded) => kernels.push(kept(loaded)),
                Call::MatMul(algorithm) => algorithms.push(kept(algorithm)),
                Call::Fill => {}
            }
        }
        let records = match indices.len() {
            0 => None,
            count => {
                Some(Records { address: driver.mem_alloc(count * RECORD_BYTES)?, indices: Arc::new(indices) })
            }
        };
        let made = self.capture(driver, graph, &mut planned, records.as_ref()).and_then(|(graph, draws)| {
            let raw = driver.graph_instantiate(graph).inspect_err(|_| {
                // SAFETY: nothing was made of it.
                _ = unsafe { driver.graph_destroy(graph) };
            })?;
            Ok((raw, graph, draws))
        });
        match made {
            Ok((raw, graph, draws)) => {
                Ok(Executable { raw, graph, draws, records, _kernels: kernels, _algorithms: algorithms })
            }
            Err(error) => {
                if let Some(records) = records {
                    // SAFETY: nothing was launched that uses it.
                    _ = unsafe { driver.mem_free(records.address) };
                }
                Err(error)
            }
        }
    }

    fn planned(
        &self,
        driver: Driver<'_>,
        kernel: &Kernel,
        operands: &[Operand],
        indices: &mut Vec<errors::Indices>,
    ) -> Result<Planned, DeviceError> {
        let mut steps = Steps::default();
        self.plan(driver, None, kernel, operands, &mut steps)?;
        let scratch = scratch_of(&steps.plan, operands);
        let checked = errors::Indices::of(kernel, operands).filter(|_| wants_record(&steps.plan));
        let record = checked.map(|checked| {
            indices.push(checked);
            indices.len() - 1
        });
        Ok(Planned { steps, scratch, record })
    }

    /// The calls of all nodes, captured on a stream of our own.
    fn capture(
        &self,
        driver: Driver<'_>,
        graph: &Graph,
        planned: &mut [Planned],
        records: Option<&Records>,
    ) -> Result<(driver::Graph, Vec<DrawNode>), DeviceError> {
        let idle = self.capture_streams.lock().pop();
        let stream = match idle {
            Some(stream) => stream,
            None => {
                gates::check_none_is_closed("way to capture a first graph while a stream is held")?;
                driver.stream_create(false)?
            }
        };
        let ended = driver.stream_begin_capture(stream).map(|()| {
            let draws = self.capture_on(driver, stream, graph, planned, records);
            // Also after an error, which spoils the capture: the stream has to come out of it.
            (draws, driver.stream_end_capture(stream))
        });
        // Out of it the stream serves the next one, whatever came of this: failures, which may be many, leave no streams behind.
        self.capture_streams.lock().push(stream);
        let (draws, captured) = ended?;
        let draws = match draws {
            Ok(draws) => draws,
            Err(error) => {
                if let Ok(captured) = captured {
                    // SAFETY: nothing was made of it.
                    _ = unsafe { driver.graph_destroy(captured) };
                }
                return Err(error);
            }
        };
        Ok((captured?, draws))
    }

    fn capture_on(
        &self,
        driver: Driver<'_>,
        stream: Stream,
        graph: &Graph,
        planned: &mut [Planned],
        records: Option<&Records>,
    ) -> Result<Vec<DrawNode>, DeviceError> {
        let mut draws = Vec::new();
        let dependencies = if driver.tells_of_captures() { graph.dependencies() } else { Vec::new() };
        let mut start = Vec::new();
        if let Some(records) = records {
            // SAFETY: the records are so large, and only this graph uses them.
            unsafe { driver.memset(records.address, 0, records.size_bytes(), stream) }?;
            if !dependencies.is_empty() {
                start.push(driver.stream_last_captured(stream)?);
            }
        }
        // What is behind a node is behind these.
        let mut ends: Vec<Vec<GraphNode>> = Vec::with_capacity(dependencies.len());
        for (index, Planned { steps, scratch, record }) in planned.iter_mut().enumerate() {
            if let Some(before) = dependencies.get(index) {
                let mut behind: Vec<GraphNode> =
                    before.iter().flat_map(|&node| &ends[node]).copied().collect();
                if behind.is_empty() {
                    behind.clone_from(&start);
                }
                driver.stream_set_behind(stream, &behind)?;
                ends.push(behind);
            }
            let record = record.zip(records).map_or(0, |(at, all)| all.address + (at * RECORD_BYTES) as u64);
            // SAFETY: as for a launch: the operands are as the kernel's doc says, and calls are those of the plan. Nothing
            // runs before the graph is launched.
            unsafe { self.steps(driver, stream, steps, *scratch, record) }?;
            if let (Some(end), false) = (ends.last_mut(), steps.calls.is_empty()) {
                *end = vec![driver.stream_last_captured(stream)?];
            }
            if let Kernel::Random { .. } = graph.nodes()[index].kernel {
                let [Call::Kernel(loaded)] = &steps.calls[..] else {
                    unreachable!("cuda: a draw is one step")
                };
                let node = driver.stream_last_captured(stream)?;
                draws.push(DrawNode { node, function: loaded.function, index });
            }
        }
        if !dependencies.is_empty() {
            // Nothing is left lying: a capture that ends with what isn't joined is an error.
            let mut is_last = vec![true; ends.len()];
            dependencies.iter().flatten().for_each(|&before| is_last[before] = false);
            let last = ends.iter().zip(is_last).filter(|(_, is_last)| *is_last).flat_map(|(end, _)| end);
            driver.stream_set_behind(stream, &last.copied().collect::<Vec<_>>())?;
        }
        Ok(draws)
    }

    pub fn destroy_unused(&self, driver: Driver<'_>) -> Result<(), DeviceError> {
        for unused in self.executables.collect(|| self.in_flight(), |wait| self.is_executed(wait)) {
            // SAFETY: the hal's graph is gone, and all launches of it are over.
            unsafe {
                driver.graph_exec_destroy(unused.raw)?;
                driver.graph_destroy(unused.graph)?;
                if let Some(records) = &unused.records {
                    driver.mem_free(records.address)?;
                }
            }
        }
        Ok(())
    }
}

/// The count of a value that a thread holds.
fn kept<V>(held: &Held<V>) -> Arc<V> {
    held.0.clone()
}
