//! What an engine runs, as its folder says.

use super::{
    EngineOptions, Model,
    model::{Inner, settings},
};
use raddle_nn::text::{ModelError, Pooling, Tokens, TooLong};
use raddle_tensor::DType;
use serde_json::Value;
use std::collections::BTreeMap;

/// What an engine runs.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The name of the model: that of its folder.
    pub name: String,
    /// Vectors or scores.
    pub kind: Kind,
    /// What it computes in.
    pub dtype: DType,
    /// The device as the user names it.
    pub device: String,
    /// The most tokens of a text, special ones included.
    pub tokens_max: usize,
    /// Tokens in a batch.
    pub batch_tokens_max: usize,
    /// Texts in a batch.
    pub batch_count_max: usize,
    /// Batches that run at once.
    pub running_count_max: usize,
    /// Texts that wait.
    pub waiting_count_max: usize,
    /// What may be put in front of texts.
    pub prompts: Prompts,
    pub(super) special: Special,
}

/// What a row is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A vector.
    Encoder {
        /// Its elements.
        width: usize,
        /// How it is made of those of tokens; several are side by side.
        pooling: Vec<Pooling>,
        /// Whether the model's folder says that it is normalized.
        normalize: bool,
        /// Elements of the vector of a token.
        token_width: usize,
    },
    /// A number for each token of the vocabulary, of which most are 0.
    Sparse {
        /// Elements of a vector.
        width: usize,
    },
    /// A number for each label; a reranker if there is one label, else a classifier.
    Reranker {
        /// Their names, in order.
        labels: Vec<String>,
        /// What makes probabilities of the numbers.
        function: Function,
    },
}

/// What a classifier's numbers go through, as transformers' pipelines choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Each by itself: one label, or `problem_type` `multi_label_classification`.
    Sigmoid,
    /// So that their sum is 1: several labels of which one holds.
    Softmax,
    /// Nothing: `problem_type` `regression`.
    Identity,
}

impl Function {
    fn of(config: &Value, labels: usize) -> Function {
        match config["problem_type"].as_str() {
            Some("regression") => Function::Identity,
            Some("multi_label_classification") => Function::Sigmoid,
            _ if labels == 1 => Function::Sigmoid,
            _ => Function::Softmax,
        }
    }

    /// Of the numbers of one text, in f64.
    pub fn apply(self, row: &[f32]) -> Vec<f32> {
        let numbers = row.iter().map(|number| f64::from(*number));
        let most = numbers.clone().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = numbers.clone().map(|number| (number - most).exp()).sum();
        let apply = |number: f64| match self {
            Function::Sigmoid => 1.0 / (1.0 + (-number).exp()),
            Function::Softmax => (number - most).exp() / sum,
            Function::Identity => number,
        };
        numbers.map(|number| apply(number) as f32).collect()
    }
}

/// Texts that may be put in front of others, of `config_sentence_transformers.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompts {
    /// By name.
    pub by_name: BTreeMap<String, String>,
    /// What is put in front of texts if nothing is said.
    pub default_name: Option<String>,
}

impl About {
    /// Are rows vectors?
    pub fn is_encoder(&self) -> bool {
        matches!(self.kind, Kind::Encoder { .. } | Kind::Sparse { .. })
    }

    /// Elements of a row, or of the rows of a token.
    pub(crate) fn width(&self, each_token: bool) -> usize {
        match &self.kind {
            Kind::Encoder { token_width, .. } if each_token => *token_width,
            Kind::Encoder { width, .. } | Kind::Sparse { width } => *width,
            Kind::Reranker { labels, .. } => labels.len(),
        }
    }

    pub(super) fn of(model: &Model, options: &EngineOptions) -> About {
        let batcher = options.batcher(model);
        let kind = match model.inner() {
            Inner::Encoder(encoder) => Kind::Encoder {
                width: encoder.width(),
                pooling: encoder.pooling().to_vec(),
                normalize: encoder.is_normalized(),
                token_width: encoder.token_width(),
            },
            Inner::Sparse(encoder) => Kind::Sparse { width: encoder.width() },
            Inner::Reranker(reranker) => {
                let name = |index: usize| match &model.config["id2label"][index.to_string()] {
                    Value::String(name) => name.clone(),
                    _ => format!("LABEL_{index}"),
                };
                let function = Function::of(&model.config, reranker.labels());
                Kind::Reranker { labels: (0..reranker.labels()).map(name).collect(), function }
            }
        };
        let folder = model.folder.canonicalize().unwrap_or_else(|_| model.folder.clone());
        About {
            name: folder.file_name().map_or("model".into(), |name| name.to_string_lossy().into_owned()),
            kind,
            dtype: model.dtype,
            device: model.device().name().into(),
            tokens_max: model.tokenizer().tokens_max(),
            batch_tokens_max: batcher.batch_tokens_max,
            batch_count_max: batcher.batch_count_max,
            running_count_max: batcher.running_count_max,
            waiting_count_max: batcher.waiting_count_max,
            prompts: Prompts::of(model),
            special: Special::of(model),
        }
    }
}

