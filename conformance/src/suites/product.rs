//! Products of matrices, dense and sparse.

use super::harness::{Answer, Drawing, FLOATS, Op, Run, everywhere, having};
use crate::{
    Case,
    array::{Array, broadcast, indices, round},
    oracle::structured::{near, product, product_of_integers},
    random::Random,
    report::Expected,
};
use raddle::{Activation, DType, Device, Dims, Layout, Scalar, Tensor};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!("product": matmul, matmul_shapes, integers, bmm_and_mm, addmm, factors_of_zero, starts, linear, sparse_linear, without_inner_elements, errors)
}

fn drawn(dtype: DType, shape: &[usize], random: &mut Random) -> Array {
    Array::from_fn(dtype, shape, |_| match dtype {
        dtype if dtype.is_float() => Scalar::Float(random.float(-1.0, 1.0)),
        _ => Scalar::Int(random.bits() as i64),
    })
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let random = &mut *drawing.values.borrow_mut();
    let run: Run = &|op, inputs| drawing.run(op, inputs);
    // Repeated, the terms of a longer sum would all be rounded the same way.
    let [m, k, n] = [(); 3].map(|()| drawing.size());
    let k = k.min(40);
    match name {
        "matmul" => {
            let rank = drawing.below(3);
            let batch: Vec<usize> = drawing.shape(rank).iter().map(|size| size % 4).collect();
            let some = |matrix: &[usize]| {
                let kept: Vec<usize> =
                    batch.iter().map(|&size| if drawing.one_of(4) { 1 } else { size }).collect();
                [&kept[drawing.below(kept.len() + 1)..], matrix].concat()
            };
            let first = if drawing.one_of(8) { vec![k] } else { some(&[m, k]) };
            let second = if drawing.one_of(8) { vec![k] } else { some(&[k, n]) };
            matmul_of(dtype, &first, &second, random, run);
        }
        "bmm" | "mm" | "dot" => {
            products_of(dtype, [drawing.below(4), m, k, n], name, random, run);
        }
        "addmm" => {
            const FACTORS: [f64; 7] = [0.0, 1.0, 1.0, -1.0, 2.0, 0.5, 1e-50];
            let factors = if dtype.is_float() { &FACTORS[..] } else { &FACTORS[..5] };
            let [beta, alpha] = [(); 2].map(|()| drawing.pick(factors));
            let own: Vec<usize> =
                [m, n].into_iter().map(|size| if drawing.one_of(4) { 1 } else { size }).collect();
            let addend = &own[drawing.pick(&[0, 0, 0, 1, 2])..];
            addmm_of(dtype, addend, [m, k, n], [beta, alpha], random, run);
        }
        "linear" => {
            let activations = [Activation::None, Activation::None, Activation::Relu, Activation::Gelu];
            let activation =
                drawing.pick(if dtype.is_float() { &activations[..] } else { &activations[..3] });
            let outer = drawing.below(3);
            let mut shape: Vec<usize> = drawing.shape(outer).iter().map(|size| size % 20).collect();
            shape.push(k);
            linear_of(dtype, &shape, n, activation, random, run);
        }
        _ => return false,
    }
    true
}

/// The error of a sum of k products grows no faster than k roundings of its size; blocked sums stay far below.
const FACTOR: f64 = 12.0;

/// `alpha · Σ + beta · c` for one element, by the definition, with the size of what is added up. A factor of 0, in what is computed
/// with, means that what it stands before doesn't count.
fn scaled(
    a: &Array,
    b: &Array,
    batch: &[usize],
    [i, j]: [usize; 2],
    alpha: f64,
    addend: Option<(f64, Scalar)>,
) -> (f64, f64) {
    let factor = |factor: f64| round(a.dtype.compute(), Scalar::Float(factor)).to_f64();
    let (mut value, mut size) = match factor(alpha) {
        0.0 => (0.0, 0.0),
        alpha => {
            let (value, size) = product(a, b, batch, i, j);
            (alpha * value, alpha.abs() * size)
        }
    };
    if let Some((beta, addend)) = addend.filter(|(beta, _)| factor(*beta) != 0.0) {
        let added = factor(beta) * addend.to_f64();
        (value, size) = (value + added, size + added.abs());
    }
    (value, size)
}

