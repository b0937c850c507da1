//! A representative set of kernels, to be compiled where there is no GPU: made by planning launches.

use super::steps::{Plan, Step};
use super::{Key, plan};
use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_hal::{Address, Kernel, Operand, View};
use raddle_op::{
    Activation, Distribution, PARAM_COUNT_MAX, Pointwise, Program, ProgramRef, ReduceOp, ScanOp, ScatterMode,
};
use std::collections::HashSet;
use std::sync::Arc;

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

const SCATTER_MODES: [ScatterMode; 5] =
    [ScatterMode::Overwrite, ScatterMode::Add, ScatterMode::Multiply, ScatterMode::Max, ScatterMode::Min];

/// Keys of launches, each once, with names that tell which launch it was.
#[derive(Default)]
struct Collection {
    seen: HashSet<Key>,
    named: Vec<(String, Key)>,
}

/// A view somewhere.
fn view(dtype: DType, shape: &[usize]) -> View {
    let layout = Layout::contiguous(Dims::new(shape).expect("few axes"));
    View { address: Address { handle: 1 << 32, offset_bytes: 0 }, dtype, layout }
}

fn strided(dtype: DType, shape: &[usize], strides: &[usize]) -> View {
    let dims = |values| Dims::new(values).expect("few axes");
    View { layout: Layout::new(dims(shape), dims(strides), 0), ..view(dtype, &[]) }
}

impl Collection {
    fn add(&mut self, name: &str, kernel: &Kernel, outputs: &[View], inputs: &[View]) -> Plan {
        let operands: Vec<Operand> = outputs
            .iter()
            .map(|view| Operand::Out(*view))
            .chain(inputs.iter().map(|view| Operand::In(*view)))
            .collect();
        let plan = plan(kernel, &operands);
        for (index, step) in plan.steps.iter().enumerate() {
            if let Step::Kernel(step) = step
                && self.seen.insert(step.key.clone())
            {
                self.named.push((format!("{name} {} {index}", kernel.name()), step.key.clone()));
            }
        }
        plan
    }

    fn program(
        &mut self,
        name: &str,
        program: ProgramRef,
        compute: DType,
        outputs: &[View],
        inputs: &[View],
    ) {
        let groups = (outputs.len() + inputs.len()) / (program.outputs().len() + program.input_count());
        let kernel =
            Kernel::Pointwise { program, compute, params: [Scalar::Int(1); PARAM_COUNT_MAX], groups };
        self.add(name, &kernel, outputs, inputs);
    }

    fn rows(&mut self) {
        for &op in Pointwise::ALL {
            for &compute in &[DType::F32, DType::F64, DType::I64, DType::I32, DType::U8, DType::Bool] {
                let program = op.program();
                if !op.takes(compute) || !program.takes(compute) {
                    continue;
                }
                let out = op.result_dtype(compute).expect("it takes the dtype");
                let inputs = vec![view(compute, &[1000]); program.input_count()];
                let name = format!("{} {compute}", op.name());
                self.program(&name, op.into(), compute, &[view(out, &[1000])], &inputs);
            }
        }
    }

