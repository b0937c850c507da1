//! Launches that are recorded once and replayed as one.

use crate::{Operand, View};
use raddle_op::Kernel;
use raddle_sync::{fault, global::OnceLock};
// std's, since no model replays a graph.
use std::{any::Any, ops::Range, sync::Arc};

/// A kernel with its operands, as [`Launch::Kernel`](crate::Launch::Kernel) lends them.
#[derive(Clone, Debug)]
pub struct Node {
    /// The kernel.
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

    /// For each node, in order, the nodes before it that it has to come after: those that touch a byte that it touches, one of
    /// the two writing. What follows from others is left out. Nodes that aren't ordered so may run beside each other. (The
    /// bytes of a view are all from its first to its last element, whatever it leaves out.)
    pub fn dependencies(&self) -> Vec<Vec<usize>> {
        let uses: Vec<Vec<Use>> =
            self.nodes.iter().map(|node| node.operands.iter().map(Use::of).collect()).collect();
        // All that a node comes after, a bit each.
        let mut behind: Vec<Vec<u64>> = Vec::with_capacity(uses.len());
        let mut all = Vec::with_capacity(uses.len());
        for (node, own) in uses.iter().enumerate() {
            let mut direct = Vec::new();
            let mut after = vec![0u64; uses.len().div_ceil(64)];
            for before in (0..node).rev() {
                let is_ordered = after[before / 64] >> (before % 64) & 1 == 1;
                if !is_ordered && own.iter().any(|own| uses[before].iter().any(|other| own.meets(other))) {
                    direct.push(before);
                    after[before / 64] |= 1 << (before % 64);
                    after.iter_mut().zip(&behind[before]).for_each(|(after, behind)| *after |= behind);
                }
            }
            behind.push(after);
            all.push(direct);
        }
        all
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

    /// For devices that replay it: each node's kernel, with what it draws, and operands, in order.
    pub fn for_each(&self, draws: &[Draw], mut run: impl FnMut(&Kernel, &[Operand])) {
        let mut draws = draws.iter();
        for Node { kernel, operands } in &self.nodes {
            match kernel {
                Kernel::Random { distribution, .. } => {
                    let Draw { key, counter } = *draws.next().expect("there is one for each node that draws");
                    run(&Kernel::Random { distribution: *distribution, key, counter }, operands);
                }
                kernel => run(kernel, operands),
            }
        }
    }
}

/// What a node does with some bytes.
struct Use {
    handle: u64,
    bytes: Range<usize>,
    is_write: bool,
}

impl Use {
    fn of(operand: &Operand) -> Use {
        let View { address, dtype, layout } = operand.view();
        let byte = |elements: usize| address.offset_bytes + elements * dtype.size_bytes();
        Use {
            handle: address.handle,
            bytes: byte(layout.offset())..byte(layout.end()),
            is_write: operand.is_out(),
        }
    }

    /// Must the two stay in order?
    fn meets(&self, earlier: &Use) -> bool {
        let mut is_write = self.is_write;
        fault!(graph_forgets_reads => is_write = false);
        (is_write || earlier.is_write)
            && self.handle == earlier.handle
            && self.bytes.start < earlier.bytes.end
            && earlier.bytes.start < self.bytes.end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Address;
    use raddle_base::{DType, Dims, Layout, Scalar};
    use raddle_sync::faults::{Fault, plant};
    use std::sync::{Mutex, PoisonError};

    /// A fault is the whole process's.
    static TURN: Mutex<()> = Mutex::new(());

    /// Elements `first..first + count` of a slab, or every second of them.
    fn view(handle: u64, first: usize, count: usize, step: usize) -> View {
        let dims = |number| Dims::new(&[number]).expect("one axis");
        let layout = Layout::new(dims(count.div_ceil(step)), dims(step), first);
        View { address: Address { handle, offset_bytes: 64 }, dtype: DType::F32, layout }
    }

    fn graph(nodes: impl IntoIterator<Item = Vec<Operand>>) -> Graph {
        let kernel = Kernel::Iota { start: Scalar::Int(0), step: Scalar::Int(1) };
        let node = |operands: Vec<Operand>| Node { kernel: kernel.clone(), operands: operands.into() };
        Graph::new(nodes.into_iter().map(node).collect())
    }

    /// Pairs of nodes of random graphs that touch the same element, one writing, and that nothing orders.
    fn unordered() -> usize {
        let mut state = 5u64;
        let mut below = move |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let mut unordered = 0;
        for _ in 0..300 {
            let count = below(80);
            let operands: Vec<Vec<(bool, View)>> = (0..count)
                .map(|_| {
                    (0..1 + below(3))
                        .map(|_| (below(2) == 0, view(below(2) as u64, below(30), below(4), 1 + below(2))))
                        .collect()
                })
                .collect();
            let operand = |&(is_out, view)| if is_out { Operand::Out(view) } else { Operand::In(view) };
            let graph = graph(operands.iter().map(|operands| operands.iter().map(operand).collect()));
            let mut behind: Vec<Vec<bool>> = Vec::new();
            for direct in graph.dependencies() {
                let mut after = vec![false; count];
                for before in direct {
                    after[before] = true;
                    (0..before).for_each(|node| after[node] |= behind[before][node]);
                }
                behind.push(after);
            }
            for (node, own) in operands.iter().enumerate() {
                for before in (0..node).filter(|&before| !behind[node][before]) {
                    let meets = own.iter().any(|(writes, own)| {
                        operands[before].iter().any(|(wrote, other)| {
                            (*writes || *wrote)
                                && own.address.handle == other.address.handle
                                && own
                                    .layout
                                    .offsets()
                                    .any(|at| other.layout.offsets().any(|place| place == at))
                        })
                    });
                    unordered += usize::from(meets);
                }
            }
        }
        unordered
    }

    #[test]
    fn nodes_that_meet_are_ordered() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(unordered(), 0);
    }

    #[test]
    fn fault_graph_forgets_reads() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _planted = plant(Fault::graph_forgets_reads);
        assert_ne!(unordered(), 0, "the check sees it");
    }

    #[test]
    fn only_what_meets_is_ordered() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let [a, b, c] = [0, 4, 8].map(|first| view(1, first, 4, 1));
        let (reads, writes) = (Operand::In, Operand::Out);
        let graph = graph([
            vec![writes(a)],
            vec![writes(b)],
            vec![writes(c), reads(a)],
            vec![reads(a)],
            // Behind the first through those that read it.
            vec![writes(a), reads(c), reads(view(1, 0, 0, 1))],
            vec![writes(view(2, 0, 12, 1))],
        ]);
        let [none, first]: [&[usize]; 2] = [&[], &[0]];
        assert_eq!(graph.dependencies(), [none, none, first, first, &[3, 2], none]);
    }
}
