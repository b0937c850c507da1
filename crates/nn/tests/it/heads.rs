//! What models say of each token, and of each token of the vocabulary.

use crate::{
    device,
    text::{Folder, VOCABULARY, folder, oracle, text_of},
};
use raddle_nn::{
    checkpoint,
    text::{BertConfig, ModelOptions, SentenceEncoder, SparseEncoder, TooLong},
};
use raddle_tensor::{DType, Tensor};
use serde_json::{Value, json};
use std::fs;

fn assert_near(found: &[f32], expected: &[f64], most: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < most, "{found}, {expected}");
    }
}

/// Of unlike lengths and in no order, so that texts are sorted, batched and padded.
fn texts() -> [String; 5] {
    [text_of(9), String::new(), "a stream".into(), text_of(16), "memory waits".into()]
}

fn options(pad_to: usize) -> ModelOptions {
    ModelOptions { pad_to: Some(pad_to), ..ModelOptions::default() }
}

#[test]
fn tokens_have_the_vectors_of_the_definition() {
    let config = BertConfig::tiny(VOCABULARY);
    for pad_to in [1, 5, 8] {
        let model = SentenceEncoder::load_with(folder(), device(), &options(pad_to)).unwrap();
        let tokens = model.tokenizer().tokenize(&texts(), TooLong::Truncate).unwrap();
        let found = model.token_vectors(&tokens).unwrap();
        assert_eq!((found.len(), model.token_width()), (5, 32));
        for (found, tokens) in found.iter().zip(&tokens) {
            assert_eq!(found.len(), 32 * tokens.ids.len());
            // A few roundings in sums of 64 products, of numbers up to 4.
            assert_near(found, &oracle(tokens, &config).tokens.concat(), 2e-5);
            if pad_to == 1 {
                assert_eq!(&model.token_vectors(&[tokens]).unwrap()[0], found, "the texts beside it count");
            }
        }
        assert!(model.token_vectors::<raddle_nn::text::Tokens>(&[]).is_err());
    }
}

#[test]
fn sparse_vectors_are_those_of_the_definition() {
    let config = BertConfig::tiny(VOCABULARY);
    // The same weights; what sentence-transformers would do with them is another thing.
    let folder = Folder::new("splade");
    fs::remove_file(folder.0.join("modules.json")).unwrap();
    let model = SparseEncoder::load(&folder.0, device()).unwrap();
    let tokens = model.tokenizer().tokenize(&texts(), TooLong::Truncate).unwrap();
    let expected: Vec<f64> = tokens.iter().flat_map(|tokens| oracle(tokens, &config).sparse).collect();
    assert!(expected.iter().filter(|element| **element == 0.0).count() > 5, "few are 0");
    assert!(expected.iter().filter(|element| **element > 0.1).count() > 5, "few aren't 0");
    let alone: Vec<f32> =
        texts().iter().flat_map(|text| model.encode(&[text]).unwrap().to_vec::<f32>().unwrap()).collect();
    for (dtype, pad_to, most) in
        [(DType::F32, 1, 1e-5), (DType::F32, 8, 1e-5), (DType::F16, 5, 2e-2), (DType::BF16, 1, 2e-1)]
    {
        let options = ModelOptions { dtype, ..options(pad_to) };
        let model = SparseEncoder::load_with(&folder.0, device(), &options).unwrap();
        let found = model.encode(&texts()).unwrap();
        assert_eq!((found.shape()[0], found.shape()[1], model.width()), (5, VOCABULARY, VOCABULARY));
        let found = found.to_vec::<f32>().unwrap();
        assert_near(&found, &expected, most);
        assert!(dtype != DType::F32 || pad_to > 1 || found == alone, "the texts beside a text count");
    }
}

