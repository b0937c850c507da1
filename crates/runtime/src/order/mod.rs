//! What is ordered behind what: ticks, the marks of blocks, the waits that an op collects from them, and the failures that
//! travel with the data. Streams as the order of ops needs them; what users do with one stands in [`stream`](crate::stream).

pub(crate) mod callbacks;
mod gates;
mod id;
mod marks;
mod streams;
pub(crate) mod taint;
mod tick;
mod timing_events;
mod wait_set;

pub use id::StreamId;
pub(crate) use marks::{Claim, Marks, Uses};
pub use streams::Stream;
pub(crate) use streams::{State, StreamInner, Streams};
pub(crate) use tick::{Clock, EXTERNAL_FIRST, POOL_COUNT, SLOT_COUNT, Tick};
pub(crate) use timing_events::SPARE_COUNT_MAX;
pub(crate) use wait_set::WaitSet;
