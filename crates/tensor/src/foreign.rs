//! Tensors over memory that somebody else has, without a copy. What is unsafe about it is to say that there is such memory:
//! that is [`Foreign::new`], of the runtime. What is here is safe.

use crate::{
    DType, Device, Element, Error, Layout, Result, Tensor,
    create::dims,
    host::{check_bools, check_bytes},
};
use raddle_base::ViewError;
use raddle_runtime::{Foreign, Plain, Ready};

impl Tensor {
    /// A tensor over memory of others, whose elements lie from its start on as `layout` says: views of it, and ops in place, are of
    /// the same memory. The device [adopts](raddle_runtime::Device::adopt) it, behind what `ready` says; when nothing uses it any more its
    /// owner is dropped. Waits for nothing.
    ///
    /// Memory that a living buffer of the device has already, as when it went to another library and comes back, is that buffer's: ops on
    /// the new tensor are ordered with those on all others of it, and the owner is dropped at once, since the buffer keeps the memory.
    ///
    /// Errors: the layout reaches past the end; the memory doesn't start at a multiple of an element's size; those of `adopt`. The
    /// owner is dropped then.
    pub fn from_foreign(memory: Foreign, layout: Layout, dtype: DType, ready: Ready<'_>) -> Result<Tensor> {
        let op = "from_foreign";
        let storage = memory.size_bytes() / dtype.size_bytes();
        if layout.end() > storage {
            return Err(ViewError::OutOfStorage { op, last: layout.end() - 1, storage }.into());
        }
        if memory.size_bytes() > 0 && !is_aligned(memory.address(), dtype) {
            let (expected, found) = ("a multiple of the size of an element", memory.address() as i64);
            return Err(Error::Argument { op, what: "the address", expected, found: found.into() });
        }
        let device = memory.device();
        if let Some((buffer, offset_bytes)) = device.find(&memory, ready)?
            && offset_bytes.is_multiple_of(dtype.size_bytes())
        {
            let offset = layout.offset() + offset_bytes / dtype.size_bytes();
            return Ok(Tensor::over(buffer, layout.with_offset(offset), dtype));
        }
        Ok(Tensor::over(device.adopt(memory, ready)?, layout, dtype))
    }

    /// A tensor of the elements of `values` in row-major order, over the vector's own memory where the device computes in memory of
    /// the host (`cpu`, `sim`); else a copy. That memory is no part of what the device has allocated, nor of its limits.
    ///
    /// Errors: another number of elements than the shape has.
    pub fn over_vec<T: Element + Plain>(
        values: Vec<T>,
        shape: impl AsRef<[usize]>,
        device: &Device,
    ) -> Result<Tensor> {
        if !device.info().is_host {
            return Tensor::from_slice(&values, shape, device);
        }
        let op = "over_vec";
        let shape = dims(op, shape.as_ref())?;
        check_bytes(op, size_of_val(&values[..]), &shape, T::DTYPE)?;
        Tensor::from_foreign(Foreign::vec(device, values)?, Layout::contiguous(shape), T::DTYPE, Ready::Now)
    }

    /// A tensor over bytes that an owner gives out, in native order and row-major: a file that is mapped, counted bytes. Where the
    /// device computes in memory of the host (`cpu`, `sim`), and the bytes start at a multiple of an element's size, it is a tensor
    /// over these bytes, which no op may write (`copy()` makes one that may be); else a copy.
    ///
    /// Errors: as of [`from_bytes`](Tensor::from_bytes).
    pub fn over_bytes(
        owner: impl AsRef<[u8]> + Send + 'static,
        shape: impl AsRef<[usize]>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let op = "over_bytes";
        let bytes = owner.as_ref();
        if !device.info().is_host || !is_aligned(bytes.as_ptr() as u64, dtype) {
            return Tensor::from_bytes(bytes, shape, dtype, device);
        }
        let shape = dims(op, shape.as_ref())?;
        check_bytes(op, bytes.len(), &shape, dtype)?;
        check_bools(op, bytes, dtype)?;
        // The owner moves to a place of its own, and may hold the bytes inside of itself.
        let memory = Foreign::slice(device, owner)?;
        if !is_aligned(memory.address(), dtype) || memory.size_bytes() != shape.product() * dtype.size_bytes()
        {
            return Err(Error::Argument {
                op,
                what: "the owner",
                expected: "one that gives out the same bytes each time, outside of itself",
                found: (memory.size_bytes() as i64).into(),
            });
        }
        Tensor::from_foreign(memory, Layout::contiguous(shape), dtype, Ready::Now)
    }
}

fn is_aligned(address: u64, dtype: DType) -> bool {
    address.is_multiple_of(dtype.size_bytes() as u64)
}
