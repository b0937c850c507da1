use crate::{counted, device, tensor, values};
use raddle_tensor::{Arg, DType, Scalar, Tensor, can_cast, result_type};

#[test]
fn kinds_of_operands_count_in_their_order() {
    use DType::*;
    let make = |dtype, shape: &[usize]| Tensor::zeros(shape, dtype, device()).unwrap();
    // Tensor with axes, tensor without, number; what PyTorch's result_type gives.
    let cases = [
        (F16, F64, Scalar::Float(1.0), F16),
        (I32, I64, Scalar::Int(1), I32),
        (I32, F64, Scalar::Int(1), F64),
        (I32, I64, Scalar::Float(1.0), F32),
        (U8, Bool, Scalar::Bool(true), U8),
        (Bool, U8, Scalar::Bool(true), U8),
        (Bool, Bool, Scalar::Int(1), I64),
        (BF16, F16, Scalar::Float(1.0), BF16),
        (I64, F16, Scalar::Float(1.0), F16),
    ];
    for (with_axes, without, number, expected) in cases {
        let (a, b) = (make(with_axes, &[2]), make(without, &[]));
        let args = [Arg::Tensor(&a), Arg::Tensor(&b), Arg::Scalar(number)];
        assert_eq!(result_type(&args), expected, "{with_axes} {without} {number:?}");
    }
    assert_eq!(result_type(&[Arg::Tensor(&make(F16, &[1])), Arg::Tensor(&make(BF16, &[1]))]), F32);
    assert_eq!(result_type(&[Scalar::Int(1).into(), Scalar::Float(1.0).into()]), F32);
}

#[test]
fn results_are_stored_only_where_their_kind_fits() {
    assert!(
        can_cast(DType::F64, DType::F16)
            && can_cast(DType::I64, DType::U8)
            && can_cast(DType::Bool, DType::U8)
    );
    assert!(!can_cast(DType::F16, DType::I64) && !can_cast(DType::U8, DType::Bool));
    let integers = tensor(&[1i32, 2], &[2]);
    assert!(integers.add_(1.5).is_err());
    assert_eq!(integers.add_(1).unwrap().to_vec::<i32>().unwrap(), [2, 3]);
}

#[test]
fn inputs_are_converted_and_integers_become_floats_where_needed() {
    let (integers, floats) = (tensor(&[1i64, 2, 3], &[3]), counted(&[3]));
    assert_eq!(values(&integers.add(&floats).unwrap()), [1.0, 3.0, 5.0]);
    let quotient = integers.div(2).unwrap();
    assert_eq!((quotient.dtype(), values(&quotient)), (DType::F32, vec![0.5, 1.0, 1.5]));
    assert_eq!((&integers * 2.5).unwrap().dtype(), DType::F32);
    assert_eq!(integers.gt(1.5).unwrap().to_vec::<bool>().unwrap(), [false, true, true]);
    assert_eq!(values(&(1.0 - &floats).unwrap()), [1.0, 0.0, -1.0]);
}

#[test]
fn results_keep_the_order_of_axes() {
    let rows = counted(&[2, 3, 4]);
    let permuted = rows.permute([2, 0, 1]).unwrap();
    assert_eq!(**permuted.exp().unwrap().strides(), [1, 12, 4]);
    assert_eq!(permuted.copy().unwrap().strides(), permuted.strides());
    // The first operand that tells two axes apart decides; expanded axes tell nothing.
    let column = counted(&[4, 1, 1]);
    assert_eq!(**column.add(&permuted).unwrap().strides(), [1, 12, 4]);
    let plain = counted(&[4, 2, 3]);
    assert!(plain.add(&permuted).unwrap().is_contiguous());
    assert_eq!(**permuted.add(&plain).unwrap().strides(), [1, 12, 4]);
    // Holes are closed.
    let stepped = counted(&[4, 6]).slice(1, 0, 6, 2).unwrap();
    assert_eq!(**stepped.neg().unwrap().strides(), [3, 1]);
}

fn bools(tensor: raddle_tensor::Result<Tensor>) -> Vec<bool> {
    tensor.unwrap().to_vec().unwrap()
}

