//! What `measure replay` and `raddle memory` read.

use raddle_runtime::{MemorySnapshot, MemoryTrace};

/// A trace has one form.
pub fn trace(bytes: &[u8]) {
    let Ok(trace) = MemoryTrace::read(bytes) else { return };
    let mut written = Vec::new();
    trace.write(&mut written).expect("memory takes everything");
    assert_eq!(written, bytes, "it isn't what would be written");
    let again = MemoryTrace::new(trace.events().iter().copied()).expect("it was checked");
    assert_eq!(again, trace);
}

/// A snapshot survives being written.
pub fn snapshot(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(snapshot) = MemorySnapshot::from_json(text) else { return };
    let again = MemorySnapshot::from_json(&snapshot.to_json()).expect("it was written by us");
    assert_eq!(again, snapshot);
    // The page's own elements, and no other: texts of the file end none.
    let page = snapshot.to_html();
    let tags = |text: &str| text.matches('<').count();
    assert_eq!(tags(&page), tags(&MemorySnapshot { device: String::new(), ..snapshot }.to_html()));
}
