//! Softmax and layer normalization, forward and backward.

use super::harness::{Answer, Drawing, FLOATS, Op, Run, everywhere, having};
use crate::{
    Case,
    array::{Array, indices},
    oracle::structured::{near, sum},
    random::Random,
};
use raddle::{DType, Device, Tensor};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!("normalize": softmax, softmax_special, layer_norm, layer_norm_add, layer_norm_backward, many_rows, equal_numbers, rows_far_from_0, empty, errors)
}

/// The line of `x` along an axis through an index.
fn line(x: &Array, axis: usize, index: &[usize]) -> Vec<f64> {
    let mut index = index.to_vec();
    (0..x.shape.get(axis).copied().unwrap_or(1))
        .map(|place| {
            if let Some(at) = index.get_mut(axis) {
                *at = place;
            }
            x.f64(&index)
        })
        .collect()
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let random = &mut *drawing.values.borrow_mut();
    let run: Run = &|op, inputs| drawing.run(op, inputs);
    let (mut shape, axis) = drawing.line();
    match name {
        "softmax" | "log_softmax" => softmax_of(dtype, &shape, axis, name.starts_with("log"), random, run),
        "layer_norm" | "layer_norm_add" => {
            let axes = 1 + drawing.below(shape.len());
            // Nothing has no mean.
            let inner = shape.len() - axes;
            shape[inner..].iter_mut().for_each(|size| *size = (*size).max(1));
            if name == "layer_norm" {
                layer_norm_of(dtype, &shape, axes, random, run);
            } else {
                layer_norm_add_of(dtype, &shape, axes, random, run);
            }
        }
        _ => return false,
    }
    true
}

const SHAPES: [(&[usize], usize); 9] = [
    (&[], 0),
    (&[1], 0),
    (&[1000], 0),
    (&[4, 7], 1),
    (&[4, 7], 0),
    (&[17, 33], 1),
    (&[3, 0], 0),
    (&[2, 3, 5], 1),
    (&[2, 1, 3, 2, 1, 2], 2),
];

fn softmax(device: &Device) {
    let mut random = Random::named("softmax");
    for dtype in having(device, FLOATS) {
        for (shape, axis) in SHAPES {
            let gradient = Array::from_fn(dtype, shape, |_| random.uniform(-2.0, 2.0));
            for log in [false, true] {
                softmax_of(dtype, shape, axis, log, &mut random, &everywhere(device));
                // Backward, by the definition, from any y: it isn't checked to be a softmax.
                let oracle = |x: &[Array]| {
                    let expected = indices(shape)
                        .iter()
                        .map(|index| {
                            let (y, g) = (line(&x[0], axis, index), line(&x[1], axis, index));
                            let (own, gradient) = (x[0].f64(index), x[1].f64(index));
                            if log {
                                let total = sum(g.iter().copied());
                                let size =
                                    gradient.abs() + own.exp() * g.iter().map(|g| g.abs()).sum::<f64>();
                                near(dtype, gradient - own.exp() * total, size, 24.0)
                            } else {
                                let dot = sum(y.iter().zip(&g).map(|(y, g)| y * g));
                                let sizes = y.iter().zip(&g).map(|(y, g)| (y * g).abs()).sum::<f64>();
                                near(
                                    dtype,
                                    own * (gradient - dot),
                                    own.abs() * (gradient.abs() + sizes),
                                    16.0,
                                )
                            }
                        })
                        .collect();
                    vec![Answer { dtype, shape: shape.to_vec(), expected }]
                };
                let axis = axis as isize;
                let small = [Array::from_fn(dtype, shape, |_| random.uniform(-2.0, 0.0)), gradient.clone()];
                Op {
                    what: &format!("softmax_backward along {axis}, log {log}, of {dtype}"),
                    oracle: &oracle,
                    fresh: &|x| Ok(vec![x[0].softmax_backward(x[1], axis, log)?]),
                    into: None,
                }
                .run(&small, device);
            }
        }
    }
}

