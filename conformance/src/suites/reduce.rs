//! Reductions over axes, running sums, maxima with their places.

use super::harness::{Answer, Drawing, FLOATS, Op, Run, everywhere, having, signed};
use crate::{
    Case,
    array::{Array, round},
    oracle::structured::{arg, extreme, groups, larger, near, reduce_floats, reduced_shape, sum},
    random::Random,
    report::Expected,
};
use raddle::{DType, Device, Error, Result, Scalar, Tensor, grad::Autograd};

/// Shapes with the axes that are reduced.
const CASES: [(&[usize], &[usize]); 16] = [
    (&[], &[]),
    (&[1], &[0]),
    (&[7], &[0]),
    (&[1023], &[0]),
    (&[3, 5], &[0]),
    (&[3, 5], &[1]),
    (&[3, 5], &[0, 1]),
    (&[65, 33], &[0]),
    (&[33, 65], &[1]),
    (&[2, 3, 4], &[1]),
    (&[2, 3, 4], &[0, 2]),
    (&[0, 3], &[1]),
    (&[2, 1, 3, 2, 1, 2], &[0, 3, 5]),
    (&[2, 1, 3, 2, 1, 2], &[2]),
    (&[2, 1, 2, 1, 3, 1, 2, 1], &[1, 4, 6]),
    (&[5, 130], &[0, 1]),
];
/// The same over no elements.
const EMPTY: [(&[usize], &[usize]); 3] = [(&[2, 0], &[1]), (&[0], &[0]), (&[2, 0, 3], &[0, 1])];

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = crate::cases!("reduce": std_and_norms, deviations_of_equal_and_of_extreme_numbers, largest_and_smallest, zeros_of_both_signs, means_of_equal_and_of_extreme_numbers, running_sum, argument_of_all, empty_axes_are_errors, axes_are_checked);
    for name in ["sum", "mean", "prod", "amax", "amin", "all", "any", "var", "norm"] {
        cases.push(Case::new("reduce", name, move |device| reduction(name, device)));
    }
    cases
}

/// Numbers with ties, zeros, and now and then a NaN.
fn drawn(dtype: DType, shape: &[usize], random: &mut Random, nan: bool) -> Array {
    Array::from_fn(dtype, shape, |_| match dtype {
        DType::Bool => Scalar::Bool(random.one_of(2)),
        DType::U8 => Scalar::Int(random.below(9) as i64),
        DType::I32 | DType::I64 => Scalar::Int(random.below(19) as i64 - 9),
        _ if nan && random.one_of(11) => Scalar::Float(f64::NAN),
        _ => Scalar::Float((random.float(-4.0, 4.0) * 8.0).round() / 8.0),
    })
}

fn result_dtype(name: &str, dtype: DType) -> DType {
    match name {
        "all" | "any" => DType::Bool,
        "sum" | "prod" if !dtype.is_float() => DType::I64,
        _ => dtype,
    }
}

/// The definition, for one element of the result.
fn reference(name: &str, dtype: DType, values: &[Scalar]) -> Expected {
    let not_zero = |value: &Scalar| value.to_f64() != 0.0;
    let exact = Expected::Exactly;
    match name {
        "all" => exact(Scalar::Bool(values.iter().all(not_zero))),
        "any" => exact(Scalar::Bool(values.iter().any(not_zero))),
        "amax" | "amin" => exact(extreme(values, name == "amax")),
        _ if !dtype.is_float() => {
            let fold = if name == "sum" { i64::wrapping_add } else { i64::wrapping_mul };
            exact(Scalar::Int(
                values.iter().map(|value| value.to_i64()).fold(i64::from(name == "prod"), fold),
            ))
        }
        _ => {
            let values: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
            let (value, magnitude) = reduce_floats(name, &values, 1.0);
            near(dtype, value, magnitude, 8.0)
        }
    }
}

fn call(name: &str, x: &Tensor, axes: &[isize], keepdim: bool) -> Result<Tensor> {
    match name {
        // No axis means all to the methods: these tests mean none, on a tensor that has none.
        "sum" => x.sum(axes, keepdim),
        "mean" => x.mean(axes, keepdim),
        "prod" => x.prod(axes, keepdim),
        "amax" => x.amax(axes, keepdim),
        "amin" => x.amin(axes, keepdim),
        "all" => x.all(axes, keepdim),
        "any" => x.any(axes, keepdim),
        "var" => x.var(axes, 1.0, keepdim),
        _ => x.norm(axes, keepdim),
    }
}

