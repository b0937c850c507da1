//! What suites are run on.

use crate::random::Random;
use raddle::Device;

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
