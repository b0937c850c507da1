//! Views: other shapes and strides over the same memory. No element moves; only [`Tensor::reshape`] copies where it must.

use crate::{
    Call, DType, Dims, Error, Layout, Result, Tensor, View,
    create::dims,
    gradient::{Context, Gradients, Meta, Op, only, sum_to},
    record::{self},
};
use raddle_base::{Scalar, ViewError};
use smallvec::SmallVec;

/// In a shape for [`Tensor::reshape`] or [`Tensor::view`]: whatever size is left over. In one for [`Tensor::expand`]: the
/// size that the axis has. PyTorch's -1.
pub const INFER: usize = usize::MAX;

impl Tensor {
    /// A recorded view.
    fn view_of(&self, layout: Layout, view: impl FnOnce() -> View) -> Result<Tensor> {
        let out = self.alias(layout);
        record::fresh(&[self], &[&out], || Call::View(view()), || Ok(()))?;
        Ok(out)
    }

    fn resolved(&self, op: &'static str, axis: isize) -> Result<usize> {
        Ok(self.layout().axis(op, axis)?)
    }

    /// Another handle of the same view, with a place of its own in a graph of gradients.
    pub fn alias_view(&self) -> Result<Tensor> {
        self.view_of(*self.layout(), || View::Alias)
    }

    /// Has it no axes, and is this its only, imagined one?
    fn is_imagined(&self, axis: isize) -> bool {
        self.rank() == 0 && matches!(axis, 0 | -1)
    }

