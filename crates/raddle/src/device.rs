//! Devices by name.

use crate::{Error, Graph, Outputs, Result, Tensor, To};
use raddle_runtime::Device as Opened;
#[cfg(any(feature = "cpu", feature = "cuda"))]
use raddle_sync::{Mutex, Rank};
#[cfg(feature = "cuda")]
use std::collections::HashMap;
use std::{ops::Deref, str::FromStr};

/// The names that [`Device::new`] knows in this build.
const KNOWN: &str = match (cfg!(feature = "cpu"), cfg!(feature = "cuda"), cfg!(feature = "sim")) {
    (_, true, true) => "cpu, cuda:ORDINAL, sim:SEED",
    (_, false, true) => "cpu, sim:SEED",
    (true, true, false) => "cpu, cuda:ORDINAL",
    (true, false, false) => "cpu",
    (false, true, false) => "cuda:ORDINAL",
    (false, false, false) => "none, since this build has no backend: enable the feature cpu",
};

/// A device: a name for something that lives as long as the process. It is everything that
/// [`raddle_runtime::Device`] is: memory statistics, `synchronize`, streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(Opened);

impl Device {
    /// Opens a device.
    ///
    /// - `cpu`: one for the process; it needs nothing installed.
    /// - `cuda:ORDINAL`: a GPU, as the driver counts them; `cuda` is the first. One for each in the process. It needs the
    ///   driver, NVRTC and, for matrix products, cuBLASLt, all found when they are first used; `raddle doctor` tells what
    ///   is missing.
    /// - `sim:SEED`: the CPU behind a simulator that runs work late and in an order drawn from the seed. Each call opens a
    ///   new one, so that a run can be repeated; see [`Device::close`](raddle_runtime::Device::close).
    ///
    /// Errors: a name that isn't one of these; a GPU that isn't there or can't be used, with the reason.
    ///
    /// ```
    /// let error = raddle::Device::new("gpu").unwrap_err();
    /// assert_eq!(error.to_string(), "device: unknown name \"gpu\", expected one of: cpu, cuda:ORDINAL, sim:SEED");
    /// ```
    pub fn new(name: &str) -> Result<Device> {
        match name.split_once(':') {
            #[cfg(feature = "cpu")]
            None if name == "cpu" => Device::cpu(),
            #[cfg(feature = "cuda")]
            None if name == "cuda" => Device::gpu(0),
            #[cfg(feature = "cuda")]
            Some(("cuda", ordinal)) => ordinal.parse().map_or_else(|_| Err(unknown(name)), Device::gpu),
            #[cfg(feature = "sim")]
            Some(("sim", seed)) => match seed.parse() {
                Ok(seed) => Device::sim(raddle_sim::SimOptions { seed, ..Default::default() }),
                Err(_) => Err(unknown(name)),
            },
            _ => Err(unknown(name)),
        }
    }

    /// The names that [`Device::new`] knows, as one text.
    pub fn known_names() -> &'static str {
        KNOWN
    }

    /// Runs a closure once on this thread and records what it does on this device instead of doing it: a [`Graph`], which
    /// any thread may replay as one op. On a GPU it is a CUDA graph. See [`capture`](crate::capture).
    ///
    /// ```
    /// # use raddle::prelude::*;
    /// # fn main() -> raddle::Result<()> {
    /// let device = Device::new("cpu")?;
    /// let x = Tensor::ones([3], DType::F32, &device)?;
    /// let graph = device.capture(|| x.add(1)?.square())?;
    /// x.fill_(2)?;
    /// assert_eq!(graph.replay()?.to_vec::<f32>()?, [9.0; 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn capture<T: Outputs, E: From<Error>>(
        &self,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<Graph<T>, E> {
        crate::capture(&self.0, body)
    }

    /// The CPU: one device for the process.
    #[cfg(feature = "cpu")]
    pub fn cpu() -> Result<Device> {
        static CPU: Mutex<Option<Opened>> = Mutex::new(Rank::Registry, None);
        let mut cpu = CPU.lock_global();
        let opened = match *cpu {
            Some(opened) => opened,
            None => Opened::open(Box::new(raddle_cpu::Cpu::new()))?,
        };
        *cpu = Some(opened);
        Ok(Device(opened))
    }

    /// A GPU: one device for the process.
    #[cfg(feature = "cuda")]
    fn gpu(ordinal: usize) -> Result<Device> {
        static GPUS: Mutex<Option<HashMap<usize, Device>>> = Mutex::new(Rank::Registry, None);
        let mut gpus = GPUS.lock_global();
        let gpus = gpus.get_or_insert_default();
        let device = match gpus.get(&ordinal) {
            Some(device) => *device,
            None => Device::cuda(ordinal, raddle_cuda::CudaOptions::default())?,
        };
        gpus.insert(ordinal, device);
        Ok(device)
    }

    /// A GPU with choices: a new device at each call, beside the one that its name names.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize, options: raddle_cuda::CudaOptions) -> Result<Device> {
        let failed = |error| raddle_runtime::Error::Device { device: format!("cuda:{ordinal}"), error };
        let cuda = raddle_cuda::Cuda::with_options(ordinal, options).map_err(failed)?;
        Ok(Device(Opened::open(Box::new(cuda))?))
    }

    /// A new simulator over a CPU device of its own.
    #[cfg(feature = "sim")]
    pub fn sim(options: raddle_sim::SimOptions) -> Result<Device> {
        let name = format!("sim:{}", options.seed);
        let sim = raddle_sim::Sim::new(Box::new(raddle_cpu::Cpu::new()), options)
            .map_err(|error| raddle_runtime::Error::Device { device: name, error })?;
        Ok(Device(Opened::open(Box::new(sim))?))
    }
}

fn unknown(name: &str) -> Error {
    Error::UnknownDevice { name: name.into(), known: KNOWN }
}

/// As [`Device::new`].
impl FromStr for Device {
    type Err = Error;
    fn from_str(name: &str) -> Result<Device> {
        Device::new(name)
    }
}

/// A device that was opened in another way, e.g. one of an own `hal`.
impl From<Opened> for Device {
    fn from(opened: Opened) -> Device {
        Device(opened)
    }
}

impl Deref for Device {
    type Target = Opened;
    fn deref(&self) -> &Opened {
        &self.0
    }
}

impl To for &Device {
    fn convert(self, tensor: &Tensor) -> Result<Tensor> {
        tensor.to_device(&self.0)
    }
}
