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

use crate::{
    Access, Buffer, Device, Error, Misfit, NotCapturable, Result,
    block::Block,
    capture::{self, ALIGNMENT_BYTES},
    device::DeviceInner,
    fork, hooks, local,
    marks::Uses,
    submit::Touch,
    watch,
};
use raddle_base::{DType, Layout};
use raddle_hal::{self as hal, Address, Draw, Kernel, Launch};
use raddle_sync::{
    Condvar, Mutex, MutexGuard, Padded, Rank,
    atomic::{AtomicUsize, Ordering::*},
    fault,
};
use smallvec::SmallVec;
// std's, as in hal.
use std::{ops::Range, sync::Arc};

/// Where an operand of a recorded kernel lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a block from outside.
    Outside(usize),
    /// In a region, whose place isn't known yet.
    Region(usize),
    /// So many bytes from the start of the arena.
    Arena(usize),
    /// In the block of an output.
    Output(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct NodeOperand {
    pub(crate) place: Place,
    pub(crate) access: Access,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
}

/// A recorded kernel.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kernel: Kernel,
    pub(crate) operands: Vec<NodeOperand>,
}

impl Node {
    /// With regions replaced by their places.
    pub(crate) fn with_places(&self, place: impl Fn(usize) -> Place) -> Node {
        let mut node = self.clone();
        for operand in &mut node.operands {
            if let Place::Region(region) = operand.place {
                operand.place = place(region);
            }
        }
        node
    }
}

/// A block that was made outside and is used inside.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    pub(crate) buffer: Buffer,
    pub(crate) access: Access,
    /// Is every byte of it written before any is read?
    pub(crate) whole: bool,
    /// The bytes of it that are used.
    pub(crate) range: Range<usize>,
}

/// What all instances are made after. Never changes.
pub(crate) struct Template {
    pub(crate) device: &'static DeviceInner,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outside: Vec<Outside>,
    pub(crate) arena_bytes: usize,
    pub(crate) output_bytes: Vec<usize>,
}

/// For one replay: other memory in the place of an operand's.
#[derive(Clone, Copy, Debug)]
pub struct Replacement<'a> {
    /// The memory that the operand was captured with.
    pub old: &'a Buffer,
    /// The memory to use.
    pub new: &'a Buffer,
    /// How much further from its start the operand lies in the new one than in the old one.
    pub shift_bytes: isize,
}

/// A replacement that fits: which operand, by what, how much further.
#[derive(Clone)]
struct Bound {
    index: usize,
    buffer: Buffer,
    shift_bytes: isize,
}

