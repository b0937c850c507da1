//! Sorting along an axis, and the k largest or smallest.
//!
//! Each element becomes a key whose order is that of the result: a floating-point number's bits, arranged so that
//! integers compare as the numbers do, NaN is one key above all others and −0 is the key of 0; all bits flipped for
//! descending order. Ties are broken by the index, so both kernels are stable and a result never depends on the
//! algorithm. Key and index share a word; the few axes of 2^32 elements and more take a slower way, with pairs.

use super::axis::{Grid, Line, for_each_line, for_each_range, multiversion, others};
use super::element::{Compute, by_compute, by_dtype};
use super::view;
use crate::threads::Threads;
use raddle_hal::{Kernel, KernelError, Operand, View};
use std::cell::RefCell;

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(kernel: &Kernel, operands: &[Operand], threads: Threads) -> Result<(), KernelError> {
    let [values, indices, input] = std::array::from_fn(|index| operands[index].view());
    let (axis, k, descending) = match *kernel {
        Kernel::Sort { axis, descending } => (axis, view::layout(input).shape()[axis], descending),
        Kernel::TopK { axis, k, largest } => (axis, k, largest),
        _ => unreachable!("cpu: {} is no sort", kernel.name()),
    };
    // SAFETY: the contract of this function.
    by_compute!(input.dtype, A => unsafe { select::<A>([values, indices, input], axis, k, descending, threads) });
    Ok(())
}

/// An unsigned integer, ordered as the elements are to be.
trait Key: Copy + Ord + Default + std::ops::Not<Output = Self> + Send + Sync + 'static {
    /// Key and index in one integer, ordered by key and then by index: sorting it is stable.
    type Word: Copy + Ord;
    /// Puts them together.
    fn with_index(self, index: u32) -> Self::Word;
    /// Takes them apart.
    fn split(word: Self::Word) -> (Self, u32);
}
macro_rules! key {
    ($($key:ident $word:ident),*) => { $(
        impl Key for $key {
            type Word = $word;
            #[inline(always)]
            fn with_index(self, index: u32) -> $word { $word::from(self) << 32 | $word::from(index) }
            #[inline(always)]
            fn split(word: $word) -> ($key, u32) { ((word >> 32) as $key, word as u32) }
        }
    )* };
}
key!(u32 u64, u64 u128);

/// A type with an order that sorting follows.
trait Ordered: Compute {
    /// An unsigned integer of its size.
    type Key: Key;
    /// Ascending keys are ascending numbers.
    fn key(self) -> Self::Key;
    /// Runs the body with buffers of this thread, kept from launch to launch.
    fn with_buffers<R>(body: impl FnOnce(&mut Buffers<Self::Key>) -> R) -> R;
}

/// The keys of a line, the best of each lane, and those that may be wanted.
struct Buffers<K: Key> {
    keys: Vec<K>,
    best: Vec<K>,
    found: Vec<K::Word>,
}
impl<K: Key> Default for Buffers<K> {
    fn default() -> Buffers<K> {
        Buffers { keys: Vec::new(), best: Vec::new(), found: Vec::new() }
    }
}

/// The most elements of which a word has the index. Few in tests, so that they see both ways.
const NARROW_COUNT_MAX: usize = if cfg!(test) { 1000 } else { u32::MAX as usize };

/// More elements than this are not kept for the next launch (T9).
pub const KEPT_COUNT_MAX: usize = 1 << 20;

impl<K: Key> Buffers<K> {
    fn size_bytes(&self) -> usize {
        size_of::<K>() * (self.keys.capacity() + self.best.capacity())
            + size_of::<K::Word>() * self.found.capacity()
    }
}

