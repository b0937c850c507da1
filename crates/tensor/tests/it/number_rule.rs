//! The one rule for numbers that meet a dtype, at every place where they do. Expected values are those of `torch.full` (2.15),
//! where it has one rule; see `raddle_tensor::Arg::Scalar`.

use crate::{device, tensor, values};
use raddle_tensor::{DType, Result, Scalar, Tensor, fused};

/// What becomes of numbers in a dtype; nothing is an error.
const RULE: &[(DType, Scalar, Option<Scalar>)] = {
    use DType::*;
    use Scalar::{Bool as Truth, Float, Int};
    &[
        (U8, Int(0), Some(Int(0))),
        (U8, Int(255), Some(Int(255))),
        (U8, Int(256), None),
        (U8, Int(300), None),
        (U8, Int(-1), Some(Int(255))),
        (U8, Int(-255), Some(Int(1))),
        (U8, Int(-256), None),
        (U8, Int(i64::MAX), None),
        (U8, Float(255.0), Some(Int(255))),
        (U8, Float(255.9), Some(Int(255))),
        (U8, Float(256.0), None),
        (U8, Float(300.0), None),
        (U8, Float(-0.0), Some(Int(0))),
        (U8, Float(-0.5), None),
        (U8, Float(-1.0), None),
        (U8, Float(f64::NAN), None),
        (U8, Float(f64::INFINITY), None),
        (U8, Truth(true), Some(Int(1))),
        (I32, Int(2147483647), Some(Int(2147483647))),
        (I32, Int(2147483648), None),
        (I32, Int(-2147483648), Some(Int(-2147483648))),
        (I32, Int(-2147483649), None),
        (I32, Float(-1.5), Some(Int(-1))),
        (I32, Float(2147483647.5), Some(Int(2147483647))),
        (I32, Float(2147483648.0), None),
        (I32, Float(-2147483648.5), None),
        (I32, Float(f64::NAN), None),
        (I64, Int(i64::MIN), Some(Int(i64::MIN))),
        (I64, Int(i64::MAX), Some(Int(i64::MAX))),
        (I64, Float(-9223372036854775808.0), Some(Int(i64::MIN))),
        (I64, Float(9223372036854775808.0), None),
        (I64, Float(f64::NAN), None),
        (I64, Float(f64::NEG_INFINITY), None),
        (Bool, Int(300), Some(Truth(true))),
        (Bool, Int(0), Some(Truth(false))),
        (Bool, Float(-0.5), Some(Truth(true))),
        (Bool, Float(f64::NAN), Some(Truth(true))),
        (F16, Int(70000), Some(Float(f64::INFINITY))),
        (F16, Float(65519.0), Some(Float(65504.0))),
        (BF16, Float(-1e39), Some(Float(f64::NEG_INFINITY))),
        (F32, Float(1e39), Some(Float(f64::INFINITY))),
        (F32, Int(1 << 40), Some(Float(1099511627776.0))),
        (F64, Float(1e300), Some(Float(1e300))),
    ]
};

