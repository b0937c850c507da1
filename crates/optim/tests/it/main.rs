//! Optimizers: their formulas, options that change, and parameters that meet.

mod formulas;
mod meeting;
mod options;

use raddle_grad::Autograd;
use raddle_tensor::{Device, Tensor};
use std::sync::OnceLock;

/// The device of all tests.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap())
}

/// A leaf of f64 with one axis.
fn leaf(values: &[f64]) -> Tensor {
    let leaf = Tensor::from_slice(values, [values.len()], device()).unwrap();
    leaf.requires_grad_(true).unwrap();
    leaf
}
