//! The simulator: a backend that reorders work on purpose
