//! Weights of a folder: one file, or several that an index lists (`model.safetensors.index.json`, whose `weight_map` says for
//! each tensor in which file it is).
//!
//! The index is believed in nothing: names of files must not lead out of the folder, each tensor must be where it says, and no
//! tensor in two files.

use super::{Result, settings::Settings};
use crate::checkpoint::{Checkpoint, CheckpointError};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Component, Path, PathBuf},
};

/// The one file.
const WHOLE: &str = "model.safetensors";
/// The index of several.
pub const INDEX: &str = "model.safetensors.index.json";
/// What PyTorch's own format is in, which is a program that is run when it is read.
pub const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// What to do with a folder that has only those.
pub const CONVERT: &str = "model.safetensors: a .bin is a program that is run when it is read; convert it once with \
    Python: `from transformers import AutoModel; AutoModel.from_pretrained(folder).save_pretrained(folder)`, for a reranker \
    with AutoModelForSequenceClassification, for a module of sentence-transformers with \
    `safetensors.torch.save_file(torch.load(file), \"model.safetensors\")`";

/// The files of a folder's weights, opened, the file to name in errors about all of them, and in which of them each tensor is.
pub struct Shards {
    pub file: PathBuf,
    pub files: Vec<Checkpoint>,
    pub tensors: HashMap<String, usize>,
}

/// Opens and checks them.
pub fn open(folder: &Path) -> Result<Shards> {
    let (whole, index) = (folder.join(WHOLE), folder.join(INDEX));
    if whole.exists() || !index.exists() {
        if !whole.exists()
            && let Some(found) = PICKLED.into_iter().find(|name| folder.join(name).exists())
        {
            let (file, what) = (folder.into(), "the file of the weights");
            let (expected, found) = (CONVERT.into(), format!("only {found}"));
            return Err(CheckpointError::Format { file, what, expected, found }.into());
        }
        let file = Checkpoint::open(&whole)?;
        let tensors = file.names().map(|name| (name.to_string(), 0)).collect();
        return Ok(Shards { file: whole, tensors, files: vec![file] });
    }
    let mut shards = Shards { file: index.clone(), files: Vec::new(), tensors: HashMap::new() };
    for (name, expected) in files(&Settings::read(index)?)? {
        let file = Checkpoint::open(folder.join(name))?;
        let wrong = |tensor: &str, expected: String, found: String| CheckpointError::Entry {
            file: file.path().into(),
            tensor: tensor.into(),
            what: "the tensor",
            expected,
            found,
        };
        // In this file, and not in one that was read before.
        if let Some(missing) = expected.iter().find(|tensor| !file.contains(tensor)) {
            return Err(wrong(missing, format!("it here, as {INDEX} says"), "no such tensor".into()).into());
        }
        for tensor in file.names() {
            if shards.tensors.insert(tensor.into(), shards.files.len()).is_some() {
                return Err(wrong(tensor, "each in one file".into(), "it in another too".into()).into());
            }
        }
        shards.files.push(file);
    }
    Ok(shards)
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
