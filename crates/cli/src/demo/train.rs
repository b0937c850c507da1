//! The thread that trains.

use super::random::SplitMix;
use crate::output::{Failure, Outcome, StepError};
use raddle::{
    DType, Device, Generator, Publisher, Result, Tensor,
    grad::no_grad,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions},
};
use serde::Serialize;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// Features, and how many of them an image keeps.
const FEATURE_COUNT: usize = 256;
pub const ACTIVE_COUNT: usize = 16;
/// Images of one step.
const BATCH_COUNT: usize = 128;
/// Steps from one published version to the next.
const PUBLISH_STEPS: u32 = 5;
const LEARNING_RATE: f64 = 2e-3;

/// Of so many steps it is kept what the weights were after them, and so long others read them where they are trained (65 KiB each).
const KEPT_STEP_COUNT: u64 = 500;

/// How far training has come, for those who read what it writes.
#[derive(Default)]
pub struct Progress {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// The optimizer may be writing what the weights are after this step. (Acquire and Release pair here: who sees a step done
    /// comes behind it, and who sees the next one not begun before that.)
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }
    /// The last step of which all writes have been submitted.
    pub fn done(&self) -> u64 {
        self.done.load(Acquire)
    }
    /// Will it be known what the weights have been so far?
    pub fn is_kept(&self) -> bool {
        self.begun() <= KEPT_STEP_COUNT
    }
}

/// Versions by their numbers: those that were published, and what the weights were after each of the first steps.
#[derive(Default)]
pub struct Versions {
    pub published: Vec<Version>,
    pub live: Vec<Version>,
}

/// Weights as bytes of the host, out of reach of whatever happens to the memory of the device.
pub struct Version {
    pub id: u64,
    encoder_weight: Vec<f32>,
    encoder_bias: Vec<f32>,
}

impl Version {
    fn new(id: u64, [weight, bias]: &[Tensor; 2]) -> Result<Version> {
        Ok(Version { id, encoder_weight: weight.t()?.to_vec()?, encoder_bias: bias.to_vec()? })
    }

    /// The encoder's weight and bias on the device again, with the strides that they had.
    pub fn restore(&self, device: &Device) -> Result<Vec<Tensor>> {
        let inputs = self.encoder_weight.len() / FEATURE_COUNT;
        let transposed = Tensor::from_slice(&self.encoder_weight, [inputs, FEATURE_COUNT], device)?;
        Ok(vec![transposed.t()?, Tensor::from_slice(&self.encoder_bias, [FEATURE_COUNT], device)?])
    }
}

/// What training has made of a parameter.
#[derive(Serialize)]
pub struct Parameter {
    pub name: String,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    /// ‖last − first‖ / max(‖first‖, tiny)
    pub moved: f64,
}

pub struct Trainer {
    images: Tensor,
    model: TopKAutoencoder,
    adam: Adam,
    /// The order of the images in this epoch, and how many have been used.
    order: Vec<i64>,
    used: usize,
    random: SplitMix,
}

/// A copy of the newest version; only the thread that trains publishes.
fn published(publisher: &Publisher) -> Result<Version> {
    let version = publisher.load();
    let [weight, bias] = version.tensors() else { unreachable!("two tensors are published") };
    Version::new(version.id(), &[weight.clone(), bias.clone()])
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("demo: {error}"))
}

impl Trainer {
    pub fn new(images: &Tensor, seed: u64) -> Outcome<Trainer> {
        let options = AutoencoderOptions::new(images.shape()[1], FEATURE_COUNT, ACTIVE_COUNT);
        let generator = Generator::new(seed);
        let model = TopKAutoencoder::new(options, DType::F32, &images.device(), Some(&generator))?;
        // The decoder starts at the mean image, as in the paper.
        no_grad(|| model.decoder_bias.detach().copy_(&images.mean(0, false)?).map(drop))?;
        let options = AdamOptions { lr: LEARNING_RATE, ..AdamOptions::default() };
        let adam = Adam::new(model.parameters(), options).map_err(failure)?;
        let order = (0..images.shape()[0] as i64).collect();
        let random = SplitMix(seed);
        Ok(Trainer { images: images.clone(), model, adam, order, used: usize::MAX, random })
    }

    /// What is published: the weights that encode.
    pub fn published(&self) -> [&Tensor; 2] {
        [&self.model.encoder_weight, &self.model.encoder_bias]
    }

