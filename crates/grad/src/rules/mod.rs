//! One rule for each kind of node: the gradients by its inputs. What it keeps for that stands in [`crate::rule`].

mod program;

use crate::{
    Error, Result,
    graph::{Context, Gradient},
    rule::Rule,
};
use raddle_tensor::{
    Layout, Tensor,
    gradient::{Context as _, Gradients},
};
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
        Rule::Op(op) => match first(0) {
            Some(g) => op.gradients(context, g)?,
            // Only outputs without a gradient were used.
            None => smallvec::smallvec![None; node.inputs.len()],
        },
        Rule::Assign => assign(context, first(0).expect("the only output"))?,
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

/// The gradients of a tensor whose part was replaced, and of that part.
fn assign(context: &Context<'_>, g: &Tensor) -> Result<Gradients> {
    let (whole, part) = (context.meta(0), context.meta(1));
    let place_count = whole.layout.end().max(part.layout.end());
    let memory = Tensor::zeros([place_count], g.dtype(), &whole.device)?;
    let of = |layout: &Layout| memory.as_strided(layout.shape(), layout.strides(), layout.offset());
    of(&whole.layout)?.copy_(g)?;
    let mut results: Gradients = smallvec::smallvec![None, None];
    if context.wants(1) {
        results[1] = Some(of(&part.layout)?.copy()?);
    }
    if context.wants(0) {
        of(&part.layout)?.zero_()?;
        results[0] = Some(whole.filled(|gradient| gradient.copy_(&of(&whole.layout)?).map(drop))?);
    }
    Ok(results)
}
