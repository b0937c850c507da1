//! Texts, one a line, read a window at a time: memory is bounded whatever the size of the input or of a line.
//!
//! Each `\n` ends a line, `\r` before it belongs to it; what stands behind the last one is a line if it isn't empty. A line that
//! can't be read is an error in its place, and the next one starts where it would have.

use crate::output::{Failure, Outcome};
use flate2::Crc;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::{
    borrow::Cow,
    fmt,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A text.
    Text,
    /// JSON: a string, or an object with the text in a field.
    Jsonl,
}

impl Format {
    /// As options and journals call it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
        }
    }
}

/// The text of a line, or why there is none.
pub type Line = Result<String, String>;

/// The mark of UTF-8 that some programs put in front of a file. It is no part of the first line.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Text of a window beyond which it is cut: so it is bounded, also where lines are long. It may be exceeded by a line.
const WINDOW_BYTES: usize = 8 << 20;

/// What a line is taken for.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What a line is.
    pub format: Format,
    /// Where in an object the text is.
    pub field: String,
    /// A longer line is skipped.
    pub line_bytes_max: usize,
}

/// An input that is read from its start to its end.
pub struct Input {
    path: PathBuf,
    source: Box<dyn BufRead>,
    reading: Reading,
    /// Of all that was read.
    crc: Crc,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Input {
    /// A file, or standard input if the path is `-`.
    pub fn open(path: &Path, format: Option<Format>, field: &str, line_bytes_max: usize) -> Outcome<Input> {
        let source: Box<dyn BufRead> = match path == Path::new("-") {
            true => Box::new(BufReader::with_capacity(1 << 18, std::io::stdin())),
            false => match File::open(path) {
                Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_dir()) => {
                    return Err(Failure::Input(format!(
                        "{}: expected a file, found a folder",
                        path.display()
                    )));
                }
                Ok(file) => Box::new(BufReader::with_capacity(1 << 18, file)),
                Err(error) => return Err(Failure::Input(format!("{}: {error}", path.display()))),
            },
        };
        let is_json = path.extension().is_some_and(|extension| extension == "jsonl");
        let format = format.unwrap_or(if is_json { Format::Jsonl } else { Format::Text });
        let reading = Reading { format, field: field.into(), line_bytes_max };
        Ok(Input::new(path, source, reading))
    }

    fn new(path: &Path, source: Box<dyn BufRead>, reading: Reading) -> Input {
        Input { path: path.into(), source, reading, crc: Crc::new(), bytes: 0, buffer: Vec::new() }
    }

    /// How lines are taken.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// How much was read, and its checksum: it tells whether two inputs begin alike.
    pub fn fingerprint(&self) -> (u64, u32) {
        (self.bytes, self.crc.sum())
    }

    /// The next lines, at most so many; none at the end.
    pub fn window(&mut self, lines_max: usize) -> Outcome<Vec<Line>> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < lines_max && bytes < WINDOW_BYTES {
            let Some(whole) = self.next_line()? else { break };
            bytes += self.buffer.len();
            lines.push(match whole {
                true => self.reading.text(&self.buffer),
                false => Err(format!("it is longer than {} bytes", self.reading.line_bytes_max)),
            });
        }
        Ok(lines)
    }

    /// Reads lines that nobody wants any more; false if there are fewer.
    pub fn skip(&mut self, lines: u64) -> Outcome<bool> {
        for _ in 0..lines {
            if self.next_line()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a line into the buffer, without its end; false if it is too long, and then nothing is in the buffer. None at the
    /// end of the input.
    fn next_line(&mut self) -> Outcome<Option<bool>> {
        self.buffer.clear();
        let (mut length, mut ended) = (0usize, false);
        let mark = if self.bytes == 0 { MARK } else { &[] };
        // With one byte more than is allowed, as it may be a `\r`.
        let most = self.reading.line_bytes_max.saturating_add(1 + mark.len());
        while !ended {
            let part = match self.source.fill_buf() {
                Ok(part) => part,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Input(format!("{}: {error}", self.path.display()))),
            };
            if part.is_empty() {
                if length == 0 {
                    return Ok(None);
                }
                break;
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |end| end + 1);
            let text = &part[..end.unwrap_or(part.len())];
            if self.buffer.len() + text.len() <= most {
                self.buffer.extend_from_slice(text);
            } else {
                self.buffer.truncate(most - 1);
                self.buffer.resize(most, 0);
            }
            self.crc.update(&part[..taken]);
            ended = end.is_some();
            length += taken;
            self.source.consume(taken);
        }
        self.bytes += length as u64;
        if self.buffer.starts_with(mark) {
            self.buffer.drain(..mark.len());
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        let whole = self.buffer.len() <= self.reading.line_bytes_max;
        if !whole {
            self.buffer = Vec::new();
        }
        Ok(Some(whole))
    }
}

impl Reading {
    fn text(&self, line: &[u8]) -> Line {
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => return Err(error.to_string()),
        };
        match self.format {
            Format::Text => Ok(text.into()),
            Format::Jsonl => {
                let mut reader = serde_json::Deserializer::from_str(text);
                let found = Record { field: &self.field }.deserialize(&mut reader);
                let found = found.and_then(|found| reader.end().map(|()| found));
                match found.map_err(|error| error.to_string())? {
                    Some(Found(Some(text))) => Ok(text),
                    Some(Found(None)) => Err(format!("the field {:?} is no string", self.field)),
                    None => Err(format!("there is no field {:?}", self.field)),
                }
            }
        }
    }
}

