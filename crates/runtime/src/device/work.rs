//! Work on a device: memory for it, kernels, copies, waiting.

use crate::{
    graph,
    ground::{Device, Error, Floor, NotCapturable, Result, capturing, fork},
    memory::{Block, Buffer, Memory},
    order::{Stream, Streams, Tick},
    stream::{binding, sharing},
    submit::{Access, BlockAccess, Operand, child, with_launch},
};
use raddle_hal::{self as hal, Kernel, Launch};
use raddle_sync::{atomic::Ordering::*, fault};
use std::ptr;

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

/// May all be written that is written?
#[inline]
fn check_writable(op: &'static str, operands: &[Operand<'_>]) -> Result<()> {
    let mut written = operands.iter().filter(|operand| operand.access == Access::Write);
    written.try_for_each(|operand| operand.buffer.check_writable(op))
}

impl Stream {
    /// As [`Device::submit_named`], on this stream.
    pub fn submit_kernel(self, op: &'static str, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        check_writable(op, operands)?;
        if capturing::is_on(self.0.device) {
            return graph::record(Memory::of(self.0.device.core), op, kernel, operands);
        }
        with_launch(op, self.0.device.core, kernel, operands, |launch, touches| {
            if fork::is_child(self.0.device) {
                return child::submit(self.0.device, op, launch, touches);
            }
            self.launch(op, launch, touches).map(drop)
        })
    }
}

/// What other code has to wait for.
impl Stream {
    /// Puts whatever comes to this stream from now on, also what others put on a [wrapped](Stream::wrap) one, behind everything
    /// that touches a buffer now. Waits for nothing but room on the stream, on which it takes a place.
    ///
    /// Errors: [`Error::StreamDevice`], [`Error::StreamClosed`], [`Error::NotCapturable`]; not that of a kernel on which the content depends.
    pub fn wait_buffer(self, buffer: &Buffer) -> Result<()> {
        let op = "wait_buffer";
        let streams = self.0.device;
        if !ptr::eq(buffer.block().device, streams.core) {
            let (expected, found) = (buffer.device().name().into(), streams.name().into());
            return Err(Error::StreamDevice { op, expected, found });
        }
        capturing::refuse(streams, op, NotCapturable::Wait)?;
        if fork::is_child(streams) {
            return fork::check(streams);
        }
        self.wait_block(buffer.block()).map(drop)
    }

    /// Puts what comes to a buffer from now on behind a tick.
    pub(super) fn take_over(self, buffer: &Buffer, behind: Tick) -> Result<()> {
        let all = BlockAccess { block: buffer.block(), access: Access::Write, whole: false };
        self.submit("wait", &Launch::Nothing, &mut [all], &[behind]).map(drop)
    }

    fn wait_block(self, block: &Block) -> Result<u64> {
        let access = if fault!(waits_for_writes_only) { Access::Read } else { Access::Write };
        self.submit("wait", &Launch::Nothing, &mut [BlockAccess { block, access, whole: false }], &[])
    }
}

impl Buffer {
    /// Is everything complete that touches the memory, and does its content depend on no kernel that may have failed? Then
    /// [`Buffer::synchronize`] returns at once. Doesn't block.
    pub fn query(&self) -> bool {
        let (block, streams) = (self.block(), Streams::of(self.device().0));
        block.taint.load(Relaxed) == 0 && block.marks.are_over(|tick| streams.is_complete(tick))
    }

    /// Blocks until everything that touches the memory is complete, so that other code may read and write it. At once, without a call
    /// of the device, if it is. If the content depends on a kernel that failed, its error is told here.
    pub fn synchronize(&self) -> Result<()> {
        let (block, device) = (self.block(), self.device());
        capturing::refuse(device.0, "synchronize", NotCapturable::Wait)?;
        let streams = Streams::of(device.0);
        if fork::is_child(device.0) {
            let read = BlockAccess { block, access: Access::Read, whole: false };
            return child::submit(streams, "synchronize", &Launch::Nothing, &[read]);
        }
        if self.query() {
            return Ok(());
        }
        let stream = binding::current(streams)?;
        let taint = stream.wait_block(block)?;
        stream.0.synchronize(stream.0.latest().sequence())?;
        if taint == 0 { Ok(()) } else { device.failure(taint) }
    }
}

impl Device {
    /// Does this thread record the ops of this device?
    #[inline]
    pub fn is_capturing(&self) -> bool {
        capturing::is_on(self.0)
    }

    /// Memory with undefined content. Zero bytes take nothing of the device and can always be had, also past every limit; neither
    /// resources nor histories see them. Takes no lock that other threads want, as long as what this
    /// thread has freed will do. Blocks only when the device has no more: then it waits for what is in flight before it
    /// says so.
    #[inline]
    pub fn allocate(&self, size_bytes: usize) -> Result<Buffer> {
        if fork::is_child(self.0) {
            return Memory::of(self.0).allocate_in_child(size_bytes);
        }
        if capturing::is_on(self.0) {
            return graph::allocate(Memory::of(self.0), size_bytes);
        }
        Memory::of(self.0).allocate(size_bytes)
    }

