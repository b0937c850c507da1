//! Known answers, the documented formulas element by element, ranges, moments, layouts.

use super::*;
use crate::kernels::testing::{Rng, Tensor};
use raddle_base::{Dims, Scalar};
use raddle_sync::faults::{Fault, assert_caught};

fn run(distribution: Distribution, out: &mut Tensor, probability: Option<&Tensor>) -> Vec<Scalar> {
    let view = *out.output().view();
    let probability = probability.map(|tensor| tensor.view());
    // SAFETY: live views.
    unsafe {
        execute(distribution, 0x1234_5678_9abc_def0, u64::MAX - 3, &view, probability.as_ref(), Threads(2))
    };
    assert!(out.guards_hold());
    out.read()
}

fn vector(count: usize) -> Dims {
    Dims::new(&[count]).expect("one axis")
}

#[test]
fn philox_gives_the_known_answers_of_its_authors() {
    // kat_vectors of Random123: counter 0 and key 0.
    assert_eq!(philox(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
}

#[test]
fn elements_follow_the_documented_formulas() {
    let block = |index: usize| philox((u64::MAX - 3).wrapping_add(index as u64), 0, 0x1234_5678_9abc_def0);
    let pair = |i: usize| {
        let words = block(i / 2);
        u64::from(words[i % 2 * 2]) | u64::from(words[i % 2 * 2 + 1]) << 32
    };
    let unit = |i: usize| (block(i / 4)[i % 4] >> 8) as f64 / 2f64.powi(24);
    let count = 1500;
    let out = |dtype| Tensor::packed(dtype, vector(count));
    let uniform = run(Distribution::Uniform { low: -1.0, high: 3.0 }, &mut out(DType::F64), None);
    let narrow = run(Distribution::Uniform { low: -1.0, high: 3.0 }, &mut out(DType::F32), None);
    let normal = run(Distribution::Normal { mean: 1.0, std: 2.0 }, &mut out(DType::F32), None);
    let integer = run(Distribution::Integer { low: -3, high: 4 }, &mut out(DType::I64), None);
    let exponential = run(Distribution::Exponential { rate: 2.0 }, &mut out(DType::F32), None);
    let coin = run(Distribution::Bernoulli { p: 0.25 }, &mut out(DType::U8), None);
    for i in 0..count {
        let w = pair(i);
        assert_eq!(uniform[i].to_f64(), -1.0 + 4.0 * ((w >> 11) as f64 / 2f64.powi(53)));
        assert_eq!(integer[i].to_i64(), -3 + ((u128::from(w) * 7) >> 64) as i64);
        assert!((narrow[i].to_f64() - (-1.0 + 4.0 * unit(i))).abs() < 3e-7);
        let words = [block(i / 4)[i % 4 / 2 * 2], block(i / 4)[i % 4 / 2 * 2 + 1]];
        let [u, v] = [words[0], words[1] << 1].map(|word| f64::from(word >> 9) / 2f64.powi(23));
        let radius = (-2.0 * (u + 2f64.powi(-24)).ln()).sqrt() * if words[1] >> 31 == 0 { 1.0 } else { -1.0 };
        let angle = std::f64::consts::PI * (v - 0.5);
        let expected = 1.0 + 2.0 * radius * if i % 2 == 0 { angle.cos() } else { angle.sin() };
        assert!((normal[i].to_f64() - expected).abs() < 2e-6, "{i}: {:?} {expected}", normal[i]);
        assert!((exponential[i].to_f64() + (1.0 - unit(i)).ln() / 2.0).abs() < 1e-6);
        assert_eq!(coin[i].to_i64(), i64::from(unit(i) < 0.25));
    }
}

/// 0 has no place among them, as it is divided by: the first step of the unit counts as half of one.
#[test]
fn exponential_numbers_are_positive() {
    for (dtype, rate, expected) in [
        (DType::F32, 2.0f32, 0.25 / 16_777_216.0),
        (DType::F16, 1.0, 1.0 / 16_777_216.0),
        (DType::F32, f32::INFINITY, f64::from(f32::from_bits(1))),
    ] {
        let narrow = ExponentialF32 { rate, least: least_positive(dtype) as f32 };
        assert_eq!(narrow.two(0, 0xff).map(f64::from), [expected; 2], "{dtype}, rate {rate}");
        assert!(narrow.two(0x100, u32::MAX).iter().all(|&value| f64::from(value) >= expected));
    }
    let wide = ExponentialF64 { rate: 1.0, least: least_positive(DType::F64) };
    assert_eq!((wide.one(0, 0), wide.one(0x7ff, 0)), (0.5 * 2f64.powi(-53), 0.5 * 2f64.powi(-53)));
    assert!(wide.one(0x800, 0) > 2f64.powi(-54));
}

/// Of the 2^32 words those below p · 2^32 are ones; where there is one just at it, 32 bits more decide.
#[test]
fn probabilities_are_met_in_steps_of_2_to_the_minus_64() {
    let (counter, key) = (u64::MAX - 3, 0x1234_5678_9abc_def0);
    let count = 1500;
    for i in [0, 1, 2, 3, 700, 1499] {
        let [word, more] = [0, 1].map(|part| philox(counter.wrapping_add(i as u64 / 4), part, key)[i % 4]);
        let of = |word: f64, more: f64| (word + more / TWO_32) / TWO_32;
        let (word, more) = (f64::from(word), f64::from(more));
        // Of `more` an f64 behind 32 bits has 21.
        for (p, expected) in [
            (of(word, 0.0), 0),
            (of(word + 1.0, 0.0), 1),
            (of(word, more - 4096.0), 0),
            (of(word, more + 4096.0), 1),
        ] {
            let mut given = Tensor::packed(DType::F64, vector(count));
            given.write(|_| Scalar::Float(p));
            for found in [
                run(Distribution::Bernoulli { p }, &mut Tensor::packed(DType::U8, vector(count)), None),
                run(
                    Distribution::Bernoulli { p: 0.0 },
                    &mut Tensor::packed(DType::F32, vector(count)),
                    Some(&given),
                ),
            ] {
                assert_eq!(found[i].to_i64(), expected, "element {i}, p {p:e}");
            }
        }
    }
}

/// The upper 64 bits are those of the block, the lower ones of its second part.
#[test]
fn wide_ranges_take_128_bits() {
    let (low, range) = (-5i64, 3u64 << 61);
    let high = low.wrapping_add(range as i64);
    let found = run(Distribution::Integer { low, high }, &mut Tensor::packed(DType::I64, vector(1500)), None);
    for (i, found) in found.iter().enumerate() {
        let pair = |part| {
            let words = philox((u64::MAX - 3).wrapping_add(i as u64 / 2), part, 0x1234_5678_9abc_def0);
            u64::from(words[i % 2 * 2]) | u64::from(words[i % 2 * 2 + 1]) << 32
        };
        // Exactly: ⌊(upper · 2^64 + lower) · range / 2^128⌋.
        let (upper, lower) =
            (u128::from(pair(0)) * u128::from(range), u128::from(pair(1)) * u128::from(range));
        let expected = low.wrapping_add(((upper + (lower >> 64)) >> 64) as i64);
        assert_eq!(found.to_i64(), expected);
    }
    let mut counts = [0; 3];
    found.iter().for_each(|found| counts[(found.to_i64() - low) as usize % 3] += 1);
    assert!(counts.iter().all(|count| (400..600).contains(count)), "{counts:?}");
}

#[test]
fn every_level_draws_the_same() {
    fn bits<M: Map<Value = f32>>(of: M, level: Level) -> Vec<u32> {
        let mut words = [[MaybeUninit::uninit(); BLOCK_COUNT_MAX]; 4];
        let mut values = [MaybeUninit::<f32>::uninit(); CHUNK_COUNT];
        // SAFETY: the level is this machine's; the words of all blocks are drawn before they are mapped, all values written
        // before they are read.
        unsafe {
            draw(level, &mut words, CHUNK_COUNT / M::IN_A_BLOCK, 5, 0, 7);
            map::<M>(level, of, &words, &mut values);
            values.iter().map(|value| value.assume_init().to_bits()).collect()
        }
    }
    for level in Level::all() {
        let (normal, exponential) =
            (NormalF32 { mean: 1.0, std: 3.0 }, ExponentialF32 { rate: 3.0, least: 0.0 });
        assert_eq!(bits(normal, level), bits(normal, Level::Baseline), "{level:?}");
        assert_eq!(bits(exponential, level), bits(exponential, Level::Baseline), "{level:?}");
    }
}

#[test]
fn values_depend_on_the_position_only() {
    let distributions = [
        (Distribution::Normal { mean: 0.0, std: 1.0 }, DType::F32),
        (Distribution::Uniform { low: 0.0, high: 1.0 }, DType::BF16),
        (Distribution::Normal { mean: 0.0, std: 1.0 }, DType::F64),
        (Distribution::Exponential { rate: 1.0 }, DType::F16),
        (Distribution::Integer { low: i64::MIN, high: i64::MAX }, DType::I64),
        (Distribution::Bernoulli { p: 0.3 }, DType::Bool),
    ];
    for (seed, shape) in
        [[4, 2, 3].as_slice(), &[3, 7], &[1], &[300, 301], &[7, 1, 129]].into_iter().enumerate()
    {
        for (distribution, dtype) in distributions {
            let shape = Dims::new(shape).expect("few axes");
            let packed = run(distribution, &mut Tensor::packed(dtype, shape), None);
            let rng = &mut Rng(seed as u64);
            for _ in 0..4 {
                let strided = run(distribution, &mut Tensor::random(rng, dtype, shape, false), None);
                assert_eq!(strided, packed, "{distribution:?} {dtype} {shape:?}");
            }
        }
    }
}

#[test]
fn fault_draws_by_place() {
    assert_caught(Fault::draws_by_place, "kernels::random::tests::values_depend_on_the_position_only");
}

#[test]
fn uniform_never_gives_its_upper_bound() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for (low, high) in
            [(0.0, 1.0), (-1.0, 0.0), (1.0, 1.0 + 1e-6), (-2.0, -1.0), (1e4, 1.0001e4), (-3e38, 3e38)]
        {
            if dtype == DType::F16 && high > 1e5 {
                continue;
            }
            let values =
                run(Distribution::Uniform { low, high }, &mut Tensor::packed(dtype, vector(70_000)), None);
            for value in values {
                let value = value.to_f64();
                assert!(value < high && value.is_finite(), "{dtype} [{low}, {high}): {value}");
            }
        }
    }
}

