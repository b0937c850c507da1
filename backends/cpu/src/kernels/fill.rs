//! Outputs made from the position of an element alone: the walk that random numbers and counters share, counters, and
//! triangles.

use super::block::{Block, pack, unpack};
use super::convert::convert;
use super::level::Level;
use super::loops::by_size;
use super::view::start_bytes;
use crate::threads::Threads;
use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_hal::View;
use std::ops::Range;

/// How many elements are made at a time; a few buffers of them fit the L1 cache.
pub const CHUNK_COUNT: usize = 512;
/// Elements of a part that a thread takes (guess); a multiple of the chunk.
const PART_COUNT: usize = 1 << 16;

/// Room for a chunk of any dtype.
#[repr(align(64))]
pub struct Chunk([u64; CHUNK_COUNT]);

impl Chunk {
    /// Zeros.
    pub fn new() -> Chunk {
        Chunk([0; CHUNK_COUNT])
    }
    /// Where it lies.
    pub fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Fills a view in row-major order: `make(range, to)` writes the elements of these positions, at most [`CHUNK_COUNT`] and
/// from a multiple of it on, packed and in dtype `made`. Which positions are made together depends on nothing else.
///
/// # Safety
/// - The view is live and nobody else touches it.
/// - `make` writes as it says.
pub unsafe fn fill(out: &View, made: DType, threads: Threads, make: impl Fn(Range<usize>, *mut u8) + Sync) {
    let (count, size_bytes) = (out.layout.element_count(), out.dtype.size_bytes());
    let cast = convert(made, out.dtype, Level::best());
    let packed = out.layout.is_contiguous();
    let start = start_bytes(out);
    let body = |part: usize| {
        let (mut values, mut converted) = (Chunk::new(), Chunk::new());
        let end = count.min((part + 1) * PART_COUNT);
        for first in (part * PART_COUNT..end).step_by(CHUNK_COUNT) {
            let range = first..end.min(first + CHUNK_COUNT);
            let length = range.len();
            let target = if packed { (start + first * size_bytes) as *mut u8 } else { converted.start() };
            let direct = packed && made == out.dtype;
            let place = if direct { target } else { values.start() };
            make(range.clone(), place);
            if !direct {
                // SAFETY: both have room for a chunk, or are part of the view.
                unsafe { cast(target, place, std::ptr::null(), std::ptr::null(), length) };
            }
            if !packed {
                for run in runs(&out.layout, range) {
                    let block = run.block(start, size_bytes);
                    // SAFETY: a run is part of the view.
                    unsafe { unpack(target.add(run.before * size_bytes), &block) };
                }
            }
        }
    };
    match count.div_ceil(PART_COUNT) {
        0 | 1 => body(0),
        parts => threads.for_each_part(parts, body),
    }
}

/// Positions that lie evenly in memory.
pub struct Run {
    /// How many positions of the range come before.
    pub before: usize,
    /// Of the first, in elements from the start of the view.
    pub offset: usize,
    /// From one to the next, in elements.
    pub stride: usize,
    /// The number of elements.
    pub count: usize,
}

impl Run {
    fn block(&self, start: usize, size_bytes: usize) -> Block {
        Block {
            start: start + self.offset * size_bytes,
            size_bytes,
            column_stride: self.stride * size_bytes,
            row_stride: 0,
            columns: self.count,
            rows: 1,
        }
    }
}

/// Cuts a range of row-major positions of a layout into runs.
pub fn runs(layout: &Layout, range: Range<usize>) -> impl Iterator<Item = Run> {
    let (shape, strides) = (*layout.shape(), *layout.strides());
    let (inner_size, inner_stride) = match shape.last() {
        Some(size) => (*size, strides[shape.len() - 1]),
        None => (1, 1),
    };
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let mut rest = at / inner_size;
        let inner = at % inner_size;
        let mut offset = inner * inner_stride;
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            offset += rest % shape[axis] * strides[axis];
            rest /= shape[axis];
        }
        let count = (inner_size - inner).min(range.end - at);
        let run = Run { before: at - range.start, offset, stride: inner_stride, count };
        at += count;
        Some(run)
    })
}

/// Reads the elements of a range of row-major positions of a view, packed and as `to`.
///
/// # Safety
/// - The view is live and nobody writes it; `values` has room for the range, which is at most a chunk.
pub unsafe fn read_range(view: &View, range: Range<usize>, to: DType, values: *mut u8) {
    let (size_bytes, count) = (view.dtype.size_bytes(), range.len());
    let mut packed = Chunk::new();
    for run in runs(&view.layout, range) {
        let block = run.block(start_bytes(view), size_bytes);
        // SAFETY: a run is part of the view, and of the chunk.
        unsafe { pack(&block, packed.start().add(run.before * size_bytes)) };
    }
    let (cast, none) = (convert(view.dtype, to, Level::best()), std::ptr::null());
    // SAFETY: both have room for the range.
    unsafe { cast(values, packed.start(), none, none, count) };
}

