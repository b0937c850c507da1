//! Ops that are composed of others, a file a family: what they mean, and what they refuse. Their gradients are those of their
//! parts.

mod indexing;
mod linalg;
mod order;
mod pad;
mod pointwise;
mod shape;
mod statistics;

pub use indexing::{Fold, Unique};
pub use linalg::einsum;
pub use pad::Padding;
pub use statistics::Between;

use crate::{Error, Result, Tensor};
use raddle_base::Scalar;

/// The axis from the front; a tensor without axes has one here, of size 1.
fn axis_of(op: &'static str, tensor: &Tensor, axis: isize) -> Result<usize> {
    if tensor.rank() == 0 && matches!(axis, 0 | -1) { Ok(0) } else { Ok(tensor.layout().axis(op, axis)?) }
}

/// The tensor, with an axis if it has none.
fn at_least_1d(tensor: &Tensor) -> Result<Tensor> {
    if tensor.rank() == 0 { tensor.reshape([1]) } else { Ok(tensor.clone()) }
}

fn refused(op: &'static str, what: &'static str, expected: &'static str, found: impl Into<Scalar>) -> Error {
    Error::Argument { op, what, expected, found: found.into() }
}

fn check_rank(
    op: &'static str,
    tensor: &Tensor,
    ranks: std::ops::RangeInclusive<usize>,
    expected: &'static str,
) -> Result<()> {
    match ranks.contains(&tensor.rank()) {
        true => Ok(()),
        false => Err(Error::Rank { op, what: "the tensor", expected, found: tensor.rank() }),
    }
}
