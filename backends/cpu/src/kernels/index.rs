//! Gather, scatter, and the places of what isn't zero.
//!
//! Indices are checked first, all of them, so a launch that fails has written nothing; the first bad one in row-major
//! order is told. Where the index operand is expanded along the last axes (`index_select`, `index_add`, embeddings),
//! whole rows move at once. A scatter runs in parallel only over positions that can't meet; along the axis it goes in
//! index order, so the last one stands, and sums have one order. Sums of 16-bit floats are rounded once, not after each
//! addition: of a `bf16` that has come to 256 no more ones would make 258.

use super::axis::{Grid, Line, Shared};
use super::element::{Compute, Source, Truth, by_compute, by_dtype};
use super::level::multiversion;
use super::loops::by_size;
use super::scratch::{Memory, Need, Plain, Room, bytes_of, scratch};
use super::view;
use crate::threads::{Threads, for_each_range};
use half::{bf16, f16};
use raddle_base::{DType, Dims};
use raddle_hal::{Kernel, KernelError, Operand, View};
use raddle_op::ScatterMode;
use std::ops::Range;

/// Elements that a part takes along the last merged axis.
const CHUNK: usize = 4096;
/// Indices that are checked at a time.
const CHECKED_COUNT: usize = 1024;

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    let view = |index: usize| operands[index].view();
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match *kernel {
            Kernel::Gather { axis, repeats } => {
                let (out, source, index) = (view(0), view(1), view(2));
                check(index, view::layout(source).shape()[axis], repeats, threads)?;
                by_size!(out.dtype.size_bytes(), E => match index.dtype {
                    DType::I32 => gather::<E, i32>(axis, out, source, index, threads),
                    _ => gather::<E, i64>(axis, out, source, index, threads),
                });
            }
            Kernel::Scatter { axis, mode, repeats } => {
                let (target, index, values) = (view(0), view(1), view(2));
                check(index, view::layout(target).shape()[axis], repeats, threads)?;
                match mode {
                    ScatterMode::Overwrite => by_size!(target.dtype.size_bytes(), E => {
                        scatter::<E, Overwrite>(axis, [target, index, values], threads);
                    }),
                    ScatterMode::Add if target.dtype == DType::F16 => {
                        add_narrow::<f16>(axis, operands, threads)
                    }
                    ScatterMode::Add if target.dtype == DType::BF16 => {
                        add_narrow::<bf16>(axis, operands, threads);
                    }
                    ScatterMode::Add => fold::<Add>(axis, [target, index, values], threads),
                    ScatterMode::Multiply => fold::<Multiply>(axis, [target, index, values], threads),
                    ScatterMode::Max => fold::<Most>(axis, [target, index, values], threads),
                    ScatterMode::Min => fold::<Least>(axis, [target, index, values], threads),
                }
            }
            Kernel::NonZero => non_zero(view(0), view(1), threads),
            _ => unreachable!("cpu: {} takes no indices", kernel.name()),
        }
    }
    Ok(())
}

/// A type of indices.
trait Index: Source {
    /// As an offset; it has been checked.
    fn offset(self) -> usize;
}
impl Index for i32 {
    #[inline(always)]
    fn offset(self) -> usize {
        self as usize
    }
}
impl Index for i64 {
    #[inline(always)]
    fn offset(self) -> usize {
        self as usize
    }
}

multiversion! {
/// Are all of them below `size`, and none negative?
fn all_below<I: Index>(indices: &[I], size: i64) -> bool {
    let mut good = true;
    for index in indices {
        good &= (index.i64() as u64) < size as u64;
    }
    good
}
}

