//! Whether a model is the same as another time.

use crate::output::{Failure, Outcome};
use flate2::Crc;
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// Files up to this size are read whole; of larger ones so many pieces, evenly spaced, the first and the last among them.
const WHOLE_BYTES: u64 = 4 << 20;
const PIECES: u64 = 256;
const PIECE_BYTES: usize = 4 << 10;

/// A checksum of the model's files. Two models of one kind differ in almost every element, so a part of the weights tells them
/// apart.
pub fn fingerprint(folder: &Path) -> Outcome<String> {
    let mut files = Vec::new();
    let entries = |folder: &Path| -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
    };
    let failed = |path: &Path, error: std::io::Error| Failure::Input(format!("{}: {error}", path.display()));
    for path in entries(folder).map_err(|error| failed(folder, error))? {
        // 1_Pooling and the like.
        let is_module = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
        if is_module && path.is_dir() {
            files.extend(entries(&path).map_err(|error| failed(&path, error))?);
        } else {
            files.push(path);
        }
    }
    // What is no file, or a link to none, may stand in the folder: the model is loaded without it.
    let is_read = |path: &PathBuf| {
        let extension = path.extension();
        extension.is_some_and(|extension| extension == "json" || extension == "safetensors") && path.is_file()
    };
    files.retain(is_read);
    files.sort();
    let mut crc = Crc::new();
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        crc.update(name.as_os_str().as_encoded_bytes());
        add(&mut crc, &path).map_err(|error| failed(&path, error))?;
    }
    Ok(format!("{:08x}-{}", crc.sum(), crc.amount()))
}

fn add(crc: &mut Crc, path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    crc.update(&size.to_le_bytes());
    let mut piece = vec![0; PIECE_BYTES];
    if size <= WHOLE_BYTES {
        let mut all = Vec::new();
        file.read_to_end(&mut all)?;
        crc.update(&all);
        return Ok(());
    }
    for index in 0..PIECES {
        file.seek(SeekFrom::Start((size - PIECE_BYTES as u64) * index / (PIECES - 1)))?;
        file.read_exact(&mut piece)?;
        crc.update(&piece);
    }
    Ok(())
}
