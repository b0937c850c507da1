//! Sentence encoders: texts to vectors.

use crate::{
    device::{self, PyDevice},
    dtype,
    error::{Result, wrong_value},
    tensor::PyTensor,
};
use pyo3::{prelude::*, types::PyString};
use raddle::{
    DType, Device,
    nn::text::{BertConfig, ModelOptions, SentenceEncoder, write_random_model},
};
use std::path::PathBuf;

impl From<raddle::nn::text::ModelError> for crate::error::Failure {
    fn from(error: raddle::nn::text::ModelError) -> Self {
        raddle::Error::from(error).into()
    }
}

/// A sentence encoder of the BERT kind. Any thread may use it.
#[pyclass(frozen, name = "SentenceEncoder", module = "raddle")]
pub struct PySentenceEncoder(SentenceEncoder);

#[pymethods]
impl PySentenceEncoder {
    /// Loads a model from a folder as sentence-transformers lay it out. It computes in float32, float16 or bfloat16.
    #[new]
    #[pyo3(signature = (model, device=None, *, dtype=None))]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        device: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> Result<PySentenceEncoder> {
        let device = device::parse(py, device)?;
        let dtype = dtype.map_or(Ok(DType::F32), dtype::parse)?;
        let options = ModelOptions { dtype, ..Default::default() };
        Ok(PySentenceEncoder(py.detach(|| SentenceEncoder::load_with(model, &device, &options))?))
    }

    /// The vectors of texts, `[texts, width]` in float32; of one text that isn't in a list, `[width]`. Texts that are too long are
    /// cut off. `convert_to_numpy`: as an array, which waits.
    #[pyo3(signature = (sentences, *, convert_to_numpy=false))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        sentences: &Bound<'py, PyAny>,
        convert_to_numpy: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let one = sentences.is_instance_of::<PyString>();
        let texts: Vec<String> = if one { vec![sentences.extract()?] } else { sentences.extract()? };
        if texts.is_empty() {
            return wrong_value("encode: expected at least one text, found none");
        }
        let encoder = &self.0;
        let rows = py.detach(|| encoder.encode(&texts))?;
        let rows = if one { rows.select(0, 0)? } else { rows };
        let rows = Bound::new(py, PyTensor(rows))?.into_any();
        Ok(if convert_to_numpy { rows.call_method0("numpy")? } else { rows })
    }

    /// Elements of a vector.
    #[getter]
    fn width(&self) -> usize {
        self.0.width()
    }

    /// Tokens of a text, at most.
    #[getter]
    fn max_seq_length(&self) -> usize {
        self.0.tokenizer().tokens_max()
    }

    /// Where it is.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice::of(Device::from(self.0.device()))
    }

    /// What the model wants before texts of this kind, to be put there by the caller.
    fn prompt(&self, name: &str) -> Result<&str> {
        Ok(self.0.prompt(name)?)
    }
}

/// Writes a small model of random weights into a folder, for tests.
#[pyfunction]
pub fn _write_random_model(py: Python<'_>, folder: PathBuf, words: Vec<String>, seed: u64) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let device = device::parse(py, None)?;
    Ok(write_random_model(folder, &BertConfig::tiny(words.len() + 4), &words, 64, seed, &device)?)
}
