//! What can be wrong with a backward pass. The text reads: where, what, expected, found.

use raddle_tensor::DType;

/// What functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why gradients couldn't be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error {
    /// An op of the backward pass failed.
    #[error(transparent)]
    Tensor(#[from] raddle_tensor::Error),
    /// `backward()` of something that isn't one number.
    #[error(
        "backward: the tensor has {found} elements (shape {shape:?}), expected 1, or a gradient to start from"
    )]
    NotScalar { shape: Vec<usize>, found: usize },
    /// Nothing that the tensor was made from requires a gradient.
    #[error("{op}: the tensor doesn't require grad and was made from none that does")]
    NoGraph { op: &'static str },
    /// A gradient is given to what has none.
    #[error("{op}: the tensor is no leaf that requires grad (see requires_grad_)")]
    NoLeaf { op: &'static str },
    /// A gradient that is given, to start from or to be a leaf's, doesn't fit.
    #[error("{op}: the gradient has the wrong {what}, expected {expected}, found {found}")]
    Gradient { op: &'static str, what: &'static str, expected: String, found: String },
    /// A tensor that the backward of `op` needs was written to after the forward pass.
    #[error(
        "backward: {operand} {index} of {op}, of shape {shape:?}, was changed in place since it was saved, \
         expected version {saved}, found {current}"
    )]
    Changed {
        op: &'static str,
        operand: &'static str,
        index: usize,
        shape: Vec<usize>,
        saved: u64,
        current: u64,
    },
    /// An op began when none of its tensors was in a graph. While it was being submitted another thread put one of them there,
    /// by a change in place. So it isn't known which of the two values the op has seen.
    #[error(
        "backward: {op} ran while another thread changed one of its tensors in place for the first time, \
         expected an order between the two"
    )]
    Raced { op: &'static str },
    /// A second backward pass through a graph whose saved tensors are gone.
    #[error(
        "backward: what {op} had saved was freed by an earlier pass, expected that one to retain the graph"
    )]
    Freed { op: &'static str },
    /// In a forked child: a thread of the parent was at this op of the graph just then.
    #[error("backward: {op} was being used by another thread when the process forked, expected none")]
    LostAtFork { op: &'static str },
    /// Only floats have gradients.
    #[error("requires_grad: the tensor has the wrong dtype, expected a float, found {found}")]
    DType { found: DType },
    /// Whether a result requires grad follows from what it was made of.
    #[error("requires_grad: the tensor is the result of {op}, expected a leaf (see detach)")]
    NotLeaf { op: &'static str },
    /// An unusable bound.
    #[error("{op}: {what} is out of range, expected {expected}, found {found}")]
    Argument { op: &'static str, what: &'static str, expected: &'static str, found: f64 },
}

impl From<Error> for raddle_tensor::Error {
    fn from(error: Error) -> raddle_tensor::Error {
        match error {
            Error::Tensor(error) => error,
            other => raddle_tensor::Error::layer(other),
        }
    }
}
