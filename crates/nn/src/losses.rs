//! Losses. Each is made of recorded ops, so that gradients come by themselves.

use raddle_sync::RaceOnce;
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
        static LOSS: RaceOnce<Fused> = RaceOnce::new();
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

/// [`bce_with_logits`] with a factor for each loss (`weight`, broadcast to the input) and one for the part of `target`
/// (`positive_weight`, broadcast): `−positive_weight · target · ln σ(input) − (1 − target) · ln(1 − σ(input))`.
pub fn bce_with_logits_weighted(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    positive_weight: Option<&Tensor>,
    reduction: LossReduction,
) -> Result<Tensor> {
    let mut losses = match positive_weight {
        None => bce_with_logits(input, target, LossReduction::None)?,
        Some(positive) => {
            same_shape("bce_with_logits", input, target)?;
            static LOSS: RaceOnce<Fused> = RaceOnce::new();
            let loss = LOSS.get_or_init(|| {
                Fused::new(Program::record(|[x, y, positive]| {
                    let is_negative = x.lt(0.0);
                    let rest = is_negative.select(x, -x).exp().log1p();
                    // −ln σ(x) and −ln(1 − σ(x)).
                    let (yes, no) = (is_negative.select(rest - x, rest), is_negative.select(rest, rest + x));
                    positive * y * yes + (1.0 - y) * no
                }))
            });
            loss.call(&[input, target, positive])?
        }
    };
    if let Some(weight) = weight {
        losses = losses.mul(weight)?;
    }
    if losses.shape() != input.shape() {
        let (expected, found) = (input.shape().to_vec(), losses.shape().to_vec());
        return Err(Error::Shape { op: "bce_with_logits", what: "a weight", expected, found });
    }
    reduction.apply(losses)
}

fn same_shape(op: &'static str, input: &Tensor, target: &Tensor) -> Result<()> {
    match input.shape() == target.shape() {
        true => Ok(()),
        false => {
            let (expected, found) = (input.shape().to_vec(), target.shape().to_vec());
            Err(Error::Shape { op, what: "the target", expected, found })
        }
    }
}

/// A loss over classes, and its choices. [`cross_entropy`] and [`nll_loss`] are it without any.
///
/// Inputs are `[n, classes, ..]`, or `[classes]` for one element alone. Targets are classes (i64 or i32) of the input's shape without
/// the axis of classes or, for the cross entropy, probabilities of the input's shape and of a float. The mean of losses of
/// classes is weighted by the weights of these, without those that are ignored; of none it is NaN. The mean of losses of
/// probabilities is over elements. These are PyTorch's rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassLoss<'a> {
    /// What the losses become.
    pub reduction: LossReduction,
    /// A factor for each class.
    pub weight: Option<&'a Tensor>,
    /// A class that has no loss and no gradient. PyTorch's default is -100; none here.
    pub ignored: Option<i64>,
    /// How much of the target is spread over all classes, of [0, 1]. For the cross entropy alone.
    pub smoothing: f64,
}

