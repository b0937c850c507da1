//! Random numbers: their distributions, and that they depend on the generator alone.

use super::harness::{Drawing, having};
use crate::{
    Case,
    array::Array,
    layouts::{self, Placed, Placement, unwritten},
    report::check_same,
};
use raddle::{DType, Device, Generator, Layout, Result, Tensor};
use std::collections::HashSet;

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!(
        "draws": moments, ranges, wide_ranges, integers, same_for_every_layout, same_for_every_thread, same_on_every_device, coins, permutations, dropout,
        nothing_to_draw, errors
    )
}

/// The kinds of draws, by name, into a tensor.
fn draw(kind: &str, x: &Tensor, generator: &Generator) -> Result<()> {
    match kind {
        "normal" => x.normal_(1.0, 2.0, generator),
        "uniform" => x.uniform_(-1.0, 3.0, generator),
        "exponential" => x.exponential_(0.5, generator),
        "bernoulli" => x.bernoulli_(0.3, generator),
        _ => x.random_(0, 100, generator),
    }
    .map(drop)
}

const KINDS: [&str; 5] = ["normal", "uniform", "exponential", "bernoulli", "random"];

/// A call of the random suite; false if the op isn't of this file. What is drawn is what the CPU draws into plain memory, wherever it
/// goes.
pub fn draw_anywhere(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let shape = drawing.shape(drawing.below(5));
    let layout = drawing.layout(&shape, false);
    let seed = drawing.values.borrow_mut().bits();
    let p = drawing.pick(&[0.0, 0.3, 1.0]);
    let count = drawing.size();
    let cpu = drawing.exact.unwrap_or(drawing.device);
    // The logarithm and the cosine of f64 are the library's.
    let is_exact = drawing.reference.is_some()
        || dtype != DType::F64
        || !["normal", "randn", "exponential"].contains(&name)
        || cpu.name() == drawing.device.name();
    let generator = || Generator::new(seed);
    let of = |device: &Device, layout: (Layout, usize)| -> Option<Array> {
        let own = Placed::at(&unwritten(dtype, &shape), layout, device);
        let made = match name {
            "rand" => Tensor::rand(&shape, dtype, device, &generator()),
            "randn" => Tensor::randn(&shape, dtype, device, &generator()),
            "randint" => Tensor::randint(0, 100, &shape, dtype, device, &generator()),
            "randperm" => Tensor::randperm(count, device, &generator()),
            "dropout" => own.view.dropout(p, &generator()),
            kind if KINDS.contains(&kind) => draw(kind, &own.view, &generator()).map(|()| own.view.clone()),
            _ => return None,
        };
        let made = Array::read(&made.unwrap_or_else(|error| panic!("{name} of {dtype}: {error}")));
        own.check_guards(&format!("{name} of {dtype}"));
        Some(made)
    };
    let Some(found) = of(drawing.device, layout) else { return false };
    if is_exact {
        let expected = of(cpu, layouts::layout(&shape, Placement::Whole)).expect("it is known");
        check_same(&format!("{name} of {dtype}, {:?}", layout.0), &expected, &found);
    }
    true
}

