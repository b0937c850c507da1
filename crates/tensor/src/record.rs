//! The funnel through which every op passes, so that `grad` can see it without this crate knowing `grad`.
//!
//! A tensor has a *slot*. While it is empty, an op costs one relaxed load an operand here, before and after, and little else.
//! `grad` fills it with a [`Recorder`]; from then on each op of the tensor is recorded by it, on the calling thread. What the
//! recorder has to know in the order of the ops (slots, [versions](Tensor::version)) it reads and changes while the op holds its
//! operands ([`Recording::claimed`]). Nothing is recorded while recording is off on the thread ([`set_recording`]).
//!
//! A tensor made by an op has an empty slot; the recorder fills it if the result belongs to a graph. Clones of a handle share
//! the slot. Views and [`Tensor::detach`] have slots of their own, but share the storage and its version.
//!
//! Another thread may put a tensor into a graph while an op on a view of it begins, of other elements perhaps: so an op on views
//! looks at the slots again when it holds its operands, and begins anew, recorded, if one is filled.

pub use crate::tensor::{Mode, Record, Recorder, Recording, Versions, is_same};
use crate::{Call, Error, Result, Tensor};
use raddle_runtime::Claimed;
use raddle_sync::{Arc, fault};
use smallvec::SmallVec;
use std::{borrow::Borrow, cell::Cell};

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(true) };
}

/// Are ops of this thread told to recorders? A fresh thread's are.
pub fn is_recording() -> bool {
    RECORDING.get()
}

/// Turns telling on or off for this thread; returns what it was.
pub fn set_recording(on: bool) -> bool {
    RECORDING.replace(on)
}

/// Turns telling off until it is dropped.
pub(crate) struct Silence(bool);

impl Silence {
    pub(crate) fn new() -> Silence {
        Silence(set_recording(false))
    }
}
impl Drop for Silence {
    fn drop(&mut self) {
        set_recording(self.0);
    }
}

/// Runs an op that makes new tensors.
#[inline]
pub(crate) fn fresh(
    inputs: &[&Tensor],
    outputs: &[&Tensor],
    call: impl FnOnce() -> Call,
    run: impl FnMut() -> Result<()>,
) -> Result<()> {
    op(Mode::Fresh, inputs, outputs, call, run)
}

/// Runs an op that makes or writes tensors, as the mode says.
#[inline]
pub(crate) fn op(
    mode: Mode,
    inputs: &[&Tensor],
    outputs: &[&Tensor],
    call: impl FnOnce() -> Call,
    mut run: impl FnMut() -> Result<()>,
) -> Result<()> {
    let op = Op { mode, inputs, outputs };
    if op.may_be_recorded()
        && is_recording()
        && let Some(recorder) = op.recorder()
    {
        return recorded(&*recorder, op.record(call()), run);
    }
    if op.tensors().any(Tensor::is_view) && is_recording() {
        return perhaps_recorded(op, call, run);
    }
    run()?;
    if op.may_be_recorded()
        && is_recording()
        && let Some(recorder) = op.recorder()
    {
        return recorder.missed(op.record(call()));
    }
    Ok(())
}

/// An op that may turn out to need recording.
#[derive(Clone, Copy)]
struct Op<'a> {
    mode: Mode,
    inputs: &'a [&'a Tensor],
    outputs: &'a [&'a Tensor],
}

impl<'a> Op<'a> {
    fn record(self, call: Call) -> Record<'a> {
        Record { call, mode: self.mode, inputs: self.inputs, outputs: self.outputs }
    }

    /// All that may be in a graph: new tensors aren't yet.
    #[inline]
    fn tensors(self) -> impl Iterator<Item = &'a Tensor> {
        let written = if self.mode == Mode::Fresh { &[] } else { self.outputs };
        self.inputs.iter().chain(written).copied()
    }

    #[inline]
    fn may_be_recorded(self) -> bool {
        self.tensors().any(|tensor| tensor.slot_cell().was_filled() || tensor.may_have_joined())
    }

    /// The recorder that records the op, if any.
    #[cold]
    fn recorder(self) -> Option<Arc<dyn Recorder>> {
        // A view is in the graph of the tensor that it is a view of, which may have got there after the view was made.
        self.tensors().find_map(|tensor| tensor.slot().or_else(|| tensor.view_base()?.slot()))
    }
}

fn recorded(recorder: &dyn Recorder, record: Record<'_>, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let _silence = Silence::new();
    let mut recording = recorder.begin(record)?;
    let result = loop {
        let result = witnessed(&mut |versions| recording.claimed(versions), &mut run);
        if result.is_err() || !recording.tries_again()? {
            break result;
        }
    };
    recording.finish(result)
}

/// An op on views, none of which is in a graph. If one is when the op holds its operands, it isn't run, and begins anew.
fn perhaps_recorded(
    op: Op<'_>,
    call: impl FnOnce() -> Call,
    mut run: impl FnMut() -> Result<()>,
) -> Result<()> {
    let silence = Silence::new();
    let (mut joined, mut has_run) = (None, false); // what is found isn't dropped while operands are held
    let look = &mut |_: &Versions<'_>| {
        let mut joins = joined.is_none() && op.may_be_recorded();
        fault!(views_join_unseen => joins = false);
        if joins {
            joined = op.recorder();
        }
        has_run |= joined.is_none();
        // Of several launches the first may have written: then there is no way back.
        joined.is_none() || has_run
    };
    let result = witnessed(look, &mut run);
    drop(silence);
    match joined {
        None => result,
        Some(recorder) if has_run => result.and_then(|()| recorder.missed(op.record(call()))),
        Some(recorder) => recorded(&*recorder, op.record(call()), run),
    }
}

/// Runs `run`; whatever it submits is told to `claimed`, with the versions of tensors as it leaves them.
pub(crate) fn witnessed<R>(claimed: &mut dyn FnMut(&Versions<'_>) -> bool, run: impl FnOnce() -> R) -> R {
    struct Adaptor<'a>(&'a mut dyn FnMut(&Versions<'_>) -> bool);
    impl raddle_runtime::Witness for Adaptor<'_> {
        fn claimed(&mut self, op: &Claimed<'_>) -> bool {
            (self.0)(&|tensor| tensor.versions_in(op))
        }
    }
    raddle_runtime::witnessed(&mut Adaptor(claimed), run)
}

impl Tensor {
    /// A copy that nobody records, with the strides of this tensor if it is dense, and the [version](Tensor::version) that was
    /// copied.
    pub fn copy_of_version(&self) -> Result<(Tensor, u64)> {
        let _silence = Silence::new();
        let mut copied = self.version(); // of no elements
        let note = &mut |versions: &Versions<'_>| {
            copied = versions(self).map_or(copied, |versions| versions.start);
            true
        };
        let copy = witnessed(note, || self.detach().copy())?;
        Ok((copy, copied))
    }
}

/// The tensors of a call, on the stack in all usual cases.
pub(crate) type TensorRefs<'a> = SmallVec<[&'a Tensor; 4]>;

/// References to tensors, of a list of tensors or of references.
pub(crate) fn refs<T: Borrow<Tensor>>(tensors: &[T]) -> TensorRefs<'_> {
    tensors.iter().map(Borrow::borrow).collect()
}

/// A refusal, for recorders.
pub fn refuse(op: &'static str, reason: &'static str) -> Error {
    Error::Refused { op, reason }
}
