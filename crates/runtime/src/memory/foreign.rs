//! Memory of others: a block of memory that somebody else has allocated, and wants back.
//!
//! It is a third home of a block, beside the classes of small blocks and the list of large ones. What is the same: it has marks and
//! handles, so ops are ordered as on any buffer, and it is found by its address. What is another: no list of free blocks ever
//! has it, so it is never given out; it isn't filled with junk; it counts neither as allocated nor against a limit, since it is
//! somebody else who has it. Its marks begin with the tick of what the producer has put on a stream, so that the first op that
//! reads it is ordered behind that (T2).
//!
//! How it ends: [`release`](super::release).

use super::{
    block::{Block, FreeBlock, Owner, Source},
    buffer::Buffer,
    classes::{FOREIGN, READ_ONLY},
    policy::AllocInterceptors,
    report::history::MemoryEventKind,
    store::Memory,
};
use crate::{
    ground::{Device, Error, Floor, Result, fork},
    order::{Marks, Tick},
};
use raddle_hal::{Address, DeviceError};
use raddle_sync::{atomic::Ordering::*, fault};
use std::{fmt, mem};

/// Numbers whose bytes may be any, so that memory of the host may be taken for them.
///
/// # Safety
/// - Every byte of a value is initialized.
/// - What a device writes for the dtype of that name is a value.
pub unsafe trait Plain: Copy + Send + 'static {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: a number without padding. What is written as a bool is 0 or 1.
        unsafe impl Plain for $t {}
    )* };
}
plain!(u8, i32, i64, raddle_base::f16, raddle_base::bf16, f32, f64, bool);

/// Memory that somebody else has, on its way to a device that [adopts](Device::adopt) it. Dropping it drops the owner, which is
/// how the memory is given back.
pub struct Foreign {
    device: Device,
    address: u64,
    size_bytes: usize,
    is_read_only: bool,
    owner: Box<dyn Send>,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes at {:#x} of {})", self.size_bytes, self.address, self.device.name())
    }
}

impl Foreign {
    /// Memory at an address, as the API of the device knows it: of CUDA a `CUdeviceptr`, of the CPU and the simulator a pointer.
    /// `owner` is dropped when the memory isn't used any more; see [`on_release`] for a function that is called then.
    ///
    /// # Safety
    /// - Until the owner is dropped, work on the device may read, and, unless it is [read-only](Foreign::read_only), write these bytes.
    /// - Meanwhile others write them, or read what is written here, only where that is ordered with the work here.
    /// - The owner may be dropped on any thread.
    pub unsafe fn new(
        device: &Device,
        address: u64,
        size_bytes: usize,
        owner: impl Send + 'static,
    ) -> Foreign {
        Foreign { device: *device, address, size_bytes, is_read_only: false, owner: Box::new(owner) }
    }

    /// The same, which no op may write: one that is asked to is refused with [`Error::ReadOnly`].
    pub fn read_only(self) -> Foreign {
        Foreign { is_read_only: true, ..self }
    }

    /// The numbers of a vector, as they lie there. Ops may write them.
    ///
    /// Errors: as of [`Foreign::slice`].
    pub fn vec<T: Plain>(device: &Device, values: Vec<T>) -> Result<Foreign> {
        check_host(device)?;
        let mut values = mem::ManuallyDrop::new(values);
        let owner = Raw { start: values.as_mut_ptr(), length: values.len(), capacity: values.capacity() };
        let (address, size_bytes) = (owner.start as u64, mem::size_of_val(&values[..]));
        // SAFETY: the device computes in memory of the host; `Raw` has these bytes alone and frees them when it is dropped, on any
        // thread as the numbers are `Send`.
        Ok(unsafe { Foreign::new(device, address, size_bytes, owner) })
    }

