//! Ops that Raddle composes of others: a row for each, with what Python calls its arguments. An `out` takes what was made.

use crate::{
    arg::{self, integers, type_name},
    create,
    error::{Result, wrong_value},
    reduce::named,
    tensor::{PyTensor, run, unary},
};
use pyo3::{
    prelude::*,
    types::{PyList, PyTuple},
};
use raddle::{Arg, Between, DType, Fold, Padding, Scalar, Tensor};

/// A tensor among the arguments.
pub struct T(Tensor);

/// A number among the arguments.
pub struct Num(Scalar);

/// A tensor or a number.
pub enum Either {
    Tensor(Tensor),
    Number(Scalar),
}

impl Either {
    fn arg(&self) -> Arg<'_> {
        match self {
            Either::Tensor(tensor) => Arg::Tensor(tensor),
            Either::Number(value) => Arg::Scalar(*value),
        }
    }
}

/// An integer, or several.
pub struct Ints(Vec<i64>);

impl Ints {
    fn axes(&self) -> Vec<isize> {
        self.0.iter().map(|&axis| axis as isize).collect()
    }
    fn sizes(&self, op: &str) -> Result<Vec<usize>> {
        self.0.iter().map(|&size| arg::size(op, size)).collect()
    }
}

macro_rules! extracted {
    ($($name:ident |$value:ident| $body:expr;)*) => { $(
        impl<'py> FromPyObject<'_, 'py> for $name {
            type Error = PyErr;
            fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<$name> {
                let $value: &Bound<'py, PyAny> = &value;
                let read = || -> Result<$name> { $body };
                read().map_err(PyErr::from)
            }
        }
    )* };
}
extracted! {
    T |value| match value.cast::<PyTensor>() {
        Ok(tensor) => Ok(T(tensor.get().0.clone())),
        Err(_) => crate::error::wrong_type(format!("expected a tensor, found {}", type_name(value))),
    };
    Num |value| Ok(Num(arg::scalar("a number", value)?));
    Either |value| Ok(match arg::expect_operand("an operand", value)?.arg() {
        Arg::Tensor(tensor) => Either::Tensor(tensor.clone()),
        Arg::Scalar(value) => Either::Number(value),
    });
    Ints |value| match value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>() {
        true => Ok(Ints(arg::list("integers", value)?)),
        false => Ok(Ints(vec![arg::integer("an integer", value)?])),
    };
}

/// What was made, or `out` with it.
fn made<'py>(
    py: Python<'py>,
    element_count: usize,
    out: Option<&Bound<'py, PyTensor>>,
    fresh: impl FnOnce() -> Result<Tensor> + Send,
) -> Result<Bound<'py, PyTensor>> {
    let fresh = || fresh();
    let made = if element_count < 20_000 { fresh()? } else { py.detach(fresh)? };
    match out {
        None => Ok(Bound::new(py, PyTensor(made))?),
        Some(out) => {
            create::fill(out, &made)?;
            Ok(out.clone())
        }
    }
}

macro_rules! composed {
    ($($name:ident [$($signature:tt)*] ($($arg:ident: $type:ty),*) $doc:literal |$x:ident| $body:expr;)*) => {
        #[pymethods]
        impl PyTensor { $(
            #[doc = $doc]
            #[pyo3(signature = ($($signature)* out=None))]
            fn $name<'py>(
                slf: &Bound<'py, PyTensor>,
                $($arg: $type,)*
                out: Option<&Bound<'py, PyTensor>>,
            ) -> Result<Bound<'py, PyTensor>> {
                let $x = &slf.get().0;
                made(slf.py(), $x.element_count(), out, move || Ok($body))
            }
        )* }
    };
}

fn fold(name: &str) -> Result<Fold> {
    Ok(match name {
        "sum" => Fold::Sum,
        "prod" => Fold::Prod,
        "mean" => Fold::Mean,
        "amax" => Fold::AMax,
        "amin" => Fold::AMin,
        other => {
            return wrong_value(format!(
                "reduce: expected 'sum', 'prod', 'mean', 'amax' or 'amin', found '{other}'"
            ));
        }
    })
}

