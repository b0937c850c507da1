//! The pointwise ops from their definitions, not from the rows of the op table: in `f64` for floats, in `i128` for
//! integers. Where a formula in `f64` isn't a good reference for an `f64` result, it is computed with twice the digits.

use crate::{array::round, report::Expected};
use raddle::{DType, Pointwise, Scalar};

/// What the op gives for one element. `dtype` is the one in which the op takes its operands (after promotion); `inputs`
/// and `params` are numbers of it.
pub fn reference(op: Pointwise, dtype: DType, inputs: &[Scalar], params: &[Scalar]) -> Expected {
    if let Some(truth) = truth(op, inputs) {
        return Expected::Exactly(Scalar::Bool(truth));
    }
    if let Some(chosen) = choice(op, inputs, params) {
        return Expected::Exactly(round(dtype, chosen));
    }
    if dtype == DType::Bool {
        return Expected::Exactly(Scalar::Bool(of_bools(op, inputs)));
    }
    if dtype.is_float() {
        // Parameters are numbers of the dtype to compute in, which is f32 for the 16-bit floats.
        let params: Vec<f64> = params.iter().map(|&param| round(dtype.compute(), param).to_f64()).collect();
        let inputs: Vec<f64> = inputs.iter().map(|input| input.to_f64()).collect();
        let value = of_floats(op, &inputs, &params);
        return Expected::ulp(dtype, value, tolerance(op, dtype));
    }
    let whole =
        |values: &[Scalar]| values.iter().map(|&value| i128::from(value.to_i64())).collect::<Vec<_>>();
    let value = of_integers(op, dtype, &whole(inputs), &whole(params));
    // Arithmetic wraps: the low 64 bits, then those of the dtype.
    Expected::Exactly(round(dtype, Scalar::Int(value as i64)))
}

/// The row's tolerance, with what the reference itself may be off by in `f64`, and half a unit for the last rounding.
fn tolerance(op: Pointwise, dtype: DType) -> f64 {
    let row = op.row().ulp.max(0.5);
    match dtype {
        // std's functions are good to one unit, and the formulas here use at most two of them.
        DType::F64 => row + if row > 1.0 { 2.0 } else { 0.0 },
        DType::F32 => row + 1e-3,
        // The error of the f32 result is hundredths of a unit here.
        _ => 0.51,
    }
}

/// Ops whose result is a truth value. They compare exact numbers: integers as integers.
fn truth(op: Pointwise, x: &[Scalar]) -> Option<bool> {
    use Pointwise::*;
    let both = |of_int: fn(i128, i128) -> bool, of_float: fn(f64, f64) -> bool| match (x[0], x[1]) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => of_float(x[0].to_f64(), x[1].to_f64()),
        _ => of_int(x[0].to_i64().into(), x[1].to_i64().into()),
    };
    let not_zero = |value: Scalar| value.to_f64() != 0.0;
    Some(match op {
        eq => both(|a, b| a == b, |a, b| a == b),
        ne => both(|a, b| a != b, |a, b| a != b),
        lt => both(|a, b| a < b, |a, b| a < b),
        le => both(|a, b| a <= b, |a, b| a <= b),
        gt => both(|a, b| a > b, |a, b| a > b),
        ge => both(|a, b| a >= b, |a, b| a >= b),
        isnan => x[0].to_f64().is_nan(),
        isinf => x[0].to_f64().is_infinite(),
        isfinite => x[0].to_f64().is_finite(),
        isposinf => x[0].to_f64() == f64::INFINITY,
        isneginf => x[0].to_f64() == -f64::INFINITY,
        signbit => negative(x[0].to_f64()),
        logical_and => not_zero(x[0]) && not_zero(x[1]),
        logical_or => not_zero(x[0]) || not_zero(x[1]),
        logical_xor => not_zero(x[0]) != not_zero(x[1]),
        logical_not => !not_zero(x[0]),
        _ => return None,
    })
}

