//! `tokenizer_config.json`: what transformers makes of it, where it says something else than `tokenizer.json`.
//!
//! Its classes of tokenizers for BERT and RoBERTa read the vocabulary out of `tokenizer.json` and take the settings from here,
//! with defaults of their own: a file of a cased tokenizer without `"do_lower_case": false` beside it is an uncased one. So it
//! is done here. Where the versions of transformers differ, as for a normalizer of another kind, a setting that contradicts the
//! file is an error. Classes of no family (`PreTrainedTokenizerFast`) take `tokenizer.json` as it is.

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

/// The file, if it is there, and the class of the tokenizer.
pub struct TokenizerConfig {
    settings: Settings<'static>,
    class: Class,
}

impl TokenizerConfig {
    /// Of a folder with the `config.json` of a model.
    pub fn read(folder: &Path, model: &Settings) -> Result<TokenizerConfig> {
        let file = folder.join("tokenizer_config.json");
        let settings = Settings::read_if_there(file.clone())?;
        let class = Class::read(settings.as_ref(), model)?;
        Ok(TokenizerConfig { settings: settings.unwrap_or_else(|| Settings::none(file)), class })
    }

    /// The most tokens of a text. Where nothing is meant some files have 10^30.
    pub fn tokens_max(&self) -> Result<Option<f64>> {
        self.settings.number_if_there("model_max_length")
    }

    /// Are special tokens that stand in a text taken for what they are spelled as?
    pub fn splits_special(&self) -> Result<bool> {
        self.settings.flag("split_special_tokens")
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
        match self.class {
            Class::Bert => self.bert(&mut tokenizer["normalizer"]),
            Class::Roberta => self.roberta(&mut tokenizer["pre_tokenizer"]),
            Class::Pieces => self.pieces(&tokenizer["pre_tokenizer"]),
            Class::File => Ok(()),
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
