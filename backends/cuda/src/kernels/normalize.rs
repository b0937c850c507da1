//! Softmax and layer normalization: a row is read once where a block's registers hold it.

use super::build::Builder;
use super::geometry::Array;
use super::rows::{self, Rows};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::{DType, Dims};
use raddle_hal::Operand;
use std::ops::RangeInclusive;

/// Words of 4 bytes that a thread keeps of a row, at most: with all else about half of its registers.
const HELD_WORDS_MAX: usize = 32;
/// Threads of a row, at most.
const LANES_MAX: usize = 512;
/// Words of a row that a thread gets, of softmax, as long as a block has threads for that.
const SOFTMAX_WORDS: usize = 8;
/// The same of layer normalization. 128 threads for a row of 1024 floats, and so few registers that a multiprocessor is full
/// of them, reached 2803 GB/s on an H100; a warp for each such row had 2590. Other lengths and types follow: a guess.
const LAYER_NORM_WORDS: usize = 8;
/// The same of its backward. 256 threads for a row of 1024 floats, the next row on its way, four blocks a multiprocessor
/// reached 2511 GB/s on an H100; five blocks 2480. 128 threads and no row ahead had 2275. The rest is a guess, too.
const LAYER_NORM_BACKWARD_WORDS: usize = 4;
/// Rows of a span at least: the sums that a span leaves are then a small part of what it reads.
const SPAN_ROWS_MIN: usize = 16;
/// Spans are so many that they fill this number of multiprocessors. A constant, whatever the card is: it decides on bits.
const MULTIPROCESSOR_COUNT: usize = 132;

/// How threads share rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    vector: usize,
    lanes: usize,
    /// 0 if rows aren't held.
    chunks: usize,
}

impl Shape {
    /// For rows of `count`, of which a thread gets `words` of 4 bytes, or one vector, as long as a block has threads for that,
    /// and `held_max` at most. `lanes` are limits of the kernel.
    fn new(
        count: usize,
        rows: &[Rows],
        words: usize,
        held_max: usize,
        lanes: RangeInclusive<usize>,
    ) -> Shape {
        let size = rows.iter().map(|row| row.dtype.size_bytes()).max().unwrap_or(4);
        let mut vector = 16 / size;
        while vector > 1 && !(count.is_multiple_of(vector) && rows.iter().all(|row| row.is_aligned(vector))) {
            vector /= 2;
        }
        let elements = |words: usize| words / (size.max(4) / 4);
        let held = elements(held_max);
        let lanes = count
            .div_ceil(elements(words).max(vector))
            .next_power_of_two()
            .clamp(*lanes.start(), *lanes.end());
        let chunks = count.div_ceil(lanes * vector).max(1);
        if chunks * vector <= held {
            // Few numbers of chunks, so that few kernels are compiled.
            let chunks = if chunks <= 4 { chunks } else { chunks.next_power_of_two().min(held / vector) };
            return Shape { vector, lanes, chunks };
        }
        Shape { vector, lanes: LANES_MAX, chunks: 0 }
    }

    /// Words of 4 bytes that a thread holds of a row, in what is computed with.
    fn words(&self, dtype: DType) -> usize {
        self.chunks * self.vector * dtype.compute().size_bytes() / 4
    }

    fn block(&self) -> usize {
        self.lanes.max(128)
    }

    fn text(&self, unit: Unit, dtype: DType) -> Text {
        Text::new(unit, true)
            .element(Name::ELEMENT, dtype)
            .element(Name::ACC, dtype.compute())
            .number(Name::V, self.vector)
            .number(Name::LANES, self.lanes)
            .number(Name::CHUNKS, self.chunks)
    }

    fn launch(&self, builder: &mut Builder, text: Text, row_count: usize, args: Args) {
        let blocks = row_count.div_ceil(self.block() / self.lanes);
        builder.launch(text, blocks, self.block() as u32, args);
    }
}

fn push_counts(args: &mut Args, counts: &[usize]) {
    counts.iter().for_each(|&count| _ = args.push((count as u64).to_ne_bytes()));
}

