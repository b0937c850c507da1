//! Ops that move elements: views, indexing, joining.

use super::gradients::{Gradients, filled, sum_to};
use crate::{
    Result,
    graph::{Context, Meta},
};
use raddle_tensor::{DType, Layout, ScatterMode, Tensor, View};
use smallvec::SmallVec;

/// The gradient by the input of a view.
pub(super) fn view(view: &View, meta: &Meta, g: &Tensor) -> Result<Tensor> {
    Ok(match view {
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
            view.apply(&gradient)?.copy_(g)?;
            gradient
        }
        View::Unfold { axis, size, step } => unfold(meta, *axis, *size, *step, g)?,
        View::AsStrided { shape, strides, offset } => {
            as_strided(meta, &Layout::new(*shape, *strides, *offset), g)?
        }
    })
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
    filled(meta, |gradient| gradient.copy_(&of(&memory, &meta.layout)?).map(|_| ()))
}

/// The gradients of a tensor whose part was replaced, and of that part.
pub(super) fn assign(context: &Context<'_>, g: &Tensor) -> Result<Gradients> {
    let (whole, part) = (context.meta(0), context.meta(1));
    let place_count = whole.layout.end().max(part.layout.end());
    let memory = Tensor::zeros([place_count], g.dtype(), &whole.device)?;
    let of = |layout: &Layout| memory.as_strided(layout.shape(), layout.strides(), layout.offset());
    of(&whole.layout)?.copy_(g)?;
    let mut results: Gradients = smallvec::smallvec![None, None];
    if context.wants(1) {
        results[1] = Some(of(&part.layout)?.copy()?);
    }
    if context.wants(0) {
        of(&part.layout)?.zero_()?;
        results[0] = Some(filled(whole, |gradient| gradient.copy_(&of(&whole.layout)?).map(|_| ()))?);
    }
    Ok(results)
}

pub(super) fn gather(context: &Context<'_>, axis: usize, g: &Tensor) -> Result<Gradients> {
    let gradient = context.meta(0).zeros()?;
    gradient.scatter_add_(axis as isize, context.input(1), g)?;
    Ok(SmallVec::from_iter([Some(gradient), None]))
}

pub(super) fn scatter(
    context: &Context<'_>,
    axis: usize,
    mode: ScatterMode,
    g: &Tensor,
) -> Result<Gradients> {
    let (index, axis) = (context.input(1), axis as isize);
    let mut results: Gradients = smallvec::smallvec![None, None, None];
    if context.wants(0) {
        results[0] = Some(match mode {
            ScatterMode::Add => g.clone(),
            ScatterMode::Overwrite => {
                let nothing = Tensor::zeros([0usize; 0], g.dtype(), &g.device())?.expand(index.shape())?;
                g.scatter(axis, index, &nothing)?
            }
        });
    }
    if context.wants(2) {
        let meta = context.meta(2);
        let mut gathered = g.gather(axis, index)?;
        if mode == ScatterMode::Overwrite && !index.layout().is_empty() {
            // Of values for one place only the last one stands: number them, and see whose number is there.
            let count = index.element_count() as i64;
            let numbers = Tensor::arange(0, count, 1, DType::I64, &g.device())?.reshape(index.shape())?;
            let places = Tensor::zeros(g.shape(), DType::I64, &g.device())?;
            let stands = places.scatter_(axis, index, &numbers)?.gather(axis, index)?.eq(&numbers)?;
            gathered = stands.where_(&gathered, 0)?;
        }
        results[2] = Some(if index.shape() == meta.shape() {
            gathered
        } else {
            // Values beyond the index weren't used.
            let gradient = meta.zeros()?;
            let mut used = gradient.clone();
            for (axis, &size) in index.shape().iter().enumerate() {
                used = used.narrow(axis as isize, 0, size)?;
            }
            used.copy_(&gathered)?;
            gradient
        });
    }
    Ok(results)
}

pub(super) fn index_select(context: &Context<'_>, axis: usize, g: &Tensor) -> Result<Gradients> {
    let gradient = context.meta(0).zeros()?;
    gradient.index_add_(axis as isize, context.input(1), g, 1.0)?;
    Ok(SmallVec::from_iter([Some(gradient), None]))
}

pub(super) fn index_add(context: &Context<'_>, axis: usize, alpha: f64, g: &Tensor) -> Result<Gradients> {
    let mut results: Gradients = smallvec::smallvec![None, None, None];
    if context.wants(0) {
        results[0] = Some(g.clone());
    }
    if context.wants(2) {
        let selected = g.index_select(axis as isize, context.input(1))?;
        results[2] = Some(if alpha == 1.0 { selected } else { selected.mul(alpha)? });
    }
    Ok(results)
}

pub(super) fn cat(context: &Context<'_>, axis: usize, g: &Tensor) -> Result<Gradients> {
    let mut start = 0;
    let mut results = Gradients::new();
    for (input, meta) in context.node.inputs.iter().enumerate() {
        // A tensor of shape [0] goes with any others, and is nowhere among them.
        let length = meta.shape().get(axis).copied().unwrap_or(0);
        let part = || match **meta.shape() {
            [0] => meta.zeros(),
            _ => Ok(g.narrow(axis as isize, start, length)?),
        };
        results.push(context.wants(input).then(part).transpose()?);
        start += length;
    }
    Ok(results)
}
