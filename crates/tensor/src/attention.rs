//! Attention: one launch of [`Kernel::Attention`], whatever the number of axes and their strides.

use crate::{
    Call, DType, Dims, Error, Layout, Result, Tensor,
    create::check_dtype,
    error::shape_error,
    fused::once,
    gradient::{Context, Gradients, Needs, Op, sum_to},
    pointwise::{check_device, check_disjoint, check_float, check_out},
    record::{self, Mode, TensorRefs},
};
use raddle_base::Scalar;
use raddle_op::Kernel;
use raddle_runtime::Operand;
use smallvec::SmallVec;

const OP: &str = "scaled_dot_product_attention";

/// What has been checked.
struct Attention<'a> {
    inputs: TensorRefs<'a>,
    /// Of the axes in front of each matrix.
    batch: SmallVec<[usize; 8]>,
    /// Queries, keys, and the widths of keys and of values.
    sizes: [usize; 4],
    is_causal: bool,
    scale: f64,
}

impl Tensor {
    /// Attention (Vaswani et al. 2017): `softmax(scale · query keyᵀ + mask) value`, in one launch that keeps no scores.
    ///
    /// `self` is the query [.., n, d], `key` [.., m, d], `value` [.., m, dv]; the result is [.., n, dv]. The axes in front
    /// (batch, heads) are broadcast. A `mask`, broadcast to [.., n, m], is of bools (true: the key takes part) or of
    /// floats (added to the scores). With `is_causal` a query sees keys up to its own index only; a mask may go with it.
    /// The `scale` is `1 / √d` if none is given. Of floats of one dtype; 16-bit floats are computed in `f32` and rounded
    /// once. A query for which no key takes part, or all scores are −∞, gets 0. What isn't finite in a value may show in
    /// results that give it no weight (0 · ∞).
    ///
    /// Has a gradient by query, key, value and a mask of floats; 0 where no key takes part. What isn't finite in a key that a
    /// query doesn't see, by a mask of bools or `is_causal`, shows neither in its result nor in its gradient. A mask of floats
    /// hides no NaN: it is added.
    ///
    /// Errors: `scaled_dot_product_attention: inner sizes differ, …`, and wrong dtypes, ranks and shapes.
    ///
    /// ```
    /// # use raddle_tensor::{Device, Tensor};
    /// # let device = Device::open(Box::new(raddle_cpu::Cpu::new()))?;
    /// let query = Tensor::from_slice(&[0.0f32, 1.0], [1, 2], &device)?;
    /// let key = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0], [2, 2], &device)?;
    /// let value = Tensor::from_slice(&[1.0f32, 2.0], [2, 1], &device)?;
    /// let all = query.scaled_dot_product_attention(&key, &value, None, false, Some(0.0))?;
    /// assert_eq!(all.to_vec::<f32>()?, [1.5]);
    /// let first = query.scaled_dot_product_attention(&key, &value, None, true, None)?;
    /// assert_eq!(first.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), raddle_tensor::Error>(())
    /// ```
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        is_causal: bool,
        scale: Option<f64>,
    ) -> Result<Tensor> {
        let attention = Attention::new(self, key, value, mask, is_causal, scale)?;
        let layout = Layout::contiguous(attention.shape());
        let out = Tensor::allocate(OP, layout, self.dtype(), &self.device())?;
        record::fresh(&attention.inputs, &[&out], || attention.call(), || attention.launch(&out))?;
        Ok(out)
    }

    /// [`scaled_dot_product_attention`](Tensor::scaled_dot_product_attention) whose weights are dropped with probability `p`, as by
    /// [`dropout`](Tensor::dropout), before they meet the values. Composed of products, a softmax and a dropout.
    pub fn attention_with_dropout(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        p: f64,
        is_causal: bool,
        scale: Option<f64>,
    ) -> Result<Tensor> {
        let attention = Attention::new(self, key, value, mask, is_causal, scale)?;
        let [n, m, ..] = attention.sizes;
        let mut scores = self.mul(attention.scale)?.matmul(&key.transpose(-2, -1)?)?;
        let mut seen = None;
        if let Some(mask) = mask {
            let is_bool = mask.dtype() == DType::Bool;
            seen = Some(if is_bool { mask.clone() } else { mask.detach().ne(f64::NEG_INFINITY)? });
            scores = if is_bool { scores } else { scores.add(&mask.to_dtype(scores.dtype())?)? };
        }
        if is_causal {
            let before = Tensor::ones([n, m], DType::Bool, &self.device())?.tril(0)?;
            seen = Some(match seen {
                Some(seen) => seen.logical_and(&before)?,
                None => before,
            });
        }
        let weights = match seen {
            None => scores.softmax(-1)?,
            // Chosen twice: of a query that sees no key the weights are NaN.
            Some(seen) => seen.where_(&seen.where_(&scores, f64::NEG_INFINITY)?.softmax(-1)?, 0.0)?,
        };
        weights.dropout(p, None)?.matmul(value)
    }

    /// [`scaled_dot_product_attention`](Tensor::scaled_dot_product_attention) into `out`, of any strides.
    pub fn scaled_dot_product_attention_out(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        out: &Tensor,
    ) -> Result<()> {
        let attention = Attention::new(self, key, value, mask, is_causal, scale)?;
        check_dtype(OP, "the output", self.dtype(), out)?;
        check_out(OP, out, &attention.shape(), &self.device())?;
        check_disjoint(OP, out, &attention.inputs)?;
        let call = || attention.call();
        record::op(Mode::Out, &attention.inputs, &[out], call, || attention.launch(out))
    }
}

