//! Rules of this crate, on the CPU: promotion, layouts, overlap, texts of errors, printing, publishing, generators. What
//! each op computes is checked in `conformance`.

mod catalogue;
mod compose;
mod composed;
mod errors;
mod groups;
mod host;
mod number_rule;
mod numbers;
mod overlap;
mod planted;
mod print;
mod promotion;
mod publish;
mod random;
mod record;

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

/// 0, 1, 2, … as f32.
fn counted(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    tensor(&(0..count).map(|value| value as f32).collect::<Vec<_>>(), shape)
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}
