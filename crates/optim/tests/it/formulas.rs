//! Optimizers against the formulas in scalar f64, with transposed parameters.

use crate::device;
use raddle_grad::Autograd;
use raddle_optim::{Adam, AdamOptions, Error, Group, Sgd, SgdOptions};
use raddle_tensor::{DType, Tensor};

/// A leaf of shape [3, 2] with strides [1, 3], and its elements in row-major order.
fn transposed(dtype: DType) -> (Tensor, Vec<f64>) {
    let values = [1.0, -2.0, 0.5, 3.0, -0.25, 4.0];
    let rows = Tensor::from_slice(&values, [2, 3], device()).unwrap().to(dtype).unwrap();
    let leaf = rows.t().unwrap().copy().unwrap();
    assert_eq!(**leaf.strides(), [1, 3]);
    leaf.requires_grad_(true).unwrap();
    let elements = leaf.to(DType::F64).unwrap().to_vec().unwrap();
    (leaf, elements)
}

/// The gradient of element `i` in step `t`.
fn gradient(i: usize, t: usize) -> f64 {
    ((i * 7 + t * 3) as f64).sin() * 0.5
}

fn give(leaf: &Tensor, t: usize) {
    let values: Vec<f64> = (0..6).map(|i| gradient(i, t)).collect();
    // Row-major, unlike the parameter.
    let grad = Tensor::from_slice(&values, [3, 2], device()).unwrap().to(leaf.dtype()).unwrap();
    leaf.set_grad(Some(grad)).unwrap();
}

fn assert_close(leaf: &Tensor, expected: &[f64], tolerance: f64) {
    let found: Vec<f64> = leaf.to(DType::F64).unwrap().to_vec().unwrap();
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * expected.abs().max(1.0), "{found} is not {expected}");
    }
}

#[test]
fn sgd_in_all_its_forms() {
    for (momentum, dampening, weight_decay, nesterov) in
        [(0.0, 0.0, 0.0, false), (0.0, 0.0, 0.1, false), (0.9, 0.25, 0.1, false), (0.9, 0.0, 0.01, true)]
    {
        let (leaf, mut p) = transposed(DType::F64);
        let options = SgdOptions { lr: 0.1, momentum, dampening, weight_decay, nesterov };
        let mut sgd = Sgd::new(vec![leaf.clone()], options).unwrap();
        let mut v = [0.0; 6];
        for t in 0..20 {
            let lr = if t < 10 { 0.1 } else { 0.02 };
            sgd.groups()[0].options.lr = lr;
            give(&leaf, t);
            sgd.step().unwrap();
            for i in 0..6 {
                let g = gradient(i, t) + weight_decay * p[i];
                v[i] = if t == 0 { g } else { momentum * v[i] + (1.0 - dampening) * g };
                let d = if nesterov {
                    g + momentum * v[i]
                } else if momentum == 0.0 {
                    g
                } else {
                    v[i]
                };
                p[i] -= lr * d;
            }
        }
        assert_close(&leaf, &p, 1e-12);
    }
}

/// As in PyTorch: the first gradient that momentum meets isn't dampened, whenever it is switched on; what it was stays while it
/// is off.
#[test]
fn momentum_may_be_switched_on_later() {
    let (leaf, mut p) = transposed(DType::F64);
    let options = SgdOptions { lr: 0.1, dampening: 0.5, ..SgdOptions::default() };
    let mut sgd = Sgd::new(vec![leaf.clone()], options).unwrap();
    let mut v = [0.0; 6];
    for t in 0..9 {
        // On, off, and on again.
        let momentum = if t < 2 || t == 5 { 0.0 } else { 0.9 };
        sgd.groups()[0].options.momentum = momentum;
        give(&leaf, t);
        sgd.step().unwrap();
        for i in 0..6 {
            let g = gradient(i, t);
            if momentum != 0.0 {
                v[i] = if t == 2 { g } else { 0.9 * v[i] + 0.5 * g };
            }
            p[i] -= 0.1 * if momentum == 0.0 { g } else { v[i] };
        }
    }
    assert_close(&leaf, &p, 1e-12);
}

#[test]
fn adam_and_adamw() {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-6)] {
        for (decoupled, weight_decay) in [(false, 0.1), (true, 0.1), (false, 0.0), (true, 0.0)] {
            let (leaf, mut p) = transposed(dtype);
            let options =
                AdamOptions { lr: 0.05, weight_decay, beta2: 0.99, decoupled, ..Default::default() };
            let mut adam = Adam::new(vec![leaf.clone()], options).unwrap();
            let (mut m, mut v) = ([0.0; 6], [0.0; 6]);
            for t in 0..20 {
                give(&leaf, t);
                adam.step().unwrap();
                for i in 0..6 {
                    let mut g = gradient(i, t);
                    if decoupled {
                        p[i] -= 0.05 * weight_decay * p[i]
                    } else {
                        g += weight_decay * p[i]
                    }
                    m[i] = 0.9 * m[i] + 0.1 * g;
                    v[i] = 0.99 * v[i] + 0.01 * g * g;
                    let steps = t as i32 + 1;
                    let (mean, square) =
                        (m[i] / (1.0 - 0.9f64.powi(steps)), v[i] / (1.0 - 0.99f64.powi(steps)));
                    p[i] -= 0.05 * mean / (square.sqrt() + 1e-8);
                }
            }
            assert_close(&leaf, &p, tolerance);
            let state = adam.state().unwrap();
            let saved = &state.groups[0][0];
            assert_eq!(saved.step, 20);
            assert!(saved.tensors.iter().all(|tensor| **tensor.strides() == [1, 3]));
            assert_close(&saved.tensors[1], &v, tolerance);
        }
    }
}

