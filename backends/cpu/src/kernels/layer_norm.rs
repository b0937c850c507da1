//! Layer normalisation over the last axes, and its derivative.
//!
//! A row is read from memory once and stays in the cache for its mean, its variance (around that mean: no cancellation)
//! and the result. The mean is that of the distances to the row's first element: so that of equal elements is what they are,
//! and the result 0, where the rounding of their sum could be more than eps. In the backward pass the derivatives of weight
//! and bias are summed in the same pass over the rows, in blocks of rows that depend on the shape only, so that threads don't
//! change a bit.

use super::axis::{Grid, Line, Shared, for_each_line, for_each_range, multiversion, scratch};
use super::element::{Real, by_real};
use super::fold::{Cascade, Deviations, Distances, Fold, Sum, fold_slice, halve};
use super::view;
use crate::threads::Threads;
use raddle_base::Layout;
use raddle_hal::{Kernel, KernelError, Operand, View};

/// Rows that are summed one after the other before their sum is added to others.
const ROWS: usize = 32;
/// Elements of a row that are summed in lanes before the sums go to a [`Cascade`].
const PART: usize = 1024;
/// The most blocks of rows, each of which has sums of its own (a guess: enough for any number of cores).
const BLOCK_COUNT_MAX: usize = 64;

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match *kernel {
            Kernel::LayerNorm { axes, eps, weight, bias, addend } => {
                by_real!(operands[3].view().dtype, A => {
                    forward::<A>(axes, eps, [weight, bias, addend], operands, threads)
                });
            }
            Kernel::LayerNormBackward { axes, weight, bias } => {
                let outputs = 1 + usize::from(weight) + usize::from(bias);
                let (outputs, inputs) = operands.split_at(outputs);
                by_real!(inputs[1].view().dtype, A => backward::<A>(axes, (weight, bias), outputs, inputs, threads));
            }
            _ => unreachable!("cpu: {} is no layer norm", kernel.name()),
        }
    }
    Ok(())
}

