//! What all optimizers share: groups, lazily made state, saving it, and the launch.
//!
//! A step is checked and made ready for all groups before the first launch: one that is refused has changed nothing. What is
//! made for a parameter stays with it, whatever becomes of its group's options: state that isn't used for a while is kept as it
//! is, as PyTorch keeps it.

use crate::{Error, Result};
use raddle_grad::{Autograd, no_grad};
use raddle_op::{Program, ProgramRef};
use raddle_sync::fault;
use raddle_tensor::{DType, PointwiseGroups, Scalar, Tensor, find_overlap, uncaptured};
use std::sync::Arc;

/// Parameters that are stepped with the same options.
#[derive(Debug)]
pub struct Group<O> {
    pub(crate) parameters: Vec<Tensor>,
    /// They may be changed between steps, each of them. State stays: momentum that is switched off and on again goes on with what
    /// it was.
    pub options: O,
    /// Of each parameter.
    pub(crate) kept: Vec<Kept>,
}

impl<O> Group<O> {
    /// A group of parameters; leaves that require grad.
    pub fn new(parameters: Vec<Tensor>, options: O) -> Group<O> {
        let kept = parameters.iter().map(|_| Kept::default()).collect();
        Group { parameters, options, kept }
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// Is this thread capturing on the device of the group?
    fn is_capturing(&self) -> bool {
        self.parameters.first().is_some_and(|parameter| parameter.device().is_capturing())
    }
}

/// What is kept of a parameter.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// How many steps it has taken. It stands still while there is a clock.
    pub step: u64,
    /// None until a step needs them.
    pub tensors: Vec<Tensor>,
    /// Are the tensors zeros that no step has used?
    pub is_fresh: bool,
    /// If it is stepped in a way that can be captured: how many steps it has taken, on the device, one f64.
    pub clock: Option<Tensor>,
}

impl Kept {
    /// How many steps the parameter has taken. Waits for the device if that counts.
    pub fn steps_taken(&self) -> Result<u64> {
        match &self.clock {
            Some(clock) => Ok(clock.item::<f64>()? as u64),
            None => Ok(self.step),
        }
    }
}

/// What an optimizer remembers of a parameter.
#[derive(Clone, Debug, Default)]
pub struct ParameterState {
    /// How many steps it has taken.
    pub step: u64,
    /// None before the first step, of SGD before the first with momentum; else the optimizer's tensors: Adam's mean and mean of
    /// squares, SGD's momentum.
    pub tensors: Vec<Tensor>,
}

/// The state of an optimizer: for each group, for each parameter, in order. Options are no part of it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By group and parameter.
    pub groups: Vec<Vec<ParameterState>>,
}

/// What an optimizer's options say.
pub(crate) trait Rule: Sized {
    /// The name in errors.
    const OP: &'static str;
    /// How many tensors a parameter has when it has some.
    const TENSOR_COUNT: usize;
    /// Has a parameter that was stepped tensors, whatever the options?
    const ALWAYS_HAS_TENSORS: bool;

    /// Errors: an option out of range.
    fn check(&self) -> Result<()>;
    /// How many of its tensors a step uses.
    fn used_tensor_count(&self) -> usize;
    /// What must be so for the next step to be captured, if it isn't.
    fn hinders_capture(group: &Group<Self>) -> Option<&'static str>;
    /// Makes what else the update reads.
    fn make_numbers(group: &mut Group<Self>, due: &mut [Due]) -> Result<()>;
    /// What has to be launched before the updates.
    fn before_updates<'a>(group: &'a Group<Self>, due: &'a [Due]) -> Result<Option<PointwiseGroups<'a>>>;
    /// Parameters of which this is the same are updated by one launch.
    fn key(&self, kept: &Kept) -> u64;
    /// How to update those.
    fn update(&self, key: u64) -> Update;
}

/// How to update some parameters.
pub(crate) struct Update {
    /// Outputs: parameter, then its tensors; inputs: parameter, gradient, then its tensors and what else it reads.
    pub program: &'static Arc<Program>,
    pub params: Vec<Scalar>,
}

/// A parameter that has a gradient.
pub(crate) struct Due {
    /// Which of its group.
    pub index: usize,
    pub grad: Tensor,
    /// Two without axes that the device computes, and the same of the parameter's shape; if it is stepped by a clock.
    pub numbers: Option<[[Tensor; 2]; 2]>,
}

