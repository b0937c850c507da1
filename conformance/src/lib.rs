//! One test body a behaviour, for every backend.
//!
//! - [`suites`]: the bodies. A backend runs all of them by [`main`], in a few lines under `tests/`.
//! - [`oracle`]: what results must be, written from the definitions and never from the op table.
//! - [`layouts`]: operands of every layout, with guards around them. [`mod@array`]: tensors of the host. [`report`]: what is
//!   expected, and what is said when it isn't met. [`expect`]: what is known not to hold, with a reason.
//! - [`lifetime`]: a model of operands that outlive their handles. [`programs`]: random programs of many threads and streams,
//!   compared with running them in sequence. [`races`]: scenes of threads and streams that meet in memory, with the planted
//!   faults that must show in each. [`lives`]: processes that fork and end. [`soak`]: all of it for long.
#![forbid(unsafe_code)]

pub mod array;
mod child;
pub mod dispatch;
pub mod expect;
pub mod layouts;
pub mod lifetime;
pub mod lives;
pub mod oracle;
pub mod programs;
pub mod races;
pub mod random;
pub mod report;
pub mod soak;
pub mod suites;

use libtest_mimic::{Arguments, Trial};
use raddle::Device;
use random::Random;
use std::process::ExitCode;

/// What the suites run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The CPU, one device for all tests.
    Cpu,
    /// The first GPU, one device for all tests.
    Cuda,
    /// A simulator for each test, its seed made from the test's name.
    Sim,
}

impl Backend {
    /// All of them.
    pub const ALL: [Backend; 3] = [Backend::Cpu, Backend::Cuda, Backend::Sim];

    /// As tests are named.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
            Backend::Sim => "sim",
        }
    }

    /// Why nothing can be run on it here. A GPU that is there but doesn't work is no reason: the tests fail.
    pub fn absent(self) -> Option<&'static str> {
        (self == Backend::Cuda && raddle::cuda::device_count() == Ok(0)).then_some("no CUDA device")
    }

    /// Runs a body on a device of this backend; gives the device back afterwards, which nothing may still hold.
    pub fn run(self, name: &str, body: impl FnOnce(&Device)) {
        match self {
            Backend::Cpu => body(&Device::new("cpu").expect("the CPU is there")),
            Backend::Cuda => body(&Device::new("cuda:0").expect("the GPU works")),
            Backend::Sim => {
                let seed = Random::named(name).bits() >> 32;
                eprintln!("{name} runs on sim:{seed}");
                let device = Device::new(&format!("sim:{seed}")).expect("the simulator is there");
                body(&device);
                assert!(
                    device.close().expect("the device works"),
                    "{name}: buffers are alive after the test"
                );
            }
        }
    }
}

/// A behaviour and its test.
pub struct Case {
    /// `suite::behaviour`.
    pub name: String,
    /// Where it is run.
    pub backends: &'static [Backend],
    /// Panics if it doesn't hold.
    pub body: Box<dyn Fn(&Device) + Send + Sync>,
}

impl Case {
    /// A case of a suite.
    pub fn new(suite: &str, name: &str, body: impl Fn(&Device) + Send + Sync + 'static) -> Case {
        Case { name: format!("{suite}::{name}"), backends: &Backend::ALL, body: Box::new(body) }
    }
}

/// The cases of a suite from functions: each is named as the function.
#[macro_export]
macro_rules! cases {
    ($suite:literal: $($function:ident),* $(,)?) => {
        vec![$($crate::Case::new($suite, stringify!($function), $function)),*]
    };
}

/// The main function of a test target: every case on a backend, `backend::suite::behaviour`.
pub fn main(backend: Backend) -> ExitCode {
    let absent = backend.absent().map(|reason| expect::Known::Skipped { reason });
    let trial = |case: Case| {
        let name = format!("{}::{}", backend.name(), case.name);
        let shown = name.clone();
        match absent.or_else(|| expect::of(backend, &case.name)) {
            Some(expect::Known::Skipped { reason }) => {
                println!("{name} is skipped: {reason}");
                Trial::test(shown, || Ok(())).with_ignored_flag(true)
            }
            Some(expect::Known::Fails { reason }) => Trial::test(shown, move || {
                let run = std::panic::AssertUnwindSafe(|| backend.run(&name, &case.body));
                match std::panic::catch_unwind(run) {
                    Err(_) => Ok(()),
                    Ok(()) => Err(format!("it passes, though it is expected to fail: {reason}").into()),
                }
            }),
            None => Trial::test(shown, move || {
                backend.run(&name, &case.body);
                Ok(())
            }),
        }
    };
    let is_here = |case: &Case| case.backends.contains(&backend);
    let trials = suites::all().into_iter().filter(is_here).map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
