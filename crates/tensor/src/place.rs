//! Reading and writing at places that several tensors name: `x[i, :, j]` of NumPy and PyTorch, integers and masks mixed.
//!
//! It is composed of what is there: the named axes come first and count as one, the indices of all of them as one index into it,
//! so that reading is `index_select` and writing is `scatter`. Gradients and the order of writes are theirs.

use crate::{
    Arg, DType, Dims, Error, Layout, Result, Tensor,
    error::shape_error,
    fused::once,
    number::fit,
    pointwise::{check_device, check_out, check_rank},
    record::Silence,
};

/// What a list of indices names of a tensor.
struct Place {
    /// The tensor with the named axes in front.
    view: Tensor,
    /// How many they are.
    named: usize,
    /// For each place one index into these axes, as one axis: of the rows of a table or, if they make none, of elements from the
    /// view's first on. What is out of range stays so; of several it is -1.
    index: Tensor,
    is_table: bool,
    /// The shape of all indices, broadcast together.
    shape: Dims,
    /// Where the axes of `shape` stand in the result.
    at: usize,
}

/// What the named axes are counted as.
#[derive(Clone, Copy, PartialEq)]
enum Count {
    /// The rows of a table, which may be a copy.
    Rows,
    /// The same if no copy is needed, else places in memory.
    RowsInPlace,
}

impl Place {
    fn new(op: &'static str, tensor: &Tensor, given: &[Option<&Tensor>], count: Count) -> Result<Place> {
        let mut indices: Vec<(usize, Tensor)> = Vec::new();
        let mut axis = 0;
        let silence = Silence::new();
        for index in given {
            let Some(index) = index else {
                axis += 1;
                continue;
            };
            check_device(op, tensor, &[index])?;
            let parts = match index.dtype() {
                dtype if dtype.is_index() => vec![index.to_dtype(DType::I64)?],
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

        let (named, layout) = (indices.len(), tensor.layout().permute(&order)?);
        let is_table = count == Count::Rows || layout.view(&table_shape(layout.shape(), named)).is_ok();
        let (mut joined, device): (Option<Tensor>, _) = (None, tensor.device());
        // As tensors, so that there is one program for all sizes.
        let number = |value: usize| Tensor::full([0usize; 0], value as i64, DType::I64, &device);
        for (place, (_, index)) in indices.iter().enumerate() {
            let weight = match is_table {
                true => layout.shape()[place + 1..named].iter().product(),
                false => layout.strides()[place],
            };
            let (size, weight) = (number(layout.shape()[place])?, number(weight)?);
            joined = Some(match joined {
                // Alone, it stays as it is where it is out of range, and is told so.
                None if named == 1 => {
                    once!(|[index, size]| (index.lt(0.0) & index.ge(-size)).select(index + size, index))
                        .call(&[index, &size])?
                }
                None => once!(|[index, size, weight]| {
                    let index = index.lt(0.0).select(index + size, index);
                    (index.lt(0.0) | index.ge(size)).select(-1.0, index * weight)
                })
                .call(&[index, &size, &weight])?,
                Some(joined) => once!(|[joined, index, size, weight]| {
                    let index = index.lt(0.0).select(index + size, index);
                    (joined.lt(0.0) | index.lt(0.0) | index.ge(size)).select(-1.0, joined + index * weight)
                })
                .call(&[&joined, index, &size, &weight])?,
            });
        }
        let joined = joined.expect("there is one index at least");
        let shape = *joined.shape();
        check_rank(op, &joined, tensor.rank() - named)?;
        drop(silence);
        Ok(Place { view: tensor.permute(order)?, named, index: joined.ravel()?, is_table, shape, at })
    }

    /// The axes that no index names.
    fn rest(&self) -> &[usize] {
        &self.view.shape()[self.named..]
    }

    fn table_shape(&self) -> Dims {
        table_shape(self.view.shape(), self.named)
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

/// The named axes as one, and the others.
fn table_shape(shape: &Dims, named: usize) -> Dims {
    let (named, rest) = shape.split_at(named);
    std::iter::once(named.iter().product()).chain(rest.iter().copied()).collect()
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
        let place = Place::new("index", self, indices, Count::Rows)?;
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
        let place = Place::new(op, self, indices, Count::RowsInPlace)?;
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

        let (target, index, values) = match (place.is_table, place.named) {
            (true, 1) => (place.view, index, values),
            (true, _) => (place.view.view(place.table_shape())?, index, values),
            // Through a copy others' writes to what isn't named would be lost.
            (false, _) => {
                check_out(op, &place.view, place.view.shape(), &self.device())?;
                if index.layout().is_empty() {
                    return Ok(self);
                }
                let (layout, silence) = (*place.view.layout(), Silence::new());
                let beside = Layout::new(
                    Dims::from_iter(layout.shape()[place.named..].iter().copied()),
                    Dims::from_iter(layout.strides()[place.named..].iter().copied()),
                    0,
                );
                let beside = Tensor::arange(0, beside.end() as i64, 1, DType::I64, &self.device())?
                    .as_strided(beside.shape(), beside.strides(), 0)?;
                let index = once!(|[index, beside]| index.lt(0.0).select(-1.0, index + beside))
                    .call(&[&index, &beside])?
                    .ravel()?;
                drop(silence);
                let values = values.ravel()?;
                let values = if values.shares_storage(self) { values.copy()? } else { values };
                let (first, end) = (layout.offset(), layout.end());
                (self.as_strided([end - first], [1], first)?, index, values)
            }
        };
        match accumulate {
            true => target.scatter_add_(0, &index, &values)?,
            false => target.scatter_(0, &index, &values)?,
        };
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
