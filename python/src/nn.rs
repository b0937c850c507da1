//! Losses, under the names and with the choices of `torch.nn.functional`.

use crate::{
    error::{Result, wrong_value},
    tensor::{PyTensor, run},
};
use pyo3::prelude::*;
use raddle::{
    Tensor,
    nn::{self, ClassLoss, LossReduction},
};

fn reduction(name: &str) -> Result<LossReduction> {
    match name {
        "mean" => Ok(LossReduction::Mean),
        "sum" => Ok(LossReduction::Sum),
        "none" => Ok(LossReduction::None),
        other => wrong_value(format!("reduction: expected 'mean', 'sum' or 'none', found '{other}'")),
    }
}

fn loss(
    input: &Bound<'_, PyTensor>,
    body: impl FnOnce(&Tensor) -> raddle::Result<Tensor> + Send,
) -> Result<PyTensor> {
    let tensor = &input.get().0;
    Ok(PyTensor(run(input.py(), tensor.element_count(), || body(tensor))?))
}

macro_rules! pointwise {
    ($($name:ident $doc:literal;)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (input, target, *, reduction="mean"))]
        pub fn $name(input: &Bound<'_, PyTensor>, target: &Bound<'_, PyTensor>, reduction: &str) -> Result<PyTensor> {
            let (target, reduction) = (&target.get().0, self::reduction(reduction)?);
            loss(input, |input| nn::$name(input, target, reduction))
        }
    )* };
}
pointwise! {
    mse_loss "`(input - target)²`.";
    l1_loss "`|input - target|`.";
}

/// `-pos_weight · target · ln σ(input) - (1 - target) · ln(1 - σ(input))`, times `weight`.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, *, reduction="mean", pos_weight=None))]
pub fn binary_cross_entropy_with_logits(
    input: &Bound<'_, PyTensor>,
    target: &Bound<'_, PyTensor>,
    weight: Option<&Bound<'_, PyTensor>>,
    reduction: &str,
    pos_weight: Option<&Bound<'_, PyTensor>>,
) -> Result<PyTensor> {
    let (target, reduction) = (&target.get().0, self::reduction(reduction)?);
    let [weight, positive] = [weight, pos_weight].map(|given| given.map(|given| &given.get().0));
    loss(input, |input| nn::bce_with_logits_weighted(input, target, weight, positive, reduction))
}

/// `-weight[target] · input[.., target, ..]` of log-probabilities `[n, classes, ..]`.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, *, ignore_index=-100, reduction="mean"))]
pub fn nll_loss(
    input: &Bound<'_, PyTensor>,
    target: &Bound<'_, PyTensor>,
    weight: Option<&Bound<'_, PyTensor>>,
    ignore_index: i64,
    reduction: &str,
) -> Result<PyTensor> {
    let target = &target.get().0;
    let (weight, reduction) = (weight.map(|weight| &weight.get().0), self::reduction(reduction)?);
    let about = ClassLoss { reduction, weight, ignored: Some(ignore_index), smoothing: 0.0 };
    loss(input, |input| about.nll_loss(input, target))
}

/// `-Σ target · weight · ln softmax(input)` of logits `[n, classes, ..]`; targets are classes, or probabilities.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0))]
pub fn cross_entropy(
    input: &Bound<'_, PyTensor>,
    target: &Bound<'_, PyTensor>,
    weight: Option<&Bound<'_, PyTensor>>,
    ignore_index: i64,
    reduction: &str,
    label_smoothing: f64,
) -> Result<PyTensor> {
    let target = &target.get().0;
    let (weight, reduction) = (weight.map(|weight| &weight.get().0), self::reduction(reduction)?);
    // Probabilities name no class; PyTorch takes its default there as none.
    let ignored = (!target.dtype().is_float() || ignore_index >= 0).then_some(ignore_index);
    let about = ClassLoss { reduction, weight, ignored, smoothing: label_smoothing };
    loss(input, |input| about.cross_entropy(input, target))
}
