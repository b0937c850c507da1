//! Rows of captured graphs: one graph, replayed by all threads, with inputs of each thread's own.

use super::{
    measure::{alone, together},
    rows::Spec,
};
use crate::output::{Failure, Outcome};
use raddle::{
    Activation,
    DType::{self, F16, F32},
    Device, Generator, Graph, Result, Tensor, grad,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{self, Adam, AdamOptions},
};

const fn rate(
    name: &'static str,
    threads: usize,
    unit: &'static str,
    measure: fn(&Device, usize) -> Outcome<Vec<f64>>,
) -> Spec {
    Spec { name, threads, unit, work: 1.0, measure }
}
const fn step(name: &'static str, measure: fn(&Device, usize) -> Outcome<Vec<f64>>) -> Spec {
    Spec { name, threads: 1, unit: "ms", work: 1e3, measure }
}

/// All of them, in the order in which they run.
pub const TABLE: &[Spec] = &[
    rate("mlp_captured", 1, "forwards/s", mlp),
    rate("mlp_captured", 2, "forwards/s", mlp),
    rate("mlp_captured", 4, "forwards/s", mlp),
    rate("mlp_captured", 8, "forwards/s", mlp),
    rate("mlp_captured", 16, "forwards/s", mlp),
    step("autoencoder_step_captured", |device, _| autoencoder(device, (384, 1536, 256, 32))),
    step("autoencoder_step_small_captured", |device, _| autoencoder(device, (64, 256, 128, 8))),
    rate("minilm_captured", 1, "sentences/s", |device, threads| minilm(device, threads, F32)),
    rate("minilm_captured", 8, "sentences/s", |device, threads| minilm(device, threads, F32)),
    rate("minilm_f16_captured", 1, "sentences/s", |device, threads| minilm(device, threads, F16)),
    rate("minilm_f16_captured", 8, "sentences/s", |device, threads| minilm(device, threads, F16)),
];

fn normal(device: &Device, shape: &[usize], dtype: DType) -> Result<Tensor> {
    // Small enough for f16 through all layers.
    let values = Tensor::randn(shape, F32, device, None)?;
    values.mul_(0.05)?;
    values.to(dtype)
}

/// Replays with an input of the thread's own in the place of `input`.
fn replays(device: &Device, threads: usize, graph: &Graph<Tensor>, input: &Tensor) -> Outcome<Vec<f64>> {
    together(device, threads, |_| {
        let own = input.copy()?;
        Ok(move |count| (0..count).try_for_each(|_| graph.replay_with(&[(input, &own)]).map(drop)))
    })
}

/// 512-1024-1024-512 with ReLU, one row.
fn mlp(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let layers: Vec<(Tensor, Tensor)> = [(512, 1024), (1024, 1024), (1024, 512)]
        .into_iter()
        .map(|(k, n)| Ok((normal(device, &[n, k], F32)?, normal(device, &[n], F32)?)))
        .collect::<Result<_>>()?;
    let input = normal(device, &[1, 512], F32)?;
    let graph = device.capture(|| {
        let [first, second, third] = &layers[..] else { unreachable!("there are three") };
        let hidden = input.linear_with(&first.0, Some(&first.1), Activation::Relu)?.linear_with(
            &second.0,
            Some(&second.1),
            Activation::Relu,
        )?;
        hidden.linear(&third.0, Some(&third.1))
    })?;
    replays(device, threads, &graph, &input)
}

const WIDTH: usize = 384;
const HEADS: usize = 12;
const INNER: usize = 1536;
const TOKENS: usize = 32;

/// A layer of a transformer encoder, normalised last.
struct Layer {
    qkv: [Tensor; 2],
    out: [Tensor; 2],
    up: [Tensor; 2],
    down: [Tensor; 2],
    norms: [[Tensor; 2]; 2],
}

impl Layer {
    fn new(device: &Device, dtype: DType) -> Result<Layer> {
        let linear = |n: usize, k: usize| {
            Ok::<_, raddle::Error>([normal(device, &[n, k], dtype)?, normal(device, &[n], dtype)?])
        };
        let norm = || {
            Ok::<_, raddle::Error>([
                Tensor::ones([WIDTH], dtype, device)?,
                Tensor::zeros([WIDTH], dtype, device)?,
            ])
        };
        Ok(Layer {
            qkv: linear(3 * WIDTH, WIDTH)?,
            out: linear(WIDTH, WIDTH)?,
            up: linear(INNER, WIDTH)?,
            down: linear(WIDTH, INNER)?,
            norms: [norm()?, norm()?],
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let norm =
            |x: &Tensor, [weight, bias]: &[Tensor; 2]| x.layer_norm(1, Some(weight), Some(bias), 1e-12);
        let heads = x
            .linear(&self.qkv[0], Some(&self.qkv[1]))?
            .reshape([TOKENS, 3, HEADS, WIDTH / HEADS])?
            .permute([1, 2, 0, 3])?;
        let [q, k, v] = [heads.select(0, 0)?, heads.select(0, 1)?, heads.select(0, 2)?];
        let scale = ((WIDTH / HEADS) as f64).sqrt().recip();
        let scores = q.matmul(&k.transpose(1, 2)?)?.mul(scale)?.softmax(-1)?;
        let mixed = scores.matmul(&v)?.transpose(0, 1)?.reshape([TOKENS, WIDTH])?;
        let x = norm(&mixed.linear(&self.out[0], Some(&self.out[1]))?.add(x)?, &self.norms[0])?;
        let inner = x.linear_with(&self.up[0], Some(&self.up[1]), Activation::Gelu)?;
        norm(&inner.linear(&self.down[0], Some(&self.down[1]))?.add(&x)?, &self.norms[1])
    }
}

/// 6 layers of MiniLM's shape on one sentence of 32 embedded tokens, averaged.
fn minilm(device: &Device, threads: usize, dtype: DType) -> Outcome<Vec<f64>> {
    let layers: Vec<Layer> = (0..6).map(|_| Layer::new(device, dtype)).collect::<Result<_>>()?;
    let input = normal(device, &[TOKENS, WIDTH], dtype)?;
    let graph = device.capture(|| {
        let x = layers.iter().try_fold(input.clone(), |x, layer| layer.forward(&x))?;
        x.mean(0, false)
    })?;
    replays(device, threads, &graph, &input)
}

/// Any error of a step.
struct StepError(String);

macro_rules! step_error {
    ($($error:ty),*) => { $(
        impl From<$error> for StepError {
            fn from(error: $error) -> StepError { StepError(error.to_string()) }
        }
    )* };
}
step_error!(raddle::Error, grad::Error, optim::Error);

/// The training step of `autoencoder_step`, captured.
fn autoencoder(device: &Device, (d, h, batch, k): (usize, usize, usize, usize)) -> Outcome<Vec<f64>> {
    let options = AutoencoderOptions::new(d, h, k);
    let mut model = TopKAutoencoder::new(options, F32, device, Some(&Generator::new(0)))?;
    let parameters = model.parameters().into_iter().map(|(_, tensor)| tensor).collect();
    let failed = |error: StepError| Failure::Other(error.0);
    let adam = AdamOptions { capturable: true, ..AdamOptions::default() };
    let mut adam = Adam::new(parameters, adam).map_err(|error| failed(error.into()))?;
    let x = Tensor::randn([batch, d], F32, device, None)?;
    let graph =
        device.capture(|| model.train_step(&x, || adam.step().map_err(StepError::from))).map_err(failed)?;
    alone(device, |count| (0..count).try_for_each(|_| graph.replay().map(drop)))
}
