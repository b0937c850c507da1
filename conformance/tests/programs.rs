//! Random programs, as many as fit into every test run; `cargo xtask soak` runs any number.

use raddle_conformance::programs;

/// The seeds of every run; other runs take others.
const SEED_COUNT: u64 = 400;

#[test]
fn random_programs_are_as_if_in_sequence() {
    let failed: Vec<String> =
        (0..SEED_COUNT).filter_map(|seed| programs::run(seed).err()).map(|wrong| wrong.to_string()).collect();
    println!("{SEED_COUNT} schedules");
    assert!(failed.is_empty(), "{} of {SEED_COUNT} seeds fail\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_seed_replays_exactly() {
    // What is counted by the runtime depends on every choice of the program and of the simulator.
    let trace = |seed| {
        let mut counts = Vec::new();
        programs::run_observed(seed, programs::Kind::Turns, |device| {
            counts.push((device.stream_stats(), device.memory_stats()));
        })
        .unwrap();
        counts
    };
    for seed in 0..20 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}
