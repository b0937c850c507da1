//! What all optimisers share: groups, lazily made state, saving it, and the launch.

use raddle_grad::{Autograd, no_grad};
use raddle_op::{Program, ProgramRef};
use raddle_tensor::{DType, Scalar, Tensor, pointwise_groups, uncaptured};
use std::sync::Arc;

/// What functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can be wrong with an optimiser.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error {
    /// The update failed.
    #[error(transparent)]
    Tensor(#[from] raddle_tensor::Error),
    /// An option outside its range.
    #[error("{op}: {what} is out of range, expected {expected}, found {found}")]
    Option { op: &'static str, what: &'static str, expected: &'static str, found: f64 },
    /// A parameter stands in two places.
    #[error("{op}: parameter {parameter} of group {group} stands in a group already, expected each once")]
    Repeated { op: &'static str, group: usize, parameter: usize },
    /// A gradient of another shape than its parameter.
    #[error("{op}: the gradient of a parameter has the wrong shape, expected {expected:?}, found {found:?}")]
    Gradient { op: &'static str, expected: Vec<usize>, found: Vec<usize> },
    /// A step whose numbers a replay would repeat although they change.
    #[error("{op}: this step can't be captured on {device}, expected {expected}")]
    Capture { op: &'static str, device: &'static str, expected: &'static str },
    /// State of another optimiser, or of other parameters.
    #[error(
        "load_state: {what} of group {group}, parameter {parameter} doesn't fit, expected {expected}, found {found}"
    )]
    State { what: &'static str, group: usize, parameter: usize, expected: String, found: String },
}

/// Parameters that are stepped with the same options.
#[derive(Debug)]
pub struct Group<O> {
    parameters: Vec<Tensor>,
    /// They may be changed between steps.
    pub options: O,
    pub(crate) states: Vec<ParameterState>,
    /// For each parameter that is stepped in a way that can be captured: how many steps it has taken, on the device, one
    /// f64. The number of the host stands still meanwhile.
    pub(crate) clocks: Vec<Option<Tensor>>,
}

impl<O> Group<O> {
    /// A group of parameters; leaves that require grad.
    pub fn new(parameters: Vec<Tensor>, options: O) -> Group<O> {
        let states = parameters.iter().map(|_| ParameterState::default()).collect();
        let clocks = parameters.iter().map(|_| None).collect();
        Group { parameters, options, states, clocks }
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}

/// What an optimiser remembers of a parameter.
#[derive(Clone, Debug, Default)]
pub struct ParameterState {
    /// How many steps it has taken.
    pub step: u64,
    /// None before the first; else the optimiser's tensors: Adam's mean and mean of squares, SGD's momentum.
    pub tensors: Vec<Tensor>,
}

/// The state of an optimiser: for each group, for each parameter, in order.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By group and parameter.
    pub groups: Vec<Vec<ParameterState>>,
}

/// Each parameter stands in one group, once.
pub(crate) fn check_unique<O>(op: &'static str, groups: &[Group<O>]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for (group, members) in groups.iter().enumerate() {
        for (parameter, tensor) in members.parameters.iter().enumerate() {
            if !seen.insert(tensor.id()) {
                return Err(Error::Repeated { op, group, parameter });
            }
        }
    }
    Ok(())
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

/// How to launch the update of some parameters.
pub(crate) struct Launch {
    /// Outputs: parameter, then its state; inputs: parameter, gradient, then its state.
    pub program: &'static Arc<Program>,
    pub params: Vec<Scalar>,
}

/// The parameters that have a gradient, and that. Their state is there afterwards: `tensors` tensors each.
pub(crate) fn due<O>(op: &'static str, group: &mut Group<O>, tensors: usize) -> Result<Vec<(usize, Tensor)>> {
    let mut due: Vec<(usize, Tensor)> = Vec::new();
    for (index, parameter) in group.parameters.iter().enumerate() {
        let Some(grad) = parameter.grad() else { continue };
        if grad.shape() != parameter.shape() {
            let (expected, found) = (parameter.shape().to_vec(), grad.shape().to_vec());
            return Err(Error::Gradient { op, expected, found });
        }
        let state = &mut group.states[index];
        // Momentum may be turned off and on again.
        state.tensors.truncate(tensors);
        if tensors > 0 && state.tensors.is_empty() {
            state.step = 0; // what starts from nothing is in its first step
        }
        while state.tensors.len() < tensors {
            // It outlives a capture.
            state.tensors.push(uncaptured(|| parameter.zeros_like())?);
        }
        due.push((index, grad));
    }
    Ok(due)
}

/// Is this thread capturing on the device of a group?
pub(crate) fn is_capturing<O>(group: &Group<O>) -> bool {
    group.parameters.first().is_some_and(|parameter| parameter.device().is_capturing())
}

/// The error for a step of this group that can't be captured.
pub(crate) fn not_capturable<O>(op: &'static str, group: &Group<O>, expected: &'static str) -> Error {
    let device = group.parameters.first().map_or("", |parameter| parameter.device().name());
    Error::Capture { op, device, expected }
}

/// How many steps a parameter has taken. Waits for the device if that counts.
fn steps_taken<O>(group: &Group<O>, index: usize) -> Result<u64> {
    match &group.clocks[index] {
        Some(clock) => Ok(clock.item::<f64>()? as u64),
        None => Ok(group.states[index].step),
    }
}

/// Takes one step with all parameters of a group that have a gradient. `tensors` is the number of state tensors, and
/// `launch` says how to update those parameters that take step `step` (from 1). While it is captured nothing is counted.
pub(crate) fn step<O>(
    op: &'static str,
    group: &mut Group<O>,
    tensors: usize,
    launch: impl Fn(&O, u64) -> Launch,
) -> Result<()> {
    no_grad(|| {
        let due = due(op, group, tensors)?;
        let counts = !is_capturing(group);
        for index in 0..group.clocks.len() {
            if group.clocks[index].is_some() {
                group.states[index].step = steps_taken(group, index)?;
                group.clocks[index] = None;
            }
        }
        // Parameters that skipped a step are behind: each count has its own bias correction.
        let mut steps: Vec<u64> = due.iter().map(|(index, _)| group.states[*index].step).collect();
        steps.sort_unstable();
        steps.dedup();
        // From the last count down, so that who has just been stepped isn't met again.
        for taken in steps.into_iter().rev() {
            let Launch { program, params } = launch(&group.options, taken + 1);
            for compute in [DType::F32, DType::F64] {
                let part = due.iter().filter(|(index, _)| {
                    group.states[*index].step == taken
                        && group.parameters[*index].dtype().compute() == compute
                });
                let operands: Vec<(Vec<&Tensor>, Vec<&Tensor>)> = part
                    .map(|(index, grad)| {
                        let (parameter, state) = (&group.parameters[*index], &group.states[*index].tensors);
                        let outputs = std::iter::once(parameter).chain(state).collect();
                        (outputs, [parameter, grad].into_iter().chain(state).collect())
                    })
                    .collect();
                let groups: Vec<(&[&Tensor], &[&Tensor])> =
                    operands.iter().map(|(outputs, inputs)| (&outputs[..], &inputs[..])).collect();
                let program = ProgramRef::Shared(program.clone());
                pointwise_groups(op, program, compute, &params, &groups)?;
            }
            for (index, _) in &due {
                let state = &mut group.states[*index];
                if counts && state.step == taken {
                    state.step = taken + 1;
                }
            }
        }
        Ok(())
    })
}

/// Drops all gradients.
pub(crate) fn zero_grad<O>(groups: &[Group<O>]) {
    groups.iter().flat_map(|group| &group.parameters).for_each(Autograd::zero_grad);
}

/// Copies of all state.
pub(crate) fn state<O>(groups: &[Group<O>]) -> Result<State> {
    let copy = |group: &Group<O>, index: usize| -> Result<ParameterState> {
        let tensors = group.states[index].tensors.iter().map(Tensor::copy).collect::<Result<_, _>>()?;
        Ok(ParameterState { step: steps_taken(group, index)?, tensors })
    };
    let groups = groups
        .iter()
        .map(|group| (0..group.states.len()).map(|index| copy(group, index)).collect::<Result<_>>());
    Ok(State { groups: groups.collect::<Result<_>>()? })
}

/// Replaces all state by copies of `from`, laid out as the parameters. If it doesn't fit nothing changes. What a captured
/// step works on is overwritten instead, so that replays go on from there.
pub(crate) fn load_state<O>(
    groups: &mut [Group<O>],
    from: &State,
    tensor_count: impl Fn(&O) -> usize,
) -> Result<()> {
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
        let tensors = tensor_count(&group.options);
        let mut states = Vec::with_capacity(from.len());
        for (position, (parameter, state)) in group.parameters.iter().zip(from).enumerate() {
            let count = state.tensors.len();
            if count != tensors && (count != 0 || state.step != 0) {
                return wrong(
                    "the number of tensors",
                    index,
                    position,
                    tensors.to_string(),
                    count.to_string(),
                );
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
    for (group, states) in groups.iter_mut().zip(loaded) {
        for (index, state) in states.into_iter().enumerate() {
            let Some(clock) = &group.clocks[index] else {
                group.states[index] = state;
                continue;
            };
            clock.fill_(state.step as f64)?;
            for (at, own) in group.states[index].tensors.iter().enumerate() {
                match state.tensors.get(at) {
                    Some(tensor) => own.copy_(tensor)?,
                    None => own.zero_()?,
                };
            }
        }
    }
    Ok(())
}
