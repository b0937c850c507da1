//! Checks of the text that neither the compiler nor clippy makes. Few, and each names what to do instead.

use crate::{
    command, failed,
    source::{self, Line, word_at},
};
use std::{collections::BTreeMap, fmt, fs};

/// Where unsafe blocks may stand: what talks to devices, and what the rest relies on to be ordered and alive.
const UNSAFE_FOLDERS: [&str; 6] = [
    "backends/",
    "crates/sync/",
    "crates/runtime/",
    "crates/sanitize/",
    "crates/hal/tests/",
    // Structures of C, which Python's libraries exchange.
    "python/src/dlpack.rs",
];
/// Has a file with unsafe code, so its root denies the word, and can't forbid it.
const UNSAFE_IN_A_FILE: &str = "python/src/lib.rs";
/// Declares unsafe methods; has no unsafe block, but can't forbid the word.
const UNSAFE_DECLARED: &str = "crates/hal/";
/// The one list of planted faults.
const FAULT_LIST: &str = "crates/sync/src/faults.rs";

/// What std has that `raddle_sync` has with ranks, or in a form that models can replace.
const REPLACED: [(&str, &str); 7] = [
    ("std::thread::", "raddle_sync::thread"),
    ("use std::thread", "raddle_sync::thread"),
    ("std::sync::atomic", "raddle_sync::atomic"),
    ("Mutex", "raddle_sync::Mutex, which has a rank"),
    ("Condvar", "raddle_sync::Condvar"),
    (
        "RwLock",
        "raddle_sync::Mutex: a lock whose readers wait for a writer that waits for readers has no rank",
    ),
    ("Barrier", "a raddle_sync::Mutex and a raddle_sync::Condvar"),
];
/// Of `std::thread`; models don't need them replaced.
const KEPT: [&str; 2] = ["std::thread::available_parallelism", "std::thread::panicking"];
/// Where the std ones are fine: `sync` is made of them; these others run above the runtime's guarantees.
const STD_FOLDERS: [&str; 7] =
    ["crates/sync/", "crates/cli/", "conformance/", "benches/", "fuzz/", "examples/", "xtask/"];

/// Kernels that run on the CPU: memory that grows with their operands comes from the device's allocator.
const KERNEL_FOLDER: &str = "backends/cpu/src/kernels/";
/// What takes memory of the process, as much as it is given, and aborts if there is none.
const GROWS: [&str; 13] = [
    "vec![",
    "::with_capacity(",
    "::from_elem(",
    ".collect(",
    ".collect::<",
    ".to_vec(",
    ".into_vec(",
    ".resize(",
    ".reserve(",
    ".push(",
    ".push_back(",
    ".extend(",
    ".extend_from_slice(",
];
/// Says why something of [`GROWS`] doesn't grow with operands: beside or above it, or in the docs of the file for all of it.
const BOUNDED: &str = "Bounded: ";

/// Texts that tie the repository to one machine or to one mirror of a registry. (In pieces, or this file would break
/// its own rule.)
const TIED: [&str; 8] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("debian", ".org"),
    concat!("rust-lang", ".org/dist"),
];
/// Written by tools: cargo names its registry in it.
const TIED_EXEMPT: [&str; 3] = ["Cargo.lock", "benches/peers/candle/Cargo.lock", "fuzz/Cargo.lock"];

/// A rule broken at a place.
#[derive(Debug, PartialEq)]
pub struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// A file of the repository.
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    /// The whole of it.
    pub text: String,
}

/// Runs all checks on all files that git knows or would add.
pub fn run() -> crate::Outcome {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let listed = command::capture(command::program("git").args(list))?;
    if !listed.is_good() {
        return failed(format!("git ls-files failed: {}", listed.stderr.trim()));
    }
    // A file that is deleted but still in the index can't be read, and one that isn't text has nothing to check.
    let files: Vec<File> = listed
        .stdout
        .split_terminator('\0')
        .filter_map(|path| Some(File { path: path.into(), text: fs::read_to_string(path).ok()? }))
        .collect();
    let violations = check(&files);
    if violations.is_empty() {
        return Ok(());
    }
    failed(violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("\n"))
}

