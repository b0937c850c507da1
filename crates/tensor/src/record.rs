//! The funnel through which every op passes, so that `grad` can see it without this crate knowing `grad`.
//!
//! A tensor has a *slot*. While it is empty, an op costs one relaxed load an operand here and nothing else. `grad` fills
//! it with a [`Recorder`]; from then on each op that reads the tensor is told to that recorder, on the calling thread:
//! [`Recorder::prepare`] before an op that writes to an existing tensor (it can refuse), [`Recorder::record`] after any op
//! has been submitted. Nothing is told while recording is off on the thread ([`set_recording`]).
//!
//! A tensor made by an op has an empty slot; `record` fills it if the result belongs to a graph. Clones of a handle share
//! the slot. Views and [`Tensor::detach`] have slots of their own, but share the storage and its
//! [version](Tensor::version).

use crate::{Call, Error, Result, Tensor};
use arc_swap::ArcSwapOption;
use raddle_sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use smallvec::SmallVec;
use std::{any::Any, borrow::Borrow, cell::Cell};

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
    pub call: &'a Call,
    /// How the outputs came to be.
    pub mode: Mode,
    /// The tensors that it reads, as the call says.
    pub inputs: &'a [&'a Tensor],
    /// The tensors that it makes or writes.
    pub outputs: &'a [&'a Tensor],
}

/// What a slot holds. One of the recorders of an op's tensors is told of it, which is expected to look at the others.
pub trait Recorder: Any + Send + Sync {
    /// Before an op that writes to an existing tensor (in place or `out`). An error refuses it; nothing was written.
    fn prepare(&self, record: &Record<'_>) -> Result<()>;
    /// After an op was submitted; versions of written outputs have been bumped.
    fn record(&self, record: &Record<'_>) -> Result<()>;
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
}

impl Tensor {
    /// What the slot holds.
    pub fn slot(&self) -> Option<Arc<dyn Recorder>> {
        self.slot_cell().get()
    }

    /// Fills or empties the slot; returns what it held. All clones of this handle see it.
    pub fn set_slot(&self, recorder: Option<Arc<dyn Recorder>>) -> Option<Arc<dyn Recorder>> {
        let slot = self.slot_cell();
        if recorder.is_some() {
            slot.was_filled.store(true, Ordering::Relaxed);
        }
        slot.recorder.swap(recorder.map(Arc::new)).as_deref().cloned()
    }
}

/// The recorder that is to be told of an op on these tensors, if any.
#[inline]
fn recorder(tensors: impl Iterator<Item = impl AsRef<Tensor>>) -> Option<Arc<dyn Recorder>> {
    for tensor in tensors {
        let tensor = tensor.as_ref();
        if (tensor.slot_cell().was_filled() || tensor.may_have_joined()) && is_recording() {
            let recorder = tensor.slot().or_else(|| of_base(tensor));
            if recorder.is_some() {
                return recorder;
            }
        }
    }
    None
}

/// That of the tensor that this is a view of, which may have got a place in a graph after the view was made.
#[cold]
fn of_base(tensor: &Tensor) -> Option<Arc<dyn Recorder>> {
    if tensor.may_have_joined() { tensor.view_base()?.slot() } else { None }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

/// Tells of an op that made new tensors.
#[inline]
pub(crate) fn fresh(inputs: &[&Tensor], outputs: &[&Tensor], call: impl FnOnce() -> Call) -> Result<()> {
    match recorder(inputs.iter()) {
        None => Ok(()),
        Some(recorder) => recorder.record(&Record { call: &call(), mode: Mode::Fresh, inputs, outputs }),
    }
}

/// Runs an op that writes to existing tensors: asks, runs, bumps versions, tells.
#[inline]
pub(crate) fn written(
    mode: Mode,
    inputs: &[&Tensor],
    outputs: &[&Tensor],
    call: impl FnOnce() -> Call,
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match recorder(inputs.iter().chain(outputs)) {
        None => {
            run()?;
            outputs.iter().for_each(|output| output.bump_version());
            Ok(())
        }
        Some(recorder) => {
            let record = Record { call: &call(), mode, inputs, outputs };
            recorder.prepare(&record)?;
            run()?;
            outputs.iter().for_each(|output| output.bump_version());
            recorder.record(&record)
        }
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
