//! Sorting, selecting, and reading and writing at places that another tensor names.

use super::harness::{Answer, Drawing, Op, Run, everywhere, having};
use crate::{
    Case,
    array::{Array, indices, round},
    layouts::{Placed, Placement},
    oracle::structured::{groups, near, sorted, sum},
    random::Random,
    report::{Expected, check_same},
};
use raddle::{DType, Device, Scalar, Tensor, runtime};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!("order": sort, topk, gather, scatter, scatter_add, sums_of_16_bits, index_select, index_add, embedding, nonzero, masked_select, named_places, cat, stack, bad_indices, errors)
}

/// Few distinct numbers, so that there are ties; NaN now and then.
fn drawn(dtype: DType, shape: &[usize], random: &mut Random) -> Array {
    Array::from_fn(dtype, shape, |_| match dtype {
        DType::Bool => Scalar::Bool(random.one_of(2)),
        DType::U8 => Scalar::Int(random.below(12) as i64),
        DType::I32 | DType::I64 => Scalar::Int(random.below(25) as i64 - 12),
        _ if random.one_of(13) => Scalar::Float(f64::NAN),
        _ => Scalar::Float(random.below(25) as f64 / 4.0 - 3.0),
    })
}

/// As [`drawn`], without NaN.
fn numbers(dtype: DType, shape: &[usize], random: &mut Random) -> Array {
    let mut array = drawn(dtype, shape, random);
    array
        .data
        .iter_mut()
        .filter(|value| value.to_f64().is_nan())
        .for_each(|value| *value = Scalar::Float(1.5));
    array
}

fn places(shape: &[usize], below: usize, random: &mut Random, dtype: DType) -> Array {
    Array::from_fn(dtype, shape, |_| random.below(below) as i64)
}

const SHAPES: [(&[usize], usize); 8] = [
    (&[], 0),
    (&[1], 0),
    (&[501], 0),
    (&[6, 9], 0),
    (&[6, 9], 1),
    (&[2, 0], 1),
    (&[3, 4, 2], 1),
    (&[2, 1, 3, 2, 1, 4], 2),
];

/// Values and places of the first `count` in order, along an axis.
fn ordered(x: &Array, axis: usize, descending: bool, count: usize) -> Vec<Answer> {
    if x.rank() == 0 {
        return vec![Answer::exactly(x), Answer::indices(&[], [0])];
    }
    let mut shape = x.shape.clone();
    shape[axis] = count;
    let lines = groups(x, &[axis]);
    let orders: Vec<Vec<usize>> = lines.iter().map(|line| sorted(line, descending)).collect();
    // The number of the line in row-major order of the other axes.
    let line = |index: &[usize]| {
        (0..x.rank())
            .filter(|&other| other != axis)
            .fold(0, |line, other| line * x.shape[other] + index[other])
    };
    let all = indices(&shape);
    let place = |index: &Vec<usize>| orders[line(index)][index[axis]];
    let expected = all.iter().map(|index| Expected::Exactly(lines[line(index)][place(index)])).collect();
    vec![
        Answer { dtype: x.dtype, shape: shape.clone(), expected },
        Answer::indices(&shape, all.iter().map(place)),
    ]
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let random = &mut *drawing.values.borrow_mut();
    let run: Run = &|op, inputs| drawing.run(op, inputs);
    let (mut shape, axis) = drawing.line();
    match name {
        "sort" | "argsort" => sort_of(dtype, &shape, axis, drawing.one_of(2), random, run),
        "topk" => {
            let k = drawing.below(shape[axis] + 1);
            topk_of(dtype, &shape, axis, (drawing.one_of(2), k), random, run);
        }
        "gather" | "scatter" | "scatter_add" => {
            // The index is no larger than the tensor but along the axis.
            shape[axis] = shape[axis].max(1);
            let mut index: Vec<usize> = shape.iter().map(|size| drawing.below(size + 1)).collect();
            index[axis] = drawing.size();
            let body = match name {
                "gather" => gather_of,
                "scatter" => scatter_of,
                _ => scatter_add_of,
            };
            body(dtype, &shape, &index, axis, random, run);
        }
        "index" | "index_put" => {
            let [a, b, c] = [(); 3].map(|()| drawing.size());
            index_of(dtype, [a.max(1), b, c.max(1)], [drawing.size(), drawing.size()], random, run);
        }
        "index_select" | "index_add" => {
            shape[axis] = shape[axis].max(1);
            let one = [drawing.size()];
            let index = if drawing.one_of(8) { &[][..] } else { &one };
            if name == "index_select" {
                index_select_of(dtype, &shape, index, axis, random, run);
            } else {
                index_add_of(dtype, &shape, index, axis, drawing.pick(&[1.0, -2.0, 3.0]), random, run);
            }
        }
        "embedding" => {
            let (rows, columns, rank) = (drawing.size_at_least_1(), drawing.size(), drawing.below(3));
            embedding_of(dtype, [rows, columns], &drawing.shape(rank), random, run);
        }
        "masked_select" => {
            let mask: Vec<usize> =
                shape.iter().map(|&size| if drawing.one_of(4) { 1 } else { size }).collect();
            let mask = &mask[drawing.below(mask.len())..];
            masked_select_of(dtype, &shape, mask, random, run);
        }
        "nonzero" => nonzero_of(dtype, &shape, random, run),
        "cat" => {
            let lengths: Vec<usize> = (0..1 + drawing.below(4)).map(|_| drawing.size()).collect();
            cat_of(dtype, &shape, axis, &lengths, random, run);
        }
        "stack" => stack_of(dtype, &shape, axis, random, run),
        _ => return false,
    }
    true
}

