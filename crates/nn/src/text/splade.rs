//! Texts to sparse vectors: how much each token of the vocabulary has to do with a text (SPLADE, Formal et al. 2021).

use super::{
    BertConfig, Family, ModelOptions, Result, Tokenizer, Tokens, TooLong,
    activation::ActivationKind,
    batch::Group,
    bert::{as_multiplied, take_linear, take_norm},
    captured::What,
    encoder::Reader,
    rows::join,
    settings::Settings,
};
use crate::{LayerNorm, Linear, Module};
use raddle_tensor::{DType, Device, Tensor};
use std::{borrow::Borrow, path::Path};

/// Scores of tokens that are there at once, unless one text has more (a guess: 32 MiB in f32).
const SCORES_MAX: usize = 1 << 23;

/// A sparse encoder: a BERT encoder with the head of a masked language model. The element of a token of the vocabulary is
/// `log(1 + max(0, s))`, where `s` is the largest score that the head gives it at any token of the text. See the
/// [module](super) for what it guarantees.
pub struct SparseEncoder {
    reader: Reader,
    transform: Linear,
    activation: ActivationKind,
    norm: LayerNorm,
    /// [vocabulary, width of the tables], without the bias, which is added to the largest.
    decoder: Linear,
    bias: Tensor,
}

/// What files call the head: its first map, normalization and second map, and what is added at last.
fn names(family: Family) -> [&'static str; 4] {
    match family {
        Family::Bert => [
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
            "cls.predictions.bias",
        ],
        Family::Roberta | Family::MpNet => {
            ["lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"]
        }
        Family::DistilBert => {
            ["vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"]
        }
        Family::Electra => [
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
            "generator_lm_head.bias",
        ],
    }
}

impl SparseEncoder {
    /// Loads a model in f32 from a folder, as it is saved of a `BertForMaskedLM` (or RoBERTa's, DistilBERT's or MPNet's), or by
    /// sentence-transformers of a `SparseEncoder`: `config.json`, `tokenizer.json`, `model.safetensors`, and `modules.json` with
    /// what it names if that is there. Reads the files, and doesn't wait for the device.
    ///
    /// Errors: what is missing, broken or not known, with its file and place.
    pub fn load(folder: impl AsRef<Path>, device: &Device) -> Result<SparseEncoder> {
        SparseEncoder::load_with(folder, device, &ModelOptions::default())
    }

    /// [`load`](SparseEncoder::load) with options.
    pub fn load_with(
        folder: impl AsRef<Path>,
        device: &Device,
        options: &ModelOptions,
    ) -> Result<SparseEncoder> {
        let folder = folder.as_ref();
        check_modules(folder)?;
        let settings = Settings::read(folder.join("config.json"))?;
        let (reader, mut weights) = Reader::load(folder, device, options)?;
        let config = &reader.bert.config;
        let BertConfig { family, hidden, vocabulary, activation, eps, .. } = *config;
        let width = config.embedding();
        let [dense, norm, decoder, bias] = names(family);
        let weights = weights.without_prefix();
        // As in the input unless the file says otherwise.
        let words = match settings.flag_or("tie_word_embeddings", true)? {
            true => reader.bert.words.clone(),
            false => weights.take(&format!("{decoder}.weight"), &[Some(vocabulary), Some(width)])?,
        };
        // Of the two names that it has in a model files keep one.
        let other = format!("{decoder}.bias");
        let bias = if weights.has(bias) { bias } else { &other };
        let decoder = Linear { weight: as_multiplied(&words.to_dtype(options.dtype)?)?, bias: None };
        let activation = match family {
            Family::Bert | Family::DistilBert => activation,
            Family::Roberta | Family::MpNet | Family::Electra => ActivationKind::Gelu,
        };
        Ok(SparseEncoder {
            transform: take_linear(weights, dense, [width, hidden], options.dtype)?,
            norm: take_norm(weights, norm, width, eps, options.dtype)?,
            bias: weights.take(bias, &[Some(vocabulary)])?,
            activation,
            decoder,
            reader,
        })
    }

