//! Tests of the runtime that look inside: ordering and memory by an oracle, models, and planted faults.

#[cfg_attr(loom, expect(dead_code, reason = "models need less of it than tests"))]
pub(crate) mod oracle;

#[cfg(loom)]
mod models;

#[cfg(not(loom))]
mod corners;
#[cfg(not(loom))]
mod errors;
#[cfg(not(loom))]
mod external;
#[cfg(not(loom))]
mod foreign;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod ordering;
#[cfg(not(loom))]
mod planted;
#[cfg(not(loom))]
mod reached;
#[cfg(not(loom))]
mod streams;

#[cfg(not(loom))]
pub(crate) use ordering::{Random, pair, planted, turn};

/// The floors of a device.
pub(crate) fn streams_of(device: &crate::Device) -> &'static crate::order::Streams {
    crate::ground::Floor::of(device.0)
}
pub(crate) fn memory_of(device: &crate::Device) -> &'static crate::memory::Memory {
    crate::ground::Floor::of(device.0)
}
