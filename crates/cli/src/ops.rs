//! `raddle ops`: the op table.

use crate::output::{Outcome, check_writable, is_stdout, say, write_json};
use raddle::{
    BACKENDS, Backend,
    catalogue::{Entry, catalogue},
};
use serde::Serialize;
use std::path::PathBuf;

/// Lists every op with its signature, dtypes, backends, gradient and forms.
#[derive(clap::Args)]
#[command(after_help = "Example: raddle ops --json - | head")]
pub struct Arguments {
    /// Writes the table as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    ops: Vec<Op>,
}

#[derive(Serialize)]
struct Op {
    name: &'static str,
    kind: &'static str,
    dtypes: Vec<&'static str>,
    backends: Vec<&'static str>,
    gradient: bool,
    in_place: bool,
    out: bool,
}

/// The backends that have an op: those that know one of its dtypes. What they run are programs and structured kernels, so each
/// has all ops.
fn backends_of(entry: &Entry) -> Vec<&'static str> {
    let has = |backend: &&Backend| entry.dtypes.iter().any(|&dtype| backend.dtypes.contains(dtype));
    BACKENDS.iter().filter(has).map(|backend| backend.name).collect()
}

pub fn run(arguments: &Arguments) -> Outcome {
    check_writable(arguments.json.as_deref())?;
    let entries = catalogue();
    let ops = entries
        .iter()
        .map(|entry| Op {
            name: entry.name,
            kind: entry.kind.name(),
            dtypes: entry.dtypes.iter().map(|dtype| dtype.name()).collect(),
            backends: backends_of(entry),
            gradient: entry.gradient,
            in_place: entry.in_place,
            out: entry.out,
        })
        .collect();
    write_json(arguments.json.as_deref(), &Report { ops })?;
    if is_stdout(arguments.json.as_deref()) { Ok(()) } else { show(&entries) }
}

fn show(entries: &[Entry]) -> Outcome {
    say(format_args!(
        "{:<42} {:<10} {:<38} {:<13} {:<8} forms",
        "op", "kind", "dtypes", "backends", "gradient"
    ))?;
    for entry in entries {
        let dtypes: Vec<&str> = entry.dtypes.iter().map(|dtype| dtype.name()).collect();
        let dtypes = if dtypes.len() == raddle::DType::ALL.len() { "all".into() } else { dtypes.join(" ") };
        let forms = [("f", entry.fresh), ("f_", entry.in_place), ("f_out", entry.out)];
        let forms: Vec<&str> = forms.iter().filter(|(_, has)| *has).map(|(form, _)| *form).collect();
        say(format_args!(
            "{:<42} {:<10} {dtypes:<38} {:<13} {:<8} {}",
            format!("{}{}", entry.name, entry.signature),
            entry.kind.name(),
            backends_of(entry).join(" "),
            if entry.gradient { "yes" } else { "no" },
            forms.join(" ")
        ))?;
    }
    for backend in BACKENDS {
        say(format_args!("{} knows {}.", backend.name, backend.dtypes))?;
    }
    say(format_args!("\n{} ops.", entries.len())).map(drop)
}
