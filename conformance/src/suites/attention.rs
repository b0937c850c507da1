//! Attention, by its definition in `f64`.

use super::harness::{Answer, Drawing, FLOATS, Op, Run, everywhere, having};
use crate::{
    Case,
    array::{Array, broadcast, indices},
    oracle::structured::{near, sum},
    random::Random,
    report::check_same,
};
use raddle::{DType, Device, Scalar, Tensor};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!("attention": attention, masks, shapes_that_broadcast, heads_of_rows, neighbours, special, without_elements, errors, composed_with_dropout)
}

fn drawn(dtype: DType, shape: &[usize], random: &mut Random) -> Array {
    Array::from_fn(dtype, shape, |_| random.uniform(-1.5, 1.5))
}

/// A row of the matrix that stands at a broadcast index of the batch.
fn row(array: &Array, batch: &[usize], row: usize) -> Vec<f64> {
    let count = array.shape[array.rank() - 1];
    let missing = batch.len() + 2 - array.rank();
    let mut index: Vec<usize> = batch[missing..].iter().copied().chain([row, 0]).collect();
    let last = index.len() - 1;
    (0..count)
        .map(|at| {
            index[last] = at;
            array.f64(&index)
        })
        .collect()
}

/// softmax(scale · q kᵀ + mask) v for inputs q, k, v and perhaps a mask.
fn answer(inputs: &[Array], causal: bool, scale: Option<f64>) -> Answer {
    let [q, k, v] = [0, 1, 2].map(|input| &inputs[input]);
    let size = |array: &Array, from_end: usize| array.shape[array.rank() - from_end];
    let front = |array: &Array| array.shape[..array.rank() - 2].to_vec();
    let [n, m, d, dv] = [size(q, 2), size(k, 2), size(q, 1), size(v, 1)];
    let scale = scale.unwrap_or(1.0 / (d as f64).sqrt());
    let batch = broadcast(&broadcast(&front(q), &front(k)), &front(v));
    // Tensor cores take weights of bf16 in two parts, which have 16 bits together.
    let factor = if q.dtype == DType::BF16 { 96.0 } else { 16.0 };
    let mut expected = Vec::new();
    for batch in indices(&batch) {
        let keys: Vec<Vec<f64>> = (0..m).map(|j| row(k, &batch, j)).collect();
        let values: Vec<Vec<f64>> = (0..m).map(|j| row(v, &batch, j)).collect();
        for i in 0..n {
            let query = row(q, &batch, i);
            let (mut scores, mut size) = (Vec::new(), 1.0f64);
            for (j, key) in keys.iter().enumerate() {
                let products: Vec<f64> = query.iter().zip(key).map(|(q, k)| q * k).collect();
                let mut score = scale * sum(products.iter().copied());
                let mut own = scale.abs() * products.iter().map(|x| x.abs()).sum::<f64>();
                if let Some(mask) = inputs.get(3) {
                    let index: Vec<usize> = batch.iter().copied().chain([i, j]).collect();
                    let index = &index[index.len().saturating_sub(mask.rank())..];
                    match mask.at(index) {
                        Scalar::Bool(seen) if !seen => score = f64::NEG_INFINITY,
                        Scalar::Float(added) => {
                            score += added;
                            own += if added.is_finite() { added.abs() } else { 0.0 };
                        }
                        _ => {}
                    }
                }
                if causal && j > i {
                    score = f64::NEG_INFINITY;
                }
                size = size.max(own);
                scores.push(score);
            }
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = match most == f64::NEG_INFINITY {
                true => vec![0.0; m],
                false => scores.iter().map(|score| (score - most).exp()).collect(),
            };
            let total = sum(weights.iter().copied()).max(f64::MIN_POSITIVE);
            for column in 0..dv {
                let terms =
                    || weights.iter().zip(&values).map(|(weight, value)| weight * value[column] / total);
                let magnitude = terms().map(|term| term.abs()).sum::<f64>() * (1.0 + size);
                expected.push(near(q.dtype, sum(terms()), magnitude, factor));
            }
        }
    }
    let shape = batch.iter().copied().chain([n, dv]).collect();
    Answer { dtype: q.dtype, shape, expected }
}

