//! Matrix products with what follows them.
//!
//! Guarantee: an element of the product is the sum over `k` in blocks of `k` that depend on `k` alone, each block summed
//! in order by fused multiply-adds, the blocks' sums added in order. Nothing else enters: not the number of rows or
//! columns, not strides, batch or threads (T8; the tests compare bits). So a sentence gets the same numbers alone and in
//! a batch. (On a machine without fused multiply-add the products are rounded as well.)
//!
//! Large products are the `gemm` crate's. It is called with at most [`K_BLOCK`] of `k`, which it sums in order; and not at
//! all where it would sum otherwise (dot products of small matrices, vectors, `k` below 3) or is slow (few rows): there
//! runs [`Wide::few_rows`]. 16-bit floats are converted first, in scratch of the device if they are many ([`Room`]), so that they
//! are rounded once, at the end. What isn't made where it lies is made and stored [`STAGED_COUNT`] elements at a time.
//!
//! Bias, activation and addend are applied to each part as soon as it is complete, by the thread that made it.

use super::axis::{Line, Shared};
use super::element::{Real, by_real};
use super::few_rows::Wide;
use super::level::{Level, multiversion};
use super::matrix::Matrix;
use super::scratch::{Need, Room, bytes_of, scratch};
use super::{math, view};
use crate::threads::{Threads, for_each_range, with_locals_of_others};
use raddle_hal::{Operand, View};
use raddle_op::Activation;

/// The most of `k` that is summed at once: what the `gemm` crate keeps together on every machine.
const K_BLOCK: usize = 512;
/// Up to so many rows the kernel for few rows is faster: where columns of the right side lie along memory, and where rows
/// do. (Measured on AVX2, 2026-11-28, 384 × 1536 and 1536 × 384.)
const FEW: [usize; 2] = [24, 16];
/// With AVX-512, if the left side's rows and the right side's columns lie along memory, as a linear layer's do: the `gemm` crate
/// packs both. (Zen 4, 2026-11-29, GFLOP/s of one core, ours and theirs, 384 × 1536 and 1536 × 384: 32 rows 91 and 25, 94 and 74;
/// 256 rows 104 and 80, 103 and 105; 2048 rows 94 and 105, 98 and 109.)
const FEW_LINEAR: usize = 256;
/// Rows and columns that are multiplied at once at most: the scratch that kernels and the `gemm` crate take for them grows with
/// these (guess: so long that packing the other side again costs nothing).
const SIDE_MAX: usize = 8192;
/// Elements of a result in scratch: 4 MiB of `f32`; and its columns at most (guesses: enough rows that packing the right
/// side again for the next ones costs little). Few in tests, so that they see several.
const STAGED_COUNT: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
const STAGED_COLUMNS: usize = if cfg!(test) { 48 } else { 4096 };
/// Multiply-adds below which a part isn't worth another thread (a guess: about 10 µs).
const PART_WORK: usize = 1 << 18;
/// Elements of the result in a part at most, as long as parts are few: 256 × 256, of which both sides' packed blocks fit a second-level
/// cache of 1 MiB. (16 cores of a Xeon, 2026-11-30: 2048³ in 16 parts 1014 GFLOP/s, in 32 parts 1259.)
const PART_AREA: usize = 1 << 16;
/// To pack an element of a side costs so much as this many multiply-adds (guess; the same machine: 1024³ in rows 851 GFLOP/s, in squares
/// 1218).
const PACKING: usize = 32;

/// A float that matrices are multiplied in.
pub trait Product: Wide {
    /// The exact gelu: ½ x (1 + erf(x / √2))
    fn gelu(self) -> Self;

    /// `to = a · b`, or `to += a · b` if `add`: the library's kernel.
    ///
    /// # Safety
    /// - As of [`product`].
    unsafe fn gemm(
        sizes: (usize, usize, usize),
        a: Matrix<Self>,
        b: Matrix<Self>,
        to: Matrix<Self>,
        add: bool,
    );
}

/// When the library is first called it asks the system for the sizes of caches, and lets others wait meanwhile: a child that was
/// forked just then would for ever. So that happens under a lock, for which forks wait.
#[cfg(not(loom))]
fn learn_caches() {
    use raddle_sync::{
        Mutex, Rank,
        global::{AtomicBool, Ordering::*},
    };
    static LEARNT: AtomicBool = AtomicBool::new(false);
    static FIRST: Mutex<()> = Mutex::new(Rank::Leaf, ());
    if !LEARNT.load(Acquire) {
        let _held = FIRST.lock_global();
        _ = &gemm_common::cache::CACHE_INFO[0];
        LEARNT.store(true, Release); // with the Acquire above: who sees it finds them
    }
}

