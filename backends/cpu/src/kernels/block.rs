//! Moving strided blocks to and from packed memory, transposing on the way where that keeps whole cache lines together.
//!
//! A block is `rows` rows of `columns` elements; in packed memory the columns lie side by side.

use super::{level::Level, loops::by_size};
use std::ops::Range;

/// Size of a cache line.
pub const LINE_BYTES: usize = 64;

/// A strided block: where its first element lies, and its steps, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// The first element.
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
pub unsafe fn pack(block: &Block, to: *mut u8) {
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
                Matrix { start: from.cast_mut().cast(), stride: block.column_stride / size_of::<T>() },
                Matrix { start: to.cast(), stride: block.columns },
                block.columns, block.rows, true,
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
pub unsafe fn unpack(from: *const u8, block: &Block) {
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
                Matrix { start: from.cast_mut().cast(), stride: block.columns },
                Matrix { start: to.cast(), stride: block.column_stride / size_of::<T>() },
                block.rows, block.columns, false,
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

/// Asks for the cache lines of a block that is packed or unpacked soon. Rows far apart are beyond what the hardware
/// foresees, and each lies on a page of its own: on a virtual machine a transposing copy is nearly twice as fast so.
pub fn prefetch(block: &Block) {
    let (runs, stride, size_bytes) = if block.column_stride == block.size_bytes {
        (block.rows, block.row_stride, block.columns * block.size_bytes)
    } else if block.row_stride == block.size_bytes {
        (block.columns, block.column_stride, block.rows * block.size_bytes)
    } else {
        return;
    };
    for run in 0..runs {
        let start = block.start + run * stride;
        prefetch_bytes(start / LINE_BYTES * LINE_BYTES..start + size_bytes, Cache::Second);
    }
}

/// Where prefetched lines go.
#[derive(Clone, Copy)]
pub enum Cache {
    /// They are read straight on.
    First,
    /// They lie a power of two apart, and would share few places in the first.
    Second,
}

/// Asks for the cache lines of a range, in steps of their size from its start.
#[inline(always)]
pub fn prefetch_bytes(range: Range<usize>, to: Cache) {
    #[cfg(target_arch = "x86_64")]
    for line in range.step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe {
            match to {
                Cache::First => _mm_prefetch::<_MM_HINT_T0>(line as *const i8),
                Cache::Second => _mm_prefetch::<_MM_HINT_T1>(line as *const i8),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (range, to);
}

/// A matrix in memory; strides in elements.
#[derive(Clone, Copy)]
pub struct Matrix<T> {
    /// Its first element.
    pub start: *mut T,
    /// From one row to the next.
    pub stride: usize,
}

impl<T> Matrix<T> {
    #[cfg(target_arch = "x86_64")]
    fn cast<U>(self) -> Matrix<U> {
        Matrix { start: self.start.cast(), stride: self.stride }
    }
    #[inline(always)]
    fn at(&self, i: usize, j: usize) -> *mut T {
        self.start.wrapping_add(i * self.stride + j)
    }
    #[inline(always)]
    fn part(&self, i: usize, j: usize) -> Matrix<T> {
        Matrix { start: self.at(i, j), stride: self.stride }
    }
}

/// An element, and how a small square of it is transposed in registers.
pub trait Square: Copy {
    /// Rows and columns of the square.
    const SIDE: usize;
    /// # Safety
    /// - `from` and `to` are squares of this side in their matrices, apart from each other.
    unsafe fn transpose(from: Matrix<Self>, to: Matrix<Self>);
}

/// Through an array; the compiler keeps what it can in registers.
#[inline(always)]
unsafe fn transpose_square<T: Copy, const SIDE: usize>(from: Matrix<T>, to: Matrix<T>) {
    for j in 0..SIDE {
        for i in 0..SIDE {
            // SAFETY: as of `Square::transpose`.
            unsafe { to.at(j, i).write(from.at(i, j).read()) };
        }
    }
}

impl Square for u8 {
    const SIDE: usize = 8;
    #[inline(always)]
    unsafe fn transpose(from: Matrix<u8>, to: Matrix<u8>) {
        // SAFETY: as of this function.
        unsafe { transpose_square::<u8, 8>(from, to) }
    }
}

/// Squares of one vector a side: interleaving the lines `i` and `i + side / 2`, as often as `side` has bits, turns rows
/// into columns (a perfect shuffle). SSE2, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
macro_rules! square {
    ($t:ident, $side:literal, $low:ident, $high:ident) => {
        impl Square for $t {
            const SIDE: usize = $side;
            #[inline(always)]
            unsafe fn transpose(from: Matrix<$t>, to: Matrix<$t>) {
                use std::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128, $high, $low};
                // SAFETY: as of this function; SSE2 is always there.
                unsafe {
                    let mut lines: [_; $side] =
                        std::array::from_fn(|i| _mm_loadu_si128(from.at(i, 0).cast()));
                    for _ in 0..($side as u32).ilog2() {
                        lines = std::array::from_fn(|i| {
                            let (a, b) = (lines[i / 2], lines[i / 2 + $side / 2]);
                            if i % 2 == 0 { $low(a, b) } else { $high(a, b) }
                        });
                    }
                    for (j, line) in lines.into_iter().enumerate() {
                        _mm_storeu_si128(to.at(j, 0).cast(), line);
                    }
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
square!(u16, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16);
#[cfg(target_arch = "x86_64")]
square!(u32, 4, _mm_unpacklo_epi32, _mm_unpackhi_epi32);
#[cfg(target_arch = "x86_64")]
square!(u64, 2, _mm_unpacklo_epi64, _mm_unpackhi_epi64);

#[cfg(not(target_arch = "x86_64"))]
macro_rules! square {
    ($t:ident, $side:literal) => {
        impl Square for $t {
            const SIDE: usize = $side;
            #[inline(always)]
            unsafe fn transpose(from: Matrix<$t>, to: Matrix<$t>) {
                // SAFETY: as of this function.
                unsafe { transpose_square::<$t, $side>(from, to) }
            }
        }
    };
}
#[cfg(not(target_arch = "x86_64"))]
square!(u16, 8);
#[cfg(not(target_arch = "x86_64"))]
square!(u32, 4);
#[cfg(not(target_arch = "x86_64"))]
square!(u64, 2);

/// Squares of one AVX-512 vector a side, for elements of one size; interleaved in the same way.
#[cfg(target_arch = "x86_64")]
macro_rules! wide_square {
    ($wide:ident, $t:ident, $side:literal, $permute:ident) => {
        #[derive(Clone, Copy)]
        struct $wide(#[expect(dead_code, reason = "stands for an element")] $t);

        impl Square for $wide {
            const SIDE: usize = $side;
            #[inline(always)]
            unsafe fn transpose(from: Matrix<$wide>, to: Matrix<$wide>) {
                use std::arch::x86_64::{_mm512_loadu_si512, _mm512_storeu_si512, $permute};
                const fn interleaved(start: $t) -> [$t; $side] {
                    let (mut places, mut i) = ([0; $side], 0);
                    while i < $side {
                        places[i] = start + i as $t / 2 + i as $t % 2 * $side;
                        i += 1;
                    }
                    places
                }
                const LOW: [$t; $side] = interleaved(0);
                const HIGH: [$t; $side] = interleaved($side / 2);
                // SAFETY: as of this function; only `wide_transpose` names it, where AVX-512 is.
                unsafe {
                    // No closures: they wouldn't be compiled for AVX-512.
                    let low = _mm512_loadu_si512(LOW.as_ptr().cast());
                    let high = _mm512_loadu_si512(HIGH.as_ptr().cast());
                    let mut lines = [low; $side];
                    for i in 0..$side {
                        lines[i] = _mm512_loadu_si512(from.at(i, 0).cast());
                    }
                    for _ in 0..($side as u32).ilog2() {
                        let before = lines;
                        for i in 0..$side / 2 {
                            lines[2 * i] = $permute(before[i], low, before[i + $side / 2]);
                            lines[2 * i + 1] = $permute(before[i], high, before[i + $side / 2]);
                        }
                    }
                    for j in 0..$side {
                        _mm512_storeu_si512(to.at(j, 0).cast(), lines[j]);
                    }
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
wide_square!(Wide4, u32, 16, _mm512_permutex2var_epi32);
#[cfg(target_arch = "x86_64")]
wide_square!(Wide8, u64, 8, _mm512_permutex2var_epi64);

/// [`transpose_body`] where AVX-512 is.
///
/// # Safety
/// - As of [`transpose`]; the machine has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn wide_transpose<T: Square>(
    from: Matrix<T>,
    to: Matrix<T>,
    rows: usize,
    columns: usize,
    along_from: bool,
) {
    // SAFETY: as of this function.
    unsafe { transpose_body(from, to, rows, columns, along_from) }
}

/// `to[j][i] = from[i][j]` for `i` below `rows`, `j` below `columns`. With `along_from` it walks along a few rows of
/// `from` at a time, else along a few of `to`: along those whose stride is large, since lines a large power of two apart
/// share few places in a cache.
///
/// # Safety
/// - The elements are inside of live memory; the two don't meet.
pub unsafe fn transpose<T: Square>(
    from: Matrix<T>,
    to: Matrix<T>,
    rows: usize,
    columns: usize,
    along_from: bool,
) {
    #[cfg(target_arch = "x86_64")]
    if Level::best() == Level::V4 && size_of::<T>() >= 4 {
        // SAFETY: as of this function; the level is this machine's, and an element is as large as its stand-in.
        return unsafe {
            match size_of::<T>() {
                4 => wide_transpose::<Wide4>(from.cast(), to.cast(), rows, columns, along_from),
                _ => wide_transpose::<Wide8>(from.cast(), to.cast(), rows, columns, along_from),
            }
        };
    }
    // SAFETY: as of this function.
    unsafe { transpose_body(from, to, rows, columns, along_from) }
}

/// # Safety
/// - As of [`transpose`].
#[inline(always)]
unsafe fn transpose_body<T: Square>(
    from: Matrix<T>,
    to: Matrix<T>,
    rows: usize,
    columns: usize,
    along_from: bool,
) {
    let (whole_rows, whole_columns) = (rows / T::SIDE * T::SIDE, columns / T::SIDE * T::SIDE);
    let (outer, inner) = if along_from { (whole_rows, whole_columns) } else { (whole_columns, whole_rows) };
    for a in (0..outer).step_by(T::SIDE) {
        for b in (0..inner).step_by(T::SIDE) {
            let (i, j) = if along_from { (a, b) } else { (b, a) };
            // SAFETY: the squares lie within `rows` and `columns`.
            unsafe { T::transpose(from.part(i, j), to.part(j, i)) };
        }
    }
    let rest = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
        for i in rows {
            for j in columns.clone() {
                // SAFETY: all indices are below `rows` and `columns`.
                unsafe { to.at(j, i).write(from.at(i, j).read()) };
            }
        }
    };
    rest(whole_rows..rows, 0..columns);
    rest(0..whole_rows, whole_columns..columns);
}