/// On inputs of every layout, fresh and into outputs of every layout.
fn run(what: &str, inputs: &[Array], causal: bool, scale: Option<f64>, device: &Device) {
    attention_of(what, inputs, causal, scale, &everywhere(device));
}

fn attention_of(what: &str, inputs: &[Array], causal: bool, scale: Option<f64>, run: Run) {
    let op = Op {
        what: &format!("attention {what} of {}", inputs[0].dtype),
        oracle: &|x| vec![answer(x, causal, scale)],
        fresh: &|x| {
            let mask = x.get(3).copied();
            Ok(vec![x[0].scaled_dot_product_attention(x[1], x[2], mask, causal, scale)?])
        },
        into: Some(&|x, out| {
            let mask = x.get(3).copied();
            x[0].scaled_dot_product_attention_out(x[1], x[2], mask, causal, scale, out[0])
        }),
    };
    run(&op, inputs);
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    if name != "scaled_dot_product_attention" {
        return false;
    }
    let random = &mut *drawing.values.borrow_mut();
    let rank = drawing.below(4);
    let batch: Vec<usize> = drawing.shape(rank).iter().map(|size| size % 5).collect();
    // Each may lack axes, or have one of size 1.
    let part = |matrix: [usize; 2]| {
        let kept: Vec<usize> = batch.iter().map(|&size| if drawing.one_of(5) { 1 } else { size }).collect();
        [&kept[drawing.below(kept.len() + 1)..], &matrix].concat()
    };
    let size = || drawing.size_at_least_1().min(70);
    let ([n, m], [d, dv]) = ([size(), size()], [size(), size()]);
    let mut inputs = [[batch.as_slice(), &[n, d]].concat(), part([m, d]), part([m, dv])]
        .iter()
        .map(|shape| drawn(dtype, shape, random))
        .collect::<Vec<_>>();
    if drawing.one_of(2) {
        let shape = part([n, m]);
        inputs.push(match drawing.one_of(2) {
            true => Array::from_fn(DType::Bool, &shape, |_| Scalar::Bool(random.uniform(0.0, 1.0) > 0.3)),
            false => drawn(dtype, &shape, random),
        });
    }
    let scale = drawing.pick(&[None, Some(0.7)]);
    attention_of("drawn", &inputs, drawing.one_of(3), scale, &|op, inputs| drawing.run(op, inputs));
    true
}

fn attention(device: &Device) {
    let mut random = Random::named("attention");
    // n, m, d, dv: one, odd, whole and cut tiles, sizes of heads, a few keys more than a tile, wide heads.
    let sizes: [(&[usize], [usize; 4]); 10] = [
        (&[], [1, 1, 1, 1]),
        (&[], [3, 5, 4, 2]),
        (&[2, 3], [5, 9, 7, 3]),
        (&[2], [16, 16, 16, 16]),
        (&[2, 2], [17, 33, 32, 32]),
        (&[], [1, 65, 32, 64]),
        (&[], [40, 31, 48, 16]),
        (&[1, 2], [33, 70, 24, 40]),
        (&[], [19, 130, 128, 128]),
        (&[], [3, 34, 150, 140]),
    ];
    for dtype in having(device, FLOATS) {
        for (batch, [n, m, d, dv]) in sizes {
            let mut draw = |matrix: [usize; 2]| drawn(dtype, &[batch, &matrix[..]].concat(), &mut random);
            let inputs = [draw([n, d]), draw([m, d]), draw([m, dv])];
            run("plain", &inputs, false, None, device);
            run("causal", &inputs, true, Some(0.7), device);
        }
    }
}

