//! The place of the extreme element of a line, and running sums: kernels that see one line at a time.

use super::axis::{Grid, Line, for_each_line, for_each_range, others};
use super::element::{Compute, Source, by_compute, by_dtype};
use super::fold::{Largest, Smallest, fold_slice};
use super::view;
use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand, View};

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    // SAFETY: the contract of each is the one of this function.
    unsafe {
        match *kernel {
            Kernel::ArgReduce { largest, axis } => arg_reduce(largest, axis, operands, threads),
            Kernel::CumSum { axis } => cum_sum(axis, operands[0].view(), operands[1].view(), threads),
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
            // SAFETY: the contract of this function.
            unsafe {
                for_each_line(&grid, positions, [&line], [], |&[_, value, place], [line]: [&[A]; 1], []| {
                    let extreme = match largest {
                        true => fold_slice::<A, Largest>(line, line[0]),
                        false => fold_slice::<A, Smallest>(line, line[0]),
                    };
                    // Only NaN differs from itself: if there is one, it is the extreme, and the first one is wanted.
                    let index = match extreme.is_nan() {
                        false => line.iter().position(|&x| x == extreme),
                        true => line.iter().position(|x| x.is_nan()),
                    };
                    let index = index.expect("the extreme of a line is one of its elements");
                    *view::start::<i64>(indices).wrapping_add(place) = index as i64;
                    by_dtype!(values.dtype, E => {
                        *view::start::<E>(values).wrapping_add(value) = line[index].give();
                    });
                });
            }
        });
    });
}

/// Sums of 16-bit and 32-bit floats run in `f64`, as PyTorch's: a running sum has no tree to keep its error small.
///
/// # Safety
/// - As of [`super::execute`].
unsafe fn cum_sum(axis: usize, output: &View, input: &View, threads: Threads) {
    let layouts = [input, output].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let lines = [input, output].map(|operand| Line::new(operand, [axis]));
    if input.dtype.is_float() {
        by_compute!(output.dtype, A => for_each_range(threads, grid.count(), lines[0].count, |positions| {
            // SAFETY: the contract of this function.
            unsafe {
                for_each_line(&grid, positions, [&lines[0]], [&lines[1]], |_, [from]: [&[A]; 1], [to]| {
                    let mut sum = 0.0;
                    for (to, from) in to.iter_mut().zip(from) {
                        sum += from.f64();
                        *to = A::from_f64(sum);
                    }
                });
            }
        }));
        return;
    }
    for_each_range(threads, grid.count(), lines[0].count, |positions| {
        // SAFETY: the contract of this function.
        unsafe {
            for_each_line(&grid, positions, [&lines[0]], [&lines[1]], |_, [from]: [&[i64]; 1], [to]| {
                let mut sum = 0i64;
                for (to, from) in to.iter_mut().zip(from) {
                    sum = sum.wrapping_add(*from);
                    *to = sum;
                }
            });
        }
    });
}
