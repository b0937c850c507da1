//! What a recorded op keeps for backward. How its gradients come of that stands in [`crate::rules`].

use crate::program;
use raddle_tensor::{
    Call, Result as TensorResult,
    gradient::{Needs, Op},
    record::{Record, refuse},
};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a node computes.
pub(crate) enum Rule {
    /// A pointwise op or a fused closure.
    Program(Box<program::Gradient>),
    /// Any other op.
    Op(Arc<dyn Op>),
    /// Inputs: a tensor, and the new value of a view of it; output: the tensor with that part replaced.
    Assign,
    /// An op of this name that ran while another thread changed what it reads or writes, without being in the order of both.
    Raced(&'static str),
}

impl Rule {
    /// The rule of a recorded op, given by which of its inputs gradients are wanted.
    pub fn new(record: &Record<'_>, wanted: impl Fn(usize) -> bool) -> TensorResult<Rule> {
        let wanted =
            || -> SmallVec<[usize; 4]> { (0..record.inputs.len()).filter(|&input| wanted(input)).collect() };
        Ok(match &record.call {
            Call::Pointwise { op, args, params } => {
                Rule::Program(program::Gradient::of_row(record, *op, args, params, &wanted())?.into())
            }
            Call::Fused { program, compute } => {
                Rule::Program(program::Gradient::of_closure(program, *compute, wanted()).into())
            }
            Call::View(view) => Rule::Op(Arc::new(*view)),
            Call::Op(op) => Rule::Op(op.clone()),
            Call::Overwrite | Call::Constant => return Err(refuse(record.call.name(), "it has no gradient")),
        })
    }

    /// Of the op.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Program(gradient) => gradient.name,
            Rule::Op(op) => op.name(),
            Rule::Assign => "a change in place",
            Rule::Raced(op) => op,
        }
    }

    /// What it keeps.
    pub fn needs(&self) -> Needs {
        match self {
            Rule::Program(gradient) => Needs::inputs(gradient.needs),
            Rule::Op(op) => op.needs(),
            Rule::Assign | Rule::Raced(_) => Needs::default(),
        }
    }
}

/// Has the op a gradient by this input (if that is a float)?
pub(crate) fn is_differentiable(call: &Call, input: usize) -> bool {
    match call {
        Call::Pointwise { op, args, .. } => {
            program::row_position(args, input).is_some_and(|position| op.is_differentiable_by(position))
        }
        Call::Fused { .. } | Call::View(_) | Call::Op(_) => true,
        Call::Overwrite | Call::Constant => false,
    }
}

/// Has this output (if it is a float) a gradient? Statistics, the later outputs of `layer_norm`, have none.
pub(crate) fn has_gradient(call: &Call, output: usize) -> bool {
    output == 0 || matches!(call, Call::Fused { .. })
}
