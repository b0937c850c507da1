//! The structured kernels against loops written from their definitions, in `f64`; any layout, dtype and number of
//! threads must give the bits of packed operands on one thread, and leave the guard bytes round outputs alone.

mod index;

use super::testing::{Rng, Scratch, Tensor, normalized, same};
use super::{execute, kept_bytes, scratch_bytes};
use crate::threads::Threads;
use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_hal::{Address, Kernel, KernelError, Operand, View};
use raddle_op::{Activation, ReduceOp, ScanOp};
use raddle_sync::faults::{Fault, assert_caught};

/// In the order in which they are drawn.
const FLOATS: &[DType] = &[DType::F32, DType::F64, DType::F16, DType::BF16];

fn dims(values: &[usize]) -> Dims {
    Dims::new(values).unwrap()
}

/// Half an ulp at 1 of what the dtype holds.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-53),
    }
}

/// What rounding costs near 0: f16 is coarser there than its epsilon says.
fn subnormal(dtype: DType) -> f64 {
    if dtype == DType::F16 { 2f64.powi(-25) } else { 0.0 }
}

/// A tensor of any layout with numbers of [-2, 2) (integers: small ones).
fn numbers(rng: &mut Rng, dtype: DType, shape: Dims) -> Tensor {
    let mut tensor = Tensor::random(rng, dtype, shape, true);
    tensor.write(|_| match dtype.is_float() {
        true => normalized(Scalar::Float((rng.bits() as i32 as f64) / 2f64.powi(30)), dtype),
        false => normalized(Scalar::Int(rng.below(7) as i64 - 3), dtype),
    });
    tensor
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.read().into_iter().map(Scalar::to_f64).collect()
}

/// Runs it on packed copies, and on the operands as they are, on one and on more threads. The outputs start as `before`
/// says. Returns what the packed outputs hold.
fn run(
    rng: &mut Rng,
    kernel: &Kernel,
    outputs: &[(DType, Dims)],
    before: impl Fn(usize, usize) -> Scalar,
    inputs: &[&Tensor],
) -> Result<Vec<Vec<Scalar>>, KernelError> {
    let once = |mut outs: Vec<Tensor>, ins: &[&Tensor], threads| {
        for (index, out) in outs.iter_mut().enumerate() {
            out.write(|element| before(index, element));
        }
        let mut operands: Vec<Operand> = outs.iter_mut().map(Tensor::output).collect();
        operands.extend(ins.iter().map(|input| input.input()));
        let mut scratch = Scratch::new(kernel, &operands, threads);
        operands.extend(scratch.operand());
        // SAFETY: the operands are alive, of the kernel's shapes, and this test's own.
        let result = unsafe { execute(kernel, &operands, Threads(threads)) };
        scratch.check();
        assert!(outs.iter().all(Tensor::guards_hold), "{kernel:?} wrote outside, {operands:?}");
        (result, outs.iter().map(Tensor::read).collect::<Vec<_>>(), operands)
    };
    let packed: Vec<Tensor> = inputs
        .iter()
        .map(|input| {
            let mut packed = Tensor::packed(input.view().dtype, *input.layout.shape());
            let values = input.read();
            packed.write(|index| values[index]);
            packed
        })
        .collect();
    let plain = outputs.iter().map(|&(dtype, shape)| Tensor::packed(dtype, shape)).collect();
    let (result, expected, _) = once(plain, &packed.iter().collect::<Vec<_>>(), 1);
    for threads in [1, 3] {
        let any = outputs.iter().map(|&(dtype, shape)| Tensor::random(rng, dtype, shape, false)).collect();
        let (other, found, operands) = once(any, inputs, threads);
        assert_eq!(result, other);
        for (expected, found) in expected.iter().zip(&found) {
            let differ = expected.iter().zip(found).position(|(a, b)| !same(*a, *b));
            assert_eq!(differ, None, "{kernel:?} on {threads} threads, {operands:?}: {expected:?} {found:?}");
        }
    }
    result.map(|()| expected)
}

fn zero(_: usize, _: usize) -> Scalar {
    Scalar::Int(0)
}

#[track_caller]
fn near(found: Scalar, expected: f64, tolerance: f64) {
    let found = found.to_f64();
    let tolerance = tolerance + 1e-30;
    let good =
        (found - expected).abs() <= tolerance || found == expected || (found.is_nan() && expected.is_nan());
    assert!(good, "found {found}, expected {expected} within {tolerance}");
}

