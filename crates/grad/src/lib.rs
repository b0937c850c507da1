//! Automatic differentiation on a tape
