//! Graphs: ops that are recorded once and replayed as one.

mod capture;
mod graph;
mod graphs;
mod instances;
mod template;

pub use capture::Capture;
pub(crate) use capture::{allocate, record};
pub use graph::{Graph, GraphStats};
pub use graphs::GraphCounts;
pub(crate) use graphs::Graphs;
pub use template::Replacement;
