//! Reductions, and what runs along an axis: a row for each of a family.

use crate::{
    arg::{axes, type_name},
    dtype,
    error::{Result, wrong_type},
    tensor::{PyTensor, fresh_or_out, run},
};
use pyo3::{prelude::*, types::PyBool};
use raddle::{DType, Pointwise, Scalar, Tensor};

/// The tensor, converted if a dtype is asked for.
fn converted(tensor: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    Ok(converted_to(tensor.clone(), dtype)?)
}

fn converted_to(tensor: Tensor, dtype: Option<DType>) -> raddle::Result<Tensor> {
    match dtype {
        None => Ok(tensor),
        Some(dtype) => tensor.to_dtype(dtype),
    }
}

/// Axes of a method with `impl Axes`.
macro_rules! over {
    ($tensor:ident.$method:ident($axes:ident $(, $rest:expr)*)) => {
        match &$axes {
            Some(axes) => $tensor.$method(&axes[..] $(, $rest)*),
            None => $tensor.$method(.. $(, $rest)*),
        }
    };
}

/// Reductions that yield one tensor.
macro_rules! reductions {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (dim=None, keepdim=false, *, dtype=None, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            dim: Option<&Bound<'py, PyAny>>,
            keepdim: bool,
            dtype: Option<&Bound<'py, PyAny>>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let dim = axes(stringify!($name), dim)?;
            let wanted = dtype.map(dtype::parse).transpose()?;
            let tensor = converted(&slf.get().0, wanted)?;
            // Sums of integers are i64: the dtype that is asked for is the result's, too.
            let fresh = || converted_to(over!(tensor.$name(dim, keepdim))?, wanted);
            let into = |out: &Tensor| over!(tensor.[<$name _out>](dim, keepdim, out));
            fresh_or_out(slf.py(), tensor.element_count(), out, fresh, into)
        }
    )* } } };
}
reductions! {
    sum "The sum over axes (none: all); of integers and bools an int64. `dtype`: convert first.";
    mean "The mean over axes (none: all). `dtype`: convert first.";
    prod "The product over axes (none: all); of integers and bools an int64. `dtype`: convert first.";
    amax "The largest over axes (none: all).";
    amin "The smallest over axes (none: all).";
    argmax "The index of the largest along an axis (none: of all elements).";
    argmin "The index of the smallest along an axis (none: of all elements).";
    all "Are all true? Over axes (none: all).";
    any "Is one true? Over axes (none: all).";
}

/// `correction`, by either of PyTorch's names.
fn correction(unbiased: Option<bool>, correction: Option<f64>) -> f64 {
    match (unbiased, correction) {
        (Some(unbiased), _) => f64::from(u8::from(unbiased)),
        (None, correction) => correction.unwrap_or(1.0),
    }
}

macro_rules! spreads {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (dim=None, unbiased=None, keepdim=false, *, correction=None, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            dim: Option<&Bound<'py, PyAny>>,
            unbiased: Option<bool>,
            keepdim: bool,
            correction: Option<f64>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            // PyTorch's `x.var(unbiased)`.
            let (dim, unbiased) = match dim {
                Some(flag) if flag.is_instance_of::<PyBool>() => (None, Some(flag.extract()?)),
                dim => (axes(stringify!($name), dim)?, unbiased),
            };
            let (tensor, correction) = (&slf.get().0, self::correction(unbiased, correction));
            let fresh = || over!(tensor.$name(dim, correction, keepdim));
            let into = |out: &Tensor| over!(tensor.[<$name _out>](dim, correction, keepdim, out));
            fresh_or_out(slf.py(), tensor.element_count(), out, fresh, into)
        }
    )* } } };
}
spreads! {
    var "The variance over axes (none: all): the sum of squared deviations is divided by `n - correction`.";
    std "The root of the variance over axes (none: all).";
}

/// Ops along one axis that yield one tensor.
macro_rules! along {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (dim, *, dtype=None, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            dim: isize,
            dtype: Option<&Bound<'py, PyAny>>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let wanted = dtype.map(dtype::parse).transpose()?;
            let tensor = converted(&slf.get().0, wanted)?;
            let fresh = || converted_to(tensor.$name(dim)?, wanted);
            fresh_or_out(slf.py(), tensor.element_count(), out, fresh, |out| tensor.[<$name _out>](dim, out))
        }
    )* } } };
}
along! {
    softmax "`eˣ / Σ eˣ` along an axis. `dtype`: convert first.";
    log_softmax "`x - ln Σ eˣ` along an axis. `dtype`: convert first.";
    cumsum "Running sums along an axis. `dtype`: convert first.";
    cumprod "Running products along an axis. `dtype`: convert first.";
}

