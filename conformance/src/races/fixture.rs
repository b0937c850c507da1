//! What cases run on, and what they have in common.

use crate::Backend;
use raddle::{
    DType, Device, Limits, Priority, Stream, Tensor,
    testing::{Held, hold, spin},
};
use std::{str::FromStr, time::Duration};

/// A device by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The CPU, which all cases share.
    Cpu,
    /// Simulators from this seed on, new ones for each case.
    Sim(u64),
    /// A GPU: a device of its own for each case, whose kernels spin.
    Cuda(usize),
}

impl FromStr for Place {
    type Err = String;
    fn from_str(name: &str) -> Result<Place, String> {
        let place = match name.split_once(':') {
            None if name == "cpu" => Some(Place::Cpu),
            None if name == "cuda" => Some(Place::Cuda(0)),
            Some(("sim", seed)) => seed.parse().ok().map(Place::Sim),
            Some(("cuda", ordinal)) => ordinal.parse().ok().map(Place::Cuda),
            _ => None,
        };
        place.ok_or_else(|| format!("expected cpu, sim:SEED or cuda:ORDINAL, found {name:?}"))
    }
}

impl Place {
    /// As cases are named.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Cpu => "cpu",
            Place::Sim(_) => "sim",
            Place::Cuda(_) => "cuda",
        }
    }

    /// As [`Device::new`] names it.
    pub(crate) fn device(self) -> String {
        match self {
            Place::Cpu => "cpu".into(),
            Place::Sim(seed) => format!("sim:{seed}"),
            Place::Cuda(ordinal) => format!("cuda:{ordinal}"),
        }
    }

    /// Why nothing can be run here. A GPU that is there but doesn't work is no reason.
    pub(crate) fn absent(self) -> Option<&'static str> {
        if matches!(self, Place::Cuda(_)) { Backend::Cuda.absent() } else { None }
    }
}

/// What a case runs on.
pub struct Fixture {
    /// The device that the case runs on.
    pub device: Device,
    pub(super) place: Place,
}

/// The CPU would run ops that are small at once: its streams are kept busy so long instead (a guess, of some times what it takes to
/// wake a worker).
const BUSY: Duration = Duration::from_micros(100);

impl Fixture {
    /// On the CPU the current stream is busy for a while in one of three trials, so that what is put on it next is in flight and a
    /// worker runs it. Other devices are late by themselves.
    pub(super) fn be_late(&self, trial: usize) {
        if self.place == Place::Cpu && trial.is_multiple_of(3) {
            spin(Stream::current(&self.device).unwrap(), BUSY).unwrap();
        }
    }

    /// Holds a stream, except on CUDA: cases that run beside this one load kernels there, which is refused meanwhile.
    pub(super) fn hold(&self, stream: Stream) -> Option<Held> {
        (!matches!(self.place, Place::Cuda(_))).then(|| hold(stream).unwrap())
    }

    /// How often something is done: on a device, or on each of the simulators, which are slow.
    pub(super) fn count(&self, of_device: usize, of_sim: usize) -> usize {
        if matches!(self.place, Place::Sim(_)) { of_sim } else { of_device }
    }

    /// Runs a body on a device that no other case uses: its limits are the body's, and whose turn its streams are. Only the
    /// CPU is shared by cases.
    pub(super) fn alone(&self, body: impl FnOnce(&Device)) {
        if self.place != Place::Cpu {
            return body(&self.device);
        }
        let device = Device::with_limits("cpu", &Limits::default()).expect("the CPU is there");
        body(&device);
        let closed = device.close().expect("the device works");
        assert!(closed, "cpu: memory is still held after everything was dropped");
    }
}

pub(super) fn filled(device: &Device, size: usize, value: f32) -> Tensor {
    Tensor::full([size], value, DType::F32, device).unwrap()
}

pub(super) fn is_all(tensor: &Tensor, value: f32) -> bool {
    tensor.to_vec::<f32>().unwrap().iter().all(|&found| found == value)
}

pub(super) fn pool(device: &Device, count: usize) -> Vec<Stream> {
    (0..count).map(|_| Stream::from_pool(device, Priority::Normal).unwrap()).collect()
}

/// All trials are made, so that what is said tells how often a fault shows.
pub(super) fn trials(count: usize, mut is_right: impl FnMut(usize) -> bool) {
    let wrong = (0..count).filter(|&trial| !is_right(trial)).count();
    assert!(wrong == 0, "{wrong} of {count} trials are wrong");
}

/// Runs a body on so many threads to their ends. (A scope alone would not wait for thread-locals, in which free blocks are
/// kept, and the device couldn't be closed.)
pub(super) fn on_threads(count: usize, body: impl Fn(usize) + Sync) {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|thread| scope.spawn(move || body(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked, and said why"));
    });
}

/// Runs a body beside another thread, which is waited for as in [`on_threads`]. What the body owns is dropped before that:
/// channels to a thread that panicked are closed, and nobody waits for it.
pub(super) fn beside(other: impl FnOnce() + Send, body: impl FnOnce()) {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        body();
        other.join().expect("the other thread panicked, and said why");
    });
}

/// Ops that are in front of what the current stream is given next: a window for who overtakes.
pub(super) struct Backlog(Tensor);

impl Backlog {
    pub(super) fn new(device: &Device) -> Backlog {
        Backlog(filled(device, 64, 0.0))
    }

    pub(super) fn put(&self) {
        let device = self.0.device();
        if device.name() == "cpu" {
            return spin(Stream::current(&device).unwrap(), BUSY).unwrap();
        }
        for _ in 0..16 {
            self.0.add_(1.0).unwrap();
        }
    }
}
