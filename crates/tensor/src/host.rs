//! From the host and back, and conversions.

use crate::{
    Call, DType, Device, Dims, Element, Error, Layout, Result, Scalar, Tensor,
    create::{check_dtype, dims},
    gradient::Moved,
    pointwise::check_out,
    record::{self, Mode},
};

/// What [`Tensor::to`] converts to: a dtype or a device.
pub trait To {
    /// The tensor with another dtype or on another device; the same handle if nothing changes.
    fn convert(self, tensor: &Tensor) -> Result<Tensor>;
}
impl To for DType {
    fn convert(self, tensor: &Tensor) -> Result<Tensor> {
        tensor.to_dtype(self)
    }
}
impl To for &Device {
    fn convert(self, tensor: &Tensor) -> Result<Tensor> {
        tensor.to_device(self)
    }
}

/// Are these as many bytes as the shape has elements?
pub(crate) fn check_bytes(op: &'static str, size_bytes: usize, shape: &Dims, dtype: DType) -> Result<()> {
    let size = shape.checked_product().and_then(|count| count.checked_mul(dtype.size_bytes()));
    if size != Some(size_bytes) {
        let expected = shape.checked_product().unwrap_or(usize::MAX);
        let found = size_bytes / dtype.size_bytes();
        return Err(Error::ElementCount { op, shape: shape.to_vec(), expected, found });
    }
    Ok(())
}

/// Kernels take bools for the numbers 0 and 1.
pub(crate) fn check_bools(op: &'static str, bytes: &[u8], dtype: DType) -> Result<()> {
    if dtype == DType::Bool
        && let Some(&found) = bytes.iter().find(|byte| **byte > 1)
    {
        return Err(Error::Argument { op, what: "a bool", expected: "0 or 1", found: found.into() });
    }
    Ok(())
}

impl Tensor {
    /// A tensor of the elements of `values` in row-major order.
    ///
    /// Errors: another number of elements than the shape has.
    pub fn from_slice<T: Element>(
        values: &[T],
        shape: impl AsRef<[usize]>,
        device: &Device,
    ) -> Result<Tensor> {
        let op = "from_slice";
        let shape = dims(op, shape.as_ref())?;
        if shape.checked_product() != Some(values.len()) {
            let expected = shape.checked_product().unwrap_or(usize::MAX);
            return Err(Error::ElementCount { op, shape: shape.to_vec(), expected, found: values.len() });
        }
        let mut bytes = Vec::with_capacity(std::mem::size_of_val(values));
        values.iter().for_each(|value| value.append_bytes(&mut bytes));
        Tensor::upload(op, &bytes, shape, T::DTYPE, device)
    }

    /// [`from_slice`](Tensor::from_slice) of a vector.
    pub fn from_vec<T: Element>(
        values: Vec<T>,
        shape: impl AsRef<[usize]>,
        device: &Device,
    ) -> Result<Tensor> {
        Tensor::from_slice(&values, shape, device)
    }

    /// A tensor without axes.
    pub fn scalar<T: Element>(value: T, device: &Device) -> Result<Tensor> {
        Tensor::from_slice(&[value], [0usize; 0], device)
    }

    /// A tensor of elements given as bytes, in native order and row-major.
    ///
    /// Errors: another number of bytes than the shape needs; a bool that is neither 0 nor 1.
    pub fn from_bytes(
        bytes: &[u8],
        shape: impl AsRef<[usize]>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let op = "from_bytes";
        let shape = dims(op, shape.as_ref())?;
        check_bytes(op, bytes.len(), &shape, dtype)?;
        check_bools(op, bytes, dtype)?;
        Tensor::upload(op, bytes, shape, dtype, device)
    }

    /// A tensor of as many bytes as it has.
    fn upload(op: &'static str, bytes: &[u8], shape: Dims, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = Tensor::allocate(op, Layout::contiguous(shape), dtype, device)?;
        tensor.upload_bytes(bytes)?;
        Ok(tensor)
    }

    /// Into the part of the storage where a contiguous tensor begins.
    fn upload_bytes(&self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let offset_bytes = self.storage_offset() * self.dtype().size_bytes();
        Ok(self.device().upload(self.buffer(), offset_bytes, bytes)?)
    }

    /// Overwrites the elements with `values`, in row-major order; strides stay. `T` must be the type of the elements. The values
    /// have been read when this returns.
    ///
    /// Errors: another number of elements; a tensor that can't be written in place, as one that is expanded.
    pub fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<&Tensor> {
        let op = "copy_from_slice";
        check_dtype(op, "the tensor", T::DTYPE, self)?;
        if values.len() != self.element_count() {
            let (expected, found) = (self.element_count(), values.len());
            return Err(Error::ElementCount { op, shape: self.shape().to_vec(), expected, found });
        }
        if !self.is_contiguous() {
            return self.copy_(&Tensor::from_slice(values, self.shape(), &self.device())?);
        }
        check_out(op, self, self.shape(), &self.device())?;
        let mut bytes = Vec::with_capacity(std::mem::size_of_val(values));
        values.iter().for_each(|value| value.append_bytes(&mut bytes));
        record::op(Mode::InPlace, &[self], &[self], || Call::Overwrite, || self.upload_bytes(&bytes))?;
        Ok(self)
    }

    /// The elements in row-major order as bytes. Waits for them.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let size_bytes = self.dtype().size_bytes();
        if self.layout().is_empty() {
            return Ok(Vec::new());
        }
        let packed = if self.is_contiguous() { self.detach() } else { self.detach().row_major_copy()? };
        let mut bytes = vec![0; self.element_count() * size_bytes];
        self.device().download(packed.buffer(), packed.storage_offset() * size_bytes, &mut bytes)?;
        Ok(bytes)
    }

    /// The elements in row-major order. Waits for them. `T` must be the type of the elements; see [`Tensor::to`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check_dtype("to_vec", "the tensor", T::DTYPE, self)?;
        Ok(self.to_bytes()?.chunks_exact(T::DTYPE.size_bytes()).map(T::from_bytes).collect())
    }

    /// The only element. Waits for it. `T` must be the type of the elements.
    pub fn item<T: Element>(&self) -> Result<T> {
        check_dtype("item", "the tensor", T::DTYPE, self)?;
        Ok(T::from_scalar(self.to_scalar()?))
    }

    /// The only element, of whatever dtype. Waits for it.
    pub fn to_scalar(&self) -> Result<Scalar> {
        let op = "item";
        if self.element_count() != 1 {
            return Err(Error::NotOneElement { op, found: self.element_count() });
        }
        Ok(self.dtype().scalar_from_bytes(&self.to_bytes()?))
    }

    /// With another dtype, or on another device: `x.to(DType::F16)`, `x.to(&device)`. The same tensor if it is so already.
    /// Floats become integers by truncation; to bool everything but 0 is true.
    pub fn to(&self, target: impl To) -> Result<Tensor> {
        target.convert(self)
    }

    /// Converted to a dtype; strides are kept if it is dense.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let out = Tensor::allocate("to", self.layout().preserved(), dtype, &self.device())?;
        self.copy_into_fresh(&out)?;
        Ok(out)
    }

    /// A row-major copy on another device, through the host: it waits for the elements.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if *device == self.device() {
            return Ok(self.clone());
        }
        let out = Tensor::allocate("to", Layout::contiguous(*self.shape()), self.dtype(), device)?;
        let run = || out.upload_bytes(&self.detach().to_bytes()?);
        record::fresh(&[self], &[&out], || Call::op(Moved), run)?;
        Ok(out)
    }
}
