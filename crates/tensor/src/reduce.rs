//! Reductions over axes.
//!
//! Axes are one number, a list, or `..` for all: `x.sum(0, false)`, `x.mean([0, -1], true)`, `x.amax(.., false)`. As in
//! PyTorch an empty list means all. With `keepdim` the reduced axes stay, with size 1. Every reduction has an `_out`
//! variant that writes into a tensor of any strides.
//!
//! Order: NaN wins in maxima and minima; of equal elements the first is named. How a sum is split depends on the shape
//! only, so that its bits don't depend on threads or load.

use crate::{
    Call, DType, Dims, Error, Layout, Reduction, Result, Tensor,
    create::check_dtype,
    fused::once,
    gradient::{Context, Gradients, Meta, Needs, Op, only},
    pointwise::{check_disjoint, check_float, check_out},
    record::{self, Mode},
};
use raddle_base::{Scalar, ViewError};
use raddle_op::{Kernel, ReduceOp};
use std::ops::RangeFull;

/// Which axes to reduce: one, a list (empty: all), or `..` for all. Negative ones count from the end.
pub trait Axes {
    /// The axes as bits.
    fn bits(self, op: &'static str, layout: &Layout) -> Result<u8>;
}
impl Axes for RangeFull {
    fn bits(self, _: &'static str, layout: &Layout) -> Result<u8> {
        Ok(all_axes(layout.rank()))
    }
}
impl Axes for isize {
    fn bits(self, op: &'static str, layout: &Layout) -> Result<u8> {
        [self][..].bits(op, layout)
    }
}
impl Axes for &[isize] {
    fn bits(self, op: &'static str, layout: &Layout) -> Result<u8> {
        let mut bits = 0;
        for &axis in self {
            // A tensor without axes lets itself be reduced over its only, imagined axis.
            if layout.rank() == 0 && matches!(axis, 0 | -1) {
                continue;
            }
            let axis = layout.axis(op, axis)?;
            if bits >> axis & 1 == 1 {
                return Err(ViewError::RepeatedAxis { op, axis }.into());
            }
            bits |= 1 << axis;
        }
        Ok(if self.is_empty() { all_axes(layout.rank()) } else { bits })
    }
}
impl<const N: usize> Axes for [isize; N] {
    fn bits(self, op: &'static str, layout: &Layout) -> Result<u8> {
        self[..].bits(op, layout)
    }
}
impl<const N: usize> Axes for &[isize; N] {
    fn bits(self, op: &'static str, layout: &Layout) -> Result<u8> {
        self[..].bits(op, layout)
    }
}

/// Axes as bits, for these very axes of a tensor.
#[derive(Clone, Copy)]
struct Bits(u8);

impl Axes for Bits {
    fn bits(self, _: &'static str, _: &Layout) -> Result<u8> {
        Ok(self.0)
    }
}

fn all_axes(rank: usize) -> u8 {
    ((1u16 << rank) - 1) as u8
}

/// The shape of a reduction's result.
fn reduced_shape(shape: &Dims, axes: u8, keepdim: bool) -> Dims {
    let mut reduced = Dims::EMPTY;
    for (axis, &size) in shape.iter().enumerate() {
        match (axes >> axis & 1 == 1, keepdim) {
            (false, _) => reduced.push(size),
            (true, true) => reduced.push(1),
            (true, false) => {}
        }
    }
    reduced
}

/// `layout` with the reduced axes put back, as kernels want it.
fn with_axes(layout: &Layout, rank: usize, axes: u8) -> Layout {
    if layout.rank() == rank {
        return *layout;
    }
    let (mut shape, mut strides) = (*layout.shape(), *layout.strides());
    for axis in (0..rank).filter(|axis| axes >> axis & 1 == 1) {
        shape.insert(axis, 1);
        strides.insert(axis, 1);
    }
    Layout::new(shape, strides, layout.offset())
}

impl Reduction {
    /// Its method.
    pub fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Prod => "prod",
            Reduction::AMax => "amax",
            Reduction::AMin => "amin",
            Reduction::All => "all",
            Reduction::Any => "any",
            Reduction::Var { .. } => "var",
            Reduction::Std { .. } => "std",
            Reduction::Norm2 => "norm",
        }
    }

    fn call(self, axes: u8) -> Call {
        match self {
            Reduction::All | Reduction::Any => Call::Constant,
            op => Call::op(Reduce { op, axes }),
        }
    }

    /// Of what dtype is the result?
    fn dtype(self, input: &Tensor) -> Result<DType> {
        match self {
            Reduction::Sum | Reduction::Prod if !input.dtype().is_float() => Ok(DType::I64),
            Reduction::All | Reduction::Any => Ok(DType::Bool),
            Reduction::Mean | Reduction::Var { .. } | Reduction::Std { .. } | Reduction::Norm2 => {
                check_float(self.name(), "the tensor", input)?;
                Ok(input.dtype())
            }
            _ => Ok(input.dtype()),
        }
    }

    /// The kernel's op, the divisor of its result, and the result over no elements.
    fn kernel(self, count: usize) -> (ReduceOp, f64, Option<Scalar>) {
        let nan = Some(Scalar::Float(f64::NAN));
        match self {
            Reduction::Sum => (ReduceOp::Sum, 1.0, Some(Scalar::Int(0))),
            Reduction::Mean => (ReduceOp::Mean, count as f64, nan),
            Reduction::Prod => (ReduceOp::Prod, 1.0, Some(Scalar::Int(1))),
            Reduction::AMax => (ReduceOp::Max, 1.0, None),
            Reduction::AMin => (ReduceOp::Min, 1.0, None),
            Reduction::All => (ReduceOp::All, 1.0, Some(Scalar::Bool(true))),
            Reduction::Any => (ReduceOp::Any, 1.0, Some(Scalar::Bool(false))),
            Reduction::Var { correction } => (ReduceOp::SquaredDeviations, degrees(count, correction), nan),
            Reduction::Std { correction } => (ReduceOp::Deviation, degrees(count, correction).sqrt(), nan),
            Reduction::Norm2 => (ReduceOp::Norm2, 1.0, Some(Scalar::Int(0))),
        }
    }
}

