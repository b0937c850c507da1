//! Memory by wrapping: what stands in front of a device's allocator and sees, refuses or keeps what is allocated.
//!
//! A [`MemoryResource`] gives memory and takes it back; [`DeviceMemory`] is the allocator itself, everything else wraps another
//! resource. What they hand on is an [`Allocation`], which carries the marks of its memory: a resource may keep it and give it
//! out later, to whatever stream, and it is ordered as ever. One that is dropped goes back to the allocator, so that no
//! resource can lose memory.
//!
//! [`Device::set_memory_resource`] puts one in front; without one, nothing is paid.

use crate::{
    Device, Error, Result, alloc::put_back, block::FreeBlock, device::DeviceInner, fork,
    history::thread_number,
};
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU64, AtomicUsize, Ordering::*},
    caught, fault,
};
use serde::Serialize;
use std::{collections::HashMap, io::Write, sync::Arc, time::Instant};

/// Gives a device's memory, and takes it back. Called from any thread; what it allocates on the device itself, by whatever
/// way, goes past it. It may end the process, and fork: in the child its answer counts for nothing, and the allocation is one of
/// a child.
pub trait MemoryResource: Send + Sync {
    /// Memory for `size_bytes`, of [`MemoryResource::device`]. It may block. A panic goes to whoever allocates.
    fn allocate(&self, size_bytes: usize) -> Result<Allocation>;

    /// Takes memory back that it gave. Called when the last handle is dropped, so it shouldn't block; by a hook this may be
    /// inside of [`MemoryResource::allocate`] on the same thread. A panic is swallowed, and the memory goes back to the device.
    fn free(&self, allocation: Allocation);

    /// The device.
    fn device(&self) -> Device;
}

/// Memory on its way between a resource and a buffer, owned alone. Dropping it gives it back to the device.
#[derive(Debug)]
pub struct Allocation(Option<FreeBlock>);

impl Allocation {
    pub(crate) fn new(block: FreeBlock) -> Allocation {
        Allocation(Some(block))
    }

    fn block(&self) -> &FreeBlock {
        self.0.as_ref().expect("it has its block until it is dropped")
    }

    /// How many bytes it holds.
    pub fn capacity_bytes(&self) -> usize {
        self.block().get().capacity_bytes
    }

    /// How many bytes were asked for.
    pub fn size_bytes(&self) -> usize {
        self.block().get().asked_bytes.load(Relaxed)
    }

    /// Where it starts, as code in C knows it.
    pub fn address(&self) -> u64 {
        self.block().get().address.number()
    }

    /// Its block, if it is what was asked for; else what it is, for whom it came from.
    pub(crate) fn into_block(
        mut self,
        device: &'static DeviceInner,
        size_bytes: usize,
    ) -> std::result::Result<FreeBlock, (Allocation, Error)> {
        let found = self.block().get().device;
        let capacity_bytes = if std::ptr::eq(found, device) { self.capacity_bytes() } else { 0 };
        if capacity_bytes < size_bytes || !std::ptr::eq(found, device) {
            let error = Error::ResourceMisfit {
                device: device.name().into(),
                expected_bytes: size_bytes,
                found_device: found.name().into(),
                found_bytes: self.capacity_bytes(),
            };
            return Err((self, error));
        }
        let mut block = self.0.take().expect("it has its block until it is dropped");
        if fault!(allocation_without_marks) {
            block.forget_uses();
        }
        Ok(block)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.0.take() {
            Some(block) if fork::is_child(block.get().device) => fork::free(block),
            Some(block) => put_back(block),
            None => {}
        }
    }
}

/// The allocator of a device, or the private pool that is current: what every other resource ends in.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory(pub Device);

impl MemoryResource for DeviceMemory {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let is_child = fork::is_child(self.0.0);
        let block =
            if is_child { fork::block(self.0.0, size_bytes)? } else { self.0.0.pooled_block(size_bytes)? };
        block.get().asked_bytes.store(size_bytes, Relaxed);
        Ok(Allocation::new(block))
    }
    fn free(&self, allocation: Allocation) {
        drop(allocation);
    }
    fn device(&self) -> Device {
        self.0
    }
}

/// What a resource has given out, by address, and how many bytes it was asked for: what stands in front of it may ask for others
/// than the buffer has, which is what an [`Allocation`] knows.
struct Given(Mutex<HashMap<u64, usize>>);

impl Given {
    fn new() -> Given {
        Given(Mutex::new(Rank::Leaf, HashMap::new()))
    }

    fn put(&self, allocation: &Allocation, size_bytes: usize) {
        self.0.lock().insert(allocation.address(), size_bytes);
    }

