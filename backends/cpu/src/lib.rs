//! The CPU backend.
mod kernels;
mod threads;
