//! Models by their names on the Hugging Face hub, in the cache that other programs use, too (`HF_HOME`, else
//! `~/.cache/huggingface`).
//!
//! The hub is asked which files a model has, and those that the cache doesn't hold are fetched, weights last. Where the hub
//! can't be reached, or `HF_HUB_OFFLINE` is set, a model that is in the cache is taken as it is there. `HF_ENDPOINT` names
//! another hub, and a token is read from the cache's folder.

use super::{ModelError, Result, shards};
use hf_hub::{
    Cache, Repo,
    api::sync::{ApiBuilder, ApiError, ApiRepo},
};
use std::path::{Component, Path, PathBuf};

/// What a folder needs besides its weights.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WEIGHTS: &str = "model.safetensors";
/// So often files are looked for until all are of one version.
const PASSES_MAX: usize = 3;

/// Could this be a name on the hub? `owner/name`, and no path of a folder.
pub fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    matches!(text.split_once('/'), Some((owner, name)) if part(owner) && part(name))
}

/// The folder of a model of this name, after fetching what isn't there. Blocks; prints a bar on a terminal.
///
/// Errors: the hub doesn't have it, or has it in another form; it can't be reached and the cache doesn't have it: then with what
/// to download and where to put it.
pub fn fetch(name: &str) -> Result<PathBuf> {
    let cache = Cache::from_env();
    let offline = std::env::var_os("HF_HUB_OFFLINE").is_some_and(|value| value != "0" && !value.is_empty());
    if offline {
        return cached(&cache, name, "HF_HUB_OFFLINE is set");
    }
    let failed = |error: ApiError| ModelError::Hub { name: name.into(), reason: error.to_string() };
    let api = ApiBuilder::from_env().with_progress(false).build().map_err(failed)?;
    let repo = api.model(name.into());
    let listed = match repo.info() {
        Ok(info) => info.siblings.into_iter().map(|sibling| sibling.rfilename),
        Err(error) if answered(&error) => {
            let reason = format!("the hub doesn't give it: {error}");
            return Err(ModelError::Hub { name: name.into(), reason });
        }
        Err(error) => return cached(&cache, name, &format!("the hub can't be reached ({error})")),
    };
    let files: Vec<String> = listed.filter(|file| is_wanted(file)).collect();
    let has = |file: &str| files.iter().any(|other| other == file);
    if let Some(missing) = NEEDED.into_iter().find(|file| !has(file)) {
        let reason = format!("it has no {missing}, which is needed");
        return Err(ModelError::Hub { name: name.into(), reason });
    }
    if !has(WEIGHTS) && !has(shards::INDEX) {
        let reason =
            format!("it has no {WEIGHTS} and no {}, which are the weights that can be read", shards::INDEX);
        return Err(ModelError::Hub { name: name.into(), reason });
    }
    // One file, or several that the index names: not both. The largest last: what is missing shows soon.
    let mut files: Vec<&String> = files
        .iter()
        .filter(|file| !(has(WEIGHTS) && file.starts_with("model") && *file != WEIGHTS))
        .collect();
    files.sort_by_key(|file| (is_weights(file), *file));
    // All of one version: one that was published meanwhile, or since the cache was filled, is fetched in another pass.
    for _ in 0..PASSES_MAX {
        let folders = files.iter().map(|file| get(&repo, file, name)).collect::<Result<Vec<_>>>()?;
        if folders.windows(2).all(|pair| pair[0] == pair[1])
            && let Some(folder) = folders.into_iter().next()
        {
            return Ok(folder);
        }
    }
    let reason = "its files are of several versions, which change while they are fetched".into();
    Err(ModelError::Hub { name: name.into(), reason })
}

/// The folder of the version that a file is of, after fetching the file if it isn't there.
fn get(repo: &ApiRepo, file: &str, name: &str) -> Result<PathBuf> {
    let failed = |reason: &dyn std::fmt::Display| ModelError::Hub {
        name: name.into(),
        reason: format!("{file} can't be fetched: {reason}"),
    };
    let path = repo.get(file).map_err(|error| failed(&error))?;
    let folder = path.ancestors().nth(Path::new(file).components().count());
    Ok(folder.ok_or_else(|| failed(&"it is in no folder"))?.to_path_buf())
}

/// Was there an answer, and it was no?
fn answered(error: &ApiError) -> bool {
    matches!(error, ApiError::RequestError(error) if matches!(**error, ureq::Error::StatusCode(_)))
}

fn is_weights(file: &str) -> bool {
    file.ends_with(".safetensors")
}

/// Is a file one of those that a model is read from? What the hub says of names isn't believed: none leads out of the folder.
fn is_wanted(file: &str) -> bool {
    let parts: Vec<&str> = Path::new(file)
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    if parts.join("/") != file {
        return false;
    }
    match parts[..] {
        [name] => {
            matches!(
                name,
                "config.json"
                    | "tokenizer.json"
                    | "tokenizer_config.json"
                    | "modules.json"
                    | "config_sentence_transformers.json"
                    | WEIGHTS
                    | shards::INDEX
            ) || (name.starts_with("sentence_") && name.ends_with("_config.json"))
                || (name.starts_with("model-") && is_weights(name))
        }
        // 1_Pooling, 2_Dense and so on.
        [folder, name] => {
            folder.starts_with(|c: char| c.is_ascii_digit()) && matches!(name, "config.json" | WEIGHTS)
        }
        _ => false,
    }
}

/// A model that other runs, or programs, have fetched.
fn cached(cache: &Cache, name: &str, why: &str) -> Result<PathBuf> {
    let repo = cache.repo(Repo::model(name.into()));
    let found = |file: &str| repo.get(file);
    let weights = found(WEIGHTS).or_else(|| found(shards::INDEX));
    let folder = found(NEEDED[0]).and_then(|config| Some(config.parent()?.to_path_buf()));
    match (folder, found(NEEDED[1]), weights) {
        (Some(folder), Some(_), Some(_)) => Ok(folder),
        _ => {
            let reason = format!(
                "{why}, and {} doesn't have it; download config.json, tokenizer.json, model.safetensors and, if it has \
                 them, modules.json, sentence_bert_config.json, config_sentence_transformers.json and the folders 1_Pooling, \
                 2_Dense … into a folder, and give that folder instead of the name",
                cache.path().display()
            );
            Err(ModelError::Hub { name: name.into(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_paths() {
        for name in ["sentence-transformers/all-MiniLM-L6-v2", "a/b", "BAAI/bge-small-en-v1.5"] {
            assert!(is_name(name), "{name}");
        }
        for path in ["a", "/a/b", "./a", "../a", "a/..", "a/b/c", "a/", "/a", "a b/c", "a/.b", "", "~/x y"] {
            assert!(!is_name(path), "{path}");
        }
    }

    #[test]
    fn only_what_is_read_is_fetched_and_nothing_outside() {
        for file in [
            "config.json",
            "1_Pooling/config.json",
            "2_Dense/model.safetensors",
            "model-00001-of-00002.safetensors",
        ] {
            assert!(is_wanted(file), "{file}");
        }
        for file in [
            "pytorch_model.bin",
            "../config.json",
            "/config.json",
            "1_Pooling/../config.json",
            "1_Pooling/../../config.json",
            "./config.json",
            "onnx/model.safetensors",
            "1_Pooling//config.json",
            "",
        ] {
            assert!(!is_wanted(file), "{file}");
        }
    }
}
