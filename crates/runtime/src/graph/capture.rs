//! Recording instead of running.
//!
//! While a [`Capture`] is alive its thread submits nothing to its device: kernels are noted with their operands, and what
//! is allocated becomes a *region* of the memory that each instance of the graph will have. Other threads don't notice.
//!
//! Regions get real blocks for the time being, so that each has an address of its own and nothing else has it; the blocks
//! carry the taint [`CAPTURED`], so whoever keeps one and reads it outside gets an error and never junk. A block that
//! nobody holds any more serves the next region, so a capture takes about the memory that running would.
//!
//! A region is in use from the first to the last node that names it. [`arrange`] gives regions that are never in use at
//! once the same place. Outputs are in use for ever and get blocks of their own, so that holding one keeps no more.
//!
//! Dropping a capture, by an error or a panic, forgets all of it.

use super::{
    replay::Graph,
    template::{ALIGNMENT_BYTES, Node, NodeOperand, Outside, Place, Template},
};
use crate::{
    ground::{Device, Error, Floor, NotCapturable, Result, capturing, fork},
    memory::{Buffer, Memory},
    order::taint::CAPTURED,
    submit::{Access, BlockAccess, Operand, view, witness},
};
use raddle_base::{DType, Layout};
use raddle_hal::{Kernel, Launch};
use raddle_sync::{atomic::Ordering::*, fault};
use smallvec::SmallVec;
use std::{cell::RefCell, collections::HashMap, marker::PhantomData, ops::Range, ptr};

/// A block serves a region if it isn't larger by more than this factor.
const WASTE_MAX: usize = 2; // guess

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Memory that was allocated inside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    pub(crate) size_bytes: usize,
    /// The nodes that name it, from the first to the last.
    pub(crate) used: Option<(usize, usize)>,
}

struct Recording {
    device: &'static Memory,
    nodes: Vec<Node>,
    regions: Vec<Region>,
    /// The blocks that stand for regions.
    held: Vec<Buffer>,
    /// Which region a block stands for now, by its id.
    inside: HashMap<u64, usize>,
    outside: Vec<Outside>,
    /// By the id of the block.
    outside_index: HashMap<u64, usize>,
}

/// The ops of this thread on a device are recorded while this lives. It stays on its thread.
pub struct Capture {
    device: &'static Memory,
    _here: PhantomData<*const ()>,
}

impl Capture {
    /// Begins to record. Errors: this thread is capturing already, or is ending; a forked child.
    pub fn begin(device: &Device) -> Result<Capture> {
        let device = Memory::of(device.0);
        if fork::is_child(device) {
            return Err(Error::Forked { device: device.name().into() });
        }
        let begun = RECORDING.try_with(|recording| {
            let mut recording = recording.borrow_mut();
            if recording.is_some() {
                return Err(capturing::refusal(device, "capture", NotCapturable::Nested));
            }
            *recording = Some(Recording {
                device,
                nodes: Vec::new(),
                regions: Vec::new(),
                held: Vec::new(),
                inside: HashMap::new(),
                outside: Vec::new(),
                outside_index: HashMap::new(),
            });
            Ok(())
        });
        begun.unwrap_or_else(|_| Err(capturing::refusal(device, "capture", NotCapturable::Ending)))?;
        capturing::begin(device.core);
        Ok(Capture { device, _here: PhantomData })
    }

    /// Was it allocated since the capture began?
    pub fn is_inside(&self, buffer: &Buffer) -> bool {
        let is_here = ptr::eq(buffer.block().device, self.device.core); // ids are the device's
        is_here
            && RECORDING.with_borrow(|recording| {
                recording.as_ref().is_some_and(|recording| recording.inside.contains_key(&buffer.id()))
            })
    }

    /// Ends the recording. `outputs` were allocated inside; each once, and the caller holds them. An error in a child that was
    /// forked meanwhile.
    pub fn end(self, outputs: &[&Buffer]) -> Result<Graph> {
        if fork::is_child(self.device) {
            return Err(Error::Forked { device: self.device.name().into() });
        }
        let recording = RECORDING.take().expect("it is there while a capture lives");
        drop(self);
        let Recording { device, nodes, regions, inside, outside, .. } = &recording;
        let mut places = vec![Place::Arena(0); regions.len()];
        for (index, output) in outputs.iter().enumerate() {
            let region = inside[&output.id()];
            debug_assert!(places[region] == Place::Arena(0), "runtime: an output is given twice");
            places[region] = Place::Output(index);
        }
        let in_arena: Vec<usize> = (0..regions.len()).filter(|&at| places[at] == Place::Arena(0)).collect();
        let (offsets, arena_bytes) = arrange(in_arena.iter().map(|&at| &regions[at]));
        in_arena.iter().zip(offsets).for_each(|(&at, offset)| places[at] = Place::Arena(offset));
        let nodes = nodes.iter().map(|node| node.with_places(|region| places[region])).collect();
        let output_bytes = outputs.iter().map(|output| output.size_bytes()).collect();
        let template = Template { device, nodes, outside: outside.clone(), arena_bytes, output_bytes };
        Ok(Graph::new(template))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        capturing::end(self.device.core);
        drop(RECORDING.try_with(RefCell::take)); // none while the thread ends
    }
}

