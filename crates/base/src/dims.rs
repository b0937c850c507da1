//! A short list of sizes or strides, inline.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
};

/// The most axes that a tensor has. Eight as in cuDNN and NumPy's iterator buffers: more were never asked for, and an
/// operand stays small enough to be copied on every launch.
pub const MAX_RANK: usize = 8;

/// Sizes, strides or axes: at most [`MAX_RANK`] numbers, `Copy`, compared by content.
#[derive(Clone, Copy)]
pub struct Dims {
    count: u8,
    values: [usize; MAX_RANK],
}

impl Dims {
    /// No axes.
    pub const EMPTY: Dims = Dims { count: 0, values: [0; MAX_RANK] };

    /// The numbers of `values`, or `None` if they are more than [`MAX_RANK`].
    pub fn new(values: &[usize]) -> Option<Dims> {
        let mut dims = Dims::EMPTY;
        dims.values.get_mut(..values.len())?.copy_from_slice(values);
        dims.count = values.len() as u8;
        Some(dims)
    }

    /// `count` times `value`. The caller has checked that `count` is at most [`MAX_RANK`].
    pub fn filled(value: usize, count: usize) -> Dims {
        assert!(count <= MAX_RANK, "base: {count} axes exceed {MAX_RANK}");
        let mut dims = Dims { count: count as u8, values: [value; MAX_RANK] };
        dims.values[count..].fill(0);
        dims
    }

    /// Appends a number. The caller has checked that there is room.
    pub fn push(&mut self, value: usize) {
        self.values[self.count as usize] = value;
        self.count += 1;
    }

    /// Puts a number before axis `at`. The caller has checked that there is room.
    pub fn insert(&mut self, at: usize, value: usize) {
        let count = self.count as usize;
        self.values.copy_within(at..count, at + 1);
        self.values[at] = value;
        self.count += 1;
    }

    /// Takes the number of axis `at` out.
    pub fn remove(&mut self, at: usize) -> usize {
        let count = self.count as usize;
        let value = self[at];
        self.values.copy_within(at + 1..count, at);
        self.values[count - 1] = 0;
        self.count -= 1;
        value
    }

    /// The product; 1 for no axes. `None` where it, with sizes of 0 counted as 1, is above `isize::MAX`: strides and the
    /// products of some of the axes must not overflow either, though a tensor without elements needs no memory.
    pub fn checked_product(&self) -> Option<usize> {
        let most = self.iter().try_fold(1usize, |product, &size| product.checked_mul(size.max(1)))?;
        isize::try_from(most).ok().map(|_| if self.contains(&0) { 0 } else { most })
    }

    /// The product, which the caller knows to fit. 1 for no axes.
    pub fn product(&self) -> usize {
        // Wrapping: behind sizes that overflow there may come a zero.
        self.iter().fold(1, |product, &size| product.wrapping_mul(size))
    }
}

impl Deref for Dims {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.values[..self.count as usize]
    }
}

impl DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.values[..self.count as usize]
    }
}

impl AsRef<[usize]> for Dims {
    fn as_ref(&self) -> &[usize] {
        self
    }
}

/// Numbers that aren't there are 0, so comparing all of them is the same, and needs no call.
impl PartialEq for Dims {
    #[inline]
    fn eq(&self, other: &Dims) -> bool {
        self.count == other.count && self.values == other.values
    }
}
impl Eq for Dims {}

impl Hash for Dims {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &**self)
    }
}

/// The caller has checked that there are at most [`MAX_RANK`].
impl FromIterator<usize> for Dims {
    fn from_iter<I: IntoIterator<Item = usize>>(values: I) -> Dims {
        let mut dims = Dims::EMPTY;
        values.into_iter().for_each(|value| dims.push(value));
        dims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_overflow_are_told_whatever_stands_beside_them() {
        let of = |sizes: &[usize]| Dims::new(sizes).unwrap().checked_product();
        assert_eq!(
            (of(&[]), of(&[2, 3]), of(&[5, 0]), of(&[1 << 62])),
            (Some(1), Some(6), Some(0), Some(1 << 62))
        );
        assert_eq!((of(&[1 << 40, 1 << 40]), of(&[1 << 63])), (None, None));
        assert_eq!(
            (of(&[0, 1 << 40, 1 << 40]), of(&[1 << 40, 1 << 40, 0]), of(&[0, usize::MAX])),
            (None, None, None)
        );
        assert_eq!(Dims::new(&[1 << 40, 1 << 40, 0]).unwrap().product(), 0);
    }
}