/// For each position of the kept axes, the elements of a row-major array along the others, in order.
fn lines(shape: &Dims, along: impl Fn(usize) -> bool, values: &[f64]) -> Vec<Vec<f64>> {
    let mut kept = Layout::contiguous(*shape);
    for axis in 0..shape.len() {
        if along(axis) {
            kept = kept.narrow(axis as isize, 0, 1.min(shape[axis])).unwrap();
        }
    }
    let own: Dims = (0..shape.len()).map(|axis| if along(axis) { shape[axis] } else { 1 }).collect();
    let inner = Layout::new(own, *Layout::contiguous(*shape).strides(), 0);
    let starts: Vec<usize> =
        if kept.is_empty() && !(0..shape.len()).any(|axis| !along(axis) && shape[axis] == 0) {
            // Reduced axes are empty: as many empty lines as there are kept positions.
            vec![0; (0..shape.len()).filter(|&axis| !along(axis)).map(|axis| shape[axis]).product()]
        } else {
            kept.offsets().collect()
        };
    starts.into_iter().map(|start| inner.offsets().map(|offset| values[start + offset]).collect()).collect()
}

fn reduced(shape: &Dims, axes: u8) -> Dims {
    (0..shape.len()).map(|axis| if axes >> axis & 1 == 1 { 1 } else { shape[axis] }).collect()
}

#[test]
fn reductions_are_the_definition() {
    let mut rng = Rng(1);
    for round in 0..600 {
        let mut shape = rng.shape();
        if round % 20 == 0 {
            shape = dims(&[[3, 40_000], [40_000, 3], [300, 300], [33, 2000]][rng.below(4)]);
        }
        let axes = if rng.chance(20) { 0xff } else { rng.bits() as u8 } & ((1u16 << shape.len()) - 1) as u8;
        let dtype = rng.pick(DType::ALL);
        let op = match dtype.is_float() {
            true => rng.pick(&[
                ReduceOp::Sum,
                ReduceOp::Mean,
                ReduceOp::Prod,
                ReduceOp::Max,
                ReduceOp::Min,
                ReduceOp::All,
                ReduceOp::Any,
                ReduceOp::SquaredDeviations,
                ReduceOp::Deviation,
                ReduceOp::Norm2,
            ]),
            false => rng.pick(&[
                ReduceOp::Sum,
                ReduceOp::Prod,
                ReduceOp::Max,
                ReduceOp::Min,
                ReduceOp::All,
                ReduceOp::Any,
            ]),
        };
        let input = numbers(&mut rng, dtype, shape);
        let lines = lines(&shape, |axis| axes >> axis & 1 == 1, &floats(&input));
        let empty = lines.iter().any(Vec::is_empty);
        if empty && matches!(op, ReduceOp::Max | ReduceOp::Min) {
            continue;
        }
        let out = match op {
            ReduceOp::All | ReduceOp::Any => DType::Bool,
            ReduceOp::Sum | ReduceOp::Prod if !dtype.is_float() => DType::I64,
            _ => dtype,
        };
        let divisor = match op {
            ReduceOp::Sum if dtype.is_float() => 3.0,
            ReduceOp::Mean => lines.first().map_or(1, |line| line.len().max(1)) as f64,
            _ => 1.0,
        };
        let kernel = Kernel::Reduce { op, axes, divisor };
        let found = run(&mut rng, &kernel, &[(out, reduced(&shape, axes))], zero, &[&input]).unwrap();
        assert_eq!(found[0].len(), lines.len(), "{shape:?} {axes:b}");
        for (line, found) in lines.iter().zip(&found[0]) {
            let sum: f64 = line.iter().sum();
            let size: f64 = line.iter().map(|x| x.abs()).sum();
            let mean = sum / line.len().max(1) as f64;
            let deviations: f64 = line.iter().map(|x| (x - mean).powi(2)).sum();
            let squares = line.iter().map(|x| x * x).sum::<f64>().sqrt();
            // The naive sums of this oracle have an error, too.
            let compute = epsilon(dtype.compute()) + line.len() as f64 * epsilon(DType::F64) / 16.0;
            let (expected, slack) = match op {
                ReduceOp::Sum => (sum / divisor, 12.0 * compute * size),
                ReduceOp::Mean => (mean, 12.0 * compute * size / divisor),
                ReduceOp::Prod if !dtype.is_float() => {
                    (line.iter().fold(1i64, |product, x| product.wrapping_mul(*x as i64)) as f64, 0.0)
                }
                ReduceOp::Prod => {
                    let product = line.iter().product::<f64>();
                    (product, compute * product.abs() * (line.len() as f64 + 2.0) + 1e-36)
                }
                ReduceOp::Max => (line.iter().copied().fold(f64::NEG_INFINITY, f64::max), 0.0),
                ReduceOp::Min => (line.iter().copied().fold(f64::INFINITY, f64::min), 0.0),
                ReduceOp::All => (f64::from(u8::from(line.iter().all(|&x| x != 0.0))), 0.0),
                ReduceOp::Any => (f64::from(u8::from(line.iter().any(|&x| x != 0.0))), 0.0),
                ReduceOp::SquaredDeviations => (deviations, 30.0 * compute * (deviations + compute * size)),
                ReduceOp::Deviation => {
                    let slack = 30.0 * compute * (deviations + compute * size);
                    (deviations.sqrt(), slack.sqrt().min(slack / deviations.sqrt().max(1e-300)))
                }
                ReduceOp::Norm2 => (squares, 12.0 * compute * squares),
            };
            // Squares leave the range of `f16`.
            let expected =
                if out == DType::F16 && expected.abs() > 65_519.0 { f64::INFINITY } else { expected };
            near(
                *found,
                expected,
                slack
                    + subnormal(out)
                    + 2.0 * epsilon(out) * expected.abs() * f64::from(u8::from(slack > 0.0)),
            );
        }
    }
}