    /// The images of the next step, in an order that the seed alone decides.
    fn next_batch(&mut self) -> Result<Tensor> {
        if self.used.saturating_add(BATCH_COUNT) > self.order.len() {
            // Fisher & Yates.
            for last in (1..self.order.len()).rev() {
                let other = (self.random.next() % (last as u64 + 1)) as usize;
                self.order.swap(last, other);
            }
            self.used = 0;
        }
        let end = (self.used + BATCH_COUNT).min(self.order.len());
        let part = &self.order[self.used..end];
        self.used = end;
        let index = Tensor::from_slice(part, [part.len()], &self.images.device())?;
        self.images.index_select(0, &index)
    }

    /// What is published, in the memory in which it is trained.
    pub fn live(&self) -> [Tensor; 2] {
        self.published().map(Tensor::detach)
    }

    /// Trains; publishes a version now and then, and keeps a copy of each.
    pub fn run(
        &mut self,
        steps: u32,
        publisher: &Publisher,
        progress: &Progress,
        mut tell: impl FnMut(u64),
    ) -> Outcome<Versions> {
        let mut versions = Versions::default();
        // Copied on the device, so that training waits for the host as rarely as without.
        let mut copies = vec![(0, self.copies()?)];
        versions.published.push(published(publisher)?);
        for step in 1..=steps {
            let batch = self.next_batch()?;
            let adam = &mut self.adam;
            let update = || {
                progress.begun.store(step.into(), Release);
                adam.step().map_err(StepError::from)
            };
            self.model.train_step(&batch, update).map_err(failure)?;
            if u64::from(step) <= KEPT_STEP_COUNT {
                copies.push((step.into(), self.copies()?));
            }
            progress.done.store(step.into(), Release);
            if step % PUBLISH_STEPS == 0 || step == steps {
                for (step, copy) in copies.drain(..) {
                    versions.live.push(Version::new(step, &copy)?);
                }
            }
            if step % PUBLISH_STEPS == 0 {
                publisher.publish(&self.published())?;
                versions.published.push(published(publisher)?);
            }
            tell(u64::from(step));
        }
        Ok(versions)
    }

    fn copies(&self) -> Result<[Tensor; 2]> {
        let [weight, bias] = self.live();
        Ok([weight.copy()?, bias.copy()?])
    }

    /// The mean squared error over all images.
    pub fn loss(&self) -> Result<f64> {
        no_grad(|| Ok(f64::from(self.model.loss(&self.images)?.item::<f32>()?)))
    }

    /// How much of the variance of the images the reconstruction explains: 1 is all. Where there is none, 1 if they are
    /// reconstructed and 0 if not, as scikit-learn's `r2_score` has it.
    pub fn explained_variance(&self) -> Result<f64> {
        let variance = self.images.sub(&self.images.mean(0, true)?)?.square()?.mean(.., false)?;
        Ok(explained(self.loss()?, f64::from(variance.item::<f32>()?)))
    }

    /// The parameters as they are now.
    pub fn parameters_on_host(&self) -> Result<Vec<Vec<f32>>> {
        self.model.parameters().iter().map(Tensor::to_vec).collect()
    }

    /// How far each parameter has moved from what it was.
    pub fn moved(&self, first: &[Vec<f32>]) -> Result<Vec<Parameter>> {
        let norm =
            |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let parameters = self.model.named_parameters();
        let moved = parameters.iter().zip(first).map(|((name, tensor), first)| {
            let last: Vec<f32> = tensor.to_vec()?;
            let difference = norm(&mut last.iter().zip(first).map(|(last, first)| f64::from(last - first)));
            let before = norm(&mut first.iter().map(|value| f64::from(*value)));
            Ok(Parameter {
                name: name.clone(),
                shape: tensor.shape().to_vec(),
                strides: tensor.strides().to_vec(),
                moved: difference / before.max(f64::from(f32::MIN_POSITIVE)),
            })
        });
        moved.collect()
    }
}

fn explained(loss: f64, variance: f64) -> f64 {
    match (loss, variance) {
        (0.0, 0.0) => 1.0,
        (_, 0.0) => 0.0,
        _ => 1.0 - loss / variance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_images_that_are_all_the_same_all_or_nothing_is_explained() {
        assert_eq!([explained(1.0, 4.0), explained(0.0, 0.0), explained(0.5, 0.0)], [0.75, 1.0, 0.0]);
    }
}
