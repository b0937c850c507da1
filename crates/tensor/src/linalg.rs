//! Products of matrices.
//!
//! All of them are one launch of [`Kernel::MatMul`] over `[b, m, k] × [b, k, n]`; what is done here is to bring operands to
//! that form by views, which costs a copy only where batch axes can't be merged.

use crate::{
    Activation, Call, DType, Dims, Error, Fused, INFER, Layout, Program, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    fused::once,
    gradient::{Context, Gradients, Meta, Needs, Op, sum_to},
    number::fit_factor,
    pointwise::{check_device, check_disjoint, check_out},
    record::{self, Mode, Silence, TensorRefs},
};
use raddle_base::Scalar;
use raddle_op::Kernel;
use raddle_runtime::Operand;
use raddle_sync::{RaceOnce, fault};
use smallvec::SmallVec;

/// What a product does besides multiplying: `act(alpha · a b + bias) + beta · c`.
#[derive(Clone, Copy)]
struct MatMulOptions<'a> {
    /// Factor of the product.
    alpha: f64,
    /// Broadcast to the result and added before the activation.
    bias: Option<&'a Tensor>,
    /// Applied to product and bias.
    activation: Activation,
    /// Added last, with its factor beta; of the result's shape, or the output itself.
    addend: Option<(f64, &'a Tensor)>,
}

impl Default for MatMulOptions<'_> {
    fn default() -> Self {
        MatMulOptions { alpha: 1.0, bias: None, activation: Activation::None, addend: None }
    }
}

/// Integers and floats; what is wanted of the dtype of one is wanted of both.
pub(crate) fn check_operands(op: &'static str, lhs: &Tensor, rhs: &Tensor) -> Result<()> {
    check_device(op, lhs, &[rhs])?;
    if lhs.dtype() == DType::Bool {
        return Err(Error::DType { op, what: "lhs", expected: "a number", found: DType::Bool });
    }
    if lhs.dtype() != rhs.dtype() {
        return Err(Error::DTypesDiffer { op, lhs: lhs.dtype(), rhs: rhs.dtype() });
    }
    Ok(())
}

pub(crate) fn check_rank(op: &'static str, what: &'static str, tensor: &Tensor, rank: usize) -> Result<()> {
    let expected = ["0", "1", "2", "3"][rank];
    if tensor.rank() == rank { Ok(()) } else { Err(Error::Rank { op, what, expected, found: tensor.rank() }) }
}

/// The last axis of `lhs` and the last but one (or only) of `rhs` have one size.
fn check_inner(op: &'static str, lhs: &Tensor, rhs: &Tensor) -> Result<()> {
    let (lhs_axis, rhs_axis) = (lhs.rank() - 1, rhs.rank().saturating_sub(2));
    if lhs.shape()[lhs_axis] == rhs.shape()[rhs_axis] {
        Ok(())
    } else {
        Err(Error::InnerSize { op, lhs: lhs.shape().to_vec(), lhs_axis, rhs: rhs.shape().to_vec(), rhs_axis })
    }
}

/// A tensor seen through a layout of rank 3.
type Seen<'a> = (&'a Tensor, Layout);