#[test]
fn comparisons_have_an_answer_for_every_number() {
    let bytes = tensor(&[0u8, 1, 255], &[3]);
    assert_eq!(bools(bytes.eq(-1)), [false; 3]);
    assert_eq!(bools(bytes.gt(-1)), [true; 3]);
    assert_eq!(bools(bytes.lt(256)), [true; 3]);
    assert_eq!(bools(bytes.ne(256)), [true; 3]);
    assert_eq!(bools(bytes.le(1)), [true, true, false]);
    assert_eq!(bools(bytes.logical_and(256)), [false, true, true]);
    let integers = tensor(&[i32::MIN, 0, i32::MAX], &[3]);
    assert_eq!(bools(integers.lt(1i64 << 40)), [true; 3]);
    assert_eq!(bools(integers.eq(1i64 << 32)), [false; 3]);
    let out = tensor(&[false; 3], &[3]);
    bytes.ge_out(-255, &out).unwrap();
    assert_eq!(bools(Ok(out)), [true; 3]);
}

#[test]
fn bounds_that_all_integers_keep_are_none() {
    let bytes = tensor(&[0u8, 7, 255], &[3]);
    let same = |found: raddle_tensor::Result<Tensor>| {
        assert_eq!(found.unwrap().to_vec::<u8>().unwrap(), [0, 7, 255])
    };
    same(bytes.clamp_min(-1));
    same(bytes.clamp_max(300));
    same(bytes.clamp(-1000, 1000));
    same(bytes.maximum(-1));
    same(bytes.minimum(256));
    assert_eq!(bytes.clamp(-1, 6).unwrap().to_vec::<u8>().unwrap(), [0, 6, 6]);
    assert_eq!(bytes.maximum(8).unwrap().to_vec::<u8>().unwrap(), [8, 8, 255]);
    // No byte keeps these.
    for refused in [bytes.clamp_max(-1), bytes.clamp_min(256), bytes.minimum(-1), bytes.clamp(0, -1)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("the number is out of range, expected a number that fits u8"), "{error}");
    }
    let integers = tensor(&[i32::MIN, 5], &[2]);
    integers.clamp_(i64::MIN, i64::MAX).unwrap();
    assert_eq!(integers.to_vec::<i32>().unwrap(), [i32::MIN, 5]);
    // What isn't bounded wraps, as in PyTorch.
    assert_eq!(bytes.add(-1).unwrap().to_vec::<u8>().unwrap(), [255, 6, 254]);
}

/// A number is rounded as the tensor's elements were; in arithmetic it keeps the digits of f32.
#[test]
fn sixteen_bit_floats_equal_the_number_that_they_were_made_of() {
    for dtype in [DType::F16, DType::BF16] {
        let tenths = Tensor::full([3], 0.1, dtype, device()).unwrap();
        assert_eq!(bools(tenths.eq(0.1)), [true; 3], "{dtype}");
        assert_eq!(bools(tenths.ne(0.1)), [false; 3], "{dtype}");
        assert_eq!(bools(tenths.le(0.1)), [true; 3], "{dtype}");
        assert_eq!(bools(tenths.ge(0.1)), [true; 3], "{dtype}");
        assert_eq!(bools(tenths.lt(0.1)), [false; 3], "{dtype}");
        assert_eq!(bools(tenths.gt(0.1)), [false; 3], "{dtype}");
        // A tensor without axes has no more say than a number.
        for given in [DType::F32, DType::F64] {
            let tenth = Tensor::full([0usize; 0], 0.1, given, device()).unwrap();
            assert_eq!(bools(tenths.eq(&tenth)), [true; 3], "{dtype} beside {given}");
            assert_eq!(bools(tenth.le(&tenths)), [true; 3], "{dtype} beside {given}");
            assert_eq!(bools(tenth.lt(&tenths)), [false; 3], "{dtype} beside {given}");
            let own = tenths.copy().unwrap();
            own.ge_(&tenth).unwrap();
            assert_eq!(own.to(DType::F32).unwrap().to_vec::<f32>().unwrap(), [1.0; 3]);
            // With one it has, and is compared as it is.
            let tenth = tenth.expand([3]).unwrap();
            assert_eq!(bools(tenths.eq(&tenth)), [false; 3], "{dtype} beside {given}");
        }
        assert_eq!(bools(tenths.logical_and(1e-30)), [true; 3], "{dtype}");
    }
}
