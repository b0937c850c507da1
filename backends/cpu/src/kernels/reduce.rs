//! Reductions over any axes.
//!
//! Guarantee: the order in which elements are combined is a function of the shape alone, so strides, dtype of the output
//! and number of threads don't change a bit (T8). The reduced axes, in the order of the shape, are cut into an *inner*
//! part (the last of them that have at least [`BLOCK`] elements together) and an *outer* part. Both are combined in the
//! order of [`super::fold`].
//!
//! Along memory that is one vector addition for each vector of elements. Across memory ([`across`]) the same tree is
//! built for many outputs at once, each step a whole row of them: the lanes are then visited in the order in which
//! halving combines them, so that only a handful of rows of partial results live at any time, in the first-level cache.
//!
//! Partial results and means lie in scratch of the thread that submits, at most [`PARTIAL_COUNT_MAX`]: where there would be
//! more, the outputs are made in [`for_each_window`], one window after the other, and one that alone has more gets
//! longer parts.

use super::axis::{Grid, Line, Shared};
use super::element::{Compute, Truth, by_compute, by_dtype};
use super::fold::{
    BLOCK, Cascade, Deviations, Distances, Fold, LANES, Largest, Mapped, PIECE, Product, RootDeviations,
    Smallest, Squares, Sum, fold_slice,
};
use super::level::multiversion;
use super::scratch::scratch;
use super::view;
use crate::threads::{Threads, for_each_range};
use raddle_base::{DType, Layout, MAX_RANK};
use raddle_hal::{Address, View};
use raddle_op::ReduceOp;
use raddle_sync::fault;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of a row of partial results in [`across`]: a dozen such rows fit the first-level cache.
const ROW_BYTES: usize = 2048;
/// And at least: what is read at once is to be longer than a few lines. (16 cores of a Xeon, 2026-11-30, rows of 4096 `f32`: with 2048
/// bytes, 8 units, 82 GB/s, with 1024 155, with 512 131.)
const ROW_BYTES_MIN: usize = 512;
/// The most partial results and means at a time: 8 MiB of `f64`. So many come of at least as many elements, which is work enough for
/// any number of cores. Few in tests, so that they see windows.
const PARTIAL_COUNT_MAX: usize = if cfg!(test) { 8 } else { 1 << 20 };

multiversion! {
/// The first row of a lane, or one that isn't followed by others.
fn start_row<A: Compute, F: Fold<A>>(to: &mut [A], row: &[A], means: &[A]) {
    if means.is_empty() {
        for (to, &x) in to.iter_mut().zip(row) {
            *to = F::map(x, x);
        }
    } else {
        for ((to, &x), &mean) in to.iter_mut().zip(row).zip(means) {
            *to = F::map(x, mean);
        }
    }
}
}

multiversion! {
/// Another row of a lane.
fn add_row<A: Compute, F: Fold<A>>(to: &mut [A], row: &[A], means: &[A]) {
    if means.is_empty() {
        for (to, &x) in to.iter_mut().zip(row) {
            *to = F::combine(*to, F::map(x, x));
        }
    } else {
        for ((to, &x), &mean) in to.iter_mut().zip(row).zip(means) {
            *to = F::combine(*to, F::map(x, mean));
        }
    }
}
}

multiversion! {
/// Eight rows of a lane at once, without means: one store for eight loads. They follow what is there, unless they are
/// the first.
fn eight_rows<A: Compute, F: Fold<A>>(to: &mut [A], rows: &[&[A]; 8], first: bool) {
    let count = to.len();
    let [a, b, c, d, e, f, g, h] = rows.map(|row| &row[..count]);
    for i in 0..count {
        let x = F::map(a[i], a[i]);
        let mut value = if first { x } else { F::combine(to[i], x) };
        for row in [b, c, d, e, f, g, h] {
            value = F::combine(value, F::map(row[i], row[i]));
        }
        to[i] = value;
    }
}
}

multiversion! {
/// `later = earlier ∘ later`
fn merge_rows<A: Compute, F: Fold<A>>(earlier: &[A], later: &mut [A]) {
    for (later, &earlier) in later.iter_mut().zip(earlier) {
        *later = F::combine(earlier, *later);
    }
}
}

