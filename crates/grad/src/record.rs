//! Recording: what happens when an op meets a tensor that requires grad.
//!
//! Changes in place follow PyTorch. A leaf that requires grad, or a view of one, may not be changed while recording is on.
//! Any other tensor takes the changed value's place in the graph. If it is a view, the tensor that it is a view of does so
//! instead: that becomes "the old value, with the view's part replaced".
//!
//! **One place for all views.** Only the tensor that others are views of has a place of its own. A view's place follows from it;
//! what the view's slot holds is that place remembered, with the place of the base that it was derived from. It counts only
//! as long as the base still holds that very place, which is compared by address and kept alive meanwhile.
//!
//! **One order for ops and places.** Threads may change and read one tensor at once, and get one of the possible orders, op by
//! op. The graph must tell of the same order, or it has the gradient of another program. So places and versions are read
//! and replaced while the op holds its operands ([`Recording::claimed`]): no other op on them comes between. In that order
//! an op first reads the places of its inputs, and then replaces that of its output.
//!
//! Two things can't be done there. A copy of what an op is about to overwrite is made before; if somebody wrote between, the op
//! isn't run, and copies again. And an op on tensors of which none is a view, and none is in a graph when it begins, doesn't
//! look there at all. If one has got into a graph when the op is submitted, it isn't known which came first: the result's
//! backward is an error ([`Error::Raced`](crate::Error)).

use crate::{
    graph::{Edge, Kept, Leaf, Node, Saved},
    rule::{self, Rule},
};
use raddle_sync::{Arc, fault};
use raddle_tensor::{
    Call, Overlap, Pointwise, Result, Tensor, View,
    gradient::Meta,
    record::{Mode, Record, Recorder, Recording, Versions, is_same, refuse},
};
use smallvec::SmallVec;
use std::{any::Any, ops::Range};

/// What a slot holds.
pub(crate) enum Variable {
    /// The place of a leaf, or of a tensor that is no view.
    Own(Edge),
    /// The place of a view while its base holds `base`.
    Derived { base: Slot, edge: Edge },
}

type Slot = Option<Arc<dyn Recorder>>;

fn variable(slot: &Slot) -> Option<&Variable> {
    let any: &dyn Any = &**slot.as_ref()?;
    any.downcast_ref()
}

/// What the slots of a tensor and of its base held at one moment.
#[derive(Clone, Default)]
struct Place {
    own: Slot,
    base: Slot,
}

impl Place {
    fn of(tensor: &Tensor) -> Place {
        // The base last: what the view remembers isn't newer.
        let own = tensor.slot();
        Place { own, base: tensor.view_base().and_then(Tensor::slot) }
    }

    fn edge(&self, tensor: &Tensor) -> Option<Edge> {
        match variable(&self.own) {
            Some(Variable::Own(edge)) => return Some(edge.clone()),
            Some(Variable::Derived { base, edge }) => {
                let mut is_valid = is_same(base.as_ref(), self.base.as_ref());
                fault!(view_keeps_its_place => is_valid = true);
                if is_valid {
                    return Some(edge.clone());
                }
            }
            _ => (),
        }
        let (base, Some(Variable::Own(of_base))) = (tensor.view_base()?, variable(&self.base)) else {
            return None;
        };
        let edge = view_of_base(of_base.clone(), base, tensor);
        let derived = Variable::Derived { base: self.base.clone(), edge: edge.clone() };
        // If another thread was faster, it remembers as much.
        _ = tensor.exchange_slot(self.own.as_ref(), Some(Arc::new(derived)));
        Some(edge)
    }

    /// What the slot held of the tensor that all views are views of.
    fn of_base(&self, tensor: &Tensor) -> &Slot {
        if tensor.is_view() { &self.base } else { &self.own }
    }
}

/// The tensor's place in a graph, if it requires grad.
pub(crate) fn edge_of(tensor: &Tensor) -> Option<Edge> {
    Place::of(tensor).edge(tensor)
}

fn view_of_base(edge: Edge, base: &Tensor, view: &Tensor) -> Edge {
    let as_strided =
        View::AsStrided { shape: *view.shape(), strides: *view.strides(), offset: view.storage_offset() };
    let node = Node::new(
        Rule::Op(std::sync::Arc::new(as_strided)),
        SmallVec::from_iter([Some(edge)]),
        SmallVec::from_iter([Meta::of(base)]),
        SmallVec::from_iter([Meta::of(view)]),
        Kept::default(),
    );
    Edge::Node(node, 0)
}

/// Makes a leaf of the tensor.
pub(crate) fn place_leaf(tensor: &Tensor) {
    drop(tensor.set_slot(Some(Arc::new(Variable::Own(Edge::Leaf(Arc::new(Leaf::new(tensor))))))));
}

