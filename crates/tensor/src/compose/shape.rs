//! Elements at other places: reversed, turned, repeated, put on diagonals.

use super::{axis_of, check_rank, refused};
use crate::{DType, Device, Dims, Error, Result, Tensor, error::shape_error};
use raddle_base::{Scalar, ViewError};

impl Tensor {
    /// The axes in the reverse order of their elements; a copy. Errors: an axis that isn't there, or twice.
    pub fn flip(&self, axes: &[isize]) -> Result<Tensor> {
        let mut seen = 0u8;
        let mut flipped = self.copy()?;
        for &axis in axes {
            let axis = axis_of("flip", self, axis)?;
            if seen >> axis & 1 == 1 {
                return Err(ViewError::RepeatedAxis { op: "flip", axis }.into());
            }
            seen |= 1 << axis;
            if self.rank() > 0 {
                flipped = flipped.reversed(axis as isize)?;
            }
        }
        Ok(flipped)
    }

    /// Moved along axes by so many places, what falls off one end comes in at the other; without axes all elements in row-major
    /// order are moved. Errors: not as many shifts as axes.
    pub fn roll(&self, shifts: &[i64], axes: &[isize]) -> Result<Tensor> {
        let op = "roll";
        if axes.is_empty() && shifts.len() == 1 {
            return self.ravel()?.roll(shifts, &[0])?.reshape(self.shape());
        }
        if shifts.is_empty() || shifts.len() != axes.len() {
            return Err(Error::Count {
                op,
                what: "shifts",
                expected: axes.len().max(1),
                found: shifts.len(),
            });
        }
        let mut rolled = self.copy()?;
        for (&shift, &axis) in shifts.iter().zip(axes) {
            let axis = axis_of(op, self, axis)?;
            let size = self.shape().get(axis).copied().unwrap_or(0);
            if size == 0 {
                continue;
            }
            let first = size - shift.rem_euclid(size as i64) as usize;
            let axis = axis as isize;
            rolled = Tensor::cat(
                &[
                    rolled.narrow(axis, first % size, size - first % size)?,
                    rolled.narrow(axis, 0, first % size)?,
                ],
                axis,
            )?;
        }
        Ok(rolled)
    }

    /// Turned by 90° in the plane of two axes, `turns` times, from the first axis to the second.
    ///
    /// Errors: one axis twice.
    pub fn rot90(&self, turns: i64, [a, b]: [isize; 2]) -> Result<Tensor> {
        let op = "rot90";
        check_rank(op, self, 2..=8, "at least 2")?;
        if axis_of(op, self, a)? == axis_of(op, self, b)? {
            return Err(ViewError::RepeatedAxis { op, axis: axis_of(op, self, a)? }.into());
        }
        match turns.rem_euclid(4) {
            0 => self.copy(),
            1 => self.flip(&[b])?.transpose(a, b),
            2 => self.flip(&[a, b]),
            _ => self.flip(&[a])?.transpose(a, b),
        }
    }

    /// So many times along each axis; axes may be added in front. Errors: fewer numbers than axes.
    pub fn repeat(&self, times: &[usize]) -> Result<Tensor> {
        let op = "repeat";
        let Some(missing) = times.len().checked_sub(self.rank()) else {
            return Err(Error::Count { op, what: "numbers", expected: self.rank(), found: times.len() });
        };
        let ones = crate::create::dims(op, &vec![1; times.len()])?;
        let mut shape: Vec<usize> = ones[..missing].iter().chain(self.shape().iter()).copied().collect();
        let mut repeated = self.reshape(&shape)?;
        for (axis, &count) in times.iter().enumerate().filter(|(_, count)| **count != 1) {
            let mut copies = shape.clone();
            copies.insert(axis, count);
            shape[axis] = shape[axis].checked_mul(count).ok_or(ViewError::Overflow { op, shape: ones })?;
            repeated = repeated.unsqueeze(axis as isize)?.expand(&copies)?.reshape(&shape)?;
        }
        if repeated.shares_storage(self) { repeated.copy() } else { Ok(repeated) }
    }

    /// [`repeat`](Tensor::repeat) with as many numbers as axes: missing ones are 1.
    pub fn tile(&self, times: &[usize]) -> Result<Tensor> {
        let missing = self.rank().saturating_sub(times.len());
        self.repeat(&[vec![1; missing], times.to_vec()].concat())
    }

    /// Each element of an axis so many times in a row.
    pub fn repeat_interleave(&self, count: usize, axis: isize) -> Result<Tensor> {
        let axis = axis_of("repeat_interleave", self, axis)?;
        let tensor = super::at_least_1d(self)?;
        let mut copies = tensor.shape().to_vec();
        copies.insert(axis + 1, count);
        let repeated = tensor.unsqueeze(axis as isize + 1)?.expand(&copies)?;
        let size = copies.remove(axis + 1);
        copies[axis] *= size;
        repeated.reshape(copies)
    }

