//! Reading, writing and looking up at places that another tensor names.

use super::{at_least_1d, axis_of, check_rank, refused};
use crate::{
    Arg, DType, Error, Layout, Result, Tensor, create::check_dtype, error::shape_error, fused::once,
    result_type,
};
use raddle_base::Scalar;
use raddle_op::ScatterMode;

/// What becomes of several values for one element, and of what stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the reductions")]
pub enum Fold {
    Sum,
    Prod,
    Mean,
    AMax,
    AMin,
}

/// The distinct elements of a tensor.
#[derive(Clone, Debug)]
pub struct Unique {
    /// They themselves.
    pub values: Tensor,
    /// Which of them each element is (i64, of the tensor's shape, or `[size]` along an axis).
    pub inverse: Tensor,
    /// How often each is there (i64).
    pub counts: Tensor,
}

impl Tensor {
    /// A copy with slices `index[i]` of an axis overwritten by a number, or by a tensor without axes.
    pub fn index_fill<'a>(&self, axis: isize, index: &Tensor, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        let copy = self.copy()?;
        copy.index_fill_(axis, index, value)?;
        Ok(copy)
    }

    /// [`index_fill`](Tensor::index_fill) in place.
    pub fn index_fill_<'a>(&self, axis: isize, index: &Tensor, value: impl Into<Arg<'a>>) -> Result<&Tensor> {
        let (op, value) = ("index_fill", value.into());
        if let Arg::Tensor(value) = value {
            check_rank(op, value, 0..=0, "0")?;
        }
        self.put_slices(op, axis, index, value)
    }

    /// A copy in which slice `index[i]` of an axis is slice `i` of `source`.
    pub fn index_copy(&self, axis: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        let copy = self.copy()?;
        copy.index_copy_(axis, index, source)?;
        Ok(copy)
    }

    /// [`index_copy`](Tensor::index_copy) in place.
    pub fn index_copy_(&self, axis: isize, index: &Tensor, source: &Tensor) -> Result<&Tensor> {
        let op = "index_copy";
        check_dtype(op, "the source", self.dtype(), source)?;
        let resolved = axis_of(op, self, axis)?;
        let mut shape = *self.shape();
        if self.rank() > 0 {
            shape[resolved] = index.element_count();
        }
        let fits =
            *source.shape() == shape || shape.iter().product::<usize>() == 1 && source.element_count() == 1;
        if !fits {
            return Err(shape_error(op, "the source", &shape, source.shape()));
        }
        self.put_slices(op, axis, index, Arg::Tensor(&source.reshape(shape)?))
    }

    fn put_slices(&self, op: &'static str, axis: isize, index: &Tensor, value: Arg<'_>) -> Result<&Tensor> {
        check_rank(op, index, 0..=1, "at most 1")?;
        if !index.dtype().is_int() || index.dtype() == DType::U8 {
            return Err(Error::DType { op, what: "index", expected: "i64 or i32", found: index.dtype() });
        }
        let axis = axis_of(op, self, axis)?;
        let index = index.detach().reshape([index.element_count()])?;
        if self.rank() == 0 {
            // One element, under an imagined axis.
            let line = self.reshape([1])?;
            return line.index_put_(&[Some(&index)], value, false).map(|_| self);
        }
        let mut indices = vec![None; axis];
        indices.push(Some(&index));
        self.index_put_(&indices, value, false)
    }

    /// The elements at places in row-major order (negative ones count from the end), in the shape of `index`.
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        self.ravel()?.index(&[Some(&index.ravel()?)])?.reshape(index.shape())
    }

    /// A copy with `source` at places in row-major order, as [`take`](Tensor::take) reads them; with `accumulate` it is added.
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        let copy = self.copy()?;
        copy.put_(index, source, accumulate)?;
        Ok(copy)
    }

    /// [`put`](Tensor::put) in place.
    pub fn put_(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<&Tensor> {
        let op = "put";
        check_dtype(op, "the source", self.dtype(), source)?;
        check_dtype(op, "index", DType::I64, index)?;
        if source.element_count() != index.element_count() {
            return Err(shape_error(op, "the source", index.shape(), source.shape()));
        }
        let (tensor, count) = (at_least_1d(self)?, self.element_count() as i64);
        // What is out of range stays so: on the first axis.
        let index = index.detach().ravel()?;
        let index = index.lt(0)?.where_(&index.add(count)?, &index)?;
        let index = index.lt(0)?.where_(count, &index)?;
        let places = index.coordinates(tensor.shape())?;
        let places: Vec<Option<&Tensor>> = places.iter().map(Some).collect();
        tensor.index_put_(&places, &source.ravel()?, accumulate).map(|_| self)
    }

    /// Places in row-major order as an index for each axis of a shape (i64): what isn't inside is beyond on the first.
    pub fn coordinates(&self, shape: &[usize]) -> Result<Vec<Tensor>> {
        let mut rest = self.to_dtype(DType::I64)?;
        let mut places = Vec::with_capacity(shape.len());
        for (axis, &size) in shape.iter().enumerate().rev() {
            let size = size.max(1) as i64;
            places.push(if axis == 0 { rest.clone() } else { rest.rem(size)? });
            rest = rest.floor_divide(size)?;
        }
        places.reverse();
        Ok(places)
    }

    /// [`gather`](Tensor::gather) in which tensor and index are broadcast in all other axes; without an axis, of all elements in
    /// row-major order.
    pub fn take_along_dim(&self, index: &Tensor, axis: Option<isize>) -> Result<Tensor> {
        let op = "take_along_dim";
        let Some(axis) = axis else { return self.ravel()?.gather(0, &index.ravel()?) };
        if self.rank() != index.rank() {
            let (expected, found) = ("as many as the tensor", index.rank());
            return Err(Error::Rank { op, what: "index", expected, found });
        }
        let axis = axis_of(op, self, axis)?;
        if self.rank() == 0 {
            return self.gather(0, index);
        }
        let one = |x: &Tensor| {
            let mut shape = *x.shape();
            shape[axis] = 1;
            shape
        };
        let mut shape = Layout::broadcast_shapes(op, &one(self), &one(index))?;
        shape[axis] = self.shape()[axis];
        let source = self.expand(shape)?;
        shape[axis] = index.shape()[axis];
        source.gather(axis as isize, &index.expand(shape)?.contiguous()?)
    }

    /// A copy in which `[.., index[.., i, ..], ..]` is folded with `values[.., i, ..]`; what stood there counts if
    /// `includes_self`. Values as of [`scatter`](Tensor::scatter). Of integers the mean is rounded down.
    pub fn scatter_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        values: &Tensor,
        fold: Fold,
        includes_self: bool,
    ) -> Result<Tensor> {
        let op = "scatter_reduce";
        check_dtype(op, "values", self.dtype(), values)?;
        if matches!(fold, Fold::Prod) && self.dtype().compute() != self.dtype() && self.dtype().is_float() {
            // Rounded once.
            let wide = [self, values].map(|x| x.to_dtype(self.dtype().compute()));
            let [wide, values] = wide;
            return wide?.scatter_reduce(axis, index, &values?, fold, includes_self)?.to_dtype(self.dtype());
        }
        let dtype = self.dtype();
        let (neutral, mode) = match fold {
            Fold::Sum | Fold::Mean => (Scalar::Int(0), ScatterMode::Add),
            Fold::Prod => (Scalar::Int(1), ScatterMode::Multiply),
            Fold::AMax => (least(dtype), ScatterMode::Max),
            Fold::AMin => (largest(dtype), ScatterMode::Min),
        };
        let scalar = Tensor::full([0usize; 0], neutral, dtype, &self.device())?;
        let base = match includes_self {
            true => self.clone(),
            false => self.scatter(axis, index, &scalar.expand(index.shape())?)?,
        };
        let folded = base.scatter_fresh(op, axis, index, values, mode)?;
        if fold != Fold::Mean {
            return Ok(folded);
        }
        // How many are in each; at least 1, where there is nothing to divide. Counted in i64: f16 ends at 65,504.
        let start = i64::from(includes_self);
        let counts = Tensor::full(*self.shape(), start, DType::I64, &self.device())?;
        let ones = Tensor::ones([0usize; 0], DType::I64, &self.device())?.expand(index.shape())?;
        let counts = counts.scatter_add(axis, index, &ones)?.clamp_min(1)?;
        match dtype.is_float() {
            true => folded.div(&counts.to_dtype(dtype)?),
            false => folded.floor_divide(&counts.to_dtype(dtype)?),
        }
    }

    /// A copy in which slice `index[i]` of an axis is folded with slice `i` of `source`, as by
    /// [`scatter_reduce`](Tensor::scatter_reduce).
    pub fn index_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
        fold: Fold,
        includes_self: bool,
    ) -> Result<Tensor> {
        let op = "index_reduce";
        check_rank(op, index, 0..=1, "at most 1")?;
        let resolved = axis_of(op, self, axis)?;
        let mut shape = *self.shape();
        let mut sizes = vec![1; self.rank()];
        if self.rank() > 0 {
            shape[resolved] = index.element_count();
            sizes[resolved] = index.element_count();
        }
        if *source.shape() != shape {
            return Err(shape_error(op, "the source", &shape, source.shape()));
        }
        let index = index.reshape(sizes)?.expand(shape)?;
        self.scatter_reduce(axis, &index, source, fold, includes_self)
    }

    /// A copy in which the elements where `mask` (bool, broadcast) is true are those of `source`, in row-major order. Waits for the
    /// mask. Errors: fewer elements in `source` than are true.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        let op = "masked_scatter";
        check_dtype(op, "the mask", DType::Bool, mask)?;
        check_dtype(op, "the source", self.dtype(), source)?;
        let shape = Layout::broadcast_shapes(op, self.shape(), mask.shape())?;
        let mask = mask.expand(shape)?;
        let places = mask.ravel()?.nonzero()?.ravel()?;
        let count = places.element_count();
        if source.element_count() < count {
            return Err(Error::Shape {
                op,
                what: "the source",
                expected: vec![count],
                found: source.shape().to_vec(),
            });
        }
        let values = source.ravel()?.narrow(0, 0, count)?;
        self.expand(shape)?.ravel()?.index_copy(0, &places, &values)?.reshape(shape)
    }

    /// Where elements of `self` would go so that `sorted`, in ascending order along its last axis, stays so (i64): before equal
    /// ones, or behind them (`right`). A NaN goes to the end. Either `sorted` is a vector, or both have the same axes but for the
    /// last.
    pub fn searchsorted(sorted: &Tensor, values: &Tensor, right: bool) -> Result<Tensor> {
        let op = "searchsorted";
        check_rank(op, sorted, 1..=8, "at least 1")?;
        let count = sorted.shape()[sorted.rank() - 1];
        let is_line = sorted.rank() == 1;
        let front = |x: &Tensor| x.shape()[..x.rank().max(1) - 1].to_vec();
        if !is_line && (values.rank() != sorted.rank() || front(values) != front(sorted)) {
            return Err(shape_error(op, "the values", sorted.shape(), values.shape()));
        }
        let dtype = result_type(&[Arg::Tensor(sorted), Arg::Tensor(values)]);
        let (sorted, values) = (sorted.detach().to_dtype(dtype)?, values.detach().to_dtype(dtype)?);
        let mut low = Tensor::zeros(*values.shape(), DType::I64, &values.device())?;
        if count == 0 {
            return Ok(low);
        }
        let mut high = low.add(count as i64)?;
        for _ in 0..=count.ilog2() {
            let middle = once!(|[low, high]| (low + high).bitwise_right_shift(1.0)).call(&[&low, &high])?;
            let place = middle.clamp_max(count as i64 - 1)?;
            let found = match is_line {
                true => sorted.take(&place)?,
                false => sorted.gather(-1, &place)?,
            };
            // Not what is beyond, so that a NaN goes on.
            let stays = if right { found.gt(&values)? } else { found.ge(&values)? };
            let goes_on = stays.logical_not()?.logical_and(&low.lt(&high)?)?;
            low = goes_on.where_(&middle.add(1)?, &low)?;
            high = goes_on.where_(&high, &middle)?;
        }
        Ok(low)
    }

    /// Which elements are among `test`: bools. A NaN is among none.
    pub fn isin(&self, test: &Tensor) -> Result<Tensor> {
        if test.layout().is_empty() {
            return Tensor::zeros(*self.shape(), DType::Bool, &self.device());
        }
        let dtype = result_type(&[Arg::Tensor(self), Arg::Tensor(test)]);
        let (values, sorted) =
            (self.to_dtype(dtype)?, test.detach().to_dtype(dtype)?.ravel()?.sort(0, false)?.0);
        let place =
            Tensor::searchsorted(&sorted, &values, false)?.clamp_max(test.element_count() as i64 - 1)?;
        sorted.take(&place)?.eq(&values)
    }

    /// How often each integer from 0 on is there (i64), or the sums of the weights of its elements, in at least `count_min` bins.
    /// Waits for the largest. Errors: not integers of at most one axis; a negative one; weights of another shape.
    pub fn bincount(&self, weights: Option<&Tensor>, count_min: usize) -> Result<Tensor> {
        let op = "bincount";
        check_rank(op, self, 1..=1, "1")?;
        if !self.dtype().is_int() {
            return Err(Error::DType { op, what: "the tensor", expected: "integers", found: self.dtype() });
        }
        let index = self.to_dtype(DType::I64)?;
        let mut count = count_min;
        if !self.layout().is_empty() {
            let least = index.amin(.., false)?.item::<i64>()?;
            if least < 0 {
                return Err(refused(op, "an element", "at least 0", least));
            }
            count = count.max(index.amax(.., false)?.item::<i64>()? as usize + 1);
        }
        let weights = match weights {
            None => Tensor::ones([0usize; 0], DType::I64, &self.device())?.expand(self.shape())?,
            Some(weights) if weights.shape() != self.shape() => {
                return Err(shape_error(op, "the weights", self.shape(), weights.shape()));
            }
            Some(weights) if weights.dtype() == DType::F32 => weights.clone(),
            Some(weights) => weights.to_dtype(DType::F64)?,
        };
        Tensor::zeros([count], weights.dtype(), &self.device())?.index_add(0, &index, &weights, 1.0)
    }

    /// 1 at the class that each element is, 0 elsewhere, along a new last axis (i64). Without a count as many classes as the largest
    /// asks for, which is waited for. Errors: not integers; a negative one, or one that isn't below the count.
    pub fn one_hot(&self, count: Option<usize>) -> Result<Tensor> {
        let op = "one_hot";
        check_dtype(op, "the tensor", DType::I64, self)?;
        let count = match count {
            Some(count) => count,
            None if self.layout().is_empty() => {
                return Err(Error::EmptyAxis { op, axis: 0, shape: self.shape().to_vec() });
            }
            None => usize::try_from(self.amax(.., false)?.item::<i64>()?).unwrap_or(0) + 1,
        };
        let mut shape = self.shape().to_vec();
        shape.push(count);
        let zeros = Tensor::zeros(&shape, DType::I64, &self.device())?;
        let one = Tensor::ones([0usize; 0], DType::I64, &self.device())?;
        let index = self.unsqueeze(-1)?;
        zeros.scatter(-1, &index, &one.expand(index.shape())?)
    }

    /// The distinct elements in ascending order; of an axis the distinct slices, in the order of their elements. Each NaN is one of
    /// its own. Waits for how many there are.
    pub fn unique(&self, axis: Option<isize>) -> Result<Unique> {
        let (table, axis) = self.unique_table("unique", axis)?;
        let count = table.shape()[0];
        // By the last column first: the sort is stable.
        let mut order = Tensor::arange(0, count as i64, 1, DType::I64, &self.device())?;
        for column in (0..table.shape()[1] as isize).rev() {
            let column = table.select(1, column)?.index_select(0, &order)?;
            order = order.index_select(0, &column.argsort(0, false)?)?;
        }
        let sorted = table.index_select(0, &order)?;
        let (starts, inverse, counts) = runs(&sorted)?;
        let inverse = Tensor::zeros([count], DType::I64, &self.device())?.scatter(0, &order, &inverse)?;
        self.unique_parts(axis, &order.index_select(0, &starts)?, inverse, counts)
    }

    /// The elements without those that equal the one before them; of an axis its slices. Each NaN stays. Waits for how many there
    /// are.
    pub fn unique_consecutive(&self, axis: Option<isize>) -> Result<Unique> {
        let (table, axis) = self.unique_table("unique_consecutive", axis)?;
        let (starts, inverse, counts) = runs(&table)?;
        self.unique_parts(axis, &starts, inverse, counts)
    }

    /// A row an element, or a slice of the axis.
    fn unique_table(&self, op: &'static str, axis: Option<isize>) -> Result<(Tensor, Option<usize>)> {
        let Some(axis) = axis else {
            return Ok((self.detach().reshape([self.element_count(), 1])?, None));
        };
        let axis = axis_of(op, self, axis)?;
        let tensor = at_least_1d(&self.detach())?;
        let count = tensor.shape()[axis];
        let others = tensor.shape().iter().enumerate().filter(|(other, _)| *other != axis);
        let width: usize = others.map(|(_, &size)| size).product();
        if width == 0 && count > 0 {
            return Err(refused(op, "the other axes", "no size of 0", 0i64));
        }
        let mut order: Vec<isize> =
            (0..tensor.rank() as isize).filter(|&other| other != axis as isize).collect();
        order.insert(0, axis as isize);
        Ok((tensor.permute(order)?.reshape([count, width])?, Some(axis)))
    }

    fn unique_parts(
        &self,
        axis: Option<usize>,
        places: &Tensor,
        inverse: Tensor,
        counts: Tensor,
    ) -> Result<Unique> {
        let tensor = self.detach();
        Ok(match axis {
            None => Unique { values: tensor.take(places)?, inverse: inverse.reshape(self.shape())?, counts },
            Some(axis) => {
                Unique { values: at_least_1d(&tensor)?.index_select(axis as isize, places)?, inverse, counts }
            }
        })
    }
}

