//! Combining the elements of a line: sums, products, extremes.
//!
//! Guarantee: the order is a function of the number of elements.
//!
//! 1. Elements are cut into pieces of [`PIECE`], these into blocks of [`BLOCK`]; what is past the last multiple of
//!    [`LANES`] is a block of its own. In a block element `i` goes to lane `i % LANES`, in order. The lanes of the blocks
//!    of a piece are combined in order, then the lanes of the piece by halving ([`halve`]).
//! 2. Pieces are combined in pairs, pairs of pairs, and so on ([`Cascade`]).
//!
//! The error of a sum grows with `BLOCK / LANES + PIECE / BLOCK + log n`, not with `n`; and it costs one vector addition
//! for each vector of elements, and one horizontal step for each piece.

use super::element::{Compute, Truth};
use super::level::multiversion;
use super::math;

/// Independent sums in a block: 4 AVX2 vectors of `f32`, enough to hide the latency of an addition.
pub const LANES: usize = 32;
/// Elements of a block.
pub const BLOCK: usize = 512;
/// Elements of a piece: what one thread takes at least where a single result has more.
pub const PIECE: usize = 32 * BLOCK;
/// How elements are combined.
pub trait Fold<A>: Send + Sync {
    /// Combining with it changes nothing, not even the sign of zero.
    const IDENTITY: A;
    /// What is combined: the element itself, or what is made of it and the mean.
    #[inline(always)]
    fn map(x: A, mean: A) -> A {
        let _ = mean;
        x
    }
    /// Two into one, the earlier first.
    fn combine(a: A, b: A) -> A;
    /// What is done to the final result.
    #[inline(always)]
    fn seal(result: A) -> A {
        result
    }
    /// What is done to it after it has been divided.
    #[inline(always)]
    fn settle(result: A, mean: A) -> A {
        let _ = mean;
        result
    }
}

/// Σ x
pub struct Sum;
/// Π x
pub struct Product;
/// The largest, NaN if there is one.
pub struct Largest;
/// As [`Largest`], but 0 and -0 count as equal, which is faster: for shifts, where the sign of a zero makes no difference.
pub struct Peak;
/// The smallest, NaN if there is one.
pub struct Smallest;
/// √ Σ x²
pub struct Squares;
/// Σ (x − mean). Their mean is added to a mean that is a little off.
pub struct Distances;
/// Σ (x − mean)²
pub struct Deviations;
/// √ Σ (x − mean)²
pub struct RootDeviations;

macro_rules! float_folds {
    ($($t:ident),*) => { $(
        impl Fold<$t> for Sum {
            const IDENTITY: $t = -0.0;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a + b }
            // What is −0 by now was all −0, or nothing at all.
            #[inline(always)]
            fn seal(result: $t) -> $t { result + 0.0 }
        }
        impl Fold<$t> for Product {
            const IDENTITY: $t = 1.0;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a * b }
        }
        impl Fold<$t> for Squares {
            const IDENTITY: $t = -0.0;
            #[inline(always)]
            fn map(x: $t, _: $t) -> $t { x * x }
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn seal(result: $t) -> $t { (result + 0.0).sqrt() }
        }
        impl Fold<$t> for Distances {
            const IDENTITY: $t = -0.0;
            #[inline(always)]
            fn map(x: $t, mean: $t) -> $t { x - mean }
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a + b }
            // There is no distance to infinity.
            #[inline(always)]
            fn settle(result: $t, mean: $t) -> $t { if result.is_finite() { mean + result } else { mean } }
        }
        impl Fold<$t> for Deviations {
            const IDENTITY: $t = -0.0;
            #[inline(always)]
            fn map(x: $t, mean: $t) -> $t { (x - mean) * (x - mean) }
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn seal(result: $t) -> $t { result + 0.0 }
        }
        impl Fold<$t> for RootDeviations {
            const IDENTITY: $t = -0.0;
            #[inline(always)]
            fn map(x: $t, mean: $t) -> $t { <Deviations as Fold<$t>>::map(x, mean) }
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn seal(result: $t) -> $t { (result + 0.0).sqrt() }
        }
        impl Fold<$t> for Largest {
            const IDENTITY: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { math::$t::larger(a, b) }
        }
        impl Fold<$t> for Peak {
            const IDENTITY: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { if b > a || b.is_nan() { b } else { a } }
        }
        impl Fold<$t> for Smallest {
            const IDENTITY: $t = $t::INFINITY;
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t { math::$t::smaller(a, b) }
        }
    )* };
}
float_folds!(f32, f64);

