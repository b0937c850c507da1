//! Graphs: what a capture has recorded, replayed as one op.
//!
//! One replay is one op with a known operand set: the blocks from outside, each read or written, and the memory of one
//! *instance*. It claims them in order, waits for all before its first kernel, and stamps one tick. Kernels inside are
//! ordered by being in a list, and nothing else can come between them.
//!
//! **Instances.** Kernels hold addresses, so what runs twice at once must exist twice. An instance has an arena for what
//! lives inside of a replay, a block for each output, and the list of kernels with these addresses. [`choose`] picks one
//! for a replay; it is out of the pool while that is submitted, so a thread has it alone. Two replays of one instance are
//! ordered by the marks of its blocks, like everything.
//!
//! **Leases.** Outputs are handed out as they lie in the instance. While somebody holds a handle of one, the instance is not
//! used again: it looks at the count of handles (T1), and at the marks for who still reads. There is nothing to give back.
//! Where all instances are leased, one of them leaves its outputs to those who hold them and gets new ones.
//!
//! **Bounds** (T9). At most `graph_instance_count` instances a graph; past that replays line up behind one by its marks,
//! and only while every instance is being submitted by some other thread does one wait. (A hook or a resource that replays a
//! graph never waits: the thread that it is called on may be the one that has the instance. There may be one more, then.)

use super::{
    graphs::Graphs,
    instances::{Choice, InstancePool, Instances, Seen, choose},
    template::{Bound, Instance, Node, Replacement, State, Template, is_same},
};
use crate::{
    ground::{Device, Error, Floor, NotCapturable, Result, capturing, fork},
    memory::{self, Buffer, policy},
    order::Stream,
    stream::binding,
    submit::Access,
};
use raddle_hal::{Draw, Kernel, Launch};
use raddle_sync::{
    Condvar, Mutex, MutexGuard, Padded, Rank,
    atomic::{AtomicUsize, Ordering::*},
    fault,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// An instance that is out of the pool; goes back when dropped.
struct Taken<'a> {
    graph: &'a Graph,
    instance: Option<Instance>,
    /// Where it goes back to.
    place: usize,
    /// For which stream.
    slot: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut pool = self.graph.instances.pool.lock();
        match self.instance.take() {
            Some(instance) => pool.put(self.place, instance, self.slot),
            None => pool.forget(self.place),
        }
        let is_awaited = pool.waiting > 0;
        drop(pool);
        // Waking nobody is a call of the system, too.
        if is_awaited {
            self.graph.instances.returned.notify_one();
        }
    }
}

/// What a graph is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphStats {
    /// Kernels of a replay.
    pub nodes: usize,
    /// Blocks from outside.
    pub operands: usize,
    /// Memory of an instance for what lives inside of a replay.
    pub arena_bytes: usize,
    /// Memory of an instance for outputs.
    pub output_bytes: usize,
    /// Instances that there are.
    pub instances: usize,
}

/// Recorded kernels that may be replayed from any number of threads at once, ordered like any op.
///
/// | field | touched by |
/// |---|---|
/// | `template` | anybody; never changes |
/// | `instances` | holder of the pool's lock; an instance by whoever has taken it out |
/// | `instance_count_max` | anybody; a hint |
pub struct Graph {
    template: Template,
    instances: Arc<Instances>,
    instance_count_max: AtomicUsize,
}

// As for `Core`.
impl std::panic::RefUnwindSafe for Graph {}
impl std::panic::UnwindSafe for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({} on {})", self.template.nodes.len(), self.template.device.name())
    }
}

impl Graph {
    pub(crate) fn new(template: Template) -> Graph {
        let instances = Arc::new(Instances {
            pool: Mutex::new(Rank::Graph, InstancePool::default()),
            returned: Condvar::new(),
            size_bytes: template.size_bytes(),
        });
        Graphs::of(template.device.core).add(&instances);
        let instance_count_max = AtomicUsize::new(template.device.bounds().graph_instance_count);
        Graph { template, instances, instance_count_max }
    }

    /// Where it was captured.
    pub fn device(&self) -> Device {
        Device(self.template.device.core)
    }

    /// What it is like.
    pub fn stats(&self) -> GraphStats {
        let Template { nodes, outside, arena_bytes, output_bytes, .. } = &self.template;
        GraphStats {
            nodes: nodes.len(),
            operands: outside.len(),
            arena_bytes: *arena_bytes,
            output_bytes: output_bytes.iter().sum(),
            // In a forked child it is behind a lock of the parent.
            instances: if fork::is_child(self.template.device) { 0 } else { self.instances.count() },
        }
    }

    /// The blocks from outside, and what is done with them.
    pub fn operands(&self) -> impl Iterator<Item = (&Buffer, Access)> {
        self.template.outside.iter().map(|outside| (&outside.buffer, outside.access))
    }

    /// How many nodes draw random numbers.
    pub fn draw_count(&self) -> usize {
        let draws = |node: &&Node| matches!(node.kernel, Kernel::Random { .. });
        self.template.nodes.iter().filter(draws).count()
    }

