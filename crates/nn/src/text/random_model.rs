//! Folders of models that know nothing.

use super::{BertConfig, Result};
use crate::checkpoint::{self, CheckpointError, Metadata};
use raddle_tensor::{DType, Device, Generator, Tensor};
use serde_json::{Map, Value, json};
use std::{fs, path::Path};

/// Writes a model of random weights into a folder, which is made: for tests, and measurements without weights at hand. Its
/// tokenizer knows `words` (lower case, each a token) and what BERT calls special; the settings are those of a
/// sentence-transformers folder that takes `max_tokens` tokens a text, pools by the mean and normalizes. The same seed
/// gives the same files. There are heads, too, so that [`CrossEncoder`](super::CrossEncoder) loads it as well, and without
/// `modules.json` [`SparseEncoder`](super::SparseEncoder) does.
///
/// Errors: those of files; sizes that can't be.
pub fn write_random_model(
    folder: impl AsRef<Path>,
    config: &BertConfig,
    words: &[&str],
    max_tokens: usize,
    seed: u64,
    device: &Device,
) -> Result<()> {
    let folder = folder.as_ref();
    let write = |name: &str, value: Value| -> Result<()> {
        let file = folder.join(name);
        let failed = |error: std::io::Error| CheckpointError::File {
            file: file.clone(),
            action: "writing",
            reason: error.to_string(),
        };
        fs::create_dir_all(file.parent().expect("it is in the folder")).map_err(failed)?;
        Ok(fs::write(&file, format!("{value:#}\n")).map_err(failed)?)
    };
    write("config.json", config.to_json())?;
    write("sentence_bert_config.json", json!({ "max_seq_length": max_tokens, "do_lower_case": false }))?;
    let module = |path: &str, kind: &str| json!({ "path": path, "type": format!("sentence_transformers.models.{kind}") });
    write(
        "modules.json",
        json!([
            module("", "Transformer"),
            module("1_Pooling", "Pooling"),
            module("2_Normalize", "Normalize")
        ]),
    )?;
    write("1_Pooling/config.json", json!({ "pooling_mode_mean_tokens": true }))?;
    write("tokenizer.json", tokenizer_json(words))?;
    let generator = Generator::new(seed);
    let mut tensors = Vec::new();
    for (name, shape) in config.parameters() {
        let tensor = Tensor::randn(&shape, DType::F32, device, &generator)?;
        // Scaled as BERT's initial weights are; norms are near the identity.
        let tensor = match &name {
            name if name.ends_with("LayerNorm.weight") => tensor.mul(0.1)?.add(1)?,
            name if shape.len() == 2 && !name.contains("embeddings") => {
                tensor.mul((shape[1] as f64).powf(-0.5))?
            }
            _ => tensor,
        };
        tensors.push((name, tensor));
    }
    // As other programs write it, which want to be told whose tensors these are.
    let metadata = Metadata::from([("format".into(), "pt".into())]);
    Ok(checkpoint::save_with(folder.join("model.safetensors"), &tensors, &metadata)?)
}

/// WordPiece with these words, lower-casing, as BERT has it.
fn tokenizer_json(words: &[&str]) -> Value {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let vocabulary: Map<String, Value> =
        special.iter().chain(words).enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let added = |(id, content): (usize, &&str)| {
        json!({ "id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false })
    };
    let token = |name: &str, kind: u8| json!({ "SpecialToken": { "id": name, "type_id": kind } });
    let sequence = |name: &str, kind: u8| json!({ "Sequence": { "id": name, "type_id": kind } });
    let spelled = |name: &str, id: u8| json!({ "id": name, "ids": [id], "tokens": [name] });
    json!({
        "version": "1.0",
        // To be ignored: a model's limit is none of the tokenizer's business.
        "truncation": { "max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right" },
        "padding": { "strategy": { "Fixed": 9 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "[PAD]" },
        "added_tokens": special.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                        "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0)],
            "pair": [token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0), sequence("B", 1), token("[SEP]", 1)],
            "special_tokens": { "[CLS]": spelled("[CLS]", 2), "[SEP]": spelled("[SEP]", 3) }
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": vocabulary }
    })
}