fn call_out(name: &str, x: &Tensor, axes: &[isize], keepdim: bool, out: &Tensor) -> Result<()> {
    match name {
        "sum" => x.sum_out(axes, keepdim, out),
        "mean" => x.mean_out(axes, keepdim, out),
        "prod" => x.prod_out(axes, keepdim, out),
        "amax" => x.amax_out(axes, keepdim, out),
        "amin" => x.amin_out(axes, keepdim, out),
        "all" => x.all_out(axes, keepdim, out),
        "any" => x.any_out(axes, keepdim, out),
        "var" => x.var_out(axes, 1.0, keepdim, out),
        _ => x.norm_out(axes, keepdim, out),
    }
}

fn reduction(name: &str, device: &Device) {
    let mut random = Random::named(name);
    let needs_elements = matches!(name, "amax" | "amin");
    let empty = if needs_elements { &[][..] } else { &EMPTY[..] };
    for dtype in having(device, DType::ALL) {
        if matches!(name, "mean" | "var" | "norm") && !dtype.is_float() {
            let x = Tensor::ones([2], dtype, device).unwrap();
            let error = call(name, &x, &[0], false).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("{name}: the tensor has the wrong dtype, expected a float, found {dtype}")
            );
            continue;
        }
        for (number, &(shape, axes)) in CASES.iter().chain(empty).enumerate() {
            reduction_of(name, dtype, shape, axes, number % 2 == 1, &mut random, &everywhere(device));
        }
    }
}

fn reduction_of(
    name: &str,
    dtype: DType,
    shape: &[usize],
    axes: &[usize],
    keepdim: bool,
    random: &mut Random,
    run: Run,
) {
    let mut x = drawn(dtype, shape, random, matches!(name, "amax" | "amin" | "all" | "any"));
    if name == "prod" && dtype.is_float() {
        // Products of many of the others leave f32 on the way.
        x = Array::from_fn(dtype, shape, |_| {
            let size = random.uniform(0.8, 1.25);
            if random.one_of(2) { size } else { -size }
        });
    }
    let axes_given = signed(axes);
    let oracle = |inputs: &[Array]| {
        let expected = groups(&inputs[0], axes).iter().map(|group| reference(name, dtype, group)).collect();
        let shape = reduced_shape(&inputs[0].shape, axes, keepdim);
        vec![Answer { dtype: result_dtype(name, dtype), shape, expected }]
    };
    let op = Op {
        what: &format!("{name} over {axes:?}, keepdim {keepdim}, of {dtype}"),
        oracle: &oracle,
        fresh: &|x| Ok(vec![call(name, x[0], &axes_given, keepdim)?]),
        into: Some(&|x, out| call_out(name, x[0], &axes_given, keepdim, out[0])),
    };
    run(&op, &[x]);
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let random = &mut *drawing.values.borrow_mut();
    let run: Run = &|op, inputs| drawing.run(op, inputs);
    let (mut shape, axis) = drawing.line();
    let keepdim = drawing.one_of(2);
    match name {
        "sum" | "mean" | "prod" | "all" | "any" | "var" | "norm" | "amax" | "amin" => {
            // Of empty axes there is no extreme. No axis means all to the methods.
            if name.starts_with("am") {
                shape.iter_mut().for_each(|size| *size = (*size).max(1));
            }
            let mut axes: Vec<usize> = (0..shape.len()).filter(|_| drawing.one_of(2)).collect();
            if axes.is_empty() {
                axes = vec![axis];
            }
            reduction_of(name, dtype, &shape, &axes, keepdim, random, run);
        }
        "std" => std_and_norm_of(dtype, &shape, axis, (drawing.below(3) as f64, 1.0), random, run),
        "argmax" | "argmin" if drawing.one_of(3) => {
            shape.iter_mut().for_each(|size| *size = (*size).max(1));
            argument_of_all_of(dtype, &shape, random, run);
        }
        "max" | "min" | "argmax" | "argmin" => {
            shape[axis] = shape[axis].max(1);
            extreme_of(dtype, &shape, axis, name.ends_with("max"), keepdim, random, run);
        }
        "cumsum" | "cumprod" | "logcumsumexp" => scan_of(name, dtype, &shape, axis, random, run),
        _ => return false,
    }
    true
}

fn std_and_norms(device: &Device) {
    let mut random = Random::named("std");
    for dtype in having(device, FLOATS) {
        for (correction, p) in [(0.0, 1.0), (1.0, 3.0), (2.0, f64::INFINITY), (3.0, 0.5)] {
            std_and_norm_of(dtype, &[9, 6], 0, (correction, p), &mut random, &everywhere(device));
        }
    }
}

