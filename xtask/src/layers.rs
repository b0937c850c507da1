//! The layer rule: a crate knows crates of lower layers and no others, and only the facade knows a backend. Inside of a crate no
//! files, and no folders, import each other in a circle.

use crate::{
    Options, Outcome, command, failed,
    modules::{self, Imports},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
What each crate depends on, what each of its files imports, and circles among files or folders.

Usage: cargo xtask layers [OPTIONS]

  --json FILE     all of it; - for the standard output

Example: cargo xtask layers --json -
";

/// The layers from the ground up, as in ARCHITECTURE.md. Crates of one layer don't know each other.
const LAYERS: [&[&str]; 12] = [
    &["raddle-base", "raddle-sync"],
    &["raddle-op"],
    &["raddle-hal"],
    &["raddle-runtime", "raddle-sanitize"],
    &["raddle-tensor"],
    &["raddle-grad"],
    &["raddle-nn", "raddle-optim"],
    &["raddle-serve", "raddle-transfer"],
    &["raddle-server"],
    &["raddle"],
    &["raddle-cli", "raddle-conformance", "raddle-fuzz", "raddle-examples", "raddle-python"],
    &["raddle-benches"],
];
/// Backends stand on this layer and those below it.
const HAL_LAYER: usize = 2;
/// Each crate in it is a backend.
const BACKENDS: &str = "backends";
const FACADE: &str = "raddle";
/// Knows the ground alone, which has the names of planted faults.
const XTASK: &str = "xtask";
/// These use no other crate than `half` (and `sync` what it is made of in models, and the system).
const LEAN: [(&str, &[&str]); 4] = [
    ("raddle-base", &["half"]),
    ("raddle-sync", &["libc", "loom"]),
    ("raddle-op", &["half"]),
    ("raddle-hal", &["half"]),
];

/// A crate of the workspace and what it depends on.
pub struct Package {
    name: String,
    /// Name, and whether it is there for tests only.
    dependencies: Vec<(String, bool)>,
    /// Where its manifest lies.
    folder: PathBuf,
    /// The first file of each library and program.
    first_files: Vec<PathBuf>,
    /// The same of tests, benchmarks and examples, too.
    all_first_files: Vec<PathBuf>,
}

/// Checks all crates.
pub fn run() -> Outcome {
    let Found { violations, .. } = look()?;
    if violations.is_empty() { Ok(()) } else { failed(violations.join("\n")) }
}

/// Checks all crates, and tells what was found.
pub fn show(mut options: Options) -> Outcome {
    let json = options.text("--json")?;
    options.finish()?;
    let Found { packages, violations } = look()?;
    let told: Vec<Value> = packages.iter().map(|(package, imports)| tell(package, imports)).collect();
    let told = json!({ "crates": told, "violations": violations });
    match json.as_deref() {
        Some("-") => println!("{told:#}"),
        Some(file) => command::write(Path::new(file), &format!("{told:#}\n"))?,
        None => {
            let file_count: usize = packages.iter().map(|(_, imports)| imports.len()).sum();
            println!("{} crates, {file_count} files, {} violations", packages.len(), violations.len());
        }
    }
    if violations.is_empty() { Ok(()) } else { failed(violations.join("\n")) }
}

fn tell(package: &Package, imports: &Imports) -> Value {
    let used = package.dependencies.iter().filter(|(_, for_tests)| !for_tests).map(|(name, _)| name);
    json!({
        "name": package.name,
        "layer": layer(&package.name),
        "dependencies": used.collect::<Vec<_>>(),
        "files": imports,
        "circles": modules::circles(imports),
    })
}

/// The crates with what their files import, and what breaks the rules.
struct Found {
    packages: Vec<(Package, Imports)>,
    violations: Vec<String>,
}

fn look() -> Result<Found, crate::Failure> {
    let metadata = command::capture(command::cargo().args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--quiet",
    ]))?;
    if !metadata.is_good() {
        return failed(format!("cargo metadata failed: {}", metadata.stderr.trim()));
    }
    let packages = match serde_json::from_str(&metadata.stdout) {
        Ok(value) => packages(&value),
        Err(error) => return failed(format!("cargo metadata: {error}")),
    };
    let mut violations = check(&packages);
    let mut found = Vec::new();
    for package in packages {
        let mut all = Imports::new();
        for first in &package.first_files {
            let imports = modules::imports(first).or_else(failed)?;
            for circle in modules::circles(&imports) {
                violations.push(format!("{}: a circle of imports, {}", package.name, circle.join(" > ")));
            }
            all.extend(imports);
        }
        for file in modules::undeclared(&package.folder, &package.all_first_files).or_else(failed)? {
            violations.push(format!("{}: no module declares {}", package.name, file.display()));
        }
        found.push((package, all));
    }
    Ok(Found { packages: found, violations })
}

