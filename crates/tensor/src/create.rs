//! New tensors from nothing: constants, ranges, the identity, triangles.

use crate::{
    Call, DType, Device, Dims, Error, Layout, Result, Tensor,
    gradient::{Context, Gradients, Op, only},
    number::fit,
    pointwise::{check_out, check_overlap},
    record::{self, Mode},
};
use raddle_base::{MAX_RANK, Scalar, ViewError};
use raddle_op::{Kernel, PARAM_COUNT_MAX, Pointwise};

/// A shape given by the user.
pub(crate) fn dims(op: &'static str, shape: &[usize]) -> Result<Dims> {
    Dims::new(shape).ok_or_else(|| ViewError::Rank { op, rank: shape.len() }.into())
}

impl Tensor {
    /// A tensor with undefined content.
    pub fn empty(shape: impl AsRef<[usize]>, dtype: DType, device: &Device) -> Result<Tensor> {
        let shape = dims("empty", shape.as_ref())?;
        Tensor::allocate("empty", Layout::contiguous(shape), dtype, device)
    }

    /// A tensor whose elements are all `value`.
    ///
    /// Errors: `dtype` lacks that number (see [`Arg::Scalar`](crate::Arg::Scalar)).
    pub fn full(
        shape: impl AsRef<[usize]>,
        value: impl Into<Scalar>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let op = "full";
        let (shape, value) = (dims(op, shape.as_ref())?, fit(op, "the number", value.into(), dtype)?);
        let out = Tensor::allocate(op, Layout::contiguous(shape), dtype, device)?;
        out.fill_raw(value)?;
        Ok(out)
    }

    /// Zeros.
    pub fn zeros(shape: impl AsRef<[usize]>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::full(shape, 0, dtype, device)
    }

    /// Ones.
    pub fn ones(shape: impl AsRef<[usize]>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::full(shape, 1, dtype, device)
    }

    /// Undefined content; shape, dtype, device and (if dense) strides of `self`.
    pub fn empty_like(&self) -> Result<Tensor> {
        Tensor::allocate("empty_like", self.layout().preserved(), self.dtype(), &self.device())
    }

