//! Chores of the repository: `cargo xtask COMMAND`.
//!
//! | module | command |
//! |---|---|
//! | `verify` | `verify`: the catalogue of properties, and what checks each |
//! | `check` | `check`: everything cheap that CI runs |
//! | `tidy`, `layers` | two steps of `check`, as pure functions over text; `layers` |
//! | `modules` | what the files of a crate import |
//! | `models` | `loom` |
//! | `spec` | `spec` |
//! | `tsan` | `tsan` |
//! | `soak` | `soak` |
//! | `faults` | `faults demo` |
//! | `fuzz` | `fuzz` |
//! | `kernels` | `kernels` |
//! | `gpu` | `gpu` |
//! | `outcome` | the options of a command, and how it ends |
//!
//! Exit codes: 0 good, 1 something is wrong with the code, 2 wrong use.

#![forbid(unsafe_code)]

mod check;
mod command;
mod faults;
mod fuzz;
mod gpu;
mod kernels;
mod layers;
mod models;
mod modules;
mod outcome;
mod soak;
mod source;
mod spec;
mod tidy;
mod tsan;
mod verify;

use outcome::{Failure, Options, Outcome, failed};
use std::process::ExitCode;

const HELP: &str = "\
Chores of the repository.

Usage: cargo xtask COMMAND [OPTIONS]

  check           tidy, layers, fmt, clippy, docs, tests; stops at the first failure
  verify          every property of the catalogue, and every planted fault
  layers          what each crate and each file imports, and circles among them
  loom            the models of what threads share, every interleaving within bounds
  spec            the TLA+ specifications, and that their faulty variants have counterexamples
  tsan            the race suite and a short demo under ThreadSanitizer
  soak            random programs, or many threads on a device, until the time is up
  faults demo     the demo with a planted fault: wrong answers are expected
  fuzz            mutates files and texts of others until the time is up
  kernels         compiles the CUDA kernels, without a GPU
  gpu             gathers in one folder what a machine with a GPU is to run

`cargo xtask COMMAND --help` tells the options, with an example.
";

fn run(mut words: Vec<String>) -> Outcome {
    if words.is_empty() || matches!(words[0].as_str(), "help" | "--help" | "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let name = words.remove(0);
    type Command = (&'static str, &'static str, fn(Options) -> Outcome);
    let commands: [Command; 11] = [
        ("check", check::HELP, check::run),
        ("verify", verify::HELP, verify::run),
        ("layers", layers::HELP, layers::show),
        ("loom", models::HELP, models::run),
        ("spec", spec::HELP, spec::run),
        ("tsan", tsan::HELP, tsan::run),
        ("soak", soak::HELP, soak::run),
        ("faults", faults::HELP, faults::run),
        ("fuzz", fuzz::HELP, fuzz::run),
        ("kernels", kernels::HELP, kernels::run),
        ("gpu", gpu::HELP, gpu::run),
    ];
    let Some((_, help, command)) = commands.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<_> = commands.iter().map(|(known, ..)| *known).collect();
        return Err(Failure::Usage(format!("expected one of {}, found {name:?}", known.join(", "))));
    };
    let mut options = Options::new(words);
    if options.flag("--help") || options.flag("-h") {
        print!("{help}");
        return Ok(());
    }
    std::env::set_current_dir(command::root()).map_err(|error| Failure::Check(error.to_string()))?;
    command(options)
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => {
            eprintln!("xtask: {text}\n\n{HELP}");
            ExitCode::from(2)
        }
        Err(Failure::Check(text)) => {
            eprintln!("xtask: {text}");
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_named() {
        let Err(Failure::Usage(text)) = run(vec!["dance".into()]) else { panic!("expected wrong use") };
        assert!(text.ends_with("found \"dance\""), "{text}");
    }
}
