//! Layers, losses, checkpoints and the autoencoder, on the CPU.

mod autoencoder;
#[cfg(feature = "text")]
mod captured;
mod checkpoint;
#[cfg(feature = "text")]
mod folders;
mod heads;
mod layers;
#[cfg(feature = "text")]
mod long;
mod losses;
#[cfg(feature = "text")]
mod settings;
#[cfg(feature = "text")]
mod text;
#[cfg(feature = "text")]
mod tiny;
mod untrusted;

use raddle_tensor::{Device, Element, Tensor};
use std::sync::OnceLock;

/// The device of all tests.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap())
}

fn tensor<T: Element>(values: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, device()).unwrap()
}
