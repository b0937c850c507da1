//! Order: `sort`, `argsort`, `topk`.

use crate::{
    Call, DType, Dims, Error, Layout, Result, Tensor,
    create::check_dtype,
    gradient::{Context, Gradients, Needs, Op, only},
    pointwise::{check_disjoint, check_out},
    record::{self, Mode},
    reduce::spread,
};
use raddle_base::Scalar;
use raddle_op::Kernel;

impl Tensor {
    /// Values in order along an axis, and where they stood (i64).
    ///
    /// NaN counts as the largest: it comes last, if `descending` first. Stable: equal elements (−0 equals 0, and all NaN are
    /// equal) keep their order, also if `descending`. The gradient of each value goes to the element that it was.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let axis = self.sort_axis("sort", axis)?;
        self.sorted("sort", axis, *self.shape(), &Kernel::Sort { axis, descending })
    }

    /// The indices (i64) that sort along an axis, in the order of [`sort`](Tensor::sort): NaN is the largest, and equal elements
    /// keep their order.
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Tensor> {
        Ok(self.detach().sort(axis, descending)?.1)
    }

    /// [`argsort`](Tensor::argsort) into `out` (i64).
    pub fn argsort_out(&self, axis: isize, descending: bool, out: &Tensor) -> Result<()> {
        let op = "argsort";
        check_dtype(op, "the output", DType::I64, out)?;
        check_out(op, out, self.shape(), &self.device())?;
        check_disjoint(op, out, &[self])?;
        out.copy_(&self.argsort(axis, descending)?).map(drop)
    }

    /// [`sort`](Tensor::sort) into `out`: values and indices.
    pub fn sort_out(&self, axis: isize, descending: bool, out: (&Tensor, &Tensor)) -> Result<()> {
        let axis = self.sort_axis("sort", axis)?;
        self.sorted_out("sort", axis, *self.shape(), &Kernel::Sort { axis, descending }, out)
    }

    /// The `k` largest (or smallest) along an axis in order, largest (smallest) first, and where they stand (i64).
    ///
    /// NaN counts as the largest. Of equal elements the one of lower index comes first, and stays if not all do; PyTorch leaves
    /// that open. The gradient of each value goes to the element that it was.
    ///
    /// Errors: `k` is more than the size of the axis.
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        let (axis, shape) = self.topk_shape(k, axis)?;
        self.sorted("topk", axis, shape, &Kernel::TopK { axis, k, largest })
    }

    /// [`topk`](Tensor::topk) into `out`: values and indices.
    pub fn topk_out(&self, k: usize, axis: isize, largest: bool, out: (&Tensor, &Tensor)) -> Result<()> {
        let (axis, shape) = self.topk_shape(k, axis)?;
        self.sorted_out("topk", axis, shape, &Kernel::TopK { axis, k, largest }, out)
    }

    fn topk_shape(&self, k: usize, axis: isize) -> Result<(usize, Dims)> {
        let axis = self.sort_axis("topk", axis)?;
        let mut shape = *self.shape();
        if self.rank() == 0 && k != 1 {
            let found = Scalar::Int(i64::try_from(k).unwrap_or(i64::MAX));
            return Err(Error::Argument {
                op: "topk",
                what: "k",
                expected: "1, as there are no axes",
                found,
            });
        }
        if k > shape.get(axis).copied().unwrap_or(1) {
            let found = Scalar::Int(i64::try_from(k).unwrap_or(i64::MAX));
            let expected = "at most the size of the axis";
            return Err(Error::Argument { op: "topk", what: "k", expected, found });
        }
        if self.rank() > 0 {
            shape[axis] = k;
        }
        Ok((axis, shape))
    }

    /// A tensor without axes has one of size 1 here.
    fn sort_axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        if self.rank() == 0 && matches!(axis, 0 | -1) { Ok(0) } else { Ok(self.layout().axis(op, axis)?) }
    }

    fn sorted(
        &self,
        op: &'static str,
        axis: usize,
        shape: Dims,
        kernel: &Kernel,
    ) -> Result<(Tensor, Tensor)> {
        let layout = Layout::contiguous(shape);
        let values = Tensor::allocate(op, layout, self.dtype(), &self.device())?;
        let indices = Tensor::allocate(op, layout, DType::I64, &self.device())?;
        let call = || match self.rank() {
            0 => Call::op(crate::gradient::Moved), // Without axes there is nothing to gather from.
            _ => Call::op(Sort { axis }),
        };
        let run = || self.sort_launch(op, kernel, (&values, &indices));
        record::fresh(&[self], &[&values, &indices], call, run)?;
        Ok((values, indices))
    }

    fn sorted_out(
        &self,
        op: &'static str,
        axis: usize,
        shape: Dims,
        kernel: &Kernel,
        (values, indices): (&Tensor, &Tensor),
    ) -> Result<()> {
        check_dtype(op, "the output of values", self.dtype(), values)?;
        check_dtype(op, "the output of indices", DType::I64, indices)?;
        for out in [values, indices] {
            check_out(op, out, &shape, &self.device())?;
            check_disjoint(op, out, &[self])?;
        }
        check_disjoint(op, values, &[indices])?;
        let run = || self.sort_launch(op, kernel, (values, indices));
        record::op(Mode::Out, &[self], &[values, indices], || Call::op(Sort { axis }), run)
    }

    fn sort_launch(
        &self,
        op: &'static str,
        kernel: &Kernel,
        (values, indices): (&Tensor, &Tensor),
    ) -> Result<()> {
        if values.layout().is_empty() {
            return Ok(());
        }
        if self.rank() == 0 {
            self.detach().copy_into_fresh(values)?;
            return indices.fill_raw(Scalar::Int(0));
        }
        let operands =
            [values.write(values.layout()), indices.write(indices.layout()), self.read(self.layout())];
        Ok(self.device().submit_named(op, kernel, &operands)?)
    }
}

/// Outputs: values and indices of `sort` or `topk`.
#[derive(Debug)]
pub(crate) struct Sort {
    pub axis: usize,
}

impl Op for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn needs(&self) -> Needs {
        Needs::outputs(0b10)
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        only(spread(context.meta(0), self.axis, context.output(1), g)?)
    }
}