type Pair<'py> = (Bound<'py, PyTensor>, Bound<'py, PyTensor>);

/// What an op with two results gives: new tensors, or those of `out`.
pub fn pair<'py>(
    slf: &Bound<'py, PyTensor>,
    out: Option<Pair<'py>>,
    fresh: impl FnOnce(&Tensor) -> raddle::Result<(Tensor, Tensor)> + Send,
    into: impl FnOnce(&Tensor, (&Tensor, &Tensor)) -> raddle::Result<()> + Send,
) -> Result<Pair<'py>> {
    let (py, tensor) = (slf.py(), &slf.get().0);
    match out {
        None => {
            let (values, indices) = run(py, tensor.element_count(), || fresh(tensor))?;
            Ok((Bound::new(py, PyTensor(values))?, Bound::new(py, PyTensor(indices))?))
        }
        Some((values, indices)) => {
            let targets = (&values.get().0, &indices.get().0);
            run(py, tensor.element_count(), || into(tensor, targets))?;
            Ok((values, indices))
        }
    }
}

/// `x.max()`, `x.max(dim)`, `x.max(other)`: three ops of one name.
macro_rules! extremes {
    ($($name:ident $all:ident $pointwise:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (dim=None, keepdim=false, *, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            dim: Option<&Bound<'py, PyAny>>,
            keepdim: bool,
            out: Option<&Bound<'py, PyAny>>,
        ) -> Result<Bound<'py, PyAny>> {
            let (py, tensor) = (slf.py(), &slf.get().0);
            let one = |out: Option<&Bound<'py, PyAny>>| match out {
                None => Ok(None),
                Some(out) => match out.cast::<PyTensor>() {
                    Ok(out) => Ok(Some(out.clone())),
                    Err(_) => wrong_type(format!("{}: expected a tensor as out, found {}", stringify!($name), type_name(out))),
                },
            };
            let Some(dim) = dim else {
                let into = |out: &Tensor| tensor.[<$all _out>](.., false, out);
                let out = one(out)?;
                return Ok(fresh_or_out(py, tensor.element_count(), out.as_ref(), || tensor.$all(.., false), into)?.into_any());
            };
            if let Ok(other) = dim.cast::<PyTensor>() {
                let other = &other.get().0;
                let args = [tensor.into(), other.into()];
                let into = |out: &Tensor| raddle::pointwise_out(Pointwise::$pointwise, &args, &[], out);
                let fresh = || raddle::pointwise(Pointwise::$pointwise, &args, &[]);
                let out = one(out)?;
                return Ok(fresh_or_out(py, tensor.element_count(), out.as_ref(), fresh, into)?.into_any());
            }
            let dim = crate::arg::integer(stringify!($name), dim)? as isize;
            let out = out.map(|out| out.extract::<Pair<'py>>()).transpose()?;
            let result = pair(slf, out, |x| x.$name(dim, keepdim), |x, out| x.[<$name _out>](dim, keepdim, out))?;
            named(py, stringify!($name), result)
        }
    )* } } };
}
extremes! {
    max amax maximum "The largest of all, or values and indices of the largest along an axis, or by elements beside another tensor.";
    min amin minimum "The smallest of all, or values and indices of the smallest along an axis, or by elements beside another tensor.";
}

/// Values and indices under these names, as PyTorch returns them.
pub fn named<'py>(py: Python<'py>, op: &str, (values, indices): Pair<'py>) -> Result<Bound<'py, PyAny>> {
    let op = op.trim_start_matches('_');
    static TYPES: pyo3::sync::PyOnceLock<Py<pyo3::types::PyDict>> = pyo3::sync::PyOnceLock::new();
    let types = TYPES.get_or_init(py, || pyo3::types::PyDict::new(py).unbind()).bind(py);
    let kind = match types.get_item(op)? {
        Some(kind) => kind,
        None => {
            let make = py.import("collections")?.getattr("namedtuple")?;
            let kind = make.call1((op, ("values", "indices")))?;
            kind.setattr("__module__", "raddle.return_types")?;
            types.call_method1("setdefault", (op, kind))?
        }
    };
    Ok(kind.call1((values, indices))?)
}

