//! Gather and scatter.
//!
//! A scatter checks all indices in a step of its own. Then either each line along the axis goes in index order on a thread
//! of its own, or, where that would leave the device idle, entries are sorted by destination and the first entry of each
//! destination does all of them: the order is the same. Where each line is overwritten with one value no order can show, and
//! all entries go side by side.

use super::build::Builder;
use super::geometry::{Array, Grid, Order, is_aligned, push_index};
use super::pointwise::moved_dtype;
use super::rows;
use super::sort::{Words, sorted_words};
use super::source::{Name, Text, Unit};
use super::steps::Args;
use raddle_base::{DType, Dims, Layout};
use raddle_hal::Operand;
use raddle_op::ScatterMode;

/// Lines along the axis up to which a thread does one serially, if there aren't many of them.
const SERIAL_COUNT_MAX: usize = 16;
/// Lines that keep the device busy.
const LINE_COUNT: usize = 1 << 16;
/// Lines so long are sorted in any case (guess).
const LINE_LENGTH_MAX: usize = 1024;

/// A step that checks all indices against the size of their axis.
pub fn check(builder: &mut Builder, index: &Array, size: usize) {
    let position = *Layout::contiguous(index.shape).strides();
    // Along expanded axes the first of each is enough: it has the least position.
    let distinct: Dims = index
        .shape
        .iter()
        .zip(index.strides.iter())
        .map(|(&size, &stride)| if stride == 0 { 1 } else { size })
        .collect();
    let grid = Grid::new(&distinct, &[&index.strides, &position], Order::Memory);
    let wide = grid.is_wide();
    let text =
        Text::new(Unit::CheckIndex, wide).element(Name::INDEX, index.dtype).number(Name::RANK, grid.rank());
    let mut args = Args::default();
    args.place(index.place).error_record().push((size as u64).to_ne_bytes());
    grid.push_to(&mut args, wide);
    push_index(&mut args, grid.count(), wide);
    builder.launch(text, grid.count().div_ceil(256 * 4), 256, args);
}

/// Plans `Kernel::Gather`.
pub fn gather(builder: &mut Builder, axis: usize, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view());
    let (out, source, index) = (array(0), array(1), array(2));
    if out.shape.contains(&0) {
        return;
    }
    let mut along = source.strides;
    along[axis] = 0;
    let position = *Layout::contiguous(index.shape).strides();
    let mut grid = Grid::new(&out.shape, &[&out.strides, &along, &index.strides, &position], Order::Memory);
    let axis_stride = source.strides[axis];
    let size_bytes = out.dtype.size_bytes();
    let step = |operand: usize| grid.strides[operand][0];
    // Neighbours that share an index are taken at once. (The position of the first is the one to tell.)
    let mut vector = if step(0) == 1 && step(1) == 1 && step(2) == 0 { 16 / size_bytes } else { 1 };
    let allows = |vector: usize| {
        grid.sizes[0].is_multiple_of(vector)
            && axis_stride.is_multiple_of(vector)
            && [(0, &out), (1, &source)].iter().all(|(operand, array)| {
                is_aligned(array.place, vector * size_bytes)
                    && grid.strides[*operand][1..].iter().all(|stride| stride.is_multiple_of(vector))
            })
    };
    while vector > 1 && !allows(vector) {
        vector /= 2;
    }
    let reach = axis_stride.saturating_mul(source.shape[axis]);
    let wide = grid.is_wide() || reach >= 1 << 31;
    grid.sizes[0] /= vector;
    grid.strides.iter_mut().for_each(|strides| strides[0] *= vector);
    let text = Text::new(Unit::Gather, wide)
        .element(Name::ELEMENT, moved_dtype(size_bytes as u8))
        .element(Name::INDEX, index.dtype)
        .number(Name::RANK, grid.rank())
        .number(Name::V, vector);
    let mut args = Args::default();
    args.place(out.place).place(source.place).place(index.place).error_record();
    args.push((source.shape[axis] as u64).to_ne_bytes()).push((axis_stride as u64).to_ne_bytes());
    grid.push_to(&mut args, wide);
    push_index(&mut args, grid.count(), wide);
    builder.launch(text, grid.count().div_ceil(256 * 2), 256, args);
}

