//! From texts to tokens.

use super::{ModelError, Result, folder::Settings, tokenizer_file};
use crate::checkpoint::CheckpointError;
use std::path::{Path, PathBuf};
use tokenizers::{
    Encoding, NormalizerWrapper, PostProcessor, TruncationDirection, TruncationParams, TruncationStrategy,
    normalizers::{Lowercase, Sequence},
};

/// What stands for a text: numbers of tokens, `[CLS]` and the like among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Rows of the model's vocabulary.
    pub ids: Vec<u32>,
    /// For each of them its kind: 0, or 1 in the second text of a pair.
    pub types: Vec<u32>,
}

/// Of one text, so all of kind 0.
impl From<Vec<u32>> for Tokens {
    fn from(ids: Vec<u32>) -> Tokens {
        Tokens { types: vec![0; ids.len()], ids }
    }
}

/// The names that sentence-transformers has had for its settings, newest first.
const SETTINGS: [&str; 8] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
    "sentence_mpnet_config.json",
];

/// What is done with a text of more tokens than the model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLong {
    /// Its end is cut off. Of a pair that of the longer text is.
    Truncate,
    /// Its beginning is cut off, likewise; special tokens stay.
    TruncateLeft,
    /// It is an error.
    Refuse,
}

impl TooLong {
    fn direction(self) -> TruncationDirection {
        match self {
            TooLong::TruncateLeft => TruncationDirection::Left,
            TooLong::Truncate | TooLong::Refuse => TruncationDirection::Right,
        }
    }
}

