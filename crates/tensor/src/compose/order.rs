//! What order tells: medians, quantiles, the k-th, the most frequent.

use super::{at_least_1d, axis_of, check_rank, refused};
use crate::{DType, Error, Result, Tensor, compose::Between, pointwise::check_float};

impl Tensor {
    /// Values and indices at places of the sorted axis; places have size 1 there.
    fn at_places(
        &self,
        axis: usize,
        keepdim: bool,
        sorted: (&Tensor, &Tensor),
        places: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let axis = axis as isize;
        let (values, indices) = (sorted.0.gather(axis, places)?, sorted.1.gather(axis, places)?);
        match (self.rank(), keepdim) {
            (0, _) => Ok((values.reshape([0usize; 0])?, indices.reshape([0usize; 0])?)),
            (_, true) => Ok((values, indices)),
            _ => Ok((values.squeeze(axis)?, indices.squeeze(axis)?)),
        }
    }

    /// The sorted axis, and how many of each line are no NaN (i64, size 1 there).
    fn in_order(&self, op: &'static str, axis: usize) -> Result<((Tensor, Tensor), Tensor)> {
        let tensor = at_least_1d(self)?;
        if tensor.shape()[axis] == 0 {
            return Err(Error::EmptyAxis { op, axis, shape: self.shape().to_vec() });
        }
        let numbers = tensor.detach().isnan()?.logical_not()?.sum(axis as isize, true)?;
        Ok((tensor.sort(axis as isize, false)?, numbers))
    }

    /// The middle of an axis, of two the lower one, and where it stands (i64). NaN if there is one. The gradient goes to that element.
    pub fn median(&self, axis: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis_of("median", self, axis)?;
        let (sorted, numbers) = self.in_order("median", axis)?;
        let count = sorted.0.shape()[axis] as i64;
        // The first NaN stands behind the numbers.
        let places = numbers.lt(count)?.where_(&numbers, (count - 1) / 2)?;
        self.at_places(axis, keepdim, (&sorted.0, &sorted.1), &places)
    }

    /// [`median`](Tensor::median) of what is no NaN; NaN if all are.
    pub fn nanmedian(&self, axis: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis_of("nanmedian", self, axis)?;
        let (sorted, numbers) = self.in_order("nanmedian", axis)?;
        let places = numbers.sub(1)?.floor_divide(2)?.clamp_min(0)?;
        self.at_places(axis, keepdim, (&sorted.0, &sorted.1), &places)
    }

    /// The `k`-th smallest of an axis, counted from 1, and where it stands (i64). NaN counts as the largest.
    pub fn kthvalue(&self, k: usize, axis: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let op = "kthvalue";
        let axis = axis_of(op, self, axis)?;
        let (sorted, numbers) = self.in_order(op, axis)?;
        if k == 0 || k > sorted.0.shape()[axis] {
            return Err(refused(op, "k", "at least 1 and at most the size of the axis", k as i64));
        }
        let places = numbers.full_like(k as i64 - 1)?;
        self.at_places(axis, keepdim, (&sorted.0, &sorted.1), &places)
    }

    /// The most frequent element of an axis, the least of several, and where the last of these stands (i64).
    pub fn mode(&self, axis: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis_of("mode", self, axis)?;
        let ((values, indices), _) = self.in_order("mode", axis)?;
        let (count, along) = (values.shape()[axis], axis as isize);
        let mut shape = vec![1; values.rank()];
        shape[axis] = count;
        let places = Tensor::arange(0, count as i64, 1, DType::I64, &self.device())?.reshape(shape)?;
        let plain = values.detach();
        let changes = plain.narrow(along, 1, count - 1)?.ne(&plain.narrow(along, 0, count - 1)?)?;
        let first = Tensor::ones(*plain.narrow(along, 0, 1)?.shape(), DType::Bool, &self.device())?;
        let starts = Tensor::cat(&[first, changes], along)?.where_(&places, 0)?.cummax(along)?.0;
        // How many of a run there are up to each; the first that is the most is the last of its run.
        let best = places.sub(&starts)?.argmax(along, true)?;
        self.at_places(axis, keepdim, (&values, &indices), &best)
    }

