//! States of a server, of which people are shown what has changed.

use crate::histogram::Bins;
use raddle_serve::Counts;
use raddle_sync::{Mutex, Rank};
use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A state at a moment.
pub struct Sample {
    pub at: Instant,
    pub succeeded: u64,
    pub failed: u64,
    pub counts: Counts,
    pub latency: Box<Bins>,
    /// Since the start.
    pub busy: Vec<Duration>,
}

/// The latest minute.
pub struct Samples {
    pub start: Instant,
    started_at: u64,
    pub latest: Mutex<VecDeque<Sample>>,
}

impl Samples {
    pub fn new() -> Samples {
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Samples { start: Instant::now(), started_at, latest: Mutex::new(Rank::Registry, VecDeque::new()) }
    }

    /// In seconds since 1970.
    pub fn started_at(&self) -> u64 {
        self.started_at
    }
}