/// Mean, variance and the third central moment of many, within five standard errors.
fn moments(device: &Device) {
    const COUNT: usize = 1 << 16;
    // (mean, variance, third central moment, fourth, sixth), of the distribution.
    let known = |kind: &str| match kind {
        "normal" => (1.0, 4.0, 0.0, 3.0 * 16.0, 15.0 * 64.0),
        "uniform" => (1.0, 16.0 / 12.0, 0.0, 256.0 / 80.0, 4096.0 / 448.0),
        "exponential" => (2.0, 4.0, 16.0, 9.0 * 16.0, 265.0 * 64.0),
        "bernoulli" => {
            (0.3, 0.21, 0.21 * 0.4, 0.21 * (1.0 - 3.0 * 0.21), 0.3 * 0.7f64.powi(6) + 0.7 * 0.3f64.powi(6))
        }
        _ => {
            let n = 100.0f64;
            (
                49.5,
                (n * n - 1.0) / 12.0,
                0.0,
                (n * n - 1.0) * (3.0 * n * n - 7.0) / 240.0,
                50.0f64.powi(6) / 7.0,
            )
        }
    };
    for dtype in having(device, &[DType::F32, DType::F64]) {
        for kind in KINDS {
            let x = Tensor::empty([COUNT], dtype, device).unwrap();
            draw(kind, &x, &Generator::new(12)).unwrap();
            let values: Vec<f64> = Array::read(&x).data.iter().map(|value| value.to_f64()).collect();
            let (mean, variance, third, fourth, sixth) = known(kind);
            let moment =
                |power: i32| values.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / COUNT as f64;
            let near = |found: f64, expected: f64, variance: f64| {
                let tolerance = 5.0 * (variance / COUNT as f64).sqrt();
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{kind} of {dtype}: {found}, expected {expected} ± {tolerance}"
                );
            };
            near(moment(1), 0.0, variance);
            near(moment(2), variance, fourth - variance * variance);
            near(moment(3), third, sixth - third * third);
            // Neighbours have nothing to do with each other.
            let neighbours =
                values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / COUNT as f64;
            near(neighbours, 0.0, variance * variance);
        }
    }
}

fn ranges(device: &Device) {
    for dtype in having(device, super::harness::FLOATS) {
        let x = Tensor::empty([20_000], dtype, device).unwrap();
        x.uniform_(0.0, 1.0, &Generator::new(3)).unwrap();
        let values: Vec<f64> = Array::read(&x).data.iter().map(|value| value.to_f64()).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)), "uniform of {dtype} leaves [0, 1)");
        x.exponential_(1.0, &Generator::new(4)).unwrap();
        let values: Vec<f64> = Array::read(&x).data.iter().map(|value| value.to_f64()).collect();
        assert!(values.iter().all(|value| value.is_finite() && *value > 0.0), "exponential of {dtype}");
        x.normal_(0.0, 1.0, &Generator::new(5)).unwrap();
        assert!(Array::read(&x).data.iter().all(|value| value.to_f64().abs() < 9.0), "normal of {dtype}");
    }
}

/// Of all that a dtype holds numbers are drawn evenly, too, though the range is twice the largest number.
fn wide_ranges(device: &Device) {
    const COUNT: usize = 20_000;
    for (dtype, most) in
        [(DType::F16, 65_504.0), (DType::BF16, 3.3e38), (DType::F32, 3.4e38), (DType::F64, 1.7e308)]
    {
        let x = Tensor::empty([COUNT], dtype, device).unwrap();
        for (low, high) in [(-most, most), (-most, 0.5 * most)] {
            x.uniform_(low, high, &Generator::new(6)).unwrap();
            let values: Vec<f64> = Array::read(&x).data.iter().map(|value| value.to_f64()).collect();
            let found = |part: usize| {
                let at = |end: usize| low * (1.0 - end as f64 / 4.0) + high * (end as f64 / 4.0);
                values.iter().filter(|value| (at(part)..at(part + 1)).contains(value)).count()
            };
            for part in 0..4 {
                assert!((4_700..=5_300).contains(&found(part)), "{dtype}: {} in quarter {part}", found(part));
            }
        }
    }
}