/// A [`Cascade`] of rows. A row may be absent, which counts as the identity.
struct RowCascade<'a, A> {
    /// Digit after digit, then the row at work.
    rows: &'a mut [A],
    width: usize,
    present: [bool; RowCascade::<()>::DEPTH],
    count: usize,
}

impl RowCascade<'_, ()> {
    /// Digits enough for the lanes of a piece.
    const DEPTH: usize = LANES.ilog2() as usize + 1;
}

impl<A: Compute> RowCascade<'_, A> {
    /// Where the row to be pushed next is made.
    fn work(&mut self) -> &mut [A] {
        &mut self.rows[RowCascade::<()>::DEPTH * self.width..][..self.width]
    }

    fn push<F: Fold<A>>(&mut self, mut present: bool) {
        let level = self.count.trailing_ones() as usize;
        for digit in 0..level {
            present = self.merge::<F>(digit, present);
        }
        self.present[level] = present;
        if present {
            let work = RowCascade::<()>::DEPTH * self.width;
            self.rows.copy_within(work..work + self.width, level * self.width);
        }
        self.count += 1;
    }

    /// Combines a digit into the row at work.
    fn merge<F: Fold<A>>(&mut self, digit: usize, present: bool) -> bool {
        let (digits, work) = self.rows.split_at_mut(RowCascade::<()>::DEPTH * self.width);
        let row = &digits[digit * self.width..][..self.width];
        match (self.present[digit], present) {
            (false, _) => return present,
            (true, false) => work[..self.width].copy_from_slice(row),
            (true, true) => merge_rows::<A, F>(row, &mut work[..self.width]),
        }
        true
    }

    /// The result, in [`RowCascade::work`].
    fn finish<F: Fold<A>>(&mut self) {
        let mut present = false;
        let mut rest = self.count;
        while rest != 0 {
            present = self.merge::<F>(rest.trailing_zeros() as usize, present);
            rest &= rest - 1;
        }
        if !present {
            self.work().fill(F::IDENTITY);
        }
    }
}

/// A reduction, taken apart. Its *items* are the positions of the kept and of the outer reduced axes; each is the
/// reduction of `inner.count` elements.
struct Plan {
    /// Strides of an item in the input, in the output (kept axes), among the partial results, among the means.
    items: Grid<4>,
    inner: Line,
    /// Items that make an output.
    outer_count: usize,
    /// Parts that make an item.
    part_count: usize,
    /// Elements of a part: [`PIECE`], or a power of two of them, of which a [`Cascade`] makes what it would make of the pieces.
    part: usize,
}

const INPUT: usize = 0;
const OUTPUT: usize = 1;
const PARTIAL: usize = 2;
const MEAN: usize = 3;

impl Plan {
    fn new(output: &View, input: &View, axes: u8) -> Plan {
        let (shape, strides) = (view::layout(input).shape(), view::layout(input).strides());
        let output = view::layout(output).strides();
        let reduced = |axis: usize| axes >> axis & 1 == 1;
        let mut split = shape.len();
        let mut inner_count = 1usize;
        let reduced_count: usize = (0..split).filter(|&axis| reduced(axis)).map(|axis| shape[axis]).product();
        while split > 0 && inner_count < BLOCK.max(reduced_count.div_ceil(PARTIAL_COUNT_MAX)) {
            split -= 1;
            if reduced(split) {
                inner_count *= shape[split];
            }
        }
        let of = |axis: usize| (shape[axis], strides[axis]);
        let inner = Line::over(input, (split..shape.len()).filter(|&axis| reduced(axis)).map(of));
        let outer_count = (0..split).filter(|&axis| reduced(axis)).map(|axis| shape[axis]).product::<usize>();
        let part_count = |part: usize| inner.count.div_ceil(part).max(1);
        let mut part = PIECE;
        while part_count(part) > 1 && outer_count.saturating_mul(part_count(part)) > PARTIAL_COUNT_MAX {
            part *= 2;
        }
        let part_count = part_count(part);
        // Partial results are stored row-major over kept axes, outer axes, parts; means over kept axes.
        let (mut partial, mut mean) = (part_count, 1);
        let mut items: SmallVec<[(usize, [usize; 4]); MAX_RANK]> = SmallVec::new();
        for axis in (0..split).rev().filter(|&axis| reduced(axis)) {
            items.push((shape[axis], [strides[axis], 0, partial, 0])); // Bounded: one for an axis
            partial *= shape[axis];
        }
        for axis in (0..shape.len()).rev().filter(|&axis| !reduced(axis)) {
            items.push((shape[axis], [strides[axis], output[axis], partial, mean])); // Bounded: as above
            partial *= shape[axis];
            mean *= shape[axis];
        }
        Plan { items: Grid::new(items.into_iter().rev()), inner, outer_count, part_count, part }
    }

