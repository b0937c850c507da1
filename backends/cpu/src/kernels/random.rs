//! Random numbers: Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) by the position
//! of an element in row-major order, so that no layout, thread or cut into parts can change a value (T8).

use super::fill::{CHUNK_COUNT, Chunk, fill, read_range};
use super::level::{Level, leveled};
use super::math;
use crate::threads::Threads;
use raddle_base::{DType, Element};
use raddle_hal::View;
use raddle_op::{Distribution, last_below, least_positive, takes_more_bits};
use raddle_sync::fault;
use std::{mem::MaybeUninit, ops::Range};

/// The most blocks of a chunk: of two elements each.
const BLOCK_COUNT_MAX: usize = CHUNK_COUNT / 2;

/// The words of a chunk: word `w` of its block `b` is `words[w][b]`.
type Words = [[MaybeUninit<u32>; BLOCK_COUNT_MAX]; 4];

/// One block; `part` 0, or 1 for as many words more. The four words live in the lower halves of 64 bits, with leftovers above
/// them: so a lane of a vector holds what the widening multiplication takes and gives, and nothing has to be shuffled.
#[inline(always)]
fn philox(counter: u64, part: u32, key: u64) -> [u32; 4] {
    let low = |word: u64| word & 0xffff_ffff;
    let [mut a, mut b, mut c, mut d] = [low(counter), counter >> 32, u64::from(part), 0];
    let [mut k, mut l] = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let (x, y) = (low(a) * 0xd251_1f53, low(c) * 0xcd9e_8d57);
        [a, b, c, d] = [(y >> 32) ^ b ^ u64::from(k), y, (x >> 32) ^ d ^ u64::from(l), x];
        (k, l) = (k.wrapping_add(0x9e37_79b9), l.wrapping_add(0xbb67_ae85));
    }
    [a as u32, b as u32, c as u32, d as u32]
}

leveled! {
    /// Writes the words of a part of `count` blocks from `counter` on.
    unsafe fn draw(words: &mut Words, count: usize, counter: u64, part: u32, key: u64) = draw_body;
}

#[inline(always)]
unsafe fn draw_body(words: &mut Words, count: usize, counter: u64, part: u32, key: u64) {
    let words = words.each_mut().map(|words| &mut words[..count]);
    let [a, b, c, d] = words;
    for index in 0..count {
        [a[index], b[index], c[index], d[index]] =
            philox(counter.wrapping_add(index as u64), part, key).map(MaybeUninit::new);
    }
}

/// How elements are made from words.
trait Map: Copy + Sync {
    /// What is made.
    type Value: Element;
    /// Elements that a block makes: 2 of two words each, or 4 of one.
    const IN_A_BLOCK: usize;
    /// Makes an element from its low and its high word; where a block makes 2.
    fn one(self, _low: u32, _high: u32) -> Self::Value {
        unreachable!("a block makes 4")
    }
    /// Makes two elements from one word each; where a block makes 4.
    fn two(self, _first: u32, _second: u32) -> [Self::Value; 2] {
        unreachable!("a block makes 2")
    }
}

leveled! {
    /// Writes the elements of a chunk. Its words have been drawn.
    unsafe fn map<M: Map>(map: M, words: &Words, to: &mut [MaybeUninit<M::Value>; CHUNK_COUNT]) = map_body;
}

#[inline(always)]
unsafe fn map_body<M: Map>(map: M, words: &Words, to: &mut [MaybeUninit<M::Value>; CHUNK_COUNT]) {
    // SAFETY: as of this function.
    let [a, b, c, d] = words.each_ref().map(|words| |index: usize| unsafe { words[index].assume_init() });
    if M::IN_A_BLOCK == 2 {
        for (index, elements) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            elements[0].write(map.one(a(index), b(index)));
            elements[1].write(map.one(c(index), d(index)));
        }
    } else {
        for (index, elements) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let ([x, y], [z, w]) = (map.two(a(index), b(index)), map.two(c(index), d(index)));
            *elements = [x, y, z, w].map(MaybeUninit::new);
        }
    }
}