multiversion! {
/// `y = (x − mean) · rstd · weight + bias`
fn normalise<A: Real>(y: &mut [A], x: &[A], weight: &[A], bias: &[A], mean: A, rstd: A) {
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

/// All elements of an operand: where they lie, or copied to `own`, which has what counts if there is no such operand.
///
/// # Safety
/// - The operand is in live memory that nobody writes while the slice lives.
unsafe fn read_all<'a, A: Real>(operand: Option<&View>, own: &'a mut [A]) -> &'a [A] {
    let Some(operand) = operand else { return own };
    // SAFETY: the caller's bullet.
    unsafe { Line::new(operand, 0..view::layout(operand).rank()).read(0, own) }
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
    let count = A::from_f64(from.count as f64);
    for_each_range(threads, grid.count(), from.count.saturating_mul(2), |positions| {
        scratch::<A, _>(3 * from.count, |memory| {
            let (own_weight, rest) = memory.split_at_mut(from.count);
            let (own_bias, sum) = rest.split_at_mut(from.count);
            own_weight.fill(A::ONE);
            own_bias.fill(A::NEGATIVE_ZERO);
            // SAFETY: the contract of this function.
            let (weight, bias) = unsafe { (read_all(weight, own_weight), read_all(bias, own_bias)) };
            let row = |x: &[A], to: &mut [A], mean_offset: usize, rstd_offset: usize| {
                let average = x[0] + fold_slice::<A, Distances>(x, x[0]) / count;
                let variance = fold_slice::<A, Deviations>(x, average) / count;
                let factor = A::ONE / (variance + A::from_f64(eps)).sqrt();
                normalise(to, x, weight, bias, average, factor);
                // SAFETY: each row has its own mean and rstd, of the type that is computed in.
                unsafe {
                    *view::start::<A>(mean).wrapping_add(mean_offset) = average;
                    *view::start::<A>(rstd).wrapping_add(rstd_offset) = factor;
                }
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
    outputs: &[Operand],
    inputs: &[Operand],
    threads: Threads,
) where
    Sum: Fold<A>,
{
    let [dy, x, mean, rstd] = std::array::from_fn(|index| inputs[index].view());
    let dx = outputs[0].view();
    let weight = has_weight.then(|| inputs[4].view());
    let layouts: [&Layout; 5] = [dy, x, dx, mean, rstd].map(view::layout);
    let rank = layouts[0].rank();
    let grid = Grid::of(layouts, 0..rank - axes);
    let [dy, x, dx] = [dy, x, dx].map(|operand| Line::new(operand, rank - axes..rank));
    let (rows, length) = (grid.count(), x.count);
    let count = A::from_f64(length as f64);
    let block_rows = rows.div_ceil(BLOCK_COUNT_MAX).max(ROWS);
    let blocks = rows.div_ceil(block_rows);
    scratch::<A, _>(blocks * 2 * length, |partials| {
        let shared = Shared::new(partials.as_mut_ptr());
        for_each_range(threads, blocks, block_rows.saturating_mul(length).saturating_mul(2), |range| {
            scratch::<A, _>(3 * length, |memory| {
                let (own_weight, recent) = memory.split_at_mut(length);
                own_weight.fill(A::ONE);
                // SAFETY: the contract of this function.
                let weight = unsafe { read_all(weight, own_weight) };
                for block in range {
                    // SAFETY: each block has its own sums.
                    let sums = unsafe { shared.slice(block * 2 * length, 2 * length) };
                    sums.fill(A::ZERO);
                    for first in (block * block_rows..rows.min((block + 1) * block_rows)).step_by(ROWS) {
                        recent.fill(A::ZERO);
                        let (dweight, dbias) = recent.split_at_mut(length);
                        let end = (first + ROWS).min(rows).min((block + 1) * block_rows);
                        let body = |offsets: &[usize; 5], [dy, x]: [&[A]; 2], [dx]: [&mut [A]; 1]| {
                            // SAFETY: the row's mean and rstd, of the type that is computed in.
                            let (mean, rstd) = unsafe {
                                (
                                    *view::start::<A>(mean).wrapping_add(offsets[3]),
                                    *view::start::<A>(rstd).wrapping_add(offsets[4]),
                                )
                            };
                            let row = Part { dy, x, weight, mean, rstd };
                            let (a, b) = row_sums(&row, dweight, dbias);
                            pull_back(dx, &row, a / count, b / count);
                        };
                        // SAFETY: the contract of this function; the grid's operands are in this order.
                        unsafe { for_each_line(&grid, first..end, [&dy, &x], [&dx], body) };
                        add(sums, recent);
                    }
                }
            });
        });
        let (sums, others) = partials.split_at_mut((2 * length).min(partials.len()));
        others.chunks(2 * length.max(1)).for_each(|other| add(sums, other));
        scratch::<A, _>(length, |zeros| {
            zeros.fill(A::ZERO);
            let (dweight, dbias) = if blocks == 0 { (&*zeros, &*zeros) } else { sums.split_at(length) };
            let wanted = [has_weight.then_some(dweight), has_bias.then_some(dbias)].into_iter().flatten();
            for (operand, sums) in outputs[1..].iter().zip(wanted) {
                let operand = operand.view();
                let line = Line::new(operand, 0..view::layout(operand).rank());
                if length > 0 {
                    // SAFETY: the contract of this function.
                    unsafe { line.store(0, sums) };
                }
            }
        });
    });
}

/// Adds a row to `dweight` and `dbias`, and returns Σ g and Σ g·x̂.
fn row_sums<A: Real>(row: &Part<A>, dweight: &mut [A], dbias: &mut [A]) -> (A, A)
where
    Sum: Fold<A>,
{
    let mut totals = (Cascade::new::<Sum>(), Cascade::new::<Sum>());
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
    (totals.0.finish::<Sum>(), totals.1.finish::<Sum>())
}
