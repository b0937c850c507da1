//! What can be wrong with an optimizer. The text reads: where, what, expected, found.

/// What functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can be wrong with an optimizer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error {
    /// The update failed.
    #[error(transparent)]
    Tensor(#[from] raddle_tensor::Error),
    /// An option outside its range.
    #[error("{op}: {what} is out of range, expected {expected}, found {found}")]
    Option { op: &'static str, what: &'static str, expected: &'static str, found: f64 },
    /// A parameter stands in two places.
    #[error("{op}: parameter {parameter} of group {group} stands in a group already, expected each once")]
    Repeated { op: &'static str, group: usize, parameter: usize },
    /// Two parameters have an element in common (or so many lie in each other's gaps that it can't be told).
    #[error(
        "{op}: parameter {parameter} of group {group} shares memory with parameter {other} of group {other_group}, \
         expected memory of its own"
    )]
    Overlap { op: &'static str, group: usize, parameter: usize, other_group: usize, other: usize },
    /// A gradient of another shape than its parameter.
    #[error("{op}: the gradient of a parameter has the wrong shape, expected {expected:?}, found {found:?}")]
    Gradient { op: &'static str, expected: Vec<usize>, found: Vec<usize> },
    /// A step whose numbers a replay would repeat although they change.
    #[error("{op}: this step can't be captured on {device}, expected {expected}")]
    Capture { op: &'static str, device: &'static str, expected: &'static str },
    /// State of another optimizer, or of other parameters.
    #[error(
        "load_state: {what} of group {group}, parameter {parameter} doesn't fit, expected {expected}, found {found}"
    )]
    State { what: &'static str, group: usize, parameter: usize, expected: String, found: String },
}

impl From<Error> for raddle_tensor::Error {
    fn from(error: Error) -> raddle_tensor::Error {
        match error {
            Error::Tensor(error) => error,
            other => raddle_tensor::Error::layer(other),
        }
    }
}
