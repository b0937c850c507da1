//! Scans: what has been folded of an axis up to each element. Floats of all widths are folded in `f64`, and rounded once.

use crate::{
    Call, DType, Result, Tensor,
    create::check_dtype,
    fused::once,
    gradient::{Context, Gradients, Needs, Op, only},
    pointwise::{check_device, check_disjoint, check_float, check_out},
    record::{self, Mode},
};
use raddle_base::Scalar;
use raddle_op::{Kernel, ScanOp};

macro_rules! scans {
    ($($(#[$doc:meta])* $name:ident $out:ident = $op:ident;)*) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name(&self, axis: isize) -> Result<Tensor> {
            self.scan(stringify!($name), ScanOp::$op, axis)
        }
        #[doc = concat!("[`", stringify!($name), "`](Tensor::", stringify!($name), ") into `out`.")]
        pub fn $out(&self, axis: isize, out: &Tensor) -> Result<()> {
            self.scan_out(stringify!($name), ScanOp::$op, axis, out)
        }
    )* } };
}
scans! {
    /// Running sum along an axis. Of integers and bools in `i64`.
    cumsum cumsum_out = Sum;
    /// Running product along an axis. Of integers and bools in `i64`. The gradient is right beside zeros, too: it divides by none.
    cumprod cumprod_out = Prod;
    /// `ln Σ eˣ` of the elements of an axis up to each, of floats; no power overflows.
    logcumsumexp logcumsumexp_out = LogSumExp;
}

impl Tensor {
    /// The largest of the elements of an axis up to each, and where it stands (i64): NaN from the first on, and the last of equals.
    /// That element has the gradient.
    pub fn cummax(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme("cummax", ScanOp::Max, axis)
    }

    /// The smallest of the elements of an axis up to each, and where it stands (i64): NaN from the first on, and the last of
    /// equals. That element has the gradient.
    pub fn cummin(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme("cummin", ScanOp::Min, axis)
    }

    fn running_extreme(&self, op: &'static str, fold: ScanOp, axis: isize) -> Result<(Tensor, Tensor)> {
        let (axis, input) = self.scan_input(op, axis)?;
        if self.rank() == 0 || self.layout().is_empty() {
            return Ok((self.copy()?, Tensor::zeros(*self.shape(), DType::I64, &self.device())?));
        }
        let extremes = input.scan(op, fold, axis as isize)?;
        // Where an element is the extreme up to itself it names its own place; the latest of these holds.
        let (count, rank) = (self.shape()[axis], self.rank());
        let mut shape = vec![1; rank];
        shape[axis] = count;
        let places = Tensor::arange(0, count as i64, 1, DType::I64, &self.device())?.reshape(shape)?;
        let is_extreme = input.eq(&extremes)?.logical_or(&input.isnan()?)?;
        let named = is_extreme.where_(&places, Scalar::Int(0))?;
        let indices = named.scan(op, ScanOp::Max, axis as isize)?;
        Ok((self.gather(axis as isize, &indices)?, indices))
    }

    fn scan(&self, op: &'static str, fold: ScanOp, axis: isize) -> Result<Tensor> {
        if fold == ScanOp::LogSumExp {
            check_float(op, "the tensor", self)?;
        }
        let (axis, input) = self.scan_input(op, axis)?;
        let out = Tensor::allocate(op, self.layout().preserved(), input.dtype(), &self.device())?;
        let call = || Call::op(Scan { fold, axis });
        record::fresh(&[self], &[&out], call, || input.scan_launch(op, fold, axis, &out))?;
        Ok(out)
    }

    fn scan_out(&self, op: &'static str, fold: ScanOp, axis: isize, out: &Tensor) -> Result<()> {
        if fold == ScanOp::LogSumExp {
            check_float(op, "the tensor", self)?;
        }
        let (axis, input) = self.scan_input(op, axis)?;
        check_dtype(op, "the output", input.dtype(), out)?;
        check_out(op, out, self.shape(), &check_device(op, self, &[])?)?;
        check_disjoint(op, out, &[self])?;
        let call = || Call::op(Scan { fold, axis });
        record::op(Mode::Out, &[self], &[out], call, || input.scan_launch(op, fold, axis, out))
    }

    /// The resolved axis, and the input in the dtype of the result.
    fn scan_input(&self, op: &'static str, axis: isize) -> Result<(usize, Tensor)> {
        let axis =
            if self.rank() == 0 && matches!(axis, 0 | -1) { 0 } else { self.layout().axis(op, axis)? };
        let dtype = if self.dtype().is_float() { self.dtype() } else { DType::I64 };
        Ok((axis, self.detach().to_dtype(dtype)?))
    }

