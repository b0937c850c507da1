//! The graph: what the slots of tensors hold.
//!
//! A [`Node`] is one recorded op. Its edges lead to what made its inputs, never back, and saved tensors are detached
//! handles, so there is no cycle and a graph goes when its last result does. Graphs can be a million nodes deep: dropping
//! them, like running them, takes no stack.

use crate::{Error, Result, rule::Rule};
use arc_swap::ArcSwapOption;
use raddle_sync::{Arc, Mutex, MutexGuard, Rank, locks_at_fork};
use raddle_tensor::{
    Tensor,
    gradient::{self, Meta},
    record::refuse,
};
use smallvec::SmallVec;

/// A tensor's place in a graph.
#[derive(Clone)]
pub(crate) enum Edge {
    /// A tensor whose gradient is kept.
    Leaf(Arc<Leaf>),
    /// An output of an op.
    Node(Arc<Node>, usize),
}

impl Edge {
    /// The same for equal places, different for others that live.
    pub fn key(&self) -> (usize, usize) {
        match self {
            Edge::Leaf(leaf) => (Arc::as_ptr(leaf).addr(), usize::MAX),
            Edge::Node(node, output) => (Arc::as_ptr(node).addr(), *output),
        }
    }
}

/// A tensor that requires grad and wasn't made by a recorded op.
pub(crate) struct Leaf {
    pub meta: Meta,
    /// Without a lock, which a forked child could find held.
    grad: ArcSwapOption<Tensor>,
}

impl Leaf {
    pub fn new(tensor: &Tensor) -> Leaf {
        Leaf { meta: Meta::of(tensor), grad: ArcSwapOption::empty() }
    }

    pub fn grad(&self) -> Option<Tensor> {
        self.grad.load().as_deref().cloned()
    }

    /// Replaces the gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        self.grad.store(grad.map(Arc::new));
    }

    /// Adds to the gradient. Threads may do so at once: whoever comes first gives the tensor, the others add to it, and
    /// the runtime orders the additions.
    pub fn accumulate(&self, given: Gradient) -> Result<()> {
        let existing = self.grad();
        let existing = match existing {
            Some(existing) => Some(existing),
            None => {
                let own = Arc::new(self.own(&given)?);
                self.grad.compare_and_swap(&None::<Arc<Tensor>>, Some(own)).as_deref().cloned()
            }
        };
        if let Some(existing) = existing {
            existing.add_(&given.tensor)?;
        }
        Ok(())
    }

    /// The gradient as a tensor of its own, with the strides of the leaf.
    fn own(&self, given: &Gradient) -> Result<Tensor> {
        let tensor = &given.tensor;
        let wanted = self.meta.layout.preserved();
        let fills = tensor.storage_offset() == 0 && tensor.storage_element_count() == tensor.element_count();
        if given.fresh && fills && wanted.strides() == tensor.strides() {
            return Ok(tensor.detach());
        }
        let own = self.meta.empty()?;
        own.copy_(tensor)?;
        Ok(own)
    }
}

/// A gradient on its way.
#[derive(Clone)]
pub(crate) struct Gradient {
    pub tensor: Tensor,
    /// Does nobody else hold its memory? Then it may be kept or changed.
    pub fresh: bool,
}

impl Gradient {
    /// The sum of two, in the memory of one of them if that is free. Addition commutes, to the bit.
    pub fn plus(self, other: Gradient) -> Result<Gradient> {
        let (a, b) = if self.fresh { (self, other) } else { (other, self) };
        if a.fresh && !a.tensor.layout().self_overlap() {
            a.tensor.add_(&b.tensor)?;
            return Ok(a);
        }
        Ok(Gradient { tensor: a.tensor.add(&b.tensor)?, fresh: true })
    }
}

/// A tensor kept for backward, and the version that the op has seen.
#[derive(Clone)]
pub(crate) struct Saved {
    tensor: Tensor,
    version: u64,
    /// Of a copy of what an op has overwritten: what the op overwrote. (It is `version`, or others wrote between.)
    overwritten: Option<u64>,
}

impl Saved {
    pub fn new(tensor: &Tensor, version: u64) -> Saved {
        // Not the handle itself: its slot may come to hold the node that saves it.
        Saved { tensor: tensor.detach(), version, overwritten: None }
    }

    /// A copy of version `copied` of a tensor, in the place of the version that an op overwrote.
    pub fn copy_of(copy: &Tensor, copied: u64, overwritten: u64) -> Saved {
        Saved { tensor: copy.detach(), version: copied, overwritten: Some(overwritten) }
    }