impl Fold<i64> for Sum {
    const IDENTITY: i64 = 0;
    #[inline(always)]
    fn combine(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
}
impl Fold<i64> for Product {
    const IDENTITY: i64 = 1;
    #[inline(always)]
    fn combine(a: i64, b: i64) -> i64 {
        a.wrapping_mul(b)
    }
}
impl Fold<i64> for Largest {
    const IDENTITY: i64 = i64::MIN;
    #[inline(always)]
    fn combine(a: i64, b: i64) -> i64 {
        a.max(b)
    }
}
impl Fold<i64> for Smallest {
    const IDENTITY: i64 = i64::MAX;
    #[inline(always)]
    fn combine(a: i64, b: i64) -> i64 {
        a.min(b)
    }
}
/// All
impl Fold<Truth> for Smallest {
    const IDENTITY: Truth = Truth(1);
    #[inline(always)]
    fn combine(a: Truth, b: Truth) -> Truth {
        Truth(a.0 & b.0)
    }
}
/// Any
impl Fold<Truth> for Largest {
    const IDENTITY: Truth = Truth(0);
    #[inline(always)]
    fn combine(a: Truth, b: Truth) -> Truth {
        Truth(a.0 | b.0)
    }
}

/// Combines what has been mapped before.
pub struct Mapped<F>(F);
impl<A, F: Fold<A>> Fold<A> for Mapped<F> {
    const IDENTITY: A = F::IDENTITY;
    #[inline(always)]
    fn combine(a: A, b: A) -> A {
        F::combine(a, b)
    }
}

/// Combines in pairs whatever is pushed: as a binary counter, of which each digit is the result of a whole subtree.
pub struct Cascade<A> {
    digits: [A; usize::BITS as usize],
    count: usize,
}

impl<A: Copy> Cascade<A> {
    /// Nothing pushed yet.
    #[inline(always)]
    pub fn new<F: Fold<A>>() -> Cascade<A> {
        Cascade { digits: [F::IDENTITY; usize::BITS as usize], count: 0 }
    }

    /// One more.
    #[inline(always)]
    pub fn push<F: Fold<A>>(&mut self, mut value: A) {
        let level = self.count.trailing_ones() as usize;
        for digit in &self.digits[..level] {
            value = F::combine(*digit, value);
        }
        self.digits[level] = value;
        self.count += 1;
    }

    /// All of them combined.
    #[inline(always)]
    pub fn finish<F: Fold<A>>(&self) -> A {
        let mut value = F::IDENTITY;
        let mut rest = self.count;
        while rest != 0 {
            value = F::combine(self.digits[rest.trailing_zeros() as usize], value);
            rest &= rest - 1;
        }
        value
    }
}

multiversion! {
/// Combines vectors lane by lane, and the result into `totals`. (A function of its own that goes through memory at its
/// ends: next to code that mixes lanes the compiler would make shuffles of it.)
fn add_block<A: Compute, F: Fold<A>>(totals: &mut [A; LANES], vectors: &[[A; LANES]], mean: A) {
    let mut lanes = [F::IDENTITY; LANES];
    for vector in vectors {
        let mut next = lanes;
        for (lane, &x) in next.iter_mut().zip(vector) {
            *lane = F::combine(*lane, F::map(x, mean));
        }
        lanes = next;
    }
    for (total, lane) in totals.iter_mut().zip(lanes) {
        *total = F::combine(*total, lane);
    }
}
}

/// Combines lanes by halving: `l` of 32 with `l + 16`, then with `l + 8`, …. There are a power of two of them.
#[inline(always)]
pub fn halve<A: Copy>(mut lanes: &mut [A], combine: impl Fn(A, A) -> A) -> A {
    while lanes.len() > 1 {
        let (low, high) = lanes.split_at_mut(lanes.len() / 2);
        for (low, high) in low.iter_mut().zip(high) {
            *low = combine(*low, *high);
        }
        lanes = low;
    }
    lanes[0]
}

/// Combines at most [`PIECE`] elements.
fn piece<A: Compute, F: Fold<A>>(elements: &[A], mean: A) -> A {
    let mut totals = [F::IDENTITY; LANES];
    let (vectors, tail) = elements.as_chunks::<LANES>();
    for block in vectors.chunks(BLOCK / LANES) {
        add_block::<A, F>(&mut totals, block, mean);
    }
    for (total, &x) in totals.iter_mut().zip(tail) {
        *total = F::combine(*total, F::map(x, mean));
    }
    halve(&mut totals, F::combine)
}

/// Combines a slice in the order of this module. `mean` is for folds that need one.
pub fn fold_slice<A: Compute, F: Fold<A>>(elements: &[A], mean: A) -> A {
    if elements.len() <= PIECE {
        return piece::<A, F>(elements, mean);
    }
    let mut cascade = Cascade::new::<F>();
    for part in elements.chunks(PIECE) {
        cascade.push::<F>(piece::<A, F>(part, mean));
    }
    cascade.finish::<F>()
}
