//! `cargo xtask loom`: the models. loom runs each under every interleaving within the bounds.

use crate::{Options, Outcome, command};
use std::process::Command;

pub const HELP: &str = "\
The models of what threads share, in every interleaving with a few preemptions.

Usage: cargo xtask loom [OPTIONS] [-- FILTER]

  --preemptions N    bound on preemptions in an interleaving (default 2; more takes much longer)

Example: cargo xtask loom -- model_free_and_reuse
";

/// The crates that have models.
const CRATES: [&str; 4] = ["raddle-sync", "raddle-runtime", "raddle-cpu", "raddle-serve"];

/// The models as a command that builds and runs them.
pub fn build() -> Command {
    let mut command = command::cargo();
    command
        .args(["test", "--release", "--lib"])
        .args(CRATES.iter().flat_map(|name| ["-p", name]))
        .arg("--target-dir")
        .arg(command::target_dir("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        // A model's first thread has 32 KiB of stack. How much of it a build takes depends on this, so that it is the same for all.
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command
}

/// Runs them.
pub fn run(mut options: Options) -> Outcome {
    let preemptions = options.number("--preemptions", 2)?;
    options.finish()?;
    let mut command = build();
    // One test at a time: a model has the whole process, and planted faults are seen by all threads.
    command.args(["--", "--test-threads=1"]).args(&options.rest);
    command::stream(command.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string()))
}
