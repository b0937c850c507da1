//! Graphs: ops that are recorded once and replayed as one.

mod capture;
mod graphs;
mod instances;
mod replay;
mod template;

pub use capture::Capture;
pub(crate) use capture::{allocate, record};
pub use graphs::GraphCounts;
pub(crate) use graphs::Graphs;
pub use replay::{Graph, GraphStats};
pub use template::Replacement;
