//! What is measured of Raddle alone: ops, and the allocator on recorded traces. `benches/README.md` tells of both.
//!
//! Exit codes are those of `raddle`: 0 good, 2 wrong use or input, 1 anything else.
#![forbid(unsafe_code)]

mod record;
mod replay;
mod rows;

use clap::{Parser, Subcommand};
use raddle_cli::{bench, output};
use std::process::ExitCode;

/// Measures Raddle on this machine.
#[derive(Parser)]
#[command(after_help = "Example: measure rows --only gemm_1024 --json -")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures small ops, memory, bandwidth, matrix products, training steps.
    #[command(after_help = "Example: measure rows --only gemm_1024 --json -")]
    Rows(bench::Arguments),
    /// Records the allocations of a workload, for `measure replay`.
    Record(record::Arguments),
    /// Replays an allocation trace against our allocator and the policies of others.
    Replay(replay::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Rows(arguments) => bench::run(&arguments, &rows::table(&arguments.device)),
        Command::Record(arguments) => record::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
    };
    output::exit_code("measure", result)
}
