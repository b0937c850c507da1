//! `raddle demo`: one thread trains a sparse autoencoder on real data while others encode images, most of them with published
//! versions of its weights, which are copies, and some with the live ones, in the memory that the optimizer is writing; all on one
//! device, with no synchronization between them. Then every answer is checked.
//!
//! What it would show if the runtime were wrong: an answer is computed from the weights of one version and nothing else,
//! although newer weights are written all the time, and a version's memory is given back while reads of it are in flight. An
//! answer by live weights is that of the weights after one step, whole, whichever of those that were under way.
//! So each logged answer is computed again, by one thread, from a copy of the weights that it names, and must agree to the
//! last bit.
//!
//! On the CPU most ops run on the spot, and there little can go wrong. So the same is done on the simulator as well, for fewer
//! steps: there work is late and overtakes all that it isn't ordered behind. `cargo xtask faults demo` shows what both count
//! when the runtime is told to be wrong.

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
use digits::Digits;
use raddle::{Device, Publisher, StreamStats, Tensor, trace};
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
use train::{Parameter, Progress, Trainer, Versions};

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

/// Steps and threads of the run on the simulator beside that on the CPU, at most: it runs in a second, and has hundreds of waits.
const LATE_STEP_COUNT: u32 = 40;
const LATE_THREAD_COUNT: u16 = 4;

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
    /// By published versions and by live weights.
    inferences: u64,
    inferences_per_s: f64,
    wrong_answers: u64,
    /// Those of them by live weights.
    live: Checked,
    params: Vec<Parameter>,
    waits: Waits,
    memory: Memory,
    /// The same on the simulator, if `device` runs work on the spot.
    late: Option<Late>,
    seconds: f64,
}

/// Answers that were computed again, and how many of them were not the same.
#[derive(Clone, Copy, Serialize)]
struct Checked {
    answers: u64,
    wrong: u64,
}

#[derive(Serialize)]
struct Late {
    device: String,
    steps: u32,
    threads: u16,
    published: Checked,
    live: Checked,
    waits: Waits,
}

#[derive(Serialize)]
struct Waits {
    inserted: u64,
    elided: u64,
}

impl From<StreamStats> for Waits {
    fn from(stats: StreamStats) -> Waits {
        Waits { inserted: stats.waits_inserted, elided: stats.waits_elided }
    }
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
    let images = digits.to(&device)?;
    let mut trainer = Trainer::new(&images, arguments.seed)?;
    let first = trainer.parameters_on_host()?;
    let loss_first = trainer.loss()?;
    let template = "training {bar:40} {pos}/{len} steps, {per_sec}, {eta} left";
    let bar = progress(arguments.steps.into(), template);
    let served = Instant::now();
    let (versions, answers) =
        serve_while_training(&images, &mut trainer, arguments, |step| bar.set_position(step))?;
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

    let (published, live) = checked(&images, &versions, &answers)?;
    let inferences = published.answers + live.answers;
    let wrong_answers = published.wrong + live.wrong;
    let late = if arguments.device == "cpu" { Some(run_late(&digits, arguments)?) } else { None };
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
        live,
        params: trainer.moved(&first)?,
        waits: stream_stats.into(),
        memory: Memory {
            allocated_peak: memory_stats.allocated_peak_bytes,
            reserved_peak: memory_stats.reserved_peak_bytes,
        },
        late,
        seconds: start.elapsed().as_secs_f64(),
    };
    write_json(arguments.json.as_deref(), &report)?;
    if let Some(path) = &arguments.trace {
        write_whole_with(path, |mut to| trace::write_to(&mut to))?;
    }
    let shown = if to_stdout == 0 { show(&report, &answers, serve_seconds) } else { Ok(()) };
    let checked: Vec<Checked> = [Checked { answers: inferences, wrong: wrong_answers }]
        .into_iter()
        .chain(report.late.iter().flat_map(|late| [late.published, late.live]))
        .collect();
    match checked.iter().map(|checked| checked.wrong).sum::<u64>() {
        0 => shown,
        wrong => {
            let all: u64 = checked.iter().map(|checked| checked.answers).sum();
            Err(Failure::Other(format!("demo: {wrong} of {all} answers are wrong")))
        }
    }
}

