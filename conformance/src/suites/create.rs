//! New tensors, copies, casts, triangles; what an output may not be.

use super::harness::{Answer, Drawing, Op, Run, everywhere, having};
use crate::{
    Case,
    array::{Array, bytes_of, indices, round, scalars_of},
    layouts::{Placed, Placement, fitted_to},
    random::Random,
    report::{Expected, check, exactly},
};
use raddle::{DType, Device, Error, Scalar, Tensor, runtime};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!(
        "create": constants, ranges, identity, triangles, triangles_in_place, casts, copies, host_and_back, overlap_is_refused,
        devices_are_not_mixed, too_large, out_of_memory
    )
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let random = &mut *drawing.values.borrow_mut();
    let device = drawing.device;
    let rank = if name.starts_with("tri") { 2 + drawing.below(5) } else { drawing.below(6) };
    let shape = drawing.shape(rank);
    let is = |found: Tensor, expected: Vec<Expected>, shape: &[usize]| {
        check(&format!("{name} of {dtype}"), shape, &expected, &Array::read(&found));
    };
    match name {
        "empty" => {
            let found = Tensor::empty(&shape, dtype, device).unwrap();
            assert_eq!((found.shape().to_vec(), found.dtype()), (shape, dtype));
        }
        "zeros" | "ones" | "full" => {
            let value = match name {
                "zeros" => Scalar::Int(0),
                "ones" => Scalar::Int(1),
                // One that every dtype holds.
                _ => Scalar::Int(random.below(2) as i64),
            };
            let found = match name {
                "zeros" => Tensor::zeros(&shape, dtype, device),
                "ones" => Tensor::ones(&shape, dtype, device),
                _ => Tensor::full(&shape, value, dtype, device),
            };
            is(found.unwrap(), exactly(&Array::from_fn(dtype, &shape, |_| value)), &shape);
        }
        "arange" => {
            let (start, step, count) =
                (random.below(20) as i64, 1 + random.below(3) as i64, drawing.size() as i64);
            let start = if dtype == DType::U8 { start.min(9) } else { start - 10 };
            let count = if dtype == DType::U8 { count.min(80) } else { count };
            let found = Tensor::arange(start, start + step * count, step, dtype, device).unwrap();
            let expected = Array::from_fn(dtype, &[count as usize], |at| start + step * at[0] as i64);
            is(found, exactly(&expected), &[count as usize]);
        }
        "linspace" => {
            let (start, end, count) = (random.uniform(-5.0, 5.0), random.uniform(-5.0, 5.0), drawing.size());
            let found = Tensor::linspace(start, end, count, dtype, device).unwrap();
            let value = |at: usize| {
                let part = at as f64 / (count - 1).max(1) as f64;
                let value = start + (end - start) * part;
                let size = start.abs().max(end.abs());
                Expected::Near { value, tolerance: 2.0 * crate::report::ulp_size(dtype, size) }
            };
            is(found, (0..count).map(value).collect(), &[count]);
        }
        "eye" => {
            let (n, m) = (drawing.size(), drawing.size());
            let expected = Array::from_fn(dtype, &[n, m], |index| i64::from(index[0] == index[1]));
            is(Tensor::eye(n, m, dtype, device).unwrap(), exactly(&expected), &[n, m]);
        }
        "tril" | "triu" => {
            triangles_of(dtype, &shape, drawing.below(21) as i64 - 10, random, &|op, x| drawing.run(op, x));
        }
        "contiguous" | "to" => {
            let (layout, count) = drawing.layout(&shape, true);
            let x = Array::from_fn(dtype, &shape, |_| match dtype.is_float() {
                true => Scalar::Float(random.float(-300.0, 300.0)),
                false => Scalar::Int(random.below(600) as i64 - 300),
            });
            let x = fitted_to(&x, &layout);
            let placed = Placed::at(&x, (layout, count), device);
            let to = drawing.pick(DType::ALL);
            let (found, expected) = match name {
                "to" => {
                    let expected = x.data.iter().map(|&value| cast(value, dtype, to)).collect();
                    (placed.view.to(to).unwrap(), expected)
                }
                _ => (placed.view.contiguous().unwrap(), exactly(&x)),
            };
            assert!(name == "to" || found.is_contiguous());
            is(found, expected, &shape);
            placed.check_untouched(name);
        }
        _ => return false,
    }
    true
}

