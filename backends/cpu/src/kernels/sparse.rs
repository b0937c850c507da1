//! The product of a matrix and sparse rows of few entries, and its derivative.
//!
//! `out[b, :] = Σ_j values[b, j] · weight[:, index[b, j]]`: the sum of a few columns of the weight. Where columns have
//! holes the weight is transposed into scratch once a launch. Sums run in the order
//! of `j`, and of `b` in the derivative of the weight, so they have one order whatever the layout and the threads (T8).

use super::axis::{Line, Shared, for_each_range, multiversion, scratch, transpose};
use super::element::{Real, by_real};
use super::fold::{LANES, halve};
use super::{index, view};
use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand, View};
use std::ops::Range;

/// Rows of the weight that are transposed together.
const ROWS: usize = 64;
/// Columns of its derivative that are made together: what is written is whole cache lines.
const COLUMNS: usize = 128;

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    let view = |index: usize| operands[index].view();
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match *kernel {
            Kernel::SparseMatMul { bias } => {
                let (out, values, indices, weight) = (view(0), view(1), view(2), view(3));
                index::check(indices, view::layout(weight).shape()[1], 1, threads)?;
                let bias = bias.then(|| view(4));
                by_real!(weight.dtype, A => product::<A>(out, values, indices, weight, bias, threads));
            }
            Kernel::SparseMatMulByValues => {
                let [dvalues, dy, indices, weight] = std::array::from_fn(view);
                index::check(indices, view::layout(weight).shape()[1], 1, threads)?;
                by_real!(weight.dtype, A => value_gradient::<A>(dvalues, dy, indices, weight, threads));
            }
            Kernel::SparseMatMulByWeight => {
                let [dweight, dy, values, indices] = std::array::from_fn(view);
                index::check(indices, view::layout(dweight).shape()[1], 1, threads)?;
                by_real!(dweight.dtype, A => weight_gradient::<A>(dweight, dy, values, indices, threads));
            }
            _ => unreachable!("cpu: {} is no sparse product", kernel.name()),
        }
    }
    Ok(())
}

/// Columns of the weight, each without holes: where they lie, or transposed into scratch.
struct Columns<A> {
    start: Shared<A>,
    pitch: usize,
}

impl<A: Real> Columns<A> {
    /// Part of a column.
    ///
    /// # Safety
    /// - The part is inside the weight, and nobody writes it while the slice lives.
    unsafe fn part<'a>(&self, column: i64, rows: Range<usize>) -> &'a [A] {
        // SAFETY: the caller's bullet.
        unsafe { self.start.slice(column as usize * self.pitch + rows.start, rows.len()) }
    }
}

/// Calls `body` with the columns of a weight.
///
/// # Safety
/// - The weight is in live memory that nobody writes meanwhile.
unsafe fn with_columns<A: Real>(weight: &View, threads: Threads, body: impl FnOnce(Columns<A>)) {
    let layout = view::layout(weight);
    let (row_count, column_count) = (layout.shape()[0], layout.shape()[1]);
    let column = Line::new(weight, [0]);
    if column.is_direct::<A>() {
        let start = Shared::new(view::start(weight));
        return body(Columns { start, pitch: layout.strides()[1] });
    }
    scratch::<A, _>(row_count * column_count, |memory| {
        let columns = Columns { start: Shared::new(memory.as_mut_ptr()), pitch: row_count };
        for_each_range(threads, row_count.div_ceil(ROWS), ROWS * column_count, |blocks| {
            let rows = blocks.start * ROWS..row_count.min(blocks.end * ROWS);
            // SAFETY: each part has rows of its own.
            unsafe { transpose_rows(weight, rows, columns.start, row_count) };
        });
        body(columns);
    });
}

/// Copies rows of a matrix to the same places of a transposed one.
///
/// # Safety
/// - Both are in live memory, nobody writes what is read, and nobody else uses what is written.
unsafe fn transpose_rows<A: Real>(matrix: &View, rows: Range<usize>, to: Shared<A>, pitch: usize) {
    let stride = view::layout(matrix).strides()[0];
    let row = Line::new(matrix, [1]);
    let count = row.count;
    if row.is_direct::<A>() {
        let from = row.address::<A>(rows.start * stride);
        // SAFETY: the caller's bullets.
        return unsafe { transpose(from, stride, to.at(rows.start), pitch, rows.len(), count) };
    }
    scratch::<A, _>(rows.len() * count, |staged| {
        for (line, staged) in staged.chunks_mut(count.max(1)).enumerate() {
            // SAFETY: the caller's bullets.
            unsafe { row.load((rows.start + line) * stride, 0..count, staged) };
        }
        // SAFETY: the caller's bullets.
        unsafe { transpose(staged.as_ptr(), count, to.at(rows.start), pitch, rows.len(), count) };
    });
}