fn between(name: &str) -> Result<Between> {
    Ok(match name {
        "linear" => Between::Linear,
        "lower" => Between::Lower,
        "higher" => Between::Higher,
        "midpoint" => Between::Midpoint,
        "nearest" => Between::Nearest,
        other => {
            return wrong_value(format!(
                "interpolation: expected 'linear', 'lower', 'higher', 'midpoint' or 'nearest', found '{other}'"
            ));
        }
    })
}

/// Axes as a list; none means all.
fn over(dim: Option<&Ints>, rank: usize) -> Vec<isize> {
    dim.map_or_else(|| (0..rank as isize).collect(), Ints::axes)
}

fn quantile(
    x: &Tensor,
    q: Either,
    dim: Option<isize>,
    keepdim: bool,
    interpolation: &str,
    skips_nan: bool,
) -> Result<Tensor> {
    let q = match q {
        Either::Tensor(q) => q,
        Either::Number(q) => Tensor::full([0usize; 0], q, x.dtype(), &x.device())?,
    };
    Ok(x.quantile(&q, dim, keepdim, between(interpolation)?, skips_nan)?)
}

fn step_of(x: &Tensor, y: Option<T>, dx: Option<Num>, dim: isize, running: bool) -> Result<Tensor> {
    let dx = dx.map_or(1.0, |dx| dx.0.to_f64());
    let y = y.as_ref().map(|y| &y.0);
    Ok(if running { x.cumulative_trapezoid(y, dx, dim)? } else { x.trapezoid(y, dx, dim)? })
}

/// A bound of a slice; beyond all ends if it isn't given.
fn bound(value: Option<i64>, default: isize) -> isize {
    value.map_or(default, |value| value as isize)
}

