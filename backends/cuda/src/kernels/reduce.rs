//! Reductions over any axes, and the place of the extreme element.
//!
//! Lanes lie along what is reduced where the input steps least there, along the kept axis in which it does otherwise.
//! Where there are few outputs what is reduced is cut into pieces, whose results a second stage combines. How many pieces
//! depends on shape and strides only.

use super::build::Builder;
use super::geometry::{Array, Grid, Order, is_aligned, push_index};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::{DType, Dims};
use raddle_hal::Operand;
use raddle_op::ReduceOp;

/// Threads of a block.
const BLOCK: usize = 256;
/// Threads that keep an H100 busy: 132 multiprocessors of 2048. A constant, whatever the card is: it decides on bits.
const THREAD_COUNT: usize = 1 << 18;
/// Steps that a thread makes at least before a reduction is cut into pieces.
const STEP_COUNT_MIN: usize = 8;

/// What is done to each element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Map {
    Nothing = 0,
    Square = 1,
    Deviation = 2,
    Truth = 3,
    Distance = 4,
}

/// A stage, apart from its operands.
#[derive(Clone, Copy)]
struct Stage {
    map: Map,
    fold: usize,
    root: bool,
    divisor: f64,
    /// Is the result added to the mean that it is a mean of distances to?
    settle: bool,
    /// 0, or with positions: 1 for the largest, 2 for the smallest.
    arg: usize,
    acc: DType,
}

/// Plans `Kernel::ArgReduce`.
pub fn arg_reduce(builder: &mut Builder, largest: bool, axis: usize, operands: &[Operand]) {
    let [values, indices, input] = [0, 1, 2].map(|index| Array::from(operands[index].view()));
    let stage = Stage {
        map: Map::Nothing,
        fold: 0,
        root: false,
        divisor: 1.0,
        settle: false,
        arg: if largest { 1 } else { 2 },
        acc: accumulator(input.dtype),
    };
    run(builder, stage, 1 << axis, &values, Some(&indices), &input);
}

/// The dtype that elements are combined in.
fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        dtype if dtype.is_float() => DType::F32,
        _ => DType::I64,
    }
}

/// Plans `Kernel::Reduce`, a reduction of arrays; the output has size 1 in each reduced axis.
pub fn reduce(builder: &mut Builder, op: ReduceOp, axes: u8, divisor: f64, out: &Array, input: &Array) {
    let acc = accumulator(input.dtype);
    let stage = |map, fold| Stage { map, fold, root: false, divisor, settle: false, arg: 0, acc };
    let stage = match op {
        ReduceOp::Sum => stage(Map::Nothing, 0),
        // Of f64 a second time around the first result, which is rounded.
        ReduceOp::Mean if input.dtype == DType::F64 => Stage { settle: true, ..stage(Map::Distance, 0) },
        ReduceOp::Mean => Stage { acc: DType::F64, ..stage(Map::Nothing, 0) },
        ReduceOp::Prod => stage(Map::Nothing, 1),
        ReduceOp::Max => stage(Map::Nothing, 2),
        ReduceOp::Min => stage(Map::Nothing, 3),
        ReduceOp::Any => Stage { acc: DType::I32, ..stage(Map::Truth, 2) },
        ReduceOp::All => Stage { acc: DType::I32, ..stage(Map::Truth, 3) },
        // In f64: see the CPU's.
        ReduceOp::SquaredDeviations => Stage { acc: DType::F64, ..stage(Map::Deviation, 0) },
        ReduceOp::Deviation => Stage { root: true, acc: DType::F64, ..stage(Map::Deviation, 0) },
        ReduceOp::Norm2 => Stage { root: true, acc: DType::F64, ..stage(Map::Square, 0) },
    };
    run(builder, stage, axes, out, None, input);
}

/// Strides without holes in the order of a grid's positions, times a factor.
fn dense(sizes: &Dims, factor: usize) -> Dims {
    let mut next = factor;
    sizes
        .iter()
        .map(|size| {
            let stride = next;
            next *= size;
            stride
        })
        .collect()
}

