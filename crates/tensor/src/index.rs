//! Reading and writing at places that another tensor names.
//!
//! Indices are i64 (or i32) and count from 0. One that is out of range is found by the kernel: the op on a device that
//! runs at once returns the error, elsewhere whoever reads the result gets it; nothing is written.

use crate::{
    Call, DType, Dims, Error, INFER, Layout, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    fused::once,
    gradient::{Context, Gradients, Meta, Needs, Op},
    number::fit_factor,
    pointwise::{check_device, check_disjoint, check_out, check_overlap},
    record::{self, Mode, Silence},
};
use raddle_base::Scalar;
use raddle_op::{Kernel, ScatterMode};

fn check_index(op: &'static str, tensor: &Tensor, index: &Tensor) -> Result<()> {
    check_device(op, tensor, &[index])?;
    match index.dtype() {
        DType::I64 | DType::I32 => Ok(()),
        // Of no elements none is read.
        _ if index.layout().is_empty() => Ok(()),
        found => Err(Error::DType { op, what: "index", expected: "i64 or i32", found }),
    }
}

/// Kernels want an axis: tensors without one get one of size 1.
fn with_axis(tensor: &Tensor) -> Result<Tensor> {
    if tensor.rank() == 0 { tensor.detach().reshape([1]) } else { Ok(tensor.detach()) }
}

impl Tensor {
    /// Axis and shape of an index that goes beside this tensor; in axes other than `axis` it is at most as large.
    fn check_beside(&self, op: &'static str, axis: isize, index: &Tensor) -> Result<usize> {
        check_index(op, self, index)?;
        if index.layout().is_empty() {
            // Nothing is named: whatever its axes are.
            return Ok(if self.rank() == 0 { 0 } else { self.layout().axis(op, axis)? });
        }
        if self.rank().max(1) != index.rank().max(1) {
            let (expected, found) = ("as many as the tensor", index.rank());
            return Err(Error::Rank { op, what: "index", expected, found });
        }
        let axis =
            if self.rank() == 0 && matches!(axis, 0 | -1) { 0 } else { self.layout().axis(op, axis)? };
        let fits = |at: usize| at == axis || index.shape()[at] <= self.shape()[at];
        if index.layout().is_empty() || (0..self.rank().min(index.rank())).all(fits) {
            Ok(axis)
        } else {
            Err(shape_error(op, "index", self.shape(), index.shape()))
        }
    }

    /// `out[.., i, ..] = self[.., index[.., i, ..], ..]`; the result has the shape of `index`, which is at most as large as
    /// `self` in all other axes.
    pub fn gather(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let op = "gather";
        let axis = self.check_beside(op, axis, index)?;
        let out = Tensor::allocate(op, Layout::contiguous(*index.shape()), self.dtype(), &self.device())?;
        let run = || self.gather_launch(op, axis, index, 1, &out);
        record::fresh(&[self, index], &[&out], || Call::op(Gather { axis }), run)?;
        Ok(out)
    }

