//! What can go wrong with a request to an engine.

use raddle_nn::text::ModelError;
use raddle_serve::{Error, Rejected};

/// Why there is no row.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// It was not accepted.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// What was asked for can't be computed, or its texts can't be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It was accepted, and didn't succeed.
    #[error(transparent)]
    Failed(#[from] Error<ModelError>),
    /// Vectors were asked of a reranker.
    #[error("embed: the model is a reranker, expected a sentence encoder")]
    NoEncoder,
    /// Scores were asked of an encoder.
    #[error("rerank: the model is a sentence encoder, expected a reranker")]
    NoReranker,
}

impl From<EngineError> for raddle_tensor::Error {
    fn from(error: EngineError) -> raddle_tensor::Error {
        match error {
            EngineError::Model(error) => error.into(),
            other => raddle_tensor::Error::layer(other),
        }
    }
}