/// Plans `Kernel::Softmax` and its backward.
pub fn softmax(builder: &mut Builder, axis: usize, log: bool, backward: bool, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view()).with_last(axis);
    let out = array(0);
    if out.shape.contains(&0) {
        return;
    }
    let count = out.shape[out.shape.len() - 1];
    let row_count = out.count() / count;
    let input = rows::input(builder, &array(1), 1);
    let gradient = if backward { rows::input(builder, &array(2), 1) } else { input };
    let (to, staged) = rows::output(builder, &out, 1);
    // In one warp as long as that isn't far too many.
    let one_warp = count * out.dtype.size_bytes().max(4) / 4 <= 32 * HELD_WORDS_MAX;
    let lanes = 1..=if one_warp { 32 } else { LANES_MAX };
    let shape = Shape::new(count, &[to, input, gradient], SOFTMAX_WORDS, HELD_WORDS_MAX, lanes);
    let text = shape.text(Unit::Softmax, out.dtype).flag(Name::LOG, log).flag(Name::BACKWARD, backward);
    let mut args = Args::default();
    [to, input, gradient].iter().for_each(|rows| rows.push_to(&mut args));
    push_counts(&mut args, &[row_count, count]);
    shape.launch(builder, text, row_count, args);
    rows::finish(builder, &out, staged);
}

/// Plans `Kernel::LayerNorm`.
pub fn layer_norm(
    builder: &mut Builder,
    axes: usize,
    eps: f64,
    [weight, bias, addend]: [bool; 3],
    operands: &[Operand],
) {
    let array = |index: usize| Array::from(operands[index].view());
    let (out, mean, rstd, x) = (array(0), array(1), array(2), array(3));
    if mean.shape.contains(&0) {
        return;
    }
    let count: usize = out.shape[out.shape.len() - axes..].iter().product();
    let row_count = mean.count();
    let input = rows::input(builder, &x, axes);
    let (behind_weight, behind_bias) = (4 + usize::from(weight), 4 + usize::from(weight) + usize::from(bias));
    let weight = weight.then(|| builder.packed(&array(4)));
    let bias = bias.then(|| builder.packed(&array(behind_weight)));
    let addend = addend.then(|| rows::input(builder, &array(behind_bias), axes));
    let (to, staged) = rows::output(builder, &out, axes);
    let (to_mean, staged_mean) = rows::output(builder, &mean, axes);
    let (to_rstd, staged_rstd) = rows::output(builder, &rstd, axes);
    let lines = [Some(to), Some(input), weight.map(as_row), bias.map(as_row), addend];
    let lines: Vec<Rows> = lines.into_iter().flatten().collect();
    let shape = Shape::new(count, &lines, LAYER_NORM_WORDS, HELD_WORDS_MAX, 1..=LANES_MAX);
    // 32 registers a thread do for two vectors of floats, not for more addresses or doubles.
    let resident = match (shape.chunks, shape.words(out.dtype)) {
        (1..=2, 1..=8) if out.dtype != DType::F64 && addend.is_none() => 2048,
        (1..=8, 1..=16) => 1024,
        _ => 512,
    };
    let text = shape
        .text(Unit::LayerNorm, out.dtype)
        .number(Name::RESIDENT, resident)
        .flag(Name::WEIGHT, weight.is_some())
        .flag(Name::BIAS, bias.is_some())
        .flag(Name::ADDEND, addend.is_some());
    let mut args = Args::default();
    [to, input, addend.unwrap_or(input), to_mean, to_rstd].iter().for_each(|rows| rows.push_to(&mut args));
    for operand in [weight, bias] {
        args.place(operand.map_or(Place::At(0), |array| array.place));
    }
    args.push(eps.to_ne_bytes());
    push_counts(&mut args, &[row_count, count]);
    shape.launch(builder, text, row_count, args);
    rows::finish(builder, &out, staged);
    rows::finish(builder, &mean, staged_mean);
    rows::finish(builder, &rstd, staged_rstd);
}

/// A packed operand as one row.
fn as_row(array: Array) -> Rows {
    Rows { place: array.place, dtype: array.dtype, stride: 0 }
}

