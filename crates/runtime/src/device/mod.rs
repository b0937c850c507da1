//! The door: what a program asks of a [`Device`](crate::Device). Here it is asked once a call whether this is a forked child, and
//! whether the thread captures; the floors below don't ask again.

mod caches;
mod life;
mod memory;
mod work;

pub use caches::CacheStats;
#[cfg(test)]
pub(crate) use life::build;
pub use work::StreamStats;
