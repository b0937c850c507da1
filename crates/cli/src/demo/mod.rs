//! `raddle demo`: one thread trains a sparse autoencoder on real data while others encode images with published versions
//! of its live weights, all on one device, with no synchronisation between them; then every answer is checked.
//!
//! What it would show if the runtime were wrong: an answer is computed from the weights of one version and nothing else,
//! although newer weights are written all the time, and a version's memory is given back while reads of it are in flight.
//! So each logged answer is computed again, by one thread, from a copy of the version that it names, and must agree to the
//! last bit.

mod digits;
mod random;
mod serve;
mod train;

use crate::{
    output::{
        Failure, Outcome, check_writable, is_stdout, progress, say, write_json, write_whole, write_whole_with,
    },
    threads::start_threads,
};
use digits::{Digits, PIXEL_COUNT};
use raddle::{Device, Publisher, Tensor, trace};
use serde::Serialize;
use serve::{Answers, Server};
use std::{
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};
use train::{Parameter, Trainer, Version};

/// Trains a model on real data while other threads run it, then checks every answer.
#[derive(clap::Args)]
#[command(
    after_help = "Example: raddle demo --threads 4 --steps 500 --json demo.json --trace demo-trace.json"
)]
pub struct Arguments {
    /// Where to run: cpu, cuda:ORDINAL for a GPU, or sim:SEED for the simulator that reorders work on purpose.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads that encode images while one more trains.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=1024))]
    threads: u16,
    /// Steps of training.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Seeds the weights and the order of the images; the same seed gives the same losses to the last bit.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Images to train on instead of the built-in digits: a gzipped CSV of 64 pixels from 0 to 16 and a label a line.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Writes the figures as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Writes a trace for Chrome's or Perfetto's viewer: a track for each stream with its ops, waits and
    /// allocations (- for standard output).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Writes, when the training is over, who has held which memory and when: a picture, or a snapshot if the name ends in .json
    /// (- for standard output).
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,
}

/// Allocations and frees that the picture of memory shows.
const MEMORY_EVENT_COUNT_MAX: usize = 100_000;

#[derive(Serialize)]
struct Report {
    device: String,
    seed: u64,
    steps: u32,
    threads: u16,
    loss_first: f64,
    loss_last: f64,
    explained_variance: f64,
    inferences: u64,
    inferences_per_s: f64,
    wrong_answers: u64,
    params: Vec<Parameter>,
    waits: Waits,
    memory: Memory,
    seconds: f64,
}

#[derive(Serialize)]
struct Waits {
    inserted: u64,
    elided: u64,
}

#[derive(Serialize)]
struct Memory {
    allocated_peak: usize,
    reserved_peak: usize,
}

/// What the threads that encode are told.
#[derive(Default)]
struct Told {
    /// All have started: they may encode. False: not all did, so none does.
    go: OnceLock<bool>,
    stop: AtomicBool,
}

/// Tells the threads that encode to stop, also if one doesn't start, or training panics.
struct Stopping<'a>(&'a Told);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
        _ = self.0.go.set(false);
    }
}