/// All checks on these files.
pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let parsed: Vec<(&File, Vec<Line>)> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .map(|file| (file, source::lines(&file.text)))
        .collect();
    let test_files = test_modules(&parsed);
    for (file, lines) in &parsed {
        let test_file = is_test_path(&file.path) || test_files.contains(&file.path);
        check_unsafe(file, lines, &mut violations);
        check_ignored(file, lines, &mut violations);
        check_std(file, lines, test_file, &mut violations);
        check_unwrap(file, lines, test_file, &mut violations);
        check_growth(file, lines, test_file, &mut violations);
    }
    check_faults(&parsed, &mut violations);
    check_untested(files, &parsed, &mut violations);
    check_tied(files, &mut violations);
    violations.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    violations
}

fn at(file: &File, index: usize, what: impl Into<String>) -> Violation {
    Violation { path: file.path.clone(), line: index + 1, what: what.into() }
}

fn is_under(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

fn is_test_path(path: &str) -> bool {
    path.starts_with("conformance/")
        || path.contains("/tests/")
        || path.contains("_tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
}

/// Files that are modules under `#[cfg(test)]`: `#[cfg(test)] mod name;` beside them says so.
fn test_modules(parsed: &[(&File, Vec<Line>)]) -> Vec<String> {
    let mut paths = Vec::new();
    for (file, lines) in parsed {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let stem = name.trim_end_matches(".rs");
        let folder = match stem {
            "lib" | "main" | "mod" => folder.to_string(),
            _ => format!("{folder}/{stem}"),
        };
        for line in lines.iter().filter(|line| line.test) {
            let code = line.code.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            if let Some(name) = code.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                paths.push(format!("{folder}/{name}.rs"));
                paths.push(format!("{folder}/{name}/mod.rs"));
            }
        }
    }
    paths
}

fn check_unsafe(file: &File, lines: &[Line], violations: &mut Vec<Violation>) {
    let allowed = is_under(&file.path, &UNSAFE_FOLDERS);
    for (index, line) in lines.iter().enumerate() {
        let Some(start) = word_at(&line.code, "unsafe") else { continue };
        let next = line.code[start + "unsafe".len()..].trim_start();
        let next = if next.is_empty() {
            lines.get(index + 1).map_or("", |line| line.code.trim_start())
        } else {
            next
        };
        if !next.starts_with('{') && !next.starts_with("impl") {
            continue; // a declaration, or an attribute's name
        }
        if !allowed {
            let what = format!(
                "unsafe code stands only in {}; here, use what they offer",
                UNSAFE_FOLDERS.join(", ")
            );
            violations.push(at(file, index, what));
        } else if !has_comment(lines, index, "SAFETY:") {
            let what = "unsafe without a `// SAFETY:` comment above that answers its contract";
            violations.push(at(file, index, what));
        }
    }
    let is_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|name| file.path.ends_with(name));
    let word = if file.path == UNSAFE_IN_A_FILE { "deny" } else { "forbid" };
    let forbids = lines.iter().any(|line| line.code.contains(&format!("#![{word}(unsafe_code)]")));
    if is_root && !allowed && !file.path.starts_with(UNSAFE_DECLARED) && !forbids {
        violations.push(at(
            file,
            0,
            "the root of a crate without unsafe code says `#![forbid(unsafe_code)]`",
        ));
    }
}

/// Is there such a comment on this line, or above the statement that it belongs to?
fn has_comment(lines: &[Line], index: usize, text: &str) -> bool {
    if lines[index].comment.contains(text) {
        return true;
    }
    for line in lines[..index].iter().rev() {
        if line.comment.contains(text) {
            return true;
        }
        let code = line.code.trim();
        let is_match = code.ends_with('{') && word_at(code, "match").is_some(); // `let a = match b {`
        let is_comment = code.is_empty() && !line.comment.is_empty();
        let goes_on =
            !code.is_empty() && (code.starts_with("#[") || (is_match || !code.ends_with([';', '{', '}'])));
        if !is_comment && !goes_on {
            return false;
        }
    }
    false
}

