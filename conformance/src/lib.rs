//! One test body a behaviour, for every backend
