//! Matrix products, linear layers, normalization and attention.

use crate::{
    arg,
    error::{Result, wrong_value},
    tensor::{PyTensor, fresh_or_out, run, unary},
};
use pyo3::prelude::*;
use raddle::Tensor;

/// What a product costs, in elements of pointwise work (a guess: a row of `k` counts as `k / 4`).
fn product_cost(a: &Tensor, b: &Tensor) -> usize {
    let rows = b.shape().last().copied().unwrap_or(1).max(4);
    a.element_count().saturating_mul(rows) / 16 + b.element_count() / 4
}

macro_rules! products {
    ($($name:ident $other:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = ($other, *, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            $other: &Bound<'py, PyTensor>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let (a, b) = (&slf.get().0, &$other.get().0);
            fresh_or_out(slf.py(), product_cost(a, b), out, || a.$name(b), |out| a.[<$name _out>](b, out))
        }
    )* } } };
}
products! {
    matmul other "The matrix product over the last two axes; the others are broadcast. Vectors are rows or columns.";
    mm mat2 "`[n, k] × [k, m]`.";
    bmm mat2 "`[b, n, k] × [b, k, m]`.";
}

fn factor(what: &str, value: Option<&Bound<'_, PyAny>>) -> Result<f64> {
    value.map_or(Ok(1.0), |value| Ok(arg::scalar(what, value)?.to_f64()))
}

#[pymethods]
impl PyTensor {
    fn __matmul__<'py>(slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyTensor>) -> Result<PyTensor> {
        let (a, b) = (&slf.get().0, &other.get().0);
        Ok(PyTensor(run(slf.py(), product_cost(a, b), || a.matmul(b))?))
    }

    /// The sum of the products of two vectors.
    #[pyo3(signature = (tensor, *, out=None))]
    fn dot<'py>(
        slf: &Bound<'py, PyTensor>,
        tensor: &Bound<'py, PyTensor>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (a, b) = (&slf.get().0, &tensor.get().0);
        fresh_or_out(slf.py(), a.element_count(), out, || a.dot(b), |out| out.copy_(&a.dot(b)?).map(drop))
    }

    /// `beta · x + alpha · mat1 mat2`.
    #[pyo3(signature = (mat1, mat2, *, beta=None, alpha=None, out=None))]
    fn addmm<'py>(
        slf: &Bound<'py, PyTensor>,
        mat1: &Bound<'py, PyTensor>,
        mat2: &Bound<'py, PyTensor>,
        beta: Option<&Bound<'py, PyAny>>,
        alpha: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (beta, alpha) = (factor("beta", beta)?, factor("alpha", alpha)?);
        let (c, a, b) = (&slf.get().0, &mat1.get().0, &mat2.get().0);
        let into = |out: &Tensor| c.addmm_out(a, b, beta, alpha, out);
        fresh_or_out(slf.py(), product_cost(a, b), out, || c.addmm(a, b, beta, alpha), into)
    }

    /// `addmm` in place.
    #[pyo3(signature = (mat1, mat2, *, beta=None, alpha=None))]
    fn addmm_<'py>(
        slf: &Bound<'py, PyTensor>,
        mat1: &Bound<'py, PyTensor>,
        mat2: &Bound<'py, PyTensor>,
        beta: Option<&Bound<'py, PyAny>>,
        alpha: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (beta, alpha) = (factor("beta", beta)?, factor("alpha", alpha)?);
        let (c, a, b) = (&slf.get().0, &mat1.get().0, &mat2.get().0);
        run(slf.py(), product_cost(a, b), || c.addmm_(a, b, beta, alpha).map(drop))?;
        Ok(slf.clone())
    }
}

