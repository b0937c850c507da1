//! Items by path: is there one, in the sources of this checkout, that ships?

use crate::source::{self, is_word};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Finds the item that a path such as `raddle_runtime::order::marks::Marks::claim_write` names where it is defined, and returns its
/// file.
pub fn find(root: &Path, anchor: &str) -> Result<PathBuf, String> {
    let names: Vec<&str> = anchor.split("::").collect();
    let short = names[0].strip_prefix("raddle_").unwrap_or(names[0]);
    let folders = ["crates", "backends", "."].map(|parent| root.join(parent).join(short).join("src"));
    let roots = folders
        .into_iter()
        .flat_map(|folder| ["lib.rs", "main.rs"].map(|name| (folder.join(name), folder.clone())));
    let roots: Vec<_> = roots.filter(|(file, _)| file.is_file()).collect();
    if roots.is_empty() {
        return Err(format!("{anchor}: there is no crate {}", names[0]));
    }
    for (file, folder) in roots {
        let found = parse(&file).and_then(|lines| within(&lines, 0, file, folder, &names[1..]));
        if let Some(file) = found.map_err(|error| format!("{anchor}: {error}"))? {
            return Ok(file);
        }
    }
    Err(format!("{anchor}: there is no such item"))
}

/// The code of a file that ships, line by line, with how many braces are open before each.
fn parse(file: &Path) -> Result<Vec<(usize, String)>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut depth = 0_usize;
    let mut code = Vec::new();
    for line in source::lines(&text) {
        let before = depth;
        for character in line.code.chars() {
            match character {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if !line.test {
            code.push((before, line.code));
        }
    }
    Ok(code)
}

/// `lines` stand in a block that begins at `depth`; `folder` holds the files of modules that are declared there.
fn within(
    lines: &[(usize, String)],
    depth: usize,
    file: PathBuf,
    folder: PathBuf,
    names: &[&str],
) -> Result<Option<PathBuf>, String> {
    let Some((first, rest)) = names.split_first() else { return Ok(Some(file)) };
    let is_here = |at: &usize| lines[*at].0 == depth;
    let all = || (0..lines.len()).filter(is_here);
    if let Some(at) = all().find(|&at| declares(&lines[at].1, &["mod"], first)) {
        let folder = folder.join(first);
        if !lines[at].1.trim_end().ends_with(';') {
            return within(block(lines, at), depth + 1, file, folder, rest);
        }
        let files = [folder.with_extension("rs"), folder.join("mod.rs")];
        let file = files.into_iter().find(|file| file.is_file());
        let file = file.ok_or_else(|| format!("the module {first} has no file"))?;
        return within(&parse(&file)?, 0, file, folder, rest);
    }
    const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "type", "macro_rules!"];
    let found = match rest {
        [] => all().any(|at| declares(&lines[at].1, &ITEMS, first)),
        [member] => all().any(|at| {
            let is_enum = declares(&lines[at].1, &["enum"], first);
            let is_owner = is_enum
                || declares(&lines[at].1, &["trait"], first)
                || implemented(lines, at).is_some_and(|owner| owner == *first);
            let is_member = |(inner, code): &(usize, String)| {
                let is_variant = || is_enum && starts_with_word(code.trim_start(), member);
                *inner == depth + 1 && (declares(code, &["fn", "const"], member) || is_variant())
            };
            is_owner && block(lines, at).iter().any(is_member)
        }),
        _ => false,
    };
    Ok(found.then_some(file))
}

/// The lines of the block that an item opens, on its line or below.
fn block(lines: &[(usize, String)], at: usize) -> &[(usize, String)] {
    let depth = lines[at].0;
    let rest = &lines[at + 1..];
    let start = rest.iter().position(|(inner, _)| *inner > depth).unwrap_or(rest.len());
    let length = rest[start..].iter().position(|(inner, _)| *inner <= depth);
    &rest[start..start + length.unwrap_or(rest.len() - start)]
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !is_word(rest.chars().next()))
}

/// Is the line the beginning of an item of one of these kinds with this name?
fn declares(code: &str, kinds: &[&str], name: &str) -> bool {
    let Some(at) = source::word_at(code, name) else { return false };
    let words: Vec<&str> = code[..at].split_whitespace().collect();
    let Some((kind, before)) = words.split_last() else { return false };
    let is_qualifier = |word: &&str| {
        word.starts_with("pub")
            || ["unsafe", "const", "async", "extern", "\"\"", "super)", "crate)"].contains(word)
    };
    kinds.contains(kind) && before.iter().all(is_qualifier)
}

/// The name of the type that an `impl` is of.
fn implemented(lines: &[(usize, String)], at: usize) -> Option<String> {
    let code = lines[at].1.trim_start();
    let code = code.strip_prefix("unsafe ").unwrap_or(code);
    if !starts_with_word(code, "impl") {
        return None;
    }
    let head: Vec<&str> = lines[at..].iter().map(|(_, code)| code.as_str()).take(8).collect();
    let head = head.join(" ");
    let head = head.split('{').next()?.split_once("impl")?.1;
    // Without what stands in angle brackets; an arrow closes none.
    let (mut open, mut text) = (0_usize, String::new());
    for character in head.replace("->", "").chars() {
        match character {
            '<' => open += 1,
            '>' => open = open.saturating_sub(1),
            _ if open == 0 => text.push(character),
            _ => {}
        }
    }
    let text = text.split(" where ").next()?;
    let of = text.rsplit_once(" for ").map_or(text, |(_, of)| of);
    Some(of.trim().rsplit("::").next()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_where_they_are_defined() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for (anchor, file) in [
            ("raddle_runtime::order::marks::Marks::claim_write", "marks.rs"),
            ("raddle_sync::raise", "lib.rs"),
            ("raddle_sync::rank::Rank::Stream", "rank.rs"),
            ("raddle_hal::Device::submit", "lib.rs"),
            ("raddle_cpu::kernels::pointwise", "pointwise.rs"),
        ] {
            assert_eq!(find(root, anchor).unwrap().file_name().unwrap(), file, "{anchor}");
        }
        for (anchor, error) in [
            ("raddle_none::x", "raddle_none::x: there is no crate raddle_none"),
            (
                "raddle_runtime::order::marks::Marks::none",
                "raddle_runtime::order::marks::Marks::none: there is no such item",
            ),
            ("raddle_runtime::oracle::open", "raddle_runtime::oracle::open: there is no such item"),
        ] {
            assert_eq!(find(root, anchor).unwrap_err(), error);
        }
    }
}