fn check_ignored(file: &File, lines: &[Line], violations: &mut Vec<Violation>) {
    for (index, line) in lines.iter().enumerate() {
        if line.code.contains("#[ignore]") {
            violations.push(at(
                file,
                index,
                "a test is ignored for a reason: `#[ignore = \"why, and who runs it\"]`",
            ));
        }
    }
}

fn check_std(file: &File, lines: &[Line], test_file: bool, violations: &mut Vec<Violation>) {
    if test_file || is_under(&file.path, &STD_FOLDERS) {
        return;
    }
    let mut import = false; // inside of a `use std::sync::{ … }` that goes over lines
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.test) {
        let code = KEPT.iter().fold(line.code.clone(), |code, kept| code.replace(kept, ""));
        import |= code.contains("std::sync::") && code.contains("use ");
        for (banned, instead) in REPLACED {
            let found = if banned.contains("::") {
                code.contains(banned) || import && banned.ends_with("atomic") && code.contains("atomic::")
            } else if import {
                word_at(&code, banned).is_some()
            } else {
                code.contains(&format!("std::sync::{banned}"))
            };
            if found {
                let name =
                    banned.trim_start_matches("use ").trim_end_matches(':').trim_start_matches("std::sync::");
                violations.push(at(file, index, format!("{name} of std can't be modelled; use {instead}")));
                break;
            }
        }
        import &= !code.contains(';');
    }
}

fn check_unwrap(file: &File, lines: &[Line], test_file: bool, violations: &mut Vec<Violation>) {
    if test_file {
        return;
    }
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.test) {
        if line.code.contains(".unwrap()") {
            violations.push(at(
                file,
                index,
                "no unwrap outside tests; use `expect` with the invariant that holds",
            ));
        }
    }
}

/// A kernel takes no memory that grows with its operands: it would be past every limit, and abort the process.
fn check_growth(file: &File, lines: &[Line], test_file: bool, violations: &mut Vec<Violation>) {
    let is_bounded = lines.iter().any(|line| line.comment.starts_with(&format!("! {BOUNDED}")));
    if test_file || is_bounded || !file.path.starts_with(KERNEL_FOLDER) {
        return;
    }
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.test) {
        let Some(grows) = GROWS.iter().find(|grows| line.code.contains(*grows)) else { continue };
        if !has_comment(lines, index, BOUNDED) {
            let what = format!(
                "`{grows}` takes memory past the device's limit, and aborts where there is none; use what `scratch.rs` offers, or say in a `// {BOUNDED}` comment why it doesn't grow with operands"
            );
            violations.push(at(file, index, what));
        }
    }
}

/// The names in the one list of faults, with the property that each breaks and the line that it stands on.
pub fn faults(list: &str) -> Vec<(String, String, usize)> {
    let entry = |(index, line): (usize, &str)| {
        let mut words = line.split_whitespace();
        let (name, breaks, property) = (words.next()?, words.next()?, words.next()?);
        let property = property.strip_prefix('"')?.strip_suffix("\";")?;
        (breaks == "breaks").then(|| (name.to_string(), property.to_string(), index))
    };
    list.lines().enumerate().filter_map(entry).collect()
}

/// Reads the one list of faults.
pub fn planted_faults() -> Result<Vec<(String, String, usize)>, crate::Failure> {
    match fs::read_to_string(FAULT_LIST) {
        Ok(text) => Ok(faults(&text)),
        Err(error) => failed(format!("{FAULT_LIST}: {error}")),
    }
}