/// `x weightᵀ + bias`.
#[pyfunction]
#[pyo3(signature = (input, weight, bias=None, *, out=None))]
pub fn linear<'py>(
    input: &Bound<'py, PyTensor>,
    weight: &Bound<'py, PyTensor>,
    bias: Option<&Bound<'py, PyTensor>>,
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let (x, weight, bias) = (&input.get().0, &weight.get().0, bias.map(|bias| &bias.get().0));
    let into = |out: &Tensor| x.linear_out(weight, bias, out);
    fresh_or_out(
        input.py(),
        x.element_count().saturating_mul(weight.shape().first().copied().unwrap_or(1).max(4)) / 16,
        out,
        || x.linear(weight, bias),
        into,
    )
}

/// `(x - mean) / √(variance + eps) · weight + bias` over the last axes, which have the shape `normalized_shape`.
#[pyfunction]
#[pyo3(signature = (input, normalized_shape, weight=None, bias=None, eps=1e-5, *, out=None))]
pub fn layer_norm<'py>(
    input: &Bound<'py, PyTensor>,
    normalized_shape: &Bound<'py, PyAny>,
    weight: Option<&Bound<'py, PyTensor>>,
    bias: Option<&Bound<'py, PyTensor>>,
    eps: f64,
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let shape = arg::list("layer_norm", normalized_shape)?;
    let (x, weight, bias) =
        (&input.get().0, weight.map(|weight| &weight.get().0), bias.map(|bias| &bias.get().0));
    let ends_so = x.rank() >= shape.len()
        && x.shape()[x.rank() - shape.len()..].iter().zip(&shape).all(|(&size, &given)| size as i64 == given);
    if shape.is_empty() || !ends_so {
        return wrong_value(format!(
            "layer_norm: expected a shape that ends in {shape:?}, found {:?}",
            x.shape()
        ));
    }
    let axes = shape.len();
    let into = |out: &Tensor| x.layer_norm_out(axes, weight, bias, eps, out);
    fresh_or_out(input.py(), x.element_count(), out, || x.layer_norm(axes, weight, bias, eps), into)
}

/// `softmax(query keyᵀ · scale + mask) value`. A mask of bools is true where a key is seen.
#[pyfunction]
#[pyo3(signature = (query, key, value, attn_mask=None, dropout_p=0.0, is_causal=false, *, scale=None, enable_gqa=false, out=None))]
#[expect(clippy::too_many_arguments, reason = "PyTorch's signature")]
pub fn scaled_dot_product_attention<'py>(
    query: &Bound<'py, PyTensor>,
    key: &Bound<'py, PyTensor>,
    value: &Bound<'py, PyTensor>,
    attn_mask: Option<&Bound<'py, PyTensor>>,
    dropout_p: f64,
    is_causal: bool,
    scale: Option<f64>,
    enable_gqa: bool,
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let (q, k, v, mask) = (&query.get().0, &key.get().0, &value.get().0, attn_mask.map(|mask| &mask.get().0));
    let _ = enable_gqa; // heads are broadcast where they fit
    if dropout_p != 0.0 {
        let fresh = || q.attention_with_dropout(k, v, mask, dropout_p, is_causal, scale);
        let into = |out: &Tensor| out.copy_(&fresh()?).map(drop);
        return fresh_or_out(query.py(), product_cost(q, k), out, fresh, into);
    }
    let into = |out: &Tensor| q.scaled_dot_product_attention_out(k, v, mask, is_causal, scale, out);
    let fresh = || q.scaled_dot_product_attention(k, v, mask, is_causal, scale);
    fresh_or_out(query.py(), product_cost(q, k), out, fresh, into)
}

/// Each element is dropped with probability `p` in training, and the others are divided by `1 - p`.
#[pyfunction]
#[pyo3(signature = (input, p=0.5, training=true))]
pub fn dropout<'py>(input: &Bound<'py, PyTensor>, p: f64, training: bool) -> Result<Bound<'py, PyTensor>> {
    if !training {
        return Ok(input.clone());
    }
    Ok(Bound::new(input.py(), unary(input, |x| x.dropout(p, None))?)?)
}
