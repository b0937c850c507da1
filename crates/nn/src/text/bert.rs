//! The encoder (Devlin et al. 2018): embeddings, then layers of attention and of a network of two linear maps, each with a
//! residual and a normalization.
//!
//! Done once at loading, so that a pass has fewer and larger launches: the maps to queries, keys and values are one, with
//! the scale of the scores `1 / √d` in it; the tables of positions and of token types are one; weights lie as products
//! read them (see [`as_multiplied`]).

use super::{
    Result,
    activation::ActivationKind,
    batch::{Batch, Group, Places},
    family::{Family, Names, check_fixed},
    relative,
    settings::Settings,
    weights::Weights,
};
use crate::{LayerNorm, Linear, Module};
use raddle_tensor::{DType, Tensor};
use serde_json::{Value, json};

/// The sizes of a BERT encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct BertConfig {
    /// Whose names and tables its files have.
    pub family: Family,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Width of a token.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of attention; they share the width evenly.
    pub heads: usize,
    /// Width between a layer's two linear maps.
    pub inner: usize,
    /// The most tokens of a text.
    pub positions: usize,
    /// Kinds of tokens: first and second text of a pair.
    pub types: usize,
    /// Added to the variance in normalizations.
    pub eps: f64,
    /// Between a layer's two linear maps.
    pub activation: ActivationKind,
    /// Width of the tables, if it isn't that of a token: ELECTRA's.
    pub embedding: Option<usize>,
}

/// Larger sizes are taken for a broken file; products of two must not overflow.
pub(super) const SIZE_MAX: usize = 1 << 24;
/// What files that don't say mean.
const EPS: f64 = 1e-12;
/// The table of positions and types is so many times as large as the one of positions in the file.
const TYPES_MAX: usize = 16;

impl BertConfig {
    /// Small sizes for tests: 2 layers of 2 heads, width 32, at most 64 tokens.
    pub fn tiny(vocabulary: usize) -> BertConfig {
        BertConfig {
            family: Family::Bert,
            vocabulary,
            hidden: 32,
            layers: 2,
            heads: 2,
            inner: 64,
            positions: 64,
            types: 2,
            eps: 1e-12,
            activation: ActivationKind::Gelu,
            embedding: None,
        }
    }

    /// Of a `config.json`.
    pub(super) fn read(settings: &Settings) -> Result<BertConfig> {
        let family = Family::read(settings)?;
        check_fixed(settings)?;
        let keys = family.keys();
        let size = |key| settings.count(key, 1..=SIZE_MAX);
        let positions = size("max_position_embeddings")?;
        let unused = family.unused_positions(settings)?;
        if positions <= unused {
            return Err(settings.wrong("max_position_embeddings", format!("more than {unused}")));
        }
        let config = BertConfig {
            family,
            vocabulary: size("vocab_size")?,
            hidden: size(keys.hidden)?,
            layers: size(keys.layers)?,
            heads: size(keys.heads)?,
            inner: size(keys.inner)?,
            positions: positions - unused,
            types: match family.has_types() {
                true => settings.count_if_there("type_vocab_size", 1..=TYPES_MAX)?.unwrap_or(2),
                false => 2,
            },
            eps: match family {
                Family::DistilBert => EPS,
                _ => settings.number_if_there("layer_norm_eps")?.unwrap_or(EPS),
            },
            activation: ActivationKind::read(settings, keys.activation)?,
            embedding: match family {
                Family::Electra => settings.count_if_there("embedding_size", 1..=SIZE_MAX)?.or(Some(128)),
                _ => None,
            },
        };
        if !config.hidden.is_multiple_of(config.heads) {
            let expected = format!("a divisor of {}, which is {}", keys.hidden, config.hidden);
            return Err(settings.wrong(keys.heads, expected));
        }
        if family.has_bias() {
            relative::check(settings, config.heads, config.positions)?;
        }
        Ok(config)
    }

    /// Width of the tables.
    pub(super) fn embedding(&self) -> usize {
        self.embedding.unwrap_or(self.hidden)
    }

