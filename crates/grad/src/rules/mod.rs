//! One rule for each kind of recorded call: what it keeps for backward, and the gradients by its inputs.

mod attention;
mod place;
mod product;
pub(crate) mod program;
mod reduce;

use crate::{
    Error, Result,
    graph::{Context, Edge, Gradient, Meta},
};
use raddle_tensor::{Activation, Call, Dims, Reduction, Result as TensorResult, Tensor, record::Record};
use smallvec::SmallVec;

/// Gradients by the inputs of an op.
pub(crate) type Gradients = SmallVec<[Option<Tensor>; 4]>;

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
    pub fn new(record: &Record<'_>, edges: &[Option<Edge>]) -> TensorResult<Rule> {
        Ok(match &record.call {
            Call::Pointwise { .. } | Call::Fused { .. } => {
                Rule::Program(program::Gradient::of(record, |input| edges[input].is_some())?)
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

/// The gradients by the inputs of a node, given those of its outputs, of which one at least has come.
pub(crate) fn apply(
    context: &Context<'_>,
    given: SmallVec<[Option<Gradient>; 2]>,
) -> Result<SmallVec<[Option<Gradient>; 4]>> {
    let node = context.node;
    let first = |index: usize| given[index].as_ref().map(|gradient| &gradient.tensor);
    let results = match &node.rule {
        Rule::Program(gradient) => gradient.apply(context, &given)?,
        Rule::Call(call) => match first(0) {
            Some(g) => apply_call(context, call, g)?,
            // Only outputs without a gradient were used.
            None => smallvec::smallvec![None; node.inputs.len()],
        },
        Rule::Assign => place::assign(context, first(0).expect("the only output"))?,
        Rule::Raced(op) => return Err(Error::Raced { op }),
    };
    let mut conformed = Gradients::new();
    for (result, meta) in results.into_iter().zip(&node.inputs) {
        conformed.push(result.map(|result| result.to(meta.dtype)).transpose()?);
    }
    let is_fresh = |index: usize, result: &Tensor| {
        let shares =
            |other: &Option<Tensor>| other.as_ref().is_some_and(|other| other.shares_storage(result));
        let alone = conformed.iter().enumerate().all(|(other, tensor)| other == index || !shares(tensor));
        let passed = given.iter().flatten().find(|gradient| gradient.tensor.shares_storage(result));
        alone && passed.is_none_or(|gradient| gradient.fresh)
    };
    let fresh: SmallVec<[bool; 4]> = conformed
        .iter()
        .enumerate()
        .map(|(index, result)| result.as_ref().is_some_and(|result| is_fresh(index, result)))
        .collect();
    for (result, meta) in conformed.iter().zip(&node.inputs) {
        debug_assert!(
            result.as_ref().is_none_or(|result| result.shape() == meta.shape()),
            "{}: a gradient has another shape than the input",
            node.rule.name()
        );
    }
    let fresh = conformed.into_iter().zip(fresh);
    Ok(fresh.map(|(tensor, fresh)| tensor.map(|tensor| Gradient { tensor, fresh })).collect())
}

fn apply_call(context: &Context<'_>, call: &Call, g: &Tensor) -> Result<Gradients> {
    let meta = context.meta(0);
    let only = |gradient: Tensor| Ok(SmallVec::from_iter([Some(gradient)]));
    match call {
        Call::To => {
            let g = g.to(meta.dtype)?;
            only(g.to(&meta.device)?.reshape(meta.shape())?)
        }
        Call::View(view) => only(place::view(view, meta, g)?),
        Call::Reduce { op, axes, .. } => only(reduce::reduce(context, *op, *axes, g)?),
        Call::MaxMin { axis, keepdim, .. } => {
            let unsqueezed = |tensor: &Tensor| {
                if *keepdim { Ok(tensor.clone()) } else { tensor.unsqueeze(*axis as isize) }
            };
            only(reduce::spread(meta, *axis, &unsqueezed(context.output(1))?, &unsqueezed(g)?)?)
        }
        Call::Sort { axis } => only(reduce::spread(meta, *axis, context.output(1), g)?),
        Call::CumSum { axis } => only(reduce::cumsum(meta, *axis, g)?),
        Call::MatMul => product::matmul(context, g),
        Call::AddMm { beta, alpha } => product::addmm(context, *beta, *alpha, g),
        Call::Linear { bias, activation } => product::linear(context, *bias, *activation, g),
        Call::SparseLinear { bias } => product::sparse_linear(context, *bias, g),
        Call::Softmax { axis, log } => only(context.output(0).softmax_backward(g, *axis as isize, *log)?),
        Call::Attention { mask, is_causal, scale } => {
            attention::attention(context, *mask, *is_causal, *scale, g)
        }
        Call::LayerNorm { axes, weight, bias, addend } => {
            let stats = (context.output(1), context.output(2));
            let mut weight_value = weight.then(|| context.input(1).clone());
            let (mut x, mut g) = (context.input(0).clone(), g.clone());
            if *addend {
                // Of 16-bit floats the op doesn't round the sum. Beside the mean of what isn't rounded a rounded sum would have
                // deviations that may be larger than its own.
                let compute = meta.dtype.compute();
                x = x.to(compute)?.add(context.input(context.node.inputs.len() - 1))?;
                g = g.to(compute)?;
                weight_value = weight_value.map(|weight| weight.to(compute)).transpose()?;
            }
            let gradients = g.layer_norm_backward(&x, stats, *axes, weight_value.as_ref(), *bias)?;
            let by_input = gradients.input.to(meta.dtype)?;
            let by_addend = addend.then(|| by_input.clone());
            let mut results = Gradients::from_iter([Some(by_input)]);
            results.extend([gradients.weight, gradients.bias, by_addend].into_iter().flatten().map(Some));
            Ok(results)
        }
        Call::Gather { axis } => place::gather(context, *axis, g),
        Call::Scatter { axis, mode } => place::scatter(context, *axis, *mode, g),
        Call::IndexSelect { axis } => place::index_select(context, *axis, g),
        Call::IndexAdd { axis, alpha } => place::index_add(context, *axis, *alpha, g),
        Call::Cat { axis } => place::cat(context, *axis, g),
        Call::Triangle { upper: true, diagonal } => only(g.triu(*diagonal)?),
        Call::Triangle { upper: false, diagonal } => only(g.tril(*diagonal)?),
        Call::Pointwise { .. } | Call::Fused { .. } | Call::Overwrite | Call::Constant => {
            unreachable!("grad: {} has no rule of this kind", call_name(call))
        }
    }
}

/// `gradient` summed over the axes that were broadcast from `shape`.
fn sum_to(gradient: Tensor, shape: &Dims) -> Result<Tensor> {
    if gradient.shape() == shape {
        return Ok(gradient);
    }
    let missing = gradient.rank() - shape.len();
    let axes: SmallVec<[isize; 8]> = (0..gradient.rank())
        .filter(|&axis| axis < missing || (shape[axis - missing] == 1 && gradient.shape()[axis] != 1))
        .map(|axis| axis as isize)
        .collect();
    let summed = if axes.is_empty() { gradient } else { gradient.sum(&axes[..], true)? };
    Ok(summed.reshape(shape)?)
}

/// A tensor that lies as `meta` does, written by `fill`.
fn filled(meta: &Meta, fill: impl FnOnce(&Tensor) -> TensorResult<()>) -> Result<Tensor> {
    let tensor = meta.empty()?;
    fill(&tensor)?;
    Ok(tensor)
}
