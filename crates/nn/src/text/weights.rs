//! Weights of a model's folder, taken by name.

use super::{
    ModelError, Result,
    shards::{self, Shards},
};
use crate::checkpoint::CheckpointError;
use raddle_tensor::{DType, Device, Tensor};
use std::path::Path;

/// The tensors of `model.safetensors`, or of the files that its index names, to be taken by name. Others may be of any dtype:
/// nobody reads them.
pub struct Weights {
    shards: Shards,
    device: Device,
    /// Before each name of the encoder: `bert.` or the like if a model with a head was saved.
    prefix: String,
}

/// What every encoder has, and no head.
const ANCHOR: &str = "embeddings.word_embeddings.weight";

impl Weights {
    /// Opens and checks all of it.
    pub fn open(folder: &Path, device: &Device) -> Result<Weights> {
        let shards = shards::open(folder)?;
        let mut prefixes: Vec<&str> =
            shards.tensors.keys().filter_map(|name| name.strip_suffix(ANCHOR)).collect();
        prefixes.sort_unstable();
        if let [one, other, ..] = prefixes[..] {
            let (expected, found) = ("one encoder".into(), format!("{one:?} and {other:?} before {ANCHOR}"));
            let (file, what) = (shards.file, "the list of tensors");
            return Err(CheckpointError::Format { file, what, expected, found }.into());
        }
        let prefix = prefixes.first().map_or(String::new(), |prefix| prefix.to_string());
        Ok(Weights { shards, device: *device, prefix })
    }

    /// The same, whose names are those of the file from now on: for what isn't the encoder's.
    pub fn without_prefix(&mut self) -> &mut Weights {
        self.prefix.clear();
        self
    }

    /// Is there a tensor of this name?
    pub fn has(&self, name: &str) -> bool {
        self.shards.tensors.contains_key(name)
    }

    /// A tensor of the encoder in f32. Its shape, of which `None` may be of any size.
    pub fn take(&self, name: &str, shape: &[Option<usize>]) -> Result<Tensor> {
        self.take_named(format!("{}{name}", self.prefix), shape)
    }

    /// An error about the shape of what was taken.
    pub fn wrong_shape(&self, name: &str, found: &Tensor, expected: &[usize]) -> ModelError {
        CheckpointError::Entry {
            file: self.shards.file.clone(),
            tensor: format!("{}{name}", self.prefix),
            what: "the shape",
            expected: format!("{expected:?}"),
            found: format!("{:?}", found.shape()),
        }
        .into()
    }

    /// [`take`](Weights::take) of a head, whose names have no prefix.
    pub fn take_named(&self, mut name: String, shape: &[Option<usize>]) -> Result<Tensor> {
        let Shards { file, files, tensors } = &self.shards;
        // As they were called in TensorFlow, and still are in many a file.
        for (modern, old) in [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")] {
            if name.ends_with(modern) && !tensors.contains_key(&name) {
                let former = name.replace(modern, old);
                name = if tensors.contains_key(&former) { former } else { name };
            }
        }
        let wrong = |what, expected: String, found: String| {
            let (file, tensor) = (file.clone(), name.clone());
            Err(CheckpointError::Entry { file, tensor, what, expected, found }.into())
        };
        let Some(place) = tensors.get(&name) else {
            return wrong("the model's parameter", "it in the file".into(), "no such tensor".into());
        };
        let tensor = files[*place].tensor(&name, &self.device)?;
        let fits =
            |(size, expected): (&usize, &Option<usize>)| expected.is_none_or(|expected| *size == expected);
        if tensor.rank() != shape.len() || !tensor.shape().iter().zip(shape).all(fits) {
            let sizes: Vec<_> =
                shape.iter().map(|size| size.map_or("any".into(), |size| size.to_string())).collect();
            return wrong("the shape", format!("[{}]", sizes.join(", ")), format!("{:?}", tensor.shape()));
        }
        if !tensor.dtype().is_float() {
            return wrong("the dtype", "a float".into(), tensor.dtype().to_string());
        }
        Ok(tensor.to_dtype(DType::F32)?)
    }
}
