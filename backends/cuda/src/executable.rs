//! Executable graphs of CUDA.

use crate::{
    driver::{Function, Graph, GraphExec, GraphNode},
    errors::{Indices, RECORD_BYTES},
    matmul::Algorithm,
    prepared::Loaded,
};
use raddle_sync::Arc;

/// An executable graph, with all that its nodes need.
pub struct Executable {
    pub raw: GraphExec,
    /// What it was made of: its nodes are named by those of this.
    pub graph: Graph,
    pub draws: Vec<DrawNode>,
    pub records: Option<Records>,
    pub _kernels: Vec<Arc<Loaded>>,
    pub _algorithms: Vec<Arc<Algorithm>>,
}

/// A node whose key and counter change from launch to launch.
pub struct DrawNode {
    pub node: GraphNode,
    pub function: Function,
    /// In the hal's graph.
    pub index: usize,
}

/// Where nodes that can fail tell of it.
pub struct Records {
    pub address: u64,
    /// For each record: the axis that indices point into.
    pub indices: Arc<Vec<Indices>>,
}

impl Records {
    pub fn size_bytes(&self) -> usize {
        self.indices.len() * RECORD_BYTES
    }
}