#[test]
fn fault_strided_as_packed() {
    for test in ["reductions_are_the_definition", "softmax_and_its_derivative_are_the_definition"] {
        assert_caught(Fault::strided_as_packed, &format!("kernels::structured_tests::{test}"));
    }
}

fn filled(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    let mut tensor = Tensor::packed(dtype, dims(shape));
    tensor.write(|index| Scalar::Float(values[index]));
    tensor
}

#[test]
fn reductions_know_the_special_numbers() {
    let mut rng = Rng(2);
    let nan = f64::NAN;
    let mut one = |op, values: &[f64]| {
        let input = filled(DType::F32, &[values.len()], values);
        let kernel = Kernel::Reduce { op, axes: 1, divisor: 1.0 };
        run(&mut rng, &kernel, &[(DType::F32, dims(&[1]))], zero, &[&input]).unwrap()[0][0].to_f64()
    };
    let mut long = vec![1.0; 700];
    long[401] = nan;
    assert!(one(ReduceOp::Max, &long).is_nan() && one(ReduceOp::Min, &long).is_nan());
    assert_eq!(one(ReduceOp::Max, &[f64::NEG_INFINITY; 5]), f64::NEG_INFINITY);
    assert_eq!(one(ReduceOp::Sum, &[]).to_bits(), 0f64.to_bits());
    assert_eq!(one(ReduceOp::Sum, &[-0.0, -0.0]).to_bits(), 0f64.to_bits());
    assert_eq!(one(ReduceOp::Prod, &[]), 1.0);
    assert!(one(ReduceOp::Sum, &[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    // A shifted variance: Σx² − (Σx)² / n would give rubbish.
    let shifted: Vec<f64> = (0..1000).map(|i| 8192.0 + f64::from(i % 2)).collect();
    assert_eq!(one(ReduceOp::SquaredDeviations, &shifted), 250.0);
    assert_eq!(one(ReduceOp::Deviation, &shifted), 250f64.sqrt() as f32 as f64);
    // Naive summation of f32 stops growing at 2^24.
    assert_eq!(one(ReduceOp::Sum, &vec![1.0; (1 << 24) + 4]), f64::from((1 << 24) + 4));
}

#[test]
fn the_first_extreme_is_found() {
    let mut rng = Rng(3);
    for _ in 0..300 {
        let shape = rng.shape();
        if shape.is_empty() || shape.contains(&0) {
            continue;
        }
        let (axis, largest) = (rng.below(shape.len()), rng.chance(50));
        let dtype =
            rng.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8]);
        let mut input = numbers(&mut rng, dtype, shape);
        if rng.chance(40) {
            input.write(|_| {
                if rng.chance(3) {
                    normalized(Scalar::Float(f64::NAN), dtype)
                } else {
                    Scalar::Int(rng.below(4) as i64)
                }
            });
        }
        let lines = lines(&shape, |other| other == axis, &floats(&input));
        let out = reduced(&shape, 1 << axis);
        let kernel = Kernel::ArgReduce { largest, axis };
        let found = run(&mut rng, &kernel, &[(dtype, out), (DType::I64, out)], zero, &[&input]).unwrap();
        for (line, (value, index)) in lines.iter().zip(found[0].iter().zip(&found[1])) {
            let better = |a: f64, b: f64| if largest { a > b } else { a < b };
            let best = (0..line.len()).fold(0, |best, i| {
                if line[best].is_nan() || !(better(line[i], line[best]) || line[i].is_nan()) {
                    best
                } else {
                    i
                }
            });
            assert_eq!(index.to_i64(), best as i64);
            assert!(same(*value, Scalar::Float(line[best])) || value.to_f64() == line[best]);
        }
    }
}

#[test]
fn running_sums_run() {
    let mut rng = Rng(4);
    for _ in 0..200 {
        let shape = rng.shape();
        if shape.is_empty() {
            continue;
        }
        let axis = rng.below(shape.len());
        let dtype = rng.pick(DType::ALL);
        let out = if dtype.is_float() { dtype } else { DType::I64 };
        let input = numbers(&mut rng, dtype, shape);
        let op = [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min, ScanOp::LogSumExp][rng.below(5)];
        let (op, fold): (_, fn(f64, f64) -> f64) = match op {
            // Of few axes products end in the range of f32; of 16 bits and integers they don't.
            ScanOp::Prod if matches!(dtype, DType::F32 | DType::F64) => (op, |a, b| a * b),
            ScanOp::Max => (op, f64::max),
            ScanOp::Min => (op, f64::min),
            ScanOp::LogSumExp if dtype.is_float() => (op, |a, b| (a.exp() + b.exp()).ln()),
            _ => (ScanOp::Sum, |a, b| a + b),
        };
        let kernel = Kernel::Scan { op, axis };
        let found = run(&mut rng, &kernel, &[(out, shape)], zero, &[&input]).unwrap();
        let sources = lines(&shape, |other| other == axis, &floats(&input));
        let results: Vec<f64> = found[0].iter().map(|x| x.to_f64()).collect();
        for (from, to) in sources.iter().zip(lines(&shape, |other| other == axis, &results)) {
            let mut sum = None;
            for (from, to) in from.iter().zip(to) {
                sum = Some(sum.map_or(*from, |sum| fold(sum, *from)));
                let sum: f64 = sum.unwrap();
                near(Scalar::Float(to), sum, 1.01 * epsilon(out) * sum.abs() + subnormal(out) + 1e-12);
            }
        }
    }
}

#[test]
fn softmax_and_its_derivative_are_the_definition() {
    let mut rng = Rng(5);
    for _ in 0..200 {
        let shape = rng.shape();
        if shape.is_empty() {
            continue;
        }
        let (axis, log) = (rng.below(shape.len()), rng.chance(50));
        let dtype = rng.pick(FLOATS);
        let (x, dy) = (numbers(&mut rng, dtype, shape), numbers(&mut rng, dtype, shape));
        let kernel = Kernel::Softmax { axis, log };
        let y = run(&mut rng, &kernel, &[(dtype, shape)], zero, &[&x]).unwrap().remove(0);
        let mut y_tensor = Tensor::random(&mut rng, dtype, shape, false);
        y_tensor.write(|index| y[index]);
        let kernel = Kernel::SoftmaxBackward { axis, log };
        let dx = run(&mut rng, &kernel, &[(dtype, shape)], zero, &[&y_tensor, &dy]).unwrap().remove(0);
        let along = |values: &[f64]| lines(&shape, |other| other == axis, values);
        let plain = |values: &[Scalar]| along(&values.iter().map(|v| v.to_f64()).collect::<Vec<_>>());
        let (xs, ys, dys, dxs) = (along(&floats(&x)), plain(&y), along(&floats(&dy)), plain(&dx));
        for i in 0..xs.len() {
            let total: f64 = xs[i].iter().map(|x| x.exp()).sum();
            let inner: f64 = ys[i].iter().zip(&dys[i]).map(|(y, dy)| if log { *dy } else { y * dy }).sum();
            let size: f64 = dys[i].iter().map(|dy| dy.abs()).sum();
            // The naive sum of this oracle has an error, too.
            let compute = 16.0 * epsilon(dtype.compute()) + xs[i].len() as f64 * epsilon(DType::F64);
            for j in 0..xs[i].len() {
                let expected = if log { xs[i][j] - total.ln() } else { xs[i][j].exp() / total };
                near(
                    Scalar::Float(ys[i][j]),
                    expected,
                    subnormal(dtype)
                        + (compute + epsilon(dtype)) * expected.abs()
                        + compute * 10.0 * f64::from(u8::from(log)),
                );
                let (y, dy) = (ys[i][j], dys[i][j]);
                let expected = if log { dy - y.exp() * inner } else { y * (dy - inner) };
                near(
                    Scalar::Float(dxs[i][j]),
                    expected,
                    1.1 * epsilon(dtype) * expected.abs() + compute * (1.0 + size) + subnormal(dtype),
                );
            }
        }
    }
}

#[test]
fn softmax_knows_the_special_numbers() {
    let mut rng = Rng(6);
    let mut one = |values: &[f64], log| {
        let input = filled(DType::F32, &[values.len()], values);
        let kernel = Kernel::Softmax { axis: 0, log };
        let found = run(&mut rng, &kernel, &[(DType::F32, dims(&[values.len()]))], zero, &[&input]).unwrap();
        found[0].iter().map(|x| x.to_f64()).collect::<Vec<_>>()
    };
    let low = f64::NEG_INFINITY;
    assert!(one(&[low; 3], false).iter().all(|x| x.is_nan()));
    assert_eq!(one(&[low, 0.0, 0.0], false), [0.0, 0.5, 0.5]);
    assert_eq!(one(&[3e38, -3e38], false), [1.0, 0.0]);
    assert_eq!(one(&[1000.0, 0.0], true), [0.0, -1000.0]);
    assert!(one(&[1.0, f64::NAN], false).iter().all(|x| x.is_nan()));
}

#[test]
fn attention_has_the_same_bits_in_any_layout_on_any_number_of_threads() {
    let mut rng = Rng(21);
    for round in 0..60 {
        let dtype = rng.pick(FLOATS);
        let [b, h, n, m, d, dv] = [3, 4, 70, 90, 40, 40].map(|most| 1 + rng.below(most));
        let sides = [[n, d], [m, d], [m, dv]].map(|[rows, width]| [b, h, rows, width]);
        let sides = sides.map(|shape| numbers(&mut rng, dtype, dims(&shape)));
        let mask = match round % 3 {
            0 => None,
            1 => Some(numbers(&mut rng, DType::Bool, dims(&[b, h, n, m]))),
            _ => Some(numbers(&mut rng, dtype, dims(&[b, h, n, m]))),
        };
        let kernel = Kernel::Attention { scale: 0.3, causal: rng.chance(40), mask: mask.is_some() };
        let inputs: Vec<&Tensor> = sides.iter().chain(&mask).collect();
        let found = run(&mut rng, &kernel, &[(dtype, dims(&[b, h, n, dv]))], zero, &inputs).unwrap();
        // A mean is no larger than the largest.
        let most = floats(&sides[2]).into_iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert!(found[0].iter().all(|x| x.to_f64().abs() <= most * 1.01), "{kernel:?}");
    }
}

#[test]
fn layer_norm_and_its_derivative_are_the_definition() {
    let mut rng = Rng(7);
    for round in 0..150 {
        let mut shape = rng.shape();
        if round % 10 == 0 {
            shape = dims(&[[4000, 5], [100, 300], [70, 64]][rng.below(3)]);
        }
        if shape.is_empty() {
            continue;
        }
        let axes = 1 + rng.below(shape.len());
        let split = shape.len() - axes;
        let (has_weight, has_bias) = (rng.chance(70), rng.chance(70));
        let dtype = rng.pick(FLOATS);
        let inner = dims(&shape[split..]);
        let outer: Dims = (0..shape.len()).map(|axis| if axis < split { shape[axis] } else { 1 }).collect();
        let (x, dy) = (numbers(&mut rng, dtype, shape), numbers(&mut rng, dtype, shape));
        let (weight, bias) = (numbers(&mut rng, dtype, inner), numbers(&mut rng, dtype, inner));
        let mut inputs = vec![&x];
        inputs.extend(has_weight.then_some(&weight));
        inputs.extend(has_bias.then_some(&bias));
        let compute = dtype.compute();
        let outputs = [(dtype, shape), (compute, outer), (compute, outer)];
        let kernel = Kernel::LayerNorm { axes, eps: 1e-5, weight: has_weight, bias: has_bias, addend: false };
        let found = run(&mut rng, &kernel, &outputs, zero, &inputs).unwrap();
        let mut row = |values: &[Scalar]| {
            let mut tensor = Tensor::random(&mut rng, compute, outer, false);
            tensor.write(|index| values[index]);
            tensor
        };
        let (mean, rstd) = (row(&found[1]), row(&found[2]));
        let mut inputs = vec![&dy, &x, &mean, &rstd];
        inputs.extend(has_weight.then_some(&weight));
        let mut outputs = vec![(dtype, shape)];
        outputs.extend(has_weight.then_some((dtype, inner)));
        outputs.extend(has_bias.then_some((dtype, inner)));
        let kernel = Kernel::LayerNormBackward { axes, weight: has_weight, bias: has_bias };
        let gradients = run(&mut rng, &kernel, &outputs, zero, &inputs).unwrap();

        let n = inner.product();
        let (xs, dys) = (floats(&x), floats(&dy));
        let w = if has_weight { floats(&weight) } else { vec![1.0; n] };
        let b = if has_bias { floats(&bias) } else { vec![0.0; n] };
        let (mut dweight, mut dbias, mut sizes) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let small = epsilon(compute);
        for i in 0..outer.product() * usize::from(n > 0) {
            let (x, dy) = (&xs[i * n..][..n], &dys[i * n..][..n]);
            let mean = x.iter().sum::<f64>() / n as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            let rstd = 1.0 / (variance + 1e-5).sqrt();
            near(found[1][i], mean, 20.0 * small);
            near(found[2][i], rstd, (40.0 + 40.0 * rstd * rstd * rstd) * small * rstd);
            let shape: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
            let g: Vec<f64> = (0..n).map(|j| dy[j] * w[j]).collect();
            let a = g.iter().sum::<f64>() / n as f64;
            let c = g.iter().zip(&shape).map(|(g, s)| g * s).sum::<f64>() / n as f64;
            let slack = 100.0 * small * rstd * (1.0 + rstd) * (1.0 + rstd * rstd);
            for j in 0..n {
                let expected = shape[j] * w[j] + b[j];
                near(
                    found[0][i * n + j],
                    expected,
                    subnormal(dtype) + epsilon(dtype) * 1.1 * expected.abs() + slack,
                );
                let expected = rstd * (g[j] - a - shape[j] * c);
                near(
                    gradients[0][i * n + j],
                    expected,
                    subnormal(dtype) + epsilon(dtype) * 1.1 * expected.abs() + slack * rstd,
                );
                dweight[j] += dy[j] * shape[j];
                dbias[j] += dy[j];
                sizes[j] += slack + 100.0 * small;
            }
        }
        let mut next = 1;
        for (wanted, expected) in [(has_weight, &dweight), (has_bias, &dbias)] {
            if wanted {
                for j in 0..n {
                    near(
                        gradients[next][j],
                        expected[j],
                        subnormal(dtype) + epsilon(dtype) * 1.1 * expected[j].abs() + sizes[j],
                    );
                }
                next += 1;
            }
        }
    }
}

#[test]
fn many_short_rows_are_normalized() {
    // One row past what a grid of 2^16 rows would cover.
    let rows = (1 << 16) + 1;
    let mut x = Tensor::packed(DType::F32, dims(&[rows, 4]));
    x.write(|index| Scalar::Int(index as i64 % 4 + 1));
    let mut outs =
        [dims(&[rows, 4]), dims(&[rows, 1]), dims(&[rows, 1])].map(|shape| Tensor::packed(DType::F32, shape));
    let mut operands: Vec<Operand> = outs.iter_mut().map(Tensor::output).collect();
    operands.push(x.input());
    let kernel = Kernel::LayerNorm { axes: 1, eps: 1e-5, weight: false, bias: false, addend: false };
    // SAFETY: the operands are alive, of the kernel's shapes, and this test's own.
    unsafe { execute(&kernel, &operands, Threads(2)).unwrap() };
    for (index, value) in outs[0].read().into_iter().enumerate() {
        near(value, [-1.341_635_4, -0.447_211_8, 0.447_211_8, 1.341_635_4][index % 4], 1e-6);
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))
}

