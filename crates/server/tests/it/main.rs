//! Servers and engines over tiny models of random weights: no network, no files but their own.

mod cors;
mod engine;
mod errors;
mod executors;
mod heads;
mod limits;
mod openapi;
mod routes;
mod server;
mod stopping;
