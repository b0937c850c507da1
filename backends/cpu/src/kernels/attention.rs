//! Attention: a block of queries at a time, its scores in the second cache.
//!
//! Guarantee: a row of the result depends on its query, on the keys, values and mask of its batch and head, and on the
//! numbers of queries and keys; not on other batches and heads, on threads or strides (T8). Scores and sums of values are
//! those of [`super::matmul`], in its order; a row's sum of weights is taken over lanes, in an order of its own length.
//!
//! Queries, keys and values are used where they lie if they are of the dtype that is computed in, whatever their strides;
//! others are converted in scratch, a head at a time. Of many keys that, and the scores, come from the device ([`Room`]).

use super::axis::{Line, Shared};
use super::element::{Compute, Real, by_real};
use super::level::multiversion;
use super::matmul::{Product, product};
use super::matrix::Matrix;
use super::scratch::{Need, Room, bytes_of};
use super::softmax::Transcendental;
use super::view;
use crate::threads::Threads;
use raddle_base::DType;
use raddle_hal::{Operand, View};

/// Scores of a block: half of a small second cache in `f32` (guess).
const SCORES: usize = 1 << 15;
/// Queries of a block at least, however many keys there are: keys and values are read once for each block.
const ROWS_MIN: usize = 16;
/// Partial sums and maxima of a row: a vector of AVX-512, in `f32`.
const LANES: usize = 16;

/// `Kernel::Attention`.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn attention(scale: f64, causal: bool, mask: bool, operands: &[Operand], threads: Threads) {
    let (operands, scratch) = operands.split_at(4 + usize::from(mask));
    // SAFETY: the contract of this function.
    by_real!(operands[0].view().dtype, A => unsafe {
        let plan = Plan::<A>::new(operands, mask);
        let room = Room::new(plan.need(operands, threads), scratch.first());
        attend::<A>(plan, &room, (scale as A, causal), threads);
    });
}

/// The scratch of `Kernel::Attention`.
pub fn need(operands: &[Operand], mask: bool, threads: Threads) -> Need {
    by_real!(operands[0].view().dtype, A => Plan::<A>::new(operands, mask).need(operands, threads))
}

/// How attention is cut into units, and what scratch each takes.
struct Plan<'a, A> {
    to: Matrices<'a>,
    inputs: [Matrices<'a>; 3],
    mask: Option<Matrices<'a>>,
    /// Queries of a unit.
    rows_max: usize,
    /// Is the result made where it lies?
    in_place: bool,
    /// Scores, converted queries, keys and values, results, a row of the mask, factors.
    counts: [usize; 7],
    is_empty: bool,
    of: std::marker::PhantomData<A>,
}

impl<'a, A: Product> Plan<'a, A> {
    fn new(operands: &'a [Operand], mask: bool) -> Plan<'a, A> {
        let [to, query, key, value] = [0, 1, 2, 3].map(|index| Matrices::new(operands[index].view()));
        let mask = mask.then(|| Matrices::new(operands[4].view()));
        let shape = to.operand.layout.shape();
        let (n, m, dv) = (shape[2], key.operand.layout.shape()[2], shape[3]);
        let rows_max = (SCORES / m.max(1)).max(ROWS_MIN).min(n);
        let in_place = to.operand.dtype == A::DTYPE && (to.strides[3] == 1 || dv == 1);
        let counts = [
            rows_max * m,
            query.scratch_count::<A>(rows_max),
            key.scratch_count::<A>(m),
            value.scratch_count::<A>(m),
            if in_place { 0 } else { rows_max * dv },
            if mask.is_some() { m } else { 0 },
            rows_max,
        ];
        let is_empty = shape.contains(&0);
        let of = std::marker::PhantomData;
        Plan { to, inputs: [query, key, value], mask, rows_max, in_place, counts, is_empty, of }
    }

    fn unit_count(&self) -> usize {
        let shape = self.to.operand.layout.shape();
        shape[0] * shape[1] * shape[2].div_ceil(self.rows_max.max(1))
    }

    fn need(&self, operands: &[Operand], threads: Threads) -> Need {
        let each_bytes = self.counts.iter().map(|&count| bytes_of::<A>(count)).sum();
        match self.is_empty {
            true => Need::NOTHING,
            false => Need::each(each_bytes, self.unit_count(), operands, threads),
        }
    }
}

/// One operand's matrices: one for each batch and head.
struct Matrices<'a> {
    operand: &'a View,
    /// Along the last axis.
    line: Line,
    strides: [usize; 4],
}