    /// Does an item's result go straight to the output?
    fn is_direct(&self) -> bool {
        self.outer_count == 1 && self.part_count == 1
    }

    /// Is each output that of one line along memory?
    fn is_line_by_line(&self) -> bool {
        self.is_direct() && self.row_axis().is_none()
    }

    /// Partial results of an output.
    fn partial_count(&self) -> usize {
        if self.is_direct() { 0 } else { self.outer_count.saturating_mul(self.part_count) }
    }

    /// Along which axis of items [`across`] takes rows, if that is better than going along the inner elements.
    fn row_axis(&self) -> Option<usize> {
        if self.part > PIECE {
            return None; // rows are cut into pieces
        }
        let step = self.inner.stride().unwrap_or(usize::MAX);
        let nearest = (0..self.items.shape.len())
            .filter(|&axis| self.items.shape[axis] >= 8 && self.items.strides[INPUT][axis] > 0)
            .min_by_key(|&axis| self.items.strides[INPUT][axis])?;
        (self.inner.count < LANES || self.items.strides[INPUT][nearest] < step).then_some(nearest)
    }
}

/// Where results of a plan go: `(item position, its offsets, piece, results of consecutive positions)` are stored.
struct Sink<'a, A> {
    plan: &'a Plan,
    output: &'a View,
    partials: Shared<A>,
    divisor: f64,
    /// Of each kept position, or none.
    means: &'a [A],
}

/// What is done to a result before it is stored.
#[inline(always)]
fn finish<A: Compute, F: Fold<A>>(value: A, divisor: f64, mean: A) -> A {
    let value = F::seal(value);
    F::settle(if divisor == 1.0 { value } else { A::from_f64(value.f64() / divisor) }, mean)
}

impl<A: Compute> Sink<'_, A> {
    /// The mean of an output.
    fn mean<F: Fold<A>>(&self, position: usize) -> A {
        self.means.get(position).copied().unwrap_or(F::IDENTITY)
    }

    /// Stores results of items along one axis of the items; `offsets` are those of the first.
    ///
    /// # Safety
    /// - The output and the partial results are live, and the elements of these items are the caller's.
    unsafe fn put<F: Fold<A>>(&self, offsets: [usize; 4], axis: Option<usize>, piece: usize, values: &[A]) {
        let stride = |operand: usize| axis.map_or(0, |axis| self.plan.items.strides[operand][axis]);
        if self.plan.is_direct() {
            by_dtype!(self.output.dtype, E => {
                let start = view::start::<E>(self.output).wrapping_add(offsets[OUTPUT]);
                let (mean_stride, stride) = (stride(MEAN), stride(OUTPUT));
                for (index, value) in values.iter().enumerate() {
                    let mean = self.mean::<F>(offsets[MEAN] + index * mean_stride);
                    let value = finish::<A, F>(*value, self.divisor, mean);
                    // SAFETY: the caller's bullet.
                    unsafe { *start.wrapping_add(index * stride) = value.give() };
                }
            });
        } else {
            let stride = stride(PARTIAL);
            for (index, value) in values.iter().enumerate() {
                // SAFETY: the caller's bullet.
                unsafe { *self.partials.at(offsets[PARTIAL] + piece + index * stride) = *value };
            }
        }
    }
}

