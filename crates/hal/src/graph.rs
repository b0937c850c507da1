//! Launches that are recorded once and replayed as one.

use crate::{Launch, Operand};
use raddle_op::Kernel;
use raddle_sync::global::OnceLock;
// std's, since no model replays a graph.
use std::{any::Any, sync::Arc};

/// A kernel with its operands, as [`Launch::Kernel`] lends them.
#[derive(Clone, Debug)]
pub struct Node {
    /// Which.
    pub kernel: Kernel,
    /// Outputs first, as the kernel says; where the device asked for scratch memory that is the last.
    pub operands: Box<[Operand]>,
}

/// Where a node draws its random numbers from, in place of what its kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Philox's key.
    pub key: u64,
    /// The first block.
    pub counter: u64,
}

/// Kernels in order, whose launch is one launch. It never changes; other operands are another graph.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    is_fallible: bool,
    made: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Graph {
    /// A graph of these nodes. Each may use what those before it have written.
    pub fn new(nodes: Vec<Node>) -> Graph {
        let is_fallible = nodes.iter().any(|node| node.kernel.is_fallible());
        Graph { nodes, is_fallible, made: OnceLock::new() }
    }

    /// The kernels, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Can one of them fail on the device?
    pub fn is_fallible(&self) -> bool {
        self.is_fallible
    }

    /// For the device: what it has made of the graph, an executable for example. It is dropped with the last count of the
    /// graph, on whatever thread that is, while launches may be in flight.
    pub fn made(&self) -> &OnceLock<Arc<dyn Any + Send + Sync>> {
        &self.made
    }

    /// For devices that replay it: each node as a launch of its own, in order.
    pub fn for_each(&self, draws: &[Draw], mut launch: impl FnMut(&Launch<'_>)) {
        let mut draws = draws.iter();
        for Node { kernel, operands } in &self.nodes {
            match kernel {
                Kernel::Random { distribution, .. } => {
                    let Draw { key, counter } = *draws.next().expect("there is one for each node that draws");
                    let kernel = Kernel::Random { distribution: *distribution, key, counter };
                    launch(&Launch::Kernel { kernel: &kernel, operands });
                }
                kernel => launch(&Launch::Kernel { kernel, operands }),
            }
        }
    }
}