macro_rules! ordered {
    ($($t:ident $key:ident $name:ident |$x:ident| $body:expr;)*) => {
        pub fn kept_bytes() -> usize {
            [$($name.with_borrow(Buffers::size_bytes)),*].iter().sum()
        }

        pub fn let_go() {
            $(drop($name.take());)*
        }
    $(
        thread_local! { static $name: RefCell<Buffers<$key>> = RefCell::default(); }
        impl Ordered for $t {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                let $x = self;
                $body
            }
            fn with_buffers<R>(body: impl FnOnce(&mut Buffers<$key>) -> R) -> R {
                // A thread that ends keeps nothing any more.
                let mut buffers = $name.try_with(RefCell::take).unwrap_or_default();
                let result = body(&mut buffers);
                if buffers.keys.capacity() <= KEPT_COUNT_MAX {
                    _ = $name.try_with(|kept| kept.replace(buffers));
                }
                result
            }
        }
    )* };
}
ordered! {
    f32 u32 F32 |x| {
        let bits = (x + 0.0).to_bits();
        let flip = ((bits as i32 >> 31) as u32) | 0x8000_0000;
        if x.is_nan() { u32::MAX } else { bits ^ flip }
    };
    f64 u64 F64 |x| {
        let bits = (x + 0.0).to_bits();
        let flip = ((bits as i64 >> 63) as u64) | (1 << 63);
        if x.is_nan() { u64::MAX } else { bits ^ flip }
    };
    i64 u64 I64 |x| x as u64 ^ (1 << 63);
}

multiversion! {
/// The keys of a line; flipped, if the order is descending.
fn fill_keys<A: Ordered>(line: &[A], descending: bool, keys: &mut [A::Key]) {
    if descending {
        for (key, x) in keys.iter_mut().zip(line) {
            *key = !x.key();
        }
    } else {
        for (key, x) in keys.iter_mut().zip(line) {
            *key = x.key();
        }
    }
}
}

multiversion! {
/// The lower of two, place by place.
fn lower<K: Key>(best: &mut [K], keys: &[K]) {
    for (best, key) in best.iter_mut().zip(keys) {
        *best = (*best).min(*key);
    }
}
}

/// Is one of them at most the bound?
#[inline]
fn any_within<K: Key>(keys: &[K], bound: K) -> bool {
    keys.iter().fold(false, |any, key| any | (*key <= bound))
}

/// # Safety
/// - As of [`super::execute`].
unsafe fn select<A: Ordered>(
    operands: [&View; 3],
    axis: usize,
    k: usize,
    descending: bool,
    threads: Threads,
) {
    let [values, indices, input] = operands;
    let layouts = [input, values, indices].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let line = Line::new(input, [axis]);
    let steps = [values, indices].map(|operand| view::layout(operand).strides()[axis]);
    // Sorting costs a few nanoseconds an element and step of its logarithm; selecting a few elements less.
    let cost = line.count.saturating_mul(4 + k.min(1 << 16).checked_ilog2().unwrap_or(0) as usize);
    for_each_range(threads, grid.count(), cost, |positions| {
        A::with_buffers(|buffers| {
            let body = |offsets: &[usize; 3], [line]: [&[A]; 1], []: [&mut [A]; 0]| {
                let place = Place { values, indices, offsets: [offsets[1], offsets[2]], steps };
                if line.len() <= NARROW_COUNT_MAX {
                    first_in_order(line, k, descending, buffers);
                    let order = buffers.found[..k].iter().map(|&word| A::Key::split(word).1 as usize);
                    // SAFETY: each line of the outputs is this position's own.
                    unsafe { place.store(line, order) };
                } else {
                    let found = first_of_many(line, k, descending);
                    // SAFETY: as above.
                    unsafe { place.store(line, found.iter().map(|&(_, index)| index)) };
                }
            };
            // SAFETY: the contract of this function; the grid's first operand is the input.
            unsafe { for_each_line(&grid, positions, [&line], [], body) };
        });
    });
}

/// Where the results of a line go.
struct Place<'a> {
    values: &'a View,
    indices: &'a View,
    offsets: [usize; 2],
    steps: [usize; 2],
}

