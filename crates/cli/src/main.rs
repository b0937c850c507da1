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
        Command::Ops(arguments) => ops::run(&arguments),
        Command::Memory(arguments) => memory::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Limits(arguments) => limits::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments, &bench::rows::table()),
    };
    output::exit_code("raddle", result)
}