    /// [`gather`](Tensor::gather) into `out`.
    pub fn gather_out(&self, axis: isize, index: &Tensor, out: &Tensor) -> Result<()> {
        let op = "gather";
        let axis = self.check_beside(op, axis, index)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, index.shape(), &self.device())?;
        check_disjoint(op, out, &[self, index])?;
        let run = || self.gather_launch(op, axis, index, 1, out);
        record::op(Mode::Out, &[self, index], &[out], || Call::op(Gather { axis }), run)
    }

    fn gather_launch(
        &self,
        op: &'static str,
        axis: usize,
        index: &Tensor,
        repeats: usize,
        out: &Tensor,
    ) -> Result<()> {
        if out.layout().is_empty() {
            return Ok(());
        }
        let (source, index, out) = (with_axis(self)?, with_axis(index)?, with_axis(out)?);
        let operands = [out.write(out.layout()), source.read(source.layout()), index.read(index.layout())];
        Ok(self.device().submit_named(op, &Kernel::Gather { axis, repeats }, &operands)?)
    }

    /// A copy of `self` in which `[.., index[.., i, ..], ..]` is `values[.., i, ..]`. If an element is named twice, the last
    /// one in row-major order of the index stands. `values` is at least as large as `index`; what is beyond isn't used.
    pub fn scatter(&self, axis: isize, index: &Tensor, values: &Tensor) -> Result<Tensor> {
        self.scatter_fresh("scatter", axis, index, values, ScatterMode::Overwrite)
    }
    /// [`scatter`](Tensor::scatter) in place.
    pub fn scatter_(&self, axis: isize, index: &Tensor, values: &Tensor) -> Result<&Tensor> {
        self.scatter_in_place("scatter", axis, index, values, ScatterMode::Overwrite)
    }
    /// [`scatter`](Tensor::scatter) into `out`.
    pub fn scatter_out(&self, axis: isize, index: &Tensor, values: &Tensor, out: &Tensor) -> Result<()> {
        self.check_target("scatter", out, &[index, values])?;
        out.copy_(&self.scatter(axis, index, values)?).map(drop)
    }
    /// A copy of `self` with `values[.., i, ..]` added to `[.., index[.., i, ..], ..]`, in row-major order of the index. Sums of
    /// 16-bit floats are rounded once.
    pub fn scatter_add(&self, axis: isize, index: &Tensor, values: &Tensor) -> Result<Tensor> {
        self.scatter_fresh("scatter_add", axis, index, values, ScatterMode::Add)
    }
    /// [`scatter_add`](Tensor::scatter_add) in place.
    pub fn scatter_add_(&self, axis: isize, index: &Tensor, values: &Tensor) -> Result<&Tensor> {
        self.scatter_in_place("scatter_add", axis, index, values, ScatterMode::Add)
    }

    /// [`scatter_add`](Tensor::scatter_add) into `out`.
    pub fn scatter_add_out(&self, axis: isize, index: &Tensor, values: &Tensor, out: &Tensor) -> Result<()> {
        self.check_target("scatter_add", out, &[index, values])?;
        out.copy_(&self.scatter_add(axis, index, values)?).map(drop)
    }

    /// Is `out` fit for what was copied from `self` and written into? (Not written in place: a bad index found late would leave it
    /// half done.)
    fn check_target(&self, op: &'static str, out: &Tensor, others: &[&Tensor]) -> Result<()> {
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, self.shape(), &self.device())?;
        check_overlap(op, out, &[self])?;
        check_disjoint(op, out, others)
    }

    pub(crate) fn scatter_fresh(
        &self,
        op: &'static str,
        axis: isize,
        index: &Tensor,
        values: &Tensor,
        mode: ScatterMode,
    ) -> Result<Tensor> {
        let axis = self.check_scatter(op, axis, index, values)?;
        let out = Tensor::allocate(op, self.layout().preserved(), self.dtype(), &self.device())?;
        let run = || {
            self.detach().copy_into_fresh(&out)?;
            out.scatter_launch(op, axis, (index, 1), values, mode)
        };
        record::fresh(&[self, index, values], &[&out], || Call::op(Scatter { axis, mode }), run)?;
        Ok(out)
    }

    fn scatter_in_place(
        &self,
        op: &'static str,
        axis: isize,
        index: &Tensor,
        values: &Tensor,
        mode: ScatterMode,
    ) -> Result<&Tensor> {
        let axis = self.check_scatter(op, axis, index, values)?;
        check_out(op, self, self.shape(), &self.device())?;
        check_disjoint(op, self, &[index, values])?;
        let run = || self.scatter_launch(op, axis, (index, 1), values, mode);
        let call = || Call::op(Scatter { axis, mode });
        record::op(Mode::InPlace, &[self, index, values], &[self], call, run)?;
        Ok(self)
    }

    fn check_scatter(&self, op: &'static str, axis: isize, index: &Tensor, values: &Tensor) -> Result<usize> {
        let axis = self.check_beside(op, axis, index)?;
        check_device(op, self, &[values])?;
        check_dtype(op, "values", self.dtype(), values)?;
        let fits = values.rank() == index.rank()
            && values.shape().iter().zip(index.shape().iter()).all(|(has, needs)| has >= needs);
        if fits || index.layout().is_empty() {
            Ok(axis)
        } else {
            Err(shape_error(op, "values", index.shape(), values.shape()))
        }
    }

    fn scatter_launch(
        &self,
        op: &'static str,
        axis: usize,
        (index, repeats): (&Tensor, usize),
        values: &Tensor,
        mode: ScatterMode,
    ) -> Result<()> {
        debug_assert_eq!(values.dtype(), self.dtype(), "{op}: kernels take both for of one dtype");
        if index.layout().is_empty() {
            return Ok(());
        }
        let used = Layout::new(*index.shape(), *values.strides(), values.storage_offset());
        let (target, index) = (with_axis(self)?, with_axis(index)?);
        let values = with_axis(&values.alias(used))?;
        let operands =
            [target.write(target.layout()), index.read(index.layout()), values.read(values.layout())];
        Ok(self.device().submit_named(op, &Kernel::Scatter { axis, mode, repeats }, &operands)?)
    }

    /// The slices of an axis that `index` (rank 0 or 1) names, in its order.
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let op = "index_select";
        let (axis, shape) = self.check_slices(op, axis, index)?;
        let out = Tensor::allocate(op, Layout::contiguous(shape), self.dtype(), &self.device())?;
        let run = || self.index_select_launch(op, axis, index, &out);
        record::fresh(&[self, index], &[&out], || Call::op(IndexSelect { axis }), run)?;
        Ok(out)
    }

    /// [`index_select`](Tensor::index_select) into `out`.
    pub fn index_select_out(&self, axis: isize, index: &Tensor, out: &Tensor) -> Result<()> {
        let op = "index_select";
        let (axis, shape) = self.check_slices(op, axis, index)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, &shape, &self.device())?;
        check_disjoint(op, out, &[self, index])?;
        let run = || self.index_select_launch(op, axis, index, out);
        record::op(Mode::Out, &[self, index], &[out], || Call::op(IndexSelect { axis }), run)
    }

    /// Axis, and the shape with as many slices as the index names.
    fn check_slices(&self, op: &'static str, axis: isize, index: &Tensor) -> Result<(usize, Dims)> {
        check_index(op, self, index)?;
        if index.rank() > 1 {
            return Err(Error::Rank { op, what: "index", expected: "0 or 1", found: index.rank() });
        }
        let mut shape = *self.shape();
        if self.rank() == 0 && matches!(axis, 0 | -1) {
            return Ok((0, shape));
        }
        let axis = self.layout().axis(op, axis)?;
        shape[axis] = index.element_count();
        Ok((axis, shape))
    }

    /// The index, repeated (by strides of 0) along all axes of `shape` but one, and how often each stands in a row.
    fn spread_index(index: &Tensor, axis: usize, shape: &Dims) -> (Tensor, usize) {
        let mut strides = Dims::filled(0, shape.len());
        strides[axis] = index.strides().first().copied().unwrap_or(1);
        let repeats = shape[axis + 1..].iter().product();
        (index.alias(Layout::new(*shape, strides, index.storage_offset())), repeats)
    }

    fn index_select_launch(&self, op: &'static str, axis: usize, index: &Tensor, out: &Tensor) -> Result<()> {
        if self.rank() == 0 {
            return self.gather_launch(op, 0, &index.detach().reshape([0usize; 0])?, 1, out);
        }
        let (index, repeats) = Tensor::spread_index(index, axis, out.shape());
        self.gather_launch(op, axis, &index, repeats, out)
    }

    /// A copy of `self` with `alpha · source[.., i, ..]` added to slice `index[i]` of an axis, in the order of the index. Sums of
    /// 16-bit floats are rounded once. Of integers alpha is one, of bools 0 or 1.
    pub fn index_add(&self, axis: isize, index: &Tensor, source: &Tensor, alpha: f64) -> Result<Tensor> {
        let axis = self.check_index_add(axis, index, source, alpha)?;
        let layout = self.layout().preserved();
        let out = Tensor::allocate("index_add", layout, self.dtype(), &self.device())?;
        let run = || {
            self.detach().copy_into_fresh(&out)?;
            out.index_add_launch(axis, index, source, alpha)
        };
        record::fresh(&[self, index, source], &[&out], || Call::op(IndexAdd { axis, alpha }), run)?;
        Ok(out)
    }

    /// [`index_add`](Tensor::index_add) in place.
    pub fn index_add_(&self, axis: isize, index: &Tensor, source: &Tensor, alpha: f64) -> Result<&Tensor> {
        let op = "index_add";
        let axis = self.check_index_add(axis, index, source, alpha)?;
        check_out(op, self, self.shape(), &self.device())?;
        check_disjoint(op, self, &[index, source])?;
        let call = || Call::op(IndexAdd { axis, alpha });
        let run = || self.index_add_launch(axis, index, source, alpha);
        record::op(Mode::InPlace, &[self, index, source], &[self], call, run)?;
        Ok(self)
    }

    /// [`index_add`](Tensor::index_add) into `out`.
    pub fn index_add_out(
        &self,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
        alpha: f64,
        out: &Tensor,
    ) -> Result<()> {
        self.check_target("index_add", out, &[index, source])?;
        out.copy_(&self.index_add(axis, index, source, alpha)?).map(drop)
    }

    fn check_index_add(&self, axis: isize, index: &Tensor, source: &Tensor, alpha: f64) -> Result<usize> {
        let op = "index_add";
        match self.dtype() {
            dtype if dtype.is_float() => {}
            DType::Bool if alpha == 0.0 || alpha == 1.0 => {}
            DType::Bool => {
                let (expected, found) = ("0 or 1, as the tensors are bools", Scalar::Float(alpha));
                return Err(Error::Argument { op, what: "alpha", expected, found });
            }
            dtype => _ = fit_factor(op, "alpha", alpha, dtype)?,
        }
        let (axis, shape) = self.check_slices(op, axis, index)?;
        check_device(op, self, &[source])?;
        check_dtype(op, "the source", self.dtype(), source)?;
        if *source.shape() == shape {
            Ok(axis)
        } else {
            Err(shape_error(op, "the source", &shape, source.shape()))
        }
    }

    fn index_add_launch(&self, axis: usize, index: &Tensor, source: &Tensor, alpha: f64) -> Result<()> {
        let op = "index_add";
        let source = source.detach();
        let scaled = match (alpha, self.dtype()) {
            (1.0, _) => source,
            (_, DType::Bool) => Tensor::zeros(*source.shape(), DType::Bool, &self.device())?,
            (_, dtype) if dtype.is_float() => source.mul(alpha)?,
            (_, dtype) => source.mul(fit_factor(op, "alpha", alpha, dtype)?)?,
        };
        let (index, repeats) = if self.rank() == 0 {
            (index.detach().reshape([0usize; 0])?, 1)
        } else {
            Tensor::spread_index(index, axis, scaled.shape())
        };
        self.scatter_launch(op, axis, (&index, repeats), &scaled, ScatterMode::Add)
    }

    /// Rows of a table: `self` is [n, ..], the result has the shape of `index` followed by that of a row.
    pub fn embedding(&self, index: &Tensor) -> Result<Tensor> {
        let op = "embedding";
        if self.rank() == 0 {
            return Err(Error::Rank { op, what: "the table", expected: "at least 1", found: 0 });
        }
        crate::pointwise::check_rank(op, self, index.rank().saturating_sub(1))?;
        check_index(op, self, index)?;
        let rows = self.index_select(0, &index.detach().ravel()?)?;
        let shape: Dims = index.shape().iter().chain(&self.shape()[1..]).copied().collect();
        rows.reshape(shape)
    }

    /// [`embedding`](Tensor::embedding) in which one row gets no gradient. Errors: as there; no such row.
    pub fn embedding_with_padding(&self, index: &Tensor, padding: usize) -> Result<Tensor> {
        let op = "embedding";
        let rows = self.embedding(index)?;
        if padding >= self.shape()[0] {
            let (expected, found) = ("a row of the table", Scalar::Int(padding as i64));
            return Err(Error::Argument { op, what: "the padding", expected, found });
        }
        let fixed = rows.detach();
        let mut shape = *index.shape();
        (index.rank()..rows.rank()).for_each(|_| shape.push(1));
        index.eq(padding as i64)?.reshape(shape)?.where_(&fixed, &rows)
    }

    /// The indices (i64, [count, rank]) of the elements that aren't zero, in row-major order. Waits for the elements, since
    /// the shape of the result depends on them.
    pub fn nonzero(&self) -> Result<Tensor> {
        let op = "nonzero";
        let source = self.detach();
        let count = if self.layout().is_empty() { 0 } else { source.ne(0)?.sum(.., false)?.item::<i64>()? };
        let shape: Dims = [count as usize, self.rank()].into_iter().collect();
        let out = Tensor::allocate(op, Layout::contiguous(shape), DType::I64, &self.device())?;
        if !out.layout().is_empty() {
            let operands = [out.write(out.layout()), source.read(source.layout())];
            self.device().submit(&Kernel::NonZero, &operands)?;
        }
        Ok(out)
    }

    /// The elements where `mask` (bool, broadcast) is true, in row-major order, as one axis. Waits for the mask.
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let op = "masked_select";
        check_device(op, self, &[mask])?;
        check_dtype(op, "the mask", DType::Bool, mask)?;
        let shape = Layout::broadcast_shapes(op, self.shape(), mask.shape())?;
        let places = {
            let _silence = Silence::new();
            mask.expand(shape)?.ravel()?.nonzero()?.reshape([INFER])?
        };
        self.expand(shape)?.ravel()?.index_select(0, &places)
    }
}