fn check_faults(parsed: &[(&File, Vec<Line>)], violations: &mut Vec<Violation>) {
    let Some((list, _)) = parsed.iter().find(|(file, _)| file.path == FAULT_LIST) else { return };
    let listed = faults(&list.text);
    let mut planted: BTreeMap<&str, usize> = listed.iter().map(|(name, ..)| (name.as_str(), 0)).collect();
    for (file, lines) in parsed.iter().filter(|(file, _)| !file.path.starts_with("xtask/")) {
        for (index, line) in lines.iter().enumerate() {
            for (start, _) in line.code.match_indices("fault!(") {
                let rest = &line.code[start + "fault!(".len()..];
                let name = rest.split([')', '=']).next().unwrap_or_default().trim();
                match planted.get_mut(name) {
                    Some(count) => *count += 1,
                    None if name.starts_with('$') => {}
                    None => violations.push(at(
                        file,
                        index,
                        format!("fault {name:?} is not listed in {FAULT_LIST}"),
                    )),
                }
            }
        }
    }
    for (name, _, index) in &listed {
        if planted[name.as_str()] == 0 {
            violations.push(at(
                list,
                *index,
                format!("fault {name:?} is planted nowhere: no `fault!({name})`"),
            ));
        }
    }
}

/// What says in its manifest that it has no tests, so that none are built, has none: they would never run.
fn check_untested(files: &[File], parsed: &[(&File, Vec<Line>)], violations: &mut Vec<Violation>) {
    for manifest in files {
        let Some(folder) = manifest.path.strip_suffix("Cargo.toml") else { continue };
        for section in manifest.text.split("\n[") {
            let says = |line: &str| section.lines().any(|found| found == line);
            let own = section.lines().find_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
            let is_of = |path: &str| match section.lines().next() {
                Some("lib]") => path.starts_with("src/") && !path.starts_with("src/bin/"),
                Some("[bin]]") => Some(path) == own,
                _ => false,
            };
            for (file, lines) in parsed {
                if !file.path.strip_prefix(folder).is_some_and(is_of) {
                    continue;
                }
                let test = lines.iter().position(|line| line.code.contains("#[test]"));
                for (key, index) in [("test", test), ("doctest", example(&file.text))] {
                    if let Some(index) = index.filter(|_| says(&format!("{key} = false"))) {
                        let what =
                            format!("it never runs: {} says `{key} = false`; drop that", manifest.path);
                        violations.push(at(file, index, what));
                    }
                }
            }
        }
    }
}

/// The line of the first example in docs that is compiled.
fn example(text: &str) -> Option<usize> {
    let fence = |line: &str| {
        let doc = line.trim_start();
        let info = doc.strip_prefix("///").or(doc.strip_prefix("//!"))?.trim().strip_prefix("```")?;
        Some(info.to_string())
    };
    let mut fences = text.lines().enumerate().filter_map(|(index, line)| Some((index, fence(line)?)));
    while let Some((index, info)) = fences.next() {
        if !info.starts_with("text") {
            return Some(index);
        }
        fences.next(); // its end
    }
    None
}

