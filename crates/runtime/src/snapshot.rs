//! Snapshots of a device's memory, as JSON and as a picture.

use crate::{
    Device, Error, MemoryEvent, MemoryEventKind, MemoryStats, Result, SlabSnapshot, fork, history::History,
};
use serde::{Deserialize, Serialize};

/// Every slab of a device with its pieces, and the latest events if a history is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySnapshot {
    /// The device's name.
    pub device: String,
    /// As [`Device::memory_stats`].
    pub stats: MemoryStats,
    /// By address.
    pub slabs: Vec<SlabSnapshot>,
    /// The latest events, oldest first.
    pub events: Vec<MemoryEvent>,
    /// How many events there were before those.
    pub events_dropped: u64,
}

const PAGE: &str = include_str!("snapshot.html");
/// Where the data goes in the page.
const DATA: &str = "/* data */";

impl MemorySnapshot {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names are texts and numbers are finite")
    }

    /// From JSON. Errors: it isn't a snapshot; the text says where and why.
    pub fn from_json(text: &str) -> Result<MemorySnapshot> {
        serde_json::from_str(text).map_err(|error| Error::Snapshot { reason: error.to_string() })
    }

    /// A picture: which piece of memory was held when, on which stream, by which thread, and what there is now. One page with
    /// nothing from elsewhere; the same snapshot gives the same bytes.
    pub fn to_html(&self) -> String {
        // Rows instead of objects, since there may be many.
        let events: Vec<_> = self
            .events
            .iter()
            .map(|event| {
                let MemoryEvent { time_ns, kind, address, size_bytes, asked_bytes, stream, thread } = *event;
                let given_out = u8::from(kind == MemoryEventKind::Allocate);
                (time_ns, given_out, address, size_bytes, asked_bytes, stream, thread)
            })
            .collect();
        let data = serde_json::json!({
            "device": self.device,
            "stats": self.stats,
            "slabs": self.slabs,
            "events": events,
            "events_dropped": self.events_dropped,
        });
        // Nothing in a name can end the element that holds it.
        let data = data.to_string().replace('<', "\\u003c").replace('&', "\\u0026");
        PAGE.replacen(DATA, &data, 1)
    }
}

impl Device {
    /// What every piece of memory is used for. Takes the time of [`Device::memory_stats`].
    pub fn memory_snapshot(&self) -> MemorySnapshot {
        let slabs = self.0.survey();
        // In a forked child the history is behind a lock of the parent.
        let is_child = fork::is_child(self.0);
        let (events, events_dropped) =
            if is_child { Default::default() } else { self.0.allocator.watch.events() };
        let stats = self.0.memory_stats(&slabs);
        MemorySnapshot { device: self.name().into(), stats, slabs, events, events_dropped }
    }

    /// Begins to keep the latest `event_count` allocations and frees for snapshots, some 60 bytes each; 0 ends it. What was
    /// kept before is lost. Costs a lock that all threads share for each allocation meanwhile. Does nothing in a forked child.
    pub fn set_memory_history(&self, event_count: usize) {
        if fork::is_child(self.0) {
            return; // the history is behind a lock of the parent
        }
        let history = (event_count > 0).then(|| History::new(event_count));
        self.0.allocator.watch.set_history(history);
    }
}
