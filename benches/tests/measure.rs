//! `measure` as others call it: the names in its JSON, its exit codes, the first line of its errors.

#[path = "../../crates/cli/tests/shared/form.rs"]
mod form;

use form::assert_form;
use serde_json::{Value, json};
use std::process::{Command, Output};

fn measure(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_measure")).args(arguments).output().unwrap()
}

/// What a command writes with `--json -`: JSON and nothing else.
fn report(arguments: &[&str]) -> Value {
    let output = measure(&[arguments, &["--json", "-"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Exit code 2, with the point in the first line of stderr.
fn assert_refused(arguments: &[&str], point: &str) {
    let output = measure(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.lines().next().is_some_and(|line| line.contains(point)), "{arguments:?}: {stderr}");
}

#[test]
fn rows_are_listed() {
    let list = report(&["rows", "--list"]);
    assert_form(&list, &json!({ "names": [""] }), "rows --list");
    let names = list["names"].as_array().unwrap();
    assert!(names.contains(&json!("add_out_256")) && names.contains(&json!("softmax")), "{names:?}");
    assert_refused(&["rows", "--only", "add_out_257"], "add_out_257");
}

#[test]
fn replay_reports_what_it_promises() {
    let path = std::env::temp_dir().join(format!("raddle-{}.trace.gz", std::process::id()));
    let trace = path.to_str().unwrap();
    let recorded = report(&["record", "pipeline", "--rounds", "8", "--out", trace]);
    let form = json!({
        "workload": "", "device": "", "rounds": 0, "out": "", "events": 0, "allocations": 0, "seconds": 0.5,
    });
    assert_form(&recorded, &form, "record");
    assert_eq!(
        (&recorded["workload"], &recorded["rounds"], &recorded["out"]),
        (&json!("pipeline"), &json!(8), &json!(trace))
    );
    assert_refused(&["record", "pipeline", "--out", "-", "--json"], "expected - for one of");
    let rate = json!({ "median": 0.5, "min": 0.5, "max": 0.5 });
    let policy = json!({
        "policy": "", "allocated_peak_bytes": 0, "reserved_peak_bytes": 0, "slab_calls": 0,
        "events_per_s": rate, "calls_per_s": rate,
    });
    let replayed = json!({
        "trace": "", "events": 0, "allocations": 0, "threads": 0, "streams": 0, "asked_peak_bytes": 0,
        "policies": [policy],
    });
    let form = json!({ "completion": "", "traces": [replayed] });
    let replay = report(&["replay", trace]);
    assert_form(&replay, &form, "replay");
    for arguments in
        [&["--json", "-", trace][..], &[trace, "--json"], &["--json", "--completion", "at-sync", trace]]
    {
        let output = measure(&[&["replay", "--policy", "ours", "--peaks-only"][..], arguments].concat());
        let replay: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(replay["traces"][0]["events"], recorded["events"], "{arguments:?}");
    }
    let policies = replay["traces"][0]["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["ours", "pytorch", "rmm"]);
    assert_refused(&["replay", trace, "--check", "/nowhere/counts.json"], "/nowhere/counts.json");
    assert_refused(&["replay", trace, trace, "/nowhere/trace"], "/nowhere/trace");
    let own = "expected a file of its own, found that of ";
    for arguments in [
        &["replay", trace, "--json", trace][..],
        &["replay", "/dev/null", "--check", "/counts", "--json", "/tmp/../counts"],
    ] {
        assert_refused(arguments, own);
    }
    let more = [&std::fs::read(&path).unwrap()[..], b"more than the head of a member"].concat();
    std::fs::write(&path, more).unwrap();
    assert_refused(&["replay", trace], "invalid gzip header");
    std::fs::write(&path, "raddle memory trace 2\n").unwrap();
    assert_refused(&["replay", trace], "expected the first line");
    std::fs::remove_file(&path).unwrap();
}

/// Counts that differ are told, with exit code 1; those that agree are what `--check` is for.
#[test]
fn replay_compares_with_the_counts_of_libraries() {
    let path = std::env::temp_dir().join(format!("raddle-{}.counts.json", std::process::id()));
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/training.trace.gz");
    let check = || measure(&["replay", trace, "--check", path.to_str().unwrap(), "--json", "-"]);
    let peaks = report(&["replay", trace, "--policy", "pytorch", "--peaks-only"]);
    let peaks = &peaks["traces"][0];
    let mut counts = json!({ "traces": [{
        "trace": "training.trace.gz", "events": peaks["events"],
        "libraries": [{
            "policy": "pytorch", "library": "PyTorch", "slab_addresses": [],
            "checkpoints": [{
                "events": peaks["events"], "allocated_bytes": null, "reserved_peak_bytes": peaks["policies"][0]["reserved_peak_bytes"],
                "allocated_peak_bytes": peaks["policies"][0]["allocated_peak_bytes"],
                "reserved_bytes": peaks["policies"][0]["reserved_peak_bytes"], "slab_calls": peaks["policies"][0]["slab_calls"],
            }],
        }],
    }] });
    std::fs::write(&path, counts.to_string()).unwrap();
    let output = check();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&compared["same"], &compared["compared"][0]["same"]), (&json!(true), &json!(1)));
    counts["traces"][0]["libraries"][0]["checkpoints"][0]["slab_calls"] = json!(1_000_000);
    std::fs::write(&path, counts.to_string()).unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(compared["compared"][0]["first_difference"][0]["slab_calls"], json!(1_000_000));
    std::fs::remove_file(&path).unwrap();
}

/// Their stacks alone have more addresses than the process may have.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_do_not_start_are_an_error() {
    use raddle::runtime::{MemoryTrace, TraceEvent, TraceOp};
    let trace = std::env::temp_dir().join(format!("raddle-{}-threads.trace", std::process::id()));
    let event =
        |thread| TraceEvent { time_us: 0, thread, stream: 0, op: TraceOp::Allocate { size_bytes: 1 } };
    let mut bytes = Vec::new();
    MemoryTrace::new((0..1024).map(event)).unwrap().write(&mut bytes).unwrap();
    std::fs::write(&trace, bytes).unwrap();
    let mut shell = Command::new("sh");
    let replay = "ulimit -v 1200000 && exec \"$0\" replay \"$1\"";
    shell.args(["-c", replay, env!("CARGO_BIN_EXE_measure")]).arg(&trace);
    let output = shell.env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("measure: replay: expected 1024 threads, started "), "{stderr}");
    std::fs::remove_file(trace).unwrap();
}
