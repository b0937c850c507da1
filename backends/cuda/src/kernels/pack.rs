//! Copies to rows without holes, and back.

use super::build::Builder;
use super::geometry::Array;
use super::pointwise;
use raddle_sync::fault;

impl Builder {
    /// `to = from`, converted. The shapes are equal.
    pub fn copy(&mut self, to: &Array, from: &Array) {
        pointwise::copy(self, to, from);
    }

    /// The same elements row-major: where they lie, or copied to scratch memory.
    pub fn packed(&mut self, from: &Array) -> Array {
        if from.layout().is_contiguous() {
            // Strides of axes of size 1 may be anything.
            return Array::contiguous(from.place, from.dtype, from.shape);
        }
        let copy = self.scratch_array(from.dtype, from.shape);
        self.copy(&copy, from);
        copy
    }

    /// Copies what was made in scratch memory for an output.
    pub fn unpack(&mut self, out: &Array, target: &Array) {
        if fault!(no_copy_back) {
            return;
        }
        if out.place != target.place {
            self.copy(out, target);
        }
    }
}
