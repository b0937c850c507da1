//! New tensors: of numbers, of lists, of NumPy's arrays and other buffers.

use crate::{
    arg::{self, scalar, scalar_if_any, type_name},
    device, dtype,
    error::{Failure, Result, wrong_type, wrong_value},
    tensor::PyTensor,
};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList, PyMemoryView, PyTuple},
};
use raddle::{DType, Device, Kind, Scalar, Tensor, grad::Autograd};

/// Where a tensor goes, and of which dtype it is.
struct Target {
    dtype: Option<DType>,
    device: Device,
    requires_grad: bool,
}

impl Target {
    fn new(
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        requires_grad: bool,
    ) -> Result<Target> {
        let dtype = dtype.map(dtype::parse).transpose()?;
        Ok(Target { dtype, device: device::parse(py, device)?, requires_grad })
    }

    fn float(&self) -> DType {
        self.dtype.unwrap_or(DType::F32)
    }

    fn finish(&self, tensor: Tensor) -> Result<PyTensor> {
        if self.requires_grad {
            tensor.requires_grad_(true)?;
        }
        Ok(PyTensor(tensor))
    }

    /// Into `out`, if there is one.
    fn finish_in<'py>(
        &self,
        tensor: Tensor,
        py: Python<'py>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        match out {
            None => Ok(Bound::new(py, self.finish(tensor)?)?),
            Some(out) => {
                fill(out, &tensor)?;
                Ok(out.clone())
            }
        }
    }
}

/// Writes what was made into an output of its shape.
pub fn fill(out: &Bound<'_, PyTensor>, made: &Tensor) -> Result<()> {
    let target = &out.get().0;
    if target.shape() != made.shape() {
        let (expected, found) = (made.shape().to_vec(), target.shape().to_vec());
        return Err(raddle::Error::Shape { op: "out", what: "the output", expected, found }.into());
    }
    if !raddle::can_cast(made.dtype(), target.dtype()) {
        return Err(raddle::Error::Cast { op: "out", from: made.dtype(), to: target.dtype() }.into());
    }
    target.copy_(made)?;
    Ok(())
}

/// Numbers in nested lists, flattened.
struct Nested {
    shape: Vec<usize>,
    values: Vec<Scalar>,
}

impl Nested {
    fn read(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            let len = value.len()?;
            match self.shape.get(depth) {
                Some(&expected) if expected != len => {
                    return wrong_value(format!(
                        "tensor: expected {expected} elements at depth {depth}, found {len}"
                    ));
                }
                Some(_) => {}
                None if self.values.is_empty() && depth == self.shape.len() && depth < raddle::MAX_RANK => {
                    self.shape.push(len)
                }
                None => {
                    return wrong_value(format!("tensor: expected a number at depth {depth}, found a list"));
                }
            }
            return value.try_iter()?.try_for_each(|item| self.read(&item?, depth + 1));
        }
        if depth != self.shape.len() {
            return wrong_value(format!(
                "tensor: expected a list at depth {depth}, found {}",
                type_name(value)
            ));
        }
        self.values.push(scalar("tensor", value)?);
        Ok(())
    }
}

/// Bytes of so many elements, converted as Raddle converts numbers.
fn encode(values: &[Scalar], dtype: DType) -> Vec<u8> {
    use raddle::{Element, by_element};
    fn all<T: Element>(values: &[Scalar]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * size_of::<T>());
        values.iter().for_each(|&value| T::from_scalar(value).append_bytes(&mut bytes));
        bytes
    }
    by_element!(dtype, T => all::<T>(values))
}

