//! Clipping of gradients. Nothing waits for the device: what a norm comes to is never read here.

use crate::{Autograd, Error, Result, mode::ModeGuard};
use raddle_op::{Program, ProgramRef};
use raddle_sync::RaceOnce;
use raddle_tensor::{DType, Scalar, Tensor, pointwise_groups};
use std::{borrow::Borrow, sync::Arc};

/// Scales the gradients of all `parameters` so that their norm, taken together as one vector, is at most `max_norm`; gives
/// the norm before. The factor is `min(1, max_norm / (norm + 1e-6))`, as PyTorch's. Parameters without a gradient don't
/// count; all gradients are on one device. A norm of NaN makes all gradients NaN.
///
/// None if no parameter has a gradient. Errors: `max_norm` is negative or NaN.
pub fn clip_grad_norm_<T: Borrow<Tensor>>(parameters: &[T], max_norm: f64) -> Result<Option<Tensor>> {
    if max_norm.is_nan() || max_norm < 0.0 {
        let (op, what, expected) = ("clip_grad_norm", "max_norm", "a number that isn't negative");
        return Err(Error::Argument { op, what, expected, found: max_norm });
    }
    let _guard = ModeGuard::new(false);
    let grads = gradients(parameters);
    let Some(first) = grads.first() else { return Ok(None) };
    let wide = if grads.iter().any(|grad| grad.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
    let norms: Vec<Tensor> =
        grads.iter().map(|grad| Ok(grad.to(wide)?.norm(.., false)?)).collect::<Result<_>>()?;
    let total = match norms.len() {
        1 => norms[0].clone(),
        _ => Tensor::stack(&norms, 0)?.norm(.., false)?,
    };
    debug_assert_eq!(total.device(), first.device());
    // min lets NaN through.
    static FACTOR: RaceOnce<Arc<Program>> = RaceOnce::new();
    let factor_of = FACTOR.get_or_init(|| {
        Arc::new(Program::record_many(|[total], [most]| [(1.0 / (total + 1e-6) * most).minimum(1.0)]))
    });
    let factor = total.empty_like()?;
    let params = [Scalar::Float(max_norm)];
    pointwise_groups(
        "clip_grad",
        ProgramRef::Shared(factor_of.clone()),
        wide,
        &params,
        &[(&[&factor], &[&total])],
    )?;
    static SCALE: RaceOnce<Arc<Program>> = RaceOnce::new();
    let scale = SCALE.get_or_init(|| Arc::new(Program::record(|[grad, factor]| grad * factor)));
    in_place(scale, &[], &grads, |grad| Ok(Some(factor.expand(grad.shape())?)))?;
    Ok(Some(total))
}

/// Clamps each element of the gradients of `parameters` to [−`clip`, `clip`]. NaN stays.
pub fn clip_grad_value_<T: Borrow<Tensor>>(parameters: &[T], clip: f64) -> Result<()> {
    if clip.is_nan() || clip < 0.0 {
        let (op, what, expected) = ("clip_grad_value", "clip", "a number that isn't negative");
        return Err(Error::Argument { op, what, expected, found: clip });
    }
    let _guard = ModeGuard::new(false);
    static CLAMP: RaceOnce<Arc<Program>> = RaceOnce::new();
    let clamp = CLAMP
        .get_or_init(|| Arc::new(Program::record_many(|[grad], [clip]| [grad.maximum(-clip).minimum(clip)])));
    in_place(clamp, &[Scalar::Float(clip)], &gradients(parameters), |_| Ok(None))
}

fn gradients<T: Borrow<Tensor>>(parameters: &[T]) -> Vec<Tensor> {
    let mut grads: Vec<Tensor> = Vec::new();
    for grad in parameters.iter().filter_map(|parameter| parameter.borrow().grad()) {
        // A parameter that is listed twice counts once.
        if !grads.iter().any(|other| other.is(&grad)) {
            grads.push(grad);
        }
    }
    grads
}

/// Runs a program over all gradients, one launch for each dtype to compute in.
fn in_place(
    program: &Arc<Program>,
    params: &[Scalar],
    grads: &[Tensor],
    second: impl Fn(&Tensor) -> Result<Option<Tensor>>,
) -> Result<()> {
    for compute in [DType::F32, DType::F64] {
        let part: Vec<&Tensor> = grads.iter().filter(|grad| grad.dtype().compute() == compute).collect();
        let seconds: Vec<Option<Tensor>> = part.iter().map(|grad| second(grad)).collect::<Result<_>>()?;
        let operands: Vec<(Vec<&Tensor>, Vec<&Tensor>)> = part
            .iter()
            .zip(&seconds)
            .map(|(grad, second)| (vec![*grad], std::iter::once(*grad).chain(second.as_ref()).collect()))
            .collect();
        let groups: Vec<(&[&Tensor], &[&Tensor])> =
            operands.iter().map(|(outputs, inputs)| (&outputs[..], &inputs[..])).collect();
        let program = ProgramRef::Shared(program.clone());
        pointwise_groups("clip_grad", program, compute, params, &groups)?;
    }
    Ok(())
}
