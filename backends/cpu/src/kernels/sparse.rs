//! The product of a matrix and sparse rows of few entries, and its derivative.
//!
//! `out[b, :] = Σ_j values[b, j] · weight[:, index[b, j]]`: the sum of a few columns of the weight. Where columns have
//! holes the weight is transposed once a launch, into scratch of the device if it is large ([`Room`]); the entries of the
//! weight's derivative are sorted there, too. Sums run in the order
//! of `j`, and of `b` in the derivative of the weight, so they have one order whatever the layout and the threads (T8).
//! Rows, and entries of a row, are taken so many at a time: a thread's own scratch doesn't grow with them.

use super::axis::{Line, Shared, transpose};
use super::element::{Real, by_real};
use super::fold::{LANES, halve};
use super::level::multiversion;
use super::scratch::{Need, Room, bytes_of, scratch};
use super::view;
use crate::threads::{Threads, for_each_range};
use raddle_hal::{Operand, View};
use std::ops::Range;

/// Rows of the weight that are transposed together.
const ROWS: usize = 64;
/// Columns of its derivative that are made together: what is written is whole cache lines.
const COLUMNS: usize = 128;
/// Elements of a row, or of a part of a column, that are summed at once. Few in tests, so that they see several parts.
const LENGTH: usize = if cfg!(test) { 128 } else { 4096 };
/// Of such a part where [`COLUMNS`] of them are in scratch.
const LENGTH_OF_MANY: usize = if cfg!(test) { 64 } else { 1024 };
/// Entries that are taken at once.
const ENTRIES: usize = if cfg!(test) { 8 } else { 512 };

/// `Kernel::SparseMatMul`. The indices have been checked.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn product(bias: bool, operands: &[Operand], threads: Threads) {
    let [out, values, indices, weight] = std::array::from_fn(|index| operands[index].view());
    let room = Room::new(columns_need(weight), operands.get(4 + usize::from(bias)));
    let bias = bias.then(|| operands[4].view());
    let inputs = [values, indices, weight];
    // SAFETY: the contract of this function.
    by_real!(weight.dtype, A => unsafe { product_by::<A>(out, inputs, bias, &room, threads) });
}

/// `Kernel::SparseMatMulByValues`. The indices have been checked.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn by_values(operands: &[Operand], threads: Threads) {
    let views: [&View; 4] = std::array::from_fn(|index| operands[index].view());
    let room = Room::new(columns_need(views[3]), operands.get(4));
    // SAFETY: the contract of this function.
    by_real!(views[3].dtype, A => unsafe { value_gradient::<A>(views, &room, threads) });
}

/// `Kernel::SparseMatMulByWeight`. The indices have been checked.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn by_weight(operands: &[Operand], threads: Threads) {
    let views: [&View; 4] = std::array::from_fn(|index| operands[index].view());
    let room = Room::new(by_weight_need(operands), operands.get(4));
    // SAFETY: the contract of this function.
    by_real!(views[0].dtype, A => unsafe { weight_gradient::<A>(views, &room, threads) });
}

/// The scratch of `Kernel::SparseMatMulByWeight`.
pub fn by_weight_need(operands: &[Operand]) -> Need {
    let [dweight, dy, values] = std::array::from_fn(|index| operands[index].view());
    by_real!(dweight.dtype, A => Need::one(WeightGradient::<A>::new(dweight, dy, values).scratch_bytes()))
}