fn softmax_of(dtype: DType, shape: &[usize], axis: usize, log: bool, random: &mut Random, run: Run) {
    let inputs = [Array::from_fn(dtype, shape, |_| random.float(-6.0, 6.0))];
    let oracle = |x: &[Array]| {
        let expected = indices(shape)
            .iter()
            .map(|index| {
                let (values, own) = (line(&x[0], axis, index), x[0].f64(index));
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total = sum(values.iter().map(|value| (value - most).exp()));
                if log {
                    let value = own - most - total.ln();
                    near(dtype, value, value.abs() + (own - most).abs() + 1.0, 8.0)
                } else {
                    let value = (own - most).exp() / total;
                    near(dtype, value, value, 16.0 + 2.0 * (own - most).abs())
                }
            })
            .collect();
        vec![Answer { dtype, shape: shape.to_vec(), expected }]
    };
    let axis = axis as isize;
    run(
        &Op {
            what: &format!("softmax along {axis}, log {log}, of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![if log { x[0].log_softmax(axis)? } else { x[0].softmax(axis)? }]),
            into: Some(&|x, out| {
                if log { x[0].log_softmax_out(axis, out[0]) } else { x[0].softmax_out(axis, out[0]) }
            }),
        },
        &inputs,
    );
}

fn softmax_special(device: &Device) {
    let infinity = f32::INFINITY;
    let x = Tensor::from_slice(&[-infinity, -infinity, 0.0, -infinity, 1e4, -1e4], [3, 2], device).unwrap();
    let found = x.softmax(1).unwrap().to_vec::<f32>().unwrap();
    assert!(found[0].is_nan() && found[1].is_nan());
    assert_eq!(found[2..], [1.0, 0.0, 1.0, 0.0]);
    let found = x.log_softmax(1).unwrap().to_vec::<f32>().unwrap();
    assert!(found[0].is_nan());
    assert_eq!(found[2..], [0.0, -infinity, 0.0, -2e4]);
    let nan = Tensor::from_slice(&[f32::NAN, 1.0], [2], device).unwrap();
    assert!(nan.softmax(0).unwrap().to_vec::<f32>().unwrap().iter().all(|value| value.is_nan()));
}

const EPS: f64 = 1e-5;

/// Mean and 1 / √(variance + eps) of the last `axes` axes at an index.
fn statistics(x: &Array, axes: usize, index: &[usize]) -> (f64, f64) {
    let first = x.rank() - axes;
    let values: Vec<f64> =
        indices(&x.shape[first..]).iter().map(|inner| x.f64(&[&index[..first], inner].concat())).collect();
    let count = values.len() as f64;
    let mean = sum(values.iter().copied()) / count;
    let variance = sum(values.iter().map(|value| (value - mean) * (value - mean))) / count;
    (mean, 1.0 / (variance + EPS).sqrt())
}

const NORMS: [(&[usize], usize); 7] = [
    (&[5], 1),
    (&[3, 8], 1),
    (&[2, 129], 1),
    (&[2, 3, 4], 2),
    (&[2, 3, 4], 1),
    (&[0, 4], 1),
    (&[2, 1, 3, 2, 1, 5], 1),
];

fn layer_norm(device: &Device) {
    let mut random = Random::named("layer_norm");
    for dtype in having(device, FLOATS) {
        for (shape, axes) in NORMS {
            layer_norm_of(dtype, shape, axes, &mut random, &everywhere(device));
        }
    }
}

fn layer_norm_of(dtype: DType, shape: &[usize], axes: usize, random: &mut Random, run: Run) {
    let inner = &shape[shape.len() - axes..];
    let x = Array::from_fn(dtype, shape, |_| random.float(-2.0, 2.0));
    let mut draw = |shape: &[usize]| Array::from_fn(dtype, shape, |_| random.uniform(-2.0, 2.0));
    let inputs = [x, draw(inner), draw(inner)];
    let oracle = |x: &[Array]| {
        let element = |index: &Vec<usize>, affine: bool| {
            let (mean, rstd) = statistics(&x[0], axes, index);
            let inner = &index[shape.len() - axes..];
            let (weight, bias) = if affine { (x[1].f64(inner), x[2].f64(inner)) } else { (1.0, 0.0) };
            let normal = (x[0].f64(index) - mean) * rstd;
            // The difference to the mean loses what x and the mean lose.
            let size = (normal.abs() + 2.0 * rstd + rstd * rstd) * weight.abs() + bias.abs();
            near(dtype, normal * weight + bias, size, 12.0)
        };
        let answer = |affine: bool| Answer {
            dtype,
            shape: shape.to_vec(),
            expected: indices(shape).iter().map(|index| element(index, affine)).collect(),
        };
        vec![answer(true), answer(false)]
    };
    run(
        &Op {
            what: &format!("layer_norm over {axes} axes of {dtype}"),
            oracle: &oracle,
            fresh: &|x| {
                Ok(vec![
                    x[0].layer_norm(axes, Some(x[1]), Some(x[2]), EPS)?,
                    x[0].layer_norm(axes, None, None, EPS)?,
                ])
            },
            into: Some(&|x, out| {
                x[0].layer_norm_out(axes, Some(x[1]), Some(x[2]), EPS, out[0])?;
                x[0].layer_norm_out(axes, None, None, EPS, out[1])
            }),
        },
        &inputs,
    );
}

/// Short rows, which stay in registers, and one that doesn't. The sum of 16-bit floats isn't rounded before it is normalized.
fn layer_norm_add(device: &Device) {
    let mut random = Random::named("layer_norm_add");
    for dtype in having(device, FLOATS) {
        let long = (dtype == DType::F32).then_some((&[1, 20_000][..], 1));
        for (shape, axes) in NORMS.into_iter().chain(long) {
            layer_norm_add_of(dtype, shape, axes, &mut random, &everywhere(device));
        }
    }
}

fn layer_norm_add_of(dtype: DType, shape: &[usize], axes: usize, random: &mut Random, run: Run) {
    let inner = &shape[shape.len() - axes..];
    let mut draw = |shape: &[usize]| Array::from_fn(dtype, shape, |_| random.uniform(-2.0, 2.0));
    let inputs = [draw(shape), draw(shape), draw(inner), draw(inner)];
    let oracle = |x: &[Array]| {
        let sums = Array::from_fn(DType::F64, shape, |index| x[0].f64(index) + x[1].f64(index));
        let first = shape.len() - axes;
        let of_rows: Vec<(f64, f64)> =
            indices(&shape[..first]).iter().map(|outer| statistics(&sums, axes, outer)).collect();
        let count = inner.iter().product::<usize>().max(1);
        let element = |(at, index): (usize, &Vec<usize>), affine: bool| {
            let (mean, rstd) = of_rows[at / count];
            let inner = &index[first..];
            let (weight, bias) = if affine { (x[2].f64(inner), x[3].f64(inner)) } else { (1.0, 0.0) };
            let normal = (sums.f64(index) - mean) * rstd;
            let size = (normal.abs() + 4.0 * rstd + rstd * rstd) * weight.abs() + bias.abs();
            near(dtype, normal * weight + bias, size, 12.0)
        };
        let answer = |affine: bool| Answer {
            dtype,
            shape: shape.to_vec(),
            expected: indices(shape).iter().enumerate().map(|at| element(at, affine)).collect(),
        };
        vec![answer(true), answer(false)]
    };
    run(
        &Op {
            what: &format!("layer_norm_add over {axes} axes of {dtype}"),
            oracle: &oracle,
            fresh: &|x| {
                Ok(vec![
                    x[0].layer_norm_add(x[1], axes, Some(x[2]), Some(x[3]), EPS)?,
                    x[0].layer_norm_add(x[1], axes, None, None, EPS)?,
                ])
            },
            into: None,
        },
        &inputs,
    );
}

fn layer_norm_backward(device: &Device) {
    let mut random = Random::named("layer_norm_backward");
    // Of 16-bit floats the statistics are those of rounded inputs: the same formula holds.
    for dtype in having(device, FLOATS) {
        for (shape, axes) in NORMS {
            let first = shape.len() - axes;
            let inner = &shape[first..];
            let mut draw = |shape: &[usize]| Array::from_fn(dtype, shape, |_| random.uniform(-2.0, 2.0));
            let inputs = [draw(shape), draw(inner), draw(shape)];
            let oracle = |x: &[Array]| {
                let [input, weight, gradient] = x else { unreachable!("three inputs") };
                let outer = &shape[..first];
                let of_rows: Vec<(f64, f64)> =
                    indices(outer).iter().map(|outer| statistics(input, axes, outer)).collect();
                let normal = |index: &[usize]| {
                    let row = index.iter().zip(outer).fold(0, |row, (at, size)| row * size + at);
                    let (mean, rstd) = of_rows[row];
                    ((input.f64(index) - mean) * rstd, rstd)
                };
                let by_input = |index: &Vec<usize>| {
                    let row: Vec<Vec<usize>> =
                        indices(inner).iter().map(|inner| [&index[..first], inner].concat()).collect();
                    let scaled = |index: &[usize]| gradient.f64(index) * weight.f64(&index[first..]);
                    let count = row.len() as f64;
                    let mean = sum(row.iter().map(|index| scaled(index))) / count;
                    let dot = sum(row.iter().map(|index| scaled(index) * normal(index).0)) / count;
                    let (own, rstd) = normal(index);
                    let size = row
                        .iter()
                        .map(|index| scaled(index).abs() * (1.0 + normal(index).0.abs()))
                        .sum::<f64>();
                    let magnitude = (1.0 + own.abs()) * (1.0 + rstd) * (1.0 + rstd) * size;
                    near(dtype, rstd * (scaled(index) - mean - own * dot), magnitude, 12.0)
                };
                let over_rows = |inner: &Vec<usize>, normalized: bool| {
                    let terms: Vec<(f64, f64)> = indices(&shape[..first])
                        .iter()
                        .map(|outer| {
                            let index = [outer.as_slice(), inner].concat();
                            let (own, rstd) = if normalized { normal(&index) } else { (1.0, 1.0) };
                            let gradient = gradient.f64(&index);
                            (gradient * own, gradient.abs() * (own.abs() + rstd * rstd))
                        })
                        .collect();
                    let size = terms.iter().map(|term| term.1).sum();
                    near(dtype, sum(terms.iter().map(|term| term.0)), size, 16.0)
                };
                let answer = |shape: &[usize], expected| Answer { dtype, shape: shape.to_vec(), expected };
                vec![
                    answer(shape, indices(shape).iter().map(by_input).collect()),
                    answer(inner, indices(inner).iter().map(|at| over_rows(at, true)).collect()),
                    answer(inner, indices(inner).iter().map(|at| over_rows(at, false)).collect()),
                ]
            };
            Op {
                what: &format!("layer_norm_backward over {axes} axes of {dtype}"),
                oracle: &oracle,
                fresh: &|x| {
                    let (_, mean, rstd) = x[0].layer_norm_stats(axes, Some(x[1]), None, EPS)?;
                    let gradients = x[2].layer_norm_backward(x[0], (&mean, &rstd), axes, Some(x[1]), true)?;
                    let parameter = |gradient: Option<Tensor>| gradient.expect("it was asked for");
                    Ok(vec![gradients.input, parameter(gradients.weight), parameter(gradients.bias)])
                },
                into: None,
            }
            .run(&inputs, device);
        }
    }
}

/// More rows than a grid axis has, of few elements (B-05, the cheap variant).
fn many_rows(device: &Device) {
    let rows = 65_537;
    let row = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4], device).unwrap();
    let x = row.expand([rows, 4]).unwrap().contiguous().unwrap();
    let expected = [-1.341_635_4f32, -0.447_211_8, 0.447_211_8, 1.341_635_4];
    let out = Tensor::full([rows, 4], 7, DType::F32, device).unwrap();
    x.layer_norm_out(1, None, None, EPS, &out).unwrap();
    let found = out.to_vec::<f32>().unwrap();
    let near =
        |row: &[f32]| row.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= 1e-6);
    assert!(found.chunks(4).all(near));
    let sums = x.sum(1, false).unwrap().to_vec::<f32>().unwrap();
    assert!(sums.len() == rows && sums.iter().all(|&sum| sum == 10.0));
    let softmax = x.softmax(1).unwrap().to_vec::<f32>().unwrap();
    assert!(softmax.chunks(4).all(|row| row == &softmax[..4]));
}

