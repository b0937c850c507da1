//! Makes a test of each Rust example in the README and in the guide: `tests/docs.rs` includes them.
//!
//! A comment `<!-- with: … -->` right above an example has lines in front of it that a reader needn't see. An example may use `?`.

use std::{env, fmt::Write as _, fs, path::Path};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn main() {
    let mut pages = vec!["README.md".to_owned()];
    let folder = Path::new(ROOT).join("docs/guide");
    for entry in fs::read_dir(&folder).expect("the guide is there") {
        let name = entry.expect("its pages can be listed").file_name();
        pages.push(format!("docs/guide/{}", name.to_str().expect("a page has a plain name")));
    }
    pages.sort();
    let mut tests = String::new();
    for page in &pages {
        let path = Path::new(ROOT).join(page);
        println!("cargo::rerun-if-changed={}", path.display());
        write_tests(page, &fs::read_to_string(path).expect("a page can be read"), &mut tests);
    }
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = env::var_os("OUT_DIR").expect("Cargo says where");
    fs::write(Path::new(&out).join("docs.rs"), tests).expect("there is room");
}

fn write_tests(page: &str, text: &str, tests: &mut String) {
    let name = page.trim_end_matches(".md").replace(['/', '-'], "_").to_lowercase();
    let mut with = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.starts_with("<!-- with:") {
            let mut comment = line.to_owned();
            while !comment.ends_with("-->") {
                comment.push('\n');
                comment.push_str(lines.next().expect("a comment ends").1);
            }
            with = comment["<!-- with:".len()..comment.len() - "-->".len()].to_owned();
        } else if line == "```rust" {
            let body: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            let (line, body) = (index + 1, body.join("\n"));
            _ = write!(
                tests,
                "#[test]\nfn {name}_line_{line}() -> Result<(), Box<dyn Error>> {{\n{with}\n{body}\nOk(())\n}}\n\n"
            );
            with.clear();
        } else if !line.is_empty() {
            with.clear();
        }
    }
}
