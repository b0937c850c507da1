//! Tiny models of random weights beside what PyTorch's transformers make of the same texts (`data/tiny`, made by
//! `benches/peers/tiny.py`): MPNet, with its bias by distance, XLM-RoBERTa, with its table of characters, ELECTRA, with narrow
//! tables, all modules of sentence-transformers, and settings of tokenizers that contradict each other.

use crate::device;
use raddle_nn::{
    checkpoint,
    text::{BertConfig, CrossEncoder, ModelOptions, SentenceEncoder, Tokens, TooLong, write_random_model},
};
use raddle_tensor::{DType, Tensor};
use serde_json::Value;
use std::path::{Path, PathBuf};

struct Golden {
    folder: PathBuf,
    texts: Vec<String>,
    ids: Vec<Vec<u32>>,
    pairs: Vec<[usize; 2]>,
    vectors: Vec<f32>,
    scores: Vec<f32>,
}

fn golden(name: &str) -> Golden {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/tiny")).join(name);
    let told: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
    let tensors = checkpoint::load(folder.join("golden.safetensors"), device()).unwrap();
    let tensor = |name: &str| {
        let (_, tensor) = tensors.iter().find(|(known, _)| known == name).unwrap();
        tensor.to_vec().unwrap()
    };
    let (vectors, scores) = (tensor("vectors"), tensor("scores"));
    let part = |name: &str| told[name].clone();
    Golden {
        texts: serde_json::from_value(part("texts")).unwrap(),
        ids: serde_json::from_value(part("ids")).unwrap(),
        pairs: serde_json::from_value(part("pairs")).unwrap(),
        folder,
        vectors,
        scores,
    }
}

fn assert_near(found: &[f32], expected: &[f32], most: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < most, "{what}: element {index}: {found}, expected {expected}");
    }
}

#[test]
fn tokens_vectors_and_scores_are_those_of_transformers() {
    for name in ["mpnet", "xlm-roberta", "electra"] {
        let golden = golden(name);
        let model = SentenceEncoder::load(&golden.folder, device()).unwrap();
        let tokens = model.tokenizer().tokenize(&golden.texts, TooLong::Truncate).unwrap();
        let found: Vec<_> = tokens.iter().map(|tokens| tokens.ids.clone()).collect();
        assert_eq!(found, golden.ids, "{name}");
        let alone: Vec<f32> = golden
            .texts
            .iter()
            .flat_map(|text| model.encode(&[text]).unwrap().to_vec::<f32>().unwrap())
            .collect();
        // Padded and not, in one batch and alone.
        for pad_to in [None, Some(5), Some(16)] {
            let options = ModelOptions { pad_to, ..ModelOptions::default() };
            let model = SentenceEncoder::load_with(&golden.folder, device(), &options).unwrap();
            let found = model.encode(&golden.texts).unwrap().to_vec::<f32>().unwrap();
            // Of values up to 2; f32 has 24 bits, and a layer's sums some tens of terms.
            assert_near(&found, &golden.vectors, 2e-5, &format!("{name}, {pad_to:?}"));
            assert!(pad_to.is_some() || found == alone, "{name}: the texts beside a text count");
        }
        let half = ModelOptions { dtype: DType::F16, ..ModelOptions::default() };
        let half = SentenceEncoder::load_with(&golden.folder, device(), &half).unwrap();
        let found = half.encode(&golden.texts).unwrap().to_vec::<f32>().unwrap();
        assert_near(&found, &golden.vectors, 2e-2, name);
        let reranker = CrossEncoder::load(&golden.folder, device()).unwrap();
        let scores: Vec<f32> = golden
            .pairs
            .iter()
            .flat_map(|&[query, text]| {
                let score = reranker.score(&golden.texts[query], &[&golden.texts[text]]).unwrap();
                score.to_vec::<f32>().unwrap()
            })
            .collect();
        assert_near(&scores, &golden.scores, 2e-5, &format!("{name}, scores"));
    }
}

/// Cases of `benches/peers/tiny.py`: a prompt that isn't pooled, five poolings side by side, dropout, a normalization, linear maps
/// with Mish and SiLU and residuals, behind a transformer with silu in a folder of its own; one text is longer than the limit.
#[test]
fn modules_are_those_of_sentence_transformers() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/tiny/modules"));
    let told: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
    let texts: Vec<String> = serde_json::from_value(told["texts"].clone()).unwrap();
    let golden = checkpoint::load(folder.join("golden.safetensors"), device()).unwrap();
    for (pad_to, captured) in [(None, None), (Some(5), None), (Some(8), Some(256))] {
        let options = ModelOptions { pad_to, captured_tokens_max: captured, ..ModelOptions::default() };
        let model = SentenceEncoder::load_with(folder, device(), &options).unwrap();
        assert_eq!(model.tokenizer().tokens_max(), 20);
        for (name, expected) in &golden {
            let prompt = model.prompt(name).unwrap();
            let tokens = model.tokenizer().tokenize_behind(prompt, &texts, TooLong::Truncate).unwrap();
            // [CLS], and the stream is and what isn't known.
            let count = if name == "query" { 5 } else { 0 };
            assert!(tokens.iter().all(|tokens| tokens.prompt == count), "{name}: {tokens:?}");
            let found = model.encode_tokens(&tokens).unwrap().to_vec::<f32>().unwrap();
            let alone: Vec<f32> = tokens
                .iter()
                .flat_map(|text| model.encode_tokens(&[text]).unwrap().to_vec::<f32>().unwrap())
                .collect();
            let expected = expected.to_vec::<f32>().unwrap();
            assert_near(&found, &expected, 2e-5, &format!("{name}, {pad_to:?}"));
            assert_near(&alone, &expected, 2e-5, &format!("{name}, {pad_to:?}, alone"));
        }
    }
    // What is said of a prompt is no more than a number: all of a text counts as its end.
    let model = SentenceEncoder::load(folder, device()).unwrap();
    let mut tokens = model.tokenizer().tokenize(&["a thread"], TooLong::Refuse).unwrap();
    tokens[0].prompt = usize::MAX;
    let vector = model.encode_tokens(&tokens).unwrap().to_vec::<f32>().unwrap();
    assert!(vector.iter().all(|element| element.is_finite()));
}

