//! What can go wrong with a model that reads text.

use crate::checkpoint::CheckpointError;
use std::path::PathBuf;

/// Why a model couldn't be loaded, or didn't answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A file of the folder is missing, broken, or says what this crate can't do.
    #[error(transparent)]
    Folder(#[from] CheckpointError),
    /// The tokenizer's file, or a text that it refused.
    #[error("{}: tokenizing failed: {reason}", .file.display())]
    Tokenizer {
        /// `tokenizer.json`.
        file: PathBuf,
        /// What the tokenizer said.
        reason: String,
    },
    /// There is nothing to compute.
    #[error("texts: the list is empty, expected at least one text")]
    NoTexts,
    /// A text, or what stands for one, can't be taken.
    #[error("text {index}: {what} is wrong, expected {expected}, found {found}")]
    Text {
        /// Which, from 0, in the order of the call.
        index: usize,
        /// What of it.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// There is no prompt of this name.
    #[error("the prompt is wrong, expected one of: {known}, found {found:?}")]
    Prompt {
        /// The names that the model has.
        known: String,
        /// What was asked for.
        found: String,
    },
    /// A model couldn't be fetched.
    #[cfg(feature = "hub")]
    #[error("model {name:?}: {reason}")]
    Hub {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An op failed: out of memory, a lost device.
    #[error(transparent)]
    Tensor(#[from] raddle_tensor::Error),
}

impl From<ModelError> for raddle_tensor::Error {
    fn from(error: ModelError) -> raddle_tensor::Error {
        match error {
            ModelError::Tensor(error) => error,
            ModelError::Folder(error) => error.into(),
            other => raddle_tensor::Error::layer(other),
        }
    }
}

impl ModelError {
    /// The same about the text of another index, for those who ask for one text of many at a time.
    pub fn at(self, index: usize) -> ModelError {
        match self {
            ModelError::Text { what, expected, found, .. } => {
                ModelError::Text { index, what, expected, found }
            }
            error => error,
        }
    }
}

/// What functions of this module return.
pub type Result<T, E = ModelError> = std::result::Result<T, E>;
