//! Devices by name.

use crate::{Error, Result, Tensor, To};
use raddle_runtime::Device as Opened;
#[cfg(feature = "cpu")]
use raddle_sync::{Mutex, Rank};
use std::{ops::Deref, str::FromStr};

/// The names that [`Device::new`] knows in this build.
const KNOWN: &str = match (cfg!(feature = "cpu"), cfg!(feature = "sim")) {
    (_, true) => "cpu, sim:SEED",
    (true, false) => "cpu",
    (false, false) => "none, since this build has no backend: enable the feature cpu",
};

/// A device: a name for something that lives as long as the process. It is everything that
/// [`raddle_runtime::Device`] is: memory statistics, `synchronize`, streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(Opened);

impl Device {
    /// Opens a device.
    ///
    /// - `cpu`: one for the process; it needs nothing installed.
    /// - `sim:SEED`: the CPU behind a simulator that runs work late and in an order drawn from the seed. Each call opens a
    ///   new one, so that a run can be repeated; see [`Device::close`](raddle_runtime::Device::close).
    ///
    /// Errors: a name that isn't one of these.
    ///
    /// ```
    /// let error = raddle::Device::new("gpu").unwrap_err();
    /// assert_eq!(error.to_string(), "device: unknown name \"gpu\", expected one of: cpu, sim:SEED");
    /// ```
    pub fn new(name: &str) -> Result<Device> {
        match name.split_once(':') {
            #[cfg(feature = "cpu")]
            None if name == "cpu" => Device::cpu(),
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

    /// The CPU: one device for the process.
    #[cfg(feature = "cpu")]
    pub fn cpu() -> Result<Device> {
        static CPU: Mutex<Option<Opened>> = Mutex::new(Rank::Registry, None);
        let mut cpu = CPU.lock();
        let opened = match *cpu {
            Some(opened) => opened,
            None => Opened::open(Box::new(raddle_cpu::Cpu::new()))?,
        };
        *cpu = Some(opened);
        Ok(Device(opened))
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