    /// The most instances from now on, at least 1. Those that are there stay.
    pub fn set_instance_count_max(&self, count_max: usize) {
        self.instance_count_max.store(count_max.max(1), Relaxed);
    }

    /// Puts a replay on the current stream of this thread, behind everything that its operands have to wait for; the blocks
    /// of its outputs, in the order in which they were given to [`Capture::end`](crate::Capture::end). `draws` has one entry
    /// for each node that draws.
    ///
    /// It doesn't wait for the result. It blocks as [`Device::submit`] does, and while all instances are just being
    /// submitted by other threads. If a kernel fails, everything that the replay writes depends on that failure.
    pub fn replay(&self, replacements: &[Replacement<'_>], draws: &[Draw]) -> Result<Vec<Buffer>> {
        let device = self.template.device;
        if fork::is_child(device) {
            // The lock of the pool may be held by a thread that is not here.
            return Err(Error::Forked { device: device.name().into() });
        }
        capturing::refuse(device, "replay", NotCapturable::Replay)?;
        self.replay_on(binding::current(device)?, replacements, draws)
    }

    /// As [`Graph::replay`], on a stream.
    pub(crate) fn replay_on(
        &self,
        stream: Stream,
        replacements: &[Replacement<'_>],
        draws: &[Draw],
    ) -> Result<Vec<Buffer>> {
        let device = self.template.device;
        let bound = self.template.bind(replacements)?;
        let taken = match self.take(stream.0.slot, &bound, true) {
            // What there is has to do.
            Err(Error::OutOfMemory { .. }) if self.instances.count() > 0 => {
                self.take(stream.0.slot, &bound, false)?
            }
            taken => taken?,
        };
        let instance = taken.instance.as_ref().expect("it was just taken");
        let launch = Launch::Graph { graph: &instance.graph, draws };
        stream.launch("graph", &launch, &mut self.template.touches(instance))?;
        Graphs::of(device.core).replayed();
        Ok(instance.outputs.clone())
    }

    /// An instance with these operands, which nobody else uses meanwhile. Holds the lock while it looks, and no more.
    fn take(&self, slot: usize, bound: &[Bound], may_grow: bool) -> Result<Taken<'_>> {
        let template = &self.template;
        let device = template.device;
        let (place, instance, state) = {
            let mut pool = self.instances.pool.lock();
            match pool.take_own(device, slot, bound) {
                Some((place, instance)) => (place, Some(instance), State::Ready),
                None => self.take_any(pool, slot, bound, may_grow),
            }
        };
        let mut taken = Taken { graph: self, instance, place, slot };
        match &mut taken.instance {
            None => taken.instance = Some(template.instance(bound.to_vec())?),
            Some(instance) => {
                let leased = state == State::Leased;
                if leased {
                    // Those who hold them keep them.
                    instance.outputs = template.outputs()?;
                } else {
                    instance.settle(device);
                }
                if leased || !is_same(&instance.bound, bound) {
                    instance.bound = bound.to_vec();
                    instance.graph = Arc::new(template.graph(instance));
                }
            }
        }
        Ok(taken)
    }

    /// Looks at all instances in the pool: the place of one that is out of it now, the instance, unless it is to be made, and what
    /// it was like.
    fn take_any(
        &self,
        mut pool: MutexGuard<'_, InstancePool>,
        slot: usize,
        bound: &[Bound],
        may_grow: bool,
    ) -> (usize, Option<Instance>, State) {
        let template = &self.template;
        let device = template.device;
        loop {
            let room = pool.count == 0 || may_grow && pool.count < self.instance_count_max.load(Relaxed);
            let is_cheap =
                (pool.count + 1).saturating_mul(template.size_bytes()) <= device.bounds().graph_bytes;
            let look = |instance: &mut Instance| Seen {
                fits: is_same(&instance.bound, bound),
                state: instance.state(device, slot),
                used: instance.used,
            };
            let mut at: SmallVec<[usize; 32]> = SmallVec::new();
            let mut seen: SmallVec<[Seen; 32]> = SmallVec::new();
            for (place, Padded(instance)) in pool.places.iter_mut().enumerate() {
                if let Some(instance) = instance {
                    at.push(place);
                    seen.push(look(instance));
                }
            }
            match choose(&seen, room, is_cheap) {
                Choice::Take(index) => {
                    return (at[index], pool.places[at[index]].0.take(), seen[index].state);
                }
                Choice::Grow => return (pool.grow(), None, State::Ready),
                // What this thread is inside of may have the instance that it would wait for.
                Choice::Wait if may_hold_an_instance() => {
                    return (pool.grow(), None, State::Ready);
                }
                Choice::Wait => {
                    pool.waiting += 1;
                    pool = self.instances.returned.wait(pool);
                    pool.waiting -= 1;
                }
            }
        }
    }
}

/// Is this thread inside of a hook or a resource, which may hold the instance that it would wait for?
fn may_hold_an_instance() -> bool {
    fault!(hook_waits_for_itself => return false);
    memory::is_asking() || policy::is_inside()
}
