//! The files of a model's folder: settings as JSON, weights as safetensors.

use super::{
    BertConfig, ModelError, Result,
    shards::{self, Shards},
};
use crate::checkpoint::{self, CheckpointError, Metadata, brief};
use raddle_tensor::{DType, Device, Generator, Tensor};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    fs,
    io::{ErrorKind, Read},
    ops::RangeInclusive,
    path::{Component, Path, PathBuf},
};

/// Larger files are no settings (a guess: names of 20,000 labels have half a megabyte).
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// A JSON file, or a part of it.
pub struct Settings<'a> {
    file: PathBuf,
    value: Cow<'a, Value>,
}

impl Settings<'static> {
    /// Those of a file that isn't there: it says nothing.
    pub fn none(file: PathBuf) -> Settings<'static> {
        Settings { file, value: Cow::Owned(Value::Null) }
    }

    /// Reads one that must be there.
    pub fn read(file: PathBuf) -> Result<Settings<'static>> {
        Settings::read_at_most(file, FILE_BYTES_MAX)
    }

    /// As [`read`](Settings::read), with a limit of its own. No more is read of a larger file.
    pub fn read_at_most(file: PathBuf, bytes_max: u64) -> Result<Settings<'static>> {
        let mut bytes = Vec::new();
        let read = fs::File::open(&file).and_then(|open| open.take(bytes_max + 1).read_to_end(&mut bytes));
        read.map_err(|error| CheckpointError::File {
            file: file.clone(),
            action: "reading",
            reason: error.to_string(),
        })?;
        if bytes.len() as u64 > bytes_max {
            let (expected, found) = (format!("at most {bytes_max} bytes"), "more".into());
            return Err(CheckpointError::Format { file, what: "the size", expected, found }.into());
        }
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Settings { file, value: Cow::Owned(value) }),
            Err(error) => {
                let (expected, found) = ("JSON".into(), error.to_string());
                Err(CheckpointError::Format { file, what: "the text", expected, found }.into())
            }
        }
    }

    /// Reads one that may be missing. A link to nowhere isn't missing: without it the model would silently be another.
    pub fn read_if_there(file: PathBuf) -> Result<Option<Settings<'static>>> {
        let is_missing = fs::symlink_metadata(&file)
            .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory));
        if is_missing { Ok(None) } else { Settings::read(file).map(Some) }
    }
}

impl Settings<'_> {
    /// The items of a list, each as settings of this file.
    pub fn items(&self) -> Result<Vec<Settings<'_>>> {
        match &*self.value {
            Value::Array(values) => Ok(values.iter().map(|value| self.inner(value)).collect()),
            _ => Err(self.wrong("the text", "a list")),
        }
    }

    /// What stands under a key, as settings of this file; nothing if it is null.
    pub fn part(&self, key: &str) -> Option<Settings<'_>> {
        self.value.get(key).filter(|value| !value.is_null()).map(|value| self.inner(value))
    }

    fn inner<'b>(&'b self, value: &'b Value) -> Settings<'b> {
        Settings { file: self.file.clone(), value: Cow::Borrowed(value) }
    }

    /// All of it but some keys.
    pub fn without(self, keys: &[&str]) -> Value {
        let mut value = self.value.into_owned();
        if let Value::Object(map) = &mut value {
            map.retain(|key, _| !keys.contains(&key.as_str()));
        }
        value
    }

    /// An error about a key.
    pub fn wrong(&self, key: &'static str, expected: impl Into<String>) -> ModelError {
        let found = match self.get(key) {
            Value::Null => "nothing".into(),
            value => brief(value),
        };
        CheckpointError::Format { file: self.file.clone(), what: key, expected: expected.into(), found }
            .into()
    }

    /// What stands under a key, or null.
    pub fn get(&self, key: &str) -> &Value {
        self.value.get(key).unwrap_or(&Value::Null)
    }

    /// A whole number within bounds.
    pub fn count(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<usize> {
        let found = self.get(key).as_u64().and_then(|number| usize::try_from(number).ok());
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        found.filter(|number| range.contains(number)).ok_or_else(|| self.wrong(key, expected()))
    }

    /// As [`count`](Settings::count), or nothing if the file doesn't say.
    pub fn count_if_there(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        if self.get(key).is_null() { Ok(None) } else { self.count(key, range).map(Some) }
    }

    /// A number that isn't negative.
    pub fn number(&self, key: &'static str) -> Result<f64> {
        let found = self.get(key).as_f64().filter(|number| *number >= 0.0 && number.is_finite());
        found.ok_or_else(|| self.wrong(key, "a number of at least 0"))
    }

    /// As [`number`](Settings::number), or nothing if the file doesn't say.
    pub fn number_if_there(&self, key: &'static str) -> Result<Option<f64>> {
        if self.get(key).is_null() { Ok(None) } else { self.number(key).map(Some) }
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> Result<&str> {
        self.get(key).as_str().ok_or_else(|| self.wrong(key, "a text"))
    }

    /// A text, or nothing if the file doesn't say.
    pub fn text_if_there(&self, key: &'static str) -> Result<Option<&str>> {
        if self.get(key).is_null() { Ok(None) } else { self.text(key).map(Some) }
    }

    /// One text or a list of them, or nothing if the file doesn't say.
    pub fn texts_if_there(&self, key: &'static str) -> Result<Option<Vec<&str>>> {
        let text = |value: &'_ Value| -> bool { value.is_string() };
        match self.get(key) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(vec![text])),
            Value::Array(values) if values.iter().all(text) => {
                Ok(Some(values.iter().filter_map(Value::as_str).collect()))
            }
            _ => Err(self.wrong(key, "a text or a list of texts")),
        }
    }

    /// The texts of an object by their names; none if the file doesn't say.
    pub fn named_texts(&self, key: &'static str) -> Result<Vec<(String, String)>> {
        let wrong = || self.wrong(key, "texts by their names");
        match self.get(key) {
            Value::Null => Ok(Vec::new()),
            Value::Object(named) => {
                let text = |(name, text): (&String, &Value)| {
                    Ok((name.clone(), text.as_str().ok_or_else(wrong)?.to_string()))
                };
                named.iter().map(text).collect()
            }
            _ => Err(wrong()),
        }
    }

    /// As [`flag`](Settings::flag), with another default.
    pub fn flag_or(&self, key: &'static str, default: bool) -> Result<bool> {
        if self.get(key).is_null() { Ok(default) } else { self.flag(key) }
    }

    /// Where a folder of the model's folder lies, by its name in this file; the name must not lead out of it.
    pub fn folder(&self, key: &'static str) -> Result<PathBuf> {
        let name = self.text(key)?;
        let is_below = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        let inside = Path::new(name).components().all(is_below);
        let root = self.file.parent().filter(|_| inside);
        // By its parts, so that no name, the model's folder itself, leaves no slash at the end in errors.
        root.map(|root| root.join(name).components().collect())
            .ok_or_else(|| self.wrong(key, "a folder inside of the model's"))
    }

    /// True or false; false if the file doesn't say.
    pub fn flag(&self, key: &'static str) -> Result<bool> {
        match self.get(key) {
            Value::Null => Ok(false),
            value => value.as_bool().ok_or_else(|| self.wrong(key, "true or false")),
        }
    }
}

