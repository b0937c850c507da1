//! Stochastic gradient descent.

use crate::{
    Error, Group, ParameterState, Result,
    groups::{self, Launch, check_positive, check_unique},
    optimizer,
};
use raddle_op::Program;
use raddle_tensor::{Scalar, Tensor};
use std::sync::{Arc, LazyLock};

/// The numbers of [`Sgd`], for one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// The learning rate.
    pub lr: f64,
    /// How much of the last update is kept.
    pub momentum: f64,
    /// How much less of the gradient goes into the momentum, from the second step on.
    pub dampening: f64,
    /// The weight decay.
    pub weight_decay: f64,
    /// Look ahead by the momentum.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    /// Plain descent with PyTorch's rate.
    fn default() -> SgdOptions {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

impl SgdOptions {
    /// The momentum, if there is one.
    pub(crate) fn state_tensor_count(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }
}

/// Stochastic gradient descent with momentum, as PyTorch's:
///
/// `g ← g + weight_decay · p`; without momentum `p ← p − lr · g`; else `b ← momentum · b + (1 − dampening) · g` (in the
/// first step `b ← g`), and `p ← p − lr · b`, or with Nesterov `p ← p − lr · (g + momentum · b)`.
///
/// Source: Sutskever, Martens, Dahl & Hinton 2013, "On the importance of initialization and momentum in deep learning".
#[derive(Debug)]
pub struct Sgd {
    groups: Vec<Group<SgdOptions>>,
}

optimizer!(Sgd, SgdOptions);

/// Inputs p, g, b; parameters lr, decay, momentum, what of g goes into b, and how much of g and of b moves p.
static PROGRAM: LazyLock<Arc<Program>> = LazyLock::new(|| {
    Arc::new(Program::record_many(|[p, g, b], [lr, decay, momentum, taken, of_g, of_b]| {
        let g = g + decay * p;
        let b = momentum * b + taken * g;
        [p - lr * (of_g * g + of_b * b), b]
    }))
});

/// Inputs p, g; parameters lr, decay.
static PLAIN: LazyLock<Arc<Program>> =
    LazyLock::new(|| Arc::new(Program::record_many(|[p, g], [lr, decay]| [p - lr * (g + decay * p)])));

impl Sgd {
    /// One group. Errors: an option out of range, Nesterov without momentum or with dampening, a parameter named twice.
    pub fn new(parameters: Vec<Tensor>, options: SgdOptions) -> Result<Sgd> {
        Sgd::with_groups(vec![Group::new(parameters, options)])
    }

    /// Several groups, each with options of its own.
    pub fn with_groups(groups: Vec<Group<SgdOptions>>) -> Result<Sgd> {
        let op = "sgd";
        for group in &groups {
            let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } = group.options;
            check_positive(op, "lr", lr)?;
            check_positive(op, "momentum", momentum)?;
            check_positive(op, "dampening", dampening)?;
            check_positive(op, "weight_decay", weight_decay)?;
            if nesterov && momentum == 0.0 {
                let (what, expected) = ("momentum", "above 0 for Nesterov");
                return Err(Error::Option { op, what, expected, found: momentum });
            }
            if nesterov && dampening != 0.0 {
                let (what, expected) = ("dampening", "0 for Nesterov");
                return Err(Error::Option { op, what, expected, found: dampening });
            }
        }
        check_unique(op, &groups)?;
        Ok(Sgd { groups })
    }

    /// Changes every parameter that has a gradient, in place. Doesn't wait for the device. It can be captured; the options
    /// are constants then. Errors: a first step with dampening is captured, since it isn't like those that follow.
    pub fn step(&mut self) -> Result<()> {
        let launch = |options: &SgdOptions, step: u64| {
            let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } = *options;
            if momentum == 0.0 {
                return Launch { program: &PLAIN, params: [lr, weight_decay].map(Scalar::Float).to_vec() };
            }
            // The momentum starts as the gradient: it is zero then, and nothing is dampened.
            let taken = if step == 1 { 1.0 } else { 1.0 - dampening };
            let (of_g, of_b) = if nesterov { (1.0, momentum) } else { (0.0, 1.0) };
            let params = [lr, weight_decay, momentum, taken, of_g, of_b];
            Launch { program: &PROGRAM, params: params.map(Scalar::Float).to_vec() }
        };
        self.groups.iter_mut().try_for_each(|group| {
            let SgdOptions { momentum, dampening, .. } = group.options;
            let is_new = |state: &ParameterState| state.step == 0 || state.tensors.is_empty();
            let is_first = momentum != 0.0 && dampening != 0.0 && group.states.iter().any(is_new);
            if is_first && groups::is_capturing(group) {
                return Err(groups::not_capturable("sgd", group, "a step to have been taken before"));
            }
            groups::step("sgd", group, group.options.state_tensor_count(), launch)
        })
    }
}
