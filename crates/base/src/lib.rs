//! The vocabulary of every other crate: dtypes and scalars, shapes and layouts, and what can be wrong with a view.
//!
//! Everything here is plain data: no device, no thread, no allocation on the heap. A [`Layout`] holds at most
//! [`MAX_RANK`] axes inline, so that describing an operand costs a copy and nothing else.
#![forbid(unsafe_code)]

mod dims;
mod dtype;
mod layout;
mod scalar;

pub use dims::{Dims, MAX_RANK};
pub use dtype::{DType, DTypes, Element, FloatFormat, elements};
pub use layout::{Layout, Overlap, ViewError};
pub use scalar::{Kind, Scalar};

pub use half::{bf16, f16};