/// The scratch of the two kernels that read this weight.
pub fn columns_need(weight: &View) -> Need {
    by_real!(weight.dtype, A => match Line::new(weight, [0]).is_direct::<A>() {
        true => Need::NOTHING,
        false => Need::one(bytes_of::<A>(weight.layout.element_count())),
    })
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

/// Calls `body` with the columns of a weight; the scratch is as [`columns_need`] says.
///
/// # Safety
/// - The weight is in live memory that nobody writes meanwhile.
unsafe fn with_columns<A: Real>(weight: &View, room: &Room, threads: Threads, body: impl FnOnce(Columns<A>)) {
    let layout = view::layout(weight);
    let (row_count, column_count) = (layout.shape()[0], layout.shape()[1]);
    let column = Line::new(weight, [0]);
    if column.is_direct::<A>() {
        let start = Shared::new(view::start(weight));
        return body(Columns { start, pitch: layout.strides()[1] });
    }
    room.with(|mut memory| {
        let start = Shared::new(memory.take::<A>(row_count * column_count).as_mut_ptr());
        for_each_range(threads, row_count.div_ceil(ROWS), ROWS * column_count, |blocks| {
            for block in blocks {
                let rows = block * ROWS..row_count.min((block + 1) * ROWS);
                // SAFETY: each block has rows of its own.
                unsafe { transpose_rows(weight, rows, start, row_count) };
            }
        });
        body(Columns { start, pitch: row_count });
    });
}

/// Copies at most [`ROWS`] rows of a matrix to the same places of a transposed one.
///
/// # Safety
/// - Both are in live memory, nobody writes what is read, and nobody else uses what is written.
unsafe fn transpose_rows<A: Real>(matrix: &View, rows: Range<usize>, to: Shared<A>, pitch: usize) {
    let stride = view::layout(matrix).strides()[0];
    let row = Line::new(matrix, [1]);
    if row.is_direct::<A>() {
        let from = row.address::<A>(rows.start * stride);
        // SAFETY: the caller's bullets.
        return unsafe { transpose(from, stride, to.at(rows.start), pitch, rows.len(), row.count) };
    }
    scratch::<A, _>(rows.len() * row.count.min(LENGTH), |staged| {
        for first in (0..row.count).step_by(LENGTH) {
            let count = LENGTH.min(row.count - first);
            for (line, staged) in rows.clone().zip(staged.chunks_mut(count)) {
                // SAFETY: the caller's bullets.
                unsafe { row.load(line * stride, first..first + count, staged) };
            }
            let to = to.at(first * pitch + rows.start);
            // SAFETY: the caller's bullets.
            unsafe { transpose(staged.as_ptr(), count, to, pitch, rows.len(), count) };
        }
    });
}

multiversion! {
/// `to += Σ_j factors[j] · rows[j]`, in the order of `j`.
fn sum_rows<A: Real>(to: &mut [A], rows: &[&[A]], factors: &[A]) {
    const WIDTH: usize = 64;
    let mut first = 0;
    while first + WIDTH <= to.len() {
        let mut sums: [A; WIDTH] = to[first..first + WIDTH].try_into().expect("that many are left");
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
        let mut sum = to[i];
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

/// Adds a·b to lanes: element `i` to lane `i % LANES`, in order. What is behind the last whole ones comes last of all.
fn add_dot<A: Real>(lanes: &mut [A; LANES], a: &[A], b: &[A]) {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks(), b.as_chunks());
    add_products(lanes, a, b);
    for ((lane, a), b) in lanes.iter_mut().zip(a_tail).zip(b_tail) {
        *lane += *a * *b;
    }
}

/// The parts of so many elements.
fn parts(count: usize, length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(length).map(move |first| first..count.min(first + length))
}

/// # Safety
/// - As of [`super::execute`]; the indices are in range.
unsafe fn product_by<A: Real>(
    out: &View,
    [values, indices, weight]: [&View; 3],
    bias: Option<&View>,
    room: &Room,
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
            scratch::<A, _>(2 * n.min(LENGTH) + k.min(ENTRIES), |memory| {
                scratch::<i64, _>(k.min(ENTRIES), |own_indices| {
                    let (sums, rest) = memory.split_at_mut(n.min(LENGTH));
                    let (own_bias, own_factors) = rest.split_at_mut(n.min(LENGTH));
                    let mut picked: [&[A]; ENTRIES] = [&[]; ENTRIES];
                    for b in range {
                        for part in parts(n, LENGTH) {
                            let sums = &mut sums[..part.len()];
                            sums.fill(A::ZERO);
                            // SAFETY: the contract of this function; each row of the output is this part's own.
                            unsafe {
                                for entries in parts(k, ENTRIES) {
                                    let at = b * value_layout.strides()[0];
                                    let factors = factors.read_part(at, entries.clone(), own_factors);
                                    let at = b * index_layout.strides()[0];
                                    let chosen = chosen.read_part(at, entries, own_indices);
                                    for (picked, &index) in picked.iter_mut().zip(chosen) {
                                        *picked = columns.part(index, part.clone());
                                    }
                                    sum_rows(sums, &picked[..chosen.len()], factors);
                                }
                                if let Some((stride, bias)) = &bias {
                                    add(sums, bias.read_part(b * stride, part.clone(), own_bias));
                                }
                                to.store(b * out_layout.strides()[0], part.start, sums);
                            }
                        }
                    }
                })
            });
        });
    };
    // SAFETY: the contract of this function.
    unsafe { with_columns(weight, room, threads, rows) };
}

