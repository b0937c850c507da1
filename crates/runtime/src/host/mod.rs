//! What belongs to the process and to no device: files, traces for a viewer, and children and ends for tests.

mod file;
#[cfg(all(feature = "process", not(loom)))]
pub mod harness;
pub mod trace;

pub use file::{FileReplacement, MappedFile, keep_access, replaceable};
