//! A device in service: its hal, its streams, its memory.

use crate::{
    Access, Buffer, Error, NotCapturable, Operand, Result, Stream,
    alloc::Allocator,
    block::Block,
    cache::{CacheStats, Graphs},
    capture,
    dedicated::{self, Pool, Streams},
    event::Stamps,
    fork,
    local::{self, Local},
    memory::Watermarks,
    pool::{IdlePools, PoolInner},
    stream::{POOL_COUNT, StreamInner},
    submit::Touch,
    taint::{Failure, Taints},
    testing::Holds,
    tick::SLOT_COUNT,
    trace,
};
use raddle_hal::{self as hal, Kernel, Launch, Priority};
use raddle_sync::{
    Mutex, MutexGuard, Rank,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    fault, global, locks_at_fork,
};
use smallvec::SmallVec;
use std::ptr;

/// Devices that a process can have opened at once: a tick has 8 bits for them.
pub(crate) const DEVICE_COUNT_MAX: usize = 256;

/// Lives as long as the process, so that buffers, handles and ticks hold it without counting. Devices are few; a
/// simulator that is opened for each of a million seeds is closed again by [`Device::close`], which gives back all but
/// this frame of some 30 KiB.
pub(crate) struct DeviceInner {
    pub(crate) hal: Box<dyn hal::Device>,
    pub(crate) index: u8,
    /// Its index, and how often that had been used before, modulo 2^8: what ids of its streams say.
    pub(crate) id: u16,
    pub(crate) in_flight_count_max: u64,
    pub(crate) poison: bool,
    pub(crate) prepares: bool,
    pub(crate) source: hal::trace::Source,
    /// Streams of each pool that are used.
    pub(crate) pool_count: usize,
    /// Set when the device is lost; then everything counts as complete.
    pub(crate) lost: AtomicBool,
    /// Set when it has been closed, and its index is no longer its own.
    closed: AtomicBool,
    slots: [AtomicPtr<StreamInner>; SLOT_COUNT],
    pub(crate) streams: Streams,
    pub(crate) stamps: Stamps,
    pub(crate) next_normal: AtomicU32,
    pub(crate) next_high: AtomicU32,
    pub(crate) next_block_id: AtomicU64,
    pub(crate) allocator: Allocator,
    pub(crate) idle_pools: Mutex<IdlePools>,
    /// What stands for all pools that a forked child makes. Only children touch it.
    pub(crate) child_pool: global::OnceLock<&'static PoolInner>,
    pub(crate) taints: Taints,
    /// Of every thread that has used the device, alive or idle.
    pub(crate) locals: Mutex<Vec<&'static Local>>,
    pub(crate) idle_locals: Mutex<Vec<&'static Local>>,
    pub(crate) graphs: Graphs,
    pub(crate) holds: Holds,
    /// The process's count of forks when it was opened, and when the hal last heard of one.
    pub(crate) forks: u32,
    pub(crate) forks_seen: global::AtomicU32,
}

// A panic leaves nothing half done: locks aren't poisoned, and what they guard is restored by `Drop`.
impl std::panic::RefUnwindSafe for DeviceInner {}

impl std::fmt::Debug for DeviceInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

/// Indices of devices that are open. No lock, which a forked child could find held.
static OPEN: [global::AtomicBool; DEVICE_COUNT_MAX] =
    [const { global::AtomicBool::new(false) }; DEVICE_COUNT_MAX];
/// How often each index has been used.
static USES: [global::AtomicU32; DEVICE_COUNT_MAX] = [const { global::AtomicU32::new(0) }; DEVICE_COUNT_MAX];

