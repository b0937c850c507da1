//! Tiny models of random weights beside what PyTorch's transformers make of the same texts (`data/tiny`, made by
//! `benches/peers/tiny.py`): MPNet, with its bias by distance, and XLM-RoBERTa, with its table of characters.

use crate::device;
use raddle_nn::{
    checkpoint,
    text::{CrossEncoder, ModelOptions, SentenceEncoder, TooLong},
};
use raddle_tensor::DType;
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
    for name in ["mpnet", "xlm-roberta"] {
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

/// The longest text reaches distances that share a number; beyond 91 tokens all do.
#[test]
fn the_longest_text_reaches_all_distances() {
    let longest = golden("mpnet").ids.iter().map(Vec::len).max();
    assert_eq!(longest, Some(150));
}
