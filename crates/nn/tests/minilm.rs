//! A real model: all-MiniLM-L6-v2 beside what sentence-transformers makes of the same 200 sentences with it
//! (`data/minilm`). Without its folder, which `python3 benches/peers/minilm.py` makes, the tests are ignored.

use libtest_mimic::{Arguments, Failed, Trial};
use raddle_nn::{
    checkpoint,
    text::{ModelOptions, SentenceEncoder, TooLong},
};
use raddle_tensor::{DType, Device};
use std::{path::Path, process::ExitCode, sync::OnceLock};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::open(Box::new(raddle_cpu::Cpu::new())).expect("the CPU opens"))
}

fn sentences() -> Result<Vec<String>, Failed> {
    Ok(serde_json::from_str(&std::fs::read_to_string(format!("{ROOT}/data/minilm/sentences.json"))?)?)
}

/// All sentences at once, and one by one: cosines with the other's, and norms.
fn vectors_are_those_of_sentence_transformers(
    folder: &Path,
    options: ModelOptions,
    least: f64,
) -> Result<(), Failed> {
    let sentences = sentences()?;
    let golden = checkpoint::load(format!("{ROOT}/data/minilm/vectors.safetensors"), device())?;
    let golden = golden[0].1.to(DType::F64)?.to_vec::<f64>()?;
    let model = SentenceEncoder::load_with(folder, device(), &options)?;
    let vectors = model.encode(&sentences)?.to(DType::F64)?.to_vec::<f64>()?;
    assert_eq!((sentences.len(), vectors.len()), (200, 200 * model.width()));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut worst = 1.0f64;
    for (index, (ours, theirs)) in vectors.chunks(model.width()).zip(golden.chunks(model.width())).enumerate()
    {
        assert!((dot(ours, ours) - 1.0).abs() < 1e-6, "sentence {index} isn't normalised");
        let cosine = dot(ours, theirs) / (dot(ours, ours) * dot(theirs, theirs)).sqrt();
        assert!(cosine >= least, "sentence {index}, {:?}: cosine {cosine}", sentences[index]);
        worst = worst.min(cosine);
    }
    println!("{options:?}: the least cosine is {worst}");
    // To the last bit, whatever stands beside it.
    for index in (0..sentences.len()).step_by(9) {
        let alone = model.encode(&sentences[index..=index])?.to(DType::F64)?.to_vec::<f64>()?;
        assert_eq!(alone, vectors[index * model.width()..][..model.width()], "sentence {index}");
    }
    Ok(())
}

/// 256 tokens, special ones included, whatever the tokenizer's file says.
fn long_texts_are_cut_at_256(folder: &Path) -> Result<(), Failed> {
    let model = SentenceEncoder::load(folder, device())?;
    let long = "word ".repeat(400);
    let tokens = model.tokenizer().tokenize(&[&long, "word"], TooLong::Truncate)?;
    assert_eq!(tokens.iter().map(|tokens| tokens.ids.len()).collect::<Vec<_>>(), [256, 3]);
    let error = model.tokenizer().tokenize(&["word", &long], TooLong::Refuse).unwrap_err();
    assert_eq!(error.to_string(), "text 1: the number of tokens is wrong, expected at most 256, found 402");
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder: &'static Path =
        Box::leak(Path::new(ROOT).join("target/models/all-MiniLM-L6-v2").into_boxed_path());
    let missing = !folder.join("model.safetensors").exists();
    if missing {
        println!("ignored: {} isn't there; python3 benches/peers/minilm.py makes it", folder.display());
    }
    let compare = move |name: &str, dtype, pad_to, least| {
        let options = ModelOptions { dtype, pad_to };
        Trial::test(name, move || vectors_are_those_of_sentence_transformers(folder, options, least))
    };
    let trials = [
        compare("vectors_f32", DType::F32, None, 0.99999),
        compare("vectors_f32_padded", DType::F32, Some(16), 0.99999),
        compare("vectors_f16", DType::F16, None, 0.9999),
        compare("vectors_bf16", DType::BF16, None, 0.999),
        Trial::test("long_texts_are_cut_at_256", move || long_texts_are_cut_at_256(folder)),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
