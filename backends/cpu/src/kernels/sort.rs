//! Sorting along an axis, and the k largest or smallest.
//!
//! Each element becomes a key whose order is that of the result: a floating-point number's bits, arranged so that
//! integers compare as the numbers do, NaN is one key above all others and −0 is the key of 0; all bits flipped for
//! descending order. Ties are broken by the index, so both kernels are stable and a result never depends on the
//! algorithm. Key and index share a word; on the few axes of 2^32 elements and more they are a pair.
//!
//! Short lines are sorted in memory that the thread keeps. Longer ones take words from the device ([`Room`]): one for each
//! element where all are sorted, [`FOUND_FACTOR`] for each wanted one where few are selected; and lines of 8 and 16 bits none,
//! since they are counted instead.

use super::axis::{Grid, Line, fits, for_each_line, others};
use super::element::{Compute, Source, by_compute, by_dtype};
use super::fold::PIECE;
use super::level::multiversion;
use super::scratch::{Memory, Need, Plain, Room, bytes_of, scratch};
use super::view;
use crate::threads::{Threads, for_each_range};
use raddle_base::DType;
use raddle_hal::{Operand, View};
use std::cell::RefCell;

/// What is sorted, and how.
#[derive(Clone, Copy)]
pub struct Order {
    axis: usize,
    /// How many of a line are wanted.
    k: usize,
    descending: bool,
}

impl Order {
    /// Of `Kernel::Sort`.
    pub fn all(axis: usize, descending: bool, operands: &[Operand]) -> Order {
        Order { axis, k: view::layout(operands[2].view()).shape()[axis], descending }
    }

    /// Of `Kernel::TopK`.
    pub fn first(axis: usize, k: usize, largest: bool) -> Order {
        Order { axis, k, descending: largest }
    }
}

/// Runs a kernel of this module.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(order: Order, operands: &[Operand], threads: Threads) {
    // SAFETY: the contract of this function.
    by_compute!(operands[2].view().dtype, A => unsafe { select::<A>(operands, order, threads) });
}

/// The scratch of a kernel of this module.
pub fn need(order: Order, operands: &[Operand], threads: Threads) -> Need {
    let input = operands[2].view();
    if view::layout(input).shape()[order.axis] <= SURELY_SHORT {
        return Need::NOTHING;
    }
    by_compute!(input.dtype, A => need_of::<A>(operands, order, threads))
}

fn need_of<A: Ordered>(operands: &[Operand], order: Order, threads: Threads) -> Need {
    let input = operands[2].view();
    let line = Line::new(input, [order.axis]);
    if is_short::<A>(&line) || A::narrow(input.dtype).is_some() {
        return Need::NOTHING;
    }
    let count = capacity(line.count, order.k);
    let each_bytes = match line.count <= NARROW_COUNT_MAX {
        true => bytes_of::<<A::Key as Key>::Word>(count),
        false => bytes_of::<(A::Key, u64)>(count),
    };
    let lines = others(input.layout.rank(), order.axis).map(|axis| input.layout.shape()[axis]).product();
    Need::each(each_bytes, lines, &operands[..3], threads)
}

/// Is it sorted in memory that the thread keeps?
fn is_short<A: Compute>(line: &Line) -> bool {
    line.count <= SHORT_COUNT_MAX && fits::<A>(&[line])
}

/// Words for a line.
fn capacity(count: usize, k: usize) -> usize {
    k.saturating_mul(FOUND_FACTOR).max(FOUND_COUNT_MIN).min(count)
}

/// Words for each element that is wanted, where few are: each time so many are full, all but one of them have been seen since
/// the last time, so that what selecting costs is little for each.
const FOUND_FACTOR: usize = 8;
const FOUND_COUNT_MIN: usize = 1024;

/// An unsigned integer, ordered as the elements are to be.
trait Key: Plain + Ord + Default + std::ops::Not<Output = Self> + 'static {
    /// Key and index in one integer, ordered by key and then by index: sorting it is stable.
    type Word: Word<Self>;
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

/// Key and index, ordered by both.
trait Word<K>: Plain + Ord {
    fn new(key: K, index: usize) -> Self;
    fn key(self) -> K;
    fn index(self) -> usize;
}
macro_rules! word {
    ($($word:ident of $key:ident),*) => { $(
        impl Word<$key> for $word {
            #[inline(always)]
            fn new(key: $key, index: usize) -> $word { key.with_index(index as u32) }
            #[inline(always)]
            fn key(self) -> $key { $key::split(self).0 }
            #[inline(always)]
            fn index(self) -> usize { $key::split(self).1 as usize }
        }
    )* };
}
word!(u64 of u32, u128 of u64);
impl<K: Plain + Ord> Word<K> for (K, u64) {
    #[inline(always)]
    fn new(key: K, index: usize) -> (K, u64) {
        (key, index as u64)
    }
    #[inline(always)]
    fn key(self) -> K {
        self.0
    }
    #[inline(always)]
    fn index(self) -> usize {
        self.1 as usize
    }
}

