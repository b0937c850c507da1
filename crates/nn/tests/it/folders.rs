//! Folders of models in the forms that programs have given them: what they say in other words gives the same bits.

use crate::{device, tensor};
use raddle_nn::{
    checkpoint,
    text::{BertConfig, CrossEncoder, ModelOptions, SentenceEncoder, TooLong, write_random_model},
};
use raddle_tensor::{DType, Tensor};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

const WORDS: [&str; 6] = ["a", "thread", "stream", "waits", "for", "the"];
const TEXTS: [&str; 4] = ["a thread", "", "the stream waits for a thread", "for the the the the a"];
const INDEX: &str = "model.safetensors.index.json";

/// A random model, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            Folder(std::env::temp_dir().join(format!("raddle-{}-folder-{name}", std::process::id())));
        let config = BertConfig::tiny(WORDS.len() + 4);
        write_random_model(&folder.0, &config, &WORDS, 16, 7, device()).unwrap();
        folder
    }

    fn write(&self, file: &str, value: Value) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.to_string()).unwrap();
    }

    fn settings(&self, file: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.join(file)).unwrap()).unwrap()
    }

    fn weights(&self) -> Vec<(String, Tensor)> {
        checkpoint::load(self.0.join("model.safetensors"), device()).unwrap()
    }

    fn save(&self, file: &str, tensors: &[(String, Tensor)]) {
        fs::create_dir_all(self.0.join(file).parent().unwrap()).unwrap();
        checkpoint::save(self.0.join(file), tensors).unwrap();
    }

    fn modules(&self, modules: &[&str]) {
        let module = |(index, kind): (usize, &&str)| {
            let path = if index == 0 { String::new() } else { format!("{index}_{kind}") };
            json!({ "path": path, "type": format!("sentence_transformers.models.{kind}") })
        };
        self.write("modules.json", modules.iter().enumerate().map(module).collect());
    }

    fn load(&self) -> SentenceEncoder {
        SentenceEncoder::load(&self.0, device()).unwrap()
    }

    fn vectors(&self) -> Vec<f32> {
        vectors(&self.load())
    }

    fn error(&self) -> String {
        let error = SentenceEncoder::load(&self.0, device()).err().expect("it can't be loaded").to_string();
        error.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// But for the last bits, of another way to sum.
fn same(found: &[f32], expected: &[f32]) -> bool {
    let near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-6;
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

fn vectors(model: &SentenceEncoder) -> Vec<f32> {
    let vectors = model.encode(&TEXTS).unwrap();
    assert_eq!(&**vectors.shape(), &[TEXTS.len(), model.width()]);
    vectors.to_vec().unwrap()
}

#[test]
fn weights_in_several_files_are_those_of_one() {
    let folder = Folder::new("shards");
    let expected = folder.vectors();
    let tensors = folder.weights();
    let (first, second) = tensors.split_at(tensors.len() / 3);
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let entry = |file: &str, tensors: &[(String, Tensor)]| {
        tensors.iter().map(|(name, _)| (name.clone(), json!(file))).collect::<Vec<_>>()
    };
    let map: serde_json::Map<String, Value> =
        entry(names[0], first).into_iter().chain(entry(names[1], second)).collect();
    folder.save(names[0], first);
    folder.save(names[1], second);
    fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    folder.write(INDEX, json!({ "metadata": { "total_size": 1 }, "weight_map": map }));
    assert_eq!(folder.vectors(), expected);

    let with = |tensor: &str, file: &str| {
        let mut map = map.clone();
        map.insert(tensor.into(), json!(file));
        folder.write(INDEX, json!({ "weight_map": map }));
        folder.error()
    };
    let last = &second.last().unwrap().0;
    // Nowhere, or in another file, which is read before or behind.
    for (tensor, file) in [("nowhere", names[1]), (&first[0].0, names[1]), (last, names[0])] {
        let what = "the tensor is wrong, expected it here, as";
        assert_eq!(
            with(tensor, file),
            format!("{file}: tensor {tensor:?}: {what} {INDEX} says, found no such tensor")
        );
    }
    let missing = with(last, "model-00003.safetensors");
    assert!(missing.starts_with("model-00003.safetensors: opening failed"), "{missing}");
    for outside in ["../model.safetensors", "/model.safetensors", "a/../model.safetensors", "..", ""] {
        let error = with(last, outside);
        let expected =
            format!("{INDEX}: weight_map is wrong, expected names of files in this folder, found ");
        assert!(error.starts_with(&expected), "{error}");
    }
    folder.write(INDEX, json!({ "weight_map": {} }));
    assert!(folder.error().contains("expected the file of each tensor"), "{}", folder.error());
    folder.save(names[0], &tensors[..first.len() + 1]);
    folder.write(INDEX, json!({ "weight_map": map }));
    assert!(
        folder.error().contains("expected each in one file, found it in another too"),
        "{}",
        folder.error()
    );
}

#[test]
fn poolings_have_names_and_may_be_several() {
    let folder = Folder::new("poolings");
    folder.modules(&["Transformer", "Pooling"]);
    let pooled = |settings: Value| {
        folder.write("1_Pooling/config.json", settings);
        folder.vectors()
    };
    let modes = [
        ("cls", "cls_token"),
        ("max", "max_tokens"),
        ("mean", "mean_tokens"),
        ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
        ("weightedmean", "weightedmean_tokens"),
        ("lasttoken", "lasttoken"),
    ];
    let mut all: Vec<Vec<f32>> = Vec::new();
    for (name, flag) in modes {
        let by_flag = pooled(json!({ format!("pooling_mode_{flag}"): true }));
        // The name counts, whatever the flags say.
        let by_name =
            pooled(json!({ "pooling_mode": name, "pooling_mode_cls_token": true, "include_prompt": true }));
        assert_eq!(by_name, by_flag, "{name}");
        assert!(all.iter().all(|other| *other != by_name), "{name} is one of those before");
        all.push(by_name);
    }
    let side_by_side = |modes: &[usize]| -> Vec<f32> {
        let place = |text: usize| modes.iter().map(move |mode| (text, *mode));
        let row = |(text, mode): (usize, usize)| all[mode][text * 32..][..32].to_vec();
        (0..TEXTS.len()).flat_map(place).flat_map(row).collect()
    };
    // A list in its own order, flags in theirs.
    assert_eq!(pooled(json!({ "pooling_mode": ["mean", "cls"] })), side_by_side(&[2, 0]));
    let flags = json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true, "pooling_mode_lasttoken": true });
    assert_eq!(pooled(flags), side_by_side(&[0, 2, 5]));
    // Where nothing is said, or no to all, it is the mean; a prompt that isn't there isn't left out.
    let nothing = [
        json!({}),
        json!({ "pooling_mode": null, "pooling_mode_cls_token": false }),
        json!({ "embedding_dimension": 32, "include_prompt": false }),
    ];
    for settings in nothing {
        assert!(same(&pooled(settings.clone()), &all[2]), "{settings}");
    }
    for wrong in [
        json!({ "pooling_mode": [] }),
        json!({ "pooling_mode": 3 }),
        json!({ "pooling_mode": "mean", "include_prompt": 1 }),
    ] {
        folder.write("1_Pooling/config.json", wrong);
        assert!(folder.error().starts_with("1_Pooling/config.json: "), "{}", folder.error());
    }
    folder.write(
        "modules.json",
        json!([{ "type": "x.Transformer", "path": "" }, { "type": "x.Pooling", "path": "../x" }]),
    );
    assert_eq!(
        folder.error(),
        "modules.json: path is wrong, expected a folder inside of the model's, found \"../x\""
    );
}

