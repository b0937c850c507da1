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

use crate::{Call, Error, Result, Tensor};
use arc_swap::ArcSwapOption;
use raddle_runtime::Claimed;
use raddle_sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    fault,
};
use smallvec::SmallVec;
use std::{any::Any, borrow::Borrow, cell::Cell, ops::Range};

/// Is the result a new tensor, or was an existing one written?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The outputs are new tensors (or new views).
    Fresh,
    /// The one output is one of the inputs, changed in place.
    InPlace,
    /// The outputs were given by the caller.
    Out,
}

/// One op, as told to a recorder.
pub struct Record<'a> {
    /// What was called.
    pub call: Call,
    /// How the outputs came to be.
    pub mode: Mode,
    /// The tensors that it reads, as the call says.
    pub inputs: &'a [&'a Tensor],
    /// The tensors that it makes or writes.
    pub outputs: &'a [&'a Tensor],
}

/// What a slot holds. One of the recorders of an op's tensors records it, which is expected to look at the others. Recording is off
/// meanwhile.
pub trait Recorder: Any + Send + Sync {
    /// Before an op. An error refuses it; nothing was written.
    fn begin<'a>(&self, record: Record<'a>) -> Result<Box<dyn Recording + 'a>>;

    /// An op was submitted unrecorded, and while it was, another thread has put one of its tensors into a graph. The op has
    /// seen the tensor before that or after.
    fn missed(&self, record: Record<'_>) -> Result<()>;
}

/// The [versions](Tensor::version) of a tensor as a launch finds it and as it will leave it, if it is an operand.
pub type Versions<'a> = dyn Fn(&Tensor) -> Option<Range<u64>> + 'a;

/// An op that is being recorded.
pub trait Recording {
    /// Called for each launch of the op, of which it may have several or, as a view or without elements, none; while the
    /// launch holds its operands, so that no launch of another thread on one of them comes between. If it says no, the launch
    /// isn't made.
    ///
    /// See [`raddle_runtime::Witness`] for what may be done here.
    fn claimed(&mut self, versions: &Versions<'_>) -> bool;

    /// The op was submitted, but not all of its launches were made: is it to be tried again? May submit, as to get ready anew.
    fn tries_again(&mut self) -> Result<bool>;

    /// After the op was submitted, or failed.
    fn finish(self: Box<Self>, result: Result<()>) -> Result<()>;
}

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

/// A place for a recorder. Most have never held one, which a flag tells that is looked at first: whoever fills a slot and
/// hands the tensor to another thread orders the two by the hand-over.
///
/// Without a lock: a weight's slot is read by each op of each thread, and a forked child would wait for ever for a thread
/// that was just reading it.
pub(crate) struct Slot {
    /// Has it ever held one? Never taken back, so that it and the recorder can't contradict each other.
    was_filled: AtomicBool,
    recorder: ArcSwapOption<Arc<dyn Recorder>>,
}

impl Slot {
    pub(crate) fn empty() -> Slot {
        Slot { was_filled: AtomicBool::new(false), recorder: ArcSwapOption::const_empty() }
    }
    #[inline]
    fn get(&self) -> Option<Arc<dyn Recorder>> {
        if self.was_filled() { self.recorder.load().as_deref().cloned() } else { None }
    }
    #[inline]
    fn was_filled(&self) -> bool {
        self.was_filled.load(Ordering::Relaxed)
    }
    fn note_filled(&self, is_filled: bool) {
        if is_filled {
            self.was_filled.store(true, Ordering::Relaxed);
        }
    }
}

impl Tensor {
    /// What the slot holds.
    pub fn slot(&self) -> Option<Arc<dyn Recorder>> {
        self.slot_cell().get()
    }

    /// Fills or empties the slot; returns what it held. All clones of this handle see it.
    pub fn set_slot(&self, recorder: Option<Arc<dyn Recorder>>) -> Option<Arc<dyn Recorder>> {
        let slot = self.slot_cell();
        slot.note_filled(recorder.is_some());
        slot.recorder.swap(recorder.map(Arc::new)).as_deref().cloned()
    }

    /// Fills or empties the slot if it still holds `expected`; else what it holds. Doesn't block.
    pub fn exchange_slot(
        &self,
        expected: Option<&Arc<dyn Recorder>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<(), Option<Arc<dyn Recorder>>> {
        let slot = self.slot_cell();
        slot.note_filled(recorder.is_some());
        let recorder = recorder.map(Arc::new);
        loop {
            let current = slot.recorder.load();
            let held = current.as_deref().cloned();
            if !is_same(held.as_ref(), expected) {
                return Err(held);
            }
            let before = slot.recorder.compare_and_swap(&current, recorder.clone());
            if before.as_ref().map(Arc::as_ptr) == current.as_ref().map(Arc::as_ptr) {
                return Ok(());
            }
        }
    }
}

/// Is it the same recorder, or none on both sides?
pub fn is_same(one: Option<&Arc<dyn Recorder>>, other: Option<&Arc<dyn Recorder>>) -> bool {
    let address = |recorder: &Arc<dyn Recorder>| Arc::as_ptr(recorder).cast::<()>();
    one.map(address) == other.map(address)
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
        if joined.is_none() && op.may_be_recorded() && !fault!(views_join_unseen) {
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