/// Ops that hand on one of their operands.
fn choice(op: Pointwise, x: &[Scalar], p: &[Scalar]) -> Option<Scalar> {
    Some(match op {
        Pointwise::copy => x[0],
        Pointwise::fill => p[0],
        Pointwise::where_ => x[if x[0].to_f64() != 0.0 { 1 } else { 2 }],
        Pointwise::heaviside if x[0].to_f64() == 0.0 => x[1],
        Pointwise::heaviside => Scalar::Int(i64::from(x[0].to_f64() > 0.0)),
        Pointwise::fmax if x[0].to_f64().is_nan() => x[1],
        Pointwise::fmin if x[0].to_f64().is_nan() => x[1],
        Pointwise::fmax | Pointwise::fmin if x[1].to_f64().is_nan() => x[0],
        Pointwise::hardtanh if x[0].to_f64() <= p[0].to_f64() => p[0],
        Pointwise::hardtanh if x[0].to_f64() >= p[1].to_f64() => p[1],
        Pointwise::threshold if x[0].to_f64() <= p[0].to_f64() => p[1],
        Pointwise::hardtanh | Pointwise::threshold => x[0],
        Pointwise::nan_to_num => match x[0].to_f64() {
            value if value.is_nan() => p[0],
            f64::INFINITY => p[1],
            f64::NEG_INFINITY => p[2],
            _ => x[0],
        },
        Pointwise::masked_fill => {
            if x[1].to_f64() != 0.0 {
                p[0]
            } else {
                x[0]
            }
        }
        _ => return None,
    })
}

fn of_bools(op: Pointwise, x: &[Scalar]) -> bool {
    use Pointwise::*;
    let x: Vec<bool> = x.iter().map(|value| value.to_bool()).collect();
    match op {
        add | maximum | fmax | clamp_min | bitwise_or => x[0] || x[1],
        mul | minimum | fmin | clamp_max | bitwise_and => x[0] && x[1],
        sign => x[0],
        bitwise_xor => x[0] != x[1],
        bitwise_not => !x[0],
        _ => unreachable!("{} of bools", op.name()),
    }
}

fn of_integers(op: Pointwise, dtype: DType, x: &[i128], p: &[i128]) -> i128 {
    use Pointwise::*;
    let bits = 8 * dtype.size_bytes() as i128;
    // What would not fit is wrapped before it is looked at again.
    let wrapped = |value: i128| i128::from(crate::array::round(dtype, Scalar::Int(value as i64)).to_i64());
    match op {
        add => x[0] + x[1],
        sub => x[0] - x[1],
        mul => x[0] * x[1],
        square => x[0] * x[0],
        neg => -x[0],
        abs => wrapped(x[0].abs()),
        sign => x[0].signum(),
        floor_divide if x[1] == 0 => 0,
        floor_divide => x[0].div_euclid(x[1]) - i128::from(x[1] < 0 && x[0].rem_euclid(x[1]) != 0),
        trunc_divide if x[1] == 0 => 0,
        trunc_divide => x[0] / x[1],
        rem if x[1] == 0 => 0,
        rem => {
            let m = x[0].rem_euclid(x[1]);
            if x[1] < 0 && m != 0 { m + x[1] } else { m }
        }
        fmod if x[1] == 0 => 0,
        fmod => x[0] % x[1],
        pow => power(x[0], x[1]),
        addcmul => x[0] + wrapped(wrapped(p[0] * x[1]) * x[2]),
        relu => x[0].max(0),
        floor | ceil | round | trunc => x[0],
        frac => 0,
        minimum | fmin => x[0].min(x[1]),
        maximum | fmax => x[0].max(x[1]),
        clamp => x[0].max(x[1]).min(x[2]),
        clamp_min => x[0].max(x[1]),
        clamp_max => x[0].min(x[1]),
        bitwise_and => x[0] & x[1],
        bitwise_or => x[0] | x[1],
        bitwise_xor => x[0] ^ x[1],
        bitwise_not => !x[0],
        bitwise_left_shift => {
            if (0..bits).contains(&x[1]) {
                x[0] << x[1]
            } else {
                0
            }
        }
        bitwise_right_shift => x[0] >> if (0..bits).contains(&x[1]) { x[1] } else { 127 },
        _ => unreachable!("{} of integers", op.name()),
    }
}

