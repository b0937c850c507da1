//! Layers, losses, initializers, checkpoints, a sparse autoencoder, and models that read text.
//!
//! Layers are handles of parameters: `forward` takes `&self` and may run on many threads at once, over one set of weights.
//! Parameters are leaves that require grad; wrap inference in [`no_grad`](raddle_grad::no_grad). Weights have PyTorch's
//! shapes, names and initial distributions, so that checkpoints fit both ways.
#![forbid(unsafe_code)]

mod autoencoder;
pub mod checkpoint;
pub mod init;
mod layers;
mod limits;
mod losses;
#[cfg(feature = "text")]
pub mod text;

pub use autoencoder::{AutoencoderOptions, TopKAutoencoder};
pub use layers::{Dropout, Embedding, Function, LayerNorm, Linear, Module, Sequential};
pub use limits::FIXED;
pub use losses::{
    ClassLoss, LossReduction, bce_with_logits, bce_with_logits_weighted, cross_entropy, l1_loss, mse_loss,
    nll_loss,
};