/// Plans `Kernel::LayerNormBackward`.
pub fn layer_norm_backward(
    builder: &mut Builder,
    axes: usize,
    [weight, bias]: [bool; 2],
    operands: &[Operand],
) {
    let array = |index: usize| Array::from(operands[index].view());
    let dx = array(0);
    let dweight = weight.then(|| array(1));
    let dbias = bias.then(|| array(1 + usize::from(weight)));
    let first = 1 + usize::from(weight) + usize::from(bias);
    let [dy, x, mean, rstd] = [0, 1, 2, 3].map(|index| array(first + index));
    let count: usize = dx.shape[dx.shape.len() - axes..].iter().product();
    let row_count = mean.count();
    if count == 0 {
        return;
    }
    if row_count == 0 {
        // Sums of nothing.
        for out in [dweight, dbias].into_iter().flatten() {
            let zero = builder.scratch(16);
            builder.fill(zero, 16, 0);
            let strides = Dims::filled(0, out.shape.len());
            builder.copy(&out, &Array { place: zero, strides, ..out });
        }
        return;
    }
    let [dy, x, mean, rstd] = [dy, x, mean, rstd].map(|array| rows::input(builder, &array, axes));
    let weight = weight.then(|| builder.packed(&array(first + 4)));
    let (to, staged) = rows::output(builder, &dx, axes);
    let lines: Vec<Rows> = [Some(to), Some(dy), Some(x), weight.map(as_row)].into_iter().flatten().collect();
    // One row at a time is a block's: three rows and the sums are kept.
    let lanes = 128..=LANES_MAX;
    let shape = Shape::new(count, &lines, LAYER_NORM_BACKWARD_WORDS, HELD_WORDS_MAX / 2, lanes);
    let words = shape.words(dx.dtype);
    // So that nothing is spilled: 64, 80 and 128 registers a thread.
    let resident = match words {
        1..=4 => 1024,
        5..=8 => 768,
        _ => 512,
    };
    let span_count_max = MULTIPROCESSOR_COUNT * (resident / shape.block());
    let rows_per_span = row_count
        .div_ceil(span_count_max)
        .max(SPAN_ROWS_MIN.min(row_count.div_ceil(MULTIPROCESSOR_COUNT)).max(1));
    let spans = row_count.div_ceil(rows_per_span);
    let acc = dx.dtype.compute();
    let sums = Dims::new(&[spans, count]).expect("two axes");
    let weight_sums = dweight.map(|_| builder.scratch_array(acc, sums));
    let bias_sums = dbias.map(|_| builder.scratch_array(acc, sums));
    let mut args = Args::default();
    [to, dy, x, mean, rstd].iter().for_each(|rows| rows.push_to(&mut args));
    for operand in [weight, weight_sums, bias_sums] {
        args.place(operand.map_or(Place::At(0), |array| array.place));
    }
    push_counts(&mut args, &[row_count, count, rows_per_span]);
    let text = |pass: usize| {
        shape
            .text(Unit::LayerNormBackward, dx.dtype)
            .number(Name::RESIDENT, resident)
            .flag(Name::AHEAD, (1..=8).contains(&words))
            .flag(Name::WEIGHT, weight.is_some())
            .flag(Name::SUM_WEIGHT, dweight.is_some())
            .flag(Name::SUM_BIAS, dbias.is_some())
            .number(Name::PASS, pass)
    };
    let threads = shape.block();
    if shape.chunks > 0 {
        builder.launch(text(0), spans, threads as u32, args);
    } else {
        builder.launch(text(0), row_count, threads as u32, args.clone());
        if dweight.is_some() || dbias.is_some() {
            builder.launch(text(1), spans * count.div_ceil(threads), threads as u32, args);
        }
    }
    rows::finish(builder, &dx, staged);
    let wanted = [dweight, dbias].into_iter().flatten().count();
    if wanted == 0 {
        return;
    }
    let targets = [dweight, dbias].map(|out| out.map(|out| builder.target(&out)));
    let mut args = Args::default();
    for array in [weight_sums, bias_sums].into_iter().chain(targets) {
        args.place(array.map_or(Place::At(0), |array| array.place));
    }
    push_counts(&mut args, &[spans, count]);
    let text = Text::new(Unit::LayerNormSums, true).element(Name::ELEMENT, dx.dtype).element(Name::ACC, acc);
    builder.launch(text, wanted * count.div_ceil(32), 1024, args);
    for (out, target) in [dweight, dbias].into_iter().zip(targets) {
        if let (Some(out), Some(target)) = (out, target) {
            builder.unpack(&out, &target);
        }
    }
}
