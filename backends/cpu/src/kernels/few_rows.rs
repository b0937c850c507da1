//! Products of few rows, in the order of sums that `matmul` guarantees.
//!
//! With few rows a product is bound by reading the right side, so nothing of it is copied where its rows lie along
//! memory. Where its columns do (a linear layer's weight, seen transposed), a piece of them is transposed in registers
//! into first-level cache. Each step then multiplies one row of a panel, held in four vectors over columns, by one element
//! of each of up to three left rows: 12 sums in 16 registers, enough to hide the latency of a multiply-add. (Written with
//! vectors by name: of plain arrays the compiler makes shuffles and spills.)

use super::axis::transpose;
#[cfg(target_arch = "x86_64")]
use super::axis::turn;
use super::element::Real;
use super::level::Level;
use super::matrix::Matrix;
use super::scratch::scratch;

/// Vectors in a row of a panel.
const VECTORS: usize = 4;
/// Left rows that are multiplied at once.
const ROWS: usize = 3;
/// The most columns of a panel: AVX-512, `f32`.
const WIDTH_MAX: usize = 16 * VECTORS;
/// Elements of a column that are packed at once: with 32 columns of `f32`, half of a first-level cache.
const PACKED: usize = 128;
/// A register of `A`s.
///
/// Its functions need the instructions that it is named for.
trait Vector<A>: Copy {
    /// Elements of a vector.
    const LANES: usize;
    /// All of them `x`.
    unsafe fn splat(x: A) -> Self;
    /// From memory, anywhere.
    unsafe fn load(from: *const A) -> Self;
    /// To memory, anywhere.
    unsafe fn store(self, to: *mut A);
    /// `self · a + b`, rounded once.
    unsafe fn mul_add(self, a: Self, b: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    macro_rules! vector {
        ($($v:ident of $t:ident $lanes:literal: $splat:ident $load:ident $store:ident $mul_add:ident;)*) => { $(
            impl Vector<$t> for $v {
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn splat(x: $t) -> $v {
                    // SAFETY: the machine has the instruction.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $t) -> $v {
                    // SAFETY: as above; the caller answers for the memory.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $t) {
                    // SAFETY: as above.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, a: $v, b: $v) -> $v {
                    // SAFETY: the machine has the instruction.
                    unsafe { $mul_add(self, a, b) }
                }
            }
        )* };
    }
    vector! {
        __m256 of f32 8: _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps;
        __m256d of f64 4: _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd;
        __m512 of f32 16: _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps;
        __m512d of f64 8: _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd;
    }
}

/// For any machine.
impl<A: Real> Vector<A> for [A; 4] {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: A) -> [A; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const A) -> [A; 4] {
        // SAFETY: the caller answers for the memory.
        unsafe { from.cast::<[A; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut A) {
        // SAFETY: the caller answers for the memory.
        unsafe { to.cast::<[A; 4]>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, a: [A; 4], b: [A; 4]) -> [A; 4] {
        // An x86-64 that gets here has no such instruction, and the `gemm` crate rounds twice there: so does this.
        std::array::from_fn(|lane| match cfg!(target_arch = "x86_64") {
            true => self[lane] * a[lane] + b[lane],
            false => self[lane].mul_add(a[lane], b[lane]),
        })
    }
}

/// Sizes, left and right side, result; and whether it is added to.
type Arguments<A> = ((usize, usize, usize), Matrix<A>, Matrix<A>, Matrix<A>, bool);

/// A float with vectors.
pub trait Wide: Real {
    /// `to = a · b`, or added to `to`.
    ///
    /// # Safety
    /// - The matrices are in live memory, nobody writes `a` and `b`, nobody else uses `to`.
    unsafe fn few_rows(arguments: Arguments<Self>);
    /// Makes as many columns as a quicker way can; what is returned is left.
    ///
    /// # Safety
    /// - As of [`Wide::few_rows`].
    unsafe fn stream(arguments: Arguments<Self>) -> Arguments<Self>;
}

macro_rules! wide {
    ($($t:ident $v3:ident $v4:ident $stream:path),*) => { $(
        impl Wide for $t {
            unsafe fn stream(arguments: Arguments<$t>) -> Arguments<$t> {
                // SAFETY: the caller's bullets.
                unsafe { $stream(arguments) }
            }
            unsafe fn few_rows(arguments: Arguments<$t>) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                unsafe fn v3(arguments: Arguments<$t>, memory: &mut [$t]) {
                    // SAFETY: the caller's bullets; the machine has the vector.
                    unsafe { run::<$t, std::arch::x86_64::$v3>(arguments, memory) }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma,avx512f")]
                unsafe fn v4(arguments: Arguments<$t>, memory: &mut [$t]) {
                    // SAFETY: the caller's bullets; the machine has the vector.
                    unsafe { run::<$t, std::arch::x86_64::$v4>(arguments, memory) }
                }
                // SAFETY: the caller's bullets.
                let arguments = unsafe { <$t>::stream(arguments) };
                let ((m, _, k), a, ..) = arguments;
                scratch(own_count(m, k, a) + (PACKED.min(k) + m) * WIDTH_MAX, |memory| {
                    // SAFETY: the caller's bullets; the level is one of this machine.
                    unsafe {
                        match Level::best() {
                            Level::Baseline => run::<$t, [$t; 4]>(arguments, memory),
                            #[cfg(target_arch = "x86_64")]
                            Level::V3 => v3(arguments, memory),
                            #[cfg(target_arch = "x86_64")]
                            Level::V4 => v4(arguments, memory),
                        }
                    }
                });
            }
        }
    )* };
}
wide!(f32 __m256 __m512 stream, f64 __m256d __m512d leave);

/// There is no quicker way.
unsafe fn leave(arguments: Arguments<f64>) -> Arguments<f64> {
    arguments
}

/// One or two rows times columns that lie along memory: each element is used so little that putting it down in a panel
/// costs more than all else. Columns are transposed in registers and used there, 16 at a time.
///
/// # Safety
/// - As of [`Wide::few_rows`].
unsafe fn stream(((m, n, k), a, b, to, add): Arguments<f32>) -> Arguments<f32> {
    #[cfg(target_arch = "x86_64")]
    if m <= 2 && b.row == 1 && Level::best() != Level::Baseline {
        let whole = n / 16 * 16;
        // SAFETY: the caller's bullets; the machine has AVX2.
        unsafe {
            match m {
                1 => stream_rows::<1>(((m, whole, k), a, b, to, add)),
                _ => stream_rows::<2>(((m, whole, k), a, b, to, add)),
            }
        }
        return ((m, n - whole, k), a, b.from(0, whole), to.from(0, whole), add);
    }
    ((m, n, k), a, b, to, add)
}

/// [`stream`] for `R` rows and a multiple of 16 columns.
///
/// # Safety
/// - As there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn stream_rows<const R: usize>(((_, n, k), a, b, to, add): Arguments<f32>) {
    use std::arch::x86_64::*;
    let whole = k / 4 * 4;
    // SAFETY: the matrices are as the caller vouches, and no index is outside of them.
    unsafe {
        for first in (0..n).step_by(16) {
            let mut sums = [[_mm256_setzero_ps(); 2]; R];
            for p in (0..whole).step_by(4) {
                for half in 0..2 {
                    let lines = turn(b.at(p, first + half * 8), b.column);
                    for (step, line) in lines.into_iter().enumerate() {
                        for (row, sums) in sums.iter_mut().enumerate() {
                            sums[half] =
                                _mm256_fmadd_ps(line, _mm256_set1_ps(*a.at(row, p + step)), sums[half]);
                        }
                    }
                }
            }
            for p in whole..k {
                for half in 0..2 {
                    let mut line = [0.0; 8];
                    for (column, x) in line.iter_mut().enumerate() {
                        *x = *b.at(p, first + half * 8 + column);
                    }
                    let line = _mm256_loadu_ps(line.as_ptr());
                    for (row, sums) in sums.iter_mut().enumerate() {
                        sums[half] = _mm256_fmadd_ps(line, _mm256_set1_ps(*a.at(row, p)), sums[half]);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let mut line = [0.0; 16];
                _mm256_storeu_ps(line.as_mut_ptr(), sums[0]);
                _mm256_storeu_ps(line.as_mut_ptr().wrapping_add(8), sums[1]);
                for (column, sum) in line.into_iter().enumerate() {
                    let to = to.at(row, first + column);
                    *to = if add { *to + sum } else { sum };
                }
            }
        }
    }
}

/// Adds the product of `R` rows and a panel to sums, row after row of the panel.
///
/// # Safety
/// - Rows are `k` elements long, the panel has `k` rows of a panel's width, `pitch` apart, `sums` has `R` of that width;
///   all in live memory, and `sums` nobody else's.
#[inline(always)]
unsafe fn step<A: Real, V: Vector<A>, const R: usize>(
    k: usize,
    rows: [*const A; R],
    panel: *const A,
    pitch: usize,
    sums: *mut A,
) {
    let place = |row: usize, vector: usize| (row * VECTORS + vector) * V::LANES;
    // SAFETY: all addresses are inside of what the caller vouches for.
    unsafe {
        let mut tile = [[V::splat(A::ZERO); VECTORS]; R];
        for (row, tile) in tile.iter_mut().enumerate() {
            for (vector, sum) in tile.iter_mut().enumerate() {
                *sum = V::load(sums.wrapping_add(place(row, vector)));
            }
        }
        for p in 0..k {
            let line = panel.wrapping_add(p * pitch);
            let mut a = [V::splat(A::ZERO); R];
            for (a, row) in a.iter_mut().zip(rows) {
                *a = V::splat(*row.wrapping_add(p));
            }
            // One vector of the panel at a time: with 12 sums and 3 elements that fills AVX2's registers.
            for vector in 0..VECTORS {
                let b = V::load(line.wrapping_add(vector * V::LANES));
                for (tile, a) in tile.iter_mut().zip(a) {
                    tile[vector] = b.mul_add(a, tile[vector]);
                }
            }
        }
        for (row, tile) in tile.iter().enumerate() {
            for (vector, sum) in tile.iter().enumerate() {
                sum.store(sums.wrapping_add(place(row, vector)));
            }
        }
    }
}

/// How many elements of the left side have to be put in rows first.
fn own_count<A>(m: usize, k: usize, a: Matrix<A>) -> usize {
    if a.column == 1 { 0 } else { m * k }
}

/// [`Wide::few_rows`], with a vector that the machine has. (No closure around it: it wouldn't be compiled for the machine.)
///
/// # Safety
/// - As there; `memory` has room for packed rows, a packed panel and the sums.
#[inline(always)]
unsafe fn run<A: Real, V: Vector<A>>(((m, n, k), a, b, to, add): Arguments<A>, memory: &mut [A]) {
    let width = VECTORS * V::LANES;
    let packed = PACKED.min(k);
    let (own_rows, rest) = memory.split_at_mut(own_count(m, k, a));
    let (panel, sums) = rest.split_at_mut(packed * width);
    let sums = &mut sums[..m * width];
    // SAFETY: the matrices are as the caller vouches, scratch is large enough for what is put there.
    unsafe {
        let (rows, row_stride) = if a.column == 1 {
            (a.at(0, 0).cast_const(), a.row)
        } else {
            for i in 0..m {
                for p in 0..k {
                    own_rows[i * k + p] = *a.at(i, p);
                }
            }
            (own_rows.as_ptr(), k)
        };
        for first in (0..n).step_by(width) {
            let count = width.min(n - first);
            let in_place = count == width && b.column == 1;
            sums.fill(A::ZERO);
            let length_max = if in_place { k } else { packed };
            for start in (0..k).step_by(length_max) {
                let length = length_max.min(k - start);
                let b = b.from(start, first);
                let (panel, pitch) = if in_place {
                    (b.at(0, 0).cast_const(), b.row)
                } else {
                    pack((length, count), b, panel, width);
                    (panel.as_ptr(), width)
                };
                for i in (0..m).step_by(ROWS) {
                    let row = rows.wrapping_add(i * row_stride + start);
                    let (second, third) = (row.wrapping_add(row_stride), row.wrapping_add(2 * row_stride));
                    let sums = sums[i * width..].as_mut_ptr();
                    match m - i {
                        1 => step::<A, V, 1>(length, [row], panel, pitch, sums),
                        2 => step::<A, V, 2>(length, [row, second], panel, pitch, sums),
                        _ => step::<A, V, 3>(length, [row, second, third], panel, pitch, sums),
                    }
                }
            }
            for (i, sums) in sums.chunks(width).enumerate() {
                for (j, &sum) in sums[..count].iter().enumerate() {
                    let to = to.at(i, first + j);
                    *to = if add { *to + sum } else { sum };
                }
            }
        }
    }
}

/// Copies `count` columns of `k` elements to rows of `width`; what is left of these is zero.
///
/// # Safety
/// - The columns are in live memory that nobody writes meanwhile; the panel is large enough.
#[inline(always)]
unsafe fn pack<A: Real>((k, count): (usize, usize), b: Matrix<A>, panel: &mut [A], width: usize) {
    if count < width {
        panel.fill(A::ZERO);
    }
    let to = panel.as_mut_ptr();
    // SAFETY: the caller's bullets.
    unsafe {
        if b.row == 1 {
            return transpose(b.at(0, 0), b.column, to, width, count, k);
        }
        for p in 0..k {
            (0..count).for_each(|column| *to.wrapping_add(p * width + column) = *b.at(p, column));
        }
    }
}