/// Models have no children.
#[cfg(loom)]
fn learn_caches() {}

// Its crates for these two types alone: those for 16-bit and complex numbers take as long to build.
macro_rules! products {
    ($($t:ident of $library:ident),*) => { $(
        impl Product for $t {
            #[inline(always)]
            fn gelu(self) -> $t {
                0.5 * self * (1.0 + math::$t::erf(self * std::$t::consts::FRAC_1_SQRT_2))
            }

            unsafe fn gemm(
                (m, n, k): (usize, usize, usize),
                a: Matrix<$t>,
                b: Matrix<$t>,
                to: Matrix<$t>,
                add: bool,
            ) {
                // It likes the elements of a column to lie side by side.
                if to.column < to.row {
                    let (a, b, to) = (b.transposed(), a.transposed(), to.transposed());
                    // SAFETY: the caller's bullet; the strides are the other way round from here on.
                    return unsafe { Self::gemm((n, m, k), a, b, to, add) };
                }
                learn_caches();
                let gemm = $library::gemm::$t::get_gemm_fn();
                // SAFETY: the caller's bullet.
                unsafe {
                    gemm(
                        m,
                        n,
                        k,
                        to.at(0, 0),
                        to.column as isize,
                        to.row as isize,
                        add,
                        a.at(0, 0),
                        a.column as isize,
                        a.row as isize,
                        b.at(0, 0),
                        b.column as isize,
                        b.row as isize,
                        1.0,
                        1.0,
                        false,
                        false,
                        false,
                        gemm_common::Parallelism::None,
                    );
                }
            }
        }
    )* };
}
products!(f32 of gemm_f32, f64 of gemm_f64);

/// `Kernel::MatMul`; `alpha` and `beta`.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn matmul(
    [alpha, beta]: [f64; 2],
    bias: bool,
    accumulate: bool,
    activation: Activation,
    operands: &[Operand],
    threads: Threads,
) {
    let view = |index: usize| operands[index].view();
    let bias = bias.then(|| view(3));
    let addend = accumulate.then(|| view(3 + usize::from(bias.is_some())));
    let room =
        Room::new(need(operands), operands.get(3 + usize::from(bias.is_some()) + usize::from(accumulate)));
    // SAFETY: the contract of this function.
    by_real!(view(0).dtype, A => unsafe {
        let after = After { alpha: alpha as A, beta: beta as A, bias, addend, activation };
        multiply::<A>(view(0), view(1), view(2), &after, &room, threads);
    });
}

/// The scratch of `Kernel::MatMul`.
pub fn need(operands: &[Operand]) -> Need {
    let [out, a, b] = [0, 1, 2].map(|index| operands[index].view());
    if out.layout.is_empty() {
        return Need::NOTHING;
    }
    let bytes =
        by_real!(out.dtype, A => [a, b].map(|operand| bytes_of::<A>(Batch::<A>::scratch_count(operand))));
    Need::one(bytes[0] + bytes[1])
}

/// What is done to the products.
struct After<'a, A> {
    alpha: A,
    beta: A,
    bias: Option<&'a View>,
    addend: Option<&'a View>,
    activation: Activation,
}

impl<A: Real> After<'_, A> {
    fn is_nothing(&self) -> bool {
        self.alpha == A::ONE
            && self.bias.is_none()
            && self.addend.is_none()
            && self.activation == Activation::None
    }
}

/// The matrices of an operand, one for each batch; where they lie, or converted in scratch.
struct Batch<A> {
    first: Matrix<A>,
    step: usize,
}

impl<A: Real> Batch<A> {
    /// How much scratch the operand needs.
    fn scratch_count(operand: &View) -> usize {
        let layout = view::layout(operand);
        let batch = if layout.strides()[0] == 0 { 1 } else { layout.shape()[0] };
        if operand.dtype == A::DTYPE { 0 } else { batch * layout.shape()[1] * layout.shape()[2] }
    }

