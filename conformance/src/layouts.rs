//! Where the elements of an operand lie: every kind of layout, inside of storage whose other elements are guarded.
//!
//! Views are made by strides computed here, so that a mistake in the views under test can't hide another one.

use crate::{
    array::{Array, bytes_of},
    random::Random,
};
use raddle::{DType, Dims, Layout, Scalar, Tensor, runtime::Device};

/// Kinds of layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Row-major, the whole storage.
    Whole,
    /// Row-major with guards before and behind, so that nothing is aligned.
    Offset,
    /// Column-major with guards.
    Transposed,
    /// Every second element of rows with an odd rest; guards between all elements.
    Stepped,
    /// The axes rotated in memory: neither the first nor the last is the fastest, if there are more than two.
    Rotated,
    /// Constant along the first axis that isn't of size 1, by a stride of 0. For inputs only.
    Expanded,
}

impl Placement {
    /// Those that an output can have.
    pub const OUTPUTS: [Placement; 5] =
        [Placement::Whole, Placement::Offset, Placement::Transposed, Placement::Stepped, Placement::Rotated];
    /// Those that an input can have.
    pub const INPUTS: [Placement; 6] = [
        Placement::Whole,
        Placement::Offset,
        Placement::Transposed,
        Placement::Stepped,
        Placement::Rotated,
        Placement::Expanded,
    ];
}

/// Elements before the first.
const FRONT: usize = 3;
/// Elements behind the last.
const BACK: usize = 5;

/// Strides of axes laid out in an order, fastest first, `step` apart.
fn dense(shape: &[usize], fastest_first: impl Iterator<Item = usize>, step: usize) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    let mut next = step;
    for axis in fastest_first {
        strides[axis] = next;
        next *= shape[axis].max(1);
    }
    strides
}

/// The layout of a shape, and how many elements its storage has.
pub fn layout(shape: &[usize], placement: Placement) -> (Layout, usize) {
    let rank = shape.len();
    let row_major = || (0..rank).rev();
    let (strides, front, back) = match placement {
        Placement::Whole => (dense(shape, row_major(), 1), 0, 0),
        Placement::Offset => (dense(shape, row_major(), 1), FRONT, BACK),
        Placement::Transposed => (dense(shape, 0..rank, 1), FRONT, BACK),
        Placement::Stepped => {
            let mut strides = vec![2; rank];
            let mut next = 2;
            for axis in row_major() {
                strides[axis] = next;
                next = next * shape[axis].max(1) + 1;
            }
            (strides, FRONT, BACK)
        }
        Placement::Rotated => {
            let middle = rank / 2;
            (dense(shape, (0..rank).map(|axis| (axis + middle) % rank), 1), FRONT, BACK)
        }
        Placement::Expanded => {
            let repeated = shape.iter().position(|&size| size > 1);
            let axes = row_major().filter(|&axis| Some(axis) != repeated);
            let mut strides = dense(shape, axes, 1);
            if let Some(axis) = repeated {
                strides[axis] = 0;
            }
            (strides, FRONT, BACK)
        }
    };
    let dims = |values: &[usize]| Dims::new(values).expect("the test stays within the largest rank");
    let layout = Layout::new(dims(shape), dims(&strides), front);
    (layout, layout.end().max(front) + back)
}

/// A layout that is drawn: the axes in any order in memory, gaps between their lines, elements apart, a start anywhere. An axis of
/// an input may be repeated by a stride of 0. Also how many elements its storage has.
pub fn drawn(shape: &[usize], is_input: bool, random: &mut Random) -> (Layout, usize) {
    let mut axes: Vec<usize> = (0..shape.len()).rev().collect();
    if random.one_of(3) {
        (1..axes.len()).for_each(|at| axes.swap(at, random.below(at + 1)));
    }
    let mut strides = vec![1; shape.len()];
    let mut next = *random.pick(&[1, 1, 1, 1, 2, 3]);
    let has_gaps = random.one_of(3);
    let repeats = is_input && random.one_of(4);
    for axis in axes {
        if repeats && random.one_of(2) {
            strides[axis] = 0;
            continue;
        }
        strides[axis] = next;
        next *= shape[axis].max(1);
        if has_gaps {
            next += random.below(9);
        }
    }
    // Every start that matters to an access of 16 bytes.
    let front = if random.one_of(2) { 0 } else { random.below(17) };
    let dims = |values: &[usize]| Dims::new(values).expect("the test stays within the largest rank");
    let layout = Layout::new(dims(shape), dims(&strides), front);
    (layout, layout.end().max(front) + BACK)
}

