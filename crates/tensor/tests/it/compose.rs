//! Ops that are composed of rows.

use crate::{counted, device, tensor, values};
use raddle_tensor::{DType, Tensor};

#[test]
fn rounding_to_decimals_rounds_halves_to_even() {
    let x = tensor(&[1.25f64, -1.35, 2.5, 15.0, 25.0, f64::INFINITY], &[6]);
    let to = |decimals| x.round_to(decimals).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(to(1), [1.2, -1.4, 2.5, 15.0, 25.0, f64::INFINITY]);
    assert_eq!(to(0), [1.0, -1.0, 2.0, 15.0, 25.0, f64::INFINITY]);
    assert_eq!(to(-1), [0.0, 0.0, 0.0, 20.0, 20.0, f64::INFINITY]);
    let error = tensor(&[1i64], &[1]).round_to(1).unwrap_err().to_string();
    assert_eq!(error, "round: the tensor has the wrong dtype, expected a float, found i64");
}

#[test]
fn a_tensor_without_axes_fills_where_a_mask_is_true() {
    let (x, mask) = (tensor(&[1.0f32, 2.0, 3.0], &[3]), tensor(&[true, false, true], &[3]));
    let seven = Tensor::scalar(7.0f64, device()).unwrap();
    let filled = x.masked_fill_with(&mask, &seven).unwrap();
    assert_eq!((filled.dtype(), values(&filled)), (DType::F32, vec![7.0, 2.0, 7.0]));
    assert_eq!(values(&x.masked_fill_with(&mask, 5).unwrap()), [5.0, 2.0, 5.0]);
    assert_eq!(values(x.masked_fill_with_(&mask, &seven).unwrap()), [7.0, 2.0, 7.0]);

    let text = |result: raddle_tensor::Result<Tensor>| result.unwrap_err().to_string();
    let whole = tensor(&[1i64, 2, 3], &[3]);
    assert_eq!(
        text(whole.masked_fill_with(&mask, &seven)),
        "masked_fill: a result of dtype f64 can't be stored in an output of dtype i64"
    );
    assert_eq!(
        text(x.masked_fill_with(&mask, &whole)),
        "masked_fill: the value has the wrong number of axes, expected 0, found 1"
    );
    let large = tensor(&[true; 6], &[2, 3]);
    assert!(x.masked_fill_with_(&large, &seven).is_err());
    assert_eq!(values(&x), [7.0, 2.0, 7.0]);
}

#[test]
fn norms_of_any_p_are_the_definition() {
    let x = tensor(&[3.0f64, -4.0, 0.0, 0.5], &[2, 2]);
    let of = |p| x.norm_p(p, 1, false).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(of(0.0), [2.0, 1.0]);
    assert_eq!(of(f64::NEG_INFINITY), [3.0, 0.0]);
    assert_eq!(of(f64::INFINITY), [4.0, 0.5]);
    // 1 / (1/3 + 1/4), and of a 0 nothing is left.
    let of_minus_one = of(-1.0);
    assert!((of_minus_one[0] - 12.0 / 7.0).abs() < 1e-12 && of_minus_one[1] == 0.0, "{of_minus_one:?}");
    let error = x.norm_p(f64::NAN, .., false).unwrap_err().to_string();
    assert_eq!(error, "norm: p is out of range, expected a number, found NaN");
}

#[test]
fn bools_are_bounded_squared_and_filled() {
    let x = tensor(&[true, false], &[2]);
    assert_eq!(x.square().unwrap().to_vec::<i64>().unwrap(), [1, 0]);
    assert_eq!(x.sign().unwrap().to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!(x.clamp_min(true).unwrap().to_vec::<bool>().unwrap(), [true, true]);
    assert_eq!(x.clamp_max(false).unwrap().to_vec::<bool>().unwrap(), [false, false]);
    assert_eq!(x.masked_fill(&x, 0).unwrap().to_vec::<bool>().unwrap(), [false, false]);
    assert_eq!(x.masked_fill(&x, 2.5).unwrap().to_vec::<bool>().unwrap(), [true, false]);
}

#[test]
fn a_weight_of_one_axis_is_that_of_one_output() {
    let (x, weight) = (counted(&[2, 3]), tensor(&[1.0f32, 0.0, 2.0], &[3]));
    let bias = Tensor::scalar(10.0f32, device()).unwrap();
    let made = x.linear(&weight, Some(&bias)).unwrap();
    assert_eq!((&made.shape()[..], values(&made)), (&[2][..], vec![14.0, 23.0]));
    let out = counted(&[2]);
    x.linear_out(&weight, None, &out).unwrap();
    assert_eq!(values(&out), [4.0, 13.0]);
    assert!(x.linear_out(&weight, None, &counted(&[3])).is_err());
}

#[test]
fn windows_of_no_axes_are_one() {
    let alone = Tensor::scalar(7.0f32, device()).unwrap();
    assert_eq!(values(&alone.unfold(0, 1, 1).unwrap()), [7.0]);
    assert_eq!(alone.unfold(0, 0, 1).unwrap().shape()[..], [0]);
    assert!(alone.unfold(0, 2, 1).is_err() && alone.unfold(1, 1, 1).is_err());
}

#[test]
fn an_index_without_elements_is_of_any_dtype_and_rank() {
    let x = counted(&[2, 3]);
    let none = Tensor::zeros([0], DType::U8, device()).unwrap();
    assert_eq!(x.gather(1, &none).unwrap().shape()[..], [0]);
    assert_eq!(values(&x.scatter(1, &none, &counted(&[0])).unwrap()), values(&x));
    let one = Tensor::zeros([1, 1], DType::U8, device()).unwrap();
    assert!(x.gather(1, &one).is_err());
}
