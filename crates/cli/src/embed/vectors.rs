//! Vectors in files: `.npy`, `.safetensors`, `.jsonl`.
//!
//! Rows are written as they come into a file beside the output, `NAME.partial`, behind a header of a fixed size that is filled
//! in at the end, when the number of rows is known; then the file is renamed. So the output is whole or not there, and nothing
//! but a window of rows is in memory.

use super::input::Line;
use crate::output::{Failure, Outcome};
use flate2::Crc;
use raddle::runtime::keep_access;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A kind of file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NumPy's.
    Npy,
    /// One tensor, `embeddings`.
    Safetensors,
    /// An object a line.
    Jsonl,
}

/// Room for the header of `.npy`: NumPy's own is as long for all shapes of two sizes.
const NPY_HEADER: usize = 128;
/// Room for the header of `.safetensors`, with any two sizes; the data is aligned to 64 bytes.
const SAFETENSORS_HEADER: usize = 192;

impl Kind {
    pub fn of(path: &Path) -> Outcome<Kind> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Kind::Npy),
            Some("safetensors") => Ok(Kind::Safetensors),
            Some("jsonl") => Ok(Kind::Jsonl),
            _ => Err(Failure::Input(format!(
                "{}: expected a name in .npy, .safetensors or .jsonl",
                path.display()
            ))),
        }
    }

    /// The header of a file of so many rows; for lines of JSON there is none.
    fn header(self, rows: u64, width: usize) -> Vec<u8> {
        match self {
            Kind::Npy => npy_header(rows, width),
            Kind::Safetensors => safetensors_header(rows, width),
            Kind::Jsonl => Vec::new(),
        }
    }

    /// The rows of some lines, of which the first has the number `first`. Rows of lines that have no text are NaN; JSON says why.
    fn encode(self, first: u64, lines: &[Line], rows: &[f32], width: usize) -> Vec<u8> {
        if self != Kind::Jsonl {
            return rows.iter().flat_map(|element| element.to_le_bytes()).collect();
        }
        let mut text = Vec::new();
        for ((line, row), number) in lines.iter().zip(rows.chunks(width)).zip(first..) {
            let value = match line {
                Ok(_) => serde_json::json!({ "line": number, "embedding": row }),
                Err(why) => serde_json::json!({ "line": number, "error": why }),
            };
            text.extend(value.to_string().into_bytes());
            text.push(b'\n');
        }
        text
    }
}

