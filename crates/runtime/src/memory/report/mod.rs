//! What users see of a device's memory: counts, a survey of every piece, a history, and traces that can be replayed.

pub(super) mod history;
mod snapshot;
mod stats;
pub(crate) mod trace;

pub use history::{MemoryEvent, MemoryEventKind};
pub use snapshot::MemorySnapshot;
pub use stats::{
    MemoryStats, Piece, PieceBytes, PieceState, PoolKind, PoolStats, SlabSnapshot, StreamMemory,
};