/// The same of integers, modulo the size of the dtype.
fn whole(
    a: &Array,
    b: &Array,
    batch: &[usize],
    [i, j]: [usize; 2],
    alpha: f64,
    addend: Option<(f64, Scalar)>,
) -> Scalar {
    let times = |factor: f64, value: i64| value.wrapping_mul(factor as i64);
    let added = addend.map_or(0, |(beta, value)| times(beta, value.to_i64()));
    let total = times(alpha, product_of_integers(a, b, batch, i, j)).wrapping_add(added);
    round(a.dtype, Scalar::Int(total))
}

/// What an element must be.
fn element(
    a: &Array,
    b: &Array,
    batch: &[usize],
    at: [usize; 2],
    alpha: f64,
    addend: Option<(f64, Scalar)>,
) -> Expected {
    if !a.dtype.is_float() {
        return Expected::Exactly(whole(a, b, batch, at, alpha, addend));
    }
    let (value, size) = scaled(a, b, batch, at, alpha, addend);
    near(a.dtype, value, size, FACTOR)
}

/// [.., m, k] × [.., k, n] by the definition; vectors are given their axis by the caller.
fn matmul_answer(a: &Array, b: &Array) -> Answer {
    let (m, n) = (a.shape[a.rank() - 2], b.shape[b.rank() - 1]);
    let batch = broadcast(&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2]);
    let shape: Vec<usize> = batch.iter().copied().chain([m, n]).collect();
    let of = |index: &Vec<usize>| {
        let (batch, matrix) = index.split_at(index.len() - 2);
        element(a, b, batch, [matrix[0], matrix[1]], 1.0, None)
    };
    let expected = indices(&shape).iter().map(of).collect();
    Answer { dtype: a.dtype, shape, expected }
}

fn matmul(device: &Device) {
    let mut random = Random::named("matmul");
    // (m, k, n): one, odd, around the sizes of register tiles, few rows, some rows that 8 neighbours divide, one large.
    let sizes = [
        (1, 1, 1),
        (3, 5, 2),
        (1, 17, 9),
        (7, 1, 5),
        (2, 33, 64),
        (8, 24, 17),
        (9, 8, 8),
        (33, 40, 72),
        (64, 264, 24),
        (65, 31, 33),
        (5, 300, 3),
    ];
    for dtype in having(device, FLOATS) {
        for (m, k, n) in sizes {
            matmul_of(dtype, &[m, k], &[k, n], &mut random, &everywhere(device));
        }
    }
}

fn matmul_shapes(device: &Device) {
    let mut random = Random::named("matmul_shapes");
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[4], &[4]),
        (&[4], &[4, 3]),
        (&[2, 4], &[4]),
        (&[5, 2, 4], &[4, 3]),
        (&[2, 4], &[5, 4, 3]),
        (&[5, 2, 4], &[5, 4, 3]),
        (&[2, 1, 3, 4], &[5, 4, 2]),
        (&[3, 2, 4], &[4]),
        (&[2, 1, 2, 1, 3, 4], &[1, 3, 1, 2, 4, 2]),
    ];
    for (first, second) in shapes {
        matmul_of(DType::F32, first, second, &mut random, &everywhere(device));
    }
}

