//! How structured kernels walk their operands: lines along some axes, a grid over the others.
//!
//! Guarantee: arithmetic sees *lines*, which are slices in the dtype of the computation, whatever dtype and strides the
//! operand has. A line of the right dtype without holes is used where it lies; any other is copied into scratch first
//! (and an output back from it). So a kernel's result can't depend on strides (T8), and it is written once for each
//! dtype of computation instead of once for each combination of dtype and layout. Lines across the memory order are
//! copied several at once, so that each cache line is fetched once.

use super::block;
use super::element::{Compute, Source, by_dtype};
use super::fold::PIECE;
use super::level::{Level, multiversion};
use super::loops::by_size;
use super::scratch::scratch;
use super::view;
use raddle_base::{DType, Dims, Layout};
use raddle_hal::View;
use raddle_sync::fault;
use std::ops::Range;

/// The most lines that are copied at once where they lie across memory: four cache lines of `f32`, so that pages are
/// visited a quarter as often as single ones would need.
const GROUP: usize = 64;
/// Elements of scratch that the lines copied at once take (a guess: a share of the last-level cache), unless they
/// are so long that this leaves less than a cache line of each; and what is never exceeded: longer lines are taken in
/// pieces. Few in tests, so that they see both ways.
const STAGED_COUNT: usize = 1 << 19;
const STAGED_COUNT_MAX: usize = if cfg!(test) { 1 << 16 } else { 1 << 21 };
/// Elements of a cache line of `f32`.
const SIDE_BY_SIDE: usize = 16;

/// A pointer that parts of a launch share; each part writes its own elements.
#[derive(Clone, Copy)]
pub struct Shared<T>(*mut T);
// SAFETY: the pointer alone does nothing; whoever dereferences it answers for the elements being its own.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}
impl<T> Shared<T> {
    /// Shares a pointer.
    pub fn new(pointer: *mut T) -> Shared<T> {
        Shared(pointer)
    }
    /// The element at `index`.
    pub fn at(self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
    /// `count` elements from `index`.
    ///
    /// # Safety
    /// - They are in the memory that was shared, and nobody else uses them meanwhile.
    pub unsafe fn slice<'a>(self, index: usize, count: usize) -> &'a mut [T] {
        // SAFETY: the caller's bullets are those of the call.
        unsafe { std::slice::from_raw_parts_mut(self.at(index), count) }
    }
}

/// The axes of several operands that a kernel loops over, neighbours merged where all operands allow it. Positions count
/// in row-major order of the shape.
#[derive(Clone, Copy, Debug)]
pub struct Grid<const K: usize> {
    /// Sizes of the merged axes, none of size 1.
    pub shape: Dims,
    /// For each operand, the strides of the merged axes.
    pub strides: [Dims; K],
}

impl<const K: usize> Grid<K> {
    /// Of axes given as (size, stride in each operand), first the slowest.
    pub fn new(axes: impl IntoIterator<Item = (usize, [usize; K])>) -> Grid<K> {
        let mut grid = Grid { shape: Dims::EMPTY, strides: [Dims::EMPTY; K] };
        for (size, strides) in axes {
            if size == 1 {
                continue;
            }
            let last = grid.shape.len().wrapping_sub(1);
            let merge = last != usize::MAX
                && (0..K).all(|operand| grid.strides[operand][last] == strides[operand].wrapping_mul(size));
            if merge {
                grid.shape[last] *= size;
            } else {
                grid.shape.push(size); // Bounded: one for an axis
            }
            let last = grid.shape.len() - 1;
            for (merged, stride) in grid.strides.iter_mut().zip(strides) {
                if !merge {
                    merged.push(0); // Bounded: as above
                }
                merged[last] = stride;
            }
        }
        grid
    }

    /// Of some axes of layouts that agree in them.
    pub fn of(layouts: [&Layout; K], axes: impl IntoIterator<Item = usize>) -> Grid<K> {
        Grid::new(
            axes.into_iter()
                .map(|axis| (layouts[0].shape()[axis], layouts.map(|layout| layout.strides()[axis]))),
        )
    }

