//! MPNet's bias of attention's scores: a number of each head for how far the key stands from the query.
//!
//! The bias of all pairs of positions is made once, when a model is loaded, so that it costs a pass nothing but reading it: a
//! text of n tokens takes the first n rows and columns.

use super::{Result, settings::Settings, weights::Weights};
use raddle_tensor::{DType, Tensor};

/// Kinds of distances. Models of this family have no others: what their files say of it isn't read where they are trained.
const KINDS: usize = 32;
/// Numbers of the table (a guess: 32 MiB; MPNet has 12 heads and 512 positions, 3.1 million).
const NUMBERS_MAX: usize = 1 << 23;

/// Looks whether the table of so many heads and positions can be.
pub fn check(settings: &Settings, heads: usize, positions: usize) -> Result<()> {
    settings.count_if_there("relative_attention_num_buckets", KINDS..=KINDS)?;
    let numbers = positions.checked_pow(2).and_then(|pairs| pairs.checked_mul(heads));
    match numbers {
        Some(0..=NUMBERS_MAX) => Ok(()),
        _ => {
            let expected = format!("a table of all pairs of positions of at most {NUMBERS_MAX} numbers");
            Err(settings.wrong("max_position_embeddings", expected))
        }
    }
}

/// The bias of all pairs of so many positions, padding included, [1, heads, positions, positions] in f32: rows are queries,
/// columns keys.
pub fn take(weights: &Weights, heads: usize, positions: usize) -> Result<Tensor> {
    let kinds = weights.take("encoder.relative_attention_bias.weight", &[Some(KINDS), Some(heads)])?;
    let kind = |pair: usize| kind(pair / positions, pair % positions);
    let pairs: Vec<i64> = (0..positions * positions).map(kind).collect();
    let pairs = Tensor::from_vec(pairs, [positions, positions], &kinds.device())?;
    debug_assert_eq!(kinds.dtype(), DType::F32);
    Ok(kinds.embedding(&pairs)?.permute([2, 0, 1])?.contiguous()?.unsqueeze(0)?)
}

/// The row of a query and a key: each side has half of them, near distances have one each, far ones share, twice as many with
/// each second one (Raffel et al. 2020, with 32 kinds up to 128 tokens). In whole numbers: `8 + 8 · ln(n / 8) / ln 16`, cut,
/// is `2 + log2(n²)`, cut.
fn kind(query: usize, key: usize) -> i64 {
    let (side, each) = (KINDS / 2, KINDS / 4);
    let distance = query.abs_diff(key);
    let near = match distance {
        distance if distance < each => distance,
        _ => (2 + (distance * distance).ilog2() as usize).min(side - 1),
    };
    (if key > query { side + near } else { near }) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the formula. Distances at which it is a whole number are left out: there a logarithm may say either.
    #[test]
    fn kinds_are_those_of_the_formula() {
        for distance in 0..600usize {
            let far = 8.0 + (distance as f64 / 8.0).ln() / 16f64.ln() * 8.0;
            let expected = if distance < 8 { distance as f64 } else { far.min(15.0) };
            if distance >= 8 && far < 15.0 && (far - far.round()).abs() < 1e-9 {
                continue;
            }
            assert_eq!(kind(distance + 3, 3), expected.floor() as i64, "{distance} before");
            let after = if distance == 0 { 0 } else { 16 + expected.floor() as i64 };
            assert_eq!(kind(3, distance + 3), after, "{distance} after");
        }
        // Where it is one, as PyTorch's model has it.
        assert_eq!([8, 16, 32, 64, 128].map(|distance| kind(distance, 0)), [8, 10, 12, 14, 15]);
    }
}
