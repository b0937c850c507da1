//! Models by their names on the Hugging Face hub, in the cache that other programs use, too.
//!
//! The hub is asked which files a model has, and those that the cache doesn't hold are fetched, weights last. Where the hub
//! can't be reached, or mustn't, a model that is in the cache is taken as it is there. `owner/name@revision` is a branch, a tag,
//! a commit or a pull request (`refs/pr/1`); without one it is `main`.
//!
//! Variables are those of `huggingface_hub`, with its meaning:
//!
//! | variable | |
//! |---|---|
//! | `HF_HUB_OFFLINE`, else `TRANSFORMERS_OFFLINE` | `1`, `ON`, `YES`, `TRUE` in letters of any size: the hub isn't asked. Anything else is no |
//! | `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE` | the cache; else `$HF_HOME/hub` |
//! | `HF_HOME` | else `$XDG_CACHE_HOME/huggingface`, else `~/.cache/huggingface` |
//! | `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN` | a token; else it is read from the file `HF_TOKEN_PATH`, else `$HF_HOME/token` |
//! | `HF_HUB_DISABLE_IMPLICIT_TOKEN` | as the first: no token is sent |
//! | `HF_ENDPOINT` | another hub |
//!
//! `~` and `$NAME` are replaced in paths. What is empty counts as it does there: for booleans and tokens it is nothing.

use super::{ModelError, Result, shards};
use hf_hub::{
    Cache, Repo, RepoType,
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
/// The version that is meant where none is named.
const MAIN: &str = "main";

/// Could this be a name on the hub? `owner/name` or `owner/name@revision`, and no path of a folder.
pub fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let (name, revision) = split(text);
    let is_revision = revision.split('/').all(|part| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_graphic() && !"\\?%#~^:*[".contains(c))
    });
    is_revision && matches!(name.split_once('/'), Some((owner, name)) if part(owner) && part(name))
}

/// A name and the version that is asked for.
fn split(text: &str) -> (&str, &str) {
    text.split_once('@').unwrap_or((text, MAIN))
}

/// What variables say.
#[derive(Debug, PartialEq)]
struct Environment {
    offline: bool,
    cache: PathBuf,
    token: Option<String>,
    endpoint: String,
}

impl Environment {
    /// Of variables by their names.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Environment {
        let filled = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_true = |value: Option<String>| {
            value.is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str()))
        };
        let path = |value: String| PathBuf::from(expand(&value, &variable));
        let home = variable("HF_HOME").unwrap_or_else(|| {
            let above = variable("XDG_CACHE_HOME").unwrap_or_else(|| "~/.cache".into());
            format!("{above}/huggingface")
        });
        let home = path(home);
        let cache = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        let token_file = variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), path);
        // Lines are what editors leave behind it.
        let clean = |token: String| Some(token.replace(['\n', '\r'], "").trim().to_string());
        let told = filled("HF_TOKEN").or_else(|| filled("HUGGING_FACE_HUB_TOKEN"));
        let told = told.and_then(clean).filter(|token| !token.is_empty());
        let token = match is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
            true => None,
            false => told
                .or_else(|| fs::read_to_string(token_file).ok().and_then(clean))
                .filter(|token| !token.is_empty()),
        };
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Environment {
            offline: is_true(filled("HF_HUB_OFFLINE").or_else(|| filled("TRANSFORMERS_OFFLINE"))),
            cache: cache.map_or_else(|| home.join("hub"), path),
            token,
            endpoint: endpoint.trim_end_matches('/').into(),
        }
    }
}

/// A path with `~` in front and `$NAME` or `${NAME}` in it replaced; names that aren't there stay.
fn expand(path: &str, variable: &impl Fn(&str) -> Option<String>) -> String {
    let home = || variable("HOME").or_else(|| Some(std::env::home_dir()?.to_str()?.to_string()));
    let mut rest = match path.strip_prefix('~') {
        Some(behind) if behind.is_empty() || behind.starts_with('/') => {
            home().unwrap_or_else(|| "~".into()) + behind
        }
        _ => path.to_string(),
    };
    let mut expanded = String::new();
    while let Some(place) = rest.find('$') {
        expanded.push_str(&rest[..place]);
        let behind = &rest[place + 1..];
        let (name, length) = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &behind[..end.unwrap_or(behind.len())];
                (name, name.len())
            }
        };
        match variable(name).filter(|_| !name.is_empty()) {
            Some(value) => expanded.push_str(&value),
            None => expanded.push_str(&rest[place..place + 1 + length]),
        }
        rest = behind[length..].to_string();
    }
    expanded + &rest
}

/// The folder of a model of this name, after fetching what isn't there. Blocks; prints a bar on a terminal.
///
/// Errors: the hub doesn't have it, or has it in another form; it can't be reached and the cache doesn't have it: then with what
/// to download and where to put it.
pub fn fetch(name: &str) -> Result<PathBuf> {
    fetch_with(&Environment::read(|name| std::env::var(name).ok()), name)
}