#[test]
fn products_are_the_definition() {
    let mut rng = Rng(8);
    for round in 0..400 {
        let size = |rng: &mut Rng| rng.pick(&[0, 1, 1, 2, 3, 5, 8, 9, 17, 31, 32, 33, 64, 70]);
        let (b, m, n) = (rng.pick(&[1, 1, 1, 2, 5]), size(&mut rng), size(&mut rng));
        let k = if round % 8 == 0 { rng.pick(&[511, 513, 1025, 1500]) } else { size(&mut rng) };
        let dtype = rng.pick(FLOATS);
        let (bias, accumulate) = (rng.chance(40), rng.chance(30));
        let activation = rng.pick(&[Activation::None, Activation::None, Activation::Relu, Activation::Gelu]);
        let (alpha, beta) = if rng.chance(50) { (1.0, 1.0) } else { (0.5, -2.0) };
        let lhs = numbers(&mut rng, dtype, dims(&[b, m, k]));
        let rhs = numbers(&mut rng, dtype, dims(&[b, k, n]));
        let (bias_tensor, addend) =
            (numbers(&mut rng, dtype, dims(&[b, m, n])), numbers(&mut rng, dtype, dims(&[b, m, n])));
        let mut inputs = vec![&lhs, &rhs];
        inputs.extend(bias.then_some(&bias_tensor));
        inputs.extend(accumulate.then_some(&addend));
        let kernel = Kernel::MatMul { alpha, beta, bias, accumulate, activation };
        let found = run(&mut rng, &kernel, &[(dtype, dims(&[b, m, n]))], zero, &inputs).unwrap();
        let (l, r, s, c) = (floats(&lhs), floats(&rhs), floats(&bias_tensor), floats(&addend));
        for (index, found) in found[0].iter().enumerate() {
            let (batch, i, j) = (index / (m * n), index / n % m, index % n);
            let mut sum = if bias { s[index] } else { 0.0 };
            let mut size = sum.abs() + 1e-30;
            for p in 0..k {
                let product = alpha * l[(batch * m + i) * k + p] * r[(batch * k + p) * n + j];
                sum += product;
                size += product.abs();
            }
            let mut expected = match activation {
                Activation::None => sum,
                Activation::Relu => sum.max(0.0),
                Activation::Gelu => gelu(sum),
            };
            if accumulate {
                expected += beta * c[index];
                size += 2.0 * c[index].abs();
            }
            let small = epsilon(dtype.compute()) * (k as f64).min(520.0).sqrt() * 4.0
                + 8.0 * epsilon(dtype.compute());
            near(*found, expected, small * size + subnormal(dtype) + 1.1 * epsilon(dtype) * expected.abs());
        }
    }
}

