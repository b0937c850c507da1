//! Softmax along an axis, its logarithm, and their derivatives.
//!
//! Each line is shifted by its largest element, so nothing overflows; a line of −∞ only gives NaN, as in PyTorch. A line
//! is read from memory once and stays in the cache for the other steps; one that is too long for scratch is passed over for
//! each step. Sums are those of [`super::fold`] either way, so the bits don't depend on strides.
//!
//! Where one element has nearly all of the weight, its logarithm and what that has for a gradient are small, and are
//! computed from what the others have, not as a difference from 1: both keep their digits.

use super::axis::{Grid, Line, Piece, fits, for_each_line, for_each_piece, others};
use super::element::{Real, by_real};
use super::fold::{Cascade, Fold, Peak, Sum, fold_slice};
use super::level::multiversion;
use super::{math, view};
use crate::threads::{Threads, for_each_range};
use raddle_hal::Operand;
use std::ops::Range;

/// Exponentials and logarithms of what kernels compute in.
pub trait Transcendental: Real {
    /// eˣ
    fn exp(self) -> Self;
    /// eˣ − 1
    fn exp_m1(self) -> Self;
    /// ln (1 + x)
    fn ln_1p(self) -> Self;
}
impl Transcendental for f32 {
    #[inline(always)]
    fn exp(self) -> f32 {
        math::f32::exp(self)
    }
    #[inline(always)]
    fn exp_m1(self) -> f32 {
        math::f32::expm1(self)
    }
    #[inline(always)]
    fn ln_1p(self) -> f32 {
        math::f32::log1p(self)
    }
}
impl Transcendental for f64 {
    #[inline(always)]
    fn exp(self) -> f64 {
        math::f64::exp(self)
    }
    #[inline(always)]
    fn exp_m1(self) -> f64 {
        math::f64::expm1(self)
    }
    #[inline(always)]
    fn ln_1p(self) -> f64 {
        math::f64::log1p(self)
    }
}

/// `Kernel::Softmax`.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn softmax(axis: usize, log: bool, operands: &[Operand], threads: Threads) {
    // SAFETY: the contract of this function.
    by_real!(operands[1].view().dtype, A => unsafe { forward::<A>(axis, log, operands, threads) });
}

/// `Kernel::SoftmaxBackward`.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn backward(axis: usize, log: bool, operands: &[Operand], threads: Threads) {
    // SAFETY: the contract of this function.
    by_real!(operands[1].view().dtype, A => unsafe { softmax_backward::<A>(axis, log, operands, threads) });
}

multiversion! {
/// `to = exp(from − shift)`
fn exp_shifted<A: Transcendental>(to: &mut [A], from: &[A], shift: A) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*from - shift).exp();
    }
}
}

multiversion! {
/// `to = to · factor`
fn scale<A: Real>(to: &mut [A], factor: A) {
    for to in to {
        *to = *to * factor;
    }
}
}

multiversion! {
/// `to = from − a − b`
fn subtract<A: Real>(to: &mut [A], from: &[A], a: A, b: A) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from - a - b;
    }
}
}

multiversion! {
/// `to = a · b`
fn multiply<A: Real>(to: &mut [A], a: &[A], b: &[A]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = *a * *b;
    }
}
}

multiversion! {
/// `to = y · (dy − sum)`
fn pull_back<A: Real>(to: &mut [A], y: &[A], dy: &[A], sum: A) {
    for ((to, y), dy) in to.iter_mut().zip(y).zip(dy) {
        *to = *y * (*dy - sum);
    }
}
}

multiversion! {
/// `to = dy − exp(y) · sum`
fn pull_back_log<A: Transcendental>(to: &mut [A], y: &[A], dy: &[A], sum: A) {
    for ((to, y), dy) in to.iter_mut().zip(y).zip(dy) {
        *to = *dy - y.exp() * sum;
    }
}
}

/// Where there is something that few elements are: whole parts are looked at before their elements.
fn places<A: Copy>(elements: &[A], is: impl Fn(A) -> bool + Copy) -> impl Iterator<Item = usize> {
    const PART: usize = 64;
    let parts = elements.chunks(PART).enumerate();
    let some = parts.filter(move |(_, part)| part.iter().fold(false, |some, &x| some | is(x)));
    some.flat_map(move |(number, part)| {
        part.iter().enumerate().filter(move |(_, x)| is(**x)).map(move |(at, _)| number * PART + at)
    })
}

/// Puts 0 in place of the first largest, whose exponential is 1. Is it among these? There is none beside NaN and if it is infinite.
fn leave_out_largest<A: Transcendental>(powers: &mut [A]) -> bool {
    let largest = places(powers, |power| power == A::ONE).next();
    if let Some(largest) = largest {
        powers[largest] = A::ZERO;
    }
    largest.is_some()
}

