//! The `raddle` program.
//!
//! Exit codes: 0 good, 2 wrong use or input (`doctor`: a device that can't be used), 1 anything else. Errors go to stderr,
//! the point in the first line.
#![forbid(unsafe_code)]

mod demo;
mod doctor;
#[cfg(feature = "serve")]
mod embed;
mod limits;
mod memory;
#[cfg(feature = "serve")]
mod model;
mod ops;
#[cfg(feature = "serve")]
mod serve;

use clap::{Parser, Subcommand, error::ErrorKind};
use raddle_cli::{bench, output, threads};
use std::process::ExitCode;

/// Tensors for many threads and one accelerator.
#[derive(Parser)]
#[command(
    name = "raddle",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Example: raddle demo --threads 4 --json demo.json"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Trains a model on real data while other threads run it, then checks every answer.
    Demo(demo::Arguments),
    /// Makes a vector of each line of a file, with a sentence encoder.
    #[cfg(feature = "serve")]
    Embed(embed::Arguments),
    /// Serves a sentence encoder or a reranker over HTTP, as OpenAI's and text-embeddings-inference's clients expect it.
    #[cfg(feature = "serve")]
    Serve(serve::Arguments),
    /// Not in this build: makes a vector of each line of a file (needs the feature `serve`).
    #[cfg(not(feature = "serve"))]
    Embed(Unbuilt),
    /// Not in this build: serves a sentence encoder or a reranker over HTTP (needs the feature `serve`).
    #[cfg(not(feature = "serve"))]
    Serve(Unbuilt),
    /// Lists every op with its dtypes, backends and forms.
    Ops(ops::Arguments),
    /// Shows a snapshot of a device's memory: the figures, or a picture.
    Memory(memory::Arguments),
    /// Shows what GPUs need and whether it is there.
    Doctor(doctor::Arguments),
    /// Lists the limits of the runtime and the variables that set them.
    Limits(limits::Arguments),
    /// Measures this machine, through the public API.
    Bench(bench::Arguments),
}

/// Whatever a command would be told that isn't there.
#[cfg(not(feature = "serve"))]
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Unbuilt {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<String>,
}

#[cfg(not(feature = "serve"))]
fn unbuilt(command: &str) -> output::Outcome {
    Err(output::Failure::Input(format!(
        "{command}: expected a program built with the feature `serve` (`cargo run --release --features serve -- {command}`), found \
         one built without it"
    )))
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        // Help, which doesn't say what is wrong.
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            output::tell("raddle: expected a command, found none\n");
        }
        error.exit()
    });
    let result = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "serve")]
        Command::Embed(arguments) => embed::run(&arguments),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(&arguments),
        #[cfg(not(feature = "serve"))]
        Command::Embed(_) => unbuilt("embed"),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) => unbuilt("serve"),
        Command::Ops(arguments) => ops::run(&arguments),
        Command::Memory(arguments) => memory::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Limits(arguments) => limits::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments, &bench::rows::table()),
    };
    output::exit_code("raddle", result)
}
