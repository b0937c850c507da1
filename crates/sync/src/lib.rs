//! Atomics, locks with ranks and threads: std's, or loom's in models.