#[test]
fn a_linear_map_may_follow() {
    let folder = Folder::new("dense");
    folder.modules(&["Transformer", "Pooling"]);
    let pooled = folder.vectors();
    folder.modules(&["Transformer", "Pooling", "Dense", "Normalize"]);
    let weight: Vec<f32> = (0..5 * 32).map(|index| ((index * 37 % 19) as f32 - 9.0) / 20.0).collect();
    let bias: Vec<f32> = (0..5).map(|index| index as f32 / 7.0).collect();
    let tensors = [
        ("linear.weight".to_string(), tensor(&weight, &[5, 32])),
        ("linear.bias".to_string(), tensor(&bias, &[5])),
    ];
    folder.save("2_Dense/model.safetensors", &tensors);
    let settings = |function: &str| {
        let name = format!("torch.nn.modules.{function}");
        json!({ "in_features": 32, "out_features": 5, "bias": true, "activation_function": name })
    };
    type Function = fn(f64) -> f64;
    let functions: [(&str, Function); 7] = [
        ("activation.SiLU", |x| x / (1.0 + (-x).exp())),
        ("activation.Mish", |x| x * x.exp().ln_1p().tanh()),
        ("activation.Tanh", f64::tanh),
        ("linear.Identity", |x| x),
        ("activation.ReLU", |x| x.max(0.0)),
        ("activation.Sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("activation.GELU", |x| 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))),
    ];
    for (name, function) in functions {
        folder.write("2_Dense/config.json", settings(name));
        for (row, pooled) in folder.vectors().chunks(5).zip(pooled.chunks(32)) {
            let output = |output: usize| {
                let sum: f64 = (0..32)
                    .map(|input| f64::from(weight[output * 32 + input]) * f64::from(pooled[input]))
                    .sum();
                function(sum + f64::from(bias[output]))
            };
            let expected: Vec<f64> = (0..5).map(output).collect();
            let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
            for (found, expected) in row.iter().zip(&expected) {
                assert!(
                    (f64::from(*found) - expected / norm).abs() < 1e-5,
                    "{name}: {found}, {expected} / {norm}"
                );
            }
        }
    }
    folder.write("2_Dense/config.json", settings("activation.Softshrink"));
    assert!(
        folder.error().contains(
            "activation_function is wrong, expected one of Identity, Tanh, ReLU, GELU, Sigmoid, SiLU, Mish of torch.nn"
        ),
        "{}",
        folder.error()
    );
    // Others silently take the hyperbolic tangent for what they don't trust.
    folder.write(
        "2_Dense/config.json",
        json!({ "in_features": 32, "out_features": 5, "activation_function": "my.Identity" }),
    );
    assert!(folder.error().ends_with("found \"my.Identity\""), "{}", folder.error());
    for key in ["module_input_name", "module_output_name"] {
        folder.write(
            "2_Dense/config.json",
            json!({ "in_features": 32, "out_features": 5, key: "token_embeddings" }),
        );
        let expected = "is wrong, expected sentence_embedding, found \"token_embeddings\"";
        assert_eq!(folder.error(), format!("2_Dense/config.json: {key} {expected}"));
    }
    folder.write("2_Dense/config.json", json!({ "in_features": 31, "out_features": 5 }));
    assert_eq!(
        folder.error(),
        "2_Dense/config.json: in_features is wrong, expected 32, what comes before it, found 31"
    );
}

/// In f64, of what comes before: what goes in, or a linear map of it, is added behind the function.
#[test]
fn a_residual_is_added_to_a_linear_map() {
    let folder = Folder::new("residual");
    folder.modules(&["Transformer", "Pooling"]);
    let pooled = folder.vectors();
    folder.modules(&["Transformer", "Pooling", "Dense"]);
    let numbers = |count: usize, step: usize| -> Vec<f32> {
        (0..count).map(|index| ((index * step % 19) as f32 - 9.0) / 20.0).collect()
    };
    for outputs in [32, 5] {
        let (weight, bias, residual) =
            (numbers(outputs * 32, 37), numbers(outputs, 7), numbers(outputs * 32, 23));
        let tensors = [
            ("linear.weight".to_string(), tensor(&weight, &[outputs, 32])),
            ("linear.bias".to_string(), tensor(&bias, &[outputs])),
            ("residual.weight".to_string(), tensor(&residual, &[outputs, 32])),
        ];
        folder.save("2_Dense/model.safetensors", &tensors);
        let mut without = Vec::new();
        for has_residual in [false, true] {
            folder.write(
                "2_Dense/config.json",
                json!({ "in_features": 32, "out_features": outputs, "use_residual": has_residual,
                        "activation_function": "torch.nn.modules.activation.Tanh" }),
            );
            let found = folder.vectors();
            for (found, pooled) in found.chunks(outputs).zip(pooled.chunks(32)) {
                let product = |weight: &[f32], output: usize| -> f64 {
                    let row = weight[output * 32..][..32].iter().zip(pooled);
                    row.map(|(weight, x)| f64::from(*weight) * f64::from(*x)).sum()
                };
                for (output, found) in found.iter().enumerate() {
                    let mapped = (product(&weight, output) + f64::from(bias[output])).tanh();
                    let added = match (has_residual, outputs) {
                        (false, _) => 0.0,
                        (true, 32) => f64::from(pooled[output]),
                        (true, _) => product(&residual, output),
                    };
                    let expected = mapped + added;
                    assert!((f64::from(*found) - expected).abs() < 1e-5, "{found}, expected {expected}");
                }
            }
            match has_residual {
                false => without = found,
                true => assert!(!same(&found, &without), "a residual changes nothing"),
            }
        }
    }
}

/// In f64, of what comes before: mean 0 and variance 1 (and 1e-5), then weights and a bias.
#[test]
fn a_normalization_of_vectors_may_follow() {
    let folder = Folder::new("norm");
    folder.modules(&["Transformer", "Pooling"]);
    let pooled = folder.vectors();
    folder.modules(&["Transformer", "Pooling", "LayerNorm"]);
    let weight: Vec<f32> = (0..32).map(|index| 0.5 + (index * 7 % 5) as f32 / 4.0).collect();
    let bias: Vec<f32> = (0..32).map(|index| (index * 11 % 13) as f32 / 10.0 - 0.6).collect();
    let tensors =
        [("norm.weight".into(), tensor(&weight, &[32])), ("norm.bias".into(), tensor(&bias, &[32]))];
    folder.save("2_LayerNorm/model.safetensors", &tensors);
    folder.write("2_LayerNorm/config.json", json!({ "dimension": 32 }));
    let found = folder.vectors();
    assert!(!same(&found, &pooled));
    for (found, pooled) in found.chunks(32).zip(pooled.chunks(32)) {
        let pooled: Vec<f64> = pooled.iter().map(|x| f64::from(*x)).collect();
        let mean = pooled.iter().sum::<f64>() / 32.0;
        let variance = pooled.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 32.0;
        for (index, found) in found.iter().enumerate() {
            let unit = (pooled[index] - mean) / (variance + 1e-5).sqrt();
            let expected = unit * f64::from(weight[index]) + f64::from(bias[index]);
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found}, expected {expected}");
        }
    }
    folder.write("2_LayerNorm/config.json", json!({ "dimension": 31 }));
    let expected = "dimension is wrong, expected 32, what comes before it, found 31";
    assert_eq!(folder.error(), format!("2_LayerNorm/config.json: {expected}"));
}

