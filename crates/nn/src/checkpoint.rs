//! Parameters in files of the safetensors format: eight bytes with the length of a header (little-endian), the header (JSON:
//! for each tensor dtype, shape and the range of its bytes), then the bytes, row-major and little-endian.
//!
//! - **Saving is atomic.** The file is written beside its place under another name, flushed to the disk and renamed. A full
//!   disk or a crash leaves the old file, or none; a reader never sees half of one. A symbolic link stays, and the new file is
//!   as open to others as the one that it replaces.
//! - **Loading believes nothing.** The whole header is checked here before any tensor is made: lengths, names, dtypes, shapes
//!   (in checked arithmetic), and that the ranges fill the data exactly, in order, without gap or overlap. What is wrong is a
//!   [`CheckpointError`] that names file, tensor, what was expected and what was found. Nothing here panics on any bytes, and
//!   memory is only taken for what the file really holds.
//! - **A tensor is read when it is asked for** ([`Checkpoint`]). The format has dtypes that this library lacks (I8, I16, U16,
//!   U32, U64, C64, and floats of 4, 6 and 8 bits): a file may hold such tensors beside those that are read, and only asking for
//!   one is an error.
//!
//! Files are mapped, so loading reads each byte once. Numbers are taken as they are in memory, so the host must be
//! little-endian; others are refused at compile time.

use raddle_grad::no_grad;
use raddle_runtime::{FileReplacement, MappedFile, replaceable};
use raddle_tensor::{DType, Device, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt, fs,
    io::Write,
    marker::PhantomData,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(not(target_endian = "little"))]
compile_error!("raddle-nn: checkpoints are little-endian, and no host of another order has been tested");

/// The largest header, as the format's own library has it.
pub(crate) const HEADER_BYTES_MAX: u64 = 100_000_000;

/// What a header says of one tensor: read as JSON it takes some twenty times as much (a guess: names aren't in it).
const ENTRY_BYTES_MAX: usize = 4096;
/// The entry that isn't a tensor (a guess: a few bytes are usual).
const METADATA_BYTES_MAX: usize = 16 << 20;

/// The length in front of the header.
const LENGTH_BYTES: usize = 8;

/// Why a file couldn't be saved or loaded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("{}: {action} failed: {reason}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What it said.
        reason: String,
    },
    /// The file as a whole is broken.
    #[error("{}: {what} is wrong, expected {expected}, found {found}", .file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// What of it.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// What the file says of a tensor is broken, or doesn't fit the model.
    #[error("{}: tensor {tensor:?}: {what} is wrong, expected {expected}, found {found}", .file.display())]
    Entry {
        /// The file.
        file: PathBuf,
        /// Its name.
        tensor: String,
        /// What of it.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A tensor couldn't be read or made.
    #[error(transparent)]
    Tensor(#[from] raddle_tensor::Error),
}

impl From<CheckpointError> for raddle_tensor::Error {
    fn from(error: CheckpointError) -> raddle_tensor::Error {
        match error {
            CheckpointError::Tensor(error) => error,
            other => raddle_tensor::Error::layer(other),
        }
    }
}

/// What functions of this module return.
pub type Result<T, E = CheckpointError> = std::result::Result<T, E>;

/// Texts by names, which a file may hold beside its tensors: `format` says which library it is for.
pub type Metadata = BTreeMap<String, String>;

/// The dtypes of files that tensors can have.
const DTYPES: [(DType, Dtype); 8] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

// ------------------------------------------------------------ saving

/// Writes tensors with their names, such as [`Module::named_parameters`](crate::Module::named_parameters) gives, to a file.
/// Waits for their elements.
///
/// Errors: a name that is given twice, or `__metadata__`; a device or a pipe in its place, which can't be replaced; whatever the
/// disk says. The file is as it was before, then.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    save_with(path, tensors, &Metadata::new())
}

