//! The race suite: what threads and streams may do to each other's memory, on any device, with every window stretched.
//!
//! - `scenes`, `streams`, `threads`: the bodies. The table says which planted faults must show in each.
//! - [`Place`]: a device by name. The simulator reorders by itself; on a GPU kernels spin at random before and after
//!   launches ([`raddle::cuda::Spin`]); the CPU runs most ops on the spot.
//! - [`main`]: for each place every scene once as it is, `sim::allocator_race`, and once for each of its faults in a process
//!   of its own, which must fail: `sim::allocator_race::fault_free_without_fence`. A suite that has never been seen to fail on a
//!   device proves nothing about it.

mod gradients;
mod scenes;
mod streams;
mod threads;

use crate::{
    Backend,
    child::{self, Ended},
};
use libtest_mimic::{Arguments, Failed, Trial};
use raddle::{
    Device, Limits,
    cuda::{CudaOptions, Spin},
};
use raddle_sync::faults::{self, Fault};
pub(crate) use scenes::Model;
use scenes::Scene;
use std::{
    env,
    process::{Command, ExitCode},
    str::FromStr,
    time::Duration,
};

/// Names the place if no option does.
const DEVICE: &str = "RADDLE_DEVICE";
/// Where the suite runs if nobody says.
const PLACES: [&str; 3] = ["cpu", "sim:1", "cuda:0"];
/// Simulators for each scene, each with a seed of its own.
const SIM_SEED_COUNT: u64 = 4;
/// A planted fault that hangs the scene is caught by that. Scenes take a second.
const FAULT_TIME_MAX: Duration = Duration::from_secs(120);

/// A device by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The CPU, which all scenes share.
    Cpu,
    /// Simulators from this seed on, new ones for each scene.
    Sim(u64),
    /// A GPU: a device of its own for each scene, whose kernels spin.
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
    /// As scenes are named.
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

    /// Runs a scene.
    fn run(self, scene: &Scene) {
        let open = |name: &str| Device::new(name).expect("the device works");
        match self {
            Place::Cpu => (scene.body)(&Ground { device: open("cpu"), place: self }),
            Place::Sim(first) => (first..first + SIM_SEED_COUNT).for_each(|seed| {
                let device = open(&format!("sim:{seed}"));
                (scene.body)(&Ground { device, place: self });
                let closed = device.close().expect("the device works");
                assert!(closed, "sim:{seed}: memory is still held after everything was dropped");
            }),
            Place::Cuda(ordinal) => {
                let spin = Spin { probability: 0.2, ns_max: 100_000, seed: ordinal as u64 };
                let options = CudaOptions { spin: Some(spin), ..CudaOptions::default() };
                let device = Device::cuda(ordinal, options).expect("the GPU works");
                (scene.body)(&Ground { device, place: self });
            }
        }
    }
}

/// What a scene is played on.
pub struct Ground {
    /// Where.
    pub device: Device,
    place: Place,
}

impl Ground {
    /// How often something is done: on a device, or on each of the simulators, which are slow.
    fn count(&self, of_device: usize, of_sim: usize) -> usize {
        if matches!(self.place, Place::Sim(_)) { of_sim } else { of_device }
    }

    /// Runs a body on a device that no other scene uses: its limits are the body's, and whose turn its streams are. Only the
    /// CPU is shared by scenes.
    fn alone(&self, body: impl FnOnce(&Device)) {
        if self.place != Place::Cpu {
            return body(&self.device);
        }
        let device = Device::with_limits("cpu", &Limits::default()).expect("the CPU is there");
        body(&device);
        let closed = device.close().expect("the device works");
        assert!(closed, "cpu: memory is still held after everything was dropped");
    }
}

/// The main function of the suite.
pub fn main() -> ExitCode {
    let mut words: Vec<String> = env::args().collect();
    let option = words.iter().position(|word| word == "--device").map(|at| {
        words.remove(at);
        if at < words.len() { words.remove(at) } else { String::new() }
    });
    let named = option.or_else(|| env::var(DEVICE).ok().filter(|name| !name.is_empty()));
    let names = named.map_or_else(|| PLACES.map(String::from).to_vec(), |name| vec![name]);
    let places: Vec<Place> = match names.iter().map(|name| name.parse()).collect() {
        Ok(places) => places,
        Err(error) => {
            eprintln!("race_suite: --device: {error}");
            return ExitCode::from(2);
        }
    };
    let trials = places.into_iter().flat_map(trials).collect();
    libtest_mimic::run(&Arguments::from_iter(words), trials).exit_code()
}

fn trials(place: Place) -> Vec<Trial> {
    let absent = place.absent();
    if let Some(reason) = absent {
        println!("{}: skipped: {reason}", place.device());
    }
    let mut trials = Vec::new();
    for scene in scenes::TABLE.iter().filter(|scene| scene.places.contains(&place.name())) {
        let name = format!("{}::{}", place.name(), scene.name);
        for &fault in scene.faults(place) {
            let (scene_name, trial_name) = (name.clone(), format!("{name}::fault_{}", fault.name()));
            let trial = Trial::test(trial_name, move || planted(place, &scene_name, fault));
            trials.push(trial.with_ignored_flag(absent.is_some() || !faults::ENABLED));
        }
        let trial = Trial::test(name, move || {
            place.run(scene);
            Ok(())
        });
        trials.push(trial.with_ignored_flag(absent.is_some()));
    }
    trials
}

impl Scene {
    /// The faults that must show here.
    fn faults(&self, place: Place) -> &'static [Fault] {
        match place {
            // Ops that have run already can't be overtaken.
            Place::Cpu => &[],
            Place::Sim(_) => self.in_sim,
            Place::Cuda(_) => self.on_cuda,
        }
    }
}

/// Plays a scene with a fault in a process of its own, which must fail or hang.
fn planted(place: Place, scene: &str, fault: Fault) -> Result<(), Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--device", &place.device(), "--exact", scene]).env("RADDLE_FAULT", fault.name());
    command.env("RUST_BACKTRACE", "0");
    let Ended { status, out, err } = child::run(&mut command, FAULT_TIME_MAX)?;
    let said = err + &out;
    let name = fault.name();
    match status {
        Some(status) if status.success() => {
            Err(format!("{scene}: {name} is planted, and nothing fails\n{said}").into())
        }
        Some(status) => {
            println!("{scene}: {name} is planted: {}", shown(&said).unwrap_or_else(|| status.to_string()));
            Ok(())
        }
        None => {
            println!("{scene}: {name} is planted: no end after {FAULT_TIME_MAX:?}");
            Ok(())
        }
    }
}

/// How the failure showed: how many trials went wrong, or the first panic.
fn shown(said: &str) -> Option<String> {
    let line = |text: &str| said.lines().find(|line| line.contains(text)).map(|line| line.trim().to_string());
    line("trials are wrong").or_else(|| line("seed ")).or_else(|| {
        let mut lines = said.lines().skip_while(|line| !line.contains("panicked at"));
        lines.nth(1).map(|line| line.trim().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_names() {
        assert_eq!("cuda".parse(), Ok(Place::Cuda(0)));
        assert_eq!("sim:7".parse(), Ok(Place::Sim(7)));
        assert_eq!(
            "gpu".parse::<Place>(),
            Err("expected cpu, sim:SEED or cuda:ORDINAL, found \"gpu\"".to_string())
        );
    }
}
