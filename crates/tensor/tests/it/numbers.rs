//! Numbers at which a shorter way of computing would go wrong.

use crate::{device, tensor, values};
use raddle_tensor::{DType, INFER, Tensor, fused};

#[test]
fn means_of_equal_elements_are_these() {
    for count in 1..300 {
        let ones = Tensor::ones([count], DType::F64, device()).unwrap();
        assert_eq!(ones.mean(.., false).unwrap().item::<f64>().unwrap(), 1.0, "of {count}");
        assert_eq!(ones.var(.., 0.0, false).unwrap().item::<f64>().unwrap(), 0.0, "of {count}");
    }
}

/// Squares and powers that leave f16 on the way.
#[test]
fn deviations_and_norms_of_halves_leave_them_only_at_the_end() {
    let of = |elements: &[f32]| tensor(elements, &[elements.len()]).to(DType::F16).unwrap();
    let value = |tensor: Tensor| tensor.to(DType::F64).unwrap().item::<f64>().unwrap();
    assert_eq!(value(of(&[-1000.0, 1000.0]).std(.., 0.0, false).unwrap()), 1000.0);
    let small = 2f32.powi(-13);
    assert_eq!(value(of(&[-small, small]).std(.., 0.0, false).unwrap()), f64::from(small));
    assert_eq!(value(of(&[100.0, 0.0]).norm_p(3.0, .., false).unwrap()), 100.0);
    let out = of(&[0.0]).squeeze(0).unwrap();
    of(&[-1000.0, 1000.0]).std_out(.., 0.0, false, &out).unwrap();
    assert_eq!(value(out), 1000.0);
}

#[test]
fn the_last_of_evenly_spaced_numbers_is_the_end() {
    for count in 2..200 {
        for (start, end) in [(0.0, 1.0), (-0.3, 7.1), (5.0, -1e300)] {
            let spaced = Tensor::linspace(start, end, count, DType::F64, device()).unwrap();
            let spaced: Vec<f64> = spaced.to_vec().unwrap();
            assert_eq!((spaced[0], spaced[count - 1]), (start, end), "{count}");
        }
    }
}

