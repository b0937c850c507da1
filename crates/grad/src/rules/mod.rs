//! One rule for each kind of recorded call: the gradients by its inputs. What it keeps for that stands in [`crate::rule`].

mod attention;
mod gradients;
mod place;
mod product;
mod program;
mod reduce;

use crate::{
    Error, Result,
    graph::{Context, Gradient},
    rule::{Rule, call_name},
};
use gradients::Gradients;
use raddle_sync::fault;
use raddle_tensor::{Call, Tensor};
use smallvec::SmallVec;

/// The gradients by the inputs of a node, given those of its outputs, of which one at least has come.
pub(crate) fn apply(
    context: &Context<'_>,
    given: SmallVec<[Option<Gradient>; 2]>,
) -> Result<SmallVec<[Option<Gradient>; 4]>> {
    let node = context.node;
    let first = |index: usize| given[index].as_ref().map(|gradient| &gradient.tensor);
    let results = match &node.rule {
        Rule::Program(derived) => program::apply(derived, context, &given)?,
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
                if fault!(sum_is_rounded_again) {
                    x = x.to(meta.dtype)?.to(compute)?;
                }
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
