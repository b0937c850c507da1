//! Softmax and layer normalization, forward and backward.

use crate::{
    Call, Dims, Error, Layout, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    gradient::{Context, Gradients, Needs, Op, only},
    pointwise::{check_device, check_disjoint, check_float, check_out, check_overlap},
    record::{self, Mode, TensorRefs},
};
use raddle_base::Scalar;
use raddle_op::Kernel;
use raddle_runtime::Operand;
use raddle_sync::fault;
use smallvec::SmallVec;

/// The gradients of [`Tensor::layer_norm`].
pub struct LayerNormGradients {
    /// By the input.
    pub input: Tensor,
    /// By the weight, if there is one.
    pub weight: Option<Tensor>,
    /// By the bias, if there is one.
    pub bias: Option<Tensor>,
}

impl Tensor {
    /// `exp(x − max) / Σ exp(x − max)` along an axis, of floats. A row of −∞ only is NaN, as in PyTorch.
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        self.softmax_any("softmax", axis, false)
    }

    /// `x − max − log Σ exp(x − max)` along an axis, of floats. Where one element has nearly all of the weight its logarithm is
    /// small, and keeps its digits; so does its gradient. (Of 16-bit floats the gradient is that of the rounded result.)
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        self.softmax_any("log_softmax", axis, true)
    }

    /// [`softmax`](Tensor::softmax) into `out`.
    pub fn softmax_out(&self, axis: isize, out: &Tensor) -> Result<()> {
        self.softmax_into("softmax", axis, false, out)
    }

    /// [`log_softmax`](Tensor::log_softmax) into `out`.
    pub fn log_softmax_out(&self, axis: isize, out: &Tensor) -> Result<()> {
        self.softmax_into("log_softmax", axis, true, out)
    }

    /// The gradient by the input of [`softmax`](Tensor::softmax) or, if `log`, [`log_softmax`](Tensor::log_softmax):
    /// `self` is the op's result, `gradient` the one of it. Not recorded.
    pub fn softmax_backward(&self, gradient: &Tensor, axis: isize, log: bool) -> Result<Tensor> {
        let op = "softmax_backward";
        let axis = self.softmax_axis(op, axis)?;
        check_device(op, self, &[gradient])?;
        check_dtype(op, "the gradient", self.dtype(), gradient)?;
        if gradient.shape() != self.shape() {
            return Err(shape_error(op, "the gradient", self.shape(), gradient.shape()));
        }
        let out = Tensor::allocate(op, self.layout().preserved(), self.dtype(), &self.device())?;
        if !out.layout().is_empty() {
            let layouts = [&out, self, gradient].map(|tensor| with_axis(tensor.layout()));
            let operands = [out.write(&layouts[0]), self.read(&layouts[1]), gradient.read(&layouts[2])];
            self.device().submit_named(op, &Kernel::SoftmaxBackward { axis, log }, &operands)?;
        }
        Ok(out)
    }

    fn softmax_axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        check_float(op, "the tensor", self)?;
        if self.rank() == 0 && matches!(axis, 0 | -1) { Ok(0) } else { Ok(self.layout().axis(op, axis)?) }
    }

    fn softmax_any(&self, op: &'static str, axis: isize, log: bool) -> Result<Tensor> {
        let axis = self.softmax_axis(op, axis)?;
        let out = Tensor::allocate(op, self.layout().preserved(), self.dtype(), &self.device())?;
        let run = || self.softmax_launch(op, axis, log, &out);
        record::fresh(&[self], &[&out], || Call::op(Softmax { axis, log }), run)?;
        Ok(out)
    }

    fn softmax_into(&self, op: &'static str, axis: isize, log: bool, out: &Tensor) -> Result<()> {
        let axis = self.softmax_axis(op, axis)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, self.shape(), &self.device())?;
        check_disjoint(op, out, &[self])?;
        let call = || Call::op(Softmax { axis, log });
        record::op(Mode::Out, &[self], &[out], call, || self.softmax_launch(op, axis, log, out))
    }

    fn softmax_launch(&self, op: &'static str, axis: usize, log: bool, out: &Tensor) -> Result<()> {
        if out.layout().is_empty() {
            return Ok(());
        }
        let layouts = [out, self].map(|tensor| with_axis(tensor.layout()));
        let operands = [out.write(&layouts[0]), self.read(&layouts[1])];
        Ok(self.device().submit_named(op, &Kernel::Softmax { axis, log }, &operands)?)
    }

    /// Over the last `axes` axes: `(x − mean) · rstd · weight + bias` with `rstd = 1 / √(variance + eps)` and the variance
    /// divided by n. Weight and bias have the shape of these axes and the dtype of the input. Of floats.
    ///
    /// Mean and rstd are numbers of the compute dtype, as in PyTorch. So a row far from 0 is shifted by what the mean is rounded
    /// by, as if its elements had moved by up to a unit in the last place. And where the sum of the squares overflows, which in
    /// `f32` it does for distances of some 2e19 / √n, rstd and the result are 0. In `f64` both have room.
    pub fn layer_norm(
        &self,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        Ok(self.layer_norm_stats(axes, weight, bias, eps)?.0)
    }

    /// [`layer_norm`](Tensor::layer_norm) with what its backward needs: the result, and mean and rstd in the compute dtype,
    /// with the normalized axes of size 1.
    pub fn layer_norm_stats(
        &self,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        self.layer_norm_any("layer_norm", None, axes, (weight, bias), eps)
    }

    /// [`layer_norm`](Tensor::layer_norm) of `self + addend`, both of one shape and dtype, in one launch: a residual and the
    /// normalization behind it. Of 16-bit floats the sum isn't rounded, for the gradients either.
    pub fn layer_norm_add(
        &self,
        addend: &Tensor,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let op = "layer_norm_add";
        check_device(op, self, &[addend])?;
        check_dtype(op, "the addend", self.dtype(), addend)?;
        if addend.shape() != self.shape() {
            return Err(shape_error(op, "the addend", self.shape(), addend.shape()));
        }
        Ok(self.layer_norm_any(op, Some(addend), axes, (weight, bias), eps)?.0)
    }

    fn layer_norm_any(
        &self,
        op: &'static str,
        addend: Option<&Tensor>,
        axes: usize,
        (weight, bias): (Option<&Tensor>, Option<&Tensor>),
        eps: f64,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let stats = self.check_layer_norm(op, axes, weight, bias)?;
        let (device, dtype) = (self.device(), self.dtype());
        let out = Tensor::allocate(op, self.layout().preserved(), dtype, &device)?;
        let stat = || Tensor::allocate(op, Layout::contiguous(stats), dtype.compute(), &device);
        let (mean, rstd) = (stat()?, stat()?);
        let mut inputs = TensorRefs::from_slice(&[self]);
        inputs.extend([weight, bias, addend].into_iter().flatten());
        let (weight, bias, addend) = (weight.is_some(), bias.is_some(), addend.is_some());
        let run = || {
            if out.layout().is_empty() {
                mean.fill_raw(Scalar::Int(0))?;
                return rstd.fill_raw(Scalar::Float(1.0 / eps.sqrt()));
            }
            let mut operands: SmallVec<[Operand<'_>; 7]> = SmallVec::new();
            operands.extend([&out, &mean, &rstd].map(|tensor| tensor.write(tensor.layout())));
            operands.extend(inputs.iter().map(|tensor| tensor.read(tensor.layout())));
            let kernel = Kernel::LayerNorm { axes, eps, weight, bias, addend };
            Ok(device.submit_named(op, &kernel, &operands)?)
        };
        let call = || Call::op(LayerNorm { axes, weight, bias, addend });
        record::fresh(&inputs, &[&out, &mean, &rstd], call, run)?;
        Ok((out, mean, rstd))
    }

    /// The gradients of [`layer_norm`](Tensor::layer_norm) for the gradient `self` of its result: `input`, `mean` and `rstd`
    /// as given to and by [`layer_norm_stats`](Tensor::layer_norm_stats). Not recorded.
    pub fn layer_norm_backward(
        &self,
        input: &Tensor,
        (mean, rstd): (&Tensor, &Tensor),
        axes: usize,
        weight: Option<&Tensor>,
        has_bias: bool,
    ) -> Result<LayerNormGradients> {
        let op = "layer_norm_backward";
        let stats = input.check_layer_norm(op, axes, weight, None)?;
        check_device(op, self, &[input, mean, rstd])?;
        check_dtype(op, "the gradient", input.dtype(), self)?;
        if self.shape() != input.shape() {
            return Err(shape_error(op, "the gradient", input.shape(), self.shape()));
        }
        for (what, tensor) in [("mean", mean), ("rstd", rstd)] {
            check_dtype(op, what, input.dtype().compute(), tensor)?;
            if *tensor.shape() != stats {
                return Err(shape_error(op, what, &stats, tensor.shape()));
            }
        }
        let (device, dtype) = (input.device(), input.dtype());
        let normalized: Dims = input.shape()[input.rank() - axes..].iter().copied().collect();
        let parameter = |wanted: bool| {
            wanted.then(|| Tensor::allocate(op, Layout::contiguous(normalized), dtype, &device)).transpose()
        };
        let gradients = LayerNormGradients {
            input: Tensor::allocate(op, input.layout().preserved(), dtype, &device)?,
            weight: parameter(weight.is_some())?,
            bias: parameter(has_bias)?,
        };
        if input.layout().is_empty() {
            for parameter in gradients.weight.iter().chain(&gradients.bias) {
                parameter.fill_raw(Scalar::Int(0))?;
            }
            return Ok(gradients);
        }
        let mut operands: SmallVec<[Operand<'_>; 8]> = SmallVec::new();
        operands.push(gradients.input.write(gradients.input.layout()));
        let parameters = gradients.weight.iter().chain(&gradients.bias);
        operands.extend(parameters.map(|tensor| tensor.write(tensor.layout())));
        operands.extend([self, input, mean, rstd].map(|tensor| tensor.read(tensor.layout())));
        operands.extend(weight.map(|tensor| tensor.read(tensor.layout())));
        let kernel = Kernel::LayerNormBackward { axes, weight: weight.is_some(), bias: has_bias };
        device.submit_named(op, &kernel, &operands)?;
        drop(operands);
        Ok(gradients)
    }

    /// Checks operands; the shape of mean and rstd.
    fn check_layer_norm(
        &self,
        op: &'static str,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> Result<Dims> {
        check_float(op, "the input", self)?;
        if axes == 0 || axes > self.rank() {
            let (what, expected) = ("the number of axes", "1 to the rank of the input");
            return Err(Error::Argument { op, what, expected, found: Scalar::Int(axes as i64) });
        }
        let first = self.rank() - axes;
        let normalized: Dims = self.shape()[first..].iter().copied().collect();
        for (what, tensor) in [("weight", weight), ("bias", bias)] {
            let Some(tensor) = tensor else { continue };
            check_device(op, self, &[tensor])?;
            check_dtype(op, what, self.dtype(), tensor)?;
            if *tensor.shape() != normalized {
                return Err(shape_error(op, what, &normalized, tensor.shape()));
            }
        }
        let mut stats = *self.shape();
        stats[first..].fill(1);
        Ok(stats)
    }

    /// [`layer_norm`](Tensor::layer_norm) into `out`.
    pub fn layer_norm_out(
        &self,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
        out: &Tensor,
    ) -> Result<()> {
        let op = "layer_norm";
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, self.shape(), &self.device())?;
        check_overlap(op, out, &[self])?;
        out.copy_(&self.layer_norm(axes, weight, bias, eps)?)?;
        Ok(())
    }
}

