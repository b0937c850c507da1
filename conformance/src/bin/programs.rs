//! `programs --first SEED --count N`: the random programs of N seeds, from SEED on.
//!
//! Prints a line for each seed that fails, then `N passed, M failed`. Exit code 0 if all passed, 1 if not, 2 for wrong use.
//! A program that doesn't end within `--limit-s` seconds (default 30) ends the process: nothing can be said of the rest.
//! With `--until-failure` the first that fails is the last; with `--short` the programs are short ones, one a seed.

use raddle_conformance::programs;
use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

const USAGE: &str =
    "usage: programs [--first SEED] [--count N] [--limit-s SECONDS] [--until-failure] [--short]";

/// The seed at work, for the watchdog.
static SEED: AtomicU64 = AtomicU64::new(0);
/// How many seeds are through.
static DONE: AtomicU64 = AtomicU64::new(0);

fn options() -> Option<([u64; 3], [bool; 2])> {
    let (mut values, mut flags) = ([0, 100, 30], [false; 2]);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if let Some(flag) = ["--until-failure", "--short"].iter().position(|name| *name == word) {
            flags[flag] = true;
            continue;
        }
        let at = ["--first", "--count", "--limit-s"].iter().position(|name| *name == word)?;
        values[at] = words.next()?.parse().ok()?;
    }
    Some((values, flags))
}

fn main() -> ExitCode {
    let Some(([first, count, limit_s], [until_failure, short])) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    std::thread::spawn(move || end_when_stuck(Duration::from_secs(limit_s)));
    let program = if short { programs::run_short } else { programs::run };
    let (mut failed, start) = (0u64, Instant::now());
    for seed in first..first.saturating_add(count) {
        SEED.store(seed, Ordering::Relaxed);
        // A panic is a failure as any other; its message has been printed.
        let run = std::panic::catch_unwind(|| program(seed));
        match run {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => {
                failed += 1;
                println!("{wrong}");
            }
            Err(_) => {
                failed += 1;
                println!("seed {seed}: panicked");
            }
        }
        let done = DONE.fetch_add(1, Ordering::Relaxed) + 1;
        if until_failure && failed > 0 {
            println!("{} passed, 1 failed, {} not run", done - 1, count - done);
            return ExitCode::FAILURE;
        }
    }
    println!("{} passed, {failed} failed, {:.1} s", count - failed, start.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Ends the process when a seed takes too long.
fn end_when_stuck(limit: Duration) {
    let mut seen = (u64::MAX, Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let done = DONE.load(Ordering::Relaxed);
        if done != seen.0 {
            seen = (done, Instant::now());
        } else if seen.1.elapsed() > limit {
            println!("seed {}: no end after {limit:?}", SEED.load(Ordering::Relaxed));
            std::process::exit(1);
        }
    }
}
