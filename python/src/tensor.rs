//! The class `raddle.Tensor`: a handle that any thread may use. Its methods stand in the files of their families.

use crate::error::Result;
use pyo3::prelude::*;
use raddle::Tensor;

/// Elements of one dtype on one device, in any strides. Any thread may use it, with no lock: work is ordered by Raddle.
///
/// Methods are PyTorch's. `x.add(y)` makes a tensor, `x.add_(y)` overwrites `x`, and `x.add(y, out=z)` writes into `z`.
#[pyclass(frozen, name = "Tensor", module = "raddle", weakref)]
pub struct PyTensor(pub Tensor);

impl From<Tensor> for PyTensor {
    fn from(tensor: Tensor) -> PyTensor {
        PyTensor(tensor)
    }
}

/// A kernel over so many elements runs for longer than it takes to give the interpreter's lock back and to get it again.
/// (A guess: 20 µs of work at 1 ns an element.)
const LARGE: usize = 20_000;

/// Runs what computes over so many elements. Threads that want the interpreter get it meanwhile, if it is worth it.
pub fn run<T: Send>(
    py: Python<'_>,
    element_count: usize,
    body: impl FnOnce() -> raddle::Result<T> + Send,
) -> Result<T> {
    Ok(if element_count < LARGE { body() } else { py.detach(body) }?)
}

/// Runs an op of this tensor that makes one.
pub fn unary(
    slf: &Bound<'_, PyTensor>,
    op: impl FnOnce(&Tensor) -> raddle::Result<Tensor> + Send,
) -> Result<PyTensor> {
    let tensor = &slf.get().0;
    Ok(PyTensor(run(slf.py(), tensor.element_count(), || op(tensor))?))
}

/// What an op with an optional `out` gives: a new tensor, or `out` itself.
pub fn fresh_or_out<'py>(
    py: Python<'py>,
    element_count: usize,
    out: Option<&Bound<'py, PyTensor>>,
    fresh: impl FnOnce() -> raddle::Result<Tensor> + Send,
    into: impl FnOnce(&Tensor) -> raddle::Result<()> + Send,
) -> Result<Bound<'py, PyTensor>> {
    match out {
        None => Ok(Bound::new(py, PyTensor(run(py, element_count, fresh)?))?),
        Some(out) => {
            let target = &out.get().0;
            run(py, element_count, || into(target))?;
            Ok(out.clone())
        }
    }
}
