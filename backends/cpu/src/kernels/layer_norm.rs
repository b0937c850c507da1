//! Layer normalization over the last axes, and its derivative.
//!
//! A row is read from memory once and stays in the cache for its mean, its variance (around that mean: no cancellation)
//! and the result; a very long one is read for each of these. The mean is that of the distances to the row's first element: so that of equal elements is what they are,
//! and the result 0, where the rounding of their sum could be more than eps. In the backward pass the derivatives of weight
//! and bias are summed in the same pass over the rows, in blocks of rows that depend on the shape only, so that threads don't
//! change a bit.

use super::axis::{Grid, Line, Piece, Shared, fits, for_each_line, for_each_piece};
use super::element::{Real, by_real};
use super::fold::{Cascade, Deviations, Distances, Fold, PIECE, Sum, fold_slice, halve};
use super::level::multiversion;
use super::scratch::{Need, Room, bytes_of, scratch};
use super::view;
use crate::threads::{Threads, for_each_range};
use raddle_base::Layout;
use raddle_hal::{Operand, View};
use std::ops::Range;

/// Rows that are summed one after the other before their sum is added to others.
const ROWS: usize = 32;
/// Elements of a row that are summed in lanes before the sums go to a [`Cascade`].
const PART: usize = 1024;
/// The most blocks of rows, each of which has sums of its own (a guess: enough for any number of cores).
const BLOCK_COUNT_MAX: usize = 64;
/// Longer rows are passed over piece by piece, for each step (guess: they don't stay in a cache anyway). Few in tests, so
/// that they see both ways.
const LENGTH_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 18 };

/// `Kernel::LayerNorm`; which of weight, bias and addend are there.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn layer_norm(axes: usize, eps: f64, has: [bool; 3], operands: &[Operand], threads: Threads) {
    // SAFETY: the contract of this function.
    by_real!(operands[3].view().dtype, A => unsafe { forward::<A>(axes, eps, has, operands, threads) });
}

/// `Kernel::LayerNormBackward`; which of weight and bias are there.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn layer_norm_backward(axes: usize, has: (bool, bool), operands: &[Operand], threads: Threads) {
    // SAFETY: the contract of this function.
    by_real!(operands[0].view().dtype, A => unsafe { backward::<A>(axes, has, operands, threads) });
}

multiversion! {
/// `y = (x − mean) · rstd · weight + bias`
fn normalize<A: Real>(y: &mut [A], x: &[A], weight: &[A], bias: &[A], mean: A, rstd: A) {
    for (((y, x), weight), bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
        *y = (*x - mean) * rstd * *weight + *bias;
    }
}
}

multiversion! {
/// `sum = x + addend`
fn sum_of<A: Real>(sum: &mut [A], x: &[A], addend: &[A]) {
    for ((sum, x), addend) in sum.iter_mut().zip(x).zip(addend) {
        *sum = *x + *addend;
    }
}
}

/// What all rows have in common: a weight or a bias.
struct Common<'a, A> {
    /// Where it lies; where there is none it is `filled` with what counts as none.
    line: Option<Line>,
    /// All of it, or as much as is read at once.
    own: &'a mut [A],
    is_filled: bool,
}