/// Options are in range, and each parameter has memory of its own.
pub(crate) fn check<O: Rule>(groups: &[Group<O>]) -> Result<()> {
    groups.iter().try_for_each(|group| group.options.check())?;
    let mut places = Vec::new();
    let mut parameters = Vec::new();
    for (group, members) in groups.iter().enumerate() {
        for (parameter, tensor) in members.parameters.iter().enumerate() {
            places.push([group, parameter]);
            parameters.push(tensor);
        }
    }
    let Some(found) = find_overlap(&parameters) else { return Ok(()) };
    let (first, second) = (found[0].min(found[1]), found[0].max(found[1]));
    let ([other_group, other], [group, parameter]) = (places[first], places[second]);
    let op = O::OP;
    Err(match parameters[first].is(parameters[second]) {
        true => Error::Repeated { op, group, parameter },
        false => Error::Overlap { op, group, parameter, other_group, other },
    })
}

/// An option is at least 0 (and finite).
pub(crate) fn check_positive(op: &'static str, what: &'static str, found: f64) -> Result<()> {
    if found >= 0.0 && found.is_finite() {
        return Ok(());
    }
    Err(Error::Option { op, what, expected: "a finite number that isn't negative", found })
}

/// An option is of [0, 1).
pub(crate) fn check_decay(op: &'static str, what: &'static str, found: f64) -> Result<()> {
    if (0.0..1.0).contains(&found) {
        return Ok(());
    }
    Err(Error::Option { op, what, expected: "a number of [0, 1)", found })
}

/// The parameters that have a gradient. What their update reads is there afterwards.
fn due<O: Rule>(group: &mut Group<O>) -> Result<Vec<Due>> {
    let op = O::OP;
    group.options.check()?;
    if group.is_capturing()
        && let Some(expected) = O::hinders_capture(group)
    {
        let device = group.parameters.first().map_or("", |parameter| parameter.device().name());
        return Err(Error::Capture { op, device, expected });
    }
    let mut due: Vec<Due> = Vec::new();
    for (index, (parameter, kept)) in group.parameters.iter().zip(&mut group.kept).enumerate() {
        let Some(grad) = parameter.grad() else { continue };
        if grad.shape() != parameter.shape() {
            let (expected, found) = (parameter.shape().to_vec(), grad.shape().to_vec());
            return Err(Error::Gradient { op, expected, found });
        }
        if fault!(unused_state_goes) {
            kept.tensors.truncate(group.options.used_tensor_count());
        }
        while kept.tensors.len() < group.options.used_tensor_count() {
            // It outlives a capture.
            kept.tensors.push(uncaptured(|| parameter.zeros_like())?);
            kept.is_fresh = true;
        }
        due.push(Due { index, grad, numbers: None });
    }
    O::make_numbers(group, &mut due)?;
    Ok(due)
}

/// A launch, and whose update it is.
struct Ready<'a> {
    group: usize,
    updated: Vec<usize>,
    launch: PointwiseGroups<'a>,
}

/// The launches for the parameters of a group that have a gradient.
fn make_ready<'a, O: Rule>(
    place: usize,
    group: &'a Group<O>,
    due: &'a [Due],
    ready: &mut Vec<Ready<'a>>,
) -> Result<()> {
    if let Some(launch) = O::before_updates(group, due)? {
        ready.push(Ready { group: place, updated: Vec::new(), launch });
    }
    // Parameters that skipped a step are behind: each count has its own bias correction.
    let key_of = |due: &Due| group.options.key(&group.kept[due.index]);
    let mut keys: Vec<u64> = due.iter().map(key_of).collect();
    keys.sort_unstable();
    keys.dedup();
    let used = group.options.used_tensor_count();
    for key in keys {
        let Update { program, params } = group.options.update(key);
        for compute in [DType::F32, DType::F64] {
            let (mut updated, mut operands) = (Vec::new(), Vec::new());
            for due in due.iter().filter(|due| key_of(due) == key) {
                let (parameter, tensors) =
                    (&group.parameters[due.index], &group.kept[due.index].tensors[..used]);
                if parameter.dtype().compute() == compute {
                    let outputs: Vec<&Tensor> = std::iter::once(parameter).chain(tensors).collect();
                    let numbers = due.numbers.iter().flat_map(|[_, expanded]| expanded);
                    let inputs = [parameter, &due.grad].into_iter().chain(tensors).chain(numbers);
                    operands.push((outputs, inputs.collect::<Vec<&Tensor>>()));
                    updated.push(due.index);
                }
            }
            let operands: Vec<(&[&Tensor], &[&Tensor])> =
                operands.iter().map(|(outputs, inputs)| (&outputs[..], &inputs[..])).collect();
            let program = ProgramRef::Shared(program.clone());
            let launch = PointwiseGroups::new(O::OP, program, compute, &params, &operands)?;
            ready.push(Ready { group: place, updated, launch });
        }
    }
    Ok(())
}