/// `[b, m, k] × [b, k, n] → out [b, m, n]`, nothing recorded.
fn launch(
    op: &'static str,
    (lhs, lhs_layout): Seen<'_>,
    (rhs, rhs_layout): Seen<'_>,
    (out, out_layout): Seen<'_>,
    options: &MatMulOptions<'_>,
) -> Result<()> {
    if out_layout.is_empty() {
        return Ok(());
    }
    // Factors count as what is computed with: 1e-50 is 0 in `f32`. One of 0 means that the product or the addend doesn't count,
    // not even its NaN. No backend is asked for such a product: libraries give it up without writing.
    let is_zero = |factor: f64| match out.dtype().compute() {
        DType::F32 => factor as f32 == 0.0,
        _ => factor == 0.0,
    };
    let addend = options.addend.filter(|(beta, _)| !is_zero(*beta));
    if !out.dtype().is_float() {
        let alias = |(tensor, layout): Seen<'_>| tensor.detach().alias(layout);
        let operands = [(lhs, lhs_layout), (rhs, rhs_layout), (out, out_layout)].map(alias);
        return launch_integers(op, &operands, options, addend);
    }
    let k = lhs_layout.shape()[2];
    let mut is_product = k != 0 && !is_zero(options.alpha);
    if fault!(nothing_is_multiplied) {
        is_product = k != 0;
    }
    if !is_product {
        return without_product(&out.detach().alias(out_layout), options, addend);
    }
    let see = |tensor| Ok::<_, Error>((tensor, Tensor::layout(tensor).broadcast_to(op, out_layout.shape())?));
    let bias = options.bias.map(see).transpose()?;
    let beta = addend.map_or(0.0, |(beta, _)| beta);
    let addend = addend.map(|(_, addend)| see(addend)).transpose()?;
    let kernel = Kernel::MatMul {
        alpha: options.alpha,
        beta,
        bias: bias.is_some(),
        accumulate: addend.is_some(),
        activation: options.activation,
    };
    let mut operands: SmallVec<[Operand<'_>; 5]> = SmallVec::new();
    operands.push(out.write(&out_layout));
    operands.push(lhs.read(&lhs_layout));
    operands.push(rhs.read(&rhs_layout));
    operands.extend(bias.iter().chain(&addend).map(|(tensor, layout)| tensor.read(layout)));
    Ok(out.device().submit_named(op, &kernel, &operands)?)
}

/// Integers have no kernel of their own: products, summed, a few rows at a time. All wraps around.
fn launch_integers(
    op: &'static str,
    [lhs, rhs, out]: &[Tensor; 3],
    options: &MatMulOptions<'_>,
    addend: Option<(f64, &Tensor)>,
) -> Result<()> {
    const PRODUCT_COUNT_MAX: usize = 1 << 22; // guess: some tens of MiB of products
    let beta = addend.map_or(0.0, |(beta, _)| beta);
    let (alpha, beta) =
        (fit_factor(op, "alpha", options.alpha, out.dtype())?, fit_factor(op, "beta", beta, out.dtype())?);
    if options.activation == Activation::Gelu {
        return Err(Error::DType { op, what: "the input of gelu", expected: "a float", found: out.dtype() });
    }
    let _silence = Silence::new();
    let addend = addend.map(|(_, addend)| addend.detach().expand(out.shape())).transpose()?;
    let [batch, m, n] = [0, 1, 2].map(|axis| out.shape()[axis]);
    let rows = (PRODUCT_COUNT_MAX / (lhs.shape()[2] * n).max(1)).clamp(1, m);
    for index in 0..batch as isize {
        let right = rhs.select(0, index)?.unsqueeze(0)?;
        for first in (0..m).step_by(rows) {
            let part = |tensor: &Tensor| tensor.select(0, index)?.narrow(0, first, rows.min(m - first));
            let out = part(out)?;
            let products = part(lhs)?.unsqueeze(2)?.mul(&right)?;
            let mut sums = products.sum(1, false)?.to_dtype(out.dtype())?;
            if alpha != 1 {
                sums.mul_(alpha)?;
            }
            if let Some(bias) = options.bias {
                sums.add_(&bias.detach())?;
            }
            if options.activation == Activation::Relu {
                sums.relu_()?;
            }
            if let Some(addend) = &addend {
                sums = sums.add(&part(addend)?.mul(beta)?)?;
            }
            out.copy_(&sums)?;
        }
    }
    Ok(())
}

/// What is left where the inner axis is empty or the product's factor 0: `act(bias) + beta · c`.
fn without_product(out: &Tensor, options: &MatMulOptions<'_>, addend: Option<(f64, &Tensor)>) -> Result<()> {
    let _silence = Silence::new();
    // The addend may be the output.
    let scaled = addend.map(|(beta, addend)| addend.expand(out.shape())?.mul(beta)).transpose()?;
    match options.bias {
        Some(bias) => _ = out.copy_(bias)?,
        None => out.fill_raw(Scalar::Int(0))?,
    }
    match options.activation {
        Activation::None => {}
        Activation::Relu => _ = out.relu_()?,
        Activation::Gelu => _ = out.gelu_()?,
    }
    if let Some(scaled) = scaled {
        out.add_(&scaled)?;
    }
    Ok(())
}

/// A tensor and a layout of rank 3 with its elements in row-major order; a copy if strides demand it.
fn see(tensor: &Tensor, layout: &Layout, shape: [usize; 3]) -> Result<(Tensor, Layout)> {
    let shape = Dims::from_iter(shape);
    match layout.view(&shape) {
        Ok(layout) => Ok((tensor.clone(), layout)),
        Err(_) => {
            let copy = tensor.detach().alias(*layout).row_major_copy()?;
            let layout = copy.layout().view(&shape)?;
            Ok((copy, layout))
        }
    }
}

/// Operands as stacks of matrices, and the shape of the result.
struct Folded<'a> {
    lhs: (&'a Tensor, Layout),
    rhs: (&'a Tensor, Layout),
    /// Matrices, rows, inner size, columns.
    sizes: [usize; 4],
    shape: Dims,
}

fn fold<'a>(lhs: &'a Tensor, rhs: &'a Tensor) -> Result<Folded<'a>> {
    let op = "matmul";
    check_operands(op, lhs, rhs)?;
    for (what, operand) in [("lhs", lhs), ("rhs", rhs)] {
        if operand.rank() == 0 {
            return Err(Error::Rank { op, what, expected: "at least 1", found: 0 });
        }
    }
    check_inner(op, lhs, rhs)?;
    // Vectors get an axis of size 1, which isn't in the result.
    let left = if lhs.rank() == 1 { lhs.layout().unsqueeze(0)? } else { *lhs.layout() };
    let right = if rhs.rank() == 1 { rhs.layout().unsqueeze(1)? } else { *rhs.layout() };
    let (left_batch, left_size) = left.shape().split_at(left.rank() - 2);
    let (right_batch, right_size) = right.shape().split_at(right.rank() - 2);
    let (m, k, n) = (left_size[0], left_size[1], right_size[1]);
    let right_count: usize = right_batch.iter().product();
    let dims = |sizes: &[usize]| sizes.iter().copied().collect::<Dims>();
    let mut batch = Layout::broadcast_shapes(op, &dims(left_batch), &dims(right_batch))?;
    let too_large = || Error::TooLarge { op, shape: vec![m, n], dtype: lhs.dtype() };
    let count = batch.checked_product().ok_or_else(too_large)?;
    let rows = count.checked_mul(m).ok_or_else(too_large)?;
    let mut shape = batch;
    if lhs.rank() > 1 {
        shape.push(m);
    }
    if rhs.rank() > 1 {
        shape.push(n);
    }
    // One matrix on the right: the batch of the left is just more rows.
    if right_count == 1
        && let Ok(merged) = left.view(&Dims::from_iter([1, rows, k]))
    {
        return Ok(Folded { lhs: (lhs, merged), rhs: (rhs, right), sizes: [1, rows, k, n], shape });
    }
    batch.push(m);
    batch.push(k);
    let left = left.broadcast_to(op, &batch)?;
    let last = batch.len() - 1;
    (batch[last - 1], batch[last]) = (k, n);
    let right = right.broadcast_to(op, &batch)?;
    Ok(Folded { lhs: (lhs, left), rhs: (rhs, right), sizes: [count, m, k, n], shape })
}

impl Folded<'_> {
    /// The result's shape as the kernel has it.
    fn kernel(&self) -> Dims {
        let [count, m, _, n] = self.sizes;
        Dims::from_iter([count, m, n])
    }

    fn launch(&self, out: &Tensor, layout: Layout) -> Result<()> {
        let [count, m, k, n] = self.sizes;
        let (lhs, lhs_layout) = see(self.lhs.0, &self.lhs.1, [count, m, k])?;
        let (rhs, rhs_layout) = see(self.rhs.0, &self.rhs.1, [count, k, n])?;
        launch("matmul", (&lhs, lhs_layout), (&rhs, rhs_layout), (out, layout), &MatMulOptions::default())
    }
}

impl Tensor {
    /// The product of matrices, `[.., m, k] × [.., k, n] → [.., m, n]`; the axes in front are broadcast. A vector on the left
    /// is a row, one on the right a column, and the axis of size 1 isn't in the result (two vectors: their inner product).
    /// Numbers of one dtype; 16-bit floats are summed in `f32`, integers wrap around (and are no faster than their products
    /// and sums written out).
    ///
    /// Errors: `matmul: inner sizes differ, lhs [2, 3] axis 1 is 3, rhs [4, 5] axis 0 is 4`, among others.
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let folded = fold(self, rhs)?;
        let layout = Layout::contiguous(folded.shape);
        let out = Tensor::allocate("matmul", layout, self.dtype(), &self.device())?;
        let run = || folded.launch(&out, Layout::contiguous(folded.kernel()));
        record::fresh(&[self, rhs], &[&out], || Call::op(MatMul), run)?;
        Ok(out)
    }

    /// [`matmul`](Tensor::matmul) into `out`, of any strides.
    pub fn matmul_out(&self, rhs: &Tensor, out: &Tensor) -> Result<()> {
        let op = "matmul";
        check_operands(op, self, rhs)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        let folded = fold(self, rhs)?;
        check_out(op, out, &folded.shape, &self.device())?;
        check_disjoint(op, out, &[self, rhs])?;
        let run = || match out.layout().view(&folded.kernel()) {
            Ok(layout) => folded.launch(out, layout),
            // The axes of the output can't be merged: through a temporary, copied back whole.
            Err(_) => {
                let layout = Layout::contiguous(folded.shape);
                let made = Tensor::allocate(op, layout, self.dtype(), &self.device())?;
                folded.launch(&made, Layout::contiguous(folded.kernel()))?;
                made.copy_into_fresh(out)
            }
        };
        record::op(Mode::Out, &[self, rhs], &[out], || Call::op(MatMul), run)
    }

    /// The product of stacks of matrices, `[b, m, k] × [b, k, n] → [b, m, n]`, without broadcasting.
    pub fn bmm(&self, rhs: &Tensor) -> Result<Tensor> {
        self.check_bmm(rhs)?;
        self.matmul(rhs)
    }

    /// [`bmm`](Tensor::bmm) into `out`.
    pub fn bmm_out(&self, rhs: &Tensor, out: &Tensor) -> Result<()> {
        self.check_bmm(rhs)?;
        self.matmul_out(rhs, out)
    }

    fn check_bmm(&self, rhs: &Tensor) -> Result<()> {
        let op = "bmm";
        check_rank(op, "lhs", self, 3)?;
        check_rank(op, "rhs", rhs, 3)?;
        check_inner(op, self, rhs)?;
        if self.shape()[0] != rhs.shape()[0] {
            let mut expected = *rhs.shape();
            expected[0] = self.shape()[0];
            return Err(shape_error(op, "rhs", &expected, rhs.shape()));
        }
        Ok(())
    }

    /// The product of two matrices, `[m, k] × [k, n] → [m, n]`.
    pub fn mm(&self, rhs: &Tensor) -> Result<Tensor> {
        check_rank("mm", "lhs", self, 2)?;
        check_rank("mm", "rhs", rhs, 2)?;
        self.matmul(rhs)
    }

    /// [`mm`](Tensor::mm) into `out`.
    pub fn mm_out(&self, rhs: &Tensor, out: &Tensor) -> Result<()> {
        check_rank("mm", "lhs", self, 2)?;
        check_rank("mm", "rhs", rhs, 2)?;
        self.matmul_out(rhs, out)
    }

    /// `beta · self + alpha · a b`, with `a` [m, k], `b` [k, n], and `self` broadcast to [m, n]. With `beta` 0 what `self`
    /// holds doesn't count, not even NaN or infinity; with `alpha` 0 neither does what `a` and `b` hold. (As in BLAS. PyTorch
    /// does the same in f32 and f64; in its 16-bit floats 0 · ∞ is NaN.) Of all but f64 the factors are rounded to f32 first.
    pub fn addmm(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        let op = "addmm";
        let shape = self.check_addmm(a, b)?;
        let out = Tensor::allocate(op, Layout::contiguous(shape), self.dtype(), &self.device())?;
        let run = || self.addmm_launch(a, b, beta, alpha, &out);
        record::fresh(&[self, a, b], &[&out], || Call::op(AddMm { beta, alpha }), run)?;
        Ok(out)
    }

    /// [`addmm`](Tensor::addmm) in place; `self` is [m, n].
    pub fn addmm_(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Result<&Tensor> {
        self.addmm_into(a, b, beta, alpha, self, Mode::InPlace)?;
        Ok(self)
    }

    /// [`addmm`](Tensor::addmm) into `out`.
    pub fn addmm_out(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64, out: &Tensor) -> Result<()> {
        self.addmm_into(a, b, beta, alpha, out, Mode::Out)
    }

    fn addmm_into(
        &self,
        a: &Tensor,
        b: &Tensor,
        beta: f64,
        alpha: f64,
        out: &Tensor,
        mode: Mode,
    ) -> Result<()> {
        let op = "addmm";
        let shape = self.check_addmm(a, b)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, &shape, &self.device())?;
        check_disjoint(op, out, &[a, b])?;
        crate::pointwise::check_overlap(op, out, &[self])?;
        let call = || Call::op(AddMm { beta, alpha });
        record::op(mode, &[self, a, b], &[out], call, || self.addmm_launch(a, b, beta, alpha, out))
    }

    fn check_addmm(&self, a: &Tensor, b: &Tensor) -> Result<Dims> {
        let op = "addmm";
        check_rank(op, "lhs", a, 2)?;
        check_rank(op, "rhs", b, 2)?;
        check_operands(op, a, b)?;
        check_inner(op, a, b)?;
        check_device(op, a, &[self])?;
        check_dtype(op, "the addend", a.dtype(), self)?;
        let shape: Dims = [a.shape()[0], b.shape()[1]].into_iter().collect();
        self.layout().broadcast_to(op, &shape)?;
        Ok(shape)
    }

    fn addmm_launch(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64, out: &Tensor) -> Result<()> {
        let options = MatMulOptions { alpha, addend: Some((beta, self)), ..MatMulOptions::default() };
        let stack = |tensor: &Tensor| tensor.layout().unsqueeze(0);
        launch("addmm", (a, stack(a)?), (b, stack(b)?), (out, stack(out)?), &options)
    }

    /// `x weightᵀ + bias`: `self` is [.., k], `weight` [n, k], `bias` `[n]`; the result [.., n].
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match weight.rank() {
            1 => self.linear_by_vector(weight, bias),
            _ => self.linear_with(weight, bias, Activation::None),
        }
    }

    /// A weight of one axis is that of one output, whose axis goes away.
    fn linear_by_vector(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let last = self.rank().saturating_sub(1);
        let made = self.linear_with(
            &weight.unsqueeze(0)?,
            bias.map(|bias| bias.reshape([1])).transpose()?.as_ref(),
            Activation::None,
        )?;
        made.squeeze(last as isize)
    }

    /// [`linear`](Tensor::linear) with an activation in the same launch.
    pub fn linear_with(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        activation: Activation,
    ) -> Result<Tensor> {
        let op = "linear";
        let shape = self.check_linear(weight, bias)?;
        let out = Tensor::allocate(op, Layout::contiguous(shape), self.dtype(), &self.device())?;
        let mut inputs = TensorRefs::from_slice(&[self, weight]);
        inputs.extend(bias);
        let call = || Call::op(Linear { bias: bias.is_some(), activation });
        record::fresh(&inputs, &[&out], call, || self.linear_launch(weight, bias, activation, &out))?;
        Ok(out)
    }

    /// [`linear`](Tensor::linear) into `out`, of any strides.
    pub fn linear_out(&self, weight: &Tensor, bias: Option<&Tensor>, out: &Tensor) -> Result<()> {
        let op = "linear";
        if weight.rank() == 1 {
            let made = self.linear_by_vector(weight, bias)?;
            check_dtype(op, "the output", self.dtype(), out)?;
            check_out(op, out, made.shape(), &self.device())?;
            return out.copy_(&made).map(drop);
        }
        let shape = self.check_linear(weight, bias)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        check_out(op, out, &shape, &self.device())?;
        let mut inputs = TensorRefs::from_slice(&[self, weight]);
        inputs.extend(bias);
        check_disjoint(op, out, &inputs)?;
        let activation = Activation::None;
        let call = || Call::op(Linear { bias: bias.is_some(), activation });
        record::op(Mode::Out, &inputs, &[out], call, || self.linear_launch(weight, bias, activation, out))
    }

    fn check_linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Dims> {
        let op = "linear";
        check_operands(op, self, weight)?;
        check_rank(op, "weight", weight, 2)?;
        if self.rank() == 0 {
            return Err(Error::Rank { op, what: "the input", expected: "at least 1", found: 0 });
        }
        let (n, k) = (weight.shape()[0], weight.shape()[1]);
        if self.shape()[self.rank() - 1] != k {
            let (lhs, rhs) = (self.shape().to_vec(), weight.shape().to_vec());
            return Err(Error::InnerSize { op, lhs_axis: self.rank() - 1, lhs, rhs, rhs_axis: 1 });
        }
        check_bias(op, self, bias, n)?;
        let mut shape = *self.shape();
        shape[self.rank() - 1] = n;
        Ok(shape)
    }

    fn linear_launch(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        activation: Activation,
        out: &Tensor,
    ) -> Result<()> {
        let op = "linear";
        let (n, k) = (weight.shape()[0], weight.shape()[1]);
        let rows = out.shape()[..out.rank() - 1].iter().product();
        let Ok(layout) = out.layout().view(&Dims::from_iter([1, rows, n])) else {
            // The axes of the output can't be merged: through a temporary, copied back whole.
            let layout = Layout::contiguous(*out.shape());
            let made = Tensor::allocate(op, layout, self.dtype(), &self.device())?;
            self.linear_launch(weight, bias, activation, &made)?;
            return made.copy_into_fresh(out);
        };
        let (lhs, lhs_layout) = see(self, self.layout(), [1, rows, k])?;
        let options = MatMulOptions { bias, activation, ..MatMulOptions::default() };
        let weight = (weight, weight.layout().transpose(0, 1)?.unsqueeze(0)?);
        launch(op, (&lhs, lhs_layout), weight, (out, layout), &options)
    }

    /// The inner product of two vectors.
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        check_rank("dot", "lhs", self, 1)?;
        check_rank("dot", "rhs", other, 1)?;
        self.matmul(other)
    }

    /// One axis of all elements in row-major order.
    pub fn ravel(&self) -> Result<Tensor> {
        if self.layout().is_empty() { self.reshape([0]) } else { self.reshape([INFER]) }
    }
}

