//! Memory of a device, and what a kernel does with it.

use raddle_base::{DType, Dims, Layout};

/// A piece of memory of the device, from [`Device::allocate_slab`](crate::Device::allocate_slab).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slab {
    /// What the device knows it by: a pointer on CPU and CUDA, a buffer object on Metal.
    pub handle: u64,
    /// Its size.
    pub size_bytes: usize,
}

/// A place in a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The slab's handle.
    pub handle: u64,
    /// From the start of the slab.
    pub offset_bytes: usize,
}

impl Address {
    /// As one number: what a pointer is on devices whose handles are pointers.
    pub fn number(self) -> u64 {
        self.handle.wrapping_add(self.offset_bytes as u64)
    }
}

/// A strided view of memory. Shape, strides and offset count elements of `dtype` from `address`.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The start of the storage.
    pub address: Address,
    /// The type of the elements.
    pub dtype: DType,
    /// Where they lie.
    pub layout: Layout,
}

/// What a kernel does with an operand. There is no third kind: what is staged for an `Out` must be copied back.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// Every element of the view is written, and nothing outside it. It may be read as well where the kernel says so.
    Out(View),
    /// The elements of the view are read.
    In(View),
}

impl Operand {
    /// Scratch memory as [`Device::prepare`](crate::Device::prepare) asks for it: the last operand, contiguous, of u8. Its content is undefined.
    pub fn scratch(address: Address, size_bytes: usize) -> Operand {
        let layout = Layout::contiguous([size_bytes].into_iter().collect());
        Operand::Out(View { address, dtype: DType::U8, layout })
    }
    /// The view, whatever is done with it.
    pub fn view(&self) -> &View {
        match self {
            Operand::Out(view) | Operand::In(view) => view,
        }
    }
    /// The shape of the view.
    pub fn shape(&self) -> &Dims {
        self.view().layout.shape()
    }
    /// Is it written?
    pub fn is_out(&self) -> bool {
        matches!(self, Operand::Out(_))
    }
}
