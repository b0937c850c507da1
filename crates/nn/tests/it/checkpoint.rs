use crate::{device, tensor};
use proptest::prelude::*;
use raddle_nn::checkpoint::{Checkpoint, CheckpointError, Metadata, load, load_into, save, save_with};
use raddle_tensor::{DType, Tensor, bf16, f16};
use std::path::PathBuf;

/// A file in the folder for temporary files, gone at the end.
struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("raddle-{}-{name}.safetensors", std::process::id())))
    }
    fn with(name: &str, bytes: &[u8]) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn samples() -> Vec<(String, Tensor)> {
    let named = |name: &str, tensor: Tensor| (name.to_string(), tensor);
    vec![
        named("w", tensor(&[1.0f32, -0.0, f32::INFINITY, 4.0, 5.0, 6.0], &[2, 3]).t().unwrap()),
        named("half", tensor(&[f16::from_f32(0.5)], &[1])),
        named("brain", tensor(&[bf16::from_f32(-2.0)], &[1, 1])),
        named("number", tensor(&[7i64], &[])),
        named("empty", tensor::<f64>(&[], &[0, 4])),
        named("flags", tensor(&[true, false, true], &[3])),
        named("bytes", tensor(&[1u8, 255], &[2])),
        named("ints", tensor(&[i32::MIN], &[1])),
        named("a \"name\"\n", tensor(&[1.0f64], &[1])),
    ]
}

#[test]
fn what_is_saved_is_loaded() {
    let scratch = Scratch::new("round");
    save(&scratch.0, &samples()).unwrap();
    let loaded = load(&scratch.0, device()).unwrap();
    assert_eq!(loaded.len(), samples().len());
    for (name, tensor) in samples() {
        let (_, found) = loaded.iter().find(|(other, _)| *other == name).unwrap();
        assert_eq!((found.shape(), found.dtype()), (tensor.shape(), tensor.dtype()));
        assert_eq!(found.to_bytes().unwrap(), tensor.to_bytes().unwrap());
    }
    // Over an older file, and into tensors whose strides stay.
    let target = tensor(&[0.0f32; 6], &[2, 3]).t().unwrap();
    save(&scratch.0, &samples()[..1]).unwrap();
    load_into(&scratch.0, &[("w".into(), target.clone())]).unwrap();
    assert_eq!(
        (target.to_vec::<f32>().unwrap(), &**target.strides()),
        (samples()[0].1.to_vec().unwrap(), &[1, 3][..])
    );
}

/// Tensors over the file itself, where its bytes lie as they must; they outlive what has opened it.
#[test]
fn mapped_tensors_are_the_files_own_bytes() {
    let scratch = Scratch::new("mapped");
    save(&scratch.0, &samples()).unwrap();
    let file = Checkpoint::open(&scratch.0).unwrap();
    let mapped = samples().iter().map(|(name, _)| file.mapped(name, device()).unwrap()).collect::<Vec<_>>();
    drop(file);
    let foreign = mapped.iter().filter(|tensor| tensor.buffer().is_foreign()).count();
    assert!(mapped[0].buffer().is_read_only() && foreign >= 5, "{foreign}");
    for ((_, tensor), found) in samples().iter().zip(&mapped) {
        assert_eq!((found.shape(), found.dtype()), (tensor.shape(), tensor.dtype()));
        assert_eq!(found.to_bytes().unwrap(), tensor.to_bytes().unwrap());
    }
    assert_eq!(
        mapped[0].add(1).unwrap().to_vec::<f32>().unwrap()[1],
        samples()[0].1.to_vec::<f32>().unwrap()[1] + 1.0
    );
    assert!(mapped[0].add_(1).unwrap_err().to_string().contains("may only be read"));
}

#[test]
fn texts_beside_the_tensors_stay() {
    let scratch = Scratch::new("metadata");
    let metadata = Metadata::from([("format".into(), "pt".into()), ("a \"b\"\n".into(), "\u{e9}\0".into())]);
    save_with(&scratch.0, &samples(), &metadata).unwrap();
    let file = Checkpoint::open(&scratch.0).unwrap();
    assert_eq!(file.metadata(), &metadata);
    assert_eq!(file.names().count(), samples().len());
    for (name, tensor) in samples() {
        let found = file.tensor(&name, device()).unwrap();
        assert_eq!(found.to_bytes().unwrap(), tensor.to_bytes().unwrap());
    }
    assert_eq!(load(&scratch.0, device()).unwrap().len(), samples().len());
    let error = file.tensor("none", device()).unwrap_err().to_string();
    assert!(
        error
            .ends_with("tensor \"none\": the tensor is wrong, expected it in the file, found no such tensor"),
        "{error}"
    );
    // Nothing is written that couldn't be read.
    let long = Metadata::from([("a".into(), "a".repeat(17 << 20))]);
    let error = save_with(&scratch.0, &samples(), &long).unwrap_err().to_string();
    assert!(
        error.contains("tensor \"__metadata__\": the entry is wrong, expected at most 16777216 bytes"),
        "{error}"
    );
    assert_eq!(Checkpoint::open(&scratch.0).unwrap().metadata(), &metadata);
    save(&scratch.0, &samples()).unwrap();
    assert!(Checkpoint::open(&scratch.0).unwrap().metadata().is_empty());
}

