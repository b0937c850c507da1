//! Attention: its weights are computed again, in full, and gradients composed of products.
//!
//! With `P` the weights and `O = P V`: `dV = Pᵀ dO`, `dS = P ∘ (dO Vᵀ − Σ dO ∘ O)`, `dQ = scale · dS K`,
//! `dK = scale · dSᵀ Q`, and by an added mask `dS` (Dao et al. 2022, appendix B).

use super::gradients::{Gradients, sum_to};
use crate::{Result, graph::Context};
use raddle_sync::Made;
use raddle_tensor::{DType, Fused, Program, Tensor};

/// What isn't finite is 0: to be multiplied by what is 0 where it isn't seen, and NaN where it is.
fn finite(tensor: &Tensor) -> Result<Tensor> {
    static FINITE: Made<Fused> = Made::new();
    let finite = FINITE.get_or_init(|| Fused::new(Program::record(|[x]| x.isfinite().select(x, 0.0))));
    Ok(finite.call(&[tensor])?)
}

/// Gradients by query, key, value and, if there is one, mask. 16-bit floats are computed in `f32`.
pub(super) fn attention(
    context: &Context<'_>,
    mask: bool,
    is_causal: bool,
    scale: f64,
    g: &Tensor,
) -> Result<Gradients> {
    let compute = g.dtype().compute();
    let wide = |tensor: &Tensor| tensor.to(compute);
    let turned = |tensor: &Tensor| tensor.transpose(-2, -1);
    let [query, key, value] = [0, 1, 2].map(|input| wide(context.input(input)));
    let (query, key, value) = (query?, key?, value?);
    let g = wide(g)?;
    let mut scores = query.matmul(&turned(&key)?)?.mul(scale)?;
    let mask = mask.then(|| context.input(3));
    match mask {
        Some(mask) if mask.dtype() == DType::Bool => {
            scores = scores.masked_fill(&mask.logical_not()?, f64::NEG_INFINITY)?;
        }
        Some(mask) => scores = scores.add(&wide(mask)?)?,
        None => {}
    }
    if is_causal {
        let size = |axis| scores.shape()[scores.rank() - axis];
        let seen = Tensor::ones([size(2), size(1)], DType::Bool, &scores.device())?.tril(0)?;
        scores = scores.masked_fill(&seen.logical_not()?, f64::NEG_INFINITY)?;
    }
    // In a row of −∞ softmax is NaN, attention's weights are 0.
    let unseen = scores.eq(f64::NEG_INFINITY)?;
    let weights = scores.softmax(-1)?.masked_fill(&unseen, 0.0)?;
    let mut results: Gradients = smallvec::smallvec![None, None, None];
    if context.wants(2) {
        results[2] = Some(sum_to(turned(&weights)?.matmul(&g)?, context.meta(2).shape())?);
    }
    // Σ dO ∘ O, from the weights: of 16-bit floats O is rounded, and what is left of a difference may be less than that.
    // (What a value is that isn't seen doesn't matter, as in the result.)
    let by_weights = g.matmul(&turned(&value)?)?.masked_fill(&unseen, 0.0)?;
    let along = weights.mul(&by_weights)?.sum(-1, true)?;
    // A score that isn't seen changes nothing, also beside one that is NaN.
    let by_scores = weights.mul(&by_weights.sub(&along)?)?.masked_fill(&unseen, 0.0)?;
    if context.wants(0) {
        let by_query = by_scores.matmul(&finite(&key)?)?.mul(scale)?;
        results[0] = Some(sum_to(by_query, context.meta(0).shape())?);
    }
    if context.wants(1) {
        let by_key = turned(&by_scores)?.matmul(&finite(&query)?)?.mul(scale)?;
        results[1] = Some(sum_to(by_key, context.meta(1).shape())?);
    }
    if let Some(mask) = mask {
        let wanted = mask.dtype().is_float() && context.wants(3);
        results.push(wanted.then(|| sum_to(by_scores, context.meta(3).shape())).transpose()?);
    }
    Ok(results)
}