/// Repeated multiplication, modulo 2^64.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => {
                if exponent % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1u64, base as u64, exponent as u128);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    i128::from(result as i64)
}

fn of_floats(op: Pointwise, x: &[f64], p: &[f64]) -> f64 {
    use Pointwise::*;
    let larger = super::structured::larger;
    let smaller = |a: f64, b: f64| -larger(-a, -b);
    match op {
        add => x[0] + x[1],
        sub => x[0] - x[1],
        mul => x[0] * x[1],
        div => x[0] / x[1],
        floor_divide => floor_of_quotient(x[0], x[1]),
        trunc_divide => trunc_of_quotient(x[0], x[1]),
        rem => {
            let m = x[0] % x[1];
            if m != 0.0 && (m < 0.0) != (x[1] < 0.0) { m + x[1] } else { m }
        }
        fmod => x[0] % x[1],
        pow => x[0].powf(x[1]),
        square => x[0] * x[0],
        neg => -x[0],
        abs => x[0].abs(),
        sign => f64::from(i8::from(x[0] > 0.0) - i8::from(x[0] < 0.0)),
        reciprocal => x[0].recip(),
        sqrt => x[0].sqrt(),
        rsqrt => 1.0 / x[0].sqrt(),
        addcmul => x[0] + p[0] * x[1] * x[2],
        addcdiv => x[0] + p[0] * x[1] / x[2],
        lerp => (1.0 - x[2]) * x[0] + x[2] * x[1],
        exp => x[0].exp(),
        expm1 => x[0].exp_m1(),
        log => x[0].ln(),
        log1p => x[0].ln_1p(),
        log2 => x[0].log2(),
        log10 => x[0].log10(),
        sin => x[0].sin(),
        cos => x[0].cos(),
        tan => x[0].tan(),
        asin => x[0].asin(),
        acos => x[0].acos(),
        atan => x[0].atan(),
        atan2 => x[0].atan2(x[1]),
        sinh => x[0].sinh(),
        cosh => x[0].cosh(),
        tanh => x[0].tanh(),
        erf => libm::erf(x[0]),
        erfc => libm::erfc(x[0]),
        sigmoid => logistic(x[0]),
        relu => {
            if x[0] <= 0.0 {
                0.0
            } else {
                x[0]
            }
        }
        leaky_relu => {
            if x[0] > 0.0 {
                x[0]
            } else {
                p[0] * x[0]
            }
        }
        elu => {
            if x[0] > 0.0 {
                x[0]
            } else {
                p[0] * x[0].exp_m1()
            }
        }
        gelu => x[0] * normal_distribution(x[0]),
        gelu_tanh => x[0] * gelu_tanh_factor(x[0]),
        silu => x[0] * logistic(x[0]),
        softplus => {
            let z = x[0] * p[0];
            if z > p[1] { x[0] } else { z.exp().ln_1p() / p[0] }
        }
        floor => x[0].floor(),
        ceil => x[0].ceil(),
        round => x[0].round_ties_even(),
        trunc => x[0].trunc(),
        frac => x[0] - x[0].trunc(),
        minimum => smaller(x[0], x[1]),
        maximum => larger(x[0], x[1]),
        clamp => smaller(larger(x[0], x[1]), x[2]),
        clamp_min => larger(x[0], x[1]),
        clamp_max => smaller(x[0], x[1]),
        fmin => smaller(x[0], x[1]),
        fmax => larger(x[0], x[1]),
        hypot => libm::hypot(x[0], x[1]),
        copysign => {
            if negative(x[1]) {
                -x[0].abs()
            } else {
                x[0].abs()
            }
        }
        ldexp => x[0] * x[1].exp2(),
        deg2rad => x[0].to_radians(),
        rad2deg => x[0].to_degrees(),
        exp2 => x[0].exp2(),
        // Both terms beside the larger one.
        logaddexp => log_sum(x[0], x[1], 1.0),
        logaddexp2 => log_sum(x[0], x[1], std::f64::consts::LN_2),
        xlogy if x[0] == 0.0 && !x[1].is_nan() => 0.0,
        xlogy => x[0] * x[1].ln(),
        xlog1py if x[0] == 0.0 && !x[1].is_nan() => 0.0,
        xlog1py => x[0] * x[1].ln_1p(),
        entr if x[0] == 0.0 => 0.0,
        entr if x[0] < 0.0 => -f64::INFINITY,
        entr => -x[0] * x[0].ln(),
        logit => {
            let z = if p[0] < 0.0 { x[0] } else { x[0].min(1.0 - p[0]).max(p[0]) };
            // A difference of logarithms: not the quotient of the row.
            if x[0].is_nan() { x[0] } else { z.ln() - (-z).ln_1p() }
        }
        asinh => libm::asinh(x[0]),
        acosh => libm::acosh(x[0]),
        atanh => libm::atanh(x[0]),
        sinc if x[0] == 0.0 => 1.0,
        sinc if x[0].fract() == 0.0 => 0.0,
        sinc => (std::f64::consts::PI * x[0]).sin() / (std::f64::consts::PI * x[0]),
        erfinv => inverse_error_function(x[0]),
        ndtr => normal_distribution(x[0]),
        hardsigmoid => hard_sigmoid(x[0]),
        hardswish if x[0] <= -3.0 => 0.0,
        hardswish => x[0] * hard_sigmoid(x[0]),
        hardshrink if x[0].abs() <= p[0] && p[0] >= 0.0 => 0.0,
        hardshrink => x[0],
        softshrink => {
            if x[0] > p[0] {
                x[0] - p[0]
            } else if x[0] < -p[0] {
                x[0] + p[0]
            } else {
                0.0 * x[0]
            }
        }
        softsign => x[0] / (1.0 + x[0].abs()),
        // Near 0 by its series, of which the difference has no digits.
        tanhshrink if x[0] != 0.0 && x[0].abs() < 0.02 => {
            let q = x[0] * x[0];
            x[0] * q * (1.0 / 3.0 - q * (2.0 / 15.0 - q * (17.0 / 315.0 - q * 62.0 / 2835.0)))
        }
        tanhshrink => x[0] - x[0].tanh(),
        logsigmoid if x[0].is_nan() => x[0],
        logsigmoid => x[0].min(0.0) - (-x[0].abs()).exp().ln_1p(),
        mish => {
            let e = x[0].exp();
            if e > 1e10 { x[0] } else { x[0] * (e * (e + 2.0) / (e * (e + 2.0) + 2.0)) }
        }
        selu if x[0] > 0.0 => 1.050_700_987_355_480_5 * x[0],
        selu => 1.050_700_987_355_480_5 * 1.673_263_242_354_377_2 * x[0].exp_m1(),
        celu if x[0] > 0.0 => x[0],
        celu => p[0] * (x[0] / p[0]).exp_m1(),
        prelu if x[0] > 0.0 => x[0],
        prelu => x[1] * x[0],
        _ => unreachable!("{} of floats", op.name()),
    }
}