fn fetch_with(environment: &Environment, name: &str) -> Result<PathBuf> {
    if !is_name(name) {
        let reason = "the name is wrong, expected owner/name or owner/name@revision".into();
        return Err(ModelError::Hub { name: name.into(), reason });
    }
    let cache = Cache::new(environment.cache.clone());
    if environment.offline {
        return cached(&cache, name, "HF_HUB_OFFLINE is set");
    }
    let wrong = |reason: String| ModelError::Hub { name: name.into(), reason };
    let builder = ApiBuilder::from_cache(cache.clone()).with_endpoint(environment.endpoint.clone());
    let api = builder.with_token(environment.token.clone()).with_progress(false).build();
    let (model, revision) = split(name);
    let repo = Repo::with_revision(model.into(), RepoType::Model, revision.into());
    let repo = api.map_err(|error: ApiError| wrong(error.to_string()))?.repo(repo);
    let listed = match repo.info() {
        Ok(info) => info.siblings.into_iter().map(|sibling| sibling.rfilename),
        Err(error) if answered(&error) => return Err(wrong(format!("the hub doesn't give it: {error}"))),
        Err(error) => return cached(&cache, name, &format!("the hub can't be reached ({error})")),
    };
    let listed: Vec<String> = listed.collect();
    let files: Vec<String> = listed.iter().filter(|file| is_wanted(file)).cloned().collect();
    let has = |file: &str| files.iter().any(|other| other == file);
    // All of the transformer may be in a folder of its own.
    let inside = if has(NEEDED[0]) { "" } else { TRANSFORMER };
    let at = |file: &str| format!("{inside}{file}");
    if let Some(missing) = NEEDED.into_iter().find(|file| !has(&at(file))) {
        return Err(wrong(format!("it has no {missing}, which is needed")));
    }
    if !has(&at(WEIGHTS)) && !has(&at(shards::INDEX)) {
        let pickled = shards::PICKLED.into_iter().find(|file| listed.contains(&at(file)));
        return Err(wrong(match pickled {
            Some(found) => format!("its weights are only in {found}, expected {}", shards::CONVERT),
            None => format!(
                "it has no {WEIGHTS} and no {}, which are the weights that can be read",
                shards::INDEX
            ),
        }));
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
    Err(wrong("its files are of several versions, which change while they are fetched".into()))
}

/// Where older models of sentence-transformers have all of the transformer.
const TRANSFORMER: &str = "0_Transformer/";

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
    let is_models = |name: &str| {
        NEEDED.contains(&name)
            || matches!(name, "tokenizer_config.json" | "special_tokens_map.json" | "added_tokens.json")
            || matches!(name, WEIGHTS | shards::INDEX)
            || (name.starts_with("sentence_") && name.ends_with("_config.json"))
            || (name.starts_with("model-") && is_weights(name))
    };
    match parts[..] {
        [MODULES | "config_sentence_transformers.json"] => true,
        [name] => is_models(name),
        // 1_Pooling, 2_Dense and so on.
        [folder, name] => {
            folder.starts_with(|c: char| c.is_ascii_digit())
                && (matches!(name, "config.json" | WEIGHTS)
                    || folder.ends_with("_Transformer") && is_models(name))
        }
        _ => false,
    }
}