    fn scan_launch(&self, name: &'static str, op: ScanOp, axis: usize, out: &Tensor) -> Result<()> {
        if out.layout().is_empty() {
            return Ok(());
        }
        if self.rank() == 0 {
            return self.copy_into_fresh(out);
        }
        let operands = [out.write(out.layout()), self.read(self.layout())];
        Ok(self.device().submit_named(name, &Kernel::Scan { op, axis }, &operands)?)
    }

    /// An axis in the reverse order.
    pub(crate) fn reversed(&self, axis: isize) -> Result<Tensor> {
        let last = self.size(axis)? as i64 - 1;
        self.index_select(axis, &Tensor::arange(last, -1, -1, DType::I64, &self.device())?)
    }
}

/// A scan. Outputs are what is folded.
#[derive(Debug)]
pub(crate) struct Scan {
    pub fold: ScanOp,
    pub axis: usize,
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        match self.fold {
            ScanOp::Sum => "cumsum",
            ScanOp::Prod => "cumprod",
            ScanOp::LogSumExp => "logcumsumexp",
            ScanOp::Max => "cummax",
            ScanOp::Min => "cummin",
        }
    }

    fn needs(&self) -> Needs {
        match self.fold {
            ScanOp::Prod => Needs { inputs: 0b1, outputs: 0b0 },
            ScanOp::LogSumExp => Needs { inputs: 0b1, outputs: 0b1 },
            _ => Needs::default(),
        }
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let meta = context.meta(0);
        if meta.rank() == 0 || meta.layout.is_empty() {
            return only(g.clone());
        }
        let axis = self.axis as isize;
        // Sums from each element to the end.
        let tail = |x: &Tensor| x.reversed(axis)?.cumsum(axis)?.reversed(axis);
        let gradient = match self.fold {
            ScanOp::Sum => tail(g)?,
            ScanOp::Prod => self.of_product(&context.input(0).to(DType::F64)?, &g.to(DType::F64)?, &tail)?,
            ScanOp::LogSumExp => {
                // Σ g e^(x - y) over the elements y from x on: positive and negative parts as logarithms, so that none overflows.
                let [x, y, g] = [context.input(0), context.output(0), g].map(|x| x.to(DType::F64));
                let (x, y, g) = (x?, y?, g?);
                let part = |sign: f64| -> Result<Tensor> {
                    let logs = g.mul(sign)?.clamp_min(0.0)?.log()?.sub(&y)?;
                    // 0 · ∞ is nothing here.
                    let logs = g.mul(sign)?.gt(0.0)?.where_(&logs, -f64::INFINITY)?;
                    let sums = logs.reversed(axis)?.logcumsumexp(axis)?.reversed(axis)?;
                    x.add(&sums)?.exp()
                };
                part(1.0)?.sub(&part(-1.0)?)?
            }
            // Composed of others.
            ScanOp::Max | ScanOp::Min => return only(g.clone()),
        };
        only(meta.filled(|out| out.copy_(&gradient).map(drop))?)
    }
}

impl Scan {
    /// Of a running product. Before the first zero: sums of `g · product` to the end, divided by the element. At it: the same with
    /// a 1 in its place. Behind it: 0.
    fn of_product(&self, x: &Tensor, g: &Tensor, tail: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let axis = self.axis as isize;
        let is_zero = once!(|[x]| x.eq(0.0).number()).call(&[x])?;
        let zeros = is_zero.cumsum(axis)?;
        let before = tail(&g.mul(&x.cumprod(axis)?)?)?.div(x)?;
        // The first zero counts as 1, and what is multiplied by a later one is 0 anyway.
        let filled = once!(|[x, zeros]| (x.eq(0.0) & zeros.eq(1.0)).select(1.0, x)).call(&[x, &zeros])?;
        // Of those, what is at or behind the first zero.
        let behind =
            once!(|[p, zeros]| zeros.eq(0.0).select(0.0, p)).call(&[&filled.cumprod(axis)?, &zeros])?;
        let at = tail(&g.mul(&behind)?)?;
        once!(|[x, zeros, before, at]| {
            zeros.eq(0.0).select(before, (x.eq(0.0) & zeros.eq(1.0)).select(at, 0.0))
        })
        .call(&[x, &zeros, &before, &at])
    }
}