/// In f64, of the vectors of tokens: the mean, or the largest, of those behind the prompt and the token before it.
#[test]
fn a_prompt_is_pooled_unless_it_is_left_out() {
    let folder = Folder::new("prompted");
    folder.modules(&["Transformer", "Pooling"]);
    let pooled = |mode: &str, includes: bool| {
        folder.write("1_Pooling/config.json", json!({ "pooling_mode": mode, "include_prompt": includes }));
        let model = folder.load();
        let tokens = model.tokenizer().tokenize_behind("the thread ", &TEXTS, TooLong::Truncate).unwrap();
        let vectors = model.encode_tokens(&tokens).unwrap().to_vec::<f32>().unwrap();
        (model.token_vectors(&tokens).unwrap(), vectors)
    };
    for mode in ["mean", "max"] {
        let mut with = Vec::new();
        for includes in [true, false] {
            let (tokens, found) = pooled(mode, includes);
            // [CLS], and two words.
            let left_out = if includes { 0 } else { 3 };
            for (found, tokens) in found.chunks(32).zip(&tokens) {
                let rows: Vec<&[f32]> = tokens.chunks(32).skip(left_out).collect();
                for (index, found) in found.iter().enumerate() {
                    let column = rows.iter().map(|row| f64::from(row[index]));
                    let expected = match mode {
                        "mean" => column.sum::<f64>() / rows.len() as f64,
                        _ => column.fold(f64::NEG_INFINITY, f64::max),
                    };
                    assert!((f64::from(*found) - expected).abs() < 1e-5, "{mode}: {found}, {expected}");
                }
            }
            match includes {
                true => with = found,
                false => assert!(!same(&found, &with), "{mode}: the prompt is pooled all the same"),
            }
        }
    }
}