    /// The vectors of texts, [texts, [`width`](SparseEncoder::width)] in f32, of which most elements are 0. As
    /// [`SentenceEncoder::encode`](super::SentenceEncoder::encode).
    pub fn encode<S: AsRef<str>>(&self, texts: &[S]) -> Result<Tensor> {
        self.encode_tokens(&self.tokenizer().tokenize(texts, TooLong::Truncate)?)
    }

    /// [`encode`](SparseEncoder::encode) of tokens.
    ///
    /// Errors: besides, tokens that the model doesn't know, none or too many, with the index of the text. Then nothing was
    /// computed.
    pub fn encode_tokens<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<Tensor> {
        let rows = self.reader.rows(texts, What::Sparse, |batch, hidden| {
            let mut largest = Vec::new();
            for group in &batch.groups {
                self.largest(group, hidden, &mut largest)?;
            }
            join(&largest)?.to_dtype(DType::F32)?.add(&self.bias)?.relu()?.log1p()
        })?;
        rows.kept()
    }

    /// The largest score of each token of the vocabulary, without its bias, for a few texts at a time.
    fn largest(&self, group: &Group, hidden: &Tensor, to: &mut Vec<Tensor>) -> raddle_tensor::Result<()> {
        let (rows, length, vocabulary) = (group.rows(hidden)?, group.length, self.width());
        let at_once = (SCORES_MAX / (length * vocabulary)).max(1);
        for first in (0..group.texts).step_by(at_once) {
            let texts = at_once.min(group.texts - first);
            let rows = rows.narrow(0, first, texts)?.reshape([texts * length, rows.shape()[2]])?;
            let rows = self.norm.forward(&self.activation.behind(&self.transform, &rows)?)?;
            let scores = self.decoder.forward(&rows)?.view([texts, length, vocabulary])?;
            let scores = match &group.padding {
                Some(padding) => {
                    let mask = padding.mask.narrow(0, first, texts)?.unsqueeze(2)?;
                    mask.where_(&scores, f64::NEG_INFINITY)?
                }
                None => scores,
            };
            to.push(scores.amax(1, false)?);
        }
        Ok(())
    }

    /// Looks at what [`encode_tokens`](SparseEncoder::encode_tokens) would refuse, and computes nothing.
    ///
    /// Errors: tokens that the model doesn't know, none or too many, with the index of the text.
    pub fn check_tokens<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<()> {
        self.reader.check_all(texts)
    }

    /// What makes tokens of texts.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.reader.tokenizer
    }

    /// The tokens that are computed for a text of so many: the rest is padding.
    pub fn padded_token_count(&self, tokens: usize) -> usize {
        self.reader.padded_token_count(tokens)
    }

    /// Elements of a vector: tokens of the vocabulary.
    pub fn width(&self) -> usize {
        self.reader.bert.config.vocabulary
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.reader.device
    }
}

/// Errors: `modules.json` is there and names something else than a transformer and the largest of what it says.
fn check_modules(folder: &Path) -> Result<()> {
    let Some(list) = Settings::read_if_there(folder.join("modules.json"))? else { return Ok(()) };
    let order = "MLMTransformer or Transformer, then SpladePooling";
    for (index, module) in list.items()?.iter().enumerate() {
        match (module.text("type")?.rsplit('.').next(), index) {
            (Some("MLMTransformer" | "Transformer"), 0) => {}
            (Some("SpladePooling"), 1) => {
                let settings = Settings::read(module.folder("path")?.join("config.json"))?;
                for (key, known) in [("pooling_strategy", "max"), ("activation_function", "relu")] {
                    if settings.text_if_there(key)?.is_some_and(|found| found != known) {
                        return Err(settings.wrong(key, known));
                    }
                }
            }
            _ => return Err(module.wrong("type", order)),
        }
    }
    Ok(())
}
