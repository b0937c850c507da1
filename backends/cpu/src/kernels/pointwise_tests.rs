//! The engine against a scalar interpreter: random programs, dtypes, layouts and aliases, at every level.

use super::*;
use crate::kernels::fused::{LEAVES_MAX, SHAPES, Tree};
use crate::kernels::level::Level;
use crate::kernels::math;
use crate::kernels::testing::{Rng, Tensor, normalized, same};
use raddle_base::{Dims, Layout};
use raddle_op::{Binary, Compare, Inst, Logic, Unary, expr::Recorder};

/// One element, from the definitions in `raddle_op::program`.
fn interpret(program: &Program, compute: DType, inputs: &[Scalar], params: &[Scalar]) -> Vec<Scalar> {
    let mut values: Vec<Scalar> = Vec::new();
    for inst in program.insts() {
        let at = |id: Id| values[id.0 as usize];
        let float = compute.is_float();
        let value = match *inst {
            Inst::Input(index) => inputs[index as usize],
            Inst::Param(index) => params[index as usize],
            Inst::Literal(bits) => Scalar::Float(f64::from_bits(bits)),
            Inst::Unary(op, a) => match (op, at(a)) {
                (Unary::Neg, Scalar::Float(a)) => Scalar::Float(-a),
                (Unary::Neg, a) if compute == DType::Bool => a,
                (Unary::Neg, a) => Scalar::Int(a.to_i64().wrapping_neg()),
                (Unary::Abs, Scalar::Float(a)) => Scalar::Float(a.abs()),
                (Unary::Abs, a) => Scalar::Int(a.to_i64().wrapping_abs()),
                (Unary::Floor, Scalar::Float(a)) => Scalar::Float(a.floor()),
                (Unary::Round, Scalar::Float(a)) => Scalar::Float(a.round_ties_even()),
                (Unary::Floor | Unary::Round, a) => a,
                (Unary::BitNot, a) if compute == DType::Bool => Scalar::Bool(!a.to_bool()),
                (Unary::BitNot, a) => Scalar::Int(!a.to_i64()),
                (Unary::Sqrt, Scalar::Float(a)) => Scalar::Float(a.sqrt()),
                (Unary::Exp, Scalar::Float(a)) if compute == DType::F32 => {
                    Scalar::Float(math::f32::exp(a as f32).into())
                }
                (op, _) => unreachable!("{op:?} is not drawn"),
            },
            Inst::Binary(op, a, b) if float => {
                let (a, b) = (at(a).to_f64(), at(b).to_f64());
                // Of f32: an operation in f64, rounded once more, is right for these (Figueroa, 1995).
                Scalar::Float(match op {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::Div => a / b,
                    Binary::Min => {
                        if a.is_nan() || b.is_nan() {
                            f64::NAN
                        } else if b < a || (b == a && b.is_sign_negative()) {
                            b
                        } else {
                            a
                        }
                    }
                    Binary::Max => {
                        if a.is_nan() || b.is_nan() {
                            f64::NAN
                        } else if b > a || (b == a && b.is_sign_positive()) {
                            b
                        } else {
                            a
                        }
                    }
                    Binary::Rem => a % b,
                    op => unreachable!("{op:?} is not drawn"),
                })
            }
            Inst::Binary(op, a, b) => {
                let (a, b) = (at(a).to_i64(), at(b).to_i64());
                let bits = compute.size_bytes() as i64 * 8;
                let is_bool = compute == DType::Bool;
                Scalar::Int(match op {
                    Binary::Add if is_bool => a | b,
                    Binary::Sub if is_bool => a ^ b,
                    Binary::Add => a.wrapping_add(b),
                    Binary::Sub => a.wrapping_sub(b),
                    Binary::Mul => a.wrapping_mul(b),
                    Binary::Div => {
                        if b == 0 {
                            0
                        } else {
                            a.wrapping_div(b)
                        }
                    }
                    Binary::Rem => {
                        if b == 0 {
                            0
                        } else {
                            a.wrapping_rem(b)
                        }
                    }
                    Binary::Min => a.min(b),
                    Binary::Max => a.max(b),
                    Binary::BitAnd => a & b,
                    Binary::BitOr => a | b,
                    Binary::BitXor => a ^ b,
                    Binary::Shl if b < 0 || b >= bits => 0,
                    Binary::Shl => a << b,
                    Binary::Shr if b < 0 || b >= bits => a >> 63,
                    Binary::Shr => a >> b,
                    op => unreachable!("{op:?} is not drawn"),
                })
            }
            Inst::Compare(op, a, b) => {
                let ordering = match (at(a), at(b)) {
                    (Scalar::Float(a), Scalar::Float(b)) => a.partial_cmp(&b),
                    (a, b) => Some(a.to_i64().cmp(&b.to_i64())),
                };
                Scalar::Bool(match op {
                    Compare::Eq => ordering.is_some_and(|o| o.is_eq()),
                    Compare::Ne => ordering.is_none_or(|o| o.is_ne()),
                    Compare::Lt => ordering.is_some_and(|o| o.is_lt()),
                    Compare::Le => ordering.is_some_and(|o| o.is_le()),
                })
            }
            Inst::Logic(op, a, b) => {
                let (a, b) = (at(a).to_bool(), at(b).to_bool());
                Scalar::Bool(match op {
                    Logic::And => a && b,
                    Logic::Or => a || b,
                    Logic::Xor => a != b,
                })
            }
            Inst::Not(a) => Scalar::Bool(!at(a).to_bool()),
            Inst::Select(mask, yes, no) => {
                if at(mask).to_bool() {
                    at(yes)
                } else {
                    at(no)
                }
            }
            Inst::FromMask(a) => at(a),
        };
        values.push(if inst.is_mask() { value } else { normalized(value, compute) });
    }
    program.outputs().iter().map(|id| values[id.0 as usize]).collect()
}

