//! The files of a crate, and which of them import which: read from the text, with re-exports followed to where an item is defined.
//!
//! A file imports another one if it names an item that is defined there, by a `use` or by a path. To declare a module or to
//! pass a name on (`pub use`) imports nothing. What only tests name is left out. Two things aren't seen: methods, which need no
//! import, and names that a macro puts together.

use crate::source::{self, is_word};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The files of a crate by their path from its source folder, and for each the files that it imports.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads a crate from its first file. Errors: a file can't be read.
pub fn imports(first: &Path) -> Result<Imports, String> {
    let folder = first.parent().unwrap_or(Path::new("."));
    let mut modules = Modules { folder: folder.into(), all: BTreeMap::new() };
    modules.read(first, Vec::new())?;
    Ok(modules.imports())
}

/// Files of Rust in a package that belong to none of its targets, of which these are the first files: no module declares them, so
/// nobody compiles them. Errors: a file can't be read.
pub fn undeclared(package: &Path, first_files: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut declared = BTreeSet::new();
    let mut next: Vec<(PathBuf, bool)> = first_files.iter().map(|file| (file.clone(), true)).collect();
    while let Some((file, is_first)) = next.pop() {
        if !file.is_file() || !declared.insert(file.clone()) {
            continue;
        }
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parent = file.parent().unwrap_or(Path::new("."));
        let folder = match is_first || file.ends_with("mod.rs") {
            true => parent.to_path_buf(),
            false => file.with_extension(""),
        };
        let paths =
            text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        next.extend(paths.filter_map(|path| Some((fs::canonicalize(parent.join(path)).ok()?, true))));
        for name in text.lines().filter_map(declared_name) {
            next.push((folder.join(format!("{name}.rs")), false));
            next.push((folder.join(name).join("mod.rs"), false));
        }
    }
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        find(&package.join(folder), &mut found)?;
    }
    found.retain(|file| !declared.contains(file));
    Ok(found)
}

/// The name in `mod name;`.
fn declared_name(line: &str) -> Option<&str> {
    let code = line.trim().strip_suffix(';')?;
    let (visibility, name) = code.rsplit_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

/// Files of Rust in a folder and the folders in it.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() {
            find(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Circles at each folder: of its entries, be they files or folders, those that import each other. Each is told from one entry
/// round to that entry, with the folder's path in front.
pub fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let folders: BTreeSet<&str> = imports
        .keys()
        .flat_map(|file| file.match_indices('/').map(|(at, _)| &file[..=at]))
        .chain([""])
        .collect();
    folders.into_iter().flat_map(|folder| circles_of(&entries(imports, folder))).collect()
}

/// The entries of a folder, and what each imports of the others.
fn entries<'a>(imports: &'a Imports, folder: &str) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let entry = |file: &'a str| {
        let rest = file.strip_prefix(folder)?;
        let end = rest.find('/').map_or(file.len(), |at| folder.len() + at);
        Some(&file[..end])
    };
    let mut entries: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, imported) in imports {
        let Some(from) = entry(file) else { continue };
        let to = imported.iter().filter_map(|file| entry(file)).filter(|to| *to != from);
        entries.entry(from).or_default().extend(to);
    }
    entries
}

/// One circle for each set of entries that reach each other: the shortest through the first of them.
fn circles_of(graph: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let way = |from: &str, to: &str| -> Option<Vec<String>> {
        let mut ways = vec![vec![from]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let end = way[way.len() - 1];
                for next in graph.get(end).into_iter().flatten() {
                    let longer_way = [way.as_slice(), &[next]].concat();
                    if *next == to {
                        return Some(longer_way.into_iter().map(String::from).collect());
                    }
                    if seen.insert(*next) {
                        longer.push(longer_way);
                    }
                }
            }
            ways = longer;
        }
        None
    };
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut circles = Vec::new();
    for entry in graph.keys() {
        if told.contains(entry) {
            continue;
        }
        if let Some(circle) = way(entry, entry) {
            told.extend(
                graph.keys().filter(|other| way(entry, other).is_some() && way(other, entry).is_some()),
            );
            circles.push(circle);
        }
    }
    circles
}