fn is_same(a: &[Bound], b: &[Bound]) -> bool {
    let same = |(a, b): (&Bound, &Bound)| {
        a.index == b.index && a.buffer.is(&b.buffer) && a.shift_bytes == b.shift_bytes
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Memory, and the kernels that work on it.
struct Instance {
    /// Instead of the template's, by index.
    bound: Vec<Bound>,
    arena: Option<Buffer>,
    outputs: Vec<Buffer>,
    graph: Arc<hal::Graph>,
    /// The pool's clock when it was used last.
    used: u64,
    /// The stream that used it last.
    slot: usize,
}

/// Each instance has a place of its own, so that streams that find their own ones again share no more than the lock.
#[derive(Default)]
struct Pool {
    /// Empty: the instance is being submitted, or there is none.
    places: Vec<Padded<Option<Instance>>>,
    /// Places that no instance has.
    vacant: Vec<usize>,
    /// By stream, the place of what it has used last.
    last: Vec<usize>,
    /// Instances, also those that are being submitted.
    count: usize,
    clock: u64,
    /// Threads that wait for an instance.
    waiting: usize,
}

impl Pool {
    /// A place for a new instance.
    fn grow(&mut self) -> usize {
        self.count += 1;
        self.vacant.pop().unwrap_or_else(|| {
            self.places.push(Padded(None));
            self.places.len() - 1
        })
    }

    /// What the stream has used last, if it has these operands and can start at once. Nothing else is looked at: the others
    /// lie in caches of other cores.
    fn take_own(
        &mut self,
        device: &'static DeviceInner,
        slot: usize,
        bound: &[Bound],
    ) -> Option<(usize, Instance)> {
        let place = *self.last.get(slot)?;
        let Padded(own) = self.places.get_mut(place)?;
        let is_own = |own: &mut Instance| {
            own.slot == slot && is_same(&own.bound, bound) && own.state(device, slot) == State::Ready
        };
        Some((place, own.take_if(is_own)?))
    }

    /// Puts an instance back that `slot` has used.
    fn put(&mut self, place: usize, mut instance: Instance, slot: usize) {
        self.clock += 1;
        (instance.used, instance.slot) = (self.clock, slot);
        self.places[place].0 = Some(instance);
        if self.last.len() <= slot {
            self.last.resize(slot + 1, usize::MAX);
        }
        // Mostly it stands there already; a store would take the line from all other streams' cores.
        if self.last[slot] != place {
            self.last[slot] = place;
        }
    }

    /// Drops an instance that was in no place.
    fn forget(&mut self, place: usize) {
        self.count -= 1;
        self.vacant.push(place);
    }
}

/// What [`choose`] knows of an instance in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Has it the operands that are wanted?
    fits: bool,
    state: State,
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All uses are over, or ordered before the next work of the stream at hand.
    Ready,
    /// In use on other streams.
    Busy,
    /// Somebody holds an output.
    Leased,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// This one.
    Take(usize),
    /// A new one.
    Grow,
    /// None is in the pool.
    Wait,
}

/// Which instance to use. `room`: whether there may be one more.
///
/// The one that was used last among those that can start at once, as its memory is likely in a cache. Then a new one, if
/// that lets replays overlap, or keeps operands from being replaced (`is_cheap`); otherwise one whose turn comes next, and
/// a leased one last, since its outputs have to be made anew.
fn choose(seen: &[Seen], room: bool, is_cheap: bool) -> Choice {
    let best = |state: State, fits: bool, newest: bool| {
        let among = seen.iter().enumerate().filter(|(_, seen)| seen.state == state && (seen.fits || !fits));
        let key = |(_, seen): &(usize, &Seen)| if newest { u64::MAX - seen.used } else { seen.used };
        among.min_by_key(key).map(|(index, _)| index)
    };
    if let Some(index) = best(State::Ready, true, true) {
        return Choice::Take(index);
    }
    let other = best(State::Ready, false, false);
    if room && (other.is_none() || is_cheap) {
        return Choice::Grow;
    }
    let next = other.or_else(|| best(State::Busy, true, false)).or_else(|| best(State::Busy, false, false));
    match next.or_else(|| best(State::Leased, false, false)) {
        Some(index) => Choice::Take(index),
        None if room => Choice::Grow,
        None => Choice::Wait,
    }
}

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

/// The instances of a graph, which the device knows, too.
pub(crate) struct Instances {
    pool: Mutex<Pool>,
    /// Signalled when an instance comes back, or room for one.
    returned: Condvar,
    /// Of one.
    pub(crate) size_bytes: usize,
}

impl Instances {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.pool.lock().count
    }

    /// Frees those that are in the pool, as any memory is freed: whoever holds an output keeps it, and work in flight goes on.
    pub(crate) fn clear(&self) {
        let mut pool = self.pool.lock();
        let mut free = Vec::new();
        for place in 0..pool.places.len() {
            if let Some(instance) = pool.places[place].0.take() {
                free.push(instance);
                pool.forget(place);
            }
        }
        drop(pool);
        drop(free); // frees memory, which isn't for under the lock
        self.returned.notify_all();
    }
}

