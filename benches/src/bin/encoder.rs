//! Sentences a second through the library: one at a time from many threads, in batches, and through the batcher.

#![forbid(unsafe_code)]

use raddle::{
    DType, Device,
    nn::text::{BertConfig, ModelOptions, SentenceEncoder, Tokens, write_random_model},
    serve::{self, Batch, Batcher, Request},
};
use serde::Serialize;
use std::{
    error::Error,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const HELP: &str = "\
Sentences a second of an encoder of MiniLM's shape: one at a time from 1 to 8 threads, in batches, and through the batcher
from 64 threads, each with some requests on their way. Prints JSON.

Usage: encoder [OPTIONS]

  --device NAME      where to run (default cpu)
  --dtype NAME       f32, f16 or bf16 (default f32)
  --model FOLDER     the model (default: one of random weights in the same shape)
  --seconds N        how long each measurement takes, 3 of them a row (default 2)
  --batch-tokens N   of a batch (default 8192)
  --ahead N          requests that each of 64 threads has on their way to the batcher (default 4)
  --json FILE        writes the rows there instead (- for standard output)

Example: cargo run --profile dist -p raddle-benches --bin encoder -- --device cuda:0 --dtype f16
";

struct Options {
    device: String,
    dtype: DType,
    model: Option<PathBuf>,
    seconds: f64,
    batch_tokens: usize,
    ahead: usize,
    json: PathBuf,
}

/// `None`: help was asked for.
fn options(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        device: "cpu".into(),
        dtype: DType::F32,
        model: None,
        seconds: 2.0,
        batch_tokens: 8192,
        ahead: 4,
        json: "-".into(),
    };
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("{word}: expected a value, found the end of the line"));
        let number = |text: String| {
            let number = text.parse::<u32>().ok().filter(|number| (1..=1 << 20).contains(number));
            number.ok_or_else(|| format!("{word}: expected a number from 1 to {}, found {text:?}", 1 << 20))
        };
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--device" => options.device = value()?,
            "--model" => options.model = Some(value()?.into()),
            "--seconds" => options.seconds = number(value()?)? as f64,
            "--batch-tokens" => options.batch_tokens = number(value()?)? as usize,
            "--ahead" => options.ahead = number(value()?)? as usize,
            "--json" => options.json = value()?.into(),
            "--dtype" => {
                let text = value()?;
                let known = [DType::F32, DType::F16, DType::BF16];
                let dtype = known.into_iter().find(|dtype| dtype.to_string() == text);
                options.dtype =
                    dtype.ok_or_else(|| format!("--dtype: expected f32, f16 or bf16, found {text:?}"))?;
            }
            _ => return Err(format!("expected an option, found {word:?}")),
        }
    }
    Ok(Some(options))
}

/// One measurement, of several turns.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    threads: usize,
    /// Of each sentence.
    tokens: usize,
    /// Sentences a second: the median, the least and the most.
    median: f64,
    min: f64,
    max: f64,
    /// From a sentence's submission to its vector on the host, of the median turn.
    p50_ms: f64,
    p99_ms: f64,
    /// Sentences that were run together, in the mean.
    batch: f64,
}

/// What one turn gave.
struct Turn {
    rate: f64,
    /// Of each sentence, sorted.
    latencies: Vec<Duration>,
    batch: f64,
}

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Median of three turns, after one that warms up.
fn row(
    name: &'static str,
    threads: usize,
    tokens: usize,
    mut turn: impl FnMut() -> Outcome<Turn>,
) -> Outcome<Row> {
    turn()?;
    let mut turns = (0..3).map(|_| turn()).collect::<Outcome<Vec<_>>>()?;
    turns.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let middle = &turns[1];
    let at = |part: f64| {
        let index = (middle.latencies.len() as f64 * part) as usize;
        middle.latencies.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    };
    let (median, min, max) = (middle.rate, turns[0].rate, turns[2].rate);
    let row = Row {
        name,
        threads,
        tokens,
        median,
        min,
        max,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        batch: middle.batch,
    };
    eprintln!(
        "{name:<12} {threads:>3} threads {tokens:>4} tokens {median:>9.0} /s ({min:.0} to {max:.0}) p50 {:.3} p99 {:.3} ms, {:.1} together",
        row.p50_ms, row.p99_ms, row.batch
    );
    Ok(row)
}