    /// Swaps two axes.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        if self.is_imagined(a) && self.is_imagined(b) {
            return self.alias_view();
        }
        let layout = self.layout().transpose(a, b)?;
        let (a, b) = (self.resolved("transpose", a)?, self.resolved("transpose", b)?);
        self.view_of(layout, || View::Transpose { a, b })
    }

    /// The transpose of a matrix; tensors of rank 0 and 1 stay as they are.
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => self.alias_view(),
            2 => self.transpose(0, 1),
            found => Err(Error::Rank { op: "t", what: "the tensor", expected: "at most 2", found }),
        }
    }

    /// Axis `i` of the result is axis `axes[i]` of this.
    pub fn permute(&self, axes: impl AsRef<[isize]>) -> Result<Tensor> {
        let layout = self.layout().permute(axes.as_ref())?;
        let rank = self.rank() as isize;
        let resolve = |&axis: &isize| (if axis < 0 { axis + rank } else { axis }) as usize;
        self.view_of(layout, || View::Permute { axes: axes.as_ref().iter().map(resolve).collect() })
    }

    /// `length` elements of an axis from `start`.
    pub fn narrow(&self, axis: isize, start: usize, length: usize) -> Result<Tensor> {
        let layout = self.layout().narrow(axis, start, length)?;
        let axis = self.resolved("narrow", axis)?;
        self.view_of(layout, || View::Slice { axis, start, length, step: 1 })
    }

    /// Elements `start`, `start + step`, … below `end` of an axis. As in Python, negative bounds count from the end and
    /// bounds outside are clamped.
    pub fn slice(&self, axis: isize, start: isize, end: isize, step: usize) -> Result<Tensor> {
        let layout = self.layout().slice(axis, start, end, step)?;
        let axis = self.resolved("slice", axis)?;
        let size = self.shape()[axis] as isize;
        let start = (if start < 0 { start.saturating_add(size) } else { start }).clamp(0, size) as usize;
        self.view_of(layout, || View::Slice { axis, start, length: layout.shape()[axis], step })
    }

    /// One index of an axis; the axis is gone. Negative indices count from the end.
    pub fn select(&self, axis: isize, index: isize) -> Result<Tensor> {
        let layout = self.layout().select(axis, index)?;
        let axis = self.resolved("select", axis)?;
        let size = self.shape()[axis] as isize;
        let index = (if index < 0 { index + size } else { index }) as usize;
        self.view_of(layout, || View::Select { axis, index })
    }

    /// Broadcasts to a shape: axes of size 1 are repeated without a copy, missing axes are added in front. [`INFER`] keeps
    /// the size of an axis.
    pub fn expand(&self, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let mut shape = dims("expand", shape.as_ref())?;
        let missing = shape.len().saturating_sub(self.rank());
        if shape[..missing].contains(&INFER) {
            let (what, expected) = ("the size of a new axis", "a size, as there is none to keep");
            return Err(Error::Argument { op: "expand", what, expected, found: Scalar::Int(-1) });
        }
        for axis in missing..shape.len() {
            if shape[axis] == INFER {
                shape[axis] = self.shape()[axis - missing];
            }
        }
        let layout = self.layout().broadcast_to("expand", &shape)?;
        shape.checked_product().ok_or(ViewError::Overflow { op: "expand", shape })?;
        self.view_of(layout, || View::Expand { shape })
    }

    /// The same elements in row-major order as another shape; copies if strides demand it. One size may be [`INFER`].
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = self.inferred("reshape", shape.as_ref())?;
        match self.layout().view(&shape) {
            Ok(layout) => self.view_of(layout, || View::Reshape { shape }),
            Err(ViewError::NotViewable { .. }) => self.row_major_copy()?.view(shape),
            Err(ViewError::ElementCount { from, to, .. }) => {
                Err(ViewError::ElementCount { op: "reshape", from, to }.into())
            }
            Err(ViewError::Overflow { shape, .. }) => {
                Err(ViewError::Overflow { op: "reshape", shape }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The same elements in row-major order as another shape, without a copy; an error if strides don't allow it. One
    /// size may be [`INFER`].
    pub fn view(&self, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = self.inferred("view", shape.as_ref())?;
        let layout = self.layout().view(&shape)?;
        self.view_of(layout, || View::Reshape { shape })
    }

    fn inferred(&self, op: &'static str, shape: &[usize]) -> Result<Dims> {
        let mut shape = dims(op, shape)?;
        let Some(open) = shape.iter().position(|&size| size == INFER) else { return Ok(shape) };
        shape[open] = 1;
        if shape.contains(&INFER) {
            let (what, expected, found) = ("the number of sizes left over", "at most 1", Scalar::Int(2));
            return Err(Error::Argument { op, what, expected, found });
        }
        let known = shape.checked_product().ok_or(ViewError::Overflow { op, shape })?;
        let count = self.element_count();
        if known == 0 || !count.is_multiple_of(known) {
            return Err(Error::Infer { op, known, shape: self.shape().to_vec(), found: count });
        }
        shape[open] = count / known;
        Ok(shape)
    }

    /// Drops an axis of size 1; any other axis stays.
    pub fn squeeze(&self, axis: isize) -> Result<Tensor> {
        if self.is_imagined(axis) {
            return self.alias_view();
        }
        let layout = self.layout().squeeze(axis)?;
        self.view_of(layout, || View::Reshape { shape: *layout.shape() })
    }

    /// Puts an axis of size 1 before axis `axis`, which may be the rank.
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let layout = self.layout().unsqueeze(axis)?;
        self.view_of(layout, || View::Reshape { shape: *layout.shape() })
    }

    /// Merges axes `first` to `last`, both included, into one; copies if strides demand it.
    pub fn flatten(&self, first: isize, last: isize) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape([1]);
        }
        let (first, last) = (self.resolved("flatten", first)?, self.resolved("flatten", last)?);
        if first > last {
            let (start, end, size) = (first, last, self.rank());
            return Err(ViewError::Range { op: "flatten", axis: first, start, end, size }.into());
        }
        let mut shape = Dims::EMPTY;
        shape.extend_from(&self.shape()[..first]);
        shape.push(self.shape()[first..=last].iter().product());
        shape.extend_from(&self.shape()[last + 1..]);
        self.reshape(shape)
    }

    /// Windows of `size` elements, `step` apart, along an axis; the window becomes a new last axis.
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Result<Tensor> {
        if self.rank() == 0 && matches!(axis, 0 | -1) {
            // As of one element, but that there is one window alone.
            return self.reshape([1])?.unfold(0, size, step)?.select(0, 0);
        }
        let layout = self.layout().unfold(axis, size, step)?;
        let axis = self.resolved("unfold", axis)?;
        self.view_of(layout, || View::Unfold { axis, size, step })
    }

    /// The elements whose indices on axes `a` and `b` differ by `shift` (b − a); they become a new last axis.
    pub fn diagonal(&self, shift: isize, a: isize, b: isize) -> Result<Tensor> {
        let layout = self.layout().diagonal(shift, a, b)?;
        let (a, b) = (self.resolved("diagonal", a)?, self.resolved("diagonal", b)?);
        self.view_of(layout, || View::Diagonal { shift, a, b })
    }

    /// Any shape, strides and offset (in elements, from the start of the storage) inside the storage.
    pub fn as_strided(
        &self,
        shape: impl AsRef<[usize]>,
        strides: impl AsRef<[usize]>,
        offset: usize,
    ) -> Result<Tensor> {
        let storage = self.storage_element_count();
        let layout = Layout::as_strided(storage, shape.as_ref(), strides.as_ref(), offset)?;
        let (shape, strides) = (*layout.shape(), *layout.strides());
        self.view_of(layout, || View::AsStrided { shape, strides, offset })
    }

    /// All indices of an axis, one view each.
    pub fn unbind(&self, axis: isize) -> Result<Vec<Tensor>> {
        let axis = self.resolved("unbind", axis)? as isize;
        (0..self.size(axis)?).map(|index| self.select(axis, index as isize)).collect()
    }

    /// Parts of `size` elements along an axis, the last one maybe smaller; views.
    pub fn split(&self, size: usize, axis: isize) -> Result<Vec<Tensor>> {
        let op = "split";
        let axis = self.resolved(op, axis)?;
        let length = self.shape()[axis];
        if size == 0 && length > 0 {
            return Err(ViewError::Step { op, axis }.into());
        }
        if length == 0 {
            return Ok(vec![self.narrow(axis as isize, 0, 0)?]);
        }
        let starts = (0..length).step_by(size);
        starts.map(|start| self.narrow(axis as isize, start, size.min(length - start))).collect()
    }

    /// Parts of the given sizes along an axis, which they fill exactly; views.
    pub fn split_sizes(&self, sizes: &[usize], axis: isize) -> Result<Vec<Tensor>> {
        let op = "split";
        let axis = self.resolved(op, axis)?;
        let size = self.shape()[axis];
        let end = sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
        if end != size {
            return Err(ViewError::Range { op, axis, start: 0, end, size }.into());
        }
        let mut start = 0;
        let part = |&size: &usize| {
            let part = self.narrow(axis as isize, start, size);
            start += size;
            part
        };
        sizes.iter().map(part).collect()
    }

    /// At most `count` parts of equal size (but for the last) along an axis; views.
    pub fn chunk(&self, count: usize, axis: isize) -> Result<Vec<Tensor>> {
        let op = "chunk";
        let resolved = self.resolved(op, axis)?;
        if count == 0 {
            return Err(ViewError::Step { op, axis: resolved }.into());
        }
        let length = self.shape()[resolved];
        if length == 0 {
            return (0..count).map(|_| self.narrow(axis, 0, 0)).collect();
        }
        self.split(length.div_ceil(count), axis)
    }
}