impl Prompts {
    /// A file that is missing or says something else has none: it isn't needed to compute.
    fn of(model: &Model) -> Prompts {
        let file = settings(&model.folder, "config_sentence_transformers.json");
        let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_string()));
        let by_name: BTreeMap<_, _> =
            file["prompts"].as_object().into_iter().flatten().filter_map(text).collect();
        let default_name = file["default_prompt_name"].as_str().map(str::to_string);
        Prompts { default_name: default_name.filter(|name| by_name.contains_key(name)), by_name }
    }

    /// The text of a name, or of the one that is used if none is given; `None` if there is no such name.
    pub fn get(&self, name: Option<&str>) -> Option<&str> {
        match name.or(self.default_name.as_deref()) {
            Some(name) => self.by_name.get(name).map(String::as_str),
            None => Some(""),
        }
    }
}

/// The special tokens around a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Special(Vec<u32>);

impl Special {
    /// Those of an empty text.
    fn of(model: &Model) -> Special {
        let tokens = model.tokenizer().tokenize(&[""], TooLong::Truncate).unwrap_or_default();
        Special(tokens.into_iter().next().unwrap_or_default().ids)
    }

    /// Puts them around numbers that lack them, if there is one in front and one behind, as BERT has it, and those of a prompt
    /// behind the first one. What is too long loses its end or its beginning, but no special token.
    pub(super) fn complete(
        &self,
        prompt: &[u32],
        mut ids: Vec<u32>,
        tokens_max: usize,
        too_long: TooLong,
    ) -> Result<Tokens, ModelError> {
        let around = match self.0[..] {
            [first, last] => Some((first, last)),
            _ => None,
        };
        if let Some((first, last)) = around {
            if ids.first() != Some(&first) {
                ids.insert(0, first);
            }
            if ids.last() != Some(&last) {
                ids.push(last);
            }
        }
        let inside = usize::from(around.is_some());
        _ = ids.splice(inside..inside, prompt.iter().copied());
        let prompt = if prompt.is_empty() { 0 } else { inside + prompt.len() };
        let count = ids.len();
        if count > tokens_max {
            if too_long == TooLong::Refuse {
                let (what, index) = ("the number of tokens", 0);
                let (expected, found) = (format!("at most {tokens_max}"), count.to_string());
                return Err(ModelError::Text { index, what, expected, found });
            }
            match too_long {
                TooLong::TruncateLeft => _ = ids.drain(inside..inside + count - tokens_max),
                _ => _ = ids.drain(tokens_max - inside..count - inside),
            }
        }
        Ok(Tokens { prompt, ..ids.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_are_put_where_they_lack() {
        let special = Special(vec![101, 102]);
        let complete = |ids: &[u32]| special.complete(&[], ids.to_vec(), 6, TooLong::Truncate).unwrap().ids;
        assert_eq!(complete(&[7, 8]), [101, 7, 8, 102]);
        assert_eq!(complete(&[101, 7, 8, 102]), [101, 7, 8, 102]);
        assert_eq!(complete(&[]), [101, 102]);
        assert_eq!(complete(&[1, 2, 3, 4, 5, 6]), [101, 1, 2, 3, 4, 102]);
        let error = special.complete(&[], vec![7; 5], 6, TooLong::Refuse).unwrap_err().to_string();
        assert_eq!(error, "text 0: the number of tokens is wrong, expected at most 6, found 7");
        let left = |prompt: &[u32], ids: &[u32]| {
            special.complete(prompt, ids.to_vec(), 6, TooLong::TruncateLeft).unwrap().ids
        };
        assert_eq!(left(&[], &[1, 2, 3, 4, 5, 6]), [101, 3, 4, 5, 6, 102]);
        assert_eq!(left(&[], &[7]), [101, 7, 102]);
        // A prompt is a part of the text.
        assert_eq!(left(&[8, 9], &[101, 7, 102]), [101, 8, 9, 7, 102]);
        assert_eq!(left(&[8, 9], &[1, 2, 3]), [101, 9, 1, 2, 3, 102]);
        let prompted = special.complete(&[8, 9], vec![1, 2, 3], 6, TooLong::Truncate).unwrap().ids;
        assert_eq!(prompted, [101, 8, 9, 1, 2, 102]);
        // Where nothing is known to be special, nothing is kept for it.
        let none = Special(vec![]);
        let complete = |too_long| none.complete(&[], (1..=8).collect(), 6, too_long).unwrap().ids;
        assert_eq!(complete(TooLong::Truncate), [1, 2, 3, 4, 5, 6]);
        assert_eq!(complete(TooLong::TruncateLeft), [3, 4, 5, 6, 7, 8]);
        assert_eq!(none.complete(&[8], vec![7], 6, TooLong::Refuse).unwrap().ids, [8, 7]);
    }
}
