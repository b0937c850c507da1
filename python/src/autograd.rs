//! Gradients.

use crate::{
    arg::{tensors, type_name},
    error::{Result, wrong_type},
    tensor::PyTensor,
};
use pyo3::{prelude::*, types::PyTuple};
use raddle::{
    Tensor,
    grad::{self, Autograd},
    record,
};

#[pymethods]
impl PyTensor {
    /// Is a gradient wanted of it, or of what it was made from?
    #[getter]
    fn requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    #[setter]
    fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        self.0.requires_grad_(requires_grad)?;
        Ok(())
    }

    /// Turns it into a leaf whose gradient is kept, or back into one that requires none.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, PyTensor>, requires_grad: bool) -> Result<Bound<'py, PyTensor>> {
        slf.get().0.requires_grad_(requires_grad)?;
        Ok(slf.clone())
    }

    /// Was it not made by a recorded op?
    #[getter]
    fn is_leaf(&self) -> bool {
        self.0.is_leaf()
    }

    /// The gradient gathered so far; none of what is no leaf.
    #[getter]
    fn grad(&self) -> Option<PyTensor> {
        self.0.grad().map(PyTensor)
    }

    #[setter]
    fn set_grad(&self, grad: Option<&Bound<'_, PyTensor>>) -> Result<()> {
        // A tensor that requires no grad has none to drop.
        match grad {
            None => self.0.zero_grad(),
            Some(grad) => self.0.set_grad(Some(grad.get().0.clone()))?,
        }
        Ok(())
    }

    /// The same elements, and no part of any graph.
    fn detach(&self) -> PyTensor {
        PyTensor(self.0.detach())
    }

    /// Computes the gradients of all leaves that it was made from, and adds them to theirs. `gradient`: of this tensor, if it
    /// isn't one number.
    #[pyo3(signature = (gradient=None, retain_graph=None))]
    fn backward(
        slf: &Bound<'_, PyTensor>,
        gradient: Option<&Bound<'_, PyTensor>>,
        retain_graph: Option<bool>,
    ) -> Result<()> {
        let (tensor, gradient) = (&slf.get().0, gradient.map(|gradient| &gradient.get().0));
        let retain = retain_graph.unwrap_or(false);
        Ok(slf.py().detach(|| grad::backward(&[tensor], &[gradient], retain))?)
    }
}

/// Tensors, one alone too.
fn some(what: &str, value: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    match value.cast::<PyTensor>() {
        Ok(tensor) => Ok(vec![tensor.get().0.clone()]),
        Err(_) => tensors(what, value),
    }
}

/// Gradients that are given: as many as outputs.
fn given(count: usize, value: Option<&Bound<'_, PyAny>>) -> Result<Vec<Option<Tensor>>> {
    let Some(value) = value else { return Ok(vec![None; count]) };
    if let Ok(tensor) = value.cast::<PyTensor>() {
        return Ok(vec![Some(tensor.get().0.clone())]);
    }
    let one = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        match item.cast::<PyTensor>() {
            Ok(tensor) => Ok(Some(tensor.get().0.clone())),
            Err(_) if item.is_none() => Ok(None),
            Err(_) => wrong_type(format!("gradients: expected tensors or None, found {}", type_name(&item))),
        }
    };
    value.try_iter()?.map(one).collect()
}

/// One pass from several outputs.
#[pyfunction]
#[pyo3(signature = (tensors, grad_tensors=None, retain_graph=None))]
pub fn backward(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    grad_tensors: Option<&Bound<'_, PyAny>>,
    retain_graph: Option<bool>,
) -> Result<()> {
    let outputs = some("backward", tensors)?;
    let gradients = given(outputs.len(), grad_tensors)?;
    let outputs: Vec<&Tensor> = outputs.iter().collect();
    let gradients: Vec<Option<&Tensor>> = gradients.iter().map(Option::as_ref).collect();
    Ok(py.detach(|| grad::backward(&outputs, &gradients, retain_graph.unwrap_or(false)))?)
}

/// The gradients of `outputs` by `inputs`; none for an input that they don't depend on.
#[pyfunction]
#[pyo3(name = "grad", signature = (outputs, inputs, grad_outputs=None, retain_graph=None, *, allow_unused=false))]
pub fn gradients<'py>(
    py: Python<'py>,
    outputs: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    grad_outputs: Option<&Bound<'py, PyAny>>,
    retain_graph: Option<bool>,
    allow_unused: bool,
) -> Result<Bound<'py, PyTuple>> {
    let (outputs, inputs) = (some("grad", outputs)?, some("grad", inputs)?);
    let gradients = given(outputs.len(), grad_outputs)?;
    let outputs: Vec<&Tensor> = outputs.iter().collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let gradients: Vec<Option<&Tensor>> = gradients.iter().map(Option::as_ref).collect();
    let found = py.detach(|| grad::grad(&outputs, &gradients, &inputs, retain_graph.unwrap_or(false)))?;
    if !allow_unused && let Some(place) = found.iter().position(Option::is_none) {
        let text =
            format!("grad: input {place} has no part in the outputs, expected allow_unused=True for that");
        return Err(pyo3::exceptions::PyRuntimeError::new_err(text).into());
    }
    Ok(PyTuple::new(py, found.into_iter().map(|found| found.map(PyTensor)))?)
}

/// Are ops of this thread recorded?
#[pyfunction]
pub fn is_grad_enabled() -> bool {
    record::is_recording()
}

/// Turns recording on or off for this thread; says what it was.
#[pyfunction]
pub fn _set_grad_enabled(mode: bool) -> bool {
    record::set_recording(mode)
}

/// Scales the gradients of parameters so that their norm is at most `max_norm`; gives the norm before.
#[pyfunction]
pub fn clip_grad_norm_(py: Python<'_>, parameters: &Bound<'_, PyAny>, max_norm: f64) -> Result<PyTensor> {
    let parameters = some("clip_grad_norm_", parameters)?;
    match py.detach(|| grad::clip_grad_norm_(&parameters, max_norm))? {
        Some(norm) => Ok(PyTensor(norm)),
        None => Ok(PyTensor(Tensor::scalar(0.0f32, &*raddle::Device::cpu()?)?)),
    }
}

/// Clamps each element of the gradients of parameters to [-clip_value, clip_value].
#[pyfunction]
pub fn clip_grad_value_(py: Python<'_>, parameters: &Bound<'_, PyAny>, clip_value: f64) -> Result<()> {
    let parameters = some("clip_grad_value_", parameters)?;
    Ok(py.detach(|| grad::clip_grad_value_(&parameters, clip_value))?)
}