/// Does the op replace the value of its output, whose memory stays?
fn is_in_place(record: &Record<'_>) -> bool {
    let copies = matches!(record.call, Call::Pointwise { op: Pointwise::copy, .. });
    record.mode == Mode::InPlace || (record.mode == Mode::Out && copies)
}

/// Refuses what has no gradient.
fn check(record: &Record<'_>) -> Result<()> {
    let op = record.call.name();
    match record.mode {
        Mode::Fresh => return Ok(()),
        _ if is_in_place(record) => (),
        _ => {
            let input_edges =
                (0..record.inputs.len()).any(|index| input_edge(record, index, edge_of).is_some());
            let is_recorded =
                |output: &&Tensor| (output.dtype().is_float() && input_edges) || edge_of(output).is_some();
            let reason = "a given output has no gradient, expected none of the tensors to require grad";
            let refused = record.outputs.iter().any(is_recorded);
            return if refused { Err(refuse(op, reason)) } else { Ok(()) };
        }
    }
    let out = record.outputs[0];
    // One look, as other threads may put the base into a graph meanwhile.
    let place = Place::of(out);
    let edge = place.edge(out);
    if let Some(Edge::Leaf(_)) = edge {
        return Err(refuse(
            op,
            "a leaf that requires grad can't be changed in place, use no_grad or detach()",
        ));
    }
    match (variable(&place.base), out.is_view()) {
        // Of a leaf that is a view itself only its own views know.
        (Some(Variable::Own(Edge::Leaf(_))), true) => (),
        (None, true) if edge.is_some() => (),
        _ => return Ok(()),
    }
    Err(refuse(op, "a view of a leaf that requires grad can't be changed in place, use no_grad or detach()"))
}

/// The place of an input by which the op has a gradient.
fn input_edge(record: &Record<'_>, index: usize, edge: impl Fn(&Tensor) -> Option<Edge>) -> Option<Edge> {
    let input = record.inputs[index];
    (input.dtype().is_float() && rule::is_differentiable(&record.call, index)).then(|| edge(input)).flatten()
}

/// Is the input the memory that an op in place writes to?
fn is_overwritten(input: &Tensor, out: &Tensor) -> bool {
    input.shares_storage(out) && input.layout().overlap(out.layout()) != Overlap::None
}

/// What the op has found in an input when it held it.
#[derive(Clone)]
struct Found {
    place: Place,
    /// As the op left it, and as it was before.
    version: u64,
    before: u64,
}

/// An op that is being recorded.
struct Op<'a> {
    record: Record<'a>,
    in_place: bool,
    inputs: SmallVec<[Option<Found>; 4]>,
    output_versions: SmallVec<[Option<u64>; 2]>,
    /// A copy of what the op overwrites and its backward needs, and the version that was copied.
    old: Option<(Tensor, u64)>,
    /// How often others have written between the copy and the op, which then was not run.
    late_count: usize,
    is_late: bool,
    change: Option<Change>,
    /// What slots held. It is dropped when the op has let go of its operands, since a graph may go with it.
    displaced: Vec<Slot>,
}

/// So often an op copies anew what it is about to overwrite, because others have written to the memory since the copy. Then it
/// goes on, and its backward is an error. (A guess. Each time somebody else's op has got through.)
const LATE_COUNT_MAX: usize = 1000;

/// How an op in place has changed the place of its output, or of what that is a view of.
struct Change {
    before: Slot,
    after: Slot,
    node: Result<Option<Arc<Node>>>,
}

