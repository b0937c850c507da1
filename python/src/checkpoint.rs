//! Checkpoints in safetensors.

use crate::{
    device,
    error::{Result, wrong_type},
    tensor::PyTensor,
};
use pyo3::{prelude::*, types::PyDict};
use raddle::{Tensor, nn::checkpoint};
use std::path::PathBuf;

/// Names and tensors of a dict.
fn named(tensors: &Bound<'_, PyDict>) -> Result<Vec<(String, Tensor)>> {
    tensors
        .iter()
        .map(|(name, tensor)| match tensor.cast::<PyTensor>() {
            Ok(tensor) => Ok((name.extract()?, tensor.get().0.detach())),
            Err(_) => wrong_type(format!("save: expected a tensor as {}", name.repr()?)),
        })
        .collect()
}

/// Writes a dict of tensors as safetensors: the whole file or nothing.
#[pyfunction]
pub fn save_file(py: Python<'_>, tensors: &Bound<'_, PyDict>, filename: PathBuf) -> Result<()> {
    let tensors = named(tensors)?;
    Ok(py.detach(|| checkpoint::save(filename, &tensors))?)
}

/// Reads a safetensors file into a dict of tensors.
#[pyfunction]
#[pyo3(signature = (filename, device=None))]
pub fn load_file<'py>(
    py: Python<'py>,
    filename: PathBuf,
    device: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyDict>> {
    let device = device::parse(py, device)?;
    let found = PyDict::new(py);
    for (name, tensor) in py.detach(|| checkpoint::load(filename, &device))? {
        found.set_item(name, PyTensor(tensor))?;
    }
    Ok(found)
}
