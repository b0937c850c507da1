//! What users call.

use crate::{
    Error, Result,
    engine::{self, Goal},
    graph::Edge,
    record,
};
use raddle_tensor::Tensor;

mod sealed {
    pub trait Sealed {}
    impl Sealed for raddle_tensor::Tensor {}
}

/// Gradients, as methods of [`Tensor`].
///
/// All of them may be called from any thread. None waits for the device.
pub trait Autograd: sealed::Sealed {
    /// Is it part of a graph: a leaf whose gradient is wanted, or made from one?
    fn requires_grad(&self) -> bool;

    /// Turns this tensor into a leaf whose gradient is kept, or back into one that requires none. All clones of the handle
    /// see it.
    ///
    /// Errors: an integer or bool tensor; the result of a recorded op.
    fn requires_grad_(&self, required: bool) -> Result<&Self>;

    /// Was it not made by a recorded op? Tensors that require no grad are leaves too.
    fn is_leaf(&self) -> bool;

    /// The gradient gathered so far, for leaves that require grad. It has the leaf's dtype and, if that is dense, its
    /// strides, and no grad of its own. Later passes add to this very tensor.
    fn grad(&self) -> Option<Tensor>;

    /// Replaces the gradient of a leaf that requires grad.
    ///
    /// Errors: no such leaf; another shape, dtype or device than the leaf's.
    fn set_grad(&self, grad: Option<Tensor>) -> Result<()>;

    /// Drops the gradient; the next pass gives a new one.
    fn zero_grad(&self);

    /// Computes the gradients of this number by all leaves that it was made from, and adds them to theirs. What the graph
    /// has saved is freed.
    ///
    /// Errors: more than one element; no graph; a saved tensor that was changed since; a graph used up before.
    fn backward(&self) -> Result<()>;

    /// The same from a given gradient of this tensor, of its shape and dtype.
    fn backward_with(&self, gradient: &Tensor) -> Result<()>;

    /// [`backward`](Autograd::backward) that leaves the graph as it is, for further passes.
    fn backward_retain(&self) -> Result<()>;
}

impl Autograd for Tensor {
    fn requires_grad(&self) -> bool {
        record::edge_of(self).is_some()
    }

    fn requires_grad_(&self, required: bool) -> Result<&Tensor> {
        match record::edge_of(self) {
            Some(Edge::Node(node, _)) => Err(Error::NotLeaf { op: node.rule.name() }),
            Some(Edge::Leaf(_)) if !required => {
                drop(self.set_slot(None));
                Ok(self)
            }
            None if required && !self.dtype().is_float() => Err(Error::DType { found: self.dtype() }),
            None if required => {
                record::place_leaf(self);
                Ok(self)
            }
            _ => Ok(self),
        }
    }

    fn is_leaf(&self) -> bool {
        !matches!(record::edge_of(self), Some(Edge::Node(..)))
    }

    fn grad(&self) -> Option<Tensor> {
        match record::edge_of(self) {
            Some(Edge::Leaf(leaf)) => leaf.grad(),
            _ => None,
        }
    }

    fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        let op = "set_grad";
        let Some(Edge::Leaf(leaf)) = record::edge_of(self) else { return Err(Error::NoLeaf { op }) };
        if let Some(grad) = &grad {
            check_fits(op, self, grad)?;
        }
        leaf.set_grad(grad);
        Ok(())
    }

    fn zero_grad(&self) {
        if let Some(Edge::Leaf(leaf)) = record::edge_of(self) {
            leaf.set_grad(None);
        }
    }

    fn backward(&self) -> Result<()> {
        backward(&[self], &[None], false)
    }

    fn backward_with(&self, gradient: &Tensor) -> Result<()> {
        backward(&[self], &[Some(gradient)], false)
    }

    fn backward_retain(&self) -> Result<()> {
        backward(&[self], &[None], true)
    }
}

/// One pass from several outputs: adds to the gradients of all leaves. Where no gradient is given the output must be one
/// number. `retain` leaves the graph as it is.
pub fn backward(outputs: &[&Tensor], gradients: &[Option<&Tensor>], retain: bool) -> Result<()> {
    engine::run(roots(outputs, gradients)?, &Goal::Leaves, retain)?;
    Ok(())
}

/// The gradients of `outputs` by `inputs`, which may be leaves or results; none for an input that the outputs don't
/// depend on. No leaf's own gradient changes. Gradients are given as for [`backward`]; they are not recorded themselves. Those
/// returned may share memory with each other and with the given ones: copy one before changing it in place.
pub fn grad(
    outputs: &[&Tensor],
    gradients: &[Option<&Tensor>],
    inputs: &[&Tensor],
    retain: bool,
) -> Result<Vec<Option<Tensor>>> {
    let place = |input: &&Tensor| record::edge_of(input).ok_or(Error::NoGraph { op: "grad" });
    let places: Vec<Edge> = inputs.iter().map(place).collect::<Result<_>>()?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    engine::run(roots(outputs, gradients)?, &Goal::Places(&places), retain)
}

/// Has a gradient that was given the shape, dtype and device of its tensor?
fn check_fits(op: &'static str, tensor: &Tensor, gradient: &Tensor) -> Result<()> {
    let wrong = |what, expected: String, found: String| Err(Error::Gradient { op, what, expected, found });
    if gradient.shape() != tensor.shape() {
        return wrong("shape", format!("{:?}", tensor.shape()), format!("{:?}", gradient.shape()));
    }
    if gradient.dtype() != tensor.dtype() {
        return wrong("dtype", tensor.dtype().to_string(), gradient.dtype().to_string());
    }
    if gradient.device() != tensor.device() {
        return wrong("device", tensor.device().name().into(), gradient.device().name().into());
    }
    Ok(())
}

fn roots(outputs: &[&Tensor], gradients: &[Option<&Tensor>]) -> Result<Vec<(Edge, Tensor)>> {
    if outputs.len() != gradients.len() {
        let (expected, found) = (outputs.len().to_string(), gradients.len().to_string());
        return Err(Error::Gradient { op: "backward", what: "number of gradients", expected, found });
    }
    let mut roots = Vec::with_capacity(outputs.len());
    for (output, gradient) in outputs.iter().zip(gradients) {
        let edge = record::edge_of(output).ok_or(Error::NoGraph { op: "backward" })?;
        let gradient = match gradient {
            Some(given) => {
                check_fits("backward", output, given)?;
                given.detach()
            }
            None if output.element_count() != 1 => {
                let found = output.element_count();
                return Err(Error::NotScalar { shape: output.shape().to_vec(), found });
            }
            None => output.ones_like()?,
        };
        roots.push((edge, gradient));
    }
    Ok(roots)
}