/// Checks that all indices are inside an axis of `size`. An error counts `repeats` neighbours as one.
///
/// # Safety
/// - The operand is in live memory that nobody writes meanwhile.
pub unsafe fn check(index: &View, size: usize, repeats: usize, threads: Threads) -> Result<(), KernelError> {
    let layout = view::layout(index);
    if layout.is_empty() {
        return Ok(());
    }
    // Along expanded axes the indices are the same: looking at the first of each is enough, and finds the first bad one.
    let strides = layout.strides();
    let distinct = || (0..layout.rank()).filter(|&axis| strides[axis] != 0);
    let line = Line::new(index, distinct());
    let blocks = line.count.div_ceil(CHECKED_COUNT);
    let first_bad = raddle_sync::global::AtomicUsize::new(usize::MAX);
    for_each_range(threads, blocks, CHECKED_COUNT, |range| {
        let mut staged = [0i64; CHECKED_COUNT];
        for block in range {
            let of = block * CHECKED_COUNT..line.count.min((block + 1) * CHECKED_COUNT);
            let indices = if line.is_direct::<i64>() {
                // SAFETY: the caller's bullet.
                unsafe { line.slice(0, of.clone()) }
            } else {
                // SAFETY: the caller's bullet.
                unsafe { line.load(0, of.clone(), &mut staged[..of.len()]) };
                &staged[..of.len()]
            };
            if !all_below(indices, size as i64) {
                let bad = indices.iter().position(|&index| index < 0 || index >= size as i64);
                let bad = of.start + bad.expect("one of the block is out of range");
                // Relaxed: the end of the parallel loop orders it before the load below.
                first_bad.fetch_min(bad, raddle_sync::global::Ordering::Relaxed);
                return;
            }
        }
    });
    let bad = first_bad.into_inner();
    if bad == usize::MAX {
        return Ok(());
    }
    let mut found = [0i64];
    // SAFETY: the caller's bullet.
    unsafe { line.load(0, bad..bad + 1, &mut found) };
    let mut places = *layout.shape();
    let mut next = 1;
    for axis in (0..layout.rank()).rev() {
        next *= std::mem::replace(&mut places[axis], next);
    }
    let [position] = Grid::new(distinct().map(|axis| (layout.shape()[axis], [places[axis]]))).at(bad);
    Err(KernelError::IndexOutOfRange { index: found[0], position: position / repeats, size })
}

/// The merged axes of a walk, the last apart: its size and strides.
fn split_last<const K: usize>(mut grid: Grid<K>) -> (Grid<K>, usize, [usize; K]) {
    let Some(last) = grid.shape.len().checked_sub(1) else { return (grid, 1, [0; K]) };
    let size = grid.shape.remove(last);
    let strides = std::array::from_fn(|operand| grid.strides[operand].remove(last));
    (grid, size, strides)
}

/// # Safety
/// - As of [`super::execute`]; `E` has the size of the elements, `I` is the type of the indices, which are in range.
unsafe fn gather<E: Copy + Send, I: Index>(
    axis: usize,
    out: &View,
    source: &View,
    index: &View,
    threads: Threads,
) {
    let layouts = [out, source, index].map(view::layout);
    let axis_stride = layouts[1].strides()[axis];
    let axes = (0..layouts[0].rank()).map(|other| {
        let of_source = if other == axis { 0 } else { layouts[1].strides()[other] };
        (layouts[0].shape()[other], [layouts[0].strides()[other], of_source, layouts[2].strides()[other]])
    });
    let (outer, length, steps) = split_last(Grid::new(axes));
    let chunks = length.div_ceil(CHUNK);
    let (to, from) = (Shared::new(view::start::<E>(out)), Shared::new(view::start::<E>(source)));
    let indices = Shared::new(view::start::<I>(index));
    for_each_range(threads, outer.count() * chunks, 2 * length.min(CHUNK), |range| {
        for unit in range {
            let first = unit % chunks * CHUNK;
            let count = CHUNK.min(length - first);
            let [to_start, from_start, index_start] = outer.at(unit / chunks);
            let to = to.at(to_start + first * steps[0]);
            let from = from.at(from_start + first * steps[1]);
            let indices = indices.at(index_start + first * steps[2]);
            // SAFETY: the indices are in range, so all of it is inside the operands; each unit has its own outputs.
            unsafe {
                if steps[2] == 0 {
                    let from = from.wrapping_add((*indices).offset() * axis_stride);
                    if steps[0] == 1 && steps[1] == 1 {
                        std::ptr::copy_nonoverlapping(from, to, count);
                        continue;
                    }
                    for i in 0..count {
                        *to.wrapping_add(i * steps[0]) = *from.wrapping_add(i * steps[1]);
                    }
                    continue;
                }
                for i in 0..count {
                    let index = (*indices.wrapping_add(i * steps[2])).offset();
                    *to.wrapping_add(i * steps[0]) = *from.wrapping_add(i * steps[1] + index * axis_stride);
                }
            }
        }
    });
}