fn check_tied(files: &[File], violations: &mut Vec<Violation>) {
    for file in files.iter().filter(|file| !TIED_EXEMPT.contains(&file.path.as_str())) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(tied) = TIED.iter().find(|tied| line.contains(*tied)) {
                let what = format!(
                    "{tied:?} ties the repository to one machine; use a relative path, or a package's name"
                );
                violations.push(at(file, index, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations of one file: line and the first words.
    fn broken(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = File { path: path.into(), text: text.into() };
        check(&[file]).into_iter().map(|violation| (violation.line, violation.what)).collect()
    }

    fn assert_broken(path: &str, text: &str, line: usize, what: &str) {
        let found = broken(path, text);
        assert!(
            found.len() == 1 && found[0].0 == line && found[0].1.contains(what),
            "{path}: expected {what:?} in line {line}, found {found:?}"
        );
    }

    const NONE: Vec<(usize, String)> = Vec::new();

    #[test]
    fn unsafe_stands_only_where_it_may() {
        let text = "// SAFETY: fine\nlet a = unsafe { b() };";
        assert_broken("crates/tensor/src/view.rs", text, 2, "unsafe code stands only in");
        assert_eq!(broken("crates/runtime/src/view.rs", text), NONE);
        assert_eq!(broken("crates/hal/src/view.rs", "unsafe fn a(); // unsafe { }"), NONE);
    }

    #[test]
    fn unsafe_answers_its_contract() {
        let path = "backends/cpu/src/a.rs";
        assert_broken(path, "// fine\nunsafe { b() }", 2, "SAFETY");
        assert_broken(path, "// SAFETY: of another\na();\nunsafe impl Send for B {}", 3, "SAFETY");
        assert_broken(path, "let c =\n    unsafe\n    {\n", 2, "SAFETY");
        assert_eq!(broken(path, "// SAFETY: fine\n// more\n#[inline]\nlet a =\n    unsafe { b() };"), NONE);
        assert_eq!(broken(path, "match a {\n    // SAFETY: fine\n    B => unsafe { b() },\n}"), NONE);
    }

    #[test]
    fn roots_forbid_unsafe_code() {
        assert_broken("crates/nn/src/lib.rs", "pub mod a;", 1, "forbid(unsafe_code)");
        assert_eq!(broken("crates/nn/src/lib.rs", "#![forbid(unsafe_code)]"), NONE);
        assert_eq!(broken("crates/hal/src/lib.rs", "pub mod a;"), NONE);
    }

    #[test]
    fn std_is_used_through_sync() {
        let path = "crates/runtime/src/a.rs";
        assert_broken(path, "use std::sync::{Arc, Mutex};", 1, "raddle_sync::Mutex");
        assert_broken(
            path,
            "use std::sync::{\n    OnceLock,\n    atomic::AtomicU32,\n};",
            3,
            "raddle_sync::atomic",
        );
        assert_broken(path, "static A: std::sync::atomic::AtomicU32 = b;", 1, "raddle_sync::atomic");
        assert_broken(path, "std::thread::spawn(a);", 1, "raddle_sync::thread");
        assert_broken(path, "use std::thread;", 1, "raddle_sync::thread");
        assert_eq!(broken(path, "use std::sync::{Arc, OnceLock};\nuse raddle_sync::Mutex;"), NONE);
        assert_eq!(
            broken(
                path,
                "thread_local!(static A: u8 = 0);\nstd::thread::available_parallelism();\n#[cfg(test)]\nmod tests {\n    use std::thread;\n}"
            ),
            NONE
        );
        assert_eq!(broken("crates/sync/src/a.rs", "use std::sync::Mutex;"), NONE);
        assert_eq!(broken("crates/runtime/tests/a.rs", "use std::sync::Mutex;"), NONE);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let path = "crates/base/src/a.rs";
        assert_broken(path, "let a = b.unwrap(); // .unwrap()", 1, "no unwrap outside tests");
        assert_eq!(broken(path, "// .unwrap()\nlet a = \".unwrap()\";"), NONE);
        assert_eq!(broken(path, "#[cfg(test)]\nmod tests {\n    fn a() { b.unwrap() }\n}"), NONE);
        assert_eq!(broken("crates/base/tests/a.rs", "b.unwrap();"), NONE);
    }

    #[test]
    fn modules_of_tests_are_tests() {
        let files = |declaration: &str| {
            let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
            check(&[
                file("crates/base/src/a.rs", declaration),
                file("crates/base/src/a/oracle.rs", "b.unwrap();"),
            ])
            .len()
        };
        assert_eq!(files("#[cfg(all(test, not(loom)))]\nmod oracle;"), 0);
        assert_eq!(files("mod oracle;"), 1);
    }

    #[test]
    fn ignored_tests_say_why() {
        assert_broken("crates/base/src/a.rs", "#[test]\n#[ignore]\nfn a() {}", 2, "#[ignore = ");
        assert_eq!(broken("crates/base/src/a.rs", "#[ignore = \"needs 9 GB: soak --large\"]"), NONE);
    }

    #[test]
    fn faults_are_listed_and_planted() {
        let check = |list: &str, code: &str| {
            let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
            let files = [file(FAULT_LIST, list), file("crates/runtime/src/a.rs", code)];
            check(&files).iter().map(Violation::to_string).collect::<Vec<_>>()
        };
        let list = "faults! {\n    /// Doc.\n    one breaks \"T1\";\n}";
        assert!(check(list, "if fault!(one) {}").is_empty());
        assert!(check(list, "fault!(one => return Ok(()));").is_empty());
        assert_eq!(
            check(list, "if fault!(one) || fault!(two) {}"),
            ["crates/runtime/src/a.rs:1: fault \"two\" is not listed in crates/sync/src/faults.rs"]
        );
        assert_eq!(
            check(list, "// fault!(one)"),
            ["crates/sync/src/faults.rs:3: fault \"one\" is planted nowhere: no `fault!(one)`"]
        );
    }

    #[test]
    fn kernels_take_no_memory_that_grows() {
        let path = "backends/cpu/src/kernels/sort.rs";
        for grows in [
            "let keys: Vec<_> = line.iter().map(key).collect();",
            "let keys = line.iter().collect::<Vec<u32>>();",
            "let mut order = Vec::with_capacity(length);",
            "let means = vec![0.0; count];",
            "memory.resize(words, 0);",
            "order.extend(0..length);",
            "found.push(key);",
        ] {
            assert_broken(path, &format!("fn a() {{\n    {grows}\n}}"), 2, "scratch.rs");
            assert_eq!(
                broken(path, &format!("fn a() {{\n    {grows} // Bounded: one for an axis\n}}")),
                NONE
            );
            assert_eq!(broken(path, &format!("// Bounded: `LANES`\n{grows}")), NONE);
            assert_eq!(broken(path, &format!("//! A plan.\n//! Bounded: by the program\n\n{grows}")), NONE);
            assert_eq!(broken(path, &format!("#[cfg(test)]\nmod tests {{\n    {grows}\n}}")), NONE);
            assert_eq!(broken("crates/tensor/src/view.rs", grows), NONE);
            assert_eq!(broken("backends/cpu/src/kernels/structured_tests.rs", grows), NONE);
        }
        assert_broken(path, "// Bounded: `LANES`\nlet a = 1;\nfound.push(key);", 3, "`.push(`");
    }

    #[test]
    fn what_has_tests_runs_them() {
        let check = |manifest: &str, path: &str, text: &str| {
            let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
            let files = [file("benches/Cargo.toml", manifest), file(path, text)];
            check(&files).iter().map(Violation::to_string).collect::<Vec<_>>()
        };
        let (library, test) = ("[package]\n\n[lib]\ntest = false\ndoctest = false\n", "\n#[test]\nfn a() {}");
        let expected = "benches/src/a.rs:2: it never runs: benches/Cargo.toml says `test = false`; drop that";
        assert_eq!(check(library, "benches/src/a.rs", test), [expected]);
        for elsewhere in ["benches/tests/a.rs", "benches/src/bin/a.rs", "xtask/src/a.rs"] {
            assert!(check(library, elsewhere, test).is_empty(), "{elsewhere}");
        }
        assert!(check("[lib]\n\n[[bin]]\ntest = false\n", "benches/src/a.rs", test).is_empty());
        let bin = "[package]\n\n[[bin]]\nname = \"a\"\npath = \"src/bin/a.rs\"\ntest = false\n";
        assert_eq!(check(bin, "benches/src/bin/a.rs", test).len(), 1);
        assert!(check(bin, "benches/src/bin/b.rs", test).is_empty());

        let expected =
            "benches/src/a.rs:4: it never runs: benches/Cargo.toml says `doctest = false`; drop that";
        let shown = "//! ```text\n//! 1\n//! ```\n    /// ```\n    /// a();\n    /// ```";
        assert_eq!(check(library, "benches/src/a.rs", shown), [expected]);
        assert!(check(library, "benches/src/a.rs", "//! ```text\n//! 1\n//! ```\n// ```").is_empty());
        assert!(check("[lib]\n", "benches/src/a.rs", shown).is_empty());
    }

    #[test]
    fn nothing_is_tied_to_a_machine() {
        assert_broken("README.md", concat!("good\nrun /wo", "rk/main/a"), 2, "ties the repository");
        assert_broken("a.toml", concat!("url = \"https://pypi", ".org\""), 1, "ties the repository");
        assert_eq!(broken("Cargo.lock", concat!("https://github.com/rust-lang/crates", ".io-index")), NONE);
    }
}