/// Version 1.0 of NumPy's format: a magic number, the length of the header, a dictionary of Python padded with spaces.
fn npy_header(rows: u64, width: usize) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((NPY_HEADER as u16 - 10).to_le_bytes());
    bytes.extend(
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}").as_bytes(),
    );
    bytes.resize(NPY_HEADER - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// The length of a JSON object, and the object padded with spaces.
fn safetensors_header(rows: u64, width: usize) -> Vec<u8> {
    let end = rows * width as u64 * 4;
    let mut bytes = (SAFETENSORS_HEADER as u64 - 8).to_le_bytes().to_vec();
    let entry =
        serde_json::json!({ "dtype": "F32", "shape": [rows, width as u64], "data_offsets": [0, end] });
    bytes.extend(serde_json::json!({ "embeddings": entry }).to_string().into_bytes());
    bytes.resize(SAFETENSORS_HEADER, b' ');
    bytes
}

/// A file that is being written.
pub struct Output {
    kind: Kind,
    path: PathBuf,
    partial: PathBuf,
    file: File,
    width: usize,
    rows: u64,
    bytes: u64,
    /// Of what stands behind the header.
    crc: Crc,
}

/// The name of what isn't whole yet.
pub fn partial_path(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    partial.into()
}

/// Is an open file the one that has this name now?
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::metadata(path) {
        Ok(named) => Ok(place(named) == place(file.metadata()?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Output {
    /// Begins a file, or goes on with what is there. Nobody else may be writing it. It is as open to others as the file that it
    /// will replace.
    pub fn open(path: &Path, kind: Kind, width: usize) -> Outcome<Output> {
        let partial = partial_path(path);
        let failed = |error: std::io::Error| Failure::Input(format!("{}: {error}", partial.display()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = loop {
            let file = options.open(&partial).map_err(failed)?;
            match file.try_lock() {
                // Between the opening and the lock its writer may have ended: then it has become the output, or is gone.
                Ok(()) if !is_at(&file, &partial).map_err(failed)? => {}
                Ok(()) => break file,
                Err(TryLockError::WouldBlock) => {
                    let reason = "another process is writing it";
                    return Err(Failure::Input(format!("{}: {reason}", partial.display())));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        };
        keep_access(&file, path).map_err(failed)?;
        Ok(Output { kind, path: path.into(), partial, file, width, rows: 0, bytes: 0, crc: Crc::new() })
    }

    /// Is nothing there?
    pub fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() == 0)
    }

    /// Forgets what is there.
    pub fn restart(&mut self) -> Outcome {
        let header = self.kind.header(0, self.width);
        let begun = self
            .file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(&header));
        (self.rows, self.bytes, self.crc) = (0, header.len() as u64, Crc::new());
        begun.map_err(|error| self.failed(error))
    }

    /// Goes on behind so many bytes, if they are there and have this checksum; what is behind them goes.
    pub fn resume(&mut self, rows: u64, bytes: u64, crc: u32) -> Outcome<bool> {
        let header = self.kind.header(0, self.width).len() as u64;
        let mut read = || -> std::io::Result<Crc> {
            let mut crc = Crc::new();
            self.file.seek(SeekFrom::Start(header))?;
            let (mut piece, mut left) = (vec![0; 1 << 18], bytes.saturating_sub(header));
            while left > 0 {
                let part = left.min(piece.len() as u64) as usize;
                self.file.read_exact(&mut piece[..part])?;
                crc.update(&piece[..part]);
                left -= part as u64;
            }
            Ok(crc)
        };
        match read() {
            Ok(found) if found.sum() == crc => self.crc = found,
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(self.failed(error)),
        }
        let cut = self.file.set_len(bytes).and_then(|()| self.file.seek(SeekFrom::Start(bytes)));
        (self.rows, self.bytes) = (rows, bytes);
        cut.map(|_| true).map_err(|error| self.failed(error))
    }

    /// Writes one row for each line.
    pub fn push(&mut self, lines: &[Line], rows: &[f32]) -> Outcome {
        let bytes = self.kind.encode(self.rows + 1, lines, rows, self.width);
        self.file.write_all(&bytes).map_err(|error| self.failed(error))?;
        self.crc.update(&bytes);
        self.rows += lines.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// What was written is on the disk.
    pub fn sync(&self) -> Outcome {
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    /// Rows, bytes and their checksum, for [`resume`](Output::resume).
    pub fn state(&self) -> (u64, u64, u32) {
        (self.rows, self.bytes, self.crc.sum())
    }

    /// Puts the file in its place.
    pub fn finish(mut self) -> Outcome {
        let header = self.kind.header(self.rows, self.width);
        let done = self.file.rewind().and_then(|()| self.file.write_all(&header));
        let done = done.and_then(|()| self.file.sync_all());
        done.and_then(|()| fs::rename(&self.partial, &self.path)).map_err(|error| self.failed(error))
    }

    /// What was written is gone.
    pub fn discard(self) {
        _ = fs::remove_file(&self.partial);
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::Input(format!("{}: {error}", self.partial.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of a run that was opened by another one just before it ended.
    #[test]
    fn a_file_that_has_become_the_output_is_let_go() {
        let path = std::env::temp_dir().join(format!("raddle-{}-ended.npy", std::process::id()));
        let output = Output::open(&path, Kind::Npy, 1).unwrap();
        let opened = File::open(&output.partial).unwrap();
        assert!(is_at(&opened, &output.partial).unwrap());
        let partial = output.partial.clone();
        output.finish().unwrap();
        assert!(!is_at(&opened, &partial).unwrap());
        let next = Output::open(&path, Kind::Npy, 1).unwrap();
        assert!(!is_at(&opened, &partial).unwrap() && next.is_empty());
        next.discard();
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn headers_have_room_for_any_sizes() {
        for (rows, width) in [(0, 1), (100, 384), (u64::MAX / (1 << 26), 1 << 24)] {
            let npy = npy_header(rows, width);
            assert_eq!((npy.len(), npy.last()), (NPY_HEADER, Some(&b'\n')));
            assert!(String::from_utf8_lossy(&npy).contains(&format!("'shape': ({rows}, {width}), }} ")));
            let safetensors = safetensors_header(rows, width);
            let value: serde_json::Value = serde_json::from_slice(&safetensors[8..]).unwrap();
            assert_eq!(value["embeddings"]["shape"], serde_json::json!([rows, width]));
            assert_eq!(safetensors.len(), SAFETENSORS_HEADER);
        }
    }
}
