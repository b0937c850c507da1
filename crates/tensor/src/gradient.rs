//! Gradients of ops that aren't programs: each stands beside its op, as an [`Op`].
//!
//! An op that is composed of others needs none, since each of its parts has one. This crate knows the formulas; when they are used,
//! and on what, is `grad`'s.

use crate::{DType, Device, Dims, Layout, Result, Tensor};
use smallvec::SmallVec;
use std::fmt::Debug;

/// An op with its attributes, as it was called, and its gradients.
pub trait Op: Debug + Send + Sync + 'static {
    /// The name for messages: that of the method.
    fn name(&self) -> &'static str;

    /// What `gradients` reads of the op's tensors.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The gradients by the inputs for `g`, that of the first output (later ones have none). One for each input that is
    /// [wanted](Context::wants); of its shape; of any dtype, to be converted to the input's. Nothing is recorded meanwhile.
    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients>;
}

/// Gradients by the inputs of an op.
pub type Gradients = SmallVec<[Option<Tensor>; 4]>;

/// Which inputs and outputs gradients are computed from, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bit `i` for input `i`.
    pub inputs: u64,
    /// Bit `i` for output `i`.
    pub outputs: u64,
}

impl Needs {
    /// Of these inputs, as bits.
    pub const fn inputs(inputs: u64) -> Needs {
        Needs { inputs, outputs: 0 }
    }

    /// Of these outputs, as bits.
    pub const fn outputs(outputs: u64) -> Needs {
        Needs { inputs: 0, outputs }
    }

    /// Is this input among them?
    pub fn input(&self, index: usize) -> bool {
        index < 64 && self.inputs >> index & 1 == 1
    }

    /// Is this output among them?
    pub fn output(&self, index: usize) -> bool {
        index < 64 && self.outputs >> index & 1 == 1
    }
}

/// What is there of the tensors of an op when its gradients are computed.
pub trait Context {
    /// How many inputs it had.
    fn input_count(&self) -> usize;
    /// Is the gradient by this input asked for?
    fn wants(&self, input: usize) -> bool;
    /// An input's shape and dtype.
    fn meta(&self, input: usize) -> &Meta;
    /// An input that may not be there, or may not have been kept.
    fn find_input(&self, input: usize) -> Option<&Tensor>;
    /// An output that the op [needs](Op::needs).
    fn output(&self, output: usize) -> &Tensor;

    /// An input that the op [needs](Op::needs).
    fn input(&self, input: usize) -> &Tensor {
        self.find_input(input).expect("the op says that it needs this input")
    }
}

/// What is known of a tensor that isn't kept.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Shape and strides.
    pub layout: Layout,
    /// Of its elements.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
}

impl Meta {
    /// Of a tensor.
    pub fn of(tensor: &Tensor) -> Meta {
        Meta { layout: *tensor.layout(), dtype: tensor.dtype(), device: tensor.device() }
    }

    /// The shape.
    pub fn shape(&self) -> &Dims {
        self.layout.shape()
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// A tensor with undefined content that lies as this one does, if this one is dense.
    pub fn empty(&self) -> Result<Tensor> {
        let layout = self.layout.preserved();
        if layout.is_contiguous() {
            return Tensor::empty(layout.shape(), self.dtype, &self.device);
        }
        let memory = Tensor::empty([layout.element_count()], self.dtype, &self.device)?;
        Ok(memory.as_strided(layout.shape(), layout.strides(), 0)?.detach())
    }

    /// The same with zeros.
    pub fn zeros(&self) -> Result<Tensor> {
        let tensor = self.empty()?;
        tensor.zero_()?;
        Ok(tensor)
    }

    /// The same, written by `fill`.
    pub fn filled<T>(&self, fill: impl FnOnce(&Tensor) -> Result<T>) -> Result<Tensor> {
        let tensor = self.empty()?;
        fill(&tensor)?;
        Ok(tensor)
    }
}

/// `gradient` summed over the axes that were broadcast from `shape`.
pub fn sum_to(gradient: Tensor, shape: &Dims) -> Result<Tensor> {
    if gradient.shape() == shape {
        return Ok(gradient);
    }
    let missing = gradient.rank() - shape.len();
    let axes: SmallVec<[isize; 8]> = (0..gradient.rank())
        .filter(|&axis| axis < missing || (shape[axis - missing] == 1 && gradient.shape()[axis] != 1))
        .map(|axis| axis as isize)
        .collect();
    let summed = if axes.is_empty() { gradient } else { gradient.sum(&axes[..], true)? };
    summed.reshape(shape)
}

/// The gradients of an op with one input.
pub(crate) fn only(gradient: Tensor) -> Result<Gradients> {
    Ok(SmallVec::from_iter([Some(gradient)]))
}

/// A closure that is recorded once in a process.
macro_rules! once {
    ($body:expr) => {{
        static FUSED: raddle_sync::Made<$crate::Fused> = raddle_sync::Made::new();
        FUSED.get_or_init(|| $crate::Fused::new($crate::Program::record($body)))
    }};
}
pub(crate) use once;
