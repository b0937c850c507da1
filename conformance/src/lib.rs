//! One test body a behaviour, for every backend.
//!
//! - [`suites`]: the bodies. A backend runs all of them by [`main`], in a few lines under `tests/`.
//! - [`oracle`]: what results must be, written from the definitions and never from the op table.
//! - [`layouts`]: operands of every layout, with guards around them. [`mod@array`]: tensors of the host. [`report`]: what is
//!   expected, and what is said when it isn't met. [`expect`]: what is known not to hold, with a reason.
//! - [`lifetime`]: a model of operands that outlive their handles. [`programs`]: random programs of many threads and streams,
//!   compared with running them in sequence. [`races`]: cases of threads and streams that meet in memory, with the planted
//!   faults that must show in each. [`lives`]: processes that fork and end. [`soak`]: all of it for long.
#![forbid(unsafe_code)]

pub mod array;
mod backend;
mod case;
mod child;
pub mod dispatch;
pub mod expect;
pub mod layouts;
pub mod lifetime;
pub mod lives;
pub mod oracle;
pub mod programs;
pub mod races;
pub mod random;
pub mod report;
pub mod soak;
pub mod suites;
mod training;

pub use backend::Backend;
pub use case::Case;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// The main function of a test target: every case on a backend, `backend::suite::behaviour`.
pub fn main(backend: Backend) -> ExitCode {
    let absent = backend.absent().map(|reason| expect::Known::Skipped { reason });
    let trial = |case: Case| {
        let name = format!("{}::{}", backend.name(), case.name);
        let shown = name.clone();
        match absent.or_else(|| expect::of(backend, &case.name)) {
            Some(expect::Known::Skipped { reason }) => {
                println!("{name} is skipped: {reason}");
                Trial::test(shown, || Ok(())).with_ignored_flag(true)
            }
            Some(expect::Known::Fails { reason }) => Trial::test(shown, move || {
                let run = std::panic::AssertUnwindSafe(|| backend.run(&name, &case.body));
                match std::panic::catch_unwind(run) {
                    Err(_) => Ok(()),
                    Ok(()) => Err(format!("it passes, though it is expected to fail: {reason}").into()),
                }
            }),
            None => Trial::test(shown, move || {
                backend.run(&name, &case.body);
                Ok(())
            }),
        }
    };
    let is_here = |case: &Case| case.backends.contains(&backend);
    let trials = suites::all().into_iter().filter(is_here).map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