/// E-18: integers are drawn as integers.
fn integers(device: &Device) {
    let drawn = |low: i64, high: i64, count: usize, dtype| {
        let x = Tensor::randint(low, high, [count], dtype, device, &Generator::new(1)).unwrap();
        Array::read(&x).data.iter().map(|value| value.to_i64()).collect::<Vec<_>>()
    };
    let set = |values: &[i64]| values.iter().copied().collect::<HashSet<_>>();
    let top = drawn(1 << 24, (1 << 24) + 3, 10_000, DType::I32);
    assert_eq!(set(&top), HashSet::from([16_777_216, 16_777_217, 16_777_218]));
    let wide = drawn(1 << 41, (1 << 41) + 500, 10_000, DType::I64);
    assert!(wide.iter().all(|value| (1 << 41..(1 << 41) + 500).contains(value)) && set(&wide).len() >= 499);
    let around = drawn(-3, 4, 70_000, DType::I64);
    for value in -3..4 {
        let count = around.iter().filter(|&&found| found == value).count();
        assert!((9_500..=10_500).contains(&count), "{value} was drawn {count} times");
    }
    let coins = drawn(0, 2, 10_000, DType::Bool);
    assert!((4_700..=5_300).contains(&coins.iter().filter(|&&found| found == 1).count()));
    let all = drawn(i64::MIN, i64::MAX, 10_000, DType::I64);
    assert!(set(&all).len() == 10_000 && all.iter().any(|&v| v < 0) && all.iter().any(|&v| v > 0));
    assert!(set(&drawn(0, 256, 10_000, DType::U8)).len() == 256);
    // Of a range that isn't a power of two, as wide as it may be, all are equally likely.
    for low in [0, -(1 << 62)] {
        let wide = drawn(low, low + (3 << 61), 30_000, DType::I64);
        for rest in 0..3 {
            let count = wide.iter().filter(|&&value| (value - low) % 3 == rest).count();
            assert!((9_500..=10_500).contains(&count), "{count} of 30000 leave {rest}");
        }
    }
}

/// T8: what is drawn doesn't depend on strides, and gaps stay.
fn same_for_every_layout(device: &Device) {
    for dtype in having(device, super::harness::FLOATS) {
        for kind in KINDS {
            for shape in [&[][..], &[1], &[7], &[4, 2, 3], &[1001], &[37, 41]] {
                let mut first: Option<Array> = None;
                for placement in Placement::OUTPUTS {
                    let what = format!("{kind} of {dtype} {shape:?}, {placement:?}");
                    let x = Placed::output(dtype, shape, placement, device);
                    draw(kind, &x.view, &Generator::new(8)).unwrap();
                    let found = Array::read(&x.view);
                    x.check_guards(&what);
                    match &first {
                        Some(first) => check_same(&what, first, &found),
                        None => first = Some(found),
                    }
                }
            }
        }
    }
}

fn same_for_every_thread(device: &Device) {
    let fresh = |seed: u64| {
        let generator = Generator::new(seed);
        let x = Tensor::randn([300], DType::F32, device, &generator).unwrap();
        let y = Tensor::randint(0, 1000, [301], DType::I64, device, &generator).unwrap();
        (x.to_bytes().unwrap(), y.to_bytes().unwrap())
    };
    let expected = fresh(5);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| fresh(5))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
    assert_ne!(fresh(6), expected);
    // Splits: the same for every order in which they are used, and different from each other.
    let bytes = |generator: &Generator| {
        Tensor::rand([64], DType::F64, device, generator).unwrap().to_bytes().unwrap()
    };
    let (a, b) = (Generator::new(9).split(4), Generator::new(9).split(4));
    let forward: Vec<_> = a.iter().map(bytes).collect();
    let mut backward: Vec<_> = b.iter().rev().map(bytes).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    assert_eq!(forward.iter().collect::<HashSet<_>>().len(), 4);
}

/// T8: the arithmetic is our own, so all devices draw the same bits; but for the logarithm and the cosine of f64.
fn same_on_every_device(device: &Device) {
    let cpu = Device::new("cpu").unwrap();
    // On a GPU so many that most words a number can be made from occur.
    let most = if device.name().starts_with("cuda") { 1 << 25 } else { 1 << 12 };
    for dtype in having(device, super::harness::FLOATS) {
        for kind in KINDS {
            if dtype == DType::F64 && ["normal", "exponential"].contains(&kind) {
                continue;
            }
            for count in [1, 7, 1000, most + 5] {
                let [own, expected] = [device, &cpu].map(|device| {
                    let x = Tensor::empty([count], dtype, device).unwrap();
                    draw(kind, &x, &Generator::new(14)).unwrap();
                    x.to_bytes().unwrap()
                });
                let differs = own.iter().zip(&expected).position(|(own, expected)| own != expected);
                assert_eq!(differs.map(|at| at / dtype.size_bytes()), None, "{kind} of {dtype}, {count}");
            }
        }
    }
}