#[test]
fn prompts_and_limits_are_read() {
    let folder = Folder::new("prompts");
    assert_eq!(folder.load().default_prompt(), "");
    let prompts = json!({ "query": "the ", "document": "" });
    folder.write(
        "config_sentence_transformers.json",
        json!({ "prompts": prompts, "default_prompt_name": null }),
    );
    let model = folder.load();
    assert_eq!((model.prompt("query").unwrap(), model.prompt("document").unwrap()), ("the ", ""));
    assert_eq!(model.default_prompt(), "");
    let error = model.prompt("qury").unwrap_err().to_string();
    assert!(error.contains("query") && error.ends_with("found \"qury\""), "{error}");
    folder.write(
        "config_sentence_transformers.json",
        json!({ "prompts": prompts, "default_prompt_name": "query" }),
    );
    assert_eq!(folder.load().default_prompt(), "the ");
    folder.write(
        "config_sentence_transformers.json",
        json!({ "prompts": prompts, "default_prompt_name": "x" }),
    );
    assert!(folder.error().starts_with("config_sentence_transformers.json: default_prompt_name is wrong"));
    folder.write("config_sentence_transformers.json", json!({ "prompts": ["x"] }));
    assert!(folder.error().starts_with("config_sentence_transformers.json: prompts is wrong"));
    fs::remove_file(folder.0.join("config_sentence_transformers.json")).unwrap();

    let most = || folder.load().tokenizer().tokens_max();
    assert_eq!(most(), 16);
    fs::rename(folder.0.join("sentence_bert_config.json"), folder.0.join("sentence_roberta_config.json"))
        .unwrap();
    assert_eq!(most(), 16);
    folder.write("tokenizer_config.json", json!({ "model_max_length": 12 }));
    folder.write("sentence_roberta_config.json", json!({ "max_seq_length": null }));
    assert_eq!(most(), 12);
    folder.write("tokenizer_config.json", json!({ "model_max_length": 1e30 }));
    assert_eq!(most(), 64);
    // As of many a RoBERTa, which has two positions less than its files say.
    folder.write("sentence_roberta_config.json", json!({ "max_seq_length": 66 }));
    assert_eq!(most(), 64);
    folder.write("sentence_roberta_config.json", json!({ "max_seq_length": null }));

    let mut model = folder.load();
    model.limit_tokens(6).unwrap();
    let long = "a thread waits for the stream";
    let cut = model.encode(&[long]).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(cut, folder.load().encode(&["a thread waits for"]).unwrap().to_vec::<f32>().unwrap());
    for wrong in [0, 4, 65, usize::MAX] {
        let error = model.limit_tokens(wrong).unwrap_err().to_string();
        assert!(error.starts_with("limit tokens: the most tokens is out of range"), "{error}");
    }
}

