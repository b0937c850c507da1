//! Operands as kernels see them: a place, and steps along axes, merged where all operands allow it.

use super::steps::{Args, Place};
use raddle_base::{DType, Dims, Layout};
use raddle_hal::View;
use smallvec::SmallVec;

/// A tensor, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    /// Its first element.
    pub place: Place,
    /// Of its elements.
    pub dtype: DType,
    /// Sizes of the axes.
    pub shape: Dims,
    /// Steps in elements.
    pub strides: Dims,
}

impl From<&View> for Array {
    fn from(view: &View) -> Array {
        Array {
            place: Place::At(address(view)),
            dtype: view.dtype,
            shape: *view.layout.shape(),
            strides: *view.layout.strides(),
        }
    }
}

/// The address of a view's first element.
pub fn address(view: &View) -> u64 {
    view.address.handle + (view.address.offset_bytes + view.layout.offset() * view.dtype.size_bytes()) as u64
}

impl Array {
    /// Row-major.
    pub fn contiguous(place: Place, dtype: DType, shape: Dims) -> Array {
        Array { place, dtype, shape, strides: *Layout::contiguous(shape).strides() }
    }
    /// The layout, from offset 0.
    pub fn layout(&self) -> Layout {
        Layout::new(self.shape, self.strides, 0)
    }
    /// How many elements.
    pub fn count(&self) -> usize {
        self.shape.product()
    }
    /// The same with axis `axis` moved behind all others.
    pub fn with_last(mut self, axis: usize) -> Array {
        let (size, stride) = (self.shape.remove(axis), self.strides.remove(axis));
        self.shape.push(size);
        self.strides.push(stride);
        self
    }
    /// The same with its axes as given (each once).
    pub fn permuted(&self, axes: &[usize]) -> Array {
        Array {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            ..*self
        }
    }
}

/// Is the place a multiple of so many bytes? (Scratch memory is aligned to 256.)
pub fn is_aligned(place: Place, align: usize) -> bool {
    match place {
        Place::At(address) => address.is_multiple_of(align as u64),
        Place::Scratch(start) => start.is_multiple_of(align),
    }
}

/// The most that 32 bits are used for: positions and offsets stay below it.
const NARROW_MAX: usize = 1 << 31;

/// Axes that several operands are walked along, the fastest first; at least one.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Sizes.
    pub sizes: Dims,
    /// Of each operand, the step along each axis.
    pub strides: SmallVec<[Dims; 8]>,
}

/// In which order axes are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The axis in which the first operand steps least is the fastest.
    Memory,
    /// The last axis is the fastest.
    RowMajor,
}

impl Grid {
    /// Of a shape and the strides of operands along it. Axes of size 1 are left out, neighbours merged.
    pub fn new(shape: &Dims, strides: &[&Dims], order: Order) -> Grid {
        let mut axes: SmallVec<[usize; 8]> =
            (0..shape.len()).rev().filter(|&axis| shape[axis] != 1).collect();
        if order == Order::Memory {
            // Stable: where the first operand can't tell the last axis is the fastest.
            axes.sort_by_key(|&axis| strides[0][axis]);
        }
        let mut grid = Grid { sizes: Dims::EMPTY, strides: SmallVec::from_elem(Dims::EMPTY, strides.len()) };
        for axis in axes {
            let size = shape[axis];
            let last = grid.sizes.len().wrapping_sub(1);
            let merges = last != usize::MAX
                && (grid.strides.iter().zip(strides))
                    .all(|(merged, strides)| merged[last] * grid.sizes[last] == strides[axis]);
            if merges {
                grid.sizes[last] *= size;
            } else {
                grid.push(size, strides.iter().map(|strides| strides[axis]));
            }
        }
        if grid.sizes.is_empty() {
            grid.push(1, strides.iter().map(|_| 0));
        }
        grid
    }