fn run(builder: &mut Builder, stage: Stage, axes: u8, out: &Array, places: Option<&Array>, input: &Array) {
    if out.shape.contains(&0) {
        return;
    }
    let is_reduced = |axis: usize| axes >> axis & 1 == 1;
    let part = |array: &Array, reduced: bool| -> (Dims, Dims) {
        let chosen = || (0..input.shape.len()).filter(move |&axis| is_reduced(axis) == reduced);
        (chosen().map(|axis| input.shape[axis]).collect(), chosen().map(|axis| array.strides[axis]).collect())
    };
    let (shape, of_input) = part(input, false);
    let (of_out, of_places) = (part(out, false).1, part(places.unwrap_or(out), false).1);
    let kept = Grid::new(&shape, &[&of_input, &of_out, &of_places], Order::Memory);
    let (shape, of_input) = part(input, true);
    let reduced = Grid::new(&shape, &[&of_input], Order::Memory);
    let mut in_means = kept.clone();
    in_means.strides[1] = dense(&kept.sizes, 1);
    let divisor = reduced.count().max(1) as f64;
    let mean = Stage { map: Map::Nothing, root: false, divisor, settle: false, ..stage };
    let mut mean_of = |stage: Stage, means: Option<Place>| {
        let out = builder.scratch_array(stage.acc, Dims::filled(kept.count(), 1));
        let pass = Pass { stage, pairs: false, input, out: &out, places: None, means };
        pass.run(builder, &in_means, &reduced);
        out.place
    };
    let mut means = matches!(stage.map, Map::Deviation | Map::Distance).then(|| mean_of(mean, None));
    if stage.map == Map::Deviation && input.dtype == DType::F64 {
        means = Some(mean_of(Stage { map: Map::Distance, settle: true, ..mean }, means));
    }
    let pass = Pass { stage, pairs: false, input, out, places: places.map(|places| places.place), means };
    pass.run(builder, &kept, &reduced);
}

/// One pass over an input, in one stage or two.
struct Pass<'a> {
    stage: Stage,
    /// Are the input's elements pairs of value and position?
    pairs: bool,
    input: &'a Array,
    out: &'a Array,
    places: Option<Place>,
    means: Option<Place>,
}

