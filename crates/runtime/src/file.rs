//! Files mapped into memory, behind a safe type.

use crate::{Error, Result};
use std::path::Path;

/// The bytes of a file, mapped for reading. Pages come in when they are touched.
#[derive(Debug)]
pub struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps a file. Another process that cuts the file short while it is mapped makes reads of the missing part a fault
    /// of the operating system; files of weights are replaced by renaming, not by rewriting.
    pub fn open(path: &Path) -> Result<MappedFile> {
        let error = |error: std::io::Error| Error::File {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let file = std::fs::File::open(path).map_err(error)?;
        // SAFETY: the map is private and read-only; see above for the one hazard, which no mapping can exclude.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) }.map_err(error)?;
        Ok(MappedFile(map))
    }
}

impl std::ops::Deref for MappedFile {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