    /// How many positions there are.
    pub fn count(&self) -> usize {
        self.shape.product()
    }

    /// The offset of a position in each operand, without the offset of the operand itself.
    #[inline]
    pub fn at(&self, mut position: usize) -> [usize; K] {
        let mut offsets = [0; K];
        for axis in (0..self.shape.len()).rev() {
            let index = if axis == 0 { position } else { position % self.shape[axis] };
            for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                *offset += index * strides[axis];
            }
            if axis > 0 {
                position /= self.shape[axis];
            }
        }
        offsets
    }
}

/// The elements of one operand along some axes, in row-major order of these axes.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The operand's dtype.
    pub dtype: DType,
    /// How many elements.
    pub count: usize,
    /// The operand's first element, as an address.
    start: usize,
    /// The merged axes but the last.
    outer: Grid<1>,
    /// Size and stride of the last merged axis.
    run: (usize, usize),
}

impl Line {
    /// The lines of an operand along some of its axes.
    pub fn new(operand: &View, axes: impl IntoIterator<Item = usize>) -> Line {
        let layout = view::layout(operand);
        Line::over(operand, axes.into_iter().map(|axis| (layout.shape()[axis], layout.strides()[axis])))
    }

    /// The lines of an operand along axes given as (size, stride).
    pub fn over(operand: &View, axes: impl IntoIterator<Item = (usize, usize)>) -> Line {
        let mut outer = Grid::new(axes.into_iter().map(|(size, stride)| (size, [stride])));
        let count = outer.count();
        let run = match outer.shape.len() {
            0 => (1, 1),
            rank => {
                let [strides] = &mut outer.strides;
                (outer.shape.remove(rank - 1), strides.remove(rank - 1))
            }
        };
        let offset = view::layout(operand).offset() * operand.dtype.size_bytes();
        Line { dtype: operand.dtype, count, start: view::base::<u8>(operand) as usize + offset, outer, run }
    }

    /// The element at `offset` from the start, as an address.
    pub fn address<E>(&self, offset: usize) -> *mut E {
        (self.start + offset * self.dtype.size_bytes()) as *mut E
    }

    /// Where element `position` of a line lies from the line's start.
    pub fn offset(&self, position: usize) -> usize {
        if self.outer.shape.is_empty() {
            return position * self.run.1;
        }
        self.outer.at(position / self.run.0)[0] + position % self.run.0 * self.run.1
    }

    /// Distance between neighbours, if they are evenly apart.
    pub fn stride(&self) -> Option<usize> {
        (self.outer.shape.is_empty()).then_some(self.run.1)
    }

    /// May lines be used where they lie?
    pub fn is_direct<A: Compute>(&self) -> bool {
        let mut is_packed = self.run.1 == 1 || self.count <= 1;
        fault!(strided_as_packed => is_packed |= self.run.1 > 1);
        self.dtype == A::DTYPE && self.outer.shape.is_empty() && is_packed
    }

    /// Elements `range` of the line that starts at `offset`, where they lie.
    ///
    /// # Safety
    /// - The line [is direct](Line::is_direct), in live memory that nobody writes while the slice lives.
    pub unsafe fn slice<'a, A: Compute>(&self, offset: usize, range: Range<usize>) -> &'a [A] {
        debug_assert!(self.is_direct::<A>());
        if range.is_empty() {
            return &[];
        }
        // SAFETY: the elements lie one after the other; the rest is the caller's bullet.
        unsafe { std::slice::from_raw_parts(self.address(offset + range.start), range.len()) }
    }

    /// Is the next element of memory that of the next run?
    fn has_runs_side_by_side(&self) -> bool {
        self.outer.shape.len() == 1 && self.outer.strides[0][0] == 1
    }

    /// How many lines are best copied at once.
    fn group(&self) -> usize {
        if self.run.1 == 1 || self.count <= 1 { 1 } else { GROUP }
    }

