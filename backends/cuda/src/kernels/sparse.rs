//! The product of sparse rows of few entries and a matrix, and its derivative.
//!
//! Columns of the matrix are read without holes: where they lie, or transposed once a launch. Sums run in the order of the
//! entries, the derivative's as well: entries are sorted by column, never added by atomic operations.

use super::build::Builder;
use super::geometry::Array;
use super::index::check;
use super::rows::{self, Rows};
use super::sort::{Words, sorted_words};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::{DType, Dims};
use raddle_hal::Operand;

/// Columns and rows of the derivative that a block makes.
const COLUMNS: usize = 32;
const ROWS: usize = 64;

fn text(unit: Unit, dtype: DType) -> Text {
    Text::new(unit, true).element(Name::ELEMENT, dtype).element(Name::ACC, dtype.compute())
}

fn push(args: &mut Args, values: &[usize]) {
    values.iter().for_each(|&value| _ = args.push((value as u64).to_ne_bytes()));
}

/// The columns of a weight as rows.
fn columns(builder: &mut Builder, weight: &Array) -> Rows {
    rows::input(builder, &weight.permuted(&[1, 0]), 1)
}

/// How many neighbours all of these rows of `count` allow at once.
fn vector_of(count: usize, rows: &[Rows]) -> usize {
    let mut vector = 16 / rows[0].dtype.size_bytes();
    while vector > 1 && !(count.is_multiple_of(vector) && rows.iter().all(|rows| rows.is_aligned(vector))) {
        vector /= 2;
    }
    vector
}

/// Plans `Kernel::SparseMatMul`.
pub fn product(builder: &mut Builder, bias: bool, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view());
    let [out, values, index, weight] = [0, 1, 2, 3].map(array);
    let bias = bias.then(|| array(4));
    if !index.shape.contains(&0) {
        check(builder, &index, weight.shape[1]);
    }
    if out.shape.contains(&0) {
        return;
    }
    let [row_count, n] = [0, 1].map(|axis| out.shape[axis]);
    // A weight without columns has none to choose.
    let columns = if weight.shape.contains(&0) {
        Rows { place: Place::At(0), dtype: out.dtype, stride: 0 }
    } else {
        columns(builder, &weight)
    };
    let (to, staged) = rows::output(builder, &out, 1);
    let vector = vector_of(n, &[to, columns]);
    let text = text(Unit::Sparse, out.dtype).flag(Name::BIAS, bias.is_some()).number(Name::V, vector);
    let mut args = Args::default();
    to.push_to(&mut args);
    args.place(values.place).place(index.place).place(columns.place);
    args.place(bias.map_or(Place::At(0), |bias| bias.place)).error_record();
    for operand in [values, index, bias.unwrap_or(out)] {
        push(&mut args, &operand.strides);
    }
    push(&mut args, &[columns.stride, row_count, n, values.shape[1]]);
    builder.launch(text, row_count * n.div_ceil(128 * vector), 128, args);
    rows::finish(builder, &out, staged);
}

/// Plans `Kernel::SparseMatMulByValues`.
pub fn by_values(builder: &mut Builder, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view());
    let [dvalues, dy, index, weight] = [0, 1, 2, 3].map(array);
    let [batch, k] = [0, 1].map(|axis| dvalues.shape[axis]);
    let [n, h] = [0, 1].map(|axis| weight.shape[axis]);
    if batch * k == 0 {
        return;
    }
    check(builder, &index, h);
    if h == 0 {
        return;
    }
    if n == 0 {
        // Products of nothing.
        let zero = builder.scratch(16);
        builder.fill(zero, 16, 0);
        builder.copy(&dvalues, &Array { place: zero, strides: Dims::filled(0, 2), ..dvalues });
        return;
    }
    let columns = columns(builder, &weight);
    let dy = rows::input(builder, &dy, 1);
    let vector = vector_of(n, &[dy, columns]);
    let mut args = Args::default();
    args.place(dvalues.place);
    dy.push_to(&mut args);
    args.place(index.place).place(columns.place).error_record();
    push(&mut args, &dvalues.strides);
    push(&mut args, &index.strides);
    push(&mut args, &[columns.stride, batch, n, k]);
    let of_values = text(Unit::SparseValues, dvalues.dtype).number(Name::V, vector);
    builder.launch(of_values, batch, 256, args);
}

/// Plans `Kernel::SparseMatMulByWeight`.
pub fn by_weight(builder: &mut Builder, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view());
    let [dweight, dy, values, index] = [0, 1, 2, 3].map(array);
    let [batch, k] = [0, 1].map(|axis| values.shape[axis]);
    let [n, h] = [0, 1].map(|axis| dweight.shape[axis]);
    let entries = batch * k;
    if entries == 0 {
        return;
    }
    check(builder, &index, h);
    if n == 0 || h == 0 {
        return;
    }
    let dy = rows::input(builder, &dy, 1);
    let (index, values) = (builder.packed(&index), builder.packed(&values));
    let words = Words::of_index(h);
    let line = Rows { place: index.place, dtype: index.dtype, stride: entries };
    let sorted = sorted_words(builder, &line, 1, entries, words);
    let of_weight = words
        .text(Unit::SparseWeight)
        .element(Name::ELEMENT, dweight.dtype)
        .element(Name::ACC, dweight.dtype.compute());
    let mut args = Args::default();
    args.place(dweight.place);
    dy.push_to(&mut args);
    args.place(values.place).place(sorted).error_record();
    push(&mut args, &dweight.strides);
    push(&mut args, &[n, h, k, entries]);
    builder.launch(of_weight, h.div_ceil(COLUMNS) * n.div_ceil(ROWS), 256, args);
}
