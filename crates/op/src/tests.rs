//! What holds for every row: it records, its gradient is the derivative, at ties as stated, and its text means the same.

use crate::{
    Pointwise, Program,
    eval::{eval, eval_f64},
    render::{Dialect, Slot, body, prelude, type_name},
};
use raddle_base::{DType, Scalar};
use std::fmt::Write;

/// Deterministic numbers in [0, 1): a multiplicative congruential generator (Lehmer's, multiplier of L'Ecuyer).
struct Random(u64);

impl Random {
    fn within(&mut self, (low, high): (f64, f64)) -> f64 {
        self.0 = self.0.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        low + (high - low) * ((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Parameters that a test can live with, by name.
fn param(name: &str) -> f64 {
    match name {
        "weight" => 0.3,
        "eps" => 1e-3,
        "negative_slope" => 0.1,
        "min" => -50.0,
        "max" => 50.0,
        "threshold" => 15.0,
        _ => 1.75,
    }
}

fn params(op: Pointwise) -> Vec<f64> {
    op.row().params.iter().map(|name| param(name)).collect()
}

#[test]
fn names_are_found_again_and_programs_take_what_the_row_says() {
    for &op in Pointwise::ALL {
        assert_eq!(Pointwise::from_name(op.name()), Some(op));
        let (row, program) = (op.row(), op.program());
        assert_eq!((program.input_count(), program.param_count()), (row.inputs.len(), row.params.len()));
        assert_eq!(
            program.output_is_mask(0),
            row.result == crate::pointwise::ResultType::Bool,
            "{}",
            op.name()
        );
        assert!(!row.doc.is_empty() && row.domain.0 < row.domain.1);
    }
    assert_eq!(Pointwise::from_name("where"), Some(Pointwise::where_));
    assert_eq!(Pointwise::from_name("where_"), None);
}

#[test]
fn programs_take_the_dtypes_whose_instructions_they_have() {
    for &op in Pointwise::ALL {
        for &dtype in DType::ALL.iter().filter(|&&dtype| op.takes(dtype)) {
            assert!(op.program().takes(dtype.compute()), "{} of {dtype}", op.name());
        }
    }
    let shift = Pointwise::bitwise_left_shift.program();
    assert!(!shift.takes(DType::F32) && !shift.takes(DType::Bool) && shift.takes(DType::U8));
    assert!(!Pointwise::exp.program().takes(DType::I64));
    assert!(!Pointwise::bitwise_not.program().takes(DType::F64));
    assert!(
        !Program::record(|[x]| x + 0.5).takes(DType::I64) && Program::record(|[x]| x + 2).takes(DType::I64)
    );
}

#[test]
fn scalars_become_the_last_parameters() {
    let program = Pointwise::addcmul.program_with(0b101);
    assert_eq!(eval_f64(program, &[3.0], &[2.0, 10.0, 5.0]), [40.0]);
    let gradient = Pointwise::addcmul.gradient_program_with(&[1], 0b101).expect("it has one");
    assert_eq!(eval_f64(gradient, &[7.0, 3.0], &[2.0, 10.0, 5.0]), [70.0]);
}

#[test]
fn rows_are_as_accurate_as_they_say() {
    for &op in Pointwise::ALL.iter().filter(|op| op.takes(DType::F32)) {
        let row = op.row();
        let single = |value: f64| f64::from(value as f32);
        let params: Vec<f64> = params(op).into_iter().map(single).collect();
        let mut random = Random(11);
        let mut worst = (0.0, Vec::new());
        for _ in 0..20_000 {
            let inputs: Vec<f64> =
                (0..row.inputs.len()).map(|input| single(random.within(op.domain_of(input)))).collect();
            let exact = eval_f64(op.program(), &inputs, &params)[0];
            let scalars = |values: &[f64]| values.iter().map(|&v| Scalar::Float(v)).collect::<Vec<_>>();
            let found = eval(op.program(), DType::F32, &scalars(&inputs), &scalars(&params))[0].to_f64();
            // The distance from this f32 to the next.
            let unit = (exact.abs().log2().floor() - 23.0).max(-149.0).exp2();
            let error = (found - exact).abs() / unit;
            if error > worst.0 {
                worst = (error, inputs);
            }
        }
        // The f64 next to a tie of two f32 may be the tie: hence the little more.
        assert!(worst.0 <= row.ulp + 1e-6, "{}: off by {} ulp at {:?}", op.name(), worst.0, worst.1);
    }
}

/// Compares a program's gradient by all inputs of `wrt` with central differences. Points near a jump are left out: there
/// the second difference isn't small. Returns how many were compared.
fn check_gradient(
    name: &str,
    program: &Program,
    wrt: &[usize],
    params: &[f64],
    domains: &[(f64, f64)],
) -> usize {
    let gradient = program.gradient(wrt);
    let mut random = Random(7);
    let mut compared = 0;
    for _ in 0..200 {
        let x: Vec<f64> = domains.iter().map(|&domain| random.within(domain)).collect();
        let g = random.within((0.5, 2.0));
        let inputs: Vec<f64> = std::iter::once(g).chain(x.iter().copied()).collect();
        let found = eval_f64(&gradient, &inputs, params);
        for (&input, found) in wrt.iter().zip(found) {
            let step = 1e-6 * x[input].abs().max(1e-2);
            let at = |offset: f64| {
                let mut x = x.clone();
                x[input] += offset;
                eval_f64(program, &x, params)[0]
            };
            let (below, here, above) = (at(-step), at(0.0), at(step));
            if (above - 2.0 * here + below).abs() > 1e-7 * (here.abs() + 1e-3) {
                continue;
            }
            compared += 1;
            let expected = g * (above - below) / (2.0 * step);
            let tolerance =
                1e-5 * (expected.abs() + found.abs()) + 1e-9 * here.abs() / step.min(1.0) * 1e-3 + 1e-9;
            assert!(
                (found - expected).abs() <= tolerance,
                "{name} by input {input} at {x:?}: expected {expected}, found {found}"
            );
        }
    }
    compared
}

#[test]
fn gradients_are_what_central_differences_say_and_so_are_theirs() {
    for &op in Pointwise::ALL.iter().filter(|op| op.row().differentiable) {
        let row = op.row();
        let wrt: Vec<usize> = (0..row.inputs.len()).filter(|&input| op.is_differentiable_by(input)).collect();
        let domains: Vec<(f64, f64)> = (0..row.inputs.len())
            .map(|i| if op.is_condition(i) { (1.0, 2.0) } else { op.domain_of(i) })
            .collect();
        let params = params(op);
        let compared = check_gradient(op.name(), op.program(), &wrt, &params, &domains);
        assert!(compared > 150, "{}: only {compared} points compared", op.name());

        let gradient = op.gradient_program(&wrt[..1]).expect("it is differentiable by these");
        let of_gradient: Vec<(f64, f64)> = std::iter::once((0.5, 2.0)).chain(domains).collect();
        let wrt: Vec<usize> = std::iter::once(0).chain(wrt.iter().map(|input| input + 1)).collect();
        check_gradient(&format!("gradient of {}", op.name()), gradient, &wrt, &params, &of_gradient);
    }
}

#[test]
fn gradients_at_ties_and_singular_points_are_as_the_rows_say() {
    const INF: f64 = f64::INFINITY;
    type Case<'a> = (Pointwise, &'a [f64], &'a [f64], &'a [f64]);
    let cases: &[Case<'_>] = &[
        (Pointwise::maximum, &[2.0, 2.0], &[], &[0.5, 0.5]),
        (Pointwise::minimum, &[2.0, 2.0], &[], &[0.5, 0.5]),
        (Pointwise::maximum, &[1.0, 2.0], &[], &[0.0, 1.0]),
        (Pointwise::minimum, &[1.0, 2.0], &[], &[1.0, 0.0]),
        (Pointwise::abs, &[0.0], &[], &[0.0]),
        (Pointwise::abs, &[f64::NAN], &[], &[0.0]),
        (Pointwise::sqrt, &[0.0], &[], &[INF]),
        (Pointwise::pow, &[2.0, 0.0], &[], &[0.0, std::f64::consts::LN_2]),
        (Pointwise::pow, &[0.0, 0.0], &[], &[0.0, 0.0]),
        (Pointwise::pow, &[0.0, 2.0], &[], &[0.0, 0.0]),
        (Pointwise::relu, &[0.0], &[], &[0.0]),
        (Pointwise::leaky_relu, &[0.0], &[0.25], &[0.25]),
        (Pointwise::elu, &[0.0], &[0.5], &[0.5]),
        (Pointwise::elu, &[1000.0], &[0.5], &[1.0]),
        (Pointwise::sign, &[3.0], &[], &[0.0]),
        (Pointwise::round, &[2.5], &[], &[0.0]),
        (Pointwise::sigmoid, &[0.0], &[], &[0.25]),
        (Pointwise::sigmoid, &[-1000.0], &[], &[0.0]),
        (Pointwise::sigmoid, &[1000.0], &[], &[0.0]),
        (Pointwise::silu, &[-1000.0], &[], &[0.0]),
        (Pointwise::gelu, &[-1000.0], &[], &[0.0]),
        (Pointwise::gelu_tanh, &[-1000.0], &[], &[0.0]),
        (Pointwise::softplus, &[1000.0], &[1.0, 20.0], &[1.0]),
        (Pointwise::softplus, &[1000.0], &[1.0, 2000.0], &[1.0]),
        (Pointwise::softplus, &[0.0], &[1.0, 20.0], &[0.5]),
        (Pointwise::softplus, &[-1000.0], &[1.0, 20.0], &[0.0]),
        (Pointwise::sinh, &[0.0], &[], &[1.0]),
        (Pointwise::cosh, &[0.0], &[], &[0.0]),
        (Pointwise::cosh, &[1e-9], &[], &[1e-9]),
        (Pointwise::sinh, &[-INF], &[], &[INF]),
        (Pointwise::tanh, &[0.0], &[], &[1.0]),
        (Pointwise::tanh, &[-INF], &[], &[0.0]),
        (Pointwise::atan2, &[0.0, -0.0], &[], &[0.0, 0.0]),
        (Pointwise::atan2, &[1e-200, 0.0], &[], &[0.0, -1e200]),
        (Pointwise::atan2, &[0.0, -1e200], &[], &[-1e-200, 0.0]),
        // 1 / 0.1 is rounded to 10, and yet 0.1 goes into 1 nine times.
        (Pointwise::rem, &[1.0, 0.1], &[], &[1.0, -9.0]),
        (Pointwise::rem, &[-1.0, 0.1], &[], &[1.0, 10.0]),
        (Pointwise::rem, &[-1.0, INF], &[], &[1.0, 1.0]),
        (Pointwise::fmod, &[-1.0, 0.1], &[], &[1.0, 9.0]),
        (Pointwise::fmod, &[1.0, INF], &[], &[1.0, 0.0]),
        (Pointwise::where_, &[1.0, 5.0, f64::NAN], &[], &[1.0, 0.0]),
        (Pointwise::masked_fill, &[f64::NAN, 1.0], &[7.0], &[0.0]),
    ];
    for &(op, inputs, params, expected) in cases {
        let wrt: Vec<usize> = (0..inputs.len()).filter(|&input| op.is_differentiable_by(input)).collect();
        let program = op.gradient_program(&wrt).expect("it is differentiable by these");
        let inputs: Vec<f64> = std::iter::once(1.0).chain(inputs.iter().copied()).collect();
        assert_eq!(eval_f64(program, &inputs, params), expected, "{} at {inputs:?}", op.name());
    }
}

/// Rows that choose one of their inputs are what they are of inputs that are all moved by as much, or scaled: so the gradients add
/// up to the output's, and weighted by the inputs to the output, at every tie, too. (Euler's theorem on homogeneous functions.)
#[test]
fn at_ties_no_part_of_a_gradient_is_lost_or_counted_twice() {
    use Pointwise::*;
    let rows = [
        (maximum, true),
        (minimum, true),
        (clamp, true),
        (clamp_min, true),
        (clamp_max, true),
        (where_, true),
        (lerp, true),
        (masked_fill, false),
        (relu, false),
        (leaky_relu, false),
        (abs, false),
        (copy, true),
    ];
    for (op, moves) in rows {
        let row = op.row();
        let wrt: Vec<usize> = (0..row.inputs.len()).filter(|&input| op.is_differentiable_by(input)).collect();
        // The weight of lerp is none of what it chooses from.
        let wrt = if op == lerp { vec![0, 1] } else { wrt };
        let program = op.gradient_program(&wrt).expect("it is differentiable by these");
        let params = vec![0.0; row.params.len()];
        for number in 0..5usize.pow(row.inputs.len() as u32) {
            let digit = |input: usize| number / 5usize.pow(input as u32) % 5;
            let inputs: Vec<f64> = (0..row.inputs.len()).map(|input| digit(input) as f64 - 2.0).collect();
            let given: Vec<f64> = std::iter::once(3.0).chain(inputs.iter().copied()).collect();
            let found = eval_f64(program, &given, &params);
            let along = |by: &dyn Fn(usize) -> f64| -> f64 {
                wrt.iter().zip(&found).map(|(&input, gradient)| by(input) * gradient).sum()
            };
            let value = eval_f64(op.program(), &inputs, &params)[0];
            assert_eq!(along(&|input| inputs[input]), 3.0 * value, "{} of {inputs:?}: {found:?}", op.name());
            if moves {
                assert_eq!(along(&|_| 1.0), 3.0, "{} of {inputs:?}: {found:?}", op.name());
            }
        }
    }
}

/// What f32 has is found in f32: no step of a derivative over- or underflows, or cancels, that f64 takes well.
#[test]
fn gradients_of_extremes_are_no_less_exact_in_f32() {
    for &op in Pointwise::ALL.iter().filter(|op| op.row().differentiable && op.row().inputs.len() == 1) {
        let gradient = op.gradient_program(&[0]).expect("it has one");
        let params: Vec<Scalar> =
            params(op).into_iter().map(|value| Scalar::Float(value as f32 as f64)).collect();
        let mut random = Random(13);
        for round in 0..2000 {
            let size = 10f64.powf(random.within(if round % 2 == 0 { (-37.0, 38.0) } else { (-3.0, 2.2) }));
            let x = f64::from((if round % 4 < 2 { size } else { -size }) as f32);
            let [found, expected] = [DType::F32, DType::F64].map(|compute| {
                eval(gradient, compute, &[Scalar::Float(1.0), Scalar::Float(x)], &params)[0].to_f64()
            });
            let is_near = match expected.abs() {
                size if size < f64::from(f32::MIN_POSITIVE) => found.abs() <= f64::from(f32::MIN_POSITIVE),
                size if size > f64::from(f32::MAX) => found.is_infinite(),
                size => expected.is_nan() && found.is_nan() || (found - expected).abs() <= 1e-3 * size,
            };
            assert!(is_near, "{} at {x:e}: expected {expected:e}, found {found:e}", op.name());
        }
    }
}

#[test]
fn gradients_keep_their_digits_where_the_result_has_lost_them() {
    // 1 - tanh² and (eˣ - e⁻ˣ) / 2 of the result's own digits would have none left here.
    for (op, x, expected) in [
        (Pointwise::tanh, 18.0, 4.0 * (-36f64).exp()),
        (Pointwise::tanh, -9.0, 4.0 * (-18f64).exp() / (1.0 + (-18f64).exp()).powi(2)),
        (Pointwise::cosh, 1e-7, 1e-7f64.sinh()),
        (Pointwise::cosh, -3e-5, -3e-5f64.sinh()),
    ] {
        let gradient = op.gradient_program(&[0]).expect("it has one");
        let found = eval_f64(gradient, &[1.0, x], &[])[0];
        assert!((found - expected).abs() <= 1e-14 * expected.abs(), "{} at {x}: {found}", op.name());
    }
    for op in [Pointwise::sinh, Pointwise::cosh, Pointwise::tanh] {
        assert!(eval_f64(op.gradient_program(&[0]).expect("it has one"), &[1.0, f64::NAN], &[])[0].is_nan());
    }
}

#[test]
fn a_branch_not_taken_adds_no_nan() {
    let guarded = Program::record(|[x]| {
        let root = x.gt(0.0).select(x.sqrt(), 0.0);
        x.lt(100.0).select(1.0 / root + root.log(), 2.0 * x)
    });
    let gradient = guarded.gradient(&[0]);
    assert_eq!(eval_f64(&gradient, &[3.0, 400.0], &[]), [6.0]);
    let safe = Program::record(|[x]| x.gt(0.0).select(x.log(), x.ne(0.0).select(1.0 / x, -1.0)));
    let gradient = safe.gradient(&[0]);
    assert_eq!(eval_f64(&gradient, &[1.0, 0.0], &[]), [0.0]);
    assert_eq!(eval_f64(&gradient, &[1.0, -2.0], &[]), [-0.25]);
    assert_eq!(eval_f64(&gradient, &[1.0, 2.0], &[]), [0.5]);
    assert_eq!(eval_f64(&gradient, &[f64::NAN, 0.0], &[]), [0.0]);
}

#[test]
fn gradients_are_as_short_as_by_hand() {
    let relu = Program::record(|[g, x]| x.le(0.0).select(0.0, g)).insts().len();
    assert_eq!(Pointwise::relu.gradient_program(&[0]).expect("it has one").insts().len(), relu);
    let leaky = Program::record_many(|[g, x], [slope]| [x.gt(0.0).select(g, g * slope)]);
    let derived = Pointwise::leaky_relu.gradient_program(&[0]).expect("it has one");
    assert_eq!(derived.insts().len(), leaky.insts().len());
    assert_eq!(*Pointwise::copy.gradient_program(&[0]).expect("it has one"), Program::record(|[g, _x]| g));
    let cube = Program::record(|[x]| x.pow(3.0)).gradient(&[0]);
    assert_eq!(cube.insts().len(), Program::record(|[g, x]| g * (3.0 * (x * x))).insts().len());
}

#[test]
fn values_at_the_edges_are_pytorchs() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    let cases: &[(Pointwise, &[f64], &[f64], f64)] = &[
        (Pointwise::rem, &[-5.0, 3.0], &[], 1.0),
        (Pointwise::rem, &[5.0, -3.0], &[], -1.0),
        (Pointwise::rem, &[-5.0, INF], &[], INF),
        (Pointwise::rem, &[5.0, 0.0], &[], NAN),
        (Pointwise::fmod, &[-5.0, 3.0], &[], -2.0),
        (Pointwise::floor_divide, &[-7.0, 2.0], &[], -4.0),
        (Pointwise::floor_divide, &[1.0, 0.1], &[], 9.0),
        (Pointwise::floor_divide, &[1.0, 0.0], &[], INF),
        (Pointwise::floor_divide, &[-1.0, INF], &[], -1.0),
        (Pointwise::sign, &[NAN], &[], 0.0),
        (Pointwise::relu, &[NAN], &[], NAN),
        (Pointwise::maximum, &[NAN, 1.0], &[], NAN),
        (Pointwise::minimum, &[1.0, NAN], &[], NAN),
        (Pointwise::clamp, &[0.0, 2.0, 1.0], &[], 1.0),
        (Pointwise::clamp, &[NAN, 0.0, 1.0], &[], NAN),
        (Pointwise::clamp, &[0.5, NAN, 1.0], &[], NAN),
        (Pointwise::round, &[2.5], &[], 2.0),
        (Pointwise::frac, &[-1.75], &[], -0.75),
        (Pointwise::sigmoid, &[-INF], &[], 0.0),
        (Pointwise::sigmoid, &[INF], &[], 1.0),
        (Pointwise::silu, &[-INF], &[], NAN),
        (Pointwise::gelu, &[-INF], &[], NAN),
        (Pointwise::gelu, &[INF], &[], INF),
        (Pointwise::sinh, &[-INF], &[], -INF),
        (Pointwise::sinh, &[1e-9], &[], 1e-9),
        (Pointwise::cosh, &[INF], &[], INF),
        (Pointwise::sinh, &[710.0], &[], 1.1169973830808557e308),
        (Pointwise::lerp, &[1e30, 3.0, 1.0], &[], 3.0),
        (Pointwise::softplus, &[1000.0], &[1.0, 2000.0], 1000.0),
        (Pointwise::softplus, &[NAN], &[1.0, 20.0], NAN),
        (Pointwise::softplus, &[-INF], &[1.0, 20.0], 0.0),
        (Pointwise::logical_and, &[NAN, -0.5], &[], 1.0),
        (Pointwise::logical_not, &[-0.0], &[], 1.0),
        (Pointwise::ne, &[NAN, NAN], &[], 1.0),
        (Pointwise::isinf, &[-INF], &[], 1.0),
        (Pointwise::isfinite, &[NAN], &[], 0.0),
        (Pointwise::where_, &[NAN, 1.0, 2.0], &[], 1.0),
    ];
    for &(op, inputs, params, expected) in cases {
        let found = eval_f64(op.program(), inputs, params)[0];
        let same = found == expected || found.is_nan() && expected.is_nan();
        let near = (found - expected).abs() <= 1e-14 * expected.abs();
        assert!(same || near, "{} of {inputs:?}: expected {expected}, found {found}", op.name());
    }
    for (x, sign) in [(-0.0, true), (0.0, false)] {
        assert_eq!(eval_f64(Pointwise::sinh.program(), &[x], &[])[0].is_sign_negative(), sign);
        assert_eq!(eval_f64(Pointwise::floor_divide.program(), &[x, 3.0], &[])[0].is_sign_negative(), sign);
    }
}

#[test]
fn integers_wrap_and_shifts_are_bounded() {
    let int = |op: Pointwise, compute, inputs: &[i64]| {
        let inputs: Vec<Scalar> = inputs.iter().map(|&value| Scalar::Int(value)).collect();
        eval(op.program(), compute, &inputs, &[])[0].to_i64()
    };
    use DType::*;
    assert_eq!(int(Pointwise::abs, I64, &[i64::MIN]), i64::MIN);
    assert_eq!(int(Pointwise::neg, U8, &[1]), 255);
    assert_eq!(int(Pointwise::rem, I32, &[-7, 3]), 2);
    assert_eq!(int(Pointwise::floor_divide, I32, &[-7, 2]), -4);
    assert_eq!(int(Pointwise::floor_divide, I32, &[-7, 0]), 0);
    assert_eq!(int(Pointwise::floor_divide, I64, &[i64::MIN, -1]), i64::MIN);
    assert_eq!(int(Pointwise::pow, I32, &[-1, -3]), -1);
    assert_eq!(int(Pointwise::pow, I64, &[3, 41]), 3i64.wrapping_pow(41));
    assert_eq!(int(Pointwise::bitwise_left_shift, U8, &[200, 1]), 144);
    assert_eq!(int(Pointwise::bitwise_left_shift, U8, &[200, 8]), 0);
    assert_eq!(int(Pointwise::bitwise_right_shift, I32, &[-12, 40]), -1);
    assert_eq!(int(Pointwise::bitwise_right_shift, I32, &[-12, -1]), -1);
    assert_eq!(int(Pointwise::bitwise_left_shift, I64, &[3, 63]), i64::MIN);
    assert_eq!(int(Pointwise::bitwise_not, Bool, &[1]), 0);
    assert_eq!(int(Pointwise::add, Bool, &[1, 1]), 1);
}

const COMPUTE: [DType; 6] = [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];

/// Values of a dtype that find mistakes.
fn pool(compute: DType) -> Vec<Scalar> {
    let all: Vec<Scalar> = match compute {
        DType::Bool => vec![false.into(), true.into()],
        DType::F32 | DType::F64 => {
            let (inf, max) = (f64::INFINITY, if compute == DType::F32 { f32::MAX.into() } else { f64::MAX });
            [
                -inf,
                -max,
                -90.5,
                -12.0,
                -5.0,
                -2.5,
                -1.0,
                -0.7,
                -0.5,
                -1e-6,
                -0.0,
                0.0,
                1e-6,
                0.3,
                0.5,
                1.0,
                1.5,
                2.0,
                3.0,
                7.25,
                15.5,
                88.9,
                1e6,
                max,
                inf,
                f64::NAN,
            ]
            .map(Scalar::Float)
            .into()
        }
        _ => [
            0,
            1,
            -1,
            2,
            -2,
            3,
            7,
            8,
            9,
            -12,
            31,
            32,
            40,
            63,
            64,
            200,
            i32::MAX.into(),
            i32::MIN.into(),
            i64::MAX,
            i64::MIN,
        ]
        .map(Scalar::Int)
        .into(),
    };
    all.into_iter().map(|value| compute.round(value)).collect()
}

/// Every operand tuple of two values of the pool; further operands take theirs in turn.
fn operands(pool: &[Scalar], count: usize) -> Vec<Vec<Scalar>> {
    let n = pool.len();
    let seconds = if count > 1 { n } else { 1 };
    let tuples = (0..n).flat_map(|i| (0..seconds).map(move |j| [i, j, i + 3 * j, 5 * i + j]));
    tuples.map(|at| at[..count].iter().map(|&at| pool[at % n]).collect()).collect()
}

/// What the compiled test needs, among it the loop that goes through the tuples of `operands` in the same order.
const C_HEAD: &str = "\
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
static float float_of(unsigned i) { float f; memcpy(&f, &i, 4); return f; }
static double double_of(unsigned long long i) { double f; memcpy(&f, &i, 8); return f; }
static int int_of(float f) { int i; memcpy(&i, &f, 4); return i; }
static long long long_of(double f) { long long i; memcpy(&i, &f, 8); return i; }
static void show_int(long long i) { printf(\"%lld\\n\", i); }
static void show(double f) { long long i; memcpy(&i, &f, 8); show_int(i); }
#define EACH_TUPLE(T, COUNT) \\
    for (int i = 0; i < n; i++) for (int j = 0; j < (COUNT > 1 ? n : 1); j++) { \\
        const T x[] = { pool[i], pool[j], pool[(i + 3 * j) % n], pool[(5 * i + j) % n] };
";

const CUDA_AS_C: &str = "\
#define __device__
#define __int_as_float float_of
#define __longlong_as_double double_of
#define __float_as_int int_of
#define __double_as_longlong long_of
";

const METAL_AS_CPP: &str = "\
#include <cmath>
using std::isinf;
typedef unsigned char uchar;
typedef unsigned uint;
typedef unsigned long ulong;
template<class T> static T as_type(uint i) { return float_of(i); }
namespace precise {
using std::sqrt; using std::exp; using std::log; using std::log2; using std::log10; using std::sin; using std::cos;
using std::tan; using std::tanh; using std::asin; using std::acos; using std::atan; using std::atan2; using std::pow;
using std::fmod;
}
";

/// As a literal of C, by its bits where it is a float.
fn c_literal(value: Scalar, compute: DType) -> String {
    match (value, compute) {
        (Scalar::Float(value), DType::F32) => format!("float_of({:#x})", (value as f32).to_bits()),
        (Scalar::Float(value), _) => format!("double_of({:#x})", value.to_bits()),
        (value, _) => format!("{:#x}ull", value.to_i64()),
    }
}

#[test]
fn the_text_for_cuda_compiled_as_c_gives_what_the_evaluator_gives() {
    check_text(Dialect::Cuda, "cc", "c", CUDA_AS_C);
}

#[test]
fn the_text_for_metal_compiled_as_cpp_gives_what_the_evaluator_gives() {
    check_text(Dialect::Metal, "c++", "c++", METAL_AS_CPP);
}

/// Compiles all rows and gradients in all dtypes, with a shim for what the language has and C or C++ lacks, runs them
/// over the edge values and compares.
fn check_text(dialect: Dialect, compiler: &str, language: &str, shim: &str) {
    let folder = std::env::temp_dir().join(format!("raddle-render-{language}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let (source, binary) = (folder.join("rows"), folder.join("rows.out"));

    let mut text = [C_HEAD, shim].concat();
    let mut main = String::new();
    let mut expected: Vec<(String, Pointwise, DType, Vec<Scalar>, Scalar)> = Vec::new();
    for compute in COMPUTE {
        let Some(number) = type_name(compute, dialect) else { continue };
        let functions = prelude(compute, dialect);
        let list = |values: &[Scalar]| {
            values
                .iter()
                .map(|&value| format!("({number}){}", c_literal(value, compute)))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let values = pool(compute);
        // A prelude is meant for one dtype a file: here its functions get the name of theirs.
        let _ = writeln!(text, "#define raddle_pow raddle_pow_{compute}\n{functions}");
        let _ =
            writeln!(main, "{{ const {number} pool[] = {{ {} }}; int n = {};", list(&values), values.len());
        for &op in Pointwise::ALL.iter().filter(|op| op.takes(compute)) {
            let params: Vec<Scalar> =
                params(op).into_iter().map(|p| compute.round(Scalar::Float(p))).collect();
            let mut programs = vec![(op.name().to_owned(), op.program())];
            if compute.is_float() && op.row().differentiable {
                let by = usize::from(op.is_condition(0));
                let gradient = op.gradient_program(&[by]).expect("it is differentiable by this");
                programs.push((format!("gradient of {}", op.name()), gradient));
            }
            for (name, program) in programs {
                let statements = body(program, compute, dialect, |slot| match slot {
                    Slot::Input(index) => format!("x[{index}]"),
                    Slot::Param(index) => format!("p[{index}]"),
                    Slot::Output(_) => "y".into(),
                });
                let statements = statements.expect("the language has the type");
                let function = format!("{}_{compute}", name.replace(' ', "_"));
                let count = program.input_count();
                let show = if compute.is_float() { "show" } else { "show_int" };
                let _ = writeln!(
                    text,
                    "static {number} {function}(const {number} *x, const {number} *p) {{\n{number} y;\n{statements}return y;\n}}"
                );
                let _ = writeln!(
                    main,
                    "{{ const {number} p[] = {{ {} }}; ",
                    list(&[&params[..], &[Scalar::Int(0)]].concat())
                );
                let _ = writeln!(main, "EACH_TUPLE({number}, {count}) {show}({function}(x, p)); }} }}");
                for inputs in operands(&values, count) {
                    let value = eval(program, compute, &inputs, &params)[0];
                    expected.push((name.clone(), op, compute, inputs, value));
                }
            }
        }
        text.push_str("#undef raddle_pow\n");
        main.push_str("}\n");
    }
    let _ = writeln!(text, "int main(void) {{\n{main}return 0; }}");
    std::fs::write(&source, text).expect("the temporary folder can be written");

    let compiled = std::process::Command::new(compiler)
        .args(["-O0", "-ffp-contract=off", "-w", "-x", language])
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .arg("-lm")
        .output();
    let Ok(compiled) = compiled else {
        eprintln!("no {compiler} here: the text was written but not compiled");
        return;
    };
    assert!(compiled.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&compiled.stderr));
    let printed = std::process::Command::new(&binary).output().expect("what was compiled runs").stdout;
    std::fs::remove_dir_all(&folder).expect("the temporary folder can be removed");
    let printed = String::from_utf8(printed).expect("it prints numbers");
    let found: Vec<i64> = printed.lines().map(|line| line.parse().expect("it prints numbers")).collect();
    assert_eq!(found.len(), expected.len());

    for ((name, op, compute, inputs, expected), bits) in expected.into_iter().zip(found) {
        let (found, agree) = if compute.is_float() {
            let (found, expected) = (f64::from_bits(bits as u64), expected.to_f64());
            let (epsilon, least) = match compute {
                DType::F32 => (f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE)),
                _ => (f64::EPSILON, f64::MIN_POSITIVE),
            };
            // Two libraries, each good to an ulp, and what the row makes of that.
            let tolerance = (2.0 * op.row().ulp + 8.0) * epsilon * expected.abs() + 4.0 * least;
            let same = found == expected || found.is_nan() && expected.is_nan();
            (Scalar::Float(found), same || (found - expected).abs() <= tolerance)
        } else {
            (Scalar::Int(bits), bits == expected.to_i64())
        };
        assert!(agree, "{name} in {compute} of {inputs:?}: expected {expected}, found {found}");
    }
}

#[test]
fn both_dialects_render_every_row() {
    for &op in Pointwise::ALL {
        for compute in COMPUTE.into_iter().filter(|&compute| op.takes(compute)) {
            for dialect in [Dialect::Cuda, Dialect::Metal] {
                let name = |slot| format!("{slot:?}").replace(['(', ')'], "_");
                let Some(text) = body(op.program(), compute, dialect, name) else {
                    assert_eq!((compute, dialect), (DType::F64, Dialect::Metal));
                    continue;
                };
                assert_eq!(text.lines().count(), op.program().insts().len() + 1, "{}", op.name());
                assert_eq!(text.matches('(').count(), text.matches(')').count(), "{text}");
                assert!(text.lines().all(|line| line.ends_with(';')), "{text}");
            }
        }
    }
    let metal = |op: Pointwise, compute| {
        let name = |slot| match slot {
            Slot::Input(index) => format!("x{index}"),
            Slot::Param(index) => format!("p{index}"),
            Slot::Output(index) => format!("y{index}"),
        };
        body(op.program(), compute, Dialect::Metal, name).expect("Metal has all but f64")
    };
    assert_eq!(
        metal(Pointwise::isinf, DType::F32),
        "const float v0 = x0;\nconst float v1 = fabs(v0);\nconst float v2 = as_type<float>(0x7f800000u);\n\
         const bool v3 = v1 == v2;\ny0 = v3;\n"
    );
    assert_eq!(
        metal(Pointwise::add, DType::I64),
        "const long v0 = x0;\nconst long v1 = x1;\nconst long v2 = (long)((ulong)v0 + (ulong)v1);\ny0 = v2;\n"
    );
}
