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