/// Of rows: where each run of equal ones starts, which run each row belongs to, and how long each is.
fn runs(table: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (count, device) = (table.shape()[0], table.device());
    if count == 0 {
        let none = Tensor::zeros([0], DType::I64, &device)?;
        return Ok((none.clone(), none.clone(), none));
    }
    let changes = table.narrow(0, 1, count - 1)?.ne(&table.narrow(0, 0, count - 1)?)?.any(1, false)?;
    let begins = Tensor::cat(&[Tensor::ones([1], DType::Bool, &device)?, changes], 0)?;
    let starts = begins.nonzero()?.ravel()?;
    let inverse = begins.cumsum(0)?.sub(1)?;
    let end = Tensor::full([1], count as i64, DType::I64, &device)?;
    let counts = Tensor::cat(&[starts.narrow(0, 1, starts.element_count() - 1)?, end], 0)?.sub(&starts)?;
    Ok((starts, inverse, counts))
}

/// The least number of a dtype.
fn least(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool | DType::U8 => Scalar::Int(0),
        DType::I32 => Scalar::Int(i32::MIN.into()),
        DType::I64 => Scalar::Int(i64::MIN),
        _ => Scalar::Float(-f64::INFINITY),
    }
}

/// The largest number of a dtype.
fn largest(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Int(1),
        DType::U8 => Scalar::Int(u8::MAX.into()),
        DType::I32 => Scalar::Int(i32::MAX.into()),
        DType::I64 => Scalar::Int(i64::MAX),
        _ => Scalar::Float(f64::INFINITY),
    }
}