// As for `DeviceInner`.
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
            pool: Mutex::new(Rank::Graph, Pool::default()),
            returned: Condvar::new(),
            size_bytes: template.size_bytes(),
        });
        template.device.graphs.add(&instances);
        let instance_count_max = AtomicUsize::new(template.device.bounds().graph_instance_count);
        Graph { template, instances, instance_count_max }
    }

    /// Where it was captured.
    pub fn device(&self) -> Device {
        Device(self.template.device)
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
        capture::refuse(device, "replay", NotCapturable::Replay)?;
        self.replay_on(local::current(device)?, replacements, draws)
    }

    /// As [`Graph::replay`], on a stream.
    pub(crate) fn replay_on(
        &self,
        stream: crate::Stream,
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
        device.graphs.replayed();
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
        mut pool: MutexGuard<'_, Pool>,
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
                Choice::Wait
                    if (hooks::is_asking() || watch::is_inside()) && !fault!(hook_waits_for_itself) =>
                {
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

impl Instance {
    fn blocks(&mut self) -> impl Iterator<Item = &mut Buffer> {
        self.arena.iter_mut().chain(&mut self.outputs)
    }

    fn state(&mut self, device: &'static DeviceInner, slot: usize) -> State {
        let mut state = State::Ready;
        for buffer in self.blocks() {
            match buffer.uses_if_alone(slot, |tick| device.is_complete(tick)) {
                None if fault!(reuse_leased) => {}
                None => return State::Leased,
                Some(Uses::Over | Uses::Ordered) => {}
                Some(Uses::Pending) => state = State::Busy,
            }
        }
        state
    }

    /// Ends the last lease as freeing would: code outside of the runtime is waited for, and devices that poison what is
    /// freed do so, in order.
    fn settle(&mut self, device: &'static DeviceInner) {
        for buffer in self.blocks() {
            if fault!(reuse_leased) && buffer.handle_count() > 1 {
                continue;
            }
            for slot in buffer.take_recorded() {
                device.opened(slot).fence(buffer.block());
            }
            if device.poison {
                local::poison(device, buffer, 0xDB);
            }
        }
    }
}

impl Template {
    fn size_bytes(&self) -> usize {
        self.arena_bytes + self.output_bytes.iter().sum::<usize>()
    }

    fn outputs(&self) -> Result<Vec<Buffer>> {
        self.output_bytes.iter().map(|&size_bytes| self.device.allocate(size_bytes)).collect()
    }

    fn instance(&self, bound: Vec<Bound>) -> Result<Instance> {
        let arena = (self.arena_bytes > 0).then(|| self.device.allocate(self.arena_bytes)).transpose()?;
        let mut instance = Instance {
            bound,
            arena,
            outputs: self.outputs()?,
            graph: Arc::new(hal::Graph::new(Vec::new())),
            used: 0,
            slot: usize::MAX,
        };
        instance.graph = Arc::new(self.graph(&instance));
        Ok(instance)
    }

    /// The kernels with the addresses of an instance.
    fn graph(&self, instance: &Instance) -> hal::Graph {
        let mut outside: Vec<Address> =
            self.outside.iter().map(|outside| outside.buffer.block().address).collect();
        for Bound { index, buffer, shift_bytes } in &instance.bound {
            let address = buffer.block().address;
            // Wrapping: a shift may lead before the block, where no operand lies.
            let offset_bytes = address.offset_bytes.wrapping_add_signed(*shift_bytes);
            outside[*index] = Address { offset_bytes, ..address };
        }
        let arena = instance.arena.as_ref().map(|arena| arena.block().address);
        let view = |operand: &NodeOperand| {
            let address = match operand.place {
                Place::Outside(index) => outside[index],
                Place::Output(index) => instance.outputs[index].block().address,
                Place::Arena(offset) => {
                    let arena = arena.expect("there is one if something lies in it");
                    Address { offset_bytes: arena.offset_bytes + offset, ..arena }
                }
                Place::Region(_) => unreachable!("a capture that is over has placed its regions"),
            };
            let view = hal::View { address, dtype: operand.dtype, layout: operand.layout };
            match operand.access {
                Access::Read => hal::Operand::In(view),
                Access::Write => hal::Operand::Out(view),
            }
        };
        let node = |node: &Node| hal::Node {
            kernel: node.kernel.clone(),
            operands: node.operands.iter().map(view).collect(),
        };
        hal::Graph::new(self.nodes.iter().map(node).collect())
    }

    /// What a replay by an instance touches. All of its own memory counts as overwritten: what a replay reads of it, it has
    /// written.
    fn touches<'a>(&'a self, instance: &'a Instance) -> Vec<Touch<'a>> {
        fn own(buffer: &Buffer) -> Touch<'_> {
            Touch { block: buffer.block(), access: Access::Write, whole: true }
        }
        let mut touches: Vec<Touch<'_>> = Vec::with_capacity(self.outside.len() + instance.outputs.len() + 1);
        if !fault!(unhoisted_waits) {
            touches.extend(self.outside.iter().map(|outside| Touch {
                block: outside.buffer.block(),
                access: outside.access,
                whole: outside.whole,
            }));
            for Bound { index, buffer, .. } in &instance.bound {
                let block: &Block = buffer.block();
                let outside = &self.outside[*index];
                // Whether it covers another block as well isn't known.
                let whole = outside.whole && buffer.size_bytes() == outside.buffer.size_bytes();
                touches[*index] = Touch { block, access: outside.access, whole };
            }
        }
        touches.extend(instance.arena.iter().chain(&instance.outputs).map(own));
        touches
    }

    /// Checks replacements; in the order of operands, without those that change nothing.
    fn bind(&self, replacements: &[Replacement<'_>]) -> Result<Vec<Bound>> {
        let mut bound: Vec<(usize, Bound)> = Vec::with_capacity(replacements.len());
        for (at, Replacement { old, new, shift_bytes }) in replacements.iter().enumerate() {
            let misfit = |reason| Err(Error::Replacement { index: at, reason });
            let Some(index) = self.outside.iter().position(|outside| outside.buffer.is(old)) else {
                return misfit(Misfit::Unknown);
            };
            if bound.iter().any(|(_, bound)| bound.index == index) {
                return misfit(Misfit::Repeated);
            }
            if !std::ptr::eq(new.block().device, self.device) {
                return misfit(Misfit::Device);
            }
            let range = &self.outside[index].range;
            let (start, end) =
                (range.start.checked_add_signed(*shift_bytes), range.end.checked_add_signed(*shift_bytes));
            if start.is_none() || end.is_none_or(|end| end > new.size_bytes()) {
                return misfit(Misfit::Range);
            }
            if shift_bytes.rem_euclid(ALIGNMENT_BYTES as isize) != 0 {
                return misfit(Misfit::Alignment);
            }
            bound.push((at, Bound { index, buffer: (*new).clone(), shift_bytes: *shift_bytes }));
        }
        for (at, own) in &bound {
            let is_shared = |(index, outside): (usize, &Outside)| {
                let other = bound.iter().find(|(_, bound)| bound.index == index);
                let buffer = other.map_or(&outside.buffer, |(_, bound)| &bound.buffer);
                let is_written =
                    outside.access == Access::Write || self.outside[own.index].access == Access::Write;
                index != own.index && is_written && buffer.is(&own.buffer)
            };
            if self.outside.iter().enumerate().any(is_shared) {
                return Err(Error::Replacement { index: *at, reason: Misfit::Shared });
            }
        }
        bound.retain(|(_, bound)| {
            bound.shift_bytes != 0 || !bound.buffer.is(&self.outside[bound.index].buffer)
        });
        bound.sort_unstable_by_key(|(_, bound)| bound.index);
        Ok(bound.into_iter().map(|(_, bound)| bound).collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seen(fits: bool, state: State, used: u64) -> Seen {
        Seen { fits, state, used }
    }

    #[test]
    fn what_is_ready_comes_first_and_what_is_leased_last() {
        use State::*;
        let all = [seen(true, Leased, 1), seen(true, Busy, 2), seen(false, Ready, 3), seen(true, Ready, 4)];
        assert_eq!(choose(&all, true, true), Choice::Take(3));
        assert_eq!(choose(&all[..3], true, true), Choice::Grow, "so that nothing has to be replaced");
        assert_eq!(choose(&all[..3], true, false), Choice::Take(2), "memory is dear");
        assert_eq!(choose(&all[..2], true, false), Choice::Grow, "so that they overlap");
        assert_eq!(choose(&all[..2], false, false), Choice::Take(1));
        assert_eq!(choose(&all[..1], true, false), Choice::Grow);
        assert_eq!(choose(&all[..1], false, false), Choice::Take(0));
        assert_eq!(choose(&[], true, false), Choice::Grow);
        assert_eq!(choose(&[], false, true), Choice::Wait);
    }

    #[test]
    fn of_ready_ones_the_newest_of_busy_ones_the_oldest() {
        let ready = [seen(true, State::Ready, 5), seen(true, State::Ready, 9), seen(true, State::Ready, 7)];
        assert_eq!(choose(&ready, true, true), Choice::Take(1));
        let busy = [seen(true, State::Busy, 5), seen(true, State::Busy, 3), seen(false, State::Busy, 1)];
        assert_eq!(choose(&busy, false, true), Choice::Take(1));
    }
}
