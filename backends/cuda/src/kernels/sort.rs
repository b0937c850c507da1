//! Sorting rows, and their first few elements.
//!
//! Each element becomes a key whose order is that of the result, and with its index a word: words differ, so every
//! algorithm gives the same order, which is stable. (So an axis has at most 2^32 elements.) Chunks are sorted in shared
//! memory, then runs are merged, or few of them put together at once. A few are selected without sorting the row.

use super::build::Builder;
use super::geometry::Array;
use super::rows::{self, Rows};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::DType;
use raddle_hal::Operand;

/// Words that a block merges.
const MERGE_TILE: usize = 1024;
/// Runs that are put together in one step: for more of them its threads would search longer than short chunks save.
const RANKED_RUN_COUNT_MAX: usize = 16;
/// Rows of at most so many are sorted as one chunk: a second launch costs as much as the network's last steps (guess).
const CHUNK_ALONE: usize = 1024;
/// Words that a block puts to their places.
const RANKED_WORDS: usize = 32;
/// Words of which all threads are there at once, so that a step takes a few latencies: of more, merging reads less (guess).
const RANKED_COUNT_MAX: usize = 1 << 16;
/// More elements are had by sorting whole rows.
const SELECT_K_MAX: usize = 256;
/// Rows shorter than this aren't cut when few elements are selected.
const SEGMENT_MIN: usize = 8192;

/// How elements become words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    wide: bool,
    /// Elements are keys as they are.
    plain: bool,
    descending: bool,
}

impl Words {
    fn of(dtype: DType, descending: bool) -> Words {
        Words { wide: matches!(dtype, DType::F64 | DType::I64), plain: false, descending }
    }
    /// Of indices below `size`, which are not negative.
    pub fn of_index(size: usize) -> Words {
        Words { wide: size > u32::MAX as usize, plain: true, descending: false }
    }
    /// Of a word.
    pub fn size_bytes(self) -> usize {
        if self.wide { 16 } else { 8 }
    }
    /// A text that works with such words.
    pub fn text(self, unit: Unit) -> Text {
        Text::new(unit, true)
            .flag(Name::WIDE_KEY, self.wide)
            .flag(Name::PLAIN, self.plain)
            .flag(Name::DESCENDING, self.descending)
    }
}

fn push(args: &mut Args, values: &[usize]) {
    values.iter().for_each(|&value| _ = args.push((value as u64).to_ne_bytes()));
}

/// The words of rows, sorted: [row_count, count].
pub fn sorted_words(
    builder: &mut Builder,
    input: &Rows,
    row_count: usize,
    count: usize,
    words: Words,
) -> Place {
    let size_bytes = row_count * count * words.size_bytes();
    let mut from = builder.scratch(size_bytes);
    let largest = if words.wide { 1024 } else { 2048 };
    let whole = count.next_power_of_two().clamp(64, largest);
    // Where few blocks have work, chunks are short: a network of 2048 words takes four times as long as one of 512.
    let is_few = count > CHUNK_ALONE && row_count * count <= RANKED_COUNT_MAX;
    let chunk =
        if is_few { (count.next_power_of_two() / RANKED_RUN_COUNT_MAX).clamp(256, whole) } else { whole };
    let chunk_count = count.div_ceil(chunk);
    let text = words.text(Unit::SortChunks).element(Name::ELEMENT, input.dtype).number(Name::CHUNK, chunk);
    let mut args = Args::default();
    input.push_to(&mut args);
    args.place(from);
    push(&mut args, &[row_count, count, chunk_count]);
    builder.launch(text, row_count * chunk_count, (chunk / 2).min(512) as u32, args);
    if chunk_count == 1 {
        return from;
    }
    let mut to = builder.scratch(size_bytes);
    if chunk_count <= RANKED_RUN_COUNT_MAX && row_count * count <= RANKED_COUNT_MAX {
        let mut args = Args::default();
        args.place(from).place(to);
        push(&mut args, &[row_count, count, chunk]);
        let runs = chunk_count.next_power_of_two().max(8);
        let text = words.text(Unit::SortRank).number(Name::RUNS, runs);
        builder.launch(text, (row_count * count).div_ceil(RANKED_WORDS), 32 * runs as u32, args);
        return to;
    }
    let mut run = chunk;
    while run < count {
        let mut args = Args::default();
        args.place(from).place(to);
        push(&mut args, &[row_count, count, run]);
        let blocks = row_count * count.div_ceil(2 * run) * (2 * run).div_ceil(MERGE_TILE);
        builder.launch(words.text(Unit::SortMerge), blocks, 256, args);
        std::mem::swap(&mut from, &mut to);
        run *= 2;
    }
    from
}

