//! Folders of others: what a model's files may not ask for. Found by fuzzing, or by asking what the tokenizers crate would do.

use crate::{device, text::Folder};
use raddle_nn::text::SentenceEncoder;
use raddle_sync::faults::{Fault, assert_caught};
use std::fs;

const TOKENIZER: &str = "tokenizer.json";

#[test]
fn a_tokenizer_is_checked_before_it_is_made() {
    let cases: [(&str, &str, &str); 21] = [
        // A panic at the first text.
        (
            "\"[CLS]\": {",
            "\"[CL]\": {",
            "single is wrong, expected Sequence, or SpecialToken of special_tokens, in each piece, found ",
        ),
        (
            "\"ids\": [\n          2\n        ]",
            "\"ids\": []",
            "single is wrong, expected Sequence, or SpecialToken",
        ),
        ("\"id\": \"A\"", "\"id\": \"B\"", "single is wrong, expected each of the sequences A once"),
        ("\"id\": \"B\"", "\"id\": \"A\"", "pair is wrong, expected each of the sequences A, B once"),
        (
            "TemplateProcessing",
            "Sequence",
            "type is wrong, expected TemplateProcessing, BertProcessing or RobertaProcessing, found \"Sequence\"",
        ),
        // A text of 30 letters would be one of 30 gigabytes.
        (
            "\"BertNormalizer\"",
            "\"Replace\", \"pattern\": { \"String\": \"a\" }, \"content\": \"aaaaaaaa\"",
            "pattern is wrong, expected that of spaces, {\"Regex\":\" {2,}\"}, found {\"String\":\"a\"}",
        ),
        (
            "\"BertNormalizer\"",
            "\"Replace\", \"pattern\": { \"Regex\": \" {2,}\" }, \"content\": \"         \"",
            "content is wrong, expected a space or \"\u{2581}\", found \"         \"",
        ),
        (
            "\"BertNormalizer\"",
            "\"Prepend\", \"prepend\": \"a\"",
            "type is wrong, expected one of BertNormalizer, Lowercase, StripAccents, Strip, NFC, NFD, NFKC, NFKD, Precompiled, \
             Replace, found \"Prepend\"",
        ),
        (
            "\"BertNormalizer\"",
            "\"Sequence\", \"normalizers\": [{ \"type\": \"Sequence\", \"normalizers\": [] }]",
            "type is wrong, expected one of BertNormalizer",
        ),
        (
            "\"BertNormalizer\"",
            "\"Sequence\", \"normalizers\": [0, 0, 0, 0, 0, 0, 0, 0, 0]",
            "normalizers is wrong, expected at most 8 steps, found [0,0,",
        ),
        ("\"BertNormalizer\"", "\"Sequence\"", "normalizers is wrong, expected a list, found nothing"),
        // Would never end.
        (
            "\"BertPreTokenizer\"",
            "\"Split\", \"pattern\": { \"Regex\": \"(a+)+$\" }, \"behavior\": \"Isolated\", \"invert\": false",
            "type is wrong, expected one of BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, ByteLevel, Metaspace, found \"Split\"",
        ),
        (
            "\"type\": \"WordPiece\",\n    \"unk",
            "\"type\": \"WordLevel\",\n    \"unk",
            "type is wrong, expected one of WordPiece, BPE, Unigram, found \"WordLevel\"",
        ),
        // Tokens would be drawn.
        (
            "\"type\": \"WordPiece\",\n    \"unk",
            "\"type\": \"BPE\", \"dropout\": 0.5,\n    \"unk",
            "dropout is wrong, expected none: it draws what tokens a text has, found 0.5",
        ),
        (
            "\"type\": \"WordPiece\",\n    \"unk",
            "\"type\": \"Unigram\",\n    \"unk",
            "vocab is wrong, expected a list, found ",
        ),
        (
            "\"max_input_chars_per_word\": 100",
            "\"max_input_chars_per_word\": 1000000",
            "max_input_chars_per_word is wrong, expected a whole number from 1 to 200, found 1000000",
        ),
        (
            "\"continuing_subword_prefix\": \"##\"",
            "\"continuing_subword_prefix\": \"#################\"",
            "continuing_subword_prefix is wrong, expected at most 16 bytes",
        ),
        (
            "\"unk_token\": \"[UNK]\"",
            "\"unk_token\": \"UNK\"",
            "unk_token is wrong, expected a word of the vocabulary, found \"UNK\"",
        ),
        ("\"vocab\": {", "\"words\": {", "vocab is wrong, expected an object, found nothing"),
        (
            "\"content\": \"[UNK]\"",
            "\"content\": \"\"",
            "content is wrong, expected a text that isn't empty, found \"\"",
        ),
        ("\"id\": 1,", "\"id\": -1,", "id is wrong, expected a whole number from 0 to 4294967295, found -1"),
    ];
    for (index, (from, to, expected)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("untrusted-{index}"));
        folder.edit(TOKENIZER, from, to);
        let error = folder.error();
        assert!(error.starts_with(&format!("{TOKENIZER}: {expected}")), "{to}: {error}");
    }
}