/// What a sum of squared deviations is divided by: 0 if there are too few elements.
fn degrees(count: usize, correction: f64) -> f64 {
    (count as f64 - correction).max(0.0)
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident $out:ident = $op:ident;)*) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name(&self, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
            self.reduce(Reduction::$op, axes, keepdim)
        }
        #[doc = concat!("[`", stringify!($name), "`](Tensor::", stringify!($name), ") into `out`.")]
        pub fn $out(&self, axes: impl Axes, keepdim: bool, out: &Tensor) -> Result<()> {
            self.reduce_out(Reduction::$op, axes, keepdim, out)
        }
    )* } };
}
reductions! {
    /// Σ x. Of integers and bools in `i64`; over no elements 0. Of 16-bit floats and `f32` summed in `f32`.
    sum sum_out = Sum;
    /// The mean, of floats; over no elements NaN. Of equal elements exactly what they are. Summed in `f64`, so that it doesn't
    /// overflow where the mean of `f32` doesn't (PyTorch's does); of `f64` it is infinite where the sum is.
    mean mean_out = Mean;
    /// Π x. Of integers and bools in `i64`; over no elements 1.
    prod prod_out = Prod;
    /// The largest element, NaN if there is one; with `..` PyTorch's `max()`. Elements that equal it share the gradient evenly;
    /// of NaN the NaN do, and others get 0.
    ///
    /// Errors: a reduced axis is empty.
    amax amax_out = AMax;
    /// The smallest element, NaN if there is one; with `..` PyTorch's `min()`. Elements that equal it share the gradient evenly;
    /// of NaN the NaN do, and others get 0.
    ///
    /// Errors: a reduced axis is empty.
    amin amin_out = AMin;
    /// Are all elements other than zero? NaN is. True over no elements.
    all all_out = All;
    /// Is an element other than zero? NaN is. False over no elements.
    any any_out = Any;
    /// √ Σ x², of floats, computed in `f64`: squares of narrower ones neither overflow nor vanish. The gradient at 0 is 0.
    norm norm_out = Norm2;
}

