//! Gradients of ops that aren't programs: each stands beside its op, as an [`Op`].
//!
//! An op that is composed of others needs none, since each of its parts has one. This crate knows the formulas; when they are used,
//! and on what, is `grad`'s.

pub use crate::tensor::{Context, Gradients, Meta, Needs, Op};
use crate::{Dims, Result, Tensor};
use smallvec::SmallVec;

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

/// A cast to another dtype, or a copy to another device.
#[derive(Debug)]
pub(crate) struct Moved;

impl Op for Moved {
    fn name(&self) -> &'static str {
        "to"
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let meta = context.meta(0);
        only(g.to(meta.dtype)?.to(&meta.device)?.reshape(meta.shape())?)
    }
}
