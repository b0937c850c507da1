use crate::{counted, device, tensor};
use raddle_tensor::{DType, INFER, Result, Tensor, fused};

fn text<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "no error".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn errors_say_where_what_expected_found() {
    let (a, b) = (counted(&[2, 3]), counted(&[4, 5]));
    assert_eq!(
        text(a.matmul(&b)),
        "matmul: inner sizes differ, lhs [2, 3] axis 1 is 3, rhs [4, 5] axis 0 is 4"
    );
    assert_eq!(
        text(a.add(&b)),
        "add: shapes can't be broadcast together, lhs [2, 3] axis 1 is 3, rhs [4, 5] axis 1 is 5"
    );
    assert_eq!(
        text(a.add(&counted(&[4, 1]))),
        "add: shapes can't be broadcast together, lhs [2, 3] axis 0 is 2, rhs [4, 1] axis 0 is 4"
    );
    assert_eq!(
        text(counted(&[4]).add(&a)),
        "add: shapes can't be broadcast together, lhs [4] axis 0 is 4, rhs [2, 3] axis 1 is 3"
    );
    assert_eq!(
        text(a.reshape([4, INFER])),
        "reshape: a size can't be inferred, the others make 4 elements, the tensor of shape [2, 3] has 6"
    );
    assert_eq!(text(fused(|[x, y]| x + y).call(&[&a])), "fused: wrong number of inputs, expected 2, found 1");
    assert_eq!(text(a.sum(2, false)), "sum: axis 2 is out of range, expected -2 to 1, rank is 2");
    assert_eq!(text(a.sum([0, -2], false)), "sum: axis 0 is named twice");
    assert_eq!(
        text(a.add_out(1.0, &counted(&[3, 2]))),
        "add: the output has the wrong shape, expected [2, 3], found [3, 2]"
    );
    let integers = tensor(&[1i64, 2], &[2]);
    assert_eq!(
        text(integers.add_(0.5)),
        "add: a result of dtype f32 can't be stored in an output of dtype i64"
    );
    assert_eq!(
        text(integers.mean(.., false)),
        "mean: the tensor has the wrong dtype, expected a float, found i64"
    );
    assert_eq!(
        text(a.matmul(&a.t().unwrap().to(DType::F64).unwrap())),
        "matmul: dtypes differ, lhs is f32, rhs is f64"
    );
    assert_eq!(
        text(tensor(&[1u8], &[1]).add(300)),
        "add: the number is out of range, expected a number that fits u8, found 300"
    );
    assert_eq!(text(a.to_vec::<f64>()), "to_vec: the tensor has the wrong dtype, expected f64, found f32");
    assert_eq!(
        text(a.item::<f32>()),
        "item: the tensor has the wrong number of elements, expected 1, found 6"
    );
    assert_eq!(
        text(Tensor::from_slice(&[1.0f32], [2, 2], device())),
        "from_slice: shape [2, 2] has 4 elements, found 1"
    );
    assert_eq!(
        text(Tensor::cat(&[&a, &b], 0)),
        "cat: a tensor has the wrong shape, expected [4, 3], found [4, 5]"
    );
    assert_eq!(
        text(a.expand([2, 3]).unwrap().view([7])),
        "view: shape [7] has 7 elements, the tensor of shape [2, 3] has 6"
    );
    assert_eq!(
        text(Tensor::zeros([2, 0], DType::F32, device()).unwrap().amax(1, false)),
        "amax: axis 1 is empty, expected at least one element, shape is [2, 0]"
    );
    assert_eq!(
        text(a.topk(4, 1, true)),
        "topk: k is out of range, expected at most the size of the axis, found 4"
    );
}

#[test]
fn shapes_that_no_memory_holds_are_errors() {
    let huge = 1usize << 40;
    assert_eq!(
        text(Tensor::zeros([huge, huge], DType::F32, device())),
        format!("full: shape [{huge}, {huge}] of f32 has more bytes than can be addressed")
    );
    assert!(Tensor::empty([usize::MAX / 2, 1, 0], DType::F32, device()).is_ok());
    assert!(Tensor::empty([usize::MAX, 2, 0], DType::F32, device()).is_err(), "strides overflow");
    assert!(counted(&[1]).expand([huge, huge]).is_err());
    let expanded = counted(&[1]).expand([huge, 2]).unwrap();
    assert!(expanded.copy().is_err(), "8 TiB");
    assert!(Tensor::empty([1; 9], DType::F32, device()).is_err());
    assert!(counted(&[1]).reshape([usize::MAX, usize::MAX]).is_err());
    assert!(Tensor::arange(0, i64::MAX, 1, DType::I64, device()).is_err());
    assert!(Tensor::arange(0, 5, 0, DType::I64, device()).is_err());
}

#[test]
fn another_device_is_an_error() {
    let other = raddle_tensor::Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    let (here, there) = (counted(&[2]), counted(&[2]).to(&other).unwrap());
    assert_eq!(text(here.add(&there)), "add: operands are on different devices, expected cpu, found cpu");
    assert_eq!(there.to(device()).unwrap().add(&here).unwrap().to_vec::<f32>().unwrap(), [0.0, 2.0]);
}

#[test]
fn an_index_out_of_range_is_told() {
    let table = counted(&[3, 2]);
    let rows = table.index_select(0, &tensor(&[0i64, 3], &[2]));
    let error = rows.and_then(|rows| rows.to_vec::<f32>()).unwrap_err().to_string();
    assert!(error.contains("index 3") && error.contains("size 3"), "{error}");
    assert_eq!(table.add(1.0).unwrap().sum(.., false).unwrap().item::<f32>().unwrap(), 21.0);
}
