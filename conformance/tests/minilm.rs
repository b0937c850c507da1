//! A real model: all-MiniLM-L6-v2 beside what sentence-transformers makes of the same 200 sentences with it
//! (`data/minilm`). Without its folder, which `python3 benches/peers/minilm.py` makes, or a GPU, tests are ignored. The
//! folder may be named by `RADDLE_MINILM`, that of `data/minilm` by `RADDLE_MINILM_DATA`.

use libtest_mimic::{Arguments, Failed, Trial};
use raddle::{
    DType, Device,
    engine::{Engine, EngineOptions, Model},
    nn::{
        checkpoint,
        text::{ModelOptions, SentenceEncoder, TooLong},
    },
};
use raddle_conformance::Backend;
use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn folder_of(variable: &str, usual: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| Path::new(ROOT).join(usual), PathBuf::from)
}

fn folder() -> PathBuf {
    folder_of("RADDLE_MINILM", "target/models/all-MiniLM-L6-v2")
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// All sentences at once, and one by one: cosines with the other's, and norms. On the CPU what stands beside a sentence changes
/// nothing, to the last bit; elsewhere as little as the cosine allows.
fn vectors_are_those_of_sentence_transformers(
    device: &Device,
    options: ModelOptions,
    least: f64,
) -> Result<(), Failed> {
    let data = folder_of("RADDLE_MINILM_DATA", "data/minilm");
    let sentences: Vec<String> =
        serde_json::from_str(&std::fs::read_to_string(data.join("sentences.json"))?)?;
    let golden = checkpoint::load(data.join("vectors.safetensors"), device)?;
    let golden = golden[0].1.to(DType::F64)?.to_vec::<f64>()?;
    let model = SentenceEncoder::load_with(folder(), device, &options)?;
    let vectors = model.encode(&sentences)?.to(DType::F64)?.to_vec::<f64>()?;
    assert_eq!((sentences.len(), vectors.len()), (200, 200 * model.width()));
    let mut worst = 1.0f64;
    for (index, (ours, theirs)) in vectors.chunks(model.width()).zip(golden.chunks(model.width())).enumerate()
    {
        assert!((dot(ours, ours) - 1.0).abs() < 1e-6, "sentence {index} isn't normalized");
        let cosine = cosine(ours, theirs);
        assert!(cosine >= least, "sentence {index}, {:?}: cosine {cosine}", sentences[index]);
        worst = worst.min(cosine);
    }
    println!("{}, {options:?}: the least cosine is {worst}", device.name());
    for index in (0..sentences.len()).step_by(9) {
        let alone = model.encode(&sentences[index..=index])?.to(DType::F64)?.to_vec::<f64>()?;
        let together = &vectors[index * model.width()..][..model.width()];
        if device.name() == "cpu" {
            assert_eq!(alone, together, "sentence {index}");
        } else {
            assert!(cosine(&alone, together) >= least, "sentence {index}");
        }
    }
    Ok(())
}

/// `--deterministic`: whatever the batcher, the threads and the texts beside it, also with graphs and without, a text has the bits
/// that it has alone. Where rows depend on nothing anyway, that costs no batching.
fn deterministic_rows_are_the_same_bits(device: &Device, dtype: DType) -> Result<(), Failed> {
    let sentences: Vec<String> = serde_json::from_str(&std::fs::read_to_string(
        folder_of("RADDLE_MINILM_DATA", "data/minilm").join("sentences.json"),
    )?)?;
    let load = |captured_tokens_max| {
        let options = ModelOptions { dtype, captured_tokens_max, ..ModelOptions::default() };
        Model::load(folder(), device, &options)
    };
    let start = |captured_tokens_max, threads| -> Result<Engine, Failed> {
        let options = EngineOptions {
            deterministic: true,
            running_count_max: Some(threads),
            ..EngineOptions::default()
        };
        Ok(Engine::start(load(captured_tokens_max)?, options)?)
    };
    let bits = |rows: Vec<Vec<f32>>| -> Vec<Vec<u32>> {
        rows.iter().map(|row| row.iter().map(|element| element.to_bits()).collect()).collect()
    };
    let sentences: Vec<String> = sentences.into_iter().step_by(10).collect();
    let alone = start(Some(0), 1)?;
    let expected: Vec<_> = sentences
        .iter()
        .map(|text| Ok(bits(alone.embed(&[text])?).remove(0)))
        .collect::<Result<_, Failed>>()?;
    for (captured_tokens_max, threads) in [(None, 4), (Some(0), 4), (Some(4096), 4)] {
        let engine = start(captured_tokens_max, threads)?;
        for part in [20, 7, 1] {
            let found: Vec<Vec<u32>> = std::thread::scope(|scope| {
                let embed = |texts: &[String]| bits(engine.embed(texts).expect("the device works"));
                let parts: Vec<_> =
                    sentences.chunks(part).map(|texts| scope.spawn(move || embed(texts))).collect();
                parts.into_iter().flat_map(|part| part.join().expect("it doesn't panic")).collect()
            });
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    found == expected,
                    "{dtype}, {captured_tokens_max:?}, {part} at a time: sentence {index}"
                );
            }
        }
    }
    Ok(())
}

