//! Vectors in files: `.npy`, `.safetensors`, `.jsonl`. All are written whole or not at all.

use super::input::Lines;
use crate::output::{Failure, Outcome, write_whole};
use raddle::{Device, Tensor, nn::checkpoint};
use std::{fmt::Write, path::Path};

/// A kind of file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Npy,
    Safetensors,
    Jsonl,
}

impl Kind {
    pub fn of(path: &Path) -> Outcome<Kind> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Kind::Npy),
            Some("safetensors") => Ok(Kind::Safetensors),
            Some("jsonl") => Ok(Kind::Jsonl),
            _ => Err(Failure::Input(format!(
                "{}: expected a name in .npy, .safetensors or .jsonl",
                path.display()
            ))),
        }
    }

    /// Writes one row for each line. Rows of lines that have no text are NaN; JSON says why.
    pub fn write(self, path: &Path, lines: &Lines, rows: Vec<f32>, width: usize) -> Outcome {
        match self {
            Kind::Npy => write_whole(path, &npy(&rows, width)),
            Kind::Jsonl => write_whole(path, jsonl(lines, &rows, width).as_bytes()),
            Kind::Safetensors => {
                let device = Device::new("cpu")?;
                let tensor = Tensor::from_vec(rows, [lines.len(), width], &device)?;
                let saved = checkpoint::save(path, &[("embeddings".into(), tensor)]);
                saved.map_err(|error| Failure::Input(error.to_string()))
            }
        }
    }
}

/// Version 1.0 of NumPy's format: a magic number, the length of the header, a dictionary of Python padded so that the
/// elements are aligned to 64 bytes, the elements.
fn npy(rows: &[f32], width: usize) -> Vec<u8> {
    let shape = (rows.len() / width, width);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape:?}, }}");
    let before = 10;
    let padding = (before + header.len() + 1).next_multiple_of(64) - (before + header.len() + 1);
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(rows.iter().flat_map(|element| element.to_le_bytes()));
    bytes
}

fn jsonl(lines: &Lines, rows: &[f32], width: usize) -> String {
    let mut text = String::new();
    for (index, (line, row)) in lines.iter().zip(rows.chunks(width)).enumerate() {
        let value = match line {
            Ok(_) => serde_json::json!({ "line": index + 1, "embedding": row }),
            Err(why) => serde_json::json!({ "line": index + 1, "error": why }),
        };
        // A string takes whatever is written to it.
        _ = writeln!(text, "{value}");
    }
    text
}