    /// The matrices of an operand.
    ///
    /// # Safety
    /// - The operand is in live memory that nobody writes meanwhile; the scratch is as large as was asked for.
    unsafe fn new(operand: &View, memory: &mut [A], threads: Threads) -> Batch<A> {
        let (shape, strides) = (view::layout(operand).shape(), view::layout(operand).strides());
        if operand.dtype == A::DTYPE {
            let first =
                Matrix { start: Shared::new(view::start(operand)), row: strides[1], column: strides[2] };
            return Batch { first, step: strides[0] };
        }
        // Lines along the axis that is nearer in memory.
        let (line_axis, other) = if strides[2] <= strides[1] { (2, 1) } else { (1, 2) };
        let (length, lines) = (shape[line_axis], shape[other]);
        let batch = if strides[0] == 0 { 1 } else { shape[0] };
        let line = Line::new(operand, [line_axis]);
        let start = Shared::new(memory.as_mut_ptr());
        for_each_range(threads, batch * lines, length, |range| {
            for index in range {
                let offset = index / lines * strides[0] + index % lines * strides[other];
                // SAFETY: each line has a place of its own.
                unsafe { line.load(offset, 0..length, start.slice(index * length, length)) };
            }
        });
        let (row, column) = if line_axis == 2 { (length, 1) } else { (1, length) };
        let step = if strides[0] == 0 { 0 } else { length * lines };
        Batch { first: Matrix { start, row, column }, step }
    }

    fn get(&self, batch: usize) -> Matrix<A> {
        Matrix { start: Shared::new(self.first.start.at(batch * self.step)), ..self.first }
    }
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn multiply<A: Product>(
    out: &View,
    a: &View,
    b: &View,
    after: &After<A>,
    room: &Room,
    threads: Threads,
) {
    let (shape, strides) = (view::layout(out).shape(), view::layout(out).strides());
    let k = view::layout(a).shape()[2];
    if shape.contains(&0) {
        return;
    }
    // Rows of the output lie along memory: otherwise the transposed product is computed.
    let swap = shape[1] > 1 && (shape[2] == 1 || strides[1] < strides[2]);
    let (rows_axis, columns_axis) = if swap { (2, 1) } else { (1, 2) };
    let (batch, m, n) = (shape[0], shape[rows_axis], shape[columns_axis]);
    let direct = out.dtype == A::DTYPE && after.addend.is_none();
    let counts = [a, b].map(Batch::<A>::scratch_count);
    room.with(|mut memory| {
        let [a_memory, b_memory] = counts.map(|count| memory.take::<A>(count));
        // SAFETY: the contract of this function.
        let (a, b) = unsafe { (Batch::new(a, a_memory, threads), Batch::new(b, b_memory, threads)) };
        let cut = Cut::new(batch, m, n, k, threads);
        threads.for_each_part(cut.parts(), |part| {
            for (index, rows, columns) in cut.pieces(part) {
                let (mut a, mut b) = (a.get(index), b.get(index));
                if swap {
                    (a, b) = (b.transposed(), a.transposed());
                }
                let (a, b) = (a.from(rows.start, 0), b.from(0, columns.start));
                let size = (rows.len(), columns.len(), k);
                let place = Place { out, axes: (rows_axis, columns_axis), batch: index, rows, columns };
                // SAFETY: the contract of this function; pieces don't meet.
                unsafe {
                    if direct {
                        let to = place.matrix();
                        product(size, a, b, to);
                        if !after.is_nothing() {
                            finish(&place, to, after, true);
                        }
                        continue;
                    }
                    let width = size.1.min(STAGED_COLUMNS);
                    let height = size.0.min(STAGED_COUNT / width.max(1));
                    scratch::<A, _>(height * width, |memory| {
                        for (i, j) in blocks_of(size, height, width) {
                            let (rows, columns) = (i.len(), j.len());
                            let to =
                                Matrix { start: Shared::new(memory.as_mut_ptr()), row: columns, column: 1 };
                            product((rows, columns, k), a.from(i.start, 0), b.from(0, j.start), to);
                            finish(&place.part(i, j), to, after, false);
                        }
                    });
                }
            }
        });
    });
}

/// How a product is cut into parts: whole matrices of the batch, or blocks of rows or columns of each. How it is cut
/// doesn't change results, so it may follow the number of threads.
struct Cut {
    batch: usize,
    m: usize,
    n: usize,
    /// Matrices that a part takes, if they aren't cut.
    together: usize,
    row_blocks: usize,
    column_blocks: usize,
}

impl Cut {
    fn new(batch: usize, m: usize, n: usize, k: usize, threads: Threads) -> Cut {
        let work = m.saturating_mul(n).saturating_mul(k.max(1));
        let wanted = (batch.saturating_mul(work) / PART_WORK).clamp(1, threads.0.max(1));
        if batch >= 2 * wanted || wanted == 1 {
            // A few parts for each thread, so that none waits long for the last.
            let parts = if wanted == 1 { 1 } else { batch.min(4 * wanted) };
            return Cut { batch, m, n, together: batch.div_ceil(parts), row_blocks: 1, column_blocks: 1 };
        }
        let most = |size: usize| size.div_ceil(16);
        // A few parts more than threads if one is too large to keep what it packs in a core's cache.
        let large = m.saturating_mul(n) / PART_AREA;
        let blocks = wanted.div_ceil(batch).max(large.min(4 * wanted) / wanted * wanted / batch);
        let area = |rows: usize, columns: usize| {
            let (rows, columns) = (most(m).div_ceil(rows) * 16, most(n).div_ceil(columns) * 16);
            rows * columns + PACKING * (rows + columns)
        };
        let cut = |rows: usize| (rows, (blocks / rows).min(most(n)));
        let (row_blocks, column_blocks) = (1..=blocks.min(most(m)))
            .map(cut)
            .min_by_key(|&(rows, columns)| area(rows, columns))
            .expect("there is one row of blocks at least");
        Cut { batch, m, n, together: 1, row_blocks, column_blocks }
    }