/// What an integer can't be multiplied by is refused, not cut off.
#[test]
fn factors_of_added_slices_fit_the_dtype() {
    let add =
        |target: &Tensor, alpha| target.index_add(0, &tensor(&[0i64, 0], &[2]), &target.ones_like()?, alpha);
    let integers = tensor(&[1i64, 2], &[2]);
    assert_eq!(add(&integers, 3.0).unwrap().to_vec::<i64>().unwrap(), [7, 2]);
    for alpha in [1.5, 0.5, f64::NAN, f64::INFINITY] {
        let error = add(&integers, alpha).unwrap_err().to_string();
        let expected = "index_add: alpha is out of range, expected an integer, as the tensors are, found ";
        assert!(error.starts_with(expected), "{error}");
    }
    let bools = tensor(&[false, false], &[2]);
    assert_eq!(add(&bools, 1.0).unwrap().to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!(add(&bools, 0.0).unwrap().to_vec::<bool>().unwrap(), [false, false]);
    assert!(add(&bools, 2.0).is_err());
    assert_eq!(values(&add(&tensor(&[1.0f32, 2.0], &[2]), 0.5).unwrap()), [2.0, 2.0]);
}

#[test]
fn negation_is_the_same_op_by_sign_and_by_name() {
    assert!((-&tensor(&[true], &[1])).is_err());
    assert_eq!((-&tensor(&[1u8], &[1])).unwrap().dtype(), DType::U8);
    assert_eq!(values(&(-&tensor(&[1.0f32, 0.0], &[2])).unwrap()), [-1.0, 0.0]);
}

#[test]
fn a_tensor_without_axes_has_one_largest_element() {
    let one = tensor(&[5.0f32], &[]);
    assert_eq!(one.topk(1, 0, true).unwrap().0.item::<f32>().unwrap(), 5.0);
    assert!(one.topk(0, 0, true).is_err() && one.topk(2, 0, true).is_err());
}

#[test]
fn views_may_step_as_far_as_they_like() {
    let x = tensor(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
    assert_eq!(values(&x.unfold(0, 2, usize::MAX).unwrap()), [1.0, 3.0, 2.0, 4.0]);
    let wide = x.as_strided([1, 1], [usize::MAX, 1], 0).unwrap();
    assert_eq!(values(&wide.diagonal(0, 0, 1).unwrap()), [1.0]);
}

/// Powers that leave the dtype on the way.
#[test]
fn norms_of_other_powers_leave_a_dtype_only_at_the_end() {
    for (size, p) in [(1e30, 3.0), (1e-30, 3.0), (1e30, 1.5), (1e-30, 0.5), (3e38, 2.5), (1e-44, 4.0)] {
        let norm = tensor(&[size as f32, 0.0, -size as f32], &[3]).norm_p(p, .., false).unwrap();
        let expected = f64::from(size as f32) * 2f64.powf(1.0 / p);
        let found = f64::from(norm.item::<f32>().unwrap());
        let near = (found - expected).abs() <= 1e-6 * expected + 1e-45;
        assert!(near || (found == f64::INFINITY && expected > 3.4e38), "{size} {p}: {found}, not {expected}");
    }
    let norm_of = |elements: &[f32]| {
        tensor(elements, &[elements.len()]).norm_p(3.0, .., false).unwrap().item::<f32>().unwrap()
    };
    assert_eq!((norm_of(&[0.0, -0.0]), norm_of(&[1.0, f32::NEG_INFINITY])), (0.0, f32::INFINITY));
    assert!(norm_of(&[1.0, f32::NAN]).is_nan() && norm_of(&[]) == 0.0);
    let rows = tensor(&[0.0f32, 0.0, 1e30, 0.0], &[2, 2]);
    assert_eq!(values(&rows.norm_p(3.0, 1, false).unwrap()), [0.0, 1e30]);
    assert_eq!(**rows.norm_p(3.0, [0, -1], true).unwrap().shape(), [1, 1]);
    assert_eq!(values(&tensor::<f32>(&[], &[2, 0]).norm_p(3.0, 1, false).unwrap()), [0.0, 0.0]);
}

#[test]
fn evenly_spaced_integers_are_the_truncated_numbers() {
    let spaced = |start: i64, end: i64, count| {
        Tensor::linspace(start, end, count, DType::I64, device()).unwrap().to_vec::<i64>().unwrap()
    };
    assert_eq!(spaced(-3, 3, 5), [-3, -1, 0, 1, 3]);
    assert_eq!(spaced(0, 10, 4), [0, 3, 6, 10]);
    assert_eq!((spaced(7, 9, 1), spaced(7, 9, 0)), (vec![7], vec![]));
    for count in 2..400i64 {
        for (start, end) in [(0, 3), (-7, 93), (5, -5)] {
            let exact: Vec<i64> =
                (0..count).map(|i| (start * (count - 1) + i * (end - start)) / (count - 1)).collect();
            assert_eq!(spaced(start, end, count as usize), exact, "{start} to {end}, {count}");
        }
    }
    let bytes = Tensor::linspace(0.5, 255.0, 3, DType::U8, device()).unwrap();
    assert_eq!(bytes.to_vec::<u8>().unwrap(), [0, 127, 255]);
    let wide = Tensor::linspace(-1.5e308, 1.5e308, 3, DType::F64, device()).unwrap();
    assert_eq!(wide.to_vec::<f64>().unwrap(), [-1.5e308, 0.0, 1.5e308]);
    let wide = Tensor::linspace(-1.5e308, 1.5e308, 5, DType::F64, device()).unwrap();
    assert_eq!(wide.to_vec::<f64>().unwrap(), [-1.5e308, -0.75e308, 0.0, 0.75e308, 1.5e308]);
}

#[test]
fn factors_past_the_integers_are_refused() {
    let (x, index) = (tensor(&[1i64, 2], &[2]), tensor(&[0i64, 1], &[2]));
    let matrix = tensor(&[1i64], &[1, 1]);
    for factor in [1e19, -1e19, 9223372036854775808.0] {
        assert!(x.index_add(0, &index, &x, factor).is_err(), "{factor}");
        assert!(matrix.addmm(&matrix, &matrix, 1.0, factor).is_err(), "{factor}");
    }
    let least = x.index_add(0, &index, &tensor(&[1i64, 0], &[2]), i64::MIN as f64).unwrap();
    assert_eq!(least.to_vec::<i64>().unwrap(), [i64::MIN + 1, 2]);
}

#[test]
fn one_size_only_is_left_over() {
    let empty = tensor::<f32>(&[], &[0, 3]);
    for x in [&empty, &tensor(&[1.0f32], &[1])] {
        for error in [x.reshape([INFER, INFER]).unwrap_err(), x.view([INFER, 1, INFER]).unwrap_err()] {
            assert!(error.to_string().contains("the number of sizes left over is out of range"), "{error}");
        }
    }
    assert_eq!(**empty.reshape([INFER, 5]).unwrap().shape(), [0, 5]);
}

#[test]
fn a_tensor_without_axes_has_an_imagined_one() {
    let one = tensor(&[5.0f32], &[]);
    for view in [one.squeeze(0), one.squeeze(-1), one.transpose(0, -1)] {
        assert_eq!(view.unwrap().rank(), 0);
    }
    assert!(one.squeeze(1).is_err() && one.transpose(0, 1).is_err());
}

#[test]
fn literals_of_closures_are_the_numbers_that_they_are() {
    let bytes = tensor(&[0u8, 200, 255], &[3]);
    let of = |closure: raddle_tensor::Fused| closure.call(&[&bytes]).unwrap().to_vec::<u8>().unwrap();
    assert_eq!(of(fused(|[x]| x + 300.0)), [44, 244, 43]);
    assert_eq!(of(fused(|[x]| x.eq(300.0).select(1.0, 0.0))), [0, 0, 0]);
    assert_eq!(of(fused(|[x]| x.gt(-1.0).select(1.0, 0.0))), [1, 1, 1]);
    assert_eq!(of(fused(|[x]| x.clamp(-1.0, 400.0))), [0, 200, 255]);
    assert_eq!(of(fused(|[x]| x.sign())), [0, 1, 1]);
    let out = tensor(&[0u8; 3], &[3]);
    fused(|[x]| x * 257.0 + 1.0).call_out(&[&bytes], &out).unwrap();
    assert_eq!(out.to_vec::<u8>().unwrap(), [1, 201, 0]);
    let integers = tensor(&[i32::MIN, 0, i32::MAX], &[3]);
    let below = fused(|[x]| x.lt(1e12).select(1.0, 0.0)).call(&[&integers]).unwrap();
    assert_eq!(below.to_vec::<i32>().unwrap(), [1, 1, 1]);
}
