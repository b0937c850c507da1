//! A device's memory, as programs bound, watch and see it.

use crate::{
    ground::{Device, Error, Floor, Result, fork},
    memory::{
        AfterNeed, Buffer, Foreign, HookGuard, Memory, MemoryNeed, Watermarks,
        policy::{AllocInterceptors, MemoryPool, MemoryResource},
        report::{MemorySnapshot, MemoryStats},
    },
    order::{Stream, Streams, Tick},
    stream::Event,
};
use raddle_sync::{atomic::Ordering::*, fault};
use std::{ptr, sync::Arc};

/// When what others have written to their memory is there to be read.
#[derive(Clone, Copy, Debug)]
pub enum Ready<'a> {
    /// It is: who wrote it has waited for it, or has written nothing.
    Now,
    /// Behind what is on a stream now; also what others have put there, on a [wrapped](Stream::wrap) one or by its
    /// [handle](Stream::as_raw).
    After(Stream),
    /// Behind what an event has recorded; at once if it has recorded nothing.
    AfterEvent(&'a Event),
}

impl Device {
    /// A buffer over memory that somebody else has. Ops use it as any buffer, from any thread and on any stream, the first ones behind
    /// what `ready` says, which nobody waits for here. When the last handle has gone and everything that touches the memory is
    /// complete, its owner is dropped, which gives the memory back: on the thread that drops the handle, or on one of the runtime. Until then
    /// it counts as [`MemoryStats::foreign_bytes`], and against no limit.
    ///
    /// Whoever adopts the same memory twice has two buffers, whose ops nothing orders: ask [`Device::find`] first, or adopt once and
    /// take views.
    ///
    /// Takes a lock of the device; blocks only if `ready` is a wrapped stream that is full. In a forked child the owner of what the
    /// parent has adopted isn't dropped.
    ///
    /// Errors: [`Error::BufferDevice`], [`Error::StreamDevice`], [`Error::StreamClosed`], [`Error::Forked`]. The owner is dropped then.
    pub fn adopt(&self, memory: Foreign, ready: Ready<'_>) -> Result<Buffer> {
        let behind = self.behind(&memory, ready)?;
        memory.adopt(behind)
    }

    /// The living buffer that has the memory already, as the device's own or as adopted before, and where in it: whoever uses that
    /// instead of another one for the same memory is ordered with all its users, and needs no owner. From now on it is used behind what
    /// `ready` says. None if there is none, or if only one of the two may be written. Looks through all memory of the device: some
    /// microseconds.
    ///
    /// Errors: as of [`Device::adopt`].
    pub fn find(&self, memory: &Foreign, ready: Ready<'_>) -> Result<Option<(Buffer, usize)>> {
        let behind = self.behind(memory, ready)?;
        if fork::is_child(self.0) || memory.size_bytes() == 0 || fault!(adopted_twice) {
            return Ok(None);
        }
        let Some(buffer) = Memory::of(self.0).buffer_at(memory.address()) else { return Ok(None) };
        let offset_bytes = (memory.address() - buffer.address()) as usize;
        let fits =
            buffer.size_bytes().checked_sub(offset_bytes).is_some_and(|rest| rest >= memory.size_bytes());
        if !fits || buffer.is_read_only() != memory.is_read_only() {
            return Ok(None);
        }
        if behind != Tick::NONE {
            Stream::current(self)?.take_over(&buffer, behind)?;
        }
        Ok(Some((buffer, offset_bytes)))
    }

