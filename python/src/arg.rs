//! What users pass: numbers, operands, shapes and axes.

use crate::{
    error::{Result, wrong_type, wrong_value},
    tensor::PyTensor,
};
use pyo3::{
    prelude::*,
    types::{PyBool, PyFloat, PyInt, PyList, PyTuple},
};
use raddle::{Arg, INFER, Scalar, Tensor};

/// A tensor, or a number beside it.
pub enum Operand<'a, 'py> {
    Tensor(&'a Bound<'py, PyTensor>),
    Scalar(Scalar),
}

impl Operand<'_, '_> {
    #[inline]
    pub fn arg(&self) -> Arg<'_> {
        match self {
            Operand::Tensor(tensor) => Arg::Tensor(&tensor.get().0),
            Operand::Scalar(value) => Arg::Scalar(*value),
        }
    }
}

/// The operand that a value is; none for what is neither tensor nor number.
#[inline]
pub fn operand<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Result<Option<Operand<'a, 'py>>> {
    if let Ok(tensor) = value.cast::<PyTensor>() {
        return Ok(Some(Operand::Tensor(tensor)));
    }
    Ok(scalar_if_any(value)?.map(Operand::Scalar))
}

/// The operand that a value is.
#[inline]
pub fn expect_operand<'a, 'py>(what: &str, value: &'a Bound<'py, PyAny>) -> Result<Operand<'a, 'py>> {
    match operand(value)? {
        Some(operand) => Ok(operand),
        None => wrong_type(format!("{what}: expected a tensor or a number, found {}", type_name(value))),
    }
}

/// The number that a value is: Python's, or one of NumPy's.
pub fn scalar_if_any(value: &Bound<'_, PyAny>) -> Result<Option<Scalar>> {
    if value.is_exact_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(value.extract()?)));
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(Some(Scalar::Bool(value.extract()?)));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Some(Scalar::Int(value.extract()?)));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(value.extract()?)));
    }
    // NumPy's numbers: of no axes, and no arrays.
    if !value.hasattr("dtype")? || value.is_instance_of::<PyTensor>() || value.hasattr("__len__")? {
        return Ok(None);
    }
    let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
    Ok(match kind.as_str() {
        "b" => Some(Scalar::Bool(value.is_truthy()?)),
        "i" | "u" => Some(Scalar::Int(value.call_method0("__int__")?.extract()?)),
        "f" => Some(Scalar::Float(value.call_method0("__float__")?.extract()?)),
        _ => None,
    })
}

/// The number that a value is; a tensor of one element counts as one.
pub fn scalar(what: &str, value: &Bound<'_, PyAny>) -> Result<Scalar> {
    match scalar_if_any(value)? {
        Some(scalar) => Ok(scalar),
        None => match value.cast::<PyTensor>() {
            Ok(tensor) => {
                let tensor = &tensor.get().0;
                Ok(value.py().detach(|| tensor.to_scalar())?)
            }
            Err(_) => wrong_type(format!("{what}: expected a number, found {}", type_name(value))),
        },
    }
}

pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string())
}

/// An integer: Python's, NumPy's, or a tensor of one.
pub fn integer(what: &str, value: &Bound<'_, PyAny>) -> Result<i64> {
    if value.is_instance_of::<PyInt>() {
        return Ok(value.extract()?);
    }
    if let Ok(tensor) = value.cast::<PyTensor>()
        && (tensor.get().0.rank() > 0 || tensor.get().0.dtype() == raddle::DType::Bool)
    {
        return wrong_type(format!("{what}: expected an integer, found a tensor of bools, or with axes"));
    }
    match scalar(what, value)? {
        Scalar::Float(_) => wrong_type(format!("{what}: expected an integer, found {}", type_name(value))),
        number => Ok(number.to_i64()),
    }
}

/// Integers, as one list or tuple or one after the other.
pub fn integers(what: &str, values: &Bound<'_, PyTuple>) -> Result<Vec<i64>> {
    if values.len() == 1 {
        let only = values.get_item(0)?;
        if is_sequence(&only) {
            return list(what, &only);
        }
    }
    values.iter().map(|value| integer(what, &value)).collect()
}

fn is_sequence(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>()
}

/// The integers of a list or tuple.
pub fn list(what: &str, value: &Bound<'_, PyAny>) -> Result<Vec<i64>> {
    if !is_sequence(value) {
        return wrong_type(format!("{what}: expected integers, found {}", type_name(value)));
    }
    value.try_iter()?.map(|value| integer(what, &value?)).collect()
}

/// Sizes; -1 is what is left over.
pub fn sizes(what: &str, values: &[i64]) -> Result<Vec<usize>> {
    let size = |&value: &i64| match value {
        -1 => Ok(INFER),
        _ => usize::try_from(value)
            .or_else(|_| wrong_value(format!("{what}: expected sizes of at least 0, or -1, found {value}"))),
    };
    values.iter().map(size).collect()
}

/// One size.
pub fn size(what: &str, value: i64) -> Result<usize> {
    usize::try_from(value).or_else(|_| wrong_value(format!("{what}: expected at least 0, found {value}")))
}

/// A shape: nothing is left over.
pub fn shape(what: &str, values: &Bound<'_, PyTuple>) -> Result<Vec<usize>> {
    integers(what, values)?.iter().map(|&value| size(what, value)).collect()
}

/// `dim`: none for all axes, one, or several.
pub fn axes(what: &str, value: Option<&Bound<'_, PyAny>>) -> Result<Option<Vec<isize>>> {
    let Some(value) = value else { return Ok(None) };
    let axes = if is_sequence(value) { list(what, value)? } else { vec![integer(what, value)?] };
    Ok(Some(axes.into_iter().map(|axis| axis as isize).collect()))
}

/// A sequence of tensors.
pub fn tensors(what: &str, value: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    let tensor = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        match item.cast::<PyTensor>() {
            Ok(tensor) => Ok(tensor.get().0.clone()),
            Err(_) => wrong_type(format!("{what}: expected tensors, found {}", type_name(&item))),
        }
    };
    value.try_iter()?.map(tensor).collect()
}
