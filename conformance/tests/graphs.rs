//! Graphs on the simulator: all that the suite asks of them, in many orders of everything; and the planted faults, each in
//! a process of its own, must make that fail.

use raddle::Device;
use raddle_conformance::suites;
use raddle_sync::faults::{Fault, assert_caught};

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
    println!("{} schedules", SEED_COUNT as usize * cases.len());
}

#[test]
fn fault_reuse_leased() {
    assert_caught(Fault::reuse_leased, "the_suite_holds_for_many_seeds");
}

#[test]
fn fault_unhoisted_waits() {
    assert_caught(Fault::unhoisted_waits, "the_suite_holds_for_many_seeds");
}