/// Memory for a region.
#[cold]
pub(crate) fn allocate(device: &'static Memory, size_bytes: usize) -> Result<Buffer> {
    let fits = |held: &&Buffer| {
        let capacity_bytes = held.block().capacity_bytes;
        // A resource counts what it was asked for, and gets that back.
        let mut suits_resource = held.block().resource.load(Relaxed) == 0 || held.size_bytes() == size_bytes;
        fault!(sizes_change_inside => suits_resource = true);
        held.handle_count() == 1
            && capacity_bytes >= size_bytes
            && capacity_bytes <= WASTE_MAX * size_bytes.max(ALIGNMENT_BYTES)
            && suits_resource
    };
    let found = with(|recording| {
        let found = recording.held.iter().filter(fits).min_by_key(|held| held.block().capacity_bytes);
        found.map(|held| held.give_again(size_bytes))
    });
    let buffer = match found {
        Some(buffer) => buffer,
        None => {
            // The recording isn't borrowed meanwhile: hooks and resources of the user may allocate and submit, too.
            let buffer = device.allocate(size_bytes)?;
            if !capturing::is_begun(device) {
                return Ok(buffer); // they have ended the capture
            }
            buffer.block().taint.store(CAPTURED, Relaxed);
            with(|recording| recording.held.push(buffer.clone()));
            buffer
        }
    };
    if !fault!(region_has_a_value) {
        // It is ours alone, but may have been written outside while it stood for another region.
        buffer.block().taint.store(CAPTURED, Relaxed);
    }
    with(|recording| {
        recording.inside.insert(buffer.id(), recording.regions.len());
        recording.regions.push(Region { size_bytes, used: None });
    });
    Ok(buffer)
}

/// Notes a kernel, after the device has prepared what it may have to.
#[cold]
pub(crate) fn record<'a>(
    device: &'static Memory,
    op: &'static str,
    kernel: &Kernel,
    operands: &[Operand<'a>],
) -> Result<()> {
    if fork::is_child(device) {
        return Err(Error::Forked { device: device.name().into() });
    }
    let views: SmallVec<[_; 8]> = operands.iter().map(|operand| view(op, device, operand)).collect();
    let launch = Launch::Kernel { kernel, operands: &views };
    let scratch_bytes = if device.wants_prepared(&launch) {
        // SAFETY: the launch could be submitted; its memory is that of buffers, which live.
        unsafe { device.hal.prepare(&launch) }.map_err(|error| device.error(error))?
    } else {
        0
    };
    let touch = |operand: &Operand<'a>| BlockAccess {
        block: operand.buffer.block(),
        access: operand.access,
        whole: false,
    };
    let touches: SmallVec<[BlockAccess<'a>; 8]> = operands.iter().map(touch).collect();
    if witness::tell(&touches) {
        with(|recording| recording.add(kernel, operands, scratch_bytes));
        touches
            .iter()
            .filter(|touch| touch.access == Access::Write)
            .for_each(|touch| touch.block.count_write());
    }
    Ok(())
}

fn with<R>(body: impl FnOnce(&mut Recording) -> R) -> R {
    RECORDING
        .with_borrow_mut(|recording| body(recording.as_mut().expect("it is there while a capture lives")))
}

fn range_bytes(dtype: DType, layout: &Layout) -> Range<usize> {
    layout.offset() * dtype.size_bytes()..layout.end() * dtype.size_bytes()
}