/// Runs `Kernel::Iota`.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn iota(out: &View, start: Scalar, step: Scalar, threads: Threads) {
    // SAFETY: as of this function; the loops write the range.
    unsafe {
        if out.dtype.is_float() {
            let (start, step) = (start.to_f64(), step.to_f64());
            fill(out, DType::F64, threads, |range, to| {
                for (index, position) in range.enumerate() {
                    to.cast::<f64>().add(index).write(start + position as f64 * step);
                }
            });
        } else {
            let (start, step) = (start.to_i64(), step.to_i64());
            fill(out, DType::I64, threads, |range, to| {
                for (index, position) in range.enumerate() {
                    let value = start.wrapping_add((position as i64).wrapping_mul(step));
                    to.cast::<i64>().add(index).write(value);
                }
            });
        }
    }
}

/// Runs `Kernel::Triangle`. The axis in which the output steps least is walked along; seen from the other side, an upper
/// triangle is a lower one.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn triangle(out: &View, input: &View, upper: bool, diagonal: i64, threads: Threads) {
    let rank = out.layout.rank();
    let (mut row_axis, mut column_axis) = (rank - 2, rank - 1);
    let (mut upper, mut diagonal) = (upper, diagonal);
    if out.layout.strides()[row_axis] < out.layout.strides()[column_axis] {
        (row_axis, column_axis, upper) = (column_axis, row_axis, !upper);
        diagonal = diagonal.saturating_neg();
    }
    let shape = *out.layout.shape();
    let columns = shape[column_axis];
    // Bounded: one for an axis
    let outer: Dims = (0..rank).filter(|axis| *axis != column_axis).collect();
    let rows: usize = outer.iter().map(|axis| shape[*axis]).product();
    let size_bytes = out.dtype.size_bytes();
    let block = |view: &View, row: usize, range: &Range<usize>| {
        let (strides, mut rest) = (view.layout.strides(), row);
        let mut offset = range.start * strides[column_axis];
        for axis in outer.iter().rev() {
            offset += rest % shape[*axis] * strides[*axis];
            rest /= shape[*axis];
        }
        let start = start_bytes(view) + offset * size_bytes;
        Block {
            start,
            size_bytes,
            column_stride: strides[column_axis] * size_bytes,
            row_stride: 0,
            columns: range.len(),
            rows: 1,
        }
    };
    // How far the index along the rows' axis moves from one row to the next.
    let (row_size, rows_inside) =
        (shape[row_axis], outer.iter().skip_while(|axis| **axis != row_axis).skip(1));
    let rows_inside: usize = rows_inside.map(|axis| shape[*axis]).product();
    let rows_per_part = (PART_COUNT / columns.max(1)).max(1);
    let body = |part: usize| {
        for row in part * rows_per_part..rows.min((part + 1) * rows_per_part) {
            let index = (row / rows_inside % row_size) as i64;
            // Upper: keeps from `index + diagonal` on; lower: up to it.
            let edge = |past: i64| {
                index.saturating_add(diagonal).saturating_add(past).clamp(0, columns as i64) as usize
            };
            let (kept, cleared) =
                if upper { (edge(0)..columns, 0..edge(0)) } else { (0..edge(1), edge(1)..columns) };
            let (from, to) = (block(input, row, &kept), block(out, row, &kept));
            let clear = block(out, row, &cleared);
            // SAFETY: the blocks are parts of the views' rows; in place nothing is copied.
            unsafe {
                by_size!(size_bytes, T => {
                    if from.start != to.start || from.column_stride != to.column_stride {
                        for column in 0..kept.len() {
                            let value = ((from.start + column * from.column_stride) as *const T).read();
                            ((to.start + column * to.column_stride) as *mut T).write(value);
                        }
                    }
                    for column in 0..cleared.len() {
                        ((clear.start + column * clear.column_stride) as *mut T).write(0);
                    }
                });
            }
        }
    };
    match rows.div_ceil(rows_per_part) {
        0 | 1 => body(0),
        parts => threads.for_each_part(parts, body),
    }
}

#[cfg(all(test, not(loom)))]
#[path = "fill_tests.rs"]
mod tests;