pub(crate) fn check_bias(op: &'static str, input: &Tensor, bias: Option<&Tensor>, n: usize) -> Result<()> {
    let Some(bias) = bias else { return Ok(()) };
    check_device(op, input, &[bias])?;
    check_dtype(op, "bias", input.dtype(), bias)?;
    let expected: Dims = [n].into_iter().collect();
    if *bias.shape() == expected { Ok(()) } else { Err(shape_error(op, "bias", &expected, bias.shape())) }
}

/// `a b`, summed over broadcast axes to the shape of `meta`; laid out as it is where that needs no sum.
fn product_to(a: &Tensor, b: &Tensor, meta: &Meta, shape: &[usize]) -> Result<Tensor> {
    if meta.shape()[..] == *shape {
        return meta.filled(|out| a.matmul_out(b, out));
    }
    sum_to(a.matmul(b)?, meta.shape())
}

fn transposed(tensor: &Tensor) -> Result<Tensor> {
    tensor.transpose(-2, -1)
}

/// All but the last axis as one.
fn rows(tensor: &Tensor, columns: usize) -> Result<Tensor> {
    let count: usize = tensor.shape()[..tensor.rank() - 1].iter().product();
    tensor.reshape([count, columns])
}

/// Inputs a, b; any ranks that `matmul` takes.
#[derive(Debug)]
pub(crate) struct MatMul;

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn needs(&self) -> Needs {
        Needs::inputs(0b11)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let (a, b) = (context.input(0), context.input(1));
        // Vectors are matrices with an axis of size 1, which the result doesn't have.
        let (a_is_row, b_is_column) = (a.rank() == 1, b.rank() == 1);
        let a = if a_is_row { a.unsqueeze(0)? } else { a.clone() };
        let b = if b_is_column { b.unsqueeze(1)? } else { b.clone() };
        let g = if b_is_column { g.unsqueeze(-1)? } else { g.clone() };
        let g = if a_is_row { g.unsqueeze(-2)? } else { g };
        let mut results: Gradients = smallvec::smallvec![None, None];
        if context.wants(0) {
            let mut meta = *context.meta(0);
            meta.layout = *a.layout();
            let shape: Dims =
                g.shape()[..g.rank() - 1].iter().copied().chain([a.shape()[a.rank() - 1]]).collect();
            let gradient = product_to(&g, &transposed(&b)?, &meta, &shape)?;
            results[0] = Some(gradient.reshape(context.meta(0).shape())?);
        }
        if context.wants(1) {
            let mut meta = *context.meta(1);
            meta.layout = *b.layout();
            let (k, n) = (b.shape()[b.rank() - 2], b.shape()[b.rank() - 1]);
            let gradient = if b.rank() == 2 && a.rank() > 2 {
                // The batch is just more rows.
                let (a, g) = (rows(&a, k)?, rows(&g, n)?);
                product_to(&transposed(&a)?, &g, &meta, &[k, n])?
            } else {
                let shape: Dims = g.shape()[..g.rank() - 2].iter().copied().chain([k, n]).collect();
                product_to(&transposed(&a)?, &g, &meta, &shape)?
            };
            results[1] = Some(gradient.reshape(context.meta(1).shape())?);
        }
        Ok(results)
    }
}