    /// Calls `body` for each run of elements of a line as (position in the line, offset, count).
    #[inline]
    fn runs(&self, range: Range<usize>, mut body: impl FnMut(usize, usize, usize)) {
        if self.outer.shape.is_empty() {
            return body(range.start, range.start * self.run.1, range.len());
        }
        let mut position = range.start;
        while position < range.end {
            let inside = position % self.run.0;
            let count = (self.run.0 - inside).min(range.end - position);
            body(position, self.outer.at(position / self.run.0)[0] + inside * self.run.1, count);
            position += count;
        }
    }

    /// Copies elements `range` of the line that starts at `offset` to `to`.
    ///
    /// # Safety
    /// - The line is in live memory that nobody writes meanwhile.
    pub unsafe fn load<A: Compute>(&self, offset: usize, range: Range<usize>, to: &mut [A]) {
        if range.is_empty() {
            return;
        }
        let first = range.start;
        let (length, stride) = self.run;
        let whole = first.div_ceil(length)..range.end / length;
        if whole.len() > 1 && self.dtype == A::DTYPE && stride > 1 && self.has_runs_side_by_side() {
            let (start, end) = (whole.start * length - first, whole.end * length - first);
            let from = self.address::<A>(offset + whole.start);
            // SAFETY: the runs are parts of the line, and there is as much room; each of the rest has no whole run.
            unsafe {
                self.load(offset, first..first + start, &mut to[..start]);
                transpose(from, stride, to[start..end].as_mut_ptr(), length, length, whole.len());
                self.load(offset, first + end..range.end, &mut to[end..]);
            }
            return;
        }
        by_dtype!(self.dtype, E => {
            let start = self.address::<E>(offset);
            self.runs(range, |position, offset, count| {
                let to = &mut to[position - first..][..count];
                // SAFETY: the run is a part of the line.
                unsafe { load_run(start.wrapping_add(offset), self.run.1, to) };
            });
        });
    }

