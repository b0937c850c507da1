//! Adam and AdamW.

use crate::{
    Group, Result,
    groups::{self, Due, Kept, Rule, Update, check_decay, check_positive},
    optimizer,
};
use raddle_op::{Expr, Program, ProgramRef};
use raddle_sync::RaceOnce;
use raddle_tensor::{DType, PointwiseGroups, Scalar, Tensor, uncaptured};
use std::sync::Arc;

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
    /// Count steps on the device, so that a captured step goes on counting when it is replayed. It costs a small launch a
    /// step. The other options are constants of a capture.
    pub capturable: bool,
}

impl Default for AdamOptions {
    /// PyTorch's numbers for Adam.
    fn default() -> AdamOptions {
        AdamOptions {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            capturable: false,
        }
    }
}

impl AdamOptions {
    /// PyTorch's numbers for AdamW.
    pub fn adamw() -> AdamOptions {
        AdamOptions { weight_decay: 0.01, decoupled: true, ..AdamOptions::default() }
    }
}

/// Adam, as PyTorch's. In step t (from 1):
///
/// `g ← g + weight_decay · p` if that isn't 0 (AdamW: `p ← p − lr · weight_decay · p`);
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

/// What becomes of the weight decay.
#[derive(Clone, Copy)]
enum Decay {
    /// There is none: the weight has no part in its gradient, not even its infinity.
    None,
    /// So much of the weight goes into the gradient.
    OfGradient,
    /// So much of the weight is left (AdamW).
    OfWeight,
}

impl Decay {
    /// With its number.
    fn of(options: &AdamOptions) -> (Decay, f64) {
        let AdamOptions { lr, weight_decay, decoupled, .. } = *options;
        match (weight_decay == 0.0, decoupled) {
            (true, _) => (Decay::None, 0.0),
            (_, true) => (Decay::OfWeight, 1.0 - lr * weight_decay),
            (_, false) => (Decay::OfGradient, weight_decay),
        }
    }

    fn apply<'p>(self, p: Expr<'p>, g: Expr<'p>, decay: Expr<'p>) -> (Expr<'p>, Expr<'p>) {
        match self {
            Decay::None => (p, g),
            Decay::OfGradient => (p, g + decay * p),
            Decay::OfWeight => (p * decay, g),
        }
    }
}

/// Of each kind, by its number.
const DECAYS: [Decay; 3] = [Decay::None, Decay::OfGradient, Decay::OfWeight];

/// Inputs p, g, m, v; parameters β₁, 1 − β₁, β₂, 1 − β₂, the step's size, 1 / √(1 − β₂ᵗ), eps, and the decay.
fn program(decay: Decay) -> &'static Arc<Program> {
    static PROGRAMS: RaceOnce<[Arc<Program>; 3]> = RaceOnce::new();
    let programs = PROGRAMS.get_or_init(|| {
        DECAYS.map(|kind| {
            Arc::new(Program::record_many(
                |[p, g, m, v], [keep_m, take_m, keep_v, take_v, size, root, eps, decay]| {
                    let (p, g) = kind.apply(p, g, decay);
                    let m = keep_m * m + take_m * g;
                    let v = keep_v * v + take_v * (g * g);
                    [p - size * m / (v.sqrt() * root + eps), m, v]
                },
            ))
        })
    });
    &programs[decay as usize]
}

/// The same with the two numbers that change from step to step as inputs: p, g, m, v, the step's size, 1 / √(1 − β₂ᵗ).
fn capturable_program(decay: Decay) -> &'static Arc<Program> {
    static PROGRAMS: RaceOnce<[Arc<Program>; 3]> = RaceOnce::new();
    let programs = PROGRAMS.get_or_init(|| {
        DECAYS.map(|kind| {
            Arc::new(Program::record_many(
                |[p, g, m, v, size, root], [keep_m, take_m, keep_v, take_v, eps, decay]| {
                    let (p, g) = kind.apply(p, g, decay);
                    let m = keep_m * m + take_m * g;
                    let v = keep_v * v + take_v * (g * g);
                    [p - size * m / (v.sqrt() * root + eps), m, v]
                },
            ))
        })
    });
    &programs[decay as usize]
}

/// Input t; outputs t + 1 and the two numbers of that step; parameters lr, β₁, β₂.
fn clock_program() -> &'static Arc<Program> {
    static CLOCK: RaceOnce<Arc<Program>> = RaceOnce::new();
    CLOCK.get_or_init(|| {
        Arc::new(Program::record_many(|[t], [lr, beta1, beta2]| {
            let t = t + 1.0;
            [t, lr / (1.0 - beta1.pow(t)), 1.0 / (1.0 - beta2.pow(t)).sqrt()]
        }))
    })
}

impl Rule for AdamOptions {
    const OP: &'static str = "adam";
    /// The two moments.
    const TENSOR_COUNT: usize = 2;
    const ALWAYS_HAS_TENSORS: bool = true;

