//! How an engine batches.

use super::Model;
use raddle_serve::Options;
use std::time::Duration;

/// What an engine batches, and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens in a batch, with padding to its bucket; at least as many as the model takes in one text. `None`: 16,384, as
    /// text-embeddings-inference has it, but on the CPU 1,024, where more makes nothing faster and everybody wait.
    pub batch_tokens_max: Option<usize>,
    /// Texts in a batch.
    pub batch_count_max: usize,
    /// Texts that wait. One more is refused.
    pub waiting_count_max: usize,
    /// Batches that run at once, each on a thread of its own; `None`: as many as there are cores on the CPU, where one batch
    /// keeps one core, and two on other devices, so that one is made while another runs.
    pub running_count_max: Option<usize>,
    /// How long a text waits for others while a batch could run. While all threads are busy texts gather by themselves.
    pub wait_max: Duration,
    /// The same row for a text whatever is beside it, to the last bit, on any device. Costs the batching where that isn't so
    /// anyway.
    pub deterministic: bool,
}

impl Default for EngineOptions {
    /// The numbers of text-embeddings-inference where it has them.
    fn default() -> EngineOptions {
        EngineOptions {
            batch_tokens_max: None,
            batch_count_max: 256,
            waiting_count_max: 4096,
            running_count_max: None,
            wait_max: Duration::ZERO,
            deterministic: false,
        }
    }
}

/// Bounds of the lengths that are run together, up to the limit of the model (guesses: a third longer, or half).
const BUCKETS_TOKENS: [usize; 16] =
    [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192];

impl EngineOptions {
    /// Of the batcher. What isn't asked for follows from the model.
    pub(super) fn batcher(&self, model: &Model) -> Options {
        let tokens_max = model.tokenizer().tokens_max();
        let is_costly = model.device().info().prepares;
        let below = BUCKETS_TOKENS.into_iter().filter(|bucket| *bucket < tokens_max);
        let usual = if is_costly { 16 * 1024 } else { 1024 };
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            buckets_tokens: below.chain([tokens_max]).collect(),
            batch_tokens_max: self.batch_tokens_max.unwrap_or(usual).max(tokens_max),
            batch_count_max: if self.deterministic && is_costly { 1 } else { self.batch_count_max },
            wait_max: self.wait_max,
            waiting_count_max: self.waiting_count_max,
            running_count_max: self.running_count_max.unwrap_or_else(|| if is_costly { 2 } else { cores() }),
            ..Options::default()
        }
    }
}