/// Trains on this thread while others encode images, and stops them when training is over.
fn serve_while_training(
    images: &Tensor,
    trainer: &mut Trainer,
    Arguments { steps, threads, seed, .. }: &Arguments,
    tell: impl FnMut(u64),
) -> Outcome<(Versions, Vec<Answers>)> {
    let publisher = Publisher::new(&trainer.published())?;
    let progress = Progress::default();
    let server = Server { images, publisher: &publisher, live: trainer.live(), progress: &progress };
    let told = Told::default();
    std::thread::scope(|scope| {
        let stopping = Stopping(&told);
        let threads = start_threads(scope, "demo", (*threads).into(), |index| {
            let (server, told, index) = (&server, &told, index as u16);
            move || match told.go.wait() {
                true => server.run(*seed, index, &told.stop),
                false => Ok(Answers::default()),
            }
        })?;
        _ = told.go.set(true);
        let versions = trainer.run(*steps, &publisher, &progress, tell);
        drop(stopping);
        let answers = threads.into_iter().map(|thread| match thread.join() {
            Ok(answers) => answers.map_err(Failure::from),
            Err(_) => Err(Failure::Other("demo: a thread that encodes has panicked".into())),
        });
        Ok((versions?, answers.collect::<Outcome<_>>()?))
    })
}

/// Computes all answers again: those by published versions, and those by live weights.
fn checked(images: &Tensor, versions: &Versions, answers: &[Answers]) -> Outcome<(Checked, Checked)> {
    let published = || answers.iter().flat_map(|answers| &answers.published);
    let live = || answers.iter().flat_map(|answers| &answers.live);
    Ok((
        Checked {
            answers: published().count() as u64,
            wrong: serve::wrong_answers(images, &versions.published, published())?,
        },
        Checked {
            answers: live().count() as u64,
            wrong: serve::wrong_answers(images, &versions.live, live())?,
        },
    ))
}

/// The same on the simulator, for fewer steps.
fn run_late(digits: &Digits, arguments: &Arguments) -> Outcome<Late> {
    let device = Device::new(&format!("sim:{}", arguments.seed))?;
    let images = digits.to(&device)?;
    let arguments = Arguments {
        device: device.name().into(),
        steps: arguments.steps.min(LATE_STEP_COUNT),
        threads: arguments.threads.min(LATE_THREAD_COUNT),
        data: None,
        json: None,
        trace: None,
        memory: None,
        ..*arguments
    };
    let mut trainer = Trainer::new(&images, arguments.seed)?;
    let (versions, answers) = serve_while_training(&images, &mut trainer, &arguments, |_| {})?;
    let waits = device.stream_stats().into();
    let (published, live) = checked(&images, &versions, &answers)?;
    let Arguments { device, steps, threads, .. } = arguments;
    Ok(Late { device, steps, threads, published, live, waits })
}

fn show(report: &Report, answers: &[Answers], serve_seconds: f64) -> Outcome {
    let Report { device, steps, threads, inferences, wrong_answers, live, .. } = report;
    say(format_args!(
        "One thread trained a sparse autoencoder on {device} for {steps} steps; {threads} threads"
    ))?;
    say(format_args!(
        "encoded images meanwhile, with published versions of its weights and with the live ones,"
    ))?;
    say(format_args!("which the optimizer was writing; with no lock and no synchronization.\n"))?;
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
    let count = |answers: &Answers| answers.published.len() + answers.live.len();
    let rates: Vec<String> =
        answers.iter().map(|answers| format!("{:.0}", count(answers) as f64 / serve_seconds)).collect();
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
    let wrong = |checked: Checked| format!("{} of {}", checked.wrong, checked.answers);
    let published = Checked { answers: inferences - live.answers, wrong: wrong_answers - live.wrong };
    line("wrong answers", "each was computed again and compared to the last bit".into())?;
    line("  published versions", wrong(published))?;
    line("  live weights", wrong(*live))?;
    let Some(late) = &report.late else { return Ok(()) };
    let Late { device, steps, threads, published, live, waits } = late;
    say(format_args!("\nThe same on {device}, which runs work late and in any order that the waits allow"))?;
    say(format_args!("({steps} steps, {threads} threads; on the CPU most ops run on the spot):\n"))?;
    line("waits", format!("{} inserted, {} elided", waits.inserted, waits.elided))?;
    line("wrong answers", String::new())?;
    line("  published versions", wrong(*published))?;
    line("  live weights", wrong(*live)).map(drop)
}
