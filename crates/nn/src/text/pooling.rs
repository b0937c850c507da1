//! One vector of many.

use super::{
    Result,
    batch::{Group, Padding},
    settings::Settings,
};
use raddle_tensor::{DType, Tensor};

/// How a text's vector is made of those of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// That of the first token, `[CLS]`.
    Cls,
    /// The largest of each element.
    Max,
    /// The mean.
    Mean,
    /// Σ / √n of n tokens.
    MeanSqrtLength,
    /// The mean, in which the n-th token counts n times.
    WeightedMean,
    /// That of the last token.
    LastToken,
}

/// The modes by their names in a text, and by those of their flags, in the order in which the vectors of several stand.
const MODES: [(&str, &str, Pooling); 6] = [
    ("cls", "pooling_mode_cls_token", Pooling::Cls),
    ("max", "pooling_mode_max_tokens", Pooling::Max),
    ("mean", "pooling_mode_mean_tokens", Pooling::Mean),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLength),
    ("weightedmean", "pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("lasttoken", "pooling_mode_lasttoken", Pooling::LastToken),
];

impl Pooling {
    /// As sentence-transformers calls it.
    pub fn name(self) -> &'static str {
        let named = MODES.iter().find(|(.., mode)| *mode == self);
        named.map_or("", |(name, ..)| name)
    }

    /// Of a `1_Pooling/config.json`: the modes whose vectors stand one behind the other, at least one. `pooling_mode`, one name
    /// or a list, counts before the flags that older files have. Where nothing is said it is the mean.
    pub(super) fn read(settings: &Settings) -> Result<Vec<Pooling>> {
        let names = settings.texts_if_there("pooling_mode")?;
        let mut chosen = Vec::new();
        match names {
            Some(names) => {
                for name in names {
                    let Some((_, _, mode)) = MODES.iter().find(|(known, ..)| *known == name) else {
                        let known = MODES.map(|(name, ..)| name).join(", ");
                        return Err(settings.wrong("pooling_mode", format!("of {known}")));
                    };
                    chosen.push(*mode);
                }
                if chosen.is_empty() || chosen.len() > MODES.len() {
                    return Err(settings.wrong("pooling_mode", format!("1 to {} modes", MODES.len())));
                }
            }
            None => {
                for (_, flag, mode) in MODES {
                    if settings.flag(flag)? {
                        chosen.push(mode);
                    }
                }
                if chosen.is_empty() {
                    chosen.push(Pooling::Mean);
                }
            }
        }
        Ok(chosen)
    }

    /// The vectors of a group's texts, [texts, width] in f32, of those of their tokens, [rows, width]. Padding doesn't count,
    /// nor does a prompt that isn't pooled.
    pub(super) fn pool(self, group: &Group, rows: &Tensor) -> raddle_tensor::Result<Tensor> {
        let tokens = group.rows(rows)?;
        let pooled = group.pooled.as_ref();
        if self == Pooling::Cls && group.begins_pooled {
            return tokens.select(1, 0)?.to_dtype(DType::F32);
        }
        if self == Pooling::LastToken && group.padding.is_none() {
            return tokens.select(1, -1)?.to_dtype(DType::F32);
        }
        // Sums in 16 bits would be rounded before they are normalized.
        let tokens = tokens.to_dtype(DType::F32)?;
        if self == Pooling::Mean && pooled.is_none() {
            return tokens.mean(1, false);
        }
        let device = rows.device();
        // What tokens count, [texts or 1, length], if not all the same.
        let weights = match self {
            Pooling::WeightedMean => {
                Some(Tensor::arange(1, group.length as i64 + 1, 1, DType::F32, &device)?.unsqueeze(0)?)
            }
            _ => None,
        };
        let (tokens, counts) = match pooled {
            Some(Padding { mask, counts }) => {
                let mask = match self {
                    Pooling::Cls => edge(mask, -1)?,
                    Pooling::LastToken => edge(mask, 1)?,
                    _ => mask.clone(),
                };
                let other = if self == Pooling::Max { f64::NEG_INFINITY } else { 0.0 };
                let counts = match &weights {
                    Some(weights) => mask.to_dtype(DType::F32)?.mul(weights)?.sum(1, true)?,
                    None => counts.clone(),
                };
                (mask.unsqueeze(2)?.where_(&tokens, other)?, counts)
            }
            None => {
                let length = group.length as f64;
                let count = if weights.is_some() { length * (length + 1.0) / 2.0 } else { length };
                (tokens, Tensor::full([1, 1], count, DType::F32, &device)?)
            }
        };
        match self {
            Pooling::Max => tokens.amax(1, false),
            Pooling::MeanSqrtLength => tokens.sum(1, false)?.div(&counts.to_dtype(DType::F32)?.sqrt()?),
            Pooling::Cls | Pooling::LastToken => tokens.sum(1, false),
            Pooling::WeightedMean | Pooling::Mean => {
                let tokens = match weights {
                    Some(weights) => tokens.mul(&weights.unsqueeze(2)?)?,
                    None => tokens,
                };
                tokens.sum(1, false)?.div(&counts)
            }
        }
    }
}