multiversion! {
/// `to = Σ_j factors[j] · rows[j]`, in the order of `j`.
fn sum_rows<A: Real>(to: &mut [A], rows: &[&[A]], factors: &[A]) {
    const WIDTH: usize = 64;
    let mut first = 0;
    while first + WIDTH <= to.len() {
        let mut sums = [A::ZERO; WIDTH];
        for (row, &factor) in rows.iter().zip(factors) {
            let row: &[A; WIDTH] = row[first..first + WIDTH].try_into().expect("that many are left");
            for lane in 0..WIDTH {
                sums[lane] = row[lane].mul_add(factor, sums[lane]);
            }
        }
        to[first..first + WIDTH].copy_from_slice(&sums);
        first += WIDTH;
    }
    for i in first..to.len() {
        let mut sum = A::ZERO;
        for (row, &factor) in rows.iter().zip(factors) {
            sum = row[i].mul_add(factor, sum);
        }
        to[i] = sum;
    }
}
}

multiversion! {
/// `to += from`
fn add<A: Real>(to: &mut [A], from: &[A]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += *from;
    }
}
}

multiversion! {
/// Adds products to lanes. (They are copied for each step: so the compiler keeps them in registers.)
fn add_products<A: Real>(lanes: &mut [A; LANES], a: &[[A; LANES]], b: &[[A; LANES]]) {
    let mut sums = *lanes;
    for (a, b) in a.iter().zip(b) {
        let mut next = sums;
        for ((sum, a), b) in next.iter_mut().zip(a).zip(b) {
            *sum = a.mul_add(*b, *sum);
        }
        sums = next;
    }
    *lanes = sums;
}
}

/// Σ a·b: element `i` goes to lane `i % LANES`, in order.
fn dot<A: Real>(a: &[A], b: &[A]) -> A {
    let mut lanes = [A::ZERO; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks(), b.as_chunks());
    add_products(&mut lanes, a, b);
    for ((lane, a), b) in lanes.iter_mut().zip(a_tail).zip(b_tail) {
        *lane += *a * *b;
    }
    halve(&mut lanes, |a, b| a + b)
}

/// # Safety
/// - As of [`super::execute`]; the indices are in range.
unsafe fn product<A: Real>(
    out: &View,
    values: &View,
    indices: &View,
    weight: &View,
    bias: Option<&View>,
    threads: Threads,
) {
    let [out_layout, value_layout, index_layout] = [out, values, indices].map(view::layout);
    let batch = out_layout.shape()[0];
    let [to, factors, chosen] = [out, values, indices].map(|operand| Line::new(operand, [1]));
    let bias = bias.map(|bias| (view::layout(bias).strides()[0], Line::new(bias, [1])));
    let (n, k) = (to.count, factors.count);
    if n == 0 {
        return;
    }
    let rows = |columns: Columns<A>| {
        for_each_range(threads, batch, n.saturating_mul(k.max(1)), |range| {
            scratch::<A, _>(2 * n + k, |memory| {
                scratch::<i64, _>(k, |own_indices| {
                    let (sums, rest) = memory.split_at_mut(n);
                    let (own_bias, own_factors) = rest.split_at_mut(n);
                    let mut picked: Vec<&[A]> = Vec::with_capacity(k);
                    for b in range {
                        // SAFETY: the contract of this function; each row of the output is this part's own.
                        unsafe {
                            let factors = factors.read(b * value_layout.strides()[0], own_factors);
                            let chosen = chosen.read(b * index_layout.strides()[0], own_indices);
                            picked.clear();
                            picked.extend(chosen.iter().map(|&index| columns.part(index, 0..n)));
                            sum_rows(sums, &picked, factors);
                            if let Some((stride, bias)) = &bias {
                                add(sums, bias.read(b * stride, own_bias));
                            }
                            to.store(b * out_layout.strides()[0], sums);
                        }
                    }
                })
            });
        });
    };
    // SAFETY: the contract of this function.
    unsafe { with_columns(weight, threads, rows) };
}

/// `dvalues[b, j] = dy[b, :] · weight[:, index[b, j]]`
///
/// # Safety
/// - As of [`super::execute`]; the indices are in range.
unsafe fn value_gradient<A: Real>(
    dvalues: &View,
    dy: &View,
    indices: &View,
    weight: &View,
    threads: Threads,
) {
    let [to_layout, dy_layout, index_layout] = [dvalues, dy, indices].map(view::layout);
    let batch = to_layout.shape()[0];
    let [to, dy, chosen] = [dvalues, dy, indices].map(|operand| Line::new(operand, [1]));
    let (n, k) = (dy.count, to.count);
    if k == 0 {
        return;
    }
    let rows = |columns: Columns<A>| {
        for_each_range(threads, batch, n.saturating_mul(k), |range| {
            scratch::<A, _>(n + k, |memory| {
                scratch::<i64, _>(k, |own_indices| {
                    let (own_dy, results) = memory.split_at_mut(n);
                    for b in range {
                        // SAFETY: the contract of this function; each row of the output is this part's own.
                        unsafe {
                            let dy = dy.read(b * dy_layout.strides()[0], own_dy);
                            let chosen = chosen.read(b * index_layout.strides()[0], own_indices);
                            for (result, &index) in results.iter_mut().zip(chosen) {
                                *result = dot(dy, if n == 0 { &[] } else { columns.part(index, 0..n) });
                            }
                            to.store(b * to_layout.strides()[0], results);
                        }
                    }
                })
            });
        });
    };
    // SAFETY: the contract of this function.
    unsafe { with_columns(weight, threads, rows) };
}