impl Tensor {
    /// The variance, of floats: Σ (x − mean)² / (n − `correction`). Where n isn't above the correction that is a division by 0:
    /// infinity, or NaN if all elements are equal or there are none.
    pub fn var(&self, axes: impl Axes, correction: f64, keepdim: bool) -> Result<Tensor> {
        self.reduce(Reduction::Var { correction }, axes, keepdim)
    }

    /// [`var`](Tensor::var) into `out`.
    pub fn var_out(&self, axes: impl Axes, correction: f64, keepdim: bool, out: &Tensor) -> Result<()> {
        self.reduce_out(Reduction::Var { correction }, axes, keepdim, out)
    }

    /// The square root of [`var`](Tensor::var), rounded once. The gradient where it is 0 is 0.
    pub fn std(&self, axes: impl Axes, correction: f64, keepdim: bool) -> Result<Tensor> {
        self.reduce(Reduction::Std { correction }, axes, keepdim)
    }

    /// [`std`](Tensor::std) into `out`.
    pub fn std_out(&self, axes: impl Axes, correction: f64, keepdim: bool, out: &Tensor) -> Result<()> {
        self.reduce_out(Reduction::Std { correction }, axes, keepdim, out)
    }

    /// The p-norm (Σ |x|ᵖ)^(1/p), of floats (infinity: the largest |x|, -infinity: the smallest, 0: how many aren't 0). Of 16-bit
    /// floats in `f32`. Powers neither overflow nor vanish, but for squares of `f64`. The gradient at 0 is 0. Where an element is
    /// NaN it is NaN for all that aren't 0 (of p 2 for these, too); but of p 1 each element has its own sign, and at infinity the
    /// largest have theirs, and those of NaN are 0. (As PyTorch, but for elements that are 0 beside a NaN.)
    pub fn norm_p(&self, p: f64, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
        check_float("norm", "the tensor", self)?;
        if p == 2.0 {
            self.norm(axes, keepdim)
        } else if p == f64::INFINITY {
            self.abs()?.amax(axes, keepdim)
        } else if p == 1.0 {
            self.abs()?.sum(axes, keepdim)
        } else if p > 0.0 {
            let axes = Bits(axes.bits("norm", self.layout())?);
            // |x|, but the gradient at NaN is NaN, as the norm.
            let size = once!(|[x]| x.isnan().select(x * x, x.abs()))
                .call(&[&self.to_dtype(self.dtype().compute())?])?;
            // In units of the largest, which has no part in the gradient: the norm doesn't depend on the unit.
            let unit = size.detach().norm_unit(axes)?;
            let sum = size.div(&unit)?.pow(p)?.sum(axes, keepdim)?;
            sum.pow(1.0 / p)?.mul(&unit.reshape(sum.shape())?)?.to_dtype(self.dtype())
        } else if p == f64::NEG_INFINITY {
            self.abs()?.amin(axes, keepdim)
        } else if p == 0.0 {
            once!(|[x]| x.ne(0.0).select(1.0, 0.0)).call(&[self])?.sum(axes, keepdim)
        } else if p < 0.0 {
            let size = self.to_dtype(self.dtype().compute())?.abs()?;
            size.pow(p)?.sum(axes, keepdim)?.pow(1.0 / p)?.to_dtype(self.dtype())
        } else {
            let found = Scalar::Float(p);
            Err(Error::Argument { op: "norm", what: "p", expected: "a number", found })
        }
    }

    /// The largest of sizes along axes, which stay; 1 where that is no unit, or there is none.
    fn norm_unit(&self, axes: Bits) -> Result<Tensor> {
        if self.layout().is_empty() {
            let shape = reduced_shape(self.shape(), axes.0, true);
            return Tensor::ones(shape, self.dtype(), &self.device());
        }
        once!(|[x]| (x.gt(0.0) & x.lt(f64::INFINITY)).select(x, 1.0)).call(&[&self.amax(axes, true)?])
    }

