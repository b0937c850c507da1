//! The race suite: what threads and streams may do to each other's memory, on any device, with every window stretched.
//!
//! - `cases`, `streams`, `threads`: the bodies. The table says which planted faults must show in each.
//! - [`Place`]: a device by name. The simulator reorders by itself; on a GPU kernels spin at random before and after
//!   launches ([`raddle::cuda::Spin`]); the CPU would run most ops on the spot, so that its streams are kept busy now and then.
//! - [`main`]: for each place every case once as it is, `sim::allocator_race`, and once for each of its faults in a process
//!   of its own, which must fail: `sim::allocator_race::fault_free_without_fence`. A suite that has never been seen to fail on a
//!   device proves nothing about it.

mod cases;
mod fixture;
mod gradients;
mod streams;
mod threads;

use crate::child::{self, Ended};
pub(crate) use cases::Model;
use cases::RaceCase;
use fixture::Fixture;
pub use fixture::Place;
use libtest_mimic::{Arguments, Failed, Trial};
use raddle::{
    Device,
    cuda::{CudaOptions, Spin},
};
use raddle_sync::faults::{self, Fault};
use std::{
    env,
    process::{Command, ExitCode},
    time::Duration,
};

/// Names the place if no option does.
const DEVICE: &str = "RADDLE_DEVICE";
/// Where the suite runs if nobody says.
const PLACES: [&str; 3] = ["cpu", "sim:1", "cuda:0"];
/// Simulators for each case, each with a seed of its own.
const SIM_SEED_COUNT: u64 = 4;
/// How often a case is played with a fault, until it fails.
const PLAY_COUNT_MAX: usize = 8;
/// A planted fault that hangs the case is caught by that. Cases take a second.
const FAULT_TIME_MAX: Duration = Duration::from_secs(120);

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
    for case in cases::TABLE.iter().filter(|case| case.places.contains(&place.name())) {
        let name = format!("{}::{}", place.name(), case.name);
        for &fault in case.faults(place) {
            let (scene_name, trial_name) = (name.clone(), format!("{name}::fault_{}", fault.name()));
            let trial = Trial::test(trial_name, move || planted(place, &scene_name, fault));
            trials.push(trial.with_ignored_flag(absent.is_some() || !faults::ENABLED));
        }
        let trial = Trial::test(name, move || {
            case.run(place);
            Ok(())
        });
        trials.push(trial.with_ignored_flag(absent.is_some()));
    }
    trials
}

impl RaceCase {
    /// Plays it at a place.
    fn run(&self, place: Place) {
        let open = |name: &str| Device::new(name).expect("the device works");
        match place {
            Place::Cpu => (self.body)(&Fixture { device: open("cpu"), place }),
            Place::Sim(first) => (first..first + SIM_SEED_COUNT).for_each(|seed| {
                let device = open(&format!("sim:{seed}"));
                (self.body)(&Fixture { device, place });
                let closed = device.close().expect("the device works");
                assert!(closed, "sim:{seed}: memory is still held after everything was dropped");
            }),
            Place::Cuda(ordinal) => {
                let spin = Spin { probability: 0.2, ns_max: 100_000, seed: ordinal as u64 };
                let options = CudaOptions { spin: Some(spin), ..CudaOptions::default() };
                let device = Device::cuda(ordinal, options).expect("the GPU works");
                (self.body)(&Fixture { device, place });
            }
        }
    }

    /// The faults that must show here.
    fn faults(&self, place: Place) -> &'static [Fault] {
        match place {
            Place::Cpu => self.on_cpu,
            Place::Sim(_) => self.in_sim,
            Place::Cuda(_) => self.on_cuda,
        }
    }
}

/// Runs a case with a fault in processes of their own, one of which must fail or hang. A fault shows where threads meet, and not
/// each play has them meet.
fn planted(place: Place, case: &str, fault: Fault) -> Result<(), Failed> {
    let name = fault.name();
    for play in 1..=PLAY_COUNT_MAX {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--device", &place.device(), "--exact", case]).env("RADDLE_FAULT", name);
        command.env("RUST_BACKTRACE", "0");
        let Ended { status, out, err } = child::run(&mut command, FAULT_TIME_MAX)?;
        let said = err + &out;
        let shows = match status {
            Some(status) if status.success() => continue,
            Some(status) => shown(&said).unwrap_or_else(|| status.to_string()),
            None => format!("no end after {FAULT_TIME_MAX:?}"),
        };
        println!("{case}: {name} is planted: {shows} (play {play})");
        return Ok(());
    }
    Err(format!("{case}: {name} is planted, and nothing fails in {PLAY_COUNT_MAX} plays").into())
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
    fn each_scene_has_been_seen_to_fail() {
        let is_blind = |case: &&RaceCase| [case.on_cpu, case.in_sim, case.on_cuda].concat().is_empty();
        let blind: Vec<_> = cases::TABLE.iter().filter(is_blind).map(|case| case.name).collect();
        assert!(blind.is_empty(), "expected a planted fault for each case, found none for {blind:?}");
    }

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