/// `dweight[:, index[b, j]] += values[b, j] · dy[b, :]`: for each column the sum of what names it, in the order of `b` and
/// `j`, and then that is added.
///
/// # Safety
/// - As of [`super::execute`]; the indices are in range.
unsafe fn weight_gradient<A: Real>(
    dweight: &View,
    dy: &View,
    values: &View,
    indices: &View,
    threads: Threads,
) {
    let [to_layout, dy_layout, value_layout, index_layout] = [dweight, dy, values, indices].map(view::layout);
    let (batch, n, h) = (dy_layout.shape()[0], to_layout.shape()[0], to_layout.shape()[1]);
    let [dy, factors, chosen] = [dy, values, indices].map(|operand| Line::new(operand, [1]));
    let column = Line::new(dweight, [0]);
    let k = factors.count;
    let entries = batch * k;
    if entries == 0 || n == 0 {
        return;
    }
    // Entries sorted by column: `ends[c]` is where those of column `c` end, `sorted` has their numbers `b · k + j`.
    scratch::<i64, _>(h + 2 * entries, |memory| {
        let (ends, rest) = memory.split_at_mut(h);
        let (columns, sorted) = rest.split_at_mut(entries);
        scratch::<A, _>(entries + batch * n, |memory| {
            let (own_factors, own_dy) = memory.split_at_mut(entries);
            let mut rows: Vec<&[A]> = Vec::with_capacity(batch);
            // SAFETY: the contract of this function.
            unsafe {
                for (b, own_dy) in own_dy.chunks_mut(n).enumerate() {
                    factors.load(b * value_layout.strides()[0], 0..k, &mut own_factors[b * k..][..k]);
                    chosen.load(b * index_layout.strides()[0], 0..k, &mut columns[b * k..][..k]);
                    rows.push(dy.read(b * dy_layout.strides()[0], own_dy));
                }
            }
            sort_by_column(columns, ends, sorted);
            let (ends, sorted, factors) = (&*ends, &*sorted, &*own_factors);
            let cost = COLUMNS * n * entries.div_ceil(h).max(1);
            for_each_range(threads, h.div_ceil(COLUMNS), cost, |range| {
                scratch::<A, _>(2 * COLUMNS * n + COLUMNS, |memory| {
                    let (sums, rest) = memory.split_at_mut(COLUMNS * n);
                    let (turned, own_row) = rest.split_at_mut(COLUMNS * n);
                    let mut picked: Vec<&[A]> = Vec::new();
                    let mut weights: Vec<A> = Vec::new();
                    for block in range {
                        let columns = block * COLUMNS..h.min((block + 1) * COLUMNS);
                        for (column, sums) in columns.clone().zip(sums.chunks_mut(n)) {
                            let start = if column == 0 { 0 } else { ends[column - 1] };
                            let named = &sorted[start as usize..ends[column] as usize];
                            picked.clear();
                            picked.extend(named.iter().map(|&entry| rows[entry as usize / k]));
                            weights.clear();
                            weights.extend(named.iter().map(|&entry| factors[entry as usize]));
                            sum_rows(sums, &picked, &weights);
                        }
                        if column.is_direct::<A>() {
                            for (column_index, sums) in columns.clone().zip(sums.chunks(n)) {
                                let start = column.address(column_index * to_layout.strides()[1]);
                                // SAFETY: the column is this part's own.
                                add(unsafe { std::slice::from_raw_parts_mut(start, n) }, sums);
                            }
                            continue;
                        }
                        let width = columns.len();
                        let row = Line::over(dweight, [(width, to_layout.strides()[1])]);
                        // SAFETY: the sums are this part's own; so are these columns of `dweight`.
                        unsafe {
                            transpose(sums.as_ptr(), n, turned.as_mut_ptr(), width, width, n);
                            for (i, sums) in turned[..n * width].chunks(width).enumerate() {
                                let offset =
                                    i * to_layout.strides()[0] + columns.start * to_layout.strides()[1];
                                if row.is_direct::<A>() {
                                    add(std::slice::from_raw_parts_mut(row.address(offset), width), sums);
                                    continue;
                                }
                                row.load(offset, 0..width, own_row);
                                add(&mut own_row[..width], sums);
                                row.store(offset, &own_row[..width]);
                            }
                        }
                    }
                });
            });
        });
    });
}

/// Sorts entries by their column, keeping their order: a counting sort.
fn sort_by_column(columns: &[i64], ends: &mut [i64], sorted: &mut [i64]) {
    ends.fill(0);
    columns.iter().for_each(|&column| ends[column as usize] += 1);
    let mut start = 0;
    for end in ends.iter_mut() {
        start += std::mem::replace(end, start);
    }
    for (entry, &column) in columns.iter().enumerate() {
        let end = &mut ends[column as usize];
        sorted[*end as usize] = entry as i64;
        *end += 1;
    }
}