#[test]
fn names_and_dtypes_of_weights_may_differ() {
    let folder = Folder::new("names");
    let expected = folder.vectors();
    let weights = folder.weights();
    for prefix in ["", "model.", "0.auto_model."] {
        let rename = |(name, tensor): &(String, Tensor)| {
            (
                name.strip_prefix("bert.").map_or(name.clone(), |name| format!("{prefix}{name}")),
                tensor.clone(),
            )
        };
        let mut renamed: Vec<_> = weights.iter().map(rename).collect();
        // Buffers that older files have, and nobody reads.
        let positions: Vec<i64> = (0..64).collect();
        renamed.push((format!("{prefix}embeddings.position_ids"), tensor(&positions, &[1, 64])));
        folder.save("model.safetensors", &renamed);
        assert_eq!(folder.vectors(), expected, "{prefix:?}");
        renamed.push(("other.embeddings.word_embeddings.weight".into(), tensor(&[0f32], &[1, 1])));
        folder.save("model.safetensors", &renamed);
        assert!(folder.error().contains("expected one encoder, found"), "{}", folder.error());
    }
    for (stored, tolerance) in [(DType::F16, 3e-3), (DType::BF16, 3e-2)] {
        let converted: Vec<_> =
            weights.iter().map(|(name, tensor)| (name.clone(), tensor.to_dtype(stored).unwrap())).collect();
        folder.save("model.safetensors", &converted);
        // Whatever it is stored in, it may compute in any.
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let options = ModelOptions { dtype, ..ModelOptions::default() };
            let found = vectors(&SentenceEncoder::load_with(&folder.0, device(), &options).unwrap());
            let most = if dtype == DType::BF16 { 3e-2 } else { tolerance };
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < most, "{stored} in {dtype}: {found}, {expected}");
            }
        }
    }
}

/// A folder as older programs have left it: nothing of it is read, and it is said what to do.
#[test]
fn weights_of_pytorchs_own_format_are_told() {
    let folder = Folder::new("pickled");
    let convert = "expected model.safetensors: a .bin is a program that is run when it is read; convert it once with Python: ";
    fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    for name in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
        fs::write(folder.0.join(name), "x").unwrap();
        let error = SentenceEncoder::load(&folder.0, device()).err().unwrap().to_string();
        let expected = format!("{}: the file of the weights is wrong, {convert}", folder.0.display());
        assert!(error.starts_with(&expected) && error.ends_with(&format!(", found only {name}")), "{error}");
        fs::remove_file(folder.0.join(name)).unwrap();
    }
    let error = folder.error();
    assert_eq!(error, "model.safetensors: opening failed: No such file or directory (os error 2)");
}

