//! Raddle: tensors for many threads and one accelerator.
//!
//! Any tensor may be used from any thread, with no lock and no synchronization in user code. Memory is never reused while
//! work that touches it is in flight, and no op drops a write.
//!
//! ```
//! use raddle::prelude::*;
//!
//! # fn main() -> raddle::Result<()> {
//! let device = Device::new("cpu")?;
//! let weight = Tensor::randn([4, 3], DType::F32, &device, None)?;
//! let rows = std::thread::scope(|scope| {
//!     let part = |seed| {
//!         let (weight, device) = (&weight, &device);
//!         scope.spawn(move || Tensor::full([2, 3], seed, DType::F32, device)?.linear(weight, None))
//!     };
//!     let threads: Vec<_> = (0..4i64).map(part).collect();
//!     threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect::<raddle::Result<Vec<_>>>()
//! })?;
//! let all = Tensor::cat(&rows, 0)?;
//! assert_eq!(**all.shape(), [8, 4]);
//! # Ok(())
//! # }
//! ```
//!
//! Streams, events and pools are for those who want to say what runs where; results are the same without:
//!
//! ```
//! use raddle::{Event, Priority, Stream, prelude::*};
//!
//! # fn main() -> raddle::Result<()> {
//! let device = Device::new("cpu")?;
//! let x = Tensor::ones([1000], DType::F32, &device)?;
//! let (side, pool) = (Stream::from_pool(&device, Priority::High)?, device.memory_pool());
//! let event = Event::new();
//! let y = {
//!     let (_stream, _memory) = (side.enter(), pool.enter()); // of this thread, as long as the guards live
//!     let y = x.mul(2)?;
//!     event.record(side);
//!     y
//! };
//! assert_eq!(y.sum(.., false)?.item::<f32>()?, 2000.0); // ordered behind `mul`, on another stream
//! event.synchronize()?; // the host waits; `Stream::wait_event` is for streams, and `event.wait()` a future
//! assert!(event.query());
//! # Ok(())
//! # }
//! ```
//!
//! A test of code that names streams says which one is late, on any device ([`testing`]):
//!
//! ```
//! use raddle::{Priority, Stream, prelude::*, testing};
//!
//! # fn main() -> raddle::Result<()> {
//! let device = Device::new("cpu")?;
//! let x = Tensor::ones([3], DType::F32, &device)?;
//! let late = Stream::from_pool(&device, Priority::Normal)?;
//! let held = testing::hold(late)?;
//! let y = {
//!     let _stream = late.enter();
//!     x.add(1)?
//! };
//! let z = y.mul(2)?; // on this thread's stream, behind `add`
//! assert!(!late.query()); // however long one waits
//! held.release();
//! assert_eq!(z.to_vec::<f32>()?, [4.0; 3]);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Device`]: where tensors live; named as `cpu`, `cuda:0` or `sim:7`.
//! - [`Tensor`]: views, broadcasting, promotion and methods as in PyTorch; all ops return a [`Result`].
//! - [`fused`]: one kernel from a closure. [`Publisher`]: versions of live weights for those who train and serve at once.
//! - [`Stream`], [`Event`]: for those who want to say which work goes where; streams for one thread
//!   ([`Stream::dedicated`]), of other code ([`Stream::wrap`]), callbacks ([`Stream::on_complete`]), times
//!   ([`Event::timing`]). [`testing`] has streams that are late on purpose, for tests of code that names them.
//! - [`grad`], [`optim`], [`nn`]: gradients, optimizers, layers and checkpoints.
//! - [`serve`]: a batcher, for requests of many threads that are run together; `engine`: a model behind it.
//!
//! Each part has errors of its own ([`grad::Error`], [`optim::Error`], [`nn::checkpoint::CheckpointError`] and so on), and all of
//! them convert to [`Error`], which tensors and devices have: a function that uses several returns [`Result`].
//!
//! ```
//! use raddle::{optim::{Adam, AdamOptions}, prelude::*};
//!
//! fn train(weight: &Tensor, x: &Tensor) -> raddle::Result<f32> {
//!     let mut adam = Adam::new(vec![weight.clone()], AdamOptions::default())?;
//!     let loss = x.linear(weight, None)?.square()?.mean(.., false)?;
//!     loss.backward()?;
//!     adam.step()?;
//!     loss.item()
//! }
//!
//! # fn main() -> raddle::Result<()> {
//! let device = Device::new("cpu")?;
//! let (weight, x) = (Tensor::ones([1, 2], DType::F32, &device)?, Tensor::ones([3, 2], DType::F32, &device)?);
//! weight.requires_grad_(true)?;
//! assert_eq!(train(&weight, &x)?, 4.0);
//! // What another part found is inside.
//! let error = train(&weight.detach(), &x).unwrap_err();
//! let raddle::Error::Layer(inner) = &error else { panic!("{error}") };
//! assert!(matches!(inner.downcast_ref(), Some(raddle::grad::Error::NoGraph { .. })));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod device;

pub use device::{BACKENDS, Backend, Device};
pub use raddle_grad as grad;
pub use raddle_hal::{Bounds, Limits};
pub use raddle_nn as nn;
pub use raddle_op::{catalogue, for_each_pointwise};
pub use raddle_optim as optim;
pub use raddle_runtime::{
    self as runtime, CacheStats, DedicatedStream, Event, EventFuture, Exhausted, ExternalStream, GraphCounts,
    MappedFile, MemoryPool, MemoryPoolGuard, MemorySnapshot, MemoryStats, Priority, Stream, StreamGuard,
    StreamId, StreamStats, testing, trace,
};
pub use raddle_serve as serve;
#[cfg(feature = "text")]
pub use raddle_server::engine;
#[cfg(feature = "sim")]
pub use raddle_sim::{AddressSpace, Completion, OutOfMemory, SimOptions};
pub use raddle_tensor::*;

/// The bounds that can't be set, of the runtime, of models, and of the backends in this build. `docs/limits.md` lists all.
pub fn fixed_bounds() -> impl Iterator<Item = &'static raddle_hal::Fixed> {
    let mut bounds = vec![runtime::FIXED, grad::FIXED, nn::FIXED];
    #[cfg(feature = "cpu")]
    bounds.push(raddle_cpu::FIXED);
    #[cfg(feature = "cuda")]
    bounds.push(raddle_cuda::FIXED);
    bounds.into_iter().flatten()
}

/// GPUs: what can be chosen, handles for tests, and what is installed.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use raddle_cuda::{
        Control, Cuda, CudaOptions, DeviceReport, DiskCache, LibraryReport, Report, SetupError, Spin,
        device_count, report,
    };
}

/// What most programs need: `use raddle::prelude::*;`.
pub mod prelude {
    pub use crate::{
        DType, Device, Element, Generator, INFER, Scalar, Tensor, fused,
        grad::{Autograd, no_grad},
        manual_seed,
        nn::Module,
    };
}