impl DeviceInner {
    pub(crate) fn new(hal: Box<dyn hal::Device>, index: u8, use_count: u8) -> DeviceInner {
        let info = hal.info();
        DeviceInner {
            index,
            id: u16::from_be_bytes([use_count, index]),
            in_flight_count_max: info.in_flight_count_max.min(info.bounds.in_flight_count as u64).max(2),
            poison: info.poison,
            prepares: info.prepares,
            source: info.source,
            pool_count: match fault!(streams_unlimited) {
                false => info.bounds.stream_count.min(POOL_COUNT),
                true => POOL_COUNT,
            },
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            streams: Streams::new(),
            stamps: Stamps::new(),
            next_normal: AtomicU32::new(0),
            next_high: AtomicU32::new(0),
            next_block_id: AtomicU64::new(0),
            allocator: Allocator::new(&info.bounds),
            idle_pools: Mutex::new(Rank::Leaf, IdlePools::default()),
            child_pool: global::OnceLock::new(),
            taints: Taints::new(info.bounds.failure_count),
            locals: Mutex::new(Rank::Pool, Vec::new()),
            idle_locals: Mutex::new(Rank::Leaf, Vec::new()),
            graphs: Graphs::new(),
            holds: Holds::new(),
            forks: fork::count(),
            forks_seen: global::AtomicU32::new(fork::count()),
            hal,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.hal.info().name
    }

    pub(crate) fn bounds(&self) -> &hal::Bounds {
        &self.hal.info().bounds
    }

    /// A stream that has been made. Acquire pairs with the Release in `publish`.
    #[inline]
    pub(crate) fn made(&self, slot: usize) -> Option<&'static StreamInner> {
        let stream = self.slots[slot].load(Acquire);
        // SAFETY: made by `Box::into_raw` and never freed.
        (!stream.is_null()).then(|| unsafe { &*stream })
    }

    /// A stream that a tick names.
    #[inline]
    pub(crate) fn opened(&self, slot: usize) -> &'static StreamInner {
        self.made(slot).expect("a tick names a stream that has been made")
    }

    /// The stream of a slot of the runtime's own; made if it is wanted for the first time.
    pub(crate) fn stream(&'static self, slot: usize) -> Result<&'static StreamInner> {
        match self.made(slot) {
            Some(stream) => Ok(stream),
            None if fork::is_child(self) => fork::stream(self, slot),
            None => self.stream_in_pool(slot, &self.streams.pool.lock()),
        }
    }

    pub(crate) fn stream_in_pool(
        &'static self,
        slot: usize,
        _pool: &MutexGuard<'_, Pool>,
    ) -> Result<&'static StreamInner> {
        match self.made(slot) {
            Some(stream) => Ok(stream),
            None => self.make_stream(slot),
        }
    }

    /// For whoever keeps others from doing the same.
    pub(crate) fn make_stream(&'static self, slot: usize) -> Result<&'static StreamInner> {
        let priority = if slot > POOL_COUNT { Priority::High } else { Priority::Normal };
        let queue = hal::QueueId(slot as u8);
        self.hal.open_queue(queue, priority).map_err(|error| self.error(error))?;
        Ok(self.publish(StreamInner::new(self, slot, priority)))
    }

    /// Gives a stream, whose queue is open, to everybody. For whoever keeps others from doing the same.
    pub(crate) fn publish(&self, stream: StreamInner) -> &'static StreamInner {
        let slot = stream.slot;
        self.slots[slot].store(Box::into_raw(Box::new(stream)), Release);
        self.opened(slot)
    }

    pub(crate) fn all_streams(&self) -> impl Iterator<Item = &'static StreamInner> + '_ {
        (0..SLOT_COUNT).filter_map(|slot| self.made(slot))
    }

    pub(crate) fn synchronize_all(&self) -> Result<()> {
        self.all_streams().try_for_each(|stream| {
            // Of a closed one, and if it takes no more work, what it has taken.
            let tick = stream.handle().now().unwrap_or_else(|_| stream.latest());
            stream.synchronize(tick.sequence())
        })
    }

    /// What is told to whoever depends on a failure.
    pub(crate) fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Kernel { op, tick, error } => {
                let stream = self.opened(tick.slot()).handle().id().0;
                Error::Kernel { op, error, stream, sequence: tick.sequence() }
            }
            Failure::Captured => Error::Captured { device: self.name().into() },
        }
    }

    /// A thread's things: idle ones of a thread that has ended, or new.
    pub(crate) fn local(&'static self) -> &'static Local {
        if let Some(local) = self.idle_locals.lock().pop() {
            return local;
        }
        let local: &'static Local = Box::leak(Box::new(Local::new(self)));
        self.locals.lock().push(local);
        local
    }
}

