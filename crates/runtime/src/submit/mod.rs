//! Submission: the only caller of queues. An op goes in here, behind all that it has to wait for, or nowhere.

mod access;
pub(crate) mod child;
mod enqueue;
mod launch;
mod wait;
pub(crate) mod witness;

pub(crate) use access::BlockAccess;
pub use access::{Access, Operand};
pub(crate) use launch::{view, with_launch};
pub use witness::{Claimed, Witness, witnessed};