/// A model that other runs, or programs, have fetched.
fn cached(cache: &Cache, name: &str, why: &str) -> Result<PathBuf> {
    let (model, revision) = split(name);
    let repo = Repo::with_revision(model.into(), RepoType::Model, revision.into());
    let above = cache.path().join(repo.folder_name());
    // A name of a version stands for a commit; a commit is one.
    let commit = fs::read_to_string(above.join("refs").join(revision)).unwrap_or_else(|_| revision.into());
    let folder = above.join("snapshots").join(commit.trim());
    let is_whole = |inside: &str| {
        let found = |file: &str| folder.join(inside).join(file).exists();
        NEEDED.into_iter().all(found) && (found(WEIGHTS) || found(shards::INDEX))
    };
    match is_whole("") || is_whole(TRANSFORMER) {
        true => match missing(&folder) {
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
        false => {
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
            Some("Dense" | "LayerNorm") => &["config.json", WEIGHTS],
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

    /// As `huggingface_hub` reads them (its `constants.py` and `utils/_auth.py` of version 2.4).
    #[test]
    fn variables_mean_what_others_take_them_for() {
        let read = |pairs: &[(&str, &str)]| {
            let mut pairs = pairs.to_vec();
            if !pairs.iter().any(|(name, _)| *name == "HOME") {
                pairs.push(("HOME", "/h"));
            }
            let of = move |name: &str| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            };
            Environment::read(of)
        };
        for (value, expected) in [
            ("1", true),
            ("true", true),
            ("True", true),
            ("YES", true),
            ("on", true),
            ("0", false),
            ("false", false),
            ("no", false),
            ("off", false),
            ("", false),
            ("2", false),
            (" 1", false),
        ] {
            assert_eq!(read(&[("HF_HUB_OFFLINE", value)]).offline, expected, "{value:?}");
            assert_eq!(read(&[("TRANSFORMERS_OFFLINE", value)]).offline, expected, "{value:?}");
        }
        assert!(!read(&[]).offline);
        assert!(!read(&[("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")]).offline);
        assert!(read(&[("HF_HUB_OFFLINE", ""), ("TRANSFORMERS_OFFLINE", "1")]).offline);
        for (pairs, expected) in [
            (&[][..], "/h/.cache/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/y")], "/y/hub"),
            (&[("HF_HOME", "~/y")], "/h/y/hub"),
            (&[("HF_HOME", "$A/${B}c$NONE"), ("A", "/a"), ("B", "b")], "/a/bc$NONE/hub"),
            (&[("HF_HOME", "/y"), ("HUGGINGFACE_HUB_CACHE", "/z")], "/z"),
            (&[("HF_HUB_CACHE", "~/w"), ("HUGGINGFACE_HUB_CACHE", "/z")], "/h/w"),
        ] {
            assert_eq!(read(pairs).cache, Path::new(expected), "{pairs:?}");
        }
        let base = std::env::temp_dir().join(format!("raddle-{}-token", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        fs::write(base.join("token"), "of the file\n").unwrap();
        fs::write(base.join("other"), "of another\n").unwrap();
        let home = base.to_str().unwrap();
        let other = base.join("other");
        let token = |more: &[(&str, &str)]| read(&[&[("HF_HOME", home)], more].concat()).token;
        for (more, expected) in [
            (&[][..], Some("of the file")),
            (&[("HF_TOKEN_PATH", other.to_str().unwrap())], Some("of another")),
            (&[("HF_TOKEN", " said\n")], Some("said")),
            (&[("HUGGING_FACE_HUB_TOKEN", "old")], Some("old")),
            (&[("HF_TOKEN", "said"), ("HUGGING_FACE_HUB_TOKEN", "old")], Some("said")),
            (&[("HF_TOKEN", "")], Some("of the file")),
            (&[("HF_TOKEN", "said"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "Yes")], None),
            (&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "false")], Some("of the file")),
        ] {
            assert_eq!(token(more).as_deref(), expected, "{more:?}");
        }
        fs::remove_dir_all(base).unwrap();
        assert_eq!(read(&[]).endpoint, "https://huggingface.co");
        assert_eq!(read(&[("HF_ENDPOINT", "http://localhost:1//")]).endpoint, "http://localhost:1");
    }

    /// A version by its name, or by its commit, which has no entry among the names.
    #[test]
    fn versions_are_told_apart() {
        let base = std::env::temp_dir().join(format!("raddle-{}-versions", std::process::id()));
        let repo = base.join("models--a--b");
        for (commit, name) in [("c0ffee", "main"), ("facade", "refs/pr/1"), ("decade", "")] {
            let folder = repo.join("snapshots").join(commit);
            fs::create_dir_all(&folder).unwrap();
            for file in [NEEDED[0], NEEDED[1], WEIGHTS] {
                fs::write(folder.join(file), "{}").unwrap();
            }
            note_absent(&folder, MODULES);
            if !name.is_empty() {
                let file = repo.join("refs").join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, commit).unwrap();
            }
        }
        let cache = Cache::new(base.clone());
        for (name, commit) in
            [("a/b", "c0ffee"), ("a/b@main", "c0ffee"), ("a/b@refs/pr/1", "facade"), ("a/b@decade", "decade")]
        {
            assert_eq!(cached(&cache, name, ""), Ok(repo.join("snapshots").join(commit)), "{name}");
        }
        let error = cached(&cache, "a/b@v2", "it is so").unwrap_err().to_string();
        assert!(error.starts_with("model \"a/b@v2\": it is so, and "), "{error}");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn names_are_told_from_paths() {
        for name in [
            "sentence-transformers/all-MiniLM-L6-v2",
            "a/b",
            "BAAI/bge-small-en-v1.5",
            "a/b@main",
            "a/b@refs/pr/12",
            "a/b@v1.0",
            "a/b@0123456789abcdef0123456789abcdef01234567",
        ] {
            assert!(is_name(name), "{name}");
        }
        for path in [
            "a/b@",
            "a@b/c",
            "a/b@../x",
            "a/b@x/../y",
            "a/b@x y",
            "a/b@x//y",
            "a/b@/x",
            "a",
            "/a/b",
            "./a",
            "../a",
            "a/..",
            "a/b/c",
            "a/",
            "/a",
            "a b/c",
            "a/.b",
            "",
            "~/x y",
        ] {
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
            "0_Transformer/config.json",
            "0_Transformer/tokenizer.json",
            "0_Transformer/tokenizer_config.json",
            "0_Transformer/special_tokens_map.json",
            "added_tokens.json",
            "0_Transformer/sentence_bert_config.json",
            "0_Transformer/model.safetensors",
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
            "0_Transformer/pytorch_model.bin",
            "1_Pooling/tokenizer.json",
            "1_Pooling//config.json",
            "",
        ] {
            assert!(!is_wanted(file), "{file}");
        }
    }
}