/// The format has dtypes that tensors here can't have: only asking for one is an error.
#[test]
fn dtypes_of_others_are_passed_by() {
    let others = [
        ("BOOL", 8),
        ("I8", 8),
        ("U16", 16),
        ("I16", 16),
        ("U32", 32),
        ("U64", 64),
        ("C64", 64),
        ("F8_E4M3", 8),
        ("F8_E5M2", 8),
        ("F8_E8M0", 8),
        ("F4", 4),
        ("F6_E2M3", 6),
    ];
    let (mut header, mut data) = (serde_json::json!({}), Vec::new());
    let mut push = |name: &str, dtype: &str, bytes: &[u8]| {
        let offsets = [data.len(), data.len() + bytes.len()];
        let shape =
            [bytes.len() * 8
                / others.iter().find(|(known, _)| *known == dtype).map_or(32, |(_, bits)| *bits)];
        header[name] = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets });
        data.extend(bytes);
    };
    push("first", "F32", &1f32.to_le_bytes());
    for (dtype, _) in &others[1..] {
        push(dtype, dtype, &[7; 24]);
    }
    push("bools", "BOOL", &[2; 24]);
    push("last", "F32", &2f32.to_le_bytes());
    let scratch = Scratch::with("others", &file(&header.to_string(), &data));
    let found = Checkpoint::open(&scratch.0).unwrap();
    for (name, value) in [("first", 1.0), ("last", 2.0)] {
        assert_eq!(found.tensor(name, device()).unwrap().to_vec::<f32>().unwrap(), [value]);
    }
    for (dtype, _) in &others[1..] {
        let error = found.tensor(dtype, device()).unwrap_err().to_string();
        let expected = format!(
            "tensor {dtype:?}: the dtype is wrong, expected one of F64, F32, F16, BF16, I64, I32, U8, BOOL, found {dtype:?}"
        );
        assert!(error.ends_with(&expected), "{error}");
    }
    let error = found.tensor("bools", device()).unwrap_err().to_string();
    assert!(error.ends_with("tensor \"bools\": a bool is wrong, expected 0 or 1, found 2"), "{error}");
    let error = load(&scratch.0, device()).unwrap_err().to_string();
    assert!(error.contains("tensor \"I8\": the dtype is wrong"), "{error}");
    let wanted = [("I8".to_string(), tensor(&[0u8; 24], &[24]))];
    let error = load_into(&scratch.0, &wanted).unwrap_err().to_string();
    assert!(error.ends_with("tensor \"I8\": the dtype is wrong, expected u8, found I8"), "{error}");
    // Three numbers of 4 bits are no bytes.
    let half = r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}"#;
    let scratch = Scratch::with("half", &file(half, &[0; 2]));
    let error = load(&scratch.0, device()).unwrap_err().to_string();
    assert!(
        error.ends_with("data_offsets is wrong, expected whole bytes, found 12 bits for F4 [3], found 2"),
        "{error}"
    );
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let scratch = Scratch::new("fit");
    let one = |name: &str, tensor: &Tensor| vec![(name.to_string(), tensor.clone())];
    save(&scratch.0, &one("a", &tensor(&[1.0f32, 2.0], &[2]))).unwrap();
    let kept = tensor(&[5.0f32, 6.0], &[2]);
    for (parameters, text) in [
        (
            one("b", &kept),
            "tensor \"b\": the model's parameter is wrong, expected it in the file, found no such tensor",
        ),
        (
            one("a", &tensor(&[1.0f64, 2.0], &[2])),
            "tensor \"a\": the dtype is wrong, expected f64, found f32",
        ),
        (one("a", &tensor(&[1.0f32], &[1])), "tensor \"a\": the shape is wrong, expected [1], found [2]"),
        (
            vec![],
            "tensor \"a\": the tensor is wrong, expected a parameter of the model, found none of that name",
        ),
        ([one("a", &kept), one("b", &kept)].concat(), "tensor \"b\": the model's parameter"),
    ] {
        let error = load_into(&scratch.0, &parameters).unwrap_err().to_string();
        assert!(error.starts_with(&scratch.0.display().to_string()) && error.contains(text), "{error}");
    }
    assert_eq!(kept.to_vec::<f32>().unwrap(), [5.0, 6.0]);
    assert!(matches!(
        save(&scratch.0, &[one("a", &kept), one("a", &kept)].concat()),
        Err(CheckpointError::Entry { what: "the name", .. })
    ));
}

