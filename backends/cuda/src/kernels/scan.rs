//! Running sums of rows and their kin, and the places of what isn't zero, which need one.

use super::build::Builder;
use super::geometry::{Array, Grid, Order, push_divider, push_index};
use super::rows::{self, Rows};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::DType;
use raddle_hal::View;
use raddle_op::ScanOp;

/// Elements of a block.
const CHUNK: usize = 256 * 8;

/// One pass over the chunks of rows.
fn pass(
    builder: &mut Builder,
    from: &Rows,
    to: &Rows,
    starts: Option<Place>,
    sizes: [usize; 2],
    totals: bool,
    op: ScanOp,
) {
    let [row_count, count] = sizes;
    let acc = if from.dtype.is_float() { DType::F64 } else { DType::I64 };
    let chunks = count.div_ceil(CHUNK);
    let text = Text::new(Unit::Scan, true)
        .element(Name::IN, from.dtype)
        .element(Name::OUT, to.dtype)
        .element(Name::ACC, acc)
        .flag(Name::TOTALS, totals)
        .flag(Name::STARTS, starts.is_some())
        .number(Name::FOLD, op as usize);
    let mut args = Args::default();
    from.push_to(&mut args);
    to.push_to(&mut args);
    args.place(starts.unwrap_or(Place::At(0)));
    [row_count, count, chunks].iter().for_each(|&value| _ = args.push((value as u64).to_ne_bytes()));
    builder.launch(text, row_count * chunks, 256, args);
}

/// Rows folded up to each element, floats in `f64`: a running sum has no tree to keep its error small.
fn running(builder: &mut Builder, op: ScanOp, from: &Rows, to: &Rows, [row_count, count]: [usize; 2]) {
    let chunks = count.div_ceil(CHUNK);
    if chunks == 1 {
        return pass(builder, from, to, None, [row_count, count], false, op);
    }
    let dtype = if from.dtype.is_float() { DType::F64 } else { DType::I64 };
    let totals = |builder: &mut Builder| Rows {
        place: builder.scratch(row_count * chunks * dtype.size_bytes()),
        dtype,
        stride: chunks,
    };
    let (sums, starts) = (totals(builder), totals(builder));
    pass(builder, from, &sums, None, [row_count, count], true, op);
    running(builder, op, &sums, &starts, [row_count, chunks]);
    pass(builder, from, to, Some(starts.place), [row_count, count], false, op);
}

/// Plans `Kernel::Scan`.
pub fn scan(builder: &mut Builder, op: ScanOp, axis: usize, out: &View, input: &View) {
    let [out, input] = [out, input].map(|view| Array::from(view).with_last(axis));
    if out.shape.contains(&0) {
        return;
    }
    let count = out.shape[out.shape.len() - 1];
    let row_count = out.count() / count;
    let from = rows::input(builder, &input, 1);
    let (to, staged) = rows::output(builder, &out, 1);
    running(builder, op, &from, &to, [row_count, count]);
    rows::finish(builder, &out, staged);
}

/// Plans `Kernel::NonZero`.
pub fn non_zero(builder: &mut Builder, out: &View, input: &View) {
    let (out, input) = (Array::from(out), Array::from(input));
    if out.shape.contains(&0) {
        return;
    }
    let grid = Grid::new(&input.shape, &[&input.strides], Order::RowMajor);
    let wide = grid.is_wide();
    let chunks = grid.count().div_ceil(CHUNK);
    let rows = |builder: &mut Builder| Rows {
        place: builder.scratch(chunks * 8),
        dtype: DType::I64,
        stride: chunks,
    };
    let (counts, sums) = (rows(builder), rows(builder));
    let pass = |builder: &mut Builder, counting: bool, counts: &Rows| {
        let text = Text::new(Unit::NonZero, wide)
            .element(Name::ELEMENT, input.dtype)
            .flag(Name::COUNTS, counting)
            .number(Name::RANK, grid.rank())
            .number(Name::AXES, input.shape.len());
        let mut args = Args::default();
        args.place(input.place).place(counts.place).place(out.place);
        out.strides.iter().for_each(|&stride| _ = args.push((stride as u64).to_ne_bytes()));
        grid.push_to(&mut args, wide);
        push_index(&mut args, grid.count(), wide);
        input.shape.iter().rev().for_each(|&size| push_divider(&mut args, size, wide));
        builder.launch(text, chunks, 256, args);
    };
    pass(builder, true, &counts);
    running(builder, ScanOp::Sum, &counts, &sums, [1, chunks]);
    pass(builder, false, &sums);
}
