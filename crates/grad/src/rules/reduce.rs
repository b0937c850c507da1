//! Reductions, running sums, and ops that pick values along an axis.

use super::gradients::filled;
use crate::{
    Result,
    graph::{Context, Meta},
};
use raddle_sync::Made;
use raddle_tensor::{DType, Dims, Fused, Program, Reduction, Tensor};

macro_rules! once {
    ($body:expr) => {{
        static FUSED: Made<Fused> = Made::new();
        FUSED.get_or_init(|| Fused::new(Program::record($body)))
    }};
}

/// The gradient of a reduction, given that of its result.
pub(super) fn reduce(context: &Context<'_>, op: Reduction, axes: u8, g: &Tensor) -> Result<Tensor> {
    let meta = context.meta(0);
    let is_reduced = |axis: &usize| axes >> axis & 1 == 1;
    let listed: Vec<isize> = (0..meta.rank()).filter(is_reduced).map(|axis| axis as isize).collect();
    let count: usize = (0..meta.rank()).filter(is_reduced).map(|axis| meta.shape()[axis]).product();
    let kept: Dims =
        (0..meta.rank()).map(|axis| if is_reduced(&axis) { 1 } else { meta.shape()[axis] }).collect();
    // Results with the reduced axes put back broadcast against the input.
    let spread = |tensor: &Tensor| -> Result<Tensor> { Ok(tensor.reshape(kept)?) };
    // The list is empty only if there are no axes. It means all then, as it does to the op: of one number the same comes out.
    let listed = &listed[..];
    let g = spread(g)?;
    // Means and norms are taken again in f64, as the ops themselves do: around a rounded mean there is no deviation left, and
    // what has over- or underflowed has no direction.
    let wide = |tensor: &Tensor| -> Result<Tensor> { Ok(tensor.to(DType::F64)?) };
    let x = || wide(context.input(0));
    Ok(match op {
        Reduction::Sum => g.expand(meta.shape())?,
        Reduction::Mean => g.div(count as f64)?.expand(meta.shape())?,
        Reduction::Prod => {
            // In f64, where a product has room that its factors have in f32. Without division by zero or infinity: the
            // product of the elements other than these, with an infinity's sign, and how many of both there are.
            let (x, g) = (x()?, wide(&g)?);
            let zeros = once!(|[x]| x.eq(0.0).number()).call(&[&x])?.sum(listed, true)?;
            let infinities =
                once!(|[x]| x.abs().eq(f64::INFINITY).number()).call(&[&x])?.sum(listed, true)?;
            let factors =
                once!(|[x]| { x.eq(0.0).select(1.0, x.abs().eq(f64::INFINITY).select(x.sign(), x)) })
                    .call(&[&x])?;
            let product = factors.prod(listed, true)?;
            once!(|[g, x, product, zeros, infinities]| {
                let (is_zero, is_infinite) = (x.eq(0.0), x.abs().eq(f64::INFINITY));
                let own = is_zero.select(1.0, is_infinite.select(x.sign(), x));
                let finite = g * (product / own);
                // Those among the others.
                let has_zero = zeros.gt(is_zero.number());
                let has_infinity = infinities.gt(is_infinite.number());
                let infinite = finite * f64::INFINITY;
                has_zero
                    .select(has_infinity.select(0.0 * infinite, 0.0), has_infinity.select(infinite, finite))
            })
            .call(&[&g, &x, &product, &zeros, &infinities])?
        }
        Reduction::AMax | Reduction::AMin => {
            let (x, extreme) = (context.input(0), spread(context.output(0))?);
            // NaN is the extreme if there is one.
            let ties = once!(|[x, extreme]| {
                let one = x.literal(1.0);
                (x.eq(extreme) | (x.isnan() & extreme.isnan())).select(one, 0.0)
            })
            .call(&[x, &extreme])?;
            // Counted in f32: f16 ends at 65,504.
            let count = ties.to(meta.dtype.compute())?.sum(listed, true)?;
            once!(|[g, ties, count]| ties.eq(0.0).select(0.0, g / count)).call(&[&g, &ties, &count])?
        }
        Reduction::Var { correction } => {
            let x = x()?;
            let mean = x.mean(listed, true)?;
            let factor = 2.0 / (count as f64 - correction).max(0.0);
            let scaled = wide(&g)?.mul(factor)?;
            once!(|[g, x, mean]| g * (x - mean)).call(&[&scaled, &x, &mean])?
        }
        Reduction::Std { correction } => {
            let x = x()?;
            let (mean, deviation) = (x.mean(listed, true)?, x.std(listed, correction, true)?);
            let scaled = wide(&g)?.div((count as f64 - correction).max(0.0))?;
            once!(|[g, x, mean, deviation]| { deviation.eq(0.0).select(0.0, g * ((x - mean) / deviation)) })
                .call(&[&scaled, &x, &mean, &deviation])?
        }
        Reduction::Norm2 => {
            let (x, g) = (x()?, wide(&g)?);
            let norm = x.norm(listed, true)?;
            once!(|[g, x, norm]| norm.eq(0.0).select(0.0, g * (x / norm))).call(&[&g, &x, &norm])?
        }
        Reduction::All | Reduction::Any => unreachable!("grad: truth values have no gradient"),
    })
}

/// Zeros but where `index` points along an axis: there `g`.
pub(super) fn spread(meta: &Meta, axis: usize, index: &Tensor, g: &Tensor) -> Result<Tensor> {
    let spread = meta.zeros()?;
    spread.scatter_add_(axis as isize, index, g)?;
    Ok(spread)
}

/// Sums from each element to the end.
pub(super) fn cumsum(meta: &Meta, axis: usize, g: &Tensor) -> Result<Tensor> {
    if meta.rank() == 0 || meta.layout.is_empty() {
        return Ok(g.clone());
    }
    let backwards = Tensor::arange(meta.shape()[axis] as i64 - 1, -1, -1, DType::I64, &meta.device)?;
    let axis = axis as isize;
    let summed = g.index_select(axis, &backwards)?.cumsum(axis)?;
    filled(meta, |gradient| summed.index_select_out(axis, &backwards, gradient))
}
