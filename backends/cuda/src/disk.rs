//! Compiled kernels across runs: one file a kernel, named by the hash of everything that it depends on.
//!
//! A file holds that identity whole, so two of one hash aren't confused, and a checksum: a damaged file is as good as none
//! and is written anew. It is written beside its place and renamed, so nobody reads half of one. No error of the disk is
//! an error of the kernel: it is compiled then. The folder is bounded in files and in bytes; its oldest files go
//! when a process first writes, and whenever it has written an eighth of a bound since: by so much each process may pass it.

use raddle_hal::Bounds;
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU32, AtomicU64, Ordering::*},
    fault,
};
use std::{env, fs, io, path::PathBuf, time::SystemTime};

/// Of the format; change it with the layout.
const MAGIC: &[u8; 8] = b"raddleC1";

/// A folder of compiled kernels.
pub struct Disk {
    folder: PathBuf,
    file_count_max: usize,
    bytes_max: u64,
    /// Files and bytes that may be written before it is tidied again.
    untidied: Mutex<(usize, u64)>,
    partial: AtomicU32,
    hits: AtomicU64,
    misses: AtomicU64,
    corrupt: AtomicU64,
}

/// FNV-1a: short, and good enough against accidents; the identity is compared whole.
fn hash(parts: &[&[u8]]) -> u128 {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    hash
}

impl Disk {
    /// The folder of this user: `RADDLE_CACHE_DIR` (none if it is empty), or `raddle` where such things belong.
    pub fn of_user(bounds: &Bounds) -> Option<Disk> {
        let is_set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = match env::var_os("RADDLE_CACHE_DIR") {
            Some(folder) if folder.is_empty() => return None,
            Some(folder) => PathBuf::from(folder),
            None => is_set("XDG_CACHE_HOME").or_else(|| Some(is_set("HOME")?.join(".cache")))?.join("raddle"),
        };
        Some(Disk::at(folder.join("cuda"), bounds))
    }

    /// This folder; made when it is first written to.
    pub fn at(folder: PathBuf, bounds: &Bounds) -> Disk {
        Disk {
            folder,
            file_count_max: bounds.disk_count,
            bytes_max: bounds.disk_bytes as u64,
            untidied: Mutex::new(Rank::Leaf, (0, 0)),
            partial: AtomicU32::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        }
    }

    /// What was found, what wasn't, and what was there but of no use.
    pub fn counts(&self) -> [u64; 3] {
        [&self.hits, &self.misses, &self.corrupt].map(|count| count.load(Relaxed))
    }

    fn path(&self, identity: &[u8]) -> PathBuf {
        self.folder.join(format!("{:032x}.cubin", hash(&[identity])))
    }

