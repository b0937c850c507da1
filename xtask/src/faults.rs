//! `cargo xtask faults`: a check that has never failed proves nothing. Every fault of the one list is planted in turn,
//! and something has to catch it.

use crate::{Failure, Options, Outcome, command, failed, models, soak, tidy};
use std::{collections::BTreeSet, fs, time::Duration};

pub const HELP: &str = "\
Plants every fault of crates/sync/src/faults.rs and shows what catches it: random programs on the simulator, models,
tests named fault_NAME (which plant it and assert that it is caught). A fault that nothing catches is a failure.

Usage: cargo xtask faults [OPTIONS]

  --list       the faults and what each breaks
  --seeds N    random programs for each fault (default 200)
  --only NAME  only this fault

Example: cargo xtask faults --only free_without_fence
";

pub const HELP_DEMO: &str = "\
The demo with a planted fault, named by RADDLE_FAULT (default free_without_fence). Wrong answers are what is expected:
without any, the check of the demo would be blind.

Usage: cargo xtask faults demo [-- OPTIONS OF THE DEMO]

Example: cargo xtask faults demo -- --steps 100 --device sim:7
";

/// Planted faults of progress hang: so long is waited for the programs.
const PROGRAMS_TIME_MAX: Duration = Duration::from_secs(60);
const FLAGS: &str = "--cfg raddle_faults";
const TARGET: &str = "faults";

/// Shows for each fault what catches it.
pub fn run(mut options: Options) -> Outcome {
    let list_only = options.flag("--list");
    let seeds = options.number("--seeds", 200)?;
    let only = options.text("--only")?;
    options.finish()?;
    let mut faults = tidy::planted_faults()?;
    if let Some(only) = &only {
        faults.retain(|(name, ..)| name == only);
    }
    if faults.is_empty() {
        return failed("no such fault; `cargo xtask faults --list` tells the known ones");
    }
    if list_only {
        for (name, property, _) in &faults {
            println!("{property}  {name}");
        }
        return Ok(());
    }

    let filter = ["fault_".to_string()];
    let in_models = passed(&mut models::command(2, &filter))?;
    let mut tests = command::cargo();
    tests.args(["test", "--workspace", "--exclude", "xtask", "--no-fail-fast", "--", "fault_"]);
    let in_tests = passed(&mut tests)?;
    let programs = soak::build(Some(TARGET), FLAGS)?;

    println!("{:<4} {:<24} {:<24} models  tests", "", "fault", "random programs");
    let mut missed = Vec::new();
    for (name, property, _) in &faults {
        let log = command::target_dir(TARGET).join(format!("programs-{name}"));
        let mut command = programs(0, seeds);
        command.env("RADDLE_FAULT", name);
        let by_programs = match command::capture_within(&mut command, PROGRAMS_TIME_MAX, &log)? {
            None => Some("no end".to_string()),
            Some(finished) if finished.is_good() => None,
            Some(finished) => Some(first_seed(&finished.output())),
        };
        let caught = |names: &BTreeSet<String>| {
            let test = format!("fault_{name}");
            if names.iter().any(|known| known.rsplit("::").next() == Some(&test)) { "yes" } else { "–" }
        };
        let (by_models, by_tests) = (caught(&in_models), caught(&in_tests));
        let shown = by_programs.as_deref().unwrap_or("–");
        println!("{property:<4} {name:<24} {shown:<24} {by_models:<7} {by_tests}");
        if by_programs.is_none() && by_models != "yes" && by_tests != "yes" {
            missed.push(format!("{name}, which breaks {property}, is caught by nothing"));
        }
    }
    if missed.is_empty() { Ok(()) } else { failed(missed.join("\n")) }
}

/// The tests that passed. That others didn't is `cargo test`'s to say, but a build that fails is ours.
fn passed(command: &mut std::process::Command) -> Result<BTreeSet<String>, Failure> {
    let finished = command::capture(command)?;
    if !finished.stdout.contains("test result:") {
        return failed(format!("`{}` ran no test\n{}", command::line(command), finished.output()));
    }
    Ok(passed_tests(&finished.stdout))
}

fn passed_tests(output: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let name = line.trim().strip_prefix("test ")?.strip_suffix(" ... ok")?;
        Some(name.trim_end_matches(" - should panic").to_string())
    };
    output.lines().filter_map(name).collect()
}

/// The first "seed N" in what the programs said.
fn first_seed(output: &str) -> String {
    let after = output.split("seed ").nth(1).unwrap_or_default();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    if digits.is_empty() { "it failed".into() } else { format!("seed {digits}") }
}

/// The demo with a planted fault.
pub fn demo(options: Options) -> Outcome {
    options.finish()?;
    let fault = std::env::var("RADDLE_FAULT").unwrap_or_else(|_| "free_without_fence".into());
    let known = tidy::planted_faults()?;
    if !known.iter().any(|(name, ..)| *name == fault) {
        return Err(Failure::Usage(format!(
            "RADDLE_FAULT: expected a name of `faults --list`, found {fault:?}"
        )));
    }
    let folder = command::target_dir(TARGET);
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
    command.args(["run", "-p", "raddle-cli", "--bin", "raddle", "--", "demo", "--json"]).arg(&json);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_read() {
        let passed =
            passed_tests("test a::fault_b ... ok\ntest c - should panic ... ok\ntest d ... FAILED\n");
        assert_eq!(passed.into_iter().collect::<Vec<_>>(), ["a::fault_b", "c"]);
        assert_eq!(first_seed("bad: seed 17, thread 3"), "seed 17");
        assert_eq!(first_seed("signal"), "it failed");
    }
}