impl<'a> Matrices<'a> {
    fn new(operand: &'a View) -> Matrices<'a> {
        let layout = view::layout(operand);
        let strides = [0, 1, 2, 3].map(|axis| layout.strides()[axis]);
        Matrices { operand, line: Line::new(operand, [3]), strides }
    }

    /// Where row `row` begins.
    fn offset(&self, [batch, head]: [usize; 2], row: usize) -> usize {
        batch * self.strides[0] + head * self.strides[1] + row * self.strides[2]
    }

    /// Scratch for so many rows.
    fn scratch_count<A: Compute>(&self, rows: usize) -> usize {
        if self.operand.dtype == A::DTYPE { 0 } else { rows * self.line.count }
    }

    /// Rows as a matrix: where they lie, or converted.
    ///
    /// # Safety
    /// - The operand is in live memory that nobody writes meanwhile; the scratch is as large as was asked for.
    unsafe fn read<A: Compute>(
        &self,
        at: [usize; 2],
        rows: std::ops::Range<usize>,
        memory: &mut [A],
    ) -> Matrix<A> {
        if self.operand.dtype == A::DTYPE {
            return self.direct(at, rows.start);
        }
        let count = self.line.count;
        for (place, row) in rows.enumerate() {
            let to = &mut memory[place * count..][..count];
            // SAFETY: the caller's bullet.
            unsafe { self.line.load(self.offset(at, row), 0..count, to) };
        }
        Matrix { start: Shared::new(memory.as_mut_ptr()), row: count, column: 1 }
    }

    /// From a row on, where it lies.
    fn direct<A>(&self, at: [usize; 2], row: usize) -> Matrix<A> {
        let start = Shared::new(self.line.address(self.offset(at, row)));
        Matrix { start, row: self.strides[2], column: self.strides[3] }
    }
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn attend<A: Product + Transcendental>(
    plan: Plan<'_, A>,
    room: &Room,
    (scale, causal): (A, bool),
    threads: Threads,
) {
    if plan.is_empty {
        return;
    }
    let unit_count = plan.unit_count();
    let Plan { to, inputs: [query, key, value], mask, rows_max, in_place, counts, .. } = plan;
    let [_, heads, n, dv] = [0, 1, 2, 3].map(|axis| to.operand.layout.shape()[axis]);
    let [m, d] = [2, 3].map(|axis| key.operand.layout.shape()[axis]);
    let blocks = n.div_ceil(rows_max);
    // A multiply-add costs an eighth of streaming an element, an exponential four of these.
    let cost = rows_max.saturating_mul(m).saturating_mul((d + dv) / 8 + 4);
    room.for_each_range(threads, unit_count, cost, |mut memory, units| {
        let [scores, queries, keys, values, results, added, factors] =
            counts.map(|count| memory.take::<A>(count));
        let mut converted = None;
        for unit in units {
            let (pair, block) = (unit / blocks, unit % blocks);
            let at = [pair / heads, pair % heads];
            let first = block * rows_max;
            let rows = rows_max.min(n - first);
            // What no query of the block sees isn't computed.
            let seen = if causal { m.min(first + rows) } else { m };
            // SAFETY: the contract of this function; blocks of the output don't meet, scratch is this thread's.
            unsafe {
                let q = query.read(at, first..first + rows, queries);
                let is_known = converted.replace(at) == Some(at);
                let known = |count: usize| if is_known { 0..0 } else { 0..count };
                let (k, v) = (key.read(at, known(m), keys), value.read(at, known(m), values));
                let block = Matrix { start: Shared::new(scores.as_mut_ptr()), row: seen, column: 1 };
                product((rows, seen, d), q, k.transposed(), block);
                for (row, scores) in scores[..rows * seen].chunks_exact_mut(seen).enumerate() {
                    let kept = if causal { seen.min(first + row + 1) } else { seen };
                    scores[kept..].fill(A::ZERO);
                    let scores = &mut scores[..kept];
                    let added = match &mask {
                        None => &[][..],
                        Some(mask) => {
                            if row == 0 || mask.strides[2] != 0 {
                                mask.line.load(mask.offset(at, first + row), 0..m, added);
                            }
                            &added[..kept]
                        }
                    };
                    let is_choice = mask.as_ref().is_some_and(|mask| mask.line.dtype == DType::Bool);
                    let sum = weigh(scores, scale, added, is_choice);
                    factors[row] = if sum == A::ZERO { A::ZERO } else { A::ONE / sum };
                }
                let result = if in_place {
                    to.direct(at, first)
                } else {
                    Matrix { start: Shared::new(results.as_mut_ptr()), row: dv, column: 1 }
                };
                product((rows, dv, seen), block, v, result);
                for (row, &factor) in factors[..rows].iter().enumerate() {
                    let line = Shared::new(result.at(row, 0)).slice(0, dv);
                    divide(line, factor);
                    if !in_place {
                        to.line.store(to.offset(at, first + row), 0, line);
                    }
                }
            }
        }
    });
}

multiversion! {
/// From products to weights, `exp(score − max)`; returns their sum, 0 if there is none. `added` is empty, or a mask.
fn weigh<A: Transcendental>(scores: &mut [A], scale: A, added: &[A], is_choice: bool) -> A {
    let low = A::ZERO - A::ONE / A::ZERO;
    // NaN isn't the largest here: its weight is NaN, and so is the sum.
    let larger = |a: A, b: A| if b > a { b } else { a };
    let (vectors, rest) = scores.as_chunks_mut::<LANES>();
    if added.is_empty() {
        for x in vectors.as_flattened_mut() {
            *x = *x * scale;
        }
        for x in rest.iter_mut() {
            *x = *x * scale;
        }
    } else {
        let (added, rest_added) = added.as_chunks::<LANES>();
        let masked = |x: A, added: A| match is_choice {
            true => if added == A::ZERO { low } else { x * scale },
            false => x * scale + added,
        };
        for (x, added) in vectors.as_flattened_mut().iter_mut().zip(added.as_flattened()) {
            *x = masked(*x, *added);
        }
        for (x, added) in rest.iter_mut().zip(rest_added) {
            *x = masked(*x, *added);
        }
    }
    // What is left of the last vector has no weight.
    let mut last = [low; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut most = last;
    for vector in vectors.iter() {
        for (x, most) in vector.iter().zip(&mut most) {
            *most = larger(*most, *x);
        }
    }
    let most = most.into_iter().fold(low, larger);
    // If all are −∞ each weight is 0.
    let shift = if most == low { A::ZERO } else { most };
    let mut sums = [A::ZERO; LANES];
    for vector in vectors.iter_mut().chain([&mut last]) {
        for (x, sum) in vector.iter_mut().zip(&mut sums) {
            *x = (*x - shift).exp();
            *sum += *x;
        }
    }
    rest.copy_from_slice(&last[..rest.len()]);
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lane in 0..count {
            let upper = sums[lane + count];
            sums[lane] += upper;
        }
    }
    sums[0]
}
}

multiversion! {
/// `to = to · factor`; 0 for a factor of 0, whatever there was.
fn divide<A: Real>(to: &mut [A], factor: A) {
    if factor == A::ZERO {
        return to.fill(A::ZERO);
    }
    for x in to {
        *x = *x * factor;
    }
}
}
