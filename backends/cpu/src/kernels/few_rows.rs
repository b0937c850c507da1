//! Products of few rows, in the order of sums that `matmul` guarantees.
//!
//! With few rows a product is bound by reading the right side, so nothing of it is copied where rows of it lie along
//! memory. Where columns do (a linear layer's weight, seen transposed), a panel of them is transposed in registers into
//! first-level cache. Then each step multiplies one row of the panel, held in vectors over columns, with one element of
//! each left row: sums over `k` stay in order, whatever the number of rows.

use super::axis::{Real, multiversion, scratch};
use super::matmul::Matrix;

/// Columns of a panel: 4 AVX2 or 2 AVX-512 vectors of `f32`.
const PANEL: usize = 32;
/// The most rows that are multiplied at once: with [`PANEL`] their sums fill 12 of AVX2's 16 registers.
const ROWS: usize = 3;

/// A row of sums.
type Sums<A> = [A; PANEL];

macro_rules! kernels {
    ($($name:ident $rows:literal),*) => { $(
        multiversion! {
        /// Sums of this many rows over a panel, whose rows are `pitch` apart.
        ///
        /// The panel is as long as the rows, and in live memory that nobody writes meanwhile.
        fn $name<A: Real>(rows: [&[A]; $rows], panel: *const A, pitch: usize) -> [Sums<A>; $rows] {
            let mut sums = [[A::ZERO; PANEL]; $rows];
            for k in 0..rows[0].len() {
                // SAFETY: see above.
                let b = unsafe { &*panel.wrapping_add(k * pitch).cast::<Sums<A>>() };
                for row in 0..$rows {
                    let a = rows[row][k];
                    for lane in 0..PANEL {
                        sums[row][lane] = b[lane].mul_add(a, sums[row][lane]);
                    }
                }
            }
            sums
        }
        }
    )* };
}
kernels!(one_row 1, two_rows 2, three_rows 3);

/// `to = a · b`, or added to `to`.
///
/// # Safety
/// - The matrices are in live memory, nobody writes `a` and `b`, nobody else uses `to`.
pub unsafe fn few_rows<A: Real>(
    (m, n, k): (usize, usize, usize),
    a: Matrix<A>,
    b: Matrix<A>,
    to: Matrix<A>,
    add: bool,
) {
    scratch::<A, _>(m * k + PANEL * k, |memory| {
        let (own_rows, own_panel) = memory.split_at_mut(m * k);
        let rows: &[A] = if a.column == 1 && (m == 1 || a.row == k) {
            // SAFETY: the rows lie one after the other.
            unsafe { std::slice::from_raw_parts(a.at(0, 0), m * k) }
        } else {
            for i in 0..m {
                for p in 0..k {
                    // SAFETY: the caller's bullet.
                    own_rows[i * k + p] = unsafe { *a.at(i, p) };
                }
            }
            own_rows
        };
        for first in (0..n).step_by(PANEL) {
            let count = PANEL.min(n - first);
            let (panel, pitch) = if count == PANEL && b.column == 1 {
                (b.at(0, first).cast_const(), b.row)
            } else {
                // SAFETY: the caller's bullet.
                unsafe { pack(k, count, b.from(0, first), own_panel) };
                (own_panel.as_ptr(), PANEL)
            };
            for (index, group) in rows.chunks(ROWS * k).enumerate() {
                let row = |index: usize| &group[index * k..][..k];
                let mut sums = [[A::ZERO; PANEL]; ROWS];
                match group.len() / k {
                    1 => [sums[0]] = one_row([row(0)], panel, pitch),
                    2 => [sums[0], sums[1]] = two_rows([row(0), row(1)], panel, pitch),
                    _ => sums = three_rows([row(0), row(1), row(2)], panel, pitch),
                }
                for (row, sums) in sums[..group.len() / k].iter().enumerate() {
                    // SAFETY: the caller's bullet.
                    unsafe { put(&sums[..count], to.from(index * ROWS + row, first), add) };
                }
            }
        }
    });
}

/// Writes a row of sums, or adds it.
///
/// # Safety
/// - The row is the caller's.
#[inline]
unsafe fn put<A: Real>(sums: &[A], to: Matrix<A>, add: bool) {
    for (column, &sum) in sums.iter().enumerate() {
        let to = to.at(0, column);
        // SAFETY: the caller's bullet.
        unsafe { *to = if add { *to + sum } else { sum } };
    }
}

/// Copies `count` columns to rows of [`PANEL`] elements; what is left of them is zero.
///
/// # Safety
/// - The columns are in live memory that nobody writes meanwhile.
unsafe fn pack<A: Real>(k: usize, count: usize, b: Matrix<A>, panel: &mut [A]) {
    if count < PANEL {
        panel.fill(A::ZERO);
    }
    #[cfg(target_arch = "x86_64")]
    if b.row == 1 && A::DTYPE == raddle_base::DType::F32 && super::level::Level::best() != super::level::Level::Baseline {
        // SAFETY: the caller's bullet; the machine has AVX2, and `A` is `f32`.
        return unsafe { pack_f32(k, count, b.at(0, 0).cast(), b.column, panel.as_mut_ptr().cast()) };
    }
    for column in 0..count {
        for p in 0..k {
            // SAFETY: the caller's bullet.
            panel[p * PANEL + column] = unsafe { *b.at(p, column) };
        }
    }
}

/// [`pack`] of columns that lie along memory, eight by eight in registers.
///
/// # Safety
/// - The columns are in live memory that nobody writes meanwhile; `to` has `k` rows of [`PANEL`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn pack_f32(k: usize, count: usize, from: *const f32, step: usize, to: *mut f32) {
    use std::arch::x86_64::*;
    let whole = k / 8 * 8;
    let mut column = 0;
    while column + 8 <= count {
        let from = from.wrapping_add(column * step);
        for p in (0..whole).step_by(8) {
            // Rows l and l + 4 share a register, so that two rounds of shuffles inside its halves transpose all.
            // SAFETY: eight elements of eight columns are read, eight of eight rows written.
            unsafe {
                let pair = |line: usize, half: usize| {
                    let low = _mm_loadu_ps(from.wrapping_add(line * step + p + half * 4));
                    let high = _mm_loadu_ps(from.wrapping_add((line + 4) * step + p + half * 4));
                    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
                };
                for half in 0..2 {
                    let (a, b, c, d) = (pair(0, half), pair(1, half), pair(2, half), pair(3, half));
                    let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                    let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                    let rows = [
                        _mm256_shuffle_ps::<0x44>(ab_low, cd_low),
                        _mm256_shuffle_ps::<0xee>(ab_low, cd_low),
                        _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                        _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
                    ];
                    for (index, row) in rows.into_iter().enumerate() {
                        _mm256_storeu_ps(to.wrapping_add((p + half * 4 + index) * PANEL + column), row);
                    }
                }
            }
        }
        for p in whole..k {
            for line in 0..8 {
                // SAFETY: the rest of the same columns.
                unsafe { *to.wrapping_add(p * PANEL + column + line) = *from.wrapping_add(line * step + p) };
            }
        }
        column += 8;
    }
    for column in column..count {
        for p in 0..k {
            // SAFETY: the rest of the columns.
            unsafe { *to.wrapping_add(p * PANEL + column) = *from.wrapping_add(column * step + p) };
        }
    }
}
