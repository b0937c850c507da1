//! `x[..]` and `x[..] = y`, and ops that take indices as a tensor.

use crate::{
    arg::{expect_operand, integer, type_name},
    create,
    error::{Result, wrong_type, wrong_value},
    tensor::{PyTensor, fresh_or_out, run},
};
use pyo3::{
    exceptions::PyIndexError,
    prelude::*,
    types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyTuple},
};
use raddle::{Arg, DType, Tensor};

/// The view that a key names, and the tensors of indices that are left to apply to its axes.
struct Place {
    view: Tensor,
    /// One an axis of the view, from the first on, as far as there are any; none: all of the axis.
    indices: Vec<Option<Tensor>>,
}

impl Place {
    fn has_indices(&self) -> bool {
        self.indices.iter().any(Option::is_some)
    }
}

/// Ints, slices, `None` and `...` make a view; lists and tensors are indices of elements.
fn place(tensor: &Tensor, key: &Bound<'_, PyAny>) -> Result<Place> {
    let items: Vec<Bound<'_, PyAny>> = match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![key.clone()],
    };
    // How many axes each item takes.
    let indices: Vec<Option<Tensor>> =
        items.iter().map(|item| index_tensor(tensor, item)).collect::<Result<_>>()?;
    let takes = |item: &Bound<'_, PyAny>, index: &Option<Tensor>| match index {
        Some(mask) if mask.dtype() == DType::Bool => mask.rank(),
        Some(_) => 1,
        None if item.is_none() || item.is_instance_of::<PyEllipsis>() || item.is_instance_of::<PyBool>() => 0,
        None => 1,
    };
    let taken: usize = items.iter().zip(&indices).map(|(item, index)| takes(item, index)).sum();
    if taken > tensor.rank() {
        let text = format!(
            "index: expected at most {} indices, found {taken}, shape is {:?}",
            tensor.rank(),
            tensor.shape()
        );
        return Err(PyIndexError::new_err(text).into());
    }
    if items.iter().filter(|item| item.is_instance_of::<PyEllipsis>()).count() > 1 {
        return Err(PyIndexError::new_err("index: expected at most one '...'").into());
    }
    let mut view = tensor.clone();
    let mut found: Vec<Option<Tensor>> = Vec::new();
    let mut axis = 0isize;
    for (item, index) in items.iter().zip(indices) {
        if item.is_none() {
            view = view.unsqueeze(axis)?;
            found.push(None);
            axis += 1;
        } else if item.is_instance_of::<PyEllipsis>() {
            let skipped = tensor.rank() - taken;
            found.resize(found.len() + skipped, None);
            axis += skipped as isize;
        } else if let Some(index) = index {
            let axes = takes(item, &Some(index.clone()));
            if axes == 0 {
                // A bool without axes: a new axis, which is there once or not at all.
                view = view.unsqueeze(axis)?;
                found.push(Some(index.unsqueeze(0)?));
                axis += 1;
                continue;
            }
            found.push(Some(index));
            axis += axes as isize;
        } else if let Ok(slice) = item.cast::<PySlice>() {
            let size = view.size(axis)?;
            let part = slice.indices(size as isize)?;
            if part.step <= 0 {
                return wrong_value(format!("index: expected a step of at least 1, found {}", part.step));
            }
            if (part.start, part.stop, part.step) != (0, size as isize, 1) {
                view = view.slice(axis, part.start, part.stop.max(part.start), part.step as usize)?;
            }
            found.push(None);
            axis += 1;
        } else if item.is_instance_of::<PyInt>() || item.hasattr("__index__")? {
            let index: i64 = item.call_method0("__index__")?.extract()?;
            view = view.select(axis, index as isize)?;
        } else {
            return wrong_type(format!(
                "index: expected integers, slices, None, ..., or tensors or lists of integers or bools, found {}",
                type_name(item)
            ));
        }
    }
    Ok(Place { view, indices: found })
}