impl<'a> Attention<'a> {
    fn new(
        query: &'a Tensor,
        key: &'a Tensor,
        value: &'a Tensor,
        mask: Option<&'a Tensor>,
        is_causal: bool,
        scale: Option<f64>,
    ) -> Result<Attention<'a>> {
        let mut inputs = TensorRefs::from_slice(&[query, key, value]);
        inputs.extend(mask);
        check_device(OP, query, &inputs)?;
        check_float(OP, "the query", query)?;
        for (what, tensor) in [("the key", key), ("the value", value)] {
            check_dtype(OP, what, query.dtype(), tensor)?;
        }
        for (what, &tensor) in ["the query", "the key", "the value"].iter().zip(&inputs) {
            if tensor.rank() < 2 {
                return Err(Error::Rank { op: OP, what, expected: "at least 2", found: tensor.rank() });
            }
        }
        let inner = |lhs: &Tensor, lhs_axis: usize, rhs: &Tensor, rhs_axis: usize| {
            let (lhs, rhs) = (lhs.shape().to_vec(), rhs.shape().to_vec());
            Error::InnerSize { op: OP, lhs, lhs_axis, rhs, rhs_axis }
        };
        let last = |tensor: &Tensor, from_end: usize| tensor.shape()[tensor.rank() - from_end];
        let [n, m, d, dv] = [last(query, 2), last(key, 2), last(query, 1), last(value, 1)];
        if last(key, 1) != d {
            return Err(inner(query, query.rank() - 1, key, key.rank() - 1));
        }
        if last(value, 2) != m {
            return Err(inner(key, key.rank() - 2, value, value.rank() - 2));
        }
        let front =
            |tensor: &Tensor| -> Dims { tensor.shape()[..tensor.rank() - 2].iter().copied().collect() };
        let mut batch = front(query);
        for tensor in [key, value] {
            batch = Layout::broadcast_shapes(OP, &batch, &front(tensor))?;
        }
        if let Some(mask) = mask {
            if mask.dtype() != DType::Bool && !mask.dtype().is_float() {
                let (what, expected) = ("the mask", "bool or a float");
                return Err(Error::DType { op: OP, what, expected, found: mask.dtype() });
            }
            let mut shape = batch;
            shape.push(n);
            shape.push(m);
            if mask.layout().broadcast_to(OP, &shape).is_err() {
                return Err(shape_error(OP, "the mask", &shape, mask.shape()));
            }
        }
        let scale = scale.unwrap_or_else(|| (d.max(1) as f64).sqrt().recip());
        let batch = batch.iter().copied().collect();
        Ok(Attention { inputs, batch, sizes: [n, m, d, dv], is_causal, scale })
    }

    fn shape(&self) -> Dims {
        self.batch.iter().copied().chain([self.sizes[0], self.sizes[3]]).collect()
    }

    fn call(&self) -> Call {
        Call::op(Attended { mask: self.inputs.len() > 3, is_causal: self.is_causal, scale: self.scale })
    }

    fn launch(&self, out: &Tensor) -> Result<()> {
        let [n, m, d, dv] = self.sizes;
        if out.layout().is_empty() {
            return Ok(());
        }
        if m == 0 {
            return out.fill_raw(Scalar::Int(0));
        }
        let matrices = [[n, d], [m, d], [m, dv], [n, m]];
        let mut seen: SmallVec<[(Tensor, Layout); 4]> = SmallVec::new();
        for (tensor, matrix) in self.inputs.iter().zip(matrices) {
            let shape: Dims = self.batch.iter().copied().chain(matrix).collect();
            let layout = tensor.layout().broadcast_to(OP, &shape)?;
            seen.push(match four_axes(&layout) {
                Ok(layout) => ((*tensor).clone(), layout),
                Err(_) => {
                    let copy = tensor.detach().alias(layout).row_major_copy()?;
                    let layout = four_axes(copy.layout())?;
                    (copy, layout)
                }
            });
        }
        let Ok(layout) = four_axes(out.layout()) else {
            // The axes of the output can't be merged: through a temporary, copied back whole.
            let made = Tensor::allocate(OP, Layout::contiguous(*out.shape()), out.dtype(), &out.device())?;
            self.submit(&made, &four_axes(made.layout())?, &seen)?;
            return made.copy_into_fresh(out);
        };
        self.submit(out, &layout, &seen)
    }

    fn submit(&self, out: &Tensor, layout: &Layout, inputs: &[(Tensor, Layout)]) -> Result<()> {
        let kernel =
            Kernel::Attention { scale: self.scale, causal: self.is_causal, mask: self.inputs.len() > 3 };
        let mut operands: SmallVec<[Operand<'_>; 5]> = SmallVec::new();
        operands.push(out.write(layout));
        operands.extend(inputs.iter().map(|(tensor, layout)| tensor.read(layout)));
        Ok(out.device().submit_named(OP, &kernel, &operands)?)
    }
}

