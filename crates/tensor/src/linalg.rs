//! Products of matrices.
//!
//! All of them are one launch of [`Kernel::MatMul`] over `[b, m, k] × [b, k, n]`; what is done here is to bring operands to
//! that form by views, which costs a copy only where batch axes can't be merged.

use crate::{
    Activation, Call, DType, Dims, Error, INFER, Layout, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    pointwise::{check_device, check_disjoint, check_float, check_out},
    record::{self, Mode, Silence, TensorRefs},
};
use raddle_op::Kernel;
use raddle_runtime::Operand;
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

fn check_operands(op: &'static str, lhs: &Tensor, rhs: &Tensor) -> Result<()> {
    check_device(op, lhs, &[rhs])?;
    check_float(op, "lhs", lhs)?;
    if lhs.dtype() != rhs.dtype() {
        return Err(Error::DTypesDiffer { op, lhs: lhs.dtype(), rhs: rhs.dtype() });
    }
    Ok(())
}

fn check_rank(op: &'static str, what: &'static str, tensor: &Tensor, rank: usize) -> Result<()> {
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

/// `[b, m, k] × [b, k, n] → out [b, m, n]`, all of rank 3, nothing recorded.
fn launch(
    op: &'static str,
    lhs: &Tensor,
    rhs: &Tensor,
    out: &Tensor,
    options: &MatMulOptions<'_>,
) -> Result<()> {
    if out.layout().is_empty() {
        return Ok(());
    }
    let (beta, addend) = options.addend.map_or((0.0, None), |(beta, addend)| (beta, Some(addend)));
    // A factor of 0 means that the addend doesn't count, not even its NaN.
    let addend = addend.filter(|_| beta != 0.0);
    if lhs.shape()[2] == 0 {
        let _silence = Silence::new();
        let scaled = addend.map(|addend| addend.expand(out.shape())?.mul(beta)).transpose()?;
        out.fill_raw(raddle_base::Scalar::Int(0))?;
        if let Some(bias) = options.bias {
            out.copy_(bias)?;
        }
        match options.activation {
            Activation::None => {}
            Activation::Relu => _ = out.relu_()?,
            Activation::Gelu => _ = out.gelu_()?,
        }
        if let Some(scaled) = scaled {
            out.add_(&scaled)?;
        }
        return Ok(());
    }
    let expanded = |tensor: &Tensor| tensor.layout().broadcast_to(op, out.shape());
    let bias = options.bias.map(|bias| Ok::<_, Error>((bias, expanded(bias)?))).transpose()?;
    let addend = addend.map(|addend| Ok::<_, Error>((addend, expanded(addend)?))).transpose()?;
    let kernel = Kernel::MatMul {
        alpha: options.alpha,
        beta,
        bias: bias.is_some(),
        accumulate: addend.is_some(),
        activation: options.activation,
    };
    let mut operands: SmallVec<[Operand<'_>; 5]> = SmallVec::new();
    operands.push(out.write(out.layout()));
    operands.push(lhs.read(lhs.layout()));
    operands.push(rhs.read(rhs.layout()));
    operands.extend(bias.iter().chain(&addend).map(|(tensor, layout)| tensor.read(layout)));
    Ok(out.device().submit_named(op, &kernel, &operands)?)
}

/// Operands brought to three axes, and the shape of the result.
struct Folded {
    lhs: Tensor,
    rhs: Tensor,
    /// Of the kernel's output.
    kernel: Dims,
    /// Of the user's.
    shape: Dims,
}

fn fold(lhs: &Tensor, rhs: &Tensor) -> Result<Folded> {
    let op = "matmul";
    check_operands(op, lhs, rhs)?;
    for (what, operand) in [("lhs", lhs), ("rhs", rhs)] {
        if operand.rank() == 0 {
            return Err(Error::Rank { op, what, expected: "at least 1", found: 0 });
        }
    }
    check_inner(op, lhs, rhs)?;
    // Vectors get an axis of size 1, which isn't in the result.
    let left = if lhs.rank() == 1 { lhs.unsqueeze(0)? } else { lhs.clone() };
    let right = if rhs.rank() == 1 { rhs.unsqueeze(1)? } else { rhs.clone() };
    let (left_batch, left_size) = left.shape().split_at(left.rank() - 2);
    let (right_batch, right_size) = right.shape().split_at(right.rank() - 2);
    let (left_batch, right_batch) =
        (left_batch.iter().copied().collect::<Dims>(), right_batch.iter().copied().collect::<Dims>());
    let (m, k, n) = (left_size[0], left_size[1], right_size[1]);
    let batch = Layout::broadcast_shapes(op, &left_batch, &right_batch)?;
    let mut shape = batch;
    if lhs.rank() > 1 {
        shape.push(m);
    }
    if rhs.rank() > 1 {
        shape.push(n);
    }
    let count = batch.checked_product().unwrap_or(usize::MAX);
    // One matrix on the right: the batch of the left is just more rows.
    let rows = count.saturating_mul(m);
    let merged = left.layout().view(&[1, rows, k].into_iter().collect());
    if let Ok(layout) = merged
        && right_batch.product() == 1
    {
        let rhs = right.reshape([1, k, n])?;
        return Ok(Folded {
            lhs: left.alias(layout),
            rhs,
            kernel: [1, rows, n].into_iter().collect(),
            shape,
        });
    }
    let expand = |tensor: &Tensor, rows: usize, columns: usize| {
        let mut full = batch;
        full.push(rows);
        full.push(columns);
        tensor.expand(full)?.reshape([count, rows, columns])
    };
    let (lhs, rhs) = (expand(&left, m, k)?, expand(&right, k, n)?);
    Ok(Folded { lhs, rhs, kernel: [count, m, n].into_iter().collect(), shape })
}

impl Tensor {
    /// The product of matrices, `[.., m, k] × [.., k, n] → [.., m, n]`; the axes in front are broadcast. A vector on the left
    /// is a row, one on the right a column, and the axis of size 1 isn't in the result (two vectors: their inner product).
    /// Floats of one dtype; 16-bit floats are summed in `f32`.
    ///
    /// Errors: `matmul: inner sizes differ, lhs [2, 3] axis 1 is 3, rhs [4, 5] axis 0 is 4`, among others.
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let out = {
            let _silence = Silence::new();
            let folded = fold(self, rhs)?;
            let layout = Layout::contiguous(folded.kernel);
            let out = Tensor::allocate("matmul", layout, self.dtype(), &self.device())?;
            launch("matmul", &folded.lhs, &folded.rhs, &out, &MatMulOptions::default())?;
            out.reshaped_result(&folded.shape)?
        };
        record::fresh(&[self, rhs], &[&out], || Call::MatMul)?;
        Ok(out)
    }

    /// [`matmul`](Tensor::matmul) into `out`, of any strides.
    pub fn matmul_out(&self, rhs: &Tensor, out: &Tensor) -> Result<()> {
        let op = "matmul";
        check_operands(op, self, rhs)?;
        check_dtype(op, "the output", self.dtype(), out)?;
        let folded = {
            let _silence = Silence::new();
            fold(self, rhs)?
        };
        check_out(op, out, &folded.shape, &self.device())?;
        check_disjoint(op, out, &[self, rhs])?;
        record::written(
            Mode::Out,
            &[self, rhs],
            &[out],
            || Call::MatMul,
            || {
                let options = MatMulOptions::default();
                match out.layout().view(&folded.kernel) {
                    Ok(layout) => launch(op, &folded.lhs, &folded.rhs, &out.detach().alias(layout), &options),
                    // The axes of the output can't be merged: through a temporary, copied back whole.
                    Err(_) => {
                        let _silence = Silence::new();
                        let made = Tensor::allocate(
                            op,
                            Layout::contiguous(folded.kernel),
                            self.dtype(),
                            &self.device(),
                        )?;
                        launch(op, &folded.lhs, &folded.rhs, &made, &options)?;
                        made.reshaped_result(&folded.shape)?.copy_into_fresh(out)
                    }
                }
            },
        )
    }

    /// A fresh, contiguous result under its final shape, which is not a view of anything.
    fn reshaped_result(self, shape: &Dims) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self);
        }
        Ok(self.alias(self.layout().view(shape)?).detach())
    }

    /// The product of stacks of matrices, `[b, m, k] × [b, k, n] → [b, m, n]`, without broadcasting.
    pub fn bmm(&self, rhs: &Tensor) -> Result<Tensor> {
        let op = "bmm";
        check_rank(op, "lhs", self, 3)?;
        check_rank(op, "rhs", rhs, 3)?;
        check_inner(op, self, rhs)?;
        if self.shape()[0] != rhs.shape()[0] {
            let mut expected = *rhs.shape();
            expected[0] = self.shape()[0];
            return Err(shape_error(op, "rhs", &expected, rhs.shape()));
        }
        self.matmul(rhs)
    }

    /// The product of two matrices, `[m, k] × [k, n] → [m, n]`.
    pub fn mm(&self, rhs: &Tensor) -> Result<Tensor> {
        check_rank("mm", "lhs", self, 2)?;
        check_rank("mm", "rhs", rhs, 2)?;
        self.matmul(rhs)
    }

    /// `beta · self + alpha · a b`, with `a` [m, k], `b` [k, n], and `self` broadcast to [m, n]. With `beta` 0 what `self`
    /// holds doesn't count, not even NaN.
    pub fn addmm(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        let op = "addmm";
        let shape = self.check_addmm(a, b)?;
        let out = Tensor::allocate(op, Layout::contiguous(shape), self.dtype(), &self.device())?;
        self.addmm_launch(a, b, beta, alpha, &out)?;
        record::fresh(&[self, a, b], &[&out], || Call::AddMm { beta, alpha })?;
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
        let call = || Call::AddMm { beta, alpha };
        record::written(mode, &[self, a, b], &[out], call, || self.addmm_launch(a, b, beta, alpha, out))
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
        let _silence = Silence::new();
        let stack = |tensor: &Tensor| tensor.unsqueeze(0);
        let options = MatMulOptions { alpha, addend: Some((beta, self)), ..MatMulOptions::default() };
        launch("addmm", &stack(a)?, &stack(b)?, &stack(out)?, &options)
    }

    /// `x weightᵀ + bias`: `self` is [.., k], `weight` [n, k], `bias` [n]; the result [.., n].
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.linear_with(weight, bias, Activation::None)
    }

    /// [`linear`](Tensor::linear) with an activation in the same launch.
    pub fn linear_with(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        activation: Activation,
    ) -> Result<Tensor> {
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
        let out = {
            let _silence = Silence::new();
            let rows = shape[..shape.len() - 1].iter().product::<usize>();
            let out = Tensor::allocate(
                op,
                Layout::contiguous([1, rows, n].into_iter().collect()),
                self.dtype(),
                &self.device(),
            )?;
            let rhs = weight.transpose(0, 1)?.unsqueeze(0)?;
            let options = MatMulOptions { bias, activation, ..MatMulOptions::default() };
            launch(op, &self.reshape([1, rows, k])?, &rhs, &out, &options)?;
            out.reshaped_result(&shape)?
        };
        let mut inputs = TensorRefs::from_slice(&[self, weight]);
        inputs.extend(bias);
        record::fresh(&inputs, &[&out], || Call::Linear { bias: bias.is_some(), activation })?;
        Ok(out)
    }

    /// [`linear`](Tensor::linear) of rows that are mostly zero, given by their few entries: `self` [b, k] holds values and
    /// `index` [b, k] (i64) their columns, `weight` is [n, h], `bias` [n]; the result [b, n] is
    /// `Σ_j values[b, j] · weight[:, index[b, j]] + bias`.
    ///
    /// Errors at the result's first use: an index that isn't a column of `weight`.
    pub fn sparse_linear(&self, index: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let op = "sparse_linear";
        check_operands(op, self, weight)?;
        check_device(op, self, &[index])?;
        check_rank(op, "values", self, 2)?;
        check_rank(op, "weight", weight, 2)?;
        check_dtype(op, "index", DType::I64, index)?;
        if index.shape() != self.shape() {
            return Err(shape_error(op, "index", self.shape(), index.shape()));
        }
        let n = weight.shape()[0];
        check_bias(op, self, bias, n)?;
        let shape: Dims = [self.shape()[0], n].into_iter().collect();
        let out = Tensor::allocate(op, Layout::contiguous(shape), self.dtype(), &self.device())?;
        if self.layout().is_empty() && !out.layout().is_empty() {
            let _silence = Silence::new();
            match bias {
                Some(bias) => _ = out.copy_(bias)?,
                None => out.fill_raw(raddle_base::Scalar::Int(0))?,
            }
        } else if !out.layout().is_empty() {
            let bias = bias
                .map(|bias| Ok::<_, Error>((bias, bias.layout().broadcast_to(op, &shape)?)))
                .transpose()?;
            let mut operands: SmallVec<[Operand<'_>; 5]> = SmallVec::new();
            operands.push(out.write(out.layout()));
            operands.extend([self, index, weight].map(|tensor| tensor.read(tensor.layout())));
            operands.extend(bias.iter().map(|(bias, layout)| bias.read(layout)));
            let kernel = Kernel::SparseMatMul { bias: bias.is_some() };
            self.device().submit_named(op, &kernel, &operands)?;
        }
        let mut inputs = TensorRefs::from_slice(&[self, index, weight]);
        inputs.extend(bias);
        record::fresh(&inputs, &[&out], || Call::SparseLinear { bias: bias.is_some() })?;
        Ok(out)
    }

    /// The gradients of [`sparse_linear`](Tensor::sparse_linear) by values and weight for the gradient `self` [b, n] of its
    /// result. That of the weight is dense; the one by the bias is the sum of `self` over its rows. Not recorded.
    pub fn sparse_linear_backward(
        &self,
        values: &Tensor,
        index: &Tensor,
        weight: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let op = "sparse_linear_backward";
        check_operands(op, self, weight)?;
        check_device(op, self, &[values, index])?;
        check_dtype(op, "values", self.dtype(), values)?;
        check_dtype(op, "index", DType::I64, index)?;
        for (what, tensor) in [("the gradient", self), ("values", values), ("weight", weight)] {
            check_rank(op, what, tensor, 2)?;
        }
        let expected: Dims = [values.shape()[0], weight.shape()[0]].into_iter().collect();
        if *self.shape() != expected {
            return Err(shape_error(op, "the gradient", &expected, self.shape()));
        }
        if index.shape() != values.shape() {
            return Err(shape_error(op, "index", values.shape(), index.shape()));
        }
        let _silence = Silence::new();
        let dvalues = values.zeros_like()?;
        let dweight = weight.zeros_like()?;
        if !values.layout().is_empty() && !weight.layout().is_empty() {
            let mut operands: SmallVec<[Operand<'_>; 6]> = SmallVec::new();
            operands.extend([&dvalues, &dweight].map(|tensor| tensor.write(tensor.layout())));
            operands.extend([self, values, index, weight].map(|tensor| tensor.read(tensor.layout())));
            self.device().submit_named(op, &Kernel::SparseMatMulBackward, &operands)?;
        }
        Ok((dvalues, dweight))
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

fn check_bias(op: &'static str, input: &Tensor, bias: Option<&Tensor>, n: usize) -> Result<()> {
    let Some(bias) = bias else { return Ok(()) };
    check_device(op, input, &[bias])?;
    check_dtype(op, "bias", input.dtype(), bias)?;
    let expected: Dims = [n].into_iter().collect();
    if *bias.shape() == expected { Ok(()) } else { Err(shape_error(op, "bias", &expected, bias.shape())) }
}