/// The transformer in a folder of its own, with the files that belong to it.
#[test]
fn a_transformer_may_lie_below() {
    let folder = Folder::new("below");
    let expected = folder.vectors();
    fs::create_dir(folder.0.join("0_Transformer")).unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json"] {
        fs::rename(folder.0.join(file), folder.0.join("0_Transformer").join(file)).unwrap();
    }
    let mut modules = folder.settings("modules.json");
    modules[0]["path"] = json!("0_Transformer");
    folder.write("modules.json", modules.clone());
    assert_eq!(folder.vectors(), expected);
    assert_eq!(folder.load().tokenizer().tokens_max(), 16);
    let scores = CrossEncoder::load(&folder.0, device()).unwrap().score("a", &TEXTS);
    assert!(scores.is_ok(), "{scores:?}");
    modules[0]["path"] = json!("../0_Transformer");
    folder.write("modules.json", modules);
    assert_eq!(
        folder.error(),
        "modules.json: path is wrong, expected a folder inside of the model's, found \"../0_Transformer\""
    );
}

/// What nobody asks for may be of a dtype that nobody here has.
#[test]
fn others_tensors_are_left_alone() {
    let folder = Folder::new("others");
    let expected = folder.vectors();
    let file = folder.0.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut data = bytes[8 + length..].to_vec();
    for (name, dtype, size) in [("codes", "I8", 3), ("ids", "U16", 6), ("scales", "F8_E4M3", 3)] {
        let offsets = [data.len(), data.len() + size];
        header[name] = json!({ "dtype": dtype, "shape": [3], "data_offsets": offsets });
        data.extend(vec![7; size]);
    }
    let header = header.to_string();
    let write = |header: &str| {
        let length = (header.len() as u64).to_le_bytes();
        fs::write(&file, [&length[..], header.as_bytes(), &data].concat()).unwrap();
    };
    write(&header);
    assert_eq!(folder.vectors(), expected);
    // Unless it is asked for.
    write(&header.replace("\"scales\"", "\"bert.encoder.layer.0.intermediate.dense.bias\"").replacen(
        "\"bert.encoder.layer.0.intermediate.dense.bias\"",
        "\"another\"",
        1,
    ));
    let error = folder.error();
    let expected = "tensor \"bert.encoder.layer.0.intermediate.dense.bias\": the dtype is wrong, expected one of F64, F32, F16, BF16, I64, I32, U8, BOOL, found \"F8_E4M3\"";
    assert!(error.contains(expected), "{error}");
}

