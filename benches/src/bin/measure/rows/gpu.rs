//! Rows of a GPU alone: what a bare launch costs, and models of many small launches on many threads.

use raddle::{
    Activation,
    DType::F16,
    Device, Event, Result, Stream, Tensor,
    cuda::Cuda,
    runtime::hal::{Device as _, Priority, QueueId},
};
use raddle_cli::{
    bench::{measure::together, rows::normal},
    output::{Failure, Outcome},
};
use std::time::Instant;

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

/// Which GPU it is.
fn ordinal(device: &Device) -> Outcome<usize> {
    let ordinal = device.name().split_once(':').and_then(|(_, ordinal)| ordinal.parse().ok());
    ordinal.ok_or_else(|| failure(format!("{}: only a GPU has bare launches", device.name())))
}

/// What the driver launches alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bare {
    Nothing,
    /// Of 256 numbers.
    Add,
}

/// Launches by the driver alone: what `add_out_256` can't be faster than.
pub fn launch(device: &Device, threads: usize, what: Bare) -> Outcome<Vec<f64>> {
    let cuda = Cuda::new(ordinal(device)?).map_err(failure)?;
    let control = cuda.control();
    for thread in 0..threads {
        cuda.open_queue(QueueId(thread as u8), Priority::Normal).map_err(failure)?;
    }
    together(device, threads, |thread| {
        let control = &control;
        // Of a failure the next row tells as well: the context is the same.
        Ok(move |count| {
            _ = match what {
                Bare::Nothing => control.launch_empty(QueueId(thread as u8), count),
                Bare::Add => control.launch_add(QueueId(thread as u8), count),
            };
            Ok(())
        })
    })
}

/// Dependent ops in a row: few enough to be in flight at once, behind something that takes longer than to submit them.
const HOPS: usize = 200;
const HOP_REPEATS: usize = 7;

/// Where the time of [`hops`] passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Host,
    Device,
}

/// Ops that each need the result of the one before, in turn on so many streams, submitted while the device is busy: what each
/// takes the host to submit, or the device to run.
pub fn hops(device: &Device, streams: usize, side: Side) -> Outcome<Vec<f64>> {
    let streams: Vec<Stream> = (0..streams)
        .map(|_| Stream::from_pool(device, raddle::Priority::Normal))
        .collect::<std::result::Result<_, _>>()
        .map_err(failure)?;
    let square = || normal(device, &[8192, 8192]); // their product takes an H100 20 ms
    let (a, b, product) = (square()?, square()?, square()?);
    let (one, x) = (normal(device, &[256])?, [normal(device, &[256])?, normal(device, &[256])?]);
    let (start, end) = (Event::timing(), Event::timing());
    let turn = || -> Outcome<f64> {
        {
            let _guard = streams[0].enter();
            a.matmul_out(&b, &product)?;
        }
        start.record(streams[0]);
        let begin = Instant::now();
        for at in 0..HOPS {
            let _guard = streams[at % streams.len()].enter();
            x[at % 2].add_out(&one, &x[(at + 1) % 2])?;
        }
        let host = begin.elapsed().as_secs_f64();
        end.record(streams[(HOPS - 1) % streams.len()]);
        device.synchronize().map_err(failure)?;
        let seconds = match side {
            Side::Host => host,
            Side::Device => end.elapsed_ms(&start).map_err(failure)? / 1e3,
        };
        Ok(seconds / HOPS as f64)
    };
    turn()?;
    (0..HOP_REPEATS).map(|_| turn()).collect()
}

/// The same of empty kernels by the driver alone, with events by hand: what the host's part of [`hops`] can't be less than.
pub fn hops_bare(device: &Device, streams: usize) -> Outcome<Vec<f64>> {
    const BUSY_NS: u64 = 20_000_000;
    let cuda = Cuda::new(ordinal(device)?).map_err(failure)?;
    let queues: Vec<QueueId> = (0..streams as u8).map(QueueId).collect();
    for &queue in &queues {
        cuda.open_queue(queue, Priority::Normal).map_err(failure)?;
    }
    let control = cuda.control();
    let turn = || control.chain_empty(&queues, HOPS, BUSY_NS).map_err(failure);
    turn()?;
    (0..HOP_REPEATS).map(|_| Ok(turn()?.as_secs_f64() / HOPS as f64)).collect()
}

/// 512-1024-1024-512 with ReLU.
const MLP: [usize; 4] = [512, 1024, 1024, 512];

/// The weights of an MLP.
pub struct Mlp(Vec<(Tensor, Tensor)>);

impl Mlp {
    pub fn new(device: &Device) -> Result<Mlp> {
        let layer =
            |widths: &[usize]| Ok((normal(device, &[widths[1], widths[0]])?, normal(device, &[widths[1]])?));
        MLP.windows(2).map(layer).collect::<Result<_>>().map(Mlp)
    }

