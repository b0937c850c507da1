//! Gradients against central differences and against values from the definition, on the CPU.

mod engine;
mod in_place;
mod ops;
mod views;

use raddle_grad::Autograd;
use raddle_tensor::{Device, Element, Generator, Result, Tensor};
use std::sync::OnceLock;

/// The device of all tests.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap())
}

fn tensor<T: Element>(values: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, device()).unwrap()
}

/// A leaf that requires grad.
fn leaf(values: &[f64], shape: &[usize]) -> Tensor {
    let leaf = tensor(values, shape);
    leaf.requires_grad_(true).unwrap();
    leaf
}

/// A leaf of random numbers of [low, high).
fn random(shape: &[usize], low: f64, high: f64, seed: u64) -> Tensor {
    let leaf = Tensor::empty(shape, raddle_tensor::DType::F64, device()).unwrap();
    leaf.uniform_(low, high, &Generator::new(seed)).unwrap();
    leaf.requires_grad_(true).unwrap();
    leaf
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

fn gradient(leaf: &Tensor) -> Vec<f64> {
    let grad = leaf.grad().expect("it has a gradient");
    assert_eq!(grad.shape(), leaf.shape());
    assert_eq!(grad.strides(), leaf.layout().preserved().strides());
    values(&grad)
}

/// Compares the gradients of `Σ weight · f(inputs)`, with fixed uneven weights, with central differences.
fn check(name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let weighted = |inputs: &[Tensor]| -> Result<Tensor> {
        let y = f(inputs)?;
        let count = y.element_count();
        let weight: Vec<f64> = (0..count).map(|i| 0.3 + (i as f64 * 0.7).sin()).collect();
        y.mul(&tensor(&weight, y.shape()))?.sum(.., false)
    };
    inputs.iter().for_each(Autograd::zero_grad);
    weighted(inputs)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
        .backward()
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    for (which, input) in inputs.iter().enumerate().filter(|(_, input)| input.requires_grad()) {
        let at = values(input);
        // None if the result doesn't depend on it.
        let found = if input.grad().is_some() { gradient(input) } else { vec![0.0; at.len()] };
        for element in 0..at.len() {
            let step = 1e-6 * at[element].abs().max(1.0);
            let side = |by: f64| -> f64 {
                let mut moved = at.clone();
                moved[element] += by;
                let shifted = input.detach().copy().unwrap();
                shifted.copy_(&tensor(&moved, input.shape())).unwrap();
                let mut inputs: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
                inputs[which] = shifted;
                weighted(&inputs).unwrap().item().unwrap()
            };
            let expected = (side(step) - side(-step)) / (2.0 * step);
            let error = (found[element] - expected).abs();
            assert!(
                error <= 1e-6 * expected.abs().max(1.0),
                "{name}: input {which} element {element}: expected {expected}, found {}",
                found[element]
            );
        }
    }
}
