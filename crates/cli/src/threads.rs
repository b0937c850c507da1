//! Threads that a system may refuse.

use crate::output::{Failure, Outcome};
use std::{
    hint::black_box,
    sync::{Arc, Barrier},
    thread::{Builder, Scope, ScopedJoinHandle},
};

/// Addresses that must be left when a thread is started: for its stack of 2 MiB, and for what `std` and the system's allocator
/// take before it runs, without which `std` ends the process. A guess.
const THREAD_BYTES: usize = 8 << 20;

/// Starts threads, one after the other, and returns when all of them run. A scope's own way to start one panics where that fails.
/// Errors: the system refuses one; those that run already are to be told to end.
pub fn start_threads<'scope, T: Send + 'scope, F: FnOnce() -> T + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    command: &str,
    count: usize,
    run: impl Fn(usize) -> F,
) -> Outcome<Vec<ScopedJoinHandle<'scope, T>>> {
    let start = |index| {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::Other(format!("{command}: expected {count} threads, started {index}: {error}"))
        };
        let mut room = Vec::<u8>::new();
        room.try_reserve_exact(THREAD_BYTES).map_err(|error| failed(&error))?;
        // Else the compiler does without it.
        drop(black_box(room));
        let (run, runs) = (run(index), Arc::new(Barrier::new(2)));
        let runs_too = runs.clone();
        let thread = Builder::new().spawn_scoped(scope, move || {
            runs_too.wait();
            run()
        });
        let thread = thread.map_err(|error| failed(&error))?;
        runs.wait();
        Ok(thread)
    };
    (0..count).map(start).collect()
}
