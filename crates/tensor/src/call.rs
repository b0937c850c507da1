//! What was called, for whoever records: the op with its attributes, apart from the tensors.
//!
//! A [`Call`] comes with the tensors that it read and those that it made or wrote (see [`crate::record`]). It describes the
//! call as the user made it, not the launches that carried it out.

use raddle_base::{DType, Dims, Scalar};
use raddle_op::{Activation, PARAM_COUNT_MAX, Pointwise, Program, ScatterMode};
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
    /// A cast to another dtype, or a copy to another device.
    To,
    /// A view of the input.
    View(View),
    /// A reduction of the input over axes.
    Reduce {
        /// Which.
        op: Reduction,
        /// The reduced axes, as bits.
        axes: u8,
        /// Do they stay, with size 1?
        keepdim: bool,
    },
    /// Outputs: values and indices of the largest or smallest along an axis.
    MaxMin {
        /// The largest?
        largest: bool,
        /// The axis.
        axis: usize,
        /// Does it stay, with size 1?
        keepdim: bool,
    },
    /// Running sum.
    CumSum {
        /// The axis.
        axis: usize,
    },
    /// Inputs a, b; any ranks that `matmul` takes.
    MatMul,
    /// Inputs c, a, b: `beta · c + alpha · a b`.
    AddMm {
        /// Factor of c.
        beta: f64,
        /// Factor of the product.
        alpha: f64,
    },
    /// Inputs x [.., k], weight [n, k] and, if `bias`, bias `[n]`: `act(x weightᵀ + bias)`.
    Linear {
        /// Is there a bias?
        bias: bool,
        /// Applied last.
        activation: Activation,
    },
    /// Inputs values [b, k], index [b, k], weight [n, h] and, if `bias`, bias `[n]`.
    SparseLinear {
        /// Is there a bias?
        bias: bool,
    },
    /// Softmax, or its logarithm.
    Softmax {
        /// The axis.
        axis: usize,
        /// The logarithm?
        log: bool,
    },
    /// Inputs query, key, value and, if `mask`, mask; see `scaled_dot_product_attention`.
    Attention {
        /// Is there a mask?
        mask: bool,
        /// Does a query see only keys up to its own index?
        is_causal: bool,
        /// Factor of the products of query and key.
        scale: f64,
    },
    /// Inputs x, then weight, bias and what is added to x, if there are such; outputs y, mean, rstd.
    LayerNorm {
        /// How many axes, from the last.
        axes: usize,
        /// Is there a weight?
        weight: bool,
        /// Is there a bias?
        bias: bool,
        /// Is something added to x?
        addend: bool,
    },
    /// Outputs: values and indices of `sort` or `topk`.
    Sort {
        /// The axis.
        axis: usize,
    },
    /// Inputs source, index.
    Gather {
        /// The axis.
        axis: usize,
    },
    /// Inputs target, index, values.
    Scatter {
        /// The axis.
        axis: usize,
        /// Overwrite or add.
        mode: ScatterMode,
    },
    /// Inputs source, index (rank 0 or 1).
    IndexSelect {
        /// The axis.
        axis: usize,
    },
    /// Inputs target, index (rank 1), source: `target[.., index[i], ..] += alpha · source[.., i, ..]`.
    IndexAdd {
        /// The axis.
        axis: usize,
        /// Factor of the source.
        alpha: f64,
    },
    /// The inputs one after the other.
    Cat {
        /// The axis.
        axis: usize,
    },
    /// What lies on one side of a diagonal.
    Triangle {
        /// The upper side?
        upper: bool,
        /// Which diagonal.
        diagonal: i64,
    },
    /// The output was overwritten with values that depend on no input (random numbers, a fill, an upload).
    Overwrite,
    /// A result without gradient: indices, counts, random numbers made like the input.
    Constant,
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
