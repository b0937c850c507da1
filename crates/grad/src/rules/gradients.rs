//! What rules yield, and what several of them need for it.

use crate::{Result, graph::Meta};
use raddle_tensor::{Dims, Result as TensorResult, Tensor};
use smallvec::SmallVec;

/// Gradients by the inputs of an op.
pub type Gradients = SmallVec<[Option<Tensor>; 4]>;

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
    Ok(summed.reshape(shape)?)
}

/// A tensor that lies as `meta` does, written by `fill`.
pub fn filled(meta: &Meta, fill: impl FnOnce(&Tensor) -> TensorResult<()>) -> Result<Tensor> {
    let tensor = meta.empty()?;
    fill(&tensor)?;
    Ok(tensor)
}