/// [`save`] with texts beside the tensors. Hugging Face's transformers want `format` to be `pt`.
///
/// Errors: besides, texts of more than 16 MiB.
pub fn save_with(path: impl AsRef<Path>, tensors: &[(String, Tensor)], metadata: &Metadata) -> Result<()> {
    let path = path.as_ref();
    let header = header_of(path, tensors, metadata)?;
    let file_error = |action| {
        move |error: std::io::Error| CheckpointError::File {
            file: path.into(),
            action,
            reason: error.to_string(),
        }
    };
    let target = match replaceable(path).map_err(file_error("looking at its place"))? {
        Some(target) => target,
        None if path.is_dir() => path.into(), // which the renaming says
        None => {
            let reason = "expected a file, found what can't be replaced by one".into();
            return Err(CheckpointError::File { file: path.into(), action: "replacing", reason });
        }
    };
    let replacement = FileReplacement::begin(target).map_err(file_error("creating a file beside it"))?;
    let mut writer = std::io::BufWriter::new(replacement.file());
    let writing = || file_error("writing");
    writer.write_all(&(header.len() as u64).to_le_bytes()).map_err(writing())?;
    writer.write_all(header.as_bytes()).map_err(writing())?;
    for (_, tensor) in tensors {
        writer.write_all(&tensor.to_bytes()?).map_err(writing())?;
    }
    writer.into_inner().map_err(|error| writing()(error.into_error()))?;
    replacement.file().sync_all().map_err(file_error("flushing"))?;
    replacement.finish().map_err(file_error("renaming"))
}

fn header_of(path: &Path, tensors: &[(String, Tensor)], metadata: &Metadata) -> Result<String> {
    let mut names = HashSet::new();
    let mut entries = serde_json::Map::new();
    let mut start = 0usize;
    if !metadata.is_empty() {
        let metadata = serde_json::json!(metadata);
        check_entry_bytes(path, METADATA, metadata.to_string().len())?;
        entries.insert(METADATA.into(), metadata);
    }
    for (name, tensor) in tensors {
        if name == METADATA || !names.insert(name) {
            return Err(CheckpointError::Entry {
                file: path.into(),
                tensor: name.clone(),
                what: "the name",
                expected: format!("each once, and none {METADATA}"),
                found: "it".into(),
            });
        }
        let end = start + tensor.element_count() * tensor.dtype().size_bytes();
        let dtype =
            DTYPES.iter().find(|(dtype, _)| *dtype == tensor.dtype()).expect("every dtype has a name").1;
        let (dtype, shape) = (dtype.to_string(), &tensor.shape()[..]);
        let entry = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
        entries.insert(name.clone(), entry);
        start = end;
    }
    let mut header = serde_json::Value::Object(entries).to_string();
    // The data begins at a multiple of eight, so that mapped elements are aligned.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    Ok(header)
}

// ------------------------------------------------------------ loading

/// The entry that isn't a tensor.
const METADATA: &str = "__metadata__";

/// The tensors of a file, on a device, with their names, in the order of their bytes.
///
/// Errors: see the module; a tensor of a dtype that this library lacks ([`Checkpoint`] reads the others). If there is one no
/// tensor is returned.
pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    load_bytes(path, &open(path)?, device)
}

/// [`load`] of a file that is in memory already. Errors call it `path`, which need not exist.
pub fn load_bytes(path: impl AsRef<Path>, file: &[u8], device: &Device) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let parsed = parse(path, file)?;
    let read = |entry: &Entry| Ok((entry.name.clone(), parsed.tensor(path, file, entry, device)?));
    parsed.entries.iter().map(read).collect()
}

/// A file whose tensors are read when they are asked for. Its header is checked when it is opened, all of it. Any thread may
/// ask. While it is open nobody should write to the file.
pub struct Checkpoint {
    path: PathBuf,
    file: Arc<MappedFile>,
    parsed: Parsed,
    /// The place in the list of entries of each name.
    places: HashMap<String, usize>,
}

impl Checkpoint {
    /// Opens and checks one.
    ///
    /// Errors: see the module.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let file = open(path)?;
        let parsed = parse(path, &file)?;
        let places = parsed.entries.iter().enumerate().map(|(place, entry)| (entry.name.clone(), place));
        Ok(Checkpoint { path: path.into(), places: places.collect(), file: Arc::new(file), parsed })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tensors, in the order of their bytes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parsed.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The texts beside the tensors.
    pub fn metadata(&self) -> &Metadata {
        &self.parsed.metadata
    }

