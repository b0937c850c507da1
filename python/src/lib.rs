//! Raddle for Python: the native module `raddle._raddle`.
//!
//! - Classes are frozen and hold handles that any thread may use; there is no lock here, and the module needs none of the
//!   interpreter's (`gil_used = false`). The interpreter's lock is given back where a call waits for the device, or computes
//!   for longer than that takes (`tensor::run`).
//! - Methods have PyTorch's names and meaning. Families come from tables: the pointwise ops from the op table itself.
//! - A mistake is an exception of Python's kind, with Raddle's text (`error`).
//!
//! What is shorter in Python stands in the package `raddle`: aliases, context managers, modules.
#![deny(unsafe_code)] // but in `dlpack`, which reads structures of C
#![allow(unsafe_op_in_unsafe_fn, reason = "PyO3 expands pairs of operators to such functions")]

mod arg;
mod autograd;
mod capture;
mod checkpoint;
mod composed;
mod create;
mod device;
mod dlpack;
mod dtype;
mod error;
mod fused;
mod host;
mod index;
mod nn;
mod optim;
mod pointwise;
mod product;
mod random;
mod reduce;
mod shape;
mod stream;
mod tensor;
mod text;

/// Raddle's native part; see the package `raddle`.
#[pyo3::pymodule(gil_used = false)]
mod _raddle {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        autograd::{
            _set_grad_enabled, backward, clip_grad_norm_, clip_grad_value_, gradients, is_grad_enabled,
        },
        capture::{PyGraph, PyPublished, PyPublisher, capture},
        checkpoint::{load_file, save_file},
        composed::{_einsum, _multi_dot, _triangle_indices},
        create::{
            arange, empty, empty_like, eye, full, full_like, linspace, manual_seed, ones, ones_like, rand,
            rand_like, randint, randn, randn_like, randperm, tensor, zeros, zeros_like,
        },
        device::PyDevice,
        dlpack::from_dlpack,
        dtype::PyDType,
        fused::PyKernel,
        host::{_rebuild, can_cast, promote_types, result_type},
        index::embedding,
        nn::{binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss, nll_loss},
        optim::{PyAdam, PyAdamW, PySgd},
        pointwise::{
            add, bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor, catalogue,
            choose, div, floor_divide, mul, pow, remainder, sub,
        },
        product::{dropout, layer_norm, linear, scaled_dot_product_attention},
        random::PyGenerator,
        shape::{broadcast_tensors, cat, stack},
        stream::{PyEvent, PyStream, current_stream, set_stream, synchronize},
        tensor::PyTensor,
        text::{_write_random_model, PySentenceEncoder},
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::dtype::register(module)?;
        crate::error::register(module)
    }
}