impl<'a, A: Real> Common<'a, A> {
    /// Of an operand of which parts of at most `own` are read.
    ///
    /// # Safety
    /// - The operand is in live memory that nobody writes while this lives.
    unsafe fn new(operand: Option<&View>, none: A, own: &'a mut [A]) -> Common<'a, A> {
        let line = operand.map(|operand| Line::new(operand, 0..view::layout(operand).rank()));
        let mut is_filled = false;
        match &line {
            None => {
                own.fill(none);
                is_filled = true;
            }
            Some(line) if !line.is_direct::<A>() && own.len() == line.count => {
                // SAFETY: the caller's bullet.
                unsafe { line.load(0, 0..line.count, own) };
                is_filled = true;
            }
            Some(_) => {}
        }
        Common { line, own, is_filled }
    }

    /// A part.
    fn read(&mut self, range: Range<usize>) -> &[A] {
        match &self.line {
            None => &self.own[..range.len()],
            // SAFETY: by the contract of `new`; it has no holes.
            Some(line) if line.is_direct::<A>() => unsafe { line.slice(0, range) },
            Some(_) if self.is_filled => &self.own[range],
            Some(line) => {
                let own = &mut self.own[..range.len()];
                // SAFETY: as above.
                unsafe { line.load(0, range, own) };
                own
            }
        }
    }
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn forward<A: Real>(axes: usize, eps: f64, has: [bool; 3], operands: &[Operand], threads: Threads)
where
    Distances: Fold<A>,
    Deviations: Fold<A>,
{
    let [y, mean, rstd, x] = std::array::from_fn(|index| operands[index].view());
    let mut others = operands[4..].iter();
    let [weight, bias, addend] =
        has.map(|has| if has { others.next().map(|operand| operand.view()) } else { None });
    let layouts: [&Layout; 4] = [x, y, mean, rstd].map(view::layout);
    let rank = layouts[0].rank();
    let grid = Grid::of(layouts, 0..rank - axes);
    let [from, to] = [x, y].map(|operand| Line::new(operand, rank - axes..rank));
    let addend = addend.map(|addend| {
        let layouts: [&Layout; 5] = [x, addend, y, mean, rstd].map(view::layout);
        (Line::new(addend, rank - axes..rank), Grid::of(layouts, 0..rank - axes))
    });
    let is_whole = from.count <= LENGTH_MAX
        && match &addend {
            None => fits::<A>(&[&from, &to]),
            Some((addend, _)) => fits::<A>(&[&from, addend, &to]),
        };
    let length = if is_whole { from.count } else { PIECE };
    let count = A::from_f64(from.count as f64);
    let rstd_of = |deviations: A| A::ONE / (deviations / count + A::from_f64(eps)).sqrt();
    // SAFETY: each row has its own mean and rstd, of the type that is computed in.
    let put = |mean_offset: usize, rstd_offset: usize, average: A, factor: A| unsafe {
        *view::start::<A>(mean).wrapping_add(mean_offset) = average;
        *view::start::<A>(rstd).wrapping_add(rstd_offset) = factor;
    };
    for_each_range(threads, grid.count(), from.count.saturating_mul(2), |positions| {
        scratch::<A, _>(3 * length, |memory| {
            let (own_weight, rest) = memory.split_at_mut(length);
            let (own_bias, sum) = rest.split_at_mut(length);
            // SAFETY: the contract of this function.
            let (mut weight, mut bias) = unsafe {
                (Common::new(weight, A::ONE, own_weight), Common::new(bias, A::NEGATIVE_ZERO, own_bias))
            };
            if !is_whole {
                let mut parts =
                    |row: &mut Row<A>, piece: (usize, usize), x: &[A], addend: &[A], y: &mut [A]| {
                        let (pass, first) = piece;
                        for at in (0..x.len()).step_by(PIECE) {
                            let of = at..x.len().min(at + PIECE);
                            let mut x = &x[of.clone()];
                            if !addend.is_empty() {
                                let sum = &mut sum[..of.len()];
                                sum_of(sum, x, &addend[of.clone()]);
                                x = sum;
                            }
                            match pass {
                                0 => {
                                    if first + at == 0 {
                                        row.first = x[0];
                                    }
                                    row.folds.push::<Distances>(fold_slice::<A, Distances>(x, row.first));
                                }
                                1 => {
                                    row.folds.push::<Deviations>(fold_slice::<A, Deviations>(x, row.average))
                                }
                                _ => {
                                    let of_all = first + of.start..first + of.end;
                                    let (weight, bias) = (weight.read(of_all.clone()), bias.read(of_all));
                                    normalize(&mut y[of], x, weight, bias, row.average, row.factor);
                                }
                            }
                        }
                    };
                let end = |row: &mut Row<A>, pass: usize| {
                    if pass == 0 {
                        row.average = row.first + row.folds.finish::<Distances>() / count;
                        row.folds = Cascade::new::<Deviations>();
                    } else if pass == 1 {
                        row.factor = rstd_of(row.folds.finish::<Deviations>());
                    }
                };
                // SAFETY: the contract of this function; the grid's first operands are inputs and output.
                return unsafe {
                    match &addend {
                        None => {
                            let body =
                                |row: &mut Row<A>, piece: Piece<4>, [x]: [&[A]; 1], [y]: [&mut [A]; 1]| {
                                    parts(row, (piece.pass, piece.first), x, &[], y);
                                    if piece.is_last {
                                        end(row, piece.pass);
                                        let [_, _, mean, rstd] = piece.offsets;
                                        put(mean, rstd, row.average, row.factor);
                                    }
                                };
                            for_each_piece(&grid, positions, [&from], [&to], 3, Row::new, body);
                        }
                        Some((addend, grid)) => {
                            let body = |row: &mut Row<A>,
                                        piece: Piece<5>,
                                        [x, addend]: [&[A]; 2],
                                        [y]: [&mut [A]; 1]| {
                                parts(row, (piece.pass, piece.first), x, addend, y);
                                if piece.is_last {
                                    end(row, piece.pass);
                                    let [.., mean, rstd] = piece.offsets;
                                    put(mean, rstd, row.average, row.factor);
                                }
                            };
                            for_each_piece(grid, positions, [&from, addend], [&to], 3, Row::new, body);
                        }
                    }
                };
            }
            let (weight, bias) = (weight.read(0..length), bias.read(0..length));
            let row = |x: &[A], to: &mut [A], mean_offset: usize, rstd_offset: usize| {
                let average = x[0] + fold_slice::<A, Distances>(x, x[0]) / count;
                let factor = rstd_of(fold_slice::<A, Deviations>(x, average));
                normalize(to, x, weight, bias, average, factor);
                put(mean_offset, rstd_offset, average, factor);
            };
            match &addend {
                None => {
                    let body = |&[_, _, mean, rstd]: &[usize; 4], [x]: [&[A]; 1], [to]: [&mut [A]; 1]| {
                        row(x, to, mean, rstd)
                    };
                    // SAFETY: the contract of this function; the grid's first operands are input and output.
                    unsafe { for_each_line(&grid, positions, [&from], [&to], body) };
                }
                Some((addend, grid)) => {
                    let body =
                        |&[.., mean, rstd]: &[usize; 5], [x, addend]: [&[A]; 2], [to]: [&mut [A]; 1]| {
                            sum_of(sum, x, addend);
                            row(sum, to, mean, rstd)
                        };
                    // SAFETY: as above; the grid's first operands are the inputs and the output.
                    unsafe { for_each_line(grid, positions, [&from, addend], [&to], body) };
                }
            }
        });
    });
}

/// What is known of a row that is passed over piece by piece.
struct Row<A> {
    first: A,
    folds: Cascade<A>,
    average: A,
    factor: A,
}

impl<A: Real> Row<A>
where
    Distances: Fold<A>,
{
    fn new() -> Row<A> {
        Row { first: A::ZERO, folds: Cascade::new::<Distances>(), average: A::ZERO, factor: A::ZERO }
    }
}

/// A row, or a part of one; all slices are of one length.
struct Part<'a, A> {
    dy: &'a [A],
    x: &'a [A],
    weight: &'a [A],
    mean: A,
    rstd: A,
}

/// Independent sums in a part of a row.
const SUMS: usize = 16;

multiversion! {
/// Adds `dy · x̂` to `dweight`, `dy` to `dbias`, and g = dy · weight and g·x̂ to the sums; as many elements as are whole
/// vectors of sums. (Sums are copied for each step: so the compiler keeps them in registers.)
fn add_vectors<A: Real>(part: &Part<A>, dweight: &mut [A], dbias: &mut [A], sums: &mut [[A; SUMS]; 2]) {
    let Part { mean, rstd, .. } = *part;
    let [dy, x, weight] = [part.dy, part.x, part.weight].map(|slice| slice.as_chunks::<SUMS>().0);
    let [dweight, dbias] = [dweight, dbias].map(|slice| slice.as_chunks_mut::<SUMS>().0);
    let [mut plain, mut shaped]: [[A; SUMS]; 2] = *sums;
    for ((((dy, x), weight), dweight), dbias) in dy.iter().zip(x).zip(weight).zip(dweight).zip(dbias) {
        let (mut next_plain, mut next_shaped) = (plain, shaped);
        for i in 0..SUMS {
            let (dy, x, weight): (A, A, A) = (dy[i], x[i], weight[i]);
            let shape = (x - mean) * rstd;
            dweight[i] += dy * shape;
            dbias[i] += dy;
            next_plain[i] += dy * weight;
            next_shaped[i] += dy * weight * shape;
        }
        (plain, shaped) = (next_plain, next_shaped);
    }
    *sums = [plain, shaped];
}
}

multiversion! {
/// `dx = (g − a − x̂ · b) · rstd`
fn pull_back<A: Real>(dx: &mut [A], row: &Part<A>, a: A, b: A) {
    let Part { mean, rstd, .. } = *row;
    for (((dx, dy), x), weight) in dx.iter_mut().zip(row.dy).zip(row.x).zip(row.weight) {
        *dx = (*dy * *weight - a - (*x - mean) * rstd * b) * rstd;
    }
}
}

multiversion! {
/// `to = to + from`
fn add<A: Real>(to: &mut [A], from: &[A]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += *from;
    }
}
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn backward<A: Real>(
    axes: usize,
    (has_weight, has_bias): (bool, bool),
    operands: &[Operand],
    threads: Threads,
) where
    Sum: Fold<A>,
{
    let (outputs, inputs) = operands.split_at(1 + usize::from(has_weight) + usize::from(has_bias));
    let inputs = &inputs[..4 + usize::from(has_weight)];
    let [dy, x, mean, rstd] = std::array::from_fn(|index| inputs[index].view());
    let dx = outputs[0].view();
    let weight = has_weight.then(|| inputs[4].view());
    let layouts: [&Layout; 5] = [dy, x, dx, mean, rstd].map(view::layout);
    let rank = layouts[0].rank();
    let grid = Grid::of(layouts, 0..rank - axes);
    let [dy, x, dx] = [dy, x, dx].map(|operand| Line::new(operand, rank - axes..rank));
    let (rows, length) = (grid.count(), x.count);
    let count = A::from_f64(length as f64);
    let sums = Sums::new(rows, length);
    let (block_rows, blocks) = (sums.block_rows, sums.blocks);
    let is_whole = length <= LENGTH_MAX && fits::<A>(&[&dy, &x, &dx]);
    let room = Room::new(sums.need::<A>(), operands.get(outputs.len() + inputs.len()));
    room.with(|mut memory| {
        let partials = memory.take::<A>(blocks * sums.each);
        let shared = Shared::new(partials.as_mut_ptr());
        for_each_range(threads, blocks, block_rows.saturating_mul(length).saturating_mul(2), |range| {
            let own = if is_whole { length } else { PIECE };
            scratch::<A, _>(own, |own_weight| {
                // SAFETY: the contract of this function.
                let mut weight = unsafe { Common::new(weight, A::ONE, own_weight) };
                for block in range {
                    // SAFETY: each block has its own sums.
                    let memory = unsafe { shared.slice(block * sums.each, sums.each) };
                    let (sums, recent) = memory.split_at_mut(2 * length);
                    sums.fill(A::ZERO);
                    for first in (block * block_rows..rows.min((block + 1) * block_rows)).step_by(ROWS) {
                        // The sums themselves, if there are no others.
                        let to = if recent.is_empty() { &mut *sums } else { &mut *recent };
                        to.fill(A::ZERO);
                        let (dweight, dbias) = to.split_at_mut(length);
                        let end = (first + ROWS).min(rows).min((block + 1) * block_rows);
                        // SAFETY: the row's mean and rstd, of the type that is computed in.
                        let of_row = |offsets: &[usize; 5]| unsafe {
                            (
                                *view::start::<A>(mean).wrapping_add(offsets[3]),
                                *view::start::<A>(rstd).wrapping_add(offsets[4]),
                            )
                        };
                        let start = || (Cascade::new::<Sum>(), Cascade::new::<Sum>());
                        let mut sum_up = |totals: &mut _, row: &Part<A>, at: usize| {
                            let of = at..at + row.x.len();
                            row_sums(totals, row, &mut dweight[of.clone()], &mut dbias[of]);
                        };
                        // SAFETY: the contract of this function; the grid's operands are in this order.
                        unsafe {
                            if is_whole {
                                let weight = weight.read(0..length);
                                let body = |offsets: &[usize; 5], [dy, x]: [&[A]; 2], [dx]: [&mut [A]; 1]| {
                                    let (mean, rstd) = of_row(offsets);
                                    let row = Part { dy, x, weight, mean, rstd };
                                    let mut totals = start();
                                    sum_up(&mut totals, &row, 0);
                                    let (a, b) = (totals.0.finish::<Sum>(), totals.1.finish::<Sum>());
                                    pull_back(dx, &row, a / count, b / count);
                                };
                                for_each_line(&grid, first..end, [&dy, &x], [&dx], body);
                            } else {
                                let body = |totals: &mut (Cascade<A>, Cascade<A>),
                                            piece: Piece<5>,
                                            [dy, x]: [&[A]; 2],
                                            [dx]: [&mut [A]; 1]| {
                                    let (mean, rstd) = of_row(&piece.offsets);
                                    let (a, b) = (totals.0.finish::<Sum>(), totals.1.finish::<Sum>());
                                    for at in (0..x.len()).step_by(PIECE) {
                                        let of = at..x.len().min(at + PIECE);
                                        let weight =
                                            weight.read(piece.first + of.start..piece.first + of.end);
                                        let (dy, x) = (&dy[of.clone()], &x[of.clone()]);
                                        let row = Part { dy, x, weight, mean, rstd };
                                        match piece.pass {
                                            0 => sum_up(totals, &row, piece.first + at),
                                            _ => pull_back(&mut dx[of], &row, a / count, b / count),
                                        }
                                    }
                                };
                                for_each_piece(&grid, first..end, [&dy, &x], [&dx], 2, start, body);
                            }
                        }
                        if !recent.is_empty() {
                            add(sums, recent);
                        }
                    }
                }
            });
        });
        if blocks > 0 {
            let (first, others) = partials.split_at_mut(sums.each);
            others
                .chunks(sums.each.max(1))
                .for_each(|other| add(&mut first[..2 * length], &other[..2 * length]));
        }
        let zeros = [A::ZERO; PART];
        let wanted = [has_weight.then_some(0), has_bias.then_some(length)].into_iter().flatten();
        for (operand, place) in outputs[1..].iter().zip(wanted) {
            let operand = operand.view();
            let line = Line::new(operand, 0..view::layout(operand).rank());
            for first in (0..length).step_by(PART) {
                let count = PART.min(length - first);
                let sums = if blocks == 0 { &zeros[..count] } else { &partials[place + first..][..count] };
                // SAFETY: the contract of this function.
                unsafe { line.store(0, first, sums) };
            }
        }
    });
}

/// How the derivatives of weight and bias are summed.
struct Sums {
    block_rows: usize,
    blocks: usize,
    /// Elements of scratch for a block: its two sums, and those of its latest [`ROWS`] if it has more rows.
    each: usize,
}

impl Sums {
    fn new(rows: usize, length: usize) -> Sums {
        let block_rows = rows.div_ceil(BLOCK_COUNT_MAX).max(ROWS);
        let each = if block_rows > ROWS { 4 * length } else { 2 * length };
        Sums { block_rows, blocks: rows.div_ceil(block_rows), each }
    }

