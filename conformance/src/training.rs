//! A training that parts of several suites do.

use raddle::{
    DType, Device, Tensor,
    grad::{Autograd, clip_grad_norm_},
    optim::{Adam, AdamOptions},
};
use std::error::Error;

/// What a test gives.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A small model that is trained.
pub struct Training {
    pub weights: [Tensor; 2],
    x: Tensor,
    adam: Adam,
}

impl Training {
    pub fn new(device: &Device, seed: u64) -> Outcome<Training> {
        let generator = raddle::Generator::new(seed);
        let weights = [[12, 30], [30, 5]].map(|shape| Tensor::randn(shape, DType::F32, device, &generator));
        let weights = weights.into_iter().collect::<raddle::Result<Vec<_>>>()?;
        let [first, second] = <[Tensor; 2]>::try_from(weights).expect("there are two");
        first.requires_grad_(true)?;
        second.requires_grad_(true)?;
        let x = Tensor::randn([20, 12], DType::F32, device, &generator)?;
        let adam = Adam::new(vec![first.clone(), second.clone()], AdamOptions::default())?;
        Ok(Training { weights: [first, second], x, adam })
    }

    pub fn step(&mut self) -> Outcome {
        let [first, second] = &self.weights;
        self.adam.zero_grad();
        let loss = self.x.matmul(first)?.gelu()?.matmul(second)?.square()?.mean(.., false)?;
        loss.backward()?;
        clip_grad_norm_(&[first, second], 1.0)?;
        self.adam.step()?;
        Ok(())
    }

    /// All bits of the weights.
    pub fn bits(&self) -> Outcome<Vec<u8>> {
        let mut bits = Vec::new();
        for weight in &self.weights {
            bits.extend(weight.to_vec::<f32>()?.into_iter().flat_map(f32::to_ne_bytes));
        }
        Ok(bits)
    }
}