/// The tokenizer of a model. It may be used by any number of threads at once; nothing blocks.
pub struct Tokenizer {
    file: PathBuf,
    pub(super) tokenizer: tokenizers::Tokenizer,
    tokens_max: usize,
    /// Special tokens and one of each text.
    tokens_min: usize,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and `sentence_bert_config.json` or else `tokenizer_config.json` for the limit, of a folder,
    /// for a model of so many tokens and positions. What the former says of truncation and padding is ignored: they are the
    /// model's.
    pub(super) fn load(folder: &Path, vocabulary: usize, positions: usize) -> Result<Tokenizer> {
        let file = folder.join("tokenizer.json");
        let mut tokenizer = tokenizer_file::read(file.clone())?;
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0) as usize;
        if largest >= vocabulary {
            let (expected, found) = (format!("below vocab_size, {vocabulary}"), largest.to_string());
            return Err(CheckpointError::Format { file, what: "the largest token", expected, found }.into());
        }
        // Special tokens leave room for one of each text.
        let special = |is_pair| tokenizer.get_post_processor().map_or(0, |last| last.added_tokens(is_pair));
        let tokens_min = (special(true) + 2).max(special(false) + 1);
        if positions < tokens_min {
            let (what, found) = ("max_position_embeddings", positions.to_string());
            let file = folder.join("config.json");
            let expected = format!("at least {tokens_min}, with special tokens");
            return Err(CheckpointError::Format { file, what, expected, found }.into());
        }
        let mut settings = None;
        for name in SETTINGS {
            if settings.is_none() {
                settings = Settings::read_if_there(folder.join(name))?;
            }
        }
        let limit =
            |settings: &Settings<'_>| settings.count_if_there("max_seq_length", tokens_min..=positions);
        let own = settings.as_ref().map(limit).transpose()?.flatten();
        let tokens_max = match own {
            Some(own) => own,
            // Where nothing is said some files have 10^30.
            None => match Settings::read_if_there(folder.join("tokenizer_config.json"))? {
                Some(settings) => match settings.number_if_there("model_max_length")? {
                    Some(most) if most < positions as f64 => (most as usize).clamp(tokens_min, positions),
                    _ => positions,
                },
                None => positions,
            },
        };
        if settings.map(|settings| settings.flag("do_lower_case")).transpose()?.unwrap_or(false) {
            lower_case(&mut tokenizer).map_err(|error| failed(&file, error))?;
        }
        Ok(Tokenizer { file, tokenizer, tokens_max, tokens_min })
    }

    /// The least that a limit may be.
    pub(super) fn tokens_min(&self) -> usize {
        self.tokens_min
    }

    /// Takes so many tokens of a text.
    pub(super) fn limit(&mut self, tokens_max: usize) {
        self.tokens_max = tokens_max;
    }

    /// The most tokens of a text that the model takes, special ones included: so many are taken, one more isn't.
    pub fn tokens_max(&self) -> usize {
        self.tokens_max
    }

    /// The tokens of texts. An empty text has the special ones.
    ///
    /// Errors: a text that is too long, with its index, if such are refused.
    pub fn tokenize<S: AsRef<str>>(&self, texts: &[S], too_long: TooLong) -> Result<Vec<Tokens>> {
        let tokens =
            |(index, text): (usize, &S)| self.finish(index, self.pieces(text.as_ref())?, None, too_long);
        texts.iter().enumerate().map(tokens).collect()
    }

    /// The tokens of pairs of one text and each of others.
    ///
    /// Errors: a pair that is too long, with its index, if such are refused.
    pub fn tokenize_pairs<S: AsRef<str>>(
        &self,
        first: &str,
        seconds: &[S],
        too_long: TooLong,
    ) -> Result<Vec<Tokens>> {
        let whole = self.pieces(first)?;
        let count = whole.len();
        // Each pair has a copy of it, of which no more than the limit is ever kept.
        let first = match too_long {
            TooLong::Refuse => whole,
            _ => cut(whole, self.tokens_max + 1, too_long),
        };
        let tokens = |(index, second): (usize, &S)| {
            let mut second = self.pieces(second.as_ref())?;
            // The longer text stays the longer one: which it is says where an odd token goes.
            if first.len() < count && second.len() < count {
                second = cut(second, self.tokens_max, too_long);
            }
            self.finish(index, first.clone(), Some(second), too_long)
        };
        seconds.iter().enumerate().map(tokens).collect()
    }

    /// The tokens of a text without the special ones.
    fn pieces(&self, text: &str) -> Result<Encoding> {
        self.tokenizer.encode_fast(text, false).map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: tokenizers::Error) -> ModelError {
        failed(&self.file, error)
    }

    /// Cuts what is too long and adds the special tokens.
    fn finish(
        &self,
        index: usize,
        first: Encoding,
        second: Option<Encoding>,
        too_long: TooLong,
    ) -> Result<Tokens> {
        let special =
            self.tokenizer.get_post_processor().map_or(0, |last| last.added_tokens(second.is_some()));
        let count = first.len() + second.as_ref().map_or(0, Encoding::len) + special;
        if count > self.tokens_max && too_long == TooLong::Refuse {
            let (expected, found) = (format!("at most {}", self.tokens_max), count.to_string());
            return Err(ModelError::Text { index, what: "the number of tokens", expected, found });
        }
        let params = TruncationParams {
            max_length: self.tokens_max.saturating_sub(special),
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: too_long.direction(),
        };
        let cut = tokenizers::utils::truncation::truncate_encodings(first, second, &params);
        let finish = |(first, second)| self.tokenizer.post_process(first, second, true);
        let encoding = cut.and_then(finish).map_err(|error| self.failed(error))?;
        Ok(Tokens { ids: encoding.get_ids().to_vec(), types: encoding.get_type_ids().to_vec() })
    }
}

fn failed(file: &Path, error: tokenizers::Error) -> ModelError {
    ModelError::Tokenizer { file: file.into(), reason: error.to_string() }
}

/// Makes lower-casing the first step, as sentence-transformers does: it isn't done to special tokens that stand in a text, and
/// places are those in the text as it was.
fn lower_case(tokenizer: &mut tokenizers::Tokenizer) -> tokenizers::Result<()> {
    let known: Vec<NormalizerWrapper> = match tokenizer.get_normalizer() {
        Some(NormalizerWrapper::Sequence(steps)) => steps.as_ref().to_vec(),
        step => step.cloned().into_iter().collect(),
    };
    if !known.iter().any(|step| matches!(step, NormalizerWrapper::Lowercase(_))) {
        let steps = std::iter::once(NormalizerWrapper::Lowercase(Lowercase)).chain(known).collect();
        tokenizer.with_normalizer(Some(Sequence::new(steps)))?;
    }
    Ok(())
}

/// At most so many tokens, and nothing of the rest.
fn cut(mut encoding: Encoding, tokens_max: usize, too_long: TooLong) -> Encoding {
    encoding.truncate(tokens_max, 0, too_long.direction());
    drop(encoding.take_overflowing());
    encoding
}