/// A program of exact operations (and `exp` of f32).
fn random_program(rng: &mut Rng, compute: DType, inputs: usize, params: usize) -> Program {
    let recorder = Recorder::default();
    let (mut numbers, mut masks) = (Vec::new(), Vec::new());
    numbers.extend((0..inputs).map(|index| recorder.push(Inst::Input(index as u8))));
    numbers.extend((0..params).map(|index| recorder.push(Inst::Param(index as u8))));
    numbers.push(recorder.push(Inst::Literal(rng.pick(&[0.0f64, 1.0, 2.5, -3.0]).to_bits())));
    use Binary::*;
    let float_binary = [Add, Sub, Mul, Div, Min, Max, Rem];
    let int_binary = [Add, Sub, Mul, Div, Rem, Min, Max, BitAnd, BitOr, BitXor];
    let shifts = [Shl, Shr];
    for _ in 0..rng.below(14) {
        let (a, b) = (rng.pick(&numbers), rng.pick(&numbers));
        match rng.below(8) {
            0 => {
                let op = match compute {
                    DType::F32 => rng.pick(&[
                        Unary::Neg,
                        Unary::Abs,
                        Unary::Floor,
                        Unary::Round,
                        Unary::Sqrt,
                        Unary::Exp,
                    ]),
                    DType::F64 => {
                        rng.pick(&[Unary::Neg, Unary::Abs, Unary::Floor, Unary::Round, Unary::Sqrt])
                    }
                    _ => rng.pick(&[Unary::Neg, Unary::Abs, Unary::Floor, Unary::BitNot]),
                };
                numbers.push(recorder.push(Inst::Unary(op, a)));
            }
            1..=3 => {
                let op = if compute.is_float() {
                    rng.pick(&float_binary)
                } else if compute != DType::Bool && rng.chance(15) {
                    rng.pick(&shifts)
                } else {
                    rng.pick(&int_binary)
                };
                numbers.push(recorder.push(Inst::Binary(op, a, b)));
            }
            4 => {
                let op = rng.pick(&[Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le]);
                masks.push(recorder.push(Inst::Compare(op, a, b)));
            }
            5 if !masks.is_empty() => {
                let op = rng.pick(&[Logic::And, Logic::Or, Logic::Xor]);
                let (a, b) = (rng.pick(&masks), rng.pick(&masks));
                masks.push(recorder.push(if rng.chance(30) { Inst::Not(a) } else { Inst::Logic(op, a, b) }));
            }
            6 if !masks.is_empty() => numbers.push(recorder.push(Inst::Select(rng.pick(&masks), a, b))),
            7 if !masks.is_empty() => numbers.push(recorder.push(Inst::FromMask(rng.pick(&masks)))),
            _ => {}
        }
    }
    let all: Vec<Id> = numbers.iter().chain(&masks).copied().collect();
    let last = *all.last().expect("there is a literal");
    let outputs: Vec<Id> =
        (0..1 + rng.below(3)).map(|_| if rng.chance(40) { last } else { rng.pick(&all) }).collect();
    recorder.finish(inputs, params, &outputs)
}

