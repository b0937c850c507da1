//! The structured ops from their definitions. Sums are taken in `f64` with a correction term, so that they are exact as
//! far as any tolerance is concerned.

use crate::{
    array::{Array, indices},
    report::{Expected, ulp_size},
};
use raddle::{DType, Scalar};
use std::cmp::Ordering;

/// Half of the distance from 1 to the next number of the dtype in which kernels compute.
pub fn epsilon(dtype: DType) -> f64 {
    if dtype.compute() == DType::F64 { f64::EPSILON / 2.0 } else { f64::from(f32::EPSILON) / 2.0 }
}

/// A result of floats: `factor` roundings of numbers of size `magnitude`, and the rounding to the dtype.
pub fn near(dtype: DType, value: f64, magnitude: f64, factor: f64) -> Expected {
    if !value.is_finite() {
        return Expected::Near { value, tolerance: 0.0 };
    }
    let tolerance = factor * epsilon(dtype) * magnitude + 0.51 * ulp_size(dtype, value);
    Expected::Near { value, tolerance }
}

/// Σ with what each addition has lost (Neumaier).
pub fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    if sum.is_finite() { sum + lost } else { sum }
}

/// The shape without the axes, or with size 1 there.
pub fn reduced_shape(shape: &[usize], axes: &[usize], keepdim: bool) -> Vec<usize> {
    let kept = |(axis, &size): (usize, &usize)| match (axes.contains(&axis), keepdim) {
        (false, _) => Some(size),
        (true, true) => Some(1),
        (true, false) => None,
    };
    shape.iter().enumerate().filter_map(kept).collect()
}

/// For each element of the result, in row-major order, the elements that are reduced to it, in row-major order.
pub fn groups(x: &Array, axes: &[usize]) -> Vec<Vec<Scalar>> {
    let outer = reduced_shape(&x.shape, axes, true);
    let inner: Vec<usize> =
        (0..x.rank()).map(|axis| if axes.contains(&axis) { x.shape[axis] } else { 1 }).collect();
    let inner = indices(&inner);
    indices(&outer)
        .iter()
        .map(|out| {
            let at =
                |index: &Vec<usize>| x.at(&out.iter().zip(index).map(|(a, b)| a + b).collect::<Vec<_>>());
            inner.iter().map(at).collect()
        })
        .collect()
}

/// NaN above all, then by size.
pub fn order(a: Scalar, b: Scalar) -> Ordering {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(&b).expect("neither is NaN"),
            (a, b) => a.cmp(&b),
        },
        _ => a.to_i64().cmp(&b.to_i64()),
    }
}

/// The larger; NaN if one is. -0 is below 0 (IEEE 754-2019, `maximum`).
pub fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_positive() { a } else { b }
    } else {
        a.max(b)
    }
}

/// The largest (smallest); of floats as [`larger`] has it.
pub fn extreme(values: &[Scalar], largest: bool) -> Scalar {
    let sign = if largest { 1.0 } else { -1.0 };
    let found = values[arg(values, largest)];
    match found {
        Scalar::Float(_) => Scalar::Float(
            sign * values.iter().map(|value| sign * value.to_f64()).fold(f64::NEG_INFINITY, larger),
        ),
        _ => found,
    }
}

/// Where the largest (smallest) stands: the first NaN, else the first of equals.
pub fn arg(values: &[Scalar], largest: bool) -> usize {
    let is_nan = |value: &Scalar| value.to_f64().is_nan();
    if let Some(at) = values.iter().position(is_nan) {
        return at;
    }
    let better =
        |a: Scalar, b: Scalar| order(a, b) == if largest { Ordering::Greater } else { Ordering::Less };
    (1..values.len()).fold(0, |best, at| if better(values[at], values[best]) { at } else { best })
}

/// The positions in order; stable.
pub fn sorted(values: &[Scalar], descending: bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by(|&a, &b| {
        let ordering = order(values[a], values[b]);
        if descending { ordering.reverse() } else { ordering }
    });
    places
}

/// What a reduction of floats makes of its elements: the value, and the size of what was added up.
pub fn reduce_floats(op: &str, values: &[f64], correction: f64) -> (f64, f64) {
    let count = values.len() as f64;
    let total = || sum(values.iter().copied());
    let size = || values.iter().map(|value| value.abs()).sum::<f64>();
    match op {
        "sum" => (total(), size()),
        "mean" => (total() / count, size() / count),
        "prod" => {
            let product: f64 = values.iter().product();
            (product, product.abs() * count)
        }
        "norm" => {
            let norm = sum(values.iter().map(|value| value * value)).sqrt();
            (norm, norm)
        }
        "var" => {
            let mean = total() / count;
            let squares = sum(values.iter().map(|value| (value - mean) * (value - mean)));
            let divisor = (count - correction).max(0.0);
            // Without elements above the correction: PyTorch's NaN, also as 0 · ∞.
            let variance = if values.is_empty() { f64::NAN } else { squares * (1.0 / divisor) };
            let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
            (variance, variance + largest * largest * epsilon(DType::F32))
        }
        _ => unreachable!("{op} isn't a reduction of floats"),
    }
}

/// What is multiplied for an element of `[m, k] × [k, n]`, of the two matrices that stand at an index of the batch.
fn factors(a: &Array, b: &Array, batch: &[usize], i: usize, j: usize) -> Vec<[Scalar; 2]> {
    let (k, n) = (a.shape[a.rank() - 1], b.shape[b.rank() - 1]);
    let start = |array: &Array, matrix: [usize; 2]| array.position(&[batch, &matrix].concat());
    let (row, column) = (start(a, [i, 0]), start(b, [0, j]));
    (0..k).map(|l| [a.data[row + l], b.data[column + l * n]]).collect()
}

/// An element of a product of floats, with the sum of sizes.
pub fn product(a: &Array, b: &Array, batch: &[usize], i: usize, j: usize) -> (f64, f64) {
    let terms: Vec<f64> = factors(a, b, batch, i, j).iter().map(|[a, b]| a.to_f64() * b.to_f64()).collect();
    (sum(terms.iter().copied()), terms.iter().map(|term| term.abs()).sum())
}

/// An element of a product of integers, modulo 2^64.
pub fn product_of_integers(a: &Array, b: &Array, batch: &[usize], i: usize, j: usize) -> i64 {
    let term = |[a, b]: &[Scalar; 2]| a.to_i64().wrapping_mul(b.to_i64());
    factors(a, b, batch, i, j).iter().map(term).fold(0, i64::wrapping_add)
}
