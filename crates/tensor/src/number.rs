//! The one rule for numbers that meet a dtype.
//!
//! A number that becomes an element, or stands for one, is made one of the dtype by [`fit`] or is an error. Nowhere is it cut to
//! the nearest or wrapped, as a *cast of a tensor* does. Where PyTorch agrees with itself this is its rule ("value cannot be
//! converted without overflow"):
//!
//! - `bool` takes every number: what isn't 0 is true, NaN as well.
//! - Integers take those of their range and, of floats, those that are in it once the fraction is cut off. `u8` takes the
//!   integers −255 to −1, too, which wrap; of floats none below 0. NaN and infinities are errors.
//! - Floats take every number, rounded; past their range it is infinite. (PyTorch refuses that in some of its ops.)
//!
//! Three places take numbers that the dtype lacks, since they have an answer for each: comparisons and logic, bounds
//! ([`fit_bound`]), and the literals of fused closures ([`wide_for`]). They use the number as it is.

use crate::{DType, Error, Result};
use raddle_base::Scalar;
use raddle_sync::fault;

/// The integer that a number is, if it is an `i64`.
pub(crate) fn whole(number: f64) -> Option<i64> {
    const END: f64 = -(i64::MIN as f64);
    (number.fract() == 0.0 && (-END..END).contains(&number)).then_some(number as i64)
}

/// Is it a number of the dtype as it stands, without rounding, cutting or wrapping? Of floats all are.
pub(crate) fn is_held(value: Scalar, dtype: DType) -> bool {
    let integer = match value {
        Scalar::Float(value) if !dtype.is_float() => whole(value),
        other => Some(other.to_i64()),
    };
    match (dtype, dtype.integer_range()) {
        (DType::Bool, _) => matches!(integer, Some(0 | 1)),
        (_, Some((least, most))) => integer.is_some_and(|integer| (least..=most).contains(&integer)),
        _ => true,
    }
}

/// The number as one of the dtype, for `what` of an op: the one rule for numbers that meet a dtype. `bool` takes every number,
/// floats every one, rounded; integers take those of their range and, of floats, those in it once the fraction is cut off; `u8`
/// takes the integers −255 to −1 as well, which wrap.
///
/// Errors: a number that the dtype lacks.
pub fn fit(op: &'static str, what: &'static str, value: Scalar, dtype: DType) -> Result<Scalar> {
    if fault!(number_is_cut) {
        return Ok(value);
    }
    let Some((least, most)) = dtype.integer_range() else {
        return Ok(if dtype == DType::Bool { Scalar::Bool(value.to_bool()) } else { value });
    };
    let fitted = match value {
        // One behind the largest is a float, the largest needn't be.
        Scalar::Float(value) => (value >= least as f64 && value < -(i64::MIN as f64) && value as i64 <= most)
            .then_some(value as i64),
        other => Some(other.to_i64()).filter(|integer| (least..=most).contains(integer)),
    };
    let wrapped = || match value {
        Scalar::Int(value @ -255..=-1) if dtype == DType::U8 => Some(value + 256),
        _ => None,
    };
    fitted.or_else(wrapped).map(Scalar::Int).ok_or_else(|| lacks(op, what, dtype, value))
}

fn lacks(op: &'static str, what: &'static str, dtype: DType, found: Scalar) -> Error {
    Error::Argument { op, what, expected: dtype.fitting(), found }
}

/// A factor of integers: one of them, without a fraction.
pub(crate) fn fit_factor(op: &'static str, what: &'static str, factor: f64, dtype: DType) -> Result<i64> {
    let Some(integer) = whole(factor) else {
        let expected = "an integer, as the tensors are";
        return Err(Error::Argument { op, what, expected, found: Scalar::Float(factor) });
    };
    Ok(fit(op, what, Scalar::Int(integer), dtype)?.to_i64())
}

/// Which side of the results a number bounds.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Below,
    Above,
}

/// A bound of integers as one of them. Past the end of their range at its own side it bounds nothing, and past the other one no
/// integer keeps it, which is an error.
pub(crate) fn fit_bound(op: &'static str, value: Scalar, side: Side, dtype: DType) -> Result<Scalar> {
    match (value, side, dtype.integer_range()) {
        (Scalar::Int(number), Side::Below, Some((least, _))) if number < least => Ok(Scalar::Int(least)),
        (Scalar::Int(number), Side::Above, Some((_, most))) if number > most => Ok(Scalar::Int(most)),
        _ if is_held(value, dtype) => Ok(value),
        _ => Err(lacks(op, "the number", dtype, value)),
    }
}

/// The dtype to compute in, so that all of `numbers` are what they are: `dtype`, or `i64` if it lacks one. An error if that
/// lacks one, too.
pub(crate) fn wide_for(op: &'static str, what: &'static str, numbers: &[f64], dtype: DType) -> Result<DType> {
    let lacking = |dtype| numbers.iter().copied().map(Scalar::Float).find(|&number| !is_held(number, dtype));
    if lacking(dtype).is_none() {
        return Ok(dtype.compute());
    }
    lacking(DType::I64).map_or(Ok(DType::I64), |found| Err(lacks(op, what, DType::I64, found)))
}
