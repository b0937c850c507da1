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
mod error;
mod family;
#[cfg(feature = "hub")]
pub mod hub;
mod modules;
mod pooling;
mod random_model;
mod relative;
mod rerank;
mod rows;
mod settings;
mod shards;
mod spell;
mod splade;
mod tokenizer_config;
mod tokenizer_file;
mod tokens;
mod weights;

pub(crate) use captured::{BYTES_MAX as GRAPH_BYTES_MAX, GRAPHS_MAX, REPLAYS_MAX};
pub(crate) use encoder::PASS_TOKENS_MAX;
pub(crate) use tokenizer_file::FILE_BYTES_MAX as TOKENIZER_BYTES_MAX;

pub use activation::ActivationKind;
pub use bert::BertConfig;
pub use encoder::{ModelOptions, SentenceEncoder};
pub use error::{ModelError, Result};
pub use family::Family;
pub use pooling::Pooling;
pub use random_model::write_random_model;
pub use rerank::CrossEncoder;
pub use settings::FILE_BYTES_MAX as SETTINGS_BYTES_MAX;
pub use spell::Piece;
pub use splade::SparseEncoder;
pub use tokens::{Tokenizer, Tokens, TooLong};
