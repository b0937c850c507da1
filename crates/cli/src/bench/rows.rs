//! The rows.

use super::measure::{alone, together};
use crate::output::{Failure, Outcome};
use raddle::{
    DType::F32,
    Device, Generator, Result, Stream, Tensor,
    grad::Autograd,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions},
};

/// What a row measures.
pub struct Spec {
    pub name: &'static str,
    pub threads: usize,
    pub unit: &'static str,
    /// What is divided by the seconds for a rate, or multiplied with them for a time.
    pub work: f64,
    pub measure: fn(&Device, usize) -> Outcome<Vec<f64>>,
}

/// Bandwidth ops work on a square of this side.
const SIDE: usize = 4096;
/// `softmax` and `layer_norm` on rows of features.
const ROWS: usize = 16384;
const FEATURES: usize = 1024;
const SQUARE_GB: f64 = (SIDE * SIDE * 4) as f64 / 1e9;
const ROWS_GB: f64 = (ROWS * FEATURES * 4) as f64 / 1e9;

const fn time(name: &'static str, threads: usize, measure: fn(&Device, usize) -> Outcome<Vec<f64>>) -> Spec {
    Spec { name, threads, unit: "ns", work: 1e9, measure }
}
const fn rate(name: &'static str, gigabytes: f64, measure: fn(&Device, usize) -> Outcome<Vec<f64>>) -> Spec {
    Spec { name, threads: 1, unit: "GB/s", work: gigabytes, measure }
}
const fn flops(
    name: &'static str,
    (m, k, n): (usize, usize, usize),
    measure: fn(&Device, usize) -> Outcome<Vec<f64>>,
) -> Spec {
    Spec { name, threads: 1, unit: "GFLOP/s", work: 2e-9 * (m * k * n) as f64, measure }
}
const fn step(name: &'static str, measure: fn(&Device, usize) -> Outcome<Vec<f64>>) -> Spec {
    Spec { name, threads: 1, unit: "ms", work: 1e3, measure }
}

/// All of them, in the order in which they run.
pub const TABLE: &[Spec] = &[
    time("add_out_256", 1, add_out),
    time("add_256", 1, add),
    time("alloc_free_4k", 1, alloc_free),
    time("alloc_free_4k", 2, alloc_free),
    time("alloc_free_4k", 4, alloc_free),
    time("alloc_free_4k", 8, alloc_free),
    time("alloc_free_4k", 16, alloc_free),
    time("cross_stream_free", 1, cross_stream_free),
    time("shared_read", 1, shared_read),
    time("shared_read", 2, shared_read),
    time("shared_read", 4, shared_read),
    time("shared_read", 8, shared_read),
    time("shared_read", 16, shared_read),
    rate("copy", 2.0 * SQUARE_GB, |device, _| {
        let (a, b) = (square(device)?, square(device)?);
        repeat(device, || b.copy_(&a).map(drop))
    }),
    rate("addcmul", 4.0 * SQUARE_GB, |device, _| {
        let (t, a, b) = (square(device)?, square(device)?, square(device)?);
        repeat(device, || t.addcmul_(&a, &b, 1e-3).map(drop))
    }),
    rate("addcmul_transposed", 4.0 * SQUARE_GB, |device, _| {
        let (t, a, b) = (square(device)?.t()?, square(device)?, square(device)?);
        repeat(device, || t.addcmul_(&a, &b, 1e-3).map(drop))
    }),
    rate("copy_transposed", 2.0 * SQUARE_GB, |device, _| {
        let (a, b) = (square(device)?.t()?, square(device)?);
        repeat(device, || b.copy_(&a).map(drop))
    }),
    rate("exp", 2.0 * SQUARE_GB, |device, _| {
        let (a, out) = (square(device)?, square(device)?);
        repeat(device, || a.exp_out(&out))
    }),
    rate("normal_", SQUARE_GB, |device, _| {
        let (out, generator) = (square(device)?, Generator::new(0));
        repeat(device, || out.normal_(0.0, 1.0, &generator).map(drop))
    }),
    rate("sum", SQUARE_GB, |device, _| {
        let a = square(device)?;
        repeat(device, || a.sum(.., false).map(drop))
    }),
    rate("sum_axis0", SQUARE_GB + (SIDE * 4) as f64 / 1e9, |device, _| {
        let (a, out) = (square(device)?, Tensor::empty([SIDE], F32, device)?);
        repeat(device, || a.sum_out(0, false, &out))
    }),
    rate("softmax", 2.0 * ROWS_GB, |device, _| {
        let (x, out) = (rows(device)?, rows(device)?);
        repeat(device, || x.softmax_out(-1, &out))
    }),
    rate("layer_norm", 2.0 * ROWS_GB, |device, _| {
        let (x, weight, bias) = (rows(device)?, features(device)?, features(device)?);
        repeat(device, || x.layer_norm_stats(1, Some(&weight), Some(&bias), 1e-5).map(drop))
    }),
    rate("layer_norm_backward", 3.0 * ROWS_GB, |device, _| {
        let (x, weight, bias) = (rows(device)?, features(device)?, features(device)?);
        let (_, mean, rstd) = x.layer_norm_stats(1, Some(&weight), Some(&bias), 1e-5)?;
        let gradient = rows(device)?;
        repeat(device, || gradient.layer_norm_backward(&x, (&mean, &rstd), 1, Some(&weight), true).map(drop))
    }),
    flops("gemm_256", (256, 256, 256), |device, _| gemm(device, 256)),
    flops("gemm_512", (512, 512, 512), |device, _| gemm(device, 512)),
    flops("gemm_1024", (1024, 1024, 1024), |device, _| gemm(device, 1024)),
    flops("gemm_2048", (2048, 2048, 2048), |device, _| gemm(device, 2048)),
    flops("linear_1", (1, 384, 1536), |device, _| linear(device, 1)),
    flops("linear_8", (8, 384, 1536), |device, _| linear(device, 8)),
    flops("linear_128", (128, 384, 1536), |device, _| linear(device, 128)),
    rate("adam", (7 * 4 * 2048 * 2048 * 4) as f64 / 1e9, adam),
    step("autoencoder_step", |device, _| autoencoder(device, (384, 1536, 256, 32))),
    step("autoencoder_step_small", |device, _| autoencoder(device, (64, 256, 128, 8))),
];