fn sort(device: &Device) {
    let mut random = Random::named("sort");
    for dtype in having(device, DType::ALL) {
        for (shape, axis) in SHAPES {
            for descending in [false, true] {
                sort_of(dtype, shape, axis, descending, &mut random, &everywhere(device));
            }
        }
    }
}

fn sort_of(dtype: DType, shape: &[usize], axis: usize, descending: bool, random: &mut Random, run: Run) {
    let x = drawn(dtype, shape, random);
    let signed = axis as isize;
    run(
        &Op {
            what: &format!("sort along {axis}, descending {descending}, of {dtype}"),
            oracle: &|x| {
                let count = x[0].shape.get(axis).copied().unwrap_or(1);
                let mut answers = ordered(&x[0], axis, descending, count);
                answers.extend(ordered(&x[0], axis, descending, count).pop());
                answers
            },
            fresh: &|x| {
                let (values, places) = x[0].sort(signed, descending)?;
                Ok(vec![values, places, x[0].argsort(signed, descending)?])
            },
            into: Some(&|x, out| {
                x[0].argsort_out(signed, descending, out[2])?;
                x[0].sort_out(signed, descending, (out[0], out[1]))
            }),
        },
        &[x],
    );
}

fn topk(device: &Device) {
    let mut random = Random::named("topk");
    for dtype in having(device, DType::ALL) {
        for (shape, axis) in SHAPES {
            let length = shape.get(axis).copied().unwrap_or(1);
            for (largest, k) in [(true, length / 2), (false, length.min(3)), (true, length)] {
                topk_of(dtype, shape, axis, (largest, k), &mut random, &everywhere(device));
            }
        }
    }
}

fn topk_of(
    dtype: DType,
    shape: &[usize],
    axis: usize,
    (largest, k): (bool, usize),
    random: &mut Random,
    run: Run,
) {
    let x = drawn(dtype, shape, random);
    if shape.is_empty() && k == 0 {
        return;
    }
    let signed = axis as isize;
    run(
        &Op {
            what: &format!("topk {k} along {axis}, largest {largest}, of {dtype}"),
            oracle: &|x| ordered(&x[0], axis, largest, k),
            fresh: &|x| {
                let (values, places) = x[0].topk(k, signed, largest)?;
                Ok(vec![values, places])
            },
            into: Some(&|x, out| x[0].topk_out(k, signed, largest, (out[0], out[1]))),
        },
        &[x],
    );
}

/// Shape of the source, of the index, axis.
const BESIDE: [(&[usize], &[usize], usize); 6] = [
    (&[5], &[7], 0),
    (&[4, 5], &[4, 3], 1),
    (&[4, 5], &[6, 2], 0),
    (&[2, 3, 4], &[2, 2, 4], 1),
    (&[4, 5], &[0, 5], 0),
    (&[2, 1, 3, 2, 1, 2], &[2, 1, 5, 2, 1, 1], 2),
];

/// An index with the place along the axis that the array names.
fn named(index: &[usize], axis: usize, place: &Array) -> Vec<usize> {
    let mut named = index.to_vec();
    named[axis] = place.i64(index) as usize;
    named
}

fn gather(device: &Device) {
    let mut random = Random::named("gather");
    for dtype in having(device, DType::ALL) {
        for (shape, index, axis) in BESIDE {
            gather_of(dtype, shape, index, axis, &mut random, &everywhere(device));
        }
    }
}