    fn current(&self) -> u64 {
        self.overwritten.unwrap_or_else(|| self.tensor.version())
    }
}

/// Inputs and outputs, as far as they are kept.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub inputs: SmallVec<[Option<Saved>; 4]>,
    pub outputs: SmallVec<[Option<Saved>; 2]>,
}

/// A recorded op.
pub(crate) struct Node {
    pub rule: Rule,
    /// For each input what made it, if its gradient is wanted.
    pub edges: SmallVec<[Option<Edge>; 4]>,
    pub inputs: SmallVec<[Meta; 4]>,
    pub outputs: SmallVec<[Meta; 2]>,
    /// None once a backward pass has used it up.
    kept: Mutex<Option<Kept>>,
    /// The process's count of forks when it was made: a child may find the lock held for ever.
    forks: u32,
}

/// What a rule gets to see of its node.
pub(crate) struct Context<'a> {
    pub node: &'a Node,
    kept: Kept,
}

impl gradient::Context for Context<'_> {
    fn input_count(&self) -> usize {
        self.node.inputs.len()
    }
    fn wants(&self, input: usize) -> bool {
        self.node.edges[input].is_some()
    }
    fn meta(&self, input: usize) -> &Meta {
        &self.node.inputs[input]
    }
    fn find_input(&self, input: usize) -> Option<&Tensor> {
        self.kept.inputs.get(input)?.as_ref().map(|saved| &saved.tensor)
    }
    fn output(&self, output: usize) -> &Tensor {
        &self.kept.outputs[output].as_ref().expect("the op says that it needs this output").tensor
    }
}

impl Context<'_> {
    /// Is what was saved what the op has seen? Asked before the rule submits, which saves the work, and after: an op of
    /// another thread that has written by then has claimed the memory before a kernel of the rule read it, or may have. One
    /// that writes later is behind the rule.
    pub fn check(&self) -> Result<()> {
        let op = self.node.rule.name();
        let check = |operand, (index, saved): (usize, &Option<Saved>)| match saved {
            Some(saved) if saved.current() != saved.version => {
                let (shape, saved, current) = (saved.tensor.shape().to_vec(), saved.version, saved.current());
                Err(Error::Changed { op, operand, index, shape, saved, current })
            }
            _ => Ok(()),
        };
        self.kept.inputs.iter().enumerate().try_for_each(|saved| check("input", saved))?;
        self.kept.outputs.iter().enumerate().try_for_each(|saved| check("output", saved))
    }
}

impl Node {
    pub fn new(
        rule: Rule,
        edges: SmallVec<[Option<Edge>; 4]>,
        inputs: SmallVec<[Meta; 4]>,
        outputs: SmallVec<[Meta; 2]>,
        kept: Kept,
    ) -> Arc<Node> {
        Arc::new(Node {
            rule,
            edges,
            inputs,
            outputs,
            kept: Mutex::new(Rank::Leaf, Some(kept)),
            forks: locks_at_fork::fork_count(),
        })
    }

    /// What was saved. It is gone afterwards unless `retain`.
    pub fn open(&self, retain: bool) -> Result<Context<'_>> {
        let kept = if retain { self.kept()?.clone() } else { self.kept()?.take() };
        Ok(Context { node: self, kept: kept.ok_or(Error::Freed { op: self.rule.name() })? })
    }

    /// Saves something else, unless what was saved is gone.
    pub fn keep(&self, kept: Kept) -> raddle_tensor::Result<()> {
        let lost = |_| refuse(self.rule.name(), "the process forked at this op");
        let before = self.kept().map_err(lost)?.as_mut().map(|current| std::mem::replace(current, kept));
        drop(before);
        Ok(())
    }

    /// Lets go of what was saved.
    pub fn free(&self) -> Result<()> {
        let kept = self.kept()?.take();
        drop(kept);
        Ok(())
    }

    fn kept(&self) -> Result<MutexGuard<'_, Option<Kept>>> {
        self.kept.lock_made_at(self.forks).ok_or(Error::LostAtFork { op: self.rule.name() })
    }
}

/// Takes the graph apart without recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut edges: Vec<Edge> = self.edges.drain(..).flatten().collect();
        while let Some(edge) = edges.pop() {
            // If this was the last handle the node's edges are ours, and what drops here has none left.
            if let Edge::Node(node, _) = edge
                && let Some(mut node) = Arc::into_inner(node)
            {
                edges.extend(node.edges.drain(..).flatten());
            }
        }
    }
}