    /// `value` everywhere; shape, dtype, device and (if dense) strides of `self`. Errors: as of [`full`](Tensor::full).
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = fit("full_like", "the number", value.into(), self.dtype())?;
        let out = self.empty_like()?;
        out.fill_raw(value)?;
        Ok(out)
    }

    /// Zeros; shape, dtype, device and (if dense) strides of `self`.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0)
    }

    /// Ones; shape, dtype, device and (if dense) strides of `self`.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1)
    }

    /// Overwrites all elements with a number. A result that required grad requires none any more (PyTorch goes on with gradients of
    /// 0). Errors: as of [`full`](Tensor::full).
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<&Tensor> {
        self.fill_with(value.into())?;
        Ok(self)
    }

    /// Zeros in place, as by [`fill_`](Tensor::fill_).
    pub fn zero_(&self) -> Result<&Tensor> {
        self.fill_with(Scalar::Int(0))?;
        Ok(self)
    }

    /// `start`, `start + step`, … as long as it is before `end`. Of integers `start` and `step` lose their fractions, and numbers are
    /// computed in `i64`; of floats in `f64`.
    ///
    /// Errors: a step of 0, or one that leads away from `end`; the first or the last number is none of `dtype`.
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let op = "arange";
        let (start, end, step) = (start.into(), end.into(), step.into());
        let wrong = |what, expected, found| Err(Error::Argument { op, what, expected, found });
        let count = match (start, end, step) {
            (Scalar::Int(start), Scalar::Int(end), Scalar::Int(by)) => {
                let (span, by) = (i128::from(end) - i128::from(start), i128::from(by));
                if by == 0 {
                    return wrong("step", "anything but 0", step);
                }
                if span != 0 && (span < 0) != (by < 0) {
                    return wrong("step", "one that leads from start to end", step);
                }
                (span.abs() + by.abs() - 1) / by.abs()
            }
            _ => {
                let (from, to, by) = (start.to_f64(), end.to_f64(), step.to_f64());
                let count = ((to - from) / by).ceil();
                if by == 0.0 || !by.is_finite() {
                    return wrong("step", "a finite number, not 0", step);
                }
                if !count.is_finite() {
                    return wrong("end", "a finite number", end);
                }
                if count < 0.0 {
                    return wrong("step", "one that leads from start to end", step);
                }
                count as i128
            }
        };
        if count > 0 && dtype.is_int() {
            fit(op, "the first number", start, dtype)?;
            let by = fit(op, "step", step, DType::I64)?.to_i64();
            let last = (count - 1).saturating_mul(by.into()).saturating_add(start.to_i64().into());
            let last = i64::try_from(last).map_or(Scalar::Float(last as f64), Scalar::Int);
            fit(op, "the last number", last, dtype)?;
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Tensor::iota(op, count, start, step, dtype, device)
    }

    /// `count` numbers from `start` to `end`, both included, evenly spaced; computed in `f64`. One number is `start`. Of
    /// integers each is the one that truncation leaves, of `start` and `end` beforehand.
    ///
    /// Errors: `dtype` lacks `start` or `end` (see [`Arg::Scalar`](crate::Arg::Scalar)).
    pub fn linspace(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        count: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let op = "linspace";
        let (start, end) = (fit(op, "start", start.into(), dtype)?, fit(op, "end", end.into(), dtype)?);
        let (start, end) = (start.to_f64(), end.to_f64());
        let (span, steps) = (end - start, count.saturating_sub(1).max(1) as f64);
        if !dtype.is_float() {
            // Whole multiples are divided last: a multiple of the rounded step may be a little less than an integer.
            let (first, by) = (Scalar::Float(start * steps), Scalar::Float(span));
            return Tensor::iota(op, count, first, by, DType::F64, device)?.div(steps)?.to_dtype(dtype);
        }
        let spaced = |start: f64, step: f64| {
            Tensor::iota(op, count, Scalar::Float(start), Scalar::Float(step), dtype, device)
        };
        let out = if span.is_finite() {
            spaced(start, span / steps)?
        } else {
            // In halves: what lies between finite numbers is finite, the way from the first to it needn't be.
            let out = spaced(0.5 * start, (0.5 * end - 0.5 * start) / steps)?;
            out.mul_(2.0)?;
            out
        };
        // A multiple of the rounded step may miss it.
        if count > 1 {
            out.select(0, -1)?.fill_(end)?;
        }
        Ok(out)
    }

    fn iota(
        op: &'static str,
        count: usize,
        start: Scalar,
        step: Scalar,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let out = Tensor::allocate(op, Layout::contiguous(dims(op, &[count])?), dtype, device)?;
        if count > 0 {
            device.submit(&Kernel::Iota { start, step }, &[out.write(out.layout())])?;
        }
        Ok(out)
    }

    /// The identity: ones on the diagonal of an `n` × `m` matrix.
    pub fn eye(n: usize, m: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        let out = Tensor::zeros([n, m], dtype, device)?;
        out.diagonal(0, 0, 1)?.fill_raw(Scalar::Int(1))?;
        Ok(out)
    }

    /// The lower triangle of the last two axes: elements with `j − i ≤ diagonal`, and 0 elsewhere.
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("tril", false, diagonal)
    }
    /// The upper triangle of the last two axes: elements with `j − i ≥ diagonal`, and 0 elsewhere.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("triu", true, diagonal)
    }
    /// [`tril`](Tensor::tril) in place, whatever the strides.
    pub fn tril_(&self, diagonal: i64) -> Result<&Tensor> {
        self.triangle_into("tril", false, diagonal, self, Mode::InPlace)?;
        Ok(self)
    }
    /// [`triu`](Tensor::triu) in place, whatever the strides.
    pub fn triu_(&self, diagonal: i64) -> Result<&Tensor> {
        self.triangle_into("triu", true, diagonal, self, Mode::InPlace)?;
        Ok(self)
    }
    /// [`tril`](Tensor::tril) into `out`.
    pub fn tril_out(&self, diagonal: i64, out: &Tensor) -> Result<()> {
        self.triangle_into("tril", false, diagonal, out, Mode::Out)
    }
    /// [`triu`](Tensor::triu) into `out`.
    pub fn triu_out(&self, diagonal: i64, out: &Tensor) -> Result<()> {
        self.triangle_into("triu", true, diagonal, out, Mode::Out)
    }

    fn triangle(&self, op: &'static str, upper: bool, diagonal: i64) -> Result<Tensor> {
        check_matrix(op, self)?;
        let out = Tensor::allocate(op, self.layout().preserved(), self.dtype(), &self.device())?;
        let run = || self.triangle_launch(upper, diagonal, &out);
        record::fresh(&[self], &[&out], || Call::op(Triangle { upper, diagonal }), run)?;
        Ok(out)
    }

    fn triangle_into(
        &self,
        op: &'static str,
        upper: bool,
        diagonal: i64,
        out: &Tensor,
        mode: Mode,
    ) -> Result<()> {
        check_matrix(op, self)?;
        check_out(op, out, self.shape(), &self.device())?;
        check_overlap(op, out, &[self])?;
        check_dtype(op, "the output", self.dtype(), out)?;
        let call = || Call::op(Triangle { upper, diagonal });
        record::op(mode, &[self], &[out], call, || self.triangle_launch(upper, diagonal, out))
    }

    fn triangle_launch(&self, upper: bool, diagonal: i64, out: &Tensor) -> Result<()> {
        if out.layout().is_empty() {
            return Ok(());
        }
        let operands = [out.write(out.layout()), self.read(self.layout())];
        Ok(self.device().submit(&Kernel::Triangle { upper, diagonal }, &operands)?)
    }

    /// Overwrites all elements; no checks, nobody is told.
    pub(crate) fn fill_raw(&self, value: Scalar) -> Result<()> {
        if self.layout().is_empty() {
            return Ok(());
        }
        let mut params = [Scalar::Int(0); PARAM_COUNT_MAX];
        params[0] = value;
        let compute = self.dtype().compute();
        let kernel = Kernel::Pointwise { program: Pointwise::fill.into(), compute, params, groups: 1 };
        Ok(self.device().submit(&kernel, &[self.write(self.layout())])?)
    }

    /// Overwrites all elements of an existing tensor.
    pub(crate) fn fill_with(&self, value: Scalar) -> Result<()> {
        let op = "fill";
        check_out(op, self, self.shape(), &self.device())?;
        let value = fit(op, "the number", value, self.dtype())?;
        record::op(Mode::InPlace, &[self], &[self], || Call::Overwrite, || self.fill_raw(value))
    }
}

fn check_matrix(op: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.rank() < 2 {
        return Err(Error::Rank { op, what: "the tensor", expected: "at least 2", found: tensor.rank() });
    }
    Ok(())
}

/// A tensor has exactly this dtype.
pub(crate) fn check_dtype(op: &'static str, what: &'static str, dtype: DType, tensor: &Tensor) -> Result<()> {
    if tensor.dtype() == dtype {
        Ok(())
    } else {
        Err(Error::DType { op, what, expected: dtype.name(), found: tensor.dtype() })
    }
}

const _: () = assert!(MAX_RANK <= 8, "axes are kept as the bits of a byte");

/// What lies on one side of a diagonal.
#[derive(Debug)]
pub(crate) struct Triangle {
    pub upper: bool,
    pub diagonal: i64,
}

impl Op for Triangle {
    fn name(&self) -> &'static str {
        if self.upper { "triu" } else { "tril" }
    }

    fn gradients(&self, _: &dyn Context, g: &Tensor) -> Result<Gradients> {
        only(if self.upper { g.triu(self.diagonal)? } else { g.tril(self.diagonal)? })
    }
}
