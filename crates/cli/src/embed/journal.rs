//! What an interrupted run leaves beside its partial output, so that another goes on where it was: `NAME.partial.journal`, a
//! line of JSON that says of what the run was made, then one for each time that rows were put on the disk.
//!
//! A line is written after the rows that it speaks of are on the disk, so it never says too much; a line that isn't whole was
//! being written when the run ended, and is dropped. All that rows depend on is compared before a run goes on: the model's
//! files, the options, the version of the program, the beginning of the input, the rows themselves.

use super::vectors::partial_path;
use crate::output::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// What rows depend on besides the input: names and values.
pub type Identity = Vec<(String, String)>;

#[derive(Serialize, Deserialize)]
struct Head {
    journal_of: String,
    identity: Identity,
}

/// Called so in the first line.
const NAME: &str = "raddle embed 1";

/// A line without a vector.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// From 1.
    pub line: u64,
    pub why: String,
}

/// How far a run has come. Sums of all lines of a journal are what a run has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    pub lines: u64,
    pub input_bytes: u64,
    pub input_crc: u32,
    pub output_bytes: u64,
    pub output_crc: u32,
    pub tokens: u64,
    pub padding_tokens: u64,
    pub seconds: f64,
    /// Since the entry before.
    pub skipped: Vec<Skipped>,
}

impl Entry {
    /// The figures.
    pub fn without_skipped(&self) -> Entry {
        Entry { skipped: Vec::new(), ..*self }
    }
}

/// A journal that is being written.
pub struct Journal {
    path: PathBuf,
    file: File,
}

/// Where the journal of an output is.
pub fn path_of(output: &Path) -> PathBuf {
    let mut path = partial_path(output).into_os_string();
    path.push(".journal");
    path.into()
}

/// Removes the journal of an output, if there is one.
pub fn remove(output: &Path) {
    _ = fs::remove_file(path_of(output));
}

impl Journal {
    /// Begins one.
    pub fn create(output: &Path, identity: &Identity) -> Outcome<Journal> {
        let path = path_of(output);
        let file = File::create(&path).map_err(|error| failed(&path, error))?;
        let mut journal = Journal { path, file };
        let head = Head { journal_of: NAME.into(), identity: identity.clone() };
        journal.write(&head)?;
        Ok(journal)
    }

    /// Goes on with one, if there is one and it says anything: with its last entry, and all skipped lines.
    ///
    /// Errors: it is of something else, and of what.
    pub fn resume(output: &Path, identity: &Identity) -> Outcome<Option<(Journal, Entry)>> {
        let path = path_of(output);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, error)),
        };
        let mut reader = BufReader::new(file);
        let (mut line, mut end, mut last, mut skipped) = (Vec::new(), 0u64, None, Vec::new());
        let mut whole_line = |reader: &mut BufReader<File>, line: &mut Vec<u8>| -> Outcome<bool> {
            line.clear();
            reader.read_until(b'\n', line).map_err(|error| failed(&path, error))?;
            end += if line.ends_with(b"\n") { line.len() as u64 } else { 0 };
            Ok(line.ends_with(b"\n"))
        };
        if !whole_line(&mut reader, &mut line)? {
            return Ok(None);
        }
        match serde_json::from_slice::<Head>(&line) {
            Ok(head) if head.journal_of == NAME => compare(&path, &head.identity, identity)?,
            _ => return Err(refused(&path, "it is no journal of this program".into())),
        }
        while whole_line(&mut reader, &mut line)? {
            let entry = serde_json::from_slice::<Entry>(&line)
                .map_err(|error| refused(&path, format!("an entry is broken, {error}")))?;
            skipped.extend(entry.skipped.iter().cloned());
            last = Some(entry);
        }
        let Some(last) = last else { return Ok(None) };
        let mut file = reader.into_inner();
        let cut = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
        cut.map_err(|error| failed(&path, error))?;
        Ok(Some((Journal { path, file }, Entry { skipped, ..last })))
    }

    /// Why a run can't go on, besides what [`resume`](Journal::resume) sees.
    pub fn refuse(&self, why: impl Into<String>) -> Failure {
        refused(&self.path, why.into())
    }

    /// It is gone.
    pub fn discard(self) {
        _ = fs::remove_file(&self.path);
    }

    /// Notes how far the run has come; what it speaks of must be on the disk.
    pub fn push(&mut self, entry: &Entry) -> Outcome {
        self.write(entry)
    }

    fn write(&mut self, value: &impl Serialize) -> Outcome {
        let mut line = serde_json::to_vec(value).map_err(|error| Failure::Other(error.to_string()))?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| failed(&self.path, error))
    }
}

fn failed(path: &Path, error: std::io::Error) -> Failure {
    Failure::Input(format!("{}: {error}", path.display()))
}

fn refused(path: &Path, why: String) -> Failure {
    let path = path.display();
    Failure::Input(format!("{path}: can't go on, {why}; without --resume the run starts from the beginning"))
}

fn compare(path: &Path, then: &Identity, now: &Identity) -> Outcome {
    let value = |identity: &Identity, name: &str| {
        identity
            .iter()
            .find(|(other, _)| other == name)
            .map_or("nothing".to_string(), |(_, value)| value.clone())
    };
    let names = then.iter().chain(now).map(|(name, _)| name);
    for name in names {
        let (before, after) = (value(then, name), value(now, name));
        if before != after {
            return Err(refused(path, format!("{name} was {before} and is {after}")));
        }
    }
    Ok(())
}