/// The layout with four axes: further ones in front, or the first ones as one.
fn four_axes(layout: &Layout) -> Result<Layout> {
    let mut layout = *layout;
    while layout.rank() < 4 {
        layout = layout.unsqueeze(0)?;
    }
    let split = layout.rank() - 3;
    let first = layout.shape()[..split].iter().product();
    let shape: Dims = std::iter::once(first).chain(layout.shape()[split..].iter().copied()).collect();
    Ok(if split == 1 { layout } else { layout.view(&shape)? })
}

/// What isn't finite is 0: to be multiplied by what is 0 where it isn't seen, and NaN where it is.
fn finite(tensor: &Tensor) -> Result<Tensor> {
    once!(|[x]| x.isfinite().select(x, 0.0)).call(&[tensor])
}

/// Inputs query, key, value and, if `mask`, a mask.
///
/// The weights are computed again, in full. With `P` the weights and `O = P V`: `dV = Pᵀ dO`, `dS = P ∘ (dO Vᵀ − Σ dO ∘ O)`,
/// `dQ = scale · dS K`, `dK = scale · dSᵀ Q`, and by an added mask `dS` (Dao et al. 2022, appendix B). 16-bit floats are computed
/// in `f32`.
#[derive(Debug)]
pub(crate) struct Attended {
    pub mask: bool,
    pub is_causal: bool,
    pub scale: f64,
}

impl Op for Attended {
    fn name(&self) -> &'static str {
        OP
    }

    fn needs(&self) -> Needs {
        Needs::inputs(if self.mask { 0b1111 } else { 0b111 })
    }

    fn gradients(&self, context: &dyn Context, g: &Tensor) -> Result<Gradients> {
        let Attended { mask, is_causal, scale } = *self;
        let compute = g.dtype().compute();
        let wide = |tensor: &Tensor| tensor.to(compute);
        let turned = |tensor: &Tensor| tensor.transpose(-2, -1);
        let [query, key, value] = [0, 1, 2].map(|input| wide(context.input(input)));
        let (query, key, value) = (query?, key?, value?);
        let g = wide(g)?;
        let mut scores = query.matmul(&turned(&key)?)?.mul(scale)?;
        let mask = mask.then(|| context.input(3));
        match mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                scores = scores.masked_fill(&mask.logical_not()?, f64::NEG_INFINITY)?;
            }
            Some(mask) => scores = scores.add(&wide(mask)?)?,
            None => {}
        }
        if is_causal {
            let size = |axis| scores.shape()[scores.rank() - axis];
            let seen = Tensor::ones([size(2), size(1)], DType::Bool, &scores.device())?.tril(0)?;
            scores = scores.masked_fill(&seen.logical_not()?, f64::NEG_INFINITY)?;
        }
        // In a row of −∞ softmax is NaN, attention's weights are 0.
        let unseen = scores.eq(f64::NEG_INFINITY)?;
        let weights = scores.softmax(-1)?.masked_fill(&unseen, 0.0)?;
        let mut results: Gradients = smallvec::smallvec![None, None, None];
        if context.wants(2) {
            results[2] = Some(sum_to(turned(&weights)?.matmul(&g)?, context.meta(2).shape())?);
        }
        // Σ dO ∘ O, from the weights: of 16-bit floats O is rounded, and what is left of a difference may be less than that.
        // (What a value is that isn't seen doesn't matter, as in the result.)
        let by_weights = g.matmul(&turned(&value)?)?.masked_fill(&unseen, 0.0)?;
        let along = weights.mul(&by_weights)?.sum(-1, true)?;
        // A score that isn't seen changes nothing, also beside one that is NaN.
        let by_scores = weights.mul(&by_weights.sub(&along)?)?.masked_fill(&unseen, 0.0)?;
        if context.wants(0) {
            let by_query = by_scores.matmul(&finite(&key)?)?.mul(scale)?;
            results[0] = Some(sum_to(by_query, context.meta(0).shape())?);
        }
        if context.wants(1) {
            let by_key = turned(&by_scores)?.matmul(&finite(&query)?)?.mul(scale)?;
            results[1] = Some(sum_to(by_key, context.meta(1).shape())?);
        }
        if let Some(mask) = mask {
            let wanted = mask.dtype().is_float() && context.wants(3);
            results.push(wanted.then(|| sum_to(by_scores, context.meta(3).shape())).transpose()?);
        }
        Ok(results)
    }
}