fn repeat(device: &Device, mut op: impl FnMut() -> Result<()>) -> Outcome<Vec<f64>> {
    alone(device, |count| (0..count).try_for_each(|_| op()))
}

fn normal(device: &Device, shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(shape, F32, device, None)
}
fn square(device: &Device) -> Result<Tensor> {
    normal(device, &[SIDE, SIDE])
}
fn rows(device: &Device) -> Result<Tensor> {
    normal(device, &[ROWS, FEATURES])
}
fn features(device: &Device) -> Result<Tensor> {
    normal(device, &[FEATURES])
}

fn add_out(device: &Device, _: usize) -> Outcome<Vec<f64>> {
    let (a, b, out) = (normal(device, &[256])?, normal(device, &[256])?, normal(device, &[256])?);
    repeat(device, || a.add_out(&b, &out))
}

fn add(device: &Device, _: usize) -> Outcome<Vec<f64>> {
    let (a, b) = (normal(device, &[256])?, normal(device, &[256])?);
    repeat(device, || a.add(&b).map(drop))
}

fn alloc_free(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    together(device, threads, |_| {
        Ok(|count| Ok((0..count).try_for_each(|_| device.allocate(4096).map(drop))?))
    })
}

/// A raw block, marked as read on another live stream, then dropped; taking it again is included.
fn cross_stream_free(device: &Device, _: usize) -> Outcome<Vec<f64>> {
    let other = Stream::from_pool(device, raddle::Priority::Normal).map_err(raddle::Error::from)?;
    {
        let _guard = other.enter();
        normal(device, &[256])?; // it has worked, so it is live
    }
    repeat(device, || {
        let buffer = device.allocate(4096)?;
        Ok(device.record_stream(&buffer, other)?)
    })
}

fn shared_read(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let shared = normal(device, &[256])?;
    let shared = &shared;
    together(device, threads, move |_| {
        let (a, out) = (normal(device, &[256])?, normal(device, &[256])?);
        Ok(move |count| (0..count).try_for_each(|_| a.add_out(shared, &out)))
    })
}

fn gemm(device: &Device, n: usize) -> Outcome<Vec<f64>> {
    let (a, b, out) = (normal(device, &[n, n])?, normal(device, &[n, n])?, normal(device, &[n, n])?);
    repeat(device, || a.matmul_out(&b, &out))
}

fn linear(device: &Device, rows: usize) -> Outcome<Vec<f64>> {
    let (x, weight) = (normal(device, &[rows, 384])?, normal(device, &[1536, 384])?);
    let bias = normal(device, &[1536])?;
    repeat(device, || x.linear(&weight, Some(&bias)).map(drop))
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

/// Runs steps of something that has errors of its own.
fn steps<E: std::fmt::Display>(
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

/// Four matrices of 2048 × 2048, one launch.
fn adam(device: &Device, _: usize) -> Outcome<Vec<f64>> {
    let mut parameters = Vec::new();
    for _ in 0..4 {
        let parameter = normal(device, &[2048, 2048])?;
        parameter.requires_grad_(true).map_err(failure)?;
        parameter.set_grad(Some(normal(device, &[2048, 2048])?));
        parameters.push(parameter);
    }
    let mut adam = Adam::new(parameters, AdamOptions::default()).map_err(failure)?;
    steps(device, || adam.step())
}

/// The TopK sparse autoencoder of BACKGROUND.md: encode, keep k, decode those, clip, Adam; widths d and h.
fn autoencoder(device: &Device, (d, h, batch, k): (usize, usize, usize, usize)) -> Outcome<Vec<f64>> {
    let options = AutoencoderOptions::new(d, h, k);
    let mut model = TopKAutoencoder::new(options, F32, device, Some(&Generator::new(0)))?;
    let parameters = model.parameters().into_iter().map(|(_, tensor)| tensor).collect();
    let mut adam = Adam::new(parameters, AdamOptions::default()).map_err(failure)?;
    let x = normal(device, &[batch, d])?;
    steps(device, || {
        model.train_step(&x, || adam.step().map_err(|error| StepError(error.to_string()))).map(drop)
    })
}

struct StepError(String);

impl From<raddle::grad::Error> for StepError {
    fn from(error: raddle::grad::Error) -> StepError {
        StepError(error.to_string())
    }
}
impl std::fmt::Display for StepError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