#[test]
fn moments_are_right() {
    let count = 200_000;
    let moments = |distribution, dtype| {
        let values = run(distribution, &mut Tensor::packed(dtype, vector(count)), None);
        let mean = values.iter().map(|x| x.to_f64()).sum::<f64>() / count as f64;
        let variance = values.iter().map(|x| (x.to_f64() - mean).powi(2)).sum::<f64>() / count as f64;
        (mean, variance)
    };
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for (distribution, mean, variance) in [
            (Distribution::Uniform { low: -1.0, high: 1.0 }, 0.0, 1.0 / 3.0),
            (Distribution::Normal { mean: 0.5, std: 2.0 }, 0.5, 4.0),
            (Distribution::Exponential { rate: 2.0 }, 0.5, 0.25),
            (Distribution::Bernoulli { p: 0.25 }, 0.25, 0.1875),
        ] {
            let (found_mean, found_variance) = moments(distribution, dtype);
            assert!((found_mean - mean).abs() < 0.02, "{distribution:?} {dtype}: mean {found_mean}");
            assert!(
                (found_variance / variance - 1.0).abs() < 0.02,
                "{distribution:?} {dtype}: variance {found_variance}"
            );
        }
    }
}

#[test]
fn integers_keep_to_their_range() {
    let draw = |low, high, dtype, count| {
        let values =
            run(Distribution::Integer { low, high }, &mut Tensor::packed(dtype, vector(count)), None);
        values.into_iter().map(Scalar::to_i64).collect::<Vec<i64>>()
    };
    let mut seen = draw(1 << 24, (1 << 24) + 3, DType::I32, 10_000);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [1 << 24, (1 << 24) + 1, (1 << 24) + 2]);
    let mut seen = draw(1 << 41, (1 << 41) + 500, DType::I64, 10_000);
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 499 && seen[0] >= 1 << 41 && *seen.last().expect("some") < (1 << 41) + 500);
    let seven = draw(-3, 4, DType::I64, 70_000);
    for value in -3..4 {
        let count = seven.iter().filter(|x| **x == value).count();
        assert!((9_500..10_500).contains(&count), "{value}: {count}");
    }
    let wide = draw(i64::MIN, i64::MAX, DType::I64, 10_000);
    assert!(wide.iter().any(|x| *x < 0) && wide.iter().any(|x| *x > 0) && !wide.contains(&i64::MAX));
}

#[test]
fn an_expanded_probability_is_read_where_it_lies() {
    let shape = Dims::new(&[4, 3, 2]).expect("three axes");
    let strides = Dims::new(&[0, 0, 1]).expect("three axes");
    for dtype in [DType::F16, DType::F32, DType::F64] {
        let mut p = Tensor::new(dtype, raddle_base::Layout::new(shape, strides, 3));
        p.write(|i| Scalar::Float([0.0, 1.0][i % 2]));
        let coins = run(Distribution::Bernoulli { p: 0.5 }, &mut Tensor::packed(DType::U8, shape), Some(&p));
        for (i, coin) in coins.into_iter().enumerate() {
            assert_eq!(coin, Scalar::Int(i as i64 % 2));
        }
    }
}