    /// One row.
    pub fn input(device: &Device) -> Result<Tensor> {
        normal(device, &[1, MLP[0]])
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (at, (weight, bias)) in self.0.iter().enumerate() {
            let activation = if at + 1 < self.0.len() { Activation::Relu } else { Activation::None };
            x = x.linear_with(weight, Some(bias), activation)?;
        }
        Ok(x)
    }
}

/// Forwards of one row; all threads share the weights.
pub fn mlp(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let mlp = &Mlp::new(device)?;
    together(device, threads, |_| {
        let input = Mlp::input(device)?;
        Ok(move |count| (0..count).try_for_each(|_| mlp.forward(&input).map(drop)))
    })
}

const LAYERS: usize = 6;
const WIDTH: usize = 384;
const HEADS: usize = 12;
const INNER: usize = 1536;
const TOKENS: usize = 32;

/// A layer of an encoder as MiniLM has it, f16.
struct Layer {
    /// Query, key and value in one.
    qkv: (Tensor, Tensor),
    out: (Tensor, Tensor),
    up: (Tensor, Tensor),
    down: (Tensor, Tensor),
    norms: [(Tensor, Tensor); 2],
}

impl Layer {
    fn new(device: &Device) -> Result<Layer> {
        let random = |shape: &[usize]| Tensor::randn(shape, F16, device, None)?.mul(0.02);
        let linear = |from: usize, to: usize| Ok::<_, raddle::Error>((random(&[to, from])?, random(&[to])?));
        let norm = || Ok::<_, raddle::Error>((Tensor::ones([WIDTH], F16, device)?, random(&[WIDTH])?));
        Ok(Layer {
            qkv: linear(WIDTH, 3 * WIDTH)?,
            out: linear(WIDTH, WIDTH)?,
            up: linear(WIDTH, INNER)?,
            down: linear(INNER, WIDTH)?,
            norms: [norm()?, norm()?],
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        const HEAD: usize = WIDTH / HEADS;
        let apply = |x: &Tensor, (weight, bias): &(Tensor, Tensor)| x.linear(weight, Some(bias));
        let norm = |x: &Tensor, residual: &Tensor, (weight, bias): &(Tensor, Tensor)| {
            x.layer_norm_add(residual, 1, Some(weight), Some(bias), 1e-12)
        };
        let qkv = apply(x, &self.qkv)?.reshape([TOKENS, 3, HEADS, HEAD])?.permute([1, 2, 0, 3])?;
        let [q, k, v] = [qkv.select(0, 0)?, qkv.select(0, 1)?, qkv.select(0, 2)?];
        let scores = q.bmm(&k.transpose(1, 2)?)?.mul(1.0 / (HEAD as f64).sqrt())?.softmax(-1)?;
        let mixed = scores.bmm(&v)?.transpose(0, 1)?.reshape([TOKENS, WIDTH])?;
        let x = norm(&apply(&mixed, &self.out)?, x, &self.norms[0])?;
        let up = x.linear_with(&self.up.0, Some(&self.up.1), Activation::Gelu)?;
        norm(&apply(&up, &self.down)?, &x, &self.norms[1])
    }
}

/// An encoder, without the embedding.
pub struct Encoder(Vec<Layer>);

impl Encoder {
    pub fn new(device: &Device) -> Result<Encoder> {
        (0..LAYERS).map(|_| Layer::new(device)).collect::<Result<_>>().map(Encoder)
    }

    /// A sentence of 32 tokens.
    pub fn input(device: &Device) -> Result<Tensor> {
        Tensor::randn([TOKENS, WIDTH], F16, device, None)
    }

    /// The mean over the tokens.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))?.mean(0, false)
    }
}

/// Sentences of 32 tokens, one at a time; all threads share the weights.
pub fn transformer(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let encoder = &Encoder::new(device)?;
    together(device, threads, |_| {
        let input = Encoder::input(device)?;
        Ok(move |count| (0..count).try_for_each(|_| encoder.forward(&input).map(drop)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_keeps_its_shape_and_is_finite() {
        let device = Device::new("cpu").expect("the CPU is there");
        let x = Tensor::randn([TOKENS, WIDTH], F16, &device, None).expect("there is memory");
        let out = Layer::new(&device).and_then(|layer| layer.forward(&x)).expect("a layer runs");
        assert_eq!(**out.shape(), [TOKENS, WIDTH]);
        let sum = out.to_dtype(raddle::DType::F32).and_then(|out| out.abs()?.sum(.., false)?.item::<f32>());
        assert!(sum.is_ok_and(|sum| sum.is_finite() && sum > 0.0));
    }
}
