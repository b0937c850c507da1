//! Softmax along an axis, its logarithm, and their derivatives.
//!
//! Each line is shifted by its largest element, so nothing overflows; a line of −∞ only gives NaN, as in PyTorch. A line
//! is read from memory once and stays in the cache for the other steps; sums are those of [`super::fold`], so the bits
//! don't depend on strides.
//!
//! Where one element has nearly all of the weight, its logarithm and what that has for a gradient are small, and are
//! computed from what the others have, not as a difference from 1: both keep their digits.

use super::axis::{Grid, Line, for_each_line, for_each_range, multiversion, others};
use super::element::{Real, by_real};
use super::fold::{Fold, Largest, Sum, fold_slice};
use super::{math, view};
use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand};

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

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match *kernel {
            Kernel::Softmax { axis, log } => {
                by_real!(operands[1].view().dtype, A => softmax::<A>(axis, log, operands, threads));
            }
            Kernel::SoftmaxBackward { axis, log } => {
                by_real!(operands[1].view().dtype, A => softmax_backward::<A>(axis, log, operands, threads));
            }
            _ => unreachable!("cpu: {} is no softmax", kernel.name()),
        }
    }
    Ok(())
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

/// # Safety
/// - As of [`super::execute`].
unsafe fn softmax<A: Transcendental>(axis: usize, log: bool, operands: &[Operand], threads: Threads)
where
    Sum: Fold<A>,
    Largest: Fold<A>,
{
    let (output, input) = (operands[0].view(), operands[1].view());
    let layouts = [input, output].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let [from, to] = [input, output].map(|operand| Line::new(operand, [axis]));
    // An exponential costs about as much as streaming eight elements.
    for_each_range(threads, grid.count(), from.count.saturating_mul(4), |positions| {
        let body = |_: &[usize; 2], [x]: [&[A]; 1], [y]: [&mut [A]; 1]| {
            let shift = fold_slice::<A, Largest>(x, A::ZERO);
            exp_shifted(y, x, shift);
            if !log {
                let sum = fold_slice::<A, Sum>(y, A::ZERO);
                return scale(y, A::ONE / sum);
            }
            // That of the largest; there is none beside NaN and if that is infinite.
            let largest = places(y, |power| power == A::ONE).next();
            if let Some(largest) = largest {
                y[largest] = A::ZERO;
            }
            let others = fold_slice::<A, Sum>(y, A::ZERO);
            subtract(y, x, shift, others.ln_1p());
        };
        // SAFETY: the contract of this function; the grid's operands are input and output.
        unsafe { for_each_line(&grid, positions, [&from], [&to], body) };
    });
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
    for_each_range(threads, grid.count(), y.count.saturating_mul(2), |positions| {
        let body = |_: &[usize; 3], [y, dy]: [&[A]; 2], [dx]: [&mut [A]; 1]| {
            if log {
                let sum = fold_slice::<A, Sum>(dy, A::ZERO);
                pull_back_log(dx, y, dy, sum);
                // The same without what the own gradient has in common with its part of the sum.
                for at in places(y, |y| y > A::from_f64(-std::f64::consts::LN_2)) {
                    dx[at] = A::ZERO - (dy[at] * y[at].exp_m1() + y[at].exp() * (sum - dy[at]));
                }
                return;
            }
            multiply(dx, y, dy);
            let sum = fold_slice::<A, Sum>(dx, A::ZERO);
            pull_back(dx, y, dy, sum);
        };
        // SAFETY: the contract of this function; the grid's operands are the inputs and the output.
        unsafe { for_each_line(&grid, positions, [&y, &dy], [&dx], body) };
    });
}
