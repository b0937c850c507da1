//! Padding: axes that become longer, or shorter, at both ends.

use super::refused;
use crate::{DType, Error, Result, Tensor};
use raddle_base::Scalar;

/// What stands where there was nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding {
    /// A number.
    Constant(Scalar),
    /// The elements mirrored at the first and the last, which aren't repeated.
    Reflect,
    /// The first and the last.
    Replicate,
    /// The elements from the other end.
    Circular,
}

impl Tensor {
    /// The last axes with so many elements more before and behind: `widths` of the last axis first. Negative ones take away.
    ///
    /// Errors: more widths than axes; by reflection as many elements as there are, and around more than there are.
    pub fn pad(&self, widths: &[[i64; 2]], padding: Padding) -> Result<Tensor> {
        let op = "pad";
        if widths.len() > self.rank() {
            return Err(Error::Count { op, what: "axes to pad", expected: self.rank(), found: widths.len() });
        }
        let mut out = self.clone();
        for (index, &[before, behind]) in widths.iter().enumerate() {
            if before == 0 && behind == 0 {
                continue;
            }
            let axis = self.rank() - 1 - index;
            let size = self.shape()[axis] as i64;
            let length = before.checked_add(size).and_then(|length| length.checked_add(behind));
            let length = length.filter(|&length| length >= 0).ok_or_else(|| {
                refused(op, "a width", "one that leaves a size of at least 0", before.min(behind))
            })?;
            let axis = axis as isize;
            if let Padding::Constant(value) = padding {
                let cut = |width: i64| (-width).max(0).min(size);
                let kept = (size - cut(before) - cut(behind)).max(0);
                let part = out.narrow(axis, cut(before) as usize, kept as usize)?;
                let mut shape = out.shape().to_vec();
                shape[axis as usize] = length as usize;
                let padded = Tensor::full(shape, value, self.dtype(), &self.device())?;
                padded.narrow(axis, before.clamp(0, length - kept) as usize, kept as usize)?.copy_(&part)?;
                out = padded;
                continue;
            }
            // What is taken away is no part of what goes around.
            let (size, before) = match padding {
                Padding::Circular if before < 0 || behind < 0 => {
                    let cut = |width: i64| (-width).max(0).min(size);
                    let kept = (size - cut(before) - cut(behind)).max(0);
                    out = out.narrow(axis, cut(before) as usize, kept as usize)?;
                    (kept, before.max(0))
                }
                _ => (size, before),
            };
            let most = match padding {
                Padding::Reflect => size - 1,
                Padding::Circular => size,
                _ if size == 0 => 0,
                _ => i64::MAX,
            };
            if let Some(&width) = [before, behind].iter().find(|&&width| width > most.max(0)) {
                return Err(refused(op, "a width", "one that the axis has elements for", width));
            }
            let place = |i: i64| match padding {
                Padding::Circular => i.rem_euclid(size),
                Padding::Replicate => i.clamp(0, size - 1),
                _ if i < 0 => -i,
                _ if i >= size => 2 * (size - 1) - i,
                _ => i,
            };
            let places: Vec<i64> = (0..length).map(|i| place(i - before)).collect();
            let index = Tensor::from_slice(&places, [places.len()], &self.device())?;
            debug_assert_eq!(index.dtype(), DType::I64);
            out = out.index_select(axis, &index)?;
        }
        if out.is(self) { self.copy() } else { Ok(out) }
    }
}
