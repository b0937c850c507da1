//! What user code can do with a device's memory, but for statistics and hooks.

use crate::{
    Buffer, Device, Error, MemoryPool, MemoryResource, Result, Stream, alloc::SmallSlab, block::Known,
    device::DeviceInner, fork, large::Large,
};
use raddle_hal::{Bounds, Slab};
use raddle_sync::{atomic::Ordering::*, fault};
use std::{ptr, sync::Arc};

/// Marks of how much memory a device may hold in slabs. At first they are as [`Limits`](raddle_hal::Limits) and the environment
/// say, or there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// A new slab past it is asked for only after what is unused in caches has been given back.
    pub low_bytes: usize,
    /// Past it there is no new slab.
    pub high_bytes: usize,
}

impl Watermarks {
    /// Those that a device begins with.
    pub(crate) fn of(bounds: &Bounds) -> Watermarks {
        Watermarks { low_bytes: bounds.memory_low_bytes, high_bytes: bounds.memory_high_bytes }
    }

    /// Is the low one, if there is one, not above the high one?
    pub(crate) fn check(self, op: &'static str, device: &str) -> Result<()> {
        let Watermarks { low_bytes, high_bytes } = self;
        if low_bytes > high_bytes && low_bytes != usize::MAX {
            return Err(Error::Watermarks { op, device: device.into(), low_bytes, high_bytes });
        }
        Ok(())
    }
}

impl DeviceInner {
    /// A handle of the buffer in whose memory an address lies.
    fn buffer_at(&self, address: u64) -> Option<Buffer> {
        let offset = |slab: &Slab| {
            let offset = usize::try_from(address.checked_sub(slab.handle)?).ok()?;
            (offset < slab.size_bytes).then_some(offset)
        };
        let in_small = |slab: &SmallSlab| -> Option<Known> {
            let block_bytes = slab.slab.size_bytes / slab.blocks.len();
            slab.blocks.get(offset(&slab.slab)? / block_bytes).copied()
        };
        let in_large = |large: &Large| {
            large.slabs().find_map(|(slab, mut pieces)| {
                let offset = offset(&slab)?;
                pieces.find(|piece| offset - piece.offset_bytes < piece.size_bytes).map(|piece| piece.known)
            })
        };
        // The handle is taken under the lock of the list, so that the block isn't destroyed meanwhile.
        for shelf in &self.allocator.centre {
            let shelf = shelf.lock();
            if let Some(known) = shelf.slabs.iter().flatten().find_map(in_small) {
                return known.buffer();
            }
        }
        let private = self.allocator.watch.pools();
        for large in private.iter().map(|pool| &pool.large).chain([&self.allocator.large]) {
            let large = large.lock();
            if let Some(known) = in_large(&large) {
                return known.buffer();
            }
        }
        None
    }
}

impl Device {
    /// Gives cached memory that no work in flight uses back to the device. Live buffers stay.
    pub fn empty_cache(&self) {
        if fork::is_child(self.0) {
            return; // all of it is behind locks of the parent
        }
        self.0.drain_magazines();
        self.0.release_unused();
    }

    /// The most that slabs of this device may hold from now on: the high watermark alone. What is held already stays.
    pub fn set_memory_limit(&self, limit_bytes: usize) {
        self.0.allocator.limit_bytes.store(limit_bytes, Relaxed);
    }

    /// Sets both watermarks; `usize::MAX` is none. An error, and no change, if there is a low one above the high one.
    pub fn set_memory_watermarks(&self, watermarks: Watermarks) -> Result<()> {
        watermarks.check("set_memory_watermarks", self.name())?;
        let Watermarks { low_bytes, high_bytes } = watermarks;
        self.0.allocator.low_bytes.store(low_bytes, Relaxed);
        self.set_memory_limit(high_bytes);
        Ok(())
    }

    /// As [`Device::set_memory_limit`], as a part of the device's memory, from 0 to 1. An error, and no change, for any other
    /// number, and where the device doesn't say how much memory it has.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        let device = || self.name().into();
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::MemoryFraction { device: device(), found: fraction });
        }
        let memory_bytes =
            self.info().memory_bytes.ok_or_else(|| Error::UnknownMemory { device: device() })?;
        self.set_memory_limit((memory_bytes as f64 * fraction) as usize);
        Ok(())
    }

    /// Notes that code outside of the runtime uses a buffer on a stream. The memory is not used again before everything is
    /// complete that is on that stream *when the buffer is freed*: work put there after this call is covered, too. Where other
    /// code has the stream's handle ([`Stream::wrap`], [`Stream::as_raw`]) the free takes a place on it; so that it needn't
    /// wait for one, this does, while the stream is full.
    pub fn record_stream(&self, buffer: &Buffer, stream: Stream) -> Result<()> {
        let found = if ptr::eq(stream.0.device, self.0) { buffer.device() } else { stream.device() };
        if found != *self {
            let (expected, found) = (self.name().into(), found.name().into());
            return Err(Error::StreamDevice { op: "record_stream", expected, found });
        }
        stream.check_open()?;
        let takes_place = stream.0.is_shown.load(Relaxed) && !fork::is_child(self.0);
        if takes_place && !fault!(fences_without_end) {
            stream.0.wait_for_room()?;
        }
        if fault!(fence_at_record) {
            stream.0.fence(buffer.block());
            return Ok(());
        }
        buffer.block().record(stream.0.slot);
        Ok(())
    }

    /// As [`Device::record_stream`], for callers that have an address only: anywhere in a buffer. False, and nothing else, if
    /// no live buffer of this device lies there (null, freed, foreign) or the stream is another device's. Looks through the
    /// slabs, under their locks: some microseconds.
    pub fn record_stream_raw(&self, address: u64, stream: Stream) -> bool {
        if fork::is_child(self.0) {
            return false; // its locks are the parent's, and nothing is in flight
        }
        // The handle is dropped after the lock: it may be the last one by then.
        let buffer = self.0.buffer_at(address);
        buffer.is_some_and(|buffer| self.record_stream(&buffer, stream).is_ok())
    }

    /// A new private pool: what is allocated while a thread has [entered](MemoryPool::enter) it comes from memory that
    /// nobody else uses. In a forked child that holds for all memory, and all pools are one.
    pub fn memory_pool(&self) -> MemoryPool {
        MemoryPool::new(self.0)
    }

    /// Puts a resource in front of this device's allocator, or takes it away; returns the one that was there. All
    /// allocations of all threads from now on go to it, and what it has given out comes back to it as long as it is there.
    /// An error, and no change, if it is another device's. In a forked child memory comes from the device itself: nothing is
    /// put in front, and there is none.
    pub fn set_memory_resource(
        &self,
        resource: Option<Arc<dyn MemoryResource>>,
    ) -> Result<Option<Arc<dyn MemoryResource>>> {
        if let Some(found) = resource.as_ref().map(|resource| resource.device()).filter(|found| found != self)
        {
            return Err(Error::ResourceDevice { expected: self.name().into(), found: found.name().into() });
        }
        if fork::is_child(self.0) {
            return fork::check(self.0).map(|()| None); // the place is behind a lock of the parent
        }
        Ok(self.0.allocator.watch.install(resource))
    }
}