/// A tensor without axes gets one of size 1.
fn with_axis(layout: &Layout) -> Layout {
    if layout.rank() > 0 {
        return *layout;
    }
    let one: Dims = [1].into_iter().collect();
    Layout::new(one, one, layout.offset())
}

/// Softmax, or its logarithm.
#[derive(Debug)]
pub(crate) struct Softmax {
    pub axis: usize,
    pub log: bool,
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn needs(&self) -> Needs {
        Needs::outputs(0b1)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        only(context.output(0).softmax_backward(g, self.axis as isize, self.log)?)
    }
}

/// Over the last `axes` axes. Inputs x, then weight, bias and what is added to x, if there are such; outputs y, mean, rstd.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    pub axes: usize,
    pub weight: bool,
    pub bias: bool,
    pub addend: bool,
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        if self.addend { "layer_norm_add" } else { "layer_norm" }
    }

    fn needs(&self) -> Needs {
        let at = 1 + usize::from(self.weight) + usize::from(self.bias);
        let weight = if self.weight { 0b11 } else { 0b1 };
        Needs { inputs: weight | if self.addend { 1 << at } else { 0 }, outputs: 0b110 }
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let LayerNorm { axes, weight, bias, addend } = *self;
        let meta = context.meta(0);
        let stats = (context.output(1), context.output(2));
        let mut weight_value = weight.then(|| context.input(1).clone());
        let (mut x, mut g) = (context.input(0).clone(), g.clone());
        if addend {
            // Of 16-bit floats the op doesn't round the sum. Beside the mean of what isn't rounded a rounded sum would have
            // deviations that may be larger than its own.
            let compute = meta.dtype.compute();
            x = x.to(compute)?.add(context.input(context.input_count() - 1))?;
            if fault!(sum_is_rounded_again) {
                x = x.to(meta.dtype)?.to(compute)?;
            }
            g = g.to(compute)?;
            weight_value = weight_value.map(|weight| weight.to(compute)).transpose()?;
        }
        let gradients = g.layer_norm_backward(&x, stats, axes, weight_value.as_ref(), bias)?;
        let by_input = gradients.input.to(meta.dtype)?;
        let by_addend = addend.then(|| by_input.clone());
        let mut results = Gradients::from_iter([Some(by_input)]);
        results.extend([gradients.weight, gradients.bias, by_addend].into_iter().flatten().map(Some));
        Ok(results)
    }
}