    /// Each element of an axis as often as `counts` (i64 or i32, `[size]` or `[1]`) says. Waits for the counts.
    pub fn repeat_interleave_by(&self, counts: &Tensor, axis: isize) -> Result<Tensor> {
        let axis = axis_of("repeat_interleave", self, axis)? as isize;
        let tensor = super::at_least_1d(self)?;
        let size = tensor.size(axis)?;
        let index = Tensor::counted(counts, size)?;
        tensor.index_select(axis, &index)
    }

    /// 0 … `size - 1`, each as often as `counts` says (i64).
    pub fn counted(counts: &Tensor, size: usize) -> Result<Tensor> {
        let op = "repeat_interleave";
        check_rank(op, counts, 0..=1, "at most 1")?;
        if !counts.dtype().is_int() {
            return Err(Error::DType { op, what: "counts", expected: "i64 or i32", found: counts.dtype() });
        }
        let device = counts.device();
        let mut counts: Vec<i64> = counts.detach().to_dtype(DType::I64)?.ravel()?.to_vec()?;
        if counts.len() == 1 {
            counts.resize(size, counts[0]);
        }
        if counts.len() != size {
            return Err(Error::Shape { op, what: "counts", expected: vec![size], found: vec![counts.len()] });
        }
        if let Some(&least) = counts.iter().min().filter(|&&least| least < 0) {
            return Err(refused(op, "a count", "at least 0", least));
        }
        let index: Vec<i64> = counts
            .iter()
            .enumerate()
            .flat_map(|(place, &count)| std::iter::repeat_n(place as i64, count as usize))
            .collect();
        Tensor::from_slice(&index, [index.len()], &device)
    }

    /// A vector as the diagonal of a square matrix of zeros, or the diagonal of a matrix as a copy; `shift` above the main one.
    pub fn diag(&self, shift: isize) -> Result<Tensor> {
        check_rank("diag", self, 1..=2, "1 or 2")?;
        if self.rank() == 1 { self.diag_embed(shift, 0, 1) } else { self.diagonal(shift, 0, 1)?.copy() }
    }

    /// The last axis as the diagonal, `shift` above the main one, of square matrices of zeros, whose axes are `a` and `b` of the
    /// result.
    pub fn diag_embed(&self, shift: isize, a: isize, b: isize) -> Result<Tensor> {
        let op = "diag_embed";
        check_rank(op, self, 1..=7, "1 to 7")?;
        let rank = self.rank() as isize + 1;
        let resolve = |axis: isize| -> Result<usize> {
            let axis = if axis < 0 { axis + rank } else { axis };
            usize::try_from(axis)
                .ok()
                .filter(|_| axis < rank)
                .ok_or_else(|| refused(op, "an axis", "one of the result", axis as i64))
        };
        let (a, b) = (resolve(a)?, resolve(b)?);
        if a == b {
            return Err(ViewError::RepeatedAxis { op, axis: a }.into());
        }
        let size = self.shape()[self.rank() - 1] + shift.unsigned_abs();
        let mut shape = self.shape()[..self.rank() - 1].to_vec();
        for axis in [a.min(b), a.max(b)] {
            shape.insert(axis, size);
        }
        let out = Tensor::zeros(shape, self.dtype(), &self.device())?;
        out.diagonal(shift, a as isize, b as isize)?.copy_(self)?;
        Ok(out)
    }

    /// A copy in which a view of it is overwritten with `source`, of the view's shape.
    fn with_part(
        &self,
        op: &'static str,
        source: &Tensor,
        view: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let out = self.copy()?;
        let part = view(&out)?;
        if part.shape() != source.shape() {
            return Err(shape_error(op, "the source", part.shape(), source.shape()));
        }
        part.copy_(source)?;
        Ok(out)
    }

    /// A copy with `source` at one index of an axis.
    pub fn select_scatter(&self, source: &Tensor, axis: isize, index: isize) -> Result<Tensor> {
        self.with_part("select_scatter", source, |x| x.select(axis, index))
    }

    /// A copy with `source` in a [`slice`](Tensor::slice) of an axis.
    pub fn slice_scatter(
        &self,
        source: &Tensor,
        axis: isize,
        [start, end]: [isize; 2],
        step: usize,
    ) -> Result<Tensor> {
        self.with_part("slice_scatter", source, |x| x.slice(axis, start, end, step))
    }

    /// A copy with `source` on a diagonal of two axes.
    pub fn diagonal_scatter(&self, source: &Tensor, shift: isize, a: isize, b: isize) -> Result<Tensor> {
        self.with_part("diagonal_scatter", source, |x| x.diagonal(shift, a, b))
    }