    fn parts(&self) -> usize {
        self.batch.div_ceil(self.together) * self.row_blocks * self.column_blocks
    }

    /// Matrix, rows and columns of each piece of a part.
    fn pieces(&self, part: usize) -> impl Iterator<Item = (usize, Range, Range)> {
        let blocks = self.row_blocks * self.column_blocks;
        let (first, block) = (part / blocks * self.together, part % blocks);
        // Cut at multiples of 16, which no kernel has to pad.
        let cut = |size: usize, index: usize, count: usize| {
            let bound = |index: usize| (size.div_ceil(16) * index / count * 16).min(size);
            bound(index)..bound(index + 1)
        };
        let rows = cut(self.m, block / self.column_blocks, self.row_blocks);
        let columns = cut(self.n, block % self.column_blocks, self.column_blocks);
        (first..self.batch.min(first + self.together))
            .map(move |index| (index, rows.clone(), columns.clone()))
    }
}

type Range = std::ops::Range<usize>;

/// The blocks of a matrix, of at most so many rows and columns.
fn blocks_of(
    (m, n, _): (usize, usize, usize),
    rows: usize,
    columns: usize,
) -> impl Iterator<Item = (Range, Range)> {
    let cut =
        |size: usize, step: usize| (0..size).step_by(step.max(1)).map(move |at| at..size.min(at + step));
    cut(m, rows).flat_map(move |rows| cut(n, columns).map(move |columns| (rows.clone(), columns)))
}

/// `to = a · b`, whatever was there before.
///
/// # Safety
/// - The matrices are in live memory, nobody writes `a` and `b`, nobody else uses `to`.
pub unsafe fn product<A: Product>(
    (m, n, k): (usize, usize, usize),
    a: Matrix<A>,
    b: Matrix<A>,
    to: Matrix<A>,
) {
    if m == 0 || n == 0 {
        return;
    }
    if m > SIDE_MAX || n > SIDE_MAX {
        for (i, j) in blocks_of((m, n, k), SIDE_MAX, SIDE_MAX) {
            let (a, b, to) = (a.from(i.start, 0), b.from(0, j.start), to.from(i.start, j.start));
            // SAFETY: the caller's bullet.
            unsafe { product((i.len(), j.len(), k), a, b, to) };
        }
        return;
    }
    if k == 0 {
        for i in 0..m {
            for j in 0..n {
                // SAFETY: the caller's bullet.
                unsafe { *to.at(i, j) = A::ZERO };
            }
        }
        return;
    }
    let blocks = k.div_ceil(K_BLOCK);
    for block in 0..blocks {
        let (start, end) = (k * block / blocks, k * (block + 1) / blocks);
        let (a, b, add) = (a.from(0, start), b.from(start, 0), block > 0);
        let along = if m <= n { b.column } else { a.row };
        let is_linear = m <= n && a.column == 1 && b.row == 1 && Level::best().is_widest();
        let most = if is_linear { FEW_LINEAR } else { FEW[usize::from(along == 1)] };
        let few = m.min(n) <= most || m * n <= 256 || k <= 2;
        // SAFETY: the caller's bullet, whatever thread it is.
        unsafe {
            if few && m <= n {
                A::few_rows(((m, n, end - start), a, b, to, add));
            } else if few {
                let (a, b, to) = (b.transposed(), a.transposed(), to.transposed());
                A::few_rows(((n, m, end - start), a, b, to, add));
            } else {
                with_locals_of_others(|| A::gemm((m, n, end - start), a, b, to, add));
            }
        }
    }
}

/// Where in the output a piece belongs.
struct Place<'a> {
    out: &'a View,
    /// Which axes are rows and columns.
    axes: (usize, usize),
    batch: usize,
    rows: Range,
    columns: Range,
}

