//! Launches that own what they need, cut into pieces that may run with others' pieces in between.
//!
//! A launch is cut only where that changes no bit of its result: pointwise kernels by element, copies and fills by byte,
//! kernels that work row by row along the outermost axis when that axis isn't theirs. All else is one piece.

use crate::random::Random;
use raddle_hal::{Address, Cut, HostBytes, Kernel, Launch, Operand};
// std's, since loom's doesn't hold slices, and no model looks here.
use std::{collections::VecDeque, ops::Range, sync::Arc};

/// The most pieces of a launch (of a group of operands, for multi-tensor launches). A guess: two show a tear, four
/// show most orders.
const PIECE_COUNT_MAX: u64 = 4;

/// A part of a launch that runs without a pause.
pub enum Piece {
    Kernel {
        kernel: Arc<Kernel>,
        operands: Box<[Operand]>,
    },
    /// The source was copied when it was submitted, for all pieces at once.
    Upload {
        bytes: Arc<[u8]>,
        range: Range<usize>,
        to: Address,
    },
    /// Names memory by address only.
    Plain(Launch<'static>),
}

impl Piece {
    /// The launch to give to a device.
    pub fn launch(&self) -> Launch<'_> {
        match self {
            Piece::Kernel { kernel, operands } => Launch::Kernel { kernel, operands },
            Piece::Upload { bytes, range, to } => {
                let bytes = &bytes[range.clone()];
                let from = HostBytes { address: bytes.as_ptr() as usize, size_bytes: bytes.len() };
                Launch::Upload { from, to: *to }
            }
            Piece::Plain(launch) => *launch,
        }
    }
}

/// Does a launch name memory of this slab?
pub fn names(launch: &Launch<'_>, handle: u64) -> bool {
    match launch {
        Launch::Kernel { operands, .. } => {
            operands.iter().any(|operand| operand.view().address.handle == handle)
        }
        Launch::Upload { to: address, .. }
        | Launch::Download { from: address, .. }
        | Launch::FillBytes { to: address, .. } => address.handle == handle,
        Launch::Graph { graph, .. } => {
            let operands = graph.nodes().iter().flat_map(|node| &node.operands);
            operands.into_iter().any(|operand| operand.view().address.handle == handle)
        }
        Launch::TimingEvent(_) | Launch::Spin(_) | Launch::Gate(_) | Launch::Nothing => false,
    }
}

/// Cuts a launch into pieces, or not.
///
/// # Safety
/// - The source of an upload is readable.
pub unsafe fn cut(launch: &Launch<'_>, cuts: bool, random: &mut Random) -> VecDeque<Piece> {
    let mut ranges = |size: usize| random_ranges(size, cuts, random);
    let after = |address: Address, offset_bytes: usize| Address {
        offset_bytes: address.offset_bytes + offset_bytes,
        ..address
    };
    match *launch {
        Launch::Kernel { kernel, operands } => kernel_pieces(kernel, operands, ranges),
        // Each node on its own: other queues run between and within nodes.
        Launch::Graph { graph, draws } => {
            let mut pieces = VecDeque::new();
            graph.for_each(draws, |kernel, operands| {
                pieces.append(&mut kernel_pieces(kernel, operands, &mut ranges));
            });
            // An empty graph is still one piece.
            if pieces.is_empty() { VecDeque::from([Piece::Plain(Launch::Nothing)]) } else { pieces }
        }
        Launch::Upload { from, to } => {
            let bytes: Arc<[u8]> = match from.size_bytes {
                0 => Arc::new([]),
                // SAFETY: by contract the bytes are readable, and they are not empty.
                size => unsafe { std::slice::from_raw_parts(from.address as *const u8, size) }.into(),
            };
            let piece = |range: Range<usize>| {
                let to = after(to, range.start);
                Piece::Upload { bytes: bytes.clone(), range, to }
            };
            ranges(from.size_bytes).into_iter().map(piece).collect()
        }
        Launch::Download { from, to } => {
            let piece = |range: Range<usize>| {
                let to = HostBytes { address: to.address + range.start, size_bytes: range.len() };
                Piece::Plain(Launch::Download { from: after(from, range.start), to })
            };
            ranges(to.size_bytes).into_iter().map(piece).collect()
        }
        Launch::FillBytes { to, size_bytes, value } => {
            let piece = |range: Range<usize>| {
                let to = after(to, range.start);
                Piece::Plain(Launch::FillBytes { to, size_bytes: range.len(), value })
            };
            ranges(size_bytes).into_iter().map(piece).collect()
        }
        Launch::TimingEvent(event) => VecDeque::from([Piece::Plain(Launch::TimingEvent(event))]),
        // When they begin is the queue's to say.
        Launch::Spin(_) | Launch::Gate(_) | Launch::Nothing => {
            VecDeque::from([Piece::Plain(Launch::Nothing)])
        }
    }
}