/// Takes one step with all parameters that have a gradient. While it is captured nothing is counted.
pub(crate) fn step<O: Rule>(groups: &mut [Group<O>]) -> Result<()> {
    no_grad(|| {
        let due: Vec<Vec<Due>> = groups.iter_mut().map(due).collect::<Result<_>>()?;
        let mut ready = Vec::new();
        for (place, (group, due)) in groups.iter().zip(&due).enumerate() {
            make_ready(place, group, due, &mut ready)?;
        }
        let mut done = Vec::with_capacity(ready.len());
        let launched = ready.into_iter().try_for_each(|Ready { group, updated, launch }| {
            launch.launch()?;
            done.push((group, updated));
            Ok(())
        });
        for (group, updated) in done {
            let group = &mut groups[group];
            let (counts, uses) = (!group.is_capturing(), group.options.used_tensor_count() > 0);
            for index in updated {
                let kept = &mut group.kept[index];
                kept.step += u64::from(counts && kept.clock.is_none());
                kept.is_fresh &= !uses;
            }
        }
        launched
    })
}

/// Drops all gradients.
pub(crate) fn zero_grad<O>(groups: &[Group<O>]) {
    groups.iter().flat_map(|group| &group.parameters).for_each(Autograd::zero_grad);
}

/// Copies of all state.
pub(crate) fn state<O>(groups: &[Group<O>]) -> Result<State> {
    let copy = |kept: &Kept| -> Result<ParameterState> {
        let used = kept.tensors.iter().filter(|_| !kept.is_fresh);
        Ok(ParameterState {
            step: kept.steps_taken()?,
            tensors: used.map(Tensor::copy).collect::<Result<_, _>>()?,
        })
    };
    let groups = groups.iter().map(|group| group.kept.iter().map(copy).collect::<Result<_>>());
    Ok(State { groups: groups.collect::<Result<_>>()? })
}

/// Replaces all state by copies of `from`, laid out as the parameters. If it doesn't fit nothing changes. Tensors that are there
/// are overwritten, so that replays of captured steps go on from there.
pub(crate) fn load_state<O: Rule>(groups: &mut [Group<O>], from: &State) -> Result<()> {
    let wrong = |what, group, parameter, expected: String, found: String| {
        Err(Error::State { what, group, parameter, expected, found })
    };
    if groups.len() != from.groups.len() {
        let (expected, found) = (groups.len().to_string(), from.groups.len().to_string());
        return wrong("the number of groups", 0, 0, expected, found);
    }
    let mut loaded = Vec::with_capacity(groups.len());
    for (index, (group, from)) in groups.iter().zip(&from.groups).enumerate() {
        if group.parameters.len() != from.len() {
            let (expected, found) = (group.parameters.len().to_string(), from.len().to_string());
            return wrong("the number of parameters", index, 0, expected, found);
        }
        let mut states = Vec::with_capacity(from.len());
        for (position, (parameter, state)) in group.parameters.iter().zip(from).enumerate() {
            let count = state.tensors.len();
            let may_have_none = state.step == 0 || !O::ALWAYS_HAS_TENSORS;
            if fault!(own_state_is_refused) && count != group.options.used_tensor_count() {
                let (what, expected) =
                    ("the number of tensors", group.options.used_tensor_count().to_string());
                return wrong(what, index, position, expected, count.to_string());
            }
            if count != O::TENSOR_COUNT && !(count == 0 && may_have_none) {
                let (what, expected) = ("the number of tensors", O::TENSOR_COUNT.to_string());
                return wrong(what, index, position, expected, count.to_string());
            }
            let mut copies = Vec::with_capacity(count);
            for tensor in &state.tensors {
                if tensor.shape() != parameter.shape() {
                    let (expected, found) =
                        (format!("{:?}", parameter.shape()), format!("{:?}", tensor.shape()));
                    return wrong("the shape", index, position, expected, found);
                }
                let copy = parameter.empty_like()?;
                copy.copy_(&tensor.detach())?;
                copies.push(copy);
            }
            states.push(ParameterState { step: state.step, tensors: copies });
        }
        loaded.push(states);
    }
    let all_kept = groups.iter_mut().flat_map(|group| &mut group.kept);
    for (kept, state) in all_kept.zip(loaded.into_iter().flatten()) {
        if let Some(clock) = &kept.clock {
            clock.fill_(state.step as f64)?;
        }
        kept.step = state.step;
        kept.is_fresh = state.tensors.is_empty();
        if kept.tensors.is_empty() {
            kept.tensors = state.tensors;
            continue;
        }
        for (at, own) in kept.tensors.iter().enumerate() {
            match state.tensors.get(at) {
                Some(tensor) => own.copy_(tensor)?,
                None => own.zero_()?,
            };
        }
    }
    Ok(())
}
