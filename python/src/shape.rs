//! Views, copies, and what joins and parts.

use crate::{
    arg::{self, integers, sizes, tensors},
    error::{Result, wrong_type, wrong_value},
    tensor::{PyTensor, fresh_or_out, unary},
};
use pyo3::{prelude::*, types::PyTuple};
use raddle::{INFER, Tensor};

fn many<'py>(py: Python<'py>, parts: Vec<Tensor>) -> Result<Bound<'py, PyTuple>> {
    Ok(PyTuple::new(py, parts.into_iter().map(PyTensor))?)
}

fn isizes(values: Vec<i64>) -> Vec<isize> {
    values.into_iter().map(|value| value as isize).collect()
}

/// An axis of a tensor with `rank` axes, from the front.
fn axis(op: &str, value: isize, rank: usize) -> Result<usize> {
    let resolved = if value < 0 { value + rank as isize } else { value };
    match usize::try_from(resolved) {
        Ok(axis) if axis < rank => Ok(axis),
        _ => Err(pyo3::exceptions::PyIndexError::new_err(format!(
            "{op}: axis {value} is out of range, expected -{rank} to {}, rank is {rank}",
            rank as isize - 1
        ))
        .into()),
    }
}

#[pymethods]
impl PyTensor {
    /// Two axes swapped: a view.
    fn transpose(slf: &Bound<'_, PyTensor>, dim0: isize, dim1: isize) -> Result<PyTensor> {
        unary(slf, |x| x.transpose(dim0, dim1))
    }

    /// The two axes of a matrix swapped: a view.
    fn t(slf: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        unary(slf, Tensor::t)
    }

    /// All axes in the reverse order: a view.
    #[getter]
    #[pyo3(name = "T")]
    fn reversed(slf: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        unary(slf, |x| x.permute((0..x.rank() as isize).rev().collect::<Vec<_>>()))
    }

    /// The last two axes swapped: a view.
    #[getter]
    #[pyo3(name = "mT")]
    fn matrix_transposed(slf: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        unary(slf, |x| x.transpose(-2, -1))
    }

    /// The axes in another order: a view.
    #[pyo3(signature = (*dims))]
    fn permute(slf: &Bound<'_, PyTensor>, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let dims = isizes(integers("permute", dims)?);
        unary(slf, |x| x.permute(dims))
    }

