//! One vector of many.

use super::{ModelError, Result, batch::Group, folder::Settings};
use raddle_tensor::{DType, Tensor};

/// How a text's vector is made of those of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// That of the first token, `[CLS]`.
    Cls,
    /// The mean.
    Mean,
    /// Σ / √n of n tokens.
    MeanSqrtLength,
    /// The largest of each element.
    Max,
}

impl Pooling {
    /// Of a `1_Pooling/config.json`.
    pub(super) fn read(settings: &Settings) -> Result<Pooling> {
        let known = [
            ("pooling_mode_cls_token", Some(Pooling::Cls)),
            ("pooling_mode_mean_tokens", Some(Pooling::Mean)),
            ("pooling_mode_max_tokens", Some(Pooling::Max)),
            ("pooling_mode_mean_sqrt_len_tokens", Some(Pooling::MeanSqrtLength)),
            ("pooling_mode_weightedmean_tokens", None),
            ("pooling_mode_lasttoken", None),
        ];
        let mut chosen = None;
        for (key, pooling) in known {
            if settings.flag(key)? && (pooling.is_none() || chosen.replace(pooling).is_some()) {
                return Err(settings.wrong(key, "one mode of cls, mean, max, mean_sqrt_len"));
            }
        }
        let missing =
            || -> ModelError { settings.wrong("pooling_mode_mean_tokens", "one mode to be chosen") };
        chosen.flatten().ok_or_else(missing)
    }

    /// The vectors of a group's texts, [texts, width] in f32, of those of their tokens, [rows, width]. Padding doesn't count.
    pub(super) fn pool(self, group: &Group, rows: &Tensor) -> raddle_tensor::Result<Tensor> {
        let tokens = group.rows(rows)?;
        if self == Pooling::Cls {
            return tokens.select(1, 0)?.to_dtype(DType::F32);
        }
        // Sums in 16 bits would be rounded before they are normalised.
        let tokens = tokens.to_dtype(DType::F32)?;
        let (tokens, counts) = match &group.mask {
            Some(mask) => {
                let other = if self == Pooling::Max { f64::NEG_INFINITY } else { 0.0 };
                let counts = mask.to_dtype(DType::F32)?.sum(1, true)?;
                (mask.unsqueeze(2)?.where_(&tokens, other)?, counts)
            }
            None => {
                let length = group.length as f64;
                (tokens, Tensor::full([1, 1], length, DType::F32, &rows.device())?)
            }
        };
        match self {
            Pooling::Max => tokens.amax(1, false),
            Pooling::MeanSqrtLength => tokens.sum(1, false)?.div(&counts.sqrt()?),
            Pooling::Mean | Pooling::Cls => tokens.sum(1, false)?.div(&counts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case F-23: the third row is padding: with it the mean would be [34.67, 36].
    #[test]
    fn padding_isnt_pooled() {
        let device = raddle_tensor::Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
        let rows = Tensor::from_slice(&[1f32, 2.0, 3.0, 6.0, 100.0, 100.0], [3, 2], &device).unwrap();
        let mask = Tensor::from_slice(&[true, true, false], [1, 3], &device).unwrap();
        let group = Group { first: 0, texts: 1, length: 3, mask: Some(mask) };
        let pool = |pooling: Pooling| pooling.pool(&group, &rows).unwrap();
        let values = |tensor: Tensor| tensor.to_vec::<f32>().unwrap();
        assert_eq!(values(pool(Pooling::Mean)), [2.0, 4.0]);
        assert_eq!(values(pool(Pooling::Max)), [3.0, 6.0]);
        assert_eq!(values(pool(Pooling::Cls)), [1.0, 2.0]);
        assert_eq!(values(pool(Pooling::MeanSqrtLength)), [4.0 / 2f32.sqrt(), 8.0 / 2f32.sqrt()]);
        let normalised = values(super::super::encoder::normalise(&pool(Pooling::Mean)).unwrap());
        assert!((normalised[0] - 0.4472136).abs() < 1e-7 && (normalised[1] - 0.8944272).abs() < 1e-7);
    }
}
