//! `raddle embed`: a vector for each line of a file.
//!
//! Lines are tokenized on all threads, sorted by length and cut into batches; threads take batches, the longest first, so
//! that none is left with a long one at the end; rows are put where their lines stand.

mod input;
mod vectors;

use crate::output::{Failure, Outcome, check_writable, is_stdout, progress, write_json};
use input::{Format, Lines};
use raddle::{
    DType, Device,
    nn::text::{ModelOptions, SentenceEncoder, Tokens, TooLong},
};
use serde::Serialize;
use std::{
    path::PathBuf,
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Instant,
};
use vectors::Kind;

/// Makes a vector of each line of a file, with a sentence encoder.
#[derive(clap::Args)]
#[command(
    after_help = "Example: raddle embed --model target/models/all-MiniLM-L6-v2 --input lines.txt --output vectors.npy"
)]
pub struct Arguments {
    /// The folder of the model: config.json, tokenizer.json, model.safetensors, and what sentence-transformers adds.
    #[arg(long, value_name = "FOLDER")]
    model: PathBuf,
    /// Texts, one a line (- for standard input).
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// What a line is. Without it: JSON if the name ends in .jsonl, else a text.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Where in a line's JSON object the text is.
    #[arg(long, default_value = "text")]
    field: String,
    /// Where the vectors go: .npy, .safetensors or .jsonl. f32, one row a line, in the order of the lines; the row of a line
    /// that can't be read is NaN.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Threads that tokenize and compute. Without it: as many as there are cores.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The most tokens of a batch, with padding; one text is a batch whatever its length.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_tokens: u32,
    /// Where to run: cpu, cuda:ORDINAL or sim:SEED.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// What the model computes in: f32, f16 or bf16.
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Writes the figures as JSON (- for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    lines: usize,
    skipped: Vec<Skipped>,
    tokens: usize,
    padding_tokens: usize,
    /// Of tokenizing and computing; without reading and writing files.
    seconds: f64,
    sentences_per_s: f64,
    threads: u16,
    device: String,
    dtype: String,
}

#[derive(Serialize)]
struct Skipped {
    /// From 1.
    line: usize,
    why: String,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let kind = Kind::of(&arguments.output)?;
    check_writable(Some(&arguments.output))?;
    check_writable(arguments.json.as_deref())?;
    let known = [DType::F32, DType::F16, DType::BF16];
    let Some(dtype) = known.into_iter().find(|dtype| dtype.to_string() == arguments.dtype) else {
        return Err(Failure::Input(format!(
            "embed: expected a dtype of f32, f16, bf16, found {:?}",
            arguments.dtype
        )));
    };
    let threads = arguments.threads.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, |count| count.get().min(1024) as u16)
    });
    let device = Device::new(&arguments.device)?;
    let options = ModelOptions { dtype, ..ModelOptions::default() };
    let model = SentenceEncoder::load_with(&arguments.model, &device, &options);
    let model = model.map_err(|error| Failure::Input(error.to_string()))?;
    let lines = input::read(&arguments.input, arguments.format, &arguments.field)?;

    let start = Instant::now();
    let tokens = tokenize(&model, &lines, threads)?;
    let rows = compute(&model, &tokens, lines.len(), arguments.batch_tokens as usize, threads)?;
    let seconds = start.elapsed().as_secs_f64();

    kind.write(&arguments.output, &lines, rows, model.width())?;
    let why = |(index, line): (usize, &Result<String, String>)| {
        line.as_ref().err().map(|why| Skipped { line: index + 1, why: why.clone() })
    };
    let counts = || tokens.iter().map(|(_, tokens)| tokens.ids.len());
    let report = Report {
        lines: lines.len(),
        skipped: lines.iter().enumerate().filter_map(why).collect(),
        tokens: counts().sum(),
        padding_tokens: counts().map(|count| model.padded_token_count(count) - count).sum(),
        seconds,
        sentences_per_s: tokens.len() as f64 / seconds,
        threads,
        device: device.name().into(),
        dtype: arguments.dtype.clone(),
    };
    for Skipped { line, why } in &report.skipped {
        eprintln!("raddle: {}, line {line}: skipped, {why}", arguments.input.display());
    }
    if !is_stdout(arguments.json.as_deref()) {
        let Report { lines, tokens, seconds, sentences_per_s, .. } = &report;
        let output = arguments.output.display();
        println!(
            "{output}: {lines} lines, {tokens} tokens, {seconds:.2} s, {sentences_per_s:.0} lines a second"
        );
    }
    write_json(arguments.json.as_deref(), &report)
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("embed: {error}"))
}

/// The tokens of each line that has a text, with its index.
fn tokenize(model: &SentenceEncoder, lines: &Lines, threads: u16) -> Outcome<Vec<(usize, Tokens)>> {
    let texts: Vec<(usize, &str)> =
        lines.iter().enumerate().filter_map(|(index, line)| Some((index, line.as_deref().ok()?))).collect();
    let part = |texts: &[(usize, &str)]| {
        let (lines, texts): (Vec<usize>, Vec<&str>) = texts.iter().copied().unzip();
        let tokens = model.tokenizer().tokenize(&texts, TooLong::Truncate).map_err(failure)?;
        Ok(lines.into_iter().zip(tokens).collect::<Vec<_>>())
    };
    let parts = std::thread::scope(|scope| {
        let size = texts.len().div_ceil(usize::from(threads)).max(1);
        let threads: Vec<_> = texts.chunks(size).map(|texts| scope.spawn(move || part(texts))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Outcome<Vec<_>>>()
    })?;
    Ok(parts.into_iter().flatten().collect())
}

/// One row for each line.
fn compute(
    model: &SentenceEncoder,
    texts: &[(usize, Tokens)],
    lines: usize,
    batch_tokens: usize,
    threads: u16,
) -> Outcome<Vec<f32>> {
    let tokens: Vec<&Tokens> = texts.iter().map(|(_, tokens)| tokens).collect();
    let batches = model.batches(&tokens, batch_tokens);
    let width = model.width();
    let mut rows = vec![f32::NAN; lines * width];
    let template = "embedding {bar:40} {pos}/{len} lines, {per_sec}, {eta} left";
    let bar = progress(texts.len() as u64, template);
    // Only who has which batch; the rows come through the channel.
    let taken = AtomicUsize::new(0);
    let next = || batches.len().checked_sub(taken.fetch_add(1, Relaxed) + 1).map(|index| &batches[index]);
    let embedded = std::thread::scope(|scope| -> Outcome {
        let (give, take) = mpsc::sync_channel(2 * usize::from(threads));
        for _ in 0..threads {
            let (give, next, tokens) = (give.clone(), &next, &tokens);
            scope.spawn(move || {
                while let Some(batch) = next() {
                    let tokens: Vec<&Tokens> = batch.iter().map(|&text| tokens[text]).collect();
                    let vectors = model.encode_tokens(&tokens).map_err(failure);
                    let vectors = vectors.and_then(|vectors| vectors.to_vec::<f32>().map_err(failure));
                    // Nobody takes it any more: another thread has failed.
                    if give.send((batch, vectors)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(give);
        for (batch, vectors) in take {
            for (&text, vector) in batch.iter().zip(vectors?.chunks(width)) {
                rows[texts[text].0 * width..][..width].copy_from_slice(vector);
            }
            bar.inc(batch.len() as u64);
        }
        Ok(())
    });
    bar.finish_and_clear();
    embedded.map(|()| rows)
}
