//! `cargo xtask gpu`: what a machine with a GPU needs of us, which may have neither sources nor a compiler, in one folder.
//!
//! The program `raddle` is the one that ships. The tests are a second build, in which faults can be planted: a race suite
//! that has never been seen to fail on that very machine proves nothing. Both are stripped: panics keep their file and line.

use crate::{
    Failure, Options, Outcome,
    command::{self, io, root, write},
    failed,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub const HELP: &str = "\
Builds what is to be run on a machine with a GPU into one folder, with run.sh, which runs it there and prints one table.

Usage: cargo xtask gpu [OPTIONS]

  --out DIR    the folder (default target/gpu)
  --only PART  only raddle or tests; the rest stays as it is in the folder

Example: cargo xtask gpu && target/gpu/run.sh --help
";

/// Test targets that are carried: of conformance, and the backend's own.
const TESTS: [&str; 8] = ["cuda", "failures", "gpu", "large", "lives", "minilm", "options", "race_suite"];
/// Programs of conformance that are carried.
const PROGRAMS: [&str; 1] = ["soak"];
/// Benchmarks on other libraries, and what they replay.
const PEERS: [&str; 7] = [
    "benches/peers/allocator.py",
    "benches/peers/harness.py",
    "benches/peers/torch_cpu.py",
    "benches/peers/torch_cuda.py",
    "benches/traces/inference.trace.gz",
    "benches/traces/pipeline.trace.gz",
    "benches/traces/training.trace.gz",
];
const SCRIPT: &str = include_str!("../gpu/run.sh");

/// Builds and gathers.
pub fn run(mut options: Options) -> Outcome {
    let named = options.text("--out")?.map(PathBuf::from);
    let only = options.text("--only")?;
    options.finish()?;
    if let Some(only) = &only
        && !["raddle", "tests"].contains(&only.as_str())
    {
        return Err(Failure::Usage(format!("--only: expected raddle or tests, found {only:?}")));
    }
    let own = root().join("target/gpu");
    if named.is_none() && only.is_none() && own.exists() {
        // What an earlier build has left isn't carried. A folder that was named isn't ours to empty.
        fs::remove_dir_all(&own).map_err(|error| io(&own, &error))?;
    }
    let out = named.unwrap_or(own);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    fs::create_dir_all(&out).map_err(|error| io(&out, &error))?;
    if wanted("raddle") {
        let packages = ["-p", "raddle-cli", "-p", "raddle-benches"];
        let mut build = command::cargo();
        build
            .args([
                "build",
                "--profile",
                "dist",
                "--features",
                "raddle-cli/serve",
                "--bin",
                "raddle",
                "--bin",
                "compare",
                "--bin",
                "encoder",
                "--bin",
                "measure",
            ])
            .args(packages);
        take(&mut build, &out)?;
    }
    if wanted("tests") {
        take(&mut tests_build(), &out)?;
    }
    for name in PEERS {
        let from = root().join(name);
        let to = out.join(from.file_name().expect("a peer is a file"));
        fs::copy(&from, to).map_err(|error| io(&from, &error))?;
    }
    write(&out.join("commit"), &commit())?;
    let script = out.join("run.sh");
    write(&script, SCRIPT)?;
    make_executable(&script)?;
    show(&out)
}

/// The tests, in a target folder of their own: other flags would throw away the builds of others.
fn tests_build() -> Command {
    let mut build = command::cargo();
    build
        .args([
            "test",
            "--release",
            "--no-run",
            "-p",
            "raddle-conformance",
            "-p",
            "raddle-cuda",
            "--target-dir",
        ])
        .arg(command::target_dir("gpu-build"))
        .args(TESTS.iter().flat_map(|name| ["--test", name]))
        .args(PROGRAMS.iter().flat_map(|name| ["--bin", name]))
        .env("RUSTFLAGS", "--cfg raddle_faults");
    build
}

/// Builds, and puts what was built, stripped, into the folder under the names of the targets.
fn take(build: &mut Command, out: &Path) -> Outcome {
    build.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    let output =
        build.output().map_err(|error| Failure::Check(format!("cargo can't be started: {error}")))?;
    if !output.status.success() {
        return failed(format!("`{}` failed: {}", command::line(build), output.status));
    }
    let built = executables(&String::from_utf8_lossy(&output.stdout));
    if built.is_empty() {
        return failed(format!("`{}` built no program", command::line(build)));
    }
    for (name, path) in built {
        let to = out.join(&name);
        // Not over a program that may be running.
        let partial = out.join(format!("{name}.partial"));
        let stripped = command::program("strip").arg("-o").arg(&partial).arg(&path).status();
        if !stripped.is_ok_and(|status| status.success()) {
            fs::copy(&path, &partial).map_err(|error| io(Path::new(&path), &error))?;
        }
        fs::rename(&partial, &to).map_err(|error| io(&to, &error))?;
    }
    Ok(())
}

/// The programs in what cargo says: the name of the target and where it lies.
fn executables(messages: &str) -> Vec<(String, String)> {
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let name = message["target"]["name"].as_str()?;
        // A program is built plainly as well as with its own, empty, test harness.
        let harness = message["profile"]["test"].as_bool()? && message["target"]["kind"][0] == "bin";
        let path = message["executable"].as_str()?;
        (!harness).then(|| (name.to_string(), path.to_string()))
    };
    messages.lines().filter_map(executable).collect()
}

/// The commit that was built, with a mark if the sources differ from it.
fn commit() -> String {
    let mut git = command::program("git");
    match command::capture(git.args(["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"])) {
        Ok(said) if said.is_good() => said.stdout.trim().into(),
        _ => "unknown".into(),
    }
}

fn show(out: &Path) -> Outcome {
    let mut files = Vec::new();
    for entry in fs::read_dir(out).map_err(|error| io(out, &error))? {
        let entry = entry.map_err(|error| io(out, &error))?;
        let size_bytes = entry.metadata().map_err(|error| io(&entry.path(), &error))?.len();
        files.push((entry.file_name().to_string_lossy().into_owned(), size_bytes));
    }
    files.sort();
    let mib = |bytes: u64| bytes as f64 / (1_u64 << 20) as f64;
    for (name, size_bytes) in &files {
        println!("{:>8.1} MiB  {name}", mib(*size_bytes));
    }
    let total = files.iter().map(|(_, size_bytes)| size_bytes).sum();
    println!("{:>8.1} MiB  in {}", mib(total), out.display());
    Ok(())
}

fn make_executable(path: &Path) -> Outcome {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|error| io(path, &error))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"cuda"},"profile":{"test":true},"executable":"deps/cuda-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"soak"},"profile":{"test":true},"executable":"deps/soak-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"soak"},"profile":{"test":false},"executable":"soak"}
{"reason":"build-finished","success":true}"#;
        let expected = [("cuda", "deps/cuda-1"), ("soak", "soak")];
        assert_eq!(executables(messages), expected.map(|(name, path)| (name.to_string(), path.to_string())));
    }

    #[test]
    fn the_script_knows_what_is_carried() {
        for name in TESTS {
            assert!(SCRIPT.contains(name), "run.sh runs {name}");
        }
    }
}
