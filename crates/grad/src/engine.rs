//! The backward pass: nodes in topological order, each once all gradients of its outputs have arrived.
//!
//! The order follows from the graph alone, so that sums have the same bits in every run. It runs on the calling thread
//! and on its stream; several threads may run passes at once, over shared leaves and shared graphs.

use crate::{
    Result,
    graph::{Edge, Gradient, Node},
    mode::ModeGuard,
    rules,
};
use raddle_sync::{Arc, fault};
use raddle_tensor::Tensor;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Where a pass ends.
pub(crate) enum Goal<'a> {
    /// In all leaves, whose gradients it adds to.
    Leaves,
    /// In these places, whose gradients it returns; leaves stay as they are.
    Places(&'a [Edge]),
}

/// The part of a graph that a pass may run through.
struct Plan {
    /// Each before all that it was made from.
    nodes: Vec<Arc<Node>>,
    /// Where a node stands in `nodes`.
    positions: HashMap<usize, usize>,
    /// Does the node lead to the goal?
    needed: Vec<bool>,
}

impl Plan {
    fn new(roots: &[(Edge, Tensor)], goal: &Goal<'_>) -> Plan {
        let mut found: Vec<Arc<Node>> = Vec::new();
        let mut consumers: Vec<usize> = Vec::new();
        let mut indices: HashMap<usize, usize> = HashMap::new();
        let mut index_of = |node: &Arc<Node>, found: &mut Vec<Arc<Node>>, consumers: &mut Vec<usize>| {
            *indices.entry(Arc::as_ptr(node).addr()).or_insert_with(|| {
                found.push(node.clone());
                consumers.push(0);
                found.len() - 1
            })
        };
        for (edge, _) in roots {
            if let Edge::Node(node, _) = edge {
                index_of(node, &mut found, &mut consumers);
            }
        }
        let mut next = 0;
        while next < found.len() {
            let node = found[next].clone();
            for edge in node.edges.iter().flatten() {
                if let Edge::Node(source, _) = edge {
                    let index = index_of(source, &mut found, &mut consumers);
                    consumers[index] += 1;
                }
            }
            next += 1;
        }
        let mut ready: Vec<usize> = (0..found.len()).rev().filter(|&index| consumers[index] == 0).collect();
        let mut nodes = Vec::with_capacity(found.len());
        let mut positions = HashMap::with_capacity(found.len());
        while let Some(index) = ready.pop() {
            let node = &found[index];
            positions.insert(Arc::as_ptr(node).addr(), nodes.len());
            nodes.push(node.clone());
            for edge in node.edges.iter().flatten() {
                if let Edge::Node(source, _) = edge {
                    let index = indices[&Arc::as_ptr(source).addr()];
                    consumers[index] -= 1;
                    if consumers[index] == 0 {
                        ready.push(index);
                    }
                }
            }
        }
        let mut needed = vec![matches!(goal, Goal::Leaves); nodes.len()];
        if let Goal::Places(places) = goal {
            let wanted: Vec<_> = places.iter().map(Edge::key).collect();
            for (position, node) in nodes.iter().enumerate().rev() {
                needed[position] = node.edges.iter().flatten().any(|edge| {
                    wanted.contains(&edge.key())
                        || matches!(edge, Edge::Node(source, _) if needed[positions[&Arc::as_ptr(source).addr()]])
                });
            }
        }
        Plan { nodes, positions, needed }
    }
}

/// Runs a pass from `roots` with the gradients given for them; what the goal asks for, in its order.
pub(crate) fn run(roots: Vec<(Edge, Tensor)>, goal: &Goal<'_>, retain: bool) -> Result<Vec<Option<Tensor>>> {
    let _guard = ModeGuard::new(false);
    let plan = Plan::new(&roots, goal);
    let places: Vec<(usize, usize)> = match goal {
        Goal::Leaves => Vec::new(),
        Goal::Places(places) => places.iter().map(Edge::key).collect(),
    };
    let mut pass = Pass {
        arrived: plan.nodes.iter().map(|node| smallvec::smallvec![None; node.outputs.len()]).collect(),
        reached: vec![None; places.len()],
        places,
        plan,
    };
    for (edge, tensor) in roots {
        pass.deliver(&edge, Gradient { tensor, fresh: false })?;
    }
    for position in 0..pass.plan.nodes.len() {
        let node = pass.plan.nodes[position].clone();
        let mut gradients = std::mem::take(&mut pass.arrived[position]);
        pass.keep_reached(&node, &mut gradients);
        if !pass.plan.needed[position] {
            continue;
        }
        if gradients.iter().all(Option::is_none) {
            if !retain {
                node.free()?;
            }
            continue;
        }
        let context = node.open(retain)?;
        context.check()?;
        let results = rules::apply(&context, gradients)?;
        if !fault!(checked_before_it_reads) {
            context.check()?;
        }
        drop(context);
        for (edge, result) in node.edges.iter().zip(results) {
            if let (Some(edge), Some(gradient)) = (edge, result) {
                pass.deliver(edge, gradient)?;
            }
        }
    }
    // A place that is asked for twice has been reached under its first mention.
    let first = |key: &(usize, usize)| pass.places.iter().position(|place| place == key);
    let found = |key| pass.reached[first(key)?].as_ref().map(|gradient| gradient.tensor.clone());
    Ok(pass.places.iter().map(found).collect())
}

/// The state of a pass.
struct Pass {
    plan: Plan,
    /// For each node the gradients of its outputs, as far as they have come.
    arrived: Vec<SmallVec<[Option<Gradient>; 2]>>,
    /// The places that are asked for, and what has come there.
    places: Vec<(usize, usize)>,
    reached: Vec<Option<Gradient>>,
}

impl Pass {
    fn deliver(&mut self, edge: &Edge, gradient: Gradient) -> Result<()> {
        let place = match edge {
            Edge::Leaf(leaf) if self.places.is_empty() => return leaf.accumulate(gradient),
            Edge::Leaf(_) => match self.places.iter().position(|place| *place == edge.key()) {
                Some(place) => &mut self.reached[place],
                None => return Ok(()),
            },
            Edge::Node(node, output) => {
                &mut self.arrived[self.plan.positions[&Arc::as_ptr(node).addr()]][*output]
            }
        };
        *place = Some(match place.take() {
            None => gradient,
            Some(before) => before.plus(gradient)?,
        });
        Ok(())
    }

    /// Notes the gradients of a node's outputs that are asked for.
    fn keep_reached(&mut self, node: &Arc<Node>, gradients: &mut [Option<Gradient>]) {
        let address = Arc::as_ptr(node).addr();
        for (place, reached) in self.places.iter().zip(&mut self.reached) {
            if place.0 == address
                && place.1 < gradients.len()
                && let Some(gradient) = &mut gradients[place.1]
            {
                gradient.fresh = false;
                *reached = Some(gradient.clone());
            }
        }
    }
}