/// Below 0, or -0; a NaN is neither.
fn negative(x: f64) -> bool {
    x.is_sign_negative() && !x.is_nan()
}

/// `ln(e^(u·x) + e^(u·y)) / u`
fn log_sum(x: f64, y: f64, unit: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    let most = x.max(y);
    if most.is_infinite() { most } else { most + ((unit * (x.min(y) - most)).exp().ln_1p()) / unit }
}

/// `min(max(x + 3, 0), 6) / 6`
fn hard_sigmoid(x: f64) -> f64 {
    if x.is_nan() { x } else { (x + 3.0).clamp(0.0, 6.0) / 6.0 }
}

/// By halving an interval on `erf`, or on `erfc` where that has more digits.
fn inverse_error_function(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 {
        return x * f64::INFINITY;
    }
    let (mut low, mut high) = (0.0f64, 6.0f64);
    for _ in 0..1200 {
        let middle = 0.5 * (low + high);
        let below = if a < 0.5 { libm::erf(middle) < a } else { libm::erfc(middle) > 1.0 - a };
        *(if below { &mut low } else { &mut high }) = middle;
    }
    high.copysign(x)
}

/// The largest integer not above the exact quotient. The sign of `q · y − x` is exact with a fused product.
fn trunc_of_quotient(x: f64, y: f64) -> f64 {
    let rounded = x / y;
    if y == 0.0 || !rounded.is_finite() {
        return rounded;
    }
    let q = rounded.trunc();
    // Is q · y beyond x? Then the quotient was rounded up to a whole number.
    if (q * y).abs() > x.abs() || q.mul_add(y, -x) * x.signum() > 0.0 { q - q.signum() } else { q }
}

