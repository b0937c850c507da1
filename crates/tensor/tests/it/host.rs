use crate::{counted, device, values};
use raddle_tensor::{DType, Tensor};

#[test]
fn values_are_copied_into_views() {
    let whole = counted(&[3, 4]);
    let row = whole.select(0, 1).unwrap();
    row.copy_from_slice(&[-1f32, -2.0, -3.0, -4.0]).unwrap();
    assert_eq!(values(&whole), [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, -4.0, 8.0, 9.0, 10.0, 11.0]);
    whole.t().unwrap().select(0, 3).unwrap().copy_from_slice(&[7f32, 8.0, 9.0]).unwrap();
    assert_eq!(values(&whole), [0.0, 1.0, 2.0, 7.0, -1.0, -2.0, -3.0, 8.0, 8.0, 9.0, 10.0, 9.0]);
    Tensor::zeros([0, 2], DType::F32, device()).unwrap().copy_from_slice::<f32>(&[]).unwrap();
}

#[test]
fn what_cant_be_copied_into_says_why() {
    let tensor = counted(&[2, 3]);
    let text = |result: raddle_tensor::Result<&Tensor>| result.unwrap_err().to_string();
    assert_eq!(
        text(tensor.copy_from_slice(&[1f32; 5])),
        "copy_from_slice: shape [2, 3] has 6 elements, found 5"
    );
    assert_eq!(
        text(tensor.copy_from_slice(&[1i64; 6])),
        "copy_from_slice: the tensor has the wrong dtype, expected i64, found f32"
    );
    let expanded = counted(&[1, 3]).expand([2, 3]).unwrap();
    assert!(text(expanded.copy_from_slice(&[1f32; 6])).starts_with("copy"));
    assert_eq!(values(&tensor), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}
