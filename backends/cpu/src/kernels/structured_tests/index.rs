//! Kernels that order elements, or find them by their index.

use super::*;
use raddle_op::ScatterMode;

fn order(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[test]
fn sorting_and_selecting_are_stable_and_put_nan_last() {
    let mut rng = Rng(11);
    for round in 0..400 {
        let mut shape = rng.shape();
        if round % 10 == 0 {
            shape = dims(&[3, 1536]);
        }
        if shape.is_empty() {
            continue;
        }
        let (axis, descending) = (rng.below(shape.len()), rng.chance(50));
        let dtype = rng.pick(DType::ALL);
        let mut input = Tensor::random(&mut rng, dtype, shape, true);
        let few = rng.chance(50);
        input.write(|_| match few {
            true => normalized(
                Scalar::Float(rng.pick(&[0.0, -0.0, 1.0, 2.0, f64::NAN, f64::INFINITY, -1.5])),
                dtype,
            ),
            false => rng.scalar(dtype),
        });
        let k = if rng.chance(50) { shape[axis] } else { rng.below(shape[axis] + 1).min(1 + rng.below(40)) };
        let kernel = match k == shape[axis] && rng.chance(50) {
            true => Kernel::Sort { axis, descending },
            false => Kernel::TopK { axis, k, largest: descending },
        };
        let mut out = shape;
        out[axis] = k;
        let found = run(&mut rng, &kernel, &[(dtype, out), (DType::I64, out)], zero, &[&input]).unwrap();
        // i64 beyond 2^53 would tie as f64: the oracle compares integers as integers.
        let exact = input.read();
        let positions: Vec<f64> = (0..exact.len()).map(|index| index as f64).collect();
        let along = |values: &[f64], shape: &Dims| lines(shape, |other| other == axis, values);
        let places = along(&(0..found[0].len()).map(|index| index as f64).collect::<Vec<_>>(), &out);
        for (line, places) in along(&positions, &shape).iter().zip(places) {
            let value = |i: usize| exact[line[i] as usize];
            let mut ranked: Vec<usize> = (0..line.len()).collect();
            ranked.sort_by(|&a, &b| {
                let by_value = match (value(a), value(b)) {
                    (Scalar::Float(a), Scalar::Float(b)) => order(a, b),
                    (a, b) => a.to_i64().cmp(&b.to_i64()),
                };
                if descending { by_value.reverse() } else { by_value }
            });
            for (rank, place) in places.iter().enumerate() {
                assert_eq!(found[1][*place as usize].to_i64(), ranked[rank] as i64, "{kernel:?} {dtype}");
                assert!(same(found[0][*place as usize], value(ranked[rank])), "{kernel:?} {dtype}");
            }
        }
    }
}

#[test]
fn gather_and_scatter_follow_the_indices() {
    let mut rng = Rng(12);
    for _ in 0..400 {
        let source_shape = rng.shape();
        if source_shape.is_empty() {
            continue;
        }
        let axis = rng.below(source_shape.len());
        let mut shape: Dims = source_shape
            .iter()
            .map(|&size| if rng.chance(30) { rng.below(size + 1) } else { size })
            .collect();
        shape[axis] = rng.below(60);
        if source_shape[axis] == 0 {
            shape[axis] = 0;
        }
        let dtype = rng.pick(DType::ALL);
        let index_dtype = rng.pick(&[DType::I64, DType::I32]);
        let source = numbers(&mut rng, dtype, source_shape);
        let mut index = Tensor::random(&mut rng, index_dtype, shape, true);
        index.write(|_| Scalar::Int(rng.below(source_shape[axis].max(1)) as i64));
        let values = numbers(&mut rng, dtype, shape);
        let kernel = Kernel::Gather { axis, repeats: 1 };
        let found = run(&mut rng, &kernel, &[(dtype, shape)], zero, &[&source, &index]).unwrap();
        let (from, indices, values_list) = (source.read(), index.read(), values.read());
        // Where an element of the index's shape, with another index on the axis, lies in the source's shape.
        let strides = *Layout::contiguous(source_shape).strides();
        let mut layout = Layout::new(shape, strides, 0);
        let mut axes = *layout.strides();
        axes[axis] = 0;
        layout = Layout::new(shape, axes, 0);
        let places: Vec<usize> = layout
            .offsets()
            .zip(&indices)
            .map(|(offset, index)| offset + index.to_i64() as usize * strides[axis])
            .collect();
        assert!(places.iter().zip(&found[0]).all(|(&place, found)| same(*found, from[place])));

        let before = |_: usize, element: usize| from[element];
        let modes = [
            ScatterMode::Overwrite,
            ScatterMode::Add,
            ScatterMode::Max,
            ScatterMode::Min,
            ScatterMode::Multiply,
        ];
        // Products of 16-bit floats aren't asked for.
        let count = if matches!(dtype, DType::F16 | DType::BF16) { 4 } else { 5 };
        for mode in &modes[..count] {
            let mode = *mode;
            let kernel = Kernel::Scatter { axis, mode, repeats: 1 };
            let found = run(&mut rng, &kernel, &[(dtype, source_shape)], before, &[&index, &values]).unwrap();
            let mut expected = from.clone();
            for (&place, &value) in places.iter().zip(&values_list) {
                expected[place] = match (mode, expected[place], value) {
                    (ScatterMode::Overwrite, _, value) => value,
                    (ScatterMode::Max, Scalar::Float(a), Scalar::Float(b)) => Scalar::Float(a.max(b)),
                    (ScatterMode::Min, Scalar::Float(a), Scalar::Float(b)) => Scalar::Float(a.min(b)),
                    (ScatterMode::Multiply, Scalar::Float(a), Scalar::Float(b)) if dtype == DType::F64 => {
                        Scalar::Float(a * b)
                    }
                    (ScatterMode::Multiply, Scalar::Float(a), Scalar::Float(b)) => {
                        Scalar::Float((a as f32 * b as f32).into())
                    }
                    (ScatterMode::Max, a, b) => Scalar::Int(a.to_i64().max(b.to_i64())),
                    (ScatterMode::Min, a, b) => Scalar::Int(a.to_i64().min(b.to_i64())),
                    (ScatterMode::Multiply, a, b) => {
                        normalized(Scalar::Int(a.to_i64().wrapping_mul(b.to_i64())), dtype)
                    }
                    (_, Scalar::Float(a), Scalar::Float(b)) if dtype == DType::F64 => Scalar::Float(a + b),
                    // Rounded to 16 bits once, below.
                    (_, Scalar::Float(a), Scalar::Float(b)) => Scalar::Float((a as f32 + b as f32).into()),
                    (_, a, b) => normalized(Scalar::Int(a.to_i64().wrapping_add(b.to_i64())), dtype),
                };
            }
            expected.iter_mut().for_each(|value| *value = normalized(*value, dtype));
            assert!(expected.iter().zip(&found[0]).all(|(a, b)| same(*a, *b)), "{kernel:?} {dtype}");
        }
    }
}

#[test]
fn the_first_bad_index_is_told_and_nothing_is_written() {
    let mut rng = Rng(13);
    for bad in [-1i64, 7, i64::MIN, i64::MAX] {
        for position in [0usize, 5, 2999] {
            let shape = dims(&[3000, 4]);
            // Expanded along the last axis, as for rows.
            let mut index = Tensor::new(DType::I64, Layout::new(shape, dims(&[1, 0]), 0));
            index.write(|element| {
                Scalar::Int(if element / 4 >= position && element / 4 % 3 == position % 3 { bad } else { 3 })
            });
            let error = Err(KernelError::IndexOutOfRange { index: bad, position, size: 7 });
            let source = numbers(&mut rng, DType::F32, dims(&[7, 4]));
            let kernel = Kernel::Gather { axis: 0, repeats: 4 };
            assert_eq!(run(&mut rng, &kernel, &[(DType::F32, shape)], zero, &[&source, &index]), error);
            let values = numbers(&mut rng, DType::F32, shape);
            let mut target = Tensor::packed(DType::F32, dims(&[7, 4]));
            let operands = [target.output(), index.input(), values.input()];
            let kernel = Kernel::Scatter { axis: 0, mode: ScatterMode::Add, repeats: 4 };
            // SAFETY: the operands are alive, of the kernel's shapes, and this test's own.
            let result = unsafe { execute(&kernel, &operands, Threads(2)) };
            assert_eq!(result.map(|()| vec![]), error);
            assert!(target.bytes().iter().all(|&byte| byte == 0x5a));
        }
    }
}

#[test]
fn non_zero_lists_places_in_order() {
    let mut rng = Rng(14);
    for round in 0..200 {
        let shape = if round % 40 == 0 { dims(&[300, 200]) } else { rng.shape() };
        let dtype = rng.pick(DType::ALL);
        let input = numbers(&mut rng, dtype, shape);
        let values = floats(&input);
        let places: Vec<usize> = (0..values.len()).filter(|&place| values[place] != 0.0).collect();
        let out = dims(&[places.len(), shape.len()]);
        let found = run(&mut rng, &Kernel::NonZero, &[(DType::I64, out)], zero, &[&input]).unwrap();
        for (row, &place) in places.iter().enumerate() {
            let mut rest = place;
            for axis in (0..shape.len()).rev() {
                assert_eq!(found[0][row * shape.len() + axis].to_i64(), (rest % shape[axis]) as i64);
                rest /= shape[axis];
            }
        }
    }
}

#[test]
fn sparse_products_are_the_definition() {
    let mut rng = Rng(15);
    for _ in 0..200 {
        let size = |rng: &mut Rng| rng.pick(&[0, 1, 2, 3, 17, 64, 70, 130]);
        let (b, k, n) = (size(&mut rng), rng.pick(&[0, 1, 3, 8, 40]), size(&mut rng));
        let h = 1 + rng.below(90);
        let dtype = rng.pick(&FLOATS);
        let values = numbers(&mut rng, dtype, dims(&[b, k]));
        let weight = numbers(&mut rng, dtype, dims(&[n, h]));
        let bias = numbers(&mut rng, dtype, dims(&[b, n]));
        let dy = numbers(&mut rng, dtype, dims(&[b, n]));
        let mut index = Tensor::random(&mut rng, DType::I64, dims(&[b, k]), true);
        index.write(|_| Scalar::Int(rng.below(h) as i64));
        let with_bias = rng.chance(50);
        let mut inputs = vec![&values, &index, &weight];
        inputs.extend(with_bias.then_some(&bias));
        let kernel = Kernel::SparseMatMul { bias: with_bias };
        let found = run(&mut rng, &kernel, &[(dtype, dims(&[b, n]))], zero, &inputs).unwrap();
        let by_values = Kernel::SparseMatMulByValues;
        let outputs = [(dtype, dims(&[b, k]))];
        let by_values = run(&mut rng, &by_values, &outputs, zero, &[&dy, &index, &weight]).unwrap();
        let before = |_: usize, element: usize| Scalar::Int(element as i64 % 3);
        let outputs = [(dtype, dims(&[n, h]))];
        let by_weight = Kernel::SparseMatMulByWeight;
        let by_weight = run(&mut rng, &by_weight, &outputs, before, &[&dy, &values, &index]).unwrap();
        let (v, w, s, g) = (floats(&values), floats(&weight), floats(&bias), floats(&dy));
        let at: Vec<usize> = index.read().iter().map(|index| index.to_i64() as usize).collect();
        let mut dweight: Vec<f64> = (0..n * h).map(|element| (element % 3) as f64).collect();
        let compute = epsilon(dtype.compute());
        for row in 0..b {
            for i in 0..n {
                let sum: f64 = (0..k).map(|j| v[row * k + j] * w[i * h + at[row * k + j]]).sum();
                let expected = sum + if with_bias { s[row * n + i] } else { 0.0 };
                near(
                    found[0][row * n + i],
                    expected,
                    2e3 * compute + subnormal(dtype) + 1.1 * epsilon(dtype) * expected.abs(),
                );
                for j in 0..k {
                    dweight[i * h + at[row * k + j]] += v[row * k + j] * g[row * n + i];
                }
            }
            for j in 0..k {
                let expected: f64 = (0..n).map(|i| g[row * n + i] * w[i * h + at[row * k + j]]).sum();
                near(
                    by_values[0][row * k + j],
                    expected,
                    8e3 * compute + subnormal(dtype) + 1.1 * epsilon(dtype) * expected.abs(),
                );
            }
        }
        for (found, expected) in by_weight[0].iter().zip(&dweight) {
            near(*found, *expected, 8e4 * compute + subnormal(dtype) + 1.1 * epsilon(dtype) * expected.abs());
        }
    }
}