    fn layouts(&mut self) {
        let shared: ProgramRef =
            ProgramRef::Shared(Arc::new(Program::record_many(|[x, y], [a]| [x * y + a, x - a])));
        for &dtype in DType::ALL {
            for &to in DType::ALL {
                let copy = ProgramRef::Shared(Arc::new(Program::record_many(|[x], []| [x])));
                self.program(
                    "cast",
                    copy.clone(),
                    dtype.compute(),
                    &[view(to, &[99])],
                    &[view(dtype, &[99])],
                );
            }
            if !dtype.is_float() {
                continue;
            }
            let compute = dtype.compute();
            let square = |strides: &[usize]| strided(dtype, &[64, 64], strides);
            for (name, first, second) in [
                ("flat", [64, 1], [64, 1]),
                ("scalar", [64, 1], [0, 0]),
                ("row", [64, 1], [0, 1]),
                ("column", [64, 1], [1, 0]),
                ("turned", [64, 1], [1, 64]),
                ("odd", [129, 2], [128, 2]),
                ("wide", [1 << 33, 1], [1, 1 << 33]),
                ("wide rows", [1 << 33, 1], [1 << 34, 1]),
            ] {
                let outputs = [square(&first), square(&first)];
                self.program(name, shared.clone(), compute, &outputs, &[square(&first), square(&second)]);
                self.program(name, shared.clone(), compute, &outputs, &[square(&second), square(&second)]);
                self.program(
                    name,
                    shared.clone(),
                    compute,
                    &[square(&first), square(&second)],
                    &[square(&first); 2],
                );
            }
            for groups in [2, 5, 20, 60] {
                let add = Pointwise::add.program();
                let kernel = Kernel::Pointwise {
                    program: ProgramRef::Static(add),
                    compute,
                    params: [Scalar::Int(0); PARAM_COUNT_MAX],
                    groups,
                };
                self.add(
                    "groups",
                    &kernel,
                    &vec![view(dtype, &[100]); groups * (1 + add.input_count())],
                    &[],
                );
            }
            let deep = strided(dtype, &[3, 5, 7, 9], &[1, 3, 1000, 15]);
            self.program("deep", shared.clone(), compute, &[view(dtype, &[3, 5, 7, 9]); 2], &[deep, deep]);
        }
        for (dtype, size) in [(DType::U8, 1), (DType::F16, 2), (DType::F32, 4), (DType::I64, 8)] {
            let copy = ProgramRef::Shared(Arc::new(Program::record_many(|[x], []| [x])));
            let turned = strided(dtype, &[100, 100], &[1, 100]);
            self.program(
                &format!("move {size}"),
                copy.clone(),
                dtype.compute(),
                &[view(dtype, &[100, 100])],
                &[turned],
            );
            let sliced = strided(dtype, &[100, 100], &[400, 2]);
            self.program(
                &format!("move {size}"),
                copy,
                dtype.compute(),
                &[view(dtype, &[100, 100])],
                &[sliced],
            );
        }
    }

    fn reductions(&mut self) {
        use ReduceOp::*;
        for &dtype in DType::ALL {
            for op in [Sum, Mean, Prod, Max, Min, All, Any, SquaredDeviations, Deviation, Norm2] {
                if matches!(op, Mean | SquaredDeviations | Deviation | Norm2) && !dtype.is_float() {
                    continue;
                }
                let out = match op {
                    All | Any => DType::Bool,
                    Sum | Prod if !dtype.is_float() => DType::I64,
                    _ => dtype,
                };
                let shapes: [(&[usize], u8); 6] = [
                    (&[1 << 13, 1 << 13], 0b11),
                    (&[1 << 13, 1 << 13], 0b01),
                    (&[1 << 14, 1 << 10], 0b10),
                    (&[100, 7, 33], 0b010),
                    (&[1 << 20, 3], 0b01),
                    (&[4, 5, 6, 7], 0b0101),
                ];
                for (shape, axes) in shapes {
                    let mut reduced = shape.to_vec();
                    (0..shape.len()).filter(|axis| axes >> axis & 1 == 1).for_each(|axis| reduced[axis] = 1);
                    let divisor = if dtype.is_float() { 3.0 } else { 1.0 };
                    let kernel = Kernel::Reduce { op, axes, divisor };
                    self.add(
                        &format!("{op:?} {dtype}"),
                        &kernel,
                        &[view(out, &reduced)],
                        &[view(dtype, shape)],
                    );
                }
            }
            for (shape, axis) in [([1000, 1000], 0), ([1000, 1000], 1), ([1 << 22, 1], 0), ([1 << 14, 16], 0)]
            {
                for largest in [false, true] {
                    let kernel = Kernel::ArgReduce { largest, axis };
                    let mut reduced = shape;
                    reduced[axis] = 1;
                    let outputs = [view(dtype, &reduced), view(DType::I64, &reduced)];
                    self.add(&format!("{dtype}"), &kernel, &outputs, &[view(dtype, &shape)]);
                }
            }
        }
    }

