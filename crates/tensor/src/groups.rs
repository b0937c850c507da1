//! One launch for many tensors.
//!
//! An optimizer's step is one for thousands of parameters, so who meets whom is found in one pass: a table of the memory that is
//! written tells which groups share some at all, which is none in all usual cases. Only what lies in memory that two groups
//! use is sorted by its place, and compared with what it reaches into.

use crate::{
    DType, Error, Overlap, Result, Tensor,
    error::shape_error,
    pointwise::{check_device, check_out, check_overlap},
    record,
};
use raddle_base::Scalar;
use raddle_op::{Kernel, PARAM_COUNT_MAX, ProgramRef};
use raddle_runtime::Operand;
use raddle_sync::fault;

/// Outputs and inputs.
type Group<'s, 'a> = (&'s [&'a Tensor], &'s [&'a Tensor]);

/// One launch of a program over many groups of tensors, checked and not yet made: for each group the outputs, which are
/// overwritten, and the inputs, which have the outputs' shape. An input may be the very same view as an output of its group.
/// Nothing else may meet what is written, no other output and no tensor of another group: the order is open.
///
/// It is not recorded: it is refused if a recorder wants to know of one of the tensors, so wrap it in `no_grad`.
pub struct PointwiseGroups<'a> {
    op: &'static str,
    kernel: Kernel,
    operands: Vec<Operand<'a>>,
}

impl<'a> PointwiseGroups<'a> {
    /// Checks all; nothing is written.
    ///
    /// Errors: tensors that meet, or too many to tell that lie in each other's gaps; shapes, devices and counts that don't fit.
    pub fn new(
        op: &'static str,
        program: impl Into<ProgramRef>,
        compute: DType,
        params: &[Scalar],
        groups: &[Group<'_, 'a>],
    ) -> Result<PointwiseGroups<'a>> {
        let program = program.into();
        let check_count = |what, expected, found| match found == expected {
            true => Ok(()),
            false => Err(Error::Count { op, what, expected, found }),
        };
        check_count("parameters", program.param_count(), params.len())?;
        check_count("parameters", params.len().min(PARAM_COUNT_MAX), params.len())?;
        let mut operands: Vec<Operand<'a>> = Vec::new();
        let mut launched = 0;
        let first = groups.iter().find_map(|(outputs, _)| outputs.first());
        for (outputs, inputs) in groups {
            check_count("outputs", program.outputs().len(), outputs.len())?;
            check_count("inputs", program.input_count(), inputs.len())?;
            let (Some(first), Some(out)) = (first, outputs.first()) else { continue };
            let (device, shape) = (check_device(op, first, inputs)?, *out.shape());
            for (index, out) in outputs.iter().enumerate() {
                check_out(op, out, &shape, &device)?;
                check_overlap(op, out, inputs)?;
                check_meets_none(op, out, &outputs[..index])?;
            }
            if let Some(input) = inputs.iter().find(|input| *input.shape() != shape) {
                return Err(shape_error(op, "an input", &shape, input.shape()));
            }
            let has_recorder = |tensor: &&Tensor| tensor.slot().is_some();
            if record::is_recording() && outputs.iter().chain(*inputs).any(has_recorder) {
                let reason = "it has no gradient, expected recording to be off (no_grad)";
                return Err(record::refuse(op, reason));
            }
            if shape.contains(&0) {
                continue;
            }
            operands.extend(outputs.iter().map(|out| out.write(out.layout())));
            operands.extend(inputs.iter().map(|input| input.read(input.layout())));
            launched += 1;
        }
        check_apart(op, groups)?;
        let mut all = [Scalar::Int(0); PARAM_COUNT_MAX];
        all[..params.len()].copy_from_slice(params);
        let kernel = Kernel::Pointwise { program, compute, params: all, groups: launched };
        Ok(PointwiseGroups { op, kernel, operands })
    }

    /// Makes the launch.
    pub fn launch(self) -> Result<()> {
        let Some(first) = self.operands.first() else { return Ok(()) };
        Ok(first.buffer.device().submit_named(self.op, &self.kernel, &self.operands)?)
    }
}

/// [`PointwiseGroups`], made and launched.
pub fn pointwise_groups<'a>(
    op: &'static str,
    program: impl Into<ProgramRef>,
    compute: DType,
    params: &[Scalar],
    groups: &[Group<'_, 'a>],
) -> Result<()> {
    PointwiseGroups::new(op, program, compute, params, groups)?.launch()
}

/// Two of the tensors, by their index, that have an element in common; or may have, if too many lie in each other's gaps to
/// tell.
pub fn find_overlap(tensors: &[&Tensor]) -> Option<[usize; 2]> {
    let tensors = tensors.iter().enumerate();
    find_meeting(tensors.map(|(owner, tensor)| Place { owner, is_written: true, tensor }).collect())
}

