//! What a tensor says of itself, and its elements on the host.

use crate::{
    arg::{self, type_name},
    device::{self, PyDevice},
    dtype::{self, PyDType},
    error::{Result, wrong_type},
    tensor::{PyTensor, run, unary},
};
use pyo3::{
    prelude::*,
    types::{PyByteArray, PyList, PyString, PyTuple},
};
use raddle::{DType, Device, Scalar, Tensor, grad::Autograd};

/// A number as Python's.
fn to_python<'py>(py: Python<'py>, value: Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Scalar::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Int(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Float(value) => value.into_pyobject(py)?.into_any(),
    })
}

fn only(slf: &Bound<'_, PyTensor>) -> Result<Scalar> {
    let tensor = &slf.get().0;
    Ok(slf.py().detach(|| tensor.to_scalar())?)
}

fn nested<'py>(
    py: Python<'py>,
    values: &mut dyn Iterator<Item = Scalar>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    match shape {
        [] => to_python(py, values.next().expect("as many values as elements")),
        [len, rest @ ..] => {
            let items = (0..*len).map(|_| nested(py, values, rest)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
    }
}

#[pymethods]
impl PyTensor {
    /// The sizes of the axes.
    #[getter]
    fn shape<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(slf.py(), slf.get().0.shape().iter())?)
    }

    /// The sizes of the axes, or of one.
    #[pyo3(signature = (dim=None))]
    fn size<'py>(slf: &Bound<'py, PyTensor>, dim: Option<isize>) -> Result<Bound<'py, PyAny>> {
        match dim {
            None => Ok(Self::shape(slf)?.into_any()),
            Some(dim) => Ok(slf.get().0.size(dim)?.into_pyobject(slf.py()).map_err(PyErr::from)?.into_any()),
        }
    }

    /// The strides of the axes in elements, or of one.
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(slf: &Bound<'py, PyTensor>, dim: Option<isize>) -> Result<Bound<'py, PyAny>> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        match dim {
            None => Ok(PyTuple::new(py, tensor.strides().iter())?.into_any()),
            Some(dim) => {
                let axis = tensor.layout().axis("stride", dim).map_err(raddle::Error::from)?;
                Ok(tensor.strides()[axis].into_pyobject(py).map_err(PyErr::from)?.into_any())
            }
        }
    }

    /// Where the first element lies in the storage, in elements.
    fn storage_offset(&self) -> usize {
        self.0.storage_offset()
    }

    /// How many axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.rank()
    }

    /// How many axes.
    fn dim(&self) -> usize {
        self.0.rank()
    }

    /// How many elements.
    fn numel(&self) -> usize {
        self.0.element_count()
    }

    /// Bytes of an element.
    fn element_size(&self) -> usize {
        self.0.dtype().size_bytes()
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.dtype().size_bytes()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.element_count() * self.0.dtype().size_bytes()
    }

    #[getter]
    fn dtype(slf: &Bound<'_, PyTensor>) -> Result<Py<PyDType>> {
        Ok(dtype::object(slf.py(), slf.get().0.dtype())?)
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice::of(Device::from(self.0.device()))
    }

    /// Are the elements row-major, one after the other?
    fn is_contiguous(&self) -> bool {
        self.0.is_contiguous()
    }

    /// Are the elements floats?
    fn is_floating_point(&self) -> bool {
        self.0.dtype().is_float()
    }

    /// Is it the same view of the same storage?
    fn is_set_to(&self, tensor: &Bound<'_, PyTensor>) -> bool {
        self.0.is(&tensor.get().0)
    }

    /// How often the storage was changed in place.
    #[getter]
    fn _version(&self) -> u64 {
        self.0.version()
    }

    /// The only element, as a number. Waits for it.
    fn item<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyAny>> {
        Ok(to_python(slf.py(), only(slf)?)?)
    }

    /// The elements in nested lists. Waits for them.
    fn tolist<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyAny>> {
        let tensor = &slf.get().0;
        let bytes = slf.py().detach(|| tensor.to_bytes())?;
        let dtype = tensor.dtype();
        let mut values = bytes.chunks_exact(dtype.size_bytes()).map(|bytes| dtype.scalar_from_bytes(bytes));
        Ok(nested(slf.py(), &mut values, tensor.shape())?)
    }

    /// The elements in row-major order, as bytes. Waits for them.
    fn tobytes<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyByteArray>> {
        let tensor = &slf.get().0;
        let bytes = slf.py().detach(|| tensor.to_bytes())?;
        Ok(PyByteArray::new(slf.py(), &bytes))
    }

    /// A NumPy array of the elements, a copy. Waits for them. `force`: of a tensor that requires grad, too.
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(slf: &Bound<'py, PyTensor>, force: bool) -> Result<Bound<'py, PyAny>> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        if tensor.requires_grad() && !force {
            let text = "numpy: the tensor requires grad, expected one that doesn't (see detach)";
            return Err(pyo3::exceptions::PyRuntimeError::new_err(text).into());
        }
        if tensor.dtype() == DType::BF16 {
            return wrong_type("numpy: expected a dtype that NumPy has, found bfloat16 (see float)");
        }
        let numpy = py.import("numpy")?;
        let flat = numpy.call_method1("frombuffer", (Self::tobytes(slf)?, dtype::name(tensor.dtype())))?;
        Ok(flat.call_method1("reshape", (Self::shape(slf)?,))?)
    }

    /// For `numpy.asarray`: a copy, or with `copy=False` an array of the same memory.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, PyTensor>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let array = match copy {
            // Over the same memory, or an error.
            Some(false) => slf.py().import("numpy")?.call_method1("from_dlpack", (slf,))?,
            _ => Self::numpy(slf, false)?,
        };
        match dtype {
            None => Ok(array),
            Some(dtype) => Ok(array.call_method1("astype", (dtype,))?),
        }
    }

    /// With arrays of NumPy at the left, the tensor's operators win.
    #[classattr]
    fn __array_priority__() -> i64 {
        1000
    }

    /// Another dtype, another device, or both; itself if nothing changes.
    #[pyo3(signature = (*args, dtype=None, device=None, copy=false, non_blocking=false))]
    fn to<'py>(
        slf: &Bound<'py, PyTensor>,
        args: &Bound<'py, PyTuple>,
        dtype: Option<&Bound<'py, PyAny>>,
        device: Option<&Bound<'py, PyAny>>,
        copy: bool,
        non_blocking: bool,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = non_blocking;
        let (py, tensor) = (slf.py(), &slf.get().0);
        let mut wanted = dtype.map(dtype::parse).transpose()?;
        let mut place = device.map(|device| device::parse(py, Some(device))).transpose()?;
        let mut flags = Vec::new();
        for arg in args {
            if let Ok(other) = arg.cast::<PyTensor>() {
                wanted = Some(other.get().0.dtype());
                place = Some(Device::from(other.get().0.device()));
            } else if arg.is_instance_of::<PyDevice>() || arg.is_instance_of::<PyString>() {
                place = Some(device::parse(py, Some(&arg))?);
            } else if let Ok(flag) = arg.extract::<bool>() {
                // PyTorch's order: non_blocking, copy.
                flags.push(flag);
            } else if !arg.is_none() {
                wanted = Some(dtype::parse(&arg)?);
            }
        }
        let copy = copy || flags.get(1) == Some(&true);
        let wanted = wanted.unwrap_or(tensor.dtype());
        let moves = place.is_some_and(|place| *place != tensor.device());
        if !moves && wanted == tensor.dtype() {
            return if copy { Ok(Bound::new(py, unary(slf, Tensor::copy)?)?) } else { Ok(slf.clone()) };
        }
        let converted = run(py, tensor.element_count(), || tensor.to_dtype(wanted))?;
        let moved = match place {
            Some(place) if moves => py.detach(|| converted.to_device(&place))?,
            _ => converted,
        };
        Ok(Bound::new(py, PyTensor(moved))?)
    }

    /// On the CPU.
    fn cpu<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
        let (py, cpu) = (slf.py(), Device::cpu()?);
        let tensor = &slf.get().0;
        if tensor.device() == *cpu {
            return Ok(slf.clone());
        }
        Ok(Bound::new(py, PyTensor(py.detach(|| tensor.to_device(&cpu))?))?)
    }

    /// Has it the same shape and the same elements?
    fn equal(slf: &Bound<'_, PyTensor>, other: &Bound<'_, PyTensor>) -> Result<bool> {
        let (a, b) = (&slf.get().0, &other.get().0);
        if a.shape() != b.shape() {
            return Ok(false);
        }
        Ok(slf.py().detach(|| a.eq(b)?.all(.., false)?.item::<bool>())?)
    }

    fn __repr__(slf: &Bound<'_, PyTensor>) -> String {
        let tensor = &slf.get().0;
        slf.py().detach(|| tensor.to_string())
    }

    fn __len__(&self) -> Result<usize> {
        match self.0.shape().first() {
            Some(&len) => Ok(len),
            None => wrong_type("len: expected a tensor with axes, found one without"),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyAny>> {
        if slf.get().0.rank() == 0 {
            return wrong_type("iter: expected a tensor with axes, found one without");
        }
        let parts = slf.get().0.unbind(0)?;
        Ok(PyTuple::new(slf.py(), parts.into_iter().map(PyTensor))?.into_any().try_iter()?.into_any())
    }

    /// Is a number among the elements?
    fn __contains__(slf: &Bound<'_, PyTensor>, value: &Bound<'_, PyAny>) -> Result<bool> {
        let Some(value) = arg::operand(value)? else {
            return wrong_type(format!("in: expected a tensor or a number, found {}", type_name(value)));
        };
        let (tensor, value) = (&slf.get().0, value.arg());
        Ok(slf.py().detach(|| tensor.eq(value)?.any(.., false)?.item::<bool>())?)
    }

    fn __bool__(slf: &Bound<'_, PyTensor>) -> Result<bool> {
        Ok(only(slf)?.to_bool())
    }

    fn __int__(slf: &Bound<'_, PyTensor>) -> Result<i64> {
        Ok(only(slf)?.to_i64())
    }

    fn __float__(slf: &Bound<'_, PyTensor>) -> Result<f64> {
        Ok(only(slf)?.to_f64())
    }

    /// Another handle of the same tensor.
    fn __copy__(&self) -> PyTensor {
        PyTensor(self.0.clone())
    }

    fn __deepcopy__(slf: &Bound<'_, PyTensor>, _memo: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let tensor = &slf.get().0;
        if !tensor.is_leaf() {
            let text =
                "deepcopy: expected a leaf, found a tensor that was made by a recorded op (see detach)";
            return Err(pyo3::exceptions::PyRuntimeError::new_err(text).into());
        }
        let copy = run(slf.py(), tensor.element_count(), || tensor.detach().copy())?;
        copy.requires_grad_(tensor.requires_grad())?;
        Ok(PyTensor(copy))
    }

    /// Elements, shape, dtype, device, and whether it requires grad; no graph.
    fn __reduce__<'py>(slf: &Bound<'py, PyTensor>) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        let rebuild = py.import("raddle._raddle")?.getattr("_rebuild")?;
        let about = (
            Self::tobytes(slf)?,
            Self::shape(slf)?,
            Self::dtype(slf)?,
            slf.get().device(),
            tensor.requires_grad(),
        );
        Ok((rebuild, about.into_pyobject(py)?))
    }

    fn __format__<'py>(slf: &Bound<'py, PyTensor>, spec: &str) -> Result<Bound<'py, PyAny>> {
        if slf.get().0.rank() > 0 || spec.is_empty() {
            return Ok(Self::__repr__(slf).into_pyobject(slf.py()).map_err(PyErr::from)?.into_any());
        }
        Ok(Self::item(slf)?.call_method1("__format__", (spec,))?)
    }
}

