//! Products of matrices of which one is given by its few entries a row.

use crate::{
    Call, DType, Dims, Error, Layout, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    gradient::{Context, Gradients, Needs, Op},
    linalg::{check_bias, check_operands, check_rank},
    pointwise::{check_device, check_float},
    record::{self, Silence, TensorRefs},
};
use raddle_base::Scalar;
use raddle_op::Kernel;
use raddle_runtime::Operand;
use smallvec::SmallVec;

impl Tensor {
    /// [`linear`](Tensor::linear) of rows that are mostly zero, given by their few entries: `self` [b, k] holds values and
    /// `index` [b, k] (i64) their columns, `weight` is [n, h], `bias` `[n]`; the result [b, n] is
    /// `Σ_j values[b, j] · weight[:, index[b, j]] + bias`.
    ///
    /// Errors at the result's first use: an index that isn't a column of `weight`.
    pub fn sparse_linear(&self, index: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let op = "sparse_linear";
        check_float(op, "values", self)?;
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
        let run = || {
            if out.layout().is_empty() {
                return Ok(());
            }
            if self.layout().is_empty() {
                let _silence = Silence::new();
                return match bias {
                    Some(bias) => out.copy_(bias).map(drop),
                    None => out.fill_raw(Scalar::Int(0)),
                };
            }
            let bias = bias
                .map(|bias| Ok::<_, Error>((bias, bias.layout().broadcast_to(op, &shape)?)))
                .transpose()?;
            let mut operands: SmallVec<[Operand<'_>; 5]> = SmallVec::new();
            operands.push(out.write(out.layout()));
            operands.extend([self, index, weight].map(|tensor| tensor.read(tensor.layout())));
            operands.extend(bias.iter().map(|(bias, layout)| bias.read(layout)));
            let kernel = Kernel::SparseMatMul { bias: bias.is_some() };
            Ok(self.device().submit_named(op, &kernel, &operands)?)
        };
        let mut inputs = TensorRefs::from_slice(&[self, index, weight]);
        inputs.extend(bias);
        record::fresh(&inputs, &[&out], || Call::op(SparseLinear { bias: bias.is_some() }), run)?;
        Ok(out)
    }

    /// The gradient of [`sparse_linear`](Tensor::sparse_linear) by its values [b, k] for the gradient `self` [b, n] of its result:
    /// `dvalues[b, j] = self[b, :] · weight[:, index[b, j]]`. Not recorded.
    pub fn sparse_linear_by_values(&self, index: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let op = "sparse_linear_by_values";
        check_float(op, "the gradient", self)?;
        check_operands(op, self, weight)?;
        self.check_sparse(op, index, weight)?;
        let _silence = Silence::new();
        if index.layout().is_empty() || weight.layout().is_empty() {
            return Tensor::zeros(index.shape(), self.dtype(), &self.device());
        }
        let dvalues = Tensor::empty(index.shape(), self.dtype(), &self.device())?;
        let [dy, index, weight] = [self, index, weight].map(|tensor| tensor.read(tensor.layout()));
        let operands = [dvalues.write(dvalues.layout()), dy, index, weight];
        self.device().submit_named(op, &Kernel::SparseMatMulByValues, &operands)?;
        Ok(dvalues)
    }

    /// The gradient of [`sparse_linear`](Tensor::sparse_linear) by its weight [n, h] for the gradient `self` [b, n] of its
    /// result: of column `c` the sum of `values[b, j] · self[b, :]` where `index[b, j]` is `c`. It is dense, with the shape and
    /// the layout of `weight`, of whose elements none is read. The gradient by the bias is the sum of `self` over its rows.
    /// Not recorded.
    pub fn sparse_linear_by_weight(
        &self,
        values: &Tensor,
        index: &Tensor,
        weight: &Tensor,
    ) -> Result<Tensor> {
        let op = "sparse_linear_by_weight";
        check_float(op, "the gradient", self)?;
        check_operands(op, self, weight)?;
        check_device(op, self, &[values])?;
        check_dtype(op, "values", self.dtype(), values)?;
        check_rank(op, "values", values, 2)?;
        if index.shape() != values.shape() {
            return Err(shape_error(op, "index", values.shape(), index.shape()));
        }
        self.check_sparse(op, index, weight)?;
        let _silence = Silence::new();
        let dweight = weight.zeros_like()?;
        if !values.layout().is_empty() && !weight.layout().is_empty() {
            let [dy, values, index] = [self, values, index].map(|tensor| tensor.read(tensor.layout()));
            let operands = [dweight.write(dweight.layout()), dy, values, index];
            self.device().submit_named(op, &Kernel::SparseMatMulByWeight, &operands)?;
        }
        Ok(dweight)
    }

    /// Is it the gradient of a sparse product of these?
    fn check_sparse(&self, op: &'static str, index: &Tensor, weight: &Tensor) -> Result<()> {
        check_device(op, self, &[index])?;
        check_dtype(op, "index", DType::I64, index)?;
        for (what, tensor) in [("the gradient", self), ("index", index), ("weight", weight)] {
            check_rank(op, what, tensor, 2)?;
        }
        let expected: Dims = [index.shape()[0], weight.shape()[0]].into_iter().collect();
        if *self.shape() == expected {
            Ok(())
        } else {
            Err(shape_error(op, "the gradient", &expected, self.shape()))
        }
    }
}

/// Inputs values [b, k], index [b, k], weight [n, h] and, if `bias`, bias `[n]`.
#[derive(Debug)]
pub(crate) struct SparseLinear {
    pub bias: bool,
}

impl Op for SparseLinear {
    fn name(&self) -> &'static str {
        "sparse_linear"
    }

    fn needs(&self) -> Needs {
        Needs::inputs(0b111)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let mut results: Gradients = smallvec::smallvec![None; context.input_count()];
        let [values, index, weight] = [0, 1, 2].map(|input| context.input(input));
        if context.wants(0) {
            results[0] = Some(g.sparse_linear_by_values(index, weight)?);
        }
        if context.wants(2) {
            results[2] = Some(g.sparse_linear_by_weight(values, index, weight)?);
        }
        if self.bias && context.wants(3) {
            results[3] = Some(g.sum(0, false)?);
        }
        Ok(results)
    }
}