/// What a scatter does with an element.
trait Put<E>: Sync {
    /// Does it.
    fn put(to: &mut E, from: E);
}

/// `to = from`
struct Overwrite;
impl<E> Put<E> for Overwrite {
    #[inline(always)]
    fn put(to: &mut E, from: E) {
        *to = from;
    }
}

/// `to = F(to, from)`, in the type `A` that the dtype is computed in.
struct Folded<A, F>(std::marker::PhantomData<fn() -> (A, F)>);
impl<A: Compute, E: Source, F: Fold<A>> Put<E> for Folded<A, F> {
    #[inline(always)]
    fn put(to: &mut E, from: E) {
        *to = F::fold(A::take(*to), A::take(from)).give();
    }
}

/// How two numbers become one.
trait Fold<A> {
    fn fold(a: A, b: A) -> A;
}

/// Folds of every type that is computed in; integers wrap, and NaN wins.
trait FoldAll: Fold<f32> + Fold<f64> + Fold<i64> {}

macro_rules! folds {
    ($($name:ident $of_floats:expr, $of_integers:expr;)*) => { $(
        struct $name;
        impl FoldAll for $name {}
        folds!(@of $name f32 $of_floats);
        folds!(@of $name f64 $of_floats);
        folds!(@of $name i64 $of_integers);
    )* };
    (@of $name:ident $t:ident $fold:expr) => {
        impl Fold<$t> for $name {
            #[inline(always)]
            fn fold(a: $t, b: $t) -> $t {
                let fold: fn($t, $t) -> $t = $fold;
                fold(a, b)
            }
        }
    };
}
folds! {
    Add |a, b| a + b, |a, b| a.wrapping_add(b);
    Multiply |a, b| a * b, |a, b| a.wrapping_mul(b);
    Most |a, b| if a > b || a.is_nan() { a } else { b }, |a, b| a.max(b);
    Least |a, b| if a < b || a.is_nan() { a } else { b }, |a, b| a.min(b);
}

/// Scatters by folding.
///
/// # Safety
/// - As of [`scatter`].
unsafe fn fold<F: FoldAll>(axis: usize, operands: [&View; 3], threads: Threads) {
    // SAFETY: the contract of this function.
    by_compute!(operands[0].dtype, A => by_dtype!(operands[0].dtype, E => unsafe {
        scatter::<E, Folded<A, F>>(axis, operands, threads);
    }));
}

multiversion! {
/// Puts a row.
fn put_row<E: Copy, P: Put<E>>(to: &mut [E], from: &[E]) {
    for (to, from) in to.iter_mut().zip(from) {
        P::put(to, *from);
    }
}
}

/// The lines along the axis of a scatter, which never meet, whatever the indices are: the target doesn't overlap itself.
struct Lines {
    /// All axes but the scatter's and the last of the others. Operands: target, index, values.
    outer: Grid<3>,
    /// Size and steps of the last of the others: its positions are the columns of a line.
    width: usize,
    steps: [usize; 3],
    /// Size and steps of the scatter's axis, of index and values.
    length: usize,
    along: [usize; 3],
    /// How many columns a part takes. How they are cut changes no result, so they are cut for the threads that there are.
    chunk: usize,
    index: Line,
}