    fn take(&self, allocation: &Allocation) -> usize {
        self.0.lock().remove(&allocation.address()).unwrap_or_else(|| allocation.size_bytes())
    }
}

/// Counts what goes through it.
pub struct StatisticsResource<R> {
    upstream: R,
    given: Given,
    allocations: AtomicU64,
    frees: AtomicU64,
    failures: AtomicU64,
    current_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    total_bytes: AtomicU64,
}

/// What a [`StatisticsResource`] has counted, in bytes as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResourceStatistics {
    /// Given out so far.
    pub allocations: u64,
    /// Taken back so far.
    pub frees: u64,
    /// Refused so far.
    pub failures: u64,
    /// Bytes that are out.
    pub current_bytes: usize,
    /// The most that `current_bytes` has been.
    pub peak_bytes: usize,
    /// All bytes that were ever given out.
    pub total_bytes: u64,
}

impl<R: MemoryResource> StatisticsResource<R> {
    /// Counts what `upstream` gives and takes.
    pub fn new(upstream: R) -> StatisticsResource<R> {
        StatisticsResource {
            upstream,
            given: Given::new(),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            current_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            total_bytes: AtomicU64::new(0),
        }
    }

    /// What it has counted so far.
    pub fn statistics(&self) -> ResourceStatistics {
        ResourceStatistics {
            allocations: self.allocations.load(Relaxed),
            frees: self.frees.load(Relaxed),
            failures: self.failures.load(Relaxed),
            current_bytes: self.current_bytes.load(Relaxed),
            peak_bytes: self.peak_bytes.load(Relaxed),
            total_bytes: self.total_bytes.load(Relaxed),
        }
    }
}

impl<R: MemoryResource> MemoryResource for StatisticsResource<R> {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let allocation =
            self.upstream.allocate(size_bytes).inspect_err(|_| _ = self.failures.fetch_add(1, Relaxed))?;
        self.allocations.fetch_add(1, Relaxed);
        self.total_bytes.fetch_add(size_bytes as u64, Relaxed);
        let current_bytes = self.current_bytes.fetch_add(size_bytes, Relaxed) + size_bytes;
        self.peak_bytes.fetch_max(current_bytes, Relaxed);
        self.given.put(&allocation, size_bytes);
        Ok(allocation)
    }
    fn free(&self, allocation: Allocation) {
        self.frees.fetch_add(1, Relaxed);
        self.current_bytes.fetch_sub(self.given.take(&allocation), Relaxed);
        self.upstream.free(allocation);
    }
    fn device(&self) -> Device {
        self.upstream.device()
    }
}

/// How a [`LoggingResource`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A header and a line an event: `Thread,Time,Action,Pointer,Size,Stream`. Time in microseconds since the log was begun;
    /// actions `allocate`, `allocate failure`, `free`; the stream by its slot.
    Csv,
    /// The same as an object a line.
    JsonLines,
}

/// Writes a line for each event. A line that can't be written is left out, also where that panics: the memory is given all the
/// same.
pub struct LoggingResource<R> {
    upstream: R,
    format: LogFormat,
    start: Instant,
    to: Mutex<Box<dyn Write + Send>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LogLine {
    thread: u64,
    time: u64,
    action: &'static str,
    pointer: u64,
    size: usize,
    stream: usize,
}

impl<R: MemoryResource> LoggingResource<R> {
    /// Logs what `upstream` gives and takes. Lines are written under a lock, one at a time: `to` should be buffered, and
    /// must not use the device.
    pub fn new(upstream: R, format: LogFormat, to: impl Write + Send + 'static) -> LoggingResource<R> {
        let mut to: Box<dyn Write + Send> = Box::new(to);
        if format == LogFormat::Csv {
            _ = writeln!(to, "Thread,Time,Action,Pointer,Size,Stream");
        }
        LoggingResource { upstream, format, start: Instant::now(), to: Mutex::new(Rank::Leaf, to) }
    }

    fn write(&self, action: &'static str, pointer: u64, size: usize) {
        let stream = crate::local::get(self.device().0).map_or(0, |local| local.slot());
        let (thread, time) = (thread_number(), self.start.elapsed().as_micros() as u64);
        let mut to = self.to.lock();
        _ = caught(|| match self.format {
            LogFormat::Csv => writeln!(to, "{thread},{time},{action},{pointer:#x},{size},{stream}"),
            LogFormat::JsonLines => {
                let line = LogLine { thread, time, action, pointer, size, stream };
                serde_json::to_writer(&mut *to, &line).map_err(Into::into).and_then(|()| writeln!(to))
            }
        });
    }
}

impl<R: MemoryResource> MemoryResource for LoggingResource<R> {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let allocation = self.upstream.allocate(size_bytes);
        match &allocation {
            Ok(allocation) => self.write("allocate", allocation.address(), size_bytes),
            Err(_) => self.write("allocate failure", 0, size_bytes),
        }
        allocation
    }
    fn free(&self, allocation: Allocation) {
        self.write("free", allocation.address(), allocation.size_bytes());
        self.upstream.free(allocation);
    }
    fn device(&self) -> Device {
        self.upstream.device()
    }
}