/// A tensor of whatever a user gives: numbers, lists of them, tensors, NumPy's arrays, buffers. A copy.
pub fn from_object(
    value: &Bound<'_, PyAny>,
    dtype: Option<DType>,
    device: raddle::runtime::Device,
) -> Result<Tensor> {
    let py = value.py();
    let cast = |tensor: Tensor| match dtype {
        Some(dtype) => Ok::<_, Failure>(tensor.to_dtype(dtype)?),
        None => Ok(tensor),
    };
    if let Ok(tensor) = value.cast::<PyTensor>() {
        let tensor = tensor.get().0.detach();
        let is_here = tensor.device() == device;
        if is_here && dtype.is_none_or(|dtype| dtype == tensor.dtype()) {
            return Ok(tensor.copy()?);
        }
        return cast(if is_here { tensor } else { py.detach(|| tensor.to_device(&device))? });
    }
    if scalar_if_any(value)?.is_none()
        && !value.is_instance_of::<PyList>()
        && !value.is_instance_of::<PyTuple>()
    {
        if let Ok(view) = PyMemoryView::from(value) {
            return cast(from_buffer(&view, &device)?);
        }
        if value.hasattr("__array__")? {
            let array = value.call_method0("__array__")?;
            return cast(from_buffer(&PyMemoryView::from(&array)?, &device)?);
        }
        return wrong_type(format!(
            "tensor: expected numbers, lists, arrays or tensors, found {}",
            type_name(value)
        ));
    }
    // A list of arrays or of tensors with axes is one array.
    if let Some(first) = value.cast::<PyList>().ok().and_then(|list| list.get_item(0).ok())
        && !first.is_instance_of::<PyList>()
        && !first.is_instance_of::<PyTuple>()
        && first.hasattr("shape")?
        && first.getattr("shape")?.len()? > 0
    {
        let parts =
            value.try_iter()?.map(|item| from_object(&item?, dtype, device)).collect::<Result<Vec<_>>>()?;
        return Ok(Tensor::stack(&parts, 0)?);
    }
    let mut nested = Nested { shape: Vec::new(), values: Vec::new() };
    nested.read(value, 0)?;
    let kind = nested.values.iter().map(|value| value.kind()).max();
    let dtype = dtype.unwrap_or(kind.map_or(DType::F32, DType::default_of));
    for value in &mut nested.values {
        *value = raddle::fit("tensor", "a number", *value, dtype)?;
    }
    let bytes = encode(&nested.values, dtype);
    Ok(Tensor::from_bytes(&bytes, nested.shape, dtype, &device)?)
}

/// The dtype of a buffer's format, as Python's `struct` writes it.
fn buffer_dtype(format: &str, itemsize: usize) -> Option<DType> {
    let format = format.strip_prefix(['@', '=', '<']).unwrap_or(format);
    let (kind, has_sign) = match format {
        "?" => (Kind::Bool, false),
        "b" | "h" | "i" | "l" | "q" => (Kind::Int, true),
        "B" | "H" | "I" | "L" | "Q" => (Kind::Int, false),
        "e" | "f" | "d" => (Kind::Float, false),
        _ => return None,
    };
    let fits = |dtype: &DType| {
        let is_signed = dtype.integer_range().is_some_and(|(least, _)| least < 0);
        // No format of buffers is bf16.
        *dtype != DType::BF16
            && dtype.kind() == kind
            && dtype.size_bytes() == itemsize
            && is_signed == has_sign
    };
    DType::ALL.iter().copied().find(fits)
}

/// A copy of a buffer's elements, whatever its strides.
fn from_buffer(view: &Bound<'_, PyMemoryView>, device: &raddle::runtime::Device) -> Result<Tensor> {
    let format: String = view.getattr("format")?.extract()?;
    let itemsize: usize = view.getattr("itemsize")?.extract()?;
    let Some(dtype) = buffer_dtype(&format, itemsize) else {
        let names: Vec<_> = DType::ALL.iter().map(|&dtype| dtype::name(dtype)).collect();
        return wrong_type(format!(
            "tensor: expected elements of {}, found the format '{format}'",
            names.join(", ")
        ));
    };
    let shape: Vec<usize> = view.getattr("shape")?.extract()?;
    let bytes = view.call_method0("tobytes")?;
    let bytes = bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
    Ok(Tensor::from_bytes(bytes, shape, dtype, device)?)
}

/// A tensor of numbers: of one, of nested lists, of an array. A copy.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, device=None, requires_grad=false))]
pub fn tensor(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    let place = match (data.cast::<PyTensor>(), device) {
        (Ok(tensor), None) => tensor.get().0.device(),
        _ => *target.device,
    };
    target.finish(from_object(data, target.dtype, place)?)
}

/// The shape of `f(2, 3)`, `f((2, 3))` and `f(size=(2, 3))`.
fn shape_of(op: &str, sizes: &Bound<'_, PyTuple>, size: Option<&Bound<'_, PyAny>>) -> Result<Vec<usize>> {
    match size {
        None => arg::shape(op, sizes),
        Some(size) => arg::list(op, size)?.into_iter().map(|size| arg::size(op, size)).collect(),
    }
}