/// Inputs c, a, b: `beta · c + alpha · a b`.
#[derive(Debug)]
pub(crate) struct AddMm {
    pub beta: f64,
    pub alpha: f64,
}

impl Op for AddMm {
    fn name(&self) -> &'static str {
        "addmm"
    }

    fn needs(&self) -> Needs {
        Needs::inputs(0b110)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let AddMm { beta, alpha } = *self;
        let (a, b) = (context.input(1), context.input(2));
        let mut results: Gradients = smallvec::smallvec![None, None, None];
        if context.wants(0) {
            results[0] = Some(match beta {
                // It doesn't count, whatever the gradient is.
                0.0 => context.meta(0).zeros()?,
                1.0 => sum_to(g.clone(), context.meta(0).shape())?,
                _ => sum_to(g.mul(beta)?, context.meta(0).shape())?,
            });
        }
        // beta 0: what the fresh memory holds doesn't count. Nor do the factors with alpha 0.
        let scaled =
            |a: &Tensor, b: &Tensor, meta: &Meta| meta.filled(|out| out.addmm_(a, b, 0.0, alpha).map(|_| ()));
        if context.wants(1) {
            results[1] = Some(scaled(g, &transposed(b)?, context.meta(1))?);
        }
        if context.wants(2) {
            results[2] = Some(scaled(&transposed(a)?, g, context.meta(2))?);
        }
        Ok(results)
    }
}