    /// Is there a tensor of this name?
    pub fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The tensor of a name, on a device. Reads its bytes, and no others.
    ///
    /// Errors: there is none; its dtype is one that this library lacks; bools that are neither 0 nor 1; those of the device.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        self.parsed.tensor(&self.path, &self.file, self.entry(name)?, device)
    }

    /// The tensor of a name, over the file's own bytes where the device computes in memory of the host (`cpu`, `sim`) and they lie at a
    /// multiple of an element's size: nothing is copied, pages come in when they are touched, processes share them, and no op may
    /// write the tensor. Elsewhere as [`tensor`](Checkpoint::tensor). While the tensor lives nobody should write to the file.
    ///
    /// Errors: as of [`tensor`](Checkpoint::tensor).
    pub fn mapped(&self, name: &str, device: &Device) -> Result<Tensor> {
        let entry = self.entry(name)?;
        let (dtype, bytes) = self.parsed.bytes(&self.path, &self.file, entry)?;
        let start = bytes.as_ptr() as usize - self.file.as_ptr() as usize;
        let owner = MappedBytes { file: self.file.clone(), range: start..start + bytes.len() };
        Ok(Tensor::over_bytes(owner, &entry.shape, dtype, device)?)
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        let Some(place) = self.places.get(name) else {
            return Err(CheckpointError::Entry {
                file: self.path.clone(),
                tensor: name.into(),
                what: "the tensor",
                expected: "it in the file".into(),
                found: "no such tensor".into(),
            });
        };
        Ok(&self.parsed.entries[*place])
    }
}

/// A part of a file.
struct MappedBytes {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}

/// Overwrites parameters, such as [`Module::named_parameters`](crate::Module::named_parameters) gives, with those of the same
/// names in a file; strides stay. Every name, shape and dtype must agree, and all are checked before the first is written.
pub fn load_into(path: impl AsRef<Path>, parameters: &[(String, Tensor)]) -> Result<()> {
    let path = path.as_ref();
    let file = open(path)?;
    let parsed = parse(path, &file)?;
    let wrong = |tensor: &str, what, expected: String, found: String| {
        Err(CheckpointError::Entry { file: path.into(), tensor: tensor.into(), what, expected, found })
    };
    let mut by_name: HashMap<&str, &Entry> =
        parsed.entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let mut loaded = Vec::with_capacity(parameters.len());
    for (name, parameter) in parameters {
        let Some(entry) = by_name.remove(name.as_str()) else {
            return wrong(name, "the model's parameter", "it in the file".into(), "no such tensor".into());
        };
        if known(entry.dtype) != Some(parameter.dtype()) {
            let found = known(entry.dtype).map_or(entry.dtype.to_string(), |dtype| dtype.to_string());
            return wrong(name, "the dtype", parameter.dtype().to_string(), found);
        }
        if entry.shape[..] != parameter.shape()[..] {
            let (expected, found) = (format!("{:?}", parameter.shape()), format!("{:?}", entry.shape));
            return wrong(name, "the shape", expected, found);
        }
        loaded.push((parameter, parsed.tensor(path, &file, entry, &parameter.device())?));
    }
    if let Some(entry) = parsed.entries.iter().find(|entry| by_name.contains_key(entry.name.as_str())) {
        return wrong(
            &entry.name,
            "the tensor",
            "a parameter of the model".into(),
            "none of that name".into(),
        );
    }
    no_grad(|| loaded.iter().try_for_each(|(parameter, tensor)| parameter.copy_(tensor).map(|_| ())))?;
    Ok(())
}

fn open(path: &Path) -> Result<MappedFile> {
    // An empty file can't be mapped.
    let error = |reason: String| CheckpointError::File { file: path.into(), action: "opening", reason };
    let length = fs::metadata(path).map_err(|found| error(found.to_string()))?.len();
    if length < LENGTH_BYTES as u64 {
        return Err(CheckpointError::Format {
            file: path.into(),
            what: "the size",
            expected: format!("at least {LENGTH_BYTES} bytes"),
            found: format!("{length}"),
        });
    }
    MappedFile::open(path).map_err(|found| error(found.to_string()))
}

