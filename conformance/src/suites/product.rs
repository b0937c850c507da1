//! Products of matrices, dense and sparse.

use super::harness::{Answer, FLOATS, Op};
use crate::{
    Case,
    array::{Array, broadcast, indices},
    oracle::structured::{near, product},
    random::Random,
    report::Expected,
};
use raddle::{Activation, DType, Device, Tensor};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!("product": matmul, matmul_shapes, integers, bmm_and_mm, addmm, linear, sparse_linear, without_inner_elements, errors)
}

fn drawn(dtype: DType, shape: &[usize], random: &mut Random) -> Array {
    Array::from_fn(dtype, shape, |_| random.uniform(-1.0, 1.0))
}

/// The error of a sum of k products grows no faster than k roundings of its size; blocked sums stay far below.
const FACTOR: f64 = 12.0;

/// [.., m, k] × [.., k, n] by the definition; vectors are given their axis by the caller.
fn matmul_answer(a: &Array, b: &Array) -> Answer {
    let (m, n) = (a.shape[a.rank() - 2], b.shape[b.rank() - 1]);
    let batch = broadcast(&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2]);
    let shape: Vec<usize> = batch.iter().copied().chain([m, n]).collect();
    let element = |index: &Vec<usize>| {
        let (batch, matrix) = index.split_at(index.len() - 2);
        let (value, size) = product(a, b, batch, matrix[0], matrix[1]);
        near(a.dtype, value, size, FACTOR)
    };
    let expected = indices(&shape).iter().map(element).collect();
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
    for dtype in FLOATS {
        for (m, k, n) in sizes {
            let inputs = [drawn(dtype, &[m, k], &mut random), drawn(dtype, &[k, n], &mut random)];
            Op {
                what: &format!("matmul of {dtype}"),
                oracle: &|inputs| vec![matmul_answer(&inputs[0], &inputs[1])],
                fresh: &|x| Ok(vec![x[0].matmul(x[1])?]),
                into: Some(&|x, out| x[0].matmul_out(x[1], out[0])),
            }
            .run(&inputs, device);
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
        let inputs = [drawn(DType::F32, first, &mut random), drawn(DType::F32, second, &mut random)];
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
        Op {
            what: "matmul",
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].matmul(x[1])?]),
            into: Some(&|x, out| x[0].matmul_out(x[1], out[0])),
        }
        .run(&inputs, device);
    }
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
    for dtype in FLOATS {
        let inputs = [
            drawn(dtype, &[3, 2, 5], &mut random),
            drawn(dtype, &[3, 5, 4], &mut random),
            drawn(dtype, &[6, 7], &mut random),
            drawn(dtype, &[7, 2], &mut random),
            drawn(dtype, &[9], &mut random),
            drawn(dtype, &[9], &mut random),
        ];
        let oracle = |x: &[Array]| {
            let dot = matmul_answer(&x[4].reshaped(&[1, 9]), &x[5].reshaped(&[9, 1]));
            vec![
                matmul_answer(&x[0], &x[1]),
                matmul_answer(&x[2], &x[3]),
                Answer { shape: Vec::new(), ..dot },
            ]
        };
        Op {
            what: &format!("bmm, mm, dot of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].bmm(x[1])?, x[2].mm(x[3])?, x[4].dot(x[5])?]),
            into: Some(&|x, out| {
                x[0].bmm_out(x[1], out[0])?;
                x[2].mm_out(x[3], out[1])?;
                x[4].matmul_out(x[5], out[2])
            }),
        }
        .run(&inputs, device);
    }
}