composed! {
    roll [shifts, dims=None, *,] (shifts: Ints, dims: Option<Ints>)
        "Moved along axes by so many places; what falls off one end comes in at the other."
        |x| x.roll(&shifts.0, &dims.map_or(vec![], |dims| dims.axes()))?;
    rot90 [k=1, dims=Ints(vec![0, 1]), *,] (k: i64, dims: Ints)
        "Turned by 90° in the plane of two axes, `k` times."
        |x| match dims.axes()[..] {
            [a, b] => x.rot90(k, [a, b])?,
            _ => return wrong_value(format!("rot90: expected 2 axes, found {}", dims.0.len())),
        };
    diag [diagonal=0, *,] (diagonal: isize)
        "A vector as the diagonal of a matrix, or the diagonal of a matrix as a copy." |x| x.diag(diagonal)?;
    diag_embed [offset=0, dim1=-2, dim2=-1, *,] (offset: isize, dim1: isize, dim2: isize)
        "The last axis as the diagonal of matrices of zeros." |x| x.diag_embed(offset, dim1, dim2)?;
    diagflat [offset=0, *,] (offset: isize)
        "All elements as the diagonal of a matrix." |x| x.ravel()?.diag(offset)?;
    select_scatter [src, dim, index, *,] (src: T, dim: isize, index: isize)
        "A copy with `src` at one index of an axis." |x| x.select_scatter(&src.0, dim, index)?;
    slice_scatter [src, dim=0, start=None, end=None, step=1, *,]
        (src: T, dim: isize, start: Option<i64>, end: Option<i64>, step: i64)
        "A copy with `src` in a range of an axis."
        |x| x.slice_scatter(&src.0, dim, [bound(start, 0), bound(end, isize::MAX)], arg::size("slice_scatter", step)?)?;
    diagonal_scatter [src, offset=0, dim1=0, dim2=1, *,] (src: T, offset: isize, dim1: isize, dim2: isize)
        "A copy with `src` on a diagonal." |x| x.diagonal_scatter(&src.0, offset, dim1, dim2)?;
    trace [*,] () "The sum of the diagonal of a matrix." |x| x.trace()?;
    kron [other, *,] (other: T) "The Kronecker product." |x| x.kron(&other.0)?;
    index_fill [dim, index, value, *,] (dim: isize, index: T, value: Either)
        "A copy with slices of an axis overwritten with one number." |x| x.index_fill(dim, &index.0, value.arg())?;
    index_copy [dim, index, source, *,] (dim: isize, index: T, source: T)
        "A copy in which slice `index[i]` of an axis is slice `i` of `source`." |x| x.index_copy(dim, &index.0, &source.0)?;
    take [index, *,] (index: T) "The elements at places in row-major order." |x| x.take(&index.0)?;
    put [index, source, accumulate=false, *,] (index: T, source: T, accumulate: bool)
        "A copy with `source` at places in row-major order." |x| x.put(&index.0, &source.0, accumulate)?;
    take_along_dim [indices, dim=None, *,] (indices: T, dim: Option<isize>)
        "`gather` in which all other axes are broadcast." |x| x.take_along_dim(&indices.0, dim)?;
    scatter_reduce [dim, index, src, reduce, *, include_self=true,]
        (dim: isize, index: T, src: T, reduce: String, include_self: bool)
        "A copy folded with `src` at the places that `index` names."
        |x| x.scatter_reduce(dim, &index.0, &src.0, fold(&reduce)?, include_self)?;
    index_reduce [dim, index, source, reduce, *, include_self=true,]
        (dim: isize, index: T, source: T, reduce: String, include_self: bool)
        "A copy whose slices of an axis are folded with those of `source`."
        |x| match &reduce[..] {
            "sum" => return wrong_value("index_reduce: expected 'prod', 'mean', 'amax' or 'amin', found 'sum'"),
            reduce => x.index_reduce(dim, &index.0, &source.0, fold(reduce)?, include_self)?,
        };
    masked_scatter [mask, source, *,] (mask: T, source: T)
        "A copy in which the elements where `mask` is true are those of `source`. Waits for the mask."
        |x| x.masked_scatter(&mask.0, &source.0)?;
    bincount [weights=None, minlength=0, *,] (weights: Option<T>, minlength: i64)
        "How often each integer from 0 on is there, or the sums of weights. Waits for the largest."
        |x| x.bincount(weights.as_ref().map(|weights| &weights.0), arg::size("bincount", minlength)?)?;
    _one_hot [num_classes=-1, *,] (num_classes: i64)
        "1 at each class, 0 elsewhere."
        |x| x.one_hot(if num_classes == -1 { None } else { Some(arg::size("one_hot", num_classes)?) })?;
    _coordinate [shape, axis, *,] (shape: Ints, axis: usize)
        "Places in row-major order as the index of one axis of a shape."
        |x| x.coordinates(&shape.sizes("unravel_index")?)?.swap_remove(axis);
    logsumexp [dim, keepdim=false, *,] (dim: Ints, keepdim: bool)
        "`ln Σ eˣ` over axes." |x| x.logsumexp(&dim.axes()[..], keepdim)?;
    _nansum [dim=None, keepdim=false, *,] (dim: Option<Ints>, keepdim: bool)
        "The sum of what is no NaN." |x| x.nansum(&over(dim.as_ref(), x.rank())[..], keepdim)?;
    nanmean [dim=None, keepdim=false, *,] (dim: Option<Ints>, keepdim: bool)
        "The mean of what is no NaN." |x| x.nanmean(&over(dim.as_ref(), x.rank())[..], keepdim)?;
    logcumsumexp [dim, *,] (dim: isize) "Running `ln Σ eˣ` along an axis." |x| x.logcumsumexp(dim)?;
    _diff [n=1, dim=-1, *,] (n: i64, dim: isize)
        "What each element of an axis is above the one before it." |x| x.diff(arg::size("diff", n)?, dim)?;
    _trapezoid [x=None, dx=None, dim=-1, *,] (x: Option<T>, dx: Option<Num>, dim: isize)
        "The integral by trapezoids." |y| step_of(y, x, dx, dim, false)?;
    _cumulative_trapezoid [x=None, dx=None, dim=-1, *,] (x: Option<T>, dx: Option<Num>, dim: isize)
        "The running integral by trapezoids." |y| step_of(y, x, dx, dim, true)?;
    _cdist [other, p, *,] (other: T, p: f64) "Distances between rows." |x| x.cdist(&other.0, p)?;
    renorm [p, dim, maxnorm, *,] (p: Num, dim: isize, maxnorm: Num)
        "A copy whose slices of an axis have at most this norm." |x| x.renorm(p.0.to_f64(), dim, maxnorm.0.to_f64())?;
    _cov [*, correction=1, fweights=None, aweights=None,] (correction: i64, fweights: Option<T>, aweights: Option<T>)
        "The covariances of variables, which are rows."
        |x| x.cov(correction as f64, fweights.as_ref().map(|w| &w.0), aweights.as_ref().map(|w| &w.0))?;
    corrcoef [*,] () "The correlations of variables, which are rows." |x| x.corrcoef()?;
    msort [*,] () "Values in ascending order along the first axis." |x| x.msort()?;
    quantile [q, dim=None, keepdim=false, *, interpolation="linear".into(),]
        (q: Either, dim: Option<isize>, keepdim: bool, interpolation: String)
        "The values below which parts `q` of an axis lie." |x| quantile(x, q, dim, keepdim, &interpolation, false)?;
    nanquantile [q, dim=None, keepdim=false, *, interpolation="linear".into(),]
        (q: Either, dim: Option<isize>, keepdim: bool, interpolation: String)
        "`quantile` of what is no NaN." |x| quantile(x, q, dim, keepdim, &interpolation, true)?;
    mv [vec, *,] (vec: T) "`[n, k] × [k]`." |x| x.mv(&vec.0)?;
    outer [vec2, *,] (vec2: T) "All products of the elements of two vectors." |x| x.outer(&vec2.0)?;
    inner [other, *,] (other: T) "The product summed over the last axes." |x| x.inner(&other.0)?;
    _vecdot [other, dim=-1, *,] (other: T, dim: isize) "`Σ x · other` along an axis." |x| x.vecdot(&other.0, dim)?;
    _tensordot [other, a, b, *,] (other: T, a: Ints, b: Ints)
        "The product summed over axes of both." |x| x.tensordot(&other.0, &a.axes(), &b.axes())?;
    _matrix_power [n, *,] (n: i64) "A square matrix times itself."
        |x| x.matrix_power(arg::size("matrix_power", n)?)?;
    _cross [other, dim, *,] (other: T, dim: isize) "The cross product along an axis of size 3." |x| x.cross(&other.0, dim)?;
    addmv [mat, vec, *, beta=Num(Scalar::Int(1)), alpha=Num(Scalar::Int(1)),] (mat: T, vec: T, beta: Num, alpha: Num)
        "`beta · x + alpha · mat vec`." |x| x.addmv(&mat.0, &vec.0, beta.0, alpha.0)?;
    addr [vec1, vec2, *, beta=Num(Scalar::Int(1)), alpha=Num(Scalar::Int(1)),] (vec1: T, vec2: T, beta: Num, alpha: Num)
        "`beta · x + alpha · vec1 vec2ᵀ`." |x| x.addr(&vec1.0, &vec2.0, beta.0, alpha.0)?;
    addbmm [batch1, batch2, *, beta=Num(Scalar::Int(1)), alpha=Num(Scalar::Int(1)),]
        (batch1: T, batch2: T, beta: Num, alpha: Num)
        "`beta · x + alpha · Σ batch1 batch2`." |x| x.addbmm(&batch1.0, &batch2.0, beta.0, alpha.0)?;
    baddbmm [batch1, batch2, *, beta=Num(Scalar::Int(1)), alpha=Num(Scalar::Int(1)),]
        (batch1: T, batch2: T, beta: Num, alpha: Num)
        "`beta · x + alpha · batch1 batch2`." |x| x.baddbmm(&batch1.0, &batch2.0, beta.0, alpha.0)?;
    _pixel_shuffle [factor, *,] (factor: i64) "Channels as blocks of pixels."
        |x| x.pixel_shuffle(arg::size("pixel_shuffle", factor)?)?;
    _pixel_unshuffle [factor, *,] (factor: i64) "Blocks of pixels as channels."
        |x| x.pixel_unshuffle(arg::size("pixel_unshuffle", factor)?)?;
    _channel_shuffle [groups, *,] (groups: i64) "Channels of groups, mixed."
        |x| x.channel_shuffle(arg::size("channel_shuffle", groups)?)?;
    _pad [pad, mode, value, *,] (pad: Ints, mode: String, value: Num)
        "Axes with more elements at both ends, or fewer; of the last axis first."
        |x| {
            let padding = match &mode[..] {
                "constant" => Padding::Constant(value.0),
                "reflect" => Padding::Reflect,
                "replicate" => Padding::Replicate,
                "circular" => Padding::Circular,
                other => {
                    return wrong_value(format!(
                        "pad: expected mode 'constant', 'reflect', 'replicate' or 'circular', found '{other}'"
                    ));
                }
            };
            if pad.0.len() % 2 == 1 {
                return wrong_value(format!("pad: expected a width for both ends of each axis, found {} numbers", pad.0.len()));
            }
            let widths: Vec<[i64; 2]> = pad.0.chunks(2).map(|ends| [ends[0], ends[1]]).collect();
            x.pad(&widths, padding)?
        };
    _vander [count, increasing, *,] (count: i64, increasing: bool) "The powers of a vector's elements."
        |x| x.vander(arg::size("vander", count)?, increasing)?;
    _isin [test, *,] (test: T) "Which elements are among those of another tensor." |x| x.isin(&test.0)?;
    _searchsorted [values, right, *,] (values: T, right: bool) "Where values go in a sorted axis."
        |x| Tensor::searchsorted(x, &values.0, right)?;
}

