//! `cargo xtask checkers`: builds everything that checks the code, one build for each cfg, and says where it lies. What is
//! run of it, and what it shows, is `raddle verify`'s.

use crate::{Failure, Options, Outcome, command, failed, models, soak};
use serde_json::Value;
use std::{path::Path, process::Command, process::Stdio};

pub const HELP: &str = "\
Builds what checks the code and prints where it lies, a line each: kind, name, folder to run it in, program; with tabs.
Kinds: `models` (under loom), `tests` (of each library and each file under `tests/`, named package::file), `programs`
(the random ones, optimised, able to plant faults).

Usage: cargo xtask checkers [KIND]...

Example: cargo xtask checkers models programs
";

const KINDS: [&str; 3] = ["models", "tests", "programs"];

/// Builds and prints.
pub fn run(mut options: Options) -> Outcome {
    let mut wanted = KINDS.to_vec();
    wanted.retain(|kind| options.flag(kind));
    options.finish()?;
    if wanted.is_empty() {
        wanted = KINDS.to_vec();
    }
    for kind in wanted {
        match kind {
            "models" => print_tests(kind, &mut models::build())?,
            "tests" => {
                let mut cargo = command::cargo();
                print_tests(kind, cargo.args(["test", "--workspace", "--exclude", "xtask"]))?;
            }
            _ => {
                let program = soak::build_checked()?;
                println!("{kind}\tprograms\t{}\t{}", command::root().display(), program.display());
            }
        }
    }
    Ok(())
}

/// Builds the tests of a cargo command and prints them. What cargo has to say goes to standard error.
fn print_tests(kind: &str, cargo: &mut Command) -> Outcome {
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let finished = command::capture(cargo)?;
    if !finished.is_good() {
        return failed(format!("`{}` failed", command::line(cargo)));
    }
    for line in finished.stdout.lines() {
        let message: Value = serde_json::from_str(line).map_err(|error| Failure::Check(error.to_string()))?;
        if let Some((name, folder, program)) = test(&message) {
            println!("{kind}\t{name}\t{folder}\t{program}");
        }
    }
    Ok(())
}

/// A program of tests: its name, the folder of its package and where it lies.
fn test(message: &Value) -> Option<(String, String, &str)> {
    let target = &message["target"];
    let program = message["executable"].as_str()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_str()?;
    let name = match target["kind"][0].as_str()? {
        _ if message["profile"]["test"] != true => return None,
        "lib" => target["name"].as_str()?.to_string(),
        "test" => format!("{}::{}", package(message["package_id"].as_str()?)?, target["name"].as_str()?),
        _ => return None,
    };
    Some((name.replace('-', "_"), folder.to_string(), program))
}

/// `path+file:///folder#name@0.1.0`, or `path+file:///name#0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (folder, name) = id.rsplit_once('#')?;
    name.split_once('@').map(|(name, _)| name).or_else(|| folder.rsplit('/').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_package_and_file() {
        let message = |kind: &str, id: &str| {
            serde_json::json!({
                "executable": "target/a", "manifest_path": "conformance/Cargo.toml", "package_id": id,
                "profile": { "test": true }, "target": { "kind": [kind], "name": "sim-a" },
            })
        };
        let id = "path+file:///a/conformance#raddle-conformance@0.1.0";
        let named = |message: &Value| test(message).map(|(name, folder, _)| (name, folder));
        let conformance = "conformance".to_string();
        assert_eq!(named(&message("lib", id)), Some(("sim_a".into(), conformance.clone())));
        let expected = ("raddle_conformance::sim_a".into(), conformance);
        assert_eq!(named(&message("test", id)), Some(expected));
        assert_eq!(named(&message("bin", id)), None);
        assert_eq!(package("path+file:///a/xtask#0.1.0"), Some("xtask"));
    }
}
