//! Rows of numbers: one a text, or one a token.

use raddle_sync::RaceOnce;
use raddle_tensor::{Fused, Tensor, fused};

/// Rows one after the other.
pub(super) fn join(parts: &[Tensor]) -> raddle_tensor::Result<Tensor> {
    match parts {
        [one] => Ok(one.clone()),
        _ => Tensor::cat(parts, 0),
    }
}

/// Rows of norm 1, as PyTorch's `normalize`: what is almost 0 isn't blown up.
pub(super) fn normalize(rows: &Tensor) -> raddle_tensor::Result<Tensor> {
    static DIVIDE: RaceOnce<Fused> = RaceOnce::new();
    let divide = DIVIDE.get_or_init(|| fused(|[rows, norm]| rows / norm.maximum(1e-12)));
    divide.call(&[rows, &rows.norm(1, true)?])
}
