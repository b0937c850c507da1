//! Functions behind linear maps, by the names that files have for them.

use super::{Result, settings::Settings};
use crate::{Linear, Module};
use raddle_sync::RaceOnce;
use raddle_tensor::{Activation, Fused, Tensor, fused};

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// The element itself.
    Identity,
    /// max(x, 0).
    Relu,
    /// x · Φ(x), Φ the distribution of the standard normal.
    Gelu,
    /// Gelu by tanh: x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
    GeluTanh,
    /// x · sigmoid(1.702 x).
    QuickGelu,
    /// x · sigmoid(x).
    Silu,
    /// x · tanh(ln(1 + eˣ)).
    Mish,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
}

use ActivationKind::*;

/// As `config.json` of transformers calls them. Those by tanh differ in how they round.
const NAMES: [(&str, ActivationKind); 15] = [
    ("gelu", Gelu),
    ("gelu_python", Gelu),
    ("gelu_new", GeluTanh),
    ("gelu_fast", GeluTanh),
    ("gelu_accurate", GeluTanh),
    ("gelu_pytorch_tanh", GeluTanh),
    ("gelu_python_tanh", GeluTanh),
    ("quick_gelu", QuickGelu),
    ("relu", Relu),
    ("silu", Silu),
    ("swish", Silu),
    ("mish", Mish),
    ("tanh", Tanh),
    ("sigmoid", Sigmoid),
    ("linear", Identity),
];

/// PyTorch's modules, by the last part of their names: with the options that they have without any.
const MODULES: [(&str, ActivationKind); 7] = [
    ("Identity", Identity),
    ("Tanh", Tanh),
    ("ReLU", Relu),
    ("GELU", Gelu),
    ("Sigmoid", Sigmoid),
    ("SiLU", Silu),
    ("Mish", Mish),
];

impl ActivationKind {
    /// Of a `config.json`; without the key it is gelu, as in all families.
    pub(super) fn read(settings: &Settings, key: &'static str) -> Result<ActivationKind> {
        let name = settings.text_if_there(key)?.unwrap_or("gelu");
        find(&NAMES, name).ok_or_else(|| settings.wrong(key, one_of(&NAMES)))
    }

    /// Of a linear map of sentence-transformers. Without a name it is tanh. Others than PyTorch's aren't trusted there, and
    /// silently tanh: they are errors here.
    pub(super) fn read_module(settings: &Settings) -> Result<ActivationKind> {
        let key = "activation_function";
        let Some(name) = settings.text_if_there(key)? else { return Ok(Tanh) };
        let name = name.strip_prefix("torch.nn.").and_then(|name| name.rsplit('.').next());
        let known = name.and_then(|name| find(&MODULES, name));
        known.ok_or_else(|| settings.wrong(key, format!("{} of torch.nn", one_of(&MODULES))))
    }

    /// The first name for it in a `config.json`.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The function of a linear map of x.
    pub(super) fn behind(self, linear: &Linear, x: &Tensor) -> raddle_tensor::Result<Tensor> {
        static MISH: RaceOnce<Fused> = RaceOnce::new();
        static QUICK_GELU: RaceOnce<Fused> = RaceOnce::new();
        let with = |activation| x.linear_with(&linear.weight, linear.bias.as_ref(), activation);
        match self {
            Identity => linear.forward(x),
            Relu => with(Activation::Relu),
            Gelu => with(Activation::Gelu),
            GeluTanh => linear.forward(x)?.gelu_tanh(),
            Silu => linear.forward(x)?.silu(),
            Tanh => linear.forward(x)?.tanh(),
            Sigmoid => linear.forward(x)?.sigmoid(),
            Mish => {
                let mish = MISH.get_or_init(|| fused(|[x]| x * x.softplus(1.0, 20.0).tanh()));
                mish.call(&[&linear.forward(x)?])
            }
            QuickGelu => {
                let gelu = QUICK_GELU.get_or_init(|| fused(|[x]| x * (1.702 * x).sigmoid()));
                gelu.call(&[&linear.forward(x)?])
            }
        }
    }
}

fn find(known: &[(&str, ActivationKind)], name: &str) -> Option<ActivationKind> {
    known.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

fn one_of(known: &[(&str, ActivationKind)]) -> String {
    format!("one of {}", known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
}