    fn need<A: Real>(&self) -> Need {
        Need::one(bytes_of::<A>(self.blocks * self.each))
    }
}

/// The scratch of `Kernel::LayerNormBackward`.
pub fn backward_need(axes: usize, dx: &View) -> Need {
    let (kept, normalized) = view::layout(dx).shape().split_at(view::layout(dx).rank() - axes);
    let sums = Sums::new(kept.iter().product(), normalized.iter().product());
    by_real!(dx.dtype, A => sums.need::<A>())
}

/// Adds a row, or a part that begins at a multiple of [`PART`], to `dweight` and `dbias`, and g and g·x̂ to the totals.
fn row_sums<A: Real>(totals: &mut (Cascade<A>, Cascade<A>), row: &Part<A>, dweight: &mut [A], dbias: &mut [A])
where
    Sum: Fold<A>,
{
    let Part { mean, rstd, .. } = *row;
    for first in (0..row.x.len()).step_by(PART) {
        let of = first..row.x.len().min(first + PART);
        let (dy, x, weight) = (&row.dy[of.clone()], &row.x[of.clone()], &row.weight[of.clone()]);
        let part = Part { dy, x, weight, mean, rstd };
        let (dweight, dbias) = (&mut dweight[of.clone()], &mut dbias[of]);
        let mut sums = [[A::ZERO; SUMS]; 2];
        add_vectors(&part, dweight, dbias, &mut sums);
        let whole = x.len() / SUMS * SUMS;
        for i in whole..x.len() {
            let shape = (x[i] - mean) * rstd;
            dweight[i] += dy[i] * shape;
            dbias[i] += dy[i];
            sums[0][i - whole] += dy[i] * weight[i];
            sums[1][i - whole] += dy[i] * weight[i] * shape;
        }
        let [mut plain, mut shaped] = sums;
        totals.0.push::<Sum>(halve(&mut plain, Sum::combine));
        totals.1.push::<Sum>(halve(&mut shaped, Sum::combine));
    }
}