/// The same head under the names of others, with a second table of words, and what `modules.json` says.
#[test]
fn heads_have_other_names() {
    let folder = Folder::new("sparse");
    let weights = || checkpoint::load(folder.0.join("model.safetensors"), device()).unwrap();
    let vectors = || {
        SparseEncoder::load(&folder.0, device()).unwrap().encode(&texts()).unwrap().to_vec::<f32>().unwrap()
    };
    let error = || SparseEncoder::load(&folder.0, device()).err().unwrap().to_string();
    let write = |file: &str, value: Value| {
        let file = folder.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, value.to_string()).unwrap();
    };
    let config: Value = serde_json::from_slice(&fs::read(folder.0.join("config.json")).unwrap()).unwrap();
    let module =
        |path: &str, kind: &str| json!({ "path": path, "type": format!("sentence_transformers.{kind}") });

    assert!(error().ends_with("modules.json: type is wrong, expected MLMTransformer or Transformer, then SpladePooling, found \"sentence_transformers.models.Pooling\""), "{}", error());
    write(
        "modules.json",
        json!([module("", "sparse_encoder.models.MLMTransformer"), module("1_S", "x.SpladePooling")]),
    );
    write(
        "1_S/config.json",
        json!({ "pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": null }),
    );
    let expected = vectors();
    write("1_S/config.json", json!({ "pooling_strategy": "sum" }));
    assert!(
        error().ends_with("1_S/config.json: pooling_strategy is wrong, expected max, found \"sum\""),
        "{}",
        error()
    );
    write("1_S/config.json", json!({ "activation_function": "log1p_relu" }));
    assert!(
        error().ends_with("activation_function is wrong, expected relu, found \"log1p_relu\""),
        "{}",
        error()
    );
    fs::remove_file(folder.0.join("modules.json")).unwrap();
    assert_eq!(vectors(), expected);

    // The bias under its other name; a table of its own, if the file says so.
    let mut own = weights();
    let words = own.iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap().1.clone();
    for (name, _) in &mut own {
        *name = name.replace("cls.predictions.bias", "cls.predictions.decoder.bias");
    }
    own.push(("cls.predictions.decoder.weight".into(), words.neg().unwrap()));
    checkpoint::save(folder.0.join("model.safetensors"), &own).unwrap();
    assert_eq!(vectors(), expected);
    let mut untied = config.clone();
    untied["tie_word_embeddings"] = json!(false);
    write("config.json", untied);
    let other = vectors();
    assert_ne!(other, expected);
    own.pop();
    own.push(("cls.predictions.decoder.weight".into(), words));
    checkpoint::save(folder.0.join("model.safetensors"), &own).unwrap();
    assert_eq!(vectors(), expected);

    // RoBERTa's: gelu in the head whatever the layers have.
    let mut roberta: Vec<(String, Tensor)> = own;
    for (name, tensor) in &mut roberta {
        for (from, to) in [
            ("cls.predictions.transform.dense", "lm_head.dense"),
            ("cls.predictions.transform.LayerNorm", "lm_head.layer_norm"),
            ("cls.predictions.decoder.bias", "lm_head.bias"),
            ("cls.predictions.decoder", "lm_head.decoder"),
            ("bert.", "roberta."),
        ] {
            *name = name.replace(from, to);
        }
        if name.ends_with("position_embeddings.weight") {
            let unused = Tensor::full([2, 32], 1e3, DType::F32, device()).unwrap();
            *tensor = Tensor::cat(&[&unused, tensor], 0).unwrap();
        }
    }
    checkpoint::save(folder.0.join("model.safetensors"), &roberta).unwrap();
    let mut settings = config;
    settings["model_type"] = json!("roberta");
    settings["max_position_embeddings"] = json!(66);
    write("config.json", settings);
    assert_eq!(vectors(), expected);
    roberta.retain(|(name, _)| name != "lm_head.dense.weight");
    checkpoint::save(folder.0.join("model.safetensors"), &roberta).unwrap();
    assert!(error().contains("lm_head.dense.weight") && error().contains("no such tensor"), "{}", error());
}
