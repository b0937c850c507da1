//! `raddle.dtype`: one object a dtype, under PyTorch's names.

use crate::error::{Result, wrong_type};
use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyFloat, PyInt, PyType},
};
use raddle::DType;

/// The type of a tensor's elements: `raddle.float32` and its like.
#[pyclass(frozen, name = "dtype", module = "raddle")]
pub struct PyDType(pub DType);

/// PyTorch's name.
pub fn name(dtype: DType) -> &'static str {
    dtype.torch_names()[0]
}

#[pymethods]
impl PyDType {
    /// Is it a float?
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    /// Always false: Raddle has no complex numbers.
    #[getter]
    fn is_complex(&self) -> bool {
        false
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size_bytes()
    }

    fn __repr__(&self) -> String {
        format!("raddle.{}", name(self.0))
    }

    fn __reduce__(&self) -> &'static str {
        name(self.0)
    }
}

/// The one object of a dtype, so that `x.dtype is raddle.float32`.
pub fn object(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    static OBJECTS: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();
    let make = || DType::ALL.iter().map(|&dtype| Py::new(py, PyDType(dtype))).collect::<PyResult<Vec<_>>>();
    let objects = OBJECTS.get_or_try_init(py, make)?;
    let place = DType::ALL.iter().position(|&one| one == dtype).expect("all dtypes are in ALL");
    Ok(objects[place].clone_ref(py))
}

/// What a user gave as a dtype: one of ours, or Python's `bool`, `int`, `float`.
pub fn parse(value: &Bound<'_, PyAny>) -> Result<DType> {
    if let Ok(dtype) = value.cast::<PyDType>() {
        return Ok(dtype.get().0);
    }
    let py = value.py();
    if let Ok(kind) = value.cast::<PyType>() {
        for (of, dtype) in [
            (py.get_type::<PyBool>(), DType::Bool),
            (py.get_type::<PyInt>(), DType::I64),
            (py.get_type::<PyFloat>(), DType::F32),
        ] {
            if kind.is(&of) {
                return Ok(dtype);
            }
        }
    }
    wrong_type(format!("dtype: expected a raddle.dtype, found {}", value.repr()?))
}

/// Adds `float32` and its like to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for &dtype in DType::ALL {
        for name in dtype.torch_names() {
            module.add(*name, object(module.py(), dtype)?)?;
        }
    }
    Ok(())
}
