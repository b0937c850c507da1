//! What all instances of a graph are made after, and one instance: memory, and the kernels with its addresses.

use crate::{
    ground::{Error, Misfit, Result},
    memory::{Block, Buffer, Memory},
    order::Uses,
    submit::{Access, BlockAccess},
};
use raddle_base::{DType, Layout};
use raddle_hal::{self as hal, Address, Kernel};
use raddle_sync::fault;
// std's, as in hal.
use std::{ops::Range, sync::Arc};

/// Regions start at multiples of it, as blocks do: a kernel that suits a block suits a region.
pub(crate) const ALIGNMENT_BYTES: usize = 256;

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
    pub(crate) device: &'static Memory,
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
pub(super) struct Bound {
    pub(super) index: usize,
    pub(super) buffer: Buffer,
    pub(super) shift_bytes: isize,
}

pub(super) fn is_same(a: &[Bound], b: &[Bound]) -> bool {
    let same = |(a, b): (&Bound, &Bound)| {
        a.index == b.index && a.buffer.is(&b.buffer) && a.shift_bytes == b.shift_bytes
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Memory, and the kernels that work on it.
pub(super) struct Instance {
    /// Instead of the template's, by index.
    pub(super) bound: Vec<Bound>,
    arena: Option<Buffer>,
    pub(super) outputs: Vec<Buffer>,
    pub(super) graph: Arc<hal::Graph>,
    /// The pool's clock when it was used last.
    pub(super) used: u64,
    /// The stream that used it last.
    pub(super) slot: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All uses are over, or ordered before the next work of the stream at hand.
    Ready,
    /// In use on other streams.
    Busy,
    /// Somebody holds an output.
    Leased,
}

impl Instance {
    fn blocks(&mut self) -> impl Iterator<Item = &mut Buffer> {
        self.arena.iter_mut().chain(&mut self.outputs)
    }

    pub(super) fn state(&mut self, device: &'static Memory, slot: usize) -> State {
        let mut state = State::Ready;
        for buffer in self.blocks() {
            match buffer.uses_if_alone(slot, |tick| device.is_complete(tick)) {
                None => {
                    fault!(reuse_leased => continue);
                    return State::Leased;
                }
                Some(Uses::Over | Uses::Ordered) => {}
                Some(Uses::Pending) => state = State::Busy,
            }
        }
        state
    }

    /// Ends the last lease as freeing would: code outside of the runtime is waited for, and devices that poison what is
    /// freed do so, in order.
    pub(super) fn settle(&mut self, device: &'static Memory) {
        for buffer in self.blocks() {
            fault!(reuse_leased => if buffer.handle_count() > 1 { continue });
            for slot in buffer.take_recorded() {
                device.opened(slot).fence(buffer.block());
            }
            if device.poison {
                device.above.poison(buffer.block(), 0xDB);
            }
        }
    }
}

impl Template {
    pub(super) fn size_bytes(&self) -> usize {
        self.arena_bytes + self.output_bytes.iter().sum::<usize>()
    }

    pub(super) fn outputs(&self) -> Result<Vec<Buffer>> {
        self.output_bytes.iter().map(|&size_bytes| self.device.allocate(size_bytes)).collect()
    }

    pub(super) fn instance(&self, bound: Vec<Bound>) -> Result<Instance> {
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
    pub(super) fn graph(&self, instance: &Instance) -> hal::Graph {
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
    pub(super) fn touches<'a>(&'a self, instance: &'a Instance) -> Vec<BlockAccess<'a>> {
        fn own(buffer: &Buffer) -> BlockAccess<'_> {
            BlockAccess { block: buffer.block(), access: Access::Write, whole: true }
        }
        let mut touches: Vec<BlockAccess<'_>> =
            Vec::with_capacity(self.outside.len() + instance.outputs.len() + 1);
        if !fault!(unhoisted_waits) {
            touches.extend(self.outside.iter().map(|outside| BlockAccess {
                block: outside.buffer.block(),
                access: outside.access,
                whole: outside.whole,
            }));
            for Bound { index, buffer, .. } in &instance.bound {
                let block: &Block = buffer.block();
                let outside = &self.outside[*index];
                // Whether it covers another block as well isn't known.
                let whole = outside.whole && buffer.size_bytes() == outside.buffer.size_bytes();
                touches[*index] = BlockAccess { block, access: outside.access, whole };
            }
        }
        touches.extend(instance.arena.iter().chain(&instance.outputs).map(own));
        touches
    }

    /// Checks replacements; in the order of operands, without those that change nothing.
    pub(super) fn bind(&self, replacements: &[Replacement<'_>]) -> Result<Vec<Bound>> {
        let mut bound: Vec<(usize, Bound)> = Vec::with_capacity(replacements.len());
        for (at, Replacement { old, new, shift_bytes }) in replacements.iter().enumerate() {
            let misfit = |reason| Err(Error::Replacement { index: at, reason });
            let Some(index) = self.outside.iter().position(|outside| outside.buffer.is(old)) else {
                return misfit(Misfit::Unknown);
            };
            if bound.iter().any(|(_, bound)| bound.index == index) {
                return misfit(Misfit::Repeated);
            }
            if !std::ptr::eq(new.block().device, self.device.core) {
                return misfit(Misfit::Device);
            }
            if self.outside[index].access == Access::Write && new.check_writable("replay").is_err() {
                return misfit(Misfit::ReadOnly);
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
        if fault!(graph_borrows_operands) {
            // As if somebody else had got the memory of what nobody but the graph has a handle of.
            for (index, Outside { buffer, .. }) in self.outside.iter().enumerate() {
                if buffer.handle_count() == 1 && bound.iter().all(|(_, bound)| bound.index != index) {
                    let buffer = self.device.allocate(buffer.size_bytes())?;
                    bound.push((replacements.len(), Bound { index, buffer, shift_bytes: 0 }));
                }
            }
        }
        bound.sort_unstable_by_key(|(_, bound)| bound.index);
        Ok(bound.into_iter().map(|(_, bound)| bound).collect())
    }
}