fn floor_of_quotient(x: f64, y: f64) -> f64 {
    let rounded = x / y;
    if x.is_infinite() && y != 0.0 {
        // There is no largest integer; PyTorch and Python say NaN.
        return f64::NAN;
    }
    if y == 0.0 || !rounded.is_finite() {
        return rounded;
    }
    if y.is_infinite() {
        return if x != 0.0 && (x < 0.0) != (y < 0.0) { -1.0 } else { rounded };
    }
    let mut q = rounded.floor();
    // Is q · y beyond x, seen from 0 in the direction of y?
    let beyond = |q: f64| q.mul_add(y, -x) * y.signum() > 0.0;
    if beyond(q) {
        q -= 1.0;
    } else if !beyond(q + 1.0) {
        q += 1.0;
    }
    if q == 0.0 { 0.0f64.copysign(rounded) } else { q }
}

/// `1 / (1 + e⁻ˣ)` without overflow.
fn logistic(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// `Φ(x) = erfc(−x/√2) / 2`. For negative `x` the error of the argument would be magnified x²-fold: it is computed too,
/// and put right by the derivative.
fn normal_distribution(x: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
    /// `1/√2 − FRAC_1_SQRT_2`
    const REST: f64 = -4.833_646_656_726_457e-17;
    let z = -x * FRAC_1_SQRT_2;
    let error = (-x).mul_add(FRAC_1_SQRT_2, -z) - x * REST;
    let correction = if z.is_finite() { FRAC_2_SQRT_PI * (-z * z).exp() * error } else { 0.0 };
    0.5 * (libm::erfc(z) - correction)
}

/// `(1 + tanh u) / 2 = 1 / (1 + e^(−2u))` with `u = √(2/π) (x + 0.044715 x³)`, the exponent with twice the digits.
fn gelu_tanh_factor(x: f64) -> f64 {
    /// `2 √(2/π)` in two parts.
    const SCALE: (f64, f64) = (1.595_769_121_605_730_8, -9.969_308_809_110_92e-17);
    if !x.is_finite() {
        return logistic(x);
    }
    let square = product(x, x);
    let (high, low) = (0.044715 * square.0, 0.044715f64.mul_add(square.0, -(0.044715 * square.0)));
    let inner = (1.0 + high, high - ((1.0 + high) - 1.0) + low + 0.044715 * square.1);
    let scaled = product(SCALE.0 * x, inner.0);
    let rest = SCALE.0.mul_add(x, -(SCALE.0 * x)) * inner.0 + SCALE.1 * x * inner.0 + SCALE.0 * x * inner.1;
    let z = (scaled.0, scaled.1 + rest);
    let e = (-z.0.abs()).exp() * (1.0 - z.1 * z.0.signum());
    if z.0 < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// A product and what its rounding left.
fn product(a: f64, b: f64) -> (f64, f64) {
    (a * b, a.mul_add(b, -(a * b)))
}
