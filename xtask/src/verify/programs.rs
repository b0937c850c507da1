//! The builds of everything that checks the code, one for each cfg, and where they lie.

use crate::{Failure, command, failed, models, soak};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program that checks, or that holds tests.
pub struct Program {
    pub kind: Build,
    /// Of its tests: `package::file`, or the library.
    pub name: String,
    /// The folder to run it in.
    pub folder: PathBuf,
    pub path: PathBuf,
}

/// A build with flags of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The models, under loom.
    Models,
    /// The tests of each library and of each file under `tests/`.
    Tests,
    /// The random programs, optimized and able to plant faults.
    Programs,
}

impl Build {
    pub fn name(self) -> &'static str {
        match self {
            Build::Models => "models",
            Build::Tests => "tests",
            Build::Programs => "programs",
        }
    }

    /// Builds them. What cargo says goes to standard error.
    pub fn run(self) -> Result<Vec<Program>, Failure> {
        match self {
            Build::Models => tests(self, &mut models::build()),
            // Ours run with the other tests: here they would be built anew while we run.
            Build::Tests => tests(self, command::cargo().args(["test", "--workspace", "--exclude", "xtask"])),
            Build::Programs => {
                let (path, folder) = (soak::build_checked()?, command::root().into());
                Ok(vec![Program { kind: self, name: "programs".into(), folder, path }])
            }
        }
    }
}

fn tests(kind: Build, cargo: &mut Command) -> Result<Vec<Program>, Failure> {
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let finished = command::capture(cargo)?;
    if !finished.is_good() {
        return failed(format!("`{}` failed", command::line(cargo)));
    }
    let mut programs = Vec::new();
    for line in finished.stdout.lines() {
        let message: Value = serde_json::from_str(line).map_err(|error| Failure::Check(error.to_string()))?;
        if let Some((name, folder, path)) = test(&message) {
            programs.push(Program { kind, name, folder: folder.into(), path: path.into() });
        }
    }
    Ok(programs)
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