fn std_and_norm_of(
    dtype: DType,
    shape: &[usize],
    axis: usize,
    (correction, p): (f64, f64),
    random: &mut Random,
    run: Run,
) {
    let x = drawn(dtype, shape, random, false);
    let oracle = |inputs: &[Array]| {
        let groups = groups(&inputs[0], &[axis]);
        let floats = |group: &Vec<Scalar>| group.iter().map(|value| value.to_f64()).collect::<Vec<_>>();
        let deviation = groups.iter().map(|group| {
            let (variance, magnitude) = reduce_floats("var", &floats(group), correction);
            let value = variance.sqrt();
            near(dtype, value, magnitude / value.max(1e-30), 8.0)
        });
        let norm = groups.iter().map(|group| {
            let sizes: Vec<f64> = floats(group).iter().map(|value| value.abs()).collect();
            let value = if p.is_infinite() {
                sizes.iter().copied().fold(0.0, larger)
            } else {
                sum(sizes.iter().map(|size| size.powf(p))).powf(1.0 / p)
            };
            // Composed of rounded steps.
            Expected::ulp(dtype, value, 16.0)
        });
        let shape = reduced_shape(shape, &[axis], false);
        let answer = |expected: Vec<Expected>| Answer { dtype, shape: shape.clone(), expected };
        vec![answer(deviation.collect()), answer(norm.collect())]
    };
    let axis = axis as isize;
    let op = Op {
        what: &format!("std with correction {correction} and {p}-norm along {axis} of {dtype}"),
        oracle: &oracle,
        fresh: &|x| Ok(vec![x[0].std(axis, correction, false)?, x[0].norm_p(p, axis, false)?]),
        into: Some(&|x, out| {
            x[0].std_out(axis, correction, false, out[0])?;
            out[1].copy_(&x[0].norm_p(p, axis, false)?).map(|_| ())
        }),
    };
    run(&op, &[x]);
}

fn largest_and_smallest(device: &Device) {
    let mut random = Random::named("max");
    let shapes: [(&[usize], usize); 8] = [
        (&[], 0),
        (&[1], 0),
        (&[37], 0),
        (&[5, 9], 0),
        (&[5, 9], 1),
        (&[0, 4], 1),
        (&[3, 2, 5], 1),
        (&[2, 1, 3, 2, 1, 2], 3),
    ];
    for dtype in having(device, DType::ALL) {
        for (number, (shape, axis)) in shapes.into_iter().enumerate() {
            for largest in [true, false] {
                let keepdim = number % 2 == 0;
                extreme_of(dtype, shape, axis, largest, keepdim, &mut random, &everywhere(device));
            }
        }
    }
}

fn extreme_of(
    dtype: DType,
    shape: &[usize],
    axis: usize,
    largest: bool,
    keepdim: bool,
    random: &mut Random,
    run: Run,
) {
    let x = drawn(dtype, shape, random, true);
    let axes: &[usize] = if shape.is_empty() { &[] } else { &[axis] };
    let oracle = |inputs: &[Array]| {
        let groups = groups(&inputs[0], axes);
        let shape = reduced_shape(&inputs[0].shape, axes, keepdim);
        let places: Vec<usize> = groups.iter().map(|group| arg(group, largest)).collect();
        let values = groups.iter().zip(&places).map(|(group, &at)| Expected::Exactly(group[at])).collect();
        let values = Answer { dtype, shape: shape.clone(), expected: values };
        let indices = || Answer::indices(&shape, places.clone());
        vec![values, indices(), indices()]
    };
    let axis = axis as isize;
    let fresh = |x: &[&Tensor]| {
        let (values, places) = if largest { x[0].max(axis, keepdim)? } else { x[0].min(axis, keepdim)? };
        let same = if largest { x[0].argmax(axis, keepdim)? } else { x[0].argmin(axis, keepdim)? };
        Ok(vec![values, places, same])
    };
    run(
        &Op {
            what: &format!("largest {largest} along {axis} of {dtype}"),
            oracle: &oracle,
            fresh: &fresh,
            into: Some(&|x, out| {
                out[2].copy_(
                    &(if largest { x[0].argmax(axis, keepdim)? } else { x[0].argmin(axis, keepdim)? }),
                )?;
                let out = (out[0], out[1]);
                if largest { x[0].max_out(axis, keepdim, out) } else { x[0].min_out(axis, keepdim, out) }
            }),
        },
        &[x],
    );
}

