//! Bodies of requests: bytes in, a checked request or an error out. Pure: no server, no model.
//!
//! - **Nothing panics**, whatever the bytes.
//! - **Memory** is at most some 20 times the bytes: a list of many tiny items is refused at [`ITEM_COUNT_MAX`] items, before it
//!   is read to its end.
//! - Names that aren't known are ignored, as clients send more than one server knows; a name that comes twice is an error.

mod input;

pub use input::{ITEM_COUNT_MAX, Input, Inputs};

use serde::Deserialize;
use std::borrow::Cow;

/// Why a body can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It isn't JSON in UTF-8.
    #[error("body: expected JSON, found something else: {0}")]
    Syntax(String),
    /// It is JSON of another form.
    #[error("body: {0}")]
    Form(String),
}

/// Characters of what the reader of JSON says: it may hold what a client has sent.
const REASON_LENGTH_MAX: usize = 200;

/// Reads any of the bodies below.
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, BodyError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let reason: String = error.to_string().chars().take(REASON_LENGTH_MAX).collect();
        match error.classify() {
            serde_json::error::Category::Data => BodyError::Form(reason),
            _ => BodyError::Syntax(reason),
        }
    })
}

/// `POST /embed`, and `POST /` of an encoder.
#[derive(Debug, Deserialize)]
pub struct Embed<'a> {
    /// Texts or tokens.
    #[serde(borrow)]
    pub inputs: Inputs<'a>,
    /// Is what is too long cut off? If nothing is said it is.
    pub truncate: Option<bool>,
    /// At which end; if nothing is said, the right one.
    pub truncation_direction: Option<Direction>,
    /// Are vectors of norm 1? If nothing is said they are.
    pub normalize: Option<bool>,
    /// What is put in front of texts.
    pub prompt_name: Option<String>,
    /// So many of the first elements.
    pub dimensions: Option<usize>,
}

/// Which end of a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The beginning.
    #[serde(alias = "Left")]
    Left,
    /// The end.
    #[serde(alias = "Right")]
    Right,
}

/// `POST /v1/embeddings`.
#[derive(Debug, Deserialize)]
pub struct Embeddings<'a> {
    /// Texts or tokens.
    #[serde(borrow)]
    pub input: Inputs<'a>,
    /// The name of the model; any is taken.
    pub model: Option<String>,
    /// Numbers or base64.
    pub encoding_format: Option<EncodingFormat>,
    /// So many of the first elements.
    pub dimensions: Option<usize>,
    /// Is what is too long cut off? Not OpenAI's; if nothing is said it is.
    pub truncate: Option<bool>,
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncodingFormat {
    /// As numbers.
    #[default]
    Float,
    /// The bytes of little-endian f32 in base64.
    Base64,
}

/// `POST /rerank`, and `POST /` of a reranker.
#[derive(Debug, Deserialize)]
pub struct Rerank<'a> {
    /// What is asked.
    #[serde(borrow)]
    pub query: Cow<'a, str>,
    /// What may answer it.
    #[serde(borrow)]
    pub texts: Inputs<'a>,
    /// As in [`Embed`].
    pub truncate: Option<bool>,
    /// As in [`Embed`].
    pub truncation_direction: Option<Direction>,
    /// The head's numbers rather than those between 0 and 1.
    pub raw_scores: Option<bool>,
    /// Are texts sent back?
    pub return_text: Option<bool>,
}

/// `POST /similarity`.
#[derive(Debug, Deserialize)]
pub struct Similarity<'a> {
    /// What is compared.
    #[serde(borrow)]
    pub inputs: Compared<'a>,
    /// How.
    pub parameters: Option<SimilarityParameters>,
}

/// One text and those that it is compared with.
#[derive(Debug, Deserialize)]
pub struct Compared<'a> {
    /// The one.
    #[serde(borrow)]
    pub source_sentence: Cow<'a, str>,
    /// The others.
    #[serde(borrow)]
    pub sentences: Inputs<'a>,
}

/// As in [`Embed`].
#[derive(Debug, Default, Deserialize)]
pub struct SimilarityParameters {
    /// As in [`Embed`].
    pub truncate: Option<bool>,
    /// As in [`Embed`].
    pub truncation_direction: Option<Direction>,
    /// As in [`Embed`].
    pub prompt_name: Option<String>,
}

/// `POST /tokenize`.
#[derive(Debug, Deserialize)]
pub struct Tokenize<'a> {
    /// Texts.
    #[serde(borrow)]
    pub inputs: Inputs<'a>,
    /// With special tokens? If nothing is said, yes.
    pub add_special_tokens: Option<bool>,
    /// What is put in front of texts.
    pub prompt_name: Option<String>,
}

/// `POST /decode`.
#[derive(Debug, Deserialize)]
pub struct Decode<'a> {
    /// Tokens.
    #[serde(borrow)]
    pub ids: Inputs<'a>,
    /// Without special tokens? If nothing is said, yes.
    pub skip_special_tokens: Option<bool>,
}