/// A type with an order that sorting follows.
trait Ordered: Compute {
    /// An unsigned integer of its size.
    type Key: Key;
    /// Ascending keys are ascending numbers.
    fn key(self) -> Self::Key;
    /// A key of 16 bits, for elements of dtypes that have no more.
    fn narrow(dtype: DType) -> Option<fn(Self) -> u16>;
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
const NARROW_COUNT_MAX: usize = if cfg!(test) { 1500 } else { u32::MAX as usize };
/// Longer lines take memory of the device: a thread keeps 4 MiB for lines of f32 (T9). Few in tests, too.
pub const SHORT_COUNT_MAX: usize = if cfg!(test) { 600 } else { 1 << 18 };
/// Lines that are short in any layout: to ask what they need costs an op of few elements nothing.
const SURELY_SHORT: usize = if cfg!(test) { 600 } else { 1024 };

impl<K: Key> Buffers<K> {
    fn size_bytes(&self) -> usize {
        size_of::<K>() * (self.keys.capacity() + self.best.capacity())
            + size_of::<K::Word>() * self.found.capacity()
    }
}

macro_rules! ordered {
    ($($t:ident $key:ident $name:ident |$x:ident| $body:expr, |$dtype:ident| $narrow:expr;)*) => {
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
            fn narrow($dtype: DType) -> Option<fn($t) -> u16> {
                $narrow
            }
            fn with_buffers<R>(body: impl FnOnce(&mut Buffers<$key>) -> R) -> R {
                // A thread that ends keeps nothing any more.
                let mut buffers = $name.try_with(RefCell::take).unwrap_or_default();
                let result = body(&mut buffers);
                _ = $name.try_with(|kept| kept.replace(buffers));
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
    }, |dtype| match dtype {
        DType::F16 => Some(|x| narrow_key(x, half::f16::from_f32(x + 0.0).to_bits())),
        DType::BF16 => Some(|x| narrow_key(x, half::bf16::from_f32(x + 0.0).to_bits())),
        _ => None,
    };
    f64 u64 F64 |x| {
        let bits = (x + 0.0).to_bits();
        let flip = ((bits as i64 >> 63) as u64) | (1 << 63);
        if x.is_nan() { u64::MAX } else { bits ^ flip }
    }, |_dtype| None;
    i64 u64 I64 |x| x as u64 ^ (1 << 63), |dtype| match dtype {
        DType::Bool | DType::U8 => Some(|x| x as u16),
        _ => None,
    };
}

/// Of a number that has the bits, exactly.
fn narrow_key(x: f32, bits: u16) -> u16 {
    let flip = ((bits as i16 >> 15) as u16) | 0x8000;
    if x.is_nan() { u16::MAX } else { bits ^ flip }
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
unsafe fn select<A: Ordered>(operands: &[Operand], order: Order, threads: Threads) {
    let [values, indices, input] = std::array::from_fn(|index| operands[index].view());
    let Order { axis, k, descending } = order;
    let layouts = [input, values, indices].map(view::layout);
    let grid = Grid::of(layouts, others(layouts[0].rank(), axis));
    let line = Line::new(input, [axis]);
    let steps = [values, indices].map(|operand| view::layout(operand).strides()[axis]);
    // Sorting costs a few nanoseconds an element and step of its logarithm; selecting a few elements less.
    let cost = line.count.saturating_mul(4 + k.min(1 << 16).checked_ilog2().unwrap_or(0) as usize);
    if is_short::<A>(&line) {
        return for_each_range(threads, grid.count(), cost, |positions| {
            A::with_buffers(|buffers| {
                let body = |offsets: &[usize; 3], [line]: [&[A]; 1], []: [&mut [A]; 0]| {
                    let place = Place { values, indices, offsets: [offsets[1], offsets[2]], steps };
                    first_in_order(line, k, descending, buffers);
                    let order = buffers.found[..k].iter().map(|&word| A::Key::split(word).1 as usize);
                    // SAFETY: each line of the outputs is this position's own.
                    unsafe { place.store(line, order) };
                };
                // SAFETY: the contract of this function; the grid's first operand is the input, whose lines fit.
                unsafe { for_each_line(&grid, positions, [&line], [], body) };
            });
        });
    }
    let room = Room::new(need_of::<A>(operands, order, threads), operands.get(3));
    room.for_each_range(threads, grid.count(), cost, |mut memory, positions| {
        scratch::<A, _>(PIECE, |staged| {
            for position in positions {
                let [start, value, index] = grid.at(position);
                let place = Place { values, indices, offsets: [value, index], steps };
                let mut elements = Elements { line: &line, start, staged: &mut *staged };
                // SAFETY: the contract of this function; each line of the outputs is this position's own.
                unsafe {
                    if let Some(narrow) = A::narrow(input.dtype) {
                        count_in_order(&mut elements, order, narrow, &place);
                    } else if line.count <= NARROW_COUNT_MAX {
                        let found =
                            first_of_many::<A, <A::Key as Key>::Word>(&mut elements, order, &mut memory);
                        place.copy(&elements, found.iter().map(|word| word.index()));
                    } else {
                        let found = first_of_many::<A, (A::Key, u64)>(&mut elements, order, &mut memory);
                        place.copy(&elements, found.iter().map(|word| word.index()));
                    }
                }
            }
        });
    });
}

/// The elements of a long line.
struct Elements<'a, A> {
    line: &'a Line,
    start: usize,
    staged: &'a mut [A],
}

impl<A: Compute> Elements<'_, A> {
    /// Calls `body` with elements and the position of the first of them, in order.
    ///
    /// # Safety
    /// - The line is in live memory that nobody writes meanwhile.
    unsafe fn for_each_piece(&mut self, mut body: impl FnMut(usize, &[A])) {
        for first in (0..self.line.count).step_by(PIECE) {
            let range = first..self.line.count.min(first + PIECE);
            if self.line.is_direct::<A>() {
                // SAFETY: it has no holes, and the caller's bullet.
                body(first, unsafe { self.line.slice(self.start, range) });
                continue;
            }
            let staged = &mut self.staged[..range.len()];
            // SAFETY: the caller's bullet.
            unsafe { self.line.load(self.start, range, staged) };
            body(first, staged);
        }
    }
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

    /// Writes the elements of a line that `order` names, and their indices.
    ///
    /// # Safety
    /// - As of [`Place::store`]; nobody writes the line meanwhile.
    unsafe fn copy<A>(&self, from: &Elements<'_, A>, order: impl Iterator<Item = usize>) {
        by_dtype!(self.values.dtype, E => {
            for (rank, index) in order.enumerate() {
                let element = from.line.address::<E>(from.start + from.line.offset(index));
                // SAFETY: the contract of this function; values have the dtype of the line.
                unsafe { self.put(rank, index, *element) };
            }
        });
    }

    /// # Safety
    /// - As of [`Place::store`]; `E` is the type of the values.
    unsafe fn put<E: Source>(&self, rank: usize, index: usize, element: E) {
        let value = view::start::<E>(self.values).wrapping_add(self.offsets[0] + rank * self.steps[0]);
        let place = view::start::<i64>(self.indices).wrapping_add(self.offsets[1] + rank * self.steps[1]);
        // SAFETY: the contract of this function.
        unsafe { (*value, *place) = (element, index as i64) };
    }
}

/// The first `k` elements in order, of a line that is too long for buffers.
///
/// # Safety
/// - As of [`Elements::for_each_piece`]; `memory` has room for the words.
unsafe fn first_of_many<'a, A: Ordered, W: Word<A::Key>>(
    elements: &mut Elements<'_, A>,
    Order { k, descending, .. }: Order,
    memory: &'a mut Memory<'_>,
) -> &'a [W] {
    let words = memory.again().take::<W>(capacity(elements.line.count, k));
    if k == 0 {
        return &[];
    }
    // How many there are; once they have been full, no others than those before this one are wanted.
    let (mut found, mut bound) = (0, None::<W>);
    let each = |first: usize, elements: &[A]| {
        for (chunk, first) in elements.chunks(16).zip((first..).step_by(16)) {
            let mut keys = [A::Key::default(); 16];
            for (key, x) in keys.iter_mut().zip(chunk) {
                *key = if descending { !x.key() } else { x.key() };
            }
            let keys = &keys[..chunk.len()];
            if bound.is_some_and(|bound| !any_within(keys, bound.key())) {
                continue;
            }
            for (&key, index) in keys.iter().zip(first..) {
                let word = W::new(key, index);
                if bound.is_some_and(|bound| word >= bound) {
                    continue;
                }
                if found == words.len() {
                    words.select_nth_unstable(k - 1);
                    (found, bound) = (k, Some(words[k - 1]));
                    if word >= words[k - 1] {
                        continue;
                    }
                }
                words[found] = word;
                found += 1;
            }
        }
    };
    // SAFETY: the contract of this function.
    unsafe { elements.for_each_piece(each) };
    let words = &mut words[..found];
    if k < found {
        words.select_nth_unstable(k - 1);
    }
    words[..k].sort_unstable();
    &words[..k]
}

