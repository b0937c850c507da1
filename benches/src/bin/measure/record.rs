//! `measure record`: the allocation traces that ship in `benches/traces`, recorded from real work on the CPU.

use crate::{replay::write_trace, rows::Encoder};
use raddle::{
    DType::F32,
    Device, Generator, Result, Stream, Tensor,
    grad::no_grad,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions},
    runtime::MemoryTrace,
};
use raddle_cli::output::{Failure, Outcome, StepError, check_writable, is_stdout, say, write_json};
use serde::Serialize;
use std::{path::PathBuf, sync::mpsc::sync_channel, time::Instant};

/// Records the allocations of a workload, for `measure replay`.
#[derive(clap::Args)]
#[command(after_help = "Example: measure record pipeline --out target/pipeline.trace.gz")]
pub struct Arguments {
    /// What to run: steps of training a sparse autoencoder; an encoder of MiniLM's shape on 8 threads; batches that one
    /// thread uploads on a stream of its own and another consumes.
    #[arg(value_enum)]
    workload: Workload,
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Steps, sentences of a thread, or batches.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Where the trace goes; compressed if the name ends in .gz.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Writes what was recorded as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    workload: Workload,
    device: String,
    rounds: u32,
    /// The file of the trace.
    out: String,
    events: usize,
    allocations: usize,
    /// Of the workload, without writing the trace.
    seconds: f64,
}

#[derive(Clone, Copy, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Workload {
    Training,
    Inference,
    Pipeline,
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("record: {error}"))
}

pub fn run(arguments: &Arguments) -> Outcome {
    let outputs = [Some(arguments.out.as_path()), arguments.json.as_deref()];
    outputs.into_iter().try_for_each(check_writable)?;
    if outputs.into_iter().all(is_stdout) {
        return Err(Failure::Input(
            "record: expected - for one of --out and --json at most, found both".into(),
        ));
    }
    let device = Device::new(&arguments.device)?;
    let recording = device.record_memory().map_err(failure)?;
    let start = Instant::now();
    match arguments.workload {
        Workload::Training => training(&device, arguments.rounds)?,
        Workload::Inference => inference(&device, arguments.rounds)?,
        Workload::Pipeline => pipeline(&device, arguments.rounds)?,
    }
    let trace: MemoryTrace = recording.finish().map_err(failure)?;
    let report = Report {
        workload: arguments.workload,
        device: device.name().into(),
        rounds: arguments.rounds,
        out: arguments.out.display().to_string(),
        events: trace.events().len(),
        allocations: trace.allocation_count(),
        seconds: start.elapsed().as_secs_f64(),
    };
    write_trace(&arguments.out, &trace)?;
    write_json(arguments.json.as_deref(), &report)?;
    if outputs.into_iter().any(is_stdout) {
        return Ok(());
    }
    let Report { out, events, allocations, .. } = report;
    say(format_args!("{out}: {events} events, {allocations} allocations")).map(drop)
}

/// The sparse autoencoder: 768 inputs, 8192 features of which 32 stay, batches of 1024. Each batch comes from the host, the
/// loss goes back.
fn training(device: &Device, steps: u32) -> Outcome {
    const INPUTS: usize = 768;
    const BATCH: usize = 1024;
    let generator = Generator::new(0);
    let options = AutoencoderOptions::new(INPUTS, 8192, 32);
    let mut model = TopKAutoencoder::new(options, F32, device, Some(&generator))?;
    let mut adam = Adam::new(model.parameters(), AdamOptions::default()).map_err(failure)?;
    let batch = vec![0.5f32; BATCH * INPUTS];
    for _ in 0..steps {
        let x = Tensor::from_slice(&batch, [BATCH, INPUTS], device)?;
        let loss = model.train_step(&x, || adam.step().map_err(StepError::from));
        loss.map_err(failure)?.item::<f32>()?;
    }
    Ok(())
}

type Thread<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// Runs threads to their ends; the first error of any.
fn together(threads: Vec<Thread<'_>>) -> Outcome {
    std::thread::scope(|scope| {
        let threads: Vec<_> = threads.into_iter().map(|thread| scope.spawn(thread)).collect();
        let results: Vec<Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        Ok(results.into_iter().collect::<Result<()>>()?)
    })
}

/// Eight threads, each on its stream, one set of weights. Each result goes back to the host.
fn inference(device: &Device, sentences: u32) -> Outcome {
    const THREADS: usize = 8;
    let encoder = &no_grad(|| Encoder::new(device))?;
    let thread = || {
        no_grad(|| {
            for _ in 0..sentences {
                encoder.forward(&Encoder::input(device)?)?.to_dtype(F32)?.to_vec::<f32>()?;
            }
            Ok(())
        })
    };
    together((0..THREADS).map(|_| Box::new(thread) as Thread<'_>).collect())
}

/// A background thread uploads batches of images on its own stream; the foreground makes floats of each, which drops the
/// batch while what reads it is only enqueued, and embeds patches of 16 × 16 pixels. Four batches at most are in between.
fn pipeline(device: &Device, batches: u32) -> Outcome {
    const IMAGES: usize = 32;
    const SIDE: usize = 224;
    const PATCH: usize = 16;
    const PATCHES: usize = SIDE / PATCH;
    const WIDTH: usize = 384;
    let pixels = vec![100u8; IMAGES * 3 * SIDE * SIDE];
    let (give, take) = sync_channel(4);
    let source = move || {
        for _ in 0..batches {
            let batch = Tensor::from_slice(&pixels, [IMAGES, 3, SIDE, SIDE], device)?;
            Stream::current(device)?.synchronize()?;
            // Nobody takes it any more: the foreground has failed, and says why.
            if give.send(batch).is_err() {
                break;
            }
        }
        Ok(())
    };
    let sink = move || {
        no_grad(|| {
            let weight = |inputs: usize| Tensor::full([WIDTH, inputs], 1e-3, F32, device);
            let (embed, mix) = (weight(3 * PATCH * PATCH)?, weight(WIDTH)?);
            for batch in take {
                let x = batch.to_dtype(F32)?;
                drop(batch);
                let x = x.div(255.0)?.reshape([IMAGES, 3, PATCHES, PATCH, PATCHES, PATCH])?;
                let x = x
                    .permute([0, 2, 4, 1, 3, 5])?
                    .reshape([IMAGES * PATCHES * PATCHES, 3 * PATCH * PATCH])?;
                let x = x.linear(&embed, None)?.relu()?.linear(&mix, None)?.relu()?;
                x.reshape([IMAGES, PATCHES * PATCHES, WIDTH])?
                    .mean(1, false)?
                    .softmax(-1)?
                    .to_vec::<f32>()?;
            }
            Ok(())
        })
    };
    together(vec![Box::new(source), Box::new(sink)])
}