    /// Elements `range` of the line that starts at `offset`: where they lie, or copied to `scratch`.
    ///
    /// # Safety
    /// - As for [`Line::load`], for as long as the slice lives.
    pub unsafe fn read_part<'a, A: Compute>(
        &self,
        offset: usize,
        range: Range<usize>,
        scratch: &'a mut [A],
    ) -> &'a [A] {
        if self.is_direct::<A>() {
            // SAFETY: the line has no holes, and the caller's bullet.
            return unsafe { self.slice(offset, range) };
        }
        let scratch = &mut scratch[..range.len()];
        // SAFETY: the caller's bullet.
        unsafe { self.load(offset, range, scratch) };
        scratch
    }

    /// All of the line that starts at `offset`.
    ///
    /// # Safety
    /// - As for [`Line::read_part`].
    pub unsafe fn read<'a, A: Compute>(&self, offset: usize, scratch: &'a mut [A]) -> &'a [A] {
        // SAFETY: the caller's bullet.
        unsafe { self.read_part(offset, 0..self.count, scratch) }
    }

    /// Copies elements `range` of lines that start at `offsets` to `to`, `pitch` elements apart.
    ///
    /// # Safety
    /// - As for [`Line::load`], for each of them.
    unsafe fn load_group<A: Compute>(
        &self,
        offsets: &[usize],
        range: Range<usize>,
        to: &mut [A],
        pitch: usize,
    ) {
        let count = range.len();
        debug_assert!(to.len() >= offsets.len().saturating_sub(1) * pitch + count);
        if self.group() == 1 || !self.outer.shape.is_empty() {
            for (line, &offset) in offsets.iter().enumerate() {
                // SAFETY: the caller's bullet.
                unsafe { self.load(offset, range.clone(), &mut to[line * pitch..][..count]) };
            }
            return;
        }
        let (to, first) = (to.as_mut_ptr(), range.start * self.run.1);
        if self.dtype == A::DTYPE && side_by_side(offsets) {
            let from = self.address::<A>(offsets[0] + first);
            // SAFETY: these are the lines' elements, and as many places.
            return unsafe { transpose(from, self.run.1, to, pitch, count, offsets.len()) };
        }
        by_dtype!(self.dtype, E => {
            let start = self.address::<E>(first);
            for position in 0..count {
                for (line, &offset) in offsets.iter().enumerate() {
                    let from = start.wrapping_add(offset + position * self.run.1);
                    // SAFETY: it is an element of a line, and has a place in `to`.
                    unsafe { *to.wrapping_add(line * pitch + position) = A::take(*from) };
                }
            }
        });
    }

    /// Copies `from` to the elements from `first` on of the line that starts at `offset`.
    ///
    /// # Safety
    /// - The line is in live memory that nobody else uses meanwhile.
    pub unsafe fn store<A: Compute>(&self, offset: usize, first: usize, from: &[A]) {
        by_dtype!(self.dtype, E => {
            let start = self.address::<E>(offset);
            self.runs(first..first + from.len(), |position, offset, count| {
                let from = &from[position - first..][..count];
                // SAFETY: the run is a part of the line.
                unsafe { store_run(start.wrapping_add(offset), self.run.1, from) };
            });
        });
    }

    /// Copies `from`, `pitch` elements a line, to the elements `range` of the lines that start at `offsets`.
    ///
    /// # Safety
    /// - As for [`Line::store`], for each of them.
    unsafe fn store_group<A: Compute>(
        &self,
        offsets: &[usize],
        range: Range<usize>,
        from: &[A],
        pitch: usize,
    ) {
        let count = range.len();
        debug_assert!(from.len() >= offsets.len().saturating_sub(1) * pitch + count);
        if self.group() == 1 || !self.outer.shape.is_empty() {
            for (line, &offset) in offsets.iter().enumerate() {
                // SAFETY: the caller's bullet.
                unsafe { self.store(offset, range.start, &from[line * pitch..][..count]) };
            }
            return;
        }
        let (from, first) = (from.as_ptr(), range.start * self.run.1);
        if self.dtype == A::DTYPE && side_by_side(offsets) {
            let to = self.address::<A>(offsets[0] + first);
            // SAFETY: these are the lines' elements, and as many of `from`.
            return unsafe { transpose(from, pitch, to, self.run.1, offsets.len(), count) };
        }
        by_dtype!(self.dtype, E => {
            let start = self.address::<E>(first);
            for position in 0..count {
                for (line, &offset) in offsets.iter().enumerate() {
                    let to = start.wrapping_add(offset + position * self.run.1);
                    // SAFETY: it is an element of a line, and `from` has one for it.
                    unsafe { *to = (*from.wrapping_add(line * pitch + position)).give() };
                }
            }
        });
    }
}

/// Are they neighbours, in order?
fn side_by_side(offsets: &[usize]) -> bool {
    offsets.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// `to[j][i] = from[i][j]` for `i` below `rows`, `j` below `columns`; rows are `stride` elements apart.
///
/// # Safety
/// - The elements are in live memory; nobody writes what is read and nobody else uses what is written.
pub unsafe fn transpose<A: Compute>(
    from: *const A,
    from_stride: usize,
    to: *mut A,
    to_stride: usize,
    rows: usize,
    columns: usize,
) {
    // In tiles that stay in the first-level cache, so that each line is written once, whole.
    const TILE: usize = 64;
    for i in (0..rows).step_by(TILE) {
        for j in (0..columns).step_by(TILE) {
            let from = from.wrapping_add(i * from_stride + j);
            let to = to.wrapping_add(j * to_stride + i);
            let (rows, columns) = (TILE.min(rows - i), TILE.min(columns - j));
            #[cfg(target_arch = "x86_64")]
            if size_of::<A>() == 4 && Level::best() != Level::Baseline {
                // SAFETY: the caller's bullet; the machine has AVX2, and four bytes are four bytes.
                unsafe { transpose_words(from.cast(), from_stride, to.cast(), to_stride, rows, columns) };
                continue;
            }
            by_size!(size_of::<A>(), T => {
                let (from, to) = (
                    block::Matrix { start: from.cast_mut().cast::<T>(), stride: from_stride },
                    block::Matrix { start: to.cast::<T>(), stride: to_stride },
                );
                // SAFETY: the caller's bullet; `T` is as large as `A`, and any bytes are a `T`.
                unsafe { block::transpose(from, to, rows, columns, from_stride >= to_stride) };
            });
        }
    }
}

/// Four columns of eight rows that are `stride` elements apart, as four registers.
///
/// # Safety
/// - The elements are in live memory that nobody writes meanwhile.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
pub unsafe fn turn(from: *const f32, stride: usize) -> [std::arch::x86_64::__m256; 4] {
    use std::arch::x86_64::*;
    // Rows l and l + 4 share a register: two rounds of shuffles inside of its halves then transpose all.
    let pair = |line: usize| {
        let (low, high) = (from.wrapping_add(line * stride), from.wrapping_add((line + 4) * stride));
        // SAFETY: the caller's bullet.
        unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high)) }
    };
    let (a, b, c, d) = (pair(0), pair(1), pair(2), pair(3));
    let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    [
        _mm256_shuffle_ps::<0x44>(ab_low, cd_low),
        _mm256_shuffle_ps::<0xee>(ab_low, cd_low),
        _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
        _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
    ]
}

