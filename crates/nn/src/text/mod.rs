//! Models that read text: sentence encoders, sparse encoders and rerankers of the BERT kind (BERT, RoBERTa, DistilBERT, MPNet,
//! ELECTRA), from a folder as Hugging Face and sentence-transformers lay it out.
//!
//! ```no_run
//! use raddle_nn::text::SentenceEncoder;
//! # fn main() -> raddle_nn::text::Result<()> {
//! # let (device, texts): (raddle_tensor::Device, Vec<String>) = unimplemented!();
//! let model = SentenceEncoder::load("model-dir", &device)?;
//! std::thread::scope(|scope| {
//!     for part in texts.chunks(64) {
//!         scope.spawn(|| model.encode(part)); // each thread gets a stream; weights are shared; that is all
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees:
//! - **A text's vector is its own.** What is computed for a text doesn't depend on the texts beside it. Rows of all texts
//!   lie one after the other, and only attention looks across rows: it runs over texts of one padded length at a time, which
//!   follows from a text's own length alone. Where texts are padded the mask is always applied. On the CPU nothing is
//!   padded and the vectors agree to the last bit; elsewhere as far as the device's matrix products do, which may sum in
//!   another order for another number of rows.
//! - **Results are in the order of the texts**, however they were sorted inside.
//! - **Nothing is believed.** Settings, tensors, token numbers and lengths are checked before they are used; what is wrong
//!   is a [`ModelError`] that says where. A model is loaded whole or not at all.
//! - **Any thread.** Models are never written after they are loaded, and all methods take `&self`.

mod activation;
mod batch;
mod bert;
mod captured;
mod charsmap;
mod cut;
mod encoder;
mod family;
mod folder;
#[cfg(feature = "hub")]
pub mod hub;
mod modules;
mod pooling;
mod relative;
mod rerank;
mod shards;
mod spell;
mod splade;
mod tokenizer_config;
mod tokenizer_file;
mod tokens;

pub(crate) use captured::{BYTES_MAX as GRAPH_BYTES_MAX, GRAPHS_MAX, REPLAYS_MAX};
pub(crate) use encoder::PASS_TOKENS_MAX;
pub(crate) use tokenizer_file::FILE_BYTES_MAX as TOKENIZER_BYTES_MAX;

pub use activation::ActivationKind;
pub use bert::BertConfig;
pub use encoder::{ModelOptions, SentenceEncoder};
pub use family::Family;
pub use folder::{FILE_BYTES_MAX as SETTINGS_BYTES_MAX, write_random_model};
pub use pooling::Pooling;
pub use rerank::CrossEncoder;
pub use spell::Piece;
pub use splade::SparseEncoder;
pub use tokens::{Tokenizer, Tokens, TooLong};

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
