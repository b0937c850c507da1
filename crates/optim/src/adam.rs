//! Adam and AdamW.

use crate::{
    Group, Result,
    groups::{self, Launch, check_decay, check_positive, check_unique},
    optimizer,
};
use raddle_grad::no_grad;
use raddle_op::{Expr, Program};
use raddle_sync::Made;
use raddle_tensor::{DType, Scalar, Tensor, pointwise_groups, uncaptured};
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

    /// The two moments.
    pub(crate) fn state_tensor_count(&self) -> usize {
        2
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
    static PROGRAMS: Made<[Arc<Program>; 3]> = Made::new();
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
    static PROGRAMS: Made<[Arc<Program>; 3]> = Made::new();
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
    static CLOCK: Made<Arc<Program>> = Made::new();
    CLOCK.get_or_init(|| {
        Arc::new(Program::record_many(|[t], [lr, beta1, beta2]| {
            let t = t + 1.0;
            [t, lr / (1.0 - beta1.pow(t)), 1.0 / (1.0 - beta2.pow(t)).sqrt()]
        }))
    })
}

/// A step that can be captured: two launches for a group, whatever its parameters' counts.
fn capturable_step(group: &mut Group<AdamOptions>) -> Result<()> {
    let op = "adam";
    no_grad(|| {
        let due = groups::due(op, group, group.options.state_tensor_count())?;
        let AdamOptions { lr, beta1, beta2, eps, .. } = group.options;
        let mut numbers: Vec<[Tensor; 2]> = Vec::with_capacity(due.len());
        for (index, _) in &due {
            let parameter = &group.parameters()[*index];
            let (device, compute) = (parameter.device(), parameter.dtype().compute());
            if group.clocks[*index].is_none() {
                let taken = group.states[*index].step as f64;
                group.clocks[*index] =
                    Some(uncaptured(|| Tensor::full([0usize; 0], taken, DType::F64, &device))?);
            }
            let number = || Tensor::empty([0usize; 0], compute, &device);
            numbers.push([number()?, number()?]);
        }
        let clock = |index: usize| group.clocks[index].as_ref().expect("it has just been made");
        let operands: Vec<([&Tensor; 3], [&Tensor; 1])> = due
            .iter()
            .zip(&numbers)
            .map(|((index, _), [size, root])| ([clock(*index), size, root], [clock(*index)]))
            .collect();
        let counted: Vec<(&[&Tensor], &[&Tensor])> =
            operands.iter().map(|(outputs, inputs)| (&outputs[..], &inputs[..])).collect();
        let params = [lr, beta1, beta2].map(Scalar::Float);
        pointwise_groups(
            op,
            raddle_op::ProgramRef::Shared(clock_program().clone()),
            DType::F64,
            &params,
            &counted,
        )?;

        let (kind, decay) = Decay::of(&group.options);
        let params = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps, decay].map(Scalar::Float);
        for compute in [DType::F32, DType::F64] {
            let mut expanded: Vec<(usize, [Tensor; 2], &Tensor)> = Vec::new();
            for ((index, grad), [size, root]) in due.iter().zip(&numbers) {
                let parameter = &group.parameters()[*index];
                if parameter.dtype().compute() == compute {
                    let expand = |number: &Tensor| number.expand(parameter.shape());
                    expanded.push((*index, [expand(size)?, expand(root)?], grad));
                }
            }
            let operands: Vec<([&Tensor; 3], [&Tensor; 6])> = expanded
                .iter()
                .map(|(index, [size, root], grad)| {
                    let (p, state) = (&group.parameters()[*index], &group.states[*index].tensors);
                    ([p, &state[0], &state[1]], [p, *grad, &state[0], &state[1], size, root])
                })
                .collect();
            let updates: Vec<(&[&Tensor], &[&Tensor])> =
                operands.iter().map(|(outputs, inputs)| (&outputs[..], &inputs[..])).collect();
            let program = raddle_op::ProgramRef::Shared(capturable_program(kind).clone());
            pointwise_groups(op, program, compute, &params, &updates)?;
        }
        Ok(())
    })
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

    /// Changes every parameter that has a gradient, in place. Doesn't wait for the device. Errors: it is captured, and the
    /// group isn't [`capturable`](AdamOptions::capturable).
    pub fn step(&mut self) -> Result<()> {
        let launch = |options: &AdamOptions, step: u64| {
            let AdamOptions { lr, beta1, beta2, eps, .. } = *options;
            let t = step as f64;
            let size = lr / (1.0 - beta1.powf(t));
            let root = 1.0 / (1.0 - beta2.powf(t)).sqrt();
            let (kind, decay) = Decay::of(options);
            let params = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, size, root, eps, decay];
            Launch { program: program(kind), params: params.map(Scalar::Float).to_vec() }
        };
        self.groups.iter_mut().try_for_each(|group| {
            if group.options.capturable {
                return capturable_step(group);
            }
            if groups::is_capturing(group) {
                return Err(groups::not_capturable("adam", group, "AdamOptions::capturable to be set"));
            }
            groups::step("adam", group, group.options.state_tensor_count(), launch)
        })
    }
}