/// A name that a module has from elsewhere.
struct Use {
    /// None for `*`.
    name: Option<String>,
    path: Vec<String>,
    passes_on: bool,
}

#[derive(Default)]
struct Module {
    /// From the source folder.
    file: String,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Paths of two names or more.
    paths: BTreeSet<Vec<String>>,
    /// All names in its code.
    words: BTreeSet<String>,
}

struct Modules {
    folder: PathBuf,
    /// By path from the root of the crate.
    all: BTreeMap<Vec<String>, Module>,
}

/// Words, `::`, and single characters of anything else.
fn tokens(text: &str) -> Vec<String> {
    let lines = source::lines(text);
    let code: String =
        lines.iter().filter(|line| !line.test).flat_map(|line| [line.code.as_str(), "\n"]).collect();
    let mut tokens: Vec<String> = Vec::new();
    let mut characters = code.chars().peekable();
    while let Some(first) = characters.next() {
        let mut token = String::from(first);
        if is_word(Some(first)) {
            while let Some(next) = characters.next_if(|next| is_word(Some(*next))) {
                token.push(next);
            }
        } else if first == ':' && characters.next_if_eq(&':').is_some() {
            token.push(':');
        } else if first.is_whitespace() {
            continue;
        }
        tokens.push(token);
    }
    tokens
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];