fn masks(device: &Device) {
    let mut random = Random::named("attention_masks");
    let (batch, [n, m]) = ([2, 3], [18, 37]);
    let shapes: [&[usize]; 6] = [&[2, 3, 18, 37], &[2, 1, 1, 37], &[3, 1, 37], &[18, 37], &[18, 1], &[]];
    for dtype in having(device, FLOATS) {
        for (d, dv) in [(16, 32), (5, 3)] {
            let mut draw = |matrix: [usize; 2]| drawn(dtype, &[&batch[..], &matrix].concat(), &mut random);
            let inputs = [draw([n, d]), draw([m, d]), draw([m, dv])];
            for (number, shape) in shapes.into_iter().enumerate() {
                // Not a third of the keys, and none of what stands at index 1 of the first axis.
                let mut seen = |index: &[usize]| random.uniform(0.0, 1.0) > 0.3 && index.first() != Some(&1);
                let choice = Array::from_fn(DType::Bool, shape, |index| Scalar::Bool(seen(index)));
                let mut added = drawn(if number % 2 == 0 { dtype } else { DType::F32 }, shape, &mut random);
                for (at, index) in indices(shape).iter().enumerate().filter(|(at, _)| at % 7 == 3) {
                    added.set(index, if at % 2 == 0 { f64::NEG_INFINITY } else { -30.0 });
                }
                for mask in [choice, added] {
                    let inputs: Vec<Array> = inputs.iter().cloned().chain([mask]).collect();
                    run(&format!("masked by {shape:?}"), &inputs, number == 2, None, device);
                }
            }
        }
    }
}

fn shapes_that_broadcast(device: &Device) {
    let mut random = Random::named("attention_broadcast");
    let shapes: [[&[usize]; 3]; 5] = [
        [&[3, 4], &[2, 5, 4], &[2, 5, 6]],
        [&[2, 1, 3, 4], &[3, 5, 4], &[1, 1, 5, 2]],
        [&[2, 2, 2, 3, 16], &[2, 1, 2, 5, 16], &[5, 16]],
        [&[2, 1, 2, 1, 3, 4], &[1, 2, 1, 2, 5, 4], &[2, 2, 2, 2, 5, 3]],
        [&[2, 2, 1, 2, 1, 2, 3, 2], &[1, 2, 1, 2, 2, 2, 2, 2], &[2, 2]],
    ];
    for dtype in having(device, &[DType::F16, DType::F32]) {
        for shapes in shapes {
            let inputs = shapes.map(|shape| drawn(dtype, shape, &mut random));
            run("broadcast", &inputs, false, None, device);
        }
    }
}

/// Queries, keys and values as one product makes them, side by side in rows; the result goes back to rows.
fn heads_of_rows(device: &Device) {
    let mut random = Random::named("attention_heads");
    let (texts, n, heads, d) = (2, 21, 3, 32);
    for dtype in having(device, FLOATS) {
        let rows = drawn(dtype, &[texts * n, 3 * heads * d], &mut random);
        let projected = Tensor::from_bytes(&rows.bytes(), &rows.shape, dtype, device).unwrap();
        let parts = projected.view([texts, n, 3, heads, d]).unwrap().permute([2, 0, 3, 1, 4]).unwrap();
        let [q, k, v] = [0, 1, 2].map(|part| parts.select(0, part).unwrap());
        let apart = [&q, &k, &v].map(|part| part.contiguous().unwrap());
        let expected =
            apart[0].scaled_dot_product_attention(&apart[1], &apart[2], None, false, None).unwrap();
        let found = Tensor::full([texts * n, heads * d], 7, dtype, device).unwrap();
        let to = found.view([texts, n, heads, d]).unwrap().transpose(1, 2).unwrap();
        q.scaled_dot_product_attention_out(&k, &v, None, false, None, &to).unwrap();
        check_same("heads of rows", &Array::read(&expected), &Array::read(&to));
    }
}

