//! Accuracy against the library's `f64` functions, and the special values.

use super::{f32 as own, f64 as wide};
use crate::kernels::level::{Level, LoopFn};

/// About a million arguments: all exponents and signs, random mantissas, and every special value.
fn arguments() -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut all: Vec<f32> = (0..700_000).map(|_| f32::from_bits(next())).collect();
    // Where most functions have their shape.
    all.extend((0..300_000).map(|_| (next() as f32 / u32::MAX as f32 - 0.5) * 24.0));
    all.extend((0..100_000).map(|_| 1.0 + (next() as f32 / u32::MAX as f32 - 0.5) * 0.1));
    all.extend((0..100_000).map(|_| (next() as f32 / u32::MAX as f32 - 0.5) * 300.0));
    for special in
        [0.0, 1.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX, f32::INFINITY, f32::NAN, 88.722_84, 103.97]
    {
        all.extend([special, -special]);
    }
    all
}

/// The distance in units of the last place of the nearest `f32`.
fn ulps(found: f32, exact: f64) -> f64 {
    let near = exact as f32;
    if near.is_nan() || near.is_infinite() || found.is_nan() || found.is_infinite() {
        let same = found.is_nan() == near.is_nan() && (near.is_nan() || found == near);
        return if same { 0.0 } else { f64::INFINITY };
    }
    if found == 0.0 && near == 0.0 && found.is_sign_negative() != near.is_sign_negative() {
        return f64::INFINITY;
    }
    let exponent = (near.abs().to_bits() >> 23).max(1) as i32 - 127;
    (f64::from(found) - exact).abs() / 2f64.powi(exponent - 23)
}

fn run(run: LoopFn, x: &[f32]) -> Vec<f32> {
    let mut out = vec![0f32; x.len()];
    let none = std::ptr::null();
    // SAFETY: both are as long; the machine has the level that the loop was made for.
    unsafe { run(out.as_mut_ptr().cast(), x.as_ptr().cast(), none, none, x.len()) };
    out
}

#[test]
fn functions_are_as_accurate_as_they_say_and_the_same_at_every_level() {
    use raddle_op::Unary::*;
    type Exact = fn(f64) -> f64;
    let exact: [(raddle_op::Unary, f64, Exact); 16] = [
        (Exp, 2.0, f64::exp),
        (Expm1, 2.0, f64::exp_m1),
        (Log, 2.0, f64::ln),
        (Log1p, 2.0, f64::ln_1p),
        (Log2, 2.0, f64::log2),
        (Log10, 2.0, f64::log10),
        (Sin, 2.0, f64::sin),
        (Cos, 2.0, f64::cos),
        (Tan, 4.0, f64::tan),
        (Tanh, 4.0, f64::tanh),
        (Asin, 2.0, f64::asin),
        (Acos, 2.0, f64::acos),
        (Atan, 2.0, f64::atan),
        (Erf, 4.0, wide::erf),
        (Erfc, 4.0, wide::erfc),
        (Sqrt, 0.501, f64::sqrt),
    ];
    let x = arguments();
    let mut failures = Vec::new();
    for (op, allowed, exact) in exact {
        let make = |level| run(crate::kernels::loops::unary(op, raddle_base::DType::F32, level), &x);
        let found = make(Level::Baseline);
        let (worst, at) = found
            .iter()
            .zip(&x)
            .map(|(found, x)| (ulps(*found, exact(f64::from(*x))), *x))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .expect("there are arguments");
        println!("{op:?}: {worst:.3} ulp at {at:e}");
        if worst > allowed {
            failures.push(format!("{op:?}: {worst} ulp at {at:e}"));
        }
        for level in Level::all() {
            let other = make(level);
            let differs = found.iter().zip(&other).position(|(a, b)| a.to_bits() != b.to_bits());
            if let Some(at) = differs.filter(|at| !found[*at].is_nan() || !other[*at].is_nan()) {
                failures.push(format!("{op:?} at {:e} differs at level {level:?}", x[at]));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn functions_of_two_arguments_are_as_accurate_as_they_say() {
    let x = arguments();
    let mut worst = [0.0f64; 2];
    for pair in x.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let (wide_a, wide_b) = (f64::from(a), f64::from(b));
        worst[0] = worst[0].max(ulps(own::atan2(a, b), wide_a.atan2(wide_b)));
        for power in [b, b.round_ties_even(), (b * 0.01).clamp(-40.0, 40.0), 2.0, -0.5, 3.0] {
            worst[1] = worst[1].max(ulps(own::pow(a, power), wide_a.powf(f64::from(power))));
        }
    }
    println!("atan2: {}, pow: {}", worst[0], worst[1]);
    assert!(worst[0] <= 2.0 && worst[1] <= 4.0, "atan2 {} ulp, pow {} ulp", worst[0], worst[1]);
}

#[test]
fn powers_and_angles_of_special_values_are_those_of_c() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        f32::INFINITY,
        -f32::INFINITY,
        f32::NAN,
        1e30,
        -1e-30,
    ];
    for a in special {
        for b in special {
            for (own, library) in [(own::pow(a, b), a.powf(b)), (own::atan2(a, b), a.atan2(b))] {
                assert_eq!(own.is_nan(), library.is_nan(), "{a} {b}: {own} {library}");
                assert_eq!(
                    own.is_sign_negative() && !own.is_nan(),
                    library.is_sign_negative() && !library.is_nan(),
                    "{a} {b}"
                );
                assert!(own.is_nan() || ulps(own, f64::from(library)) <= 4.0, "{a} {b}: {own} {library}");
            }
        }
    }
}

/// The largest error in units of the last place, and where.
fn worst(arguments: impl Iterator<Item = f32>, error: impl Fn(f32) -> f64) -> (f64, f32) {
    arguments.map(|x| (error(x), x)).max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are arguments")
}

/// A debug build looks at one in so many arguments: it calls a library for each fused multiply-add.
const STEP: usize = if cfg!(debug_assertions) { 61 } else { 1 };

#[test]
fn cosine_and_sine_of_quarter_turns_are_as_good_as_they_say() {
    // All that are drawn.
    let all = (0..1 << 23).step_by(STEP).map(|i| i as f32 / (1 << 22) as f32 - 1.0);
    let sine = |v: f64| (v * std::f64::consts::FRAC_PI_2).sin();
    let (cosine_error, at) =
        worst(all.clone(), |v| ulps(own::quarter_turns(v).0, sine(1.0 - f64::from(v.abs()))));
    assert!(cosine_error < 2.3, "{cosine_error} at {at}");
    let (sine_error, at) = worst(all, |v| ulps(own::quarter_turns(v).1, sine(f64::from(v))));
    assert!(sine_error < 2.3, "{sine_error} at {at}");
    assert_eq!(own::quarter_turns(-1.0).0.to_bits(), 0);
}

#[test]
fn the_logarithm_for_drawing_is_as_good_as_it_says() {
    // All that are drawn.
    let all = (1..1 << 24).step_by(STEP).map(|i| i as f32 / (1 << 24) as f32);
    let (error, at) = worst(all, |x| ulps(own::minus_two_log(x), -2.0 * f64::from(x).ln()));
    assert!(error < 1.1, "{error} at {at}");
    assert_eq!(own::minus_two_log(1.0).to_bits(), 0);
}