impl Lines {
    fn new(axis: usize, operands: [&View; 3], threads: Threads) -> Lines {
        let layouts = operands.map(view::layout);
        let axes = super::axis::others(layouts[1].rank(), axis)
            .map(|other| (layouts[1].shape()[other], layouts.map(|layout| layout.strides()[other])));
        let (outer, width, steps) = split_last(Grid::new(axes));
        Lines {
            outer,
            width,
            steps,
            length: layouts[1].shape()[axis],
            along: layouts.map(|layout| layout.strides()[axis]),
            chunk: width.div_ceil(threads.0.max(1)).clamp(64, CHUNK),
            index: Line::new(operands[1], []),
        }
    }

    fn part_count(&self) -> usize {
        self.outer.count() * self.width.div_ceil(self.chunk)
    }

    fn part_cost(&self) -> usize {
        2 * self.length.saturating_mul(self.width.min(self.chunk))
    }

    /// The offsets of a part's line in each operand, and columns of it.
    fn part(&self, part: usize) -> ([usize; 3], Range<usize>) {
        let chunks = self.width.div_ceil(self.chunk);
        let first = part % chunks * self.chunk;
        (self.outer.at(part / chunks), first..self.width.min(first + self.chunk))
    }

    /// Runs a body for parts.
    fn for_each(&self, threads: Threads, body: impl Fn([usize; 3], Range<usize>) + Sync) {
        for_each_range(threads, self.part_count(), self.part_cost(), |parts| {
            parts.for_each(|part| {
                let (starts, columns) = self.part(part);
                body(starts, columns);
            });
        });
    }

