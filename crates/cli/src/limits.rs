//! `raddle limits`: what bounds the runtime, and by which variables.

use crate::output::{Failure, Outcome, check_writable, is_stdout, say, tell, write_json, write_whole};
use raddle::{
    Limits, fixed_bounds,
    runtime::hal::{Limit, OWN, Preset, Unit, VARIABLES},
};
use serde::Serialize;
use std::{fmt::Write, path::PathBuf};

/// Lists the limits of the runtime, the variables that set them, and what holds now.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 good, 2 a variable that holds no value.

Example: raddle limits --json limits.json
         RADDLE_KERNEL_BYTES=64M raddle limits")]
pub struct Arguments {
    /// Writes the table as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Writes the page docs/limits.md (- for standard output).
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    markdown: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    limits: Vec<Row>,
    fixed: Vec<Fixed>,
    /// Variables that are set and that nothing reads.
    unknown_variables: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    variable: &'static str,
    unit: &'static str,
    min: usize,
    /// None: no bound.
    max: Option<usize>,
    /// None: the device has one of its own, or there is no bound.
    default: Option<usize>,
    now: Option<usize>,
    says: &'static str,
}

#[derive(Serialize)]
struct Fixed {
    name: &'static str,
    value: usize,
    says: &'static str,
}

pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(path) = &arguments.markdown {
        return write_whole(path, page().as_bytes());
    }
    check_writable(arguments.json.as_deref())?;
    let bounds = Limits::default().resolve().map_err(|error| Failure::Input(error.to_string()))?;
    let unknown_variables = unknown_variables();
    for variable in &unknown_variables {
        tell(format_args!("raddle: {variable} is set, and nothing reads it"));
    }
    let own = |value: usize| (value != OWN).then_some(value);
    let row = |(limit, now): (&'static Limit, usize)| Row {
        name: limit.name,
        variable: limit.variable,
        unit: if limit.unit == Unit::Bytes { "bytes" } else { "count" },
        min: limit.min,
        max: own(limit.max),
        default: own(limit.default.value()),
        now: own(now),
        says: limit.says.trim(),
    };
    let fixed = |fixed: &raddle::runtime::hal::Fixed| Fixed {
        name: fixed.name,
        value: fixed.value,
        says: fixed.says,
    };
    let report = Report {
        limits: bounds.rows().map(row).collect(),
        fixed: fixed_bounds().map(fixed).collect(),
        unknown_variables,
    };
    write_json(arguments.json.as_deref(), &report)?;
    if is_stdout(arguments.json.as_deref()) {
        return Ok(());
    }
    for (limit, now) in bounds.rows() {
        let Limit { name, variable, default, says, .. } = limit;
        let (changed, says) = (if now == default.value() { "" } else { " (set)" }, says.trim());
        say(format_args!("{name:<22} {variable:<24} {:>12}{changed}\n    {says}", shown(limit, now)))?;
    }
    Ok(())
}

/// Most likely misspelt.
fn unknown_variables() -> Vec<String> {
    let is_known = |name: &str| {
        Limits::TABLE.iter().any(|limit| limit.variable == name)
            || VARIABLES.iter().any(|(variable, _)| *variable == name)
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("RADDLE_") && !is_known(name)).collect()
}

fn shown(limit: &Limit, value: usize) -> String {
    if value == OWN {
        return if limit.default == Preset::Unbounded { "none".into() } else { "the device's".into() };
    }
    let units = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];
    let whole = |&&(_, shift): &&(char, u32)| value > 0 && value.is_multiple_of(1 << shift);
    match units.iter().find(whole) {
        Some((letter, shift)) if limit.unit == Unit::Bytes => format!("{}{letter}", value >> shift),
        _ => value.to_string(),
    }
}

/// The page of the docs.
fn page() -> String {
    let mut page = String::from(
        "# Limits\n\n\
        <!-- Written by `raddle limits --markdown docs/limits.md`; a test compares. -->\n\n\
        Everything that grows has a bound. A program sets one by `Device::with_limits(name, &Limits { .. })`, a user by an\n\
        environment variable. The program comes before the environment, and that before the default. A value that is none, or\n\
        out of range, is an error when a device is opened, and names its place; so is one that the program overrides. Bytes may\n\
        be written as `512K`, `64M`, `8G` or `1T`. `raddle limits` shows what holds, and variables that nothing reads. What a\n\
        program holds itself (tensors, events, graphs, hooks, histories of a length that it names) is its own to bound; batchers\n\
        and the server have options (`docs/server.md`).\n\n\
        | limit | variable | default | range | what it bounds, and what happens there |\n|---|---|---|---|---|\n",
    );
    for limit in Limits::TABLE {
        let Limit { name, variable, default, min, max, says, .. } = limit;
        let range = match *max {
            usize::MAX => format!("from {}", shown(limit, *min)),
            max => format!("{} to {}", shown(limit, *min), shown(limit, max)),
        };
        let default = shown(limit, default.value());
        _ = writeln!(page, "| `{name}` | `{variable}` | {default} | {range} | {} |", says.trim());
    }
    page.push_str(
        "\nThese can't be set: a place that is passed at each op would have to look, or something is built on them.\n\n\
        | bound | value | what happens there, and why |\n|---|---|---|\n",
    );
    for fixed in fixed_bounds() {
        _ = writeln!(page, "| {} | {} | {} |", fixed.name, fixed.value, fixed.says);
    }
    page.push_str("\nOther variables:\n\n| variable | what it does |\n|---|---|\n");
    for (variable, says) in VARIABLES {
        _ = writeln!(page, "| `{variable}` | {says} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_docs_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == page(), "run `cargo run -p raddle-cli -- limits --markdown docs/limits.md`");
    }
}
