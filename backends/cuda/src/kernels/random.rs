//! Random numbers by the position of an element in row-major order.

use super::build::Builder;
use super::geometry::{Array, Grid, Order, is_aligned};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::{DType, Layout};
use raddle_hal::View;
use raddle_op::{Distribution, last_below, least_positive, takes_more_bits};

/// Threads of a block.
const THREADS: usize = 256;
/// Elements from which on a block makes four parts: then there are enough blocks for 132 multiprocessors. (Guess.)
const PARTED_COUNT_MIN: usize = 1 << 22;

/// Plans `Kernel::Random`.
pub fn plan(
    builder: &mut Builder,
    distribution: Distribution,
    key: u64,
    counter: u64,
    out: &View,
    probability: Option<&View>,
) {
    let (out, probability) = (Array::from(out), probability.map(Array::from));
    let count = out.count();
    if count == 0 {
        return;
    }
    let double = out.dtype == DType::F64;
    // Numbers that f32 rounds are rounded here, where the CPU does.
    let rounded = |value: f64| if double { value } else { f64::from(value as f32) };
    let (kind, numbers) = match distribution {
        Distribution::Uniform { low, high } => {
            let (range, half) = (rounded(high - low), rounded(0.5 * high - 0.5 * low));
            let (kind, range) = if range.is_finite() { (0, range) } else { (6, half) };
            (kind, [rounded(low), range, rounded(last_below(low, high, out.dtype))])
        }
        Distribution::Normal { mean, std } => (1, [rounded(mean), rounded(std), 0.0]),
        Distribution::Exponential { rate } => (2, [rounded(rate), least_positive(out.dtype), 0.0]),
        Distribution::Bernoulli { p } => (3, [p, 0.0, 0.0]),
        Distribution::Integer { low, high } => {
            let range = high.wrapping_sub(low) as u64;
            let kind = if takes_more_bits(low, high) { 5 } else { 4 };
            (kind, [f64::from_bits(low as u64), f64::from_bits(range), 0.0])
        }
    };
    let other = probability.unwrap_or(out);
    let contiguous = out.layout().is_contiguous() && other.layout().is_contiguous();
    let position = *Layout::contiguous(out.shape).strides();
    let grid = (!contiguous)
        .then(|| Grid::new(&out.shape, &[&out.strides, &other.strides, &position], Order::Memory));
    let wide = grid.as_ref().map_or(count >= 1 << 31, Grid::is_wide);
    let vector = if contiguous { (16 / out.dtype.size_bytes()).clamp(4, 8) } else { 4 };
    // What a thread does once is then done for more elements, as long as all multiprocessors have some.
    let parts = if contiguous && count >= PARTED_COUNT_MIN { 4 } else { 1 };
    let text = Text::new(Unit::Random, wide)
        .element(Name::ELEMENT, out.dtype)
        .element(Name::PROBABILITY, other.dtype)
        .flag(Name::HAS_PROBABILITY, probability.is_some())
        .number(Name::KIND, kind)
        .flag(Name::DOUBLE, double)
        .number(Name::RANK, grid.as_ref().map_or(0, Grid::rank))
        .number(Name::V, vector)
        .number(Name::PARTS, parts)
        .flag(Name::ALIGNED, is_aligned(out.place, (vector * out.dtype.size_bytes()).min(16)));
    let mut args = Args::default();
    args.place(out.place).place(probability.map_or(Place::At(0), |array| array.place));
    args.push(counter.to_ne_bytes());
    for round in 0..10u32 {
        let [low, high] = [key as u32, (key >> 32) as u32];
        args.push(low.wrapping_add(round.wrapping_mul(0x9e37_79b9)).to_ne_bytes());
        args.push(high.wrapping_add(round.wrapping_mul(0xbb67_ae85)).to_ne_bytes());
    }
    numbers.iter().for_each(|number| _ = args.push(number.to_ne_bytes()));
    args.push((count as u64).to_ne_bytes());
    if let Some(grid) = &grid {
        grid.push_to(&mut args, wide);
    }
    builder.launch(text, count.div_ceil(THREADS * vector * parts), THREADS as u32, args);
}
