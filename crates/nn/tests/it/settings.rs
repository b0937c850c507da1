//! What `config.json` and `tokenizer_config.json` may say, against the lists of transformers.

use crate::{device, text::Folder};
use raddle_nn::text::{SentenceEncoder, TooLong};
use serde_json::{Value, json};
use std::fs;

fn write(folder: &Folder, file: &str, value: &Value) {
    fs::write(folder.0.join(file), value.to_string()).unwrap();
}

fn read(folder: &Folder, file: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.0.join(file)).unwrap()).unwrap()
}

fn vectors(folder: &Folder) -> Vec<f32> {
    let model = SentenceEncoder::load(&folder.0, device()).unwrap();
    model.encode(&["a thread waits", ""]).unwrap().to_vec().unwrap()
}

/// All fields that the configurations of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet and ELECTRA have in transformers
/// 5.24 beside sizes and names, and those that 4 had: a value that isn't usual. It changes nothing, or is refused by name.
#[test]
fn every_field_of_a_config_is_known() {
    let nothing = [
        ("transformers_version", json!("9")),
        ("architectures", json!(["BertForMaskedLM"])),
        ("output_hidden_states", json!(true)),
        ("output_attentions", json!(true)),
        ("return_dict", json!(false)),
        ("dtype", json!("float16")),
        ("torch_dtype", json!("float16")),
        ("chunk_size_feed_forward", json!(3)),
        ("id2label", json!({ "0": "x" })),
        ("label2id", json!({ "x": 0 })),
        ("num_labels", json!(7)),
        ("problem_type", json!("regression")),
        ("hidden_dropout_prob", json!(0.5)),
        ("attention_probs_dropout_prob", json!(0.5)),
        ("classifier_dropout", json!(0.5)),
        ("dropout", json!(0.5)),
        ("attention_dropout", json!(0.5)),
        ("qa_dropout", json!(0.5)),
        ("seq_classif_dropout", json!(0.5)),
        ("initializer_range", json!(0.5)),
        ("pad_token_id", json!(7)),
        ("bos_token_id", json!(7)),
        ("eos_token_id", json!([7])),
        ("sep_token_id", json!(7)),
        ("use_cache", json!(false)),
        ("tie_word_embeddings", json!(false)),
        ("tie_last_hidden_states", json!(false)),
        ("summary_type", json!("mean")),
        ("summary_use_proj", json!(false)),
        ("summary_activation", json!("tanh")),
        ("summary_last_dropout", json!(0.5)),
        ("summary_first_dropout", json!(0.5)),
        ("sinusoidal_pos_embds", json!(true)),
        ("gradient_checkpointing", json!(true)),
        ("attn_implementation", json!("sdpa")),
        ("_name_or_path", json!("x")),
        ("task_specific_params", json!({ "x": 1 })),
        ("finetuning_task", json!("x")),
        ("prefix", json!("x")),
        ("is_decoder", json!(false)),
        ("pruned_heads", json!({})),
        ("per_layer_config", json!(null)),
        ("quantization_config", json!(null)),
    ];
    let folder = Folder::new("fields");
    let config = read(&folder, "config.json");
    let with = |key: &str, value: &Value| {
        let mut config = config.clone();
        config[key] = value.clone();
        write(&folder, "config.json", &config);
    };
    let expected = vectors(&folder);
    for (key, value) in nothing {
        with(key, &value);
        assert_eq!(vectors(&folder), expected, "{key}");
    }
    let refused = [
        ("is_decoder", json!(true), "false: tokens see all tokens of a text, and not only those before them"),
        ("add_cross_attention", json!(true), "false: there is one text to look at"),
        ("is_encoder_decoder", json!(true), "false: there is no decoder"),
        ("position_embedding_type", json!("relative_key_query"), "absolute"),
        ("pruned_heads", json!({ "0": [1] }), "none: heads share the width evenly"),
        ("per_layer_config", json!({ "0": { "hidden_act": "relu" } }), "none: layers are alike"),
        ("quantization_config", json!({ "quant_method": "gptq" }), "none: weights are floats"),
        ("compression_config", json!({ "format": "x" }), "none: weights are floats"),
        (
            "is_decoder",
            json!("true"),
            "false: tokens see all tokens of a text, and not only those before them",
        ),
    ];
    for (key, value, expected) in refused {
        with(key, &value);
        assert_eq!(
            folder.error(),
            format!("config.json: {key} is wrong, expected {expected}, found {value}")
        );
    }
    // Where nothing is said it is as transformers has it.
    let mut less = config.clone();
    let fields = less.as_object_mut().unwrap();
    for key in ["hidden_act", "layer_norm_eps", "type_vocab_size", "position_embedding_type", "architectures"]
    {
        assert!(fields.remove(key).is_some(), "{key}");
    }
    write(&folder, "config.json", &less);
    assert_eq!(vectors(&folder), expected);
}

