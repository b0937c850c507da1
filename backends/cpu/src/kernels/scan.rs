//! The place of the extreme element of a line, and what is folded of it so far: kernels that see a line once, piece by piece.

use super::axis::{Grid, Line, Piece, for_each_piece, others};
use super::element::{Compute, Source, by_compute, by_dtype};
use super::fold::{Largest, Smallest, fold_slice};
use super::view;
use crate::threads::{Threads, for_each_range};
use raddle_hal::{Kernel, KernelError, Operand, View};
use raddle_op::ScanOp;

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match *kernel {
            Kernel::ArgReduce { largest, axis } => arg_reduce(largest, axis, operands, threads),
            Kernel::Scan { op, axis } => {
                let (to, from) = (operands[0].view(), operands[1].view());
                match op {
                    ScanOp::Sum => scan(axis, to, from, threads, (0.0, |a, b| a + b), (0, i64::wrapping_add)),
                    ScanOp::Prod => {
                        scan(axis, to, from, threads, (1.0, |a, b| a * b), (1, i64::wrapping_mul))
                    }
                    ScanOp::Max => {
                        scan(axis, to, from, threads, (-f64::INFINITY, larger), (i64::MIN, i64::max))
                    }
                    ScanOp::Min => {
                        let smaller = |a: f64, b: f64| -larger(-a, -b);
                        scan(axis, to, from, threads, (f64::INFINITY, smaller), (i64::MAX, i64::min));
                    }
                    ScanOp::LogSumExp => {
                        scan(axis, to, from, threads, (-f64::INFINITY, log_sum), (0, |_, _| unreachable!()));
                    }
                }
            }
            _ => unreachable!("cpu: {} is no scan", kernel.name()),
        }
    }
    Ok(())
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn arg_reduce(largest: bool, axis: usize, operands: &[Operand], threads: Threads) {
    let (values, indices, input) = (operands[0].view(), operands[1].view(), operands[2].view());
    let layouts = [input, values, indices].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let line = Line::new(input, [axis]);
    by_compute!(input.dtype, A => {
        for_each_range(threads, grid.count(), line.count, |positions| {
            let fold = match largest {
                true => fold_slice::<A, Largest>,
                false => fold_slice::<A, Smallest>,
            };
            // Which element it is, and where, so far.
            let body = |best: &mut Option<(A, usize)>, piece: Piece<3>, [elements]: [&[A]; 1], []: [&mut [A]; 0]| {
                let extreme = fold(elements, elements[0]);
                let is_better = match *best {
                    None => true,
                    Some((best, _)) if best.is_nan() => false,
                    Some(_) if extreme.is_nan() => true,
                    Some((best, _)) => if largest { extreme > best } else { extreme < best },
                };
                if is_better {
                    // Only NaN differs from itself: if there is one, it is the extreme, and the first one is wanted.
                    let index = match extreme.is_nan() {
                        false => elements.iter().position(|&x| x == extreme),
                        true => elements.iter().position(|x| x.is_nan()),
                    };
                    let index = index.expect("the extreme of elements is one of them");
                    *best = Some((elements[index], piece.first + index));
                }
                if !piece.is_last {
                    return;
                }
                let ([_, value, place], (best, index)) = (piece.offsets, best.expect("there was a piece"));
                // SAFETY: each line has its own value and index.
                unsafe { *view::start::<i64>(indices).wrapping_add(place) = index as i64 };
                by_dtype!(values.dtype, E => {
                    // SAFETY: as above.
                    unsafe { *view::start::<E>(values).wrapping_add(value) = best.give() };
                });
            };
            // SAFETY: the contract of this function; the grid's first operand is the input.
            unsafe { for_each_piece(&grid, positions, [&line], [], 1, || None, body) };
        });
    });
}

/// The larger; NaN if one is.
fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// `ln(eᵃ + eᵇ)`
fn log_sum(a: f64, b: f64) -> f64 {
    let most = larger(a, b);
    // Of infinities, and NaN, there is no difference.
    if most.is_finite() { most + (-(a - b).abs()).exp().ln_1p() } else { most }
}

/// Floats of all widths are folded in `f64`, as PyTorch does it: a running sum has no tree to keep its error small. Of both kinds of
/// numbers come where it starts, and how it goes on.
///
/// # Safety
/// - As of [`super::execute`].
unsafe fn scan(
    axis: usize,
    output: &View,
    input: &View,
    threads: Threads,
    floats: (f64, impl Fn(f64, f64) -> f64 + Sync),
    integers: (i64, impl Fn(i64, i64) -> i64 + Sync),
) {
    let layouts = [input, output].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let lines = [input, output].map(|operand| Line::new(operand, [axis]));
    if input.dtype.is_float() {
        by_compute!(output.dtype, A => for_each_range(threads, grid.count(), lines[0].count, |positions| {
            let (start, fold) = &floats;
            let body = |sum: &mut f64, _: Piece<2>, [from]: [&[A]; 1], [to]: [&mut [A]; 1]| {
                let mut next = *sum;
                for (to, from) in to.iter_mut().zip(from) {
                    next = fold(next, from.f64());
                    *to = A::from_f64(next);
                }
                *sum = next;
            };
            // SAFETY: the contract of this function; the grid's operands are input and output.
            unsafe { for_each_piece(&grid, positions, [&lines[0]], [&lines[1]], 1, || *start, body) };
        }));
        return;
    }
    for_each_range(threads, grid.count(), lines[0].count, |positions| {
        let (start, fold) = &integers;
        let body = |sum: &mut i64, _: Piece<2>, [from]: [&[i64]; 1], [to]: [&mut [i64]; 1]| {
            let mut next = *sum;
            for (to, from) in to.iter_mut().zip(from) {
                next = fold(next, *from);
                *to = next;
            }
            *sum = next;
        };
        // SAFETY: as above.
        unsafe { for_each_piece(&grid, positions, [&lines[0]], [&lines[1]], 1, || *start, body) };
    });
}
