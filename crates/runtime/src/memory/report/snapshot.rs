//! Snapshots of a device's memory, as JSON and as a picture.

use super::{
    history::{MemoryEvent, MemoryEventKind},
    stats::{MemoryStats, SlabSnapshot},
};
use crate::ground::{Error, Result};
use serde::{Deserialize, Serialize};

/// Every slab of a device with its pieces, and the latest events if a history is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySnapshot {
    /// The device's name.
    pub device: String,
    /// As [`Device::memory_stats`](crate::Device::memory_stats).
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
                let given_out = matches!(kind, MemoryEventKind::Allocate | MemoryEventKind::Adopt);
                let given_out = u8::from(given_out);
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
