use crate::{counted, device, tensor, values};
use raddle_tensor::{DType, Generator, Tensor, manual_seed};
use std::collections::HashSet;

fn draw(generator: Option<&Generator>) -> Vec<i64> {
    Tensor::randint(i64::MIN, i64::MAX, [256], DType::I64, device(), generator).unwrap().to_vec().unwrap()
}

#[test]
fn equal_seeds_draw_alike_and_splits_don_t() {
    let first = Generator::new(5);
    let drawn = [draw(Some(&first)), draw(Some(&first))];
    let second = Generator::new(5);
    assert_eq!(drawn, [draw(Some(&second)), draw(Some(&second))]);
    let mut seen: HashSet<i64> = drawn.concat().into_iter().collect();
    let children = [first.split(3), first.split(3)].concat();
    for child in &children {
        seen.extend(draw(Some(child)));
    }
    assert_eq!(seen.len(), 256 * 8);
    let (key, counter) = second.state();
    assert_eq!(draw(Some(&Generator::from_state(key, counter))), draw(Some(&second)));
}

#[test]
fn threads_never_draw_the_same_numbers_and_a_seed_is_kept() {
    let shared = Generator::new(1);
    let draws = |generator: Option<&Generator>| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..20).flat_map(|_| draw(generator)).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<HashSet<_>>()
        })
    };
    assert_eq!(draws(Some(&shared)).len(), 8 * 20 * 256);
    manual_seed(10);
    assert_eq!(draws(None).len(), 8 * 20 * 256);
    manual_seed(10);
    assert_eq!(draw(None), draw(Some(&Generator::new(10))));
}

#[test]
fn layouts_don_t_matter_and_gaps_stay() {
    let plain = Tensor::randn([4, 6], DType::F32, device(), &Generator::new(3)).unwrap();
    let transposed = Tensor::zeros([6, 4], DType::F32, device()).unwrap().t().unwrap();
    transposed.normal_(0.0, 1.0, &Generator::new(3)).unwrap();
    assert_eq!(values(&plain), values(&transposed));
    let guarded = Tensor::full([4, 7, 3], -7, DType::F32, device()).unwrap();
    guarded.slice(1, 1, 7, 3).unwrap().uniform_(0.0, 1.0, &Generator::new(4)).unwrap();
    let all = values(&guarded);
    assert_eq!(all.iter().filter(|&&value| value == -7.0).count(), 60);
    assert_eq!(all.iter().filter(|&&value| (0.0..1.0).contains(&value)).count(), 24);
}

#[test]
fn integers_keep_their_range() {
    let generator = Generator::new(0);
    let low = 1i64 << 24;
    let drawn = Tensor::randint(low, low + 3, [10_000], DType::I32, device(), &generator).unwrap();
    let seen: HashSet<i32> = drawn.to_vec::<i32>().unwrap().into_iter().collect();
    assert_eq!(seen, HashSet::from([16_777_216, 16_777_217, 16_777_218]));
    for (low, high) in [(5, 5), (5, 4)] {
        assert!(Tensor::randint(low, high, [1], DType::I64, device(), &generator).is_err());
    }
    assert!(Tensor::randint(0, 257, [1], DType::U8, device(), &generator).is_err());
    let mut order = Tensor::randperm(1000, device(), &generator).unwrap().to_vec::<i64>().unwrap();
    assert!(!order.is_sorted());
    order.sort_unstable();
    assert!(order.into_iter().eq(0..1000));
}

#[test]
fn probabilities_may_be_expanded() {
    let p = tensor(&[0.0f32, 1.0], &[2]).expand([4, 3, 2]).unwrap();
    let coins = p.bernoulli(&Generator::new(9)).unwrap();
    assert_eq!(values(&coins.sum([0, 1], false).unwrap()), [0.0, 12.0]);
    let kept = counted(&[1000]).ones_like().unwrap().dropout(0.25, &Generator::new(9)).unwrap();
    let sum = kept.sum(.., false).unwrap().item::<f32>().unwrap();
    assert!((900.0..1100.0).contains(&sum), "{sum}");
    assert!(values(&kept).iter().all(|&value| value == 0.0 || value == 1.0 / 0.75));
}

/// Rounding leads neither to the upper bound nor out of the dtype.
#[test]
fn integers_as_floats_keep_their_range() {
    let generator = Generator::new(1);
    for (dtype, low, high, least, most) in [
        (DType::F16, 2045, 2052, 2045.0, 2050.0),
        (DType::F16, -2051, 3, -2050.0, 2.0),
        (DType::F16, -65_504, 65_505, -65_504.0, 65_504.0),
        (DType::BF16, 250, 258, 250.0, 256.0),
        (DType::F32, (1 << 24) - 2, (1 << 24) + 2, 16_777_214.0, 16_777_216.0),
        (DType::F64, (1 << 53) - 2, (1 << 53) + 2, 9_007_199_254_740_990.0, 9_007_199_254_740_992.0),
        (DType::F32, 0, 5, 0.0, 4.0),
    ] {
        let drawn = Tensor::randint(low, high, [100_000], dtype, device(), &generator).unwrap();
        let drawn: Vec<f64> = drawn.to(DType::F64).unwrap().to_vec().unwrap();
        assert!(
            drawn.iter().all(|&value| value >= low as f64 && value < high as f64),
            "{dtype} {low} {high}"
        );
        if high - low < 1000 {
            assert!(drawn.contains(&least) && drawn.contains(&most), "{dtype} {low} {high}");
        }
    }
    for (dtype, low, high) in [(DType::F16, 0, 70_000), (DType::F16, -70_000, 0), (DType::BF16, 257, 258)] {
        assert!(
            Tensor::randint(low, high, [1], dtype, device(), &generator).is_err(),
            "{dtype} {low} {high}"
        );
    }
}
