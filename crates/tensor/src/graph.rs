//! Graphs of ops: captured once, replayed as one op from any thread.

use crate::{
    Device, Error, Generator, Layout, Result, Tensor, error::shape_error, pointwise::check_device,
    record::Silence,
};
use raddle_base::DType;
use raddle_runtime::{self as runtime, Capture, Draw, GraphStats, Replacement};
use smallvec::SmallVec;
use std::{cell::RefCell, marker::PhantomData};

/// What a captured closure returns, and so what each replay does: nothing, a tensor, or some.
pub trait Outputs: Sized {
    /// The tensors, in order.
    fn into_tensors(self) -> Vec<Tensor>;
    /// The same of as many other tensors.
    fn from_tensors(tensors: Vec<Tensor>) -> Self;
}

impl Outputs for () {
    fn into_tensors(self) -> Vec<Tensor> {
        Vec::new()
    }
    fn from_tensors(_: Vec<Tensor>) {}
}
impl Outputs for Vec<Tensor> {
    fn into_tensors(self) -> Vec<Tensor> {
        self
    }
    fn from_tensors(tensors: Vec<Tensor>) -> Vec<Tensor> {
        tensors
    }
}
impl<const N: usize> Outputs for [Tensor; N] {
    fn into_tensors(self) -> Vec<Tensor> {
        self.into()
    }
    fn from_tensors(tensors: Vec<Tensor>) -> [Tensor; N] {
        tensors.try_into().unwrap_or_else(|_| unreachable!("there are as many as were returned"))
    }
}
impl Outputs for Tensor {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }
    fn from_tensors(tensors: Vec<Tensor>) -> Tensor {
        let [tensor] = Outputs::from_tensors(tensors);
        tensor
    }
}
macro_rules! tuples {
    ($(($($t:ident $name:ident),*))*) => { $(
        impl Outputs for ($($t),*) {
            fn into_tensors(self) -> Vec<Tensor> {
                let ($($name),*) = self;
                vec![$($name),*]
            }
            fn from_tensors(tensors: Vec<Tensor>) -> Self {
                let [$($name),*] = Outputs::from_tensors(tensors);
                ($($name),*)
            }
        }
    )* };
}
tuples! { (Tensor a, Tensor b) (Tensor a, Tensor b, Tensor c) (Tensor a, Tensor b, Tensor c, Tensor d) }

/// What the closure does that kernels don't tell.
#[derive(Default)]
struct Notes {
    /// For each draw, the generator, unless it is the thread's, and how many blocks.
    draws: Vec<(Option<Generator>, u64)>,
}

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::new(Notes::default());
}

/// Forgets the notes when it is dropped, also by a panic.
struct Forget;

impl Drop for Forget {
    fn drop(&mut self) {
        drop(NOTES.take());
    }
}

/// This thread captures a draw.
#[cold]
pub(crate) fn note_draw(generator: Option<&Generator>, blocks: u64) {
    NOTES.with_borrow_mut(|notes| notes.draws.push((generator.cloned(), blocks)));
}

/// Where an output is found after a replay.
#[derive(Debug)]
enum Output {
    /// In the memory of the replay.
    Inside { storage: usize, layout: Layout, dtype: DType },
    /// It was made outside.
    Outside(Tensor),
}

/// Ops that were captured by [`capture`]. Share it by reference or in an `Arc`; all methods may be called from any thread.
#[derive(Debug)]
pub struct Graph<T> {
    raw: runtime::Graph,
    outputs: Vec<Output>,
    draws: Vec<(Option<Generator>, u64)>,
    returns: PhantomData<fn() -> T>,
}

