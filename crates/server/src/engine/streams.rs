//! How long each stream has been in use, as seen from the threads that run batches.

use raddle_runtime::Stream;
use raddle_sync::{Mutex, Rank};
use raddle_tensor::Device;
use std::time::{Duration, Instant};

/// The use of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamUse {
    /// Its id; see [`raddle_runtime::StreamId`].
    pub stream: u64,
    /// Batches that have begun on it.
    pub batch_count: u64,
    /// How long it was in use, the batch that runs included.
    pub busy: Duration,
}

struct Entry {
    stream: u64,
    batch_count: u64,
    busy: Duration,
    /// Batches that run; threads may share a stream.
    running: usize,
    /// Since when some batch runs.
    since: Instant,
}

impl Entry {
    fn busy_at(&self, now: Instant) -> Duration {
        let running =
            if self.running > 0 { now.saturating_duration_since(self.since) } else { Duration::ZERO };
        self.busy + running
    }
}

/// At most as many as threads run batches.
pub(super) struct Streams(Mutex<Vec<Entry>>);

/// The time in which a thread uses its stream.
pub(super) struct Use<'a> {
    streams: &'a Streams,
    index: usize,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams(Mutex::new(Rank::Leaf, Vec::new()))
    }

    /// The current stream of this thread is in use until the result is dropped.
    pub(super) fn begin(&self, device: &Device) -> Use<'_> {
        // A device that can't give a stream will tell the batch so.
        let stream = Stream::current(device).map_or(0, |stream| stream.id().0);
        let now = Instant::now();
        let mut entries = self.0.lock();
        let found = entries.iter().position(|entry| entry.stream == stream);
        let index = found.unwrap_or(entries.len());
        if found.is_none() {
            entries.push(Entry { stream, batch_count: 0, busy: Duration::ZERO, running: 0, since: now });
        }
        let entry = &mut entries[index];
        entry.batch_count += 1;
        entry.running += 1;
        if entry.running == 1 {
            entry.since = now;
        }
        Use { streams: self, index }
    }

    pub(super) fn get(&self) -> Vec<StreamUse> {
        let now = Instant::now();
        let entries = self.0.lock();
        let used = |entry: &Entry| {
            let &Entry { stream, batch_count, .. } = entry;
            StreamUse { stream, batch_count, busy: entry.busy_at(now) }
        };
        entries.iter().map(used).collect()
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut entries = self.streams.0.lock();
        let entry = &mut entries[self.index];
        if entry.running == 1 {
            entry.busy = entry.busy_at(now);
        }
        entry.running -= 1;
    }
}