    fn reduce(&self, op: Reduction, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
        let axes = axes.bits(op.name(), self.layout())?;
        let dtype = op.dtype(self)?;
        let shape = reduced_shape(self.shape(), axes, keepdim);
        let out = Tensor::allocate(op.name(), Layout::contiguous(shape), dtype, &self.device())?;
        let call = || op.call(axes);
        record::fresh(&[self], &[&out], call, || self.reduce_launch(op, axes, &out))?;
        Ok(out)
    }

    fn reduce_out(&self, op: Reduction, axes: impl Axes, keepdim: bool, out: &Tensor) -> Result<()> {
        let axes = axes.bits(op.name(), self.layout())?;
        check_dtype(op.name(), "the output", op.dtype(self)?, out)?;
        check_out(op.name(), out, &reduced_shape(self.shape(), axes, keepdim), &self.device())?;
        check_disjoint(op.name(), out, &[self])?;
        let call = || op.call(axes);
        record::op(Mode::Out, &[self], &[out], call, || self.reduce_launch(op, axes, out))
    }

    fn reduce_launch(&self, op: Reduction, axes: u8, out: &Tensor) -> Result<()> {
        let reduced = |axis: &usize| axes >> axis & 1 == 1;
        let count = (0..self.rank()).filter(reduced).map(|axis| self.shape()[axis]).product();
        let (kernel_op, divisor, neutral) = op.kernel(count);
        if count == 0 {
            return match neutral {
                Some(neutral) => out.fill_raw(neutral),
                None => Err(self.empty_axis(op.name(), axes)),
            };
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        let layout = with_axes(out.layout(), self.rank(), axes);
        let kernel = Kernel::Reduce { op: kernel_op, axes, divisor };
        let operands = [out.write(&layout), self.read(self.layout())];
        Ok(self.device().submit_named(op.name(), &kernel, &operands)?)
    }

    fn empty_axis(&self, op: &'static str, axes: u8) -> Error {
        let axis = (0..self.rank()).find(|&axis| axes >> axis & 1 == 1 && self.shape()[axis] == 0);
        Error::EmptyAxis { op, axis: axis.unwrap_or(0), shape: self.shape().to_vec() }
    }

    // ------------------------------------------------------------ with indices

    /// The largest elements along an axis, and where they stand (i64): the first NaN, else the first of equals. That element has
    /// the whole gradient, unlike [`amax`](Tensor::amax)'s.
    pub fn max(&self, axis: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.max_min("max", true, axis, keepdim)
    }
    /// The smallest elements along an axis, and where they stand (i64): the first NaN, else the first of equals. That element has
    /// the whole gradient, unlike [`amin`](Tensor::amin)'s.
    pub fn min(&self, axis: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.max_min("min", false, axis, keepdim)
    }
    /// [`max`](Tensor::max) into `out`: values and indices.
    pub fn max_out(&self, axis: isize, keepdim: bool, out: (&Tensor, &Tensor)) -> Result<()> {
        self.max_min_out("max", true, axis, keepdim, out)
    }
    /// [`min`](Tensor::min) into `out`: values and indices.
    pub fn min_out(&self, axis: isize, keepdim: bool, out: (&Tensor, &Tensor)) -> Result<()> {
        self.max_min_out("min", false, axis, keepdim, out)
    }

    /// Where the largest element stands (i64) along an axis; with `..`, in the row-major order of all elements. The first NaN,
    /// else the first of equals.
    pub fn argmax(&self, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
        self.arg_reduce("argmax", true, axes, keepdim)
    }
    /// Where the smallest element stands (i64) along an axis; with `..`, in the row-major order of all elements. The first NaN,
    /// else the first of equals.
    pub fn argmin(&self, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
        self.arg_reduce("argmin", false, axes, keepdim)
    }

    /// [`argmax`](Tensor::argmax) into `out`.
    pub fn argmax_out(&self, axes: impl Axes, keepdim: bool, out: &Tensor) -> Result<()> {
        self.arg_reduce_out("argmax", true, axes, keepdim, out)
    }
    /// [`argmin`](Tensor::argmin) into `out`.
    pub fn argmin_out(&self, axes: impl Axes, keepdim: bool, out: &Tensor) -> Result<()> {
        self.arg_reduce_out("argmin", false, axes, keepdim, out)
    }

    fn arg_reduce_out(
        &self,
        op: &'static str,
        largest: bool,
        axes: impl Axes,
        keepdim: bool,
        out: &Tensor,
    ) -> Result<()> {
        let made = self.arg_reduce(op, largest, axes, keepdim)?;
        check_dtype(op, "the output", DType::I64, out)?;
        check_out(op, out, made.shape(), &self.device())?;
        check_disjoint(op, out, &[self])?;
        out.copy_(&made).map(|_| ())
    }

    fn arg_reduce(&self, op: &'static str, largest: bool, axes: impl Axes, keepdim: bool) -> Result<Tensor> {
        let axes = axes.bits(op, self.layout())?;
        let source = self.detach();
        if axes.count_ones() == 1 {
            return Ok(source.max_min(op, largest, axes.trailing_zeros() as isize, keepdim)?.1);
        }
        if axes != all_axes(self.rank()) {
            let (what, expected, found) = ("the list of axes", "one axis or all", axes.count_ones());
            return Err(Error::Argument { op, what, expected, found: Scalar::Int(found.into()) });
        }
        if self.layout().is_empty() {
            return Err(self.empty_axis(op, axes));
        }
        let index = source.reshape([crate::INFER])?.max_min(op, largest, 0, false)?.1;
        if keepdim { index.reshape(reduced_shape(self.shape(), axes, true)) } else { Ok(index) }
    }

    fn max_min(
        &self,
        op: &'static str,
        largest: bool,
        axis: isize,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        let axes = axis.bits(op, self.layout())?;
        let layout = Layout::contiguous(reduced_shape(self.shape(), axes, keepdim));
        let values = Tensor::allocate(op, layout, self.dtype(), &self.device())?;
        let indices = Tensor::allocate(op, layout, DType::I64, &self.device())?;
        let call = || match axes {
            0 => Call::op(crate::gradient::Moved), // Without an axis the value is the tensor itself.
            axes => Call::op(MaxMin { largest, axis: axes.trailing_zeros() as usize, keepdim }),
        };
        let run = || self.max_min_launch(op, largest, axes, (&values, &indices));
        record::fresh(&[self], &[&values, &indices], call, run)?;
        Ok((values, indices))
    }

    fn max_min_out(
        &self,
        op: &'static str,
        largest: bool,
        axis: isize,
        keepdim: bool,
        (values, indices): (&Tensor, &Tensor),
    ) -> Result<()> {
        let axes = axis.bits(op, self.layout())?;
        let shape = reduced_shape(self.shape(), axes, keepdim);
        check_dtype(op, "the output of values", self.dtype(), values)?;
        check_dtype(op, "the output of indices", DType::I64, indices)?;
        for out in [values, indices] {
            check_out(op, out, &shape, &self.device())?;
            check_disjoint(op, out, &[self])?;
        }
        check_disjoint(op, values, &[indices])?;
        let call = || Call::op(MaxMin { largest, axis: axes.trailing_zeros() as usize, keepdim });
        let run = || self.max_min_launch(op, largest, axes, (values, indices));
        record::op(Mode::Out, &[self], &[values, indices], call, run)
    }

    fn max_min_launch(
        &self,
        op: &'static str,
        largest: bool,
        axes: u8,
        (values, indices): (&Tensor, &Tensor),
    ) -> Result<()> {
        if axes == 0 {
            self.detach().copy_into_fresh(values)?;
            return indices.fill_raw(Scalar::Int(0));
        }
        let axis = axes.trailing_zeros() as usize;
        if self.shape()[axis] == 0 {
            return Err(self.empty_axis(op, axes));
        }
        if values.layout().is_empty() {
            return Ok(());
        }
        let layouts = [values, indices].map(|out| with_axes(out.layout(), self.rank(), axes));
        let operands = [values.write(&layouts[0]), indices.write(&layouts[1]), self.read(self.layout())];
        Ok(self.device().submit_named(op, &Kernel::ArgReduce { largest, axis }, &operands)?)
    }
}

/// A reduction over axes, as bits. Whether they stay doesn't matter.
#[derive(Debug)]
pub(crate) struct Reduce {
    pub op: Reduction,
    pub axes: u8,
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn needs(&self) -> Needs {
        match self.op {
            Reduction::Prod | Reduction::Var { .. } | Reduction::Std { .. } | Reduction::Norm2 => {
                Needs::inputs(0b1)
            }
            Reduction::AMax | Reduction::AMin => Needs { inputs: 0b1, outputs: 0b1 },
            Reduction::Sum | Reduction::Mean | Reduction::All | Reduction::Any => Needs::default(),
        }
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let Reduce { op, axes } = *self;
        let meta = context.meta(0);
        let is_reduced = |axis: &usize| axes >> axis & 1 == 1;
        let listed: Vec<isize> = (0..meta.rank()).filter(is_reduced).map(|axis| axis as isize).collect();
        let count: usize = (0..meta.rank()).filter(is_reduced).map(|axis| meta.shape()[axis]).product();
        let kept: Dims =
            (0..meta.rank()).map(|axis| if is_reduced(&axis) { 1 } else { meta.shape()[axis] }).collect();
        // Results with the reduced axes put back broadcast against the input.
        let spread = |tensor: &Tensor| -> Result<Tensor> { tensor.reshape(kept) };
        // The list is empty only if there are no axes. It means all then, as it does to the op: of one number the same comes out.
        let listed = &listed[..];
        let g = spread(g)?;
        // Means and norms are taken again in f64, as the ops themselves do: around a rounded mean there is no deviation left, and
        // what has over- or underflowed has no direction.
        let wide = |tensor: &Tensor| -> Result<Tensor> { tensor.to(DType::F64) };
        let x = || wide(context.input(0));
        only(match op {
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
                    has_zero.select(
                        has_infinity.select(0.0 * infinite, 0.0),
                        has_infinity.select(infinite, finite),
                    )
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
                once!(|[g, x, mean, deviation]| {
                    deviation.eq(0.0).select(0.0, g * ((x - mean) / deviation))
                })
                .call(&[&scaled, &x, &mean, &deviation])?
            }
            Reduction::Norm2 => {
                let (x, g) = (x()?, wide(&g)?);
                let norm = x.norm(listed, true)?;
                once!(|[g, x, norm]| norm.eq(0.0).select(0.0, g * (x / norm))).call(&[&g, &x, &norm])?
            }
            // Recorded as constants.
            Reduction::All | Reduction::Any => return Ok(smallvec::smallvec![None]),
        })
    }
}

/// Outputs: values and indices of the largest or smallest along an axis.
#[derive(Debug)]
pub(crate) struct MaxMin {
    pub largest: bool,
    pub axis: usize,
    pub keepdim: bool,
}

impl Op for MaxMin {
    fn name(&self) -> &'static str {
        if self.largest { "max" } else { "min" }
    }

    fn needs(&self) -> Needs {
        Needs::outputs(0b10)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let unsqueezed = |tensor: &Tensor| {
            if self.keepdim { Ok(tensor.clone()) } else { tensor.unsqueeze(self.axis as isize) }
        };
        only(spread(context.meta(0), self.axis, &unsqueezed(context.output(1))?, &unsqueezed(g)?)?)
    }
}

/// Zeros but where `index` points along an axis: there `g`.
pub(crate) fn spread(meta: &Meta, axis: usize, index: &Tensor, g: &Tensor) -> Result<Tensor> {
    meta.zeros()?.scatter_add_(axis as isize, index, g).cloned()
}
