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
use serde_json::Value;
use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// What a folder needs besides its weights.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WEIGHTS: &str = "model.safetensors";
const MODULES: &str = "modules.json";
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
            if !has(MODULES) {
                note_absent(&folder, MODULES);
            }
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
        (Some(folder), Some(_), Some(_)) => match missing(&folder) {
            None => Ok(folder),
            Some(file) => {
                let reason = format!(
                    "{why}, and {} has only a part of it, expected {file} there, found no such file and no note that the \
                     model has none; fetch it once with the hub in reach",
                    folder.display()
                );
                Err(ModelError::Hub { name: name.into(), reason })
            }
        },
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

/// Where programs note that a version of a model has no such file: beside `snapshots`, in which the version's folder is.
fn absence(folder: &Path, file: &str) -> Option<PathBuf> {
    Some(folder.parent()?.parent()?.join(".no_exist").join(folder.file_name()?).join(file))
}

/// A cache that can't be written is asked of the hub another time.
fn note_absent(folder: &Path, file: &str) {
    let Some((note, above)) =
        absence(folder, file).and_then(|note| Some((note.clone(), note.parent()?.to_path_buf())))
    else {
        return;
    };
    _ = fs::create_dir_all(above).and_then(|()| fs::write(note, ""));
}

/// What isn't in the folder of a version, and changes what the model computes or is needed to. Programs that read no more
/// than the transformer leave the rest on the hub; without `modules.json` it would silently be the mean of the tokens.
fn missing(folder: &Path) -> Option<String> {
    // What is wrong with a file is the loader's to say.
    let read = |file: &str| -> Option<Value> {
        Some(serde_json::from_slice(&fs::read(folder.join(file)).ok()?).unwrap_or_default())
    };
    let Some(modules) = read(MODULES) else {
        let config = read(NEEDED[0]).unwrap_or_default();
        let architecture = config["architectures"][0].as_str().unwrap_or_default();
        let is_noted = absence(folder, MODULES).is_some_and(|note| note.exists());
        let is_needed = !is_noted && !architecture.ends_with("ForSequenceClassification");
        return is_needed.then(|| MODULES.into());
    };
    let files = |module: &Value| -> Vec<String> {
        let names = match module["type"].as_str().and_then(|kind| kind.rsplit('.').next()) {
            Some("Pooling") => &["config.json"][..],
            Some("Dense") => &["config.json", WEIGHTS],
            _ => &[],
        };
        let path = module["path"].as_str().unwrap_or_default();
        names.iter().map(|name| format!("{path}/{name}")).collect()
    };
    let files = modules.as_array().into_iter().flatten().flat_map(files);
    files.filter(|file| is_wanted(file)).find(|file| !folder.join(file).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache as other programs fill it.
    #[test]
    fn a_part_of_a_model_is_none() {
        let base = std::env::temp_dir().join(format!("raddle-{}-cache", std::process::id()));
        let repo = base.join("models--a--b");
        let folder = repo.join("snapshots/c0ffee");
        let write = |file: PathBuf, text: &str| {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(repo.join("refs/main"), "c0ffee");
        for file in [NEEDED[0], NEEDED[1], WEIGHTS] {
            write(folder.join(file), "{}");
        }
        let cache = Cache::new(base.clone());
        let lacks = |file: &str| {
            let error = cached(&cache, "a/b", "HF_HUB_OFFLINE is set").unwrap_err().to_string();
            let found = format!("has only a part of it, expected {file} there, found no such file");
            error.starts_with("model \"a/b\": HF_HUB_OFFLINE is set, and ") && error.contains(&found)
        };
        let is_whole = || cached(&cache, "a/b", "").as_ref() == Ok(&folder);
        assert!(lacks(MODULES));
        // A reranker has none.
        write(folder.join(NEEDED[0]), r#"{"architectures": ["BertForSequenceClassification"]}"#);
        assert!(is_whole());
        write(folder.join(NEEDED[0]), r#"{"architectures": ["BertModel"]}"#);
        assert!(lacks(MODULES));
        note_absent(&folder, MODULES);
        assert!(repo.join(".no_exist/c0ffee/modules.json").exists() && is_whole());
        let modules = r#"[{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"},
            {"type": "x.Dense", "path": "2_Dense"}, {"type": "x.Normalize", "path": "3_Normalize"}]"#;
        write(folder.join(MODULES), modules);
        for file in ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"] {
            assert!(lacks(file), "{file}");
            write(folder.join(file), "{}");
        }
        assert!(is_whole());
        fs::remove_dir_all(base).unwrap();
    }

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
