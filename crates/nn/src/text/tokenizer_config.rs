//! `tokenizer_config.json`: what transformers makes of it, where it says something else than `tokenizer.json`.
//!
//! Its classes of tokenizers for BERT and RoBERTa read the vocabulary out of `tokenizer.json` and take the settings from here,
//! with defaults of their own: a file of a cased tokenizer without `"do_lower_case": false` beside it is an uncased one. So it
//! is done here. Where the versions of transformers differ, as for a normalizer of another kind, a setting that contradicts the
//! file is an error. Classes of no family (`PreTrainedTokenizerFast`) take `tokenizer.json` as it is.
//!
//! Special tokens are compared, and any that would change what a text's tokens are is an error: one that `tokenizer.json` doesn't
//! find in texts, one with other rules for finding it, and, of a family, another one around texts or for what isn't known. They are
//! read where transformers reads them: `special_tokens_map.json` and `added_tokens.json` count where there is no
//! `added_tokens_decoder`. (What else these files say changes no tokens of a text alone: `padding_side`,
//! `clean_up_tokenization_spaces`, `do_basic_tokenize`, `never_split` and other settings of tokenizers in Python, `add_bos_token`.)

use super::{Result, settings::Settings};
use serde_json::{Value, json};
use std::path::Path;
use tokenizers::TruncationDirection;

/// How a class makes its tokenizer.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    /// BERT's, and what is as it is.
    Bert,
    /// Pairs of bytes.
    Roberta,
    /// Sentencepiece.
    Pieces,
    /// As the file has it.
    File,
}

impl Class {
    /// What `tokenizer_class` says, here or in `config.json`; else it follows from the kind of model.
    fn read(own: Option<&Settings>, model: &Settings) -> Result<Class> {
        let key = "tokenizer_class";
        let own = own.map(|settings| settings.text_if_there(key)).transpose()?.flatten();
        let named = match own {
            Some(name) => Some(name),
            None => model.text_if_there(key)?,
        };
        let name = named.map(|name| name.strip_suffix("Fast").unwrap_or(name));
        Ok(match (name, model.text("model_type")?) {
            (Some("BertTokenizer" | "DistilBertTokenizer" | "ElectraTokenizer" | "MPNetTokenizer"), _)
            | (None, "bert" | "distilbert" | "electra" | "mpnet") => Class::Bert,
            (Some("RobertaTokenizer"), _) | (None, "roberta") => Class::Roberta,
            (Some("XLMRobertaTokenizer" | "CamembertTokenizer"), _) | (None, "xlm-roberta" | "camembert") => {
                Class::Pieces
            }
            _ => Class::File,
        })
    }
}

/// Special tokens by what they are for, as transformers names them.
const NAMED: [&str; 7] =
    ["cls_token", "sep_token", "unk_token", "pad_token", "mask_token", "bos_token", "eos_token"];
/// Lists of others, of newer and older versions.
const OTHERS: [&str; 2] = ["extra_special_tokens", "additional_special_tokens"];
/// Special tokens by their numbers.
const DECODER: &str = "added_tokens_decoder";

/// The file, if it is there, and the class of the tokenizer.
pub struct TokenizerConfig {
    settings: Settings<'static>,
    /// `special_tokens_map.json` and `added_tokens.json`, if they count.
    map: Settings<'static>,
    added: Settings<'static>,
    class: Class,
}

