//! `raddle embed`: a vector for each line of a file.
//!
//! Lines are read a window at a time, tokenized on all threads, sorted by length and cut into batches; threads take batches, the
//! longest first; rows are put where their lines stand and written in order. Memory is that of two windows, whatever the size of
//! the input (and a line's number and reason for each one skipped). Every second or so what was written is put on the disk and
//! noted in a journal, from which `--resume` goes on ([`journal`]).

mod engine;
mod input;
mod journal;
mod model;
mod vectors;

use crate::output::{
    Failure, Outcome, check_keeps, check_writable, is_stdout, progress, say, target, tell, write_json,
};
use engine::{Engine, Window};
use indicatif::ProgressBar;
use input::{Format, Input, count_lines};
use journal::{Entry, Identity, Journal, Skipped};
use raddle::{
    DType, Device, Limits,
    nn::text::{ModelOptions, SentenceEncoder, TooLong},
};
use raddle_sync::fault;
use serde::Serialize;
use std::{
    cell::RefCell,
    collections::VecDeque,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use vectors::{Kind, Output, partial_path};

/// Makes a vector of each line of a file, with a sentence encoder.
#[derive(clap::Args)]
#[command(
    after_help = "Example: raddle embed --model target/models/all-MiniLM-L6-v2 --input lines.txt --output vectors.npy"
)]
pub struct Arguments {
    /// The folder of the model: config.json, tokenizer.json, model.safetensors, and what sentence-transformers adds. Or a name
    /// on the Hugging Face hub, such as sentence-transformers/all-MiniLM-L6-v2, with @REVISION for a branch, tag or commit: what
    /// isn't in its cache is fetched.
    #[arg(long, value_name = "FOLDER|NAME")]
    model: PathBuf,
    /// Texts, one a line (- for standard input); an empty line is a text, too. A line that can't be read, or whose vector has
    /// numbers that aren't finite, is skipped: standard error and the report tell its number and why, and the exit code stays 0.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// What a line is. Without it: JSON if the name ends in .jsonl, else a text.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Where in a line's JSON object the text is.
    #[arg(long, default_value = "text")]
    field: String,
    /// Where the vectors go: .npy, .safetensors (one tensor, `embeddings`) or .jsonl (a line is {"line", "embedding"}, or {"line",
    /// "error"}). f32, one row a line, in the order of the lines; the row of a skipped line is NaN. It is there when it is
    /// whole; until then NAME.partial is. It may be a symbolic link, which stays, but no device or pipe.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Goes on with what an interrupted run of the same model, options and input has left, if anything. The output is the same
    /// to the last byte. Any signal may interrupt one: at most a second's work is lost.
    #[arg(long)]
    resume: bool,
    /// Threads that tokenize and compute. Without it: as many as there are cores.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The most tokens of a batch, with padding; one text is a batch whatever its length.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_tokens: u32,
    /// The most tokens of a text, special ones included; the rest is cut off. Without it: as many as the model says.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(5..=1 << 20))]
    max_length: Option<u32>,
    /// Which end of a text that is too long is cut off. Without it: as the model says, which for most is right.
    #[arg(long, value_enum, value_name = "SIDE")]
    truncation_side: Option<Side>,
    /// The name of a prompt of the model to put before each text. Without it: the model's default, if it has one.
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// The most bytes of a line; a longer one is skipped.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    line_bytes: u32,
    /// Lines that are sorted by length and written together.
    #[arg(long, value_name = "LINES", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    window: u32,
    /// The same bits whatever the threads, batches and windows. On the CPU they are in any case; elsewhere each text is computed
    /// alone, which is slower.
    #[arg(long)]
    deterministic: bool,
    /// Where to run: cpu, cuda:ORDINAL or sim:SEED.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// What the model computes in: f32, f16 or bf16.
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Writes the figures as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// An end of a text.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Side {
    Left,
    Right,
}