/// What a header says of a tensor, checked.
struct Entry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    start: usize,
    end: usize,
}

/// What a header says, checked.
struct Parsed {
    entries: Vec<Entry>,
    metadata: Metadata,
    /// Where the data begins.
    data: usize,
}

impl Parsed {
    /// A tensor of the file that this was read from.
    fn tensor(&self, path: &Path, file: &[u8], entry: &Entry, device: &Device) -> Result<Tensor> {
        let (dtype, bytes) = self.bytes(path, file, entry)?;
        Ok(Tensor::from_bytes(bytes, &entry.shape, dtype, device)?)
    }

    /// Its dtype, and the bytes of its elements.
    fn bytes<'a>(&self, path: &Path, file: &'a [u8], entry: &Entry) -> Result<(DType, &'a [u8])> {
        let wrong = |what, expected: String, found: String| {
            let (file, tensor) = (path.into(), entry.name.clone());
            Err(CheckpointError::Entry { file, tensor, what, expected, found })
        };
        let Some(dtype) = known(entry.dtype) else {
            return wrong("the dtype", one_of_dtypes(), format!("\"{}\"", entry.dtype));
        };
        let bytes = &file[self.data..][entry.start..entry.end];
        if dtype == DType::Bool
            && let Some(found) = bytes.iter().find(|byte| **byte > 1)
        {
            return wrong("a bool", "0 or 1".into(), found.to_string());
        }
        Ok((dtype, bytes))
    }
}

/// The dtype that tensors have of it, if they can.
fn known(dtype: Dtype) -> Option<DType> {
    DTYPES.iter().find(|(_, other)| *other == dtype).map(|(dtype, _)| *dtype)
}

fn one_of_dtypes() -> String {
    format!("one of {}", DTYPES.map(|(_, name)| name.to_string()).join(", "))
}

/// Errors: an entry of a header is larger than any that makes sense.
fn check_entry_bytes(path: &Path, name: &str, size: usize) -> Result<()> {
    let bytes_max = if name == METADATA { METADATA_BYTES_MAX } else { ENTRY_BYTES_MAX };
    if size <= bytes_max {
        return Ok(());
    }
    let (expected, found) = (format!("at most {bytes_max} bytes"), size.to_string());
    Err(CheckpointError::Entry { file: path.into(), tensor: name.into(), what: "the entry", expected, found })
}

