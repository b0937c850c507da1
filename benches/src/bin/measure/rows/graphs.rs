//! Rows of captured graphs: one graph, replayed by all threads, with inputs of each thread's own.

use super::{
    gpu::{Encoder, Mlp},
    sizes::{STEP_LARGE, STEP_SMALL, Sizes, THREADS},
};
use raddle::{
    DType::F32,
    Device, Generator, Graph, Tensor,
    grad::clip_grad_norm_,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions},
};
use raddle_cli::{
    bench::{
        measure::{alone, together},
        rows::{STEP, Spec},
    },
    output::{Failure, Outcome, StepError},
};

/// All of them, in the order in which they run.
pub fn table(sizes: Sizes) -> Vec<Spec> {
    let mut table = vec![Spec::step("autoencoder_step_captured", |device| autoencoder(device, STEP))];
    if sizes.gpu {
        table.extend(THREADS.map(|threads| Spec::per_second("mlp_captured", threads, mlp)));
        table
            .extend([1, 8].map(|threads| Spec::per_second("transformer_f16_captured", threads, transformer)));
        table.push(Spec::step("autoencoder_step_large_captured", |device| autoencoder(device, STEP_LARGE)));
    } else {
        table.push(Spec::step("autoencoder_step_small_captured", |device| autoencoder(device, STEP_SMALL)));
    }
    table
}

/// Replays with an input of the thread's own in the place of `input`.
fn replays(device: &Device, threads: usize, graph: &Graph<Tensor>, input: &Tensor) -> Outcome<Vec<f64>> {
    together(device, threads, |_| {
        let own = input.copy()?;
        Ok(move |count| (0..count).try_for_each(|_| graph.replay_with(&[(input, &own)]).map(drop)))
    })
}

fn mlp(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let (mlp, input) = (Mlp::new(device)?, Mlp::input(device)?);
    replays(device, threads, &device.capture(|| mlp.forward(&input))?, &input)
}

fn transformer(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let (encoder, input) = (Encoder::new(device)?, Encoder::input(device)?);
    replays(device, threads, &device.capture(|| encoder.forward(&input))?, &input)
}

/// The step of `autoencoder_step`: gradients, clipping, Adam.
fn autoencoder(device: &Device, (d, h, batch, k): (usize, usize, usize, usize)) -> Outcome<Vec<f64>> {
    let options = AutoencoderOptions::new(d, h, k);
    let mut model = TopKAutoencoder::new(options, F32, device, Some(&Generator::new(0)))?;
    let parameters = model.parameters();
    let failed = |error: StepError| Failure::Other(error.to_string());
    let adam = AdamOptions { capturable: true, ..AdamOptions::default() };
    let mut adam = Adam::new(parameters.clone(), adam).map_err(|error| failed(error.into()))?;
    let x = Tensor::randn([batch, d], F32, device, None)?;
    let graph = device.capture(|| {
        let loss = model.compute_gradients(&x)?;
        clip_grad_norm_(&parameters, 1.0)?;
        adam.step()?;
        Ok(loss)
    });
    let graph = graph.map_err(failed)?;
    alone(device, |count| (0..count).try_for_each(|_| graph.replay().map(drop)))
}