impl<R> Drop for LoggingResource<R> {
    fn drop(&mut self) {
        _ = caught(|| self.to.lock().flush());
    }
}

/// Refuses what would make more than so many bytes be out at once, with an error that tells these and the limit. Hooks for memory
/// that is short aren't asked: they are the device's, which has some.
pub struct LimitingResource<R> {
    upstream: R,
    given: Given,
    limit_bytes: usize,
    current_bytes: AtomicUsize,
}

/// Bytes that are taken of a limit, and come back when it is dropped: there was an error, or a panic.
struct Taken<'a> {
    of: &'a AtomicUsize,
    size_bytes: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.size_bytes, Relaxed);
    }
}

impl<R: MemoryResource> LimitingResource<R> {
    /// At most `limit_bytes` of `upstream`, as asked for, at once.
    pub fn new(upstream: R, limit_bytes: usize) -> LimitingResource<R> {
        LimitingResource { upstream, given: Given::new(), limit_bytes, current_bytes: AtomicUsize::new(0) }
    }
}

impl<R: MemoryResource> MemoryResource for LimitingResource<R> {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let fits = |current: usize| current.checked_add(size_bytes).filter(|&sum| sum <= self.limit_bytes);
        if let Err(allocated_bytes) = self.current_bytes.fetch_update(Relaxed, Relaxed, fits) {
            // Its own counts: of the device's nobody could tell why it refuses.
            return Err(Error::OutOfMemory {
                device: self.device().name().into(),
                asked_bytes: size_bytes,
                allocated_bytes,
                free_bytes: 0,
                pending_bytes: 0,
                bound_bytes: Some(self.limit_bytes),
            });
        }
        let taken = Taken { of: &self.current_bytes, size_bytes };
        let allocation = self.upstream.allocate(size_bytes)?;
        std::mem::forget(taken);
        self.given.put(&allocation, size_bytes);
        Ok(allocation)
    }
    fn free(&self, allocation: Allocation) {
        self.current_bytes.fetch_sub(self.given.take(&allocation), Relaxed);
        self.upstream.free(allocation);
    }
    fn device(&self) -> Device {
        self.upstream.device()
    }
}

/// Which allocations a [`FailingResource`] refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FailAt {
    /// The n-th, counted from 1, and no other.
    Number(u64),
    /// Each with a probability, drawn from a seed and its number: the same at every run.
    Probability {
        /// From 0 to 1.
        probability: f64,
        /// The seed.
        seed: u64,
    },
}

/// Refuses on demand, as if there were no memory.
pub struct FailingResource<R> {
    upstream: R,
    at: FailAt,
    allocations: AtomicU64,
}

impl<R: MemoryResource> FailingResource<R> {
    /// Refuses some of what `upstream` would give.
    pub fn new(upstream: R, at: FailAt) -> FailingResource<R> {
        FailingResource { upstream, at, allocations: AtomicU64::new(0) }
    }

    /// How many allocations it was asked for.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Relaxed)
    }
}

impl<R: MemoryResource> MemoryResource for FailingResource<R> {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let number = self.allocations.fetch_add(1, Relaxed) + 1;
        let fails = match self.at {
            FailAt::Number(fails) => number == fails,
            FailAt::Probability { probability, seed } => unit(seed, number) < probability,
        };
        if fails {
            Err(self.device().0.out_of_memory(size_bytes))
        } else {
            self.upstream.allocate(size_bytes)
        }
    }
    fn free(&self, allocation: Allocation) {
        self.upstream.free(allocation);
    }
    fn device(&self) -> Device {
        self.upstream.device()
    }
}

/// A number from 0 to 1 for each seed and index (Steele, Lea & Flood 2014, "SplitMix64").
fn unit(seed: u64, index: u64) -> f64 {
    let mut bits = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ bits >> 31) as f64 / 2f64.powi(64)
}

/// A resource that is shared, so that whoever installs it can still ask it.
impl<R: MemoryResource + ?Sized> MemoryResource for Arc<R> {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        (**self).allocate(size_bytes)
    }
    fn free(&self, allocation: Allocation) {
        (**self).free(allocation);
    }
    fn device(&self) -> Device {
        (**self).device()
    }
}
