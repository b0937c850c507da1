//! Reading and writing at places that several tensors name: `x[i, :, j]` of NumPy and PyTorch, integers and masks mixed.
//!
//! It is composed of what is there: the named axes come first and count as one, the indices of all of them as one index into it,
//! so that reading is `index_select` and writing is `scatter`. Gradients and the order of writes are theirs.

use crate::{
    Arg, DType, Dims, Error, Fused, Program, Result, Tensor,
    error::shape_error,
    number::fit,
    pointwise::{check_device, check_rank},
    record::Silence,
};
use raddle_base::ViewError;

/// What a list of indices names of a tensor.
struct Place {
    /// The tensor with the named axes in front.
    view: Tensor,
    /// How many they are.
    named: usize,
    /// For each place one index into these axes, as one axis. What is out of range stays so; of several it is -1.
    index: Tensor,
    /// The shape of all indices, broadcast together.
    shape: Dims,
    /// Where the axes of `shape` stand in the result.
    at: usize,
}

impl Place {
    fn new(op: &'static str, tensor: &Tensor, given: &[Option<&Tensor>]) -> Result<Place> {
        let mut indices: Vec<(usize, Tensor)> = Vec::new();
        let mut axis = 0;
        let _silence = Silence::new();
        for index in given {
            let Some(index) = index else {
                axis += 1;
                continue;
            };
            check_device(op, tensor, &[index])?;
            let parts = match index.dtype() {
                DType::I64 | DType::I32 => vec![index.to_dtype(DType::I64)?],
                DType::Bool => places_of(op, tensor, axis, index)?,
                found => return Err(Error::DType { op, what: "index", expected: "i64, i32 or bool", found }),
            };
            for part in parts {
                indices.push((axis, part));
                axis += 1;
            }
        }
        if axis > tensor.rank() {
            let (expected, found) = ("at most as many as the tensor has axes", axis);
            return Err(Error::Rank { op, what: "the list of indices", expected, found });
        }
        let Some(&(at, _)) = indices.first() else {
            return Err(Error::TensorCount { op, expected: "at least 1", found: 0 });
        };
        let follows = |pair: &[(usize, Tensor)]| pair[0].0 + 1 == pair[1].0;
        let at = if indices.windows(2).all(follows) { at } else { 0 };
        let rest = (0..tensor.rank()).filter(|axis| indices.iter().all(|(named, _)| named != axis));
        let order: Vec<isize> =
            indices.iter().map(|(axis, _)| *axis).chain(rest).map(|axis| axis as isize).collect();

        let mut joined: Option<Tensor> = None;
        for (axis, index) in &indices {
            let size = tensor.shape()[*axis] as f64;
            joined = Some(match joined {
                // Alone, it stays as it is where it is out of range, and is told so.
                None if indices.len() == 1 => Fused::new(Program::record(move |[index]| {
                    (index.lt(0.0) & index.ge(-size)).select(index + size, index)
                }))
                .call(&[index])?,
                None => Fused::new(Program::record(move |[index]| {
                    let index = index.lt(0.0).select(index + size, index);
                    (index.lt(0.0) | index.ge(size)).select(-1.0, index)
                }))
                .call(&[index])?,
                Some(joined) => Fused::new(Program::record(move |[joined, index]| {
                    let index = index.lt(0.0).select(index + size, index);
                    (joined.lt(0.0) | index.lt(0.0) | index.ge(size)).select(-1.0, joined * size + index)
                }))
                .call(&[&joined, index])?,
            });
        }
        let joined = joined.expect("there is one index at least");
        let (named, shape) = (indices.len(), *joined.shape());
        check_rank(op, &joined, tensor.rank() - named)?;
        drop(_silence);
        Ok(Place { view: tensor.permute(order)?, named, index: joined.ravel()?, shape, at })
    }

    /// The axes that no index names.
    fn rest(&self) -> &[usize] {
        &self.view.shape()[self.named..]
    }

    /// The named axes as one, and the others.
    fn table_shape(&self) -> Dims {
        let rows = self.view.shape()[..self.named].iter().product();
        std::iter::once(rows).chain(self.rest().iter().copied()).collect()
    }

    /// For axes of the shape of the indices, then the others: where each goes in the result.
    fn order(&self) -> Vec<isize> {
        let (count, rest) = (self.shape.len(), self.rest().len());
        let axes = (count..count + self.at).chain(0..count).chain(count + self.at..count + rest);
        axes.map(|axis| axis as isize).collect()
    }

    /// The shape of what is read or written.
    fn result_shape(&self) -> Dims {
        let (before, after) = self.rest().split_at(self.at);
        before.iter().chain(self.shape.iter()).chain(after).copied().collect()
    }
}

/// The indices of what is true in a mask over the axes from `axis` on: one list an axis.
fn places_of(op: &'static str, tensor: &Tensor, axis: usize, mask: &Tensor) -> Result<Vec<Tensor>> {
    let covered = tensor.shape().get(axis..axis + mask.rank());
    if mask.rank() == 0 || covered.is_none_or(|covered| *covered != mask.shape()[..]) {
        let expected = Dims::new(covered.unwrap_or_default()).unwrap_or(Dims::EMPTY);
        return Err(shape_error(op, "a mask", &expected, mask.shape()));
    }
    mask.nonzero()?.unbind(1)
}