impl<'a> Op<'a> {
    fn new(record: Record<'a>) -> Op<'a> {
        Op {
            in_place: is_in_place(&record),
            inputs: smallvec::smallvec![None; record.inputs.len()],
            output_versions: smallvec::smallvec![None; record.outputs.len()],
            old: None,
            late_count: 0,
            is_late: false,
            change: None,
            displaced: Vec::new(),
            record,
        }
    }

    /// Copies the output, if backward needs what the op is about to overwrite.
    fn copy_old_value(&mut self) -> Result<()> {
        let (record, out) = (&self.record, self.record.outputs[0]);
        let edges: SmallVec<[_; 4]> =
            (0..record.inputs.len()).map(|index| input_edge(record, index, edge_of)).collect();
        if edges.iter().any(Option::is_some) {
            let needs = Rule::new(record, |input| edges[input].is_some())?.needs();
            let is_needed = |index: usize| needs.input(index) && is_overwritten(record.inputs[index], out);
            if (0..record.inputs.len()).any(is_needed) {
                self.old = Some(out.copy_of_version()?);
            }
        }
        Ok(())
    }

    /// Looks at the inputs that the op didn't hold: they are not read, as they have no elements, or not yet.
    fn look_at_the_rest(&mut self) {
        for (input, found) in self.record.inputs.iter().zip(&mut self.inputs) {
            let version = input.version();
            found.get_or_insert_with(|| Found { place: Place::of(input), version, before: version });
        }
    }

    fn edges(&self) -> SmallVec<[Option<Edge>; 4]> {
        let out = self.record.outputs[0];
        let edge = |index: usize| {
            let found = self.inputs[index].as_ref()?;
            if self.in_place && !self.record.inputs[index].is(out) {
                fault!(own_view_is_constant => return None);
            }
            input_edge(&self.record, index, |input| found.place.edge(input))
        };
        (0..self.record.inputs.len()).map(edge).collect()
    }

    /// The op in the graph, if one of its inputs is there.
    fn node(&mut self) -> Result<Option<Arc<Node>>> {
        self.look_at_the_rest();
        let record = &self.record;
        // What is copied into integers has no gradient any more.
        let takes = !self.in_place || record.outputs[0].dtype().is_float();
        let edges = self.edges();
        if !takes || !edges.iter().any(Option::is_some) {
            return Ok(None);
        }
        let rule = Rule::new(record, |input| edges[input].is_some())?;
        let kept = self.kept(&rule);
        let inputs = record.inputs.iter().map(|input| Meta::of(input)).collect();
        let outputs = record.outputs.iter().map(|output| Meta::of(output)).collect();
        Ok(Some(Node::new(rule, edges, inputs, outputs, kept)))
    }

    fn kept(&self, rule: &Rule) -> Kept {
        let (record, needs) = (&self.record, rule.needs());
        let input = |index: usize| {
            let (input, found) = (record.inputs[index], &self.inputs[index]);
            match &self.old {
                Some((copy, copied)) if is_overwritten(input, record.outputs[0]) => {
                    let before = found.as_ref().map_or(*copied, |found| found.before);
                    Saved::copy_of(copy, *copied, before)
                }
                // It got into the graph after the copy would have been made: an error rather than what is there now.
                None if self.in_place && is_overwritten(input, record.outputs[0]) => {
                    let (before, version) =
                        found.as_ref().map_or((0, 0), |found| (found.before, found.version));
                    Saved::copy_of(input, before, version)
                }
                _ => Saved::new(input, found.as_ref().map_or_else(|| input.version(), |found| found.version)),
            }
        };
        let output = |index: usize| {
            let output = record.outputs[index];
            Saved::new(output, self.output_versions[index].unwrap_or_else(|| output.version()))
        };
        Kept {
            inputs: (0..record.inputs.len()).map(|index| needs.input(index).then(|| input(index))).collect(),
            outputs: (0..record.outputs.len())
                .map(|index| needs.output(index).then(|| output(index)))
                .collect(),
        }
    }

    /// Gives the output of an op in place its new place.
    fn change(&mut self) {
        let node = self.node();
        let out = self.record.outputs[0];
        let target = out.view_base().unwrap_or(out);
        let edge = match &node {
            Ok(node) => node.as_ref().map(|node| Edge::Node(node.clone(), 0)),
            Err(_) => Some(raced(&self.record, 0, self.edges())),
        };
        if edge.is_some() {
            target.note_joined();
        }
        loop {
            let before = target.slot();
            let of_target = match variable(&before) {
                // By `requires_grad_` since it was checked: the leaf stays one.
                Some(Variable::Own(Edge::Leaf(_))) => {
                    self.displaced.push(before);
                    return;
                }
                Some(Variable::Own(edge)) => Some(edge.clone()),
                _ => None,
            };
            let after = match (&edge, of_target) {
                (edge, _) if !out.is_view() => edge.clone(),
                (None, None) => None,
                (edge, of_target) => Some(assigned(of_target, edge.clone(), target, out)),
            };
            let after = after.map(|edge| Arc::new(Variable::Own(edge)) as Arc<dyn Recorder>);
            match target.exchange_slot(before.as_ref(), after.clone()) {
                Ok(()) => {
                    self.change = Some(Change { before, after, node });
                    return;
                }
                // By what holds no operands: an op without elements, or a user.
                Err(found) => self.displaced.extend([before, after, found]),
            }
        }
    }

    /// After an op that failed and has written nothing.
    fn undo(self) {
        let out = self.record.outputs[0];
        if let Some(Change { before, after, .. }) = self.change {
            // If others have built on it meanwhile, it stays.
            _ = out.view_base().unwrap_or(out).exchange_slot(after.as_ref(), before);
        }
    }

    /// Is nothing known of gradients of the outputs?
    fn is_constant(&self) -> bool {
        matches!(self.record.call, Call::Constant) || (self.record.mode != Mode::Fresh && !self.in_place)
    }

    fn finish_in_place(mut self: Box<Self>) -> Result<()> {
        if self.change.is_none() {
            self.change(); // nothing was submitted: there are no elements
        }
        let Some(Change { node, .. }) = &self.change else { return Ok(()) };
        if let Some(node) = node.clone()? {
            // An op of several launches has written to its output since the first.
            node.keep(self.kept(&node.rule))?;
        }
        Ok(())
    }

    fn finish_fresh(mut self: Box<Self>) -> Result<()> {
        let Some(node) = self.node()? else { return Ok(()) };
        for (index, output) in self.record.outputs.iter().enumerate() {
            if !rule::has_gradient(&self.record.call, index) || !output.dtype().is_float() {
                continue;
            }
            let edge = Edge::Node(node.clone(), index);
            let variable = match &self.inputs[0] {
                Some(found) if output.is_view() => {
                    Variable::Derived { base: found.place.of_base(self.record.inputs[0]).clone(), edge }
                }
                _ => Variable::Own(edge),
            };
            drop(output.set_slot(Some(Arc::new(variable))));
        }
        Ok(())
    }
}

/// A base with a part replaced.
fn assigned(of_base: Option<Edge>, edge: Option<Edge>, base: &Tensor, view: &Tensor) -> Edge {
    let node = Node::new(
        Rule::Assign,
        SmallVec::from_iter([of_base, edge]),
        SmallVec::from_iter([Meta::of(base), Meta::of(view)]),
        SmallVec::from_iter([Meta::of(base)]),
        Kept::default(),
    );
    Edge::Node(node, 0)
}

/// The place of an output of which it isn't known what it was made from.
fn raced(record: &Record<'_>, output: usize, edges: SmallVec<[Option<Edge>; 4]>) -> Edge {
    let node = Node::new(
        Rule::Raced(record.call.name()),
        edges,
        record.inputs.iter().map(|input| Meta::of(input)).collect(),
        record.outputs.iter().map(|output| Meta::of(output)).collect(),
        Kept::default(),
    );
    Edge::Node(node, output)
}

impl Recording for Op<'_> {
    fn claimed(&mut self, versions: &Versions<'_>) -> bool {
        let record = &self.record;
        if let (Some((_, copied)), None, Some(found)) = (&self.old, &self.change, versions(record.outputs[0]))
        {
            self.is_late |= found.start != *copied && self.late_count < LATE_COUNT_MAX;
        }
        if self.is_late {
            return false;
        }
        for (input, found) in record.inputs.iter().zip(&mut self.inputs) {
            if let Some(Range { start, end }) = versions(input) {
                found
                    .get_or_insert_with(|| Found { place: Place::of(input), before: start, version: end })
                    .version = end;
            }
        }
        let mut is_written = false;
        for (output, left) in record.outputs.iter().zip(&mut self.output_versions) {
            if let Some(Range { start, end }) = versions(output) {
                (*left, is_written) = (Some(end), is_written || start < end);
            }
        }
        if self.in_place && is_written && self.change.is_none() {
            self.change();
        }
        true
    }

