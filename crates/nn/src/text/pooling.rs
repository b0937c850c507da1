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