/// The upper 24 bits, as a number of [0, 1).
#[inline(always)]
fn unit_f32(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// The upper 23 bits as the fraction of a number of [1, 2).
#[inline(always)]
fn one_to_two(word: u32) -> f32 {
    f32::from_bits(word >> 9 | 0x3f80_0000)
}

/// The upper 53 bits, as a number of [0, 1).
#[inline(always)]
fn unit_f64(low: u32, high: u32) -> f64 {
    (bits(low, high) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

#[inline(always)]
fn bits(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

const TWO_32: f64 = 4_294_967_296.0;

/// What stands for the first step of [`unit_f32`] in an exponential number, which isn't 0: people divide by it.
const HALF_A_STEP_F32: f32 = 0.5 / 16_777_216.0;
/// The same of [`unit_f64`].
const HALF_A_STEP_F64: f64 = 0.5 / 9_007_199_254_740_992.0;

/// Defines a distribution's map: its parameters, and what it makes from two words.
macro_rules! maps {
    ($($name:ident { $($field:ident),* } -> $t:ident, $count:literal a block, $method:ident -> $made:ty, |$a:ident, $b:ident| $body:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $name { $($field: $t),* }
        impl Map for $name {
            type Value = $t;
            const IN_A_BLOCK: usize = $count;
            #[inline(always)]
            fn $method(self, $a: u32, $b: u32) -> $made {
                let $name { $($field),* } = self;
                $body
            }
        }
    )* };
}
maps! {
    UniformF32 { low, range, last } -> f32, 4 a block, two -> [f32; 2], |a, b| {
        [a, b].map(|word| (low + range * unit_f32(word)).min(last))
    };
    UniformF64 { low, range, last } -> f64, 2 a block, one -> f64, |lower, high| (low + range * unit_f64(lower, high)).min(last);
    WideUniformF32 { low, half, last } -> f32, 4 a block, two -> [f32; 2], |a, b| {
        [a, b].map(|word| {
            let part = half * unit_f32(word);
            (low + part + part).min(last)
        })
    };
    WideUniformF64 { low, half, last } -> f64, 2 a block, one -> f64, |lower, high| {
        let part = half * unit_f64(lower, high);
        (low + part + part).min(last)
    };
    NormalF32 { mean, std } -> f32, 4 a block, two -> [f32; 2], |a, b| {
        let u = one_to_two(a) - (1.0 - 1.0 / 16_777_216.0);
        let radius = math::f32::minus_two_log(u).sqrt();
        let radius = f32::from_bits(radius.to_bits() | b & 0x8000_0000);
        let (cosine, sine) = math::f32::quarter_turns(one_to_two(b << 1).mul_add(2.0, -3.0));
        [cosine, sine].map(|part| std.mul_add(radius * part, mean))
    };
    NormalF64 { mean, std } -> f64, 2 a block, one -> f64, |low, high| {
        let unit = |word| (f64::from(word) + 0.5) * (1.0 / 4_294_967_296.0);
        mean + std * ((-2.0 * (1.0 - unit(low)).ln()).sqrt() * (std::f64::consts::TAU * unit(high)).cos())
    };
    ExponentialF32 { rate, least } -> f32, 4 a block, two -> [f32; 2], |a, b| {
        [a, b].map(|word| {
            let size = 0.5 * math::f32::minus_two_log(1.0 - unit_f32(word));
            (size.max(HALF_A_STEP_F32) / rate).max(least)
        })
    };
    ExponentialF64 { rate, least } -> f64, 2 a block, one -> f64, |low, high| {
        ((0.0 - (1.0 - unit_f64(low, high)).ln()).max(HALF_A_STEP_F64) / rate).max(least)
    };
    Word {} -> i32, 4 a block, two -> [i32; 2], |a, b| [a as i32, b as i32];
    UnitF64 {} -> f64, 2 a block, one -> f64, |low, high| unit_f64(low, high);
}

/// `low + (w · range) / 2^64`; a range of 0 stands for 2^64.
#[derive(Clone, Copy)]
struct Integer {
    low: i64,
    range: u64,
}
impl Map for Integer {
    type Value = i64;
    const IN_A_BLOCK: usize = 2;
    #[inline(always)]
    fn one(self, low: u32, high: u32) -> i64 {
        let bits = bits(low, high);
        let scaled = ((u128::from(bits) * u128::from(self.range)) >> 64) as u64;
        self.low.wrapping_add(if self.range == 0 { bits } else { scaled } as i64)
    }
}

/// The same of 128 bits, of which these are the upper and the lower ones.
fn of_more_bits(low: i64, range: u64, upper: u64, lower: u64) -> i64 {
    let product = |bits: u64| u128::from(bits) * u128::from(range);
    low.wrapping_add(((product(upper) + (product(lower) >> 64)) >> 64) as i64)
}

/// Runs `Kernel::Random`.
///
/// # Safety
/// - As of [`super::execute`].
pub unsafe fn execute(
    distribution: Distribution,
    key: u64,
    counter: u64,
    out: &View,
    probability: Option<&View>,
    threads: Threads,
) {
    let place = if fault!(draws_by_place) { out.layout.offset() as u64 } else { 0 };
    let stream = Stream { key, counter: counter.wrapping_add(place) };
    let double = out.dtype == DType::F64;
    // SAFETY: as of this function.
    unsafe {
        match distribution {
            Distribution::Uniform { low, high } if double => {
                let (range, half) = (high - low, 0.5 * high - 0.5 * low);
                let last = last_below(low, high, DType::F64);
                match range.is_finite() {
                    true => stream.fill(out, threads, UniformF64 { low, range, last }),
                    false => stream.fill(out, threads, WideUniformF64 { low, half, last }),
                }
            }
            Distribution::Uniform { low, high } => {
                let (range, half) = ((high - low) as f32, (0.5 * high - 0.5 * low) as f32);
                let (low, last) = (low as f32, last_below(low, high, out.dtype) as f32);
                match range.is_finite() {
                    true => stream.fill(out, threads, UniformF32 { low, range, last }),
                    false => stream.fill(out, threads, WideUniformF32 { low, half, last }),
                }
            }
            Distribution::Normal { mean, std } if double => {
                stream.fill(out, threads, NormalF64 { mean, std })
            }
            Distribution::Normal { mean, std } => {
                stream.fill(out, threads, NormalF32 { mean: mean as f32, std: std as f32 });
            }
            Distribution::Exponential { rate } if double => {
                stream.fill(out, threads, ExponentialF64 { rate, least: least_positive(DType::F64) });
            }
            Distribution::Exponential { rate } => {
                let least = least_positive(out.dtype) as f32;
                stream.fill(out, threads, ExponentialF32 { rate: rate as f32, least });
            }
            Distribution::Bernoulli { p } if double => {
                stream.bernoulli(out, p, probability, threads, UnitF64 {}, |unit, p| f64::from(unit < p))
            }
            Distribution::Bernoulli { p } => {
                stream.bernoulli(out, p, probability, threads, Word {}, |word, p| {
                    TWO_32 * p - f64::from(word as u32)
                })
            }
            Distribution::Integer { low, high } => {
                let range = high.wrapping_sub(low) as u64;
                match takes_more_bits(low, high) {
                    true => stream.fill_wide(out, threads, low, range),
                    false => stream.fill(out, threads, Integer { low, range }),
                }
            }
        }
    }
}

/// Where the numbers come from.
#[derive(Clone, Copy)]
struct Stream {
    key: u64,
    counter: u64,
}

impl Stream {
    /// Writes the elements of a chunk whose first position is a multiple of its length.
    fn chunk<M: Map>(self, first: usize, of: M, to: &mut [MaybeUninit<M::Value>; CHUNK_COUNT]) {
        let mut words = [[MaybeUninit::uninit(); BLOCK_COUNT_MAX]; 4];
        let (level, counter) = (Level::best(), self.counter.wrapping_add((first / M::IN_A_BLOCK) as u64));
        // SAFETY: the level is this machine's; the words of all blocks are drawn before they are mapped.
        unsafe {
            draw(level, &mut words, CHUNK_COUNT / M::IN_A_BLOCK, counter, 0, self.key);
            map::<M>(level, of, &words, to);
        }
    }

    /// # Safety
    /// - The view is live and nobody else touches it.
    unsafe fn fill<M: Map>(self, out: &View, threads: Threads, of: M) {
        let make = |range: Range<usize>, to: *mut u8| {
            if range.len() == CHUNK_COUNT {
                // SAFETY: there is room for the range, a whole chunk, which is written and not read.
                return self.chunk(range.start, of, unsafe { &mut *to.cast() });
            }
            let mut values = [MaybeUninit::<M::Value>::uninit(); CHUNK_COUNT];
            self.chunk(range.start, of, &mut values);
            // SAFETY: there is room for the range.
            unsafe {
                to.copy_from_nonoverlapping(values.as_ptr().cast(), range.len() * size_of::<M::Value>())
            };
        };
        // SAFETY: as of this function; `make` writes the range.
        unsafe { fill(out, M::Value::DTYPE, threads, make) }
    }

    /// Integers of 128 bits each.
    ///
    /// # Safety
    /// - As of [`Stream::fill`].
    unsafe fn fill_wide(self, out: &View, threads: Threads, low: i64, range: u64) {
        let make = |positions: Range<usize>, to: *mut u8| {
            let (level, counter) = (Level::best(), self.counter.wrapping_add((positions.start / 2) as u64));
            let drawn = [0, 1].map(|part| {
                let mut words: Words = [[MaybeUninit::uninit(); BLOCK_COUNT_MAX]; 4];
                // SAFETY: the level is this machine's.
                unsafe { draw(level, &mut words, positions.len().div_ceil(2), counter, part, self.key) };
                words
            });
            for index in 0..positions.len() {
                let [upper, lower] = drawn.each_ref().map(|words| {
                    // SAFETY: the words of all blocks of these positions have been drawn.
                    let word = |at: usize| unsafe { words[index % 2 * 2 + at][index / 2].assume_init() };
                    bits(word(0), word(1))
                });
                // SAFETY: there is room for the range.
                unsafe { to.cast::<i64>().add(index).write(of_more_bits(low, range, upper, lower)) };
            }
        };
        // SAFETY: as of this function; `make` writes the range.
        unsafe { fill(out, DType::I64, threads, make) }
    }

    /// `above` says how far a probability is above what was drawn, in steps of that: 1 and more are 1, 0 and less 0, and
    /// between them the word decides that the block's second part has there.
    ///
    /// # Safety
    /// - The views are live; nobody else touches the first, nobody writes the second.
    unsafe fn bernoulli<M: Map>(
        self,
        out: &View,
        p: f64,
        probability: Option<&View>,
        threads: Threads,
        drawn: M,
        above: impl Fn(M::Value, f64) -> f64 + Sync,
    ) {
        let make = |range: Range<usize>, to: *mut u8| {
            let mut values = [MaybeUninit::<M::Value>::uninit(); CHUNK_COUNT];
            self.chunk(range.start, drawn, &mut values);
            let mut probabilities = Chunk::new();
            if let Some(view) = probability {
                // SAFETY: the view is live; a chunk has room for the range.
                unsafe { read_range(view, range.clone(), DType::F64, probabilities.start()) };
            }
            let probabilities = probabilities.start().cast::<f64>();
            let above = |index: usize| {
                // SAFETY: `index` is inside of the range, for which there is room; `chunk` has written all values.
                unsafe {
                    let p = if probability.is_some() { probabilities.add(index).read() } else { p };
                    above(values[index].assume_init(), p)
                }
            };
            let is_open = |above: f64| above > 0.0 && above < 1.0;
            let mut is_any_open = false;
            for index in 0..range.len() {
                let above = above(index);
                is_any_open |= is_open(above);
                // SAFETY: there is room for the range.
                unsafe { to.add(index).write(u8::from(above >= 1.0)) };
            }
            for index in if is_any_open { 0..range.len() } else { 0..0 } {
                let (above, at) = (above(index), range.start + index);
                if is_open(above) {
                    let more = philox(self.counter.wrapping_add((at / 4) as u64), 1, self.key)[at % 4];
                    // SAFETY: as above.
                    unsafe { to.add(index).write(u8::from(f64::from(more) < TWO_32 * above)) };
                }
            }
        };
        // SAFETY: as of this function; `make` writes the range.
        unsafe { fill(out, DType::Bool, threads, make) }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "random_tests.rs"]
mod tests;