/// The tensors of `model.safetensors`, or of the files that its index names, to be taken by name. Others may be of any dtype:
/// nobody reads them.
pub struct Weights {
    shards: Shards,
    device: Device,
    /// Before each name of the encoder: `bert.` or the like if a model with a head was saved.
    prefix: String,
}

/// What every encoder has, and no head.
const ANCHOR: &str = "embeddings.word_embeddings.weight";

impl Weights {
    /// Opens and checks all of it.
    pub fn open(folder: &Path, device: &Device) -> Result<Weights> {
        let shards = shards::open(folder)?;
        let mut prefixes: Vec<&str> =
            shards.tensors.keys().filter_map(|name| name.strip_suffix(ANCHOR)).collect();
        prefixes.sort_unstable();
        if let [one, other, ..] = prefixes[..] {
            let (expected, found) = ("one encoder".into(), format!("{one:?} and {other:?} before {ANCHOR}"));
            let (file, what) = (shards.file, "the list of tensors");
            return Err(CheckpointError::Format { file, what, expected, found }.into());
        }
        let prefix = prefixes.first().map_or(String::new(), |prefix| prefix.to_string());
        Ok(Weights { shards, device: *device, prefix })
    }

    /// The same, whose names are those of the file from now on: for what isn't the encoder's.
    pub fn without_prefix(&mut self) -> &mut Weights {
        self.prefix.clear();
        self
    }

    /// Is there a tensor of this name?
    pub fn has(&self, name: &str) -> bool {
        self.shards.tensors.contains_key(name)
    }

    /// A tensor of the encoder in f32. Its shape, of which `None` may be of any size.
    pub fn take(&self, name: &str, shape: &[Option<usize>]) -> Result<Tensor> {
        self.take_named(format!("{}{name}", self.prefix), shape)
    }

    /// An error about the shape of what was taken.
    pub fn wrong_shape(&self, name: &str, found: &Tensor, expected: &[usize]) -> ModelError {
        CheckpointError::Entry {
            file: self.shards.file.clone(),
            tensor: format!("{}{name}", self.prefix),
            what: "the shape",
            expected: format!("{expected:?}"),
            found: format!("{:?}", found.shape()),
        }
        .into()
    }

