//! `raddle bench`: what a few ops cost on this machine, through the public API. `benches/README.md` says what each row does, and
//! has many more.

pub mod measure;
pub mod rows;

use crate::output::{Failure, Outcome, check_writable, is_stdout, say, tell, write_json};
use raddle::Device;
use rows::Spec;
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
    pub device: String,
    /// Writes the rows as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
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

/// What `--list` reports.
#[derive(Serialize)]
struct Names<'a> {
    names: &'a [&'static str],
}

/// Measures the rows of a table.
pub fn run(arguments: &Arguments, table: &[Spec]) -> Outcome {
    let mut names: Vec<&'static str> = table.iter().map(|row| row.name).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    check_writable(arguments.json.as_deref())?;
    if arguments.list {
        write_json(arguments.json.as_deref(), &Names { names: &names })?;
        return if is_stdout(arguments.json.as_deref()) { Ok(()) } else { say(names.join("\n")).map(drop) };
    }
    if let Some(unknown) = arguments.only.iter().find(|only| !names.contains(&only.as_str())) {
        let known = names.join(", ");
        return Err(Failure::Input(format!("bench: no row is called {unknown:?}, expected one of: {known}")));
    }
    let device = Device::new(&arguments.device)?;
    let quiet = is_stdout(arguments.json.as_deref());
    let (mut rows, mut failures, mut shown) = (Vec::new(), Vec::new(), Ok(true));
    for spec in table {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == spec.name) {
            continue;
        }
        let seconds = match (spec.measure)(&device, spec.threads) {
            Ok(seconds) => seconds,
            // The others are worth having.
            Err(failure) => {
                tell(format_args!("{:<24} {:>3} failed: {failure}", spec.name, spec.threads));
                failures.push(format!("{}: {failure}", spec.name));
                continue;
            }
        };
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
            tell(line)
        } else if matches!(shown, Ok(true)) {
            shown = say(line);
        }
        rows.push(row);
        // The others may be worth having in the file; without one nobody would see them.
        if !matches!(shown, Ok(true)) && arguments.json.is_none() {
            break;
        }
    }
    let report =
        Report { machine: machine(), device: device.info().description.clone(), commit: commit(), rows };
    write_json(arguments.json.as_deref(), &report)?;
    match failures.first() {
        None => shown.map(drop),
        Some(first) => Err(Failure::Other(format!("bench: {} rows failed; {first}", failures.len()))),
    }
}

/// The processor in words.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.map_or(std::env::consts::ARCH, |(_, model)| model))
}

/// The commit that was built: as RADDLE_COMMIT says, for a program that was carried elsewhere, or that of the checkout which
/// it was built in, wherever it runs.
fn commit() -> String {
    if let Ok(commit) = std::env::var("RADDLE_COMMIT") {
        return commit;
    }
    let git = ["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"];
    let command = std::process::Command::new("git").args(git).output();
    let text = command.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.and_then(|text| String::from_utf8(text).ok()).map_or("unknown".into(), |text| text.trim().into())
}
