//! Tensors with their views, and what they must hold.

use super::stop::{Stop, done};
use crate::random::Random;
use raddle::{DType, Device, Element, Error, Layout, Tensor};

/// What programs compute with: every op here gives the same bits on every device.
pub trait Number: Element + Send {
    /// Sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// Product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// Difference; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// The larger; NaN if one is.
    fn larger(self, other: Self) -> Self;
    /// A small number.
    fn small(value: i64) -> Self;
    /// The same bits? Any NaN for a NaN.
    fn same(self, other: Self) -> bool;
}

impl Number for f32 {
    fn plus(self, other: f32) -> f32 {
        self + other
    }
    fn times(self, other: f32) -> f32 {
        self * other
    }
    fn minus(self, other: f32) -> f32 {
        self - other
    }
    fn larger(self, other: f32) -> f32 {
        if self.is_nan() || other.is_nan() { f32::NAN } else { self.max(other) }
    }
    fn small(value: i64) -> f32 {
        value as f32 / 8.0
    }
    fn same(self, other: f32) -> bool {
        // Zeros of both signs count as the same: which of two equal zeros is the larger is left open.
        self == other || (self.is_nan() && other.is_nan())
    }
}

impl Number for i64 {
    fn plus(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
    fn times(self, other: i64) -> i64 {
        self.wrapping_mul(other)
    }
    fn minus(self, other: i64) -> i64 {
        self.wrapping_sub(other)
    }
    fn larger(self, other: i64) -> i64 {
        self.max(other)
    }
    fn small(value: i64) -> i64 {
        value
    }
    fn same(self, other: i64) -> bool {
        self == other
    }
}

/// A storage of size² elements: its views on the device, and its elements on the host.
pub struct Family<T> {
    /// None is empty; the last one to be dropped frees the memory.
    pub views: Vec<Tensor>,
    /// By offset in the storage.
    pub elements: Vec<T>,
}

impl<T: Number> Family<T> {
    /// A new tensor and what it holds, in the order of its memory.
    pub fn new(tensor: Tensor, row_major: &[T]) -> Family<T> {
        let mut elements = vec![T::small(0); row_major.len()];
        tensor.layout().offsets().zip(row_major).for_each(|(offset, &value)| elements[offset] = value);
        Family { views: vec![tensor], elements }
    }

    /// What a view must hold, in row-major order.
    pub fn values(&self, layout: &Layout) -> Vec<T> {
        if layout.is_contiguous() {
            return self.elements[layout.offset()..][..layout.element_count()].to_vec();
        }
        layout.offsets().map(|offset| self.elements[offset]).collect()
    }

    /// The same, broadcast to [size, size].
    pub fn broadcast(&self, layout: &Layout, size: usize) -> Vec<T> {
        let shape = raddle::Dims::filled(size, 2);
        self.values(&layout.broadcast_to("program", &shape).expect("every view broadcasts to the square"))
    }

    /// Writes through a view.
    pub fn write(&mut self, layout: &Layout, values: &[T]) {
        if layout.is_contiguous() {
            return self.elements[layout.offset()..][..values.len()].copy_from_slice(values);
        }
        layout.offsets().zip(values).for_each(|(offset, &value)| self.elements[offset] = value);
    }

    /// Reads a view back and compares. (A strided one is packed first, for which there may be no memory.)
    pub fn check(&self, view: &Tensor) -> Result<(), Stop> {
        let Some(found) = done(view.to_vec::<T>())? else { return Ok(()) };
        let expected = self.values(view.layout());
        let wrong = |at: &usize| !expected[*at].same(found[*at]);
        match (0..expected.len()).find(wrong) {
            None => Ok(()),
            Some(at) => Err(Stop::Wrong(format!(
                "element {at} of a view {:?} is {:?}, expected {:?}",
                view.layout(),
                found[at],
                expected[at]
            ))),
        }
    }
}

/// Families of one dtype.
pub struct Families<T> {
    /// The square's side.
    pub size: usize,
    /// In no order.
    pub list: Vec<Family<T>>,
}

impl<T: Number> Families<T> {
    /// None yet.
    pub fn new(size: usize) -> Families<T> {
        Families { size, list: Vec::new() }
    }

    /// Takes all away.
    pub fn take(&mut self) -> Vec<Family<T>> {
        std::mem::take(&mut self.list)
    }

    /// Adds one.
    pub fn put(&mut self, family: Family<T>) {
        self.list.push(family);
    }

    /// Reads everything back.
    pub fn check_all(&self) -> Result<(), Stop> {
        self.list.iter().try_for_each(|family| family.views.iter().try_for_each(|view| family.check(view)))
    }

    /// New numbers, uploaded or made on the device.
    pub fn make(&self, device: &Device, random: &mut Random) -> Result<Family<T>, Error> {
        let shape = [self.size, self.size];
        let count = self.size * self.size;
        let dtype: DType = T::DTYPE;
        if random.one_of(2) {
            let values: Vec<T> = (0..count).map(|_| T::small(random.below(64) as i64 - 32)).collect();
            return Ok(Family::new(Tensor::from_slice(&values, shape, device)?, &values));
        }
        let value = T::small(random.below(64) as i64 - 32);
        let tensor = Tensor::full(shape, value.to_scalar(), dtype, device)?;
        Ok(Family::new(tensor, &vec![value; count]))
    }
}