/// The product of packed matrices; `weight`: the right one is given as [n, k], seen transposed.
fn product(a: &[f32], b: &[f32], (m, k, n): (usize, usize, usize), weight: bool, threads: usize) -> Vec<u32> {
    let mut lhs = Tensor::packed(DType::F32, dims(&[1, m, k]));
    lhs.write(|index| Scalar::Float(a[index].into()));
    let layout = if weight {
        Layout::new(dims(&[1, k, n]), dims(&[0, 1, k]), 0)
    } else {
        Layout::contiguous(dims(&[1, k, n]))
    };
    let mut rhs = Tensor::new(DType::F32, layout);
    rhs.write(|index| Scalar::Float(b[index].into()));
    let mut out = Tensor::packed(DType::F32, dims(&[1, m, n]));
    let operands = [out.output(), lhs.input(), rhs.input()];
    let kernel = Kernel::MatMul {
        alpha: 1.0,
        beta: 0.0,
        bias: false,
        accumulate: false,
        activation: Activation::None,
    };
    // SAFETY: the operands are alive, of the kernel's shapes, and this test's own.
    unsafe { execute(&kernel, &operands, Threads(threads)).unwrap() };
    out.read().into_iter().map(|x| (x.to_f64() as f32).to_bits()).collect()
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let mut rng = Rng(9);
    for (k, n) in [(1536, 384), (384, 200), (700, 33), (64, 64), (3, 50), (2, 50), (130, 1), (513, 7)] {
        let mut number = || (rng.bits() as i32 as f32) / 2f32.powi(30);
        let a: Vec<f32> = (0..64 * k).map(|_| number()).collect();
        let b: Vec<f32> = (0..k * n).map(|_| number()).collect();
        let whole = product(&a, &b, (64, k, n), false, 1);
        for m in (1..=20).chain([31, 63, 64]) {
            for (weight, threads) in [(false, 1), (true, 1), (false, 2), (true, 3), (true, 7)] {
                let found = product(&a[..m * k], &b, (m, k, n), weight, threads);
                let differ = found.iter().zip(&whole).position(|(a, b)| a != b);
                assert_eq!(differ, None, "{m} × {k} × {n}, weight {weight}, {threads} threads");
            }
        }
        // A column, too.
        let column: Vec<f32> = (0..k).map(|p| b[p * n + n / 2]).collect();
        let found = product(&a, &column, (64, k, 1), false, 1);
        assert!((0..64).all(|i| found[i] == whole[i * n + n / 2]), "a column of {k} × {n}");
    }
}