    /// The same, with scratch.
    fn for_each_in(
        &self,
        room: &Room,
        threads: Threads,
        body: impl Fn(&mut Memory<'_>, [usize; 3], Range<usize>) + Sync,
    ) {
        room.for_each_range(threads, self.part_count(), self.part_cost(), |mut memory, parts| {
            parts.for_each(|part| {
                let (starts, columns) = self.part(part);
                body(&mut memory, starts, columns);
            });
        });
    }

    /// Index `i` of a column.
    ///
    /// # Safety
    /// - The index operand is in live memory that nobody writes meanwhile.
    #[inline(always)]
    unsafe fn index_at(&self, starts: [usize; 3], i: usize, column: usize) -> usize {
        let offset = starts[1] + column * self.steps[1] + i * self.along[1];
        // SAFETY: it is an element of the index operand.
        unsafe {
            match self.index.dtype {
                DType::I32 => (*self.index.address::<i32>(offset)).offset(),
                _ => (*self.index.address::<i64>(offset)).offset(),
            }
        }
    }
}

/// # Safety
/// - As of [`super::execute`]; `E` has the size of the elements, and the indices are in range.
unsafe fn scatter<E: Copy + Send, P: Put<E>>(axis: usize, operands: [&View; 3], threads: Threads) {
    let lines = Lines::new(axis, operands, threads);
    let Lines { length, steps, along, .. } = lines;
    let target = Shared::new(view::start::<E>(operands[0]));
    let values = Shared::new(view::start::<E>(operands[2]));
    lines.for_each(threads, |starts, columns| {
        // SAFETY: indices are in range, so all of it is inside the operands; each part has lines of its own.
        let one = |i: usize, column: usize, index: usize| unsafe {
            let to = target.at(starts[0] + column * steps[0] + index * along[0]);
            P::put(&mut *to, *values.at(starts[2] + column * steps[2] + i * along[2]));
        };
        // SAFETY: the contract of this function.
        let index_at = |i: usize, column: usize| unsafe { lines.index_at(starts, i, column) };
        if steps[1] == 0 {
            for i in 0..length {
                let index = index_at(i, 0);
                if steps[0] == 1 && steps[2] == 1 {
                    let (to, from) = (starts[0] + index * along[0], starts[2] + i * along[2]);
                    // SAFETY: as of `one`, which this does for a row that has no holes.
                    unsafe {
                        let to = target.slice(to + columns.start, columns.len());
                        put_row::<E, P>(to, values.slice(from + columns.start, columns.len()));
                    }
                    continue;
                }
                columns.clone().for_each(|column| one(i, column, index));
            }
        } else if along[2] > steps[2] {
            for i in 0..length {
                columns.clone().for_each(|column| one(i, column, index_at(i, column)));
            }
        } else {
            for column in columns {
                (0..length).for_each(|i| one(i, column, index_at(i, column)));
            }
        }
    });
}

/// Where an element of the values goes, and which it is, ordered by both.
trait Pair: Plain + Ord {
    /// The most places, and elements, that it tells apart.
    const COUNT_MAX: u64;
    fn new(place: usize, element: usize) -> Self;
    fn place(self) -> usize;
    fn element(self) -> usize;
}
macro_rules! pair {
    ($($t:ident $half:ident),*) => { $(
        impl Pair for $t {
            const COUNT_MAX: u64 = $half::MAX as u64;
            #[inline(always)]
            fn new(place: usize, element: usize) -> $t { (place as $t) << $half::BITS | element as $t }
            #[inline(always)]
            fn place(self) -> usize { (self >> $half::BITS) as usize }
            #[inline(always)]
            fn element(self) -> usize { self as $half as usize }
        }
    )* };
}
pair!(u64 u32, u128 u64);

/// Do words of 64 bits tell places and elements of a scatter apart?
fn is_small(axis: usize, operands: &[Operand]) -> bool {
    let size = |operand: &Operand| operand.shape()[axis] as u64;
    size(&operands[0]).max(size(&operands[1])) <= u64::COUNT_MAX
}

/// The scratch of `Kernel::Scatter` where it adds.
pub fn scatter_need(axis: usize, operands: &[Operand], threads: Threads) -> Need {
    let views = [0, 1, 2].map(|index| operands[index].view());
    if !matches!(views[0].dtype, DType::F16 | DType::BF16) {
        return Need::NOTHING;
    }
    let lines = Lines::new(axis, views, threads);
    let each_bytes = match is_small(axis, operands) {
        true => bytes_of::<u64>(lines.length),
        false => bytes_of::<u128>(lines.length),
    };
    Need::each(each_bytes, lines.part_count(), &operands[..3], threads)
}

/// Adds 16-bit floats: what goes to one place is brought together, in index order, and summed in `f32`.
///
/// # Safety
/// - As of [`super::execute`]; `E` is the type of the elements, and the indices are in range.
unsafe fn add_narrow<E: Source>(axis: usize, operands: &[Operand], threads: Threads) {
    let room = Room::new(scatter_need(axis, operands, threads), operands.get(3));
    let lines = Lines::new(axis, [0, 1, 2].map(|index| operands[index].view()), threads);
    let views = [0, 2].map(|index| operands[index].view());
    lines.for_each_in(&room, threads, |memory, starts, columns| {
        // SAFETY: the contract of this function; parts have lines of their own.
        unsafe {
            match is_small(axis, operands) {
                true => add_part::<E, u64>(&lines, views, memory, starts, columns),
                false => add_part::<E, u128>(&lines, views, memory, starts, columns),
            }
        }
    });
}

/// # Safety
/// - As of [`add_narrow`]; nobody else touches these lines of the target.
unsafe fn add_part<E: Source, P: Pair>(
    lines: &Lines,
    [target, values]: [&View; 2],
    memory: &mut Memory<'_>,
    starts: [usize; 3],
    columns: Range<usize>,
) {
    let Lines { length, steps, along, .. } = *lines;
    let (target, values) = (view::start::<E>(target), view::start::<E>(values));
    let order = memory.again().take::<P>(length);
    // Columns that share their indices are taken together.
    let shared = steps[1] == 0;
    let groups = if shared { 1 } else { columns.len() };
    let mut sums = [0f32; CHUNK];
    for group in 0..groups {
        let columns = if shared { columns.clone() } else { columns.start + group..columns.start + group + 1 };
        for (i, pair) in order.iter_mut().enumerate() {
            // SAFETY: the contract of this function.
            *pair = P::new(unsafe { lines.index_at(starts, i, columns.start) }, i);
        }
        order.sort_unstable();
        for alike in order.chunk_by(|a, b| a.place() == b.place()) {
            let first = starts[0] + alike[0].place() * along[0];
            let to = |column: usize| target.wrapping_add(first + column * steps[0]);
            let sums = &mut sums[..columns.len()];
            // SAFETY: indices are in range, so all of it is inside the operands; each part has lines of its own.
            unsafe {
                for (sum, column) in sums.iter_mut().zip(columns.clone()) {
                    *sum = (*to(column)).f32();
                }
                for pair in alike {
                    let from = starts[2] + pair.element() * along[2];
                    for (sum, column) in sums.iter_mut().zip(columns.clone()) {
                        *sum += (*values.wrapping_add(from + column * steps[2])).f32();
                    }
                }
                for (sum, column) in sums.iter().zip(columns.clone()) {
                    *to(column) = E::from_f32(*sum);
                }
            }
        }
    }
}

/// Elements whose places are counted, then written, by one part, unless there would be more parts than counts.
const PLACES: usize = 1 << 14;
const COUNT_MAX: usize = if cfg!(test) { 4 } else { 1 << 16 };

/// # Safety
/// - As of [`super::execute`].
unsafe fn non_zero(out: &View, input: &View, threads: Threads) {
    let layout = view::layout(input);
    let (shape, rank) = (*layout.shape(), layout.rank());
    let line = Line::new(input, 0..rank);
    let places = PLACES.max(line.count.div_ceil(COUNT_MAX));
    let blocks = line.count.div_ceil(places);
    let strides = *view::layout(out).strides();
    if rank == 0 || blocks == 0 {
        return;
    }
    scratch::<i64, _>(blocks, |firsts| {
        let counts = Shared::new(firsts.as_mut_ptr());
        for_each_range(threads, blocks, places, |range| {
            for block in range {
                let mut count = 0;
                // SAFETY: the contract of this function.
                unsafe {
                    for_each_truth(&line, block, places, |truths, _| {
                        count += truths.iter().map(|x| i64::from(x.0)).sum::<i64>()
                    })
                };
                // SAFETY: each block has its own count.
                unsafe { *counts.at(block) = count };
            }
        });
        let mut next = 0;
        firsts.iter_mut().for_each(|first| next += std::mem::replace(first, next));
        let (to, firsts) = (Shared::new(view::start::<i64>(out)), &*firsts);
        for_each_range(threads, blocks, places, |range| {
            for block in range {
                let mut row = firsts[block] as usize;
                let mut index = Dims::filled(0, rank);
                let mut last = None;
                let mut write = |place: usize| {
                    // A step along the last axis, where that leads there; divisions otherwise.
                    let step = last.map_or(usize::MAX, |last| place - last);
                    last = Some(place);
                    if step < shape[rank - 1] - index[rank - 1] {
                        index[rank - 1] += step;
                    } else {
                        let mut rest = place;
                        for axis in (0..rank).rev() {
                            index[axis] = rest % shape[axis];
                            rest /= shape[axis];
                        }
                    }
                    for (axis, &index) in index.iter().enumerate() {
                        // SAFETY: the caller has counted: there is a row for each place.
                        unsafe { *to.at(row * strides[0] + axis * strides[1]) = index as i64 };
                    }
                    row += 1;
                };
                let each = |truths: &[Truth], first: usize| {
                    (first..)
                        .zip(truths)
                        .filter(|(_, truth)| truth.0 != 0)
                        .for_each(|(place, _)| write(place));
                };
                // SAFETY: the contract of this function.
                unsafe { for_each_truth(&line, block, places, each) };
            }
        });
    });
}

/// Calls `body` with what isn't zero in a block of `places` elements, piece by piece, and the place of the piece's first.
///
/// # Safety
/// - The line is in live memory that nobody writes meanwhile.
unsafe fn for_each_truth(line: &Line, block: usize, places: usize, mut body: impl FnMut(&[Truth], usize)) {
    let mut truths = [Truth(0); 256];
    let end = line.count.min((block + 1) * places);
    for first in (block * places..end).step_by(truths.len()) {
        let truths = &mut truths[..(end - first).min(256)];
        // SAFETY: the caller's bullet.
        unsafe { line.load(0, first..first + truths.len(), truths) };
        body(truths, first);
    }
}