impl Tensor {
    /// The elements that indices name, `x[i, .., j]` of NumPy: one index an axis, from the first on, and none where all of an
    /// axis is taken. An index is of integers (negative ones count from the end), or a mask of bools over as many axes as it
    /// has, which names what is true. They are broadcast together; their axes stand in the result where the first of them stood,
    /// or in front of all others if some other axis is between them. A mask is waited for.
    ///
    /// Errors: more indices than axes, another dtype, shapes that don't fit; an index out of range, told as by
    /// [`index_select`](Tensor::index_select).
    ///
    /// ```
    /// # use raddle_tensor::{Device, Tensor};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Device::open(Box::new(raddle_cpu::Cpu::new()))?;
    /// let x = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6], [2, 3], &device)?;
    /// let (rows, columns) = (Tensor::from_slice(&[0i64, 1], [2], &device)?, Tensor::from_slice(&[-1i64, 0], [2], &device)?);
    /// assert_eq!(x.index(&[Some(&rows), Some(&columns)])?.to_vec::<i64>()?, [3, 4]);
    /// assert_eq!(x.index(&[None, Some(&columns)])?.to_vec::<i64>()?, [3, 1, 6, 4]);
    /// assert_eq!(x.index(&[Some(&x.gt(4)?)])?.to_vec::<i64>()?, [5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn index(&self, indices: &[Option<&Tensor>]) -> Result<Tensor> {
        let place = Place::new("index", self, indices)?;
        let table =
            if place.named == 1 { place.view.clone() } else { place.view.reshape(place.table_shape())? };
        let rows = table.index_select(0, &place.index)?;
        let shape: Dims = place.shape.iter().chain(place.rest()).copied().collect();
        rows.reshape(shape)?.permute(place.order())
    }

    /// Writes a number or a tensor, broadcast and converted, to the elements that [`index`](Tensor::index) reads. With
    /// `accumulate` it is added. Of an element that is named twice the last value stands, or both are added.
    ///
    /// Errors: as of [`index`](Tensor::index); a tensor that can't be written in place.
    pub fn index_put_<'a>(
        &self,
        indices: &[Option<&Tensor>],
        values: impl Into<Arg<'a>>,
        accumulate: bool,
    ) -> Result<&Tensor> {
        let op = "index_put";
        let values = values.into();
        if let (&[Some(mask)], Arg::Scalar(value), false) = (indices, values, accumulate)
            && mask.dtype() == DType::Bool
            && mask.rank() > 0
            && self.shape().get(..mask.rank()) == Some(&mask.shape()[..])
        {
            let shape: Dims =
                mask.shape().iter().copied().chain((mask.rank()..self.rank()).map(|_| 1)).collect();
            let value = fit(op, "the number", value, self.dtype())?;
            return self.masked_fill_(&mask.detach().reshape(shape)?, value);
        }
        let place = Place::new(op, self, indices)?;
        let values = match values {
            Arg::Scalar(value) => Tensor::full([0usize; 0], value, self.dtype(), &self.device())?,
            Arg::Tensor(values) => values.to_dtype(self.dtype())?,
        };
        check_device(op, self, &[&values])?;
        let shape = place.result_shape();
        if values.layout().broadcast_to(op, &shape).is_err() {
            return Err(shape_error(op, "the values", &shape, values.shape()));
        }
        // Back from the order of the result: the axes of the indices in front, as one.
        let mut order = vec![0; shape.len()];
        for (to, &from) in place.order().iter().enumerate() {
            order[from as usize] = to as isize;
        }
        let count = place.index.element_count();
        let rows: Dims = std::iter::once(count).chain(place.rest().iter().copied()).collect();
        let values = values.expand(shape)?.permute(order)?.reshape(rows)?;
        let column: Dims = std::iter::once(count).chain(place.rest().iter().map(|_| 1)).collect();
        let index = place.index.reshape(column)?.expand(rows)?;

        let write = |table: &Tensor| match accumulate {
            true => table.scatter_add_(0, &index, &values).map(drop),
            false => table.scatter_(0, &index, &values).map(drop),
        };
        match place.view.layout().view(&place.table_shape()) {
            _ if place.named == 1 => write(&place.view)?,
            Ok(_) => write(&place.view.view(place.table_shape())?)?,
            Err(ViewError::NotViewable { .. }) => {
                let table = place.view.reshape(place.table_shape())?;
                write(&table)?;
                place.view.copy_(&table.view(place.view.shape())?)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self)
    }

    /// [`index_put_`](Tensor::index_put_) into a copy.
    pub fn index_put<'a>(
        &self,
        indices: &[Option<&Tensor>],
        values: impl Into<Arg<'a>>,
        accumulate: bool,
    ) -> Result<Tensor> {
        let copy = self.copy()?;
        copy.index_put_(indices, values, accumulate)?;
        Ok(copy)
    }
}