fn coins(device: &Device) {
    // E-19: probabilities may be expanded.
    let p = Tensor::from_slice(&[0.0f32, 1.0], [2], device).unwrap().expand([4, 3, 2]).unwrap();
    let sums = p.bernoulli(&Generator::new(2)).unwrap().sum([0, 1], false).unwrap();
    assert_eq!(sums.to_vec::<f32>().unwrap(), [0.0, 12.0]);
    for dtype in having(device, DType::ALL) {
        let x = Tensor::empty([5000], dtype, device).unwrap();
        x.bernoulli_(0.25, &Generator::new(3)).unwrap();
        let ones = Array::read(&x).data.iter().filter(|value| value.to_f64() == 1.0).count();
        assert!((1_100..=1_400).contains(&ones), "{ones} of 5000 in {dtype}");
    }
}

fn permutations(device: &Device) {
    for count in [0, 1, 2, 1000] {
        let order = Tensor::randperm(count, device, &Generator::new(4)).unwrap().to_vec::<i64>().unwrap();
        let set: HashSet<i64> = order.iter().copied().collect();
        assert!(order.len() == count && set == (0..count as i64).collect());
        assert!(count < 100 || !order.is_sorted());
    }
}

fn dropout(device: &Device) {
    let x = Tensor::full([40, 250], 3.0, DType::F32, device).unwrap();
    let kept = x.dropout(0.2, &Generator::new(6)).unwrap().to_vec::<f32>().unwrap();
    let scaled = 3.0 * (1.0f64 / 0.8) as f32;
    assert!(kept.iter().all(|&value| value == 0.0 || (value - scaled).abs() < 1e-6));
    let zeros = kept.iter().filter(|&&value| value == 0.0).count();
    assert!((1_800..=2_200).contains(&zeros), "{zeros} of 10000");
    assert_eq!(x.dropout(0.0, None).unwrap().to_vec::<f32>().unwrap(), vec![3.0; 10_000]);
    assert_eq!(x.dropout(1.0, None).unwrap().to_vec::<f32>().unwrap(), vec![0.0; 10_000]);
}

fn nothing_to_draw(device: &Device) {
    let generator = Generator::new(7);
    let empty = Tensor::randn([0, 3], DType::F32, device, &generator).unwrap();
    assert_eq!(empty.element_count(), 0);
    assert_eq!(generator.state(), Generator::new(7).state(), "nothing was drawn");
}

fn errors(device: &Device) {
    let x = Tensor::zeros([2], DType::F32, device).unwrap();
    let text = |result: Result<&Tensor>| result.unwrap_err().to_string();
    let g = Generator::new(0);
    assert_eq!(
        text(x.normal_(0.0, -1.0, &g)),
        "normal_: std is out of range, expected a number of at least 0, found -1"
    );
    assert_eq!(
        text(x.uniform_(1.0, 0.0, &g)),
        "uniform_: low is out of range, expected a number of at most high, found 1"
    );
    let halves = Tensor::zeros([2], DType::F16, device).unwrap();
    assert_eq!(
        text(halves.uniform_(0.0, 1e5, &g)),
        "uniform_: high is out of range, expected a number that the dtype holds, found 100000"
    );
    assert_eq!(
        text(x.exponential_(0.0, &g)),
        "exponential_: rate is out of range, expected a positive number, found 0"
    );
    assert_eq!(
        text(x.bernoulli_(1.5, &g)),
        "bernoulli_: p is out of range, expected a number of [0, 1], found 1.5"
    );
    for high in [5, 4] {
        assert_eq!(
            text(x.random_(5, high, &g)),
            format!("random_: high is out of range, expected more than low, found {high}")
        );
    }
    let bytes = Tensor::zeros([2], DType::U8, device).unwrap();
    assert_eq!(
        text(bytes.random_(0, 257, &g)),
        "random_: high is out of range, expected at most one past what the dtype holds, found 257"
    );
    assert_eq!(
        text(bytes.normal_(0.0, 1.0, &g)),
        "normal_: the tensor has the wrong dtype, expected a float, found u8"
    );
}
