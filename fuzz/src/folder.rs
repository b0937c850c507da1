//! A model's folder.

use crate::device;
use raddle_nn::text::{BertConfig, SentenceEncoder, TooLong, write_random_model};
use serde_json::Value;
use std::{
    cell::RefCell,
    fs,
    path::{Component, Path, PathBuf},
};

/// The files, in the order of their parts. The weights stay: their bytes are the target `safetensors`, and they decide which
/// sizes are right.
const FILES: [&str; 5] =
    ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"];
/// In no text of UTF-8.
const BETWEEN: u8 = 0xff;

/// Of a text: more than the tokens that a model here takes, and no more time on it than on the files.
const TEXT_CHARS_MAX: usize = 64;

/// Of folders; the process follows.
const NAME: &str = "raddle-fuzz-";

/// Removes what processes have left that are no more: libFuzzer ends its own without a word.
fn remove_left(base: &Path) {
    for path in fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix(NAME).and_then(|number| number.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another fuzzer may be doing the same.
            _ = fs::remove_dir_all(path);
        }
    }
}

/// A folder in memory, where there is a file system for that.
struct Folder {
    path: PathBuf,
    /// What the files hold; nothing if they aren't there.
    written: [Option<Vec<u8>>; 5],
}

impl Folder {
    fn new() -> Folder {
        let memory = Path::new("/dev/shm");
        let base: PathBuf = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        remove_left(&base);
        let base: PathBuf = base.join(format!("{NAME}{}", std::process::id()));
        let path = base.join("model");
        let config = BertConfig { hidden: 8, inner: 8, layers: 1, ..BertConfig::tiny(16) };
        let words =
            ["a", "b", "thread", "stream", "tick", "waits", "for", "the", "device", "##s", ".", "memory"];
        write_random_model(&path, &config, &words, 16, 5, device()).expect("there is room");
        // What a path that leaves the folder would find.
        fs::create_dir_all(base.join("outside")).expect("there is room");
        fs::copy(path.join("1_Pooling/config.json"), base.join("outside/config.json")).expect("it is there");
        FILES.iter().for_each(|file| fs::remove_file(path.join(file)).expect("it is there"));
        Folder { path, written: Default::default() }
    }

    fn write(&mut self, index: usize, bytes: Option<&[u8]>) {
        let path = self.path.join(FILES[index]);
        if self.written[index].as_deref() != bytes {
            match bytes {
                Some(bytes) => fs::write(path, bytes),
                None => fs::remove_file(path),
            }
            .expect("there is room");
            self.written[index] = bytes.map(<[u8]>::to_vec);
        }
    }
}

/// An empty part is a missing file.
pub fn folder(bytes: &[u8]) {
    thread_local!(static FOLDER: RefCell<Folder> = RefCell::new(Folder::new()));
    let mut parts = bytes.splitn(FILES.len() + 1, |byte| *byte == BETWEEN);
    FOLDER.with_borrow_mut(|folder| {
        for index in 0..FILES.len() {
            folder.write(index, parts.next().filter(|part| !part.is_empty()));
        }
        let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
        let Ok(model) = SentenceEncoder::load(&folder.path, device()) else { return };
        if let Some(modules) = &folder.written[2] {
            is_inside(modules);
        }
        use_model(&model, &text);
    });
}

/// Every path that was followed stays in the folder.
fn is_inside(modules: &[u8]) {
    let modules: Value = serde_json::from_slice(modules).expect("it was accepted");
    for module in modules.as_array().expect("it was accepted") {
        let path = module.get("path").and_then(Value::as_str).unwrap_or_default();
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        let is_pooling = module["type"].as_str().is_some_and(|kind| kind.ends_with("Pooling"));
        assert!(!is_pooling || Path::new(path).components().all(inside), "{path:?} was followed");
    }
}

fn use_model(model: &SentenceEncoder, text: &str) {
    let tokenizer = model.tokenizer();
    let Ok(tokens) = tokenizer.tokenize(&[text], TooLong::Truncate) else { return };
    assert!(tokens[0].ids.len() <= tokenizer.tokens_max());
    assert_eq!(tokens[0].ids.len(), tokens[0].types.len());
    let pieces = tokenizer.spell(text, true).expect("it was tokenized");
    assert!(pieces.len() >= tokens[0].ids.len());
    let ids: Vec<u32> = pieces.iter().map(|piece| piece.id).collect();
    _ = tokenizer.unspell(&ids, false);
    // Without special tokens an empty text has none, and a tokenizer may know tokens that the model doesn't: errors.
    let Ok(vectors) = model.encode_tokens(&tokens) else { return };
    assert_eq!(vectors.shape()[..], [1, model.width()]);
    let values = vectors.to_vec::<f32>().expect("it was computed");
    assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
}