/// A line of JSON, of which only the text is read: the other fields are others' business, and may hold what has no value here (half
/// of a surrogate pair, a number that is too large, any depth). Of a field that comes twice the last one counts.
struct Record<'a> {
    field: &'a str,
}

/// The text, or something else in its place.
struct Found(Option<String>);

impl<'de> DeserializeSeed<'de> for Record<'_> {
    type Value = Option<Found>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Found>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Record<'_> {
    type Value = Option<Found>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an object")
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<Found>, E> {
        Ok(Some(Found(Some(text.into()))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Option<Found>, A::Error> {
        let mut found = None;
        while let Some(name) = object.next_key::<Cow<'de, str>>()? {
            if name == self.field {
                found = Some(object.next_value()?);
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Found, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Found;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_str<E>(self, text: &str) -> Result<Found, E> {
                Ok(Found(Some(text.into())))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
                Ok(Found(None))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
                Ok(Found(None))
            }
            fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
                Ok(Found(None))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
                Ok(Found(None))
            }
            fn visit_unit<E>(self) -> Result<Found, E> {
                Ok(Found(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Found(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Found, A::Error> {
                while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Found(None))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// How many lines a file has, for a bar; none if it can't be read again.
pub fn count_lines(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.is_file())?;
    if metadata.len() == 0 {
        return Some(0);
    }
    let mut source = BufReader::with_capacity(1 << 18, File::open(path).ok()?);
    let (mut lines, mut last) = (0, b'\n');
    loop {
        let part = source.fill_buf().ok()?;
        let Some(end) = part.last() else { break };
        last = *end;
        lines += part.iter().filter(|byte| **byte == b'\n').count() as u64;
        let read = part.len();
        source.consume(read);
    }
    Some(lines + u64::from(last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In pieces of every size, so that each line is met at every cut.
    fn lines(bytes: &[u8], format: Format, line_bytes_max: usize) -> Vec<Line> {
        let read = |piece: usize| {
            let source = BufReader::with_capacity(piece, std::io::Cursor::new(bytes.to_vec()));
            let reading = Reading { format, field: "text".into(), line_bytes_max };
            let mut input = Input::new(Path::new("x"), Box::new(source), reading);
            let lines = input.window(1000).unwrap();
            let mut crc = Crc::new();
            crc.update(bytes);
            assert_eq!(input.fingerprint(), (bytes.len() as u64, crc.sum()));
            assert_eq!(input.window(1000).unwrap(), []);
            lines
        };
        let whole = read(1 << 10);
        for piece in 1..20 {
            assert_eq!(read(piece), whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn bad_lines_lose_nothing_else() {
        let text = |text: &str| Ok(text.to_string());
        let read = lines(b"one\r\n\n\xff\nfour \xc3\xa9\n", Format::Text, 100);
        assert_eq!((&read[..2], &read[3..]), (&[text("one"), text("")][..], &[text("four é")][..]));
        assert!(read[2].as_ref().is_err_and(|why| why.contains("utf-8")));
        let json = b"\"one\"\n{\"text\": \"two\", \"n\": 1}\n{\"text\": 3}\n{}\nfive\n\n[\"six\"]";
        let read = lines(json, Format::Jsonl, 100);
        assert_eq!((read.len(), &read[..2]), (7, &[text("one"), text("two")][..]));
        assert!(read[2..].iter().all(Result::is_err));
        assert_eq!(read[3], Err("there is no field \"text\"".into()));
        assert_eq!(lines(b"", Format::Text, 100), []);
        assert_eq!(lines(b"\n", Format::Text, 100), [text("")]);
        assert_eq!(lines(b"\n\n", Format::Text, 100), [text(""), text("")]);
        assert_eq!(lines(b"a\n\nb", Format::Text, 100), [text("a"), text(""), text("b")]);
    }

    /// As other programs write them: halves of emoji that were cut off, numbers past any float, trees.
    #[test]
    fn other_fields_are_not_read() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for other in [r#""\ud83d""#, r#"["\ude00", {"a\ud83d": 1}]"#, "1e999", "-1e999", &deep] {
            for line in [
                format!(r#"{{"title": {other}, "text": "a\u00e9"}}"#),
                format!(r#"{{"text": "a\u00e9", "title": {other}}}"#),
            ] {
                assert_eq!(lines(line.as_bytes(), Format::Jsonl, 4000), [Ok("aé".to_string())], "{line}");
            }
        }
        let why = |line: &str| lines(line.as_bytes(), Format::Jsonl, 4000).remove(0).unwrap_err();
        for value in ["1", "-1", "1.5", "true", "null", "[\"a\"]", "{\"text\": \"a\"}", &deep] {
            assert_eq!(why(&format!(r#"{{"text": {value}}}"#)), "the field \"text\" is no string");
        }
        assert!(why(r#"{"text": "\ud83d"}"#).starts_with("unexpected end of hex escape"));
        assert!(why(r#"{"text": "a"} b"#).starts_with("trailing characters"));
        assert!(why("[\"a\"]").starts_with("invalid type: sequence, expected a string or an object"));
        assert_eq!(lines(br#"{"text": 1, "text": "b"}"#, Format::Jsonl, 100), [Ok("b".to_string())]);
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit() {
        let long = Err("it is longer than 4 bytes".to_string());
        let read = lines(b"1234\r\n12345\n123456\n1234\n123456789\r\nab", Format::Text, 4);
        let text = |text: &str| Ok(text.to_string());
        assert_eq!(read, [text("1234"), long.clone(), long.clone(), text("1234"), long, text("ab")]);
    }

    #[test]
    fn a_mark_in_front_is_no_text() {
        let text = |text: &str| Ok(text.to_string());
        let long = Err("it is longer than 4 bytes".to_string());
        let read = lines(b"\xef\xbb\xbf1234\r\n\xef\xbb\xbf\n\xef\xbb\xbf", Format::Text, 4);
        assert_eq!(read, [text("1234"), text("\u{feff}"), text("\u{feff}")]);
        for (bytes, first) in [
            (&b"\xef\xbb\xbf12345\n1"[..], &long),
            (b"\xef\xbb\xbf12345678\n1", &long),
            (b"12345\r\n1", &long),
        ] {
            assert_eq!(lines(bytes, Format::Text, 4), [first.clone(), text("1")]);
        }
        assert_eq!(lines(b"\xef\xbb\xbf", Format::Text, 4), [text("")]);
        assert_eq!(lines(b"\xef\xbb\xbf{\"text\": \"a\"}", Format::Jsonl, 100), [text("a")]);
    }

    #[test]
    fn windows_and_skips_end_at_lines() {
        let reading = Reading { format: Format::Text, field: String::new(), line_bytes_max: 100 };
        let open = || Input::new(Path::new("x"), Box::new(&b"a\nb\nc\nd\ne"[..]), reading.clone());
        let mut input = open();
        assert_eq!(input.window(2).unwrap().len(), 2);
        let fingerprint = input.fingerprint();
        assert_eq!(fingerprint.0, 4);
        assert_eq!(input.window(9).unwrap().len(), 3);
        let mut again = open();
        assert!(again.skip(2).unwrap());
        assert_eq!(again.fingerprint(), fingerprint);
        assert_eq!(again.window(1).unwrap(), [Ok("c".to_string())]);
        assert!(!again.skip(3).unwrap());
    }

    #[test]
    fn lines_are_counted_as_they_are_read() {
        let path = std::env::temp_dir().join(format!("raddle-{}-count", std::process::id()));
        for text in ["", "\n", "a", "a\n", "a\nb", "\n\n", "a\n\n\nb\n"] {
            std::fs::write(&path, text).unwrap();
            let read = lines(text.as_bytes(), Format::Text, 100).len() as u64;
            assert_eq!(count_lines(&path), Some(read), "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(count_lines(&path), None);
    }
}
