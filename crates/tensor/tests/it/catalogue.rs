//! What the catalogue says of the ops without a row is what there is.

use raddle_op::catalogue::{Kind, catalogue};
use std::{fs, path::Path};

/// A file's text, or all texts of a folder.
fn text_of(path: &Path) -> String {
    if path.is_file() {
        return fs::read_to_string(path).expect("it is text");
    }
    let entries = fs::read_dir(path).expect("the sources are there");
    entries.map(|entry| text_of(&entry.expect("a file").path())).collect()
}

#[test]
fn forms_of_structured_ops_are_as_listed() {
    let source = text_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    // A method of its own, or one that a macro makes of a row `name name_out = …`.
    let has = |name: &str| {
        ["(", "<"].iter().any(|open| source.contains(&format!("pub fn {name}{open}")))
            || source.contains(&format!(" {name} = "))
    };
    for op in catalogue().iter().filter(|op| op.kind != Kind::Pointwise) {
        let (name, in_place, out) = (op.name, format!("{}_", op.name), format!("{}_out", op.name));
        assert_eq!(op.out, has(&out), "{name}: a form with an output");
        assert_eq!(op.in_place, has(&in_place), "{name}: a form in place");
    }
}