/// `dx = dy − exp(y) · sum`. Where one element has most of the weight, without what the own gradient has in common with its part
/// of the sum.
fn pull_back_with_digits<A: Transcendental>(dx: &mut [A], y: &[A], dy: &[A], sum: A) {
    pull_back_log(dx, y, dy, sum);
    for at in places(y, |y| y > A::from_f64(-std::f64::consts::LN_2)) {
        dx[at] = A::ZERO - (dy[at] * y[at].exp_m1() + y[at].exp() * (sum - dy[at]));
    }
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn forward<A: Transcendental>(axis: usize, log: bool, operands: &[Operand], threads: Threads)
where
    Sum: Fold<A>,
    Peak: Fold<A>,
{
    let (output, input) = (operands[0].view(), operands[1].view());
    let layouts = [input, output].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let [from, to] = [input, output].map(|operand| Line::new(operand, [axis]));
    let is_whole = fits::<A>(&[&from, &to]);
    // An exponential costs about as much as streaming eight elements.
    for_each_range(threads, grid.count(), from.count.saturating_mul(4), |positions| {
        if !is_whole {
            // SAFETY: the contract of this function.
            return unsafe { softmax_of_pieces(&grid, positions, [&from, &to], log) };
        }
        let body = |_: &[usize; 2], [x]: [&[A]; 1], [y]: [&mut [A]; 1]| {
            let shift = fold_slice::<A, Peak>(x, A::ZERO);
            exp_shifted(y, x, shift);
            if !log {
                let sum = fold_slice::<A, Sum>(y, A::ZERO);
                return scale(y, A::ONE / sum);
            }
            leave_out_largest(y);
            let others = fold_slice::<A, Sum>(y, A::ZERO);
            subtract(y, x, shift, others.ln_1p());
        };
        // SAFETY: the contract of this function; the grid's operands are input and output.
        unsafe { for_each_line(&grid, positions, [&from], [&to], body) };
    });
}

/// Softmax of lines that don't fit scratch: three passes, in which exponentials are computed twice.
///
/// # Safety
/// - As of [`for_each_piece`].
unsafe fn softmax_of_pieces<A: Transcendental>(
    grid: &Grid<2>,
    positions: Range<usize>,
    [from, to]: [&Line; 2],
    log: bool,
) where
    Sum: Fold<A>,
    Peak: Fold<A>,
{
    struct State<A> {
        largest: Cascade<A>,
        shift: A,
        /// Has the largest been left out of the sum?
        is_without_largest: bool,
        sums: Cascade<A>,
        sum: A,
    }
    let start = || State {
        largest: Cascade::new::<Peak>(),
        shift: A::ZERO,
        is_without_largest: false,
        sums: Cascade::new::<Sum>(),
        sum: A::ZERO,
    };
    let body = |state: &mut State<A>, piece: Piece<2>, [x]: [&[A]; 1], [y]: [&mut [A]; 1]| match piece.pass {
        0 => {
            state.largest.push::<Peak>(fold_slice::<A, Peak>(x, A::ZERO));
            state.shift = state.largest.finish::<Peak>();
        }
        1 => {
            exp_shifted(y, x, state.shift);
            if log && !state.is_without_largest {
                state.is_without_largest = leave_out_largest(y);
            }
            state.sums.push::<Sum>(fold_slice::<A, Sum>(y, A::ZERO));
            state.sum = state.sums.finish::<Sum>();
        }
        _ if log => subtract(y, x, state.shift, state.sum.ln_1p()),
        _ => {
            exp_shifted(y, x, state.shift);
            scale(y, A::ONE / state.sum);
        }
    };
    // SAFETY: the contract of this function.
    unsafe { for_each_piece(grid, positions, [from], [to], 3, start, body) };
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn softmax_backward<A: Transcendental>(axis: usize, log: bool, operands: &[Operand], threads: Threads)
where
    Sum: Fold<A>,
{
    let (dx, y, dy) = (operands[0].view(), operands[1].view(), operands[2].view());
    let layouts = [y, dy, dx].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let [y, dy, dx] = [y, dy, dx].map(|operand| Line::new(operand, [axis]));
    let is_whole = fits::<A>(&[&y, &dy, &dx]);
    for_each_range(threads, grid.count(), y.count.saturating_mul(2), |positions| {
        if !is_whole {
            let start = || (Cascade::new::<Sum>(), A::ZERO);
            let body =
                |state: &mut (Cascade<A>, A), piece: Piece<3>, [y, dy]: [&[A]; 2], [dx]: [&mut [A]; 1]| {
                    let (sums, sum) = state;
                    if piece.pass == 0 {
                        if !log {
                            multiply(dx, y, dy);
                        }
                        let products = if log { dy } else { dx };
                        sums.push::<Sum>(fold_slice::<A, Sum>(products, A::ZERO));
                        *sum = sums.finish::<Sum>();
                    } else if log {
                        pull_back_with_digits(dx, y, dy, *sum);
                    } else {
                        pull_back(dx, y, dy, *sum);
                    }
                };
            // SAFETY: the contract of this function; the grid's operands are the inputs and the output.
            return unsafe { for_each_piece(&grid, positions, [&y, &dy], [&dx], 2, start, body) };
        }
        let body = |_: &[usize; 3], [y, dy]: [&[A]; 2], [dx]: [&mut [A]; 1]| {
            if log {
                let sum = fold_slice::<A, Sum>(dy, A::ZERO);
                return pull_back_with_digits(dx, y, dy, sum);
            }
            multiply(dx, y, dy);
            let sum = fold_slice::<A, Sum>(dx, A::ZERO);
            pull_back(dx, y, dy, sum);
        };
        // SAFETY: the contract of this function; the grid's operands are the inputs and the output.
        unsafe { for_each_line(&grid, positions, [&y, &dy], [&dx], body) };
    });
}