/// Inputs source, index.
#[derive(Debug)]
pub(crate) struct Gather {
    pub axis: usize,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn needs(&self) -> Needs {
        Needs::inputs(0b10)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let gradient = context.meta(0).zeros()?;
        gradient.scatter_add_(self.axis as isize, context.input(1), g)?;
        Ok(smallvec::smallvec![Some(gradient), None])
    }
}

/// Inputs target, index, values.
#[derive(Debug)]
pub(crate) struct Scatter {
    pub axis: usize,
    pub mode: ScatterMode,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn needs(&self) -> Needs {
        match self.mode {
            ScatterMode::Overwrite | ScatterMode::Add => Needs::inputs(0b10),
            _ => Needs { inputs: 0b111, outputs: 0b1 },
        }
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let (index, axis) = (context.input(1), self.axis as isize);
        if !matches!(self.mode, ScatterMode::Overwrite | ScatterMode::Add) {
            return self.of_fold(context, g);
        }
        let mut results: Gradients = smallvec::smallvec![None, None, None];
        if context.wants(0) {
            results[0] = Some(match self.mode {
                ScatterMode::Add => g.clone(),
                ScatterMode::Overwrite => {
                    let nothing =
                        Tensor::zeros([0usize; 0], g.dtype(), &g.device())?.expand(index.shape())?;
                    g.scatter(axis, index, &nothing)?
                }
                ScatterMode::Multiply | ScatterMode::Max | ScatterMode::Min => unreachable!("see of_fold"),
            });
        }
        if context.wants(2) {
            let meta = context.meta(2);
            let mut gathered = g.gather(axis, index)?;
            if self.mode == ScatterMode::Overwrite && !index.layout().is_empty() {
                // Of values for one place only the last one stands: number them, and see whose number is there.
                let count = index.element_count() as i64;
                let numbers = Tensor::arange(0, count, 1, DType::I64, &g.device())?.reshape(index.shape())?;
                let places = Tensor::zeros(g.shape(), DType::I64, &g.device())?;
                let stands = places.scatter_(axis, index, &numbers)?.gather(axis, index)?.eq(&numbers)?;
                gathered = stands.where_(&gathered, 0)?;
            }
            results[2] = Some(unused_are_zero(meta, index, gathered)?);
        }
        Ok(results)
    }
}