/// Runs `body` on threads until the time is over; it returns how many sentences it made and notes each one's latency.
fn together(
    threads: usize,
    seconds: f64,
    body: impl Fn(&dyn Fn() -> bool, &mut Vec<Duration>) -> Outcome + Sync,
) -> Outcome<Turn> {
    let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let run = |_| {
            scope.spawn(|| {
                let mut latencies = Vec::new();
                barrier.wait();
                body(&|| !stop.load(Relaxed), &mut latencies).map(|()| latencies)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        barrier.wait();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Relaxed);
        let mut latencies = Vec::new();
        for thread in running {
            latencies.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        let rate = latencies.len() as f64 / start.elapsed().as_secs_f64();
        latencies.sort();
        Ok(Turn { rate, latencies, batch: 1.0 })
    })
}

/// The thread's own sentences: other tokens for each.
fn sentence(tokens: usize, seed: u32) -> Tokens {
    let id = |index: u32| 4 + (seed.wrapping_mul(31) + index.wrapping_mul(7)) % 900;
    Tokens { ids: (0..tokens as u32).map(id).collect(), types: vec![0; tokens], prompt: 0 }
}

/// Each thread makes a batch of `count` sentences, reads the vectors, and begins again.
fn direct(
    model: &SentenceEncoder,
    threads: usize,
    tokens: usize,
    count: usize,
    seconds: f64,
) -> Outcome<Turn> {
    let turn = together(threads, seconds, |goes_on, latencies| {
        let batch: Vec<Tokens> = (0..count).map(|seed| sentence(tokens, seed as u32)).collect();
        while goes_on() {
            let start = Instant::now();
            model.encode_tokens_to_vec(&batch)?;
            latencies.extend(std::iter::repeat_n(start.elapsed(), count));
        }
        Ok(())
    })?;
    Ok(Turn { batch: count as f64, ..turn })
}

/// Threads submit single sentences to a batcher, each with some on their way.
fn batched(
    model: &std::sync::Arc<SentenceEncoder>,
    options: &serve::Options,
    (threads, ahead): (usize, usize),
    tokens: usize,
    seconds: f64,
) -> Outcome<Turn> {
    let own = model.clone();
    let handler = move |batch: Batch<Tokens>| -> Vec<Result<Vec<f32>, String>> {
        match own.encode_tokens_to_vec(&batch.items).map_err(|error| error.to_string()) {
            Ok(vectors) => vectors.chunks(own.width()).map(|vector| Ok(vector.to_vec())).collect(),
            Err(error) => vec![Err(error); batch.items.len()],
        }
    };
    let batcher = Batcher::start(options.clone(), handler)?;
    let turn = together(threads, seconds, |goes_on, latencies| {
        let mut waiting = std::collections::VecDeque::new();
        let mut seed = 0;
        loop {
            while goes_on() && waiting.len() < ahead {
                seed += 1;
                let answer = batcher.submit(sentence(tokens, seed), Request::new(tokens))?;
                waiting.push_back((Instant::now(), answer));
            }
            let Some((start, answer)) = waiting.pop_front() else { return Ok(()) };
            answer.wait().map_err(|error| error.to_string())?;
            latencies.push(start.elapsed());
        }
    })?;
    let counts = batcher.counts();
    Ok(Turn { batch: counts.run_count as f64 / counts.batch_count.max(1) as f64, ..turn })
}

fn run(options: &Options) -> Outcome {
    let device = Device::new(&options.device)?;
    let scratch = std::env::temp_dir().join(format!("raddle-encoder-{}", std::process::id()));
    let folder = match &options.model {
        Some(folder) => folder.clone(),
        None => {
            let config = BertConfig {
                vocabulary: 30522,
                hidden: 384,
                layers: 6,
                heads: 12,
                inner: 1536,
                positions: 512,
                ..BertConfig::tiny(1)
            };
            let cpu = Device::new("cpu")?;
            write_random_model(&scratch, &config, &["word"], 256, 1, &cpu)?;
            scratch.clone()
        }
    };
    let dtype = options.dtype;
    let model =
        SentenceEncoder::load_with(&folder, &device, &ModelOptions { dtype, ..ModelOptions::default() });
    _ = std::fs::remove_dir_all(&scratch);
    let model = std::sync::Arc::new(model?);
    let seconds = options.seconds;
    let mut rows = Vec::new();
    for threads in [1, 2, 4, 8] {
        rows.push(row("single", threads, 32, || direct(&model, threads, 32, 1, seconds))?);
    }
    let count = (options.batch_tokens / 128).max(1);
    for threads in [1, 2, 3] {
        rows.push(row("batch", threads, 128, || direct(&model, threads, 128, count, seconds))?);
    }
    for running_count_max in [2, 3] {
        let limits = serve::Options {
            batch_tokens_max: options.batch_tokens.max(256),
            running_count_max,
            ..serve::Options::default()
        };
        let name = if running_count_max == 2 { "batcher_2" } else { "batcher_3" };
        rows.push(row(name, 64, 128, || batched(&model, &limits, (64, options.ahead), 128, seconds))?);
    }
    let report = serde_json::json!({ "device": options.device, "dtype": dtype.to_string(), "rows": rows });
    let text = format!("{report:#}\n");
    if options.json.as_os_str() == "-" {
        print!("{text}")
    } else {
        std::fs::write(&options.json, text)?
    }
    Ok(())
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("encoder: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("encoder: {error}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
