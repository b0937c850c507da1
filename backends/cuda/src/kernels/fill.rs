//! Counters and triangles: outputs made from the position of an element. Positions are operands that aren't there: their
//! steps along each axis say what the position is, and keep axes apart that must not be merged.

use super::build::Builder;
use super::geometry::{Array, Grid, Order, push_index};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::{Dims, Layout, Scalar};
use raddle_hal::View;

/// Elements of a block.
const BLOCK_COUNT: usize = 256 * 4;

fn launch(builder: &mut Builder, kind: usize, out: &Array, input: Place, first: [[u8; 8]; 2], grid: &Grid) {
    let wide = grid.is_wide();
    let dtype = match kind {
        0 | 1 => out.dtype,
        // Triangles move bytes.
        _ => super::pointwise::moved_dtype(out.dtype.size_bytes() as u8),
    };
    let text = Text::new(Unit::Fill, wide)
        .element(Name::ELEMENT, dtype)
        .number(Name::RANK, grid.rank())
        .number(Name::KIND, kind);
    let mut args = Args::default();
    args.place(out.place).place(input).push(first[0]).push(first[1]);
    grid.push_to(&mut args, wide);
    push_index(&mut args, grid.count(), wide);
    builder.launch(text, grid.count().div_ceil(BLOCK_COUNT), 256, args);
}

/// Plans `Kernel::Iota`.
pub fn iota(builder: &mut Builder, out: &View, start: Scalar, step: Scalar) {
    let out = Array::from(out);
    if out.shape.contains(&0) {
        return;
    }
    let position = *Layout::contiguous(out.shape).strides();
    let none = Dims::filled(0, out.shape.len());
    let grid = Grid::new(&out.shape, &[&out.strides, &position, &none, &none], Order::Memory);
    let (kind, first) = if out.dtype.is_float() {
        (0, [start.to_f64().to_ne_bytes(), step.to_f64().to_ne_bytes()])
    } else {
        (1, [start.to_i64().to_ne_bytes(), step.to_i64().to_ne_bytes()])
    };
    launch(builder, kind, &out, Place::At(0), first, &grid);
}

/// Plans `Kernel::Triangle`.
pub fn triangle(builder: &mut Builder, out: &View, input: &View, upper: bool, diagonal: i64) {
    let (out, input) = (Array::from(out), Array::from(input));
    if out.shape.contains(&0) {
        return;
    }
    let rank = out.shape.len();
    let along = |axis: usize| -> Dims { (0..rank).map(|other| usize::from(other == axis)).collect() };
    let strides = [&out.strides, &input.strides, &along(rank - 2), &along(rank - 1)];
    let grid = Grid::new(&out.shape, &strides, Order::Memory);
    let kind = if upper { 2 } else { 3 };
    launch(builder, kind, &out, input.place, [diagonal.to_ne_bytes(), [0; 8]], &grid);
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use raddle_base::DType;
    use raddle_hal::{Address, Kernel, Operand};

    #[test]
    fn axes_of_a_triangle_stay_apart() {
        let layout = Layout::contiguous(Dims::new(&[5, 4, 3]).unwrap());
        let view = View { address: Address { handle: 256, offset_bytes: 0 }, dtype: DType::F32, layout };
        let kernel = Kernel::Triangle { upper: true, diagonal: 0 };
        let plan = plan(&kernel, &[Operand::Out(view), Operand::In(view)]);
        let super::super::steps::Step::Kernel(step) = &plan.steps[0] else { panic!("one kernel") };
        assert!(step.key.source().contains("#define RANK 3"));
    }
}