/// Runs it on random operands and compares; `shape` for all.
fn check(rng: &mut Rng, level: Level, program: &Program, compute: DType, shape: Dims, threads: Threads) {
    let params: [Scalar; 8] = std::array::from_fn(|_| rng.scalar(compute));
    let dtype = |rng: &mut Rng| if rng.chance(60) { compute } else { rng.pick(DType::ALL) };
    let mut outputs: Vec<Tensor> = program
        .outputs()
        .iter()
        .map(|_| {
            let dtype = dtype(rng);
            Tensor::random(rng, dtype, shape, false)
        })
        .collect();
    // An input is a tensor of its own, or the view of an output.
    let mut owned = Vec::new();
    let mut sources = Vec::new();
    for _ in 0..program.input_count() {
        if rng.chance(35) {
            let output = rng.below(outputs.len());
            outputs[output].randomize(rng);
            sources.push(Err(output));
        } else {
            let (dtype, expanded) = (dtype(rng), rng.chance(40));
            let mut tensor = Tensor::random(rng, dtype, shape, expanded);
            tensor.randomize(rng);
            owned.push(tensor);
            sources.push(Ok(owned.len() - 1));
        }
    }
    let values: Vec<Vec<Scalar>> = sources
        .iter()
        .map(|source| match *source {
            Ok(index) => owned[index].read(),
            Err(output) => outputs[output].read(),
        })
        .collect();
    let count = shape.product();
    let expected: Vec<Vec<Scalar>> = (0..count)
        .map(|i| {
            let inputs: Vec<Scalar> = values.iter().map(|values| normalized(values[i], compute)).collect();
            interpret(program, compute, &inputs, &params.map(|param| normalized(param, compute)))
        })
        .collect();

    let mut operands: Vec<Operand> = outputs.iter_mut().map(Tensor::output).collect();
    for source in sources {
        operands.push(match source {
            Ok(index) => owned[index].input(),
            Err(output) => Operand::In(*operands[output].view()),
        });
    }
    // SAFETY: the operands are live, of one shape, and inputs are outputs' views or apart from them.
    unsafe { execute_at(level, program, compute, &params, 1, &operands, threads) };
    for (index, output) in outputs.iter().enumerate() {
        let dtype = operands[index].view().dtype;
        assert!(output.guards_hold(), "written outside: {program:?} {operands:?}");
        for (i, found) in output.read().into_iter().enumerate() {
            let expected = normalized(expected[i][index], dtype);
            assert!(
                same(found, expected),
                "{level:?} {compute} element {i} of output {index}: {expected:?} expected, {found:?} found\n{program:?}\n{operands:#?}"
            );
        }
    }
}

const COMPUTES: [DType; 6] = [DType::F32, DType::F64, DType::I64, DType::I32, DType::U8, DType::Bool];

#[test]
fn random_programs_agree_with_the_interpreter() {
    for level in Level::all() {
        for seed in 0..700 {
            let rng = &mut Rng(seed);
            let compute = rng.pick(&COMPUTES);
            let (inputs, params) = (rng.below(4), rng.below(3));
            let program = random_program(rng, compute, inputs, params);
            let shape = rng.shape();
            check(rng, level, &program, compute, shape, Threads(1));
        }
    }
}