impl Place<'_> {
    /// Writes the elements of a line that `order` names, and their indices.
    ///
    /// # Safety
    /// - Nobody else touches the lines of the outputs, which have as many elements as `order`.
    unsafe fn store<A: Compute>(&self, line: &[A], order: impl Iterator<Item = usize> + Clone) {
        let start = view::start::<i64>(self.indices).wrapping_add(self.offsets[1]);
        for (rank, index) in order.clone().enumerate() {
            // SAFETY: the contract of this function.
            unsafe { *start.wrapping_add(rank * self.steps[1]) = index as i64 };
        }
        by_dtype!(self.values.dtype, E => {
            let start = view::start::<E>(self.values).wrapping_add(self.offsets[0]);
            for (rank, index) in order.enumerate() {
                // SAFETY: as above.
                unsafe { *start.wrapping_add(rank * self.steps[0]) = line[index].give() };
            }
        });
    }
}

/// The first `k` elements in order, of a line that is too long for words.
#[cold]
fn first_of_many<A: Ordered>(line: &[A], k: usize, descending: bool) -> Vec<(A::Key, usize)> {
    let key = |x: &A| if descending { !x.key() } else { x.key() };
    let mut found: Vec<_> = line.iter().map(key).zip(0..).collect();
    if k < found.len() {
        found.select_nth_unstable(k);
        found.truncate(k);
    }
    found.sort_unstable();
    found
}

/// Puts the first `k` elements in order at the front of `buffers.found`.
fn first_in_order<A: Ordered>(line: &[A], k: usize, descending: bool, buffers: &mut Buffers<A::Key>) {
    let Buffers { keys, best, found } = buffers;
    if keys.len() < line.len() {
        keys.resize(line.len(), A::Key::default());
    }
    let keys = &mut keys[..line.len()];
    fill_keys(line, descending, keys);
    found.clear();
    if k == 0 {
        return;
    }
    if k * 8 > line.len() {
        found.extend(keys.iter().zip(0u32..).map(|(key, index)| key.with_index(index)));
        if k < line.len() {
            found.select_nth_unstable(k - 1);
            found.truncate(k);
        }
    } else {
        gather_candidates(keys, k, best, found);
    }
    found.sort_unstable();
    found.truncate(k);
}

/// Collects all keys that can be among the first `k`. The keys are dealt to `2 k` lanes; of the lanes' best keys the
/// `k`-th is a bound that at least `k` keys meet, and few more do.
fn gather_candidates<K: Key>(keys: &[K], k: usize, best: &mut Vec<K>, found: &mut Vec<K::Word>) {
    best.clear();
    best.extend_from_slice(&keys[..2 * k]);
    for chunk in keys[2 * k..].chunks(2 * k) {
        lower(best, chunk);
    }
    let bound = *best.select_nth_unstable(k - 1).1;
    for (chunk, first) in keys.chunks(16).zip((0u32..).step_by(16)) {
        if any_within(chunk, bound) {
            let within = chunk.iter().zip(first..).filter(|(key, _)| **key <= bound);
            found.extend(within.map(|(key, index)| key.with_index(index)));
        }
    }
    if found.len() > 4 * k {
        // Many are equal.
        found.select_nth_unstable(k - 1);
        found.truncate(k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_order() {
        let line: Vec<f32> = (0..900u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32).collect();
        for (k, descending) in [(0, false), (1, true), (17, true), (500, false), (900, true)] {
            let mut buffers = Buffers::default();
            first_in_order(&line, k, descending, &mut buffers);
            let narrow: Vec<_> = buffers.found.iter().map(|&word| <u32 as Key>::split(word)).collect();
            let wide = first_of_many(&line, k, descending);
            let wide: Vec<_> = wide.into_iter().map(|(key, index)| (key, index as u32)).collect();
            assert_eq!(narrow, wide, "k {k}, descending {descending}");
        }
    }
}
