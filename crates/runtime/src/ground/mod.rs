//! The ground: what all floors stand on. A device as everybody knows it ([`Core`]), errors, what becomes of both in a forked
//! child, and whether a thread records its ops instead of submitting them.

pub(crate) mod capturing;
mod core;
mod error;
pub(crate) mod fork;

pub(crate) use self::core::{Core, Floor};
pub use self::core::{DEVICE_COUNT_MAX, Device};
pub use error::{Error, Misfit, NoTime, NotCapturable, Result, Which};