/// Appending several sizes at once.
pub(crate) trait Extend {
    fn extend_from(&mut self, values: &[usize]);
}
impl Extend for Dims {
    fn extend_from(&mut self, values: &[usize]) {
        values.iter().for_each(|&value| self.push(value));
    }
}

impl View {
    /// Makes this view of `tensor`, which has the shape of the recorded input. `Reshape` copies if it must.
    pub fn apply(&self, tensor: &Tensor) -> Result<Tensor> {
        let signed = |axis: &usize| *axis as isize;
        match self {
            View::Transpose { a, b } => tensor.transpose(signed(a), signed(b)),
            View::Permute { axes } => {
                tensor.permute(axes.iter().map(signed).collect::<SmallVec<[isize; 8]>>())
            }
            View::Slice { axis, start, length, step } => {
                let end = if *length == 0 { *start } else { start + (length - 1) * step + 1 };
                tensor.slice(signed(axis), *start as isize, end as isize, *step)
            }
            View::Select { axis, index } => tensor.select(signed(axis), *index as isize),
            View::Expand { shape } => tensor.expand(shape),
            View::Reshape { shape } => tensor.reshape(shape),
            View::Unfold { axis, size, step } => tensor.unfold(signed(axis), *size, *step),
            View::Diagonal { shift, a, b } => tensor.diagonal(*shift, signed(a), signed(b)),
            View::AsStrided { shape, strides, offset } => tensor.as_strided(shape, strides, *offset),
            View::Alias => Ok(tensor.clone()),
        }
    }
}

