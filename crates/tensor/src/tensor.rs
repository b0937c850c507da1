//! The handle, and its place for whoever records the ops of the tensor ([`record`](crate::record)).

use crate::{CallArg, DType, Device, Dims, Error, Layout, Result, View};
use arc_swap::ArcSwapOption;
use raddle_base::Scalar;
use raddle_op::{PARAM_COUNT_MAX, Pointwise, Program};
use raddle_runtime::{Access, Buffer, Claimed, Operand, Stream};
use raddle_sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use smallvec::SmallVec;
use std::{any::Any, fmt::Debug, ops::Range};

/// A view of numbers on a device. Cheap to clone: clones are the same tensor, with the same memory and the same place in
/// a graph of gradients. [`Tensor::copy`] makes another one.
///
/// It may be used from any thread. Two threads that change one tensor with no order between them get one of the two
/// orders, op by op, never torn memory.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    /// The tensor that this is a view of, never itself a view. It lives as long as its views: when one of them is changed
    /// in place, that changes it, and through it all others.
    base: Option<Tensor>,
    slot: Slot,
}

/// What views share.
struct Storage {
    buffer: Buffer,
    /// The version of the buffer when this life of it began.
    first_version: u64,
    /// Has a tensor got a place in a graph by a change in place? Then views of it that were made before have one, too.
    joined: AtomicBool,
}

impl Storage {
    fn new(buffer: Buffer) -> Storage {
        Storage { first_version: buffer.version(), buffer, joined: AtomicBool::new(false) }
    }
}

/// The device knows the dtype.
#[inline]
pub(crate) fn check_has(op: &'static str, dtype: DType, device: &Device) -> Result<()> {
    let expected = device.dtypes();
    match expected.contains(dtype) {
        true => Ok(()),
        false => Err(Error::Lacking { op, device: device.name(), expected, found: dtype }),
    }
}

impl Tensor {
    /// A tensor of fresh memory with undefined content.
    pub(crate) fn allocate(
        op: &'static str,
        layout: Layout,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        check_has(op, dtype, device)?;
        let size_bytes = layout
            .shape()
            .checked_product()
            .and_then(|count| count.checked_mul(dtype.size_bytes()))
            .filter(|&size| isize::try_from(size).is_ok())
            .ok_or_else(|| Error::TooLarge { op, shape: layout.shape().to_vec(), dtype })?;
        let storage = Storage::new(device.allocate(size_bytes)?);
        Ok(Tensor(Arc::new(Inner {
            storage: Arc::new(storage),
            layout,
            dtype,
            base: None,
            slot: Slot::empty(),
        })))
    }

    /// A tensor over memory that holds its elements.
    pub(crate) fn over(buffer: Buffer, layout: Layout, dtype: DType) -> Tensor {
        let (storage, base, slot) = (Arc::new(Storage::new(buffer)), None, Slot::empty());
        Tensor(Arc::new(Inner { storage, layout, dtype, base, slot }))
    }

    /// Another view of the same storage, which is no view in the eyes of gradients.
    pub(crate) fn sibling(&self, layout: Layout, dtype: DType) -> Tensor {
        let storage = self.0.storage.clone();
        Tensor(Arc::new(Inner { storage, layout, dtype, base: None, slot: Slot::empty() }))
    }

    /// Another view of the same storage. The caller answers for the layout being inside.
    pub(crate) fn alias(&self, layout: Layout) -> Tensor {
        let base = self.0.base.clone().unwrap_or_else(|| self.clone());
        Tensor(Arc::new(Inner {
            storage: self.0.storage.clone(),
            layout,
            dtype: self.0.dtype,
            base: Some(base),
            slot: Slot::empty(),
        }))
    }

    /// The same memory under a handle that no graph of gradients knows. It shares the [version](Tensor::version).
    pub fn detach(&self) -> Tensor {
        Tensor(Arc::new(Inner {
            storage: self.0.storage.clone(),
            layout: self.0.layout,
            dtype: self.0.dtype,
            base: None,
            slot: Slot::empty(),
        }))
    }

    pub(crate) fn slot_cell(&self) -> &Slot {
        &self.0.slot
    }

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

