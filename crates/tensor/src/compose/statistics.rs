//! Sums, norms and differences that are composed of reductions.

use super::{at_least_1d, axis_of, check_rank, refused};
use crate::{Axes, DType, Error, Result, Tensor, fused::once, pointwise::check_float};

/// What a quantile is between two elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// As far between as the part is.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// Their mean.
    Midpoint,
    /// The nearer one; halfway the one at an even place.
    Nearest,
}

impl Tensor {
    /// `ln Σ eˣ` over axes; integers are converted to f32 first. No power overflows; of none it is -∞.
    pub fn logsumexp(&self, axes: impl Axes + Copy, keepdim: bool) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::F32)? };
        if x.layout().is_empty() {
            return x.exp()?.sum(axes, keepdim)?.log();
        }
        // In units of the largest, which has no part in the gradient.
        let most = x.detach().amax(axes, true)?;
        let most = once!(|[x]| x.abs().lt(f64::INFINITY).select(x, 0.0)).call(&[&most])?;
        let sums = x.sub(&most)?.exp()?.sum(axes, keepdim)?;
        let back = most.reshape(sums.shape())?;
        sums.log()?.add(&back)
    }

    /// The sum over axes of what is no NaN.
    pub fn nansum(&self, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.sum(axes, keepdim);
        }
        once!(|[x]| x.isnan().select(0.0, x)).call(&[self])?.sum(axes, keepdim)
    }

    /// The mean over axes of what is no NaN; NaN if all are.
    pub fn nanmean(&self, axes: impl Axes + Copy, keepdim: bool) -> Result<Tensor> {
        check_float("nanmean", "the tensor", self)?;
        let count = self.detach().isnan()?.logical_not()?.sum(axes, keepdim)?;
        // In f32 at least: sums and counts of 16 bits end early.
        let wide = self.to_dtype(self.dtype().compute())?;
        wide.nansum(axes, keepdim)?.div(&count.to_dtype(wide.dtype())?)?.to_dtype(self.dtype())
    }

    /// How many over axes aren't 0 (i64); NaN isn't.
    pub fn count_nonzero(&self, axes: impl Axes) -> Result<Tensor> {
        self.detach().ne(0)?.sum(axes, false)
    }

    /// The mean over axes and the variance about it.
    pub fn var_mean(
        &self,
        axes: impl Axes + Copy,
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        Ok((self.var(axes, correction, keepdim)?, self.mean(axes, keepdim)?))
    }

    /// The mean over axes and the deviation about it.
    pub fn std_mean(
        &self,
        axes: impl Axes + Copy,
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        Ok((self.std(axes, correction, keepdim)?, self.mean(axes, keepdim)?))
    }

    /// What each element of an axis is above the one before it, `n` times over; of bools whether they differ. The axis becomes
    /// shorter by `n`, down to 0.
    pub fn diff(&self, n: usize, axis: isize) -> Result<Tensor> {
        let op = "diff";
        check_rank(op, self, 1..=8, "at least 1")?;
        let axis = axis_of(op, self, axis)? as isize;
        let mut x = self.clone();
        for _ in 0..n.min(self.size(axis)?) {
            let last = x.size(axis)? - 1;
            let (behind, before) = (x.narrow(axis, 1, last)?, x.narrow(axis, 0, last)?);
            x = if x.dtype() == DType::Bool { behind.ne(&before)? } else { behind.sub(&before)? };
        }
        if x.is(self) { self.copy() } else { Ok(x) }
    }

    /// `Σ (yᵢ + yᵢ₊₁) / 2 · dxᵢ` along an axis: the integral by trapezoids. `dx` is one number, or `x` the places, a vector or
    /// broadcast.
    pub fn trapezoid(&self, x: Option<&Tensor>, dx: f64, axis: isize) -> Result<Tensor> {
        let (areas, axis) = self.trapezoids("trapezoid", x, dx, axis)?;
        areas.sum(axis, false)
    }

    /// The running [`trapezoid`](Tensor::trapezoid)s: one less than there are elements.
    pub fn cumulative_trapezoid(&self, x: Option<&Tensor>, dx: f64, axis: isize) -> Result<Tensor> {
        let (areas, axis) = self.trapezoids("cumulative_trapezoid", x, dx, axis)?;
        areas.cumsum(axis)
    }

    fn trapezoids(
        &self,
        op: &'static str,
        x: Option<&Tensor>,
        dx: f64,
        axis: isize,
    ) -> Result<(Tensor, isize)> {
        check_rank(op, self, 1..=8, "at least 1")?;
        let axis = axis_of(op, self, axis)?;
        let y = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::F32)? };
        let along = axis as isize;
        let last = y.shape()[axis].saturating_sub(1);
        let start = y.shape()[axis].min(1);
        let sums = y.narrow(along, start, last)?.add(&y.narrow(along, 0, last)?)?;
        let Some(x) = x else { return Ok((sums.mul(0.5 * dx)?, along)) };
        let x = &x.to_dtype(if x.dtype().is_float() { x.dtype() } else { y.dtype() })?;
        let count = if x.rank() == 1 {
            x.shape()[0]
        } else {
            x.shape().get(x.rank().wrapping_sub(self.rank() - axis)).copied().unwrap_or(1)
        };
        if count != y.shape()[axis] {
            return Err(refused(op, "the places of the axis", "as many as there are elements", count as i64));
        }
        let steps = match x.rank() {
            1 => {
                let mut shape = vec![1; y.rank()];
                shape[axis] = last;
                x.diff(1, 0)?.reshape(shape)?
            }
            rank => x.diff(1, (rank - (self.rank() - axis)) as isize)?,
        };
        let along = along - y.rank() as isize;
        Ok((sums.mul(&steps)?.mul(0.5)?, along))
    }

    /// Distances `‖x − y‖ₚ` between the rows of two tensors: `[.., n, d] × [.., m, d] → [.., n, m]`, of floats. The gradient where a
    /// distance is 0 is 0.
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        let op = "cdist";
        check_float(op, "the tensor", self)?;
        for tensor in [self, other] {
            check_rank(op, tensor, 2..=7, "2 to 7")?;
        }
        let (a, b) = (self.shape()[self.rank() - 1], other.shape()[other.rank() - 1]);
        if a != b {
            return Err(refused(op, "the size of the other's rows", "that of the first", b as i64));
        }
        if p.is_nan() || p < 0.0 {
            return Err(refused(op, "p", "a number of at least 0", p));
        }
        let apart = self.unsqueeze(-2)?.sub(&other.unsqueeze(-3)?)?;
        if a == 0 { apart.sum(-1, false) } else { apart.norm_p(p, -1, false) }
    }

    /// A copy in which slices of an axis whose p-norm is above `most` are scaled down to it.
    pub fn renorm(&self, p: f64, axis: isize, most: f64) -> Result<Tensor> {
        let op = "renorm";
        check_float(op, "the tensor", self)?;
        check_rank(op, self, 2..=8, "at least 2")?;
        if p.is_nan() || p <= 0.0 {
            return Err(refused(op, "p", "a number above 0", p));
        }
        if most.is_nan() || most < 0.0 {
            return Err(refused(op, "the largest norm", "a number of at least 0", most));
        }
        let axis = axis_of(op, self, axis)?;
        let others: Vec<isize> =
            (0..self.rank()).filter(|&other| other != axis).map(|axis| axis as isize).collect();
        let wide = self.to_dtype(self.dtype().compute())?;
        let norms = wide.norm_p(p, &others[..], true)?;
        // As in PyTorch, a little off where the norm is small.
        let scale = norms.detach().gt(most)?.where_(&norms.add(1e-7)?.reciprocal()?.mul(most)?, 1.0)?;
        wide.mul(&scale)?.to_dtype(self.dtype())
    }

    /// The covariances of variables, which are rows: `[n, count] → [n, n]`, or of a vector its variance. Weights count observations,
    /// or say how much they count.
    pub fn cov(&self, correction: f64, counts: Option<&Tensor>, weights: Option<&Tensor>) -> Result<Tensor> {
        let op = "cov";
        check_rank(op, self, 0..=2, "at most 2")?;
        let dtype = if self.dtype().is_float() { self.dtype() } else { DType::F32 };
        let x = at_least_1d(&self.to_dtype(dtype)?)?;
        let x = if x.rank() == 1 { x.unsqueeze(0)? } else { x };
        let count = x.shape()[1];
        for weight in [counts, weights].into_iter().flatten() {
            if at_least_1d(weight)?.shape()[..] != [count] {
                return Err(Error::Shape {
                    op,
                    what: "the weights",
                    expected: vec![count],
                    found: weight.shape().to_vec(),
                });
            }
        }
        let factor = match (counts, weights) {
            (None, None) => None,
            (Some(w), None) | (None, Some(w)) => Some(w.to_dtype(dtype)?),
            (Some(a), Some(b)) => Some(a.to_dtype(dtype)?.mul(&b.to_dtype(dtype)?)?),
        };
        let (mean, divisor) = match &factor {
            None => {
                (x.mean(1, true)?, Tensor::full([0usize; 0], count as f64 - correction, dtype, &x.device())?)
            }
            Some(factor) => {
                let total = factor.sum(.., false)?;
                let taken = match weights {
                    None => total.full_like(correction)?,
                    Some(weights) => {
                        factor.mul(&weights.to_dtype(dtype)?)?.sum(.., false)?.div(&total)?.mul(correction)?
                    }
                };
                (x.mul(factor)?.sum(1, true)?.div(&total)?, total.sub(&taken)?)
            }
        };
        let apart = x.sub(&mean)?;
        let weighted = factor.as_ref().map_or(Ok(apart.clone()), |factor| apart.mul(factor))?;
        let products = weighted.matmul(&apart.t()?)?.div(&divisor.clamp_min(0)?)?;
        let rank = if self.rank() == 2 && self.shape()[0] != 1 { 2 } else { 0 };
        if rank == 2 { Ok(products) } else { products.reshape([0usize; 0]) }
    }

    /// The correlations of variables, which are rows: `[n, count] → [n, n]`, within -1 and 1; of a vector 1.
    pub fn corrcoef(&self) -> Result<Tensor> {
        check_rank("corrcoef", self, 0..=2, "at most 2")?;
        let covariances = self.cov(1.0, None, None)?;
        if covariances.rank() == 0 {
            return covariances.div(&covariances);
        }
        let deviations = covariances.diagonal(0, 0, 1)?.sqrt()?;
        covariances.div(&deviations.unsqueeze(1)?)?.div(&deviations.unsqueeze(0)?)?.clamp(-1.0, 1.0)
    }
}