/// 256 tokens, special ones included, whatever the tokenizer's file says.
fn long_texts_are_cut_at_256(device: &Device) -> Result<(), Failed> {
    let model = SentenceEncoder::load(folder(), device)?;
    let long = "word ".repeat(400);
    let tokens = model.tokenizer().tokenize(&[&long, "word"], TooLong::Truncate)?;
    assert_eq!(tokens.iter().map(|tokens| tokens.ids.len()).collect::<Vec<_>>(), [256, 3]);
    let error = model.tokenizer().tokenize(&["word", &long], TooLong::Refuse).unwrap_err();
    assert_eq!(error.to_string(), "text 1: the number of tokens is wrong, expected at most 256, found 402");
    Ok(())
}

type Body = Box<dyn Fn(&Device) -> Result<(), Failed> + Send>;

fn main() -> ExitCode {
    let missing = (!folder().join("model.safetensors").exists())
        .then_some("no model; benches/peers/minilm.py makes it");
    let mut trials = Vec::new();
    for backend in [Backend::Cpu, Backend::Cuda] {
        let absent = backend.absent().or(missing);
        if let Some(absent) = absent {
            println!("{} is skipped: {absent}", backend.name());
        }
        let mut add = |name: &str, body: Body| {
            let name = format!("{}::{name}", backend.name());
            let run = move || {
                let mut outcome = Ok(());
                backend.run("minilm", |device| outcome = body(device));
                outcome
            };
            trials.push(Trial::test(name, run).with_ignored_flag(absent.is_some()));
        };
        let kinds = [
            ("vectors_f32", DType::F32, None, None, 0.99999),
            ("vectors_f32_padded", DType::F32, Some(16), None, 0.99999),
            ("vectors_f32_captured", DType::F32, Some(16), Some(2048), 0.99999),
            ("vectors_f32_uncaptured", DType::F32, None, Some(0), 0.99999),
            ("vectors_f16", DType::F16, None, None, 0.9999),
            ("vectors_bf16", DType::BF16, None, None, 0.999),
        ];
        for (name, dtype, pad_to, captured_tokens_max, least) in kinds {
            if backend == Backend::Cpu && captured_tokens_max == Some(0) {
                continue; // nothing is captured there unless it is asked for
            }
            let options = ModelOptions { dtype, pad_to, captured_tokens_max };
            let compare =
                move |device: &Device| vectors_are_those_of_sentence_transformers(device, options, least);
            add(name, Box::new(compare));
        }
        for (name, dtype) in [("deterministic_f32", DType::F32), ("deterministic_f16", DType::F16)] {
            add(name, Box::new(move |device: &Device| deterministic_rows_are_the_same_bits(device, dtype)));
        }
        add("long_texts_are_cut_at_256", Box::new(long_texts_are_cut_at_256));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