fn constants(device: &Device) {
    for dtype in having(device, DType::ALL) {
        for shape in [&[][..], &[0], &[1], &[5, 3], &[2, 1, 2, 1, 2, 1, 2, 1]] {
            for value in
                [Scalar::Int(0), Scalar::Int(1), Scalar::Int(-3), Scalar::Float(2.5), Scalar::Bool(true)]
            {
                let expected = Array::from_fn(dtype, shape, |_| value);
                let what = format!("full of {dtype} with {value}");
                let full = Tensor::full(shape, value, dtype, device).unwrap();
                check(&what, shape, &exactly(&expected), &Array::read(&full));
                check(&what, shape, &exactly(&expected), &Array::read(&full.full_like(value).unwrap()));
                let filled = Placed::output(dtype, shape, Placement::Stepped, device);
                filled.view.fill_(value).unwrap();
                check(&what, shape, &exactly(&expected), &Array::read(&filled.view));
                filled.check_guards(&what);
            }
            let zero = Array::from_fn(dtype, shape, |_| 0i64);
            let x = Tensor::ones(shape, dtype, device).unwrap();
            check("zeros", shape, &exactly(&zero), &Array::read(&x.zeros_like().unwrap()));
            x.zero_().unwrap();
            check("zero_", shape, &exactly(&zero), &Array::read(&x));
        }
    }
    // Strides of the model are kept if it is dense.
    let model = Placed::output(DType::F32, &[3, 4], Placement::Transposed, device).view;
    assert_eq!(**model.zeros_like().unwrap().strides(), [1, 3]);
    assert_eq!(**model.slice(0, 0, 3, 2).unwrap().zeros_like().unwrap().strides(), [4, 1]);
}

fn ranges(device: &Device) {
    for (start, end, step) in
        [(0i64, 10, 1), (3, -8, -2), (5, 5, 1), (-100, 101, 7), (i64::MAX - 2, i64::MAX, 1)]
    {
        let expected: Vec<i64> = {
            let mut list = Vec::new();
            let mut next = i128::from(start);
            while (step > 0 && next < i128::from(end)) || (step < 0 && next > i128::from(end)) {
                list.push(next as i64);
                next += i128::from(step);
            }
            list
        };
        let found = Tensor::arange(start, end, step, DType::I64, device).unwrap();
        assert_eq!(found.to_vec::<i64>().unwrap(), expected, "{start} to {end} by {step}");
    }
    for dtype in having(device, super::harness::FLOATS) {
        for (start, end, step) in [(0.0f64, 1.0, 0.1), (2.0, -1.0, -0.25), (-3.0, 3.0, 1.0)] {
            let count = ((end - start) / step).ceil() as usize;
            let value = |at: usize| Expected::ulp(dtype, start + at as f64 * step, 1.0);
            let found = Array::read(&Tensor::arange(start, end, step, dtype, device).unwrap());
            check("arange", &[count], &(0..count).map(value).collect::<Vec<_>>(), &found);
        }
        for (start, end, count) in
            [(0.0, 1.0, 11), (-2.0, 2.0, 5), (3.0, 7.0, 1), (3.0, 7.0, 0), (0.0, 1.0, 50), (2.0, -7.5, 99)]
        {
            // Parts of the way, from the nearer end: in f64 the number itself, but for one rounding.
            let value = |at: usize| match (at, count - 1 - at) {
                (0, _) => Expected::Near { value: start, tolerance: 0.0 },
                (_, 0) => Expected::Near { value: end, tolerance: 0.0 },
                (at, left) => {
                    let value = (start * left as f64 + end * at as f64) / (count - 1) as f64;
                    let size = start.abs().max(end.abs());
                    Expected::Near { value, tolerance: 2.0 * crate::report::ulp_size(dtype, size) }
                }
            };
            let found = Array::read(&Tensor::linspace(start, end, count, dtype, device).unwrap());
            check("linspace", &[count], &(0..count).map(value).collect::<Vec<_>>(), &found);
        }
    }
    let text = |result: raddle::Result<Tensor>| result.unwrap_err().to_string();
    let integers = |start: i64, end: i64, step: i64| Tensor::arange(start, end, step, DType::I64, device);
    assert_eq!(text(integers(0, 3, 0)), "arange: step is out of range, expected anything but 0, found 0");
    assert_eq!(
        text(integers(0, 3, -1)),
        "arange: step is out of range, expected one that leads from start to end, found -1"
    );
    let endless = Tensor::arange(0.0, f64::INFINITY, 1.0, DType::F32, device);
    assert_eq!(text(endless), "arange: end is out of range, expected a finite number, found inf");
}

