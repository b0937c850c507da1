use crate::{counted, device, tensor};
use raddle_tensor::{DType, Tensor};

#[test]
fn numbers_are_aligned() {
    assert_eq!(
        counted(&[2, 3]).to_string(),
        "tensor([[0., 1., 2.],\n        [3., 4., 5.]], shape [2, 3], f32, cpu)"
    );
    assert_eq!(
        tensor(&[1.5f64, -2.25, f64::NAN, f64::NEG_INFINITY], &[4]).to_string(),
        "tensor([ 1.5000, -2.2500,     nan,    -inf], shape [4], f64, cpu)"
    );
    assert_eq!(
        tensor(&[1e-7f32, 1.5], &[2]).to_string(),
        "tensor([1.0000e-07, 1.5000e+00], shape [2], f32, cpu)"
    );
    assert_eq!(tensor(&[true, false], &[2]).to_string(), "tensor([ true, false], shape [2], bool, cpu)");
    assert_eq!(tensor(&[7i64], &[]).to_string(), "tensor(7, shape [], i64, cpu)");
    assert_eq!(
        Tensor::zeros([2, 0], DType::F32, device()).unwrap().to_string(),
        "tensor([], shape [2, 0], f32, cpu)"
    );
    assert_eq!(
        Tensor::zeros([1 << 40, 0, 3], DType::F32, device()).unwrap().to_string(),
        "tensor([], shape [1099511627776, 0, 3], f32, cpu)"
    );
}

#[test]
fn blocks_are_apart_by_a_line() {
    assert_eq!(
        tensor(&[1i32, 20, 3, 4], &[2, 1, 2]).to_string(),
        "tensor([[[ 1, 20]],\n\n        [[ 3,  4]]], shape [2, 1, 2], i32, cpu)"
    );
}

#[test]
fn the_middle_of_large_tensors_is_left_out() {
    let text = counted(&[1001]).to_string();
    assert_eq!(text, "tensor([   0.,    1.,    2., ...,  998.,  999., 1000.], shape [1001], f32, cpu)");
    let text = counted(&[100, 20]).to_string();
    assert_eq!(text.lines().count(), 7);
    assert_eq!(text.lines().nth(3).unwrap().trim(), "...,");
}
