//! The runtime: it alone orders work and decides when memory is free. (Being written: this is the interface, over a
//! stand-in that runs everything at once under one lock.)

use raddle_base::{DType, Layout};
use raddle_hal::{self as hal, DeviceError, Kernel, KernelError};
use std::sync::{Arc, Mutex};

/// What can go wrong below tensors.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No memory for a block, after everything that could be given back was.
    #[error(
        "{device}: out of memory, {asked_bytes} bytes asked, {free_bytes} free, {cached_bytes} cached, {pending_bytes} waiting for work in flight"
    )]
    OutOfMemory {
        device: String,
        asked_bytes: usize,
        free_bytes: usize,
        cached_bytes: usize,
        pending_bytes: usize,
    },
    /// The device is gone.
    #[error("{device}: {error}")]
    Device { device: String, error: DeviceError },
    /// A kernel failed on the device; what depends on its results gets this error.
    #[error("{op}: {error}")]
    Kernel { op: &'static str, error: KernelError },
}

type Result<T> = std::result::Result<T, Error>;

struct Inner {
    hal: Box<dyn hal::Device>,
    sequence: Mutex<u64>,
}

/// A device: a name for something that lives as long as the process.
#[derive(Clone, Copy)]
pub struct Device(&'static Inner);

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Device {}
impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

struct Block {
    device: Device,
    slab: hal::Slab,
}

/// A piece of device memory. Clones share it; the last one to go gives it back, whatever is still in flight.
#[derive(Clone)]
pub struct Buffer(Arc<Block>);

impl Buffer {
    /// Where it lies.
    pub fn device(&self) -> Device {
        self.0.device
    }
    /// How many bytes were asked for.
    pub fn size_bytes(&self) -> usize {
        self.0.slab.size_bytes
    }
    /// Is it the same memory?
    pub fn is(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What an op does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it (and may read it).
    Write,
}

/// An operand of a launch.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// The memory.
    pub buffer: &'a Buffer,
    /// What is done with it.
    pub access: Access,
    /// The type of the elements.
    pub dtype: DType,
    /// Where they lie.
    pub layout: &'a Layout,
}

impl Device {
    /// Takes a hal device into service.
    pub fn open(hal: Box<dyn hal::Device>) -> Result<Device> {
        let device = Device(Box::leak(Box::new(Inner { hal, sequence: Mutex::new(0) })));
        device
            .0
            .hal
            .open_queue(hal::QueueId(0), hal::Priority::Normal)
            .map_err(|error| device.error(error))?;
        Ok(device)
    }

    fn error(&self, error: DeviceError) -> Error {
        Error::Device { device: self.name().into(), error }
    }

    /// As the user names it.
    pub fn name(&self) -> &'static str {
        &self.0.hal.info().name
    }

    /// Memory with undefined content. Zero bytes are fine. Never blocks but when memory runs out.
    pub fn allocate(&self, size_bytes: usize) -> Result<Buffer> {
        let slab = self.0.hal.allocate_slab(size_bytes).map_err(|error| self.error(error))?;
        Ok(Buffer(Arc::new(Block { device: *self, slab })))
    }

    fn launch(&self, launch: &hal::Launch<'_>) -> Result<()> {
        let mut sequence = self.0.sequence.lock().expect("no panic");
        *sequence += 1;
        let queue = hal::QueueId(0);
        // SAFETY: a stand-in; everything runs in order on one queue.
        match unsafe { self.0.hal.submit(queue, *sequence, &[], launch) }
            .map_err(|error| self.error(error))?
        {
            // SAFETY: as above.
            hal::Submitted::Inline => unsafe { self.0.hal.run(queue, *sequence, launch) }
                .map_err(|error| Error::Kernel { op: "op", error }),
            hal::Submitted::Queued => {
                self.0.hal.flush(queue);
                self.0.hal.synchronize(queue, *sequence).map_err(|error| self.error(error))
            }
        }
    }

    /// Puts a kernel on the current stream of this thread. The operands are as the kernel's doc says: this has been
    /// checked by the caller. Doesn't wait for the result.
    pub fn submit(&self, kernel: &Kernel, operands: &[Operand<'_>]) -> Result<()> {
        let operands: Vec<hal::Operand> = operands
            .iter()
            .map(|operand| {
                let address = hal::Address { handle: operand.buffer.0.slab.handle, offset_bytes: 0 };
                let view = hal::View { address, dtype: operand.dtype, layout: *operand.layout };
                match operand.access {
                    Access::Read => hal::Operand::In(view),
                    Access::Write => hal::Operand::Out(view),
                }
            })
            .collect();
        self.launch(&hal::Launch::Kernel { kernel, operands: &operands })
    }

    /// Copies host bytes into a buffer, in stream order. The bytes have been read when this returns.
    pub fn upload(&self, to: &Buffer, offset_bytes: usize, bytes: &[u8]) -> Result<()> {
        let from = hal::HostBytes { address: bytes.as_ptr() as usize, size_bytes: bytes.len() };
        self.launch(&hal::Launch::Upload {
            from,
            to: hal::Address { handle: to.0.slab.handle, offset_bytes },
        })
    }

    /// Copies bytes of a buffer to the host; waits for the work that they depend on, and for nothing else. An error of a
    /// kernel that they depend on is told here.
    pub fn download(&self, from: &Buffer, offset_bytes: usize, bytes: &mut [u8]) -> Result<()> {
        let to = hal::HostBytes { address: bytes.as_mut_ptr() as usize, size_bytes: bytes.len() };
        self.launch(&hal::Launch::Download {
            from: hal::Address { handle: from.0.slab.handle, offset_bytes },
            to,
        })
    }

    /// Waits for everything that has been submitted.
    pub fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
