//! The kinds of models, told by the folder.

use raddle_nn::text::{
    CrossEncoder, ModelError, ModelOptions, SETTINGS_BYTES_MAX, SentenceEncoder, SparseEncoder, Tokenizer,
    Tokens,
};
use raddle_tensor::{DType, Device, Tensor};
use serde_json::Value;
use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

/// Numbers made of one text, or of one pair: of an encoder the pooled vector, not normalized, or one vector a token; of a sparse
/// encoder one a token of the vocabulary; of a reranker one a label.
pub type Row = Vec<f32>;

/// A model that reads text, and what its folder says of it.
pub struct Model {
    inner: Inner,
    pub(super) folder: PathBuf,
    pub(super) dtype: DType,
    /// `config.json`, which the loader has read without complaint.
    pub(super) config: Value,
}

/// A file of settings, of which no more is read than a loader does. Null if it isn't there or is no JSON: what is wrong with a
/// file is the loader's to say, with the place.
pub(super) fn settings(folder: &Path, file: &str) -> Value {
    let mut text = Vec::new();
    let read = fs::File::open(folder.join(file))
        .and_then(|open| open.take(SETTINGS_BYTES_MAX + 1).read_to_end(&mut text));
    match read {
        Ok(bytes) if bytes as u64 <= SETTINGS_BYTES_MAX => serde_json::from_slice(&text).unwrap_or_default(),
        _ => Value::Null,
    }
}

pub(super) enum Inner {
    Encoder(SentenceEncoder),
    Sparse(SparseEncoder),
    Reranker(CrossEncoder),
}

impl Model {
    /// Loads the model of a folder: a reranker or classifier if `architectures` in its `config.json` ends with
    /// `ForSequenceClassification`, a sparse encoder if `modules.json` has a `SpladePooling`, else a sentence encoder.
    ///
    /// Errors: those of [`SentenceEncoder::load_with`].
    pub fn load(
        folder: impl AsRef<Path>,
        device: &Device,
        options: &ModelOptions,
    ) -> Result<Model, ModelError> {
        let folder = folder.as_ref();
        let config = settings(folder, "config.json");
        let modules = settings(folder, "modules.json");
        let is_splade =
            |module: &Value| module["type"].as_str().is_some_and(|kind| kind.ends_with(".SpladePooling"));
        if modules.as_array().is_some_and(|modules| modules.iter().any(is_splade)) {
            return Model::load_sparse(folder, device, options);
        }
        let inner = match &config["architectures"][0] {
            Value::String(name) if name.ends_with("ForSequenceClassification") => {
                Inner::Reranker(CrossEncoder::load_with(folder, device, options)?)
            }
            _ => Inner::Encoder(SentenceEncoder::load_with(folder, device, options)?),
        };
        Ok(Model { inner, folder: folder.into(), dtype: options.dtype, config })
    }

    /// Loads a sparse encoder, of a folder that may not say that it is one.
    ///
    /// Errors: those of [`SparseEncoder::load_with`].
    pub fn load_sparse(
        folder: impl AsRef<Path>,
        device: &Device,
        options: &ModelOptions,
    ) -> Result<Model, ModelError> {
        let folder = folder.as_ref();
        let inner = Inner::Sparse(SparseEncoder::load_with(folder, device, options)?);
        Ok(Model {
            inner,
            folder: folder.into(),
            dtype: options.dtype,
            config: settings(folder, "config.json"),
        })
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// What makes tokens of texts.
    pub fn tokenizer(&self) -> &Tokenizer {
        match &self.inner {
            Inner::Encoder(model) => model.tokenizer(),
            Inner::Sparse(model) => model.tokenizer(),
            Inner::Reranker(model) => model.tokenizer(),
        }
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        match &self.inner {
            Inner::Encoder(model) => model.device(),
            Inner::Sparse(model) => model.device(),
            Inner::Reranker(model) => model.device(),
        }
    }

    /// The tokens that are computed for a text of so many.
    pub fn padded_token_count(&self, tokens: usize) -> usize {
        match &self.inner {
            Inner::Encoder(model) => model.padded_token_count(tokens),
            Inner::Sparse(model) => model.padded_token_count(tokens),
            Inner::Reranker(model) => model.padded_token_count(tokens),
        }
    }

    /// Errors: tokens that it doesn't know, none or too many.
    pub fn check(&self, texts: &[Tokens]) -> Result<(), ModelError> {
        match &self.inner {
            Inner::Encoder(model) => model.check_tokens(texts),
            Inner::Sparse(model) => model.check_tokens(texts),
            Inner::Reranker(model) => model.check_tokens(texts),
        }
    }

    /// A row for each text or pair. Waits for the device.
    pub fn rows(&self, texts: &[Tokens]) -> Result<Vec<Row>, ModelError> {
        let rows: Tensor = match &self.inner {
            Inner::Encoder(model) => model.pool_tokens(texts)?,
            Inner::Sparse(model) => model.encode_tokens(texts)?,
            Inner::Reranker(model) => model.score_tokens(texts)?,
        };
        let width = rows.shape()[1].max(1);
        Ok(rows.to_vec::<f32>()?.chunks(width).map(<[f32]>::to_vec).collect())
    }

    /// For each text the vectors of its tokens, one after the other; of a sentence encoder. Waits for the device.
    pub(super) fn token_rows(&self, texts: &[Tokens]) -> Result<Vec<Row>, ModelError> {
        match &self.inner {
            Inner::Encoder(model) => model.token_vectors(texts),
            Inner::Sparse(_) | Inner::Reranker(_) => unreachable!("the engine refuses such texts"),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({})", self.folder.display())
    }
}
