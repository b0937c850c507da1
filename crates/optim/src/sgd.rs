//! Stochastic gradient descent.

use crate::{
    Error, Group, Result,
    groups::{self, Due, Kept, Rule, Update, check_positive},
    optimizer,
};
use raddle_op::Program;
use raddle_sync::RaceOnce;
use raddle_tensor::{PointwiseGroups, Scalar, Tensor};
use std::sync::Arc;

/// The numbers of [`Sgd`], for one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// The learning rate.
    pub lr: f64,
    /// How much of the last update is kept. While it is 0 what was kept before stays.
    pub momentum: f64,
    /// How much less of the gradient goes into the momentum, from its second step on.
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

/// Stochastic gradient descent with momentum, as PyTorch's:
///
/// `g ← g + weight_decay · p`; without momentum `p ← p − lr · g`; else `b ← momentum · b + (1 − dampening) · g` (in the
/// first step with momentum `b ← g`), and `p ← p − lr · b`, or with Nesterov `p ← p − lr · (g + momentum · b)`.
///
/// Source: Sutskever, Martens, Dahl & Hinton 2013, "On the importance of initialization and momentum in deep learning".
#[derive(Debug)]
pub struct Sgd {
    groups: Vec<Group<SgdOptions>>,
}

optimizer!(Sgd, SgdOptions);

/// The update, in its forms. What has no part in one isn't in its program: 0 times an infinity is NaN.
#[derive(Clone, Copy)]
struct Form {
    /// The weight goes into the gradient.
    decays: bool,
    /// The first step of a dampened momentum, which is the gradient then. Without dampening that follows from its being zero,
    /// and the step is like all others, so that it may be captured.
    is_first: bool,
    nesterov: bool,
}

impl Form {
    const COUNT: usize = 8;

    fn index(self) -> usize {
        [self.decays, self.is_first, self.nesterov]
            .into_iter()
            .fold(0, |index, is_set| 2 * index + usize::from(is_set))
    }
}

/// Inputs p, g, b; parameters lr, decay, momentum, what of g goes into b.
fn program(form: Form) -> &'static Arc<Program> {
    static PROGRAMS: [RaceOnce<Arc<Program>>; Form::COUNT] = [const { RaceOnce::new() }; Form::COUNT];
    PROGRAMS[form.index()].get_or_init(|| {
        Arc::new(Program::record_many(|[p, g, b], [lr, decay, momentum, taken]| {
            let Form { decays, is_first, nesterov } = form;
            let g = if decays { g + decay * p } else { g };
            let b = if is_first { g } else { momentum * b + taken * g };
            [p - lr * if nesterov { g + momentum * b } else { b }, b]
        }))
    })
}

/// Without momentum: inputs p, g; parameters lr and, if there is one, the decay.
fn plain(decays: bool) -> &'static Arc<Program> {
    static PLAIN: RaceOnce<Arc<Program>> = RaceOnce::new();
    static DECAYING: RaceOnce<Arc<Program>> = RaceOnce::new();
    if decays {
        let record = || Program::record_many(|[p, g], [lr, decay]| [p - lr * (g + decay * p)]);
        DECAYING.get_or_init(|| Arc::new(record()))
    } else {
        PLAIN.get_or_init(|| Arc::new(Program::record_many(|[p, g], [lr]| [p - lr * g])))
    }
}

impl Rule for SgdOptions {
    const OP: &'static str = "sgd";
    const TENSOR_COUNT: usize = 1;
    const ALWAYS_HAS_TENSORS: bool = false;

    fn check(&self) -> Result<()> {
        let SgdOptions { lr, momentum, dampening, weight_decay, nesterov: _ } = *self;
        check_positive(Self::OP, "lr", lr)?;
        check_positive(Self::OP, "momentum", momentum)?;
        check_positive(Self::OP, "dampening", dampening)?;
        check_positive(Self::OP, "weight_decay", weight_decay)
    }

    /// The momentum, if there is one.
    fn used_tensor_count(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }

    fn hinders_capture(group: &Group<SgdOptions>) -> Option<&'static str> {
        let SgdOptions { momentum, dampening, .. } = group.options;
        let is_new = |kept: &Kept| kept.is_fresh || kept.tensors.is_empty();
        let is_first = momentum != 0.0 && dampening != 0.0 && group.kept.iter().any(is_new);
        is_first.then_some("a step to have been taken before")
    }

    fn make_numbers(_: &mut Group<SgdOptions>, _: &mut [Due]) -> Result<()> {
        Ok(())
    }

    fn before_updates<'a>(_: &'a Group<SgdOptions>, _: &'a [Due]) -> Result<Option<PointwiseGroups<'a>>> {
        Ok(None)
    }

    /// Is it the first step of a dampened momentum?
    fn key(&self, kept: &Kept) -> u64 {
        u64::from(self.momentum != 0.0 && self.dampening != 0.0 && kept.is_fresh)
    }

    fn update(&self, key: u64) -> Update {
        let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } = *self;
        let decays = weight_decay != 0.0;
        if momentum == 0.0 {
            let params = [lr, weight_decay];
            let params = &params[..if decays { 2 } else { 1 }];
            return Update {
                program: plain(decays),
                params: params.iter().copied().map(Scalar::Float).collect(),
            };
        }
        let form = Form { decays, is_first: key == 1, nesterov };
        let params = [lr, weight_decay, momentum, 1.0 - dampening];
        Update { program: program(form), params: params.map(Scalar::Float).to_vec() }
    }
}

impl Sgd {
    /// One group. Errors: an option out of range, Nesterov without momentum or with dampening, a parameter named twice or that
    /// shares memory with another.
    pub fn new(parameters: Vec<Tensor>, options: SgdOptions) -> Result<Sgd> {
        Sgd::with_groups(vec![Group::new(parameters, options)])
    }

    /// Several groups, each with options of its own. Errors: as of [`new`](Sgd::new).
    pub fn with_groups(groups: Vec<Group<SgdOptions>>) -> Result<Sgd> {
        groups::check(&groups)?;
        for SgdOptions { momentum, dampening, nesterov, .. } in groups.iter().map(|group| group.options) {
            let op = SgdOptions::OP;
            if nesterov && momentum == 0.0 {
                let (what, expected) = ("momentum", "above 0 for Nesterov");
                return Err(Error::Option { op, what, expected, found: momentum });
            }
            if nesterov && dampening != 0.0 {
                let (what, expected) = ("dampening", "0 for Nesterov");
                return Err(Error::Option { op, what, expected, found: dampening });
            }
        }
        Ok(Sgd { groups })
    }

    /// Changes every parameter that has a gradient, in place. Doesn't wait for the device. It can be captured; the options
    /// are constants then.
    ///
    /// Errors, with nothing changed: an option has been set out of range; a gradient shares memory with another parameter; a first
    /// step with dampening is captured, since it isn't like those that follow.
    pub fn step(&mut self) -> Result<()> {
        groups::step(&mut self.groups)
    }
}