/// Rows of equal numbers become 0 (or the bias), however their sum is rounded: of large ones that is more than eps.
fn equal_numbers(device: &Device) {
    for dtype in having(device, FLOATS) {
        let values: [f64; 4] = [1_000_000.1, 10_000.1, 0.1, -7.3e20];
        for value in values.into_iter().filter(|value| dtype != DType::F16 || value.abs() < 6e4) {
            for count in [3, 7, 100, 1000, 1001, 20_001] {
                let x = Tensor::full([2, count], value, dtype, device).unwrap();
                let bias = Tensor::full([count], 3, dtype, device).unwrap();
                let results = [
                    (x.layer_norm(1, None, None, EPS).unwrap(), 0.0),
                    (x.layer_norm(1, None, Some(&bias), EPS).unwrap(), 3.0),
                    (x.layer_norm_add(&x, 1, None, None, EPS).unwrap(), 0.0),
                ];
                for (found, expected) in results {
                    let good = Array::read(&found).data.iter().all(|found| found.to_f64() == expected);
                    assert!(good, "{count} times {value} of {dtype}: {found}");
                }
            }
        }
    }
}

/// The promise of the docs: what the rounding of the mean shifts a row by, and no more; 0 where squares overflow.
fn rows_far_from_0(device: &Device) {
    let mut random = Random::named("far");
    for (dtype, digits) in [(DType::F32, 24), (DType::F64, 53)] {
        for exponent in [0, 10, 20] {
            let far = 2f64.powi(exponent) * 1.7;
            for count in [5, 100, 3000] {
                let x = Array::from_fn(dtype, &[1, count], |_| far + random.uniform(-2.0, 2.0));
                let (mean, rstd) = statistics(&x, 1, &[0, 0]);
                let input: Vec<f64> = x.data.iter().map(|x| x.to_f64()).collect();
                let placed = Tensor::from_slice(&input, [1, count], device).unwrap().to(dtype).unwrap();
                let found = Array::read(&placed.layer_norm(1, None, None, EPS).unwrap()).data;
                let unit = 2f64.powi(mean.abs().log2().floor() as i32 + 1 - digits);
                for (x, found) in input.iter().zip(found) {
                    let expected = (x - mean) * rstd;
                    let tolerance = unit * rstd + 8.0 * 2f64.powi(-digits) * (1.0 + expected.abs());
                    let error = (found.to_f64() - expected).abs();
                    assert!(error <= tolerance, "{count} near {far} in {dtype}: {expected}, found {found}");
                }
            }
        }
    }
    for (dtype, size) in [(DType::BF16, 1e30), (DType::F32, 1e30), (DType::F64, 1e200)] {
        let x = Tensor::from_slice(&[size, -size], [1, 2], device).unwrap().to(dtype).unwrap();
        let found = Array::read(&x.layer_norm(1, None, None, EPS).unwrap()).data;
        assert!(found.iter().all(|found| found.to_f64() == 0.0), "{found:?}");
        let half = x.mul(if dtype == DType::F64 { 1e-60 } else { 1e-12 }).unwrap();
        let found = Array::read(&half.layer_norm(1, None, None, EPS).unwrap()).data;
        assert!(found.iter().all(|found| (found.to_f64().abs() - 1.0).abs() < 0.01), "{found:?}");
    }
}