impl Modules {
    fn read(&mut self, file: &Path, path: Vec<String>) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.strip_prefix(&self.folder).unwrap_or(file).to_string_lossy().replace('\\', "/");
        let tokens = tokens(&text);
        let is_first = path.is_empty();
        let stem = file.file_stem().unwrap_or_default();
        // Where the files of its modules lie.
        let folder = match is_first || stem == "mod" {
            true => file.parent().unwrap_or(Path::new("")).to_path_buf(),
            false => file.with_extension(""),
        };
        let mut inside = vec![path];
        // For each open brace: does a module end there?
        let mut braces: Vec<bool> = Vec::new();
        self.module(&inside[0], &name);
        let mut at = 0;
        while at < tokens.len() {
            let token = tokens[at].as_str();
            let here = inside[inside.len() - 1].clone();
            let on_top = braces.last().is_none_or(|is_module| *is_module);
            let next = tokens.get(at + 1).map_or("", String::as_str);
            match token {
                "mod" if on_top && is_name(next) => {
                    let child = [here.as_slice(), &[next.into()]].concat();
                    if tokens.get(at + 2).is_some_and(|token| token == "{") {
                        self.module(&child, &name);
                        inside.push(child);
                        braces.push(true);
                    } else {
                        let nested = here.len() - inside[0].len();
                        let folder =
                            here[here.len() - nested..].iter().fold(folder.clone(), |all, one| all.join(one));
                        let beside = folder.join(format!("{next}.rs"));
                        let file = if beside.exists() { beside } else { folder.join(next).join("mod.rs") };
                        self.read(&file, child)?;
                    }
                    at += 3;
                    continue;
                }
                "use" => {
                    let end = (at..tokens.len()).find(|&end| tokens[end] == ";").unwrap_or(tokens.len());
                    let passes_on = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
                    let mut uses = Vec::new();
                    tree(&tokens[at + 1..end], &mut 0, &[], &mut uses);
                    let module = self.module(&here, &name);
                    module.uses.extend(uses.into_iter().map(|(name, path)| Use { name, path, passes_on }));
                    at = end + 1;
                    continue;
                }
                "{" => braces.push(false),
                "}" if braces.pop() == Some(true) => _ = inside.pop(),
                "macro_rules" => {
                    let item = tokens.get(at + 2).cloned().unwrap_or_default();
                    self.module(&here, &name).items.insert(item);
                }
                _ if on_top && ITEMS.contains(&token) && is_name(next) => {
                    self.module(&here, &name).items.insert(next.into());
                }
                _ => {}
            }
            if is_name(token) && (at == 0 || tokens[at - 1] != "::") {
                let mut path = vec![token.to_string()];
                while tokens.get(at + 1).is_some_and(|token| token == "::")
                    && tokens.get(at + 2).is_some_and(|token| is_name(token))
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                let module = self.module(&here, &name);
                module.words.extend(path.iter().cloned());
                if path.len() > 1 {
                    module.paths.insert(path);
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn module(&mut self, path: &[String], file: &str) -> &mut Module {
        let new = || Module { file: file.into(), ..Module::default() };
        self.all.entry(path.to_vec()).or_insert_with(new)
    }

    /// The module that defines what a path names, seen from a module; none for what is of another crate, and for modules.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<&Module> {
        self.resolve_but(from, path, &mut BTreeSet::new())
    }

    /// `seen`: what has led here. Names may be passed on in a ring.
    fn resolve_but(
        &self,
        from: &[String],
        path: &[String],
        seen: &mut BTreeSet<(Vec<String>, Vec<String>)>,
    ) -> Option<&Module> {
        if !seen.insert((from.to_vec(), path.to_vec())) {
            return None;
        }
        let mut here = from.to_vec();
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => here.clear(),
                "super" => _ = here.pop(),
                "self" => {}
                _ => break,
            }
            rest = after;
        }
        while let Some((first, after)) = rest.split_first() {
            let module = self.all.get(&here)?;
            let child = [here.as_slice(), std::slice::from_ref(first)].concat();
            if self.all.contains_key(&child) {
                here = child;
                rest = after;
                continue;
            }
            if module.items.contains(first) {
                return Some(module);
            }
            if let Some(found) = module.uses.iter().find(|one| one.name.as_ref() == Some(first)) {
                return self.resolve_but(&here, &[found.path.as_slice(), after].concat(), seen);
            }
            // Those of other crates have nothing of ours.
            let is_ours = |first: &String| {
                let child = [here.as_slice(), std::slice::from_ref(first)].concat();
                ["crate", "self", "super"].contains(&first.as_str()) || self.all.contains_key(&child)
            };
            let mut globs =
                module.uses.iter().filter(|one| one.name.is_none() && one.path.first().is_some_and(is_ours));
            return globs
                .find_map(|glob| self.resolve_but(&here, &[glob.path.as_slice(), rest].concat(), seen));
        }
        None
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module) in &self.all {
            let own = imports.entry(module.file.clone()).or_default();
            let is_used = |one: &&Use| {
                !one.passes_on || one.name.as_ref().is_some_and(|name| module.words.contains(name))
            };
            let named = module.uses.iter().filter(is_used).map(|one| one.path.clone());
            // `use super::*`: whatever is named of it.
            let globs = module.uses.iter().filter(|one| one.name.is_none() && !one.passes_on);
            let of_globs = globs.flat_map(|glob| {
                module.words.iter().map(|word| [glob.path.as_slice(), std::slice::from_ref(word)].concat())
            });
            let names = named.chain(module.paths.iter().cloned()).chain(of_globs);
            let found = names.filter_map(|name| self.resolve(path, &name));
            own.extend(found.map(|module| module.file.clone()).filter(|file| *file != module.file));
        }
        imports
    }
}

fn is_name(token: &str) -> bool {
    token.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_')
}

/// What a `use` names, each with its path; from `at` on, up to the end of the group.
fn tree(
    tokens: &[String],
    at: &mut usize,
    before: &[String],
    found: &mut Vec<(Option<String>, Vec<String>)>,
) {
    let mut path = before.to_vec();
    let mut name = None;
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                tree(tokens, at, &path, found);
                (path, name) = (before.to_vec(), None);
                continue;
            }
            "*" => {
                found.push((None, path.clone()));
                (path, name) = (before.to_vec(), None);
            }
            "as" => {
                name = tokens.get(*at).cloned();
                *at += 1;
            }
            "," | "}" => {
                end(&path, before, &mut name, found);
                path = before.to_vec();
                if token == "}" {
                    return;
                }
            }
            // Of `a::{self, b}`; at the start of a path it is where one is.
            "self" if !path.is_empty() => {
                name = name.or_else(|| path.last().cloned());
                found.push((name.take(), path.clone()));
            }
            word => path.push(word.into()),
        }
    }
    end(&path, before, &mut name, found);
}