impl Pass<'_> {
    /// Can `vector` neighbours along the first axis of `along` be taken at once?
    fn vector(&self, along: &Grid, other: &Grid) -> usize {
        let mut vector = if self.pairs { 1 } else { 16 / self.input.dtype.size_bytes() };
        let size = self.input.dtype.size_bytes();
        let allows = |vector: usize| {
            along.strides[0][0] == 1
                && along.sizes[0].is_multiple_of(vector)
                && is_aligned(self.input.place, vector * size)
                && (along.strides[0][1..].iter().chain(other.strides[0].iter()))
                    .all(|stride| stride.is_multiple_of(vector))
        };
        while vector > 1 && !allows(vector) {
            vector /= 2;
        }
        vector
    }

    fn run(&self, builder: &mut Builder, kept: &Grid, reduced: &Grid) {
        let step = |grid: &Grid| {
            let steps = grid.strides[0].iter().zip(grid.sizes.iter());
            steps.filter(|(stride, size)| **stride > 0 && **size > 1).map(|(stride, _)| *stride).min()
        };
        // Few outputs side by side would leave most lanes of a line idle.
        let across = kept.sizes[0] >= 8
            && kept.strides[0][0] != 0
            && step(reduced).is_none_or(|step| kept.strides[0][0] < step);
        let (vector, lanes, blocks, most) = if across {
            let vector = self.vector(kept, reduced).min(4);
            let units = kept.count() / vector;
            let lanes = match reduced.count() {
                count if count < 8 => BLOCK / count.max(1).next_power_of_two(),
                _ => units.next_power_of_two().clamp(8, 32),
            };
            let blocks = units.div_ceil(lanes);
            (vector, lanes, blocks, reduced.count() / (BLOCK / lanes * STEP_COUNT_MIN))
        } else {
            let vector = self.vector(reduced, kept);
            let steps = reduced.count() / vector;
            let lanes = steps.div_ceil(4).next_power_of_two().clamp(1, BLOCK);
            (vector, lanes, (kept.count() * lanes).div_ceil(BLOCK), steps / (lanes * STEP_COUNT_MIN))
        };
        let wanted = (THREAD_COUNT / BLOCK).div_ceil(blocks);
        let count = if across { reduced.count() } else { reduced.count() / vector };
        let pieces = wanted.min(most).max(1);
        let piece = count.div_ceil(pieces).max(1);
        let pieces = count.div_ceil(piece).max(1);

        let (mut units, mut steps) = (kept.clone(), reduced.clone());
        let vectored = if across { &mut units } else { &mut steps };
        vectored.sizes[0] /= vector;
        vectored.strides[0][0] *= vector;
        if across {
            // The outputs of a unit are put one by one: their own step is kept, the unit's is that times V.
            units.strides[1][0] *= vector;
            units.strides[2][0] *= vector;
        }
        let wide = kept.is_wide() || reduced.is_wide() || kept.count() * pieces >= 1 << 31;
        let partial = pieces > 1;
        let result_size = if self.stage.arg == 0 { self.stage.acc.size_bytes() } else { 16 };
        let to = if partial { builder.scratch(kept.count() * pieces * result_size) } else { self.out.place };

        let text = Text::new(Unit::Reduce, wide)
            .element(Name::IN, self.input.dtype)
            .element(Name::ACC, self.stage.acc)
            .element(Name::OUT, self.out.dtype)
            .number(Name::MAP, self.stage.map as usize)
            .number(Name::FOLD, self.stage.fold)
            .flag(Name::ROOT, self.stage.root && !partial)
            .flag(Name::DIVIDE, self.stage.divisor != 1.0 && !partial)
            .flag(Name::SETTLE, self.stage.settle && !partial)
            .number(Name::ARG, self.stage.arg)
            .flag(Name::PAIRS, self.pairs)
            .flag(Name::ACROSS, across)
            .number(Name::V, vector)
            .number(Name::LANES, lanes)
            .number(Name::KEPT, units.rank())
            .number(Name::REDUCED, steps.rank())
            .flag(Name::PARTIAL, partial);
        let none = Place::At(0);
        let mut args = Args::default();
        args.place(self.input.place)
            .place(to)
            .place(self.places.unwrap_or(none))
            .place(self.means.unwrap_or(none));
        args.push(self.stage.divisor.to_ne_bytes());
        units.push_to(&mut args, wide);
        steps.push_to(&mut args, wide);
        for value in [units.count(), count, pieces, piece, kept.count()] {
            push_index(&mut args, value, wide);
        }
        builder.launch(text, blocks_of(across, &units, lanes, pieces), BLOCK as u32, args);
        if !partial {
            return;
        }

        // The second stage: across, the pieces are rows of outputs, otherwise each output's lie side by side.
        let dtype = self.stage.acc;
        let partials = Array::contiguous(to, dtype, Dims::filled(kept.count() * pieces, 1));
        let (kept_factor, step) = if across { (1, kept.count()) } else { (pieces, 1) };
        let mut outputs = kept.clone();
        outputs.strides[0] = dense(&kept.sizes, kept_factor);
        let mut rest = Grid::new(&Dims::EMPTY, &[&Dims::EMPTY], Order::Memory);
        rest.sizes[0] = pieces;
        rest.strides[0][0] = step;
        let map = Map::Nothing;
        let pass = Pass {
            stage: Stage { map, ..self.stage },
            pairs: self.stage.arg != 0,
            input: &partials,
            ..*self
        };
        pass.run(builder, &outputs, &rest);
    }
}

fn blocks_of(across: bool, units: &Grid, lanes: usize, pieces: usize) -> usize {
    match across {
        true => units.count().div_ceil(lanes) * pieces,
        false => (units.count() * pieces).div_ceil(BLOCK / lanes),
    }
}
