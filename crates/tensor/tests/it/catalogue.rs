//! What the catalogue says of the ops without a row is what there is.

use raddle_op::catalogue::{Kind, catalogue};
use std::{fs, path::Path};

#[test]
fn forms_of_structured_ops_are_as_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files =
        fs::read_dir(folder).expect("the sources are there").map(|entry| entry.expect("a file").path());
    let source: String = files.map(|file| fs::read_to_string(file).expect("it is text")).collect();
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