/// Items one by one, each along memory.
///
/// # Safety
/// - As of [`super::execute`]; the sink has a mean for each kept position, or none.
unsafe fn along<A: Compute, F: Fold<A>>(plan: &Plan, sink: &Sink<A>, threads: Threads) {
    let Plan { items, inner, part_count, part, .. } = plan;
    let cost = inner.count.min(*part);
    for_each_range(threads, items.count() * part_count, cost, |range| {
        scratch::<A, _>(inner.count.min(PIECE), |staged| {
            for unit in range {
                let (item, index) = (unit / part_count, unit % part_count);
                let offsets = items.at(item);
                let mean = sink.mean::<F>(offsets[MEAN]);
                let elements = index * part..inner.count.min((index + 1) * part);
                let mut fold_staged = |elements: Range<usize>| {
                    let staged = &mut staged[..elements.len()];
                    // SAFETY: the line is in the input.
                    unsafe { inner.load(offsets[INPUT], elements, staged) };
                    fold_slice::<A, F>(staged, mean)
                };
                let value = if inner.is_direct::<A>() {
                    // SAFETY: the line is in the input.
                    fold_slice::<A, F>(unsafe { inner.slice(offsets[INPUT], elements) }, mean)
                } else if elements.len() <= PIECE {
                    fold_staged(elements)
                } else {
                    let mut cascade = Cascade::new::<F>();
                    for first in elements.clone().step_by(PIECE) {
                        cascade.push::<F>(fold_staged(first..elements.end.min(first + PIECE)));
                    }
                    cascade.finish::<F>()
                };
                // SAFETY: each unit has a place of its own.
                unsafe { sink.put::<F>(offsets, None, index, &[value]) };
            }
        });
    });
}

/// Rows of items at a time, each step across memory.
///
/// # Safety
/// - As of [`along`].
unsafe fn across<A: Compute, F: Fold<A>>(plan: &Plan, sink: &Sink<A>, axis: usize, threads: Threads) {
    let Plan { items, inner, part_count: piece_count, .. } = plan;
    let means = sink.means;
    let length = items.shape[axis];
    let mut rest = *items;
    rest.shape.remove(axis);
    for strides in &mut rest.strides {
        strides.remove(axis);
    }
    let stride = |operand: usize| items.strides[operand][axis];
    // Narrower where there would be fewer units than threads: how wide a row is changes no order.
    let units = |width: usize| rest.count() * length.div_ceil(width) * piece_count;
    let mut width_max = ROW_BYTES / size_of::<A>();
    while units(width_max) < threads.0 && width_max * size_of::<A>() > ROW_BYTES_MIN {
        width_max /= 2;
    }
    let width_max = width_max.min(length);
    let chunk_count = length.div_ceil(width_max);
    let cost = inner.count.min(PIECE) * width_max;
    for_each_range(threads, units(width_max), cost, |range| {
        let depth = RowCascade::<()>::DEPTH + 1;
        scratch::<A, _>((depth + 1 + 1 + 8) * width_max, |memory| {
            let (rows, staged) = memory.split_at_mut(depth * width_max);
            let (row_means, staged) = staged.split_at_mut(width_max);
            for unit in range {
                let (piece, unit) = (unit % piece_count, unit / piece_count);
                let (chunk, position) = (unit % chunk_count, unit / chunk_count);
                let first = chunk * width_max;
                let width = width_max.min(length - first);
                let mut offsets = rest.at(position);
                (0..4).for_each(|operand| offsets[operand] += first * stride(operand));
                let row_means = if means.is_empty() {
                    &mut row_means[..0]
                } else {
                    for (index, mean) in row_means[..width].iter_mut().enumerate() {
                        *mean = means[offsets[MEAN] + index * stride(MEAN)];
                    }
                    &mut row_means[..width]
                };
                let elements = piece * PIECE..inner.count.min((piece + 1) * PIECE);
                let source = Row { inner, start: offsets[INPUT], stride: stride(INPUT), width };
                let mut cascade =
                    RowCascade { rows: &mut *rows, width, present: Default::default(), count: 0 };
                // SAFETY: the rows are in the input.
                unsafe { push_piece::<A, F>(&mut cascade, &source, elements, row_means, staged) };
                cascade.finish::<F>();
                // SAFETY: each unit has places of its own.
                unsafe { sink.put::<F>(offsets, Some(axis), piece, cascade.work()) };
            }
        });
    });
}

/// A row for each inner element: the elements of neighbouring items.
struct Row<'a> {
    inner: &'a Line,
    start: usize,
    stride: usize,
    width: usize,
}