fn addmm(device: &Device) {
    let mut random = Random::named("addmm");
    for dtype in FLOATS {
        for (beta, alpha) in [(1.0f64, 1.0f64), (0.5, -2.0), (0.0, 1.5)] {
            for addend in [&[3, 4][..], &[4], &[3, 1], &[]] {
                let mut inputs = [
                    drawn(dtype, addend, &mut random),
                    drawn(dtype, &[3, 6], &mut random),
                    drawn(dtype, &[6, 4], &mut random),
                ];
                if beta == 0.0 {
                    // What isn't wanted doesn't count, not even NaN.
                    inputs[0] = Array::from_fn(dtype, addend, |_| f64::NAN);
                }
                let oracle = |x: &[Array]| {
                    let element = |index: &Vec<usize>| {
                        let (value, size) = product(&x[1], &x[2], &[], index[0], index[1]);
                        let added = if beta == 0.0 { 0.0 } else { beta * x[0].f64(index) };
                        let size = alpha.abs() * size + added.abs();
                        near(dtype, alpha * value + added, size, FACTOR)
                    };
                    let expected = indices(&[3, 4]).iter().map(element).collect();
                    vec![Answer { dtype, shape: vec![3, 4], expected }]
                };
                Op {
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
                }
                .run(&inputs, device);
            }
        }
    }
}

fn linear(device: &Device) {
    let mut random = Random::named("linear");
    for dtype in FLOATS {
        for (shape, width, activation) in [
            (&[6][..], 3, Activation::None),
            (&[5, 6], 3, Activation::Relu),
            (&[2, 3, 6], 3, Activation::None),
            (&[4, 6], 3, Activation::Gelu),
            (&[2, 17, 40], 40, Activation::Gelu),
            (&[12, 72], 33, Activation::Relu),
        ] {
            let from = shape[shape.len() - 1];
            let inputs = [
                drawn(dtype, shape, &mut random),
                drawn(dtype, &[width, from], &mut random),
                drawn(dtype, &[width], &mut random),
            ];
            let oracle = |x: &[Array]| {
                let outer = &shape[..shape.len() - 1];
                let out: Vec<usize> = outer.iter().copied().chain([width]).collect();
                let element = |index: &Vec<usize>, bias: f64| {
                    let (row, column) = (&index[..index.len() - 1], index[index.len() - 1]);
                    let terms: Vec<f64> = (0..from)
                        .map(|k| {
                            let at: Vec<usize> = row.iter().copied().chain([k]).collect();
                            x[0].f64(&at) * x[1].f64(&[column, k])
                        })
                        .collect();
                    let size = terms.iter().map(|term| term.abs()).sum::<f64>() + bias.abs();
                    let value = crate::oracle::structured::sum(terms.into_iter().chain([bias]));
                    (value, size)
                };
                let answer = |with_bias: bool, activation: Activation| {
                    let expected = indices(&out)
                        .iter()
                        .map(|index| {
                            let bias = if with_bias { x[2].f64(&[index[index.len() - 1]]) } else { 0.0 };
                            let (value, size) = element(index, bias);
                            let value = match activation {
                                Activation::None => value,
                                Activation::Relu => value.max(0.0),
                                Activation::Gelu => {
                                    0.5 * value * libm::erfc(-value * std::f64::consts::FRAC_1_SQRT_2)
                                }
                            };
                            near(dtype, value, size, FACTOR)
                        })
                        .collect();
                    Answer { dtype, shape: out.clone(), expected }
                };
                vec![answer(true, activation), answer(false, Activation::None)]
            };
            Op {
                what: &format!("linear of {dtype}, {activation:?}"),
                oracle: &oracle,
                fresh: &|x| {
                    Ok(vec![x[0].linear_with(x[1], Some(x[2]), activation)?, x[0].linear(x[1], None)?])
                },
                into: Some(&|x, out| {
                    x[0].linear_out(x[1], Some(x[2]), out[0])?;
                    match activation {
                        Activation::None => {}
                        // 16-bit floats would be rounded twice.
                        activation => _ = out[0].copy_(&x[0].linear_with(x[1], Some(x[2]), activation)?)?,
                    }
                    x[0].linear_out(x[1], None, out[1])
                }),
            }
            .run(&inputs, device);
        }
    }
}

fn sparse_linear(device: &Device) {
    let mut random = Random::named("sparse_linear");
    for dtype in FLOATS {
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