/// The tensor of indices or bools that an item is.
fn index_tensor(tensor: &Tensor, item: &Bound<'_, PyAny>) -> Result<Option<Tensor>> {
    if let Ok(index) = item.cast::<PyTensor>() {
        let index = &index.get().0;
        // One integer is an index like any other, but for where it comes from.
        return Ok(Some(index.clone()));
    }
    let given = if item.is_instance_of::<PyBool>() {
        true
    } else {
        item.is_instance_of::<PyList>() || item.hasattr("__array_interface__")? && item.hasattr("__len__")?
    };
    if !given {
        return Ok(None);
    }
    let made = create::from_object(item, None, tensor.device())?;
    Ok(Some(if made.element_count() == 0 && made.dtype().is_float() {
        made.to_dtype(DType::I64)?
    } else {
        made
    }))
}

#[pymethods]
impl PyTensor {
    fn __getitem__(slf: &Bound<'_, PyTensor>, key: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let tensor = &slf.get().0;
        let place = place(tensor, key)?;
        if !place.has_indices() {
            return Ok(PyTensor(if place.view.is(tensor) { tensor.alias_view()? } else { place.view }));
        }
        let indices: Vec<Option<&Tensor>> = place.indices.iter().map(Option::as_ref).collect();
        Ok(PyTensor(slf.py().detach(|| place.view.index(&indices))?))
    }

    fn __setitem__(
        slf: &Bound<'_, PyTensor>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let tensor = &slf.get().0;
        let place = place(tensor, key)?;
        let made;
        let value = match crate::arg::operand(value)? {
            Some(operand) => operand,
            None => {
                made = Bound::new(slf.py(), PyTensor(create::from_object(value, None, tensor.device())?))?;
                crate::arg::Operand::Tensor(&made)
            }
        };
        let value = value.arg();
        if !place.has_indices() {
            // Axes of size 1 in front of what is assigned count for nothing.
            let squeezed;
            let value = match value {
                Arg::Tensor(given) if given.rank() > place.view.rank() => {
                    let extra = given.rank() - place.view.rank();
                    if given.shape()[..extra].iter().any(|&size| size != 1) {
                        return Err(raddle::Error::Shape {
                            op: "index",
                            what: "the value",
                            expected: place.view.shape().to_vec(),
                            found: given.shape().to_vec(),
                        }
                        .into());
                    }
                    squeezed = given.reshape(&given.shape()[extra..])?;
                    Arg::Tensor(&squeezed)
                }
                value => value,
            };
            run(slf.py(), place.view.element_count(), || place.view.copy_(value).map(drop))?;
            return Ok(());
        }
        let indices: Vec<Option<&Tensor>> = place.indices.iter().map(Option::as_ref).collect();
        slf.py().detach(|| place.view.index_put_(&indices, value, false).map(drop))?;
        Ok(())
    }