macro_rules! filled {
    ($($name:ident $like:ident |$shape:ident, $dtype:ident, $device:ident| $make:expr, |$model:ident| $make_like:expr, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (*sizes, size=None, out=None, dtype=None, device=None, requires_grad=false))]
        pub fn $name<'py>(
            py: Python<'py>,
            sizes: &Bound<'py, PyTuple>,
            size: Option<&Bound<'py, PyAny>>,
            out: Option<&Bound<'py, PyTensor>>,
            dtype: Option<&Bound<'py, PyAny>>,
            device: Option<&Bound<'py, PyAny>>,
            requires_grad: bool,
        ) -> Result<Bound<'py, PyTensor>> {
            let target = Target::new(py, dtype, device, requires_grad)?;
            let ($shape, $dtype, $device) = (shape_of(stringify!($name), sizes, size)?, target.float(), &target.device);
            target.finish_in($make?, py, out)
        }

        #[doc = concat!("`", stringify!($name), "` of the shape of another tensor, and of its dtype and device if none is given.")]
        #[pyfunction]
        #[pyo3(signature = (input, *, dtype=None, device=None, requires_grad=false))]
        pub fn $like(
            py: Python<'_>,
            input: &Bound<'_, PyTensor>,
            dtype: Option<&Bound<'_, PyAny>>,
            device: Option<&Bound<'_, PyAny>>,
            requires_grad: bool,
        ) -> Result<PyTensor> {
            let target = Target::new(py, dtype, device, requires_grad)?;
            let $model = model(&input.get().0, &target, device.is_some())?;
            target.finish($make_like?)
        }
    )* };
}

/// A tensor of no use but to be like it.
fn model(like: &Tensor, target: &Target, moves: bool) -> Result<Tensor> {
    let device = if moves { *target.device } else { like.device() };
    let dtype = target.dtype.unwrap_or(like.dtype());
    if device == like.device() && dtype == like.dtype() {
        return Ok(like.detach());
    }
    Ok(Tensor::empty(like.shape(), dtype, &device)?)
}

filled! {
    zeros zeros_like |shape, dtype, device| Tensor::zeros(shape, dtype, device), |model| model.zeros_like(), "Zeros.";
    ones ones_like |shape, dtype, device| Tensor::ones(shape, dtype, device), |model| model.ones_like(), "Ones.";
    empty empty_like |shape, dtype, device| Tensor::empty(shape, dtype, device), |model| model.empty_like(), "Undefined content.";
    rand rand_like |shape, dtype, device| Tensor::rand(shape, dtype, device, None),
        |model| uniform(model), "Random numbers, uniform in [0, 1).";
    randn randn_like |shape, dtype, device| Tensor::randn(shape, dtype, device, None),
        |model| normal(model), "Random numbers of the standard normal distribution.";
}

fn uniform(model: Tensor) -> raddle::Result<Tensor> {
    let made = model.empty_like()?;
    made.uniform_(0.0, 1.0, None)?;
    Ok(made)
}

fn normal(model: Tensor) -> raddle::Result<Tensor> {
    let made = model.empty_like()?;
    made.normal_(0.0, 1.0, None)?;
    Ok(made)
}

/// One number everywhere.
#[pyfunction]
#[pyo3(signature = (size, fill_value, *, out=None, dtype=None, device=None, requires_grad=false))]
pub fn full<'py>(
    py: Python<'py>,
    size: &Bound<'py, PyAny>,
    fill_value: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyTensor>>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
) -> Result<Bound<'py, PyTensor>> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    let shape: Vec<usize> =
        arg::list("full", size)?.into_iter().map(|size| arg::size("full", size)).collect::<Result<_>>()?;
    let value = scalar("full", fill_value)?;
    let dtype = target.dtype.unwrap_or(DType::default_of(value.kind()));
    target.finish_in(Tensor::full(shape, value, dtype, &target.device)?, py, out)
}