fn identity(device: &Device) {
    for dtype in having(device, DType::ALL) {
        for (n, m) in [(3, 3), (2, 5), (5, 2), (1, 1), (0, 3)] {
            let expected = Array::from_fn(dtype, &[n, m], |index| i64::from(index[0] == index[1]));
            check(
                "eye",
                &[n, m],
                &exactly(&expected),
                &Array::read(&Tensor::eye(n, m, dtype, device).unwrap()),
            );
        }
    }
}

/// The definition: what lies on one side of a diagonal.
fn triangle(x: &Array, upper: bool, diagonal: i64) -> Array {
    Array::from_fn(x.dtype, &x.shape, |index| {
        let shift = index[index.len() - 1] as i64 - index[index.len() - 2] as i64;
        let kept = if upper { shift >= diagonal } else { shift <= diagonal };
        if kept { x.at(index) } else { round(x.dtype, Scalar::Int(0)) }
    })
}

fn triangles(device: &Device) {
    let mut random = Random::named("tril");
    for dtype in having(device, DType::ALL) {
        for shape in [&[3, 3][..], &[2, 5], &[2, 4, 3], &[0, 3, 3], &[2, 3, 0], &[1, 1, 2, 1, 3, 3]] {
            for diagonal in [0, 1, -1, -9, 9, i64::MAX, i64::MIN] {
                triangles_of(dtype, shape, diagonal, &mut random, &everywhere(device));
            }
        }
    }
}

fn triangles_of(dtype: DType, shape: &[usize], diagonal: i64, random: &mut Random, run: Run) {
    let x = Array::from_fn(dtype, shape, |_| 1 + random.below(9) as i64);
    run(
        &Op {
            what: &format!("tril and triu {diagonal} of {dtype}"),
            oracle: &|x| [false, true].map(|upper| Answer::exactly(&triangle(&x[0], upper, diagonal))).into(),
            fresh: &|x| Ok(vec![x[0].tril(diagonal)?, x[0].triu(diagonal)?]),
            into: Some(&|x, out| {
                x[0].tril_out(diagonal, out[0])?;
                x[0].triu_out(diagonal, out[1])
            }),
        },
        &[x],
    );
}

fn triangles_in_place(device: &Device) {
    let dtypes = DType::ALL.iter().flat_map(|&dtype| Placement::OUTPUTS.map(|placement| (dtype, placement)));
    for (dtype, placement) in dtypes {
        let number = |index: &[usize]| (index[0] * 12 + index[1] * 4 + index[2] + 1) as i64;
        let x = Array::from_fn(dtype, &[2, 3, 4], number);
        for upper in [false, true] {
            let placed = Placed::new(&x, placement, device);
            if upper { placed.view.triu_(0) } else { placed.view.tril_(0) }.unwrap();
            check("in place", &x.shape, &exactly(&triangle(&x, upper, 0)), &Array::read(&placed.view));
            placed.check_guards("in place");
        }
    }
}

/// Numbers at which casts differ: halves, the ends of every type, NaN.
fn corners(dtype: DType) -> Array {
    let floats = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.999,
        127.5,
        128.0,
        255.0,
        255.9,
        256.0,
        300.0,
        -1.0,
        -300.0,
        65504.0,
        65520.0,
        1e5,
        3e38,
        2147483647.0,
        2147483648.0,
        -2147483649.0,
        9.3e18,
        -9.3e18,
        1e-8,
        1e-45,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let integers = [
        0,
        1,
        -1,
        2,
        127,
        128,
        255,
        256,
        300,
        -129,
        32767,
        65504,
        65519,
        65520,
        16_777_217,
        2_147_483_647,
        2_147_483_648,
        -2_147_483_649,
        i64::MAX,
        i64::MIN,
        (1 << 53) + 1,
    ];
    let list: Vec<Scalar> = if dtype.is_float() {
        floats.map(Scalar::Float).to_vec()
    } else {
        integers.map(Scalar::Int).to_vec()
    };
    Array::of(dtype, &[list.len()], &list)
}