/// A shape as a program: each operand an input, a parameter, a sum of two of these, or what is an output as well.
fn shape_program(rng: &mut Rng, tree: &Tree) -> Program {
    let recorder = Recorder::default();
    let [inputs, params] = [Inst::Input as fn(u8) -> Inst, Inst::Param as fn(u8) -> Inst]
        .map(|inst| [0, 1, 2].map(|index| recorder.push(inst(index))));
    let mut outputs = Vec::new();
    let leaves = [(); LEAVES_MAX].map(|()| {
        let (a, b) = (rng.pick(&inputs), rng.pick(&params));
        match rng.below(5) {
            0 => b,
            1 => {
                let sum = recorder.push(Inst::Binary(Binary::Max, a, b));
                outputs.extend(rng.chance(50).then_some(sum));
                sum
            }
            2 => recorder.push(Inst::Binary(Binary::Min, b, rng.pick(&params))),
            _ => a,
        }
    });
    fn value(
        rng: &mut Rng,
        recorder: &Recorder,
        leaves: &[Id; LEAVES_MAX],
        outputs: &mut Vec<Id>,
        tree: &Tree,
    ) -> Id {
        let inst = match *tree {
            Tree::Leaf(leaf) => return leaves[leaf],
            Tree::Stored(_, tree) => {
                let id = value(rng, recorder, leaves, outputs, tree);
                outputs.push(id);
                return id;
            }
            Tree::Unary(op, x) => Inst::Unary(op, value(rng, recorder, leaves, outputs, x)),
            Tree::Binary(op, x, y) => {
                let [x, y] = [x, y].map(|tree| value(rng, recorder, leaves, outputs, tree));
                let turned = matches!(op, Binary::Add | Binary::Mul) && rng.chance(50);
                if turned { Inst::Binary(op, y, x) } else { Inst::Binary(op, x, y) }
            }
        };
        recorder.push(inst)
    }
    let root = value(rng, &recorder, &leaves, &mut outputs, tree);
    outputs.push(root);
    recorder.finish(3, 3, &outputs)
}

#[test]
fn several_instructions_in_one_loop_are_rounded_as_each_alone() {
    for level in Level::all() {
        for seed in 0..1200 {
            let rng = &mut Rng(seed);
            let shape = &SHAPES[seed as usize % SHAPES.len()];
            let program = shape_program(rng, shape.tree);
            let (compute, shape) = (rng.pick(&[DType::F32, DType::F64]), rng.shape());
            check(rng, level, &program, compute, shape, Threads(1));
        }
    }
}

#[test]
fn what_programs_are_full_of_takes_few_loops() {
    let adam = Program::record_many(|[p, g, m, v], [keep_m, take_m, keep_v, take_v, size, root, eps]| {
        let m = keep_m * m + take_m * g;
        let v = keep_v * v + take_v * (g * g);
        [p - size * m / (v.sqrt() * root + eps), m, v]
    });
    let lerp = Program::record_many(|[a, b], [w]| [a + w * (b - a)]);
    let addcmul = raddle_op::Pointwise::addcmul.program();
    // Which inputs are the views of the first outputs, in order.
    let programs = [(&adam, &[0, 2, 3][..], 1), (&lerp, &[], 1), (addcmul, &[], 1), (addcmul, &[0], 1)];
    for (program, in_place, expected) in programs {
        let class = |start: usize| Class { dtype: DType::F32, uniform: false, start };
        let outputs = program.outputs().len();
        let mut classes: Vec<Class> = (0..outputs + program.input_count()).map(class).collect();
        for (output, input) in in_place.iter().enumerate() {
            classes[outputs + input] = classes[output];
        }
        let mut plan = Plan::default();
        let params = vec![Scalar::Float(0.5); program.param_count()];
        plan.assign(program, DType::F32, &params, &classes, Level::best());
        assert_eq!(plan.steps.len(), expected, "{program:?}");
    }
}