fn gather_of(dtype: DType, shape: &[usize], index: &[usize], axis: usize, random: &mut Random, run: Run) {
    let place_dtype = if random.one_of(2) { DType::I64 } else { DType::I32 };
    let inputs = [drawn(dtype, shape, random), places(index, shape[axis], random, place_dtype)];
    let signed = axis as isize;
    run(
        &Op {
            what: &format!("gather along {axis} of {dtype}"),
            oracle: &|x| {
                vec![Answer::exactly(&Array::from_fn(dtype, index, |at| x[0].at(&named(at, axis, &x[1]))))]
            },
            fresh: &|x| Ok(vec![x[0].gather(signed, x[1])?]),
            into: Some(&|x, out| x[0].gather_out(signed, x[1], out[0])),
        },
        &inputs,
    );
}

fn scatter(device: &Device) {
    let mut random = Random::named("scatter");
    for dtype in having(device, DType::ALL) {
        for (shape, index, axis) in BESIDE {
            scatter_of(dtype, shape, index, axis, &mut random, &everywhere(device));
        }
    }
}

fn scatter_of(dtype: DType, shape: &[usize], index: &[usize], axis: usize, random: &mut Random, run: Run) {
    // The values may be larger than the index.
    let larger: Vec<usize> = index.iter().map(|size| size + 1).collect();
    let inputs = [
        drawn(dtype, shape, random),
        places(index, shape[axis], random, DType::I64),
        drawn(dtype, &larger, random),
    ];
    let signed = axis as isize;
    let oracle = |x: &[Array]| {
        let mut target = x[0].clone();
        for at in indices(index) {
            target.set(&named(&at, axis, &x[1]), x[2].at(&at));
        }
        vec![Answer::exactly(&target), Answer::exactly(&target)]
    };
    run(
        &Op {
            what: &format!("scatter along {axis} of {dtype}"),
            oracle: &oracle,
            fresh: &|x| {
                let own = x[0].copy()?;
                own.scatter_(signed, x[1], x[2])?;
                Ok(vec![x[0].scatter(signed, x[1], x[2])?, own])
            },
            into: Some(&|x, out| {
                out[0].copy_(x[0])?;
                out[0].scatter_(signed, x[1], x[2])?;
                x[0].scatter_out(signed, x[1], x[2], out[1])
            }),
        },
        &inputs,
    );
}

/// What is added up at each place: of floats with the error of as many roundings, of integers exactly.
fn added(target: &Array, terms: impl Iterator<Item = (Vec<usize>, Scalar)>, factor: f64) -> Answer {
    let dtype = target.dtype;
    let mut lists: Vec<Vec<Scalar>> = target.data.iter().map(|&value| vec![value]).collect();
    for (place, value) in terms {
        let position = place.iter().zip(&target.shape).fold(0, |position, (at, size)| position * size + at);
        lists[position].push(value);
    }
    let expected = lists
        .iter()
        .map(|list| {
            if dtype.is_float() {
                let values: Vec<f64> = list
                    .iter()
                    .enumerate()
                    .map(|(at, value)| if at == 0 { value.to_f64() } else { factor * value.to_f64() })
                    .collect();
                let size: f64 = values.iter().map(|value| value.abs()).sum();
                // 16-bit floats are rounded after each addition.
                let roundings = (list.len() - 1) as f64;
                let each = crate::report::ulp_size(dtype, size.max(f64::MIN_POSITIVE));
                match near(dtype, sum(values), size, 8.0) {
                    Expected::Near { value, tolerance } => {
                        Expected::Near { value, tolerance: tolerance + roundings * each }
                    }
                    other => other,
                }
            } else {
                let value = |at: usize, value: &Scalar| {
                    value.to_i64().wrapping_mul(if at == 0 { 1 } else { factor as i64 })
                };
                let total =
                    list.iter().enumerate().fold(0i64, |total, (at, v)| total.wrapping_add(value(at, v)));
                Expected::Exactly(round(dtype, Scalar::Int(total)))
            }
        })
        .collect();
    Answer { dtype, shape: target.shape.clone(), expected }
}

