//! Traces as files, compressed or not.

use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};
use raddle::runtime::{MemoryTrace, TraceError};
use raddle_cli::output::{Failure, Outcome, write_whole};
use std::{
    fs,
    io::{BufReader, Cursor, Read},
    path::Path,
};

/// A trace of the most events has no more bytes.
const BYTES_MAX: u64 = 1 << 28;

/// Reads a trace and checks it. A file of too many bytes, once it is decompressed, ends too early.
pub fn read(path: &Path) -> Outcome<MemoryTrace> {
    let failed = |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| failed(&error))?;
    let trace = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => MemoryTrace::read(BufReader::new(MultiGzDecoder::new(Cursor::new(bytes)).take(BYTES_MAX))),
        false => MemoryTrace::read(Cursor::new(bytes)),
    };
    trace.map_err(|error| failed(&error))
}

/// Writes a trace, whole or not at all; compressed if the name ends in `.gz`.
pub fn write(path: &Path, trace: &MemoryTrace) -> Outcome {
    let failed = |error: TraceError| Failure::Other(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut encoder = GzEncoder::new(&mut bytes, Compression::best());
        trace.write(&mut encoder).map_err(failed)?;
        encoder.finish().map_err(|error| failed(error.into()))?;
    } else {
        trace.write(&mut bytes).map_err(failed)?;
    }
    write_whole(path, &bytes)
}

/// What a trace is called in reports, wherever it lies.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
