//! `cargo xtask faults demo`: a check that has never failed proves nothing. What catches each planted fault is shown by
//! `cargo xtask verify --faults`.

use crate::{Failure, Options, Outcome, command, failed, tidy};
use serde_json::Value;
use std::{fs, path::Path};

pub const HELP: &str = "\
The demo as it is and with planted faults, and how many of its answers are wrong then. With the faults wrong answers are what is
expected: without any, the check of the demo would be blind. The faults: free_without_fence, by which memory is given to others
while it is read, and no_wait_after_read, by which the optimizer writes weights while they are read; or the one that RADDLE_FAULT
names.

Usage: cargo xtask faults demo [-- OPTIONS OF THE DEMO]

Example: cargo xtask faults demo -- --steps 100 --device sim:7
";

/// One for memory, and one for the order of reads and writes.
const FAULTS: [&str; 2] = ["free_without_fence", "no_wait_after_read"];

/// The demo without a fault and with some, beside each other.
pub fn run(mut options: Options) -> Outcome {
    let words = options.words()?;
    if words != ["demo"] {
        return Err(Failure::Usage(format!("faults: expected demo, found {words:?}")));
    }
    let named = std::env::var("RADDLE_FAULT").ok();
    let faults: Vec<&str> = named.as_deref().map_or(FAULTS.to_vec(), |fault| vec![fault]);
    let known = tidy::planted_faults()?;
    if let Some(fault) = faults.iter().find(|fault| known.iter().all(|(name, ..)| name != *fault)) {
        return Err(Failure::Usage(format!(
            "RADDLE_FAULT: expected a name of crates/sync/src/faults.rs, found {fault:?}"
        )));
    }
    let folder = command::target_dir("faults");
    fs::create_dir_all(&folder).map_err(|error| command::io(&folder, &error))?;
    let json = folder.join("demo.json");
    println!("{:<22}{:<34}live weights", "planted", "published versions");
    let mut blind = Vec::new();
    for fault in [None].into_iter().chain(faults.into_iter().map(Some)) {
        let report = demo(fault, &options.rest, &json)?;
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let (live, live_wrong) = (count(&report["live"]["answers"]), count(&report["live"]["wrong"]));
        let (all, wrong) = (count(&report["inferences"]), count(&report["wrong_answers"]));
        let shown = |wrong, all| format!("{wrong} of {all} answers are wrong");
        let planted = fault.unwrap_or("nothing");
        let published = shown(wrong - live_wrong, all - live);
        println!("{planted:<22}{published:<34}{}", shown(live_wrong, live));
        if (wrong == 0) != fault.is_none() {
            blind.push(format!("planted {planted}, found {wrong} wrong answers"));
        }
    }
    if blind.is_empty() { Ok(()) } else { failed(blind.join("\n")) }
}

/// What the demo reports.
fn demo(fault: Option<&str>, arguments: &[String], json: &Path) -> Result<Value, Failure> {
    // What is left of an earlier run must not be taken for this one's.
    match fs::remove_file(json) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::Check(format!("{}: {error}", json.display())));
        }
        _ => {}
    }
    // A debug build can plant faults. The CPU runs most ops on the spot, so that little is ever in flight; the simulator
    // runs them late.
    let mut command = command::cargo();
    command.args(["run", "--bin", "raddle", "--", "demo", "--json"]).arg(json);
    if arguments.is_empty() {
        command.args(["--device", "sim:7", "--steps", "150", "--threads", "4"]);
    }
    command.args(arguments).env_remove("RADDLE_FAULT").envs(fault.map(|fault| ("RADDLE_FAULT", fault)));
    let finished = command::capture(&mut command)?;
    let report = fs::read_to_string(json).ok().and_then(|text| serde_json::from_str(&text).ok());
    let planted = fault.unwrap_or("nothing");
    report.ok_or_else(|| {
        Failure::Check(format!("planted {planted}, the demo wrote no report\n{}", finished.output()))
    })
}