/// -0 is below 0, wherever they stand; where a place is asked for they are equal, and the first is meant.
fn zeros_of_both_signs(device: &Device) {
    let mut random = Random::named("zeros");
    for dtype in having(device, FLOATS) {
        for (shape, axis) in [([2, 3], 1), ([3, 40], 1), ([40, 9], 0), ([2, 1000], 1), ([20_001, 2], 0)] {
            // Some lines have zeros of one sign only.
            let x = Array::from_fn(dtype, &shape, |index| match index[1 - axis] {
                0 => {
                    if random.one_of(shape[axis]) {
                        0.0
                    } else {
                        -0.0
                    }
                }
                1 => {
                    if random.one_of(shape[axis]) {
                        -0.0
                    } else {
                        0.0
                    }
                }
                _ => {
                    if random.one_of(2) {
                        0.0
                    } else {
                        -0.0
                    }
                }
            });
            let oracle = |inputs: &[Array]| {
                let groups = groups(&inputs[0], &[axis]);
                let shape = vec![shape[1 - axis]];
                let of = |value: &dyn Fn(&[Scalar]) -> Scalar| {
                    let expected = groups.iter().map(|group| Expected::Exactly(value(group))).collect();
                    Answer { dtype, shape: shape.clone(), expected }
                };
                vec![
                    of(&|group| extreme(group, true)),
                    of(&|group| extreme(group, false)),
                    of(&|group| group[arg(group, true)]),
                    of(&|group| group[arg(group, false)]),
                ]
            };
            let axis = axis as isize;
            Op {
                what: &format!("the extremes of zeros of {dtype} along {axis}"),
                oracle: &oracle,
                fresh: &|x| {
                    let (amax, amin) = (x[0].amax(axis, false)?, x[0].amin(axis, false)?);
                    Ok(vec![amax, amin, x[0].max(axis, false)?.0, x[0].min(axis, false)?.0])
                },
                into: None,
            }
            .run(&[x], device);
        }
    }
}

fn argument_of_all(device: &Device) {
    let mut random = Random::named("argmax");
    for dtype in having(device, DType::ALL) {
        for shape in [&[][..], &[1], &[4, 7], &[2, 3, 2, 2, 1, 3]] {
            argument_of_all_of(dtype, shape, &mut random, &everywhere(device));
        }
    }
}