    fn tries_again(&mut self) -> Result<bool> {
        if !std::mem::take(&mut self.is_late) {
            return Ok(false);
        }
        self.late_count += 1;
        self.inputs.fill(None);
        self.copy_old_value()?;
        Ok(true)
    }

    fn finish(self: Box<Self>, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) if self.is_constant() => Ok(()),
            Ok(()) if self.in_place => self.finish_in_place(),
            Ok(()) => self.finish_fresh(),
            Err(error) => {
                self.undo();
                Err(error)
            }
        }
    }
}

impl Recorder for Variable {
    fn begin<'a>(&self, record: Record<'a>) -> Result<Box<dyn Recording + 'a>> {
        check(&record)?;
        let mut op = Op::new(record);
        if op.in_place {
            op.copy_old_value()?;
        }
        Ok(Box::new(op))
    }

    fn missed(&self, record: Record<'_>) -> Result<()> {
        let changes = |edge: &Edge| matches!(edge, Edge::Node(..));
        let edges = || (0..record.inputs.len()).map(|index| input_edge(&record, index, edge_of));
        let was_changed = edges().flatten().any(|edge| changes(&edge))
            || (record.mode != Mode::Fresh && record.outputs.iter().any(|output| edge_of(output).is_some()));
        // Whether a leaf was one before changes no value.
        if !was_changed || matches!(record.call, Call::View(_) | Call::Constant) {
            return Ok(());
        }
        for (index, output) in
            record.outputs.iter().enumerate().filter(|(_, output)| output.dtype().is_float())
        {
            let target = output.view_base().unwrap_or(output);
            let edges = edges().chain([edge_of(target)]).collect();
            target.note_joined();
            drop(target.set_slot(Some(Arc::new(Variable::Own(raced(&record, index, edges))))));
        }
        Ok(())
    }
}
