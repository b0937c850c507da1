//! The state behind its lock, and what stays usable of it when the device has been handed on.

use crate::state::State;
use raddle_sync::{Arc, Condvar, Mutex};
use std::fmt;

pub(crate) struct Shared {
    pub state: Mutex<State>,
    /// Signalled when a turn is over.
    pub turn_over: Condvar,
}

/// The last executed pieces of a [`Sim`](crate::Sim), oldest first; printed as the report of a failure.
#[derive(Clone)]
pub struct History(pub(crate) Arc<Shared>);

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.state.lock().fmt(f)
    }
}
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