    /// What was stored under this identity.
    pub fn load(&self, identity: &[u8]) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(identity)).ok();
        let image = bytes.as_ref().and_then(|bytes| Disk::image(bytes, identity));
        let count = if image.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Relaxed);
        if image.is_none() && bytes.is_some() {
            self.corrupt.fetch_add(1, Relaxed);
        }
        image
    }

    fn image(bytes: &[u8], identity: &[u8]) -> Option<Vec<u8>> {
        let (body, checksum) = bytes.split_last_chunk::<16>()?;
        if hash(&[body]).to_le_bytes() != *checksum {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let (found, image) = rest.split_at_checked(u64::from_le_bytes(*size) as usize)?;
        (found == identity).then(|| image.to_vec())
    }

    /// Stores an image, if the disk lets it.
    pub fn store(&self, identity: &[u8], image: &[u8]) {
        let Ok(size_bytes) = self.write(identity, image) else { return };
        let is_due = {
            let mut untidied = self.untidied.lock();
            let (files, bytes) = *untidied;
            let is_due = files == 0 || bytes < size_bytes;
            *untidied = match is_due {
                true => (self.file_count_max / 8, self.bytes_max / 8),
                false => (files - 1, bytes - size_bytes),
            };
            fault!(folder_tidied_once => if is_due { *untidied = (usize::MAX, u64::MAX) });
            is_due
        };
        if is_due {
            _ = self.tidy();
        }
    }

    /// The size of the file.
    fn write(&self, identity: &[u8], image: &[u8]) -> io::Result<u64> {
        let mut folder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700); // whoever writes here runs code on the device
        folder.recursive(true).create(&self.folder)?;
        let size = (identity.len() as u64).to_le_bytes();
        let parts = [&MAGIC[..], &size, identity, image];
        let checksum = hash(&parts).to_le_bytes();
        let number = self.partial.fetch_add(1, Relaxed);
        let partial = self.folder.join(format!("{}-{number}.partial", std::process::id()));
        let bytes = [&parts.concat()[..], &checksum].concat();
        fs::write(&partial, &bytes)
            .and_then(|()| fs::rename(&partial, self.path(identity)))
            .inspect_err(|_| _ = fs::remove_file(&partial))?;
        Ok(bytes.len() as u64)
    }

    /// Removes the oldest files beyond three quarters of a bound, once it is passed.
    fn tidy(&self) -> io::Result<()> {
        let age = |entry: fs::DirEntry| -> io::Result<(SystemTime, u64, PathBuf)> {
            let metadata = entry.metadata()?;
            Ok((metadata.modified()?, metadata.len(), entry.path()))
        };
        let mut files: Vec<_> =
            fs::read_dir(&self.folder)?.filter_map(|entry| age(entry.ok()?).ok()).collect();
        let (mut count, mut bytes) = (files.len(), files.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
        if count <= self.file_count_max && bytes <= self.bytes_max {
            return Ok(());
        }
        files.sort_unstable();
        for (_, size_bytes, path) in &files {
            if count <= self.file_count_max * 3 / 4 && bytes <= self.bytes_max / 4 * 3 {
                break;
            }
            _ = fs::remove_file(path);
            (count, bytes) = (count - 1, bytes - size_bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_sync::faults::{Fault, assert_caught};

    /// A folder of this test, removed at its end.
    struct Folder(PathBuf);
    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = env::temp_dir().join(format!("raddle-disk-{}-{name}", std::process::id()));
            _ = fs::remove_dir_all(&folder);
            Folder(folder)
        }
        fn disk(&self) -> Disk {
            Disk::at(self.0.clone(), &Bounds::default())
        }
        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
        }
    }
    impl Drop for Folder {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_stored_is_found_and_nothing_else() {
        let folder = Folder::new("found");
        let disk = folder.disk();
        assert_eq!(disk.load(b"a"), None);
        disk.store(b"a", b"image");
        assert_eq!(disk.load(b"a"), Some(b"image".to_vec()));
        assert_eq!(disk.load(b"b"), None);
        fs::rename(disk.path(b"a"), disk.path(b"b")).unwrap();
        assert_eq!(disk.load(b"b"), None, "another identity of the same hash");
        assert_eq!(disk.counts(), [1, 3, 1]);
        assert_eq!(folder.files().len(), 1, "nothing partial is left");
    }

    #[test]
    fn any_damage_is_seen_and_repaired() {
        let folder = Folder::new("damage");
        let disk = folder.disk();
        disk.store(b"key", b"some image");
        let path = disk.path(b"key");
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert_eq!(disk.load(b"key"), None, "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert_eq!(disk.load(b"key"), None, "cut to {at} bytes");
        }
        disk.store(b"key", b"some image");
        assert_eq!(disk.load(b"key"), Some(b"some image".to_vec()));
    }

    #[test]
    fn the_folder_is_bounded() {
        let folder = Folder::new("bounded");
        for key in 0..20_u8 {
            folder.disk().store(&[key], b"image");
        }
        let disk = Disk { file_count_max: 8, ..folder.disk() };
        disk.store(b"last", b"image");
        assert_eq!(folder.files().len(), 6);
        let file_bytes = fs::metadata(&folder.files()[0]).unwrap().len();
        let disk = Disk { bytes_max: file_bytes * 4, ..folder.disk() };
        for key in 100..150_u8 {
            disk.store(&[key], b"image");
            assert!(folder.files().len() <= 4, "tidied again and again");
        }
    }

    #[test]
    fn fault_folder_tidied_once() {
        assert_caught(Fault::folder_tidied_once, "disk::tests::the_folder_is_bounded");
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_no_error() {
        let disk = Disk::at(PathBuf::from("/dev/null/raddle"), &Bounds::default());
        disk.store(b"a", b"image");
        assert_eq!(disk.load(b"a"), None);
    }
}
