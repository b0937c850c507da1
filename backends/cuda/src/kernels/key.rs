//! The names of kernels.

use super::{pointwise_source, source};

/// Names a kernel: cheap to compare and to hash; everything that its source depends on, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub(super) Source);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// A program over elements.
    Pointwise(pointwise_source::Key),
    /// One of the texts, with settings.
    Text(source::Text),
}

impl Key {
    /// The whole CUDA C++ source, without includes. It defines one `extern "C" __global__` function, [`Key::entry`].
    pub fn source(&self) -> String {
        match &self.0 {
            Source::Pointwise(key) => key.source(),
            Source::Text(text) => text.source(),
        }
    }
    /// The name of the kernel in the source.
    pub fn entry(&self) -> &'static str {
        match &self.0 {
            Source::Pointwise(_) => "pointwise",
            Source::Text(text) => text.entry(),
        }
    }
}
