//! `cargo xtask tsan`: ThreadSanitizer over the race suite and a short demo.
//!
//! The sanitizer must see std's own accesses, or it reports races that aren't there; so std is rebuilt, which takes a
//! compiler that has std's source. Debian packages one (the `rustc-web` family). It is unpacked under `target`, not
//! installed, and gets the sanitizer's runtime from the stable toolchain that builds everything else.
//!
//! First a race is planted: a sanitizer that doesn't see it would be silent about everything.

use crate::{
    Failure, Options, Outcome,
    command::{self, capture, io, program, write},
    failed,
};
use std::{fs, path::Path, path::PathBuf, process::Command};

pub const HELP: &str = "\
Builds std and the workspace under ThreadSanitizer, shows that a planted race is seen, then runs the race suite and
a short demo, which must be silent. Needs Debian's apt-get and dpkg-deb (150 MB to download, 2 GB under target).

Usage: cargo xtask tsan [OPTIONS]

  --only PART    only planted, stress or demo

Example: cargo xtask tsan --only stress
";

/// What is unpacked: these, and what they need that starts with one of [`NEEDED`].
const ROOTS: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "libstd-rust-web-dev"];
const NEEDED: [&str; 6] =
    ["libstd-rust-web-", "libllvm", "libgit2-", "libhttp-parser", "libssh2-", "libmbed"];
const TSAN_OPTIONS: &str = "exitcode=66";
const REPORT: &str = "WARNING: ThreadSanitizer";
/// The demo is for races, not for learning: a few published versions are enough.
const DEMO: [&str; 5] = ["demo", "--steps", "30", "--threads", "4"];
/// Both packages at once, so that what they share is built once; the program without its server, which the demo doesn't need.
const PACKAGES: [&str; 5] = ["-p", "raddle-conformance", "-p", "raddle-cli", "--no-default-features"];

/// Runs the parts.
pub fn run(mut options: Options) -> Outcome {
    let only = options.text("--only")?;
    options.finish()?;
    if let Some(only) = &only
        && !["planted", "stress", "demo"].contains(&only.as_str())
    {
        return Err(Failure::Usage(format!("--only: expected planted, stress or demo, found {only:?}")));
    }
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let toolchain = Toolchain::unpacked()?;
    let race = ["test", "-p", "raddle-sync", "--test", "race"];
    if wanted("planted") {
        let finished = capture(toolchain.cargo(&race).env("RADDLE_TSAN_PLANT", "1"))?;
        if !finished.output().contains(REPORT) || finished.is_good() {
            return failed(format!("the planted race was not reported\n{}", finished.output()));
        }
        println!("tsan: the planted race is reported");
        silent("race without the plant", &mut toolchain.cargo(&race))?;
    }
    if wanted("stress") {
        // What is planted there isn't for the sanitizer.
        let mut stress = toolchain.cargo(&["test"]);
        stress.args(PACKAGES).args(["--test", "race_suite", "--", "--skip", "fault_"]);
        silent("stress", &mut stress)?;
    }
    if wanted("demo") {
        let mut build = toolchain.cargo(&["build"]);
        text(build.args(PACKAGES).args(["--bin", "raddle"]))?;
        let raddle = toolchain.built().join("debug/raddle");
        silent("demo", program(raddle).args(DEMO).env("TSAN_OPTIONS", TSAN_OPTIONS))?;
    }
    Ok(())
}

/// Runs a program that must succeed without a report.
fn silent(part: &str, command: &mut Command) -> Outcome {
    let finished = capture(command)?;
    let output = finished.output();
    let reports = output.matches(REPORT).count();
    if reports > 0 {
        return failed(format!("{part}: {reports} reports\n{output}"));
    }
    if !finished.is_good() {
        return failed(format!("{part}: `{}` failed\n{output}", command::line(command)));
    }
    for line in output.lines().filter(|line| line.starts_with("test result:")) {
        println!("{line}");
    }
    println!("tsan: {part}: no report");
    Ok(())
}

/// A compiler that has std's source, and the sanitizer's runtime.
struct Toolchain {
    root: PathBuf,
    host: String,
}

