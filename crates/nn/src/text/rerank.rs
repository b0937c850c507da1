//! Pairs of texts to scores.

use super::{
    ActivationKind, Family, ModelOptions, Result, Tokenizer, Tokens, TooLong, bert::take_linear,
    captured::What, encoder::Reader, rows::join,
};
use crate::{Linear, Module};
use raddle_tensor::{DType, Device, Tensor};
use std::{borrow::Borrow, path::Path};

/// A cross-encoder: a BERT encoder that reads both texts of a pair at once, and a head on its first token. See the
/// [module](super) for what it guarantees.
pub struct CrossEncoder {
    reader: Reader,
    pooler: Linear,
    classifier: Linear,
}

impl CrossEncoder {
    /// Loads a model in f32 from a folder, as it is saved of a `BertForSequenceClassification` (or RoBERTa's,
    /// DistilBERT's, MPNet's or ELECTRA's): `config.json`, `tokenizer.json`, `model.safetensors`. Reads the files, and doesn't wait for the device.
    ///
    /// Errors: what is missing, broken or not known, with its file and place.
    pub fn load(folder: impl AsRef<Path>, device: &Device) -> Result<CrossEncoder> {
        CrossEncoder::load_with(folder, device, &ModelOptions::default())
    }

    /// [`load`](CrossEncoder::load) with options.
    pub fn load_with(
        folder: impl AsRef<Path>,
        device: &Device,
        options: &ModelOptions,
    ) -> Result<CrossEncoder> {
        let (reader, weights) = Reader::load(folder.as_ref(), device, options)?;
        let hidden = reader.bert.config.hidden;
        // The head: a map of the first token, and one of that to the scores.
        let (first, last) = match reader.bert.config.family {
            Family::Bert => (None, "classifier"),
            Family::Roberta | Family::MpNet | Family::Electra => {
                (Some("classifier.dense"), "classifier.out_proj")
            }
            Family::DistilBert => (Some("pre_classifier"), "classifier"),
        };
        let head = |name: &str, labels: Option<usize>| -> Result<Linear> {
            let weight = weights.take_named(format!("{name}.weight"), &[labels, Some(hidden)])?;
            let bias = weights.take_named(format!("{name}.bias"), &[Some(weight.shape()[0])])?;
            let bias = Some(bias.to_dtype(options.dtype)?);
            Ok(Linear { weight: weight.to_dtype(options.dtype)?, bias })
        };
        let classifier = head(last, None)?;
        let pooler = match first {
            Some(name) => head(name, Some(hidden))?,
            None => take_linear(&weights, "pooler.dense", [hidden, hidden], options.dtype)?,
        };
        Ok(CrossEncoder { reader, pooler, classifier })
    }

    /// How well texts answer a query, [texts, labels] in f32: what the head says, before any sigmoid or softmax. Of pairs
    /// past [`tokens_max`](Tokenizer::tokens_max) the longer text is cut off. Tokenizes on this thread, and doesn't wait for
    /// the device (on the CPU it computes on this thread, as all ops do).
    ///
    /// Errors: an empty list; those of the device.
    pub fn score<S: AsRef<str>>(&self, query: &str, texts: &[S]) -> Result<Tensor> {
        self.score_tokens(&self.tokenizer().tokenize_pairs(query, texts, TooLong::Truncate)?)
    }

    /// [`score`](CrossEncoder::score) of tokens of pairs.
    ///
    /// Errors: besides, tokens that the model doesn't know, none or too many, with the index of the pair. Then nothing was
    /// computed.
    pub fn score_tokens<T: Borrow<Tokens>>(&self, pairs: &[T]) -> Result<Tensor> {
        let rows = self.reader.rows(pairs, What::Scores, |batch, hidden| {
            let first = |group: &super::batch::Group| group.rows(hidden)?.select(1, 0);
            let first = batch.groups.iter().map(first).collect::<raddle_tensor::Result<Vec<_>>>()?;
            let activation = match self.reader.bert.config.family {
                Family::DistilBert => ActivationKind::Relu,
                Family::Bert | Family::Roberta | Family::MpNet => ActivationKind::Tanh,
                Family::Electra => ActivationKind::Gelu,
            };
            let pooled = activation.behind(&self.pooler, &join(&first)?)?;
            self.classifier.forward(&pooled)?.to_dtype(DType::F32)
        })?;
        rows.kept()
    }

    /// Looks at what [`score_tokens`](CrossEncoder::score_tokens) would refuse, and computes nothing.
    ///
    /// Errors: tokens that the model doesn't know, none or too many, with the index of the pair.
    pub fn check_tokens<T: Borrow<Tokens>>(&self, pairs: &[T]) -> Result<()> {
        self.reader.check_all(pairs)
    }

    /// Takes fewer tokens of a pair, or more, up to the model's positions.
    ///
    /// Errors: fewer than 5, or too many.
    pub fn limit_tokens(&mut self, tokens_max: usize) -> Result<()> {
        self.reader.limit_tokens(tokens_max)
    }

    /// What makes tokens of pairs.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.reader.tokenizer
    }

    /// The tokens that are computed for a pair of so many: the rest is padding.
    pub fn padded_token_count(&self, tokens: usize) -> usize {
        self.reader.padded_token_count(tokens)
    }

    /// Numbers that it gives for a pair.
    pub fn labels(&self) -> usize {
        self.classifier.weight.shape()[0]
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.reader.device
    }
}