    /// The sum of the diagonal of a matrix.
    pub fn trace(&self) -> Result<Tensor> {
        check_rank("trace", self, 2..=2, "2")?;
        self.diagonal(0, 0, 1)?.sum(.., false)
    }

    /// `out[i·m + k, ..] = self[i, ..] · other[k, ..]`, over all axes: the Kronecker product. Errors: more than 4 axes.
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        if rank > 4 {
            let (op, what, expected) = ("kron", "a tensor", "at most 4");
            return Err(Error::Rank { op, what, expected, found: rank });
        }
        let sizes = |x: &Tensor| [vec![1; rank - x.rank()], x.shape().to_vec()].concat();
        let (a, b) = (sizes(self), sizes(other));
        let pairs = |first: &[usize], second: &[usize]| -> Vec<usize> {
            first.iter().zip(second).flat_map(|(&first, &second)| [first, second]).collect()
        };
        let ones = vec![1; rank];
        let product = self.reshape(pairs(&a, &ones))?.mul(&other.reshape(pairs(&ones, &b))?)?;
        product.reshape(a.iter().zip(&b).map(|(a, b)| a * b).collect::<Dims>())
    }

    /// The powers of a vector's elements, from 0 on: `out[i, j] = self[i]ʲ`, or in descending order. `[n] → [n, count]`.
    pub fn vander(&self, count: usize, increasing: bool) -> Result<Tensor> {
        check_rank("vander", self, 1..=8, "at least 1")?;
        let last = count as i64 - 1;
        let (start, end, step) = if increasing { (0, last + 1, 1) } else { (last, -1, -1) };
        let dtype = if self.dtype() == DType::Bool { DType::I64 } else { self.dtype() };
        let powers = Tensor::arange(start, end, step, DType::I64, &self.device())?;
        self.to_dtype(dtype)?.unsqueeze(-1)?.pow(&powers.to_dtype(dtype)?)
    }

    /// Rows and columns (i64, [2, count]) of what lies on and below a diagonal of a matrix, or above it, in row-major order.
    pub fn triangle_indices(
        upper: bool,
        [rows, columns]: [usize; 2],
        diagonal: i64,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let ones = Tensor::ones([rows, columns], DType::Bool, device)?;
        let triangle = if upper { ones.triu(diagonal)? } else { ones.tril(diagonal)? };
        triangle.nonzero()?.t()?.contiguous()?.to_dtype(dtype)
    }

    /// `[.., c·r², h, w] → [.., c, h·r, w·r]`: channels become blocks of `r` × `r`. Errors: less than 3 axes; `r²` isn't part of c.
    pub fn pixel_shuffle(&self, r: usize) -> Result<Tensor> {
        let op = "pixel_shuffle";
        check_rank(op, self, 3..=6, "3 to 6")?;
        let (front, back) = self.shape().split_at(self.rank() - 3);
        let [c, h, w] = [back[0], back[1], back[2]];
        if r == 0 || !c.is_multiple_of(r * r) {
            return Err(refused(op, "the factor", "one whose square divides the channels", r as i64));
        }
        let n = front.len() as isize;
        let split = self.reshape([front, &[c / (r * r), r, r, h, w]].concat())?;
        let order: Vec<isize> = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]).collect();
        split.permute(order)?.reshape([front, &[c / (r * r), h * r, w * r]].concat())
    }

    /// `[.., c, h·r, w·r] → [.., c·r², h, w]`: the inverse of [`pixel_shuffle`](Tensor::pixel_shuffle).
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Tensor> {
        let op = "pixel_unshuffle";
        check_rank(op, self, 3..=6, "3 to 6")?;
        let (front, back) = self.shape().split_at(self.rank() - 3);
        let [c, h, w] = [back[0], back[1], back[2]];
        if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
            return Err(refused(op, "the factor", "one that divides height and width", r as i64));
        }
        let n = front.len() as isize;
        let split = self.reshape([front, &[c, h / r, r, w / r, r]].concat())?;
        let order: Vec<isize> = (0..n).chain([n, n + 2, n + 4, n + 1, n + 3]).collect();
        split.permute(order)?.reshape([front, &[c * r * r, h / r, w / r]].concat())
    }

    /// Channels (axis 1) in so many groups, mixed: the first of each group, the second of each, …
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        let op = "channel_shuffle";
        check_rank(op, self, 3..=7, "3 to 7")?;
        let shape = self.shape().to_vec();
        if groups == 0 || !shape[1].is_multiple_of(groups) {
            return Err(refused(
                op,
                "the groups",
                "a number that divides the channels",
                Scalar::Int(groups as i64),
            ));
        }
        let split = [&shape[..1], &[groups, shape[1] / groups], &shape[2..]].concat();
        self.reshape(split)?.transpose(1, 2)?.reshape(shape)
    }
}
