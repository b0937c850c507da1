//! Typed access to the operands of a launch, and their common [`Geometry`].

use raddle_base::{Layout, MAX_RANK};
use raddle_hal::{Operand, View};

/// The first element of the storage that a view lies in (its layout's offset is not added).
pub fn base<T>(view: &View) -> *mut T {
    (view.address.handle as usize + view.address.offset_bytes) as *mut T
}

/// The first element of the view.
pub fn start<T>(view: &View) -> *mut T {
    base::<T>(view).wrapping_add(view.layout.offset())
}

/// The layout of the view.
pub fn layout(view: &View) -> &Layout {
    &view.layout
}

/// Where the first element of the view lies, in bytes.
pub fn start_bytes(view: &View) -> usize {
    base::<u8>(view) as usize + view.layout.offset() * view.dtype.size_bytes()
}

/// An operand over the axes of a [`Geometry`]. Addresses are numbers, so that it may be handed to helper threads.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Where its first element lies.
    pub start: usize,
    /// Size of an element.
    pub size_bytes: usize,
    /// Steps in bytes.
    pub strides: [usize; MAX_RANK],
}

/// The axes that some operands of one shape are walked along: axes of size 1 left out, the axis in which the first
/// operand (an output) steps least first, and neighbours merged where every operand steps evenly through both.
#[derive(Debug, Default)]
pub struct Geometry {
    /// How many axes; at least one.
    pub rank: usize,
    /// Their sizes.
    pub sizes: [usize; MAX_RANK],
    /// As given.
    pub operands: Vec<Strided>,
}

impl Geometry {
    /// The geometry of operands, in the memory of `self`. There is at least one; none is empty.
    pub fn assign(&mut self, operands: &[Operand]) {
        self.operands.clear();
        let first = &operands[0].view().layout;
        let all_packed = operands.iter().all(|operand| operand.view().layout.is_contiguous());
        let mut axes = [0usize; MAX_RANK];
        let mut rank = 0;
        if !all_packed {
            for (axis, _) in first.shape().iter().enumerate().filter(|(_, size)| **size != 1) {
                // By insertion: there are few.
                let mut at = rank;
                while at > 0 && first.strides()[axes[at - 1]] > first.strides()[axis] {
                    axes[at] = axes[at - 1];
                    at -= 1;
                }
                axes[at] = axis;
                rank += 1;
            }
        }
        for operand in operands {
            let view = operand.view();
            let size_bytes = view.dtype.size_bytes();
            let mut strides = [0; MAX_RANK];
            for (stride, axis) in strides.iter_mut().zip(&axes[..rank]) {
                *stride = view.layout.strides()[*axis] * size_bytes;
            }
            if rank == 0 {
                strides[0] = size_bytes;
            }
            // Bounded: one for an operand
            self.operands.push(Strided { start: start_bytes(view), size_bytes, strides });
        }
        self.sizes = [1; MAX_RANK];
        self.rank = 1;
        if rank == 0 {
            self.sizes[0] = first.element_count();
            return;
        }
        self.sizes[0] = first.shape()[axes[0]];
        for (from, axis) in axes.iter().enumerate().take(rank).skip(1) {
            let (size, to) = (first.shape()[*axis], self.rank - 1);
            let even = |operand: &Strided| operand.strides[from] == operand.strides[to] * self.sizes[to];
            if self.operands.iter().all(even) {
                self.sizes[to] *= size;
            } else {
                self.sizes[to + 1] = size;
                self.operands.iter_mut().for_each(|operand| operand.strides[to + 1] = operand.strides[from]);
                self.rank += 1;
            }
        }
    }
}