/// [`transpose`] of words of four bytes, eight rows at a time in registers.
///
/// # Safety
/// - As there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn transpose_words(
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
    rows: usize,
    columns: usize,
) {
    let (whole_rows, whole_columns) = (rows / 8 * 8, columns / 4 * 4);
    for i in (0..whole_rows).step_by(8) {
        for j in (0..whole_columns).step_by(4) {
            let from = from.wrapping_add(i * from_stride + j);
            let to = to.wrapping_add(j * to_stride + i);
            // SAFETY: four elements of eight rows are read, eight of four rows written.
            unsafe {
                for (column, row) in turn(from, from_stride).into_iter().enumerate() {
                    std::arch::x86_64::_mm256_storeu_ps(to.wrapping_add(column * to_stride), row);
                }
            }
        }
    }
    for i in 0..rows {
        let rest = if i < whole_rows { whole_columns..columns } else { 0..columns };
        for j in rest {
            // SAFETY: the rest of the same elements.
            unsafe { *to.wrapping_add(j * to_stride + i) = *from.wrapping_add(i * from_stride + j) };
        }
    }
}

/// Copies elements `stride` apart to a slice.
///
/// # Safety
/// - They are in live memory that nobody writes meanwhile.
#[inline]
pub unsafe fn load_run<E: Source, A: Compute>(from: *const E, stride: usize, to: &mut [A]) {
    if stride == 1 {
        // SAFETY: the caller's bullet.
        let from = unsafe { std::slice::from_raw_parts(from, to.len()) };
        return take_slice(from, to);
    }
    for (position, to) in to.iter_mut().enumerate() {
        // SAFETY: the caller's bullet.
        *to = A::take(unsafe { *from.wrapping_add(position * stride) });
    }
}

/// Copies a slice to elements `stride` apart.
///
/// # Safety
/// - They are in live memory that nobody else uses meanwhile.
#[inline]
pub unsafe fn store_run<E: Source, A: Compute>(to: *mut E, stride: usize, from: &[A]) {
    if stride == 1 {
        // SAFETY: the caller's bullet.
        let to = unsafe { std::slice::from_raw_parts_mut(to, from.len()) };
        return give_slice(from, to);
    }
    for (position, from) in from.iter().enumerate() {
        // SAFETY: the caller's bullet.
        unsafe { *to.wrapping_add(position * stride) = from.give() };
    }
}

multiversion! {
/// Converts a slice.
fn take_slice<E: Source, A: Compute>(from: &[E], to: &mut [A]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = A::take(*from);
    }
}
}

multiversion! {
/// Converts a slice to elements.
fn give_slice<E: Source, A: Compute>(from: &[A], to: &mut [E]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.give();
    }
}
}