/// Sorts a line whose keys have 16 bits by counting them, and writes its first elements in order.
///
/// # Safety
/// - As of [`Elements::for_each_piece`] and [`Place::store`].
unsafe fn count_in_order<A: Compute>(
    elements: &mut Elements<'_, A>,
    Order { k, descending, .. }: Order,
    narrow: fn(A) -> u16,
    place: &Place<'_>,
) {
    let key = |x: &A| usize::from(if descending { !narrow(*x) } else { narrow(*x) });
    scratch::<i64, _>(1 << 16, |ranks| {
        ranks.fill(0);
        // SAFETY: the contract of this function.
        unsafe { elements.for_each_piece(|_, elements| elements.iter().for_each(|x| ranks[key(x)] += 1)) };
        let mut next = 0;
        ranks.iter_mut().for_each(|rank| next += std::mem::replace(rank, next));
        by_dtype!(place.values.dtype, E => {
            let each = |first: usize, elements: &[A]| {
                for (x, index) in elements.iter().zip(first..) {
                    let next = &mut ranks[key(x)];
                    let rank = *next as usize;
                    *next += 1;
                    if rank < k {
                        // SAFETY: as above; values have the dtype of the line, so the element is what it was.
                        unsafe { place.put::<E>(rank, index, x.give()) };
                    }
                }
            };
            // SAFETY: as above.
            unsafe { elements.for_each_piece(each) };
        });
    });
}