/// What transformers makes of a `tokenizer.json` beside a `tokenizer_config.json` that says something else, or nothing.
#[test]
fn tokenizers_are_those_of_transformers() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/tiny/agreement.json");
    let told: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let folder = std::env::temp_dir().join(format!("raddle-{}-agreement", std::process::id()));
    write_random_model(&folder, &BertConfig::tiny(30), &["a"], 16, 1, device()).unwrap();
    let ids = |ids: &Value| -> Vec<u32> { serde_json::from_value(ids.clone()).unwrap() };
    for case in told["cases"].as_array().unwrap() {
        let tokenizer = &told["tokenizers"][case["tokenizer"].as_u64().unwrap() as usize];
        std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let config = folder.join("tokenizer_config.json");
        match &case["config"] {
            Value::Null => _ = std::fs::remove_file(config),
            said => std::fs::write(config, said.to_string()).unwrap(),
        }
        let mut model = SentenceEncoder::load(&folder, device()).unwrap();
        let text = case["text"].as_str().unwrap();
        let tokens = |model: &SentenceEncoder| {
            model.tokenizer().tokenize(&[text], TooLong::Truncate).unwrap().remove(0).ids
        };
        assert_eq!(tokens(&model), ids(&case["ids"]), "{case}");
        model.limit_tokens(7).unwrap();
        assert_eq!(tokens(&model), ids(&case["cut"]), "{case}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// In these families the padding token has its own position wherever it stands, and those behind it go on as if it weren't there.
/// So texts have the vectors of a model in whose tables the rows lie in that order, and whose token 20 is padding.
#[test]
fn padding_in_a_text_has_its_own_position() {
    const IDS: [u32; 8] = [0, 5, 1, 6, 1, 1, 7, 2];
    const POSITIONS: [usize; 8] = [2, 3, 1, 4, 1, 1, 5, 6];
    for name in ["mpnet", "xlm-roberta"] {
        let golden = golden(name).folder;
        let folder = std::env::temp_dir().join(format!("raddle-{}-padding-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["config.json", "tokenizer.json"] {
            std::fs::copy(golden.join(file), folder.join(file)).unwrap();
        }
        let moved = |(name, table): (String, Tensor)| {
            let rows: Vec<usize> = match &name {
                name if name.ends_with("position_embeddings.weight") => {
                    let rest = 2 + POSITIONS.len()..table.shape()[0];
                    [0, 1].into_iter().chain(POSITIONS).chain(rest).collect()
                }
                name if name.ends_with("word_embeddings.weight") => {
                    (0..table.shape()[0]).map(|row| if row == 20 { 1 } else { row }).collect()
                }
                _ => return (name, table),
            };
            let rows: Vec<i64> = rows.into_iter().map(|row| row as i64).collect();
            let rows = Tensor::from_vec(rows, [table.shape()[0]], device()).unwrap();
            (name, table.index_select(0, &rows).unwrap())
        };
        let weights = checkpoint::load(golden.join("model.safetensors"), device()).unwrap();
        let weights: Vec<_> = weights.into_iter().map(moved).collect();
        checkpoint::save(folder.join("model.safetensors"), &weights).unwrap();
        let padded = Tokens::from(IDS.to_vec());
        let other = Tokens::from(IDS.map(|id| if id == 1 { 20 } else { id }).to_vec());
        for (pad_to, captured) in [(None, None), (Some(5), None), (Some(16), Some(64))] {
            let options = ModelOptions { pad_to, captured_tokens_max: captured, ..ModelOptions::default() };
            let vectors = |folder: &Path, tokens: &Tokens| -> Vec<f32> {
                let model = SentenceEncoder::load_with(folder, device(), &options).unwrap();
                // Beside another text, too.
                let found = model.encode_tokens(&[tokens, &Tokens::from(vec![0, 9, 2])]).unwrap();
                found.to_vec().unwrap()
            };
            let found = vectors(&golden, &padded);
            let expected = vectors(&folder, &other);
            let width = found.len() / 2;
            assert_eq!(found[..width], expected[..width], "{name}, {pad_to:?}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// The longest text reaches distances that share a number; beyond 91 tokens all do.
#[test]
fn the_longest_text_reaches_all_distances() {
    let longest = golden("mpnet").ids.iter().map(Vec::len).max();
    assert_eq!(longest, Some(150));
}
