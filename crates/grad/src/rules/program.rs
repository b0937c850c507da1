//! Pointwise ops and fused closures: one launch of the derived program for all inputs, then sums over broadcast axes.

use crate::{
    Result,
    graph::{Context, Gradient},
    program,
};
use raddle_tensor::{
    DType, Tensor,
    gradient::{Context as _, Gradients, sum_to},
    pointwise_groups,
};
use smallvec::SmallVec;

pub(super) fn apply(
    derived: &program::Gradient,
    context: &Context<'_>,
    given: &[Option<Gradient>],
) -> Result<Gradients> {
    let node = context.node;
    let mut results: Gradients = smallvec::smallvec![None; node.inputs.len()];
    let shape = *node.outputs[0].shape();
    let mut gs: SmallVec<[Tensor; 2]> = SmallVec::new();
    for (gradient, meta) in given.iter().zip(&node.outputs) {
        gs.push(match gradient {
            Some(gradient) => gradient.tensor.clone(),
            // A truth value has no gradient, and an output may not have been used.
            None => Tensor::zeros([0usize; 0], DType::F32, &meta.device)?.expand(shape)?,
        });
    }
    for &input in &derived.passed {
        results[input] = Some(sum_to(gs[0].clone(), node.inputs[input].shape())?);
    }
    if derived.computed.is_empty() {
        return Ok(results);
    }
    let mut operands = gs.clone();
    for input in 0..node.inputs.len() {
        operands.push(match context.find_input(input) {
            Some(tensor) => tensor.expand(shape)?,
            // Not read.
            None => gs[0].clone(),
        });
    }
    let make = |&input: &usize| {
        let meta = &node.inputs[input];
        if *meta.shape() == shape {
            return Ok(meta.empty()?);
        }
        // Rounded to the input's dtype only after the sum.
        Ok(Tensor::empty(shape, gs[0].dtype().compute(), &meta.device)?)
    };
    let outputs: SmallVec<[Tensor; 4]> = derived.computed.iter().map(make).collect::<Result<_>>()?;
    let output_refs: SmallVec<[&Tensor; 4]> = outputs.iter().collect();
    let operand_refs: SmallVec<[&Tensor; 6]> = operands.iter().collect();
    let groups = [(&output_refs[..], &operand_refs[..])];
    pointwise_groups(derived.name, derived.program.clone(), derived.compute, &derived.params, &groups)?;
    drop(output_refs);
    for (&input, output) in derived.computed.iter().zip(outputs) {
        results[input] = Some(sum_to(output, node.inputs[input].shape())?);
    }
    Ok(results)
}