    /// The table of positions.
    pub(super) fn places(&self) -> Places {
        match self.family.unused() {
            0 => Places { rows: self.positions, padding: None },
            unused => Places { rows: self.positions + 1, padding: Some(unused as u32 - 1) },
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "architectures": ["BertModel"], "model_type": "bert", "position_embedding_type": "absolute",
            "vocab_size": self.vocabulary, "hidden_size": self.hidden, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "intermediate_size": self.inner,
            "max_position_embeddings": self.positions, "type_vocab_size": self.types, "layer_norm_eps": self.eps,
            "hidden_act": self.activation.name()
        })
    }

    /// The names and shapes of all parameters, with a pooler, a head of one label and that of a masked language model.
    pub(super) fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inner) = (self.hidden, self.inner);
        let mut all = Vec::new();
        let linear = |all: &mut Vec<_>, name: &str, outputs: usize, inputs: usize| {
            all.push((format!("{name}.weight"), vec![outputs, inputs]));
            all.push((format!("{name}.bias"), vec![outputs]));
        };
        let norm = |all: &mut Vec<_>, name: &str| {
            all.push((format!("{name}.LayerNorm.weight"), vec![hidden]));
            all.push((format!("{name}.LayerNorm.bias"), vec![hidden]));
        };
        let tables = [("word", self.vocabulary), ("position", self.positions), ("token_type", self.types)];
        all.extend(
            tables.map(|(name, rows)| {
                (format!("bert.embeddings.{name}_embeddings.weight"), vec![rows, hidden])
            }),
        );
        norm(&mut all, "bert.embeddings");
        for layer in 0..self.layers {
            let name = format!("bert.encoder.layer.{layer}");
            for part in ["query", "key", "value"] {
                linear(&mut all, &format!("{name}.attention.self.{part}"), hidden, hidden);
            }
            linear(&mut all, &format!("{name}.attention.output.dense"), hidden, hidden);
            norm(&mut all, &format!("{name}.attention.output"));
            linear(&mut all, &format!("{name}.intermediate.dense"), inner, hidden);
            linear(&mut all, &format!("{name}.output.dense"), hidden, inner);
            norm(&mut all, &format!("{name}.output"));
        }
        linear(&mut all, "bert.pooler.dense", hidden, hidden);
        linear(&mut all, "classifier", 1, hidden);
        linear(&mut all, "cls.predictions.transform.dense", hidden, hidden);
        norm(&mut all, "cls.predictions.transform");
        all.push(("cls.predictions.bias".into(), vec![self.vocabulary]));
        all
    }
}

/// A layer's parameters.
struct Layer {
    /// Queries, keys and values, [3 · hidden, hidden].
    attention: Linear,
    attention_output: Linear,
    attention_norm: LayerNorm,
    inner: Linear,
    output: Linear,
    norm: LayerNorm,
}

/// The encoder.
pub struct Bert {
    pub config: BertConfig,
    /// [vocabulary, width of the tables].
    pub words: Tensor,
    /// [types · rows of [`Places`], width of the tables].
    places: Tensor,
    norm: LayerNorm,
    /// From the width of the tables to that of a token.
    widen: Option<Linear>,
    layers: Vec<Layer>,
    /// Added to scores, [1, heads, positions, positions].
    bias: Option<Tensor>,
}

impl Bert {
    /// Takes the encoder's parameters out of a file, converted to `dtype`, for texts padded to a multiple of `pad_to`.
    pub fn take(config: BertConfig, weights: &Weights, dtype: DType, pad_to: usize) -> Result<Bert> {
        let width = config.embedding();
        let words =
            weights.take("embeddings.word_embeddings.weight", &[Some(config.vocabulary), Some(width)])?;
        let positions = weights.take("embeddings.position_embeddings.weight", &[None, Some(width)])?;
        let unused = positions.shape()[0].saturating_sub(config.positions);
        if unused != config.family.unused() || positions.shape()[0] < config.positions {
            let expected = config.positions + config.family.unused();
            return Err(weights.wrong_shape(
                "embeddings.position_embeddings.weight",
                &positions,
                &[expected, width],
            ));
        }
        let rows = config.places().rows;
        let positions = positions.narrow(0, positions.shape()[0] - rows, rows)?;
        let types = match config.family.has_types() {
            true => {
                weights.take("embeddings.token_type_embeddings.weight", &[Some(config.types), Some(width)])?
            }
            false => Tensor::zeros([config.types, width], DType::F32, &positions.device())?,
        };
        let places = types.unsqueeze(1)?.add(&positions)?.reshape([config.types * rows, width])?;
        let names = config.family.names();
        let norm = take_norm(weights, "embeddings.LayerNorm", width, config.eps, dtype)?;
        let widen = (width != config.hidden)
            .then(|| take_linear(weights, "embeddings_project", [config.hidden, width], dtype))
            .transpose()?;
        let layer = |layer| Layer::take(&format!("{}.{layer}", names.layers), names, &config, weights, dtype);
        let layers = (0..config.layers).map(layer).collect::<Result<_>>()?;
        let padded = config.positions.next_multiple_of(pad_to);
        let bias =
            config.family.has_bias().then(|| relative::take(weights, config.heads, padded)).transpose()?;
        Ok(Bert {
            words: words.to_dtype(dtype)?,
            places: places.to_dtype(dtype)?,
            norm,
            widen,
            layers,
            bias,
            config,
        })
    }

