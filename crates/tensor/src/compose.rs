//! Pointwise ops that need no row: they are composed of those that have one.

use crate::{Arg, Error, Fused, Program, Result, Tensor, pointwise::check_float};

impl Tensor {
    /// [`masked_fill`](Tensor::masked_fill) with a number or with a tensor without axes, which is read on the device.
    ///
    /// Errors: a tensor with axes; one whose dtype isn't kept by that of `self`.
    pub fn masked_fill_with<'a>(&self, mask: &Tensor, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        match value.into() {
            Arg::Scalar(value) => self.masked_fill(mask, value),
            Arg::Tensor(value) => {
                check_filling(self, value)?;
                mask.where_(value, self)
            }
        }
    }

    /// [`masked_fill_with`](Tensor::masked_fill_with) in place.
    pub fn masked_fill_with_<'a>(&self, mask: &Tensor, value: impl Into<Arg<'a>>) -> Result<&Tensor> {
        match value.into() {
            Arg::Scalar(value) => self.masked_fill_(mask, value),
            Arg::Tensor(value) => {
                check_filling(self, value)?;
                // Before anything is written: a mask that is larger can't fill this one.
                mask.layout().broadcast_to("masked_fill", self.shape())?;
                self.copy_(&mask.where_(value, self)?)
            }
        }
    }

    /// Rounded to so many decimals (of negative ones: to tens, hundreds, …), halves to the even digit. Of floats.
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        check_float("round", "the tensor", self)?;
        // A power of ten and its inverse aren't both exact: the one that is.
        let power = 10f64.powi(decimals.abs());
        let program = match decimals < 0 {
            true => Program::record(move |[x]| (x / power).round() * power),
            false => Program::record(move |[x]| (x * power).round() / power),
        };
        Fused::new(program).call(&[self])
    }
}

/// Can `value` fill parts of `tensor`?
fn check_filling(tensor: &Tensor, value: &Tensor) -> Result<()> {
    let op = "masked_fill";
    if value.rank() > 0 {
        return Err(Error::Rank { op, what: "the value", expected: "0", found: value.rank() });
    }
    match value.dtype().kind() > tensor.dtype().kind() {
        true => Err(Error::Cast { op, from: value.dtype(), to: tensor.dtype() }),
        false => Ok(()),
    }
}