/// Several results, as a tuple.
fn tuple<'py>(
    py: Python<'py>,
    cost: usize,
    body: impl FnOnce() -> raddle::Result<Vec<Tensor>> + Send,
) -> Result<Bound<'py, PyTuple>> {
    Ok(PyTuple::new(py, run(py, cost, body)?.into_iter().map(PyTensor))?)
}

/// What `out` of two tensors takes.
type Outs<'py> = Option<(Bound<'py, PyTensor>, Bound<'py, PyTensor>)>;

macro_rules! pairs {
    ($($name:ident [$($signature:tt)*] ($($arg:ident: $type:ty),*) $doc:literal |$x:ident| $body:expr;)*) => {
        #[pymethods]
        impl PyTensor { $(
            #[doc = $doc]
            #[pyo3(signature = ($($signature)* out=None))]
            fn $name<'py>(slf: &Bound<'py, PyTensor>, $($arg: $type,)* out: Outs<'py>) -> Result<Bound<'py, PyAny>> {
                let ($x, py) = (&slf.get().0, slf.py());
                let (a, b): (Tensor, Tensor) = run(py, $x.element_count(), move || $body)?;
                let results = match out {
                    None => (Bound::new(py, PyTensor(a))?, Bound::new(py, PyTensor(b))?),
                    Some(out) => {
                        create::fill(&out.0, &a)?;
                        create::fill(&out.1, &b)?;
                        out
                    }
                };
                named(py, stringify!($name), results)
            }
        )* }
    };
}

