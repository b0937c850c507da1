use crate::{device, gradient, leaf, random, tensor, values};
use raddle_grad::{
    Autograd, Error, backward, clip_grad_norm_, clip_grad_value_, enable_grad, grad, is_grad_enabled, no_grad,
};
use raddle_tensor::{DType, Tensor};

#[test]
fn leaves_and_results() {
    let x = leaf(&[1.0, 2.0], &[2]);
    let y = x.mul(2.0).unwrap();
    assert!(x.is_leaf() && !y.is_leaf() && y.requires_grad() && y.grad().is_none());
    assert!(!y.detach().requires_grad() && !x.detach().requires_grad());
    assert!(x.clone().requires_grad());
    assert!(matches!(y.requires_grad_(false), Err(Error::NotLeaf { op: "mul" })));
    let error = tensor(&[1i64], &[1]).requires_grad_(true).map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "requires_grad: the tensor has the wrong dtype, expected a float, found i64"
    );
    assert!(matches!(y.backward(), Err(Error::NotScalar { found: 2, .. })));
    assert!(matches!(x.detach().sum(.., false).unwrap().backward(), Err(Error::NoGraph { .. })));
    assert!(matches!(y.backward_with(&tensor(&[1.0], &[1])), Err(Error::Gradient { what: "shape", .. })));
    assert!(matches!(
        y.backward_with(&tensor(&[1.0f32, 1.0], &[2])),
        Err(Error::Gradient { what: "dtype", .. })
    ));
    y.backward_with(&tensor(&[1.0, 10.0], &[2])).unwrap();
    assert_eq!(gradient(&x), [2.0, 20.0]);
    x.requires_grad_(false).unwrap();
    assert!(!x.mul(2.0).unwrap().requires_grad());
}

#[test]
fn a_gradient_that_is_given_fits_its_leaf() {
    let x = leaf(&[1.0, 2.0], &[2]);
    let text = |given: Tensor| x.set_grad(Some(given)).unwrap_err().to_string();
    let expected = "set_grad: the gradient has the wrong shape, expected [2], found [1]";
    assert_eq!(text(tensor(&[1.0], &[1])), expected);
    let expected = "set_grad: the gradient has the wrong dtype, expected f64, found f32";
    assert_eq!(text(tensor(&[1.0f32, 1.0], &[2])), expected);
    assert!(x.grad().is_none());
    x.set_grad(Some(tensor(&[3.0, 4.0], &[2]))).unwrap();
    assert_eq!(gradient(&x), [3.0, 4.0]);
    x.set_grad(None).unwrap();
    assert!(x.grad().is_none());
    for other in [x.detach(), x.mul(2.0).unwrap()] {
        let error = other.set_grad(None).unwrap_err().to_string();
        assert_eq!(error, "set_grad: the tensor is no leaf that requires grad (see requires_grad_)");
        other.zero_grad();
    }
}

#[test]
fn modes() {
    let x = leaf(&[1.0], &[1]);
    no_grad(|| {
        assert!(!is_grad_enabled() && !x.exp().unwrap().requires_grad());
        assert!(enable_grad(|| x.exp().unwrap().requires_grad()));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(is_grad_enabled() && x.exp().unwrap().requires_grad()));
        });
    });
    assert!(is_grad_enabled());
}

#[test]
fn gradients_add_up_in_one_tensor() {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    x.sum(.., false).unwrap().backward().unwrap();
    let held = x.grad().unwrap();
    x.mul(&x).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(values(&held), [3.0, 5.0, 7.0, 9.0]);
    assert!(held.is(&x.grad().unwrap()));
    x.zero_grad();
    assert!(x.grad().is_none());
    // The gradient given by the user is not taken over.
    let given = tensor(&[1.0; 4], &[2, 2]);
    x.alias_view().unwrap().backward_with(&given).unwrap();
    x.alias_view().unwrap().backward_with(&given).unwrap();
    assert_eq!((values(&given), gradient(&x)), (vec![1.0; 4], vec![2.0; 4]));
}

#[test]
fn a_graph_is_used_up_unless_retained() {
    let x = leaf(&[2.0], &[1]);
    let y = x.exp().unwrap().sum(.., false).unwrap();
    y.backward_retain().unwrap();
    y.backward().unwrap();
    assert_eq!(gradient(&x), [2.0 * 2f64.exp()]);
    let error = y.backward().unwrap_err();
    assert!(matches!(error, Error::Freed { .. }), "{error}");
}