#[pymethods]
impl PyTensor {
    /// `(Σ |x|ᵖ)^(1/p)` over axes (none: all); `p` a number, `inf`, `-inf`, 0 (how many aren't 0) or `"fro"`.
    #[pyo3(signature = (p=None, dim=None, keepdim=false, *, dtype=None, out=None))]
    fn norm<'py>(
        slf: &Bound<'py, PyTensor>,
        p: Option<&Bound<'py, PyAny>>,
        dim: Option<&Bound<'py, PyAny>>,
        keepdim: bool,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let p = match p {
            None => 2.0,
            Some(name) if name.is_instance_of::<pyo3::types::PyString>() => {
                match name.extract::<String>()?.as_str() {
                    "fro" => 2.0,
                    other => {
                        return wrong_type(format!("norm: expected a number or 'fro' as p, found '{other}'"));
                    }
                }
            }
            Some(p) => crate::arg::scalar("norm", p)?.to_f64(),
        };
        let (dim, tensor) =
            (axes("norm", dim)?, converted(&slf.get().0, dtype.map(dtype::parse).transpose()?)?);
        let fresh = || norm(&tensor, p, dim.as_deref(), keepdim);
        let into = |out: &Tensor| out.copy_(&norm(&tensor, p, dim.as_deref(), keepdim)?).map(drop);
        fresh_or_out(slf.py(), tensor.element_count(), out, fresh, into)
    }

    /// Values and indices in order along an axis. Always stable.
    #[pyo3(signature = (dim=-1, descending=false, *, stable=None, out=None))]
    fn sort<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        descending: bool,
        stable: Option<bool>,
        out: Option<Pair<'py>>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = stable;
        let result = pair(slf, out, |x| x.sort(dim, descending), |x, out| x.sort_out(dim, descending, out))?;
        named(slf.py(), "sort", result)
    }

    /// The indices that put an axis into order. Always stable.
    #[pyo3(signature = (dim=-1, descending=false, *, stable=None, out=None))]
    fn argsort<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        descending: bool,
        stable: Option<bool>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = stable;
        let tensor = &slf.get().0;
        let into = |out: &Tensor| tensor.argsort_out(dim, descending, out);
        fresh_or_out(slf.py(), tensor.element_count(), out, || tensor.argsort(dim, descending), into)
    }

    /// Values and indices of the `k` largest (or smallest) along an axis, in order.
    #[pyo3(signature = (k, dim=-1, largest=true, sorted=true, *, out=None))]
    fn topk<'py>(
        slf: &Bound<'py, PyTensor>,
        k: i64,
        dim: isize,
        largest: bool,
        sorted: bool,
        out: Option<Pair<'py>>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = sorted; // always
        let k = crate::arg::size("topk", k)?;
        let result = pair(slf, out, |x| x.topk(k, dim, largest), |x, out| x.topk_out(k, dim, largest, out))?;
        named(slf.py(), "topk", result)
    }

    /// The indices of what isn't zero: [count, rank], or with `as_tuple` a tensor an axis. Waits for the elements.
    #[pyo3(signature = (*, as_tuple=false, out=None))]
    fn nonzero<'py>(
        slf: &Bound<'py, PyTensor>,
        as_tuple: bool,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyAny>> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        let places = py.detach(|| {
            if as_tuple && tensor.rank() == 0 {
                tensor.detach().reshape([1])?.nonzero()
            } else {
                tensor.nonzero()
            }
        })?;
        if !as_tuple {
            if let Some(out) = out {
                crate::create::fill(out, &places)?;
                return Ok(out.clone().into_any());
            }
            return Ok(Bound::new(py, PyTensor(places))?.into_any());
        }
        let parts =
            if tensor.rank() == 0 { vec![places.reshape([raddle::INFER])?] } else { places.unbind(1)? };
        Ok(pyo3::types::PyTuple::new(py, parts.into_iter().map(PyTensor))?.into_any())
    }

    /// How many elements aren't zero, over axes (none: all).
    #[pyo3(signature = (dim=None))]
    fn count_nonzero(slf: &Bound<'_, PyTensor>, dim: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let (dim, tensor) = (axes("count_nonzero", dim)?, &slf.get().0);
        let body = || {
            let truth = tensor.ne(Scalar::Int(0))?;
            over!(truth.sum(dim, false))
        };
        let counted = run(slf.py(), tensor.element_count(), body)?;
        debug_assert_eq!(counted.dtype(), DType::I64);
        Ok(PyTensor(counted))
    }
}

fn norm(tensor: &Tensor, p: f64, axes: Option<&[isize]>, keepdim: bool) -> raddle::Result<Tensor> {
    match axes {
        Some(axes) => tensor.norm_p(p, axes, keepdim),
        None => tensor.norm_p(p, .., keepdim),
    }
}