    /// Sizes of the axes.
    #[inline]
    pub fn shape(&self) -> &Dims {
        self.0.layout.shape()
    }
    /// Steps between neighbours along each axis, in elements.
    #[inline]
    pub fn strides(&self) -> &Dims {
        self.0.layout.strides()
    }
    /// Where the first element lies in the storage, in elements.
    pub fn storage_offset(&self) -> usize {
        self.0.layout.offset()
    }
    /// Shape, strides and offset.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }
    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// Number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.layout.rank()
    }
    /// Number of elements.
    pub fn element_count(&self) -> usize {
        self.0.layout.element_count()
    }
    /// Size of an axis; negative axes count from the end.
    pub fn size(&self, axis: isize) -> Result<usize> {
        Ok(self.shape()[self.layout().axis("size", axis)?])
    }
    /// Row-major without holes?
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_contiguous()
    }
    /// Where it lies.
    #[inline]
    pub fn device(&self) -> Device {
        self.0.storage.buffer.device()
    }
    /// The memory that it is a view of.
    #[inline]
    pub fn buffer(&self) -> &Buffer {
        &self.0.storage.buffer
    }
    /// Notes that code outside of the runtime uses its memory on a stream. When the last view of it is gone, that memory isn't
    /// used again before everything is complete that is on the stream then. What the runtime itself does needs no such note.
    /// See [`Device::record_stream`]; blocks as that does.
    ///
    /// Errors: a stream of another device, or one that has been closed.
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        Ok(self.device().record_stream(self.buffer(), stream)?)
    }
    /// Number of elements that the storage holds.
    pub fn storage_element_count(&self) -> usize {
        self.buffer().size_bytes() / self.dtype().size_bytes()
    }
    /// The same handle? Clones are, views and copies aren't.
    pub fn is(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// The same memory? Views of one storage are.
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0.storage, &other.0.storage)
    }
    /// A number that is the same for clones and for no other living tensor.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The tensor that this is a view of, if it is one. Never itself a view.
    pub fn view_base(&self) -> Option<&Tensor> {
        self.0.base.as_ref()
    }
    /// Is it a view of another tensor?
    pub fn is_view(&self) -> bool {
        self.0.base.is_some()
    }

    /// Notes that this tensor, which was in no graph, has got a place in one because it or a view of it was written. Views of it
    /// that were made before have empty slots, and are in the graph all the same.
    pub fn note_joined(&self) {
        // As with a slot's flag: whoever hands a view to another thread orders the two.
        self.0.storage.joined.store(true, Ordering::Relaxed);
    }

    /// Is it a view whose tensor may be in a graph though its own slot doesn't say so?
    #[inline]
    pub fn may_have_joined(&self) -> bool {
        self.is_view() && self.0.storage.joined.load(Ordering::Relaxed)
    }

    /// How many ops that write to the storage have been submitted since it was made. Views of one storage share it. An op counts
    /// while it claims its operands, in the order in which ops run, whoever submits it: this crate, a graph that is replayed, an
    /// optimizer. A gradient that kept a tensor compares it to find out whether somebody has changed it since.
    ///
    /// From any thread; doesn't block.
    pub fn version(&self) -> u64 {
        self.buffer().version() - self.0.storage.first_version
    }

    /// The versions as an op that holds its operands finds it and leaves it; none if the storage is no operand of it.
    pub(crate) fn versions_in(&self, op: &Claimed<'_>) -> Option<Range<u64>> {
        let first = self.0.storage.first_version;
        op.versions(self.buffer()).map(|versions| versions.start - first..versions.end - first)
    }

    #[inline]
    pub(crate) fn read<'a>(&'a self, layout: &'a Layout) -> Operand<'a> {
        Operand { buffer: self.buffer(), access: Access::Read, dtype: self.dtype(), layout }
    }
    #[inline]
    pub(crate) fn write<'a>(&'a self, layout: &'a Layout) -> Operand<'a> {
        Operand { buffer: self.buffer(), access: Access::Write, dtype: self.dtype(), layout }
    }
}

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

