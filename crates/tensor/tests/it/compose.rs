//! Ops that are composed of rows.

use crate::{device, tensor, values};
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