/// The part of values that an index beside them uses.
fn used(values: &Tensor, index: &Tensor) -> Result<Tensor> {
    let narrow = |used: Tensor, (axis, &size): (usize, &usize)| used.narrow(axis as isize, 0, size);
    index.shape().iter().enumerate().try_fold(values.clone(), narrow)
}

/// The gradient of values, of which the index may have used a part.
fn unused_are_zero(meta: &Meta, index: &Tensor, of_used: Tensor) -> Result<Tensor> {
    if index.shape() == meta.shape() {
        return Ok(of_used);
    }
    let gradient = meta.zeros()?;
    used(&gradient, index)?.copy_(&of_used)?;
    Ok(gradient)
}

impl Scatter {
    /// Where the mode folds.
    fn of_fold(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let (index, axis) = (context.input(1), self.axis as isize);
        let (x, result) = (context.input(0), context.output(0));
        if index.layout().is_empty() {
            return Ok(smallvec::smallvec![Some(g.clone()), None, Some(context.meta(2).zeros()?)]);
        }
        let values = used(context.input(2), index)?;
        let (by_x, by_values) = if self.mode == ScatterMode::Multiply {
            // Without division by zero: a product in which a factor that is 0 counts as 1.
            let ones = once!(|[x]| x.eq(0.0).select(1.0, x));
            let zeros = |x: &Tensor| once!(|[x]| x.eq(0.0).number()).call(&[x]);
            let none = Tensor::zeros(*x.shape(), x.dtype(), &x.device())?;
            let of_values = none.scatter_add(axis, index, &zeros(&values)?)?;
            let (total, others) = (of_values.add(&zeros(x)?)?, of_values);
            let product =
                ones.call(&[x])?.scatter_fresh("scatter", axis, index, &ones.call(&[&values])?, self.mode)?;
            let scaled = g.mul(&product)?;
            // Where no other factor is 0.
            let by_x = once!(|[p, x, others]| others.eq(0.0).select(p / x.eq(0.0).select(1.0, x), 0.0))
                .call(&[&scaled, x, &others])?;
            let gathered = [scaled.gather(axis, index)?, total.gather(axis, index)?];
            let by_values = once!(|[p, x, total]| {
                total.eq(x.eq(0.0).number()).select(p / x.eq(0.0).select(1.0, x), 0.0)
            })
            .call(&[&gathered[0], &values, &gathered[1]])?;
            (by_x, by_values)
        } else {
            // All that are the extreme share it.
            let same = once!(|[x, y]| (x.eq(y) | (x.isnan() & y.isnan())).select(x.literal(1.0), 0.0));
            let (of_x, of_values) =
                (same.call(&[x, result])?, same.call(&[&values, &result.gather(axis, index)?])?);
            let share = g.div(&of_x.scatter_add(axis, index, &of_values)?)?;
            let pass = once!(|[same, share]| same.eq(0.0).select(0.0, share));
            (pass.call(&[&of_x, &share])?, pass.call(&[&of_values, &share.gather(axis, index)?])?)
        };
        Ok(smallvec::smallvec![Some(by_x), None, Some(unused_are_zero(context.meta(2), index, by_values)?)])
    }
}

