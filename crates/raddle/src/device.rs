//! Devices by name.

#[cfg(any(feature = "cpu", feature = "cuda"))]
use crate::Bounds;
use crate::{DTypes, Error, Graph, Limits, Outputs, Result, Tensor, To};
use raddle_runtime::Device as Opened;
use raddle_sync::RaceOnce;
#[cfg(any(feature = "cpu", feature = "cuda"))]
use raddle_sync::{Mutex, Rank};
#[cfg(feature = "cuda")]
use std::collections::HashMap;
use std::{ops::Deref, str::FromStr};

/// A backend of this build.
pub struct Backend {
    /// How names of its devices begin.
    pub name: &'static str,
    /// How they are written.
    form: &'static str,
    /// The dtypes that its devices have.
    pub dtypes: DTypes,
    /// Opens the device of what stands behind the colon, if that names one; with limits a new one.
    open: fn(Option<&str>, Option<&Limits>) -> Option<Result<Device>>,
}

/// The backends of this build, a row each.
pub const BACKENDS: &[Backend] = &[
    #[cfg(feature = "cpu")]
    Backend { name: "cpu", form: "cpu", dtypes: raddle_cpu::DTYPES, open: cpu },
    #[cfg(feature = "cuda")]
    Backend { name: "cuda", form: "cuda:ORDINAL", dtypes: raddle_cuda::DTYPES, open: cuda },
    #[cfg(feature = "sim")]
    Backend { name: "sim", form: "sim:SEED", dtypes: raddle_cpu::DTYPES, open: sim },
];

fn open(name: &str, limits: Option<&Limits>) -> Result<Device> {
    let (own, argument) = name.split_once(':').map_or((name, None), |(own, behind)| (own, Some(behind)));
    let backend = BACKENDS.iter().find(|backend| backend.name == own);
    let unknown = || Err(Error::UnknownDevice { name: name.into(), known: Device::known_names() });
    backend.and_then(|backend| (backend.open)(argument, limits)).unwrap_or_else(unknown)
}

#[cfg(feature = "cpu")]
fn cpu(argument: Option<&str>, limits: Option<&Limits>) -> Option<Result<Device>> {
    let new = |limits| Ok(Device(Opened::open(Box::new(raddle_cpu::Cpu::with_bounds(bounds(limits)?)))?));
    argument.is_none().then(|| limits.map_or_else(Device::cpu, new))
}

#[cfg(feature = "cuda")]
fn cuda(argument: Option<&str>, limits: Option<&Limits>) -> Option<Result<Device>> {
    let ordinal = argument.map_or(Some(0), |ordinal| ordinal.parse().ok())?;
    let new = |limits| {
        let bounds = bounds(limits)?;
        Device::cuda(ordinal, raddle_cuda::CudaOptions { bounds, ..Default::default() })
    };
    Some(limits.map_or_else(|| Device::gpu(ordinal), new))
}

#[cfg(feature = "sim")]
fn sim(argument: Option<&str>, limits: Option<&Limits>) -> Option<Result<Device>> {
    let options = raddle_sim::SimOptions { seed: argument?.parse().ok()?, ..Default::default() };
    Some(bounds(limits.unwrap_or(&Limits::default())).and_then(|bounds| Device::sim_within(options, bounds)))
}

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
    ///
    /// Limits come from the environment ([`Limits`]); one that is no value is an error here.
    pub fn new(name: &str) -> Result<Device> {
        open(name, None)
    }

    /// Opens a device with limits: a new one at each call, beside the one that its name names. What isn't asked for comes
    /// from the environment, and then from the table of `docs/limits.md`.
    ///
    /// Errors: as [`Device::new`]; a limit out of range.
    ///
    /// ```
    /// use raddle::{Device, Limits};
    ///
    /// let limits = Limits { memory_bytes: Some(64 << 20), stream_count: Some(4), ..Limits::default() };
    /// let device = Device::with_limits("cpu", &limits)?;
    /// assert_eq!(device.info().bounds.stream_count, 4);
    ///
    /// let error = Device::with_limits("cpu", &Limits { stream_count: Some(0), ..limits }).unwrap_err();
    /// assert_eq!(error.to_string(), "Limits::stream_count: expected a number from 1 to 32, found \"0\"");
    /// # Ok::<(), raddle::Error>(())
    /// ```
    pub fn with_limits(name: &str, limits: &Limits) -> Result<Device> {
        open(name, Some(limits))
    }

    /// The names that [`Device::new`] knows, as one text.
    pub fn known_names() -> &'static str {
        static KNOWN: RaceOnce<String> = RaceOnce::new();
        KNOWN.get_or_init(|| match BACKENDS {
            [] => "none, since this build has no backend: enable the feature cpu".into(),
            _ => BACKENDS.iter().map(|backend| backend.form).collect::<Vec<_>>().join(", "),
        })
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
            None => Device::with_limits("cpu", &Limits::default())?.0,
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
            None => Device::with_limits(&format!("cuda:{ordinal}"), &Limits::default())?,
        };
        gpus.insert(ordinal, device);
        Ok(device)
    }

    /// A GPU with choices: a new device at each call, beside the one that its name names. Its bounds are those of the
    /// options; the environment isn't asked.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize, options: raddle_cuda::CudaOptions) -> Result<Device> {
        let failed = |error| raddle_runtime::Error::Device { device: format!("cuda:{ordinal}"), error };
        let cuda = raddle_cuda::Cuda::with_options(ordinal, options).map_err(failed)?;
        Ok(Device(Opened::open(Box::new(cuda))?))
    }

    /// A new simulator over a CPU device of its own.
    #[cfg(feature = "sim")]
    pub fn sim(options: raddle_sim::SimOptions) -> Result<Device> {
        Device::sim_within(options, bounds(&Limits::default())?)
    }

    #[cfg(feature = "sim")]
    fn sim_within(options: raddle_sim::SimOptions, bounds: Bounds) -> Result<Device> {
        let name = format!("sim:{}", options.seed);
        let sim = raddle_sim::Sim::new(Box::new(raddle_cpu::Cpu::with_bounds(bounds)), options)
            .map_err(|error| raddle_runtime::Error::Device { device: name, error })?;
        Ok(Device(Opened::open(Box::new(sim))?))
    }
}

#[cfg(any(feature = "cpu", feature = "cuda"))]
fn bounds(limits: &Limits) -> Result<Bounds> {
    Ok(limits.resolve().map_err(raddle_runtime::Error::from)?)
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
