//! Programs run one element at a time, for tests: the meaning of each instruction, written down once more, plainly.

use crate::program::{Binary, Compare, Inst, Logic, Program, Unary};
use raddle_base::{DType, Scalar};

/// The outputs for one element, computed in `compute`; truth values are `Bool`.
pub(crate) fn eval(program: &Program, compute: DType, inputs: &[Scalar], params: &[Scalar]) -> Vec<Scalar> {
    let number = |value: Scalar| compute.round(value);
    let mut values: Vec<Scalar> = Vec::new();
    for inst in program.insts() {
        let v = |id: crate::Id| values[id.0 as usize];
        let truth = |id: crate::Id| v(id).to_bool();
        values.push(match *inst {
            Inst::Input(index) => number(inputs[usize::from(index)]),
            Inst::Param(index) => number(params[usize::from(index)]),
            Inst::Literal(bits) => number(Scalar::Float(f64::from_bits(bits))),
            Inst::Unary(op, a) => number(match v(a) {
                Scalar::Float(a) => Scalar::Float(unary_float(op, a)),
                Scalar::Int(a) => Scalar::Int(unary_int(op, a)),
                Scalar::Bool(a) if op == Unary::BitNot => Scalar::Bool(!a),
                other => other,
            }),
            Inst::Binary(op, a, b) => number(match (v(a), v(b)) {
                (Scalar::Float(a), Scalar::Float(b)) => Scalar::Float(binary_float(op, a, b)),
                (a, b) => {
                    Scalar::Int(binary_int(op, a.to_i64(), b.to_i64(), 8 * compute.size_bytes() as i64))
                }
            }),
            Inst::Compare(op, a, b) => Scalar::Bool(match (v(a), v(b)) {
                (Scalar::Float(a), Scalar::Float(b)) => compare(op, &a, &b),
                (a, b) => compare(op, &a.to_i64(), &b.to_i64()),
            }),
            Inst::Logic(op, a, b) => Scalar::Bool(match op {
                Logic::And => truth(a) && truth(b),
                Logic::Or => truth(a) || truth(b),
                Logic::Xor => truth(a) != truth(b),
            }),
            Inst::Not(a) => Scalar::Bool(!truth(a)),
            Inst::Select(mask, yes, no) => v(if truth(mask) { yes } else { no }),
            Inst::FromMask(a) => number(v(a)),
        });
    }
    program.outputs().iter().map(|id| values[id.0 as usize]).collect()
}

/// The same in `f64`.
pub(crate) fn eval_f64(program: &Program, inputs: &[f64], params: &[f64]) -> Vec<f64> {
    let scalars = |values: &[f64]| values.iter().map(|&value| Scalar::Float(value)).collect::<Vec<_>>();
    let outputs = eval(program, DType::F64, &scalars(inputs), &scalars(params));
    outputs.into_iter().map(Scalar::to_f64).collect()
}

fn compare<T: PartialOrd>(op: Compare, a: &T, b: &T) -> bool {
    match op {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
    }
}

fn unary_float(op: Unary, a: f64) -> f64 {
    match op {
        Unary::Neg => -a,
        Unary::Abs => a.abs(),
        Unary::Sqrt => a.sqrt(),
        Unary::Exp => a.exp(),
        Unary::Expm1 => a.exp_m1(),
        Unary::Log => a.ln(),
        Unary::Log1p => a.ln_1p(),
        Unary::Log2 => a.log2(),
        Unary::Log10 => a.log10(),
        Unary::Sin => a.sin(),
        Unary::Cos => a.cos(),
        Unary::Tan => a.tan(),
        Unary::Tanh => a.tanh(),
        Unary::Asin => a.asin(),
        Unary::Acos => a.acos(),
        Unary::Atan => a.atan(),
        Unary::Erf => libm::erf(a),
        Unary::Erfc => libm::erfc(a),
        Unary::Floor => a.floor(),
        Unary::Ceil => a.ceil(),
        Unary::Round => a.round_ties_even(),
        Unary::Trunc => a.trunc(),
        Unary::BitNot => panic!("bits of a float"),
    }
}

fn unary_int(op: Unary, a: i64) -> i64 {
    match op {
        Unary::Neg => a.wrapping_neg(),
        Unary::Abs => a.wrapping_abs(),
        Unary::BitNot => !a,
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => a,
        _ => panic!("{op:?} of an integer"),
    }
}

fn binary_float(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Rem => a % b,
        Binary::Pow => a.powf(b),
        Binary::Atan2 => a.atan2(b),
        Binary::Min | Binary::Max if a.is_nan() || b.is_nan() => f64::NAN,
        // std leaves open which of two zeros it gives.
        Binary::Min if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        Binary::Max if a == b => {
            if a.is_sign_negative() {
                b
            } else {
                a
            }
        }
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        _ => panic!("{op:?} of floats"),
    }
}

fn binary_int(op: Binary, a: i64, b: i64, bits: i64) -> i64 {
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div | Binary::Rem if b == 0 => 0,
        Binary::Div => a.wrapping_div(b),
        Binary::Rem => a.wrapping_rem(b),
        Binary::Pow => match (a, b) {
            (_, 0..) => {
                // Bit by bit of the exponent, from the highest.
                let square = |power: i64| power.wrapping_mul(power);
                (0..64)
                    .rev()
                    .fold(1, |power, bit| square(power).wrapping_mul(if b >> bit & 1 == 1 { a } else { 1 }))
            }
            (1, _) => 1,
            (-1, _) => 1 - 2 * (b & 1),
            _ => 0,
        },
        Binary::Atan2 => panic!("{op:?} of integers"),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::BitAnd => a & b,
        Binary::BitOr => a | b,
        Binary::BitXor => a ^ b,
        Binary::Shl => {
            if (0..bits).contains(&b) {
                a << b
            } else {
                0
            }
        }
        Binary::Shr => a >> if (0..bits).contains(&b) { b } else { 63 },
    }
}