/// One element, made of a number at each place where an op takes one for elements.
fn meet(dtype: DType, number: Scalar) -> Vec<(&'static str, Result<Tensor>)> {
    let ones = || Tensor::ones([1], dtype, device()).unwrap();
    let zeros = || Tensor::zeros([1], dtype, device()).unwrap();
    let mut found = vec![
        ("full", Tensor::full([1], number, dtype, device())),
        ("full_like", ones().full_like(number)),
        ("fill_", ones().fill_(number).cloned()),
        ("fill_ of a view", ones().expand([1]).unwrap().fill_(number).cloned()),
        ("copy_", ones().copy_(number).cloned()),
        ("linspace", Tensor::linspace(number, number, 1, dtype, device())),
    ];
    let one_step = match number {
        Scalar::Int(value) if value > 0 => Some((Scalar::Int(value - 1), Scalar::Int(-1))),
        Scalar::Int(value) => Some((Scalar::Int(value + 1), Scalar::Int(1))),
        Scalar::Float(value) if value.abs() < 1e15 => Some((Scalar::Float(value + 1.0), Scalar::Float(2.0))),
        _ => None,
    };
    if let Some((end, step)) = one_step.filter(|_| dtype != DType::Bool) {
        found.push(("arange", Tensor::arange(number, end, step, dtype, device())));
    }
    if number.kind() <= dtype.kind() {
        let (never, always) = (tensor(&[false], &[1]), tensor(&[true], &[1]));
        found.push(("where_", never.where_(&ones(), number)));
        found.push(("masked_fill", ones().masked_fill(&always, number)));
        found.push(("masked_fill_", ones().masked_fill_(&always, number).cloned()));
        if dtype != DType::Bool {
            found.push(("add", zeros().add(number)));
            found.push(("add_", zeros().add_(number).cloned()));
            found.push(("mul", ones().mul(number)));
            found.push(("addcmul", zeros().addcmul(&ones(), &ones(), number)));
        }
    }
    if let (Scalar::Int(value), true) = (number, dtype.is_int())
        && value.unsigned_abs() < 1 << 53
    {
        let (index, matrix) = (tensor(&[0i64], &[1]), |of: Tensor| of.reshape([1, 1]).unwrap());
        let factor = value as f64;
        found.push(("index_add", zeros().index_add(0, &index, &ones(), factor)));
        let product = |beta, alpha| matrix(ones()).addmm(&matrix(ones()), &matrix(ones()), beta, alpha);
        found.push(("addmm alpha", product(0.0, factor)));
        found.push(("addmm beta", product(factor, 0.0)));
    }
    found
}

#[test]
fn one_rule_wherever_a_number_meets_a_dtype() {
    for &(dtype, number, expected) in RULE {
        for (place, found) in meet(dtype, number) {
            let context = format!("{place} of {number:?} as {dtype}");
            match (expected, found) {
                (Some(expected), Ok(found)) => assert_eq!(found.to_scalar().unwrap(), expected, "{context}"),
                (None, Err(error)) => {
                    let text = error.to_string();
                    let told = format!("expected a number that fits {dtype}, found ");
                    assert!(text.contains(&told), "{context}: {text}");
                }
                (expected, found) => panic!("{context}: expected {expected:?}, found {found:?}"),
            }
        }
    }
}

#[test]
fn what_is_refused_is_named_and_nothing_is_written() {
    let bytes = tensor(&[7u8, 8], &[2]);
    let error = bytes.fill_(300).unwrap_err().to_string();
    assert_eq!(error, "fill: the number is out of range, expected a number that fits u8, found 300");
    assert!(bytes.copy_(300.0).is_err() && bytes.mul_(256).is_err() && bytes.fill_(f32::NAN).is_err());
    let index = tensor(&[0i64], &[1]);
    let error = bytes.index_add_(0, &index, &tensor(&[1u8], &[1]), 300.0).unwrap_err().to_string();
    assert_eq!(error, "index_add: alpha is out of range, expected a number that fits u8, found 300");
    let matrix = bytes.reshape([1, 2]).unwrap();
    let error =
        matrix.addmm_(&matrix.copy().unwrap().narrow(1, 0, 1).unwrap(), &matrix.copy().unwrap(), 1.0, 256.0);
    assert_eq!(
        error.unwrap_err().to_string(),
        "addmm: alpha is out of range, expected a number that fits u8, found 256"
    );
    assert_eq!(bytes.to_vec::<u8>().unwrap(), [7, 8]);
    // Whatever there is to fill.
    assert!(Tensor::full([0], 300, DType::U8, device()).is_err());
    assert!(Tensor::full([0], f64::NAN, DType::I64, device()).is_err());
}