#[test]
fn large_operands_are_cut_into_parts_and_tiles() {
    for (seed, shape) in [[300, 257].as_slice(), &[70_001], &[65, 3, 401], &[40_000, 3], &[2, 128, 130, 3]]
        .into_iter()
        .cycle()
        .take(30)
        .enumerate()
    {
        let rng = &mut Rng(seed as u64 + 77);
        let compute = rng.pick(&[DType::F32, DType::F64, DType::I32]);
        let program = random_program(rng, compute, 2, 1);
        check(rng, Level::best(), &program, compute, Dims::new(shape).expect("few axes"), Threads(2));
    }
}

#[test]
fn copies_move_every_bit_in_any_layout() {
    let program = raddle_op::Pointwise::copy.program();
    for seed in 0..400 {
        let rng = &mut Rng(seed);
        let dtype = rng.pick(DType::ALL);
        let shape = rng.shape();
        let mut from = Tensor::random(rng, dtype, shape, seed % 3 == 0);
        // Any bits, NaN with any payload too; of bools only 0 and 1 exist.
        from.randomize(rng);
        let mut to = Tensor::random(rng, dtype, shape, false);
        let operands = [to.output(), from.input()];
        // SAFETY: live operands of one shape.
        unsafe { execute(program, dtype.compute(), &[], 1, &operands, Threads(1)) };
        let bits = |tensor: &Tensor| tensor.read().iter().map(|x| format!("{x:?}")).collect::<Vec<_>>();
        assert_eq!(bits(&to), bits(&from), "{operands:?}");
        assert!(to.guards_hold());
    }
}

#[test]
fn groups_are_launches_of_their_own() {
    // Momentum: m = 0.5 m + g, p = p - m, both in place.
    let program = Program::record_many(|[p, m, g], [decay]| {
        let m = decay * m + g;
        [p - m, m]
    });
    let rng = &mut Rng(5);
    let mut tensors: Vec<[Tensor; 3]> = [[4, 5], [0, 3], [80, 90], [7, 1]]
        .iter()
        .map(|shape| {
            std::array::from_fn(|_| {
                let mut tensor = Tensor::random(rng, DType::F32, Dims::new(shape).expect("two axes"), false);
                tensor.write(|i| Scalar::Float(i as f64));
                tensor
            })
        })
        .collect();
    let operands: Vec<Operand> = tensors
        .iter_mut()
        .flat_map(|[p, m, g]| [p.output(), m.output(), p.input(), m.input(), g.input()])
        .collect();
    // SAFETY: live operands; the inputs of a group are its outputs' views or apart from them.
    unsafe { execute(&program, DType::F32, &[Scalar::Float(0.5)], 4, &operands, Threads(1)) };
    for [p, m, _] in &tensors {
        assert!(p.guards_hold() && m.guards_hold());
        for (i, (p, m)) in p.read().into_iter().zip(m.read()).enumerate() {
            assert_eq!((p, m), (Scalar::Float(i as f64 * -0.5), Scalar::Float(i as f64 * 1.5)));
        }
    }
}

#[test]
fn a_fused_update_reaches_a_transposed_target() {
    // Column-major x, row-major y and z: x += 0.5 · y / z (the case of the frozen encoder).
    let program = raddle_op::Pointwise::addcmul.program();
    let shape = Dims::new(&[3, 2]).expect("two axes");
    let mut x = Tensor::new(DType::F32, Layout::new(shape, Dims::new(&[1, 3]).expect("two axes"), 1));
    x.write(|i| Scalar::Float([1.0, 4.0, 2.0, 5.0, 3.0, 6.0][i]));
    let (mut y, mut z) = (Tensor::packed(DType::F32, shape), Tensor::packed(DType::F32, shape));
    y.write(|i| Scalar::Float(10.0 * (i + 1) as f64));
    z.write(|i| Scalar::Float([2.0, 4.0, 5.0, 8.0, 10.0, 12.0][i]));
    let operands = [x.output(), x.input(), y.input(), z.input()];
    // SAFETY: live operands of one shape; the first input is the output's view.
    unsafe { execute(program, DType::F32, &[Scalar::Float(0.5)], 1, &operands, Threads(1)) };
    let expected: Vec<Scalar> = [11.0, 44.0, 77.0, 165.0, 253.0, 366.0].map(Scalar::Float).to_vec();
    assert_eq!(x.read(), expected);
    assert!(x.guards_hold());
}
