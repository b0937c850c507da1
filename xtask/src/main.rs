//! Chores of the repository: `cargo xtask COMMAND`.
//!
//! | module | command |
//! |---|---|
//! | `verify` | `verify`: the catalogue of properties, and what checks each |
//! | `check` | `check`: everything cheap that CI runs |
//! | `tidy`, `layers` | two steps of `check`, as pure functions over text |
//! | `models` | `loom` |
//! | `spec` | `spec` |
//! | `tsan` | `tsan` |
//! | `soak` | `soak` |
//! | `faults` | `faults demo` |
//! | `fuzz` | `fuzz` |
//! | `kernels` | `kernels` |
//! | `gpu` | `gpu` |
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
mod soak;
mod source;
mod spec;
mod tidy;
mod tsan;
mod verify;

use std::process::ExitCode;

const HELP: &str = "\
Chores of the repository.

Usage: cargo xtask COMMAND [OPTIONS]

  check           tidy, layers, fmt, clippy, docs, tests; stops at the first failure
  verify          every property of the catalogue, and every planted fault
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

/// Why a command ended without success.
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// A check failed or couldn't run: exit code 1. The point stands in the first line.
    Check(String),
}

/// How commands end.
pub type Outcome = Result<(), Failure>;

/// A failed check with this text.
pub fn failed<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Check(text.into()))
}

/// The options of a command: `--name value`, `--name`, and what comes after `--`.
pub struct Options {
    words: Vec<String>,
    /// Everything after `--`, for the program that is started.
    pub rest: Vec<String>,
}

impl Options {
    fn new(mut words: Vec<String>) -> Options {
        let rest = match words.iter().position(|word| word == "--") {
            Some(at) => words.drain(at..).skip(1).collect(),
            None => Vec::new(),
        };
        Options { words, rest }
    }

    /// Is the flag there?
    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.words.iter().position(|word| word == name);
        found.map(|at| self.words.remove(at)).is_some()
    }

    /// The text after an option.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let Some(at) = self.words.iter().position(|word| word == name) else { return Ok(None) };
        if at + 1 == self.words.len() {
            return Err(Failure::Usage(format!("{name}: expected a value, found the end of the line")));
        }
        self.words.remove(at);
        Ok(Some(self.words.remove(at)))
    }

    /// The number after an option, or a default.
    pub fn number(&mut self, name: &str, default: u64) -> Result<u64, Failure> {
        match self.text(name)? {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Failure::Usage(format!("{name}: expected a whole number, found {text:?}"))),
        }
    }

    /// What is left: words that are no options.
    pub fn words(&mut self) -> Result<Vec<String>, Failure> {
        match self.words.iter().find(|word| word.starts_with('-')) {
            None => Ok(std::mem::take(&mut self.words)),
            Some(word) => Err(Failure::Usage(format!("expected an option, found {word:?}"))),
        }
    }

    /// Nothing may be left.
    pub fn finish(&self) -> Outcome {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(Failure::Usage(format!("expected an option, found {word:?}"))),
        }
    }
}

fn run(mut words: Vec<String>) -> Outcome {
    if words.is_empty() || matches!(words[0].as_str(), "help" | "--help" | "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let name = words.remove(0);
    type Command = (&'static str, &'static str, fn(Options) -> Outcome);
    let commands: [Command; 10] = [
        ("check", check::HELP, check::run),
        ("verify", verify::HELP, verify::run),
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

    fn options(line: &str) -> Options {
        Options::new(line.split_whitespace().map(String::from).collect())
    }

    #[test]
    fn options_are_taken_one_by_one() {
        let mut options = options("--minutes 3 --large -- --steps 4");
        assert!(options.flag("--large"));
        assert!(!options.flag("--large"));
        assert!(matches!(options.number("--minutes", 1), Ok(3)));
        assert!(matches!(options.number("--minutes", 1), Ok(1)));
        assert!(options.finish().is_ok());
        assert_eq!(options.rest, ["--steps", "4"]);
    }

    #[test]
    fn wrong_use_says_what_was_found() {
        let text = |outcome: Outcome| match outcome {
            Err(Failure::Usage(text)) => text,
            _ => panic!("expected wrong use"),
        };
        assert_eq!(
            text(options("--minutes x").number("--minutes", 1).map(drop)),
            "--minutes: expected a whole number, found \"x\""
        );
        assert_eq!(
            text(options("--minutes").text("--minutes").map(drop)),
            "--minutes: expected a value, found the end of the line"
        );
        assert_eq!(text(options("--what").finish()), "expected an option, found \"--what\"");
        assert!(text(run(vec!["dance".into()])).ends_with("found \"dance\""));
    }
}