/// The cast by the definition: floats to integers truncate and saturate, NaN is 0; integers wrap; anything but 0 is true;
/// to floats round to nearest even.
fn cast(value: Scalar, from: DType, to: DType) -> Expected {
    let saturate = |value: f64, low: i64, high: i64| {
        let whole = value.trunc();
        if value.is_nan() {
            0
        } else if whole <= low as f64 {
            low
        } else if whole >= high as f64 {
            high
        } else {
            whole as i64
        }
    };
    let ends = |dtype: DType| match dtype {
        DType::U8 => (0, 255),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    match (value, to) {
        (_, DType::Bool) => Expected::Exactly(Scalar::Bool(value.to_f64() != 0.0)),
        (Scalar::Float(value), to) if to.is_int() => {
            let (low, high) = ends(to);
            Expected::Exactly(Scalar::Int(saturate(value, low, high)))
        }
        (_, to) if to.is_int() => {
            let bits = value.to_i64();
            Expected::Exactly(Scalar::Int(match to {
                DType::U8 => i64::from(bits as u8),
                DType::I32 => i64::from(bits as i32),
                _ => bits,
            }))
        }
        // Through f32 to the 16-bit floats where the source is wider, so there may be a second rounding.
        (_, to) if to.compute() != to && (from == DType::F64 || from.is_int()) => {
            Expected::ulp(to, value.to_f64(), 0.5001)
        }
        (Scalar::Int(value), DType::F32) => Expected::Exactly(Scalar::Float(f64::from(value as f32))),
        _ => Expected::Exactly(round(to, value)),
    }
}

fn casts(device: &Device) {
    for &from in DType::ALL {
        let x = corners(from);
        for &to in DType::ALL {
            let expected: Vec<Expected> = x.data.iter().map(|&value| cast(value, from, to)).collect();
            for placement in Placement::OUTPUTS {
                let what = format!("{from} to {to}, {placement:?}");
                let placed = Placed::new(&x, placement, device);
                let found = placed.view.to(to).unwrap();
                check(&what, &x.shape, &expected, &Array::read(&found));
                assert_eq!(found.is(&placed.view), from == to, "{what}: the same handle if nothing changes");
                let out = Placed::output(to, &x.shape, placement, device);
                out.view.copy_(&placed.view).unwrap();
                check(&format!("{what}, copy_"), &x.shape, &expected, &Array::read(&out.view));
                out.check_guards(&what);
            }
        }
    }
}

fn copies(device: &Device) {
    let x = Array::from_fn(DType::I32, &[4, 6, 2], |index| (index[0] * 12 + index[1] * 2 + index[2]) as i64);
    for placement in Placement::OUTPUTS {
        let placed = Placed::new(&x, placement, device);
        let copy = placed.view.copy().unwrap();
        check("copy", &x.shape, &exactly(&x), &Array::read(&copy));
        assert!(!copy.shares_storage(&placed.view));
        if matches!(placement, Placement::Transposed | Placement::Rotated) {
            assert_eq!(copy.strides(), placed.view.strides(), "a copy of a dense tensor keeps its strides");
        } else {
            assert!(copy.is_contiguous());
        }
        let packed = placed.view.contiguous().unwrap();
        check("contiguous", &x.shape, &exactly(&x), &Array::read(&packed));
        assert!(packed.is_contiguous());
        assert_eq!(packed.is(&placed.view), placed.view.is_contiguous());
        placed.check_untouched("copy");
    }
    // From everything that broadcasts.
    let row = Tensor::arange(0, 6, 1, DType::I32, device).unwrap();
    let out = Placed::output(DType::F32, &[4, 6], Placement::Transposed, device);
    out.view.copy_(&row).unwrap();
    let expected = Array::from_fn(DType::F32, &[4, 6], |index| index[1] as f64);
    check("copy_ of a row", &[4, 6], &exactly(&expected), &Array::read(&out.view));
    let error = row.copy_(&out.view).unwrap_err().to_string();
    assert_eq!(error, "copy: shape [4, 6] can't be broadcast to [6]");
}

fn host_and_back(device: &Device) {
    for dtype in having(device, DType::ALL) {
        for shape in [&[][..], &[0], &[3], &[2, 3], &[2, 1, 2, 1, 2, 1, 2, 1]] {
            let x = Array::from_fn(dtype, shape, |index| index.iter().sum::<usize>() as i64);
            let tensor = Tensor::from_bytes(&x.bytes(), shape, dtype, device).unwrap();
            assert_eq!(scalars_of(dtype, &tensor.to_bytes().unwrap()), x.data);
            assert_eq!(indices(shape).len(), tensor.element_count());
        }
        assert_eq!(bytes_of(dtype, Scalar::Int(1)).len(), dtype.size_bytes());
    }
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2], device).unwrap();
    let text = |error: Error| error.to_string();
    assert_eq!(
        text(x.to_vec::<f64>().unwrap_err()),
        "to_vec: the tensor has the wrong dtype, expected f64, found f32"
    );
    assert_eq!(
        text(x.item::<f32>().unwrap_err()),
        "item: the tensor has the wrong number of elements, expected 1, found 2"
    );
    assert_eq!(
        text(Tensor::from_slice(&[1i64], [2, 3], device).unwrap_err()),
        "from_slice: shape [2, 3] has 6 elements, found 1"
    );
    assert_eq!(x.select(0, 1).unwrap().item::<f32>().unwrap(), 2.0);
    // Kernels take bools for numbers: 2 would be counted twice, and 2 & 1 is 0.
    assert_eq!(
        text(Tensor::from_bytes(&[1, 2], [2], DType::Bool, device).unwrap_err()),
        "from_bytes: a bool is out of range, expected 0 or 1, found 2"
    );
}

