//! The door: what a program asks of a [`Device`](crate::Device). Whether this is a forked child, and whether the thread captures, is
//! asked here first.

mod caches;
mod life;
mod memory;
mod work;

pub use caches::CacheStats;
#[cfg(test)]
pub(crate) use life::build;
pub use memory::Ready;
pub use work::StreamStats;