/// What guards hold: no number that an op is likely to write.
fn guard(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        _ => Scalar::Int(117),
    }
}

/// What an output holds before it is written: no number that an op is likely to write.
pub fn unwritten(dtype: DType, shape: &[usize]) -> Array {
    Array::from_fn(dtype, shape, |_| Scalar::Int(101))
}

/// An operand on a device, with its storage.
pub struct Placed {
    /// What ops are given.
    pub view: Tensor,
    storage: Tensor,
    before: Vec<u8>,
}

impl Placed {
    /// Puts an array on a device. For [`Placement::Expanded`] it must be constant along the axis that is repeated.
    pub fn new(array: &Array, placement: Placement, device: &Device) -> Placed {
        Placed::at(array, layout(&array.shape, placement), device)
    }

    /// Puts an array where a layout says, in storage of so many elements.
    pub fn at(array: &Array, (layout, count): (Layout, usize), device: &Device) -> Placed {
        let size_bytes = array.dtype.size_bytes();
        let mut before = bytes_of(array.dtype, guard(array.dtype)).repeat(count);
        for (offset, &value) in layout.offsets().zip(&array.data) {
            before[offset * size_bytes..][..size_bytes].copy_from_slice(&bytes_of(array.dtype, value));
        }
        let storage = Tensor::from_bytes(&before, [count], array.dtype, device).expect("the storage fits");
        let view = storage
            .as_strided(layout.shape(), layout.strides(), layout.offset())
            .expect("the layout is inside of its storage");
        Placed { view, storage, before }
    }

    /// An output: elements that are neither guards nor any result.
    pub fn output(dtype: DType, shape: &[usize], placement: Placement, device: &Device) -> Placed {
        Placed::new(&unwritten(dtype, shape), placement, device)
    }

    /// Panics if an element outside of the view has changed.
    pub fn check_guards(&self, what: &str) {
        let inside: std::collections::HashSet<usize> = self.view.layout().offsets().collect();
        self.check_bytes(what, |element| !inside.contains(&element));
    }

    /// Panics if any element has changed.
    pub fn check_untouched(&self, what: &str) {
        self.check_bytes(what, |_| true);
    }

    fn check_bytes(&self, what: &str, counts: impl Fn(usize) -> bool) {
        let size_bytes = self.storage.dtype().size_bytes();
        let after = self.storage.to_bytes().expect("the storage can be read");
        let pairs = self.before.chunks(size_bytes).zip(after.chunks(size_bytes));
        let changed: Vec<usize> = (0..)
            .zip(pairs)
            .filter(|(element, (before, after))| before != after && counts(*element))
            .map(|(element, _)| element)
            .collect();
        assert!(
            changed.is_empty(),
            "{what}: elements {:?} of the storage changed, which the op must not touch; the view is {:?}",
            &changed[..changed.len().min(8)],
            self.view.layout()
        );
    }
}

/// The array as it is when it is constant along the axis that [`Placement::Expanded`] repeats; as it is for all others.
pub fn fitted(array: &Array, placement: Placement) -> Array {
    fitted_to(array, &layout(&array.shape, placement).0)
}

/// The array as it is when it is constant along all axes of stride 0.
pub fn fitted_to(array: &Array, layout: &Layout) -> Array {
    if !layout.strides().contains(&0) {
        return array.clone();
    }
    Array::from_fn(array.dtype, &array.shape, |index| {
        let source: Vec<usize> = index
            .iter()
            .zip(layout.strides().iter())
            .map(|(&at, &stride)| if stride == 0 { 0 } else { at })
            .collect();
        array.at(&source)
    })
}