    /// Values in ascending order along the first axis.
    pub fn msort(&self) -> Result<Tensor> {
        Ok(self.sort(0, false)?.0)
    }

    /// The values below which parts `q` (of [0, 1], a number or a vector) of an axis lie, between elements as `between` says; without
    /// an axis of all elements. NaN if there is one, or (`skips_nan`) only if all are. A vector of parts becomes the first axis.
    ///
    /// Errors: no f32 or f64, or not both of one; parts outside (on the host: they are waited for); an empty axis.
    pub fn quantile(
        &self,
        q: &Tensor,
        axis: Option<isize>,
        keepdim: bool,
        between: Between,
        skips_nan: bool,
    ) -> Result<Tensor> {
        let op = "quantile";
        if !matches!(self.dtype(), DType::F32 | DType::F64) {
            return Err(Error::DType { op, what: "the tensor", expected: "f32 or f64", found: self.dtype() });
        }
        check_float(op, "the tensor", self)?;
        crate::create::check_dtype(op, "the parts", self.dtype(), q)?;
        check_rank(op, q, 0..=1, "at most 1")?;
        if let Some(&part) =
            q.detach().to_dtype(DType::F64)?.to_vec::<f64>()?.iter().find(|q| !(0.0..=1.0).contains(*q))
        {
            return Err(refused(op, "a part", "a number of [0, 1]", part));
        }
        let (line, axis) = match axis {
            Some(axis) => (at_least_1d(self)?, axis_of(op, self, axis)?),
            None => (self.ravel()?, 0),
        };
        let line = line.movedim_last(axis)?;
        let ((sorted, _), numbers) = line.in_order(op, line.rank() - 1)?;
        let last = sorted.shape()[sorted.rank() - 1] as i64 - 1;
        let most = numbers.sub(1)?.clamp_min(0)?;
        let most = if skips_nan { most } else { numbers.full_like(last)? };
        let ranks = most.to_dtype(DType::F64)?.mul(&q.to_dtype(DType::F64)?.reshape([q.element_count()])?)?;
        let ranks = if skips_nan { ranks } else { numbers.le(last)?.where_(last as f64, &ranks)? };
        let ranks = match between {
            Between::Lower => ranks.floor()?,
            Between::Higher => ranks.ceil()?,
            Between::Nearest => ranks.round()?,
            Between::Linear | Between::Midpoint => ranks,
        };
        let below = ranks.floor()?;
        let (low, high) = (below.to_dtype(DType::I64)?, ranks.ceil()?.to_dtype(DType::I64)?);
        let part = ranks.sub(&below)?;
        let part = if between == Between::Midpoint { part.gt(0)?.where_(0.5, &part)? } else { part };
        let (a, b) = (sorted.gather(-1, &low)?, sorted.gather(-1, &high)?);
        // Beside an infinity there is no way between.
        let values = match between {
            Between::Linear | Between::Midpoint => {
                let part = part.to_dtype(self.dtype())?;
                let b = part.eq(0)?.logical_and(&b.isinf()?)?.where_(&a, &b)?;
                a.lerp(&b, &part)?
            }
            _ => a,
        };
        // [.., parts] → parts in front, the axis back in its place.
        let mut shape: Vec<usize> = values.shape()[..values.rank() - 1].to_vec();
        let parts = values.movedim_first()?;
        if keepdim {
            match self.rank() {
                0 => {}
                rank if shape.len() + 1 == rank => shape.insert(axis, 1),
                rank => shape = vec![1; rank],
            }
        }
        if q.rank() == 1 {
            shape.insert(0, q.element_count());
        }
        parts.reshape(shape)
    }

    fn movedim_last(&self, axis: usize) -> Result<Tensor> {
        let mut order: Vec<isize> =
            (0..self.rank() as isize).filter(|&other| other != axis as isize).collect();
        order.push(axis as isize);
        self.permute(order)
    }

    fn movedim_first(&self) -> Result<Tensor> {
        let last = self.rank() as isize - 1;
        self.permute(std::iter::once(last).chain(0..last).collect::<Vec<_>>())
    }
}