/// Runs a closure once on this thread and records what it does on a device instead of doing it.
///
/// ```
/// # use raddle_tensor::{DType, Device, Result, Tensor, capture};
/// # fn main() -> Result<()> {
/// # let device = Device::open(Box::new(raddle_cpu::Cpu::new()))?;
/// let (x, weight) = (Tensor::ones([2, 3], DType::F32, &device)?, Tensor::ones([4, 3], DType::F32, &device)?);
/// let graph = capture(&device, || x.linear(&weight, None)?.relu())?;
/// assert_eq!(graph.replay()?.to_vec::<f32>()?, [3.0; 8]);
/// weight.fill_(2.0)?;
/// assert_eq!(graph.replay()?.to_vec::<f32>()?, [6.0; 8]);
/// let other = Tensor::full([2, 3], 10, DType::F32, &device)?;
/// assert_eq!(graph.replay_with(&[(&x, &other)])?.to_vec::<f32>()?, [60.0; 8]);
/// # Ok(())
/// # }
/// ```
///
/// - **Operands.** Tensors that were made outside and are used inside are the graph's operands: it keeps them alive, and each
///   replay reads and writes them as they are then. Numbers are constants.
/// - **Memory.** What is made inside lives inside of a replay. Of it, only what the closure returns can be used outside; to
///   read another tensor that was made inside and kept is an error (a gradient that a backward inside has set, say).
/// - **Random numbers** are drawn by each replay from the generator that was given inside, or else from that of the thread
///   that replays, as running the closure would; the capture draws nothing.
/// - **Gradients.** A backward inside is captured with all that it does. A replay itself is not recorded: what it returns has
///   no gradient, and tensors that it writes count as changed.
/// - **The host's side** of the closure happens once: counters, printing, branches.
/// - Other threads, and other devices, are no part of it.
///
/// Errors: those of the closure. Inside of it, what can't be captured is an error: reading a value (`item`, `to_vec`,
/// `nonzero`, printing), copying from the host (`from_slice`, `scalar`), waiting (`synchronize`), a capture or a replay. An
/// error or a panic leaves nothing behind.
pub fn capture<T: Outputs, E: From<Error>>(
    device: &Device,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<Graph<T>, E> {
    let capture = Capture::begin(device).map_err(Error::from)?;
    let _forget = Forget;
    let returned = body()?.into_tensors();
    let Notes { draws } = NOTES.take();
    let mut storages: Vec<Tensor> = Vec::new();
    let outputs = returned.iter().map(|tensor| {
        if !capture.is_inside(tensor.buffer()) {
            return Output::Outside(tensor.detach());
        }
        let storage = storages.iter().position(|other| other.shares_storage(tensor)).unwrap_or_else(|| {
            storages.push(tensor.detach());
            storages.len() - 1
        });
        Output::Inside { storage, layout: *tensor.layout(), dtype: tensor.dtype() }
    });
    let outputs = outputs.collect();
    let buffers: Vec<_> = storages.iter().map(Tensor::buffer).collect();
    let raw = capture.end(&buffers).map_err(Error::from)?;
    debug_assert_eq!(raw.draw_count(), draws.len());
    Ok(Graph { raw, outputs, draws, returns: PhantomData })
}

impl<T: Outputs> Graph<T> {
    /// Replays the ops, on the current stream of this thread, as one op; what the closure returned, of this replay. Doesn't
    /// wait for the results.
    ///
    /// Outputs lie in memory of the graph that is theirs as long as a handle or view of one lives; dropping them gives it
    /// back. Who keeps many had better keep a [`copy`](Tensor::copy): past some dozens the graph makes new memory and, on a
    /// GPU, a new executable for each (about a millisecond).
    pub fn replay(&self) -> Result<T> {
        self.replay_with(&[])
    }

    /// Replays with other tensors in the place of operands: pairs of the tensor that was used inside and the one to use now,
    /// of the same shape, dtype and strides. Views of the former are taken of the latter.
    ///
    /// The graph keeps what it makes for such a set of tensors, and so replays with the same ones again as fast as without;
    /// it keeps the tensors' memory alive meanwhile. With new ones each time, on a GPU, it pays for a new executable each
    /// time: copy into a tensor of your own then, one for each thread, and replay with that.
    ///
    /// Errors: a tensor that isn't an operand, shapes, dtypes or strides that differ, memory that another operand has while
    /// one of the two is written, a start that isn't aligned as the operand's (modulo 256 bytes).
    pub fn replay_with(&self, replacements: &[(&Tensor, &Tensor)]) -> Result<T> {
        let op = "replay";
        let mut given: SmallVec<[Replacement<'_>; 4]> = SmallVec::new();
        for (old, new) in replacements {
            check_device(op, old, &[new])?;
            if old.shape() != new.shape() {
                return Err(shape_error(op, "a replacement", old.shape(), new.shape()));
            }
            if old.dtype() != new.dtype() {
                return Err(Error::DTypesDiffer { op, lhs: old.dtype(), rhs: new.dtype() });
            }
            if old.strides() != new.strides() {
                let (expected, found) = (old.strides().to_vec(), new.strides().to_vec());
                return Err(Error::Strides { op, what: "a replacement", expected, found });
            }
            let shift = new.storage_offset() as isize - old.storage_offset() as isize;
            let shift_bytes = shift * old.dtype().size_bytes() as isize;
            given.push(Replacement { old: old.buffer(), new: new.buffer(), shift_bytes });
        }
        let draw = |(generator, blocks): &(Option<Generator>, u64)| {
            let (key, counter) = Generator::draw(generator.as_ref(), *blocks);
            Draw { key, counter }
        };
        let draws: SmallVec<[Draw; 4]> = self.draws.iter().map(draw).collect();
        let result = self.raw.replay(&given, &draws);
        let replacement = |tensor: &Tensor| {
            replacements
                .iter()
                .find(|(old, _)| old.buffer().is(tensor.buffer()))
                .map(|(old, new)| (*old, *new))
        };
        let mut storages: SmallVec<[Option<Tensor>; 4]> = SmallVec::new();
        let buffers = result?;
        storages.resize_with(buffers.len(), || None);
        let output = |output: &Output| match output {
            Output::Inside { storage, layout, dtype } => match &storages[*storage] {
                Some(first) => first.sibling(*layout, *dtype),
                None => {
                    let tensor = Tensor::over(buffers[*storage].clone(), *layout, *dtype);
                    storages[*storage] = Some(tensor.clone());
                    tensor
                }
            },
            Output::Outside(tensor) => match replacement(tensor) {
                None => tensor.clone(),
                Some((old, new)) => {
                    let shift = new.storage_offset() as isize - old.storage_offset() as isize;
                    let offset = tensor.storage_offset().wrapping_add_signed(shift);
                    new.sibling(tensor.layout().with_offset(offset), tensor.dtype())
                }
            },
        };
        Ok(T::from_tensors(self.outputs.iter().map(output).collect()))
    }

    /// Replays, and copies the outputs into tensors of their shapes; nothing of the graph's memory stays in use.
    pub fn replay_into(&self, outs: &[&Tensor]) -> Result<()> {
        if outs.len() != self.outputs.len() {
            let (expected, found) = (self.outputs.len(), outs.len());
            return Err(Error::Count { op: "replay", what: "outputs", expected, found });
        }
        let outputs = self.replay()?.into_tensors();
        let _silence = Silence::new();
        outs.iter().zip(&outputs).try_for_each(|(out, output)| out.copy_(output).map(drop))
    }

    /// Numbers of kernels, operands and instances, and the memory of one.
    pub fn stats(&self) -> GraphStats {
        self.raw.stats()
    }

    /// The most replays that run at once, and so the most memory; at least 1. Further ones line up behind. The default is 32.
    pub fn set_instance_count_max(&self, count_max: usize) {
        self.raw.set_instance_count_max(count_max);
    }
}