impl Row<'_> {
    /// The row of inner element `element`, where it lies or copied.
    ///
    /// # Safety
    /// - It is in live memory that nobody writes while the slice lives.
    unsafe fn read<'a, A: Compute>(&self, element: usize, staged: &'a mut [A]) -> &'a [A] {
        let offset = self.start + self.inner.offset(element);
        if self.inner.dtype == A::DTYPE && self.stride == 1 {
            // SAFETY: the row has no holes.
            return unsafe { std::slice::from_raw_parts(self.inner.address(offset), self.width) };
        }
        let staged = &mut staged[..self.width];
        by_dtype!(self.inner.dtype, E => {
            // SAFETY: the caller's bullet.
            unsafe { super::axis::load_run(self.inner.address::<E>(offset), self.stride, staged) };
        });
        staged
    }
}

/// Pushes a piece of rows, lane by lane in the order in which halving combines them.
///
/// # Safety
/// - The rows are in live memory that nobody writes meanwhile; `staged` has room for nine of them.
unsafe fn push_piece<A: Compute, F: Fold<A>>(
    cascade: &mut RowCascade<A>,
    source: &Row,
    elements: Range<usize>,
    means: &[A],
    staged: &mut [A],
) {
    let (lane_of_block, staged) = staged.split_at_mut(source.width);
    let whole = elements.start + elements.len() / LANES * LANES;
    for turn in 0..LANES {
        let lane = (turn as u32).reverse_bits() as usize >> (u32::BITS - LANES.ilog2());
        let blocks =
            (elements.start..whole).step_by(BLOCK).map(|first| first + lane..whole.min(first + BLOCK));
        let last = (whole + lane < elements.end).then_some(whole + lane..elements.end);
        let mut present = false;
        for rows in blocks.chain(last) {
            let to = if present { &mut *lane_of_block } else { cascade.work() };
            // SAFETY: the caller's bullet.
            unsafe { fold_rows::<A, F>(to, source, rows, means, staged) };
            if present {
                add_row::<A, Mapped<F>>(cascade.work(), lane_of_block, &[]);
            }
            present = true;
        }
        cascade.push::<F>(present);
    }
}

/// Combines every [`LANES`]th row, in order.
///
/// # Safety
/// - As of [`push_piece`].
unsafe fn fold_rows<A: Compute, F: Fold<A>>(
    to: &mut [A],
    source: &Row,
    elements: Range<usize>,
    means: &[A],
    staged: &mut [A],
) {
    let count = elements.len().div_ceil(LANES);
    let mut step = 0;
    let element = |step: usize| elements.start + step * LANES;
    while means.is_empty() && step + 8 <= count {
        let mut rest = &mut *staged;
        let rows: [&[A]; 8] = std::array::from_fn(|index| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(source.width);
            rest = others;
            // SAFETY: the caller's bullet.
            unsafe { source.read(element(step + index), own) }
        });
        eight_rows::<A, F>(to, &rows, step == 0);
        step += 8;
    }
    for step in step..count {
        // SAFETY: the caller's bullet.
        let row = unsafe { source.read(element(step), staged) };
        match step {
            0 => start_row::<A, F>(to, row, means),
            _ => add_row::<A, F>(to, row, means),
        }
    }
}

/// Combines the partial results of each output.
///
/// # Safety
/// - As of [`along`].
unsafe fn combine_partials<A: Compute, F: Fold<A>>(
    plan: &Plan,
    sink: &Sink<A>,
    kept: &Grid<1>,
    threads: Threads,
) {
    let Plan { outer_count, part_count: piece_count, .. } = *plan;
    let each = outer_count * piece_count;
    for_each_range(threads, kept.count(), each, |range| {
        scratch::<A, _>(outer_count.min(PIECE), |items| {
            for position in range {
                // SAFETY: the partial results of an output are read by nobody else.
                let partials = unsafe { sink.partials.slice(position * each, each) };
                let mut outer = Cascade::new::<F>();
                for part in partials.chunks(PIECE * piece_count) {
                    let items = &mut items[..part.len() / piece_count];
                    for (item, pieces) in items.iter_mut().zip(part.chunks(piece_count)) {
                        let mut cascade = Cascade::new::<F>();
                        if fault!(order_by_threads) && threads.0 > 1 {
                            pieces.iter().rev().for_each(|&piece| cascade.push::<F>(piece));
                        } else {
                            pieces.iter().for_each(|&piece| cascade.push::<F>(piece));
                        }
                        *item = cascade.finish::<F>();
                    }
                    outer.push::<F>(fold_slice::<A, Mapped<F>>(items, F::IDENTITY));
                }
                let value = if outer_count == 1 { items[0] } else { outer.finish::<F>() };
                let value = finish::<A, F>(value, sink.divisor, sink.mean::<F>(position));
                let [offset] = kept.at(position);
                by_dtype!(sink.output.dtype, E => {
                    // SAFETY: each position is an element of its own.
                    unsafe { *view::start::<E>(sink.output).wrapping_add(offset) = value.give() };
                });
            }
        });
    });
}

