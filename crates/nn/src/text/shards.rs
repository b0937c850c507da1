//! Weights of a folder: one file, or several that an index lists (`model.safetensors.index.json`, whose `weight_map` says for
//! each tensor in which file it is).
//!
//! The index is believed in nothing: names of files must not lead out of the folder, each tensor must be where it says, and no
//! tensor in two files.

use super::{Result, folder::Settings};
use crate::checkpoint::{self, CheckpointError};
use raddle_tensor::{Device, Tensor};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Component, Path, PathBuf},
};

/// The one file.
const WHOLE: &str = "model.safetensors";
/// The index of several.
pub const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a folder by their names, and the file to name in errors about them.
pub fn read(folder: &Path, device: &Device) -> Result<(PathBuf, HashMap<String, Tensor>)> {
    let (whole, index) = (folder.join(WHOLE), folder.join(INDEX));
    if whole.exists() || !index.exists() {
        let tensors = checkpoint::load(&whole, device)?.into_iter().collect();
        return Ok((whole, tensors));
    }
    let mut tensors = HashMap::new();
    for (name, expected) in files(&Settings::read(index.clone())?)? {
        let file = folder.join(name);
        let wrong = |tensor: &str, expected: String, found: String| CheckpointError::Entry {
            file: file.clone(),
            tensor: tensor.into(),
            what: "the tensor",
            expected,
            found,
        };
        let found = checkpoint::load(&file, device)?;
        // In this file, and not in one that was read before.
        let here: HashSet<&str> = found.iter().map(|(tensor, _)| tensor.as_str()).collect();
        if let Some(missing) = expected.iter().find(|tensor| !here.contains(tensor.as_str())) {
            return Err(wrong(missing, format!("it here, as {INDEX} says"), "no such tensor".into()).into());
        }
        for (tensor, value) in found {
            if tensors.contains_key(&tensor) {
                return Err(wrong(&tensor, "each in one file".into(), "it in another too".into()).into());
            }
            tensors.insert(tensor, value);
        }
    }
    Ok((index, tensors))
}

/// The files that an index names, each with its tensors.
fn files(index: &Settings) -> Result<BTreeMap<String, Vec<String>>> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in index.named_texts("weight_map")? {
        let mut parts = Path::new(&file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let error = index.wrong("weight_map", "names of files in this folder");
            return Err(error);
        }
        files.entry(file).or_default().push(tensor);
    }
    match files.is_empty() {
        true => Err(index.wrong("weight_map", "the file of each tensor")),
        false => Ok(files),
    }
}