/// Of tensors of any rank: vectors are a row on the left, a column on the right.
fn matmul_of(dtype: DType, first: &[usize], second: &[usize], random: &mut Random, run: Run) {
    let inputs = [drawn(dtype, first, random), drawn(dtype, second, random)];
    let oracle = |inputs: &[Array]| {
        // A vector on the left is a row, one on the right a column; the axis is dropped again.
        let (mut a, mut b) = (inputs[0].clone(), inputs[1].clone());
        if a.rank() == 1 {
            a.shape.insert(0, 1);
        }
        if b.rank() == 1 {
            b.shape.push(1);
        }
        let mut answer = matmul_answer(&a, &b);
        if inputs[1].rank() == 1 {
            answer.shape.pop();
        }
        if inputs[0].rank() == 1 {
            let row = answer.shape.len() - 1 - usize::from(inputs[1].rank() > 1);
            let row = if inputs[1].rank() == 1 { answer.shape.len() - 1 } else { row };
            answer.shape.remove(row);
        }
        vec![answer]
    };
    run(
        &Op {
            what: &format!("matmul of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].matmul(x[1])?]),
            into: Some(&|x, out| x[0].matmul_out(x[1], out[0])),
        },
        &inputs,
    );
}

/// Sums that wrap around, exactly. The rows of the last case don't fit one step.
fn integers(device: &Device) {
    let mut random = Random::named("integers");
    for (dtype, limit) in [(DType::I64, i64::MAX), (DType::I32, i64::from(i32::MAX)), (DType::U8, 255)] {
        let bits = 8 * dtype.size_bytes() as u32;
        let wrapped = |value: i64| match dtype {
            DType::U8 => value & 255,
            _ => value << (64 - bits) >> (64 - bits),
        };
        for (batch, m, k, n) in [(1, 3, 5, 2), (2, 1, 4, 3), (1, 2, 0, 3), (1, 70, 300, 220)] {
            let mut draw = |count: usize| -> Vec<i64> {
                (0..count).map(|_| wrapped((random.bits() as i64).wrapping_rem(limit))).collect()
            };
            let (a, b, c) = (draw(batch * m * k), draw(batch * k * n), draw(n));
            let tensor = |values: &[i64], shape: &[usize]| {
                let wide = Tensor::from_slice(values, shape, device).unwrap();
                wide.to_dtype(dtype).unwrap()
            };
            let sum = |place: usize| {
                let (matrix, row, column) = (place / (m * n), place / n % m, place % n);
                (0..k).fold(0i64, |sum, i| {
                    let (x, y) = (a[(matrix * m + row) * k + i], b[(matrix * k + i) * n + column]);
                    sum.wrapping_add(x.wrapping_mul(y))
                })
            };
            let expected: Vec<i64> = (0..batch * m * n).map(|place| wrapped(sum(place))).collect();
            let values = |found: &Tensor| found.to_dtype(DType::I64).unwrap().to_vec::<i64>().unwrap();
            let (a, b, c) = (tensor(&a, &[batch, m, k]), tensor(&b, &[batch, k, n]), tensor(&c, &[n]));
            let product = a.matmul(&b).unwrap();
            assert_eq!((product.dtype(), values(&product)), (dtype, expected.clone()), "{dtype} {m} {k} {n}");
            if batch > 1 {
                continue;
            }
            let (a, b) = (a.select(0, 0).unwrap(), b.select(0, 0).unwrap());
            let bias = values(&c);
            let with_bias = |factor: i64, of_bias: i64| -> Vec<i64> {
                let element = |(place, x): (usize, &i64)| {
                    wrapped(x.wrapping_mul(factor).wrapping_add(bias[place % n].wrapping_mul(of_bias)))
                };
                expected.iter().enumerate().map(element).collect()
            };
            let weight = b.t().unwrap();
            assert_eq!(values(&a.linear(&weight, Some(&c)).unwrap()), with_bias(1, 1), "linear of {dtype}");
            assert_eq!(values(&c.addmm(&a, &b, 2.0, 3.0).unwrap()), with_bias(3, 2), "addmm of {dtype}");
        }
        let two = Tensor::full([2, 2], 2, dtype, device).unwrap();
        assert_eq!(
            two.addmm(&two, &two, 0.5, 1.0).unwrap_err().to_string(),
            "addmm: beta is out of range, expected an integer, as the tensors are, found 0.5"
        );
    }
}

fn bmm_and_mm(device: &Device) {
    let mut random = Random::named("bmm");
    for dtype in having(device, FLOATS) {
        products_of(dtype, [3, 2, 5, 4], "bmm", &mut random, &everywhere(device));
        products_of(dtype, [1, 6, 7, 2], "mm", &mut random, &everywhere(device));
        products_of(dtype, [1, 1, 9, 1], "dot", &mut random, &everywhere(device));
    }
}

fn products_of(dtype: DType, [batch, m, k, n]: [usize; 4], name: &str, random: &mut Random, run: Run) {
    let shapes = match name {
        "bmm" => [vec![batch, m, k], vec![batch, k, n]],
        "mm" => [vec![m, k], vec![k, n]],
        _ => [vec![k], vec![k]],
    };
    let inputs = shapes.map(|shape| drawn(dtype, &shape, random));
    let oracle = |x: &[Array]| match name {
        "dot" => {
            let dot = matmul_answer(&x[0].reshaped(&[1, k]), &x[1].reshaped(&[k, 1]));
            vec![Answer { shape: Vec::new(), ..dot }]
        }
        _ => vec![matmul_answer(&x[0], &x[1])],
    };
    let op = Op {
        what: &format!("{name} of {dtype}"),
        oracle: &oracle,
        fresh: &|x| {
            Ok(vec![match name {
                "bmm" => x[0].bmm(x[1])?,
                "mm" => x[0].mm(x[1])?,
                _ => x[0].dot(x[1])?,
            }])
        },
        into: Some(&|x, out| match name {
            "bmm" => x[0].bmm_out(x[1], out[0]),
            "mm" => x[0].mm_out(x[1], out[0]),
            _ => x[0].matmul_out(x[1], out[0]),
        }),
    };
    run(&op, &inputs);
}

fn addmm(device: &Device) {
    let mut random = Random::named("addmm");
    for dtype in having(device, FLOATS) {
        for (beta, alpha) in [(1.0f64, 1.0f64), (0.5, -2.0), (0.0, 1.5)] {
            for addend in [&[3, 4][..], &[4], &[3, 1], &[]] {
                addmm_of(dtype, addend, [3, 6, 4], [beta, alpha], &mut random, &everywhere(device));
            }
        }
    }
}

fn addmm_of(
    dtype: DType,
    addend: &[usize],
    [m, k, n]: [usize; 3],
    [beta, alpha]: [f64; 2],
    random: &mut Random,
    run: Run,
) {
    let mut inputs =
        [drawn(dtype, addend, random), drawn(dtype, &[m, k], random), drawn(dtype, &[k, n], random)];
    if dtype.is_float() {
        // What isn't wanted doesn't count, not even NaN.
        let never = |array: &mut Array| array.data.fill(Scalar::Float(f64::NAN));
        if beta == 0.0 {
            never(&mut inputs[0]);
        }
        if alpha == 0.0 {
            inputs[1..].iter_mut().for_each(never);
        }
    }
    let oracle = |x: &[Array]| {
        let of = |index: &Vec<usize>| {
            element(&x[1], &x[2], &[], [index[0], index[1]], alpha, Some((beta, x[0].at(index))))
        };
        let expected = indices(&[m, n]).iter().map(of).collect();
        vec![Answer { dtype, shape: vec![m, n], expected }]
    };
    let op = Op {
        what: &format!("addmm, beta {beta}, alpha {alpha}, of {dtype}"),
        oracle: &oracle,
        fresh: &|x| Ok(vec![x[0].addmm(x[1], x[2], beta, alpha)?]),
        into: Some(&|x, out| {
            x[0].addmm_out(x[1], x[2], beta, alpha, out[0])?;
            if x[0].rank() == 2 && x[0].shape() == out[0].shape() {
                // In place, from the addend itself.
                out[0].copy_(x[0])?;
                out[0].addmm_(x[1], x[2], beta, alpha)?;
            }
            Ok(())
        }),
    };
    run(&op, &inputs);
}

/// Where nothing is multiplied, or nothing added, a library may return without writing: the result is written all the same, of one
/// row, one column and one element, too. So it is where a factor is 0 only in `f32`.
fn factors_of_zero(device: &Device) {
    let mut random = Random::named("factors_of_zero");
    for dtype in having(device, FLOATS) {
        for [beta, alpha] in [
            [1.0, 0.0],
            [0.5, 0.0],
            [0.0, 0.0],
            [1.0, 1e-50],
            [1e-50, 1.0],
            [0.0, 1e-50],
            [0.0, 1.0],
            [0.0, 2.0],
        ] {
            for ([m, k, n], addend) in [
                ([33, 3, 1], &[1][..]),
                ([33, 3, 1], &[33, 1]),
                ([1, 3, 33], &[33]),
                ([1, 1, 1], &[]),
                ([3, 0, 4], &[3, 1]),
                ([1, 0, 40], &[40]),
                ([70, 5, 70], &[70, 70]),
                ([100, 3, 1], &[100, 1]),
                ([1, 30, 100], &[1, 100]),
                ([0, 3, 4], &[4]),
            ] {
                addmm_of(dtype, addend, [m, k, n], [beta, alpha], &mut random, &everywhere(device));
            }
        }
        for [m, k, n] in [[1, 0, 1], [65, 0, 1], [3, 0, 70], [0, 2, 3]] {
            let widths = [k, n];
            linear_of(dtype, &[m, widths[0]], widths[1], Activation::None, &mut random, &everywhere(device));
            matmul_of(dtype, &[2, m, k], &[2, k, n], &mut random, &everywhere(device));
            matmul_of(dtype, &[0, m, k], &[0, k, n], &mut random, &everywhere(device));
        }
    }
}

/// Each operand of a product in turn at each start that a view can have, so large that a library has the work.
fn starts(device: &Device) {
    let mut random = Random::named("starts");
    for dtype in having(device, FLOATS) {
        for (start, moved) in (1..=8).flat_map(|start| (0..4).map(move |moved| (start, moved))) {
            let at = |operand: usize, shape: &[usize]| {
                let layout = Layout::contiguous(Dims::new(shape).expect("few axes"));
                let start = if operand == moved { start } else { 0 };
                let layout = Layout::new(*layout.shape(), *layout.strides(), start);
                (layout, layout.end())
            };
            let run = |op: &Op<'_>, inputs: &[Array]| {
                let layouts: Vec<_> =
                    inputs.iter().enumerate().map(|(operand, x)| at(operand, &x.shape)).collect();
                op.run_at(inputs, &layouts, &|shape| at(3, shape), device);
            };
            // Of a bias at an odd start, a product as large as this one was lost with the device.
            let large = (start == 1 && moved == 2 && dtype.size_bytes() == 2).then_some((200, 200, 200));
            let small = [(65, 24, 96), (65, 2, 2), (70, 33, 1), (1, 40, 72)];
            for (rows, from, width) in small.into_iter().chain(large) {
                for activation in [Activation::None, Activation::Relu] {
                    linear_of(dtype, &[2, rows, from], width, activation, &mut random, &run);
                }
            }
            matmul_of(dtype, &[2, 70, 9], &[2, 9, 24], &mut random, &run);
            addmm_of(dtype, &[24], [70, 9, 24], [1.0, 1.0], &mut random, &run);
        }
    }
}

