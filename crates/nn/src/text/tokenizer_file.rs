//! `tokenizer.json`, checked before it is believed.
//!
//! Guarantees: what is accepted makes tokens of any text in time and memory that are bounded by the text's length, and never
//! panics. The `tokenizers` crate promises neither: its files may name a replacement that doubles a text forty times, a
//! regular expression that never ends, or a special token that isn't there. So only the kinds that models of the BERT and
//! RoBERTa families have are let through, with all that they say checked; what the file says of truncation and padding isn't
//! for us, and the crate doesn't see it.

use super::{ModelError, Result, charsmap, settings::Settings, tokenizer_config::TokenizerConfig};
use base64::{Engine, engine::general_purpose::STANDARD};
use raddle_sync::fault;
use serde_json::Value;
use std::path::PathBuf;
use tokenizers::TruncationDirection;

/// Larger files are no tokenizers (a guess: one of 250,000 tokens has 17 MB).
pub const FILE_BYTES_MAX: u64 = 128 << 20;
/// Each word is tried against the vocabulary from each of its characters to each (a guess: BERT has 100).
const WORD_CHARS_MAX: usize = 200;
/// Of what stands before the pieces of a word; it is copied for each try.
const PREFIX_BYTES_MAX: usize = 16;
/// Of a piece of text that has a number (a guess: 64 are usual).
const PIECE_BYTES_MAX: usize = 256;
/// Steps one after the other (a guess: two are usual).
const STEP_COUNT_MAX: usize = 8;
/// Tokens around a text or a pair (a guess: three are usual).
const SPECIAL_COUNT_MAX: usize = 16;

/// Reads and checks one, and which end of a long text is cut off.
pub fn read(file: PathBuf, config: &TokenizerConfig) -> Result<(tokenizers::Tokenizer, TruncationDirection)> {
    let settings = Settings::read_at_most(file.clone(), FILE_BYTES_MAX)?;
    let part = |key| settings.part(key);
    model(&part("model").ok_or_else(|| settings.wrong("model", "an object"))?)?;
    part("added_tokens").map_or(Ok(()), |tokens| added_tokens(&tokens))?;
    part("normalizer").map_or(Ok(()), |part| steps(&part, "normalizers", &NORMALIZERS, 0))?;
    part("pre_tokenizer").map_or(Ok(()), |part| steps(&part, "pretokenizers", &PRE_TOKENIZERS, 0))?;
    part("post_processor").map_or(Ok(()), |part| post_processor(&part))?;
    match part("decoder") {
        Some(decoder) if !["WordPiece", "ByteLevel", "Metaspace"].contains(&decoder.text("type")?) => {
            return Err(decoder.wrong("type", "one of WordPiece, ByteLevel, Metaspace"));
        }
        _ => {}
    }
    let truncated = config.truncated(&settings)?;
    let mut value = settings.without(&["truncation", "padding"]);
    config.apply(&mut value)?;
    let failed = |error: serde_json::Error| ModelError::Tokenizer { file, reason: error.to_string() };
    let mut tokenizer: tokenizers::Tokenizer = serde_json::from_value(value).map_err(failed)?;
    tokenizer.set_encode_special_tokens(config.splits_special()?);
    Ok((tokenizer, truncated))
}

fn model(model: &Settings) -> Result<()> {
    match model.text("type")? {
        "WordPiece" => word_piece(model),
        "BPE" => pairs(model),
        "Unigram" => unigram(model),
        _ => Err(model.wrong("type", "one of WordPiece, BPE, Unigram")),
    }
}

/// BERT's.
fn word_piece(model: &Settings) -> Result<()> {
    model.count("max_input_chars_per_word", 1..=WORD_CHARS_MAX)?;
    short(model, "continuing_subword_prefix")?;
    // What isn't known has to be something.
    let unknown = model.text("unk_token")?;
    match model.get("vocab").as_object() {
        Some(words) if words.contains_key(unknown) => Ok(()),
        Some(_) => Err(model.wrong("unk_token", "a word of the vocabulary")),
        None => Err(model.wrong("vocab", "an object")),
    }
}

/// RoBERTa's: pairs of pieces become one, by rank; a word of n bytes takes n · log n steps.
fn pairs(model: &Settings) -> Result<()> {
    if model.number_if_there("dropout")?.is_some_and(|part| part != 0.0) {
        return Err(model.wrong("dropout", "none: it draws what tokens a text has"));
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if !model.get(key).is_null() {
            short(model, key)?;
        }
    }
    let Some(words) = model.get("vocab").as_object() else { return Err(model.wrong("vocab", "an object")) };
    match model.get("unk_token").as_str() {
        Some(unknown) if !words.contains_key(unknown) => {
            Err(model.wrong("unk_token", "a word of the vocabulary"))
        }
        _ => Ok(()),
    }
}

