//! `raddle.device`: a device by name. Each name is one device of the process, `sim:SEED` too.

use crate::error::{Result, wrong_type};
use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyString},
};
use raddle::Device;

/// `raddle.device("cpu")`, `"cuda:0"`, `"sim:7"`: where tensors live. One of a name in the process.
#[pyclass(frozen, name = "device", module = "raddle", eq, hash)]
#[derive(PartialEq, Eq, Hash, Clone)]
pub struct PyDevice {
    name: String,
}

impl PyDevice {
    pub fn of(device: raddle::Device) -> PyDevice {
        PyDevice { name: device.name().to_string() }
    }

    /// Which GPU of CUDA it is, if it is one.
    pub fn ordinal(&self) -> Option<i32> {
        self.name.strip_prefix("cuda:")?.parse().ok()
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<usize>) -> Result<PyDevice> {
        if let Ok(device) = r#type.cast::<PyDevice>() {
            return Ok(device.get().clone());
        }
        let name = r#type.extract::<String>()?;
        let name = index.map_or(name.clone(), |index| format!("{name}:{index}"));
        Ok(PyDevice::of(open(r#type.py(), &name)?))
    }

    /// `cpu`, `cuda` or `sim`.
    #[getter]
    fn r#type(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// The number behind the colon, if there is one.
    #[getter]
    fn index(&self) -> Option<u64> {
        self.name.split_once(':').and_then(|(_, index)| index.parse().ok())
    }

    /// Waits for all work of the device.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let device = open(py, &self.name)?;
        Ok(py.detach(|| device.synchronize())?)
    }

    fn __str__(&self) -> &str {
        &self.name
    }

    fn __repr__(&self) -> String {
        match self.index() {
            Some(index) => format!("device(type='{}', index={index})", self.r#type()),
            None => format!("device(type='{}')", self.name),
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().into_any().unbind(), (slf.get().name.clone(),)))
    }
}

/// The device of a name. `cpu` asks nobody; others are opened once.
pub fn open(py: Python<'_>, name: &str) -> Result<Device> {
    if name == "cpu" {
        return Ok(Device::cpu()?);
    }
    static OPENED: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let opened = OPENED.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(found) = opened.get_item(name)? {
        return Ok(found.cast::<Opened>().map_err(PyErr::from)?.get().0);
    }
    let device = py.detach(|| Device::new(name))?;
    // `cuda` and `cuda:0` are one device; of two threads that open one, both get the first.
    let ours = Bound::new(py, Opened(device))?;
    let first = opened.call_method1("setdefault", (device.name(), ours))?;
    opened.set_item(name, &first)?;
    Ok(first.cast::<Opened>().map_err(PyErr::from)?.get().0)
}

/// An opened device, as a value of the table of names.
#[pyclass(frozen)]
struct Opened(Device);

/// The device that a user named; none: the CPU.
pub fn parse(py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> Result<Device> {
    let Some(value) = value else { return open(py, "cpu") };
    if let Ok(device) = value.cast::<PyDevice>() {
        return open(py, &device.get().name);
    }
    match value.cast::<PyString>() {
        Ok(name) => open(py, &name.to_cow()?),
        Err(_) => wrong_type(format!("device: expected a name or a raddle.device, found {}", value.repr()?)),
    }
}
