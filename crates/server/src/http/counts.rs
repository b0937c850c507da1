//! What a server counts.

use super::failure::Kind;
use crate::histogram::Histogram;
use raddle_sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What a request has cost, for its line in the log and the counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub texts: usize,
    pub tokens: usize,
}

/// What the guard and the routes count. Relaxed throughout: nothing is read because of these numbers.
#[derive(Default)]
pub struct Metrics {
    /// Heads that were read.
    pub accepted: AtomicU64,
    /// Connections that are open.
    pub connections: AtomicUsize,
    /// Clients that went before their answer.
    pub cancelled: AtomicU64,
    pub answered: AtomicU64,
    /// Requests that were computed: of one text, of several.
    pub computed: [AtomicU64; 2],
    /// Their texts.
    pub texts: AtomicU64,
    pub failures: [AtomicU64; Kind::ALL.len()],
    /// From the head to the answer, of what was computed.
    pub request_micros: Histogram,
    /// Of reading a body and making tokens of it.
    pub tokenization_micros: Histogram,
    /// Tokens of each text.
    pub input_tokens: Histogram,
}

impl Metrics {
    /// Counts an answer.
    pub fn answered(&self, cost: Option<Cost>, failure: Option<Kind>, elapsed: Duration) {
        if let Some(kind) = failure {
            let index = Kind::ALL.iter().position(|known| *known == kind).expect("all kinds are listed");
            self.failures[index].fetch_add(1, Relaxed);
        }
        if let Some(cost) = cost {
            self.computed[usize::from(cost.texts > 1)].fetch_add(1, Relaxed);
            self.texts.fetch_add(cost.texts as u64, Relaxed);
            self.request_micros.record(elapsed.as_micros() as u64);
        }
        // Last: who sees that all are answered sees the rest.
        self.answered.fetch_add(1, Relaxed);
    }

    /// Accepted, and done with.
    pub fn served(&self) -> (u64, u64) {
        let done = self.answered.load(Relaxed) + self.cancelled.load(Relaxed);
        (self.accepted.load(Relaxed), done)
    }

    /// Computed.
    pub fn succeeded(&self) -> u64 {
        self.computed.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Answered with an error.
    pub fn failed(&self) -> u64 {
        self.failures.iter().map(|count| count.load(Relaxed)).sum()
    }
}