#[derive(Serialize)]
struct Report {
    lines: u64,
    skipped: Vec<Skipped>,
    tokens: u64,
    padding_tokens: u64,
    /// From the first line read to the last row written, of all runs that made the output; without loading the model.
    seconds: f64,
    sentences_per_s: f64,
    threads: u16,
    device: String,
    dtype: String,
}

/// How often what was written is put on the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

pub fn run(arguments: &Arguments) -> Outcome {
    let kind = Kind::of(&arguments.output)?;
    check_writable(Some(&arguments.output))?;
    check_writable(arguments.json.as_deref())?;
    let known = [DType::F32, DType::F16, DType::BF16];
    let Some(dtype) = known.into_iter().find(|dtype| dtype.to_string() == arguments.dtype) else {
        let (known, found) = (known.map(|dtype| dtype.to_string()).join(", "), &arguments.dtype);
        return Err(Failure::Input(format!("--dtype: expected a dtype of {known}, found {found:?}")));
    };
    // Before a model is fetched or loaded.
    let output = output_file(&arguments.output)?;
    check_apart(&arguments.input, &output)?;
    let kept = [&arguments.input, &output, &partial_path(&output), &journal::path_of(&output)];
    check_keeps(arguments.json.as_deref(), "--json", &kept)?;
    let input =
        Input::open(&arguments.input, arguments.format, &arguments.field, arguments.line_bytes as usize)?;
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get() as u16));
    let device = device(&arguments.device, threads)?;
    let folder = crate::model::folder(&arguments.model)?;
    let wrong = |error: &dyn std::fmt::Display| Failure::Input(error.to_string());
    let options = ModelOptions { dtype, ..ModelOptions::default() };
    let mut model = SentenceEncoder::load_with(&folder, &device, &options).map_err(|error| wrong(&error))?;
    if let Some(tokens) = arguments.max_length {
        model.limit_tokens(tokens as usize).map_err(|error| wrong(&error))?;
    }
    let prompt = match &arguments.prompt {
        Some(name) => model.prompt(name).map_err(|error| wrong(&error))?,
        None => model.default_prompt(),
    };
    // On the CPU rows don't depend on what is computed with them.
    let exact = !device.info().prepares;
    let too_long = match arguments.truncation_side {
        None => TooLong::Truncate,
        Some(Side::Left) => TooLong::TruncateLeft,
        Some(Side::Right) => TooLong::TruncateRight,
    };
    let engine = Engine {
        model: &model,
        prompt,
        too_long: model.tokenizer().resolve(too_long),
        threads,
        batch_tokens: arguments.batch_tokens as usize,
        alone: arguments.deterministic && !exact,
    };
    let identity = identity(arguments, &input, &folder, &engine, exact)?;
    let rows = Output::open(&output, kind, model.width())?;
    let mut run = Run::begin(arguments.resume, &output, input, rows, identity)?;
    let embedded = embed(&mut run, &engine, arguments);
    let Run { output: rows, done, .. } = match embedded {
        Ok(()) => run,
        Err(failure) => return Err(run.interrupted(failure)),
    };
    rows.finish()?;
    journal::remove(&output);
    let Entry { lines, tokens, padding_tokens, seconds, skipped, .. } = done;
    let report = Report {
        sentences_per_s: (lines - skipped.len() as u64) as f64 / seconds,
        lines,
        skipped,
        tokens,
        padding_tokens,
        seconds,
        threads,
        device: device.name().into(),
        dtype: arguments.dtype.clone(),
    };
    for Skipped { line, why } in &report.skipped {
        tell(format_args!("raddle: {}, line {line}: skipped, {why}", arguments.input.display()));
    }
    write_json(arguments.json.as_deref(), &report)?;
    if !is_stdout(arguments.json.as_deref()) {
        let Report { lines, tokens, seconds, sentences_per_s, .. } = &report;
        let output = arguments.output.display();
        say(format_args!(
            "{output}: {lines} lines, {tokens} tokens, {seconds:.2} s, {sentences_per_s:.0} lines a second"
        ))?;
    }
    Ok(())
}