    /// [`take`](Weights::take) of a head, whose names have no prefix.
    pub fn take_named(&self, mut name: String, shape: &[Option<usize>]) -> Result<Tensor> {
        let Shards { file, files, tensors } = &self.shards;
        // As they were called in TensorFlow, and still are in many a file.
        for (modern, old) in [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")] {
            if name.ends_with(modern) && !tensors.contains_key(&name) {
                let former = name.replace(modern, old);
                name = if tensors.contains_key(&former) { former } else { name };
            }
        }
        let wrong = |what, expected: String, found: String| {
            let (file, tensor) = (file.clone(), name.clone());
            Err(CheckpointError::Entry { file, tensor, what, expected, found }.into())
        };
        let Some(place) = tensors.get(&name) else {
            return wrong("the model's parameter", "it in the file".into(), "no such tensor".into());
        };
        let tensor = files[*place].tensor(&name, &self.device)?;
        let fits =
            |(size, expected): (&usize, &Option<usize>)| expected.is_none_or(|expected| *size == expected);
        if tensor.rank() != shape.len() || !tensor.shape().iter().zip(shape).all(fits) {
            let sizes: Vec<_> =
                shape.iter().map(|size| size.map_or("any".into(), |size| size.to_string())).collect();
            return wrong("the shape", format!("[{}]", sizes.join(", ")), format!("{:?}", tensor.shape()));
        }
        if !tensor.dtype().is_float() {
            return wrong("the dtype", "a float".into(), tensor.dtype().to_string());
        }
        Ok(tensor.to_dtype(DType::F32)?)
    }
}

/// Writes a model of random weights into a folder, which is made: for tests, and measurements without weights at hand. Its
/// tokenizer knows `words` (lower case, each a token) and what BERT calls special; the settings are those of a
/// sentence-transformers folder that takes `max_tokens` tokens a text, pools by the mean and normalises. The same seed
/// gives the same files. There are heads, too, so that [`CrossEncoder`](super::CrossEncoder) loads it as well, and without
/// `modules.json` [`SparseEncoder`](super::SparseEncoder) does.
///
/// Errors: those of files; sizes that can't be.
pub fn write_random_model(
    folder: impl AsRef<Path>,
    config: &BertConfig,
    words: &[&str],
    max_tokens: usize,
    seed: u64,
    device: &Device,
) -> Result<()> {
    let folder = folder.as_ref();
    let write = |name: &str, value: Value| -> Result<()> {
        let file = folder.join(name);
        let failed = |error: std::io::Error| CheckpointError::File {
            file: file.clone(),
            action: "writing",
            reason: error.to_string(),
        };
        fs::create_dir_all(file.parent().expect("it is in the folder")).map_err(failed)?;
        Ok(fs::write(&file, format!("{value:#}\n")).map_err(failed)?)
    };
    write("config.json", config.to_json())?;
    write("sentence_bert_config.json", json!({ "max_seq_length": max_tokens, "do_lower_case": false }))?;
    let module = |path: &str, kind: &str| json!({ "path": path, "type": format!("sentence_transformers.models.{kind}") });
    write(
        "modules.json",
        json!([
            module("", "Transformer"),
            module("1_Pooling", "Pooling"),
            module("2_Normalize", "Normalize")
        ]),
    )?;
    write("1_Pooling/config.json", json!({ "pooling_mode_mean_tokens": true }))?;
    write("tokenizer.json", tokenizer_json(words))?;
    let generator = Generator::new(seed);
    let mut tensors = Vec::new();
    for (name, shape) in config.parameters() {
        let tensor = Tensor::randn(&shape, DType::F32, device, &generator)?;
        // Scaled as BERT's initial weights are; norms are near the identity.
        let tensor = match &name {
            name if name.ends_with("LayerNorm.weight") => tensor.mul(0.1)?.add(1)?,
            name if shape.len() == 2 && !name.contains("embeddings") => {
                tensor.mul((shape[1] as f64).powf(-0.5))?
            }
            _ => tensor,
        };
        tensors.push((name, tensor));
    }
    // As other programs write it, which want to be told whose tensors these are.
    let metadata = Metadata::from([("format".into(), "pt".into())]);
    Ok(checkpoint::save_with(folder.join("model.safetensors"), &tensors, &metadata)?)
}

/// WordPiece with these words, lower-casing, as BERT has it.
fn tokenizer_json(words: &[&str]) -> Value {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let vocabulary: Map<String, Value> =
        special.iter().chain(words).enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let added = |(id, content): (usize, &&str)| {
        json!({ "id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false })
    };
    let token = |name: &str, kind: u8| json!({ "SpecialToken": { "id": name, "type_id": kind } });
    let sequence = |name: &str, kind: u8| json!({ "Sequence": { "id": name, "type_id": kind } });
    let spelled = |name: &str, id: u8| json!({ "id": name, "ids": [id], "tokens": [name] });
    json!({
        "version": "1.0",
        // To be ignored: a model's limit is none of the tokenizer's business.
        "truncation": { "max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right" },
        "padding": { "strategy": { "Fixed": 9 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "[PAD]" },
        "added_tokens": special.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                        "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0)],
            "pair": [token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0), sequence("B", 1), token("[SEP]", 1)],
            "special_tokens": { "[CLS]": spelled("[CLS]", 2), "[SEP]": spelled("[SEP]", 3) }
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": vocabulary }
    })
}
