//! `raddle bench`: what ops cost on this machine, through the public API. `benches/README.md` says what each row does;
//! `benches/peers` measures the same list on PyTorch.

mod graphs;
mod measure;
mod rows;

use crate::output::{Failure, Outcome, is_stdout, write_json};
use raddle::Device;
use serde::Serialize;
use std::path::PathBuf;

/// Measures this machine: small ops, memory, bandwidth, matrix products, training steps.
#[derive(clap::Args)]
#[command(after_help = "Example: raddle bench --only gemm_1024 --json -")]
pub struct Arguments {
    /// Prints the names and stops.
    #[arg(long)]
    list: bool,
    /// Runs only the rows of this name; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Writes the rows as JSON (- for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One line of the report.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    threads: usize,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Serialize)]
struct Report {
    machine: String,
    device: String,
    commit: String,
    rows: Vec<Row>,
}

/// All rows, in order.
fn specs() -> impl Iterator<Item = &'static rows::Spec> {
    rows::TABLE.iter().chain(graphs::TABLE)
}

pub fn run(arguments: &Arguments) -> Outcome {
    let mut names: Vec<&str> = specs().map(|row| row.name).collect();
    names.dedup();
    if arguments.list {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    if let Some(unknown) = arguments.only.iter().find(|only| !names.contains(&only.as_str())) {
        let known = names.join(", ");
        return Err(Failure::Input(format!("bench: no row is called {unknown:?}, expected one of: {known}")));
    }
    let device = Device::new(&arguments.device)?;
    let quiet = is_stdout(arguments.json.as_deref());
    let mut rows = Vec::new();
    for spec in specs() {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == spec.name) {
            continue;
        }
        let seconds = (spec.measure)(&device, spec.threads)?;
        let value = |seconds: f64| match spec.unit.ends_with("/s") {
            true => spec.work / seconds,
            false => spec.work * seconds,
        };
        let mut values: Vec<f64> = seconds.into_iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let row = Row {
            name: spec.name,
            threads: spec.threads,
            unit: spec.unit,
            median: values[values.len() / 2],
            min: values[0],
            max: values[values.len() - 1],
        };
        let line = format!(
            "{:<24} {:>3} {:>12.3} {:<8} ({:.3} to {:.3})",
            row.name, row.threads, row.median, row.unit, row.min, row.max
        );
        if quiet {
            eprintln!("{line}")
        } else {
            println!("{line}")
        }
        rows.push(row);
    }
    let report =
        Report { machine: machine(), device: device.info().description.clone(), commit: commit(), rows };
    write_json(arguments.json.as_deref(), &report)
}

/// The processor in words.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.map_or(std::env::consts::ARCH, |(_, model)| model))
}

/// The commit that was built, if the sources are a checkout.
fn commit() -> String {
    let command = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = command.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.and_then(|text| String::from_utf8(text).ok()).map_or("unknown".into(), |text| text.trim().into())
}
