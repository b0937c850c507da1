//! The CPU backend