/// What a class of transformers would make of it, and versions of it differ in, isn't guessed.
#[test]
fn settings_of_a_tokenizer_that_contradict_it_are_refused() {
    let folder = Folder::new("contradicts");
    let mut tokenizer = read(&folder, "tokenizer.json");
    let mut error = |normalizer: Value, splitter: Value, config: Value| {
        (tokenizer["normalizer"], tokenizer["pre_tokenizer"]) = (normalizer, splitter);
        write(&folder, "tokenizer.json", &tokenizer);
        write(&folder, "tokenizer_config.json", &config);
        SentenceEncoder::load(&folder.0, device()).err().map(|error| {
            let error = error.to_string();
            error.rsplit_once("tokenizer_config.json: ").map_or(error.clone(), |(_, error)| error.into())
        })
    };
    let lower = || json!({ "type": "Sequence", "normalizers": [{ "type": "NFC" }, { "type": "Lowercase" }] });
    let bert = || json!({ "type": "BertPreTokenizer" });
    let wrong = |key: &str, does: bool| {
        Some(format!("{key} is wrong, expected {does}, which is what tokenizer.json does, found {}", !does))
    };
    for (key, does) in [("do_lower_case", true), ("strip_accents", false), ("tokenize_chinese_chars", false)]
    {
        assert_eq!(error(lower(), bert(), json!({ key: does })), None);
        assert_eq!(error(lower(), bert(), json!({ key: !does })), wrong(key, does));
        let file = json!({ key: !does, "tokenizer_class": "PreTrainedTokenizerFast" });
        assert_eq!(error(lower(), bert(), file), None);
    }
    let key = "add_prefix_space";
    for (class, does) in
        [("RobertaTokenizer", false), ("XLMRobertaTokenizer", true), ("CamembertTokenizerFast", true)]
    {
        let splitter = || json!({ "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true });
        let config = |says: bool| json!({ "tokenizer_class": class, key: says });
        assert_eq!(error(lower(), splitter(), config(does)), None, "{class}");
        assert_eq!(error(lower(), splitter(), config(!does)), wrong(key, does), "{class}");
    }
    for (config, expected) in [
        (json!({ "do_lower_case": 1 }), "do_lower_case is wrong, expected true or false, found 1"),
        (
            json!({ "truncation_side": "top" }),
            "truncation_side is wrong, expected left or right, found \"top\"",
        ),
        (json!({ "tokenizer_class": 7 }), "tokenizer_class is wrong, expected a text, found 7"),
        (
            json!({ "split_special_tokens": "x" }),
            "split_special_tokens is wrong, expected true or false, found \"x\"",
        ),
    ] {
        assert_eq!(error(lower(), bert(), config).as_deref(), Some(expected));
    }
}

/// The side that the files say, which a caller may overrule.
#[test]
fn long_texts_are_cut_as_the_files_say() {
    let folder = Folder::new("side");
    let text: String = (0..20).map(|index| ["a ", "thread ", "waits ", "b "][index % 4]).collect();
    let ids = |too_long| {
        let model = SentenceEncoder::load(&folder.0, device()).unwrap();
        model.tokenizer().tokenize(&[&text], too_long).unwrap().remove(0).ids
    };
    let (left, right) = (ids(TooLong::TruncateLeft), ids(TooLong::TruncateRight));
    assert_ne!(left, right);
    assert_eq!(ids(TooLong::Truncate), right);
    for (side, expected) in [("left", &left), ("right", &right)] {
        write(&folder, "tokenizer_config.json", &json!({ "truncation_side": side }));
        assert_eq!(&ids(TooLong::Truncate), expected);
        assert_eq!((&ids(TooLong::TruncateLeft), &ids(TooLong::TruncateRight)), (&left, &right));
    }
    write(&folder, "tokenizer_config.json", &json!({}));
    folder.edit(
        "tokenizer.json",
        "\"direction\": \"Right\",\n    \"max_length\"",
        "\"direction\": \"Left\",\n    \"max_length\"",
    );
    assert_eq!(ids(TooLong::Truncate), left);
    write(&folder, "tokenizer_config.json", &json!({ "truncation_side": "right" }));
    assert_eq!(ids(TooLong::Truncate), right);
}

/// Special tokens of `tokenizer_config.json`, and of the files that older versions have, beside those of `tokenizer.json`. What is
/// refused gives other tokens in transformers 5.24 or 4; what isn't gives the same.
#[test]
fn special_tokens_that_contradict_a_tokenizer_are_refused() {
    const MAP: &str = "special_tokens_map.json";
    const ADDED: &str = "added_tokens.json";
    let folder = Folder::new("special");
    let plain = read(&folder, "tokenizer.json");
    let known = plain["added_tokens"].as_array().unwrap();
    assert_eq!(known.len(), 4);
    let decoder = |change: &dyn Fn(&mut Value)| {
        let entry = |token: &Value| {
            let mut entry = token.clone();
            let id = entry.as_object_mut().unwrap().remove("id").unwrap();
            (id.to_string(), entry)
        };
        let mut decoder: Value = known.iter().map(entry).collect::<serde_json::Map<_, _>>().into();
        change(&mut decoder);
        decoder
    };
    let with = |tokenizer: &Value, files: [Value; 3]| {
        write(&folder, "tokenizer.json", tokenizer);
        for (file, value) in ["tokenizer_config.json", MAP, ADDED].into_iter().zip(files) {
            match value {
                Value::Null => _ = fs::remove_file(folder.0.join(file)),
                value => write(&folder, file, &value),
            }
        }
        SentenceEncoder::load(&folder.0, device())
            .err()
            .map(|error| error.to_string().replace(&format!("{}/", folder.0.display()), ""))
    };
    let error = |config: Value| with(&plain, [config, Value::Null, Value::Null]);
    let own = |token: &str| format!("{token:?}, as tokenizer.json has it");
    let some = "special tokens of tokenizer.json";
    let wrong = |file: &str, key: &str, expected: &str, found: &str| {
        Some(format!("{file}: {key} is wrong, expected {expected}, found {found:?}"))
    };
    let config = "tokenizer_config.json";

    let all = json!({ "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": null,
        "bos_token": null, "additional_special_tokens": ["[CLS]", { "content": "[SEP]", "lstrip": false }],
        "extra_special_tokens": {}, "add_bos_token": true, "padding_side": "left", "never_split": ["a"] });
    assert_eq!(error(all.clone()), None);
    // Around a text, and for what isn't known.
    for (key, role, token) in
        [("cls_token", "[CLS]", "[SEP]"), ("sep_token", "[SEP]", "[PAD]"), ("unk_token", "[UNK]", "[PAD]")]
    {
        assert_eq!(error(json!({ key: token })), wrong(config, key, &own(role), token));
        let spelled = json!({ key: { "__type": "AddedToken", "content": token, "lstrip": true } });
        assert_eq!(error(spelled), wrong(config, key, &own(role), token));
        // No family's tokenizer makes nothing of it.
        assert_eq!(error(json!({ key: token, "tokenizer_class": "PreTrainedTokenizerFast" })), None, "{key}");
    }
    // To be found in texts.
    for key in ["pad_token", "mask_token", "bos_token", "eos_token"] {
        assert_eq!(error(json!({ key: "thread" })), wrong(config, key, some, "thread"));
        let file = json!({ key: "thread", "tokenizer_class": "PreTrainedTokenizerFast" });
        assert_eq!(error(file), wrong(config, key, some, "thread"));
        assert_eq!(error(json!({ key: "[PAD]" })), None, "{key}");
    }
    for key in ["additional_special_tokens", "extra_special_tokens"] {
        for tokens in [json!(["[PAD]", "thread"]), json!({ "image_token": { "content": "thread" } })] {
            assert_eq!(error(json!({ key: tokens })), wrong(config, key, some, "thread"));
        }
    }
    for (said, expected) in [
        (json!({ "cls_token": 7 }), "cls_token is wrong, expected a token, found 7"),
        (
            json!({ "additional_special_tokens": [7] }),
            "additional_special_tokens is wrong, expected a token, found 7",
        ),
        (
            json!({ "extra_special_tokens": "x" }),
            "extra_special_tokens is wrong, expected a list of tokens, or tokens by their names, found \"x\"",
        ),
        (
            json!({ "added_tokens_decoder": [] }),
            "added_tokens_decoder is wrong, expected tokens by their numbers, found []",
        ),
    ] {
        assert_eq!(error(said), Some(format!("{config}: {expected}")));
    }

    // By their numbers: the same ones with the same rules; of no family some may be missing.
    let key = "added_tokens_decoder";
    let told = |change: &dyn Fn(&mut Value)| error(json!({ key: decoder(change) })).unwrap_or_default();
    assert_eq!(told(&|_| {}), "");
    for flag in ["lstrip", "rstrip", "single_word", "normalized"] {
        let text = told(&|decoder| decoder["1"][flag] = json!(true));
        assert!(text.starts_with(&format!("{config}: {key} is wrong, expected {{")), "{flag}: {text}");
        let less = told(&|decoder| _ = decoder["1"].as_object_mut().unwrap().remove(flag));
        assert_eq!(less, "", "{flag}");
    }
    let moved = |decoder: &mut Value| {
        let token = decoder.as_object_mut().unwrap().remove("1").unwrap();
        decoder["9"] = token;
    };
    assert!(told(&moved).contains("\"id\":1"), "{}", told(&moved));
    let another = |decoder: &mut Value| decoder["9"] = json!({ "content": "thread", "special": true });
    assert!(told(&another).contains("expected tokens that tokenizer.json adds"), "{}", told(&another));
    let fewer = |decoder: &mut Value| _ = decoder.as_object_mut().unwrap().remove("1");
    let all_of_them = "expected all that tokenizer.json adds, also \"[UNK]\"";
    assert!(told(&fewer).contains(all_of_them), "{}", told(&fewer));
    assert_eq!(error(json!({ key: decoder(&fewer), "unk_token": "[UNK]" })), None);
    assert_eq!(error(json!({ key: decoder(&fewer), "tokenizer_class": "PreTrainedTokenizerFast" })), None);

    // Older files count where there is no such list, and before the others.
    let said = json!({ "cls_token": "[SEP]" });
    let refused = wrong(MAP, "cls_token", &own("[CLS]"), "[SEP]");
    assert_eq!(with(&plain, [all.clone(), said.clone(), Value::Null]), refused);
    assert_eq!(with(&plain, [said.clone(), json!({ "cls_token": "[CLS]" }), Value::Null]), None);
    assert_eq!(with(&plain, [json!({ key: decoder(&|_| {}) }), said, json!({ "thread": 6 })]), None);
    assert_eq!(with(&plain, [Value::Null, Value::Null, json!({ "[CLS]": 2 })]), None);
    let refused = wrong(ADDED, "an added token", "tokens that tokenizer.json adds", "thread");
    assert_eq!(with(&plain, [Value::Null, Value::Null, json!({ "thread": 6 })]), refused);

    // Other forms of what is put around a text.
    let mut roberta = plain.clone();
    roberta["post_processor"] = json!({ "type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": true,
        "add_prefix_space": false });
    let class = |class: &str, key: &str, token: &str| {
        with(
            &roberta,
            [json!({ "tokenizer_class": class, key: token, "bos_token": "[CLS]" }), Value::Null, Value::Null],
        )
    };
    assert_eq!(class("BertTokenizer", "sep_token", "[SEP]"), None);
    assert_eq!(class("RobertaTokenizer", "bos_token", "[CLS]"), None);
    assert_eq!(
        class("RobertaTokenizer", "sep_token", "[PAD]"),
        wrong(config, "sep_token", &own("[SEP]"), "[PAD]")
    );
    // Whose ends are those of sentences.
    assert_eq!(
        class("XLMRobertaTokenizer", "eos_token", "[PAD]"),
        wrong(config, "eos_token", &own("[SEP]"), "[PAD]")
    );
    roberta["post_processor"] = Value::Null;
    let none = "none, as tokenizer.json has it";
    let bare = [json!({ "cls_token": "[CLS]" }), Value::Null, Value::Null];
    assert_eq!(with(&roberta, bare), wrong(config, "cls_token", none, "[CLS]"));
}

/// Without `token_type_ids` among them the model isn't told which text of a pair is which, as in transformers.
#[test]
fn a_model_may_not_be_told_types() {
    let folder = Folder::new("types");
    let types = |names: Value| {
        write(&folder, "tokenizer_config.json", &json!({ "model_input_names": names }));
        let model = SentenceEncoder::load(&folder.0, device()).unwrap();
        model.tokenizer().tokenize_pairs("a", &["b"], TooLong::Refuse).unwrap().remove(0).types
    };
    let told = [0, 0, 0, 1, 1];
    assert_eq!(types(Value::Null), told);
    assert_eq!(types(json!(["input_ids", "token_type_ids", "attention_mask"])), told);
    assert_eq!(types(json!(["input_ids", "attention_mask"])), [0; 5]);
    write(&folder, "tokenizer_config.json", &json!({ "model_input_names": 7 }));
    let expected = "model_input_names is wrong, expected a text or a list of texts, found 7";
    assert_eq!(folder.error(), format!("tokenizer_config.json: {expected}"));
}