/// `out` shares no element with any of `others`, which are outputs as well.
fn check_meets_none(op: &'static str, out: &Tensor, others: &[&Tensor]) -> Result<()> {
    fault!(groups_meet => return Ok(()));
    match others.iter().any(|other| meet(out, other)) {
        true => Err(Error::Shared { op, what: "another output" }),
        false => Ok(()),
    }
}

fn meet(a: &Tensor, b: &Tensor) -> bool {
    a.buffer().is(b.buffer()) && a.layout().overlap(b.layout()) != Overlap::None
}

/// What one group writes no other one touches.
fn check_apart(op: &'static str, groups: &[Group<'_, '_>]) -> Result<()> {
    fault!(groups_meet => return Ok(()));
    if groups.len() < 2 {
        return Ok(());
    }
    let (writers, mut is_shared) = Writers::of(groups);
    for (group, (outputs, inputs)) in groups.iter().enumerate() {
        // What is updated in place has been looked up as an output.
        let mut others = inputs.iter().filter(|input| !outputs.iter().any(|out| out.is(input)));
        is_shared = is_shared || others.any(|input| writers.find(input).is_some_and(|first| first != group));
    }
    if !is_shared {
        return Ok(());
    }
    let mut places = Vec::new();
    for (owner, (outputs, inputs)) in groups.iter().enumerate() {
        for (is_written, tensors) in [(true, outputs), (false, inputs)] {
            let written = tensors.iter().filter(|tensor| writers.find(tensor).is_some());
            places.extend(written.map(|tensor| Place { owner, is_written, tensor }));
        }
    }
    match find_meeting(places) {
        Some(_) => Err(Error::Shared { op, what: "a tensor of another group" }),
        None => Ok(()),
    }
}

/// Who writes memory first: groups by the ids of buffers, in open addressing. Of ids the lower halves: who takes two for one
/// compares them in vain, and no more.
struct Writers {
    slots: Vec<(u32, u32)>,
    shift: u32,
}

impl Writers {
    const NOBODY: u32 = u32::MAX;

    /// And whether a buffer is written by two.
    fn of(groups: &[Group<'_, '_>]) -> (Writers, bool) {
        let count: usize = groups.iter().map(|(outputs, _)| outputs.len()).sum();
        let bits = (2 * count).max(2).next_power_of_two().trailing_zeros();
        let mut writers = Writers { slots: vec![(0, Writers::NOBODY); 1 << bits], shift: u32::BITS - bits };
        let mut is_shared = false;
        for (group, (outputs, _)) in groups.iter().enumerate() {
            for out in *outputs {
                let (id, slot) = writers.slot(out);
                match writers.slots[slot].1 {
                    Writers::NOBODY => writers.slots[slot] = (id, group as u32),
                    first => is_shared |= first != group as u32,
                }
            }
        }
        (writers, is_shared)
    }

    /// The lower half of the buffer's id, and where it is, or would be.
    fn slot(&self, tensor: &Tensor) -> (u32, usize) {
        let id = tensor.buffer().id() as u32;
        // Fibonacci hashing (Knuth, "The art of computer programming", 6.4).
        let mut slot = (id.wrapping_mul(0x9e37_79b9) >> self.shift) as usize;
        while self.slots[slot].1 != Writers::NOBODY && self.slots[slot].0 != id {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        (id, slot)
    }

    fn find(&self, tensor: &Tensor) -> Option<usize> {
        let first = self.slots[self.slot(tensor).1].1;
        (first != Writers::NOBODY).then_some(first as usize)
    }
}

/// A tensor where it lies in memory, and whose it is.
struct Place<'a> {
    owner: usize,
    is_written: bool,
    tensor: &'a Tensor,
}

/// The owners of two tensors that meet, of which at least one is written; of the first two in memory.
fn find_meeting(mut places: Vec<Place<'_>>) -> Option<[usize; 2]> {
    /// Compared pairs for each tensor (guess): about so many columns of one matrix may be told apart.
    const PAIR_COUNT_MAX: usize = 64;
    places.sort_unstable_by_key(|place| (place.tensor.buffer().id(), place.tensor.storage_offset()));
    let mut left = PAIR_COUNT_MAX * places.len();
    // Those that reach to where the next ones begin, or further: written, and only read.
    let (mut written, mut read): (Vec<&Place<'_>>, Vec<&Place<'_>>) = Default::default();
    for place in &places {
        let against: &mut [&mut Vec<_>] =
            if place.is_written { &mut [&mut written, &mut read] } else { &mut [&mut written] };
        for others in against {
            let reaches = |other: &Tensor| {
                other.buffer().is(place.tensor.buffer())
                    && other.layout().end() > place.tensor.storage_offset()
            };
            others.retain(|other| reaches(other.tensor));
            for other in others.iter().filter(|other| other.owner != place.owner) {
                if left == 0 || meet(place.tensor, other.tensor) {
                    return Some([other.owner, place.owner]);
                }
                left -= 1;
            }
        }
        if place.is_written { written.push(place) } else { read.push(place) }
    }
    None
}
