//! Streams as programs use them: which one is current on a thread, those that a thread has for itself, those that other code has
//! made, events, callbacks, and streams that stand still for a test.

mod above;
pub(crate) mod binding;
pub(crate) mod callback;
mod dedicated;
pub(crate) mod event;
mod external;
mod handle;
pub(crate) mod sharing;
pub mod testing;

pub(crate) use above::StreamsAbove;
pub use binding::StreamGuard;
pub use dedicated::DedicatedStream;
pub use event::{Event, EventFuture};
pub use external::ExternalStream;
pub use sharing::Exhausted;