impl TokenizerConfig {
    /// Of a folder with the `config.json` of a model.
    pub fn read(folder: &Path, model: &Settings) -> Result<TokenizerConfig> {
        let file = folder.join("tokenizer_config.json");
        let settings = Settings::read_if_there(file.clone())?;
        let class = Class::read(settings.as_ref(), model)?;
        let settings = settings.unwrap_or_else(|| Settings::none(file));
        let older = |name: &str| -> Result<Settings<'static>> {
            let file = folder.join(name);
            let counts = settings.get(DECODER).is_null();
            let read = if counts { Settings::read_if_there(file.clone())? } else { None };
            Ok(read.unwrap_or_else(|| Settings::none(file)))
        };
        let (map, added) = (older("special_tokens_map.json")?, older("added_tokens.json")?);
        Ok(TokenizerConfig { settings, map, added, class })
    }

    /// The most tokens of a text. Where nothing is meant some files have 10^30.
    pub fn tokens_max(&self) -> Result<Option<f64>> {
        self.settings.number_if_there("model_max_length")
    }

    /// Are special tokens that stand in a text taken for what they are spelled as?
    pub fn splits_special(&self) -> Result<bool> {
        self.settings.flag("split_special_tokens")
    }

    /// Is the model told which of a pair's texts a token is of?
    pub fn tells_types(&self) -> Result<bool> {
        let names = self.settings.texts_if_there("model_input_names")?;
        Ok(names.is_none_or(|names| names.contains(&"token_type_ids")))
    }

    /// Which end of a long text is cut off: what this file says, else `tokenizer.json`.
    pub fn truncated(&self, tokenizer: &Settings) -> Result<TruncationDirection> {
        let key = "truncation_side";
        let side = match self.settings.text_if_there(key)? {
            Some(side) => side,
            None => match tokenizer.part("truncation") {
                Some(truncation) if truncation.get("direction") == "Left" => "left",
                _ => "right",
            },
        };
        match side {
            "left" => Ok(TruncationDirection::Left),
            "right" => Ok(TruncationDirection::Right),
            _ => Err(self.settings.wrong(key, "left or right")),
        }
    }

    /// Changes a `tokenizer.json`, which has been checked, to what the class would have made.
    ///
    /// Errors: a setting that it contradicts, and that can't be changed.
    pub fn apply(&self, tokenizer: &mut Value) -> Result<()> {
        self.special_tokens(tokenizer)?;
        match self.class {
            Class::Bert => self.bert(&mut tokenizer["normalizer"]),
            Class::Roberta => self.roberta(&mut tokenizer["pre_tokenizer"]),
            Class::Pieces => self.pieces(&tokenizer["pre_tokenizer"]),
            Class::File => Ok(()),
        }
    }

    fn special_tokens(&self, tokenizer: &Value) -> Result<()> {
        let known = tokenizer["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
        let find = |token: &str| known.iter().find(|known| known["content"] == token);
        let mut named = Vec::new();
        for key in NAMED {
            let Some((settings, token)) = self.token(key)? else { continue };
            if let Some(own) = self.role(key, tokenizer).filter(|own| own != token) {
                let expected = match &own {
                    Value::Null => "none, as tokenizer.json has it".into(),
                    own => format!("{own}, as tokenizer.json has it"),
                };
                return Err(settings.wrong_value(key, expected, token));
            }
            named.push((settings, key, token));
        }
        for (settings, key) in OTHERS.into_iter().flat_map(|key| [(&self.settings, key), (&self.map, key)]) {
            let tokens: Vec<&Value> = match settings.get(key) {
                Value::Null => continue,
                Value::Array(tokens) => tokens.iter().collect(),
                Value::Object(tokens) => tokens.values().collect(),
                _ => return Err(settings.wrong(key, "a list of tokens, or tokens by their names")),
            };
            for token in tokens {
                named.push((settings, key, content(settings, key, token)?));
            }
        }
        for (settings, key, token) in &named {
            if token.as_str().and_then(find).is_none() {
                return Err(settings.wrong_value(key, "special tokens of tokenizer.json", token));
            }
        }
        if let Some(token) = self.added.keys().find(|token| find(token).is_none()) {
            let expected = "tokens that tokenizer.json adds";
            return Err(self.added.wrong_value("an added token", expected, &json!(token)));
        }
        let decoder = match self.settings.get(DECODER) {
            Value::Null => return Ok(()),
            Value::Object(decoder) => decoder,
            _ => return Err(self.settings.wrong(DECODER, "tokens by their numbers")),
        };
        for (id, token) in decoder {
            let own = token["content"].as_str().and_then(find).unwrap_or(&Value::Null);
            let flag = |flag: &str, default: bool| token[flag].as_bool().unwrap_or(default) == own[flag];
            let is_special = token["special"] == true;
            let same = id.parse::<u64>().is_ok_and(|id| own["id"] == id)
                && ["single_word", "lstrip", "rstrip"].into_iter().all(|key| flag(key, false))
                && flag("normalized", !is_special);
            if !same {
                let expected = match own {
                    Value::Null => "tokens that tokenizer.json adds".into(),
                    own => format!("{own}, as tokenizer.json has it"),
                };
                return Err(self.settings.wrong_value(DECODER, expected, &json!({ id: token })));
            }
        }
        // A family's tokenizers know no others.
        let is_said = |own: &&Value| {
            let said = |token: &Value| token["content"] == own["content"];
            decoder.values().any(said) || named.iter().any(|(_, _, token)| **token == own["content"])
        };
        match known.iter().find(|own| !is_said(own)) {
            Some(own) if self.class != Class::File => {
                let expected = format!("all that tokenizer.json adds, also {}", own["content"]);
                Err(self.settings.wrong_value(DECODER, expected, &json!("others")))
            }
            _ => Ok(()),
        }
    }

    /// What is said to be the token of that name, and where.
    fn token(&self, key: &'static str) -> Result<Option<(&Settings<'static>, &Value)>> {
        let said = |settings: &&Settings<'static>| !settings.get(key).is_null();
        let Some(settings) = [&self.map, &self.settings].into_iter().find(said) else { return Ok(None) };
        Ok(Some((settings, content(settings, key, settings.get(key))?)))
    }

    /// What a token of that name does in the tokens of any text, if a tokenizer of this class does something with it: the token that
    /// `tokenizer.json` has for that.
    fn role(&self, key: &str, tokenizer: &Value) -> Option<Value> {
        let model = &tokenizer["model"];
        let of_pieces = self.class == Class::Pieces;
        match (self.class, key) {
            (Class::File, _) => None,
            (Class::Bert, "unk_token") => Some(model["unk_token"].clone()),
            (Class::Pieces, "unk_token") => {
                Some(model["vocab"][model["unk_id"].as_u64()? as usize][0].clone())
            }
            (_, "cls_token") => Some(around(&tokenizer["post_processor"], true)),
            (_, "sep_token") => Some(around(&tokenizer["post_processor"], false)),
            (_, "bos_token") if of_pieces => Some(around(&tokenizer["post_processor"], true)),
            (_, "eos_token") if of_pieces => Some(around(&tokenizer["post_processor"], false)),
            _ => None,
        }
    }

    fn bert(&self, normalizer: &mut Value) -> Result<()> {
        let [lower, accents, chinese] = ["do_lower_case", "strip_accents", "tokenize_chinese_chars"];
        let flag = |key| -> Result<Option<bool>> {
            Ok(if self.settings.get(key).is_null() { None } else { Some(self.settings.flag(key)?) })
        };
        if normalizer["type"] == "BertNormalizer" {
            normalizer["clean_text"] = json!(true);
            normalizer["lowercase"] = json!(flag(lower)?.unwrap_or(true));
            normalizer["strip_accents"] = json!(flag(accents)?);
            normalizer["handle_chinese_chars"] = json!(flag(chinese)?.unwrap_or(true));
            return Ok(());
        }
        let steps = steps(normalizer, "normalizers");
        let any = |kind: &str, option: &str| {
            steps
                .iter()
                .any(|step| step["type"] == kind || step["type"] == "BertNormalizer" && step[option] == true)
        };
        let does = [
            (lower, any("Lowercase", "lowercase")),
            (accents, any("StripAccents", "strip_accents")),
            (chinese, any("", "handle_chinese_chars")),
        ];
        for (key, does) in does {
            self.agrees(key, flag(key)?, does)?;
        }
        Ok(())
    }

    fn roberta(&self, splitter: &mut Value) -> Result<()> {
        let key = "add_prefix_space";
        let wanted = self.prefix_space()?;
        if splitter["type"] == "ByteLevel" {
            splitter[key] = json!(wanted.unwrap_or(false));
            return Ok(());
        }
        let steps = steps(splitter, "pretokenizers");
        let does = steps.iter().any(|step| step["type"] == "ByteLevel" && step[key] == true);
        self.agrees(key, wanted, does)
    }

    fn pieces(&self, splitter: &Value) -> Result<()> {
        let steps = steps(splitter, "pretokenizers");
        let adds = |step: &&Value| match step["prepend_scheme"].as_str() {
            Some(scheme) => scheme != "never",
            None => step["add_prefix_space"] != false,
        };
        let does = steps.into_iter().filter(|step| step["type"] == "Metaspace").any(|step| adds(&step));
        self.agrees("add_prefix_space", self.prefix_space()?, does)
    }

    fn prefix_space(&self) -> Result<Option<bool>> {
        let key = "add_prefix_space";
        Ok(if self.settings.get(key).is_null() { None } else { Some(self.settings.flag(key)?) })
    }

    /// Errors: this is said, and isn't what the file does.
    fn agrees(&self, key: &'static str, said: Option<bool>, does: bool) -> Result<()> {
        match said {
            Some(said) if said != does => {
                Err(self.settings.wrong(key, format!("{does}, which is what tokenizer.json does")))
            }
            _ => Ok(()),
        }
    }
}

/// One step, or those of a sequence.
fn steps<'a>(part: &'a Value, list: &str) -> Vec<&'a Value> {
    match part[list].as_array() {
        Some(steps) => steps.iter().collect(),
        None => vec![part],
    }
}

/// What a token is spelled as: itself, or what its settings say.
fn content<'a>(settings: &Settings<'_>, key: &'static str, token: &'a Value) -> Result<&'a Value> {
    let content = if token.is_object() { &token["content"] } else { token };
    if content.is_string() { Ok(content) } else { Err(settings.wrong_value(key, "a token", token)) }
}

/// The special token before or behind a text, if there is one.
fn around(processor: &Value, before: bool) -> Value {
    if let Some(pieces) = processor["single"].as_array() {
        let piece = if before { pieces.first() } else { pieces.last() };
        return piece.map_or(Value::Null, |piece| piece["SpecialToken"]["id"].clone());
    }
    processor[if before { "cls" } else { "sep" }][0].clone()
}