/// Of a mask, [texts, length], those whose neighbour at this distance isn't in it: the first of each text, or the last.
fn edge(mask: &Tensor, neighbour: i64) -> raddle_tensor::Result<Tensor> {
    let (texts, length) = (mask.shape()[0], mask.shape()[1]);
    let none = Tensor::full([texts, 1], false, DType::Bool, &mask.device())?;
    let beside = match neighbour {
        1 => Tensor::cat(&[&mask.narrow(1, 1, length - 1)?, &none], 1)?,
        _ => Tensor::cat(&[&none, &mask.narrow(1, 0, length - 1)?], 1)?,
    };
    mask.gt(&beside)
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
        let counts = Tensor::from_slice(&[2i64], [1, 1], &device).unwrap();
        let padding = Some(Padding { mask, counts });
        let mut group =
            Group { first: 0, texts: 1, length: 3, pooled: padding.clone(), padding, begins_pooled: true };
        let pool = |pooling: Pooling| pooling.pool(&group, &rows).unwrap();
        let values = |tensor: Tensor| tensor.to_vec::<f32>().unwrap();
        assert_eq!(values(pool(Pooling::Mean)), [2.0, 4.0]);
        assert_eq!(values(pool(Pooling::Max)), [3.0, 6.0]);
        assert_eq!(values(pool(Pooling::Cls)), [1.0, 2.0]);
        assert_eq!(values(pool(Pooling::MeanSqrtLength)), [4.0 / 2f32.sqrt(), 8.0 / 2f32.sqrt()]);
        assert_eq!(values(pool(Pooling::WeightedMean)), [(1.0 + 2.0 * 3.0) / 3.0, (2.0 + 2.0 * 6.0) / 3.0]);
        assert_eq!(values(pool(Pooling::LastToken)), [3.0, 6.0]);
        // A prompt of one token that isn't pooled.
        let prompted = |mask: [bool; 3], count: i64| Padding {
            mask: Tensor::from_slice(&mask, [1, 3], &device).unwrap(),
            counts: Tensor::from_slice(&[count], [1, 1], &device).unwrap(),
        };
        let first = pool(Pooling::Mean);
        group.begins_pooled = false;
        for (mask, count, padding) in [([false, true, false], 1, true), ([false, true, true], 2, false)] {
            group.pooled = Some(prompted(mask, count));
            if !padding {
                group.padding = None;
            }
            let pool = |pooling: Pooling| values(pooling.pool(&group, &rows).unwrap());
            let last = if padding { [3.0, 6.0] } else { [100.0, 100.0] };
            assert_eq!(pool(Pooling::Cls), [3.0, 6.0]);
            assert_eq!(pool(Pooling::LastToken), last);
            assert_eq!(pool(Pooling::Max), last);
            let mean = if padding { [3.0, 6.0] } else { [51.5, 53.0] };
            assert_eq!(pool(Pooling::Mean), mean);
            let weighted = if padding { [3.0, 6.0] } else { [306.0 / 5.0, 312.0 / 5.0] };
            assert_eq!(pool(Pooling::WeightedMean), weighted);
        }
        let normalized = values(super::super::rows::normalize(&first).unwrap());
        assert!((normalized[0] - 0.4472136).abs() < 1e-7 && (normalized[1] - 0.8944272).abs() < 1e-7);
    }
}
