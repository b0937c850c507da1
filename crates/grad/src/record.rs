//! Recording: what happens when an op meets a tensor that requires grad.
//!
//! Changes in place follow PyTorch. A leaf that requires grad, or a view of one, may not be changed while recording is on.
//! Any other tensor takes the changed value's place in the graph. If it is a view, the tensor that it is a view of does so
//! too: that becomes "the old value, with the view's part replaced", and every view's place is found anew from there, which
//! the version at which its place was noted tells.

use crate::{
    graph::{Edge, Kept, Leaf, Meta, Node, Saved},
    mode::ModeGuard,
    rules::{self, Rule},
};
use raddle_sync::Arc;
use raddle_tensor::{
    Call, Overlap, Pointwise, Result, Tensor, View,
    record::{Mode, Record, Recorder, refuse},
};
use smallvec::SmallVec;
use std::{any::Any, cell::RefCell};

/// What a slot holds.
pub(crate) struct Variable {
    edge: Edge,
    /// Of a view: the storage's version when its place was noted.
    noted_at: Option<u64>,
}

thread_local! {
    /// Copies of what an op in place is about to overwrite and its backward needs, between `prepare` and `record`.
    static OLD_VALUE: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

/// Nothing while the thread's things are being destroyed.
fn take_old_value() -> Option<Tensor> {
    OLD_VALUE.try_with(RefCell::take).ok().flatten()
}

/// The tensor's place in a graph, if it requires grad.
pub(crate) fn edge_of(tensor: &Tensor) -> Option<Edge> {
    let Some(slot) = tensor.slot() else {
        return if tensor.may_have_joined() { view_edge(tensor) } else { None };
    };
    let any: &dyn Any = &*slot;
    let variable = any.downcast_ref::<Variable>()?;
    match variable.noted_at {
        Some(version) if version != tensor.version() => view_edge(tensor),
        _ => Some(variable.edge.clone()),
    }
}

/// The place of a view whose storage was changed since its place was noted, or the view made.
fn view_edge(tensor: &Tensor) -> Option<Edge> {
    let base = tensor.view_base()?;
    let edge = edge_of(base).map(|edge| view_of_base(edge, base, tensor));
    place(tensor, edge.clone());
    edge
}

fn view_of_base(edge: Edge, base: &Tensor, view: &Tensor) -> Edge {
    let call = Call::View(View::AsStrided {
        shape: *view.shape(),
        strides: *view.strides(),
        offset: view.storage_offset(),
    });
    let node = Node::new(
        Rule::Call(call),
        SmallVec::from_iter([Some(edge)]),
        SmallVec::from_iter([Meta::of(base)]),
        SmallVec::from_iter([Meta::of(view)]),
        Kept::default(),
    );
    Edge::Node(node, 0)
}

/// Notes a tensor's place.
fn place(tensor: &Tensor, edge: Option<Edge>) {
    let noted_at = tensor.is_view().then(|| tensor.version());
    let variable = edge.map(|edge| Arc::new(Variable { edge, noted_at }) as Arc<dyn Recorder>);
    drop(tensor.set_slot(variable));
}

/// Makes a leaf of the tensor.
pub(crate) fn place_leaf(tensor: &Tensor) {
    let variable = Variable { edge: Edge::Leaf(Arc::new(Leaf::new(tensor))), noted_at: None };
    drop(tensor.set_slot(Some(Arc::new(variable))));
}

/// Does the op replace the value of its output, whose memory stays?
fn is_in_place(record: &Record<'_>) -> bool {
    let copies = matches!(record.call, Call::Pointwise { op: Pointwise::copy, .. });
    record.mode == Mode::InPlace || (record.mode == Mode::Out && copies)
}

impl Recorder for Variable {
    fn prepare(&self, record: &Record<'_>) -> Result<()> {
        let _guard = ModeGuard::new(false);
        drop(take_old_value());
        let op = rules::call_name(record.call);
        let edges = edges(record);
        if !is_in_place(record) {
            for output in record.outputs {
                let gets_gradient = output.dtype().is_float() && edges.iter().any(Option::is_some);
                if gets_gradient || edge_of(output).is_some() {
                    return Err(refuse(
                        op,
                        "a given output has no gradient, expected none of the tensors to require grad",
                    ));
                }
            }
            return Ok(());
        }
        let out = record.outputs[0];
        for (tensor, reason) in [
            (Some(out), "a leaf that requires grad can't be changed in place, use no_grad or detach()"),
            (
                out.view_base(),
                "a view of a leaf that requires grad can't be changed in place, use no_grad or detach()",
            ),
        ] {
            let Some(tensor) = tensor else { continue };
            if let Some(Edge::Leaf(_)) = edge_of(tensor) {
                return Err(refuse(op, reason));
            }
        }
        let rule = Rule::new(record, &edges)?;
        let needs_old = (0..record.inputs.len())
            .any(|index| is_overwritten(record.inputs[index], out) && rule.needs().input(index));
        if needs_old {
            let old_value = out.detach().copy()?;
            OLD_VALUE
                .try_with(|kept| kept.replace(Some(old_value)))
                .map_err(|_| refuse(op, "the thread is ending"))?;
        }
        Ok(())
    }

    fn record(&self, record: &Record<'_>) -> Result<()> {
        let _guard = ModeGuard::new(false);
        let old_value = take_old_value();
        let edges = edges(record);
        let in_place = is_in_place(record);
        if matches!(record.call, Call::Constant) || (record.mode != Mode::Fresh && !in_place) {
            return Ok(());
        }
        // What is copied into integers has no gradient any more.
        let takes = !in_place || record.outputs[0].dtype().is_float();
        let node = if takes && edges.iter().any(Option::is_some) {
            let rule = Rule::new(record, &edges)?;
            let needs = rule.needs();
            let kept = Kept {
                inputs: (0..record.inputs.len())
                    .map(|index| {
                        let input = record.inputs[index];
                        let old = old_value
                            .as_ref()
                            .filter(|_| in_place && is_overwritten(input, record.outputs[0]));
                        needs.input(index).then(|| Saved::new(old.unwrap_or(input)))
                    })
                    .collect(),
                outputs: (0..record.outputs.len())
                    .map(|index| needs.output(index).then(|| Saved::new(record.outputs[index])))
                    .collect(),
            };
            let inputs = record.inputs.iter().map(|input| Meta::of(input)).collect();
            let outputs = record.outputs.iter().map(|output| Meta::of(output)).collect();
            Some(Node::new(rule, edges, inputs, outputs, kept))
        } else {
            None
        };
        if in_place {
            replace(record.outputs[0], node.map(|node| Edge::Node(node, 0)));
            return Ok(());
        }
        if let Some(node) = node {
            for (index, output) in record.outputs.iter().enumerate() {
                if rules::has_gradient(record.call, index) && output.dtype().is_float() {
                    place(output, Some(Edge::Node(node.clone(), index)));
                }
            }
        }
        Ok(())
    }
}

/// The places of the inputs by which the op has a gradient.
fn edges(record: &Record<'_>) -> SmallVec<[Option<Edge>; 4]> {
    let edge = |index: usize| match record.inputs[index].dtype().is_float() {
        true if rules::is_differentiable(record.call, index) => edge_of(record.inputs[index]),
        _ => None,
    };
    (0..record.inputs.len()).map(edge).collect()
}

/// Is the input the memory that an op in place writes to?
fn is_overwritten(input: &Tensor, out: &Tensor) -> bool {
    input.shares_storage(out) && input.layout().overlap(out.layout()) != Overlap::None
}

/// The tensor has got a new value in place, which was made at `edge` if it has a gradient.
fn replace(tensor: &Tensor, edge: Option<Edge>) {
    let Some(base) = tensor.view_base() else {
        if edge.is_some() {
            tensor.note_joined();
        }
        return place(tensor, edge);
    };
    let before = edge_of(base);
    if edge.is_none() && before.is_none() {
        return place(tensor, None);
    }
    base.note_joined();
    let node = Node::new(
        Rule::Assign,
        SmallVec::from_iter([before, edge]),
        SmallVec::from_iter([Meta::of(base), Meta::of(tensor)]),
        SmallVec::from_iter([Meta::of(base)]),
        Kept::default(),
    );
    let edge = Edge::Node(node, 0);
    place(base, Some(edge.clone()));
    place(tensor, Some(view_of_base(edge, base, tensor)));
}