    /// The numbers that an owner gives out: a file that is mapped, counted bytes, an array of another library. The owner is asked once,
    /// and not touched again until it is dropped. Ops may not write them, since others may have the same.
    ///
    /// Errors: [`Error::Device`] if the device doesn't compute in memory of the host, as a GPU; the owner is dropped then.
    pub fn slice<T: Plain>(device: &Device, owner: impl AsRef<[T]> + Send + 'static) -> Result<Foreign> {
        check_host(device)?;
        let owner = Kept(Box::into_raw(Box::new(owner)));
        // SAFETY: it was made just now, and nobody else has it.
        let values: &[T] = unsafe { &*owner.0 }.as_ref();
        let (address, size_bytes) = (values.as_ptr() as u64, mem::size_of_val(values));
        // SAFETY: the device computes in memory of the host; the slice is borrowed from the owner, which isn't touched until it is
        // dropped; nobody writes it, since ops are refused and others see it shared.
        Ok(unsafe { Foreign::new(device, address, size_bytes, owner) }.read_only())
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// May no op write it?
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The device that may adopt it.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Takes it in, behind what a tick stands for. The buffer's block names the slot of the list.
    pub(crate) fn adopt(self, behind: Tick) -> Result<Buffer> {
        let Foreign { device, address, size_bytes, is_read_only, owner } = self;
        let is_child = fork::is_child(device.0);
        if is_child {
            fork::check(device.0)?;
        }
        if size_bytes == 0 {
            return Ok(Buffer::empty(device.0)); // and there is nothing to own
        }
        let memory = Memory::of(device.0);
        let behind = if fault!(adopted_without_tick) { Tick::NONE } else { behind };
        // In a child the list is behind a lock of the parent.
        let mut list = (!is_child).then(|| memory.foreign.lock());
        let source = Source {
            class: if is_read_only { READ_ONLY } else { FOREIGN },
            index: list.as_ref().map_or(0, |list| list.place()),
            pool: 0,
        };
        let address = Address { handle: address, offset_bytes: 0 };
        let block = Block::new(device.0, address, size_bytes, source, Marks::written(behind));
        let block = FreeBlock::adopted(block, Owner { forks: fork::count(), memory: owner });
        if let Some(list) = &mut list {
            // SAFETY: the block leaves the list before it is destroyed.
            list.put(source.index, unsafe { block.reference() });
            memory.foreign_bytes.fetch_add(size_bytes, Relaxed);
        }
        drop(list);
        if memory.is_watched() && !is_child {
            AllocInterceptors::of(device.0).record(MemoryEventKind::Adopt, &block, size_bytes);
        }
        Ok(Buffer::give(block, size_bytes))
    }
}

fn check_host(device: &Device) -> Result<()> {
    if device.info().is_host {
        return Ok(());
    }
    Err(device.0.error(DeviceError::Unsupported { what: "way to compute in memory of the host" }))
}

/// The parts of a vector, while a device has the numbers.
struct Raw<T> {
    start: *mut T,
    length: usize,
    capacity: usize,
}

// SAFETY: it has them as the vector had.
unsafe impl<T: Send> Send for Raw<T> {}

impl<T> Drop for Raw<T> {
    fn drop(&mut self) {
        // SAFETY: they are the parts of a vector that was given up for this, once.
        drop(unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) });
    }
}

/// An owner in a place of its own, so that what it holds inside of itself stays where it is.
struct Kept<T>(*mut T);

// SAFETY: it has the owner as a box would.
unsafe impl<T: Send> Send for Kept<T> {}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// An owner that calls a function when it is dropped, on whatever thread that is.
pub fn on_release(release: impl FnOnce() + Send + 'static) -> impl Send + 'static {
    struct OnRelease<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for OnRelease<F> {
        fn drop(&mut self) {
            if let Some(release) = self.0.take() {
                release();
            }
        }
    }
    OnRelease(Some(release))
}

impl Buffer {
    /// Is it memory of others, which was [adopted](Device::adopt)?
    pub fn is_foreign(&self) -> bool {
        matches!(self.block().source.class, FOREIGN | READ_ONLY)
    }

    /// Is it memory that no op may write?
    pub fn is_read_only(&self) -> bool {
        self.block().source.class == READ_ONLY
    }

    /// [`Error::ReadOnly`] if it is memory that no op may write. Ops are refused anyway; whoever asks first can say which.
    #[inline]
    pub fn check_writable(&self, op: &'static str) -> Result<()> {
        if self.is_read_only() && !fault!(read_only_is_written) {
            return Err(read_only(op, self.block()));
        }
        Ok(())
    }
}

#[cold]
fn read_only(op: &'static str, block: &Block) -> Error {
    Error::ReadOnly { op, device: block.device.name().into(), size_bytes: block.capacity_bytes }
}