impl ClassLoss<'_> {
    /// `−weight[target] · input[.., target, ..]` of log-probabilities.
    pub fn nll_loss(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let axis = self.check("nll_loss", input, target)?;
        let (losses, weights) = self.of_classes(input, target, axis)?;
        self.finish(losses, weights)
    }

    /// `−Σ target · weight · ln softmax(input)` of logits, along the axis of classes.
    pub fn cross_entropy(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let op = "cross_entropy";
        if !(0.0..=1.0).contains(&self.smoothing) {
            let (expected, found) = ("a number of [0, 1]", raddle_tensor::Scalar::Float(self.smoothing));
            return Err(Error::Argument { op, what: "smoothing", expected, found });
        }
        if target.dtype().is_float() {
            return self.of_probabilities(op, input, target);
        }
        let axis = self.check(op, input, target)?;
        let logs = input.log_softmax(axis)?;
        let (losses, weights) = self.of_classes(&logs, target, axis)?;
        if self.smoothing == 0.0 {
            return self.finish(losses, weights);
        }
        let count = input.size(axis)?;
        let mut spread = self.weighted(&logs, axis)?.sum(axis, false)?.neg()?;
        if let Some(ignored) = self.ignored {
            spread = spread.masked_fill(&target.eq(ignored)?, 0)?;
        }
        let spread = spread.mul(self.smoothing / count.max(1) as f64)?;
        self.finish(losses.mul(1.0 - self.smoothing)?.add(&spread)?, weights)
    }

    /// The axis of classes.
    fn check(&self, op: &'static str, input: &Tensor, target: &Tensor) -> Result<isize> {
        if input.rank() == 0 {
            return Err(Error::Rank { op, what: "the input", expected: "at least 1", found: 0 });
        }
        let axis = usize::from(input.rank() > 1);
        let mut expected = input.shape().to_vec();
        let count = expected.remove(axis);
        if target.shape()[..] != expected[..] {
            return Err(Error::Shape { op, what: "the target", expected, found: target.shape().to_vec() });
        }
        self.check_weight(op, count)?;
        Ok(axis as isize)
    }

    fn check_weight(&self, op: &'static str, count: usize) -> Result<()> {
        match self.weight {
            Some(weight) if weight.shape()[..] != [count] => {
                let (expected, found) = (vec![count], weight.shape().to_vec());
                Err(Error::Shape { op, what: "the weight", expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Losses of log-probabilities, and the factors that they have, if they differ.
    fn of_classes(&self, logs: &Tensor, target: &Tensor, axis: isize) -> Result<(Tensor, Option<Tensor>)> {
        let ignored = self.ignored.map(|ignored| target.eq(ignored)).transpose()?;
        let target = match &ignored {
            None => target.clone(),
            Some(ignored) => target.masked_fill(ignored, 0)?,
        };
        let mut losses = logs.gather(axis, &target.unsqueeze(axis)?)?.squeeze(axis)?.neg()?;
        let mut weights = match self.weight {
            None => None,
            Some(weight) => Some(weight.index_select(0, &target.ravel()?)?.reshape(target.shape())?),
        };
        if let Some(weights) = &weights {
            losses = losses.mul(weights)?;
        }
        if let Some(ignored) = &ignored {
            losses = losses.masked_fill(ignored, 0)?;
            weights = Some(match weights {
                Some(weights) => weights.masked_fill(ignored, 0)?,
                None => ignored.logical_not()?.to_dtype(logs.dtype())?,
            });
        }
        Ok((losses, weights))
    }

    /// Times the weights of the classes.
    fn weighted(&self, logs: &Tensor, axis: isize) -> Result<Tensor> {
        let Some(weight) = self.weight else { return Ok(logs.clone()) };
        let mut shape = vec![1; logs.rank()];
        shape[axis as usize] = weight.element_count();
        logs.mul(&weight.reshape(shape)?)
    }

    fn of_probabilities(&self, op: &'static str, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        same_shape(op, input, target)?;
        if let (Some(ignored), what) = (self.ignored, "the ignored class") {
            let (expected, found) =
                ("none, as targets are probabilities", raddle_tensor::Scalar::Int(ignored));
            return Err(Error::Argument { op, what, expected, found });
        }
        if input.rank() == 0 {
            return Err(Error::Rank { op, what: "the input", expected: "at least 1", found: 0 });
        }
        let axis = isize::from(input.rank() > 1);
        let count = input.size(axis)?;
        self.check_weight(op, count)?;
        let target = match self.smoothing {
            0.0 => target.clone(),
            part => target.mul(1.0 - part)?.add(part / count.max(1) as f64)?,
        };
        let losses = self.weighted(&input.log_softmax(axis)?, axis)?.mul(&target)?.sum(axis, false)?.neg()?;
        self.reduction.apply(losses)
    }

    fn finish(&self, losses: Tensor, weights: Option<Tensor>) -> Result<Tensor> {
        match (self.reduction, weights) {
            (LossReduction::Mean, Some(weights)) => losses.sum(.., false)?.div(&weights.sum(.., false)?),
            _ => self.reduction.apply(losses),
        }
    }
}

/// `−input[i, target[i]]` of log-probabilities and classes, none of which is left out. See [`ClassLoss`] for shapes and for more.
pub fn nll_loss(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    ClassLoss { reduction, ..ClassLoss::default() }.nll_loss(input, target)
}

/// `−ln softmax(input)[i, target[i]]` of logits and classes, none of which is left out, or of probabilities. See [`ClassLoss`]
/// for shapes and for more.
pub fn cross_entropy(input: &Tensor, target: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    ClassLoss { reduction, ..ClassLoss::default() }.cross_entropy(input, target)
}