/// The most likely pieces: each character is tried as the start of each piece, so that a long one costs.
fn unigram(model: &Settings) -> Result<()> {
    let Some(pieces) = model.get("vocab").as_array() else { return Err(model.wrong("vocab", "a list")) };
    let is_piece = |piece: &Value| {
        piece[0].as_str().is_some_and(|text| text.len() <= PIECE_BYTES_MAX) && piece[1].is_number()
    };
    if !pieces.iter().all(is_piece) {
        return Err(model.wrong("vocab", format!("pieces of at most {PIECE_BYTES_MAX} bytes with a score")));
    }
    match pieces.len() {
        0 => Err(model.wrong("vocab", "at least one piece")),
        count => model.count("unk_id", 0..=count - 1).map(drop),
    }
}

fn short(model: &Settings, key: &'static str) -> Result<()> {
    match model.text(key)?.len() <= PREFIX_BYTES_MAX {
        true => Ok(()),
        false => Err(model.wrong(key, format!("at most {PREFIX_BYTES_MAX} bytes"))),
    }
}

/// Each is found in texts before words are: one that is found everywhere, or is another's number, makes no sense.
fn added_tokens(tokens: &Settings) -> Result<()> {
    for token in tokens.items()? {
        if token.text("content")?.is_empty() {
            return Err(token.wrong("content", "a text that isn't empty"));
        }
        token.count("id", 0..=u32::MAX as usize)?;
    }
    Ok(())
}

/// They make a text longer by a factor at most.
const NORMALIZERS: [&str; 10] = [
    "BertNormalizer",
    "Lowercase",
    "StripAccents",
    "Strip",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Precompiled",
    "Replace",
];
/// They cut at what one look at a character tells, or by a pattern of the crate's own.
const PRE_TOKENIZERS: [&str; 6] =
    ["BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "ByteLevel", "Metaspace"];

/// One of these kinds, or a sequence of them.
fn steps(part: &Settings, list: &'static str, known: &[&str], depth: usize) -> Result<()> {
    match part.text("type")? {
        "Sequence" if depth == 0 => {
            let sequence = part.part(list).ok_or_else(|| part.wrong(list, "a list"))?;
            let sequence = sequence.items()?;
            if sequence.len() > STEP_COUNT_MAX {
                return Err(part.wrong(list, format!("at most {STEP_COUNT_MAX} steps")));
            }
            sequence.iter().try_for_each(|step| steps(step, list, known, depth + 1))
        }
        "Precompiled" if known.contains(&"Precompiled") => table(part),
        "Replace" if known.contains(&"Replace") => spaces(part),
        kind if known.contains(&kind) => Ok(()),
        _ => Err(part.wrong("type", format!("one of {}", known.join(", ")))),
    }
}

/// A table of characters, as XLM-RoBERTa's files have.
fn table(part: &Settings) -> Result<()> {
    let key = "precompiled_charsmap";
    let table = STANDARD.decode(part.text(key)?).map_err(|_| part.wrong(key, "a table in base64"))?;
    if fault!(table_is_believed) {
        return Ok(());
    }
    charsmap::check(&table).map_err(|expected| part.wrong(key, expected))
}

/// Runs of spaces become one, as sentencepiece has it: the one pattern that such files need.
fn spaces(part: &Settings) -> Result<()> {
    if part.get("pattern") != &serde_json::json!({ "Regex": " {2,}" }) {
        return Err(part.wrong("pattern", r#"that of spaces, {"Regex":" {2,}"}"#));
    }
    match part.text("content")? {
        " " | "\u{2581}" => Ok(()),
        _ => Err(part.wrong("content", "a space or \"\u{2581}\"")),
    }
}

fn post_processor(part: &Settings) -> Result<()> {
    match part.text("type")? {
        "TemplateProcessing" => {}
        "BertProcessing" | "RobertaProcessing" => return Ok(()),
        _ => return Err(part.wrong("type", "TemplateProcessing, BertProcessing or RobertaProcessing")),
    }
    let special = part.get("special_tokens");
    // How many tokens a name stands for.
    let count_of = |name: &str| -> Option<usize> {
        let [ids, tokens] = ["ids", "tokens"].map(|key| special.get(name)?.get(key)?.as_array());
        let (ids, tokens) = ids.zip(tokens)?;
        (!ids.is_empty() && ids.len() == tokens.len()).then_some(ids.len())
    };
    for (key, wanted) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        let template = part.part(key).ok_or_else(|| part.wrong(key, "a list"))?;
        let (mut texts, mut special_count) = (Vec::new(), 0);
        for piece in template.items()? {
            let id = |kind: &str| piece.get(kind).get("id").and_then(Value::as_str);
            match (id("Sequence"), id("SpecialToken").map(count_of)) {
                (Some(text), None) => texts.push(text.to_string()),
                (None, Some(Some(count))) => special_count += count,
                _ => {
                    return Err(part.wrong(key, "Sequence, or SpecialToken of special_tokens, in each piece"));
                }
            }
        }
        texts.sort_unstable();
        if texts != wanted {
            return Err(part.wrong(key, format!("each of the sequences {} once", wanted.join(", "))));
        }
        if special_count > SPECIAL_COUNT_MAX {
            return Err(part.wrong(key, format!("at most {SPECIAL_COUNT_MAX} special tokens")));
        }
    }
    Ok(())
}