    /// Axes moved to other places: a view.
    fn movedim(
        slf: &Bound<'_, PyTensor>,
        source: &Bound<'_, PyAny>,
        destination: &Bound<'_, PyAny>,
    ) -> Result<PyTensor> {
        let rank = slf.get().0.rank();
        let resolve = |what: &Bound<'_, PyAny>| -> Result<Vec<usize>> {
            arg::axes("movedim", Some(what))?
                .unwrap_or_default()
                .into_iter()
                .map(|value| axis("movedim", value, rank))
                .collect()
        };
        let (from, to) = (resolve(source)?, resolve(destination)?);
        let repeats =
            |axes: &[usize]| axes.iter().enumerate().any(|(place, axis)| axes[..place].contains(axis));
        if from.len() != to.len() || repeats(&from) || repeats(&to) {
            return wrong_value(format!(
                "movedim: expected as many axes as places, each once, found {from:?} and {to:?}"
            ));
        }
        let mut order: Vec<isize> = vec![-1; rank];
        for (&from, &to) in from.iter().zip(&to) {
            order[to] = from as isize;
        }
        let mut rest = (0..rank).filter(|axis| !from.contains(axis));
        for place in order.iter_mut().filter(|place| **place < 0) {
            *place = rest.next().expect("as many axes as places are left") as isize;
        }
        unary(slf, |x| x.permute(order))
    }

    /// A range of an axis: a view.
    fn narrow(
        slf: &Bound<'_, PyTensor>,
        dim: isize,
        start: &Bound<'_, PyAny>,
        length: i64,
    ) -> Result<PyTensor> {
        let length = arg::size("narrow", length)?;
        let start = match arg::integer("narrow", start)? {
            start if start < 0 => arg::size("narrow", start + slf.get().0.size(dim)? as i64)?,
            start => arg::size("narrow", start)?,
        };
        unary(slf, |x| x.narrow(dim, start, length))
    }

    /// One index of an axis, which goes away: a view.
    fn select(slf: &Bound<'_, PyTensor>, dim: isize, index: isize) -> Result<PyTensor> {
        unary(slf, |x| x.select(dim, index))
    }

    /// Axes of size 1 repeated without a copy, and new ones in front; -1 keeps a size.
    #[pyo3(signature = (*sizes))]
    fn expand(slf: &Bound<'_, PyTensor>, sizes: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let shape = self::sizes("expand", &integers("expand", sizes)?)?;
        unary(slf, |x| x.expand(shape))
    }

    /// Expanded to the shape of another.
    fn expand_as(slf: &Bound<'_, PyTensor>, other: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        let shape = other.get().0.shape();
        unary(slf, |x| x.expand(shape))
    }

    /// Expanded to a shape.
    #[pyo3(signature = (*size))]
    fn broadcast_to(slf: &Bound<'_, PyTensor>, size: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        Self::expand(slf, size)
    }

    /// The same elements in row-major order as another shape: a view where strides allow it. One size may be -1.
    #[pyo3(signature = (*shape))]
    fn reshape(slf: &Bound<'_, PyTensor>, shape: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let shape = sizes("reshape", &integers("reshape", shape)?)?;
        unary(slf, |x| x.reshape(shape))
    }

    /// Reshaped to the shape of another.
    fn reshape_as(slf: &Bound<'_, PyTensor>, other: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        let shape = other.get().0.shape();
        unary(slf, |x| x.reshape(shape))
    }

    /// The same elements in row-major order as another shape, without a copy. One size may be -1.
    #[pyo3(signature = (*shape))]
    fn view(slf: &Bound<'_, PyTensor>, shape: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let shape = sizes("view", &integers("view", shape)?)?;
        unary(slf, |x| x.view(shape))
    }

    /// Viewed in the shape of another.
    fn view_as(slf: &Bound<'_, PyTensor>, other: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        let shape = other.get().0.shape();
        unary(slf, |x| x.view(shape))
    }

    /// Without axes of size 1: all of them, or those named.
    #[pyo3(signature = (dim=None))]
    fn squeeze(slf: &Bound<'_, PyTensor>, dim: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let tensor = &slf.get().0;
        let rank = tensor.rank();
        let mut axes: Vec<usize> = match arg::axes("squeeze", dim)? {
            None => (0..rank).collect(),
            Some(axes) => {
                axes.into_iter().map(|value| axis("squeeze", value, rank.max(1))).collect::<Result<_>>()?
            }
        };
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return wrong_value(format!("squeeze: expected each axis once, found {axes:?}"));
        }
        let keep = |&axis: &usize| !axes.contains(&axis) || tensor.shape()[axis] != 1;
        match (0..rank).filter(keep).map(|axis| tensor.shape()[axis]).collect::<Vec<_>>() {
            shape if shape.len() == rank => unary(slf, Tensor::alias_view),
            _ if axes.len() == 1 => unary(slf, |x| x.squeeze(axes[0] as isize)),
            _ => {
                let mut squeezed = tensor.clone();
                for &axis in axes.iter().rev().filter(|&&axis| tensor.shape()[axis] == 1) {
                    squeezed = squeezed.squeeze(axis as isize)?;
                }
                Ok(PyTensor(squeezed))
            }
        }
    }

    /// A new axis of size 1: a view.
    fn unsqueeze(slf: &Bound<'_, PyTensor>, dim: isize) -> Result<PyTensor> {
        unary(slf, |x| x.unsqueeze(dim))
    }

    /// Several axes as one: a view where strides allow it.
    #[pyo3(signature = (start_dim=0, end_dim=-1))]
    fn flatten(slf: &Bound<'_, PyTensor>, start_dim: isize, end_dim: isize) -> Result<PyTensor> {
        unary(slf, |x| x.flatten(start_dim, end_dim))
    }

    /// One axis as several; one size may be -1.
    fn unflatten(slf: &Bound<'_, PyTensor>, dim: isize, sizes: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let shape = slf.get().0.shape().to_vec();
        let axis = axis("unflatten", dim, shape.len())?;
        let parts = self::sizes("unflatten", &arg::list("unflatten", sizes)?)?;
        let known: usize = parts.iter().filter(|&&size| size != INFER).product();
        let missing = shape[axis].checked_div(known).unwrap_or(0);
        let parts: Vec<usize> =
            parts.into_iter().map(|size| if size == INFER { missing } else { size }).collect();
        if parts.iter().product::<usize>() != shape[axis] {
            return wrong_value(format!(
                "unflatten: expected sizes that make {}, found {parts:?}",
                shape[axis]
            ));
        }
        let shape: Vec<usize> =
            shape[..axis].iter().chain(&parts).chain(&shape[axis + 1..]).copied().collect();
        unary(slf, |x| x.view(shape))
    }

    /// One axis.
    fn ravel(slf: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        unary(slf, Tensor::ravel)
    }

    /// Windows of an axis, as a new last axis: a view.
    fn unfold(slf: &Bound<'_, PyTensor>, dimension: isize, size: i64, step: i64) -> Result<PyTensor> {
        let (size, step) = (arg::size("unfold", size)?, arg::size("unfold", step)?);
        unary(slf, |x| x.unfold(dimension, size, step))
    }

    /// A diagonal of two axes, as the last axis: a view.
    #[pyo3(signature = (offset=0, dim1=0, dim2=1))]
    fn diagonal(slf: &Bound<'_, PyTensor>, offset: isize, dim1: isize, dim2: isize) -> Result<PyTensor> {
        unary(slf, |x| x.diagonal(offset, dim1, dim2))
    }

    /// Any view of the storage.
    #[pyo3(signature = (size, stride, storage_offset=None))]
    fn as_strided(
        slf: &Bound<'_, PyTensor>,
        size: &Bound<'_, PyAny>,
        stride: &Bound<'_, PyAny>,
        storage_offset: Option<i64>,
    ) -> Result<PyTensor> {
        let sizes = |what: &Bound<'_, PyAny>| -> Result<Vec<usize>> {
            arg::list("as_strided", what)?.into_iter().map(|value| arg::size("as_strided", value)).collect()
        };
        let (shape, strides) = (sizes(size)?, sizes(stride)?);
        let offset = match storage_offset {
            None => slf.get().0.storage_offset(),
            Some(offset) => arg::size("as_strided", offset)?,
        };
        unary(slf, |x| x.as_strided(shape, strides, offset))
    }

    /// The slices of an axis, one by one: views.
    #[pyo3(signature = (dim=0))]
    fn unbind<'py>(slf: &Bound<'py, PyTensor>, dim: isize) -> Result<Bound<'py, PyTuple>> {
        many(slf.py(), slf.get().0.unbind(dim)?)
    }

    /// Parts of an axis, of one size or of several: views.
    #[pyo3(signature = (split_size, dim=0))]
    fn split<'py>(
        slf: &Bound<'py, PyTensor>,
        split_size: &Bound<'_, PyAny>,
        dim: isize,
    ) -> Result<Bound<'py, PyTuple>> {
        let tensor = &slf.get().0;
        let parts = match split_size.extract::<i64>() {
            Ok(size) => tensor.split(arg::size("split", size)?, dim)?,
            Err(_) => {
                let sizes = arg::list("split", split_size)?;
                let sizes: Vec<usize> =
                    sizes.into_iter().map(|size| arg::size("split", size)).collect::<Result<_>>()?;
                tensor.split_sizes(&sizes, dim)?
            }
        };
        many(slf.py(), parts)
    }

    /// Parts of an axis, of these sizes: views.
    #[pyo3(signature = (split_sizes, dim=0))]
    fn split_with_sizes<'py>(
        slf: &Bound<'py, PyTensor>,
        split_sizes: &Bound<'_, PyAny>,
        dim: isize,
    ) -> Result<Bound<'py, PyTuple>> {
        Self::split(slf, split_sizes, dim)
    }

    /// An axis in so many parts, at most: views.
    #[pyo3(signature = (chunks, dim=0))]
    fn chunk<'py>(slf: &Bound<'py, PyTensor>, chunks: i64, dim: isize) -> Result<Bound<'py, PyTuple>> {
        let chunks = arg::size("chunk", chunks)?;
        many(slf.py(), slf.get().0.chunk(chunks, dim)?)
    }

    /// Itself if it is row-major, else a row-major copy.
    fn contiguous<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
        if slf.get().0.is_contiguous() {
            return Ok(slf.clone());
        }
        Ok(Bound::new(slf.py(), unary(slf, Tensor::contiguous)?)?)
    }
}

