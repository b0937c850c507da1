//! Attributes of recorded ops: what is in a [`Call`](crate::Call) beside tensors.

use raddle_base::{Dims, Scalar};

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