/// Runs a plan with a fold.
///
/// # Safety
/// - As of [`along`].
unsafe fn run<A: Compute, F: Fold<A>>(
    (output, input, axes): (&View, &View, u8),
    divisor: f64,
    means: &[A],
    threads: Threads,
) {
    let plan = Plan::new(output, input, axes);
    let partial_count = view::layout(output).element_count() * plan.partial_count();
    scratch::<A, _>(partial_count, |partials| {
        let partials = Shared::new(partials.as_mut_ptr());
        let sink = Sink { plan: &plan, output, partials, divisor, means };
        // SAFETY: the contract of this function; the partial results are this launch's own.
        unsafe {
            match plan.row_axis() {
                Some(axis) => across::<A, F>(&plan, &sink, axis, threads),
                None => along::<A, F>(&plan, &sink, threads),
            }
            if !plan.is_direct() {
                let layout = view::layout(output);
                let kept = (0..layout.rank()).filter(|axis| axes >> axis & 1 == 0);
                combine_partials::<A, F>(&plan, &sink, &Grid::of([layout], kept), threads);
            }
        }
    });
}

/// # Safety
/// - As of [`super::execute`].
pub unsafe fn reduce(op: ReduceOp, axes: u8, divisor: f64, output: &View, input: &View, threads: Threads) {
    let plan = Plan::new(output, input, axes);
    let has_means = match op {
        ReduceOp::Mean => input.dtype == DType::F64,
        ReduceOp::SquaredDeviations | ReduceOp::Deviation => !plan.is_line_by_line(),
        _ => false,
    };
    let each = plan.partial_count() + usize::from(has_means);
    for_each_window(output, input, axes, each, |output, input| {
        // SAFETY: the contract of this function, of a part of its outputs.
        unsafe { reduce_window(op, axes, divisor, output, input, threads) };
    });
}

