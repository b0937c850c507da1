//! Writes `fuzz/seeds`: real files, as small as they get. Made by the code that reads them, so run it again when a format
//! changes:
//!
//! ```sh
//! cargo run --release --manifest-path fuzz/Cargo.toml --example seeds
//! ```

use raddle_nn::{
    checkpoint,
    text::{BertConfig, write_random_model},
};
use raddle_runtime::{MemoryTrace, TraceEvent, TraceOp};
use raddle_tensor::{DType, Device, Tensor};
use std::{fs, path::Path};

fn main() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let device = Device::open(Box::new(raddle_cpu::Cpu::new())).expect("a seed can be made");
    let write = |name: &str, bytes: &[u8]| {
        let path = seeds.join(name);
        fs::create_dir_all(path.parent().expect("a seed can be made")).expect("a seed can be made");
        fs::write(path, bytes).expect("a seed can be made");
    };

    let scratch = std::env::temp_dir().join(format!("raddle-seeds-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("a seed can be made");
    let dtypes =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8, DType::Bool];
    let all: Vec<_> = dtypes
        .iter()
        .map(|dtype| (dtype.to_string(), Tensor::ones([1, 2], *dtype, &device).expect("a seed can be made")))
        .collect();
    for (name, tensors) in [("all", &all[..]), ("one", &all[1..2]), ("none", &[])] {
        let path = scratch.join("weights");
        checkpoint::save(&path, tensors).expect("a seed can be made");
        write(&format!("safetensors/{name}"), &fs::read(path).expect("a seed can be made"));
    }

    let config = BertConfig { hidden: 8, inner: 8, layers: 1, ..BertConfig::tiny(16) };
    let words = ["a", "b", "thread", "stream", "tick", "waits", "for", "the", "device", "##s", ".", "memory"];
    let model = scratch.join("model");
    write_random_model(&model, &config, &words, 16, 5, &device).expect("a seed can be made");
    let compact = |name: &str| {
        let value: serde_json::Value =
            serde_json::from_slice(&fs::read(model.join(name)).expect("a seed can be made"))
                .expect("a seed can be made");
        value.to_string()
    };
    let files = [
        "config.json",
        "tokenizer.json",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
    ];
    let parts: Vec<String> = files.map(compact).into_iter().chain(["The thread waits. é".into()]).collect();
    let joined = |parts: &[String]| parts.iter().map(String::as_bytes).collect::<Vec<_>>().join(&0xff);
    write("folder/whole", &joined(&parts));
    let no_modules: Vec<String> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| if (2..5).contains(&index) { String::new() } else { part.clone() })
        .collect();
    write("folder/plain", &joined(&no_modules));
    // Numbers of tokens are as large as JSON has them.
    let mut padded = parts.clone();
    padded[0] = padded[0].replacen('{', &format!("{{\"pad_token_id\":{},", u64::MAX), 1);
    write("folder/padding", &joined(&padded));
    // A table of characters that sentencepiece has made.
    let of_others = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tiny/xlm-roberta/tokenizer.json");
    let of_others = fs::read(of_others).expect("a seed can be made");
    let of_others: serde_json::Value = serde_json::from_slice(&of_others).expect("a seed can be made");
    let mut tokenizer: serde_json::Value = serde_json::from_str(&parts[1]).expect("a seed can be made");
    tokenizer["normalizer"] = of_others["normalizer"].clone();
    let mut with_table = parts.clone();
    with_table[1] = tokenizer.to_string();
    write("folder/table", &joined(&with_table));

    let event = |time_us, thread, stream, op| TraceEvent { time_us, thread, stream, op };
    let trace = MemoryTrace::new([
        event(0, 0, 0, TraceOp::Allocate { size_bytes: 1000 }),
        event(5, 0, 3, TraceOp::Use { allocation: 0 }),
        event(700, 1, 3, TraceOp::Allocate { size_bytes: 1 << 33 }),
        event(700, 1, 0, TraceOp::Free { allocation: 0 }),
        event(9000, 1, 0, TraceOp::Synchronize),
    ]);
    let mut bytes = Vec::new();
    trace.expect("a seed can be made").write(&mut bytes).expect("a seed can be made");
    write("trace/few", &bytes);

    let small = Device::open(Box::new(raddle_cpu::Cpu::new())).expect("a seed can be made");
    small.set_memory_history(2);
    drop(small.allocate(100).expect("a seed can be made"));
    write("snapshot/one", small.memory_snapshot().to_json().as_bytes());
    fs::remove_dir_all(scratch).expect("a seed can be made");
}