/// Where the output will be: what is partial and the journal lie beside it, so that links stay and the disk is the same.
///
/// Errors: something is there that is no file.
fn output_file(path: &Path) -> Outcome<PathBuf> {
    let failed =
        |reason: &dyn std::fmt::Display| Failure::Input(format!("--output: {}: {reason}", path.display()));
    let found = target(path).map_err(|error| failed(&error))?;
    found.ok_or_else(|| failed(&"expected a file, found what can't be replaced by one"))
}

/// Errors: the output, or what it is called until it is whole, would overwrite the input, under whatever name.
fn check_apart(input: &Path, output: &Path) -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let input = if input == Path::new("-") { Path::new("/dev/stdin") } else { input };
    let Some(read) = file(input) else { return Ok(()) };
    match [output, &partial_path(output)].into_iter().find(|path| file(path) == Some(read)) {
        Some(path) => Err(Failure::Input(format!(
            "--output: expected another file than that of --input, found the same one, {}",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The device, with kernels that use the cores which threads of ours leave: batches side by side are faster than one batch on
/// all cores, and both at once get in each other's way.
fn device(name: &str, threads: u16) -> Outcome<Device> {
    if name != "cpu" || std::env::var_os("RADDLE_NUM_THREADS").is_some() {
        return Ok(Device::new(name)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let limits = Limits { thread_count: Some((cores / usize::from(threads)).max(1)), ..Limits::default() };
    Ok(Device::with_limits(name, &limits)?)
}

/// All that rows depend on but the input.
fn identity(
    arguments: &Arguments,
    input: &Input,
    folder: &Path,
    engine: &Engine,
    exact: bool,
) -> Outcome<Identity> {
    let reading = input.reading();
    let named = |name: &str, value: String| (name.to_string(), value);
    let side = if engine.too_long == TooLong::TruncateLeft { "left" } else { "right" };
    let mut identity = vec![
        named("the program's version", env!("CARGO_PKG_VERSION").into()),
        named("the model's fingerprint", model::fingerprint(folder)?),
        named("--format", reading.format.name().into()),
        named("--field", reading.field.clone()),
        named("--line-bytes", reading.line_bytes_max.to_string()),
        named("--max-length", engine.model.tokenizer().tokens_max().to_string()),
        named("--truncation-side", side.into()),
        named("the prompt", engine.prompt.into()),
        named("--dtype", arguments.dtype.clone()),
        named("--device", arguments.device.split(':').next().unwrap_or_default().into()),
    ];
    if !exact {
        let batches = match engine.alone {
            true => "of one text".into(),
            false => format!("{} of {}", arguments.batch_tokens, arguments.window),
        };
        identity.push(named("the batches", batches));
    }
    Ok(identity)
}

/// A run, and how far it has come.
struct Run {
    input: Input,
    output: Output,
    journal: Journal,
    /// What the journal will say next.
    done: Entry,
    /// Lines that it speaks of already.
    noted: u64,
    synced: Option<Instant>,
    /// Skipped lines that the journal doesn't have yet.
    unsaved: usize,
    seconds_before: f64,
    start: Instant,
}

impl Run {
    fn begin(
        is_resumed: bool,
        path: &Path,
        mut input: Input,
        mut output: Output,
        identity: Identity,
    ) -> Outcome<Run> {
        // An empty one was just made: a run that ended between the renaming and the end of its journal has left only this.
        let found = match is_resumed && !output.is_empty() {
            true => Journal::resume(path, &identity)?,
            false => None,
        };
        let start = Instant::now();
        let (journal, done) = match found {
            Some((journal, done)) => {
                if !output.resume(done.lines, done.output_bytes, done.output_crc)? {
                    return Err(journal.refuse("the rows that it speaks of aren't in the partial output"));
                }
                let begins_alike = fault!(resumes_at_start)
                    || input.skip(done.lines)? && input.fingerprint() == (done.input_bytes, done.input_crc);
                if !begins_alike {
                    return Err(journal.refuse("the input begins otherwise"));
                }
                (journal, done)
            }
            None => {
                output.restart()?;
                (Journal::create(path, &identity)?, Entry::default())
            }
        };
        let (noted, seconds_before, unsaved) = (done.lines, done.seconds, 0);
        Ok(Run { input, output, journal, done, noted, synced: None, unsaved, seconds_before, start })
    }

    /// Writes a window, and now and then puts all on the disk.
    fn finish(&mut self, window: &Window, fingerprint: (u64, u32)) -> Outcome {
        self.output.push(&window.lines, &window.rows)?;
        let why = |(line, number): (&input::Line, u64)| {
            line.as_ref().err().map(|why| Skipped { line: number, why: why.clone() })
        };
        let before = self.done.skipped.len();
        self.done.skipped.extend(window.lines.iter().zip(self.done.lines + 1..).filter_map(why));
        self.unsaved += self.done.skipped.len() - before;
        // A journal that somebody has written may say anything.
        self.done.tokens = self.done.tokens.saturating_add(window.tokens);
        self.done.padding_tokens = self.done.padding_tokens.saturating_add(window.padding_tokens);
        self.done.seconds = self.seconds();
        (self.done.lines, self.done.output_bytes, self.done.output_crc) = self.output.state();
        (self.done.input_bytes, self.done.input_crc) = fingerprint;
        if self.synced.is_none_or(|synced| synced.elapsed() >= SYNC_EVERY) {
            self.output.sync()?;
            let fresh = self.done.skipped[self.done.skipped.len() - self.unsaved..].to_vec();
            self.journal.push(&Entry { skipped: fresh, ..self.done.without_skipped() })?;
            (self.synced, self.unsaved, self.noted) = (Some(Instant::now()), 0, self.done.lines);
        }
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.seconds_before + self.start.elapsed().as_secs_f64()
    }

    /// What is left of a run that failed: enough to go on, or nothing.
    fn interrupted(self, failure: Failure) -> Failure {
        if self.noted == 0 {
            self.journal.discard();
            self.output.discard();
            return failure;
        }
        let told = |text| format!("{text}\n{} lines are done; --resume goes on behind them", self.noted);
        match failure {
            Failure::Input(text) => Failure::Input(told(text)),
            Failure::Unusable(text) => Failure::Unusable(told(text)),
            Failure::Other(text) => Failure::Other(told(text)),
        }
    }
}

fn embed(run: &mut Run, engine: &Engine, arguments: &Arguments) -> Outcome {
    let bar = bar(arguments, run.done.lines);
    // Of the input behind each window that is under way.
    let fingerprints = RefCell::new(VecDeque::new());
    // Read and written by one thread, in two closures.
    let run = RefCell::new(run);
    let next = || -> Outcome<Option<Vec<input::Line>>> {
        let mut run = run.borrow_mut();
        let lines = run.input.window(arguments.window as usize)?;
        fingerprints.borrow_mut().push_back(run.input.fingerprint());
        Ok((!lines.is_empty()).then_some(lines))
    };
    let finish = |window: Window| {
        let fingerprint = fingerprints.borrow_mut().pop_front().expect("it was read");
        bar.inc(window.lines.iter().filter(|line| line.is_err()).count() as u64);
        run.borrow_mut().finish(&window, fingerprint)
    };
    engine.run(next, finish, |texts| bar.inc(texts)).inspect_err(|_| bar.finish_and_clear())?;
    bar.finish_and_clear();
    let mut run = run.borrow_mut();
    run.done.seconds = run.seconds();
    Ok(())
}

/// A bar with the time that is left where the number of lines can be known, else a rate.
fn bar(arguments: &Arguments, done: u64) -> ProgressBar {
    let known = progress(0, "embedding {bar:40} {pos}/{len} lines, {per_sec}, {eta} left");
    // To count is to read it all: not for a bar that nobody sees.
    let count = if known.is_hidden() { None } else { count_lines(&arguments.input) };
    let bar = match count {
        Some(count) => {
            known.set_length(count);
            known
        }
        None => progress(0, "embedding {spinner} {pos} lines, {per_sec}"),
    };
    bar.set_position(done);
    bar.reset_eta();
    bar
}