impl Place<'_> {
    /// A part of it.
    fn part(&self, rows: Range, columns: Range) -> Place<'_> {
        let within = |all: &Range, part: Range| all.start + part.start..all.start + part.end;
        Place { rows: within(&self.rows, rows), columns: within(&self.columns, columns), ..*self }
    }

    /// Lines along the piece's columns, and the offset of a row, in an operand of the output's shape.
    fn lines(&self, operand: &View) -> (Line, impl Fn(usize) -> usize) {
        let strides = *view::layout(operand).strides();
        let line = Line::over(operand, [(self.columns.len(), strides[self.axes.1])]);
        let first = self.batch * strides[0]
            + self.rows.start * strides[self.axes.0]
            + self.columns.start * strides[self.axes.1];
        let step = strides[self.axes.0];
        (line, move |row| first + row * step)
    }

    /// The piece, where it lies.
    fn matrix<A: Real>(&self) -> Matrix<A> {
        let strides = view::layout(self.out).strides();
        let (line, offset) = self.lines(self.out);
        let start = Shared::new(line.address(offset(0)));
        Matrix { start, row: strides[self.axes.0], column: strides[self.axes.1] }
    }
}

multiversion! {
/// `to = act(alpha · to + bias) + beta · addend`; an empty bias or addend is none.
fn finish_row<A: Product>(to: &mut [A], bias: &[A], addend: &[A], factors: (A, A), activation: Activation) {
    let (alpha, beta) = factors;
    if alpha != A::ONE {
        for to in to.iter_mut() {
            *to = *to * alpha;
        }
    }
    for (to, bias) in to.iter_mut().zip(bias) {
        *to += *bias;
    }
    match activation {
        Activation::None => {}
        Activation::Relu => {
            for to in to.iter_mut() {
                // NaN stays.
                *to = if *to < A::ZERO { A::ZERO } else { *to };
            }
        }
        Activation::Gelu => {
            for to in to.iter_mut() {
                *to = to.gelu();
            }
        }
    }
    for (to, addend) in to.iter_mut().zip(addend) {
        *to += *addend * beta;
    }
}
}

/// Applies what follows to products at `from`, and stores them unless they stand in the output already.
///
/// # Safety
/// - As of [`product`]; bias and addend are in live memory that nobody else writes.
unsafe fn finish<A: Product>(place: &Place, from: Matrix<A>, after: &After<A>, stored: bool) {
    let count = place.columns.len();
    if count > SIDE_MAX {
        for (rows, columns) in blocks_of((place.rows.len(), count, 0), place.rows.len(), SIDE_MAX) {
            let from = from.from(0, columns.start);
            // SAFETY: the caller's bullets.
            unsafe { finish(&place.part(rows, columns), from, after, stored) };
        }
        return;
    }
    let out = place.lines(place.out);
    let bias = after.bias.map(|operand| place.lines(operand));
    let addend = after.addend.map(|operand| place.lines(operand));
    scratch::<A, _>(3 * count, |memory| {
        let (own_bias, rest) = memory.split_at_mut(count);
        let (own_addend, own_row) = rest.split_at_mut(count);
        for row in 0..place.rows.len() {
            // SAFETY: the caller's bullets.
            unsafe {
                let bias = bias.as_ref().map_or(&[][..], |(line, offset)| line.read(offset(row), own_bias));
                let addend = addend.as_ref().map_or(&[][..], |(line, offset)| {
                    // Copied in any case: it may be the output itself.
                    line.load(offset(row), 0..count, own_addend);
                    &*own_addend
                });
                let in_place = from.column == 1 || count == 1;
                let values = if in_place {
                    Shared::new(from.at(row, 0)).slice(0, count)
                } else {
                    (0..count).for_each(|column| own_row[column] = *from.at(row, column));
                    &mut *own_row
                };
                finish_row(values, bias, addend, (after.alpha, after.beta), after.activation);
                if !(stored && in_place) {
                    out.0.store(out.1(row), 0, values);
                }
            }
        }
    });
}