/// A text's result has the same bits whatever stands beside it (T8).
fn neighbours(device: &Device) {
    let mut random = Random::named("attention_neighbours");
    for dtype in having(device, &[DType::F32, DType::BF16, DType::F16]) {
        for (n, m) in [(5, 5), (32, 32), (40, 100)] {
            let (texts, heads) = (40, 12);
            let mut draw = |count: usize| {
                let array = drawn(dtype, &[1, heads, count, 32], &mut random);
                Tensor::from_bytes(&array.bytes(), &array.shape, dtype, device).unwrap()
            };
            let own = [draw(n), draw(m), draw(m)];
            let others = [draw(n), draw(m), draw(m)];
            let many: Vec<Tensor> = own
                .iter()
                .zip(&others)
                .map(|(own, other)| {
                    let mut all = vec![other; texts];
                    all[texts / 2] = own;
                    Tensor::cat(&all, 0).unwrap()
                })
                .collect();
            for causal in [false, true] {
                let of = |x: &[Tensor]| {
                    x[0].scaled_dot_product_attention(&x[1], &x[2], None, causal, None).unwrap()
                };
                let alone = of(&own);
                let beside = of(&many).narrow(0, texts / 2, 1).unwrap();
                check_same("a text beside others", &Array::read(&alone), &Array::read(&beside));
            }
        }
    }
}

fn special(device: &Device) {
    let infinity = f32::INFINITY;
    let of = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, device).unwrap();
    let found = |q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>| {
        q.scaled_dot_product_attention(k, v, mask, false, Some(1.0)).unwrap().to_vec::<f32>().unwrap()
    };
    let (k, v) = (of(&[1.0, -1.0], &[2, 1]), of(&[3.0, 5.0], &[2, 1]));
    // Scores that overflow without their largest taken away.
    assert_eq!(found(&of(&[1e30, -1e30], &[2, 1]), &k, &v, None), [3.0, 5.0]);
    // A score that is NaN makes its row NaN, and no other.
    let rows = found(&of(&[f32::NAN, 0.0], &[2, 1]), &k, &v, None);
    assert!(rows[0].is_nan() && rows[1] == 4.0);
    // Nobody is seen: by a mask, by what is added; what the values are doesn't matter.
    let q = of(&[1.0, 0.0], &[2, 1]);
    let nobody = Tensor::from_slice(&[false, false, true, true], [2, 2], device).unwrap();
    let wild = of(&[infinity, f32::NAN], &[2, 1]);
    assert_eq!(found(&q, &k, &v, Some(&nobody)), [0.0, 4.0]);
    assert_eq!(found(&q, &k, &v, Some(&of(&[-infinity, -infinity, 0.0, -infinity], &[2, 2]))), [0.0, 3.0]);
    assert_eq!(found(&q, &k, &wild, Some(&nobody))[0], 0.0);
    // The same in halves, as wide as tensor cores take.
    let wide = |tensor: &Tensor| tensor.expand([2, 16]).unwrap().to(DType::BF16).unwrap();
    let y =
        wide(&q).scaled_dot_product_attention(&wide(&k), &wide(&v), Some(&nobody), false, Some(1.0)).unwrap();
    let y = y.to(DType::F32).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(y, [[0.0; 16], [4.0; 16]].concat());
}

fn without_elements(device: &Device) {
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, device).unwrap();
    let of = |q: &[usize], k: &[usize], v: &[usize]| {
        ones(q).scaled_dot_product_attention(&ones(k), &ones(v), None, false, None).unwrap()
    };
    assert_eq!(**of(&[0, 4], &[3, 4], &[3, 2]).shape(), [0, 2]);
    assert_eq!(**of(&[2, 0, 4, 8], &[2, 0, 3, 8], &[3, 8]).shape(), [2, 0, 4, 8]);
    assert_eq!(**of(&[2, 4], &[3, 4], &[3, 0]).shape(), [2, 0]);
    // No keys: nobody takes part. No width: all take part alike.
    let out = ones(&[2, 3]).t().unwrap().contiguous().unwrap().t().unwrap();
    ones(&[2, 4])
        .scaled_dot_product_attention_out(&ones(&[0, 4]), &ones(&[0, 3]), None, true, None, &out)
        .unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [0.0; 6]);
    assert_eq!(of(&[2, 0], &[3, 0], &[3, 1]).to_vec::<f32>().unwrap(), [1.0; 2]);
}

