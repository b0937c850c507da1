//! Initial values, drawn in place into a tensor of any strides; not recorded.
//!
//! Fans are those of a weight [out, in, ..]: `fan_in` is `in` times the sizes behind it, `fan_out` is `out` times them.

use raddle_grad::no_grad;
use raddle_tensor::{Generator, Result, Tensor};

/// Input and output fan.
pub fn fans(weight: &Tensor) -> (usize, usize) {
    let shape = weight.shape();
    let size = |axis: usize| shape.get(axis).copied().unwrap_or(1);
    let field: usize = shape.iter().skip(2).product();
    (size(1) * field, size(0) * field)
}

/// Even in [low, high).
pub fn uniform_<'g>(
    tensor: &Tensor,
    low: f64,
    high: f64,
    generator: impl Into<Option<&'g Generator>>,
) -> Result<()> {
    no_grad(|| tensor.uniform_(low, high, generator).map(|_| ()))
}

/// Normal.
pub fn normal_<'g>(
    tensor: &Tensor,
    mean: f64,
    std: f64,
    generator: impl Into<Option<&'g Generator>>,
) -> Result<()> {
    no_grad(|| tensor.normal_(mean, std, generator).map(|_| ()))
}

/// Even in ±gain · √(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
pub fn xavier_uniform_<'g>(
    weight: &Tensor,
    gain: f64,
    generator: impl Into<Option<&'g Generator>>,
) -> Result<()> {
    let (fan_in, fan_out) = fans(weight);
    symmetric(weight, gain * (6.0 / (fan_in + fan_out).max(1) as f64).sqrt(), generator.into())
}

/// Normal with the standard deviation gain · √(2 / (fan_in + fan_out)).
pub fn xavier_normal_<'g>(
    weight: &Tensor,
    gain: f64,
    generator: impl Into<Option<&'g Generator>>,
) -> Result<()> {
    let (fan_in, fan_out) = fans(weight);
    normal_(weight, 0.0, gain * (2.0 / (fan_in + fan_out).max(1) as f64).sqrt(), generator)
}

/// Even in ±√(6 / ((1 + slope²) · fan_in)), for a leaky relu of that slope (He et al. 2015). PyTorch's `Linear` uses the
/// slope √5, which makes it ±1 / √fan_in.
pub fn kaiming_uniform_<'g>(
    weight: &Tensor,
    slope: f64,
    generator: impl Into<Option<&'g Generator>>,
) -> Result<()> {
    let fan_in = fans(weight).0.max(1) as f64;
    symmetric(weight, (6.0 / ((1.0 + slope * slope) * fan_in)).sqrt(), generator.into())
}

/// Normal with the standard deviation √(2 / ((1 + slope²) · fan_in)).
pub fn kaiming_normal_<'g>(
    weight: &Tensor,
    slope: f64,
    generator: impl Into<Option<&'g Generator>>,
) -> Result<()> {
    let fan_in = fans(weight).0.max(1) as f64;
    normal_(weight, 0.0, (2.0 / ((1.0 + slope * slope) * fan_in)).sqrt(), generator)
}

fn symmetric(tensor: &Tensor, bound: f64, generator: Option<&Generator>) -> Result<()> {
    uniform_(tensor, -bound, bound, generator)
}