/// Checks a whole file.
fn parse(path: &Path, file: &[u8]) -> Result<Parsed> {
    let wrong = |what, expected: String, found: String| {
        Err(CheckpointError::Format { file: path.into(), what, expected, found })
    };
    let Some((length, rest)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return wrong("the size", format!("at least {LENGTH_BYTES} bytes"), file.len().to_string());
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_BYTES_MAX {
        return wrong("the length of the header", format!("at most {HEADER_BYTES_MAX}"), length.to_string());
    }
    let Some((header, data)) = rest.split_at_checked(length as usize) else {
        return wrong("the length of the header", format!("at most {}", rest.len()), length.to_string());
    };
    if header.first() != Some(&b'{') {
        return wrong("the header", "a JSON object".into(), "something else".into());
    }
    // Not yet as values: lists of small numbers would take many times the header's bytes.
    let header: Pairs<&RawValue> = match serde_json::from_slice(header) {
        Ok(header) => header,
        Err(error) => return wrong("the header", "JSON".into(), error.to_string()),
    };
    let mut names = HashSet::new();
    let mut entries = Vec::new();
    for (name, value) in header.0 {
        if !names.insert(name.clone()) {
            return wrong("the header", "each name once".into(), format!("{name:?} twice"));
        }
        check_entry_bytes(path, &name, value.get().len())?;
        if name != METADATA {
            let value = match serde_json::from_str(value.get()) {
                Ok(value) => value,
                Err(error) => return wrong("the header", "JSON".into(), error.to_string()),
            };
            entries.push(entry(path, name, &value, data.len())?);
        }
    }
    entries.sort_by_key(|entry| (entry.start, entry.end));
    let mut end = 0;
    for entry in &entries {
        if entry.start != end {
            let what =
                if entry.start < end { "the start (it overlaps another)" } else { "the start (a gap)" };
            let (expected, found) = (end.to_string(), entry.start.to_string());
            return Err(CheckpointError::Entry {
                file: path.into(),
                tensor: entry.name.clone(),
                what,
                expected,
                found,
            });
        }
        end = entry.end;
    }
    if end != data.len() {
        return wrong("the size of the data", format!("{end} bytes"), data.len().to_string());
    }
    match SafeTensors::read_metadata(file) {
        Ok((_, header)) => {
            let metadata = header.metadata().iter().flatten();
            let metadata = metadata.map(|(name, text)| (name.clone(), text.clone())).collect();
            Ok(Parsed { entries, metadata, data: file.len() - data.len() })
        }
        Err(error) => wrong("the file", "what the format allows".into(), error.to_string()),
    }
}

/// Checks what a header says of one tensor.
fn entry(path: &Path, name: String, value: &serde_json::Value, data_bytes: usize) -> Result<Entry> {
    let wrong = |what, expected: String, found: String| {
        Err(CheckpointError::Entry { file: path.into(), tensor: name.clone(), what, expected, found })
    };
    let Some(fields) = value.as_object() else {
        return wrong("the entry", "an object".into(), brief(value));
    };
    let field = |name: &str| fields.get(name).unwrap_or(&serde_json::Value::Null);
    if let Some(other) = fields.keys().find(|key| !matches!(key.as_str(), "dtype" | "shape" | "data_offsets"))
    {
        return wrong("the entry", "dtype, shape and data_offsets".into(), format!("{other:?} too"));
    }
    let Ok(dtype) = serde_json::from_value::<Dtype>(field("dtype").clone()) else {
        return wrong("the dtype", one_of_dtypes(), brief(field("dtype")));
    };
    let numbers = |value: &serde_json::Value| -> Option<Vec<usize>> {
        value.as_array()?.iter().map(|number| usize::try_from(number.as_u64()?).ok()).collect()
    };
    let Some(shape) = numbers(field("shape")) else {
        return wrong("the shape", "a list of sizes".into(), brief(field("shape")));
    };
    if shape.len() > raddle_tensor::MAX_RANK {
        return wrong(
            "the shape",
            format!("at most {} axes", raddle_tensor::MAX_RANK),
            shape.len().to_string(),
        );
    }
    let Some([start, end]) =
        numbers(field("data_offsets")).and_then(|offsets| <[usize; 2]>::try_from(offsets).ok())
    else {
        return wrong("data_offsets", "a start and an end".into(), brief(field("data_offsets")));
    };
    if start > end || end > data_bytes {
        let expected = format!("start ≤ end ≤ {data_bytes}, the size of the data");
        return wrong("data_offsets", expected, format!("[{start}, {end}]"));
    }
    // A zero doesn't excuse an overflow of the other sizes: readers multiply in any order.
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let nonzero =
        shape.iter().filter(|&&size| size > 0).try_fold(1usize, |count, &size| count.checked_mul(size));
    let nonzero = nonzero.filter(|&count| isize::try_from(count).is_ok());
    match (count.and_then(|count| count.checked_mul(dtype.bitsize())), nonzero) {
        (Some(bits), Some(_)) if bits.is_multiple_of(8) && bits / 8 == end - start => {
            Ok(Entry { name, dtype, shape, start, end })
        }
        (Some(bits), Some(_)) => {
            let dtype = known(dtype).map_or(dtype.to_string(), |dtype| dtype.to_string());
            let expected = match bits % 8 {
                0 => format!("{} bytes for {dtype} {shape:?}", bits / 8),
                _ => format!("whole bytes, found {bits} bits for {dtype} {shape:?}"),
            };
            wrong("data_offsets", expected, (end - start).to_string())
        }
        _ => wrong("the shape", "a size in bytes below 2^63".into(), format!("{shape:?}")),
    }
}

/// A value for a message: not the whole of a long one.
pub(crate) fn brief(value: &serde_json::Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A JSON object as a list: names that stand twice aren't lost.
struct Pairs<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct List<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for List<V> {
            type Value = Pairs<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(List(PhantomData))
    }
}