/// A device in service. A handle is a pointer; it may be copied, sent and used from any thread.
#[derive(Clone, Copy)]
pub struct Device(pub(crate) &'static DeviceInner);

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        ptr::eq(self.0, other.0)
    }
}
impl Eq for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What the streams of a device have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StreamStats {
    /// Streams that have been made.
    pub streams: usize,
    /// Ops enqueued.
    pub ops: u64,
    /// Waits between streams that the device was asked for.
    pub waits_inserted: u64,
    /// Dependencies on other streams that needed none: known to be complete, or ordered already.
    pub waits_elided: u64,
}

/// Describes a kernel and its operands as the device and the stream want them. Few operands, the usual case, are described
/// in arrays of just their number.
#[inline]
fn with_launch<R>(
    op: &'static str,
    device: &'static DeviceInner,
    kernel: &Kernel,
    operands: &[Operand<'_>],
    then: impl FnOnce(&Launch<'_>, &mut [Touch<'_>]) -> R,
) -> R {
    let view = |operand: &Operand<'_>| view(op, device, operand);
    macro_rules! of_length {
        ($($length:literal),*) => { match operands {
            $(operands if operands.len() == $length => {
                let views: [hal::Operand; $length] = std::array::from_fn(|index| view(&operands[index]));
                let mut touches: [Touch<'_>; $length] = std::array::from_fn(|index| touch(kernel, &operands[index]));
                then(&Launch::Kernel { kernel, operands: &views }, &mut touches)
            })*
            operands => {
                let views: Vec<hal::Operand> = operands.iter().map(view).collect();
                let mut touches: Vec<Touch<'_>> = operands.iter().map(|operand| touch(kernel, operand)).collect();
                then(&Launch::Kernel { kernel, operands: &views }, &mut touches)
            }
        } };
    }
    of_length!(2, 3, 4)
}

#[inline]
pub(crate) fn view(op: &'static str, device: &'static DeviceInner, operand: &Operand<'_>) -> hal::Operand {
    let block = operand.buffer.block();
    let end_bytes = operand.layout.end() * operand.dtype.size_bytes();
    if !ptr::eq(block.device, device) || end_bytes > operand.buffer.size_bytes() {
        misfit(op, device, operand);
    }
    let view = hal::View { address: block.address, dtype: operand.dtype, layout: *operand.layout };
    match operand.access {
        Access::Read => hal::Operand::In(view),
        Access::Write => hal::Operand::Out(view),
    }
}

/// Memory that isn't the operand's must not be touched, whoever is wrong.
#[cold]
#[inline(never)]
fn misfit(op: &'static str, device: &'static DeviceInner, operand: &Operand<'_>) -> ! {
    assert!(ptr::eq(operand.buffer.block().device, device), "{op}: an operand is of another device");
    let Operand { layout, dtype, buffer, .. } = operand;
    panic!("{op}: {layout:?} of {dtype} leaves its buffer of {} bytes", buffer.size_bytes())
}

#[inline]
fn touch<'a>(kernel: &Kernel, operand: &Operand<'a>) -> Touch<'a> {
    let block = operand.buffer.block();
    // Only a block that carries a failure needs to know.
    let whole = operand.access == Access::Write
        && block.taint.load(Relaxed) != 0
        && !kernel.reads_outputs()
        && operand.layout.is_contiguous()
        && operand.layout.element_count() * operand.dtype.size_bytes() >= operand.buffer.size_bytes();
    Touch { block, access: operand.access, whole }
}

/// The operands of a kernel, and its scratch memory.
pub(crate) fn with_scratch(
    operands: &[hal::Operand],
    address: hal::Address,
    size_bytes: usize,
) -> SmallVec<[hal::Operand; 8]> {
    operands.iter().copied().chain([hal::Operand::scratch(address, size_bytes)]).collect()
}

impl DeviceInner {
    /// Has the device to prepare the launch, or say how much scratch memory it needs?
    #[inline]
    pub(crate) fn wants_prepared(&self, launch: &Launch<'_>) -> bool {
        self.prepares || launch.may_want_scratch()
    }
}

