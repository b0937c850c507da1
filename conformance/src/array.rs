//! Tensors of the host: a shape and a plain list of numbers in row-major order. Oracles compute with these.

use raddle::{DType, Element, Scalar, Tensor, by_element};

/// A tensor of the host. Every element is one that its dtype holds.
#[derive(Clone, Debug)]
pub struct Array {
    /// Type of the elements.
    pub dtype: DType,
    /// Sizes of the axes.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub data: Vec<Scalar>,
}

/// The number as the dtype holds it.
pub fn round(dtype: DType, value: Scalar) -> Scalar {
    dtype.round(value)
}

/// The element's bytes.
pub fn bytes_of(dtype: DType, value: Scalar) -> Vec<u8> {
    let mut bytes = Vec::new();
    by_element!(dtype, T => T::from_scalar(value).append_bytes(&mut bytes));
    bytes
}

/// The elements in a list of bytes.
pub fn scalars_of(dtype: DType, bytes: &[u8]) -> Vec<Scalar> {
    let size_bytes = dtype.size_bytes();
    by_element!(dtype, T => bytes.chunks_exact(size_bytes).map(|bytes| T::from_bytes(bytes).to_scalar()).collect())
}

/// All indices of a shape in row-major order; one, without axes, of the empty shape.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |found, &size| {
        let longer = |index: &Vec<usize>| {
            let index = index.clone();
            (0..size).map(move |last| index.iter().copied().chain([last]).collect())
        };
        found.iter().flat_map(longer).collect()
    })
}

/// The shape that both broadcast to.
pub fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], axis: usize| {
        if axis + shape.len() < rank { 1 } else { shape[axis + shape.len() - rank] }
    };
    (0..rank).map(|axis| if size(a, axis) == 1 { size(b, axis) } else { size(a, axis) }).collect()
}

impl Array {
    /// The elements of a function of the index, as the dtype holds them.
    pub fn from_fn<S: Into<Scalar>>(
        dtype: DType,
        shape: &[usize],
        mut value: impl FnMut(&[usize]) -> S,
    ) -> Array {
        let data = indices(shape).iter().map(|index| round(dtype, value(index).into())).collect();
        Array { dtype, shape: shape.to_vec(), data }
    }

    /// Of a list of numbers.
    pub fn of<S: Copy + Into<Scalar>>(dtype: DType, shape: &[usize], values: &[S]) -> Array {
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "the test gives as many values as the shape has"
        );
        let data = values.iter().map(|&value| round(dtype, value.into())).collect();
        Array { dtype, shape: shape.to_vec(), data }
    }

    /// What a tensor holds. Waits for it.
    pub fn read(tensor: &Tensor) -> Array {
        let bytes = tensor.to_bytes().expect("the tensor can be read");
        Array {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            data: scalars_of(tensor.dtype(), &bytes),
        }
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.data.len()
    }

    /// Where an index stands in `data`. Axes of size 1 take any index, and missing axes in front too: broadcasting.
    pub fn position(&self, index: &[usize]) -> usize {
        let index = &index[index.len() - self.rank()..];
        let digit = |axis: usize| if self.shape[axis] == 1 { 0 } else { index[axis] };
        (0..self.rank()).fold(0, |position, axis| position * self.shape[axis] + digit(axis))
    }

    /// The element at an index, broadcast as needed.
    pub fn at(&self, index: &[usize]) -> Scalar {
        self.data[self.position(index)]
    }

    /// The element at an index as `f64`.
    pub fn f64(&self, index: &[usize]) -> f64 {
        self.at(index).to_f64()
    }

    /// The element at an index as `i64`.
    pub fn i64(&self, index: &[usize]) -> i64 {
        self.at(index).to_i64()
    }

    /// Overwrites an element.
    pub fn set(&mut self, index: &[usize], value: impl Into<Scalar>) {
        let position = self.position(index);
        self.data[position] = round(self.dtype, value.into());
    }

    /// Another dtype.
    pub fn cast(&self, dtype: DType) -> Array {
        let data = self.data.iter().map(|&value| round(dtype, value)).collect();
        Array { dtype, shape: self.shape.clone(), data }
    }

    /// Repeated to a shape.
    pub fn expanded(&self, shape: &[usize]) -> Array {
        Array::from_fn(self.dtype, shape, |index| self.at(index))
    }

    /// The axes in another order.
    pub fn permuted(&self, axes: &[usize]) -> Array {
        let shape: Vec<usize> = axes.iter().map(|&axis| self.shape[axis]).collect();
        let mut source = vec![0; axes.len()];
        Array::from_fn(self.dtype, &shape, |index| {
            axes.iter().zip(index).for_each(|(&axis, &value)| source[axis] = value);
            self.at(&source)
        })
    }

    /// The same elements under another shape.
    pub fn reshaped(&self, shape: &[usize]) -> Array {
        assert_eq!(shape.iter().product::<usize>(), self.count(), "the test keeps the number of elements");
        Array { dtype: self.dtype, shape: shape.to_vec(), data: self.data.clone() }
    }

    /// The bytes of all elements.
    pub fn bytes(&self) -> Vec<u8> {
        self.data.iter().flat_map(|&value| bytes_of(self.dtype, value)).collect()
    }
}
