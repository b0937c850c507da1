//! What can be wrong with a call. The text reads: where, what, expected, found.
//!
//! Errors of the crates above convert to this one, too, so that a function that uses several needs one type. They do so there,
//! with [`Error::layer`]: this crate doesn't know them.

use raddle_base::{DType, DTypes, Dims, Scalar, ViewError};
use std::sync::Arc;

/// Why an op was refused. Nothing has been written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error {
    /// An axis, a range, a broadcast or a view that the shape doesn't allow.
    #[error(transparent)]
    View(Box<ViewError>),
    /// The runtime or the device: out of memory, a lost device, a kernel that failed.
    #[error(transparent)]
    Runtime(#[from] raddle_runtime::Error),
    /// An operand has the wrong shape.
    #[error("{op}: {what} has the wrong shape, expected {expected:?}, found {found:?}")]
    Shape { op: &'static str, what: &'static str, expected: Vec<usize>, found: Vec<usize> },
    /// The axes that a product sums over differ.
    #[error(
        "{op}: inner sizes differ, lhs {lhs:?} axis {lhs_axis} is {}, rhs {rhs:?} axis {rhs_axis} is {}",
        .lhs[*.lhs_axis], .rhs[*.rhs_axis]
    )]
    InnerSize { op: &'static str, lhs: Vec<usize>, lhs_axis: usize, rhs: Vec<usize>, rhs_axis: usize },
    /// An operand lies in memory in another way than it must.
    #[error("{op}: {what} has the wrong strides, expected {expected:?}, found {found:?}")]
    Strides { op: &'static str, what: &'static str, expected: Vec<usize>, found: Vec<usize> },
    /// An operand has too few or too many axes.
    #[error("{op}: {what} has the wrong number of axes, expected {expected}, found {found}")]
    Rank { op: &'static str, what: &'static str, expected: &'static str, found: usize },
    /// An operand has a dtype that the op doesn't take.
    #[error("{op}: {what} has the wrong dtype, expected {expected}, found {found}")]
    DType { op: &'static str, what: &'static str, expected: &'static str, found: DType },
    /// Operands that must have one dtype have several.
    #[error("{op}: dtypes differ, lhs is {lhs}, rhs is {rhs}")]
    DTypesDiffer { op: &'static str, lhs: DType, rhs: DType },
    /// The result can't be stored in the output without losing its kind.
    #[error("{op}: a result of dtype {from} can't be stored in an output of dtype {to}")]
    Cast { op: &'static str, from: DType, to: DType },
    /// Operands are on different devices.
    #[error("{op}: operands are on different devices, expected {expected}, found {found}")]
    Device { op: &'static str, expected: &'static str, found: &'static str },
    /// No device of that name.
    #[error("device: unknown name {name:?}, expected one of: {known}")]
    UnknownDevice { name: String, known: &'static str },
    /// An output has elements that share memory.
    #[error(
        "{op}: the output of shape {shape:?} with strides {strides:?} has elements that share memory, use copy() first"
    )]
    SelfOverlap { op: &'static str, shape: Vec<usize>, strides: Vec<usize> },
    /// An output shares some memory with an input, but isn't the same view.
    #[error("{op}: the output overlaps {what} without being the same view, use copy() first")]
    Overlap { op: &'static str, what: &'static str },
    /// Of several that are written at once, one shares some memory with another, or with what is read beside it.
    #[error("{op}: an output shares memory with {what}, use copy() first")]
    Shared { op: &'static str, what: &'static str },
    /// A reduction without a neutral element over no elements.
    #[error("{op}: axis {axis} is empty, expected at least one element, shape is {shape:?}")]
    EmptyAxis { op: &'static str, axis: usize, shape: Vec<usize> },
    /// A parameter outside its range.
    #[error("{op}: {what} is out of range, expected {expected}, found {found}")]
    Argument { op: &'static str, what: &'static str, expected: &'static str, found: Scalar },
    /// The host gave too many or too few elements.
    #[error("{op}: shape {shape:?} has {expected} elements, found {found}")]
    ElementCount { op: &'static str, shape: Vec<usize>, expected: usize, found: usize },
    /// A single number was asked of a tensor that has none, or several.
    #[error("{op}: the tensor has the wrong number of elements, expected 1, found {found}")]
    NotOneElement { op: &'static str, found: usize },
    /// The device has no kernels for a dtype.
    #[error("{op}: {device} lacks the dtype, expected one of {expected}, found {found}")]
    Lacking { op: &'static str, device: &'static str, expected: DTypes, found: DType },
    /// An op on a list of tensors was given the wrong number of them.
    #[error("{op}: wrong number of tensors, expected {expected}, found {found}")]
    TensorCount { op: &'static str, expected: &'static str, found: usize },
    /// A recorded closure or program is given more or fewer of something than it has.
    #[error("{op}: wrong number of {what}, expected {expected}, found {found}")]
    Count { op: &'static str, what: &'static str, expected: usize, found: usize },
    /// What is left over for the size that is to be inferred isn't whole.
    #[error(
        "{op}: a size can't be inferred, the others make {known} elements, the tensor of shape {shape:?} has {found}"
    )]
    Infer { op: &'static str, known: usize, shape: Vec<usize>, found: usize },
    /// The result would be larger than any memory.
    #[error(
        "{op}: shape {shape:?} of {dtype} has more bytes than can be addressed{}",
        if .shape.contains(&0) { ", sizes of 0 counted as 1" } else { "" }
    )]
    TooLarge { op: &'static str, shape: Vec<usize>, dtype: DType },
    /// Whoever records ops (`grad`) refuses this one.
    #[error("{op}: {reason}")]
    Refused { op: &'static str, reason: &'static str },
    /// An error of a crate above: of gradients, optimizers, models.
    #[error(transparent)]
    Layer(LayerError),
}

impl Error {
    /// An error of a crate above this one.
    pub fn layer(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Layer(LayerError(Arc::new(error)))
    }
}

/// An error of a crate above this one, as it was made there: [`downcast_ref`](LayerError::downcast_ref) tells. Two are equal if
/// their texts are.
#[derive(Clone, Debug)]
pub struct LayerError(Arc<dyn std::error::Error + Send + Sync>);

impl LayerError {
    /// The error, if it is one of that type.
    pub fn downcast_ref<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for LayerError {
    fn eq(&self, other: &LayerError) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl std::fmt::Display for LayerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LayerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<ViewError> for Error {
    fn from(error: ViewError) -> Error {
        Error::View(Box::new(error))
    }
}

/// An error about the shape of an operand.
pub(crate) fn shape_error(op: &'static str, what: &'static str, expected: &Dims, found: &Dims) -> Error {
    Error::Shape { op, what, expected: expected.to_vec(), found: found.to_vec() }
}