/// Puts the first `k` elements in order at the front of `buffers.found`.
fn first_in_order<A: Ordered>(line: &[A], k: usize, descending: bool, buffers: &mut Buffers<A::Key>) {
    let Buffers { keys, best, found } = buffers;
    if keys.len() < line.len() {
        keys.resize(line.len(), A::Key::default()); // Bounded: `SHORT_COUNT_MAX`, as all below
    }
    let keys = &mut keys[..line.len()];
    fill_keys(line, descending, keys);
    found.clear();
    if k == 0 {
        return;
    }
    if k * 8 > line.len() {
        // Bounded: as above
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
    best.extend_from_slice(&keys[..2 * k]); // Bounded: the line is short
    for chunk in keys[2 * k..].chunks(2 * k) {
        lower(best, chunk);
    }
    let bound = *best.select_nth_unstable(k - 1).1;
    for (chunk, first) in keys.chunks(16).zip((0u32..).step_by(16)) {
        if any_within(chunk, bound) {
            let within = chunk.iter().zip(first..).filter(|(key, _)| **key <= bound);
            // Bounded: as above
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
        let input: Vec<f32> = (0..900u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32).collect();
        let address = raddle_hal::Address { handle: input.as_ptr() as u64, offset_bytes: 0 };
        let layout = raddle_base::Layout::contiguous([input.len()].into_iter().collect());
        let line = Line::new(&View { address, dtype: DType::F32, layout }, [0]);
        for (k, descending) in [(0, false), (1, true), (17, true), (500, false), (900, true)] {
            let mut buffers = Buffers::default();
            first_in_order(&input, k, descending, &mut buffers);
            let short: Vec<_> =
                buffers.found.iter().map(|&word| <u32 as Key>::split(word).1 as usize).collect();
            let mut elements = Elements { line: &line, start: 0, staged: &mut [] };
            let mut words = vec![0; input.len()];
            let mut memory = Memory::of(&mut words);
            let order = Order { axis: 0, k, descending };
            // SAFETY: the line is alive, and there is a word for each element.
            let long = unsafe { first_of_many::<f32, u64>(&mut elements, order, &mut memory) };
            assert!(long.iter().map(|word| word.index()).eq(short.iter().copied()), "k {k}");
            // SAFETY: as above.
            let wide = unsafe { first_of_many::<f32, (u32, u64)>(&mut elements, order, &mut memory) };
            assert!(wide.iter().map(|word| word.index()).eq(short), "k {k}");
        }
    }
}
