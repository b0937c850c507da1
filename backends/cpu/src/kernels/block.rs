//! Moving strided blocks to and from packed memory, transposing on the way where that keeps whole cache lines together.
//!
//! A block is `rows` rows of `columns` elements; in packed memory the columns lie side by side.

use super::level::{Level, leveled};
use super::loops::by_size;

/// A strided block: where its first element lies, and its steps, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Where.
    pub start: usize,
    /// Size of an element.
    pub size_bytes: usize,
    /// From one column to the next.
    pub column_stride: usize,
    /// From one row to the next.
    pub row_stride: usize,
    /// How many columns.
    pub columns: usize,
    /// How many rows.
    pub rows: usize,
}

impl Block {
    fn row_bytes(&self) -> usize {
        self.columns * self.size_bytes
    }
}

/// Packs a block.
///
/// # Safety
/// - The block may be read, and `to` written for as many elements; they don't meet.
pub unsafe fn pack(block: &Block, to: *mut u8, level: Level) {
    let from = block.start as *const u8;
    // SAFETY: as of this function: all addresses are those of the block's elements.
    unsafe {
        if block.column_stride == block.size_bytes {
            for row in 0..block.rows {
                to.add(row * block.row_bytes())
                    .copy_from_nonoverlapping(from.add(row * block.row_stride), block.row_bytes());
            }
        } else if block.row_stride == block.size_bytes && block.column_stride != 0 {
            by_size!(block.size_bytes, T => transpose::<T>(
                level, from.cast(), block.column_stride / size_of::<T>(), to.cast(), block.columns, block.columns,
                block.rows, true,
            ));
        } else {
            by_size!(block.size_bytes, T => {
                let (mut to, stride) = (to.cast::<T>(), block.column_stride / size_of::<T>());
                for row in 0..block.rows {
                    let from = from.add(row * block.row_stride).cast::<T>();
                    for column in 0..block.columns {
                        to.add(column).write(from.add(column * stride).read());
                    }
                    to = to.add(block.columns);
                }
            });
        }
    }
}

/// Writes a block from packed memory.
///
/// # Safety
/// - The block may be written, and `from` read for as many elements; they don't meet.
pub unsafe fn unpack(from: *const u8, block: &Block, level: Level) {
    let to = block.start as *mut u8;
    // SAFETY: as of this function: all addresses are those of the block's elements.
    unsafe {
        if block.column_stride == block.size_bytes {
            for row in 0..block.rows {
                to.add(row * block.row_stride)
                    .copy_from_nonoverlapping(from.add(row * block.row_bytes()), block.row_bytes());
            }
        } else if block.row_stride == block.size_bytes {
            by_size!(block.size_bytes, T => transpose::<T>(
                level, from.cast(), block.columns, to.cast(), block.column_stride / size_of::<T>(), block.rows,
                block.columns, false,
            ));
        } else {
            by_size!(block.size_bytes, T => {
                let (mut from, stride) = (from.cast::<T>(), block.column_stride / size_of::<T>());
                for row in 0..block.rows {
                    let to = to.add(row * block.row_stride).cast::<T>();
                    for column in 0..block.columns {
                        to.add(column * stride).write(from.add(column).read());
                    }
                    from = from.add(block.columns);
                }
            });
        }
    }
}

leveled! {
    /// `to[j][i] = from[i][j]` for `i` below `rows`, `j` below `columns`; strides in elements. With `along_from` it walks
    /// along a few rows of `from` at a time, else along a few of `to`: along those whose stride is large, since lines a
    /// large power of two apart share few places in a cache.
    unsafe fn transpose<T: Copy>(from: *const T, from_stride: usize, to: *mut T, to_stride: usize, rows: usize,
        columns: usize, along_from: bool) = transpose_body;
}

/// Elements of a square that is transposed in registers: 8 as AVX has eight lanes of 32 bits.
const SQUARE: usize = 8;

#[inline(always)]
unsafe fn transpose_body<T: Copy>(
    from: *const T,
    from_stride: usize,
    to: *mut T,
    to_stride: usize,
    rows: usize,
    columns: usize,
    along_from: bool,
) {
    let whole = |count: usize| count / SQUARE * SQUARE;
    // SAFETY: all indices are below `rows` and `columns`.
    let square = |i: usize, j: usize| unsafe {
        let read = |row: usize| from.add((i + row) * from_stride + j).cast::<[T; SQUARE]>().read_unaligned();
        let lines: [[T; SQUARE]; SQUARE] = std::array::from_fn(read);
        for column in 0..SQUARE {
            let line: [T; SQUARE] = std::array::from_fn(|row| lines[row][column]);
            to.add((j + column) * to_stride + i).cast::<[T; SQUARE]>().write_unaligned(line);
        }
    };
    let (outer, inner) = if along_from { (rows, columns) } else { (columns, rows) };
    for a in (0..whole(outer)).step_by(SQUARE) {
        for b in (0..whole(inner)).step_by(SQUARE) {
            if along_from { square(a, b) } else { square(b, a) }
        }
    }
    let rest = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
        for i in rows {
            for j in columns.clone() {
                // SAFETY: all indices are below `rows` and `columns`.
                unsafe { to.add(j * to_stride + i).write(from.add(i * from_stride + j).read()) };
            }
        }
    };
    rest(whole(rows)..rows, 0..columns);
    rest(0..whole(rows), whole(columns)..columns);
}