pub fn run(arguments: &Arguments) -> Outcome {
    let start = Instant::now();
    let digits = digits::load(arguments.data.as_deref(), serve::IMAGE_COUNT)?;
    let outputs = [&arguments.json, &arguments.trace, &arguments.memory].map(Option::as_deref);
    outputs.into_iter().try_for_each(check_writable)?;
    let to_stdout = outputs.into_iter().filter(|path| is_stdout(*path)).count();
    if to_stdout > 1 {
        let found =
            format!("demo: expected - for one of --json, --trace and --memory at most, found {to_stdout}");
        return Err(Failure::Input(found));
    }
    let device = Device::new(&arguments.device)?;
    if arguments.trace.is_some() {
        trace::start();
    }
    if arguments.memory.is_some() {
        device.set_memory_history(MEMORY_EVENT_COUNT_MAX);
    }
    let Digits { pixels, image_count } = digits;
    let images = Tensor::from_vec(pixels, [image_count, PIXEL_COUNT], &device)?;

    let mut trainer = Trainer::new(&images, arguments.seed)?;
    let first = trainer.parameters_on_host()?;
    let loss_first = trainer.loss()?;
    let publisher = Publisher::new(&trainer.published())?;
    let server = Server { images: &images, publisher: &publisher };
    let told = Told::default();
    let template = "training {bar:40} {pos}/{len} steps, {per_sec}, {eta} left";
    let bar = progress(arguments.steps.into(), template);
    let served = Instant::now();
    let (versions, answers) = std::thread::scope(|scope| -> Outcome<(Vec<Version>, Vec<Answers>)> {
        let stopping = Stopping(&told);
        let threads = start_threads(scope, "demo", arguments.threads.into(), |index| {
            let (server, told, index) = (&server, &told, index as u16);
            move || match told.go.wait() {
                true => server.run(arguments.seed, index, &told.stop),
                false => Ok(Answers(Vec::new())),
            }
        })?;
        _ = told.go.set(true);
        let versions = trainer.run(arguments.steps, &publisher, |step| bar.set_position(step));
        drop(stopping);
        let answers = threads.into_iter().map(|thread| match thread.join() {
            Ok(answers) => answers.map_err(Failure::from),
            Err(_) => Err(Failure::Other("demo: a thread that encodes has panicked".into())),
        });
        Ok((versions?, answers.collect::<Outcome<_>>()?))
    })?;
    let serve_seconds = served.elapsed().as_secs_f64();
    bar.finish_and_clear();
    // Of the run, before anything is checked.
    let (stream_stats, memory_stats) = (device.stream_stats(), device.memory_stats());
    if arguments.trace.is_some() {
        trace::stop();
    }
    if let Some(path) = &arguments.memory {
        let snapshot = device.memory_snapshot();
        device.set_memory_history(0);
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        write_whole(path, if is_json { snapshot.to_json() } else { snapshot.to_html() }.as_bytes())?;
    }

    let wrong_answers = serve::wrong_answers(&images, &versions, &answers)?;
    let inferences: u64 = answers.iter().map(|answers| answers.0.len() as u64).sum();
    let report = Report {
        device: device.name().into(),
        seed: arguments.seed,
        steps: arguments.steps,
        threads: arguments.threads,
        loss_first,
        loss_last: trainer.loss()?,
        explained_variance: trainer.explained_variance()?,
        inferences,
        inferences_per_s: inferences as f64 / serve_seconds,
        wrong_answers,
        params: trainer.moved(&first)?,
        waits: Waits { inserted: stream_stats.waits_inserted, elided: stream_stats.waits_elided },
        memory: Memory {
            allocated_peak: memory_stats.allocated_peak_bytes,
            reserved_peak: memory_stats.reserved_peak_bytes,
        },
        seconds: start.elapsed().as_secs_f64(),
    };
    write_json(arguments.json.as_deref(), &report)?;
    if let Some(path) = &arguments.trace {
        write_whole_with(path, |mut to| trace::write_to(&mut to))?;
    }
    let shown = if to_stdout == 0 { show(&report, &answers, serve_seconds) } else { Ok(()) };
    match wrong_answers {
        0 => shown,
        wrong => Err(Failure::Other(format!("demo: {wrong} of {inferences} answers are wrong"))),
    }
}

fn show(report: &Report, answers: &[Answers], serve_seconds: f64) -> Outcome {
    let Report { device, steps, threads, inferences, wrong_answers, .. } = report;
    say(format_args!("One thread trained a sparse autoencoder on {device} for {steps} steps;"))?;
    say(format_args!(
        "{threads} threads encoded images with its live weights meanwhile, with no lock and no synchronisation.\n"
    ))?;
    let line = |name: &str, text: String| say(format_args!("  {name:<22} {text}"));
    line("loss, all images", format!("{:.5} → {:.5}", report.loss_first, report.loss_last))?;
    line("explained variance", format!("{:.1} %", report.explained_variance * 100.0))?;
    for parameter in &report.params {
        let Parameter { name, shape, strides, moved } = parameter;
        // A parameter that starts at 0 has moved by any factor.
        let moved = if *moved > 1e6 { "from 0".into() } else { format!("{:.1} %", moved * 100.0) };
        line(name, format!("moved {moved:<7} (shape {shape:?}, strides {strides:?})"))?;
    }
    line("inferences", format!("{inferences}, {:.0} a second", report.inferences_per_s))?;
    let rates: Vec<String> =
        answers.iter().map(|answers| format!("{:.0}", answers.0.len() as f64 / serve_seconds)).collect();
    line("  a second, by thread", rates.join(" "))?;
    line("waits", format!("{} inserted, {} elided", report.waits.inserted, report.waits.elided))?;
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    line(
        "memory at the peak",
        format!(
            "{:.1} MiB given out, {:.1} MiB held",
            mib(report.memory.allocated_peak),
            mib(report.memory.reserved_peak)
        ),
    )?;
    line("seconds", format!("{:.1}", report.seconds))?;
    line("wrong answers", format!("{wrong_answers} of {inferences}, each compared to the last bit")).map(drop)
}
