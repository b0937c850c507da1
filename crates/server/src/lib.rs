//! A model for any number of threads or clients.
//!
//! - [`engine`]: a sentence encoder or a reranker behind the batcher; tokens in, rows out. No HTTP, no executor.
//! - [`request`]: what clients ask for, read from bytes and checked; pure.
//! - `http` (feature `http`): the routes of OpenAI's and of text-embeddings-inference's servers over an engine, and a
//!   listener that bounds what a client can hold and ends when it is told to.
//!
//! ```no_run
//! use raddle_server::engine::{Engine, EngineOptions, Model};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device: raddle_tensor::Device = unimplemented!();
//! let engine = Engine::start(Model::load("model-dir", &device, &Default::default())?, EngineOptions::default())?;
//! std::thread::scope(|scope| {
//!     for text in ["a thread", "a stream"] {
//!         let engine = &engine;
//!         scope.spawn(move || engine.embed(&[text])); // run together with those of other threads
//!     }
//! });
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod engine;
pub mod histogram;
#[cfg(feature = "http")]
pub mod http;
pub mod request;