/// Sums are rounded once: of 256 in `bf16`, or 2048 in `f16`, no number of ones would make more if each addition were.
fn sums_of_16_bits(device: &Device) {
    for (dtype, base) in [(DType::BF16, 256), (DType::F16, 2048)] {
        // Few, many of one place, many in turns, and many lines.
        for (lines, count, places) in [(1usize, 8usize, 1usize), (3, 2000, 1), (2, 600, 3), (1000, 20, 2)] {
            let index: Vec<i64> = (0..lines * count).map(|at| (at % count % places) as i64).collect();
            let index = Tensor::from_slice(&index, [lines, count], device).unwrap();
            let each: Vec<usize> = (0..places).map(|place| base + (count - place).div_ceil(places)).collect();
            for placement in Placement::OUTPUTS {
                let what = format!("{dtype}, {lines} lines, {count} ones to {places} places, {placement:?}");
                let ones = Array::from_fn(dtype, &[lines, count], |_| Scalar::Int(1));
                let ones = Placed::new(&ones, placement, device);
                let bases = Array::from_fn(dtype, &[lines, places], |_| Scalar::Int(base as i64));
                let expected =
                    Array::from_fn(dtype, &[lines, places], |index| Scalar::Int(each[index[1]] as i64));
                let target = Placed::new(&bases, placement, device);
                target.view.scatter_add_(1, &index, &ones.view).unwrap();
                check_same(&format!("scatter_add of {what}"), &expected, &Array::read(&target.view));
                target.check_guards(&what);
                // All lines by one index.
                let target = Placed::new(&bases, placement, device);
                target.view.index_add_(1, &index.select(0, 0).unwrap(), &ones.view, 1.0).unwrap();
                check_same(&format!("index_add of {what}"), &expected, &Array::read(&target.view));
                target.check_guards(&what);
            }
        }
    }
}

fn scatter_add(device: &Device) {
    let mut random = Random::named("scatter_add");
    for dtype in having(device, &DType::ALL[1..]) {
        for (shape, index, axis) in BESIDE {
            scatter_add_of(dtype, shape, index, axis, &mut random, &everywhere(device));
        }
    }
}

fn scatter_add_of(
    dtype: DType,
    shape: &[usize],
    index: &[usize],
    axis: usize,
    random: &mut Random,
    run: Run,
) {
    let inputs = [
        numbers(dtype, shape, random),
        places(index, shape[axis], random, DType::I64),
        numbers(dtype, index, random),
    ];
    let signed = axis as isize;
    run(
        &Op {
            what: &format!("scatter_add along {axis} of {dtype}"),
            oracle: &|x| {
                let terms = indices(index).into_iter().map(|at| (named(&at, axis, &x[1]), x[2].at(&at)));
                vec![added(&x[0], terms.clone(), 1.0), added(&x[0], terms, 1.0)]
            },
            fresh: &|x| {
                let own = x[0].copy()?;
                own.scatter_add_(signed, x[1], x[2])?;
                Ok(vec![x[0].scatter_add(signed, x[1], x[2])?, own])
            },
            into: Some(&|x, out| {
                out[0].copy_(x[0])?;
                out[0].scatter_add_(signed, x[1], x[2])?;
                x[0].scatter_add_out(signed, x[1], x[2], out[1])
            }),
        },
        &inputs,
    );
}

/// Shape of the source, how many places, axis.
const SLICES: [(&[usize], &[usize], usize); 5] = [
    (&[5], &[3], 0),
    (&[4, 6], &[5], 1),
    (&[4, 6], &[0], 0),
    (&[2, 3, 4], &[], 1),
    (&[2, 1, 3, 2, 1, 2], &[4], 2),
];

fn index_select(device: &Device) {
    let mut random = Random::named("index_select");
    for dtype in having(device, DType::ALL) {
        for (shape, index, axis) in SLICES {
            index_select_of(dtype, shape, index, axis, &mut random, &everywhere(device));
        }
    }
}

