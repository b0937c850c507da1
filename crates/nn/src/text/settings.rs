//! Settings of a model's folder: files of JSON.

use super::{ModelError, Result};
use crate::checkpoint::{CheckpointError, brief};
use serde_json::Value;
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
        self.wrong_value(key, expected, self.get(key))
    }

    /// An error about a value of this file.
    pub fn wrong_value(&self, what: &'static str, expected: impl Into<String>, value: &Value) -> ModelError {
        let found = match value {
            Value::Null => "nothing".into(),
            value => brief(value),
        };
        CheckpointError::Format { file: self.file.clone(), what, expected: expected.into(), found }.into()
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.value.as_object().into_iter().flat_map(|map| map.keys())
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