    /// `x[indices] = values`, or with `accumulate` an addition, in which elements that are named twice get both.
    #[pyo3(signature = (indices, values, accumulate=false))]
    fn index_put_<'py>(
        slf: &Bound<'py, PyTensor>,
        indices: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
        accumulate: bool,
    ) -> Result<Bound<'py, PyTensor>> {
        let given = optional_tensors(indices)?;
        let indices: Vec<Option<&Tensor>> = given.iter().map(Option::as_ref).collect();
        let (tensor, values) = (&slf.get().0, expect_operand("index_put_", values)?);
        let values = values.arg();
        slf.py().detach(|| tensor.index_put_(&indices, values, accumulate).map(drop))?;
        Ok(slf.clone())
    }

    /// A copy with `index_put_`.
    #[pyo3(signature = (indices, values, accumulate=false))]
    fn index_put<'py>(
        slf: &Bound<'py, PyTensor>,
        indices: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
        accumulate: bool,
    ) -> Result<Bound<'py, PyTensor>> {
        let copy = Bound::new(slf.py(), PyTensor(slf.get().0.copy()?))?;
        Self::index_put_(&copy, indices, values, accumulate)
    }

    /// The elements where `mask` (bool, broadcast) is true, as one axis. Waits for the mask.
    #[pyo3(signature = (mask, *, out=None))]
    fn masked_select<'py>(
        slf: &Bound<'py, PyTensor>,
        mask: &Bound<'py, PyTensor>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, mask) = (&slf.get().0, &mask.get().0);
        let made = slf.py().detach(|| tensor.masked_select(mask))?;
        match out {
            None => Ok(Bound::new(slf.py(), PyTensor(made))?),
            Some(out) => {
                create::fill(out, &made)?;
                Ok(out.clone())
            }
        }
    }

    /// `out[.., i, ..] = x[.., index[.., i, ..], ..]`.
    #[pyo3(signature = (dim, index, *, sparse_grad=false, out=None))]
    fn gather<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        sparse_grad: bool,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = sparse_grad;
        let (tensor, index) = (&slf.get().0, &index.get().0);
        let into = |out: &Tensor| tensor.gather_out(dim, index, out);
        fresh_or_out(slf.py(), index.element_count(), out, || tensor.gather(dim, index), into)
    }

    /// The slices of an axis that `index` names.
    #[pyo3(signature = (dim, index, *, out=None))]
    fn index_select<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, index) = (&slf.get().0, &index.get().0);
        let into = |out: &Tensor| tensor.index_select_out(dim, index, out);
        fresh_or_out(slf.py(), tensor.element_count(), out, || tensor.index_select(dim, index), into)
    }

    /// `alpha · source[.., i, ..]` added to slice `index[i]` of an axis.
    #[pyo3(signature = (dim, index, source, *, alpha=None, out=None))]
    fn index_add<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        source: &Bound<'py, PyTensor>,
        alpha: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let alpha =
            alpha.map_or(Ok(1.0), |alpha| crate::arg::scalar("alpha", alpha).map(|alpha| alpha.to_f64()))?;
        let (tensor, index, source) = (&slf.get().0, &index.get().0, &source.get().0);
        let into = |out: &Tensor| tensor.index_add_out(dim, index, source, alpha, out);
        fresh_or_out(
            slf.py(),
            tensor.element_count(),
            out,
            || tensor.index_add(dim, index, source, alpha),
            into,
        )
    }

    /// `index_add` in place.
    #[pyo3(signature = (dim, index, source, *, alpha=None))]
    fn index_add_<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        source: &Bound<'py, PyTensor>,
        alpha: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let alpha =
            alpha.map_or(Ok(1.0), |alpha| crate::arg::scalar("alpha", alpha).map(|alpha| alpha.to_f64()))?;
        let (tensor, index, source) = (&slf.get().0, &index.get().0, &source.get().0);
        run(slf.py(), source.element_count(), || tensor.index_add_(dim, index, source, alpha).map(drop))?;
        Ok(slf.clone())
    }
}

/// Tensors or `None`.
fn optional_tensors(values: &Bound<'_, PyAny>) -> Result<Vec<Option<Tensor>>> {
    let tensor = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        match item.cast::<PyTensor>() {
            Ok(tensor) => Ok(Some(tensor.get().0.clone())),
            Err(_) if item.is_none() => Ok(None),
            Err(_) => wrong_type(format!("indices: expected tensors or None, found {}", type_name(&item))),
        }
    };
    values.try_iter()?.map(tensor).collect()
}

/// What is scattered: a tensor, or a number for each index.
fn source(
    tensor: &Tensor,
    index: &Tensor,
    src: Option<&Bound<'_, PyAny>>,
    value: Option<&Bound<'_, PyAny>>,
) -> Result<Tensor> {
    let given = match (src, value) {
        (Some(given), None) | (None, Some(given)) => given,
        _ => return wrong_type("scatter: expected either src or value"),
    };
    match expect_operand("scatter", given)?.arg() {
        Arg::Tensor(src) => Ok(src.clone()),
        Arg::Scalar(value) => {
            let filled = Tensor::full([0usize; 0], value, tensor.dtype(), &tensor.device())?;
            Ok(filled.expand(index.shape())?)
        }
    }
}

