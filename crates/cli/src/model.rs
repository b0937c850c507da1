//! Where a model is.

use crate::output::{Failure, Outcome};
use raddle::nn::text::hub;
use std::path::{Path, PathBuf};

/// The folder that `--model` means: itself, or for a name on the hub the one in its cache, after fetching what isn't there.
pub fn folder(model: &Path) -> Outcome<PathBuf> {
    match model.to_str() {
        Some(name) if !model.exists() && hub::is_name(name) => {
            hub::fetch(name).map_err(|error| Failure::Input(error.to_string()))
        }
        _ => Ok(model.into()),
    }
}