    /// The last layer's output for each row of a batch, [rows, hidden].
    pub fn forward(&self, batch: &Batch) -> raddle_tensor::Result<Tensor> {
        let embedded = self.words.embedding(&batch.ids)?;
        let mut x = self.norm.forward_with_residual(&embedded, &self.places.embedding(&batch.places)?)?;
        if let Some(widen) = &self.widen {
            x = widen.forward(&x)?;
        }
        let masks = batch.groups.iter().map(|group| self.mask(group));
        let masks = masks.collect::<raddle_tensor::Result<Vec<_>>>()?;
        for layer in &self.layers {
            let attended =
                layer.attention_output.forward(&layer.attend(&x, batch, &masks, self.config.heads)?)?;
            x = layer.attention_norm.forward_with_residual(&attended, &x)?;
            let inner = self.config.activation.behind(&layer.inner, &x)?;
            x = layer.norm.forward_with_residual(&layer.output.forward(&inner)?, &x)?;
        }
        Ok(x)
    }

    /// What is done to attention's scores of a group: bools, or floats to be added.
    fn mask(&self, group: &Group) -> raddle_tensor::Result<Option<Tensor>> {
        let Some(bias) = &self.bias else { return group.scores_mask() };
        let bias = bias.narrow(2, 0, group.length)?.narrow(3, 0, group.length)?;
        match group.scores_mask()? {
            Some(mask) => Ok(Some(mask.where_(&bias, f64::NEG_INFINITY)?)),
            None => Ok(Some(bias)),
        }
    }
}

impl Layer {
    fn take(
        name: &str,
        names: &Names,
        config: &BertConfig,
        weights: &Weights,
        dtype: DType,
    ) -> Result<Layer> {
        let hidden = config.hidden;
        let scale = ((hidden / config.heads) as f64).sqrt().recip();
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for (part, scale) in [(names.query, scale), (names.key, 1.0), (names.value, 1.0)] {
            let part = take_linear(weights, &format!("{name}.{part}"), [hidden, hidden], DType::F32)?;
            weight.push(part.weight.mul(scale)?);
            bias.extend(part.bias.map(|bias| bias.mul(scale)).transpose()?);
        }
        let joined = |parts: &[Tensor]| Tensor::cat(parts, 0)?.to_dtype(dtype);
        let norm = |part: &str| take_norm(weights, &format!("{name}.{part}"), hidden, config.eps, dtype);
        let linear = |part: &str, shape| take_linear(weights, &format!("{name}.{part}"), shape, dtype);
        Ok(Layer {
            attention: Linear { weight: as_multiplied(&joined(&weight)?)?, bias: Some(joined(&bias)?) },
            attention_output: linear(names.attention_output, [hidden, hidden])?,
            inner: linear(names.inner, [config.inner, hidden])?,
            output: linear(names.output, [hidden, config.inner])?,
            attention_norm: norm(names.attention_norm)?,
            norm: norm(names.norm)?,
        })
    }

    /// What each row's heads gather from the rows of its text, [rows, hidden].
    fn attend(
        &self,
        x: &Tensor,
        batch: &Batch,
        masks: &[Option<Tensor>],
        heads: usize,
    ) -> raddle_tensor::Result<Tensor> {
        let projected = self.attention.forward(x)?;
        let gathered = x.empty_like()?;
        for (group, mask) in batch.groups.iter().zip(masks) {
            let Group { texts, length, .. } = *group;
            let width = x.shape()[1] / heads;
            let parts =
                group.rows(&projected)?.view([texts, length, 3, heads, width])?.permute([2, 0, 3, 1, 4])?;
            let [query, key, value] = [0, 1, 2].map(|part| parts.select(0, part));
            let to = group.rows(&gathered)?.view([texts, length, heads, width])?.transpose(1, 2)?;
            // The scale is in the weights already.
            let (mask, scale) = (mask.as_ref(), Some(1.0));
            query?.scaled_dot_product_attention_out(&key?, &value?, mask, false, scale, &to)?;
        }
        Ok(gathered)
    }
}

/// The same matrix, the outputs of one input side by side. On the CPU products of few rows spent more on bringing weights to
/// this form than on multiplying.
pub(super) fn as_multiplied(weight: &Tensor) -> raddle_tensor::Result<Tensor> {
    weight.t()?.contiguous()?.t()
}

/// The linear map of this name, of shape [outputs, inputs].
pub fn take_linear(weights: &Weights, name: &str, shape: [usize; 2], dtype: DType) -> Result<Linear> {
    let weight = weights.take(&format!("{name}.weight"), &shape.map(Some))?.to_dtype(dtype)?;
    let weight = as_multiplied(&weight)?;
    let bias = weights.take(&format!("{name}.bias"), &[Some(shape[0])])?.to_dtype(dtype)?;
    Ok(Linear { weight, bias: Some(bias) })
}

/// The normalization of this name.
pub(super) fn take_norm(
    weights: &Weights,
    name: &str,
    width: usize,
    eps: f64,
    dtype: DType,
) -> Result<LayerNorm> {
    let part = |part: &str| -> Result<Tensor> {
        Ok(weights.take(&format!("{name}.{part}"), &[Some(width)])?.to_dtype(dtype)?)
    };
    Ok(LayerNorm { weight: part("weight")?, bias: part("bias")?, eps })
}