#[test]
fn an_addend_may_be_the_output() {
    let mut rng = Rng(10);
    let shape = dims(&[2, 9, 33]);
    for &dtype in FLOATS {
        let (a, b) =
            (numbers(&mut rng, dtype, dims(&[2, 9, 20])), numbers(&mut rng, dtype, dims(&[2, 20, 33])));
        let c = numbers(&mut rng, dtype, shape);
        let kernel = Kernel::MatMul {
            alpha: 1.0,
            beta: 0.5,
            bias: false,
            accumulate: true,
            activation: Activation::None,
        };
        let expected = run(&mut rng, &kernel, &[(dtype, shape)], zero, &[&a, &b, &c]).unwrap();
        let mut own = Tensor::random(&mut rng, dtype, shape, false);
        let values = c.read();
        own.write(|index| values[index]);
        let mut operands = vec![own.output(), a.input(), b.input(), own.input()];
        let mut scratch = Scratch::new(&kernel, &operands, 2);
        operands.extend(scratch.operand());
        // SAFETY: as above; the addend is the output's own view.
        unsafe { execute(&kernel, &operands, Threads(2)).unwrap() };
        assert!(own.read().iter().zip(&expected[0]).all(|(a, b)| same(*a, *b)));
    }
}

/// Lines of several pieces, which are passed over where they aren't used where they lie.
#[test]
fn long_lines_have_the_bits_of_whole_ones() {
    let mut rng = Rng(15);
    for &dtype in FLOATS {
        for (shape, axis) in [(dims(&[2, 40_000]), 1), (dims(&[40_000, 3]), 0)] {
            let [x, y, dy] = [(); 3].map(|()| numbers(&mut rng, dtype, shape));
            let own = [(dtype, shape)];
            let one: Dims = (0..2).map(|other| if other == axis { 1 } else { shape[other] }).collect();
            let found = [(dtype, one), (DType::I64, one)];
            let sorted = [(dtype, shape), (DType::I64, shape)];
            let few: Dims = (0..2).map(|other| if other == axis { 50 } else { shape[other] }).collect();
            let few = [(dtype, few), (DType::I64, few)];
            let mut run = |kernel: Kernel, outputs: &[(DType, Dims)], inputs: &[&Tensor]| {
                run(&mut rng, &kernel, outputs, zero, inputs).unwrap();
            };
            run(Kernel::Scan { op: ScanOp::Sum, axis }, &own, &[&x]);
            for (flag, largest) in [(false, true), (true, false)] {
                run(Kernel::ArgReduce { largest, axis }, &found, &[&x]);
                run(Kernel::Softmax { axis, log: flag }, &own, &[&x]);
                run(Kernel::SoftmaxBackward { axis, log: flag }, &own, &[&y, &dy]);
                run(Kernel::Sort { axis, descending: flag }, &sorted, &[&x]);
                run(Kernel::TopK { axis, k: 50, largest }, &few, &[&x]);
            }
        }
    }
}