fn errors(device: &Device) {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device).unwrap();
    let f32 = |shape: &[usize]| zeros(shape, DType::F32);
    let (q, k, v) = (f32(&[2, 3, 4]), f32(&[2, 5, 4]), f32(&[2, 5, 6]));
    let text = |q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>| {
        q.scaled_dot_product_attention(k, v, mask, false, None).unwrap_err().to_string()
    };
    let cases = [
        (
            text(&q, &f32(&[2, 5, 3]), &v, None),
            "inner sizes differ, lhs [2, 3, 4] axis 2 is 4, rhs [2, 5, 3] axis 2 is 3",
        ),
        (
            text(&q, &k, &f32(&[2, 4, 6]), None),
            "inner sizes differ, lhs [2, 5, 4] axis 1 is 5, rhs [2, 4, 6] axis 1 is 4",
        ),
        (
            text(&f32(&[4]), &k, &v, None),
            "the query has the wrong number of axes, expected at least 2, found 1",
        ),
        (
            text(&zeros(&[2, 3, 4], DType::I64), &k, &v, None),
            "the query has the wrong dtype, expected a float, found i64",
        ),
        (
            text(&q, &k, &v, Some(&f32(&[3, 4]))),
            "the mask has the wrong shape, expected [2, 3, 5], found [3, 4]",
        ),
        (
            text(&q, &k, &v, Some(&zeros(&[3, 5], DType::U8))),
            "the mask has the wrong dtype, expected bool or a float, found u8",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, format!("scaled_dot_product_attention: {expected}"));
    }
    assert!(text(&q, &zeros(&[2, 5, 4], DType::F64), &v, None).contains("the key"));
    let wrong = q.scaled_dot_product_attention_out(&k, &v, None, false, None, &f32(&[2, 3, 4])).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "scaled_dot_product_attention: the output has the wrong shape, expected [2, 3, 6], found [2, 3, 4]"
    );
    let shared = f32(&[2, 3, 4]);
    let onto = shared.scaled_dot_product_attention_out(&k, &f32(&[2, 5, 4]), None, false, None, &shared);
    assert!(onto.unwrap_err().to_string().contains("overlaps"));
}

/// Without drops it is attention; with all dropped it is 0; with some, the mean over draws is near to it.
fn composed_with_dropout(device: &Device) {
    let mut random = Random::named("attention_with_dropout");
    let mut draw = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| random.below(33) as f64 / 16.0 - 1.0).collect();
        Tensor::from_slice(&values, shape, device).unwrap()
    };
    let (q, k, v, added) = (draw(&[2, 3, 4]), draw(&[2, 5, 4]), draw(&[2, 5, 6]), draw(&[3, 5]));
    // The second query sees no key.
    let seen = added.gt(0).unwrap();
    seen.select(0, 1).unwrap().fill_(false).unwrap();
    for (mask, is_causal) in
        [(None, false), (None, true), (Some(&added), true), (Some(&seen), false), (Some(&seen), true)]
    {
        let of =
            |p| q.attention_with_dropout(&k, &v, mask, p, is_causal, None).unwrap().to_vec::<f64>().unwrap();
        let whole =
            q.scaled_dot_product_attention(&k, &v, mask, is_causal, None).unwrap().to_vec::<f64>().unwrap();
        let near = |found: &[f64], tolerance: f64| {
            found.iter().zip(&whole).all(|(found, expected)| (found - expected).abs() <= tolerance)
        };
        assert!(near(&of(0.0), 1e-12), "{mask:?}, causal {is_causal}");
        assert!(of(1.0).iter().all(|&value| value == 0.0));
        let mut mean = vec![0.0; whole.len()];
        for _ in 0..400 {
            mean.iter_mut().zip(of(0.25)).for_each(|(mean, value)| *mean += value / 400.0);
        }
        // A weight of 1 scatters by √(p / (1 − p)) = 0.58 a draw: by 0.03 of 400; five times that.
        assert!(near(&mean, 0.15), "{mask:?}, causal {is_causal}: {mean:?}, expected {whole:?}");
    }
}
