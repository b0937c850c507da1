//! Graphs of what a function did, and publishers of versions of tensors.

use crate::{
    arg::{tensors, type_name},
    device,
    error::{Failure, Result, wrong_type},
    tensor::PyTensor,
};
use pyo3::{
    prelude::*,
    types::{PyList, PyTuple},
};
use raddle::{Graph, Publisher, Tensor};

/// What a captured function returned: nothing, one tensor, or some in a tuple.
#[derive(Clone, Copy)]
enum Form {
    None,
    One,
    Some,
}

/// Ops that were captured by `raddle.capture`. Any thread may replay it.
#[pyclass(frozen, name = "Graph", module = "raddle")]
pub struct PyGraph {
    graph: Graph<Vec<Tensor>>,
    form: Form,
}

/// The tensors that a function returned.
fn returned(value: &Bound<'_, PyAny>) -> Result<(Form, Vec<Tensor>)> {
    if value.is_none() {
        return Ok((Form::None, Vec::new()));
    }
    if let Ok(tensor) = value.cast::<PyTensor>() {
        return Ok((Form::One, vec![tensor.get().0.clone()]));
    }
    if !value.is_instance_of::<PyTuple>() && !value.is_instance_of::<PyList>() {
        return wrong_type(format!(
            "capture: expected a function that returns tensors or None, found {}",
            type_name(value)
        ));
    }
    Ok((Form::Some, tensors("capture", value)?))
}

/// Runs `function()` once on this thread and records what it does on a device instead of doing it. What the function uses
/// from outside are the graph's operands: each replay reads and writes them as they are then.
#[pyfunction]
#[pyo3(signature = (function, device=None))]
pub fn capture(
    py: Python<'_>,
    function: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
) -> Result<PyGraph> {
    let mut form = Form::None;
    let graph = device::parse(py, device)?.capture(|| {
        let (found, tensors) = returned(&function.call0()?)?;
        form = found;
        Ok::<_, Failure>(tensors)
    })?;
    Ok(PyGraph { graph, form })
}

#[pymethods]
impl PyGraph {
    /// Does it all again, as one op; what the function returned, of this replay. Doesn't wait for results. `replacements`:
    /// pairs of a tensor that was used inside and the one to use now.
    #[pyo3(signature = (replacements=None))]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        replacements: Option<Vec<(Bound<'py, PyTensor>, Bound<'py, PyTensor>)>>,
    ) -> Result<Py<PyAny>> {
        let replacements = replacements.unwrap_or_default();
        let given: Vec<_> = replacements.iter().map(|(old, new)| (&old.get().0, &new.get().0)).collect();
        let graph = &self.graph;
        let mut outputs = py.detach(|| graph.replay_with(&given))?.into_iter().map(PyTensor);
        Ok(match self.form {
            Form::None => py.None(),
            Form::One => outputs.next().into_pyobject(py)?.unbind(),
            Form::Some => PyTuple::new(py, outputs.collect::<Vec<_>>())?.into_any().unbind(),
        })
    }

    /// How many kernels a replay runs.
    #[getter]
    fn kernel_count(&self) -> usize {
        self.graph.stats().nodes
    }
}

/// Where versions of tensors are published: readers get all tensors of one version, and nobody waits.
#[pyclass(frozen, name = "Publisher", module = "raddle")]
pub struct PyPublisher(Publisher);

/// A version that was published: its number and copies of the tensors.
#[pyclass(frozen, name = "Published", module = "raddle")]
pub struct PyPublished {
    id: u64,
    tensors: Py<PyTuple>,
}

#[pymethods]
impl PyPublisher {
    /// Publishes a first version.
    #[new]
    fn new(py: Python<'_>, tensors: &Bound<'_, PyAny>) -> Result<PyPublisher> {
        let tensors = self::tensors("Publisher", tensors)?;
        Ok(PyPublisher(py.detach(|| Publisher::new(&tensors))?))
    }

    /// Copies the tensors and makes the copies the newest version; its number. Doesn't wait for the copy, nor for readers.
    fn publish(&self, py: Python<'_>, tensors: &Bound<'_, PyAny>) -> Result<u64> {
        let (publisher, tensors) = (&self.0, self::tensors("publish", tensors)?);
        Ok(py.detach(|| publisher.publish(&tensors))?)
    }

    /// The newest version. Never waits.
    fn load(&self, py: Python<'_>) -> Result<PyPublished> {
        let version = self.0.load();
        let tensors = PyTuple::new(py, version.tensors().iter().map(|tensor| PyTensor(tensor.clone())))?;
        Ok(PyPublished { id: version.id(), tensors: tensors.unbind() })
    }
}

#[pymethods]
impl PyPublished {
    /// The number of the version; later ones are higher.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The copies, in the order in which they were published.
    #[getter]
    fn tensors(&self, py: Python<'_>) -> Py<PyTuple> {
        self.tensors.clone_ref(py)
    }
}