fn k_of(k: i64) -> usize {
    usize::try_from(k).unwrap_or(0)
}

pairs! {
    cummax [dim, *,] (dim: isize) "The largest up to each element of an axis, and where it stands." |x| x.cummax(dim);
    cummin [dim, *,] (dim: isize) "The smallest up to each element of an axis, and where it stands." |x| x.cummin(dim);
    _median [dim, keepdim=false, *,] (dim: isize, keepdim: bool) "The middle of an axis." |x| x.median(dim, keepdim);
    _nanmedian [dim, keepdim=false, *,] (dim: isize, keepdim: bool) "The middle of what is no NaN." |x| x.nanmedian(dim, keepdim);
    mode [dim=-1, keepdim=false, *,] (dim: isize, keepdim: bool) "The most frequent element of an axis." |x| x.mode(dim, keepdim);
    kthvalue [k, dim=-1, keepdim=false, *,] (k: i64, dim: isize, keepdim: bool)
        "The `k`-th smallest of an axis, and where it stands." |x| x.kthvalue(k_of(k), dim, keepdim);
}

#[pymethods]
impl PyTensor {
    /// The axes in the reverse order of their elements.
    #[pyo3(signature = (*dims))]
    fn flip(slf: &Bound<'_, PyTensor>, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let axes = Ints(integers("flip", dims)?).axes();
        unary(slf, |x| x.flip(&axes))
    }

    /// So many times along each axis; axes may be added in front.
    #[pyo3(signature = (*repeats))]
    fn repeat(slf: &Bound<'_, PyTensor>, repeats: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let times = Ints(integers("repeat", repeats)?).sizes("repeat")?;
        unary(slf, |x| x.repeat(&times))
    }

    /// `repeat` with as many numbers as axes.
    #[pyo3(signature = (*dims))]
    fn tile(slf: &Bound<'_, PyTensor>, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let times = Ints(integers("tile", dims)?).sizes("tile")?;
        unary(slf, |x| x.tile(&times))
    }

