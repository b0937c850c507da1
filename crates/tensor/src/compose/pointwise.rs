//! Pointwise ops that need no row: they are composed of those that have one.

use crate::{
    Arg, Error, Fused, Pointwise, Result, Tensor, fused,
    pointwise::{check_float, pointwise_into},
    record::Mode,
};

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
                let args = [Arg::Tensor(mask), Arg::Tensor(value), Arg::Tensor(self)];
                pointwise_into(Pointwise::where_, &args, &[], self, Mode::InPlace)?;
                Ok(self)
            }
        }
    }

    /// Rounded to so many decimals (of negative ones: to tens, hundreds, …), halves to the even digit. Of floats.
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        rounding(self, decimals)?.call(&[self])
    }

    /// [`round_to`](Tensor::round_to) in place.
    pub fn round_to_(&self, decimals: i32) -> Result<&Tensor> {
        self.round_to_out(decimals, self)?;
        Ok(self)
    }

    /// [`round_to`](Tensor::round_to) into `out`.
    pub fn round_to_out(&self, decimals: i32, out: &Tensor) -> Result<()> {
        rounding(self, decimals)?.call_out(&[self], out)
    }
}

fn rounding(tensor: &Tensor, decimals: i32) -> Result<Fused> {
    check_float("round", "the tensor", tensor)?;
    // A power of ten and its inverse aren't both exact: the one that is.
    let power = 10f64.powi(decimals.abs());
    Ok(match decimals < 0 {
        true => fused(move |[x]| (x / power).round() * power),
        false => fused(move |[x]| (x * power).round() / power),
    })
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