    /// Puts a kernel on the current stream of this thread, behind everything that its operands have to wait for.
    ///
    /// The operands are as the kernel's doc says, outputs first: this has been checked by the caller. Doesn't wait for the
    /// result; blocks while the stream is full, and runs the kernel here on devices that do so. A kernel that fails here
    /// and now has written nothing; one that fails later is told to whoever reads what depends on it. One that would write memory
    /// that may only be read is refused ([`Error::ReadOnly`]).
    #[inline]
    pub fn submit(&self, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        self.submit_named(kernel.name(), kernel, operands)
    }

    /// As [`Device::submit`], under the name that errors and traces show.
    #[inline]
    pub fn submit_named(&self, op: &'static str, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        check_writable(op, operands)?;
        if capturing::is_on(self.0) {
            return graph::record(Memory::of(self.0), op, kernel, operands);
        }
        with_launch(op, self.0, kernel, operands, |launch, touches| self.launch(op, launch, touches))
    }

    #[inline]
    fn launch(&self, op: &'static str, launch: &Launch<'_>, touches: &mut [BlockAccess<'_>]) -> Result<()> {
        if fork::is_child(self.0) {
            return child::submit(Streams::of(self.0), op, launch, touches);
        }
        binding::current(Streams::of(self.0))?.launch(op, launch, touches).map(drop)
    }

    /// Copies host bytes into a buffer, in stream order. The bytes have been read when this returns.
    ///
    /// Up to 64 MiB are copied aside if the device isn't there yet, and this doesn't block but for room on the stream. Of more no copy
    /// is kept, since that would be memory past every limit: then it blocks until the device has come to it and has read the
    /// bytes, and others that submit to the same stream wait meanwhile. Who minds gives such uploads a stream of their own,
    /// or makes several of one.
    ///
    /// Errors: [`Error::BufferRange`], [`Error::BufferDevice`], [`Error::ReadOnly`], and those of the device. Then nothing was copied.
    pub fn upload(&self, to: &Buffer, offset_bytes: usize, bytes: &[u8]) -> Result<()> {
        capturing::refuse(self.0, "upload", NotCapturable::Upload)?;
        let block = self.range("upload", to, offset_bytes, bytes.len())?;
        to.check_writable("upload")?;
        let whole = bytes.len() == to.size_bytes();
        let from = hal::HostBytes { address: bytes.as_ptr() as usize, size_bytes: bytes.len() };
        let to = hal::Address { offset_bytes: block.address.offset_bytes + offset_bytes, ..block.address };
        let touch = BlockAccess { block, access: Access::Write, whole };
        self.launch("upload", &Launch::Upload { from, to }, &mut [touch])
    }

    /// Copies bytes of a buffer to the host, behind what is on the current stream, and waits for that. If the bytes
    /// depend on a kernel that failed, its error is told here.
    ///
    /// Errors: [`Error::BufferRange`], [`Error::BufferDevice`], and those of the device.
    pub fn download(&self, from: &Buffer, offset_bytes: usize, bytes: &mut [u8]) -> Result<()> {
        capturing::refuse(self.0, "download", NotCapturable::Download)?;
        let block = self.range("download", from, offset_bytes, bytes.len())?;
        let to = hal::HostBytes { address: bytes.as_mut_ptr() as usize, size_bytes: bytes.len() };
        let address =
            hal::Address { offset_bytes: block.address.offset_bytes + offset_bytes, ..block.address };
        let touch = BlockAccess { block, access: Access::Read, whole: false };
        let launch = Launch::Download { from: address, to };
        if fork::is_child(self.0) {
            return child::submit(Streams::of(self.0), "download", &launch, &[touch]);
        }
        let stream = binding::current(Streams::of(self.0))?;
        // As it is for these bytes: the buffer may be written by others meanwhile.
        let taint = stream.launch("download", &launch, &mut [touch])?;
        // The bytes are borrowed until the copy is over: nothing may return before, not even an error.
        stream.0.synchronize(stream.0.latest().sequence())?;
        let taint = if fault!(failure_of_the_latest) { block.taint.load(Acquire) } else { taint };
        match taint {
            0 => {
                fault!(error_to_next_caller => return self.failure(0));
                Ok(())
            }
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
        let streams = Streams::of(self.0);
        let failure = streams.taints.failure(taint, streams);
        failure.map_or(Ok(()), |failure| Err(streams.failed(failure)))
    }

    /// Waits for everything that has been submitted on any stream, and for what others have put on wrapped ones.
    pub fn synchronize(&self) -> Result<()> {
        capturing::refuse(self.0, "synchronize", NotCapturable::Wait)?;
        if fork::is_child(self.0) {
            fork::check(self.0)
        } else {
            Memory::of(self.0).above.synchronize_all(self.0)
        }
    }

    /// What the streams have done. Nothing in a forked child.
    pub fn stream_stats(&self) -> StreamStats {
        let mut stats = StreamStats::default();
        if fork::is_child(self.0) {
            return stats;
        }
        for stream in Streams::of(self.0).all_streams() {
            let state = stream.state.lock();
            stats.streams += 1;
            stats.ops += state.sequence;
            stats.waits_inserted += state.inserted;
            stats.waits_elided += state.elided;
        }
        stats
    }

    /// Lets go of this thread's stream and its store of free blocks now rather than at its end.
    pub fn release_current_thread(&self) {
        binding::release(Streams::of(self.0));
    }

    /// How many threads have each of the streams that have been made as their current one (or had it when they entered
    /// another), by slot.
    pub fn stream_users(&self) -> Vec<u32> {
        Streams::of(self.0).all_streams().map(sharing::users).collect()
    }
}