#[test]
fn ranges_are_of_the_dtype_from_the_first_to_the_last() {
    let bytes = |start: Scalar, end: Scalar, step: Scalar| {
        Tensor::arange(start, end, step, DType::U8, device()).map(|range| range.to_vec::<u8>().unwrap())
    };
    use Scalar::{Float, Int};
    assert_eq!(bytes(Int(250), Int(256), Int(2)).unwrap(), [250, 252, 254]);
    assert_eq!(bytes(Int(-2), Int(2), Int(1)).unwrap(), [254, 255, 0, 1]);
    assert!(bytes(Int(300), Int(300), Int(1)).unwrap().is_empty());
    let error = bytes(Int(250), Int(300), Int(1)).unwrap_err().to_string();
    assert_eq!(error, "arange: the last number is out of range, expected a number that fits u8, found 299");
    assert!(
        bytes(Float(-1.0), Float(2.0), Float(1.0)).is_err() && bytes(Int(3), Int(-300), Int(-1)).is_err()
    );
    assert_eq!(bytes(Float(0.5), Float(3.0), Float(1.0)).unwrap(), [0, 1, 2]);
    assert!(
        Tensor::arange(i64::MIN, i64::MIN, 1, DType::I64, device())
            .unwrap()
            .to_vec::<i64>()
            .unwrap()
            .is_empty()
    );
    let spaced = |start: f64, end: f64, dtype| Tensor::linspace(start, end, 3, dtype, device());
    let error = spaced(0.0, 300.0, DType::U8).unwrap_err().to_string();
    assert_eq!(error, "linspace: end is out of range, expected a number that fits u8, found 300");
    assert!(spaced(f64::NAN, 0.0, DType::I64).is_err() && spaced(0.0, 2147483648.0, DType::I32).is_err());
    // As in PyTorch, whose numbers these are, the ends lose their fractions first.
    assert_eq!(spaced(0.9, 3.2, DType::I32).unwrap().to_vec::<i32>().unwrap(), [0, 1, 3]);
    assert_eq!(spaced(-0.5, 2.0, DType::I32).unwrap().to_vec::<i32>().unwrap(), [0, 1, 2]);
}

/// Comparisons, bounds and closures have an answer for numbers that the dtype lacks.
#[test]
fn some_places_take_numbers_as_they_are() {
    let bytes = tensor(&[0u8, 44, 255], &[3]);
    let truth = |tensor: Result<Tensor>| tensor.unwrap().to_vec::<bool>().unwrap();
    assert_eq!(truth(bytes.eq(300)), [false; 3]);
    assert_eq!(truth(bytes.lt(300)), [true; 3]);
    assert_eq!(truth(bytes.gt(-1)), [true; 3]);
    assert_eq!(truth(bytes.logical_and(256)), [false, true, true]);
    assert_eq!(bytes.clamp(-5, 300).unwrap().to_vec::<u8>().unwrap(), [0, 44, 255]);
    assert_eq!(bytes.minimum(300).unwrap().to_vec::<u8>().unwrap(), [0, 44, 255]);
    assert!(
        bytes.clamp_min(300).is_err() && bytes.clamp_max(-1).unwrap_err().to_string().contains("fits u8")
    );
    // Literals up to the integers of 64 bits.
    let integers = tensor(&[i64::MIN, 0, i64::MAX], &[3]);
    let below = fused(|[x]| x.lt(1e18).select(1.0, 0.0)).call(&[&integers]).unwrap();
    assert_eq!(below.to_vec::<i64>().unwrap(), [1, 1, 0]);
    for input in [&integers, &bytes] {
        let error = fused(|[x]| x + 1e19).call(&[input]).unwrap_err().to_string();
        let told =
            "fused: a literal is out of range, expected a number that fits i64, found 10000000000000000000";
        assert_eq!(error, told);
    }
    assert_eq!(values(&fused(|[x]| x + 1e19).call(&[&tensor(&[1.0f32], &[1])]).unwrap()), [1e19]);
}