/// One range, or a few of random length; together they are `0..size`.
fn random_ranges(size: usize, cuts: bool, random: &mut Random) -> Vec<Range<usize>> {
    let count = if cuts { 1 + random.below(PIECE_COUNT_MAX) } else { 1 };
    let mut bounds: Vec<usize> = (1..count).map(|_| random.below(size as u64 + 1) as usize).collect();
    bounds.extend([0, size]);
    bounds.sort_unstable();
    bounds.dedup();
    if bounds.len() == 1 {
        return std::iter::once(0..0).collect(); // Nothing to do is still one piece.
    }
    bounds.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn kernel_pieces(
    kernel: &Kernel,
    operands: &[Operand],
    mut ranges: impl FnMut(usize) -> Vec<Range<usize>>,
) -> VecDeque<Piece> {
    // A multi-tensor launch is first cut into its groups.
    let (kernel, group_count) = match kernel {
        Kernel::Pointwise { program, compute, params, groups } => {
            let one =
                Kernel::Pointwise { program: program.clone(), compute: *compute, params: *params, groups: 1 };
            (Arc::new(one), *groups)
        }
        other => (Arc::new(other.clone()), 1),
    };
    if group_count == 0 || operands.is_empty() {
        return VecDeque::from([Piece::Kernel { kernel, operands: operands.into() }]);
    }
    let mut pieces = VecDeque::new();
    for group in operands.chunks(operands.len() / group_count) {
        let Some(axis) = axis_to_cut(&kernel, group) else {
            pieces.push_back(Piece::Kernel { kernel: kernel.clone(), operands: group.into() });
            continue;
        };
        for range in ranges(group[0].shape()[axis]) {
            // Scratch memory is for the whole launch, of which one piece runs at a time: each has it all.
            let is_scratch = |operand: &Operand| operand.shape().len() != group[0].shape().len();
            let part = |operand| if is_scratch(operand) { *operand } else { narrow(operand, axis, &range) };
            let operands = group.iter().map(part).collect();
            pieces.push_back(Piece::Kernel { kernel: kernel.clone(), operands });
        }
    }
    pieces
}

/// The axis along which a kernel's operands, but for its scratch memory, are narrowed alike.
fn axis_to_cut(kernel: &Kernel, operands: &[Operand]) -> Option<usize> {
    let shape = operands[0].shape();
    let is_cut_first = match kernel.cut() {
        Cut::Whole => false,
        Cut::Anywhere => return shape.iter().position(|&size| size > 1),
        Cut::AcrossLines(axis) => axis > 0,
        Cut::Batch => true,
    };
    (is_cut_first && shape[0] > 1).then_some(0)
}

fn narrow(operand: &Operand, axis: usize, range: &Range<usize>) -> Operand {
    let mut view = *operand.view();
    view.layout = view
        .layout
        .narrow(axis as isize, range.start, range.len())
        .expect("the range lies inside the axis, which all operands share");
    match operand {
        Operand::Out(_) => Operand::Out(view),
        Operand::In(_) => Operand::In(view),
    }
}
