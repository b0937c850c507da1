//! Losses. Each is made of recorded ops, so that gradients come by themselves.

use raddle_sync::Made;
use raddle_tensor::{Error, Fused, Program, Result, Tensor};

/// What becomes of the losses of the elements or rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossReduction {
    /// Their mean; of none NaN, as in PyTorch.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay.
    None,
}

impl LossReduction {
    fn apply(self, losses: Tensor) -> Result<Tensor> {
        match self {
            LossReduction::Mean => losses.mean(.., false),
            LossReduction::Sum => losses.sum(.., false),
            LossReduction::None => Ok(losses),
        }
    }
}

/// A closure that is recorded once.
macro_rules! pointwise_loss {
    ($op:literal, $input:ident, $target:ident, $reduction:ident, $body:expr) => {{
        if $input.shape() != $target.shape() {
            let (op, what) = ($op, "the target");
            let (expected, found) = ($input.shape().to_vec(), $target.shape().to_vec());
            return Err(Error::Shape { op, what, expected, found });
        }
        static LOSS: Made<Fused> = Made::new();
        let losses = LOSS.get_or_init(|| Fused::new(Program::record($body))).call(&[$input, $target])?;
        $reduction.apply(losses)
    }};
}

/// `(input − target)²`. Both have one shape.
pub fn mse_loss(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    pointwise_loss!("mse_loss", input, target, reduction, |[x, y]| (x - y).square())
}

/// `|input − target|`; its gradient is 0 where they are equal. Both have one shape.
pub fn l1_loss(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    pointwise_loss!("l1_loss", input, target, reduction, |[x, y]| (x - y).abs())
}

/// `−target · ln σ(input) − (1 − target) · ln(1 − σ(input))`, computed as `(1 − target) · input + softplus(−input)` where the input
/// isn't negative and as `softplus(input) − target · input` where it is: neither overflows, and a good guess keeps the digits of
/// its loss and gradient, however small they are. Both have one shape.
pub fn bce_with_logits(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    pointwise_loss!("bce_with_logits", input, target, reduction, |[x, y]| {
        // What is small is added to what is 0 where the guess is good. In one formula for both signs a 1 would come and go.
        let is_negative = x.lt(0.0);
        is_negative.select(-(y * x), (1.0 - y) * x) + is_negative.select(x, -x).exp().log1p()
    })
}

/// `−input[i, target[i]]` of log-probabilities `[n, classes]` and classes `[n]` (i64). No class is left out: PyTorch's
/// `ignore_index` of -100 is out of range here.
pub fn nll_loss(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    let op = "nll_loss";
    if input.rank() != 2 {
        return Err(Error::Rank { op, what: "the input", expected: "2", found: input.rank() });
    }
    if target.shape()[..] != input.shape()[..1] {
        let (expected, found) = (input.shape()[..1].to_vec(), target.shape().to_vec());
        return Err(Error::Shape { op, what: "the target", expected, found });
    }
    let picked = input.gather(1, &target.unsqueeze(1)?)?.squeeze(1)?;
    reduction.apply(picked.neg()?)
}

/// `−ln softmax(input)[i, target[i]]` of logits `[n, classes]` and classes `[n]` (i64), none of which is left out.
pub fn cross_entropy(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    if input.rank() != 2 {
        let (op, found) = ("cross_entropy", input.rank());
        return Err(Error::Rank { op, what: "the input", expected: "2", found });
    }
    nll_loss(&input.log_softmax(1)?, target, reduction)
}
