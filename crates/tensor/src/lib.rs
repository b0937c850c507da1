//! Tensors: shapes and views, checks, dispatch, and the methods made from the op table.
//!
//! Guarantees:
//! - **Everything is checked here.** Shapes, dtypes, devices, axes and overlap are checked before a launch, so that no
//!   backend checks again. A mistake of the caller is an [`Error`] whose text says where, what, expected, found; it
//!   never panics, and nothing has been written.
//! - **Whole writes.** An op writes every element of its output view and nothing else, whatever its strides. Outputs that
//!   overlap themselves, or an input other than as the very same view, are refused.
//! - **Any thread.** A [`Tensor`] is a handle; clones share memory and may be used from any thread. The runtime orders
//!   the work. Ops return before the work is done; only [`Tensor::to_vec`], [`Tensor::item`], printing and
//!   [`Tensor::nonzero`] wait for results.
//! - **PyTorch's rules** for promotion, broadcasting, the layout of results, NaN order and ties.
//!
//! What it doesn't know: who wants gradients. Each op passes through one funnel ([`record`]) that asks a tensor's *slot*, which
//! `grad` fills, whether somebody wants to know of it. What the gradients of an op are stands beside the op ([`gradient`]).
#![forbid(unsafe_code)]

mod arg;
mod attention;
mod call;
mod compose;
mod create;
mod error;
mod foreign;
mod fused;
mod generator;
pub mod gradient;
mod graph;
mod groups;
mod host;
mod index;
mod join;
mod linalg;
mod normalize;
mod number;
mod place;
mod pointwise;
mod print;
mod promote;
mod publish;
mod random;
pub mod record;
mod reduce;
mod scan;
mod sort;
mod sparse;
mod tensor;
mod view;

pub use arg::Arg;
pub use call::{CallArg, Reduction, View};
pub use compose::{Between, Fold, Padding, Unique, einsum};
pub use error::{Error, LayerError};
pub use fused::{Fused, fused, fused_many};
pub use generator::{Generator, manual_seed};
pub use graph::{Graph, Outputs, capture};
pub use groups::{PointwiseGroups, find_overlap, pointwise_groups};
pub use host::To;
pub use normalize::LayerNormGradients;
pub use number::fit;
pub use pointwise::{pointwise, pointwise_in_place, pointwise_out};
pub use promote::{can_cast, result_type};
pub use publish::{Published, Publisher};
pub use reduce::Axes;
pub use tensor::{Call, Tensor};
pub use view::INFER;

pub use raddle_base::{DType, Dims, Element, Layout, MAX_RANK, Overlap, Scalar, ViewError, bf16, f16};
pub use raddle_op::{Activation, Expr, Mask, Pointwise, Program, ProgramRef, ScatterMode};
pub use raddle_runtime::{
    Device, Foreign, GraphStats, Misfit, NotCapturable, Plain, Ready, on_release, uncaptured,
};

/// What an op returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