impl Stream {
    /// Submits, after the device has prepared what it may have to.
    #[inline]
    pub(crate) fn launch(
        self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [Touch<'_>],
    ) -> Result<u64> {
        if self.0.device.wants_prepared(launch) {
            self.prepared(op, launch, touches)
        } else {
            self.submit(op, launch, touches, &[])
        }
    }

    fn prepared(self, op: &'static str, launch: &Launch<'_>, touches: &mut [Touch<'_>]) -> Result<u64> {
        let device = self.0.device;
        // First of all, so that little is held meanwhile.
        self.0.wait_for_room()?;
        // SAFETY: the launch is one that is submitted next; who uploads holds the source until then.
        let scratch_bytes = unsafe { device.hal.prepare(launch) }.map_err(|error| device.error(error))?;
        let Launch::Kernel { kernel, operands } = *launch else {
            return self.enqueue_in_room(op, launch, touches, &[]);
        };
        if scratch_bytes == 0 {
            return self.enqueue_in_room(op, launch, touches, &[]);
        }
        let user_calls = || device.allocator.user_calls.load(Relaxed);
        let calls_before = user_calls();
        let scratch = device.allocate(scratch_bytes)?;
        if fork::has_forked_in(device) {
            return fork::submit(device, op, launch, touches).map(|()| 0); // a child's ops have no place on a stream
        }
        if user_calls() != calls_before {
            // A hook or a resource may have prepared something else on this thread.
            // SAFETY: as above.
            let again_bytes = unsafe { device.hal.prepare(launch) }.map_err(|error| device.error(error))?;
            debug_assert_eq!(again_bytes, scratch_bytes, "{op}: it needs as much whenever it is asked");
        }
        let block = scratch.block();
        let operands = with_scratch(operands, block.address, scratch_bytes);
        let scratch = Touch { block, access: Access::Write, whole: true };
        let mut touches: SmallVec<[Touch<'_>; 8]> = touches.iter().copied().chain([scratch]).collect();
        self.enqueue_in_room(op, &Launch::Kernel { kernel, operands: &operands }, &mut touches, &[])
    }
}

impl Stream {
    /// As [`Device::submit_named`], on this stream.
    pub fn submit_kernel(self, op: &'static str, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        if capture::is_on(self.0.device) {
            return capture::record(self.0.device, op, kernel, operands);
        }
        with_launch(op, self.0.device, kernel, operands, |launch, touches| {
            if fork::is_child(self.0.device) {
                return fork::submit(self.0.device, op, launch, touches);
            }
            self.launch(op, launch, touches).map(drop)
        })
    }
}

impl Device {
    /// Takes a hal device into service. It stays so until [`Device::close`] or the end of the process.
    pub fn open(hal: Box<dyn hal::Device>) -> Result<Device> {
        locks_at_fork::watch();
        trace::watch(|| hal.info().bounds.trace_span_count);
        Watermarks::of(&hal.info().bounds).check("open", &hal.info().name)?;
        // Nothing but the index is passed on by it.
        let Some(index) = OPEN.iter().position(|open| !open.swap(true, Relaxed)) else {
            return Err(Error::TooManyDevices { name: hal.info().name.clone(), count_max: DEVICE_COUNT_MAX });
        };
        hal.info().source.show(&hal.info().name);
        let use_count = USES[index].fetch_add(1, Relaxed);
        Ok(Device(Box::leak(Box::new(DeviceInner::new(hal, index as u8, use_count as u8)))))
    }

    /// Takes a device out of service: lets go of [held](crate::testing::hold) streams, waits for its callbacks and its work, and
    /// gives its memory back. False, and nothing
    /// else, if buffers of it are alive, and in a forked child, to which the memory doesn't belong. Using a closed device
    /// afterwards is safe and opens nothing anew; closing it again gives back what it has taken since. A lost one can be
    /// closed, too. [`Error::InCallback`] if it is called in one of
    /// those callbacks.
    pub fn close(self) -> Result<bool> {
        if fork::is_child(self.0) {
            return fork::check(self.0).map(|()| false);
        }
        if !fault!(close_waits_for_holds) {
            self.0.let_go_of_all();
        }
        self.drain_callbacks("close")?;
        local::release(self.0);
        let synchronized = if fault!(close_in_flight) { Ok(()) } else { self.synchronize() };
        match synchronized {
            // After a loss nothing is in flight.
            Ok(()) | Err(Error::Device { error: hal::DeviceError::Lost { .. }, .. }) => {}
            Err(error) => return Err(error),
        }
        if fault!(close_unbinds) {
            self.0.all_streams().for_each(|stream| stream.users.store(0, Relaxed));
        }
        self.0.release_stamps();
        self.0.release_gates();
        self.empty_cache();
        let closed = self.0.allocator.is_empty();
        // Once: the index may be another device's by now.
        if closed && !self.0.closed.swap(true, Relaxed) {
            OPEN[self.0.index as usize].store(false, Relaxed);
        }
        Ok(closed)
    }

    /// As the user names it: `cpu`, `cuda:0`, `sim:7`.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// What it is like.
    pub fn info(&self) -> &'static hal::Info {
        self.0.hal.info()
    }

    /// Memory with undefined content. Zero bytes take nothing of the device and can always be had, also past every limit; neither
    /// resources nor histories see them. Takes no lock that other threads want, as long as what this
    /// thread has freed will do. Blocks only when the device has no more: then it waits for what is in flight before it
    /// says so.
    #[inline]
    pub fn allocate(&self, size_bytes: usize) -> Result<Buffer> {
        if fork::is_child(self.0) {
            return fork::allocate(self.0, size_bytes);
        }
        if capture::is_on(self.0) {
            return capture::allocate(self.0, size_bytes);
        }
        self.0.allocate(size_bytes)
    }

    /// Puts a kernel on the current stream of this thread, behind everything that its operands have to wait for.
    ///
    /// The operands are as the kernel's doc says, outputs first: this has been checked by the caller. Doesn't wait for the
    /// result; blocks while the stream is full, and runs the kernel here on devices that do so. A kernel that fails here
    /// and now has written nothing; one that fails later is told to whoever reads what depends on it.
    #[inline]
    pub fn submit(&self, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        self.submit_named(kernel.name(), kernel, operands)
    }

    /// As [`Device::submit`], under the name that errors and traces show.
    #[inline]
    pub fn submit_named(&self, op: &'static str, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        if capture::is_on(self.0) {
            return capture::record(self.0, op, kernel, operands);
        }
        with_launch(op, self.0, kernel, operands, |launch, touches| self.launch(op, launch, touches))
    }