macro_rules! triangles {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (diagonal=0, *, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            diagonal: i64,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let tensor = &slf.get().0;
            let into = |out: &Tensor| tensor.[<$name _out>](diagonal, out);
            fresh_or_out(slf.py(), tensor.element_count(), out, || tensor.$name(diagonal), into)
        }
        #[doc = concat!("`", stringify!($name), "` in place.")]
        #[pyo3(signature = (diagonal=0))]
        fn [<$name _>]<'py>(slf: &Bound<'py, PyTensor>, diagonal: i64) -> Result<Bound<'py, PyTensor>> {
            let tensor = &slf.get().0;
            crate::tensor::run(slf.py(), tensor.element_count(), || tensor.[<$name _>](diagonal).map(drop))?;
            Ok(slf.clone())
        }
    )* } } };
}
triangles! {
    tril "What is on and below a diagonal of the last two axes; zeros elsewhere.";
    triu "What is on and above a diagonal of the last two axes; zeros elsewhere.";
}

macro_rules! joins {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (tensors, dim=0, *, out=None))]
        pub fn $name<'py>(
            py: Python<'py>,
            tensors: &Bound<'py, PyAny>,
            dim: isize,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let parts = self::tensors(stringify!($name), tensors)?;
            let element_count = parts.iter().map(Tensor::element_count).sum();
            let into = |out: &Tensor| Tensor::[<$name _out>](&parts, dim, out);
            fresh_or_out(py, element_count, out, || Tensor::$name(&parts, dim), into)
        }
    )* } };
}
joins! {
    cat "Tensors one after the other along an axis.";
    stack "Tensors of one shape along a new axis.";
}

/// Tensors as views of one shape.
#[pyfunction]
#[pyo3(signature = (*tensors))]
pub fn broadcast_tensors<'py>(py: Python<'py>, tensors: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyTuple>> {
    let parts = match tensors.len() {
        1 if !tensors.get_item(0)?.is_instance_of::<PyTensor>() => {
            arg::tensors("broadcast_tensors", &tensors.get_item(0)?)?
        }
        _ => arg::tensors("broadcast_tensors", tensors)?,
    };
    let Some((first, rest)) = parts.split_first() else {
        return wrong_type("broadcast_tensors: expected tensors, found none");
    };
    let mut shape = *first.shape();
    for part in rest {
        shape = raddle::Layout::broadcast_shapes("broadcast_tensors", &shape, part.shape())
            .map_err(raddle::Error::from)?;
    }
    let parts = parts.iter().map(|part| Ok(part.expand(shape)?)).collect::<Result<_>>()?;
    many(py, parts)
}
