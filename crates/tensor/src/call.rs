//! What was called, for whoever records: the op with its attributes, apart from the tensors.
//!
//! A [`Call`] comes with the tensors that it read and those that it made or wrote (see [`crate::record`]). It describes the
//! call as the user made it, not the launches that carried it out.

use crate::gradient::Op;
use raddle_base::{DType, Dims, Scalar};
use raddle_op::{PARAM_COUNT_MAX, Pointwise, Program};
use smallvec::SmallVec;
use std::sync::Arc;

/// An input of a recorded pointwise op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallArg {
    /// The next of the recorded inputs.
    Tensor,
    /// A number.
    Scalar(Scalar),
}

/// A reduction over axes that yields one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as the methods")]
pub enum Reduction {
    Sum,
    Mean,
    Prod,
    AMax,
    AMin,
    All,
    Any,
    /// Variance; the sum of squared deviations is divided by `n − correction`.
    Var {
        correction: f64,
    },
    /// The root of the variance.
    Std {
        correction: f64,
    },
    /// √ Σ x²
    Norm2,
}

/// What was called.
#[derive(Clone, Debug)]
pub enum Call {
    /// A row of the op table. The inputs are the tensors among `args`, in order.
    Pointwise {
        /// Which.
        op: Pointwise,
        /// The row's inputs.
        args: SmallVec<[CallArg; 4]>,
        /// The row's scalar parameters; those that it doesn't have are 0.
        params: [Scalar; PARAM_COUNT_MAX],
    },
    /// A fused closure over all inputs; one output for each of the program's.
    Fused {
        /// What it computes.
        program: Arc<Program>,
        /// The dtype it computes in.
        compute: DType,
    },
    /// A view of the input.
    View(View),
    /// Any other op with a gradient.
    Op(Arc<dyn Op>),
    /// The output was overwritten with values that depend on no input (random numbers, a fill, an upload).
    Overwrite,
    /// A result without gradient: indices, counts, random numbers made like the input.
    Constant,
}

impl Call {
    pub(crate) fn op(op: impl Op) -> Call {
        Call::Op(Arc::new(op))
    }

    /// The name for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Pointwise { op, .. } => op.name(),
            Call::Fused { .. } => "fused",
            Call::View(view) => view.name(),
            Call::Op(op) => op.name(),
            Call::Overwrite => "fill",
            Call::Constant => "a constant",
        }
    }
}

/// A view of a tensor, so that it can be made again of another tensor of the same shape (a gradient).
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as the parameters of the methods; axes are resolved")]
pub enum View {
    Transpose {
        a: usize,
        b: usize,
    },
    Permute {
        axes: Dims,
    },
    Slice {
        axis: usize,
        start: usize,
        length: usize,
        step: usize,
    },
    Select {
        axis: usize,
        index: usize,
    },
    Expand {
        shape: Dims,
    },
    /// The same elements in row-major order; also squeeze, unsqueeze, flatten and reshape.
    Reshape {
        shape: Dims,
    },
    Unfold {
        axis: usize,
        size: usize,
        step: usize,
    },
    Diagonal {
        shift: isize,
        a: usize,
        b: usize,
    },
    AsStrided {
        shape: Dims,
        strides: Dims,
        offset: usize,
    },
    /// The tensor itself under another handle.
    Alias,
}
