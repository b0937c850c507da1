//! What a device has given out and keeps: counts, and a survey of every piece of memory.
//!
//! Counts are kept by the threads and collected when somebody asks, so they are right up to what other threads do at the
//! time; what counts events never falls, and peaks fall by [`Device::reset_memory_peaks`](crate::Device::reset_memory_peaks) only. A survey takes the lists one
//! by one: of a device that others use meanwhile it shows each list as it was at some moment, not all at the same one.

use crate::{
    ground::fork,
    memory::{
        block::{BlockRef, FreeBlock},
        classes::class_size_bytes,
        hooks::MemoryNeed,
        large::Large,
        store::Memory,
    },
    order::{Tick, Uses},
};
use raddle_hal::Address;
use raddle_sync::atomic::Ordering::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// What a device has given out and keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStats {
    /// In buffers that are alive, as rounded to blocks.
    pub allocated_bytes: usize,
    /// The most that `allocated_bytes` has been. Small blocks are counted in steps of up to 64 KiB a thread.
    pub allocated_peak_bytes: usize,
    /// In slabs of the device.
    pub reserved_bytes: usize,
    /// The most that `reserved_bytes` has been.
    pub reserved_peak_bytes: usize,
    /// In blocks that are free but used by work in flight.
    pub pending_bytes: usize,
    /// In [memory of others](crate::Foreign) that was adopted and hasn't been given back. No part of what is allocated or reserved.
    #[serde(default)]
    pub foreign_bytes: usize,
    /// Buffers given out so far.
    pub allocations: u64,
    /// Buffers given back so far.
    pub frees: u64,
    /// Calls of the device for memory.
    pub slab_allocations: u64,
    /// Allocations that ended in an error, since there was no memory.
    pub out_of_memory: u64,
    /// How often hooks made an allocation look for memory again.
    pub out_of_memory_retries: u64,
    /// By where memory is kept.
    pub pools: Vec<PoolStats>,
    /// By the stream that used memory last, if any has.
    pub streams: Vec<StreamMemory>,
}

/// Which list memory is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// Blocks of one size.
    Small {
        /// The size.
        block_bytes: usize,
    },
    /// Large blocks, which are split and merged.
    Large,
    /// A [`MemoryPool`](crate::MemoryPool).
    Private {
        /// Its number.
        number: u64,
    },
    /// [Memory of others](crate::Foreign): each adoption is a slab of one piece.
    Foreign,
}

/// Bytes by what is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceBytes {
    /// Given out.
    pub allocated_bytes: usize,
    /// Free, with no use in flight.
    pub free_bytes: usize,
    /// Free, but used by work in flight.
    pub pending_bytes: usize,
}

impl PieceBytes {
    fn add(&mut self, piece: &Piece) {
        *match piece.state {
            PieceState::Allocated => &mut self.allocated_bytes,
            PieceState::Free => &mut self.free_bytes,
            PieceState::Pending => &mut self.pending_bytes,
        } += piece.size_bytes;
    }
}

/// What one list keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStats {
    /// The kind of pool.
    pub kind: PoolKind,
    /// Slabs of the device in it.
    pub slabs: usize,
    /// Their bytes.
    #[serde(flatten)]
    pub bytes: PieceBytes,
}

/// The memory that a stream was the last to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMemory {
    /// The stream's slot: 0 for the default stream, then those of the pools.
    pub stream: usize,
    /// Blocks.
    pub blocks: usize,
    /// Their bytes.
    #[serde(flatten)]
    pub bytes: PieceBytes,
}

/// What is done with a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PieceState {
    /// Somebody has a handle.
    Allocated,
    /// Nobody has, and no use is in flight.
    Free,
    /// Nobody has, but uses are in flight.
    Pending,
}

/// A slab of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlabSnapshot {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub size_bytes: usize,
    /// Which list it is in.
    pub pool: PoolKind,
    /// What it is cut into, by address, without gaps; at its end a rest that is smaller than a block may be left.
    pub pieces: Vec<Piece>,
}

/// A piece of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub size_bytes: usize,
    /// How many bytes were asked for; of free ones, 0.
    pub asked_bytes: usize,
    /// What is done with it.
    pub state: PieceState,
    /// The slot of the stream that wrote it last (or read it, if none has written it).
    pub stream: Option<usize>,
    /// How many ops have been put on that stream since: its age.
    pub ops_since: u64,
}

/// Is a free block, by its address in this program, used by work in flight?
type Pending = HashMap<BlockRef, bool>;

impl Memory {
    fn is_pending(&self, block: &mut FreeBlock) -> bool {
        block.uses(usize::MAX, |tick| self.is_complete(tick)) != Uses::Over
    }

