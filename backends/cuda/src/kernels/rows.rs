//! Operands as rows without holes: an axis, or the last axes, and all others as one number.

use super::build::Builder;
use super::geometry::{Array, Grid, Order};
use super::steps::{Args, Place};
use raddle_base::{DType, Dims};
use raddle_sync::fault;

/// Rows of `count` neighbouring elements each.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first element.
    pub place: Place,
    /// Of the elements.
    pub dtype: DType,
    /// From one row to the next, in elements.
    pub stride: usize,
}

impl Rows {
    /// Adds the place and the stride (`long long`) to arguments.
    pub fn push_to(&self, args: &mut Args) {
        args.place(self.place).push((self.stride as u64).to_ne_bytes());
    }

    /// Is each row a multiple of `elements` elements from an address that is aligned to as many?
    pub fn is_aligned(&self, elements: usize) -> bool {
        self.stride.is_multiple_of(elements)
            && super::geometry::is_aligned(self.place, elements * self.dtype.size_bytes())
    }
}

/// An operand whose last `axes` axes are its rows, if it is one as it lies.
fn direct(array: &Array, axes: usize) -> Option<Rows> {
    let split = array.shape.len() - axes;
    let part = |from: usize, to: usize| -> (Dims, Dims) {
        (array.shape[from..to].iter().copied().collect(), array.strides[from..to].iter().copied().collect())
    };
    let (shape, strides) = part(split, array.shape.len());
    let row = Grid::new(&shape, &[&strides], Order::RowMajor);
    let (shape, strides) = part(0, split);
    let outer = Grid::new(&shape, &[&strides], Order::RowMajor);
    let mut packed = row.rank() == 1 && (row.strides[0][0] == 1 || row.sizes[0] == 1);
    if fault!(strided_as_packed) {
        packed = row.rank() == 1;
    }
    (packed && outer.rank() == 1).then(|| Rows {
        place: array.place,
        dtype: array.dtype,
        stride: outer.strides[0][0],
    })
}

/// An input as rows along its last `axes` axes: where it lies, or copied.
pub fn input(builder: &mut Builder, array: &Array, axes: usize) -> Rows {
    direct(array, axes).unwrap_or_else(|| {
        let copy = builder.packed(array);
        direct(&copy, axes).expect("a row-major tensor has rows without holes")
    })
}

/// An output as rows, and what has to be [unpacked](Builder::unpack) to it in the end, if anything.
pub fn output(builder: &mut Builder, array: &Array, axes: usize) -> (Rows, Option<Array>) {
    match direct(array, axes) {
        Some(rows) => (rows, None),
        None => {
            let target = builder.scratch_array(array.dtype, array.shape);
            (direct(&target, axes).expect("a row-major tensor has rows without holes"), Some(target))
        }
    }
}

/// Brings an output home.
pub fn finish(builder: &mut Builder, out: &Array, staged: Option<Array>) {
    if let Some(staged) = staged {
        builder.unpack(out, &staged);
    }
}