/// Inputs source, index (rank 0 or 1).
#[derive(Debug)]
pub(crate) struct IndexSelect {
    pub axis: usize,
}

impl Op for IndexSelect {
    fn name(&self) -> &'static str {
        "index_select"
    }

    fn needs(&self) -> Needs {
        Needs::inputs(0b10)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let gradient = context.meta(0).zeros()?;
        gradient.index_add_(self.axis as isize, context.input(1), g, 1.0)?;
        Ok(smallvec::smallvec![Some(gradient), None])
    }
}

/// Inputs target, index (rank 1), source: `target[.., index[i], ..] += alpha · source[.., i, ..]`.
#[derive(Debug)]
pub(crate) struct IndexAdd {
    pub axis: usize,
    pub alpha: f64,
}

impl Op for IndexAdd {
    fn name(&self) -> &'static str {
        "index_add"
    }

    fn needs(&self) -> Needs {
        Needs::inputs(0b10)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let mut results: Gradients = smallvec::smallvec![None, None, None];
        if context.wants(0) {
            results[0] = Some(g.clone());
        }
        if context.wants(2) {
            let selected = g.index_select(self.axis as isize, context.input(1))?;
            results[2] = Some(if self.alpha == 1.0 { selected } else { selected.mul(self.alpha)? });
        }
        Ok(results)
    }
}
