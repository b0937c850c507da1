//! Encoders that compute as BERT does, and differ in names and tables.

use super::{Result, settings::Settings};

/// Which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Devlin et al. 2018.
    Bert,
    /// Liu et al. 2019, with XLM-RoBERTa and CamemBERT: texts stand behind the position of the padding token, which has that one
    /// wherever it stands in a text.
    Roberta,
    /// Sanh et al. 2019: there are no types of tokens.
    DistilBert,
    /// Song et al. 2020: no types of tokens, positions as RoBERTa has them, and a bias by distance in attention's scores.
    MpNet,
    /// Clark et al. 2020: tables may have a width of their own, with a linear map behind them.
    Electra,
}

/// What `config.json` calls the sizes.
pub struct Keys {
    pub hidden: &'static str,
    pub layers: &'static str,
    pub heads: &'static str,
    pub inner: &'static str,
    pub activation: &'static str,
}

/// What files call a layer's parameters.
pub struct Names {
    pub layers: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub attention_output: &'static str,
    pub attention_norm: &'static str,
    pub inner: &'static str,
    pub output: &'static str,
    pub norm: &'static str,
}

const KEYS: Keys = Keys {
    hidden: "hidden_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    inner: "intermediate_size",
    activation: "hidden_act",
};
const DISTIL_KEYS: Keys = Keys {
    hidden: "dim",
    layers: "n_layers",
    heads: "n_heads",
    inner: "hidden_dim",
    activation: "activation",
};

const NAMES: Names = Names {
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    attention_output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    inner: "intermediate.dense",
    output: "output.dense",
    norm: "output.LayerNorm",
};
const DISTIL_NAMES: Names = Names {
    layers: "transformer.layer",
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    attention_output: "attention.out_lin",
    attention_norm: "sa_layer_norm",
    inner: "ffn.lin1",
    output: "ffn.lin2",
    norm: "output_layer_norm",
};

const MPNET_NAMES: Names = Names {
    query: "attention.attn.q",
    key: "attention.attn.k",
    value: "attention.attn.v",
    attention_output: "attention.attn.o",
    attention_norm: "attention.LayerNorm",
    ..NAMES
};

/// What `config.json` may say.
const KNOWN: &str = "bert, roberta, xlm-roberta, camembert, distilbert, mpnet or electra";

/// Fields that change what a model of any family computes, and that this crate doesn't know: what each has to be, if it is
/// there, and why. All other fields of the reference's classes (`PreTrainedConfig` of transformers 5.24 and 4, and those of
/// the families) are read, or say how to train, generate or store. `crates/nn/tests/it/settings.rs` has the list.
const FIXED: [(&str, Value, &str); 8] = [
    ("position_embedding_type", Value::Text("absolute"), "absolute"),
    ("is_decoder", Value::False, "false: tokens see all tokens of a text, and not only those before them"),
    ("add_cross_attention", Value::False, "false: there is one text to look at"),
    ("is_encoder_decoder", Value::False, "false: there is no decoder"),
    ("pruned_heads", Value::Empty, "none: heads share the width evenly"),
    ("per_layer_config", Value::Empty, "none: layers are alike"),
    ("quantization_config", Value::Empty, "none: weights are floats"),
    ("compression_config", Value::Empty, "none: weights are floats"),
];

/// What a field has to be.
enum Value {
    Text(&'static str),
    False,
    /// An object without entries, or a list.
    Empty,
}

/// Errors: a model that computes otherwise.
pub(super) fn check_fixed(settings: &Settings) -> Result<()> {
    for (key, value, expected) in FIXED {
        let found = settings.get(key);
        let agrees = found.is_null()
            || match value {
                Value::Text(text) => found == text,
                Value::False => found == false,
                Value::Empty => {
                    found.as_object().is_some_and(|object| object.is_empty())
                        || found.as_array().is_some_and(|list| list.is_empty())
                }
            };
        if !agrees {
            return Err(settings.wrong(key, expected));
        }
    }
    Ok(())
}

/// Positions of RoBERTa's before those of texts: its padding is token 1, at position 1.
const ROBERTA_UNUSED: usize = 2;

impl Family {
    /// Of a `config.json`.
    pub(super) fn read(settings: &Settings) -> Result<Family> {
        match settings.text("model_type")? {
            "bert" => Ok(Family::Bert),
            "roberta" | "xlm-roberta" | "camembert" => Ok(Family::Roberta),
            "distilbert" => Ok(Family::DistilBert),
            "mpnet" => Ok(Family::MpNet),
            "electra" => Ok(Family::Electra),
            _ => Err(settings.wrong("model_type", KNOWN)),
        }
    }

    pub(super) fn keys(self) -> &'static Keys {
        if self == Family::DistilBert { &DISTIL_KEYS } else { &KEYS }
    }

    pub(super) fn names(self) -> &'static Names {
        match self {
            Family::Bert | Family::Roberta | Family::Electra => &NAMES,
            Family::DistilBert => &DISTIL_NAMES,
            Family::MpNet => &MPNET_NAMES,
        }
    }

    pub(super) fn has_types(self) -> bool {
        matches!(self, Family::Bert | Family::Roberta | Family::Electra)
    }

    /// Do scores have a bias by distance?
    pub(super) fn has_bias(self) -> bool {
        self == Family::MpNet
    }

    /// Rows at the start of the table of positions that no token has but padding, which has the last of them.
    pub(super) fn unused(self) -> usize {
        if matches!(self, Family::Roberta | Family::MpNet) { ROBERTA_UNUSED } else { 0 }
    }

    /// [`unused`](Family::unused), after a look whether the file agrees.
    pub(super) fn unused_positions(self, settings: &Settings) -> Result<usize> {
        let agrees = settings
            .count_if_there("pad_token_id", 0..=usize::MAX)?
            .is_none_or(|pad| pad == ROBERTA_UNUSED - 1);
        // MPNet's is 1 whatever its file says.
        if self == Family::Roberta && !agrees {
            return Err(settings.wrong("pad_token_id", "1"));
        }
        Ok(self.unused())
    }
}