    #[inline]
    fn launch(&self, op: &'static str, launch: &Launch<'_>, touches: &mut [Touch<'_>]) -> Result<()> {
        if fork::is_child(self.0) {
            return fork::submit(self.0, op, launch, touches);
        }
        local::current(self.0)?.launch(op, launch, touches).map(drop)
    }

    /// Copies host bytes into a buffer, in stream order. The bytes have been read when this returns.
    ///
    /// Up to 64 MiB are copied aside if the device isn't there yet, and this doesn't block but for room on the stream. Of more no copy
    /// is kept, since that would be memory past every limit: then it blocks until the device has come to it and has read the
    /// bytes, and others that submit to the same stream wait meanwhile. Who minds gives such uploads a stream of their own,
    /// or makes several of one.
    ///
    /// Errors: [`Error::BufferRange`], [`Error::BufferDevice`], and those of the device. Then nothing was copied.
    pub fn upload(&self, to: &Buffer, offset_bytes: usize, bytes: &[u8]) -> Result<()> {
        capture::refuse(self.0, "upload", NotCapturable::Upload)?;
        let block = self.range("upload", to, offset_bytes, bytes.len())?;
        let whole = bytes.len() == to.size_bytes();
        let from = hal::HostBytes { address: bytes.as_ptr() as usize, size_bytes: bytes.len() };
        let to = hal::Address { offset_bytes: block.address.offset_bytes + offset_bytes, ..block.address };
        let touch = Touch { block, access: Access::Write, whole };
        self.launch("upload", &Launch::Upload { from, to }, &mut [touch])
    }

    /// Copies bytes of a buffer to the host, behind what is on the current stream, and waits for that. If the bytes
    /// depend on a kernel that failed, its error is told here.
    ///
    /// Errors: [`Error::BufferRange`], [`Error::BufferDevice`], and those of the device.
    pub fn download(&self, from: &Buffer, offset_bytes: usize, bytes: &mut [u8]) -> Result<()> {
        capture::refuse(self.0, "download", NotCapturable::Download)?;
        let block = self.range("download", from, offset_bytes, bytes.len())?;
        let to = hal::HostBytes { address: bytes.as_mut_ptr() as usize, size_bytes: bytes.len() };
        let address =
            hal::Address { offset_bytes: block.address.offset_bytes + offset_bytes, ..block.address };
        let touch = Touch { block, access: Access::Read, whole: false };
        let launch = Launch::Download { from: address, to };
        if fork::is_child(self.0) {
            return fork::submit(self.0, "download", &launch, &[touch]);
        }
        let stream = local::current(self.0)?;
        // As it is for these bytes: the buffer may be written by others meanwhile.
        let taint = stream.launch("download", &launch, &mut [touch])?;
        // The bytes are borrowed until the copy is over: nothing may return before, not even an error.
        stream.0.synchronize(stream.0.latest().sequence())?;
        let taint = if fault!(failure_of_the_latest) { block.taint.load(Acquire) } else { taint };
        match taint {
            0 if !fault!(error_to_next_caller) => Ok(()),
            taint => self.failure(taint),
        }
    }

    /// The block of a buffer of this device that has these bytes.
    fn range<'a>(
        &self,
        op: &'static str,
        buffer: &'a Buffer,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<&'a Block> {
        let block = buffer.block();
        let buffer_bytes =
            if fault!(range_of_the_block) { block.capacity_bytes } else { buffer.size_bytes() };
        if !ptr::eq(block.device, self.0) {
            let (expected, found) = (self.name().into(), block.device.name().into());
            return Err(Error::BufferDevice { op, expected, found });
        }
        match offset_bytes.checked_add(size_bytes) {
            Some(end) if end <= buffer_bytes => Ok(block),
            _ => Err(Error::BufferRange { op, offset_bytes, size_bytes, buffer_bytes }),
        }
    }

    #[cold]
    fn failure(&self, taint: u64) -> Result<()> {
        let failure = self.0.taints.failure(taint, self.0);
        failure.map_or(Ok(()), |failure| Err(self.0.failed(failure)))
    }

    /// Waits for everything that has been submitted on any stream, and for what others have put on wrapped ones.
    pub fn synchronize(&self) -> Result<()> {
        capture::refuse(self.0, "synchronize", NotCapturable::Wait)?;
        if fork::is_child(self.0) { fork::check(self.0) } else { self.0.synchronize_all() }
    }

    /// What the streams have done. Nothing in a forked child.
    pub fn stream_stats(&self) -> StreamStats {
        let mut stats = StreamStats::default();
        if fork::is_child(self.0) {
            return stats;
        }
        for stream in self.0.all_streams() {
            let state = stream.state.lock();
            stats.streams += 1;
            stats.ops += state.sequence;
            stats.waits_inserted += state.inserted;
            stats.waits_elided += state.elided;
        }
        stats
    }

    /// What it keeps so as not to make it again: kernels, graphs. Counters never run backwards (all is 0 in a
    /// forked child). From any thread; doesn't block.
    pub fn cache_stats(&self) -> CacheStats {
        if fork::is_child(self.0) {
            return CacheStats::default(); // as below
        }
        CacheStats { device: self.0.hal.cache_stats(), graphs: self.0.graphs.stats() }
    }

    /// Lets go of all that the device keeps so as not to make it again: compiled kernels, algorithms, pinned memory,
    /// instances of graphs. What is in use stays until it isn't; captured graphs can be replayed, and make what they need
    /// anew. Files of compiled kernels stay, and memory of tensors is not touched ([`Device::empty_cache`]). May be called
    /// at any time from any thread; may block.
    pub fn clear_caches(&self) -> Result<()> {
        if fork::is_child(self.0) {
            return Ok(()); // Locks may be held by threads that are not here.
        }
        self.0.graphs.clear();
        self.0.hal.clear_caches().map_err(|error| self.0.error(error))
    }

    /// Lets go of what the calling thread keeps of this device so as not to make it again: prepared launches, scratch memory
    /// of kernels. Its stream and its free blocks stay ([`Device::release_current_thread`]). Doesn't block.
    pub fn clear_current_thread_caches(&self) {
        self.0.hal.clear_thread_caches();
    }

    /// Lets go of this thread's stream and its store of free blocks now rather than at its end.
    pub fn release_current_thread(&self) {
        local::release(self.0);
    }

    /// How many threads have each of the streams that have been made as their current one (or had it when they entered
    /// another), by slot.
    pub fn stream_users(&self) -> Vec<u32> {
        self.0.all_streams().map(dedicated::users).collect()
    }
}