/// A line of 2^32 elements: what searches it takes next to nothing, and what sorts it says what it needs. (It isn't there: all
/// elements are one.)
#[test]
fn scratch_of_very_long_lines_is_bounded_or_asked_for() {
    let seven = [7u8; 8];
    let operands = |dtype: DType, count: usize, wanted: usize| {
        let view = |dtype: DType, count: usize, stride: usize| {
            let address = Address { handle: seven.as_ptr() as u64, offset_bytes: 0 };
            View { address, dtype, layout: Layout::new(dims(&[count]), dims(&[stride]), 0) }
        };
        let outputs = [dtype, DType::I64].map(|dtype| Operand::Out(view(dtype, wanted, 1)));
        [outputs[0], outputs[1], Operand::In(view(dtype, count, 0))]
    };
    let argmax = Kernel::ArgReduce { largest: true, axis: 0 };
    let topk = Kernel::TopK { axis: 0, k: 3, largest: true };
    let sort = Kernel::Sort { axis: 0, descending: false };
    let asked = |kernel: &Kernel, dtype: DType, wanted: usize| {
        scratch_bytes(kernel, &operands(dtype, 1 << 32, wanted), Threads(8))
    };
    for dtype in [DType::U8, DType::F16, DType::F32] {
        assert_eq!(asked(&argmax, dtype, 1), 0);
        assert!(asked(&topk, dtype, 3) <= 1 << 15, "{dtype}");
    }
    assert_eq!(asked(&sort, DType::U8, 1 << 32), 0);
    assert_eq!(asked(&sort, DType::F32, 1 << 32), 16 << 32);
    for kernel in [argmax, topk] {
        let k = if let Kernel::TopK { k, .. } = kernel { k } else { 1 };
        let mut found = [Tensor::packed(DType::U8, dims(&[k])), Tensor::packed(DType::I64, dims(&[k]))];
        let [.., line] = operands(DType::U8, 1 << 22, k);
        let operands = [found[0].output(), found[1].output(), line];
        // SAFETY: the operands are alive, of the kernel's shapes, and this test's own.
        unsafe { execute(&kernel, &operands, Threads(1)).unwrap() };
        let [values, indices] = found.each_mut().map(|found| floats(found));
        assert!(values.iter().all(|&value| value == 7.0));
        assert!(indices.iter().zip(0..).all(|(&index, first)| index == f64::from(first)));
        assert!(kept_bytes() <= 2 << 20, "{kernel:?} had {} bytes", kept_bytes());
    }
}

#[test]
fn fault_searched_lines_are_copied() {
    let test = "kernels::structured_tests::scratch_of_very_long_lines_is_bounded_or_asked_for";
    assert_caught(Fault::searched_lines_are_copied, test);
}
