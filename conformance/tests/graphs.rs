//! Graphs on the simulator: all that the suite asks of them, in many orders of everything; and the planted faults, each in
//! a process of its own, must make that fail.

use raddle::Device;
use raddle_conformance::suites;
use std::process::Command;

/// Enough for each fault (measured: both are caught by the first).
const SEED_COUNT: u64 = 40;

#[test]
fn the_suite_holds_for_many_seeds() {
    let cases: Vec<_> = suites::all().into_iter().filter(|case| case.name.starts_with("graphs::")).collect();
    assert!(!cases.is_empty());
    for seed in 0..SEED_COUNT {
        for case in &cases {
            eprintln!("{} on sim:{seed}", case.name);
            let device = Device::new(&format!("sim:{seed}")).unwrap();
            (case.body)(&device);
            assert!(device.close().unwrap(), "{} on sim:{seed}: buffers are alive after the test", case.name);
        }
    }
}

fn caught(fault: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_suite_holds_for_many_seeds"]);
    let output = command.env("RADDLE_FAULT", fault).env("RUST_BACKTRACE", "0").output().unwrap();
    assert!(!output.status.success(), "nothing failed");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().find(|line| line.contains("panicked")).unwrap_or_default());
}

#[test]
fn fault_reuse_leased() {
    caught("reuse_leased");
}

#[test]
fn fault_unhoisted_waits() {
    caught("unhoisted_waits");
}