fn argument_of_all_of(dtype: DType, shape: &[usize], random: &mut Random, run: Run) {
    let x = drawn(dtype, shape, random, dtype == DType::F32);
    let oracle = |inputs: &[Array]| {
        let kept = vec![1; inputs[0].rank()];
        let place = |largest| arg(&inputs[0].data, largest);
        vec![Answer::indices(&[], [place(true)]), Answer::indices(&kept, [place(false)])]
    };
    run(
        &Op {
            what: &format!("argmax and argmin of all of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].argmax(.., false)?, x[0].argmin(.., true)?]),
            into: Some(&|x, out| {
                x[0].argmax_out(.., false, out[0])?;
                x[0].argmin_out(.., true, out[1])
            }),
        },
        &[x],
    );
}

fn running_sum(device: &Device) {
    let mut random = Random::named("cumsum");
    let shapes: [(&[usize], usize); 7] = [
        (&[], 0),
        (&[1], 0),
        (&[300], 0),
        (&[6, 5], 0),
        (&[6, 5], 1),
        (&[2, 0], 1),
        (&[2, 3, 2, 1, 2, 2], 1),
    ];
    for dtype in having(device, DType::ALL) {
        for (shape, axis) in shapes {
            for name in ["cumsum", "cumprod", "logcumsumexp"] {
                if name != "logcumsumexp" || dtype.is_float() {
                    scan_of(name, dtype, shape, axis, &mut random, &everywhere(device));
                }
            }
        }
    }
}

fn scan_of(name: &str, dtype: DType, shape: &[usize], axis: usize, random: &mut Random, run: Run) {
    let x = drawn(dtype, shape, random, false);
    let result = if dtype.is_float() { dtype } else { DType::I64 };
    let oracle = |inputs: &[Array]| {
        let x = &inputs[0];
        let at = |index: &Vec<usize>| {
            let last = index.get(axis).copied().unwrap_or(0);
            let values = (0..=last).map(|place| {
                let mut index = index.clone();
                if let Some(at) = index.get_mut(axis) {
                    *at = place;
                }
                x.at(&index)
            });
            if result == DType::I64 {
                let start = i64::from(name == "cumprod");
                let total = values.fold(start, |total, value| match name {
                    "cumprod" => total.wrapping_mul(value.to_i64()),
                    _ => total.wrapping_add(value.to_i64()),
                });
                return Expected::Exactly(round(result, Scalar::Int(total)));
            }
            let values: Vec<f64> = values.map(|value| value.to_f64()).collect();
            let (value, magnitude) = match name {
                "cumprod" => (values.iter().product::<f64>(), values.iter().product::<f64>().abs()),
                // In units of the largest.
                "logcumsumexp" => {
                    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let units = values.iter().map(|value| match most.is_infinite() && *value == most {
                        true => 1.0,
                        false => (value - most).exp(),
                    });
                    (most + units.sum::<f64>().ln(), most.abs() + 1.0)
                }
                _ => {
                    let magnitude = values.iter().map(|value| value.abs()).sum();
                    (sum(values), magnitude)
                }
            };
            near(dtype, value, magnitude, 16.0)
        };
        let expected = crate::array::indices(&x.shape).iter().map(at).collect();
        vec![Answer { dtype: result, shape: x.shape.clone(), expected }]
    };
    let axis = axis as isize;
    run(
        &Op {
            what: &format!("{name} along {axis} of {dtype}"),
            oracle: &oracle,
            fresh: &|x| {
                Ok(vec![match name {
                    "cumprod" => x[0].cumprod(axis)?,
                    "logcumsumexp" => x[0].logcumsumexp(axis)?,
                    _ => x[0].cumsum(axis)?,
                }])
            },
            into: Some(&|x, out| match name {
                "cumprod" => x[0].cumprod_out(axis, out[0]),
                "logcumsumexp" => x[0].logcumsumexp_out(axis, out[0]),
                _ => x[0].cumsum_out(axis, out[0]),
            }),
        },
        &[x],
    );
}

/// Equal numbers don't deviate, however their mean is rounded; and squares that `f32` doesn't hold have roots that it does.
/// Calls with rows of equal numbers, of which many sums are rounded.
fn equal_numbers(device: &Device, each: &dyn Fn(&Tensor, &str)) {
    for dtype in having(device, FLOATS) {
        for value in [1_000_000.1, 10_000.1, 0.1, 0.7, -1e-3] {
            for count in [2, 3, 7, 1000, 1001, 20_001] {
                if dtype != DType::F16 || value < 6e4 {
                    let x = Tensor::full([2, count], value, dtype, device).unwrap();
                    each(&x, &format!("{count} times {value} of {dtype}"));
                }
            }
        }
    }
}

fn means_of_equal_and_of_extreme_numbers(device: &Device) {
    equal_numbers(device, &|x, what| {
        let expected = Array::read(&x.narrow(1, 0, 1).unwrap()).data;
        for (x, axis) in [(x.clone(), 1), (x.t().unwrap().contiguous().unwrap(), 0)] {
            assert_eq!(Array::read(&x.mean(axis, false).unwrap()).data, expected, "{what}");
        }
        assert_eq!(Array::read(&x.mean(.., false).unwrap()).data, expected[..1], "{what}, all");
    });
    // Only the sum leaves f32.
    for (dtype, most) in [(DType::F16, 65_504.0), (DType::BF16, 3e38), (DType::F32, 3.4e38)] {
        let x = Tensor::full([4, 1000], most, dtype, device).unwrap();
        let signs = Tensor::from_slice(&[1.0f32, 1.0, 1.0, -1.0], [4, 1], device).unwrap().to(dtype).unwrap();
        let x = x.mul(&signs).unwrap();
        let most = Array::read(&x).data[0].to_f64();
        for (axes, expected) in [(&[1][..], [most, most, most, -most]), (&[0, 1], [most / 2.0; 4])] {
            let found = Array::read(&x.mean(axes, false).unwrap()).data;
            let near = |(found, expected): (&Scalar, &f64)| (found.to_f64() / expected - 1.0).abs() < 0.005;
            assert!(found.iter().zip(&expected).all(near), "{axes:?} of {dtype}: {found:?}");
        }
    }
    // There is no distance to what isn't finite.
    for (values, expected) in [
        ([f64::INFINITY, 1.0, 2.0], f64::INFINITY),
        ([1.0, f64::NEG_INFINITY, 2.0], f64::NEG_INFINITY),
        ([1.0, f64::NEG_INFINITY, f64::INFINITY], f64::NAN),
        ([1.0, f64::NAN, 2.0], f64::NAN),
        ([f64::MAX, f64::MAX, 0.0], f64::INFINITY),
    ] {
        let found = Tensor::from_slice(&values, [3], device).unwrap().mean(.., false).unwrap();
        let found = found.item::<f64>().unwrap();
        assert!(found == expected || (found.is_nan() && expected.is_nan()), "{values:?}: {found}");
    }
}

fn deviations_of_equal_and_of_extreme_numbers(device: &Device) {
    equal_numbers(device, &|x, what| {
        for (x, axis) in [(x.clone(), 1), (x.t().unwrap().contiguous().unwrap(), 0)] {
            for found in [x.var(axis, 1.0, false).unwrap(), x.std(axis, 1.0, false).unwrap()] {
                assert!(
                    Array::read(&found).data.iter().all(|found| found.to_f64() == 0.0),
                    "{what}: {found}"
                );
            }
        }
        // Nor has it a gradient then, however small.
        let leaf = x.detach();
        leaf.requires_grad_(true).unwrap();
        leaf.std(1, 1.0, false).unwrap().sum(.., false).unwrap().backward().unwrap();
        let found = Array::read(&leaf.grad().unwrap());
        assert!(found.data.iter().all(|found| found.to_f64() == 0.0), "{what}: a gradient");
    });
    for unit in [1e30f32, 1e-30] {
        let x = Tensor::from_slice(&[unit, -unit, 3.0 * unit, unit], [2, 2], device).unwrap();
        for (axis, expected) in [(1, [2f32.sqrt(), 2f32.sqrt()]), (0, [2f32.sqrt(), 2f32.sqrt()])] {
            let found = x.std(axis, 1.0, false).unwrap().to_vec::<f32>().unwrap();
            let near = |(found, expected): (&f32, f32)| (found / unit - expected).abs() < 1e-6;
            assert!(found.iter().zip(expected).all(near), "axis {axis}: {found:?}");
            let found = x.norm(axis, false).unwrap().to_vec::<f32>().unwrap();
            let expected = if axis == 1 { [2f32.sqrt(), 10f32.sqrt()] } else { [10f32.sqrt(), 2f32.sqrt()] };
            let near = |(found, expected): (&f32, f32)| (found / unit - expected).abs() < 1e-6;
            assert!(found.iter().zip(expected).all(near), "norm, axis {axis}: {found:?}");
        }
    }
}

fn empty_axes_are_errors(device: &Device) {
    let x = Tensor::zeros([2, 0], DType::F32, device).unwrap();
    let text = |error: Error| error.to_string();
    let tail = "axis 1 is empty, expected at least one element, shape is [2, 0]";
    assert_eq!(text(x.amax(1, false).unwrap_err()), format!("amax: {tail}"));
    assert_eq!(text(x.amin(.., false).unwrap_err()), format!("amin: {tail}"));
    assert_eq!(text(x.max(-1, false).unwrap_err()), format!("max: {tail}"));
    assert_eq!(text(x.argmin(1, true).unwrap_err()), format!("argmin: {tail}"));
    // Over the other axis there is nothing to do.
    assert_eq!(**x.amax(0, false).unwrap().shape(), [0]);
}

fn axes_are_checked(device: &Device) {
    let x = Tensor::zeros([2, 3], DType::F32, device).unwrap();
    let text = |result: Result<Tensor>| result.unwrap_err().to_string();
    assert_eq!(text(x.sum(2, false)), "sum: axis 2 is out of range, expected -2 to 1, rank is 2");
    assert_eq!(text(x.mean([0, -2], false)), "mean: axis 0 is named twice");
    assert_eq!(text(x.argmax([0, 1, 0], false)), "argmax: axis 0 is named twice");
    let out = Tensor::zeros([3], DType::F64, device).unwrap();
    let error = x.sum_out(0, false, &out).unwrap_err().to_string();
    assert_eq!(error, "sum: the output has the wrong dtype, expected f32, found f64");
    let out = Tensor::zeros([2], DType::F32, device).unwrap();
    let error = x.sum_out(0, false, &out).unwrap_err().to_string();
    assert_eq!(error, "sum: the output has the wrong shape, expected [3], found [2]");
    let inside = x.select(0, 0).unwrap();
    let error = x.sum_out(0, false, &inside).unwrap_err().to_string();
    assert_eq!(error, "sum: the output overlaps an input without being the same view, use copy() first");
}