    fn check(&self) -> Result<()> {
        let AdamOptions { lr, beta1, beta2, eps, weight_decay, .. } = *self;
        check_positive(Self::OP, "lr", lr)?;
        check_decay(Self::OP, "beta1", beta1)?;
        check_decay(Self::OP, "beta2", beta2)?;
        check_positive(Self::OP, "eps", eps)?;
        check_positive(Self::OP, "weight_decay", weight_decay)
    }

    fn used_tensor_count(&self) -> usize {
        Self::TENSOR_COUNT
    }

    fn hinders_capture(group: &Group<AdamOptions>) -> Option<&'static str> {
        (!group.options.capturable).then_some("AdamOptions::capturable to be set")
    }

    /// Moves the counts to where they are needed; on the device there are two numbers of each parameter beside them.
    fn make_numbers(group: &mut Group<AdamOptions>, due: &mut [Due]) -> Result<()> {
        if !group.options.capturable {
            for kept in group.kept.iter_mut().filter(|kept| kept.clock.is_some()) {
                (kept.step, kept.clock) = (kept.steps_taken()?, None);
            }
            return Ok(());
        }
        for Due { index, numbers, .. } in due {
            let (parameter, kept) = (&group.parameters[*index], &mut group.kept[*index]);
            let (device, compute) = (parameter.device(), parameter.dtype().compute());
            if kept.clock.is_none() {
                let taken = kept.step as f64;
                kept.clock = Some(uncaptured(|| Tensor::full([0usize; 0], taken, DType::F64, &device))?);
            }
            let number = || Tensor::empty([0usize; 0], compute, &device);
            let (size, root) = (number()?, number()?);
            let expanded = [size.expand(parameter.shape())?, root.expand(parameter.shape())?];
            *numbers = Some([[size, root], expanded]);
        }
        Ok(())
    }

    /// Counts the step on the device, if it is to be counted there, and computes the numbers.
    fn before_updates<'a>(
        group: &'a Group<AdamOptions>,
        due: &'a [Due],
    ) -> Result<Option<PointwiseGroups<'a>>> {
        let AdamOptions { lr, beta1, beta2, .. } = group.options;
        let operands: Vec<([&Tensor; 3], [&Tensor; 1])> = due
            .iter()
            .filter_map(|due| {
                let ([[size, root], _], clock) =
                    (due.numbers.as_ref()?, group.kept[due.index].clock.as_ref()?);
                Some(([clock, size, root], [clock]))
            })
            .collect();
        if operands.is_empty() {
            return Ok(None);
        }
        let counted: Vec<(&[&Tensor], &[&Tensor])> =
            operands.iter().map(|(outputs, inputs)| (&outputs[..], &inputs[..])).collect();
        let params = [lr, beta1, beta2].map(Scalar::Float);
        let program = ProgramRef::Shared(clock_program().clone());
        Ok(Some(PointwiseGroups::new(Self::OP, program, DType::F64, &params, &counted)?))
    }

    /// The step, on which the correction of the bias depends; of all the same if the device counts.
    fn key(&self, kept: &Kept) -> u64 {
        if self.capturable { 0 } else { kept.step + 1 }
    }

    fn update(&self, step: u64) -> Update {
        let AdamOptions { lr, beta1, beta2, eps, capturable, .. } = *self;
        let (kind, decay) = Decay::of(self);
        let moments = [beta1, 1.0 - beta1, beta2, 1.0 - beta2];
        let (program, rest) = if capturable {
            (capturable_program(kind), vec![eps, decay])
        } else {
            let t = step as f64;
            let size = lr / (1.0 - beta1.powf(t));
            let root = 1.0 / (1.0 - beta2.powf(t)).sqrt();
            (program(kind), vec![size, root, eps, decay])
        };
        Update { program, params: moments.into_iter().chain(rest).map(Scalar::Float).collect() }
    }
}

impl Adam {
    /// One group. Errors: an option out of range, a parameter that is named twice or shares memory with another.
    pub fn new(parameters: Vec<Tensor>, options: AdamOptions) -> Result<Adam> {
        Adam::with_groups(vec![Group::new(parameters, options)])
    }

    /// Several groups, each with options of its own. Errors: as of [`new`](Adam::new).
    pub fn with_groups(groups: Vec<Group<AdamOptions>>) -> Result<Adam> {
        groups::check(&groups)?;
        Ok(Adam { groups })
    }

    /// Changes every parameter that has a gradient, in place. Doesn't wait for the device.
    ///
    /// Errors, with nothing changed: an option has been set out of range; a gradient shares memory with another parameter; it is
    /// captured, and a group isn't [`capturable`](AdamOptions::capturable).
    pub fn step(&mut self) -> Result<()> {
        groups::step(&mut self.groups)
    }
}