    /// Every slab with its pieces; none in a forked child, since the lists are behind locks of the parent.
    pub(crate) fn survey(&self) -> Vec<SlabSnapshot> {
        if fork::is_child(self) {
            return Vec::new();
        }
        let mut pending = Pending::new();
        let note = |pending: &mut Pending, block: &mut FreeBlock| {
            // SAFETY: it is compared only.
            pending.insert(unsafe { block.reference() }, self.is_pending(block));
        };
        self.visit_magazines(|cache| cache.visit(|block| note(&mut pending, block)));
        let mut slabs = Vec::new();
        for (class, list) in self.central.iter().enumerate() {
            let mut list = list.lock();
            list.blocks.iter_mut().for_each(|block| note(&mut pending, block));
            let size_bytes = class_size_bytes(class);
            for small in list.slabs.iter().flatten() {
                let piece = |(position, reference)| {
                    let address = Address { handle: small.slab.handle, offset_bytes: position * size_bytes };
                    self.piece(address, size_bytes, reference, pending.get(reference).copied())
                };
                slabs.push(SlabSnapshot {
                    address: small.slab.handle,
                    size_bytes: small.slab.size_bytes,
                    pool: PoolKind::Small { block_bytes: size_bytes },
                    pieces: small.blocks.iter().enumerate().map(piece).collect(),
                });
            }
        }
        self.survey_large(PoolKind::Large, &self.large.lock(), &pending, &mut slabs);
        for pool in self.pools() {
            let kind = PoolKind::Private { number: pool.number.load(Relaxed) };
            self.survey_large(kind, &pool.large.lock(), &pending, &mut slabs);
        }
        slabs.extend(self.foreign.lock().blocks().map(|block| {
            let (address, size_bytes) = block.adopted_range();
            // Who has no handle of it waits for what is in flight.
            let pieces = [self.piece(address, size_bytes, block, Some(true))].into();
            SlabSnapshot { address: address.number(), size_bytes, pool: PoolKind::Foreign, pieces }
        }));
        slabs.sort_by_key(|slab| slab.address);
        slabs
    }

    fn survey_large(&self, kind: PoolKind, large: &Large, pending: &Pending, slabs: &mut Vec<SlabSnapshot>) {
        slabs.extend(large.slabs().map(|(slab, pieces)| {
            let pieces = pieces.map(|piece| {
                let address = Address { handle: slab.handle, offset_bytes: piece.offset_bytes };
                let kept = pending.get(&piece.reference).copied();
                let pending = piece.free.map_or(kept, |mut block| Some(self.is_pending(&mut block)));
                self.piece(address, piece.size_bytes, &piece.reference, pending)
            });
            let pieces = pieces.collect();
            SlabSnapshot { address: slab.handle, size_bytes: slab.size_bytes, pool: kind, pieces }
        }));
    }

    /// Called under the lock of the block's list.
    fn piece(&self, address: Address, size_bytes: usize, block: &BlockRef, pending: Option<bool>) -> Piece {
        let last = block.last_use();
        let stream = (last != Tick::NONE).then(|| self.opened(last.slot()));
        let state = match pending {
            _ if block.is_given_out() => PieceState::Allocated,
            Some(false) => PieceState::Free,
            Some(true) => PieceState::Pending,
            // On its way from one list to another.
            None if self.is_complete(last) => PieceState::Free,
            None => PieceState::Pending,
        };
        Piece {
            address: address.number(),
            size_bytes,
            asked_bytes: if state == PieceState::Allocated { block.asked_bytes() } else { 0 },
            state,
            stream: stream.map(|stream| stream.slot),
            ops_since: stream.map_or(0, |stream| stream.latest().sequence().saturating_sub(last.sequence())),
        }
    }

    /// The counts alone. Collects those of all threads; in a forked child they are as the parent last did.
    pub(crate) fn memory_counts(&self) -> MemoryStats {
        if !fork::is_child(self) {
            self.visit_magazines(|cache| self.collect(&mut cache.counts));
        }
        let (allocated_bytes, allocated_peak_bytes) = self.allocated.now_and_peak();
        let (reserved_bytes, reserved_peak_bytes) = self.reserved.now_and_peak();
        MemoryStats {
            allocated_bytes,
            allocated_peak_bytes,
            reserved_bytes,
            reserved_peak_bytes,
            foreign_bytes: self.foreign_bytes.load(Relaxed),
            allocations: self.allocations.load(Relaxed),
            frees: self.frees.load(Relaxed),
            slab_allocations: self.slab_allocations.load(Relaxed),
            out_of_memory: self.out_of_memory.load(Relaxed),
            out_of_memory_retries: self.out_of_memory_retries.load(Relaxed),
            ..MemoryStats::default()
        }
    }

    pub(crate) fn memory_stats(&self, slabs: &[SlabSnapshot]) -> MemoryStats {
        let mut pools: BTreeMap<PoolKind, PoolStats> = BTreeMap::new();
        let mut streams: BTreeMap<usize, StreamMemory> = BTreeMap::new();
        let mut all = PieceBytes::default();
        for slab in slabs {
            let bytes = PieceBytes::default();
            let pool = pools.entry(slab.pool).or_insert(PoolStats { kind: slab.pool, slabs: 0, bytes });
            pool.slabs += 1;
            for piece in &slab.pieces {
                if slab.pool != PoolKind::Foreign {
                    all.add(piece);
                }
                pool.bytes.add(piece);
                if let Some(stream) = piece.stream {
                    let entry = streams.entry(stream).or_insert(StreamMemory { stream, blocks: 0, bytes });
                    entry.blocks += 1;
                    entry.bytes.add(piece);
                }
            }
        }
        MemoryStats {
            pending_bytes: all.pending_bytes,
            pools: pools.into_values().collect(),
            streams: streams.into_values().collect(),
            ..self.memory_counts()
        }
    }

    /// What an allocation of so many bytes finds.
    pub(crate) fn need(&self, asked_bytes: usize) -> MemoryNeed {
        let MemoryStats { allocated_bytes, reserved_bytes, pending_bytes, .. } =
            self.memory_stats(&self.survey());
        let free_bytes = reserved_bytes.saturating_sub(allocated_bytes + pending_bytes);
        MemoryNeed { asked_bytes, allocated_bytes, free_bytes, pending_bytes, attempt: 0 }
    }
}
