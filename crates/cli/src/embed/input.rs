//! Texts, one a line.

use crate::output::{Failure, Outcome};
use serde_json::Value;
use std::{io::Read, path::Path};

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A text.
    Text,
    /// JSON: a string, or an object with the text in a field.
    Jsonl,
}

/// The text of each line, or why there is none.
pub type Lines = Vec<Result<String, String>>;

/// Reads a file, or standard input if it is `-`.
pub fn read(path: &Path, format: Option<Format>, field: &str) -> Outcome<Lines> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(path).map(|read| bytes = read)
    };
    read.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    let is_json = path.extension().is_some_and(|extension| extension == "jsonl");
    let format = format.unwrap_or(if is_json { Format::Jsonl } else { Format::Text });
    Ok(lines(&bytes, format, field))
}

/// Lines end with `\n` or `\r\n`; behind the last one nothing has to stand.
fn lines(bytes: &[u8], format: Format, field: &str) -> Lines {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let line = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match format {
            Format::Text => String::from_utf8(line.to_vec()).map_err(|error| error.utf8_error().to_string()),
            Format::Jsonl => match serde_json::from_slice(line).map_err(|error| error.to_string())? {
                Value::String(text) => Ok(text),
                Value::Object(mut object) => match object.remove(field) {
                    Some(Value::String(text)) => Ok(text),
                    Some(_) => Err(format!("the field {field:?} is no string")),
                    None => Err(format!("there is no field {field:?}")),
                },
                _ => Err("expected a string or an object".into()),
            },
        }
    };
    bytes.split(|byte| *byte == b'\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_lose_nothing_else() {
        let text = |text: &str| Ok(text.to_string());
        let read = lines(b"one\r\n\n\xff\nfour \xc3\xa9\n", Format::Text, "text");
        assert_eq!((&read[..2], &read[3..]), (&[text("one"), text("")][..], &[text("four é")][..]));
        assert!(read[2].as_ref().is_err_and(|why| why.contains("utf-8")));
        let json = b"\"one\"\n{\"text\": \"two\", \"n\": 1}\n{\"text\": 3}\n{}\nfive\n\n[\"six\"]";
        let read = lines(json, Format::Jsonl, "text");
        assert_eq!((read.len(), &read[..2]), (7, &[text("one"), text("two")][..]));
        assert!(read[2..].iter().all(Result::is_err));
        assert_eq!(read[3], Err("there is no field \"text\"".into()));
        assert_eq!(lines(b"", Format::Text, "text"), []);
        assert_eq!(lines(b"\n\n", Format::Text, "text"), [text(""), text("")]);
    }
}
