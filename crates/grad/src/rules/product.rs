//! Products of matrices.

use super::gradients::{Gradients, filled, sum_to};
use crate::{
    Result,
    graph::{Context, Meta},
};
use raddle_sync::Made;
use raddle_tensor::{Activation, Dims, Fused, Program, Tensor};

/// `a b`, summed over broadcast axes to the shape of `meta`; laid out as it is where that needs no sum.
fn product_to(a: &Tensor, b: &Tensor, meta: &Meta, shape: &[usize]) -> Result<Tensor> {
    if meta.shape()[..] == *shape {
        return filled(meta, |out| a.matmul_out(b, out));
    }
    sum_to(a.matmul(b)?, meta.shape())
}

fn transposed(tensor: &Tensor) -> raddle_tensor::Result<Tensor> {
    tensor.transpose(-2, -1)
}

pub(super) fn matmul(context: &Context<'_>, g: &Tensor) -> Result<Gradients> {
    let (a, b) = (context.input(0), context.input(1));
    // Vectors are matrices with an axis of size 1, which the result doesn't have.
    let (a_is_row, b_is_column) = (a.rank() == 1, b.rank() == 1);
    let a = if a_is_row { a.unsqueeze(0)? } else { a.clone() };
    let b = if b_is_column { b.unsqueeze(1)? } else { b.clone() };
    let g = if b_is_column { g.unsqueeze(-1)? } else { g.clone() };
    let g = if a_is_row { g.unsqueeze(-2)? } else { g };
    let mut results: Gradients = smallvec::smallvec![None, None];
    if context.wants(0) {
        let mut meta = *context.meta(0);
        meta.layout = *a.layout();
        let shape: Dims =
            g.shape()[..g.rank() - 1].iter().copied().chain([a.shape()[a.rank() - 1]]).collect();
        let gradient = product_to(&g, &transposed(&b)?, &meta, &shape)?;
        results[0] = Some(gradient.reshape(context.meta(0).shape())?);
    }
    if context.wants(1) {
        let mut meta = *context.meta(1);
        meta.layout = *b.layout();
        let (k, n) = (b.shape()[b.rank() - 2], b.shape()[b.rank() - 1]);
        let gradient = if b.rank() == 2 && a.rank() > 2 {
            // The batch is just more rows.
            let (a, g) = (rows(&a, k)?, rows(&g, n)?);
            product_to(&transposed(&a)?, &g, &meta, &[k, n])?
        } else {
            let shape: Dims = g.shape()[..g.rank() - 2].iter().copied().chain([k, n]).collect();
            product_to(&transposed(&a)?, &g, &meta, &shape)?
        };
        results[1] = Some(gradient.reshape(context.meta(1).shape())?);
    }
    Ok(results)
}

/// All but the last axis as one.
fn rows(tensor: &Tensor, columns: usize) -> raddle_tensor::Result<Tensor> {
    let count: usize = tensor.shape()[..tensor.rank() - 1].iter().product();
    tensor.reshape([count, columns])
}

pub(super) fn addmm(context: &Context<'_>, beta: f64, alpha: f64, g: &Tensor) -> Result<Gradients> {
    let (a, b) = (context.input(1), context.input(2));
    let mut results: Gradients = smallvec::smallvec![None, None, None];
    if context.wants(0) {
        results[0] = Some(match beta {
            // It doesn't count, whatever the gradient is.
            0.0 => context.meta(0).zeros()?,
            1.0 => sum_to(g.clone(), context.meta(0).shape())?,
            _ => sum_to(g.mul(beta)?, context.meta(0).shape())?,
        });
    }
    // beta 0: what the fresh memory holds doesn't count. Nor do the factors with alpha 0.
    let scaled =
        |a: &Tensor, b: &Tensor, meta: &Meta| filled(meta, |out| out.addmm_(a, b, 0.0, alpha).map(|_| ()));
    if context.wants(1) {
        results[1] = Some(scaled(g, &transposed(b)?, context.meta(1))?);
    }
    if context.wants(2) {
        results[2] = Some(scaled(&transposed(a)?, g, context.meta(2))?);
    }
    Ok(results)
}

pub(super) fn linear(
    context: &Context<'_>,
    bias: bool,
    activation: Activation,
    g: &Tensor,
) -> Result<Gradients> {
    static RELU: Made<Fused> = Made::new();
    static GELU: Made<Fused> = Made::new();
    let (x, weight) = (context.input(0), context.input(1));
    let (n, k) = (weight.shape()[0], weight.shape()[1]);
    let g = match activation {
        Activation::None => g.clone(),
        Activation::Relu => RELU
            .get_or_init(|| Fused::new(Program::record(|[g, y]| y.le(0.0).select(0.0, g))))
            .call(&[g, context.output(0)])?,
        Activation::Gelu => {
            // In the op these sums aren't rounded to 16 bits. Here they are, so that they are a product of that dtype: the
            // slope is gelu's half a unit of the last place beside, at most, as where gelu is an op of its own. What has
            // become infinite by it has the slope of what it was.
            let inner = x.linear(weight, context.find_input(2))?;
            let gelu = GELU.get_or_init(|| {
                let gelu = Program::record(|[x]| x.abs().ge(64.0).select(x.relu(), x.gelu()));
                Fused::new(gelu.gradient(&[0]))
            });
            gelu.call(&[g, &inner])?
        }
    };
    let g = rows(&g, n)?;
    let mut results: Gradients = smallvec::smallvec![None; context.node.inputs.len()];
    if context.wants(0) {
        let meta = context.meta(0);
        results[0] = Some(match meta.rank() {
            2 => filled(meta, |out| g.matmul_out(weight, out))?,
            _ => g.matmul(weight)?.reshape(meta.shape())?,
        });
    }
    if context.wants(1) {
        let x = rows(x, k)?;
        results[1] = Some(filled(context.meta(1), |out| g.t()?.matmul_out(&x, out))?);
    }
    if bias && context.wants(2) {
        results[2] = Some(g.sum(0, false)?);
    }
    Ok(results)
}

pub(super) fn sparse_linear(context: &Context<'_>, bias: bool, g: &Tensor) -> Result<Gradients> {
    let mut results: Gradients = smallvec::smallvec![None; context.node.inputs.len()];
    let [values, index, weight] = [0, 1, 2].map(|input| context.input(input));
    if context.wants(0) {
        results[0] = Some(g.sparse_linear_by_values(index, weight)?);
    }
    if context.wants(2) {
        results[2] = Some(g.sparse_linear_by_weight(values, index, weight)?);
    }
    if bias && context.wants(3) {
        results[3] = Some(g.sum(0, false)?);
    }
    Ok(results)
}