impl Toolchain {
    /// Unpacks it, unless it is there.
    fn unpacked() -> Result<Toolchain, Failure> {
        let version = text(program("rustc").arg("-vV"))?;
        let host =
            version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_string();
        let root = command::target_dir("tsan").join("toolchain");
        let toolchain = Toolchain { root, host };
        let stamp = toolchain.root.join("unpacked");
        if !stamp.exists() {
            toolchain.unpack()?;
            write(&stamp, "")?;
        }
        Ok(toolchain)
    }

    fn unpack(&self) -> Outcome {
        // What an interrupted run left would be mixed with what is unpacked now.
        if self.root.exists() {
            fs::remove_dir_all(&self.root).map_err(|error| io(&self.root, &error))?;
        }
        let packages = self.root.join("packages");
        fs::create_dir_all(&packages).map_err(|error| io(&packages, &error))?;
        let names = needed_packages()?;
        println!("tsan: downloading {}", names.join(" "));
        text(program("apt-get").arg("download").args(&names).current_dir(&packages))?;
        for entry in fs::read_dir(&packages).map_err(|error| io(&packages, &error))? {
            let path = entry.map_err(|error| io(&packages, &error))?.path();
            text(program("dpkg-deb").arg("-x").arg(path).arg(&self.root))?;
        }
        fs::remove_dir_all(&packages).map_err(|error| io(&packages, &error))?;

        let sysroot = text(program("rustc").args(["--print", "sysroot"]))?;
        let libraries = format!("lib/rustlib/{}/lib", self.host);
        let name = "librustc-stable_rt.tsan.a";
        let from = Path::new(sysroot.trim()).join(&libraries).join(name);
        fs::copy(&from, self.root.join("usr").join(&libraries).join(name))
            .map_err(|error| io(&from, &error))?;
        Ok(())
    }

    /// Where programs under the sanitizer are built.
    fn built(&self) -> PathBuf {
        build_dir().join(&self.host)
    }

    /// Cargo under the sanitizer, in a target folder of its own. The subcommand comes first.
    fn cargo(&self, words: &[&str]) -> Command {
        let usr = self.root.join("usr");
        let mut command = program(usr.join("bin/cargo"));
        command
            .arg(words[0])
            .args(["-Zbuild-std", "--target", &self.host, "--target-dir"])
            .arg(build_dir())
            .args(&words[1..])
            .env("LD_LIBRARY_PATH", usr.join("lib/x86_64-linux-gnu"))
            .env("RUSTC", usr.join("bin/rustc"))
            .env("RUSTDOC", usr.join("bin/rustdoc"))
            // -Z needs either a nightly or this.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("TSAN_OPTIONS", TSAN_OPTIONS)
            // Set by the cargo that runs us, for its own compiler.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO");
        command
    }
}

fn build_dir() -> PathBuf {
    command::target_dir("tsan").join("build")
}

/// The packages to unpack, from what apt knows: the roots, and what they need in turn.
fn needed_packages() -> Result<Vec<String>, Failure> {
    let depends = |names: &[String]| {
        let kinds = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"];
        text(program("apt-cache").arg("depends").args(kinds.map(|kind| format!("--no-{kind}"))).args(names))
    };
    let mut names: Vec<String> = ROOTS.map(String::from).into();
    // The lists may be empty or old: that is so on a fresh machine.
    if depends(&names).is_err() {
        text(program("apt-get").arg("update"))?;
    }
    loop {
        let found: Vec<String> =
            needed_among(&depends(&names)?).into_iter().filter(|name| !names.contains(name)).collect();
        if found.is_empty() {
            return Ok(names);
        }
        names.extend(found);
    }
}

/// The dependencies in what `apt-cache depends` prints that aren't on every machine.
fn needed_among(depends: &str) -> Vec<String> {
    let name = |line: &str| {
        let name = line.trim().trim_start_matches('|').strip_prefix("Depends: ")?;
        NEEDED.iter().any(|start| name.starts_with(start)).then(|| name.to_string())
    };
    let mut names: Vec<String> = depends.lines().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// What a program that must succeed printed.
fn text(command: &mut Command) -> Result<String, Failure> {
    let finished = capture(command)?;
    if finished.is_good() {
        Ok(finished.stdout)
    } else {
        failed(format!("`{}` failed\n{}", command::line(command), finished.output()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found() {
        let depends = "rustc-web\n  Depends: libc6\n  Depends: libllvm22\n |Depends: libssh2-1\ncargo-web\n  Depends: libllvm22\n";
        assert_eq!(needed_among(depends), ["libllvm22", "libssh2-1"]);
    }
}
