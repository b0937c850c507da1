//! What a recorded op keeps for backward. How its gradients come of that stands in [`crate::rules`].

use crate::program;
use raddle_tensor::{Activation, Call, Reduction, Result as TensorResult, record::Record};

/// What a node computes.
pub(crate) enum Rule {
    /// A pointwise op or a fused closure.
    Program(program::Gradient),
    /// Any other op.
    Call(Call),
    /// Inputs: a tensor, and the new value of a view of it; output: the tensor with that part replaced.
    Assign,
    /// An op of this name that ran while another thread changed what it reads or writes, without being in the order of both.
    Raced(&'static str),
}

impl Rule {
    /// The rule of a recorded op, given by which of its inputs gradients are wanted.
    pub fn new(record: &Record<'_>, wanted: impl Fn(usize) -> bool) -> TensorResult<Rule> {
        Ok(match &record.call {
            Call::Pointwise { .. } | Call::Fused { .. } => {
                Rule::Program(program::Gradient::of(record, wanted)?)
            }
            call => Rule::Call(call.clone()),
        })
    }

    /// Of the op.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Program(gradient) => gradient.name,
            Rule::Call(call) => call_name(call),
            Rule::Assign => "a change in place",
            Rule::Raced(op) => op,
        }
    }

    /// What it keeps.
    pub fn needs(&self) -> Needs {
        match self {
            Rule::Program(gradient) => Needs { inputs: gradient.needs, outputs: 0 },
            Rule::Call(call) => needs(call),
            Rule::Assign | Rule::Raced(_) => Needs::default(),
        }
    }
}

/// The name for messages.
pub(crate) fn call_name(call: &Call) -> &'static str {
    match call {
        Call::Pointwise { op, .. } => op.name(),
        Call::Fused { .. } => "fused",
        Call::To => "to",
        Call::View(_) => "view",
        Call::Reduce { op, .. } => op.name(),
        Call::MaxMin { largest: true, .. } => "max",
        Call::MaxMin { .. } => "min",
        Call::CumSum { .. } => "cumsum",
        Call::MatMul => "matmul",
        Call::AddMm { .. } => "addmm",
        Call::Linear { .. } => "linear",
        Call::SparseLinear { .. } => "sparse_linear",
        Call::Softmax { log: true, .. } => "log_softmax",
        Call::Softmax { .. } => "softmax",
        Call::Attention { .. } => "scaled_dot_product_attention",
        Call::LayerNorm { addend: true, .. } => "layer_norm_add",
        Call::LayerNorm { .. } => "layer_norm",
        Call::Sort { .. } => "sort",
        Call::Gather { .. } => "gather",
        Call::Scatter { .. } => "scatter",
        Call::IndexSelect { .. } => "index_select",
        Call::IndexAdd { .. } => "index_add",
        Call::Cat { .. } => "cat",
        Call::Triangle { upper: true, .. } => "triu",
        Call::Triangle { .. } => "tril",
        Call::Overwrite => "fill",
        Call::Constant => "a constant",
    }
}

/// Has the op a gradient by this input (if that is a float)?
pub(crate) fn is_differentiable(call: &Call, input: usize) -> bool {
    match call {
        Call::Pointwise { op, args, .. } => {
            program::row_position(args, input).is_some_and(|position| op.is_differentiable_by(position))
        }
        Call::Reduce { op: Reduction::All | Reduction::Any, .. } | Call::Overwrite | Call::Constant => false,
        _ => true,
    }
}

/// Has this output (if it is a float) a gradient? Statistics, the later outputs of `layer_norm`, have none.
pub(crate) fn has_gradient(call: &Call, output: usize) -> bool {
    output == 0 || matches!(call, Call::Fused { .. })
}

/// Which inputs and outputs a rule keeps, as bits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Needs {
    inputs: u64,
    outputs: u64,
}

impl Needs {
    pub fn input(&self, index: usize) -> bool {
        index < 64 && self.inputs >> index & 1 == 1
    }
    pub fn output(&self, index: usize) -> bool {
        self.outputs >> index & 1 == 1
    }
}

fn needs(call: &Call) -> Needs {
    let (inputs, outputs) = match call {
        Call::Reduce { op, .. } => match op {
            Reduction::Prod | Reduction::Var { .. } | Reduction::Std { .. } | Reduction::Norm2 => (0b1, 0),
            Reduction::AMax | Reduction::AMin => (0b1, 0b1),
            _ => (0, 0),
        },
        Call::MaxMin { .. } | Call::Sort { .. } => (0, 0b10),
        Call::MatMul => (0b11, 0),
        Call::AddMm { .. } => (0b110, 0),
        Call::Linear { activation, .. } => match activation {
            Activation::None => (0b11, 0),
            Activation::Relu => (0b11, 0b1),
            Activation::Gelu => (0b111, 0),
        },
        Call::SparseLinear { .. } => (0b111, 0),
        Call::Softmax { .. } => (0, 0b1),
        Call::Attention { mask, .. } => (if *mask { 0b1111 } else { 0b111 }, 0),
        Call::LayerNorm { weight, bias, addend, .. } => {
            let at = 1 + usize::from(*weight) + usize::from(*bias);
            (if *weight { 0b11 } else { 0b1 } | if *addend { 1 << at } else { 0 }, 0b110)
        }
        Call::Gather { .. } | Call::IndexSelect { .. } | Call::Scatter { .. } | Call::IndexAdd { .. } => {
            (0b10, 0)
        }
        _ => (0, 0),
    };
    Needs { inputs, outputs }
}