/// Operands of both kernels: rows of values, indices and input, and what is staged.
struct Sorted {
    outs: [Array; 2],
    staged: [Option<Array>; 2],
    values: Rows,
    indices: Rows,
    input: Rows,
    row_count: usize,
    count: usize,
}

impl Sorted {
    /// None if there is nothing to do.
    fn new(builder: &mut Builder, axis: usize, operands: &[Operand]) -> Option<Sorted> {
        let array = |index: usize| Array::from(operands[index].view()).with_last(axis);
        let (outs, input) = ([array(0), array(1)], array(2));
        if outs[0].shape.contains(&0) {
            return None;
        }
        let count = input.shape[input.shape.len() - 1];
        let row_count = input.count() / count;
        let input = rows::input(builder, &input, 1);
        let (values, staged_values) = rows::output(builder, &outs[0], 1);
        let (indices, staged_indices) = rows::output(builder, &outs[1], 1);
        let staged = [staged_values, staged_indices];
        Some(Sorted { outs, staged, values, indices, input, row_count, count })
    }

    fn by_sorting(&self, builder: &mut Builder, k: usize, words: Words) {
        let sorted = sorted_words(builder, &self.input, self.row_count, self.count, words);
        let text = words.text(Unit::SortFinish).element(Name::ELEMENT, self.input.dtype);
        let mut args = Args::default();
        args.place(sorted);
        push(&mut args, &[self.count]);
        [self.input, self.values, self.indices].iter().for_each(|rows| rows.push_to(&mut args));
        push(&mut args, &[self.row_count, k]);
        builder.launch(text, (self.row_count * k).div_ceil(256), 256, args);
    }

    fn by_selecting(&self, builder: &mut Builder, k: usize, words: Words) {
        let room = if words.wide { 2048 } else { 4096 };
        let mut count = self.count;
        let mut from = None;
        loop {
            let threads =
                [128, 256].into_iter().find(|&threads| count <= 16 * threads && k <= threads).unwrap_or(512);
            // The shares of k threads have room.
            let most = threads * (room / k);
            let segment = match self.row_count {
                rows if rows < 128 && count > 2 * SEGMENT_MIN => SEGMENT_MIN.max(16 * k).min(most),
                _ => most,
            };
            let segment = if count <= segment { count } else { segment };
            let segments = count.div_ceil(segment);
            let last = segments == 1;
            let to = if last {
                Place::At(0)
            } else {
                builder.scratch(self.row_count * segments * k * words.size_bytes())
            };
            let text = words
                .text(Unit::TopK)
                .element(Name::ELEMENT, self.input.dtype)
                .flag(Name::WORDS, from.is_some())
                .flag(Name::LAST, last)
                .number(Name::THREADS, threads)
                .number(Name::ROOM, room);
            let mut args = Args::default();
            self.input.push_to(&mut args);
            args.place(from.unwrap_or(Place::At(0))).place(to);
            [self.values, self.indices].iter().for_each(|rows| rows.push_to(&mut args));
            push(&mut args, &[self.row_count, count, segment, segments, k]);
            builder.launch(text, self.row_count * segments, threads as u32, args);
            if last {
                return;
            }
            (from, count) = (Some(to), segments * k);
        }
    }

    fn finish(self, builder: &mut Builder) {
        for (out, staged) in self.outs.iter().zip(self.staged) {
            rows::finish(builder, out, staged);
        }
    }
}

/// Plans `Kernel::Sort`.
pub fn sort(builder: &mut Builder, axis: usize, descending: bool, operands: &[Operand]) {
    let Some(sorted) = Sorted::new(builder, axis, operands) else { return };
    sorted.by_sorting(builder, sorted.count, Words::of(sorted.input.dtype, descending));
    sorted.finish(builder);
}

/// Plans `Kernel::TopK`.
pub fn topk(builder: &mut Builder, axis: usize, k: usize, largest: bool, operands: &[Operand]) {
    let Some(sorted) = Sorted::new(builder, axis, operands) else { return };
    let words = Words::of(sorted.input.dtype, largest);
    if k <= SELECT_K_MAX {
        sorted.by_selecting(builder, k, words);
    } else {
        sorted.by_sorting(builder, k, words);
    }
    sorted.finish(builder);
}
