//! Loom models of the queues.
