//! Memory: which block an allocation gets, and when a block that was freed may be given out again.
//!
//! [`Buffer`]s are what others see of it. Under them: the thread's own store (`magazine`), the lists of all threads (`central`,
//! `large`), the device's slabs (`store`), and the search through all of these (`allocate`). `policy` is what users put in its
//! way, `report` what they see of it.
//!
//! Of the floors above memory asks little: [`Above`].

mod allocate;
mod bins;
mod block;
mod buffer;
mod central;
mod child;
mod classes;
mod foreign;
mod hooks;
mod large;
mod limits;
mod local;
mod magazine;
mod peak;
pub(crate) mod policy;
mod private;
mod release;
pub(crate) mod report;
mod store;
mod transit;

pub(crate) use allocate::LOOK_COUNT_MAX;
pub(crate) use block::Block;
pub use buffer::Buffer;
pub use foreign::{Foreign, Plain, on_release};
pub(crate) use hooks::is_asking;
pub use hooks::{AfterNeed, HookGuard, MemoryNeed, OUT_OF_MEMORY_RETRY_COUNT_MAX};
pub(crate) use large::SPARE_COUNT_MAX;
pub use limits::Watermarks;
pub(crate) use local::{get as local, release as release_local};
pub(crate) use magazine::{BLOCK_COUNT_MAX, CLASS_BYTES_MAX, LARGE_BYTES_MAX, LARGE_COUNT_MAX};
#[cfg(all(test, loom))]
pub(crate) use magazine::{Counts, Magazine, ThreadCache};
pub(crate) use store::{Above, Memory};
