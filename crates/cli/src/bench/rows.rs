//! What a row is, and the few that the program has. All others are in `benches`, which measures these as well.

use super::measure::{alone, together};
use crate::output::{Failure, Outcome, StepError};
use raddle::{
    DType::{self, F32},
    Device, Generator, Result, Tensor,
    grad::clip_grad_norm_,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions},
};

type Measure = Box<dyn Fn(&Device, usize) -> Outcome<Vec<f64>>>;

/// A row that can be measured.
pub struct Spec {
    /// What `--only` calls it.
    pub name: &'static str,
    /// On how many threads it is measured.
    pub threads: usize,
    /// `ns` or `ms`, or a rate: `GB/s`, `GFLOP/s`, `1/s`.
    pub unit: &'static str,
    /// What is divided by the seconds for a rate, or multiplied with them for a time.
    pub work: f64,
    /// The seconds of one op in each repeat, on a device with that many threads.
    pub measure: Measure,
}

impl Spec {
    /// Nanoseconds an op.
    pub fn time(
        name: &'static str,
        threads: usize,
        measure: impl Fn(&Device, usize) -> Outcome<Vec<f64>> + 'static,
    ) -> Spec {
        Spec { name, threads, unit: "ns", work: 1e9, measure: Box::new(measure) }
    }

    /// Gigabytes a second, of an op that reads and writes so many.
    pub fn rate(
        name: &'static str,
        gigabytes: f64,
        measure: impl Fn(&Device) -> Outcome<Vec<f64>> + 'static,
    ) -> Spec {
        let measure = Box::new(move |device: &Device, _| measure(device));
        Spec { name, threads: 1, unit: "GB/s", work: gigabytes, measure }
    }

    /// Operations a second of a matrix product `[m, k] × [k, n]`.
    pub fn flops(
        name: &'static str,
        (m, k, n): (usize, usize, usize),
        measure: impl Fn(&Device) -> Outcome<Vec<f64>> + 'static,
    ) -> Spec {
        let measure = Box::new(move |device: &Device, _| measure(device));
        Spec { name, threads: 1, unit: "GFLOP/s", work: 2e-9 * (m * k * n) as f64, measure }
    }

    /// Milliseconds a step of training.
    pub fn step(name: &'static str, measure: impl Fn(&Device) -> Outcome<Vec<f64>> + 'static) -> Spec {
        let measure = Box::new(move |device: &Device, _| measure(device));
        Spec { name, threads: 1, unit: "ms", work: 1e3, measure }
    }

    /// How many a second.
    pub fn per_second(
        name: &'static str,
        threads: usize,
        measure: impl Fn(&Device, usize) -> Outcome<Vec<f64>> + 'static,
    ) -> Spec {
        Spec { name, threads, unit: "1/s", work: 1.0, measure: Box::new(measure) }
    }
}

/// The autoencoder of `autoencoder_step`, as [`autoencoder`] takes it.
pub const STEP: (usize, usize, usize, usize) = (384, 1536, 256, 32);

/// Those of the program: a small op, an allocation, bandwidth, a matrix product, a step of training.
pub fn table() -> Vec<Spec> {
    const SIDE: usize = 4096;
    const N: usize = 1024;
    vec![
        Spec::time("add_out_256", 1, add_out),
        Spec::time("alloc_free_4k", 1, alloc_free),
        Spec::rate("copy", 2.0 * (SIDE * SIDE * 4) as f64 / 1e9, |device| copy(device, SIDE)),
        Spec::flops("gemm_1024", (N, N, N), |device| product(device, N, F32)),
        Spec::step("autoencoder_step", |device| autoencoder(device, STEP, false)),
    ]
}

/// Runs an op over and over, on the stream of this thread.
pub fn repeat(device: &Device, mut op: impl FnMut() -> Result<()>) -> Outcome<Vec<f64>> {
    alone(device, |count| (0..count).try_for_each(|_| op()))
}

/// Random f32.
pub fn normal(device: &Device, shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(shape, F32, device, None)
}

/// `add` of 256 into an output.
pub fn add_out(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    together(device, threads, |_| {
        let (a, b, out) = (normal(device, &[256])?, normal(device, &[256])?, normal(device, &[256])?);
        Ok(move |count| (0..count).try_for_each(|_| a.add_out(&b, &out)))
    })
}

/// A block of 4 KiB, allocated and freed.
pub fn alloc_free(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    together(device, threads, |_| {
        Ok(|count| Ok((0..count).try_for_each(|_| device.allocate(4096).map(drop))?))
    })
}

/// A square of f32 into another.
pub fn copy(device: &Device, side: usize) -> Outcome<Vec<f64>> {
    let (a, b) = (normal(device, &[side, side])?, normal(device, &[side, side])?);
    repeat(device, || b.copy_(&a).map(drop))
}

/// The product of two squares.
pub fn product(device: &Device, n: usize, dtype: DType) -> Outcome<Vec<f64>> {
    let square = || Tensor::randn([n, n], dtype, device, None);
    let (a, b, out) = (square()?, square()?, square()?);
    repeat(device, || a.matmul_out(&b, &out))
}

/// Runs steps of something that has errors of its own.
pub fn steps<E: std::fmt::Display>(
    device: &Device,
    mut step: impl FnMut() -> std::result::Result<(), E>,
) -> Outcome<Vec<f64>> {
    let mut failed = None;
    let measured = alone(device, |count| {
        // After a failure nothing is measured any more.
        for _ in 0..count {
            if failed.is_none() {
                failed = step().err();
            }
        }
        Ok(())
    });
    failed.map_or(measured, |error| Err(failure(error)))
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

/// A TopK sparse autoencoder of widths d and h: encode, keep k, decode those, clip, Adam. `full`: with the auxiliary loss and
/// with columns of norm 1, which the peers don't have.
pub fn autoencoder(
    device: &Device,
    (d, h, batch, k): (usize, usize, usize, usize),
    full: bool,
) -> Outcome<Vec<f64>> {
    let options = AutoencoderOptions::new(d, h, k);
    let mut model = TopKAutoencoder::new(options, F32, device, Some(&Generator::new(0)))?;
    let parameters = model.parameters();
    let mut adam = Adam::new(parameters.clone(), AdamOptions::default()).map_err(failure)?;
    let x = normal(device, &[batch, d])?;
    steps(device, || -> std::result::Result<(), StepError> {
        let mut update = || adam.step().map_err(StepError::from);
        if full {
            return model.train_step(&x, update).map(drop);
        }
        model.compute_gradients(&x).map_err(raddle::grad::Error::from)?;
        clip_grad_norm_(&parameters, 1.0)?;
        update()
    })
}
