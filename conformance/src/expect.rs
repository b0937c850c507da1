//! What is known not to hold, with the reason. An unexpected pass fails, so that the list stays true.

use crate::Backend;

/// What is known of a case.
#[derive(Clone, Copy, Debug)]
pub enum Known {
    /// It can't be run.
    Skipped {
        /// The reason.
        reason: &'static str,
    },
    /// It is run and must fail.
    Fails {
        /// The reason.
        reason: &'static str,
    },
}

/// (backend, or none for all; case; what is known)
const LIST: &[(Option<Backend>, &str, Known)] = &[];

/// What is known of a case on a backend.
pub fn of(backend: Backend, case: &str) -> Option<Known> {
    let applies = |entry: &&(Option<Backend>, &str, Known)| {
        entry.1 == case && entry.0.is_none_or(|known| known == backend)
    };
    LIST.iter().find(applies).map(|entry| entry.2)
}
