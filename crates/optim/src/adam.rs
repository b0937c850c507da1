//! Adam and AdamW.

use crate::{
    Group, Result,
    groups::{self, Launch, check_decay, check_positive, check_unique},
    optimizer,
};
use raddle_op::Program;
use raddle_tensor::{Scalar, Tensor};
use std::sync::{Arc, LazyLock};

/// The numbers of [`Adam`], for one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// The learning rate.
    pub lr: f64,
    /// How much of the first moment is kept, below 1.
    pub beta1: f64,
    /// How much of the second moment is kept, below 1.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// The weight decay.
    pub weight_decay: f64,
    /// Decay the weights directly (AdamW) rather than by the gradient.
    pub decoupled: bool,
}

impl Default for AdamOptions {
    /// PyTorch's numbers for Adam.
    fn default() -> AdamOptions {
        AdamOptions { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

impl AdamOptions {
    /// PyTorch's numbers for AdamW.
    pub fn adamw() -> AdamOptions {
        AdamOptions { weight_decay: 0.01, decoupled: true, ..AdamOptions::default() }
    }

    /// The two moments.
    pub(crate) fn state_tensor_count(&self) -> usize {
        2
    }
}

/// Adam, as PyTorch's. In step t (from 1):
///
/// `g ← g + weight_decay · p` (AdamW: `p ← p − lr · weight_decay · p`);
/// `m ← β₁ m + (1 − β₁) g`; `v ← β₂ v + (1 − β₂) g²`;
/// `p ← p − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + eps)`.
///
/// Sources: Kingma & Ba 2015, "Adam: a method for stochastic optimization"; Loshchilov & Hutter 2019, "Decoupled weight
/// decay regularization".
#[derive(Debug)]
pub struct Adam {
    groups: Vec<Group<AdamOptions>>,
}

optimizer!(Adam, AdamOptions);

/// Inputs p, g, m, v; parameters β₁, 1 − β₁, β₂, 1 − β₂, the step's size, 1 / √(1 − β₂ᵗ), eps, and the decay: what is left of
/// the weight (AdamW), or what of it goes into the gradient.
fn program(decoupled: bool) -> &'static Arc<Program> {
    static PROGRAMS: LazyLock<[Arc<Program>; 2]> = LazyLock::new(|| {
        [false, true].map(|decoupled| {
            Arc::new(Program::record_many(
                |[p, g, m, v], [keep_m, take_m, keep_v, take_v, size, root, eps, decay]| {
                    let (p, g) = if decoupled { (p * decay, g) } else { (p, g + decay * p) };
                    let m = keep_m * m + take_m * g;
                    let v = keep_v * v + take_v * (g * g);
                    [p - size * m / (v.sqrt() * root + eps), m, v]
                },
            ))
        })
    });
    &PROGRAMS[usize::from(decoupled)]
}

impl Adam {
    /// One group. Errors: an option out of range, a parameter that is named twice.
    pub fn new(parameters: Vec<Tensor>, options: AdamOptions) -> Result<Adam> {
        Adam::with_groups(vec![Group::new(parameters, options)])
    }

    /// Several groups, each with options of its own.
    pub fn with_groups(groups: Vec<Group<AdamOptions>>) -> Result<Adam> {
        let op = "adam";
        for group in &groups {
            let AdamOptions { lr, beta1, beta2, eps, weight_decay, .. } = group.options;
            check_positive(op, "lr", lr)?;
            check_decay(op, "beta1", beta1)?;
            check_decay(op, "beta2", beta2)?;
            check_positive(op, "eps", eps)?;
            check_positive(op, "weight_decay", weight_decay)?;
        }
        check_unique(op, &groups)?;
        Ok(Adam { groups })
    }

    /// Changes every parameter that has a gradient, in place. Doesn't wait for the device.
    pub fn step(&mut self) -> Result<()> {
        let launch = |options: &AdamOptions, step: u64| {
            let AdamOptions { lr, beta1, beta2, eps, weight_decay, decoupled } = *options;
            let t = step as f64;
            let size = lr / (1.0 - beta1.powf(t));
            let root = 1.0 / (1.0 - beta2.powf(t)).sqrt();
            let decay = if decoupled { 1.0 - lr * weight_decay } else { weight_decay };
            let params = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, size, root, eps, decay];
            Launch { program: program(decoupled), params: params.map(Scalar::Float).to_vec() }
        };
        self.groups
            .iter_mut()
            .try_for_each(|group| groups::step("adam", group, group.options.state_tensor_count(), launch))
    }
}