/// Pairs of bytes as RoBERTa has them, and pieces.
#[test]
fn tokenizers_of_other_families_are_taken() {
    let added =
        r#""added_tokens": [], "normalizer": null, "decoder": null, "truncation": null, "padding": null"#;
    let pairs = format!(
        r#"{{ "version": "1.0", {added},
        "pre_tokenizer": {{ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true }},
        "post_processor": {{ "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true,
            "add_prefix_space": false }},
        "model": {{ "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {{ "<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "T": 4, "h": 5, "e": 6, "Th": 7, "The": 8 }},
            "merges": ["T h", "Th e"] }} }}"#
    );
    let pieces = format!(
        r#"{{ "version": "1.0", {added},
        "pre_tokenizer": {{ "type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true }},
        "post_processor": {{ "type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0] }},
        "model": {{ "type": "Unigram", "unk_id": 2, "byte_fallback": false,
            "vocab": [["<s>", 0], ["</s>", 0], ["<unk>", 0], ["_The", -1], ["_", -3], ["T", -3], ["h", -3], ["e", -3]] }} }}"#
    );
    for (name, text, expected) in [("pairs", &pairs, [0, 8, 2]), ("pieces", &pieces, [0, 3, 1])] {
        let folder = Folder::new(&format!("family-{name}"));
        std::fs::write(folder.0.join(TOKENIZER), text).unwrap();
        let model = SentenceEncoder::load(&folder.0, device()).unwrap();
        let tokens = model.tokenizer().tokenize(&["The"], raddle_nn::text::TooLong::Truncate).unwrap();
        assert_eq!(tokens[0].ids, expected, "{name}");
    }
    let folder = Folder::new("family-outside");
    std::fs::write(folder.0.join(TOKENIZER), pieces.replace("\"unk_id\": 2", "\"unk_id\": 8")).unwrap();
    let expected = "tokenizer.json: unk_id is wrong, expected a whole number from 0 to 7, found 8";
    assert_eq!(folder.error(), expected);
}

/// A table of characters whose trie leads out of itself would be a panic at the first text.
#[test]
fn a_table_of_characters_is_checked_before_it_is_walked() {
    let folder = Folder::new("table");
    let table = |table: &str| format!("\"Precompiled\", \"precompiled_charsmap\": {table:?}");
    folder.edit(TOKENIZER, "\"BertNormalizer\"", &table("BAAAAAAEAAA="));
    // Loading must be what finds it, or this text does.
    let found = match SentenceEncoder::load(&folder.0, device()) {
        Ok(model) => format!("{:?}", model.encode(&["a thread"]).map(drop)),
        Err(_) => folder.error(),
    };
    let about = "tokenizer.json: precompiled_charsmap is wrong, expected";
    assert_eq!(found, format!("{about} a trie from which no byte leads out, found \"BAAAAAAEAAA=\""));
    folder.edit(TOKENIZER, "BAAAAAAEAAA=", "no base64");
    assert_eq!(folder.error(), format!("{about} a table in base64, found \"no base64\""));
    folder.edit(TOKENIZER, "\"no base64\"", "7");
    assert_eq!(folder.error(), "tokenizer.json: precompiled_charsmap is wrong, expected a text, found 7");
}

#[test]
fn fault_table_is_believed() {
    let test = "untrusted::a_table_of_characters_is_checked_before_it_is_walked";
    assert_caught(Fault::table_is_believed, test);
}

/// What the checks let through of what others write.
#[test]
fn usual_tokenizers_are_taken() {
    let encode = |folder: &Folder| {
        let model = SentenceEncoder::load(&folder.0, device()).unwrap();
        model.encode(&["The threads wait."]).unwrap().to_vec::<f32>().unwrap()
    };
    let expected = encode(&Folder::new("usual"));
    let changed = [
        (
            "\"BertNormalizer\"",
            "\"Sequence\", \"normalizers\": [{ \"type\": \"NFC\" }, { \"type\": \"Lowercase\" }]",
        ),
        (
            "\"BertPreTokenizer\"",
            "\"Sequence\", \"pretokenizers\": [{ \"type\": \"WhitespaceSplit\" }, { \"type\": \"Punctuation\", \"behavior\": \"Isolated\" }]",
        ),
        ("\"BertPreTokenizer\"", "\"Whitespace\""),
        ("\"TemplateProcessing\"", "\"BertProcessing\", \"sep\": [\"[SEP]\", 3], \"cls\": [\"[CLS]\", 2]"),
    ];
    for (index, (from, to)) in changed.into_iter().enumerate() {
        let folder = Folder::new(&format!("usual-{index}"));
        folder.edit(TOKENIZER, from, to);
        assert_eq!(encode(&folder), expected, "{to}");
    }
}

#[test]
fn nothing_outside_of_the_folder_is_read() {
    let folder = Folder::new("inside");
    let other = Folder::new("outside");
    let outside = other.0.join("1_Pooling");
    let beside = format!("../{}/1_Pooling", other.0.file_name().unwrap().to_str().unwrap());
    for path in [outside.to_str().unwrap(), &beside, "1_Pooling/../.."] {
        let folder = Folder::new("inside-changed");
        folder.edit("modules.json", "\"1_Pooling\"", &format!("{path:?}"));
        let error = folder.error();
        let expected = "modules.json: path is wrong, expected a folder inside of the model's, found ";
        assert!(error.starts_with(expected), "{error}");
    }
    folder.edit("modules.json", "\"1_Pooling\"", "\"./1_Pooling/\"");
    assert!(SentenceEncoder::load(&folder.0, device()).is_ok());
}

#[test]
fn files_and_sizes_have_bounds() {
    let folder = Folder::new("bounds");
    for (key, expected) in [
        (
            "\"hidden_size\": 32",
            "hidden_size is wrong, expected a whole number from 1 to 16777216, found 1152921504606846976",
        ),
        (
            "\"vocab_size\": 16",
            "vocab_size is wrong, expected a whole number from 1 to 16777216, found 1152921504606846976",
        ),
        (
            "\"type_vocab_size\": 2",
            "type_vocab_size is wrong, expected a whole number from 1 to 16, found 1152921504606846976",
        ),
    ] {
        let folder = Folder::new("bounds-changed");
        let (name, _) = key.split_once(' ').unwrap();
        folder.edit("config.json", key, &format!("{name} {}", 1u64 << 60));
        assert_eq!(folder.error(), format!("config.json: {expected}"));
    }
    // Sizes that fit nothing in the weights are found before anything is made of them.
    folder.edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 16777216");
    assert!(folder.error().contains("encoder.layer.2.attention.self.query.weight"), "{}", folder.error());
    folder.edit("config.json", "\"max_position_embeddings\": 64", "\"max_position_embeddings\": 4");
    assert_eq!(
        folder.error(),
        "config.json: max_position_embeddings is wrong, expected at least 5, with special tokens, found 4"
    );
    fs::write(folder.0.join("config.json"), " ".repeat((4 << 20) + 1)).unwrap();
    assert_eq!(folder.error(), "config.json: the size is wrong, expected at most 4194304 bytes, found more");
}