/// The same numbers under the names of others give the same bits.
#[test]
fn relatives_of_bert_are_read() {
    let folder = Folder::new("families");
    let (expected, weights, config) = (folder.vectors(), folder.weights(), folder.settings("config.json"));
    let scores = |folder: &Folder| {
        let model = CrossEncoder::load(&folder.0, device()).unwrap();
        model.score("a thread", &TEXTS).unwrap().to_vec::<f32>().unwrap()
    };
    let bert_scores = scores(&folder);

    let rename = |pairs: &[(&str, &str)]| -> Vec<(String, Tensor)> {
        let rename = |(name, tensor): &(String, Tensor)| {
            let renamed = pairs.iter().fold(name.clone(), |name, (from, to)| name.replace(from, to));
            (renamed, tensor.clone())
        };
        weights.iter().map(rename).collect()
    };
    // RoBERTa: two unused positions first, and a head with other names.
    let mut roberta = rename(&[
        ("classifier", "classifier.out_proj"),
        ("bert.pooler.dense", "classifier.dense"),
        ("bert.", "roberta."),
    ]);
    for (name, tensor) in &mut roberta {
        if name.ends_with("position_embeddings.weight") {
            let unused = Tensor::full([2, 32], 1e3, DType::F32, device()).unwrap();
            *tensor = Tensor::cat(&[&unused, tensor], 0).unwrap();
        }
    }
    folder.save("model.safetensors", &roberta);
    for name in ["roberta", "xlm-roberta", "camembert"] {
        let mut config = config.clone();
        config["model_type"] = json!(name);
        config["max_position_embeddings"] = json!(66);
        config["pad_token_id"] = json!(1);
        folder.write("config.json", config.clone());
        assert_eq!(folder.vectors(), expected, "{name}");
        assert_eq!(scores(&folder), bert_scores, "{name}");
        config["pad_token_id"] = json!(0);
        folder.write("config.json", config);
        assert_eq!(folder.error(), "config.json: pad_token_id is wrong, expected 1, found 0");
    }
    // DistilBERT: no types, so what BERT adds for the first is in the positions.
    let mut distilbert = rename(&[
        ("bert.encoder.layer", "distilbert.transformer.layer"),
        ("attention.self.query", "attention.q_lin"),
        ("attention.self.key", "attention.k_lin"),
        ("attention.self.value", "attention.v_lin"),
        ("attention.output.dense", "attention.out_lin"),
        ("attention.output.LayerNorm", "sa_layer_norm"),
        ("intermediate.dense", "ffn.lin1"),
        ("output.dense", "ffn.lin2"),
        ("output.LayerNorm", "output_layer_norm"),
        ("bert.embeddings", "distilbert.embeddings"),
        ("bert.pooler.dense", "pre_classifier"),
    ]);
    let types = distilbert.iter().position(|(name, _)| name.contains("token_type")).unwrap();
    let types = distilbert.remove(types).1.narrow(0, 0, 1).unwrap();
    for (name, tensor) in &mut distilbert {
        if name.ends_with("position_embeddings.weight") {
            *tensor = tensor.add(&types).unwrap();
        }
    }
    folder.save("model.safetensors", &distilbert);
    folder.write(
        "config.json",
        json!({ "model_type": "distilbert", "vocab_size": config["vocab_size"], "dim": 32, "n_layers": 2, "n_heads": 2,
                "hidden_dim": 64, "max_position_embeddings": 64, "activation": "gelu" }),
    );
    assert_eq!(folder.vectors(), expected);
    // The head by its definition, in f64: a map of the first token's vector, which is that of another pooling, and one of what
    // of that is above 0.
    let found = scores(&folder);
    let pooling = folder.settings("1_Pooling/config.json").to_string().replace("mean_tokens", "cls_token");
    folder.write("1_Pooling/config.json", serde_json::from_str(&pooling).unwrap());
    let encoder = folder.load();
    let pairs = encoder.tokenizer().tokenize_pairs("a thread", &TEXTS, TooLong::Truncate).unwrap();
    let first = encoder.pool_tokens(&pairs).unwrap().to_vec::<f32>().unwrap();
    let parameter = |name: &str| -> Vec<f64> {
        let (_, tensor) = distilbert.iter().find(|(other, _)| other == name).unwrap();
        tensor.to_dtype(DType::F64).unwrap().to_vec().unwrap()
    };
    let linear = |x: &[f64], name: &str| -> Vec<f64> {
        let (weight, bias) = (parameter(&format!("{name}.weight")), parameter(&format!("{name}.bias")));
        let dot = |weight: &[f64]| weight.iter().zip(x).map(|(weight, x)| weight * x).sum::<f64>();
        weight.chunks(x.len()).zip(&bias).map(|(weight, bias)| dot(weight) + bias).collect()
    };
    assert_eq!((found.len(), first.len()), (TEXTS.len(), TEXTS.len() * 32));
    for (first, found) in first.chunks(32).zip(found) {
        let first: Vec<f64> = first.iter().map(|x| f64::from(*x)).collect();
        let pooled: Vec<f64> = linear(&first, "pre_classifier").iter().map(|x| x.max(0.0)).collect();
        let expected = linear(&pooled, "classifier")[0];
        assert!((f64::from(found) - expected).abs() < 1e-5, "{found}, {expected}");
    }
}

/// As a cache is left in which files were deleted, but not the links to them.
#[test]
#[cfg(unix)]
fn a_link_to_nowhere_is_no_missing_file() {
    let folder = Folder::new("links");
    for file in ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"] {
        let (path, kept) = (folder.0.join(file), folder.0.join("kept"));
        let was_there = fs::rename(&path, &kept).is_ok();
        folder.load();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        let error = folder.error();
        assert!(error.starts_with(&format!("{file}: reading failed: ")), "{error}");
        fs::remove_file(&path).unwrap();
        if was_there {
            fs::rename(kept, path).unwrap();
        }
    }
}