#[test]
fn gradients_by_results() {
    let x = leaf(&[1.0, 2.0], &[2]);
    let unused = leaf(&[1.0], &[1]);
    let y = x.mul(3.0).unwrap();
    let z = y.mul(&y).unwrap();
    let ones = tensor(&[1.0, 1.0], &[2]);
    let found = grad(&[&z], &[Some(&ones)], &[&y, &x, &unused, &y], true).unwrap();
    assert_eq!(values(found[0].as_ref().unwrap()), [6.0, 12.0]);
    assert_eq!(values(found[1].as_ref().unwrap()), [18.0, 36.0]);
    assert!(found[2].is_none() && x.grad().is_none());
    assert_eq!(values(found[3].as_ref().unwrap()), [6.0, 12.0]);
    backward(&[&z, &y], &[Some(&ones), Some(&ones)], false).unwrap();
    assert_eq!(gradient(&x), [21.0, 39.0]);
}

#[test]
fn deep_graphs_need_no_stack() {
    let depth = 100_000;
    let chain = move || {
        let x = leaf(&[1.0], &[1]);
        let mut y = x.clone();
        for _ in 0..depth {
            y = y.neg().unwrap();
        }
        (x, y)
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    let run = move || {
        let (x, y) = chain();
        y.sum(.., false).unwrap().backward().unwrap();
        assert_eq!(gradient(&x), [1.0]);
        drop(y);
        drop(chain());
    };
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn threads_share_leaves() {
    let (threads, rounds) = (8, 20);
    let weight = random(&[32, 16], -1.0, 1.0, 1);
    let bias = random(&[32], -1.0, 1.0, 2);
    let x = Tensor::ones([4, 16], DType::F64, device()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..rounds {
                    x.linear(&weight, Some(&bias)).unwrap().sum(.., false).unwrap().backward().unwrap();
                }
            });
        }
    });
    let total = f64::from(4 * threads * rounds);
    assert_eq!(gradient(&bias), vec![total; 32]);
    assert_eq!(gradient(&weight), vec![total; 512]);
}

#[test]
fn threads_share_a_graph() {
    let x = random(&[64], -1.0, 1.0, 3);
    let shared = x.exp().unwrap();
    std::thread::scope(|scope| {
        for factor in 1..=8 {
            let shared = &shared;
            scope.spawn(move || {
                shared.mul(factor).unwrap().sum(.., false).unwrap().backward_retain().unwrap()
            });
        }
    });
    let expected: Vec<f64> = values(&x).iter().map(|x| 36.0 * x.exp()).collect();
    for (found, expected) in gradient(&x).iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12 * expected);
    }
}

#[test]
fn clipping() {
    let (x, y, none) = (leaf(&[0.0, 0.0], &[2]), leaf(&[0.0], &[1]), leaf(&[0.0], &[1]));
    let run = || {
        x.zero_grad();
        y.zero_grad();
        x.backward_with(&tensor(&[3.0, -4.0], &[2])).unwrap();
        y.backward_with(&tensor(&[12.0], &[1])).unwrap();
    };
    run();
    let norm = clip_grad_norm_(&[&x, &y, &none, &x], 6.5).unwrap().unwrap();
    assert_eq!(norm.item::<f32>().map_or_else(|_| norm.item::<f64>().unwrap(), f64::from), 13.0);
    for (found, expected) in gradient(&x).iter().chain(&gradient(&y)).zip([1.5, -2.0, 6.0]) {
        assert!((found - expected).abs() < 1e-6);
    }
    run();
    clip_grad_norm_(&[&x, &y], 20.0).unwrap();
    assert_eq!(gradient(&x), [3.0, -4.0]);
    clip_grad_value_(&[&x, &y], 3.5).unwrap();
    assert_eq!((gradient(&x), gradient(&y)), (vec![3.0, -3.5], vec![3.5]));
    assert!(clip_grad_norm_(&[&none], 1.0).unwrap().is_none());
    assert!(clip_grad_norm_(&[&x], f64::NAN).is_err());
}
