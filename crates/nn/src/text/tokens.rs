//! From texts to tokens.

use super::{
    ModelError, Result, cut::Cuts, settings::Settings, tokenizer_config::TokenizerConfig, tokenizer_file,
};
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
    /// How many of the first stand for a prompt, special ones in front included: models may leave them out where they pool
    /// (`include_prompt` of sentence-transformers). See [`Tokenizer::tokenize_behind`].
    pub prompt: usize,
}

/// Of one text, so all of kind 0.
impl From<Vec<u32>> for Tokens {
    fn from(ids: Vec<u32>) -> Tokens {
        Tokens { types: vec![0; ids.len()], ids, prompt: 0 }
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
    /// It is cut as the model's files say (`truncation_side`): for most its end is cut off. Of a pair that of the longer text
    /// is.
    Truncate,
    /// Its beginning is cut off, likewise; special tokens stay.
    TruncateLeft,
    /// Its end is cut off, likewise.
    TruncateRight,
    /// It is an error.
    Refuse,
}

/// The tokenizer of a model. It may be used by any number of threads at once; nothing blocks.
pub struct Tokenizer {
    file: PathBuf,
    pub(super) tokenizer: tokenizers::Tokenizer,
    tokens_max: usize,
    /// Special tokens and one of each text.
    tokens_min: usize,
    /// What [`TooLong::Truncate`] is.
    truncated: TruncationDirection,
    cuts: Cuts,
    /// Have the tokens of a pair's second text a type of their own?
    tells_types: bool,
}

/// A text's tokens without special ones: all of them, or more than the model takes, from the end that is kept.
struct Pieces {
    encoding: Encoding,
    is_whole: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and `tokenizer_config.json`, and `sentence_bert_config.json` or else the latter for the limit, of a
    /// folder, for a model of so many tokens and positions, whose `config.json` this is. What `tokenizer.json` says of padding,
    /// and how long texts may be, is ignored: they are the model's.
    pub(super) fn load(
        folder: &Path,
        model: &Settings,
        vocabulary: usize,
        positions: usize,
    ) -> Result<Tokenizer> {
        let file = folder.join("tokenizer.json");
        let config = TokenizerConfig::read(folder, model)?;
        let (mut tokenizer, truncated) = tokenizer_file::read(file.clone(), &config)?;
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
            |settings: &Settings<'_>| settings.count_if_there("max_seq_length", tokens_min..=usize::MAX);
        let tokens_max = match settings.as_ref().map(limit).transpose()?.flatten() {
            // More are said of some models than they have positions; none of them takes such a text.
            Some(own) => own.min(positions),
            None => match config.tokens_max()? {
                Some(most) if most < positions as f64 => (most as usize).clamp(tokens_min, positions),
                _ => positions,
            },
        };
        if settings.map(|settings| settings.flag("do_lower_case")).transpose()?.unwrap_or(false) {
            lower_case(&mut tokenizer).map_err(|error| failed(&file, error))?;
        }
        let cuts = Cuts::of(&tokenizer);
        let tells_types = config.tells_types()?;
        Ok(Tokenizer { file, tokenizer, tokens_max, tokens_min, truncated, cuts, tells_types })
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

    /// What is meant by [`TooLong::Truncate`] for this model; others are what they are.
    pub fn resolve(&self, too_long: TooLong) -> TooLong {
        match (too_long, self.truncated) {
            (TooLong::Truncate, TruncationDirection::Left) => TooLong::TruncateLeft,
            (TooLong::Truncate, TruncationDirection::Right) => TooLong::TruncateRight,
            _ => too_long,
        }
    }

    /// The tokens of texts. An empty text has the special ones.
    ///
    /// Of a text that is much longer than the model takes only a part is tokenized, where that gives the same tokens: up to a
    /// word's end, if there is one (for BERT's tokenizers at white space, punctuation or Chinese characters, for others at
    /// spaces behind letters). A text without any is tokenized whole: some seconds for 2 MB.
    ///
    /// Errors: a text that is too long, with its index, if such are refused; if the text wasn't tokenized whole, with the least
    /// number of tokens that it has.
    pub fn tokenize<S: AsRef<str>>(&self, texts: &[S], too_long: TooLong) -> Result<Vec<Tokens>> {
        let tokens = |(index, text): (usize, &S)| self.one(index, text.as_ref(), too_long);
        texts.iter().enumerate().map(tokens).collect()
    }

    /// The tokens of texts behind a prompt, which is told apart ([`Tokens::prompt`]) for models that don't pool it. As many
    /// tokens are a prompt's as it has alone.
    ///
    /// Errors: as [`tokenize`](Tokenizer::tokenize).
    pub fn tokenize_behind<S: AsRef<str>>(
        &self,
        prompt: &str,
        texts: &[S],
        too_long: TooLong,
    ) -> Result<Vec<Tokens>> {
        if prompt.is_empty() {
            return self.tokenize(texts, too_long);
        }
        let alone = self.one(0, prompt, TooLong::Truncate)?.ids;
        let is_special = |id: &u32| {
            let token = self.tokenizer.id_to_token(*id);
            token.is_some_and(|token| self.tokenizer.get_added_vocabulary().is_special_token(&token))
        };
        let count = alone.len() - usize::from(alone.last().is_some_and(is_special));
        let tokens = |(index, text): (usize, &S)| {
            let tokens = self.one(index, &format!("{prompt}{}", text.as_ref()), too_long)?;
            Ok(Tokens { prompt: count, ..tokens })
        };
        texts.iter().enumerate().map(tokens).collect()
    }

    fn one(&self, index: usize, text: &str, too_long: TooLong) -> Result<Tokens> {
        let too_long = self.resolve(too_long);
        let first = self.pieces(text, self.inside(false), too_long)?;
        self.finish(index, first.encoding, None, too_long, first.is_whole)
    }

    /// The tokens of pairs of one text and each of others. Of long texts parts are tokenized, as by
    /// [`tokenize`](Tokenizer::tokenize), unless both are too long and it has to be known which is longer.
    ///
    /// Errors: a pair that is too long, with its index, if such are refused.
    pub fn tokenize_pairs<S: AsRef<str>>(
        &self,
        first: &str,
        seconds: &[S],
        too_long: TooLong,
    ) -> Result<Vec<Tokens>> {
        let (too_long, inside) = (self.resolve(too_long), self.inside(true));
        let part = |text: &str| self.pieces(text, inside, too_long);
        // Of two texts past the limit the longer one has an odd token.
        let counts = too_long != TooLong::Refuse && !inside.is_multiple_of(2);
        let count_of = |text: &str, pieces: &Pieces| -> Result<usize> {
            Ok(if pieces.is_whole { pieces.encoding.len() } else { self.encode(text)?.len() })
        };
        let (one, mut whole) = (part(first)?, None);
        let kept = |encoding: &Encoding, most: usize| match too_long {
            TooLong::Refuse => encoding.clone(),
            _ => cut(encoding.clone(), most, too_long),
        };
        // Each pair has a copy of it, of which no more than the limit is ever kept.
        let (longer, equal) = (kept(&one.encoding, inside + 1), kept(&one.encoding, inside));
        let tokens = |(index, second): (usize, &S)| {
            let other = part(second.as_ref())?;
            let is_whole = one.is_whole && other.is_whole;
            let (mut begin, mut end) = (&longer, other.encoding.len());
            if counts && one.encoding.len() > inside && end > inside {
                let count = match whole {
                    Some(count) => count,
                    None => *whole.insert(count_of(first, &one)?),
                };
                match count > count_of(second.as_ref(), &other)? {
                    true => end = inside,
                    false => begin = &equal,
                }
            }
            let (begin, end) = (begin.clone(), cut(other.encoding, end, too_long));
            self.finish(index, begin, Some(end), too_long, is_whole)
        };
        seconds.iter().enumerate().map(tokens).collect()
    }

    /// Tokens that a text or a pair may have, without special ones.
    fn inside(&self, is_pair: bool) -> usize {
        self.tokens_max.saturating_sub(self.special(is_pair))
    }

    fn special(&self, is_pair: bool) -> usize {
        self.tokenizer.get_post_processor().map_or(0, |last| last.added_tokens(is_pair))
    }

    /// The tokens of a text without the special ones: all of them, or more than `count`.
    fn pieces(&self, text: &str, count: usize, too_long: TooLong) -> Result<Pieces> {
        let from_the_end = too_long == TooLong::TruncateLeft;
        let (encoding, is_whole) =
            self.cuts.enough(text, count, from_the_end, |part| self.encode(part), Encoding::len)?;
        Ok(Pieces { encoding, is_whole })
    }

    fn encode(&self, text: &str) -> Result<Encoding> {
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
        is_whole: bool,
    ) -> Result<Tokens> {
        let special = self.special(second.is_some());
        let count = first.len() + second.as_ref().map_or(0, Encoding::len) + special;
        if count > self.tokens_max && too_long == TooLong::Refuse {
            let least = if is_whole { "" } else { "at least " };
            let (expected, found) = (format!("at most {}", self.tokens_max), format!("{least}{count}"));
            return Err(ModelError::Text { index, what: "the number of tokens", expected, found });
        }
        let params = TruncationParams {
            max_length: self.tokens_max.saturating_sub(special),
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: direction(too_long),
        };
        let cut = tokenizers::utils::truncation::truncate_encodings(first, second, &params);
        let finish = |(first, second)| self.tokenizer.post_process(first, second, true);
        let encoding = cut.and_then(finish).map_err(|error| self.failed(error))?;
        let ids = encoding.get_ids().to_vec();
        let types = if self.tells_types { encoding.get_type_ids().to_vec() } else { vec![0; ids.len()] };
        Ok(Tokens { ids, types, prompt: 0 })
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

/// Which end is cut off, if it has been resolved.
fn direction(too_long: TooLong) -> TruncationDirection {
    match too_long {
        TooLong::TruncateLeft => TruncationDirection::Left,
        TooLong::Truncate | TooLong::TruncateRight | TooLong::Refuse => TruncationDirection::Right,
    }
}

/// At most so many tokens, and nothing of the rest.
fn cut(mut encoding: Encoding, tokens_max: usize, too_long: TooLong) -> Encoding {
    encoding.truncate(tokens_max, 0, direction(too_long));
    drop(encoding.take_overflowing());
    encoding
}