impl Op for View {
    fn name(&self) -> &'static str {
        "view"
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let meta = context.meta(0);
        only(match self {
            View::Transpose { a, b } => g.transpose(*a as isize, *b as isize)?,
            View::Permute { axes } => {
                let mut inverse = [0isize; 8];
                axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to as isize);
                g.permute(&inverse[..axes.len()])?
            }
            View::Reshape { .. } => g.reshape(meta.shape())?,
            View::Expand { .. } => sum_to(g.clone(), meta.shape())?,
            View::Alias => g.clone(),
            // Made again of zeros, and written through: exactly the elements that the view has, whatever its step.
            View::Slice { .. } | View::Select { .. } | View::Diagonal { .. } => {
                let gradient = meta.zeros()?;
                self.apply(&gradient)?.copy_(g)?;
                gradient
            }
            View::Unfold { axis, size, step } => unfold(meta, *axis, *size, *step, g)?,
            View::AsStrided { shape, strides, offset } => {
                as_strided(meta, &Layout::new(*shape, *strides, *offset), g)?
            }
        })
    }
}

/// Windows may overlap: one element of all windows at a time. Sums of 16-bit floats are rounded once, by the caller.
fn unfold(meta: &Meta, axis: usize, size: usize, step: usize, g: &Tensor) -> Result<Tensor> {
    let gradient = Meta { dtype: meta.dtype.compute(), ..*meta }.zeros()?;
    if meta.rank() == 0 {
        gradient.copy_(&g.reshape(meta.shape())?)?;
        return Ok(gradient);
    }
    let windows = g.shape()[axis];
    for place in 0..if windows == 0 { 0 } else { size } {
        let end = place + (windows - 1) * step + 1;
        gradient
            .slice(axis as isize, place as isize, end as isize, step)?
            .add_(&g.select(-1, place as isize)?)?;
    }
    Ok(gradient)
}

/// Through the memory: what the view's elements add to each place of it, seen through the input's layout. Where several
/// elements of the input are one place they share its gradient evenly, as in PyTorch.
fn as_strided(meta: &Meta, view: &Layout, g: &Tensor) -> Result<Tensor> {
    if meta.layout.is_empty() || view.is_empty() {
        return meta.zeros();
    }
    let first = meta.layout.offset().min(view.offset());
    let place_count = meta.layout.end().max(view.end()) - first;
    let memory = Tensor::zeros([place_count], g.dtype(), &meta.device)?;
    let of = |memory: &Tensor, layout: &Layout| {
        memory.as_strided(layout.shape(), layout.strides(), layout.offset() - first)
    };
    let places = Tensor::arange(0, place_count as i64, 1, DType::I64, &meta.device)?;
    if view.self_overlap() {
        memory.index_add_(0, &of(&places, view)?.ravel()?, &g.ravel()?, 1.0)?;
    } else {
        of(&memory, view)?.copy_(g)?;
    }
    if meta.layout.self_overlap() {
        let counts = memory.zeros_like()?;
        let ones = Tensor::ones([meta.layout.element_count()], g.dtype(), &meta.device)?;
        counts.index_add_(0, &of(&places, &meta.layout)?.ravel()?, &ones, 1.0)?;
        // Places that the input doesn't have aren't looked at.
        memory.div_(&counts)?;
    }
    meta.filled(|gradient| gradient.copy_(&of(&memory, &meta.layout)?).map(|_| ()))
}
