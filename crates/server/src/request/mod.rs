//! Bodies of requests: bytes in, a checked request or an error out. Pure: no server, no model.
//!
//! - **Nothing panics**, whatever the bytes.
//! - **Memory** is at most some 20 times the bytes: a list of many tiny items is refused at [`ITEM_COUNT_MAX`] items, before it
//!   is read to its end.
//! - Names that aren't known are ignored, as clients send more than one server knows; a name that comes twice is an error.

mod input;

pub use input::{ITEM_COUNT_MAX, Input, Inputs, Sequences, Texts};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{borrow::Cow, fmt, marker::PhantomData};

/// Why a body can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It isn't JSON in UTF-8.
    #[error("body: expected JSON, found something else: {0}")]
    Syntax(String),
    /// It is JSON of another form.
    #[error("body: {0}")]
    Form(String),
    /// It has a list of more than [`ITEM_COUNT_MAX`] items.
    #[error("body: {0}")]
    TooMany(String),
}

/// Characters of what the reader of JSON says: it may hold what a client has sent.
const REASON_LENGTH_MAX: usize = 200;

/// Reads any of the bodies below.
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, BodyError> {
    let failed = |error: serde_json::Error| {
        let reason: String = error.to_string().chars().take(REASON_LENGTH_MAX).collect();
        match error.classify() {
            serde_json::error::Category::Data if reason.starts_with(input::TOO_MANY) => {
                BodyError::TooMany(reason)
            }
            serde_json::error::Category::Data => BodyError::Form(reason),
            _ => BodyError::Syntax(reason),
        }
    };
    // The reader would take a list for an object, one item a name.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| *byte != b'{') {
        serde_json::from_slice::<IgnoredAny>(bytes).map_err(failed)?;
        return Err(BodyError::Form("expected an object".into()));
    }
    serde_json::from_slice(bytes).map_err(failed)
}

/// An object inside of a body. The readers that are made for structures take a list for one, an item a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// One of a few words. What is no string is JSON all the same, which the reader's own enums don't say.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
        String::deserialize(deserializer).map(Word)
    }
}

impl Word {
    fn find<T: Copy>(&self, known: &[(&str, T)]) -> Result<T, String> {
        let found = known.iter().find(|(name, _)| *name == self.0);
        let names = || known.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("unknown variant `{}`, expected one of {}", self.0, names()))
    }
}

/// `POST /embed`, `/embed_all` and `/embed_sparse`, of which the latter two have no vectors to be normalized or cut, and `POST /`
/// of an encoder.
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
#[serde(try_from = "Word")]
pub enum Direction {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

impl TryFrom<Word> for Direction {
    type Error = String;

    fn try_from(word: Word) -> Result<Direction, String> {
        use Direction::*;
        word.find(&[("left", Left), ("right", Right), ("Left", Left), ("Right", Right)])
    }
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
#[serde(try_from = "Word")]
pub enum EncodingFormat {
    /// As numbers.
    #[default]
    Float,
    /// The bytes of little-endian f32 in base64.
    Base64,
}

impl TryFrom<Word> for EncodingFormat {
    type Error = String;

    fn try_from(word: Word) -> Result<EncodingFormat, String> {
        word.find(&[("float", EncodingFormat::Float), ("base64", EncodingFormat::Base64)])
    }
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

/// `POST /v1/rerank`, as Jina and Cohere have it.
#[derive(Debug, Deserialize)]
pub struct Documents<'a> {
    /// What is asked.
    #[serde(borrow)]
    pub query: Cow<'a, str>,
    /// What may answer it.
    #[serde(borrow)]
    pub documents: Texts<'a>,
    /// The name of the model; any is taken.
    pub model: Option<String>,
    /// How many of the best are told; if nothing is said, all.
    pub top_n: Option<usize>,
    /// Are documents sent back? If nothing is said they are, as Jina does; Cohere's clients don't mind.
    pub return_documents: Option<bool>,
    /// Is what is too long cut off? Neither's; if nothing is said it is.
    pub truncate: Option<bool>,
}

/// `POST /predict`, and `POST /` of a classifier.
#[derive(Debug, Deserialize)]
pub struct Predict<'a> {
    /// Texts and pairs of them.
    #[serde(borrow)]
    pub inputs: Sequences<'a>,
    /// As in [`Embed`].
    pub truncate: Option<bool>,
    /// As in [`Embed`].
    pub truncation_direction: Option<Direction>,
    /// The head's numbers rather than probabilities.
    pub raw_scores: Option<bool>,
}

/// `POST /similarity`.
#[derive(Debug, Deserialize)]
pub struct Similarity<'a> {
    /// What is compared.
    #[serde(borrow)]
    pub inputs: Object<Compared<'a>>,
    /// Settings of the comparison.
    pub parameters: Option<Object<SimilarityParameters>>,
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
