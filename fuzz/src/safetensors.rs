//! Weights.

use crate::device;
use raddle_nn::checkpoint::load_bytes;
use std::collections::HashSet;

/// A file that is accepted is whole: each name once, every byte of the data in one tensor, in order.
pub fn safetensors(bytes: &[u8]) {
    let Ok(tensors) = load_bytes("weights.safetensors", bytes, device()) else { return };
    let names: HashSet<_> = tensors.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), tensors.len(), "a name stands twice");
    let mut data = Vec::new();
    for (_, tensor) in &tensors {
        let sizes_bytes = tensor.element_count() * tensor.dtype().size_bytes();
        let read = tensor.to_bytes().expect("it was made of bytes");
        assert_eq!(read.len(), sizes_bytes);
        data.extend(read);
    }
    assert!(bytes.ends_with(&data), "the tensors are the data");
    let header = u64::from_le_bytes(*bytes.first_chunk().expect("it was accepted")) as usize;
    assert_eq!(8 + header + data.len(), bytes.len(), "nothing is left out");
}