/// Calls `body` with parts of the outputs, and what is reduced to them, such that of `each` elements of scratch for an output
/// there are at most [`PARTIAL_COUNT_MAX`]; or with single outputs.
fn for_each_window(output: &View, input: &View, axes: u8, each: usize, mut body: impl FnMut(&View, &View)) {
    fn visit(output: &View, input: &View, axes: u8, each: usize, body: &mut dyn FnMut(&View, &View)) {
        let layout = view::layout(output);
        let wanted = layout.element_count().saturating_mul(each);
        let first = (0..layout.rank()).find(|&axis| axes >> axis & 1 == 0 && layout.shape()[axis] > 1);
        let Some(axis) = first.filter(|_| wanted > PARTIAL_COUNT_MAX) else { return body(output, input) };
        let size = layout.shape()[axis];
        let step = (PARTIAL_COUNT_MAX / (wanted / size)).max(1);
        for start in (0..size).step_by(step) {
            let [output, input] = [output, input].map(|operand| {
                let layout = operand.layout.narrow(axis as isize, start, step.min(size - start));
                View { layout: layout.expect("it lies inside the axis"), ..*operand }
            });
            visit(&output, &input, axes, each, body);
        }
    }
    visit(output, input, axes, each, &mut body);
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn reduce_window(op: ReduceOp, axes: u8, divisor: f64, output: &View, input: &View, threads: Threads) {
    let what = (output, input, axes);
    // SAFETY: the contract of this function.
    unsafe {
        match op {
            ReduceOp::All => run::<Truth, Smallest>(what, divisor, &[], threads),
            ReduceOp::Any => run::<Truth, Largest>(what, divisor, &[], threads),
            ReduceOp::Sum => by_compute!(input.dtype, A => run::<A, Sum>(what, divisor, &[], threads)),
            ReduceOp::Mean => mean(what, divisor, threads),
            ReduceOp::Prod => by_compute!(input.dtype, A => run::<A, Product>(what, divisor, &[], threads)),
            ReduceOp::Max => by_compute!(input.dtype, A => run::<A, Largest>(what, divisor, &[], threads)),
            ReduceOp::Min => by_compute!(input.dtype, A => run::<A, Smallest>(what, divisor, &[], threads)),
            // In f64, where squares of f32 have room: those of 1e20 are infinite, those of 1e-30 are 0.
            ReduceOp::Norm2 => run::<f64, Squares>(what, divisor, &[], threads),
            ReduceOp::SquaredDeviations => deviations::<Deviations>(what, divisor, threads),
            ReduceOp::Deviation => deviations::<RootDeviations>(what, divisor, threads),
        }
    }
}

/// Of `f64` a second time around the first result, which is rounded.
///
/// # Safety
/// - As of [`super::execute`].
unsafe fn mean(what: (&View, &View, u8), divisor: f64, threads: Threads) {
    let (output, input, axes) = what;
    // SAFETY: the contract of this function.
    unsafe {
        if input.dtype != DType::F64 {
            return run::<f64, Sum>(what, divisor, &[], threads);
        }
        let rounded = |place: &View| run::<f64, Sum>((place, input, axes), divisor, &[], threads);
        with_means(output, rounded, |means| run::<f64, Distances>(what, divisor, means, threads));
    }
}

/// Has means made for each element of an output, in memory of their own, and used.
fn with_means(output: &View, make: impl FnOnce(&View), then: impl FnOnce(&[f64])) {
    let shape = *view::layout(output).shape();
    scratch::<f64, _>(shape.product(), |means| {
        let address = Address { handle: means.as_mut_ptr() as u64, offset_bytes: 0 };
        make(&View { address, dtype: DType::F64, layout: Layout::contiguous(shape) });
        then(means);
    });
}

/// Two passes: means, then squares of the distances to them. One pass after Welford would read memory once but can't
/// keep up with it: a division each element.
///
/// Of all floats in `f64`, as PyTorch's: in `f32` equal elements would differ from their mean, by as much as that is rounded, and
/// squares would overflow or vanish whose root doesn't.
///
/// # Safety
/// - As of [`super::execute`].
unsafe fn deviations<F: Fold<f64>>(what: (&View, &View, u8), divisor: f64, threads: Threads) {
    let (output, input, axes) = what;
    let count: usize = view::layout(input)
        .shape()
        .iter()
        .enumerate()
        .map(|(axis, &size)| if axes >> axis & 1 == 1 { size } else { 1 })
        .product();
    let mean_divisor = count.max(1) as f64;
    let plan = Plan::new(output, input, axes);
    if plan.is_line_by_line() {
        // SAFETY: the contract of this function.
        return unsafe { deviations_along::<F>(&plan, what, mean_divisor, divisor, threads) };
    }
    // SAFETY: the contract of this function; the means are this launch's own.
    unsafe {
        let make = |place: &View| mean((place, input, axes), mean_divisor, threads);
        with_means(output, make, |means| run::<f64, F>(what, divisor, means, threads));
    }
}

/// All passes over one line after the other, so that the later ones find it in the cache.
///
/// # Safety
/// - As of [`super::execute`].
unsafe fn deviations_along<F: Fold<f64>>(
    plan: &Plan,
    (output, input, _): (&View, &View, u8),
    mean_divisor: f64,
    divisor: f64,
    threads: Threads,
) {
    let Plan { items, inner, .. } = plan;
    let sink = Sink { plan, output, partials: Shared::new(std::ptr::null_mut()), divisor, means: &[] };
    for_each_range(threads, items.count(), inner.count.saturating_mul(2), |range| {
        scratch::<f64, _>(inner.count, |staged| {
            for item in range {
                let offsets = items.at(item);
                // SAFETY: the line is in the input; each item has a place of its own.
                unsafe {
                    let elements = inner.read(offsets[INPUT], staged);
                    let fold = fold_slice::<f64, Sum>(elements, 0.0);
                    let mut mean = finish::<f64, Sum>(fold, mean_divisor, 0.0);
                    if input.dtype == DType::F64 {
                        let fold = fold_slice::<f64, Distances>(elements, mean);
                        mean = finish::<f64, Distances>(fold, mean_divisor, mean);
                    }
                    let value = fold_slice::<f64, F>(elements, mean);
                    sink.put::<F>(offsets, None, 0, &[value]);
                }
            }
        });
    });
}