/// Scratch for a piece of a line. Padded, so that lines of a power of two don't meet in one set of the cache.
fn pitch<A: Compute>(line: &Line, length: usize) -> usize {
    if line.is_direct::<A>() { 0 } else { line.count.min(length).next_multiple_of(16) + 16 }
}

/// Is there scratch for whole lines, if these are walked together, without more than a thread may have?
pub fn fits<A: Compute>(lines: &[&Line]) -> bool {
    let each: usize = lines.iter().map(|line| pitch::<A>(line, usize::MAX)).sum();
    let wanted = lines.iter().filter(|line| !line.is_direct::<A>()).map(|line| line.group());
    each.saturating_mul(wanted.max().unwrap_or(1).min(SIDE_BY_SIDE)) <= STAGED_COUNT_MAX
}

/// Calls `body` for each position of the grid in `positions` with a line of each operand: inputs to read, outputs to be
/// written whole. `body` gets the offsets of the position in each operand of the grid, the inputs' and the outputs' slices.
///
/// # Safety
/// - The lines are in live memory; nobody writes the inputs' and nobody else uses the outputs' meanwhile, and outputs
///   overlap nothing.
/// - Operand `i` of the grid is input `i`, the outputs follow; there may be more operands that only `body` uses.
/// - The lines [fit](fits).
pub unsafe fn for_each_line<A: Compute, const I: usize, const O: usize, const K: usize>(
    grid: &Grid<K>,
    positions: Range<usize>,
    inputs: [&Line; I],
    outputs: [&Line; O],
    mut body: impl FnMut(&[usize; K], [&[A]; I], [&mut [A]; O]),
) {
    debug_assert!(
        inputs.iter().chain(&outputs).all(|line| fits::<A>(&[line])),
        "cpu: lines that are too long"
    );
    let each = |_: &mut (), piece: Piece<K>, sources: [&[A]; I], targets: [&mut [A]; O]| {
        body(&piece.offsets, sources, targets);
    };
    // SAFETY: the contract is the same.
    unsafe { for_each_piece_of(usize::MAX, grid, positions, inputs, outputs, 1, || (), each) }
}

/// A piece of a line, in a pass over it.
#[derive(Clone, Copy)]
pub struct Piece<const K: usize> {
    /// From 0.
    pub pass: usize,
    /// The position of its first element.
    pub first: usize,
    /// Is there none behind it, in this pass?
    pub is_last: bool,
    /// The line's offsets in each operand of the grid.
    pub offsets: [usize; K],
}

/// As [`for_each_line`], for lines of any length: each is passed over so many times, piece by piece, with a state of its own.
/// Pieces begin at multiples of [`PIECE`]; one is the whole line if that is used where it lies, else it has at most so many
/// elements. What the outputs hold after the last pass stands; what `body` leaves in them before is not kept.
///
/// # Safety
/// - As of [`for_each_line`], but for the lines' length.
pub unsafe fn for_each_piece<A: Compute, S, const I: usize, const O: usize, const K: usize>(
    grid: &Grid<K>,
    positions: Range<usize>,
    inputs: [&Line; I],
    outputs: [&Line; O],
    passes: usize,
    start: impl Fn() -> S,
    body: impl FnMut(&mut S, Piece<K>, [&[A]; I], [&mut [A]; O]),
) {
    let is_direct = inputs.iter().chain(&outputs).all(|line| line.is_direct::<A>());
    let length = if is_direct { usize::MAX } else { PIECE };
    // SAFETY: the contract is the same; there is scratch for pieces.
    unsafe { for_each_piece_of(length, grid, positions, inputs, outputs, passes, start, body) }
}

