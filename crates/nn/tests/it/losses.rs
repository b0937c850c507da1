//! Losses over classes against their definition.

use crate::tensor;
use raddle_grad::Autograd;
use raddle_nn::{ClassLoss, LossReduction, bce_with_logits, bce_with_logits_weighted};

const COUNT: usize = 3;
const CLASSES: usize = 4;
const PLACES: usize = 2;

/// Logits `[n, classes, places]`, whatever they are.
fn logits() -> Vec<f64> {
    (0..COUNT * CLASSES * PLACES).map(|at| ((at * 7 + 3) % 11) as f64 / 3.0 - 1.5).collect()
}

fn log_softmax(x: &[f64], n: usize, place: usize) -> Vec<f64> {
    let row: Vec<f64> = (0..CLASSES).map(|class| x[(n * CLASSES + class) * PLACES + place]).collect();
    let total: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x - total.ln()).collect()
}

#[test]
fn losses_over_classes_are_the_definition() {
    let (x, targets, weights) = (logits(), [1i64, 3, -7, 0, 2, 2], [0.5, 2.0, 1.0, 3.0]);
    let input = tensor(&x, &[COUNT, CLASSES, PLACES]);
    let target = tensor(&targets, &[COUNT, PLACES]);
    let weight = tensor(&weights, &[CLASSES]);
    for weighted in [false, true] {
        for smoothing in [0.0, 0.3] {
            let (mut losses, mut total) = (Vec::new(), 0.0);
            let factor = |class: usize| if weighted { weights[class] } else { 1.0 };
            for (at, &target) in targets.iter().enumerate() {
                if target == -7 {
                    losses.push(0.0);
                    continue;
                }
                let logs = log_softmax(&x, at / PLACES, at % PLACES);
                let spread: f64 = (0..CLASSES).map(|class| -logs[class] * factor(class)).sum();
                let own = -logs[target as usize] * factor(target as usize);
                losses.push((1.0 - smoothing) * own + smoothing / CLASSES as f64 * spread);
                total += factor(target as usize);
            }
            let sum: f64 = losses.iter().sum();
            let of = |reduction| ClassLoss {
                reduction,
                weight: weighted.then_some(&weight),
                ignored: Some(-7),
                smoothing,
            };
            let found =
                |reduction| of(reduction).cross_entropy(&input, &target).unwrap().to_vec::<f64>().unwrap();
            let near = |found: &[f64], expected: &[f64]| {
                found.len() == expected.len()
                    && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
            };
            assert!(near(&found(LossReduction::None), &losses));
            assert!(near(&found(LossReduction::Sum), &[sum]));
            assert!(near(&found(LossReduction::Mean), &[sum / total]));
            if smoothing == 0.0 {
                let logs = input.log_softmax(1).unwrap();
                let nll = of(LossReduction::None).nll_loss(&logs, &target).unwrap().to_vec::<f64>().unwrap();
                assert!(near(&nll, &losses));
            }
        }
    }
}

#[test]
fn probabilities_and_single_elements_are_targets_too() {
    let x = logits();
    let input = tensor(&x, &[COUNT, CLASSES, PLACES]);
    let spread = tensor(&vec![0.25f64; x.len()], &[COUNT, CLASSES, PLACES]);
    let found = ClassLoss::default().cross_entropy(&input, &spread).unwrap().item::<f64>().unwrap();
    let all = (0..COUNT).flat_map(|n| (0..PLACES).map(move |place| (n, place)));
    let expected =
        all.map(|(n, place)| -log_softmax(&x, n, place).iter().sum::<f64>() / 4.0).sum::<f64>() / 6.0;
    assert!((found - expected).abs() < 1e-12);

    let one = tensor(&[1.0f64, 2.0, 3.0], &[3]);
    let class = tensor(&[2i64], &[1]).reshape([0usize; 0]).unwrap();
    let loss = ClassLoss::default().cross_entropy(&one, &class).unwrap().item::<f64>().unwrap();
    assert!((loss - (1.0 + (-1f64).exp() + (-2f64).exp()).ln()).abs() < 1e-12);
}

#[test]
fn what_is_ignored_has_no_gradient_and_mistakes_have_texts() {
    let input = tensor(&[f64::NEG_INFINITY, 0.0, 1.0, 2.0], &[2, 2]);
    input.requires_grad_(true).unwrap();
    let about = ClassLoss { ignored: Some(-100), ..ClassLoss::default() };
    about.cross_entropy(&input, &tensor(&[-100i64, 1], &[2])).unwrap().backward().unwrap();
    let gradient = input.grad().unwrap().to_vec::<f64>().unwrap();
    assert_eq!(gradient[..2], [0.0, 0.0]);

    let text = |about: ClassLoss<'_>, target| about.cross_entropy(&input, target).unwrap_err().to_string();
    let (short, whole) = (tensor(&[1i64], &[1]), tensor(&[0.5f64; 4], &[2, 2]));
    assert_eq!(text(about, &short), "cross_entropy: the target has the wrong shape, expected [2], found [1]");
    assert_eq!(
        text(about, &whole),
        "cross_entropy: the ignored class is out of range, expected none, as targets are probabilities, found -100"
    );
    let steep = ClassLoss { smoothing: 2.0, ..ClassLoss::default() };
    assert_eq!(
        text(steep, &whole),
        "cross_entropy: smoothing is out of range, expected a number of [0, 1], found 2"
    );
    let weight = tensor(&[1.0f64; 3], &[3]);
    let wrong = ClassLoss { weight: Some(&weight), ..ClassLoss::default() };
    assert_eq!(text(wrong, &whole), "cross_entropy: the weight has the wrong shape, expected [2], found [3]");
}

#[test]
fn weights_of_logits_are_factors() {
    let (x, y) = (tensor(&[-2.0f64, 0.5, 30.0], &[3]), tensor(&[0.0f64, 0.25, 1.0], &[3]));
    let (weight, positive) = (tensor(&[2.0f64], &[1]), tensor(&[3.0f64, 1.0, 0.5], &[3]));
    let plain = bce_with_logits(&x, &y, LossReduction::None).unwrap().to_vec::<f64>().unwrap();
    let of = |weight, positive| {
        let losses = bce_with_logits_weighted(&x, &y, weight, positive, LossReduction::None);
        losses.unwrap().to_vec::<f64>().unwrap()
    };
    assert_eq!(of(None, None), plain);
    assert_eq!(of(Some(&weight), None), plain.iter().map(|loss| 2.0 * loss).collect::<Vec<_>>());
    for (at, found) in of(None, Some(&positive)).into_iter().enumerate() {
        let (x, y, positive) = ([-2.0f64, 0.5, 30.0][at], [0.0, 0.25, 1.0][at], [3.0, 1.0, 0.5][at]);
        let expected = positive * y * (-x).exp().ln_1p() + (1.0 - y) * x.exp().ln_1p();
        assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} for {expected}");
    }
}
