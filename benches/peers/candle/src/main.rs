//! Sentences through candle's `BertModel` on the CPU, as its BERT example does it: batches padded to the longest, the mean of
//! the tokens that aren't padding, vectors of norm 1. Kinder than the example: sentences are sorted by length, and of a few
//! batch sizes the fastest counts. What each row is: benches/README.md.
//!
//! Usage: candle-peer MODEL MIXED SINGLE REPEATS [mixed|single]; the report goes to standard output.

#![forbid(unsafe_code)]

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use std::{error::Error, fs, path::Path, thread, time::Instant};
use tokenizers::Tokenizer;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const BATCHES: [usize; 5] = [1, 4, 8, 32, 64];
const TUNED_ON: usize = 100;

struct Encoder {
    model: BertModel,
    tokenizer: Tokenizer,
    device: Device,
}

impl Encoder {
    fn load(folder: &Path) -> Outcome<Encoder> {
        let config: Config = serde_json::from_slice(&fs::read(folder.join("config.json"))?)?;
        let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))?;
        tokenizer.with_padding(None).with_truncation(None)?;
        let (device, weights) = (Device::Cpu, fs::read(folder.join("model.safetensors"))?);
        let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &device)?;
        Ok(Encoder { model: BertModel::load(weights, &config)?, tokenizer, device })
    }

    fn tokens(&self, sentence: &str) -> Outcome<Vec<u32>> {
        let mut ids = self.tokenizer.encode(sentence, true)?.get_ids().to_vec();
        if ids.len() > 256 {
            ids.truncate(255);
            ids.push(102); // [SEP]
        }
        Ok(ids)
    }

    fn encode(&self, batch: &[&[u32]]) -> Outcome<Vec<Vec<f32>>> {
        let longest = batch.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for tokens in batch {
            ids.extend_from_slice(tokens);
            mask.extend(std::iter::repeat_n(1u32, tokens.len()));
            ids.resize(mask.len() + longest - tokens.len(), 0);
            mask.resize(ids.len(), 0);
        }
        let shape = (batch.len(), longest);
        let ids = Tensor::from_vec(ids, shape, &self.device)?;
        let mask = Tensor::from_vec(mask, shape, &self.device)?;
        let hidden = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
        let pooled = hidden.broadcast_mul(&mask)?.sum(1)?.broadcast_div(&mask.sum(1)?)?;
        Ok(pooled.broadcast_div(&pooled.sqr()?.sum_keepdim(1)?.sqrt()?)?.to_vec2()?)
    }

    /// Sentences a second.
    fn rate(&self, sentences: &[&str], batch: usize) -> Outcome<f64> {
        let start = Instant::now();
        let tokens = sentences.iter().map(|sentence| self.tokens(sentence)).collect::<Outcome<Vec<_>>>()?;
        let mut tokens: Vec<(usize, Vec<u32>)> = tokens.into_iter().enumerate().collect();
        tokens.sort_by_key(|(_, ids)| ids.len());
        let mut vectors = vec![Vec::new(); sentences.len()];
        for batch in tokens.chunks(batch) {
            let ids: Vec<&[u32]> = batch.iter().map(|(_, ids)| &ids[..]).collect();
            for ((index, _), vector) in batch.iter().zip(self.encode(&ids)?) {
                vectors[*index] = vector;
            }
        }
        assert!(vectors.iter().all(|vector| vector.len() == vectors[0].len()));
        Ok(sentences.len() as f64 / start.elapsed().as_secs_f64())
    }

    /// Seconds of each call, and of all together.
    fn alone(&self, sentences: &[&str], count: usize, threads: usize) -> Outcome<(Vec<f64>, f64)> {
        let start = Instant::now();
        let run = |thread: usize| {
            let one = |index: usize| {
                let start = Instant::now();
                let ids = self.tokens(sentences[(thread + index * threads) % sentences.len()])?;
                self.encode(&[&ids])?;
                Ok(start.elapsed().as_secs_f64())
            };
            (0..count).map(one).collect::<Outcome<Vec<f64>>>()
        };
        let times = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Outcome<Vec<f64>>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Outcome<Vec<_>>>()
        })?;
        Ok((times.concat(), start.elapsed().as_secs_f64()))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(name: &str, threads: usize, unit: &str, values: Vec<f64>) -> serde_json::Value {
    let (min, max) = values.iter().fold((f64::MAX, 0.0f64), |(min, max), x| (min.min(*x), max.max(*x)));
    serde_json::json!({ "name": name, "threads": threads, "unit": unit, "median": median(values), "min": min, "max": max })
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let [folder, mixed, single] = [1, 2, 3].map(|index| Path::new(&arguments[index]));
    let repeats: usize = arguments[4].parse()?;
    let wanted = |part: &str| arguments.get(5).is_none_or(|only| only == part);
    let encoder = Encoder::load(folder)?;
    let (mixed, single) = (fs::read_to_string(mixed)?, fs::read_to_string(single)?);
    let (mixed, single): (Vec<&str>, Vec<&str>) = (mixed.lines().collect(), single.lines().collect());
    let threads = candle_core::utils::get_num_threads();
    let mut rows = Vec::new();
    if wanted("mixed") {
        encoder.rate(&mixed[..32], 8)?;
        let mut best = (0.0, 1);
        for batch in BATCHES {
            let rate = encoder.rate(&mixed[..TUNED_ON.min(mixed.len())], batch)?;
            best = if rate > best.0 { (rate, batch) } else { best };
        }
        let best = best.1;
        eprintln!("candle-peer: the best of batches {BATCHES:?} is {best}");
        let rates = (0..repeats).map(|_| encoder.rate(&mixed, best)).collect::<Outcome<_>>()?;
        rows.push(row("sentences_mixed", threads, "1/s", rates));
    }
    if wanted("single") {
        encoder.alone(&single, 20, 2)?;
        let rates = (0..repeats).map(|_| Ok(200.0 / encoder.alone(&single, 100, 2)?.1));
        let rates = rates.collect::<Outcome<_>>()?;
        rows.push(row("sentences_single", 2, "1/s", rates));
        encoder.alone(&single, 20, 1)?;
        let times = (0..repeats).map(|_| Ok(1e3 * median(encoder.alone(&single, 100, 1)?.0)));
        let times = times.collect::<Outcome<_>>()?;
        rows.push(row("sentence_latency", 1, "ms", times));
    }
    let report = serde_json::json!({
        "machine": "", "device": format!("candle's BertModel, {threads} threads"), "commit": "see Cargo.lock", "rows": rows
    });
    println!("{report:#}");
    Ok(())
}