fn linear(device: &Device) {
    let mut random = Random::named("linear");
    for dtype in having(device, FLOATS) {
        for (shape, width, activation) in [
            (&[6][..], 3, Activation::None),
            (&[5, 6], 3, Activation::Relu),
            (&[2, 3, 6], 3, Activation::None),
            (&[4, 6], 3, Activation::Gelu),
            (&[2, 17, 40], 40, Activation::Gelu),
            (&[12, 72], 33, Activation::Relu),
        ] {
            linear_of(dtype, shape, width, activation, &mut random, &everywhere(device));
        }
    }
}

fn linear_of(
    dtype: DType,
    shape: &[usize],
    width: usize,
    activation: Activation,
    random: &mut Random,
    run: Run,
) {
    let from = shape[shape.len() - 1];
    let inputs =
        [drawn(dtype, shape, random), drawn(dtype, &[width, from], random), drawn(dtype, &[width], random)];
    let oracle = |x: &[Array]| {
        let outer = &shape[..shape.len() - 1];
        let out: Vec<usize> = outer.iter().copied().chain([width]).collect();
        let (rows, weight) = (x[0].reshaped(&[outer.iter().product(), from]), x[1].permuted(&[1, 0]));
        let answer = |with_bias: bool, activation: Activation| {
            let element = |index: &Vec<usize>| {
                let bias = with_bias.then(|| (1.0, x[2].at(&index[1..])));
                if !dtype.is_float() {
                    let sum = whole(&rows, &weight, &[], [index[0], index[1]], 1.0, bias);
                    let is_kept = activation == Activation::None || sum.to_i64() > 0;
                    return Expected::Exactly(if is_kept { sum } else { round(dtype, Scalar::Int(0)) });
                }
                let (value, size) = scaled(&rows, &weight, &[], [index[0], index[1]], 1.0, bias);
                let value = match activation {
                    Activation::None => value,
                    Activation::Relu if value <= 0.0 => 0.0,
                    Activation::Relu => value,
                    Activation::Gelu => 0.5 * value * libm::erfc(-value * std::f64::consts::FRAC_1_SQRT_2),
                };
                near(dtype, value, size, FACTOR)
            };
            let expected = indices(&[rows.shape[0], width]).iter().map(element).collect();
            Answer { dtype, shape: out.clone(), expected }
        };
        vec![answer(true, activation), answer(false, Activation::None)]
    };
    run(
        &Op {
            what: &format!("linear of {dtype}, {activation:?}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].linear_with(x[1], Some(x[2]), activation)?, x[0].linear(x[1], None)?]),
            into: Some(&|x, out| {
                x[0].linear_out(x[1], Some(x[2]), out[0])?;
                match activation {
                    Activation::None => {}
                    // 16-bit floats would be rounded twice.
                    activation => _ = out[0].copy_(&x[0].linear_with(x[1], Some(x[2]), activation)?)?,
                }
                x[0].linear_out(x[1], None, out[1])
            }),
        },
        &inputs,
    );
}

fn sparse_linear(device: &Device) {
    let mut random = Random::named("sparse_linear");
    for dtype in having(device, FLOATS) {
        for (b, k, n, h) in [(1, 1, 1, 1), (3, 4, 5, 9), (7, 2, 33, 17)] {
            let inputs = [
                drawn(dtype, &[b, k], &mut random),
                Array::from_fn(DType::I64, &[b, k], |_| random.below(h) as i64),
                drawn(dtype, &[n, h], &mut random),
                drawn(dtype, &[n], &mut random),
                drawn(dtype, &[b, n], &mut random),
            ];
            let oracle = |x: &[Array]| {
                let [values, index, weight, bias, gradient] = x else { unreachable!("five inputs") };
                let column = |row: usize, j: usize| index.i64(&[row, j]) as usize;
                let forward = indices(&[b, n])
                    .iter()
                    .map(|at| {
                        let term = |j| values.f64(&[at[0], j]) * weight.f64(&[at[1], column(at[0], j)]);
                        let terms: Vec<f64> = (0..k).map(term).chain([bias.f64(&[at[1]])]).collect();
                        let size = terms.iter().map(|term| term.abs()).sum();
                        near(dtype, crate::oracle::structured::sum(terms), size, FACTOR)
                    })
                    .collect();
                let of_terms = |terms: Vec<f64>| {
                    let size = terms.iter().map(|term| term.abs()).sum();
                    near(dtype, crate::oracle::structured::sum(terms), size, FACTOR)
                };
                let by_values: Vec<Expected> = indices(&[b, k])
                    .iter()
                    .map(|at| {
                        let term =
                            |row| gradient.f64(&[at[0], row]) * weight.f64(&[row, column(at[0], at[1])]);
                        of_terms((0..n).map(term).collect())
                    })
                    .collect();
                let by_weight: Vec<Expected> = indices(&[n, h])
                    .iter()
                    .map(|at| {
                        let entries = indices(&[b, k]);
                        let named = entries.iter().filter(|entry| column(entry[0], entry[1]) == at[1]);
                        of_terms(
                            named.map(|entry| gradient.f64(&[entry[0], at[0]]) * values.f64(entry)).collect(),
                        )
                    })
                    .collect();
                let answer = |shape: &[usize], expected| Answer { dtype, shape: shape.to_vec(), expected };
                vec![answer(&[b, n], forward), answer(&[b, k], by_values), answer(&[n, h], by_weight)]
            };
            Op {
                what: &format!("sparse_linear of {dtype}"),
                oracle: &oracle,
                fresh: &|x| {
                    let forward = x[0].sparse_linear(x[1], x[2], Some(x[3]))?;
                    let by_values = x[4].sparse_linear_by_values(x[1], x[2])?;
                    let by_weight = x[4].sparse_linear_by_weight(x[0], x[1], x[2])?;
                    Ok(vec![forward, by_values, by_weight])
                },
                into: None,
            }
            .run(&inputs, device);
        }
    }
}

fn without_inner_elements(device: &Device) {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, device).unwrap();
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, device).unwrap();
    let values = |tensor: Tensor| tensor.to_vec::<f32>().unwrap();
    assert_eq!(values(zeros(&[2, 0]).matmul(&zeros(&[0, 3])).unwrap()), [0.0; 6]);
    assert_eq!(**zeros(&[0, 4]).matmul(&zeros(&[4, 3])).unwrap().shape(), [0, 3]);
    assert_eq!(values(ones(&[2, 3]).addmm(&zeros(&[2, 0]), &zeros(&[0, 3]), 2.0, 1.0).unwrap()), [2.0; 6]);
    assert_eq!(values(zeros(&[2, 0]).linear(&zeros(&[3, 0]), Some(&ones(&[3]))).unwrap()), [1.0; 6]);
    // Into an output that holds something else.
    let out = ones(&[2, 3]);
    zeros(&[2, 0]).matmul_out(&zeros(&[0, 3]), &out).unwrap();
    assert_eq!(values(out), [0.0; 6]);
}