fn overlap_is_refused(device: &Device) {
    let x = Tensor::arange(0, 12, 1, DType::F32, device).unwrap();
    let before = x.to_vec::<f32>().unwrap();
    let text = |error: Error| error.to_string();
    let wide = x.narrow(0, 0, 1).unwrap().expand([5]).unwrap();
    assert_eq!(
        text(wide.add_(1.0).unwrap_err()),
        "add: the output of shape [5] with strides [0] has elements that share memory, use copy() first"
    );
    assert!(wide.normal_(0.0, 1.0, None).is_err() && wide.fill_(1.0).is_err());
    let (low, high) = (x.narrow(0, 0, 8).unwrap(), x.narrow(0, 4, 8).unwrap());
    let refused = "the output overlaps an input without being the same view, use copy() first";
    assert_eq!(text(low.add_(&high).unwrap_err()), format!("add: {refused}"));
    assert_eq!(text(low.copy_(&high).unwrap_err()), format!("copy: {refused}"));
    let matrix = x.view([3, 4]).unwrap().narrow(1, 0, 3).unwrap();
    assert_eq!(text(matrix.add_(&matrix.t().unwrap()).unwrap_err()), format!("add: {refused}"));
    assert_eq!(text(matrix.tril_out(0, &matrix.t().unwrap()).unwrap_err()), format!("tril: {refused}"));
    assert_eq!(x.to_vec::<f32>().unwrap(), before, "what is refused has written nothing");
    // The same view, and interleaved ones that don't meet, are fine.
    x.add_(&x).unwrap();
    x.slice(0, 0, 12, 2).unwrap().add_(&x.slice(0, 1, 12, 2).unwrap()).unwrap();
    let found = x.to_vec::<f32>().unwrap();
    assert!((0..12).all(|at| found[at] == if at % 2 == 0 { 4.0 * at as f32 + 2.0 } else { 2.0 * at as f32 }));
}