/// As in PyTorch: without a decay the weight has no part in its gradient. 0 · ∞ would be NaN.
#[test]
fn without_decay_the_weight_is_not_looked_at() {
    for capturable in [false, true] {
        let leaf = Tensor::from_slice(&[f32::INFINITY, 1.0], [2], device()).unwrap();
        leaf.requires_grad_(true).unwrap();
        leaf.set_grad(Some(Tensor::ones([2], DType::F32, device()).unwrap())).unwrap();
        let options = AdamOptions { capturable, ..Default::default() };
        let mut adam = Adam::new(vec![leaf.clone()], options).unwrap();
        adam.step().unwrap();
        let found = leaf.detach().to_vec::<f32>().unwrap();
        assert!(found[0] == f32::INFINITY && (found[1] - 0.999).abs() < 1e-6, "{found:?}");
    }
}

/// What has no part in a step doesn't reach it as 0 times an infinity.
#[test]
fn infinities_stay_where_the_formula_has_them() {
    const INF: f64 = f64::INFINITY;
    let options = SgdOptions { lr: 0.5, ..SgdOptions::default() };
    let with = |momentum, dampening, weight_decay, nesterov| SgdOptions {
        momentum,
        dampening,
        weight_decay,
        nesterov,
        ..options
    };
    // The parameter, its gradients step by step, and what becomes of it.
    let cases: &[(SgdOptions, f64, &[f64], f64)] = &[
        (options, INF, &[1.0], INF),
        (with(0.9, 0.0, 0.0, false), INF, &[1.0, 2.0], INF),
        (with(0.9, 0.0, 0.0, true), INF, &[1.0], INF),
        (with(0.9, 0.0, 0.0, false), 1.0, &[INF], -INF),
        (with(0.9, 0.0, 0.1, false), 1.0, &[0.0, -INF], INF),
        (with(0.9, 1.0, 0.0, false), INF, &[2.0, 1.0], INF),
        (with(0.9, 0.3, 0.0, false), 1.0, &[INF], -INF),
    ];
    for &(options, start, gradients, expected) in cases {
        let leaf = Tensor::from_slice(&[start], [1], device()).unwrap();
        leaf.requires_grad_(true).unwrap();
        let mut sgd = Sgd::new(vec![leaf.clone()], options).unwrap();
        for &gradient in gradients {
            leaf.set_grad(Some(Tensor::from_slice(&[gradient], [1], device()).unwrap())).unwrap();
            sgd.step().unwrap();
        }
        let found: f64 = leaf.detach().to_vec().unwrap()[0];
        assert!(found == expected || (found - expected).abs() < 1e-12, "{options:?}: {found}");
    }
}

#[test]
fn groups_skips_and_saved_state() {
    let (a, _) = transposed(DType::F32);
    let (b, unmoved) = transposed(DType::F32);
    let options = |lr| AdamOptions { lr, ..Default::default() };
    let make = |a: &Tensor, b: &Tensor| {
        let groups =
            vec![Group::new(vec![a.clone()], options(0.1)), Group::new(vec![b.clone()], options(0.0))];
        Adam::with_groups(groups).unwrap()
    };
    let mut adam = make(&a, &b);
    for t in 0..3 {
        give(&a, t);
        if t == 1 {
            give(&b, t);
        }
        adam.step().unwrap();
        adam.zero_grad();
        assert!(a.grad().is_none());
    }
    assert_close(&b, &unmoved, 0.0);
    let state = adam.state().unwrap();
    assert_eq!((state.groups[0][0].step, state.groups[1][0].step), (3, 1));
    // Another optimizer with that state goes on to the same bits.
    let twin = |leaf: &Tensor| {
        let twin = leaf.detach().copy().unwrap();
        twin.requires_grad_(true).unwrap();
        twin
    };
    let (c, d) = (twin(&a), twin(&b));
    let mut other = make(&c, &d);
    other.load_state(&state).unwrap();
    for leaf in [&a, &b, &c, &d] {
        give(leaf, 7);
    }
    adam.step().unwrap();
    other.step().unwrap();
    assert_eq!(a.to_vec::<f32>().unwrap(), c.to_vec::<f32>().unwrap());
    let mut fewer = Adam::new(vec![c.clone()], options(0.1)).unwrap();
    let error = fewer.load_state(&state).unwrap_err();
    assert_eq!(
        error.to_string(),
        "load_state: the number of groups of group 0, parameter 0 doesn't fit, expected 1, found 2"
    );
    assert!(matches!(Adam::new(vec![c.clone(), c.clone()], options(0.1)), Err(Error::Repeated { .. })));
    assert!(matches!(Adam::new(vec![c], options(f64::NAN)), Err(Error::Option { what: "lr", .. })));
    assert!(Sgd::new(vec![d], SgdOptions { nesterov: true, ..Default::default() }).is_err());
}
