//! Reference implementations, written from the definitions: slow, in `f64` or `i128`, one element at a time.

pub mod pointwise;
pub mod structured;