fn packages(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let is_shipped = |target: &Value| {
        list(&target["kind"]).iter().any(|kind| matches!(kind.as_str(), Some("lib" | "bin" | "cdylib")))
    };
    let files = |targets: &mut dyn Iterator<Item = &Value>| -> Vec<PathBuf> {
        targets.map(|target| text(&target["src_path"]).into()).collect()
    };
    list(&metadata["packages"])
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| (text(&dependency["name"]), dependency["kind"] == "dev"))
                .collect(),
            folder: Path::new(&text(&package["manifest_path"])).parent().unwrap_or(Path::new("")).into(),
            first_files: files(&mut list(&package["targets"]).iter().filter(|target| is_shipped(target))),
            all_first_files: files(&mut list(&package["targets"]).iter()),
        })
        .collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// What breaks the rule, in words.
pub fn check(packages: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    let ours: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let is_backend = |package: &&Package| package.folder.parent().is_some_and(|all| all.ends_with(BACKENDS));
    let backends: Vec<&str> =
        packages.iter().filter(is_backend).map(|package| package.name.as_str()).collect();
    for package in packages {
        let name = package.name.as_str();
        // The highest layer that it may know.
        let below = if backends.contains(&name) {
            HAL_LAYER + 1
        } else if name == XTASK {
            1
        } else if let Some(layer) = layer(name) {
            layer
        } else {
            violations.push(format!(
                "{name}: has no layer; give it one in xtask/src/layers.rs and ARCHITECTURE.md"
            ));
            continue;
        };
        for (dependency, for_tests) in &package.dependencies {
            let dependency = dependency.as_str();
            let lean = LEAN.iter().find(|(lean, _)| *lean == name);
            if !ours.contains(&dependency) {
                if let Some((_, allowed)) = lean
                    && !for_tests
                    && !allowed.contains(&dependency)
                {
                    violations.push(format!(
                        "{name}: depends on {dependency}, expected nothing but {}",
                        allowed.join(", ")
                    ));
                }
            } else if backends.contains(&dependency) {
                if name != FACADE && !for_tests {
                    violations.push(format!(
                        "{name}: knows the backend {dependency}; only {FACADE} may, and tests"
                    ));
                }
            } else if layer(dependency).is_none_or(|layer| layer >= below + usize::from(*for_tests)) {
                violations.push(format!("{name}: depends on {dependency}, which is not below it"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with all known crates, in which `name` depends on `dependency`.
    fn broken(name: &str, dependency: &str) -> Vec<String> {
        let backends = ["raddle-cpu", "raddle-sim", "raddle-cuda"];
        let all = LAYERS.iter().flat_map(|layer| layer.iter()).chain(&backends).chain([&XTASK]);
        let packages = all.map(|&known| Package {
            name: known.into(),
            folder: Path::new(if backends.contains(&known) { BACKENDS } else { "crates" }).join(known),
            first_files: Vec::new(),
            all_first_files: Vec::new(),
            dependencies: if known == name { vec![(dependency.into(), false)] } else { Vec::new() },
        });
        check(&packages.collect::<Vec<_>>())
    }

    #[test]
    fn down_is_fine() {
        for (name, dependency) in [
            ("raddle-optim", "raddle-tensor"),
            ("raddle-cpu", "raddle-hal"),
            ("raddle", "raddle-sim"),
            ("raddle-cli", "raddle"),
            ("raddle-tensor", "smallvec"),
            ("raddle-op", "half"),
            ("xtask", "raddle-sync"),
        ] {
            assert_eq!(broken(name, dependency), Vec::<String>::new());
        }
    }

    #[test]
    fn up_and_sideways_are_not() {
        for (name, dependency) in [
            ("raddle-op", "raddle-runtime"),
            ("raddle-nn", "raddle-optim"),
            ("raddle-cpu", "raddle-runtime"),
            ("xtask", "raddle-op"),
        ] {
            let expected = format!("{name}: depends on {dependency}, which is not below it");
            assert_eq!(broken(name, dependency), [expected]);
        }
    }

    #[test]
    fn only_the_facade_knows_backends() {
        for name in ["raddle-sim", "raddle-tensor", "raddle-conformance", "raddle-cli"] {
            let expected = format!("{name}: knows the backend raddle-cpu; only raddle may, and tests");
            assert_eq!(broken(name, "raddle-cpu"), [expected]);
        }
    }

    #[test]
    fn the_ground_is_lean() {
        assert_eq!(
            broken("raddle-hal", "serde"),
            ["raddle-hal: depends on serde, expected nothing but half"]
        );
    }

    #[test]
    fn unknown_crates_are_named() {
        let stranger = Package {
            name: "raddle-new".into(),
            dependencies: Vec::new(),
            folder: PathBuf::new(),
            first_files: Vec::new(),
            all_first_files: Vec::new(),
        };
        assert!(check(&[stranger])[0].starts_with("raddle-new: has no layer"));
    }

    #[test]
    fn metadata_is_read() {
        let text = r#"{"packages": [{"name": "a", "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]}]}"#;
        let packages = packages(&serde_json::from_str(text).unwrap());
        assert_eq!(packages[0].name, "a");
        assert_eq!(packages[0].dependencies, [("b".into(), false), ("c".into(), true)]);
    }
}
