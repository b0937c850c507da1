//! SGD, Adam and AdamW