fn index_select_of(
    dtype: DType,
    shape: &[usize],
    index: &[usize],
    axis: usize,
    random: &mut Random,
    run: Run,
) {
    let inputs = [drawn(dtype, shape, random), places(index, shape[axis], random, DType::I64)];
    let mut out = shape.to_vec();
    out[axis] = inputs[1].count();
    let signed = axis as isize;
    let oracle = |x: &[Array]| {
        vec![Answer::exactly(&Array::from_fn(dtype, &out, |at| {
            let mut at = at.to_vec();
            at[axis] = x[1].data[at[axis]].to_i64() as usize;
            x[0].at(&at)
        }))]
    };
    run(
        &Op {
            what: &format!("index_select along {axis} of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].index_select(signed, x[1])?]),
            into: Some(&|x, out| x[0].index_select_out(signed, x[1], out[0])),
        },
        &inputs,
    );
}

fn index_add(device: &Device) {
    let mut random = Random::named("index_add");
    for dtype in having(device, &DType::ALL[1..]) {
        for (shape, index, axis) in SLICES {
            for alpha in [1.0, -2.0] {
                index_add_of(dtype, shape, index, axis, alpha, &mut random, &everywhere(device));
            }
        }
    }
}

fn index_add_of(
    dtype: DType,
    shape: &[usize],
    index: &[usize],
    axis: usize,
    alpha: f64,
    random: &mut Random,
    run: Run,
) {
    let index = places(index, shape[axis], random, DType::I64);
    let mut from = shape.to_vec();
    from[axis] = index.count();
    let inputs = [numbers(dtype, shape, random), index, numbers(dtype, &from, random)];
    let signed = axis as isize;
    run(
        &Op {
            what: &format!("index_add along {axis}, alpha {alpha}, of {dtype}"),
            oracle: &|x| {
                let terms = indices(&from).into_iter().map(|at| {
                    let mut place = at.clone();
                    place[axis] = x[1].data[at[axis]].to_i64() as usize;
                    (place, x[2].at(&at))
                });
                vec![added(&x[0], terms.clone(), alpha), added(&x[0], terms, alpha)]
            },
            fresh: &|x| {
                let own = x[0].copy()?;
                own.index_add_(signed, x[1], x[2], alpha)?;
                Ok(vec![x[0].index_add(signed, x[1], x[2], alpha)?, own])
            },
            into: Some(&|x, out| {
                out[0].copy_(x[0])?;
                out[0].index_add_(signed, x[1], x[2], alpha)?;
                x[0].index_add_out(signed, x[1], x[2], alpha, out[1])
            }),
        },
        &inputs,
    );
}

/// Indices of two axes with another one between them, of one axis, and a mask: reading, and writing with and without addition.
fn named_places(device: &Device) {
    let mut random = Random::named("named_places");
    for dtype in having(device, DType::ALL) {
        for (count, columns) in [(4, 1), (1, 3), (0, 2)] {
            index_of(dtype, [3, 2, 5], [count, columns], &mut random, &everywhere(device));
        }
        index_by_mask(dtype, &mut random, device);
    }
}

fn index_of(dtype: DType, shape: [usize; 3], named: [usize; 2], random: &mut Random, run: Run) {
    let [count, columns] = named;
    let signed = |shape: &[usize], size: usize, random: &mut Random| {
        Array::from_fn(DType::I64, shape, |_| Scalar::Int(random.below(2 * size) as i64 - size as i64))
    };
    let (first, last) = (signed(&[count, 1], shape[0], random), signed(&[columns], shape[2], random));
    let values = numbers(dtype, &[count, columns, shape[1]], random);
    let inputs = [numbers(dtype, &shape, random), first, last, values];
    // From the end, as Python counts.
    let place =
        |index: &Array, at: usize, size: usize| index.data[at].to_i64().rem_euclid(size as i64) as usize;
    let at = move |x: &[Array], i: usize, j: usize, k: usize| {
        [place(&x[1], i, shape[0]), k, place(&x[2], j, shape[2])]
    };
    let all = indices(&[count, columns, shape[1]]);
    let read = |x: &[Array]| {
        Array::from_fn(dtype, &[count, columns, shape[1]], |to| x[0].at(&at(x, to[0], to[1], to[2])))
    };
    let written = |x: &[Array]| {
        let mut target = x[0].clone();
        for to in &all {
            let [a, b, c] = at(x, to[0], to[1], to[2]);
            target.data[(a * shape[1] + b) * shape[2] + c] = x[3].at(to);
        }
        target
    };
    let adds = dtype != DType::Bool;
    run(
        &Op {
            what: &format!("index of {dtype} at {named:?}"),
            oracle: &|x| {
                let mut answers = vec![Answer::exactly(&read(x)), Answer::exactly(&written(x))];
                if adds {
                    let terms = all.iter().map(|to| (at(x, to[0], to[1], to[2]).to_vec(), x[3].at(to)));
                    answers.push(added(&x[0], terms, 1.0));
                }
                answers
            },
            fresh: &|x| {
                let named = [Some(x[1]), None, Some(x[2])];
                let mut made = vec![x[0].index(&named)?, x[0].index_put(&named, x[3], false)?];
                if adds {
                    made.push(x[0].index_put(&named, x[3], true)?);
                }
                Ok(made)
            },
            into: Some(&|x, out| {
                let named = [Some(x[1]), None, Some(x[2])];
                out[0].copy_(&x[0].index(&named)?)?;
                out[1].copy_(x[0])?.index_put_(&named, x[3], false)?;
                if adds {
                    out[2].copy_(x[0])?.index_put_(&named, x[3], true)?;
                }
                Ok(())
            }),
        },
        &inputs,
    );
}

fn index_by_mask(dtype: DType, random: &mut Random, device: &Device) {
    let inputs = [
        numbers(dtype, &[3, 4, 2], random),
        Array::from_fn(DType::Bool, &[3, 4], |_| Scalar::Bool(random.one_of(2))),
    ];
    everywhere(device)(
        &Op {
            what: &format!("index of {dtype} by a mask"),
            oracle: &|x| {
                let chosen: Vec<Vec<usize>> =
                    indices(&[3, 4]).into_iter().filter(|at| x[1].at(at).to_bool()).collect();
                let read = Array::from_fn(dtype, &[chosen.len(), 2], |at| {
                    x[0].at(&[&chosen[at[0]][..], &at[1..]].concat())
                });
                let filled = Array::from_fn(dtype, &[3, 4, 2], |at| {
                    if x[1].at(&at[..2]).to_bool() { round(dtype, Scalar::Int(1)) } else { x[0].at(at) }
                });
                vec![Answer::exactly(&read), Answer::exactly(&filled)]
            },
            fresh: &|x| Ok(vec![x[0].index(&[Some(x[1])])?, x[0].index_put(&[Some(x[1])], 1i64, false)?]),
            into: None,
        },
        &inputs,
    );
}

fn embedding(device: &Device) {
    let mut random = Random::named("embedding");
    let dtypes =
        DType::ALL.iter().flat_map(|&dtype| [&[][..], &[4], &[2, 3], &[0]].map(|index| (dtype, index)));
    for (dtype, index) in dtypes {
        embedding_of(dtype, [7, 5], index, &mut random, &everywhere(device));
    }
}

fn embedding_of(dtype: DType, [rows, columns]: [usize; 2], index: &[usize], random: &mut Random, run: Run) {
    let inputs = [drawn(dtype, &[rows, columns], random), places(index, rows, random, DType::I64)];
    let out: Vec<usize> = index.iter().copied().chain([columns]).collect();
    let oracle = |x: &[Array]| {
        vec![Answer::exactly(&Array::from_fn(dtype, &out, |at| {
            let (place, column) = at.split_at(at.len() - 1);
            x[0].at(&[x[1].i64(place) as usize, column[0]])
        }))]
    };
    run(
        &Op { what: "embedding", oracle: &oracle, fresh: &|x| Ok(vec![x[0].embedding(x[1])?]), into: None },
        &inputs,
    );
}

fn nonzero(device: &Device) {
    let mut random = Random::named("nonzero");
    for dtype in having(device, DType::ALL) {
        for shape in [&[][..], &[9], &[3, 5], &[0, 2], &[2, 1, 3, 2, 1, 2]] {
            nonzero_of(dtype, shape, &mut random, &everywhere(device));
        }
    }
}

fn nonzero_of(dtype: DType, shape: &[usize], random: &mut Random, run: Run) {
    let x = Array::from_fn(dtype, shape, |_| random.below(3) as i64);
    let oracle = |x: &[Array]| {
        let found: Vec<Vec<usize>> =
            indices(shape).into_iter().filter(|index| x[0].f64(index) != 0.0).collect();
        vec![Answer::indices(&[found.len(), shape.len()], found.concat())]
    };
    run(
        &Op {
            what: &format!("nonzero of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].nonzero()?]),
            into: None,
        },
        &[x],
    );
}

fn masked_select(device: &Device) {
    let mut random = Random::named("masked_select");
    for dtype in having(device, DType::ALL) {
        for mask in [&[3, 4][..], &[4], &[3, 1]] {
            masked_select_of(dtype, &[3, 4], mask, &mut random, &everywhere(device));
        }
    }
}

fn masked_select_of(dtype: DType, shape: &[usize], mask: &[usize], random: &mut Random, run: Run) {
    let inputs = [drawn(dtype, shape, random), Array::from_fn(DType::Bool, mask, |_| random.one_of(2))];
    let oracle = |x: &[Array]| {
        let kept: Vec<Scalar> = indices(shape)
            .iter()
            .filter(|index| x[1].at(index).to_bool())
            .map(|index| x[0].at(index))
            .collect();
        vec![Answer::exactly(&Array::of(dtype, &[kept.len()], &kept))]
    };
    run(
        &Op {
            what: &format!("masked_select of {dtype}"),
            oracle: &oracle,
            fresh: &|x| Ok(vec![x[0].masked_select(x[1])?]),
            into: None,
        },
        &inputs,
    );
}

/// The arrays one after the other.
fn joined(x: &[Array], axis: usize, dtype: DType) -> Array {
    let mut shape = x[0].shape.clone();
    shape[axis] = x.iter().map(|part| part.shape[axis]).sum();
    Array::from_fn(dtype, &shape, |index| {
        let mut index = index.to_vec();
        for part in x {
            if index[axis] < part.shape[axis] {
                return part.at(&index);
            }
            index[axis] -= part.shape[axis];
        }
        unreachable!("the parts fill the axis")
    })
}

fn cat(device: &Device) {
    let mut random = Random::named("cat");
    for dtype in having(device, DType::ALL) {
        let flat = &[3, 2, 4][..];
        let deep = &[2, 1, 3, 1, 2, 2][..];
        for (shape, axis, lengths) in [
            (flat, 0, &[2, 1, 3][..]),
            (flat, 1, &[4]),
            (flat, 1, &[2, 0, 5]),
            (flat, 2, &[1, 1]),
            (deep, 4, &[1, 3]),
        ] {
            cat_of(dtype, shape, axis, lengths, &mut random, &everywhere(device));
        }
    }
    // Dtypes are promoted.
    let inputs = [drawn(DType::I32, &[2, 2], &mut random), numbers(DType::F16, &[1, 2], &mut random)];
    Op {
        what: "cat of i32 and f16",
        oracle: &|x| vec![Answer::exactly(&joined(x, 0, DType::F16))],
        fresh: &|x| Ok(vec![Tensor::cat(x, 0)?]),
        into: None,
    }
    .run(&inputs, device);
}

fn cat_of(dtype: DType, shape: &[usize], axis: usize, lengths: &[usize], random: &mut Random, run: Run) {
    let inputs: Vec<Array> = lengths
        .iter()
        .map(|&length| {
            let mut shape = shape.to_vec();
            shape[axis] = length;
            drawn(dtype, &shape, random)
        })
        .collect();
    let signed = axis as isize - shape.len() as isize;
    run(
        &Op {
            what: &format!("cat along {axis} of {dtype}"),
            oracle: &|x| vec![Answer::exactly(&joined(x, axis, dtype))],
            fresh: &|x| Ok(vec![Tensor::cat(x, signed)?]),
            into: Some(&|x, out| Tensor::cat_out(x, signed, out[0])),
        },
        &inputs,
    );
}

fn stack(device: &Device) {
    let mut random = Random::named("stack");
    let shapes = [&[2, 5][..], &[], &[0, 3], &[1, 2, 1, 3, 1, 2]];
    let cases = shapes.into_iter().flat_map(|shape| (0..=shape.len()).map(move |axis| (shape, axis)));
    for (dtype, (shape, axis)) in
        DType::ALL.iter().flat_map(|&dtype| cases.clone().map(move |case| (dtype, case)))
    {
        stack_of(dtype, shape, axis, &mut random, &everywhere(device));
    }
}

fn stack_of(dtype: DType, shape: &[usize], axis: usize, random: &mut Random, run: Run) {
    let inputs: Vec<Array> = (0..3).map(|_| drawn(dtype, shape, random)).collect();
    let oracle = |x: &[Array]| {
        let mut shape = shape.to_vec();
        shape.insert(axis, 3);
        vec![Answer::exactly(&Array::from_fn(dtype, &shape, |index| {
            let mut index = index.to_vec();
            let part = index.remove(axis);
            x[part].at(&index)
        }))]
    };
    run(
        &Op {
            what: "stack",
            oracle: &oracle,
            fresh: &|x| Ok(vec![Tensor::stack(x, axis as isize)?]),
            into: Some(&|x, out| Tensor::stack_out(x, axis as isize, out[0])),
        },
        &inputs,
    );
}

/// A place out of range: the error is told at once or to whoever reads the result; what doesn't depend on it goes on.
fn bad_indices(device: &Device) {
    let x = Tensor::arange(0, 5, 1, DType::F32, device).unwrap();
    for place in [5i64, -1, i64::MAX, i64::MIN] {
        let index = Tensor::from_slice(&[0, place], [2], device).unwrap();
        let results = [x.gather(0, &index), x.index_select(0, &index), x.scatter(0, &index, &x)];
        for result in results {
            let error = result.and_then(|result| result.to_vec::<f32>()).unwrap_err();
            assert!(matches!(error, raddle::Error::Runtime(runtime::Error::Kernel { .. })), "{error}");
            assert!(error.to_string().contains(&format!("{place}")), "{error}");
        }
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(x.add(1).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    // Those that the caller gave are counted, not the elements for which they stand.
    let table = Tensor::zeros([2, 3, 4], DType::F32, device).unwrap();
    let index = Tensor::from_slice(&[0i64, 1, 9, 0, -1, 0], [6], device).unwrap();
    let grid = index.reshape([2, 3]).unwrap();
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, device).unwrap();
    for (result, size) in [
        (table.index_select(0, &index), 2),
        (table.index_select(1, &index), 3),
        (table.index_select(-1, &index), 4),
        (table.embedding(&grid), 2),
        (table.index_add(0, &index, &ones(&[6, 3, 4]), 1.0), 2),
        (table.index_add(1, &index, &ones(&[2, 6, 4]), 2.0), 3),
        (table.select(0, 0).unwrap().gather(1, &grid), 4),
    ] {
        let told = result.and_then(|result| result.to_vec::<f32>()).unwrap_err().to_string();
        let expected =
            format!("index 9 (element 2 of the indices) is out of bounds, the axis has size {size}");
        assert!(told.contains(&expected), "{told}");
    }
}

fn errors(device: &Device) {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device).unwrap();
    let x = zeros(&[2, 3], DType::F32);
    let index = |shape: &[usize]| zeros(shape, DType::I64);
    let text = |result: raddle::Result<Tensor>| result.unwrap_err().to_string();
    let cases = [
        (
            x.topk(4, 1, true).map(|found| found.0),
            "topk: k is out of range, expected at most the size of the axis, found 4",
        ),
        (x.sort(2, false).map(|found| found.0), "sort: axis 2 is out of range, expected -2 to 1, rank is 2"),
        (x.gather(0, &x), "gather: index has the wrong dtype, expected i64 or i32, found f32"),
        (
            x.gather(0, &index(&[2])),
            "gather: index has the wrong number of axes, expected as many as the tensor, found 1",
        ),
        (x.gather(0, &index(&[1, 4])), "gather: index has the wrong shape, expected [2, 3], found [1, 4]"),
        (
            x.scatter(0, &index(&[1, 3]), &zeros(&[1, 2], DType::F32)),
            "scatter: values has the wrong shape, expected [1, 3], found [1, 2]",
        ),
        (
            x.scatter_add(0, &index(&[1, 3]), &zeros(&[1, 3], DType::F64)),
            "scatter_add: values has the wrong dtype, expected f32, found f64",
        ),
        (
            x.index_select(0, &index(&[1, 1])),
            "index_select: index has the wrong number of axes, expected 0 or 1, found 2",
        ),
        (
            x.index(&[Some(&index(&[1])), None, None]),
            "index: the list of indices has the wrong number of axes, expected at most as many as the tensor has axes, found 3",
        ),
        (
            x.index(&[None, Some(&zeros(&[2], DType::Bool))]),
            "index: a mask has the wrong shape, expected [3], found [2]",
        ),
        (x.index(&[Some(&x)]), "index: index has the wrong dtype, expected i64, i32 or bool, found f32"),
        (x.index(&[None]), "index: wrong number of tensors, expected at least 1, found 0"),
        (
            x.index_put(&[Some(&index(&[4]))], &zeros(&[2, 3], DType::F32), false),
            "index_put: the values has the wrong shape, expected [4, 3], found [2, 3]",
        ),
        (Tensor::cat::<&Tensor>(&[], 0), "cat: wrong number of tensors, expected at least 1, found 0"),
        (
            Tensor::cat(&[&x, &zeros(&[2, 2], DType::F32)], 0),
            "cat: a tensor has the wrong shape, expected [2, 3], found [2, 2]",
        ),
        (
            Tensor::stack(&[&x, &zeros(&[3, 2], DType::F32)], 0),
            "stack: a tensor has the wrong shape, expected [2, 3], found [3, 2]",
        ),
        (x.masked_select(&x), "masked_select: the mask has the wrong dtype, expected bool, found f32"),
    ];
    for (result, expected) in cases {
        assert_eq!(text(result), expected);
    }
}
