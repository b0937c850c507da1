//! `cargo xtask faults demo`: a check that has never failed proves nothing. What catches each planted fault is shown by
//! `cargo xtask verify --faults`.

use crate::{Failure, Options, Outcome, command, failed, tidy};
use std::fs;

pub const HELP: &str = "\
The demo with a planted fault, named by RADDLE_FAULT (default free_without_fence). Wrong answers are what is expected:
without any, the check of the demo would be blind.

Usage: cargo xtask faults demo [-- OPTIONS OF THE DEMO]

Example: cargo xtask faults demo -- --steps 100 --device sim:7
";

/// The demo with a planted fault.
pub fn run(mut options: Options) -> Outcome {
    let words = options.words()?;
    if words != ["demo"] {
        return Err(Failure::Usage(format!("faults: expected demo, found {words:?}")));
    }
    let fault = std::env::var("RADDLE_FAULT").unwrap_or_else(|_| "free_without_fence".into());
    let known = tidy::planted_faults()?;
    if !known.iter().any(|(name, ..)| *name == fault) {
        return Err(Failure::Usage(format!(
            "RADDLE_FAULT: expected a name of crates/sync/src/faults.rs, found {fault:?}"
        )));
    }
    let folder = command::target_dir("faults");
    let json = folder.join("demo.json");
    fs::create_dir_all(&folder).map_err(|error| command::io(&folder, &error))?;
    // What is left of an earlier run must not be taken for this one's.
    match fs::remove_file(&json) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return failed(format!("{}: {error}", json.display()));
        }
        _ => {}
    }
    // A debug build can plant faults. The CPU runs most ops on the spot, so that little is ever in flight; the simulator
    // runs them late.
    let mut command = command::cargo();
    command.args(["run", "--bin", "raddle", "--", "demo", "--json"]).arg(&json);
    if options.rest.is_empty() {
        command.args(["--device", "sim:7", "--steps", "300", "--threads", "4"]);
    }
    command.args(&options.rest).env("RADDLE_FAULT", &fault);
    let finished = command::capture(&mut command)?;
    let wrong = fs::read_to_string(&json)
        .ok()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
        .and_then(|report| report["wrong_answers"].as_u64());
    match wrong {
        Some(0) => failed(format!("planted {fault}, expected wrong answers, found none")),
        Some(wrong) => {
            println!("planted {fault}: {wrong} wrong answers, as expected");
            Ok(())
        }
        None => failed(format!("planted {fault}, the demo wrote no report\n{}", finished.output())),
    }
}