/// Case F-25 and more.
#[test]
fn broken_files_are_refused() {
    let one = |shape: &str, offsets: &str, data: usize| {
        let header = format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}");
        file(&header, &vec![0; data])
    };
    let two = |first: &str, second: &str, data: usize| {
        let entry = |offsets| format!("{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{offsets}}}");
        file(&format!("{{\"a\":{},\"b\":{}}}", entry(first), entry(second)), &vec![0; data])
    };
    let with_length = |length: u64| {
        let mut bytes = one("[1]", "[0,4]", 4);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let size = one("[1]", "[0,4]", 4).len() as u64;
    for (name, bytes, text) in [
        ("product", one("[2147483648,8589934592]", "[0,0]", 0), "tensor \"a\": the shape is wrong"),
        ("wrapped", one("[6148914691236517206,3]", "[0,8]", 8), "tensor \"a\": the shape is wrong"),
        ("bytes", one("[4611686018427387904]", "[0,0]", 0), "tensor \"a\": the shape is wrong"),
        ("hidden", one("[0,6148914691236517206,3]", "[0,0]", 0), "tensor \"a\": the shape is wrong"),
        (
            "negative",
            one("[-2,-2]", "[0,16]", 16),
            "tensor \"a\": the shape is wrong, expected a list of sizes",
        ),
        ("fraction", one("[2.5]", "[0,8]", 8), "tensor \"a\": the shape is wrong"),
        ("axes", one("[1,1,1,1,1,1,1,1,1]", "[0,4]", 4), "expected at most 8 axes, found 9"),
        ("short", one("[128,128]", "[0,16]", 16), "expected 65536 bytes for f32 [128, 128], found 16"),
        ("reversed", one("[4]", "[16,0]", 16), "tensor \"a\": data_offsets is wrong"),
        ("huge", one("[1]", "[18446744073709551612,18446744073709551615]", 4), "tensor \"a\": data_offsets"),
        ("beyond", one("[2]", "[0,8]", 4), "tensor \"a\": data_offsets is wrong, expected start ≤ end ≤ 4"),
        (
            "overlap",
            two("[0,4]", "[2,6]", 6),
            "tensor \"b\": the start (it overlaps another) is wrong, expected 4, found 2",
        ),
        ("gap", two("[0,4]", "[8,12]", 12), "tensor \"b\": the start (a gap) is wrong, expected 4, found 8"),
        ("trailing", one("[1]", "[0,4]", 12), "the size of the data is wrong, expected 4 bytes, found 12"),
        ("max", with_length(u64::MAX), "the length of the header is wrong, expected at most 100000000"),
        ("half", with_length(1 << 63), "the length of the header is wrong"),
        ("longer", with_length(size + 1), "the length of the header is wrong"),
        ("seven", vec![0; 7], "the size is wrong, expected at least 8 bytes, found 7"),
        ("nothing", vec![], "the size is wrong, expected at least 8 bytes, found 0"),
        ("zero", vec![0; 8], "the header is wrong, expected a JSON object"),
        ("text", file("{\"a\":", &[]), "the header is wrong, expected JSON"),
        ("list", file("[]", &[]), "the header is wrong, expected a JSON object"),
        ("number", file("{\"a\":1}", &[]), "tensor \"a\": the entry is wrong, expected an object, found 1"),
        (
            "dtype",
            file("{\"a\":{\"dtype\":\"F8\",\"shape\":[],\"data_offsets\":[0,0]}}", &[]),
            "tensor \"a\": the dtype is wrong, expected one of F64",
        ),
        (
            "missing",
            file("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", &[]),
            "tensor \"a\": data_offsets is wrong",
        ),
        (
            "extra",
            file("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}", &[]),
            "\"x\" too",
        ),
        ("deep", file(&"{\"a\":".repeat(10_000), &[]), "the header is wrong, expected JSON"),
        (
            "bool",
            file("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}", &[2]),
            "tensor \"a\": a bool is wrong, expected 0 or 1, found 2",
        ),
        // Read as values it would take a gigabyte.
        (
            "zeros",
            file(&format!("{{\"a\":[{}0]}}", "0,".repeat(20_000_000)), &[]),
            "tensor \"a\": the entry is wrong, expected at most 4096 bytes, found 40000003",
        ),
        (
            "metadata",
            file(&format!("{{\"__metadata__\":{{\"a\":\"{}\"}}}}", "a".repeat(17 << 20)), &[]),
            "tensor \"__metadata__\": the entry is wrong, expected at most 16777216 bytes",
        ),
        (
            "twice",
            {
                let entry = "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
                file(&format!("{{{entry},{entry}}}"), &[])
            },
            "the header is wrong, expected each name once, found \"a\" twice",
        ),
    ] {
        let scratch = Scratch::with(name, &bytes);
        let error = load(&scratch.0, device()).unwrap_err().to_string();
        assert!(
            error.starts_with(&scratch.0.display().to_string()) && error.contains(text),
            "{name}: {error}"
        );
    }
    let missing = load(std::env::temp_dir().join("raddle-no-such-file"), device()).unwrap_err();
    assert!(matches!(missing, CheckpointError::File { action: "opening", .. }));
}