/// # Safety
/// - As of [`for_each_piece`]; pieces of at most `length` elements fit.
#[expect(clippy::too_many_arguments, reason = "what its callers have, and how they differ")]
#[inline]
unsafe fn for_each_piece_of<A: Compute, S, const I: usize, const O: usize, const K: usize>(
    length: usize,
    grid: &Grid<K>,
    positions: Range<usize>,
    inputs: [&Line; I],
    outputs: [&Line; O],
    passes: usize,
    start: impl Fn() -> S,
    mut body: impl FnMut(&mut S, Piece<K>, [&[A]; I], [&mut [A]; O]),
) {
    let pitch = |line: &Line| pitch::<A>(line, length);
    let line_count = inputs.iter().chain(&outputs).map(|line| line.count).max().unwrap_or(0);
    if positions.is_empty() || line_count == 0 {
        return;
    }
    let each: usize = inputs.iter().chain(&outputs).map(|line| pitch(line)).sum();
    let wanted = inputs.iter().chain(&outputs).filter(|line| !line.is_direct::<A>()).map(|line| line.group());
    let room = (STAGED_COUNT / each.max(1)).max(SIDE_BY_SIDE).min(STAGED_COUNT_MAX / each.max(1)).max(1);
    let group = wanted.max().unwrap_or(1).min(room);
    let total: usize = inputs.iter().chain(&outputs).map(|line| pitch(line) * group).sum();
    scratch::<A, _>(total, |memory| {
        let mut rest = memory;
        let mut take = |line: &Line| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(pitch(line) * group);
            rest = tail;
            head
        };
        let staged_in = inputs.map(&mut take);
        let mut staged_out = outputs.map(&mut take);
        let mut offsets = [[0usize; GROUP]; K];
        let mut states: [Option<S>; GROUP] = [const { None }; GROUP];
        let mut first = positions.start;
        while first < positions.end {
            let count = group.min(positions.end - first);
            for (line, position) in (first..first + count).enumerate() {
                for (offsets, offset) in offsets.iter_mut().zip(grid.at(position)) {
                    offsets[line] = offset;
                }
                states[line] = Some(start());
            }
            for pass in 0..passes {
                let mut position = 0;
                while position < line_count {
                    let range = position..position + length.min(line_count - position);
                    for (operand, line) in inputs.iter().enumerate() {
                        if !line.is_direct::<A>() {
                            let (offsets, to) = (&offsets[operand][..count], &mut *staged_in[operand]);
                            // SAFETY: the caller's bullets.
                            unsafe { line.load_group(offsets, range.clone(), to, pitch(line)) };
                        }
                    }
                    for line in 0..count {
                        let sources = std::array::from_fn(|operand| {
                            let input = inputs[operand];
                            if input.is_direct::<A>() {
                                // SAFETY: the line has no holes, and the caller's bullets.
                                unsafe { input.slice(offsets[operand][line], range.clone()) }
                            } else {
                                &staged_in[operand][line * pitch(input)..][..range.len()]
                            }
                        });
                        let mut index = 0;
                        let targets = staged_out.each_mut().map(|staged| {
                            let output = outputs[index];
                            let offset = offsets[I + index][line] + range.start;
                            index += 1;
                            if output.is_direct::<A>() {
                                // SAFETY: the line has no holes, and the caller's bullets.
                                unsafe { std::slice::from_raw_parts_mut(output.address(offset), range.len()) }
                            } else {
                                &mut staged[line * pitch(output)..][..range.len()]
                            }
                        });
                        let is_last = range.end == line_count;
                        let offsets = offsets.map(|offsets| offsets[line]);
                        let piece = Piece { pass, first: position, is_last, offsets };
                        let state = states[line].as_mut().expect("each line of the group has one");
                        body(state, piece, sources, targets);
                    }
                    if pass + 1 == passes {
                        for (operand, line) in outputs.iter().enumerate() {
                            if !line.is_direct::<A>() {
                                let offsets = &offsets[I + operand][..count];
                                // SAFETY: the caller's bullets.
                                unsafe {
                                    line.store_group(offsets, range.clone(), staged_out[operand], pitch(line))
                                };
                            }
                        }
                    }
                    position = range.end;
                }
            }
            first += count;
        }
    });
}

/// All axes but one.
pub fn others(rank: usize, axis: usize) -> impl Iterator<Item = usize> {
    (0..rank).filter(move |&other| other != axis)
}