#[pymethods]
impl PyTensor {
    /// A copy in which `[.., index[.., i, ..], ..]` is `src[.., i, ..]`, or with `reduce` (`"add"`, `"multiply"`) is combined
    /// with it.
    #[pyo3(signature = (dim, index, src=None, *, value=None, reduce=None, out=None))]
    fn scatter<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        src: Option<&Bound<'py, PyAny>>,
        value: Option<&Bound<'py, PyAny>>,
        reduce: Option<&str>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, index) = (&slf.get().0, &index.get().0);
        let src = source(tensor, index, src, value)?;
        match reduce {
            None => {
                let into = |out: &Tensor| tensor.scatter_out(dim, index, &src, out);
                fresh_or_out(slf.py(), tensor.element_count(), out, || tensor.scatter(dim, index, &src), into)
            }
            Some("add") => {
                let into = |out: &Tensor| tensor.scatter_add_out(dim, index, &src, out);
                fresh_or_out(
                    slf.py(),
                    tensor.element_count(),
                    out,
                    || tensor.scatter_add(dim, index, &src),
                    into,
                )
            }
            Some(other) => wrong_value(format!("scatter: expected reduce 'add', found '{other}'")),
        }
    }

    /// `scatter` in place.
    #[pyo3(signature = (dim, index, src=None, *, value=None, reduce=None))]
    fn scatter_<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        src: Option<&Bound<'py, PyAny>>,
        value: Option<&Bound<'py, PyAny>>,
        reduce: Option<&str>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, index) = (&slf.get().0, &index.get().0);
        let src = source(tensor, index, src, value)?;
        let body = || match reduce {
            None => tensor.scatter_(dim, index, &src).map(drop),
            Some(_) => tensor.scatter_add_(dim, index, &src).map(drop),
        };
        if let Some(other) = reduce.filter(|&reduce| reduce != "add") {
            return wrong_value(format!("scatter_: expected reduce 'add', found '{other}'"));
        }
        run(slf.py(), index.element_count(), body)?;
        Ok(slf.clone())
    }

    /// A copy with `src[.., i, ..]` added to `[.., index[.., i, ..], ..]`.
    #[pyo3(signature = (dim, index, src, *, out=None))]
    fn scatter_add<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        src: &Bound<'py, PyTensor>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, index, src) = (&slf.get().0, &index.get().0, &src.get().0);
        let into = |out: &Tensor| tensor.scatter_add_out(dim, index, src, out);
        fresh_or_out(slf.py(), tensor.element_count(), out, || tensor.scatter_add(dim, index, src), into)
    }

    /// `scatter_add` in place.
    fn scatter_add_<'py>(
        slf: &Bound<'py, PyTensor>,
        dim: isize,
        index: &Bound<'py, PyTensor>,
        src: &Bound<'py, PyTensor>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, index, src) = (&slf.get().0, &index.get().0, &src.get().0);
        run(slf.py(), index.element_count(), || tensor.scatter_add_(dim, index, src).map(drop))?;
        Ok(slf.clone())
    }
}

/// Rows of a table. `padding_idx`: a row that gets no gradient. A gradient is never sparse.
#[pyfunction]
#[pyo3(signature = (input, weight, padding_idx=None, *, sparse=false))]
pub fn embedding(
    input: &Bound<'_, PyTensor>,
    weight: &Bound<'_, PyTensor>,
    padding_idx: Option<i64>,
    sparse: bool,
) -> Result<PyTensor> {
    let _ = sparse;
    let (index, weight) = (&input.get().0, &weight.get().0);
    let rows = weight.shape().first().copied().unwrap_or(0) as i64;
    let padding = match padding_idx {
        Some(row) if !(-rows..rows).contains(&row) => {
            return wrong_value(format!(
                "embedding: expected a padding_idx from -{rows} to {}, found {row}",
                rows - 1
            ));
        }
        row => row.map(|row| row.rem_euclid(rows) as usize),
    };
    let body = || match padding {
        None => weight.embedding(index),
        Some(row) => weight.embedding_with_padding(index, row),
    };
    Ok(PyTensor(run(input.py(), index.element_count(), body)?))
}

/// An integer of a tensor of one, as Python's `range` and lists want it.
#[pymethods]
impl PyTensor {
    fn __index__(slf: &Bound<'_, PyTensor>) -> Result<i64> {
        if slf.get().0.dtype().is_float() {
            return wrong_type("index: expected an integer tensor of one element, found floats");
        }
        integer("index", slf.as_any())
    }
}