fn devices_are_not_mixed(device: &Device) {
    let other = Device::new("sim:4242").unwrap();
    let here = Tensor::ones([2], DType::F32, device).unwrap();
    let there = Tensor::ones([2], DType::F32, &other).unwrap();
    let expected =
        format!("add: operands are on different devices, expected {}, found sim:4242", device.name());
    assert_eq!(here.add(&there).unwrap_err().to_string(), expected);
    assert!(here.add_out(1.0, &there).is_err() && Tensor::cat(&[&here, &there], 0).is_err());
    // By name it can be moved.
    assert_eq!(
        there.mul(3.0).unwrap().to(device).unwrap().add(&here).unwrap().to_vec::<f32>().unwrap(),
        [4.0; 2]
    );
    here.copy_(&there).unwrap();
    drop(there);
    assert!(other.close().unwrap());
}

fn too_large(device: &Device) {
    let text = |result: raddle::Result<Tensor>| result.unwrap_err().to_string();
    let huge = Tensor::zeros([usize::MAX / 2, 3], DType::F32, device);
    assert!(text(huge).starts_with("full: shape ["), "the product overflows");
    let bytes = Tensor::empty([1 << 62], DType::F64, device);
    assert_eq!(text(bytes), "empty: shape [4611686018427387904] of f64 has more bytes than can be addressed");
    let nine = Tensor::zeros([1; 9], DType::F32, device);
    assert_eq!(text(nine), "full: too many axes, expected at most 8, found 9");
    let one = Tensor::ones([1], DType::F32, device).unwrap();
    assert!(one.expand([1 << 40, 1 << 40]).is_err());
    // A zero excuses none: strides, and products of other axes, would overflow.
    for shape in [[0, 1 << 40, 1 << 40], [1 << 40, 1 << 40, 0], [1, 0, usize::MAX - 1]] {
        let what = "has more bytes than can be addressed, sizes of 0 counted as 1";
        assert!(text(Tensor::zeros(shape, DType::F32, device)).ends_with(what), "{shape:?}");
        assert!(Tensor::from_slice::<f32>(&[], shape, device).is_err(), "{shape:?}");
        let empty = Tensor::zeros([1, 1, 0], DType::F32, device).unwrap();
        let what = "has more elements than fit in memory, sizes of 0 counted as 1";
        assert!(text(empty.reshape(shape)).ends_with(what), "{shape:?}");
    }
    let empty = Tensor::zeros([1, 1, 0], DType::F32, device).unwrap();
    assert!(empty.expand([1 << 40, 1 << 40, 0]).is_err());
    let wide = one.expand([1 << 40]).unwrap();
    assert!(text(wide.unfold(0, 1 << 39, 1)).starts_with("unfold: shape ["));
    // What fits is a tensor like any other.
    let long = Tensor::zeros([0, 1 << 40], DType::F32, device).unwrap();
    assert_eq!(**long.transpose(0, 1).unwrap().contiguous().unwrap().shape(), [1 << 40, 0]);
    assert_eq!(**long.flatten(0, 1).unwrap().slice(0, 0, 5, 1).unwrap().shape(), [0]);
    assert_eq!(**long.amax(1, false).unwrap().shape(), [0]);
    assert_eq!(**long.exp().unwrap().layer_norm(1, None, None, 1e-5).unwrap().shape(), [0, 1 << 40]);
}

/// C-11 from above: an error that says what there is, and the program goes on.
fn out_of_memory(_: &Device) {
    let device = Device::new("sim:77").unwrap();
    device.set_memory_limit(8 << 20);
    let kept = Tensor::ones([1000], DType::F32, &device).unwrap();
    let error = Tensor::ones([64 << 20], DType::F32, &device).unwrap_err();
    let Error::Runtime(runtime::Error::OutOfMemory { asked_bytes, allocated_bytes, .. }) = &error else {
        panic!("{error}")
    };
    assert!(*asked_bytes == 256 << 20 && *allocated_bytes >= 4000, "{error}");
    assert!(error.to_string().starts_with("sim:77: out of memory, 268435456 bytes asked, "), "{error}");
    assert_eq!(kept.add(1.0).unwrap().to_vec::<f32>().unwrap(), vec![2.0; 1000]);
    drop(kept);
    assert!(device.close().unwrap());
}