/// Inputs x [.., k], weight [n, k] and, if `bias`, bias `[n]`: `act(x weightᵀ + bias)`.
#[derive(Debug)]
pub(crate) struct Linear {
    pub bias: bool,
    pub activation: Activation,
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn needs(&self) -> Needs {
        match self.activation {
            Activation::None => Needs::inputs(0b11),
            Activation::Relu => Needs { inputs: 0b11, outputs: 0b1 },
            Activation::Gelu => Needs::inputs(0b111),
        }
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        static GELU: RaceOnce<Fused> = RaceOnce::new();
        let (x, weight) = (context.input(0), context.input(1));
        let (n, k) = (weight.shape()[0], weight.shape()[1]);
        let g = match self.activation {
            Activation::None => g.clone(),
            Activation::Relu => once!(|[g, y]| y.le(0.0).select(0.0, g)).call(&[g, context.output(0)])?,
            Activation::Gelu => {
                // In the op these sums aren't rounded to 16 bits. Here they are, so that they are a product of that dtype: the
                // slope is gelu's half a unit of the last place beside, at most, as where gelu is an op of its own. What has
                // become infinite by it has the slope of what it was.
                let inner = x.linear(weight, context.find_input(2))?;
                let gelu = GELU.get_or_init(|| {
                    let gelu = Program::record(|[x]| x.abs().ge(64.0).select(x.relu(), x.gelu()));
                    Fused::new(gelu.gradient(&[0]))
                });
                gelu.call(&[g, &inner])?
            }
        };
        let g = rows(&g, n)?;
        let mut results: Gradients = smallvec::smallvec![None; context.input_count()];
        if context.wants(0) {
            let meta = context.meta(0);
            results[0] = Some(match meta.rank() {
                2 => meta.filled(|out| g.matmul_out(weight, out))?,
                _ => g.matmul(weight)?.reshape(meta.shape())?,
            });
        }
        if context.wants(1) {
            let x = rows(x, k)?;
            results[1] = Some(context.meta(1).filled(|out| g.t()?.matmul_out(&x, out))?);
        }
        if self.bias && context.wants(2) {
            results[2] = Some(g.sum(0, false)?);
        }
        Ok(results)
    }
}