impl Recording {
    fn add(&mut self, kernel: &Kernel, operands: &[Operand<'_>], scratch_bytes: usize) {
        let node = self.nodes.len();
        let mut noted = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            let Operand { buffer, access, dtype, layout } = *operand;
            let place = match self.inside.get(&buffer.id()) {
                Some(&region) => {
                    self.regions[region].use_by(node);
                    Place::Region(region)
                }
                None => Place::Outside(self.outside(kernel, operands, operand)),
            };
            noted.push(NodeOperand { place, access, dtype, layout: *layout });
        }
        if scratch_bytes > 0 {
            noted.push(NodeOperand {
                place: Place::Region(self.regions.len()),
                access: Access::Write,
                dtype: DType::U8,
                layout: Layout::contiguous([scratch_bytes].into_iter().collect()),
            });
            self.regions.push(Region { size_bytes: scratch_bytes, used: Some((node, node)) });
        }
        self.nodes.push(Node { kernel: kernel.clone(), operands: noted });
    }

    fn outside(&mut self, kernel: &Kernel, operands: &[Operand<'_>], operand: &Operand<'_>) -> usize {
        let Operand { buffer, access, dtype, layout } = *operand;
        let range = range_bytes(dtype, layout);
        let index = *self.outside_index.entry(buffer.id()).or_insert_with(|| {
            // Whoever overwrites all of it first doesn't depend on what it held.
            let reads = |other: &Operand<'_>| other.access == Access::Read && other.buffer.is(buffer);
            let whole = access == Access::Write
                && !kernel.reads_outputs()
                && layout.is_contiguous()
                && range.len() >= buffer.size_bytes()
                && !operands.iter().any(reads);
            self.outside.push(Outside { buffer: buffer.clone(), access, whole, range: range.clone() });
            self.outside.len() - 1
        });
        let outside = &mut self.outside[index];
        if access == Access::Write {
            outside.access = Access::Write;
        }
        outside.range = outside.range.start.min(range.start)..outside.range.end.max(range.end);
        index
    }
}

impl Region {
    fn use_by(&mut self, node: usize) {
        let first = self.used.map_or(node, |(first, _)| first);
        self.used = Some((first, node));
    }
}

/// Where regions lie, and how much that is in all: no two that a node could meet at once overlap. The largest first, each
/// at the lowest place that is free while it is in use. (Source: "greedy by size" of Pisarchyk & Lee 2020, "Efficient
/// memory management for deep neural net inference".)
fn arrange<'a>(regions: impl Iterator<Item = &'a Region>) -> (Vec<usize>, usize) {
    let regions: Vec<&Region> = regions.collect();
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(regions[at].size_bytes)); // stable: the same for each capture
    let (mut offsets, mut total) = (vec![0; regions.len()], 0);
    // Of those that have a place: when they are in use, and where.
    let mut placed: Vec<((usize, usize), Range<usize>)> = Vec::new();
    for at in order {
        let Some((first, last)) = regions[at].used else { continue };
        let size = regions[at].size_bytes.next_multiple_of(ALIGNMENT_BYTES);
        let meets = |other: &(usize, usize)| other.0 <= last && first <= other.1;
        let mut taken: Vec<Range<usize>> =
            placed.iter().filter(|(used, _)| meets(used)).map(|(_, range)| range.clone()).collect();
        taken.sort_unstable_by_key(|range| range.start);
        let mut offset = 0;
        for range in taken {
            if range.start >= offset + size {
                break;
            }
            offset = offset.max(range.end);
        }
        offsets[at] = offset;
        total = total.max(offset + size);
        placed.push(((first, last), offset..offset + size));
    }
    (offsets, total)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn regions_in_use_at_once_are_apart() {
        let mut seed = 1u64;
        let mut below = |bound: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % bound
        };
        for _ in 0..200 {
            let regions: Vec<Region> = (0..below(40))
                .map(|_| {
                    let first = below(30);
                    let used = (below(8) > 0).then(|| (first, first + below(10)));
                    Region { size_bytes: below(5000), used }
                })
                .collect();
            let (offsets, total) = arrange(regions.iter());
            for (a, one) in regions.iter().enumerate() {
                let Some(used) = one.used else { continue };
                assert!(offsets[a] % ALIGNMENT_BYTES == 0 && offsets[a] + one.size_bytes <= total);
                for (b, other) in regions.iter().enumerate().skip(a + 1) {
                    let Some(others) = other.used else { continue };
                    let at_once = used.0 <= others.1 && others.0 <= used.1;
                    let apart = offsets[a] + one.size_bytes <= offsets[b]
                        || offsets[b] + other.size_bytes <= offsets[a];
                    assert!(apart || !at_once);
                }
            }
        }
    }

    #[test]
    fn a_chain_takes_two_places() {
        let link = |at: usize| Region { size_bytes: 1000, used: Some((at, at + 1)) };
        let chain: Vec<Region> = (0..10).map(link).collect();
        assert_eq!(arrange(chain.iter()).1, 2 * 1024);
    }
}