fn empty(device: &Device) {
    let x = Tensor::zeros([0, 4], DType::F32, device).unwrap();
    assert_eq!(**x.layer_norm(1, None, None, EPS).unwrap().shape(), [0, 4]);
    assert_eq!(**x.softmax(0).unwrap().shape(), [0, 4]);
    assert_eq!(**x.log_softmax(1).unwrap().shape(), [0, 4]);
}

fn errors(device: &Device) {
    let x = Tensor::zeros([2, 3], DType::F32, device).unwrap();
    let text = |result: raddle::Result<Tensor>| result.unwrap_err().to_string();
    let weight = Tensor::zeros([2], DType::F32, device).unwrap();
    assert_eq!(
        text(x.layer_norm(1, Some(&weight), None, EPS)),
        "layer_norm: weight has the wrong shape, expected [3], found [2]"
    );
    assert_eq!(
        text(x.layer_norm(3, None, None, EPS)),
        "layer_norm: the number of axes is out of range, expected 1 to the rank of the input, found 3"
    );
    assert_eq!(text(x.softmax(2)), "softmax: axis 2 is out of range, expected -2 to 1, rank is 2");
    let integers = Tensor::zeros([2], DType::I64, device).unwrap();
    assert_eq!(
        text(integers.softmax(0)),
        "softmax: the tensor has the wrong dtype, expected a float, found i64"
    );
}
