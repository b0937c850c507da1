//! Tensors: views, checks, dispatch, and the methods made from the op table
