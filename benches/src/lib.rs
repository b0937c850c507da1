//! Comparison of raddle bench with its peers
