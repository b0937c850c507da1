//! What pointwise ops take.

use crate::Tensor;
use raddle_base::Scalar;

/// An operand of a pointwise op: a tensor or a number.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    /// A tensor, broadcast as needed.
    Tensor(&'a Tensor),
    /// A number; in promotion it counts by its kind only.
    ///
    /// It must be one of the dtype's that it meets, here as wherever a number is given for elements (`full`, `fill_`, `arange`):
    /// beside integers one of their range, of which -255 to -1 wrap beside `u8`; a float that is made an integer loses its
    /// fraction, and is within the range then (of `u8` not below 0). Floats take every number, past their range as an
    /// infinity, and bools as well: what isn't 0 is true.
    ///
    /// Two kinds of op take numbers that the dtype lacks: comparisons and logic, which take them as they are (PyTorch wraps
    /// them), and bounds (`clamp` and its like, `minimum`, `maximum`), of which those that all integers of the dtype keep are
    /// none. Beside 16-bit floats a number is rounded to `f32`, in comparisons to the tensor's dtype.
    Scalar(Scalar),
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Arg<'a> {
        Arg::Tensor(tensor)
    }
}

macro_rules! from_number {
    ($($t:ty),*) => { $(
        impl From<$t> for Arg<'_> {
            fn from(value: $t) -> Self { Arg::Scalar(value.into()) }
        }
    )* };
}
from_number!(bool, i64, i32, u8, f64, f32, raddle_base::f16, raddle_base::bf16, Scalar);
