//! Graphs on the simulator: all that the suite asks of them, in many orders of everything; and the planted faults, each in
//! a process of its own, must make that fail.

use raddle::Device;
use raddle_conformance::suites;
use raddle_sync::faults::{Fault, assert_caught};

/// Enough for each fault (measured: both are caught by the first).
const SEED_COUNT: u64 = 40;

/// The cases of the suite whose names start so, on simulators.
fn hold_for_many_seeds(start: &str) {
    let cases: Vec<_> = suites::all().into_iter().filter(|case| case.name.starts_with(start)).collect();
    assert!(!cases.is_empty());
    for seed in 0..SEED_COUNT {
        for case in &cases {
            eprintln!("{} on sim:{seed}", case.name);
            let device = Device::new(&format!("sim:{seed}")).unwrap();
            (case.body)(&device);
            assert!(device.close().unwrap(), "{} on sim:{seed}: buffers are alive after the test", case.name);
        }
    }
    println!("{} schedules", SEED_COUNT as usize * cases.len());
}

#[test]
fn the_suite_holds_for_many_seeds() {
    hold_for_many_seeds("graphs::");
}

#[test]
fn operands_outlive_their_handles() {
    hold_for_many_seeds("graphs::operands_outlive_their_handles");
}

#[test]
fn fault_graph_borrows_operands() {
    assert_caught(Fault::graph_borrows_operands, "operands_outlive_their_handles");
}

#[test]
fn fault_free_without_fence() {
    assert_caught(Fault::free_without_fence, "operands_outlive_their_handles");
}

#[test]
fn fault_borrowed_operand() {
    assert_caught(Fault::borrowed_operand, "operands_outlive_their_handles");
}

#[test]
fn fault_reuse_leased() {
    assert_caught(Fault::reuse_leased, "the_suite_holds_for_many_seeds");
}

#[test]
fn fault_unhoisted_waits() {
    assert_caught(Fault::unhoisted_waits, "the_suite_holds_for_many_seeds");
}