/// `dvalues[b, j] = dy[b, :] · weight[:, index[b, j]]`
///
/// # Safety
/// - As of [`super::execute`]; the indices are in range.
unsafe fn value_gradient<A: Real>([dvalues, dy, indices, weight]: [&View; 4], room: &Room, threads: Threads) {
    let [to_layout, dy_layout, index_layout] = [dvalues, dy, indices].map(view::layout);
    let batch = to_layout.shape()[0];
    let [to, dy, chosen] = [dvalues, dy, indices].map(|operand| Line::new(operand, [1]));
    let (n, k) = (dy.count, to.count);
    if k == 0 {
        return;
    }
    let rows = |columns: Columns<A>| {
        for_each_range(threads, batch, n.saturating_mul(k), |range| {
            scratch::<A, _>(n.min(LENGTH), |own_dy| {
                scratch::<i64, _>(k.min(ENTRIES), |own_indices| {
                    let mut lanes = [[A::ZERO; LANES]; ENTRIES];
                    for b in range {
                        for entries in parts(k, ENTRIES) {
                            let lanes = &mut lanes[..entries.len()];
                            lanes.fill([A::ZERO; LANES]);
                            // SAFETY: the contract of this function; each row of the output is this part's own.
                            unsafe {
                                let at = b * index_layout.strides()[0];
                                let chosen = chosen.read_part(at, entries.clone(), own_indices);
                                for part in parts(n, LENGTH) {
                                    let dy = dy.read_part(b * dy_layout.strides()[0], part.clone(), own_dy);
                                    for (lanes, &index) in lanes.iter_mut().zip(chosen) {
                                        add_dot(lanes, dy, columns.part(index, part.clone()));
                                    }
                                }
                                let mut results = [A::ZERO; ENTRIES];
                                for (result, lanes) in results.iter_mut().zip(lanes.iter_mut()) {
                                    *result = halve(lanes, |a, b| a + b);
                                }
                                let results = &results[..entries.len()];
                                to.store(b * to_layout.strides()[0], entries.start, results);
                            }
                        }
                    }
                })
            });
        });
    };
    // SAFETY: the contract of this function.
    unsafe { with_columns(weight, room, threads, rows) };
}

/// Sizes of [`weight_gradient`].
struct WeightGradient<A> {
    batch: usize,
    n: usize,
    h: usize,
    k: usize,
    /// Is `dy` copied into scratch?
    copies: bool,
    of: std::marker::PhantomData<A>,
}

impl<A: Real> WeightGradient<A> {
    fn new(dweight: &View, dy: &View, values: &View) -> WeightGradient<A> {
        let [batch, n] = [0, 1].map(|axis| view::layout(dy).shape()[axis]);
        let (h, k) = (view::layout(dweight).shape()[1], view::layout(values).shape()[1]);
        let copies = !Line::new(dy, [1]).is_direct::<A>();
        WeightGradient { batch, n, h, k, copies, of: std::marker::PhantomData }
    }

    fn entries(&self) -> usize {
        self.batch * self.k
    }

    /// Elements of `dy` in scratch.
    fn copied(&self) -> usize {
        if self.copies { self.batch * self.n } else { 0 }
    }

    fn scratch_bytes(&self) -> usize {
        match self.entries() == 0 || self.n == 0 {
            true => 0,
            false => {
                bytes_of::<i64>(self.h)
                    + 2 * bytes_of::<i64>(self.entries())
                    + bytes_of::<A>(self.entries())
                    + bytes_of::<A>(self.copied())
            }
        }
    }
}