    /// Each element of an axis (none: of all) so many times in a row; `repeats` is one number or a tensor. Alone: places.
    #[pyo3(signature = (repeats=None, dim=None, *, output_size=None))]
    fn repeat_interleave(
        slf: &Bound<'_, PyTensor>,
        repeats: Option<Either>,
        dim: Option<isize>,
        output_size: Option<i64>,
    ) -> Result<PyTensor> {
        let body = |x: &Tensor| {
            let line = if dim.is_some() { x.clone() } else { x.ravel()? };
            match &repeats {
                None => Tensor::counted(x, x.element_count()),
                Some(Either::Tensor(counts)) => line.repeat_interleave_by(counts, dim.unwrap_or(0)),
                Some(Either::Number(count)) => {
                    let count = Tensor::full([1], *count, DType::I64, &x.device())?;
                    line.repeat_interleave_by(&count, dim.unwrap_or(0))
                }
            }
        };
        let made = unary(slf, body)?;
        let axis = dim.unwrap_or(0);
        if let Some(size) = output_size
            && made.0.size(axis)? as i64 != size
        {
            return wrong_value(format!(
                "repeat_interleave: expected an output_size of {}, found {size}",
                made.0.size(axis)?
            ));
        }
        Ok(made)
    }

    /// `index_fill` in place.
    fn index_fill_<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: T,
        value: Either,
    ) -> Result<Bound<'py, PyTensor>> {
        let x = &slf.get().0;
        run(slf.py(), x.element_count(), move || x.index_fill_(dim, &index.0, value.arg()).map(drop))?;
        Ok(slf.clone())
    }

    /// `index_copy` in place.
    fn index_copy_<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: T,
        source: T,
    ) -> Result<Bound<'py, PyTensor>> {
        let x = &slf.get().0;
        run(slf.py(), x.element_count(), move || x.index_copy_(dim, &index.0, &source.0).map(drop))?;
        Ok(slf.clone())
    }

    /// `put` in place.
    #[pyo3(signature = (index, source, accumulate=false))]
    fn put_<'py>(
        slf: &Bound<'py, PyTensor>,
        index: T,
        source: T,
        accumulate: bool,
    ) -> Result<Bound<'py, PyTensor>> {
        let x = &slf.get().0;
        run(slf.py(), x.element_count(), move || x.put_(&index.0, &source.0, accumulate).map(drop))?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (consecutive, dim=None))]
    fn _unique<'py>(
        slf: &Bound<'py, PyTensor>,
        consecutive: bool,
        dim: Option<isize>,
    ) -> Result<Bound<'py, PyTuple>> {
        let x = &slf.get().0;
        tuple(slf.py(), x.element_count(), move || {
            let found = if consecutive { x.unique_consecutive(dim)? } else { x.unique(dim)? };
            Ok(vec![found.values, found.inverse, found.counts])
        })
    }
}

/// A sum of products over axes that letters name.
#[pyfunction]
#[pyo3(signature = (equation, operands))]
pub fn _einsum(equation: &str, operands: Vec<T>) -> Result<PyTensor> {
    let operands: Vec<&Tensor> = operands.iter().map(|operand| &operand.0).collect();
    Ok(PyTensor(raddle::einsum(equation, &operands)?))
}

/// The product of a chain of matrices, in the order that costs least.
#[pyfunction]
pub fn _multi_dot(tensors: Vec<T>) -> Result<PyTensor> {
    let chain: Vec<Tensor> = tensors.into_iter().map(|tensor| tensor.0).collect();
    Ok(PyTensor(Tensor::multi_dot(&chain)?))
}

/// Rows and columns of a triangle.
#[pyfunction]
pub fn _triangle_indices(
    py: Python<'_>,
    upper: bool,
    row: i64,
    col: i64,
    offset: i64,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> Result<PyTensor> {
    let sizes = [arg::size("row", row)?, arg::size("col", col)?];
    let dtype = dtype.map_or(Ok(DType::I64), crate::dtype::parse)?;
    let device = crate::device::parse(py, device)?;
    Ok(PyTensor(Tensor::triangle_indices(upper, sizes, offset, dtype, &device)?))
}
