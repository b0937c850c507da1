//! Serving: a batcher for requests of many threads.
//!
//! A device is fastest with many requests at a time, and they come one by one. A [`Batcher`] takes them from any thread, runs
//! those that fit together through one function, and gives each caller its own answer, as a future or by waiting.
//!
//! ```
//! use raddle_serve::{Batch, Batcher, Options, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Anything that makes as many results as it is given items.
//! let lengths = |batch: Batch<String>| -> Vec<Result<usize, std::fmt::Error>> {
//!     batch.items.iter().map(|text| Ok(text.len())).collect()
//! };
//! let batcher = Batcher::start(Options::default(), lengths)?;
//! std::thread::scope(|scope| {
//!     for text in ["a", "comb", "on a loom"] {
//!         let batcher = &batcher;
//!         scope.spawn(move || {
//!             let answer = batcher.submit(text.to_string(), Request::new(text.len()))?;
//!             assert_eq!(answer.wait().expect("it doesn't fail"), text.len());
//!             Ok::<_, raddle_serve::Rejected>(())
//!         });
//!     }
//! });
//! batcher.stop(); // answers what waits; dropping it does, too
//! assert_eq!(batcher.counts().run_count, 3);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Scheduler`]: which requests run together and when; pure, for those who have a loop of their own.
//! - [`Options`], [`Request`], [`Priority`]: its limits, and what it knows of a request.
//! - [`Batcher`], [`Answer`]: the same on threads.
//!
//! # Numbers
//!
//! | what | how |
//! |---|---|
//! | requests in a full batch | `min(batch_count_max, batch_tokens_max / b)`, `b` being the bucket's length in tokens |
//! | padding of a request | at most `b − a` tokens, `a` being the length of the bucket below, or 0 |
//! | wait until a batch may begin | at most `wait_max`, and at most half of `begin_within` |
//! | who may overtake | who comes within `head_start` for each level of priority |
//! | requests waiting | at most `waiting_count_max`; one more is an error |
#![forbid(unsafe_code)]

mod batcher;
mod error;
mod promise;
mod schedule;

pub use batcher::{Answer, Batch, Batcher};
pub use error::{Error, OptionsError, Rejected, StartError};
pub use schedule::{Counts, Decision, Options, Planned, Priority, Request, Scheduler, Ticket};
