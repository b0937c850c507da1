//! Where the elements of a tensor lie: shape, strides, offset; and the algebra of views.
//!
//! Guarantee: every view that a method here returns addresses only elements that the layout it came from addresses
//! (`as_strided` takes the size of the storage and checks against it). Whether two elements share memory is answered by
//! [`Layout::self_overlap`] and [`Layout::overlap`].

use crate::{Dims, MAX_RANK};
use std::fmt;

/// Shape, strides and offset, in elements. Strides are never negative; an expanded axis has stride 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Dims,
    strides: Dims,
    offset: usize,
}

/// How two views of one storage lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No element in common.
    None,
    /// Element for element the same.
    Same,
    /// Some elements in common, or too hard to tell.
    Partial,
}

/// What can be wrong with a view. The text says where, what, expected, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum ViewError {
    Rank { op: &'static str, rank: usize },
    Axis { op: &'static str, axis: isize, rank: usize },
    RepeatedAxis { op: &'static str, axis: usize },
    AxisCount { op: &'static str, expected: usize, found: usize },
    Range { op: &'static str, axis: usize, start: usize, end: usize, size: usize },
    Index { op: &'static str, axis: usize, index: isize, size: usize },
    Step { op: &'static str, axis: usize },
    Broadcast { op: &'static str, from: Dims, to: Dims },
    Shapes { op: &'static str, lhs: Dims, rhs: Dims, from_end: usize },
    ElementCount { op: &'static str, from: Dims, to: Dims },
    NotViewable { op: &'static str, layout: Layout, to: Dims },
    OutOfStorage { op: &'static str, last: usize, storage: usize },
    Overflow { op: &'static str, shape: Dims },
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ViewError::*;
        match self {
            Rank { op, rank } => write!(f, "{op}: too many axes, expected at most {MAX_RANK}, found {rank}"),
            Axis { op, axis, rank: 0 } => {
                write!(f, "{op}: axis {axis} is out of range, the tensor has no axes")
            }
            Axis { op, axis, rank } => {
                write!(
                    f,
                    "{op}: axis {axis} is out of range, expected -{rank} to {}, rank is {rank}",
                    *rank as isize - 1
                )
            }
            RepeatedAxis { op, axis } => write!(f, "{op}: axis {axis} is named twice"),
            AxisCount { op, expected, found } => write!(f, "{op}: expected {expected} axes, found {found}"),
            Range { op, axis, start, end, size } => {
                write!(f, "{op}: range {start}..{end} is out of bounds, axis {axis} has size {size}")
            }
            Index { op, axis, index, size } => {
                write!(f, "{op}: index {index} is out of bounds, axis {axis} has size {size}")
            }
            Step { op, axis } => write!(f, "{op}: step on axis {axis} must be at least 1, found 0"),
            Broadcast { op, from, to } => write!(f, "{op}: shape {from:?} can't be broadcast to {to:?}"),
            Shapes { op, lhs, rhs, from_end } => {
                let [left, right] = [lhs, rhs].map(|dims| dims.len() - 1 - from_end);
                write!(
                    f,
                    "{op}: shapes can't be broadcast together, lhs {lhs:?} axis {left} is {}, rhs {rhs:?} axis {right} is {}",
                    lhs[left], rhs[right]
                )
            }
            ElementCount { op, from, to } => write!(
                f,
                "{op}: shape {to:?} has {} elements, the tensor of shape {from:?} has {}",
                to.product(),
                from.product()
            ),
            NotViewable { op, layout, to } => write!(
                f,
                "{op}: a tensor of shape {:?} with strides {:?} can't be viewed as {to:?} without a copy, use reshape",
                layout.shape, layout.strides
            ),
            OutOfStorage { op, last, storage } => {
                write!(f, "{op}: the view reaches element {last}, the storage has {storage} elements")
            }
            Overflow { op, shape } if shape.contains(&0) => {
                write!(
                    f,
                    "{op}: shape {shape:?} has more elements than fit in memory, sizes of 0 counted as 1"
                )
            }
            Overflow { op, shape } => write!(f, "{op}: shape {shape:?} has more elements than fit in memory"),
        }
    }
}
impl std::error::Error for ViewError {}

type Result<T> = std::result::Result<T, ViewError>;

impl Layout {
    /// Row-major from offset 0.
    pub fn contiguous(shape: Dims) -> Layout {
        Layout { shape, strides: row_major(&shape), offset: 0 }
    }

    /// Any shape and strides. The caller answers for the storage being large enough.
    pub fn new(shape: Dims, strides: Dims, offset: usize) -> Layout {
        assert_eq!(
            shape.len(),
            strides.len(),
            "base: shape {shape:?} and strides {strides:?} differ in rank"
        );
        Layout { shape, strides, offset }
    }

    /// Dense, with the axes in the same order in memory as here: the layout of a copy that keeps strides (PyTorch's
    /// `preserve_format`). Layouts with holes or overlap give row-major.
    pub fn preserved(&self) -> Layout {
        let mut axes: Dims = (0..self.rank()).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse((self.strides[axis], self.shape[axis])));
        let mut strides = self.strides;
        let mut next = 1usize;
        for &axis in axes.iter().rev() {
            if self.shape[axis] != 1 && self.strides[axis] != next {
                return Layout::contiguous(self.shape);
            }
            strides[axis] = next;
            next *= self.shape[axis].max(1);
        }
        Layout { shape: self.shape, strides, offset: 0 }
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &Dims {
        &self.shape
    }
    /// Steps between neighbours along each axis, in elements.
    pub fn strides(&self) -> &Dims {
        &self.strides
    }
    /// Where the first element lies, in elements from the start of the storage.
    pub fn offset(&self) -> usize {
        self.offset
    }
    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// Number of elements.
    pub fn element_count(&self) -> usize {
        self.shape.product()
    }
    /// No elements at all.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
    /// The same, starting elsewhere. The caller answers for the storage being large enough.
    pub fn with_offset(mut self, offset: usize) -> Layout {
        self.offset = offset;
        self
    }

    /// Row-major without holes (any offset; strides of axes of size 1 don't count).
    pub fn is_contiguous(&self) -> bool {
        let mut next = 1;
        for (&size, &stride) in self.shape.iter().zip(self.strides.iter()).rev() {
            if size != 1 {
                if stride != next {
                    return self.is_empty();
                }
                next *= size;
            }
        }
        true
    }

    /// One past the last element addressed, from the start of the storage; 0 when empty.
    #[inline]
    pub fn end(&self) -> usize {
        let mut last = self.offset;
        for (&size, &stride) in self.shape.iter().zip(self.strides.iter()) {
            if size == 0 {
                return 0;
            }
            // Wrapping: of what is empty strides may be anything, and what isn't lies in a storage.
            last = last.wrapping_add((size - 1).wrapping_mul(stride));
        }
        last + 1
    }

    fn reach(&self) -> usize {
        self.shape.iter().zip(self.strides.iter()).map(|(&size, &stride)| (size - 1) * stride).sum()
    }

    /// Resolves an axis that may count from the end.
    pub fn axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        resolve_axis(op, axis, self.rank())
    }

    /// Can two indices address one element? Exact for expanded axes and for everything that sorts into nested axes;
    /// layouts that interleave count as overlapping unless a search of bounded size shows that they don't.
    pub fn self_overlap(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut axes: Dims = (0..self.rank()).filter(|&axis| self.shape[axis] > 1).collect();
        axes.sort_by_key(|&axis| (self.strides[axis], self.shape[axis]));
        let mut reach = 0;
        for &axis in axes.iter() {
            if self.strides[axis] <= reach {
                return self.self_overlap_by_search();
            }
            reach += (self.shape[axis] - 1) * self.strides[axis];
        }
        false
    }

    fn self_overlap_by_search(&self) -> bool {
        const ELEMENT_COUNT_MAX: usize = 1 << 16; // guess: past that, "may overlap" is the answer
        if self.strides.iter().zip(self.shape.iter()).any(|(&stride, &size)| stride == 0 && size > 1) {
            return true;
        }
        let count = self.element_count();
        if count > self.reach() + 1 {
            return true;
        }
        if count > ELEMENT_COUNT_MAX {
            return true;
        }
        let mut seen: Vec<usize> = self.offsets().collect();
        seen.sort_unstable();
        seen.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// How this view and another of the same storage lie to each other. `Partial` is the answer whenever the ranges
    /// meet and a search of bounded size doesn't show them apart.
    pub fn overlap(&self, other: &Layout) -> Overlap {
        const ELEMENT_COUNT_MAX: usize = 1 << 16; // guess
        if self.is_empty() || other.is_empty() || self.end() <= other.offset || other.end() <= self.offset {
            return Overlap::None;
        }
        let same_strides = || {
            self.shape
                .iter()
                .zip(self.strides.iter().zip(other.strides.iter()))
                .all(|(&n, (a, b))| n == 1 || a == b)
        };
        if self.shape == other.shape && self.offset == other.offset && same_strides() {
            return Overlap::Same;
        }
        // Elements of both lie on a common grid: different residues never meet (columns of one matrix).
        let step =
            self.strides.iter().zip(self.shape.iter()).chain(other.strides.iter().zip(other.shape.iter()));
        let step = step.filter(|(_, size)| **size > 1).fold(0, |step, (stride, _)| gcd(step, *stride));
        if step > 1 && self.offset % step != other.offset % step {
            return Overlap::None;
        }
        if self.boxes_are_apart(other) {
            return Overlap::None;
        }
        if self.element_count().max(other.element_count()) > ELEMENT_COUNT_MAX {
            return Overlap::Partial;
        }
        let mut own: Vec<usize> = self.offsets().collect();
        own.sort_unstable();
        if other.offsets().any(|offset| own.binary_search(&offset).is_ok()) {
            Overlap::Partial
        } else {
            Overlap::None
        }
    }

    /// Are both boxes of one grid, as blocks of columns of a matrix are, and on one of its axes don't meet?
    ///
    /// The grid has an axis for each stride that either has. An element is at Σ index · stride + rest; if what all smaller strides
    /// can add stays below each stride, then no element has two such forms, and boxes whose ranges don't meet on one axis
    /// have none in common.
    fn boxes_are_apart(&self, other: &Layout) -> bool {
        let both = [self, other];
        let moves = |layout: &Layout| {
            let axes = layout.shape.iter().zip(layout.strides.iter());
            axes.map(|(&size, &stride)| (size, stride))
                .filter(|axis| axis.0 > 1 && axis.1 > 0)
                .collect::<Vec<_>>()
        };
        let moves = both.map(moves);
        let mut strides: Vec<usize> = moves.iter().flatten().map(|(_, stride)| *stride).collect();
        strides.sort_unstable_by_key(|stride| std::cmp::Reverse(*stride));
        strides.dedup();
        let mut rests = both.map(|layout| layout.offset);
        // Of each, the first and the last index on each axis.
        let ranges: Vec<[(usize, usize); 2]> = strides
            .iter()
            .map(|&stride| {
                [0, 1].map(|which| {
                    let first = rests[which] / stride;
                    rests[which] %= stride;
                    let own = moves[which].iter().filter(|(_, own)| *own == stride);
                    (first, first + own.map(|(size, _)| size - 1).sum::<usize>())
                })
            })
            .collect();
        let mut below = rests[0].max(rests[1]);
        for (stride, range) in strides.iter().zip(&ranges).rev() {
            if below >= *stride {
                return false;
            }
            below += range[0].1.max(range[1].1) * stride;
        }
        rests[0] != rests[1] || ranges.iter().any(|[a, b]| a.1 < b.0 || b.1 < a.0)
    }

    /// The storage offsets of all elements, in row-major order of the indices.
    pub fn offsets(&self) -> impl Iterator<Item = usize> + use<> {
        let (layout, count) = (*self, self.element_count());
        let mut index = Dims::filled(0, layout.rank());
        let mut offset = layout.offset;
        (0..count).map(move |_| {
            let current = offset;
            for axis in (0..layout.rank()).rev() {
                index[axis] += 1;
                offset += layout.strides[axis];
                if index[axis] < layout.shape[axis] {
                    break;
                }
                offset -= layout.strides[axis] * layout.shape[axis];
                index[axis] = 0;
            }
            current
        })
    }

    // ------------------------------------------------------------ views

    /// Swaps two axes.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Layout> {
        let (a, b) = (self.axis("transpose", a)?, self.axis("transpose", b)?);
        let mut view = *self;
        view.shape.swap(a, b);
        view.strides.swap(a, b);
        Ok(view)
    }

    /// Axis `i` of the result is axis `axes[i]` of this.
    pub fn permute(&self, axes: &[isize]) -> Result<Layout> {
        if axes.len() != self.rank() {
            return Err(ViewError::AxisCount { op: "permute", expected: self.rank(), found: axes.len() });
        }
        let mut seen = [false; MAX_RANK];
        let mut view = *self;
        for (to, &axis) in axes.iter().enumerate() {
            let from = self.axis("permute", axis)?;
            if std::mem::replace(&mut seen[from], true) {
                return Err(ViewError::RepeatedAxis { op: "permute", axis: from });
            }
            view.shape[to] = self.shape[from];
            view.strides[to] = self.strides[from];
        }
        Ok(view)
    }

    /// `length` elements of an axis from `start`.
    pub fn narrow(&self, axis: isize, start: usize, length: usize) -> Result<Layout> {
        let axis = self.axis("narrow", axis)?;
        let end = start.saturating_add(length);
        if end > self.shape[axis] {
            return Err(ViewError::Range { op: "narrow", axis, start, end, size: self.shape[axis] });
        }
        let mut view = *self;
        view.shape[axis] = length;
        // An empty view may start one past the end: it must not point outside.
        view.offset += if length == 0 { 0 } else { start * self.strides[axis] };
        Ok(view)
    }

    /// Elements `start`, `start + step`, … below `end`. As in Python, negative bounds count from the end and bounds
    /// outside are clamped.
    pub fn slice(&self, axis: isize, start: isize, end: isize, step: usize) -> Result<Layout> {
        let axis = self.axis("slice", axis)?;
        if step == 0 {
            return Err(ViewError::Step { op: "slice", axis });
        }
        let size = self.shape[axis] as isize;
        let clamp =
            |bound: isize| (if bound < 0 { bound.saturating_add(size) } else { bound }).clamp(0, size);
        let (start, end) = (clamp(start), clamp(end));
        let length = ((end - start).max(0) as usize).div_ceil(step);
        let mut view = *self;
        view.shape[axis] = length;
        view.offset += if length == 0 { 0 } else { start as usize * self.strides[axis] };
        // A single element keeps a stride that stays inside, whatever the step.
        view.strides[axis] = if length <= 1 { self.strides[axis] } else { self.strides[axis] * step };
        Ok(view)
    }

    /// One index of an axis; the axis is gone. Negative indices count from the end.
    pub fn select(&self, axis: isize, index: isize) -> Result<Layout> {
        let axis = self.axis("select", axis)?;
        let size = self.shape[axis];
        let position = if index < 0 { index + size as isize } else { index };
        if position < 0 || position >= size as isize {
            return Err(ViewError::Index { op: "select", axis, index, size });
        }
        let mut view = *self;
        view.offset += position as usize * self.strides[axis];
        view.shape.remove(axis);
        view.strides.remove(axis);
        Ok(view)
    }

    /// Broadcasts to a shape: axes of size 1 are repeated (stride 0), missing axes are added in front.
    pub fn broadcast_to(&self, op: &'static str, shape: &Dims) -> Result<Layout> {
        let error = ViewError::Broadcast { op, from: self.shape, to: *shape };
        let missing = shape.len().checked_sub(self.rank()).ok_or(error)?;
        let mut view = Layout { shape: *shape, strides: Dims::filled(0, shape.len()), offset: self.offset };
        for axis in 0..self.rank() {
            let (size, wanted) = (self.shape[axis], shape[axis + missing]);
            if size == wanted {
                view.strides[axis + missing] = self.strides[axis];
            } else if size != 1 {
                return Err(error);
            }
        }
        Ok(view)
    }

    /// The shape that both broadcast to: aligned at the last axis, equal sizes or 1.
    pub fn broadcast_shapes(op: &'static str, a: &Dims, b: &Dims) -> Result<Dims> {
        if a == b {
            return Ok(*a);
        }
        let mut shape = Dims::filled(1, a.len().max(b.len()));
        for (from_end, axis) in (0..shape.len()).rev().enumerate() {
            let size = |dims: &Dims| dims.len().checked_sub(from_end + 1).map_or(1, |axis| dims[axis]);
            shape[axis] = match (size(a), size(b)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return Err(ViewError::Shapes { op, lhs: *a, rhs: *b, from_end }),
            };
        }
        Ok(shape)
    }

    /// The same elements, in row-major order, as another shape; an error if that needs a copy.
    pub fn view(&self, shape: &Dims) -> Result<Layout> {
        let op = "view";
        let wanted = shape.checked_product().ok_or(ViewError::Overflow { op, shape: *shape })?;
        if wanted != self.element_count() {
            return Err(ViewError::ElementCount { op, from: self.shape, to: *shape });
        }
        if self.is_empty() || self.is_contiguous() {
            return Ok(Layout::contiguous(*shape).with_offset(self.offset));
        }
        let error = ViewError::NotViewable { op, layout: *self, to: *shape };
        // Runs of axes that step evenly through memory, merged; each run must be cut exactly by the new axes.
        let mut strides = Dims::filled(1, shape.len());
        let mut to = shape.len();
        let mut axis = self.rank();
        while axis > 0 {
            axis -= 1;
            let stride = self.strides[axis];
            let mut run = self.shape[axis];
            if run == 1 {
                continue;
            }
            while axis > 0 && (self.shape[axis - 1] == 1 || self.strides[axis - 1] == stride * run) {
                axis -= 1;
                run *= self.shape[axis];
            }
            let mut filled = 1;
            while filled < run {
                to = to.checked_sub(1).ok_or(error)?;
                strides[to] = stride * filled;
                filled *= shape[to];
            }
            if filled != run {
                return Err(error);
            }
        }
        // What is left has size 1.
        for axis in (0..to).rev() {
            strides[axis] = strides.get(axis + 1).map_or(1, |stride| stride * shape[axis + 1]);
        }
        Ok(Layout { shape: *shape, strides, offset: self.offset })
    }

    /// Drops an axis of size 1; any other axis stays, as in PyTorch.
    pub fn squeeze(&self, axis: isize) -> Result<Layout> {
        let axis = self.axis("squeeze", axis)?;
        let mut view = *self;
        if self.shape[axis] == 1 {
            view.shape.remove(axis);
            view.strides.remove(axis);
        }
        Ok(view)
    }

    /// Puts an axis of size 1 before axis `axis` (which may be the rank, or count from the end of the result).
    pub fn unsqueeze(&self, axis: isize) -> Result<Layout> {
        let op = "unsqueeze";
        if self.rank() == MAX_RANK {
            return Err(ViewError::Rank { op, rank: MAX_RANK + 1 });
        }
        let axis = resolve_axis(op, axis, self.rank() + 1)?;
        let mut view = *self;
        // Of one element there is no next one, and strides may be anything.
        let stride = self.strides.get(axis).map_or(1, |stride| stride.wrapping_mul(self.shape[axis]));
        view.shape.insert(axis, 1);
        view.strides.insert(axis, stride);
        Ok(view)
    }

    /// Windows of `size` elements, `step` apart, along an axis; the window becomes a new last axis.
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Result<Layout> {
        let op = "unfold";
        let axis = self.axis(op, axis)?;
        if step == 0 {
            return Err(ViewError::Step { op, axis });
        }
        if size > self.shape[axis] {
            return Err(ViewError::Range { op, axis, start: 0, end: size, size: self.shape[axis] });
        }
        if self.rank() == MAX_RANK {
            return Err(ViewError::Rank { op, rank: MAX_RANK + 1 });
        }
        let mut view = *self;
        view.shape[axis] = (self.shape[axis] - size) / step + 1;
        // One window has no next one, however far that would be.
        view.strides[axis] =
            if view.shape[axis] > 1 { self.strides[axis] * step } else { self.strides[axis] };
        view.shape.push(size);
        view.strides.push(self.strides[axis]);
        view.shape.checked_product().ok_or(ViewError::Overflow { op, shape: view.shape })?;
        Ok(view)
    }

    /// The elements whose indices on axes `a` and `b` differ by `shift` (b − a); they become a new last axis.
    pub fn diagonal(&self, shift: isize, a: isize, b: isize) -> Result<Layout> {
        let op = "diagonal";
        let (a, b) = (self.axis(op, a)?, self.axis(op, b)?);
        if a == b {
            return Err(ViewError::RepeatedAxis { op, axis: a });
        }
        let (skip_a, skip_b) = (shift.min(0).unsigned_abs(), shift.max(0).unsigned_abs());
        let length = self.shape[a].saturating_sub(skip_a).min(self.shape[b].saturating_sub(skip_b));
        let mut view = *self;
        if length > 0 {
            view.offset += skip_a * self.strides[a] + skip_b * self.strides[b];
        }
        // Of one element there is no next one, and strides may be anything.
        let stride = self.strides[a].saturating_add(self.strides[b]);
        for axis in [a.max(b), a.min(b)] {
            view.shape.remove(axis);
            view.strides.remove(axis);
        }
        view.shape.push(length);
        view.strides.push(stride);
        Ok(view)
    }

    /// Any shape, strides and offset inside a storage of `storage` elements.
    pub fn as_strided(storage: usize, shape: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        let op = "as_strided";
        if shape.len() != strides.len() {
            return Err(ViewError::AxisCount { op, expected: shape.len(), found: strides.len() });
        }
        let rank = ViewError::Rank { op, rank: shape.len() };
        let (shape, strides) = (Dims::new(shape).ok_or(rank)?, Dims::new(strides).ok_or(rank)?);
        shape.checked_product().ok_or(ViewError::Overflow { op, shape })?;
        let view = Layout { shape, strides, offset };
        if view.is_empty() {
            // Whatever the strides are, they lead nowhere: views of this one mustn't multiply them.
            return Ok(Layout::contiguous(shape).with_offset(offset.min(storage)));
        }
        let last = shape.iter().zip(strides.iter()).try_fold(offset, |last, (&size, &stride)| {
            (size - 1).checked_mul(stride).and_then(|reach| last.checked_add(reach))
        });
        match last {
            Some(last) if last < storage => Ok(view),
            last => Err(ViewError::OutOfStorage { op, last: last.unwrap_or(usize::MAX), storage }),
        }
    }
}

/// Axis of a tensor of `rank` axes; negative ones count from the end.
pub(crate) fn resolve_axis(op: &'static str, axis: isize, rank: usize) -> Result<usize> {
    let position = if axis < 0 { axis + rank as isize } else { axis };
    if position < 0 || position >= rank as isize {
        Err(ViewError::Axis { op, axis, rank })
    } else {
        Ok(position as usize)
    }
}

/// Strides without holes, last axis fastest. Empty axes count as 1, as in PyTorch.
fn row_major(shape: &Dims) -> Dims {
    let mut strides = *shape;
    let mut next = 1usize;
    for axis in (0..shape.len()).rev() {
        strides[axis] = next;
        next = next.saturating_mul(shape[axis].max(1));
    }
    strides
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} strides {:?} offset {}", self.shape, self.strides, self.offset)
    }
}

#[cfg(test)]
mod tests;