/// Conversions by the dtype's name.
macro_rules! conversions {
    ($($name:ident $python:literal $dtype:ident;)*) => { #[pymethods] impl PyTensor { $(
        #[doc = concat!("Converted to ", $python, "; itself if it is that already.")]
        #[pyo3(name = $python)]
        fn $name<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
            if slf.get().0.dtype() == DType::$dtype {
                return Ok(slf.clone());
            }
            Ok(Bound::new(slf.py(), unary(slf, |x| x.to_dtype(DType::$dtype))?)?)
        }
    )* } };
}
conversions! {
    to_float "float" F32;
    to_double "double" F64;
    to_half "half" F16;
    to_bfloat16 "bfloat16" BF16;
    to_int "int" I32;
    to_long "long" I64;
    to_byte "byte" U8;
    to_bool "bool" Bool;
}

/// What a tensor is made of when it is unpickled.
#[pyfunction]
pub fn _rebuild(
    data: &Bound<'_, PyByteArray>,
    shape: Vec<usize>,
    dtype: &Bound<'_, PyAny>,
    device: &Bound<'_, PyAny>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let (dtype, device) = (dtype::parse(dtype)?, device::parse(data.py(), Some(device))?);
    let tensor = Tensor::from_bytes(&data.to_vec(), shape, dtype, &device)?;
    tensor.requires_grad_(requires_grad)?;
    Ok(PyTensor(tensor))
}

/// The dtype that operands are promoted to.
#[pyfunction]
pub fn result_type(
    py: Python<'_>,
    tensor1: &Bound<'_, PyAny>,
    tensor2: &Bound<'_, PyAny>,
) -> Result<Py<PyDType>> {
    let (a, b) = (arg::expect_operand("result_type", tensor1)?, arg::expect_operand("result_type", tensor2)?);
    Ok(dtype::object(py, raddle::result_type(&[a.arg(), b.arg()]))?)
}

/// The dtype that two are promoted to.
#[pyfunction]
pub fn promote_types(
    py: Python<'_>,
    type1: &Bound<'_, PyAny>,
    type2: &Bound<'_, PyAny>,
) -> Result<Py<PyDType>> {
    Ok(dtype::object(py, dtype::parse(type1)?.promote(dtype::parse(type2)?))?)
}

/// May a result of the one dtype be stored in an output of the other?
#[pyfunction]
pub fn can_cast(from_: &Bound<'_, PyAny>, to: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(raddle::can_cast(dtype::parse(from_)?, dtype::parse(to)?))
}