fn end(
    path: &[String],
    before: &[String],
    name: &mut Option<String>,
    found: &mut Vec<(Option<String>, Vec<String>)>,
) {
    if path.len() > before.len() {
        found.push((name.take().or_else(|| path.last().cloned()), path.to_vec()));
    }
    *name = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate of these files.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("raddle-{}-modules-{count}", std::process::id()));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let imports = imports(&folder.join("lib.rs")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let told = |(from, to): (&String, &BTreeSet<String>)| {
            to.iter().map(move |to| format!("{from} > {to}")).collect::<Vec<_>>()
        };
        imports.iter().flat_map(told).collect()
    }

    #[test]
    fn names_are_followed_to_where_they_are_defined() {
        let files = [
            ("lib.rs", "mod low;\nmod high;\npub use low::Item as Thing;"),
            ("low/mod.rs", "mod item;\npub(crate) use item::{self, Item};"),
            ("low/item.rs", "pub struct Item;\npub fn make() -> Item { Item }"),
            ("high.rs", "use crate::Thing;\nfn a() { crate::low::item::make(); }\nfn b(_: Thing) {}"),
        ];
        assert_eq!(of(&files), ["high.rs > low/item.rs"]);
    }

    #[test]
    fn modules_and_what_is_passed_on_are_no_imports() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\nuse b::B;\npub struct C(B);"),
            ("a.rs", "use crate::b;\npub struct A;\nfn f() { b::g(); }"),
            ("b.rs", "pub struct B;\npub fn g() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
        ];
        assert_eq!(of(&files), ["a.rs > b.rs", "lib.rs > b.rs"]);
    }

    #[test]
    fn globs_and_inline_modules() {
        let files = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "pub mod inner {\n    pub const X: u8 = 0;\n}"),
            ("b.rs", "use crate::a::*;\nfn f() -> u8 { inner::X }"),
        ];
        assert_eq!(of(&files), ["b.rs > a.rs"]);
    }

    #[test]
    fn circles_are_found_at_each_folder() {
        let import =
            |from: &str, to: &[&str]| (from.to_string(), to.iter().map(|to| to.to_string()).collect());
        let good: Imports =
            [import("a/x.rs", &["a/y.rs"]), import("a/y.rs", &[]), import("b.rs", &["a/x.rs"])].into();
        assert_eq!(circles(&good), Vec::<Vec<String>>::new());
        // No file imports itself by any way, but the folders do.
        let folders: Imports = [
            import("a/x.rs", &["b/x.rs"]),
            import("b/x.rs", &[]),
            import("b/y.rs", &["a/y.rs"]),
            import("a/y.rs", &[]),
        ]
        .into();
        assert_eq!(circles(&folders), [["a", "b", "a"]]);
        let files: Imports =
            [import("a/x.rs", &["a/y.rs"]), import("a/y.rs", &["a/z.rs"]), import("a/z.rs", &["a/x.rs"])]
                .into();
        assert_eq!(circles(&files), [["a/x.rs", "a/y.rs", "a/z.rs", "a/x.rs"]]);
    }

    #[test]
    fn a_file_that_no_module_declares_is_found() {
        let folder = std::env::temp_dir().join(format!("raddle-undeclared-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "mod a;\n#[cfg(test)]\npub(crate) mod b;\n");
        write("src/a.rs", "mod c;\n");
        write("src/a/c.rs", "");
        write("src/b/mod.rs", "// mod d;\n");
        write("src/b/d.rs", "");
        let found = undeclared(&folder, &[folder.join("src/lib.rs")]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap(), [folder.join("src/b/d.rs")]);
    }
}