/// `dweight[:, index[b, j]] += values[b, j] · dy[b, :]`: for each column the sum of what names it, in the order of `b` and
/// `j`, and then that is added.
///
/// # Safety
/// - As of [`super::execute`]; the indices are in range.
unsafe fn weight_gradient<A: Real>(
    [dweight, dy, values, indices]: [&View; 4],
    room: &Room,
    threads: Threads,
) {
    let sizes = WeightGradient::<A>::new(dweight, dy, values);
    let WeightGradient { batch, n, h, k, copies, .. } = sizes;
    let [to_layout, dy_layout, value_layout, index_layout] = [dweight, dy, values, indices].map(view::layout);
    let [dy, factors, chosen] = [dy, values, indices].map(|operand| Line::new(operand, [1]));
    let column = Line::new(dweight, [0]);
    let entries = sizes.entries();
    if entries == 0 || n == 0 {
        return;
    }
    // Entries sorted by column: `ends[c]` is where those of column `c` end, `sorted` has their numbers `b · k + j`.
    room.with(|mut memory| {
        let ends = memory.take::<i64>(h);
        let [columns, sorted] = [(); 2].map(|()| memory.take::<i64>(entries));
        let own_factors = memory.take::<A>(entries);
        let own_dy = memory.take::<A>(sizes.copied());
        // SAFETY: the contract of this function.
        unsafe {
            for b in 0..batch {
                factors.load(b * value_layout.strides()[0], 0..k, &mut own_factors[b * k..][..k]);
                chosen.load(b * index_layout.strides()[0], 0..k, &mut columns[b * k..][..k]);
                if copies {
                    dy.load(b * dy_layout.strides()[0], 0..n, &mut own_dy[b * n..][..n]);
                }
            }
        }
        sort_by_column(columns, ends, sorted);
        let (ends, sorted, factors, own_dy) = (&*ends, &*sorted, &*own_factors, &*own_dy);
        let row = |b: usize, part: Range<usize>| match copies {
            true => &own_dy[b * n + part.start..][..part.len()],
            // SAFETY: the contract of this function; it has no holes.
            false => unsafe { dy.slice(b * dy_layout.strides()[0], part) },
        };
        let cost = COLUMNS * n * entries.div_ceil(h).max(1);
        let length = n.min(LENGTH_OF_MANY);
        for_each_range(threads, h.div_ceil(COLUMNS), cost, |range| {
            scratch::<A, _>(2 * COLUMNS * length + COLUMNS, |memory| {
                let (sums, rest) = memory.split_at_mut(COLUMNS * length);
                let (turned, own_row) = rest.split_at_mut(COLUMNS * length);
                let mut picked: [&[A]; ENTRIES] = [&[]; ENTRIES];
                let mut weights = [A::ZERO; ENTRIES];
                for (block, part) in range.flat_map(|block| parts(n, length).map(move |part| (block, part))) {
                    let columns = block * COLUMNS..h.min((block + 1) * COLUMNS);
                    let sums = &mut sums[..columns.len() * part.len()];
                    sums.fill(A::ZERO);
                    for (column, sums) in columns.clone().zip(sums.chunks_mut(part.len())) {
                        let start = if column == 0 { 0 } else { ends[column - 1] };
                        for named in sorted[start as usize..ends[column] as usize].chunks(ENTRIES) {
                            for ((picked, weight), &entry) in picked.iter_mut().zip(&mut weights).zip(named) {
                                *picked = row(entry as usize / k, part.clone());
                                *weight = factors[entry as usize];
                            }
                            sum_rows(sums, &picked[..named.len()], &weights[..named.len()]);
                        }
                    }
                    if column.is_direct::<A>() {
                        for (column_index, sums) in columns.clone().zip(sums.chunks(part.len())) {
                            let start = column.address(column_index * to_layout.strides()[1] + part.start);
                            // SAFETY: the column is this part's own.
                            add(unsafe { std::slice::from_raw_parts_mut(start, part.len()) }, sums);
                        }
                        continue;
                    }
                    let width = columns.len();
                    let row = Line::over(dweight, [(width, to_layout.strides()[1])]);
                    // SAFETY: the sums are this part's own; so are these columns of `dweight`.
                    unsafe {
                        transpose(sums.as_ptr(), part.len(), turned.as_mut_ptr(), width, width, part.len());
                        for (i, sums) in part.zip(turned.chunks(width)) {
                            let offset = i * to_layout.strides()[0] + columns.start * to_layout.strides()[1];
                            if row.is_direct::<A>() {
                                add(std::slice::from_raw_parts_mut(row.address(offset), width), sums);
                                continue;
                            }
                            row.load(offset, 0..width, own_row);
                            add(&mut own_row[..width], sums);
                            row.store(offset, 0, &own_row[..width]);
                        }
                    }
                }
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
