//! A tensor runtime for many threads and one accelerator