    /// Adds an axis, slower than all others.
    pub fn push(&mut self, size: usize, strides: impl Iterator<Item = usize>) {
        self.sizes.push(size);
        self.strides.iter_mut().zip(strides).for_each(|(steps, stride)| steps.push(stride));
    }

    /// How many axes.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }
    /// How many positions.
    pub fn count(&self) -> usize {
        self.sizes.product()
    }

    /// Do positions or offsets need 64 bits?
    pub fn is_wide(&self) -> bool {
        let reach = |strides: &Dims| {
            self.sizes
                .iter()
                .zip(strides.iter())
                .map(|(size, stride)| size.saturating_sub(1) * stride)
                .sum::<usize>()
        };
        self.count() >= NARROW_MAX || self.strides.iter().any(|strides| reach(strides) >= NARROW_MAX)
    }

    /// Adds it to arguments, as `Grid` of the prelude.
    pub fn push_to(&self, args: &mut Args, wide: bool) {
        for &size in self.sizes.iter() {
            push_divider(args, size, wide);
        }
        for &stride in self.strides.iter().flat_map(|strides| strides.iter()) {
            push_index(args, stride, wide);
        }
    }
}

/// Adds an `index_t`.
pub fn push_index(args: &mut Args, value: usize, wide: bool) {
    if wide {
        args.push((value as u64).to_ne_bytes());
    } else {
        args.push((value as u32).to_ne_bytes());
    }
}

/// Adds a `Divider`.
pub fn push_divider(args: &mut Args, size: usize, wide: bool) {
    if wide {
        args.push((size as u64).to_ne_bytes());
        return;
    }
    let (magic, shift) = magic(size as u32);
    args.push((size as u32).to_ne_bytes()).push(magic.to_ne_bytes()).push(shift.to_ne_bytes());
}

/// Multiplier and shift with which `(mulhi(x, magic) + x) >> shift` is `x / size` for `x` below 2^31.
fn magic(size: u32) -> (u32, u32) {
    let shift = size.max(1).next_power_of_two().trailing_zeros();
    let magic =
        ((1u64 << 32) * ((1u64 << shift) - u64::from(size.max(1))) / u64::from(size.max(1)) + 1) as u32;
    (magic, shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_by_magic_are_exact() {
        let numbers =
            (0..31).flat_map(|bit| [1u32 << bit, (1 << bit) - 1, (1 << bit) + 1]).chain([i32::MAX as u32]);
        for size in numbers.clone().filter(|size| *size > 0).chain([3, 7, 641, 1_000_003]) {
            let (magic, shift) = magic(size);
            for x in numbers.clone().chain([size.wrapping_mul(3) & 0x7fff_ffff]) {
                let high = ((u64::from(x) * u64::from(magic)) >> 32) as u32;
                assert_eq!((high + x) >> shift, x / size, "{x} / {size}");
            }
        }
    }

    #[test]
    fn axes_are_merged_where_all_operands_allow_it() {
        let dims = |values: &[usize]| Dims::new(values).unwrap();
        let shape = dims(&[2, 3, 4]);
        let grid = Grid::new(&shape, &[&dims(&[12, 4, 1]), &dims(&[12, 4, 1])], Order::Memory);
        assert_eq!((grid.sizes, grid.strides[1]), (dims(&[24]), dims(&[1])));
        let grid = Grid::new(&shape, &[&dims(&[12, 4, 1]), &dims(&[0, 4, 1])], Order::Memory);
        assert_eq!((grid.sizes, grid.strides[1]), (dims(&[12, 2]), dims(&[1, 0])));
        // Transposed alike.
        let grid = Grid::new(&shape, &[&dims(&[1, 2, 6]), &dims(&[1, 2, 6])], Order::Memory);
        assert_eq!(grid.sizes, dims(&[24]));
        let grid = Grid::new(&shape, &[&dims(&[1, 2, 6]), &dims(&[1, 2, 6])], Order::RowMajor);
        assert_eq!(grid.sizes, dims(&[4, 3, 2]));
    }
}