/// One number everywhere, in the shape of another tensor.
#[pyfunction]
#[pyo3(signature = (input, fill_value, *, dtype=None, device=None, requires_grad=false))]
pub fn full_like(
    py: Python<'_>,
    input: &Bound<'_, PyTensor>,
    fill_value: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    let model = model(&input.get().0, &target, device.is_some())?;
    target.finish(model.full_like(scalar("full_like", fill_value)?)?)
}

/// `start`, `start + step`, … before `end`.
#[pyfunction]
#[pyo3(signature = (start, end=None, step=None, *, out=None, dtype=None, device=None, requires_grad=false))]
#[expect(clippy::too_many_arguments, reason = "PyTorch's signature")]
pub fn arange<'py>(
    py: Python<'py>,
    start: &Bound<'py, PyAny>,
    end: Option<&Bound<'py, PyAny>>,
    step: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyTensor>>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
) -> Result<Bound<'py, PyTensor>> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    let first = scalar("arange", start)?;
    let (start, end) = match end {
        None => (Scalar::Int(0), first),
        Some(end) => (first, scalar("arange", end)?),
    };
    let step = step.map_or(Ok(Scalar::Int(1)), |step| scalar("arange", step))?;
    let kind = [start, end, step].map(Scalar::kind).into_iter().max().unwrap_or(start.kind());
    let dtype = target.dtype.unwrap_or(match DType::default_of(kind) {
        DType::Bool => DType::I64,
        dtype => dtype,
    });
    target.finish_in(Tensor::arange(start, end, step, dtype, &target.device)?, py, out)
}

/// So many numbers from `start` to `end`, both among them.
#[pyfunction]
#[pyo3(signature = (start, end, steps, *, out=None, dtype=None, device=None, requires_grad=false))]
#[expect(clippy::too_many_arguments, reason = "PyTorch's signature")]
pub fn linspace<'py>(
    py: Python<'py>,
    start: &Bound<'py, PyAny>,
    end: &Bound<'py, PyAny>,
    steps: i64,
    out: Option<&Bound<'py, PyTensor>>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
) -> Result<Bound<'py, PyTensor>> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    let (start, end) = (scalar("linspace", start)?, scalar("linspace", end)?);
    target.finish_in(
        Tensor::linspace(start, end, arg::size("linspace", steps)?, target.float(), &target.device)?,
        py,
        out,
    )
}

/// The identity.
#[pyfunction]
#[pyo3(signature = (n, m=None, *, out=None, dtype=None, device=None, requires_grad=false))]
pub fn eye<'py>(
    py: Python<'py>,
    n: i64,
    m: Option<i64>,
    out: Option<&Bound<'py, PyTensor>>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
) -> Result<Bound<'py, PyTensor>> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    target.finish_in(
        Tensor::eye(arg::size("eye", n)?, arg::size("eye", m.unwrap_or(n))?, target.float(), &target.device)?,
        py,
        out,
    )
}

/// Random integers from `low` (0 if left out) to before `high`.
#[pyfunction]
#[pyo3(signature = (low, high, size=None, *, dtype=None, device=None, requires_grad=false))]
pub fn randint(
    py: Python<'_>,
    low: i64,
    high: &Bound<'_, PyAny>,
    size: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let target = Target::new(py, dtype, device, requires_grad)?;
    let (low, high, size) = match size {
        None => (0, low, high),
        Some(size) => (low, arg::integer("randint", high)?, size),
    };
    let shape: Vec<usize> = arg::list("randint", size)?
        .into_iter()
        .map(|size| arg::size("randint", size))
        .collect::<Result<_>>()?;
    target.finish(Tensor::randint(
        low,
        high,
        shape,
        target.dtype.unwrap_or(DType::I64),
        &target.device,
        None,
    )?)
}

/// The integers from 0 to before `n`, in random order.
#[pyfunction]
#[pyo3(signature = (n, *, dtype=None, device=None))]
pub fn randperm(
    py: Python<'_>,
    n: i64,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> Result<PyTensor> {
    let target = Target::new(py, dtype, device, false)?;
    let order = Tensor::randperm(arg::size("randperm", n)?, &target.device, None)?;
    Ok(PyTensor(order.to_dtype(target.dtype.unwrap_or(DType::I64))?))
}

/// Seeds the random numbers of this thread.
#[pyfunction]
pub fn manual_seed(seed: u64) {
    raddle::manual_seed(seed);
}