    /// The tick of what `ready` says.
    fn behind(&self, memory: &Foreign, ready: Ready<'_>) -> Result<Tick> {
        let op = "adopt";
        let expected = || self.name().into();
        if memory.device() != *self {
            return Err(Error::BufferDevice {
                op,
                expected: expected(),
                found: memory.device().name().into(),
            });
        }
        let check = |streams: &'static Streams, tick| match ptr::eq(streams.core, self.0) {
            true => Ok(tick),
            false => Err(Error::StreamDevice { op, expected: expected(), found: streams.name().into() }),
        };
        Ok(match ready {
            _ if fork::is_child(self.0) => Tick::NONE, // nothing is in flight
            Ready::Now => Tick::NONE,
            Ready::After(stream) => {
                check(stream.0.device, Tick::NONE)?;
                stream.check_open()?;
                // Where others have the stream's handle, there may be work of theirs behind the last tick.
                if stream.0.is_shown.load(Relaxed) && !stream.is_external() {
                    stream.0.wait_for_room()?;
                    stream.mark()?;
                }
                stream.now()?
            }
            Ready::AfterEvent(event) => {
                event.tick().map_or(Ok(Tick::NONE), |(streams, tick)| check(streams, tick))?
            }
        })
    }

    /// Gives cached memory that no work in flight uses back to the device. Live buffers stay.
    pub fn empty_cache(&self) {
        if fork::is_child(self.0) {
            return; // all of it is behind locks of the parent
        }
        let memory = Memory::of(self.0);
        memory.drain_magazines();
        memory.release_unused();
    }

    /// The most that slabs of this device may hold from now on: the high watermark alone. What is held already stays.
    pub fn set_memory_limit(&self, limit_bytes: usize) {
        Memory::of(self.0).limit_bytes.store(limit_bytes, Relaxed);
    }

    /// Sets both watermarks; `usize::MAX` is none. An error, and no change, if there is a low one above the high one.
    pub fn set_memory_watermarks(&self, watermarks: Watermarks) -> Result<()> {
        watermarks.check("set_memory_watermarks", self.name())?;
        let Watermarks { low_bytes, high_bytes } = watermarks;
        Memory::of(self.0).low_bytes.store(low_bytes, Relaxed);
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
        let found = if ptr::eq(stream.0.device.core, self.0) { buffer.device() } else { stream.device() };
        let mut is_foreign = found != *self;
        fault!(foreign_stream_is_taken => is_foreign = false);
        if is_foreign {
            let (expected, found) = (self.name().into(), found.name().into());
            return Err(Error::StreamDevice { op: "record_stream", expected, found });
        }
        stream.check_open()?;
        let mut takes_place = stream.0.is_shown.load(Relaxed) && !fork::is_child(self.0);
        fault!(fences_without_end => takes_place = false);
        if takes_place {
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
        let buffer = Memory::of(self.0).buffer_at(address);
        fault!(unknown_is_noted => if buffer.is_none() { return true });
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
        Ok(AllocInterceptors::of(self.0).install(resource))
    }

    /// What is given out and kept. It looks at every block, under the locks of the lists they are in, one by one: some ten
    /// nanoseconds a block. In a forked child the counts are as the parent last had them, and no pool is listed.
    pub fn memory_stats(&self) -> MemoryStats {
        let memory = Memory::of(self.0);
        memory.memory_stats(&memory.survey())
    }

    /// Makes the peaks of [`Device::memory_stats`] start again from what is given out and held now.
    pub fn reset_memory_peaks(&self) {
        let memory = Memory::of(self.0);
        memory.memory_counts(); // what magazines have counted is from before
        memory.allocated.reset_peak();
        memory.reserved.reset_peak();
    }

    /// What every piece of memory is used for. Takes the time of [`Device::memory_stats`].
    pub fn memory_snapshot(&self) -> MemorySnapshot {
        let memory = Memory::of(self.0);
        let slabs = memory.survey();
        // In a forked child the history is behind a lock of the parent.
        let is_child = fork::is_child(self.0);
        let (events, events_dropped) =
            if is_child { Default::default() } else { AllocInterceptors::of(self.0).events() };
        let stats = memory.memory_stats(&slabs);
        MemorySnapshot { device: self.name().into(), stats, slabs, events, events_dropped }
    }

    /// Begins to keep the latest `event_count` allocations and frees for snapshots, some 60 bytes each; 0 ends it. What was
    /// kept before is lost. Costs a lock that all threads share for each allocation meanwhile. Does nothing in a forked child.
    pub fn set_memory_history(&self, event_count: usize) {
        if fork::is_child(self.0) {
            return; // the history is behind a lock of the parent
        }
        AllocInterceptors::of(self.0).set_history(event_count);
    }

    /// Registers a hook that is called when an allocation finds no memory although all that can be given back has been,
    /// on the thread that allocates, under no lock. It may drop buffers, and says whether to look again; hooks are asked up
    /// to [`OUT_OF_MEMORY_RETRY_COUNT_MAX`](crate::OUT_OF_MEMORY_RETRY_COUNT_MAX) times for one allocation. In a hook no hook of any device is called; a panic
    /// in it counts as [`AfterNeed::GiveUp`]. What a [`MemoryResource`] refuses by itself, as a
    /// [`LimitingResource`](crate::LimitingResource) does past its limit, asks no hook: the device isn't short, and the resource alone
    /// knows what would help. What it does is no part of a capture. In a forked child no hook is ever called;
    /// if a hook forks and returns in the child, the allocation goes on there as any of a child. It may end the process.
    pub fn on_out_of_memory(
        &self,
        hook: impl Fn(&MemoryNeed) -> AfterNeed + Send + Sync + 'static,
    ) -> HookGuard {
        Memory::of(self.0).hooks.add(self.0, hook)
    }
}