#[test]
fn a_save_that_fails_leaves_nothing() {
    let folder = std::env::temp_dir().join(format!("raddle-{}-none", std::process::id()));
    let error = save(folder.join("x.safetensors"), &samples()).unwrap_err();
    assert!(matches!(error, CheckpointError::File { action: "creating a file beside it", .. }), "{error}");
    // A folder can't be replaced by a file: the rename fails, and its temporary file goes.
    std::fs::create_dir_all(folder.join("taken").join("inner")).unwrap();
    let error = save(folder.join("taken"), &samples()).unwrap_err();
    assert!(matches!(error, CheckpointError::File { action: "renaming", .. }), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A checkpoint that is kept from others, or lies behind a link, stays so.
#[test]
#[cfg(unix)]
fn a_save_keeps_links_and_permissions() {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::Path,
    };
    let folder = std::env::temp_dir().join(format!("raddle-{}-kept", std::process::id()));
    fs::create_dir_all(folder.join("inner")).unwrap();
    fs::write(folder.join("inner/old"), "old").unwrap();
    for (link, target) in [("old", "inner/old"), ("new", "inner/new"), ("twice", "old")] {
        symlink(target, folder.join(link)).unwrap();
        save(folder.join(link), &samples()).unwrap();
        assert_eq!(fs::read_link(folder.join(link)).unwrap(), Path::new(target));
        assert_eq!(load(folder.join(link), device()).unwrap().len(), samples().len());
    }
    let old = folder.join("inner/old");
    for mode in [0o600, 0o640, 0o664] {
        fs::set_permissions(&old, fs::Permissions::from_mode(mode)).unwrap();
        save(&old, &samples()).unwrap();
        assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, mode, "{mode:o}");
    }
    // The owner may always write what is his.
    fs::set_permissions(&old, fs::Permissions::from_mode(0o444)).unwrap();
    save(&old, &samples()).unwrap();
    assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o644);
    symlink("/dev/null", folder.join("null")).unwrap();
    symlink("loop", folder.join("loop")).unwrap();
    for (name, action) in [("null", "replacing"), ("loop", "looking at its place")] {
        let error = save(folder.join(name), &samples()).unwrap_err();
        assert!(matches!(error, CheckpointError::File { action: found, .. } if found == action), "{error}");
    }
    assert_eq!(fs::read_dir(folder.join("inner")).unwrap().count(), 2, "something is left over");
    fs::remove_dir_all(&folder).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A file of which some bytes were changed or cut is loaded whole, or refused; it never panics.
    #[test]
    fn damaged_files(cut in 0usize..64, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let scratch = Scratch::new("damaged");
        save(&scratch.0, &samples()[..3]).unwrap();
        let mut bytes = std::fs::read(&scratch.0).unwrap();
        bytes.truncate(bytes.len() - cut.saturating_sub(40));
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        std::fs::write(&scratch.0, &bytes).unwrap();
        if let Ok(loaded) = load(&scratch.0, device()) {
            let total: usize = loaded.iter().map(|(_, tensor)| tensor.element_count() * tensor.dtype().size_bytes()).sum();
            prop_assert!(total <= bytes.len());
            prop_assert!(loaded.iter().all(|(_, tensor)| tensor.dtype() != DType::Bool || tensor.to_bytes().is_ok()));
        }
    }
}
