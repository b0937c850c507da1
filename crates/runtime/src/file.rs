//! Files: mapped into memory, behind a safe type; and what becomes of one that another takes the place of.

use crate::{Error, Result};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

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
        let file = File::open(path).map_err(error)?;
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

/// As many as Linux follows.
const LINK_COUNT_MAX: usize = 40;

/// The folder that a path is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file at the end of symbolic links, to be replaced there by renaming, so that the links stay; it need not exist. None: a
/// device, a pipe or a folder, or a file that a process has open (a link in /proc), which can't be replaced so.
pub fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut target = path.to_path_buf();
    for _ in 0..LINK_COUNT_MAX {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                let folder = fs::canonicalize(folder(&target))?;
                if folder.starts_with("/proc") {
                    return Ok(None);
                }
                target = folder.join(fs::read_link(&target)?);
            }
            Ok(found) => return Ok(found.is_file().then_some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(target)),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("expected at most {LINK_COUNT_MAX} symbolic links, found more")))
}

/// A file that takes another one's place when it is whole. It is written beside that one and is as open to others. Dropped before
/// [`FileReplacement::finish`] it is gone, and what was there stays.
#[derive(Debug)]
pub struct FileReplacement {
    file: File,
    partial: PathBuf,
    target: PathBuf,
    is_in_place: bool,
}

impl FileReplacement {
    /// Begins an empty file for a place that [`replaceable`] gave. No other has its name, of this or another process.
    pub fn begin(target: PathBuf) -> io::Result<FileReplacement> {
        let (mut number, process) = (0, std::process::id());
        let (file, partial) = loop {
            let mut name = std::ffi::OsString::from(".");
            name.push(target.file_name().unwrap_or_default());
            name.push(format!(".{process}.{number}.partial"));
            let partial = target.with_file_name(name);
            match File::create_new(&partial) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                created => break (created?, partial),
            }
        };
        let replacement = FileReplacement { file, partial, target, is_in_place: false };
        keep_access(&replacement.file, &replacement.target)?;
        Ok(replacement)
    }

    /// To be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Puts it in its place. After a crash of the system it is whole if the file was synchronized before.
    pub fn finish(mut self) -> io::Result<()> {
        fs::rename(&self.partial, &self.target)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        if !self.is_in_place {
            _ = fs::remove_file(&self.partial); // the error that counts is the first
        }
    }
}

/// Makes a new file that is to take the place of another no more open to others than that one is: with its permissions, and its
/// owner and group where the system allows that. Where it doesn't, the group gets nothing, as it is another group. Nothing
/// happens if nothing is there. Call it before anything is written.
pub fn keep_access(file: &File, replaced: &Path) -> io::Result<()> {
    match fs::metadata(replaced) {
        Ok(then) if then.is_file() => take_over(file, &then),
        _ => Ok(()), // whoever renames is told what is wrong
    }
}

#[cfg(unix)]
fn take_over(file: &File, then: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    const OWNER_WRITES: u32 = 0o600;
    const GROUP: u32 = 0o070;
    let now = file.metadata()?;
    let is_kept = (then.uid(), then.gid()) == (now.uid(), now.gid())
        || fchown(file, Some(then.uid()), Some(then.gid())).is_ok()
        || then.gid() == now.gid()
        || fchown(file, None, Some(then.gid())).is_ok();
    let mode = then.mode() & 0o777 & if is_kept { !0 } else { !GROUP };
    file.set_permissions(fs::Permissions::from_mode(mode | OWNER_WRITES))
}

#[cfg(not(unix))]
fn take_over(file: &File, then: &fs::Metadata) -> io::Result<()> {
    file.set_permissions(then.permissions())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_replacement_is_whole_or_gone() {
        let folder = std::env::temp_dir().join(format!("raddle-{}-replacement", std::process::id()));
        fs::create_dir_all(folder.join("taken/inner")).unwrap();
        let place = folder.join("file");
        let [first, second] = [0, 1].map(|_| FileReplacement::begin(place.clone()).unwrap());
        first.file().write_all(b"first").unwrap();
        second.file().write_all(b"second").unwrap();
        second.finish().unwrap();
        first.finish().unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"first");
        drop(FileReplacement::begin(place).unwrap());
        // A folder can't be replaced.
        assert!(FileReplacement::begin(folder.join("taken")).unwrap().finish().is_err());
        assert!(FileReplacement::begin(folder.join("none/file")).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "something is left over");
        fs::remove_dir_all(folder).unwrap();
    }
}