/// Plans `Kernel::Scatter`.
pub fn scatter(builder: &mut Builder, axis: usize, mode: ScatterMode, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view());
    let (target, index, values) = (array(0), array(1), array(2));
    if index.shape.contains(&0) {
        return;
    }
    check(builder, &index, target.shape[axis]);
    let is_alike = mode == ScatterMode::Overwrite && values.strides[axis] == 0;
    let count = if is_alike { 1 } else { index.shape[axis] };
    let line_count = index.count() / count;
    // Sums of 16-bit floats are rounded once: a thread alone looks for what is alike, of few entries.
    let gathers = mode == ScatterMode::Add && target.dtype.compute() != target.dtype;
    let serial =
        count <= SERIAL_COUNT_MAX || line_count >= LINE_COUNT && count <= LINE_LENGTH_MAX && !gathers;
    let (element, acc) = match mode {
        ScatterMode::Overwrite => (moved_dtype(target.dtype.size_bytes() as u8), DType::F32),
        _ if target.dtype.is_float() => (target.dtype, target.dtype.compute()),
        _ => (target.dtype, DType::I64),
    };
    let settings = |text: Text| {
        text.element(Name::ELEMENT, element).element(Name::ACC, acc).number(Name::FOLD, mode as usize)
    };
    let steps = [&target, &index, &values].map(|array| array.strides[axis]);
    let (mut shape, mut strides) = (index.shape, [target.strides, index.strides, values.strides]);
    if is_alike {
        // Each entry is a line; where it goes only its index says.
        strides[0][axis] = 0;
    } else {
        shape.remove(axis);
        strides.iter_mut().for_each(|strides| _ = strides.remove(axis));
    }
    if serial {
        let lines = Grid::new(&shape, &[&strides[0], &strides[1], &strides[2]], Order::Memory);
        let wide = lines.is_wide();
        let text = settings(Text::new(Unit::Scatter, wide))
            .element(Name::INDEX, index.dtype)
            .number(Name::RANK, lines.rank());
        let mut args = Args::default();
        args.place(target.place).place(index.place).place(values.place).error_record();
        args.push((count as u64).to_ne_bytes());
        steps.iter().for_each(|&step| _ = args.push((step as u64).to_ne_bytes()));
        lines.push_to(&mut args, wide);
        push_index(&mut args, lines.count(), wide);
        builder.launch(text, lines.count().div_ceil(128), 128, args);
        return;
    }

    // Lines whose indices differ, and positions that share them.
    let part = |of: &Dims, shares: bool| -> Dims {
        let axes = (0..shape.len()).filter(|&other| (strides[1][other] == 0) == shares);
        axes.map(|other| of[other]).collect()
    };
    let own_shape = part(&shape, false);
    let mut lines_of_index = Array { shape: own_shape, strides: part(&strides[1], false), ..index };
    lines_of_index.shape.push(count);
    lines_of_index.strides.push(steps[1]);
    let own_count = own_shape.product();
    let lines_of_index = rows::input(builder, &lines_of_index, 1);
    let words = Words::of_index(target.shape[axis]);
    let sorted = sorted_words(builder, &lines_of_index, own_count, count, words);
    let grid = |shares: bool, order| {
        Grid::new(&part(&shape, shares), &[&part(&strides[0], shares), &part(&strides[2], shares)], order)
    };
    // The lines stand as they were sorted: row-major.
    let (lines, shared) = (grid(false, Order::RowMajor), grid(true, Order::Memory));
    let text = settings(words.text(Unit::ScatterSorted))
        .number(Name::RANK, lines.rank())
        .number(Name::SHARED, shared.rank());
    let mut args = Args::default();
    args.place(target.place).place(sorted).place(values.place).error_record();
    [count, steps[0], steps[2]].iter().for_each(|&value| _ = args.push((value as u64).to_ne_bytes()));
    lines.push_to(&mut args, true);
    shared.push_to(&mut args, true);
    push_index(&mut args, own_count, true);
    push_index(&mut args, shared.count(), true);
    builder.launch(text, (own_count * count * shared.count()).div_ceil(128), 128, args);
}
