//! Several tensors into one: one launch, whatever their number.

use crate::{
    Arg, Call, Dims, Error, Layout, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    gradient::{Context, Gradients, Op},
    pointwise::{check_device, check_disjoint, check_out, check_rank},
    record::{self, Mode, refs},
    result_type,
};
use raddle_base::Scalar;
use raddle_op::{Kernel, PARAM_COUNT_MAX, Pointwise};
use raddle_runtime::Operand;
use std::borrow::Borrow;

impl Tensor {
    /// The tensors one after the other along an axis. They agree in all other axes; dtypes are promoted. Tensors of shape
    /// `[0]` add nothing, whatever the others are, as in PyTorch. The list is of tensors or of references to some.
    ///
    /// ```
    /// # use raddle_tensor::{DType, Device, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// # let device = Device::open(Box::new(raddle_cpu::Cpu::new()))?;
    /// let x = Tensor::arange(0, 6, 1, DType::F32, &device)?.reshape([2, 3])?;
    /// let halves = x.split(2, 1)?; // [2, 2] and [2, 1]
    /// assert_eq!(**Tensor::cat(&halves, 1)?.shape(), [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cat<T: Borrow<Tensor>>(tensors: &[T], axis: isize) -> Result<Tensor> {
        let op = "cat";
        let tensors = &refs(tensors)[..];
        let (axis, shape) = cat_shape(tensors, axis)?;
        let args: Vec<Arg<'_>> = tensors.iter().map(|tensor| Arg::Tensor(tensor)).collect();
        let device = tensors[0].device();
        let out = Tensor::allocate(op, Layout::contiguous(shape), result_type(&args), &device)?;
        record::fresh(tensors, &[&out], || Call::op(Cat { axis }), || cat_launch(tensors, axis, &out))?;
        Ok(out)
    }

    /// [`cat`](Tensor::cat) into `out`.
    pub fn cat_out<T: Borrow<Tensor>>(tensors: &[T], axis: isize, out: &Tensor) -> Result<()> {
        let op = "cat";
        let tensors = &refs(tensors)[..];
        let (axis, shape) = cat_shape(tensors, axis)?;
        let args: Vec<Arg<'_>> = tensors.iter().map(|tensor| Arg::Tensor(tensor)).collect();
        check_dtype(op, "the output", result_type(&args), out)?;
        check_out(op, out, &shape, &tensors[0].device())?;
        check_disjoint(op, out, tensors)?;
        record::op(Mode::Out, tensors, &[out], || Call::op(Cat { axis }), || cat_launch(tensors, axis, out))
    }

    /// The tensors, which have one shape, along a new axis. The list as in [`cat`](Tensor::cat).
    pub fn stack<T: Borrow<Tensor>>(tensors: &[T], axis: isize) -> Result<Tensor> {
        let (parts, axis) = stack_parts(&refs(tensors), axis)?;
        Tensor::cat(&parts, axis)
    }

    /// [`stack`](Tensor::stack) into `out`.
    pub fn stack_out<T: Borrow<Tensor>>(tensors: &[T], axis: isize, out: &Tensor) -> Result<()> {
        let (parts, axis) = stack_parts(&refs(tensors), axis)?;
        Tensor::cat_out(&parts, axis, out)
    }
}

/// The tensors with the new axis, and which axis it is.
fn stack_parts(tensors: &[&Tensor], axis: isize) -> Result<(Vec<Tensor>, isize)> {
    let op = "stack";
    if let Some((first, rest)) = tensors.split_first() {
        check_rank(op, first, 1)?;
        if let Some(other) = rest.iter().find(|other| other.shape() != first.shape()) {
            return Err(shape_error(op, "a tensor", first.shape(), other.shape()));
        }
    }
    let parts = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<_>>()?;
    let axis =
        if axis < 0 { axis + tensors.first().map_or(0, |first| first.rank() as isize + 1) } else { axis };
    Ok((parts, axis))
}

/// PyTorch's old exception: an empty tensor of one axis goes with anything.
fn is_skipped(tensor: &Tensor) -> bool {
    **tensor.shape() == [0]
}

fn cat_shape(tensors: &[&Tensor], axis: isize) -> Result<(usize, Dims)> {
    let op = "cat";
    let Some((first, rest)) = tensors.split_first() else {
        return Err(Error::TensorCount { op, expected: "at least 1", found: 0 });
    };
    check_device(op, first, rest)?;
    let model = tensors.iter().find(|tensor| !is_skipped(tensor)).unwrap_or(first);
    if model.rank() == 0 {
        return Err(Error::Rank { op, what: "a tensor", expected: "at least 1", found: 0 });
    }
    let axis = model.layout().axis(op, axis)?;
    let mut shape = *model.shape();
    let mut length = 0usize;
    for tensor in tensors.iter().filter(|tensor| !is_skipped(tensor)) {
        if tensor.rank() != model.rank() {
            let expected = "as many as the other tensors";
            return Err(Error::Rank { op, what: "a tensor", expected, found: tensor.rank() });
        }
        let mut expected = *model.shape();
        expected[axis] = tensor.shape()[axis];
        if *tensor.shape() != expected {
            return Err(shape_error(op, "a tensor", &expected, tensor.shape()));
        }
        length = length.saturating_add(tensor.shape()[axis]);
    }
    shape[axis] = length;
    Ok((axis, shape))
}

fn cat_launch(tensors: &[&Tensor], axis: usize, out: &Tensor) -> Result<()> {
    let mut start = 0;
    let mut parts = Vec::with_capacity(tensors.len());
    for tensor in tensors.iter().filter(|tensor| !is_skipped(tensor)) {
        let length = tensor.shape()[axis];
        if !tensor.layout().is_empty() {
            parts.push((out.layout().narrow(axis as isize, start, length)?, *tensor));
        }
        start += length;
    }
    if parts.is_empty() {
        return Ok(());
    }
    let operands: Vec<Operand<'_>> =
        parts.iter().flat_map(|(part, tensor)| [out.write(part), tensor.read(tensor.layout())]).collect();
    let kernel = Kernel::Pointwise {
        program: Pointwise::copy.into(),
        compute: out.dtype().compute(),
        params: [Scalar::Int(0); PARAM_COUNT_MAX],
        groups: parts.len(),
    };
    Ok(out.device().submit_named("cat", &kernel, &operands)?)
}

/// The inputs one after the other.
#[derive(Debug)]
pub(crate) struct Cat {
    pub axis: usize,
}

impl Op for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let mut start = 0;
        let mut results = Gradients::new();
        for input in 0..context.input_count() {
            let meta = context.meta(input);
            // A tensor of shape [0] goes with any others, and is nowhere among them.
            let length = meta.shape().get(self.axis).copied().unwrap_or(0);
            let part = || match **meta.shape() {
                [0] => meta.zeros(),
                _ => g.narrow(self.axis as isize, start, length),
            };
            results.push(context.wants(input).then(part).transpose()?);
            start += length;
        }
        Ok(results)
    }
}