    fn products(&mut self) {
        for dtype in FLOATS {
            for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
                for (bias, accumulate) in [(false, false), (true, false), (false, true), (true, true)] {
                    for (m, n, turned) in [
                        (1, 64, true),
                        (8, 64, true),
                        (64, 64, true),
                        (64, 64, false),
                        (64, 1024, true),
                        (64, 1024, false),
                    ] {
                        let kernel = Kernel::MatMul { alpha: 1.0, beta: 0.5, bias, accumulate, activation };
                        let out = view(dtype, &[1, m, n]);
                        let strides = if turned { [0, 1, 32] } else { [0, n, 1] };
                        let mut inputs =
                            vec![view(dtype, &[1, m, 32]), strided(dtype, &[1, 32, n], &strides)];
                        inputs.extend(bias.then(|| strided(dtype, &[1, m, n], &[0, 0, 1])));
                        inputs.extend(accumulate.then_some(out));
                        self.add(&format!("{dtype}"), &kernel, &[out], &inputs);
                    }
                }
            }
        }
    }

    fn attention(&mut self) {
        for dtype in FLOATS {
            for (d, dv) in [(32, 32), (128, 112), (7, 3), (150, 140)] {
                // One text, many; and rows that don't start evenly.
                // What widths differ in doesn't depend on the rest.
                let shapes = [(1, 32, 32, 0), (64, 128, 128, 0), (1, 100, 100, 1)];
                let (shapes, masks) = if d == 32 { (&shapes[..], 3) } else { (&shapes[..1], 1) };
                for &(batch, n, m, slack) in shapes {
                    let side = |rows: usize, width: usize| {
                        let row = 12 * width + slack;
                        strided(dtype, &[batch, 12, rows, width], &[rows * row, width, row, 1])
                    };
                    let (out, query, key, value) = (side(n, dv), side(n, d), side(m, d), side(m, dv));
                    let choice = strided(DType::Bool, &[batch, 12, n, m], &[m, 0, 0, 1]);
                    let added = view(dtype, &[batch, 12, n, m]);
                    let kinds = [(Some(choice), false), (None, false), (Some(added), true)];
                    for (mask, causal) in kinds.into_iter().take(masks) {
                        let kernel = Kernel::Attention { scale: 0.5, causal, mask: mask.is_some() };
                        let mut inputs = vec![query, key, value];
                        inputs.extend(mask);
                        self.add(&format!("{dtype}"), &kernel, &[out], &inputs);
                    }
                }
            }
        }
    }

    fn structured(&mut self) {
        for dtype in FLOATS {
            let name = format!("{dtype}");
            let acc = dtype.compute();
            for count in [7, 100, 1024, 1537, 4096, 8192, 100_000] {
                let x = view(dtype, &[64, count]);
                for log in [false, true] {
                    self.add(&name, &Kernel::Softmax { axis: 1, log }, &[x], &[x]);
                    self.add(&name, &Kernel::SoftmaxBackward { axis: 1, log }, &[x], &[x, x]);
                }
                let (statistic, row) = (view(acc, &[64, 1]), view(dtype, &[count]));
                for (weight, bias) in [(true, true), (true, false), (false, true), (false, false)] {
                    let mut own = vec![];
                    own.extend(weight.then_some(row));
                    let weights = own.clone();
                    own.extend(bias.then_some(row));
                    for addend in [false, true] {
                        let kernel = Kernel::LayerNorm { axes: 1, eps: 1e-5, weight, bias, addend };
                        let mut inputs: Vec<View> = [x].into_iter().chain(own.iter().copied()).collect();
                        inputs.extend(addend.then_some(x));
                        self.add(&name, &kernel, &[x, statistic, statistic], &inputs);
                    }
                    let kernel = Kernel::LayerNormBackward { axes: 1, weight, bias };
                    let outputs: Vec<View> = [x].into_iter().chain(own).collect();
                    let inputs: Vec<View> = [x, x, statistic, statistic].into_iter().chain(weights).collect();
                    self.add(&name, &kernel, &outputs, &inputs);
                }
            }
            for bias in [false, true] {
                let (out, values, index) =
                    (view(dtype, &[64, 100]), view(dtype, &[64, 8]), view(DType::I64, &[64, 8]));
                let weight = view(dtype, &[100, 200]);
                let mut inputs = vec![values, index, weight];
                inputs.extend(bias.then(|| strided(dtype, &[64, 100], &[0, 1])));
                self.add(&name, &Kernel::SparseMatMul { bias }, &[out], &inputs);
                self.add(&name, &Kernel::SparseMatMulByValues, &[values], &[out, index, weight]);
                self.add(&name, &Kernel::SparseMatMulByWeight, &[weight], &[out, values, index]);
            }
            for distribution in [
                Distribution::Uniform { low: 0.0, high: 1.0 },
                Distribution::Uniform { low: -f64::MAX, high: f64::MAX },
                Distribution::Normal { mean: 0.0, std: 1.0 },
                Distribution::Exponential { rate: 1.0 },
                Distribution::Bernoulli { p: 0.5 },
            ] {
                let kernel = Kernel::Random { distribution, key: 1, counter: 0 };
                let out = view(dtype, &[100, 100]);
                self.add(&name, &kernel, &[out], &[]);
                self.add(&name, &kernel, &[view(dtype, &[1 << 22])], &[]);
                self.add(&name, &kernel, &[strided(dtype, &[100, 100], &[1, 100])], &[]);
                if let Distribution::Bernoulli { .. } = distribution {
                    self.add(&name, &kernel, &[out], &[view(dtype, &[100, 100])]);
                    self.add(&name, &kernel, &[view(DType::Bool, &[100, 100])], &[view(dtype, &[100, 100])]);
                }
            }
        }
        for &dtype in DType::ALL {
            let name = format!("{dtype}");
            let x = view(dtype, &[100, 100]);
            let turned = strided(dtype, &[100, 100], &[1, 100]);
            for high in [9, i64::MAX] {
                let distribution = Distribution::Integer { low: -3, high };
                self.add(&name, &Kernel::Random { distribution, key: 1, counter: 0 }, &[x], &[]);
            }
            let distribution = Distribution::Bernoulli { p: 0.5 };
            self.add(&name, &Kernel::Random { distribution, key: 1, counter: 0 }, &[x], &[]);
            for out in [x, turned] {
                self.add(&name, &Kernel::Iota { start: Scalar::Int(1), step: Scalar::Int(2) }, &[out], &[]);
                self.add(&name, &Kernel::Triangle { upper: true, diagonal: 0 }, &[out], &[x]);
                self.add(&name, &Kernel::Triangle { upper: false, diagonal: 1 }, &[out], &[x]);
                for op in [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min, ScanOp::LogSumExp] {
                    self.add(&name, &Kernel::Scan { op, axis: 1 }, &[out], &[out]);
                }
            }
            self.add(
                &name,
                &Kernel::Random { distribution, key: 1, counter: 0 },
                &[view(dtype, &[1 << 31])],
                &[],
            );
            let long = view(dtype, &[2, 1 << 20]);
            self.add(&name, &Kernel::Scan { op: ScanOp::Max, axis: 1 }, &[long], &[long]);
            self.add(&name, &Kernel::NonZero, &[view(DType::I64, &[50, 2])], &[x]);
            self.add(&name, &Kernel::NonZero, &[view(DType::I64, &[50, 2])], &[turned]);
            for descending in [false, true] {
                for count in [10, 1000, 5000, 1 << 16] {
                    let (x, at) = (view(dtype, &[8, count]), view(DType::I64, &[8, count]));
                    self.add(&name, &Kernel::Sort { axis: 1, descending }, &[x, at], &[x]);
                    for k in [1, 9, 50, 1000] {
                        if k <= count {
                            let (y, at) = (view(dtype, &[8, k]), view(DType::I64, &[8, k]));
                            self.add(
                                &name,
                                &Kernel::TopK { axis: 1, k, largest: descending },
                                &[y, at],
                                &[x],
                            );
                        }
                    }
                }
            }
            for index in [DType::I64, DType::I32] {
                let table = view(dtype, &[500, 64]);
                for at in [strided(index, &[90, 64], &[1, 0]), view(index, &[90, 64]), view(index, &[5, 64])]
                {
                    let rows = view(dtype, at.layout.shape());
                    self.add(&name, &Kernel::Gather { axis: 0, repeats: 1 }, &[rows], &[table, at]);
                    for mode in SCATTER_MODES {
                        self.add(
                            &name,
                            &Kernel::Scatter { axis: 0, mode, repeats: 1 },
                            &[table],
                            &[at, rows],
                        );
                    }
                }
                let at = strided(index, &[20_000, 64], &[1, 0]);
                for mode in SCATTER_MODES {
                    let rows = view(dtype, &[20_000, 64]);
                    self.add(&name, &Kernel::Scatter { axis: 0, mode, repeats: 1 }, &[table], &[at, rows]);
                }
            }
        }
    }
}

/// The kernels, each with a name.
pub fn catalogue() -> Vec<(String, Key)> {
    let mut collection = Collection::default();
    collection.rows();
    collection.layouts();
    collection.reductions();
    collection.products();
    collection.attention();
    collection.structured();
    collection.named
}
