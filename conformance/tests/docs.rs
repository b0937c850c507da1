//! The examples of the README and the guide, as they stand there: compiled, and run. `build.rs` makes a test of each.

use raddle::{
    nn::text::{BertConfig, write_random_model},
    prelude::*,
};
use std::{error::Error, path::PathBuf};

/// A folder with a sentence encoder of random weights.
fn small_model(device: &Device) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("raddle-{}-guide", std::process::id()));
    let words = ["a", "thread", "waits", "stream"];
    write_random_model(&folder, &BertConfig::tiny(8), &words, 32, 1, device).expect("there is room");
    folder
}

include!(concat!(env!("OUT_DIR"), "/docs.rs"));