/// What was called.
#[derive(Clone, Debug)]
pub enum Call {
    /// A row of the op table. The inputs are the tensors among `args`, in order.
    Pointwise {
        /// The row.
        op: Pointwise,
        /// The row's inputs.
        args: SmallVec<[CallArg; 4]>,
        /// The row's scalar parameters; those that it doesn't have are 0.
        params: [Scalar; PARAM_COUNT_MAX],
    },
    /// A fused closure over all inputs; one output for each of the program's.
    Fused {
        /// What it computes.
        program: std::sync::Arc<Program>,
        /// The dtype it computes in.
        compute: DType,
    },
    /// A view of the input.
    View(View),
    /// Any other op with a gradient.
    Op(std::sync::Arc<dyn Op>),
    /// The output was overwritten with values that depend on no input (random numbers, a fill, an upload).
    Overwrite,
    /// A result without gradient: indices, counts, random numbers made like the input.
    Constant,
}

impl Call {
    pub(crate) fn op(op: impl Op) -> Call {
        Call::Op(std::sync::Arc::new(op))
    }

    /// The name for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Pointwise { op, .. } => op.name(),
            Call::Fused { .. } => "fused",
            Call::View(view) => view.name(),
            Call::Op(op) => op.name(),
            Call::Overwrite => "fill",
            Call::Constant => "a constant",
        }
    }
}

/// An op with its attributes, as it was called, and its gradients.
pub trait Op: Debug + Send + Sync + 'static {
    /// The name for messages: that of the method.
    fn name(&self) -> &'static str;

    /// What `gradients` reads of the op's tensors.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The gradients by the inputs for `g`, that of the first output (later ones have none). One for each input that is
    /// [wanted](Context::wants); of its shape; of any dtype, to be converted to the input's. Nothing is recorded meanwhile.
    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients>;
}

/// Gradients by the inputs of an op.
pub type Gradients = SmallVec<[Option<Tensor>; 4]>;

/// Which inputs and outputs gradients are computed from, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bit `i` for input `i`.
    pub inputs: u64,
    /// Bit `i` for output `i`.
    pub outputs: u64,
}

impl Needs {
    /// Of these inputs, as bits.
    pub const fn inputs(inputs: u64) -> Needs {
        Needs { inputs, outputs: 0 }
    }

    /// Of these outputs, as bits.
    pub const fn outputs(outputs: u64) -> Needs {
        Needs { inputs: 0, outputs }
    }

    /// Is this input among them?
    pub fn input(&self, index: usize) -> bool {
        index < 64 && self.inputs >> index & 1 == 1
    }

    /// Is this output among them?
    pub fn output(&self, index: usize) -> bool {
        index < 64 && self.outputs >> index & 1 == 1
    }
}

/// What is there of the tensors of an op when its gradients are computed.
pub trait Context {
    /// How many inputs it had.
    fn input_count(&self) -> usize;
    /// Is the gradient by this input asked for?
    fn wants(&self, input: usize) -> bool;
    /// An input's shape and dtype.
    fn meta(&self, input: usize) -> &Meta;
    /// An input that may not be there, or may not have been kept.
    fn find_input(&self, input: usize) -> Option<&Tensor>;
    /// An output that the op [needs](Op::needs).
    fn output(&self, output: usize) -> &Tensor;

    /// An input that the op [needs](Op::needs).
    fn input(&self, input: usize) -> &Tensor {
        self.find_input(input).expect("the op says that it needs this input")
    }
}

/// What is known of a tensor that isn't kept.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Shape and strides.
    pub layout: Layout,
    /// Of its elements.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
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
    pub(crate) fn was_filled(&self) -> bool {
        self.was_filled.load(Ordering::Relaxed)
    }
    fn note_filled(&self, is_filled: bool) {
        if is_filled {
            self.was_filled.store(true, Ordering::Relaxed);
        }
    }
}

/// Is it the same recorder, or none on both sides?
pub fn is_same(one: Option<&Arc<dyn Recorder>>, other: Option<&Arc<dyn Recorder>>) -> bool {
    let address = |recorder: &Arc<dyn Recorder>| Arc::as_ptr(recorder).cast::<()>();
    one.map(address) == other.map(address)
}