fn errors(device: &Device) {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device).unwrap();
    let f32 = |shape: &[usize]| zeros(shape, DType::F32);
    let text = |result: raddle::Result<Tensor>| result.unwrap_err().to_string();
    let cases = [
        (
            f32(&[2, 3]).matmul(&f32(&[4, 5])),
            "matmul: inner sizes differ, lhs [2, 3] axis 1 is 3, rhs [4, 5] axis 0 is 4",
        ),
        (f32(&[2, 3]).matmul(&zeros(&[3, 2], DType::F64)), "matmul: dtypes differ, lhs is f32, rhs is f64"),
        (zeros(&[2, 3], DType::I64).matmul(&f32(&[3, 2])), "matmul: dtypes differ, lhs is i64, rhs is f32"),
        (
            zeros(&[2, 3], DType::Bool).matmul(&zeros(&[3, 2], DType::Bool)),
            "matmul: lhs has the wrong dtype, expected a number, found bool",
        ),
        (f32(&[2, 3]).bmm(&f32(&[3, 2])), "bmm: lhs has the wrong number of axes, expected 3, found 2"),
        (f32(&[2, 3]).mm(&f32(&[3])), "mm: rhs has the wrong number of axes, expected 2, found 1"),
        (
            f32(&[5]).linear(&f32(&[2, 3]), None),
            "linear: inner sizes differ, lhs [5] axis 0 is 5, rhs [2, 3] axis 1 is 3",
        ),
        (
            f32(&[3]).linear(&f32(&[2, 3]), Some(&f32(&[3]))),
            "linear: bias has the wrong shape, expected [2], found [3]",
        ),
    ];
    for (result, expected) in cases {
        assert_eq!(text(result), expected);
    }
}
