use crate::{check, device, gradient, leaf, random, tensor, values};
use raddle_grad::Autograd;
use raddle_tensor::{
    Activation, Arg, DType, Generator, Pointwise, Scalar, Tensor, fused, fused_many, pointwise,
};
use std::slice::from_ref;

#[test]
fn a_small_network_learns() {
    let generator = Generator::new(3);
    let draw = |shape: &[usize]| Tensor::randn(shape, DType::F32, device(), &generator).unwrap();
    let (w1, b1, w2) = (draw(&[16, 2]), draw(&[16]), draw(&[1, 16]));
    for leaf in [&w1, &b1, &w2] {
        leaf.requires_grad_(true).unwrap();
    }
    let x = draw(&[64, 2]);
    let target = x.select(1, 0).unwrap().mul(&x.select(1, 1).unwrap()).unwrap().unsqueeze(1).unwrap();
    let mut losses = Vec::new();
    for _ in 0..200 {
        let y = x.linear(&w1, Some(&b1)).unwrap().tanh().unwrap().linear(&w2, None).unwrap();
        let loss = y.sub(&target).unwrap().square().unwrap().mean(.., false).unwrap();
        losses.push(loss.item::<f32>().unwrap());
        loss.backward().unwrap();
        raddle_grad::no_grad(|| {
            for leaf in [&w1, &b1, &w2] {
                leaf.sub_(&leaf.grad().unwrap().mul(0.05).unwrap()).unwrap();
                leaf.zero_grad();
            }
        });
    }
    assert!(losses[199] < 0.25 * losses[0], "{} to {}", losses[0], losses[199]);
}

#[test]
fn every_pointwise_row_with_broadcasting() {
    for &op in Pointwise::ALL.iter().filter(|op| op.row().differentiable && op.row().inputs.len() <= 3) {
        let row = op.row();
        let (low, high) = (row.domain.0.max(-2.0), row.domain.1.min(2.0));
        // Away from 0, where several have a kink.
        let (low, high) = if low < 0.0 && high > 0.0 { (0.15, high) } else { (low, high) };
        let shapes: [&[usize]; 3] = [&[2, 3], &[3], &[2, 1]];
        let inputs: Vec<Tensor> = (0..row.inputs.len())
            .map(|i| random(shapes[i], low, high * (1.0 - 0.1 * i as f64), i as u64))
            .collect();
        if row.inputs.is_empty() {
            continue;
        }
        for (_, input) in inputs.iter().enumerate().filter(|(index, _)| op.is_condition(*index)) {
            input.requires_grad_(false).unwrap();
        }
        let params: Vec<Scalar> = (0..row.params.len()).map(|i| Scalar::Float(0.4 + i as f64)).collect();
        check(row.name, &inputs, |inputs| {
            let args: Vec<Arg> = inputs.iter().map(Arg::Tensor).collect();
            pointwise(op, &args, &params)
        });
        // A number in place of each input but the first.
        for scalar in 1..row.inputs.len() {
            let mut left = inputs.clone();
            left.remove(scalar);
            check(row.name, &left, |left| {
                let mut args: Vec<Arg> = left.iter().map(Arg::Tensor).collect();
                args.insert(scalar, Arg::Scalar(Scalar::Float(0.75)));
                pointwise(op, &args, &params)
            });
        }
    }
}

#[test]
fn closures_with_several_results() {
    let norm = fused(|[x, y]| (x * x + y * y).sqrt());
    let inputs = [random(&[3, 2], 0.5, 1.0, 1), random(&[2], 0.5, 1.0, 2)];
    check("fused", &inputs, |inputs| norm.call(&[&inputs[0], &inputs[1]]));
    let polar = fused_many(|[x, y]| [(x * x + y * y).sqrt(), x * y]);
    check("fused_many", &inputs, |inputs| {
        let both = polar.call_many(&[&inputs[0], &inputs[1]])?;
        both[0].add(&both[1].mul(3.0)?)
    });
    check("fused_many, one used", &inputs, |inputs| {
        Ok(polar.call_many(&[&inputs[0], &inputs[1]])?[1].clone())
    });
}

#[test]
fn reductions() {
    let x = [random(&[2, 3, 4], 0.5, 2.0, 7)];
    for keepdim in [false, true] {
        check("sum", &x, |x| x[0].sum([0, 2], keepdim));
        check("mean", &x, |x| x[0].mean(1, keepdim));
        check("prod", &x, |x| x[0].prod(1, keepdim));
        check("amax", &x, |x| x[0].amax([1, -1], keepdim));
        check("amin", &x, |x| x[0].amin(.., keepdim));
        check("var", &x, |x| x[0].var([0, 1], 1.0, keepdim));
        check("std", &x, |x| x[0].std(.., 0.0, keepdim));
        check("norm", &x, |x| x[0].norm([2], keepdim));
        check("max", &x, |x| Ok(x[0].max(1, keepdim)?.0));
        check("min", &x, |x| Ok(x[0].min(-1, keepdim)?.0));
    }
    let narrow = [random(&[3, 4], 0.5, 2.0, 8)];
    check("std of rows", &narrow, |x| x[0].std(1, 1.0, false));
    check("std of a sum of views", &narrow, |x| x[0].add(&x[0].t()?.t()?)?.std(0, 0.0, true));
    check("norm 3", &x, |x| x[0].norm_p(3.0, .., false));
    check("sort", &x, |x| Ok(x[0].sort(1, true)?.0));
    check("topk", &x, |x| Ok(x[0].topk(2, 2, false)?.0));
    check("cumsum", &x, |x| x[0].cumsum(1));
    check("softmax", &x, |x| x[0].softmax(1));
    check("log_softmax", &x, |x| x[0].log_softmax(-1));
    let zero_dim = [random(&[], 0.5, 2.0, 8)];
    check("sum of a number", &zero_dim, |x| x[0].sum(.., false));
    check("amax of a number", &zero_dim, |x| x[0].amax(.., true));
    check("cumsum of a number", &zero_dim, |x| x[0].cumsum(0));
    check(
        "transposed",
        &[x[0].detach().transpose(0, 2).unwrap().copy().unwrap().requires_grad_(true).unwrap().clone()],
        |x| x[0].sum(0, false),
    );
}

#[test]
fn ties_and_zeros() {
    let x = leaf(&[1.0, 3.0, 3.0, 2.0], &[4]);
    x.amax(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 0.5, 0.5, 0.0]);
    x.zero_grad();
    x.max(0, false).unwrap().0.backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 1.0, 0.0, 0.0]);
    x.zero_grad();
    x.maximum(&tensor(&[3.0, 3.0, 3.0, 3.0], &[4])).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 0.5, 0.5, 0.0]);
    x.zero_grad();
    x.clamp(1.0, 3.0).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 0.0, 0.0, 1.0]);
    let nan = leaf(&[1.0, f64::NAN, 2.0], &[3]);
    nan.amin(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&nan), [0.0, 1.0, 0.0]);
    let one_zero = leaf(&[2.0, 0.0, 5.0, 4.0, 3.0, 2.0, 0.0, 0.0, 7.0], &[3, 3]);
    one_zero.prod(1, false).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&one_zero), [0.0, 10.0, 0.0, 6.0, 8.0, 12.0, 0.0, 0.0, 0.0]);
    let zeros = leaf(&[0.0, 0.0], &[2]);
    zeros.norm(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&zeros), [0.0, 0.0]);
}

#[test]
fn products() {
    let (m, v, s) =
        (random(&[3, 4], -1.0, 1.0, 1), random(&[4], -1.0, 1.0, 2), random(&[2, 4, 3], -1.0, 1.0, 3));
    let w = random(&[3], -1.0, 1.0, 4);
    let pair = |a: &Tensor, b: &Tensor| [a.clone(), b.clone()];
    for (name, inputs) in [
        ("mv", pair(&m, &v)),
        ("vm", pair(&w, &m)),
        ("dot", pair(&v, &v.detach())),
        ("broadcast left", pair(&m, &s)),
        ("batch and matrix", pair(&s, &m)),
        ("batch and vector", pair(&s, &w)),
        ("vector and batch", pair(&v, &s)),
        ("batches", [s.clone(), random(&[2, 3, 2], -1.0, 1.0, 5)]),
        ("broadcast batches", [random(&[5, 1, 2, 4], -1.0, 1.0, 6), s.clone()]),
    ] {
        check(name, &inputs, |inputs| inputs[0].matmul(&inputs[1]));
    }
    let transposed = random(&[4, 5], -1.0, 1.0, 9).detach().t().unwrap().copy().unwrap();
    transposed.requires_grad_(true).unwrap();
    check("transposed", &[transposed.clone(), v.clone()], |inputs| inputs[0].matmul(&inputs[1]));
    let c = random(&[5], -1.0, 1.0, 10);
    let b = random(&[4, 5], -1.0, 1.0, 11);
    check("addmm", &[c.clone(), m.clone(), b], |i| i[0].addmm(&i[1], &i[2], 0.5, -2.0));
    let x = random(&[2, 3, 4], -1.0, 1.0, 12);
    for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
        check("linear", &[x.clone(), transposed.clone(), c.clone()], |i| {
            i[0].linear_with(&i[1], Some(&i[2]), activation)
        });
        check("linear without bias", &[x.clone(), transposed.clone()], |i| {
            i[0].linear_with(&i[1], None, activation)
        });
    }
    let index = tensor(&[0i64, 2, 1, 1, 3, 0], &[2, 3]);
    let values = random(&[2, 3], -1.0, 1.0, 13);
    let weight = random(&[5, 4], -1.0, 1.0, 14);
    check("sparse_linear", &[values, weight, c], |i| i[0].sparse_linear(&index, &i[1], Some(&i[2])));
}

#[test]
fn attention() {
    let query = random(&[2, 3, 4, 5], -1.0, 1.0, 1);
    let (key, value) = (random(&[2, 3, 6, 5], -1.0, 1.0, 2), random(&[2, 3, 6, 2], -1.0, 1.0, 3));
    let all = [query.clone(), key.clone(), value.clone()];
    let plain =
        |i: &[Tensor], causal, scale| i[0].scaled_dot_product_attention(&i[1], &i[2], None, causal, scale);
    check("attention", &all, |i| plain(i, false, None));
    check("causal attention", &all, |i| plain(i, true, Some(1.5)));
    // Two queries of a text see no key.
    let seen: Vec<bool> = (0..2 * 4 * 6).map(|at| at % 5 != 2 && !(6..18).contains(&at)).collect();
    let seen = tensor(&seen, &[2, 1, 4, 6]);
    check("masked attention", &all, |i| {
        i[0].scaled_dot_product_attention(&i[1], &i[2], Some(&seen), false, None)
    });
    check("masked causal attention", &all, |i| {
        i[0].scaled_dot_product_attention(&i[1], &i[2], Some(&seen), true, None)
    });
    let added = random(&[3, 1, 6], -1.0, 1.0, 4);
    let [query, key, value] = all;
    check("attention with what is added", &[query, key.clone(), value.clone(), added], |i| {
        i[0].scaled_dot_product_attention(&i[1], &i[2], Some(&i[3]), false, None)
    });
    let shared = random(&[4, 5], -1.0, 1.0, 5);
    check("attention of broadcast queries", &[shared, key, value], |i| plain(i, false, None));
}

#[test]
fn attention_of_halves_has_gradients_in_their_dtype() {
    let half = |shape: &[usize], seed| {
        let half = random(shape, -1.0, 1.0, seed).detach().to(DType::BF16).unwrap();
        half.requires_grad_(true).unwrap();
        half
    };
    let [query, key, value] = [half(&[3, 8], 1), half(&[5, 8], 2), half(&[5, 8], 3)];
    let y = query.scaled_dot_product_attention(&key, &value, None, false, None).unwrap();
    y.to(DType::F32).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(query.grad().unwrap().dtype(), DType::BF16);
    // Each query spreads a weight of 1 over the values.
    let spread = value.grad().unwrap().to(DType::F32).unwrap().sum(.., false).unwrap().item::<f32>().unwrap();
    assert!((spread - 24.0).abs() < 0.2, "{spread}");
}

#[test]
fn layer_norm() {
    let (x, weight, bias) =
        (random(&[3, 2, 4], -1.0, 1.0, 1), random(&[2, 4], 0.5, 1.0, 2), random(&[2, 4], -1.0, 1.0, 3));
    check("all", &[x.clone(), weight.clone(), bias.clone()], |i| {
        i[0].layer_norm(2, Some(&i[1]), Some(&i[2]), 1e-5)
    });
    check("weight", &[x.clone(), weight.clone()], |i| i[0].layer_norm(2, Some(&i[1]), None, 1e-5));
    check("bias", &[x.clone(), bias.clone()], |i| i[0].layer_norm(2, None, Some(&i[1]), 1e-5));
    check("none", std::slice::from_ref(&x), |i| i[0].layer_norm(1, None, None, 1e-5));
    let addend = random(x.shape(), -1.0, 1.0, 44);
    check("layer_norm_add", &[x.clone(), weight.clone(), bias, addend.clone()], |i| {
        i[0].layer_norm_add(&i[3], 2, Some(&i[1]), Some(&i[2]), 1e-5)
    });
    check("layer_norm_add, weight", &[x.clone(), weight, addend.clone()], |i| {
        i[0].layer_norm_add(&i[2], 2, Some(&i[1]), None, 1e-5)
    });
    check("layer_norm_add to itself", std::slice::from_ref(&x), |i| {
        i[0].layer_norm_add(&i[0], 1, None, None, 1e-5)
    });
    check("layer_norm_add, none", &[x, addend], |i| i[0].layer_norm_add(&i[1], 2, None, None, 1e-5));
}

#[test]
fn indexing() {
    let x = random(&[3, 4], -1.0, 1.0, 1);
    let index = tensor(&[2i64, 0, 2, 1, 1, 1, 0, 2], &[2, 4]);
    check("gather", from_ref(&x), |i| i[0].gather(0, &index));
    let v = random(&[2, 5], -1.0, 1.0, 2);
    check("scatter_add", &[x.clone(), v.clone()], |i| i[0].scatter_add(0, &index, &i[1]));
    check("scatter", &[x.clone(), v], |i| i[0].scatter(0, &index, &i[1]));
    let picks = tensor(&[3i64, 0, 3], &[3]);
    check("index_select", from_ref(&x), |i| i[0].index_select(1, &picks));
    let source = random(&[3, 3], -1.0, 1.0, 3);
    check("index_add", &[x.clone(), source], |i| i[0].index_add(1, &picks, &i[1], 1.5));
    let mask = tensor(&[true, false, false, true], &[4]);
    check("masked_fill", from_ref(&x), |i| i[0].masked_fill(&mask, 2.0));
    check("masked_select", from_ref(&x), |i| i[0].masked_select(&mask));
    check("embedding", from_ref(&x), |i| i[0].embedding(&index));
    check("cat", &[x.clone(), random(&[3, 1], 0.0, 1.0, 4)], |i| Tensor::cat(&[&i[0], &i[1], &i[0]], 1));
    check("stack", &[x.clone(), random(&[3, 4], 0.0, 1.0, 5)], |i| Tensor::stack(&[&i[0], &i[1]], -1));
    check("split", from_ref(&x), |i| {
        let parts = i[0].split(3, 1)?;
        parts[0].sum(1, true)?.mul(&parts[1])
    });
    check("tril", from_ref(&x), |i| i[0].tril(1));
    check("triu", &[x], |i| i[0].triu(0));
}

/// Case B-09.
#[test]
fn values_of_a_scatter_with_another_shape() {
    let upstream = tensor(&[10.0, 20.0, 30.0, 40.0, 50.0], &[1, 5]);
    let (base, values_) = (leaf(&[0.0; 5], &[1, 5]), leaf(&[1.0, 2.0, 3.0], &[1, 3]));
    let index = tensor(&[4i64, 0, 4], &[1, 3]);
    let out = base.scatter_add(1, &index, &values_).unwrap();
    assert_eq!(values(&out), [2.0, 0.0, 0.0, 0.0, 4.0]);
    out.backward_with(&upstream).unwrap();
    assert_eq!(gradient(&base), [10.0, 20.0, 30.0, 40.0, 50.0]);
    assert_eq!(gradient(&values_), [50.0, 10.0, 50.0]);
    let (ones, again) = (leaf(&[1.0; 5], &[1, 5]), leaf(&[1.0, 2.0, 3.0], &[1, 3]));
    ones.scatter(1, &tensor(&[4i64, 0, 2], &[1, 3]), &again).unwrap().backward_with(&upstream).unwrap();
    assert_eq!(gradient(&ones), [0.0, 20.0, 0.0, 40.0, 0.0]);
    assert_eq!(gradient(&again), [50.0, 10.0, 30.0]);
    let matrix = leaf(&[1.0; 9], &[3, 3]);
    let column = matrix.narrow(1, 1, 1).unwrap().t().unwrap();
    base.detach().scatter_add(1, &index, &column).unwrap().backward_with(&upstream).unwrap();
    assert_eq!(gradient(&matrix), [0.0, 50.0, 0.0, 0.0, 10.0, 0.0, 0.0, 50.0, 0.0]);
}

#[test]
fn conversions() {
    let x = tensor(&[1.5f32, -2.0], &[2]);
    x.requires_grad_(true).unwrap();
    let y = x.to(DType::F64).unwrap().mul(&tensor(&[2.0f64, 3.0], &[2])).unwrap();
    y.to(DType::F16).unwrap().sum(.., false).unwrap().backward().unwrap();
    let grad = x.grad().unwrap();
    assert_eq!(grad.dtype(), DType::F32);
    assert_eq!(grad.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    assert!(!x.gt(0.0).unwrap().requires_grad() && !x.argmax(0, false).unwrap().requires_grad());
    // A sum of many halves isn't rounded at each.
    let half = tensor(&[1.0f32], &[1]).to(DType::F16).unwrap();
    half.requires_grad_(true).unwrap();
    half.mul(&tensor(&[1.0f32; 5000], &[5000])).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(half.grad().unwrap().to(DType::F32).unwrap().to_vec::<f32>().unwrap(), [5000.0]);
}

#[test]
fn dropout_is_the_mask_it_drew() {
    let x = leaf(&[1.0; 64], &[64]);
    let y = x.dropout(0.25, &Generator::new(5)).unwrap();
    y.sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), values(&y));
    assert!(values(&y).contains(&0.0));
}

/// Its slope there has no bound; PyTorch takes 0, so that a constant feature doesn't spoil all others.
#[test]
fn the_deviation_of_equal_elements_has_no_gradient() {
    let x = leaf(&[3.0, 3.0, 3.0, 1.0, 2.0, 3.0], &[2, 3]);
    x.std(1, 1.0, false).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 0.0, 0.0, -0.5, 0.0, 0.5]);
}

#[test]
fn norms_have_gradients_where_their_powers_would_vanish() {
    for size in [1e-200, 1.0, 1e200] {
        let x = leaf(&[size, -size, 0.0], &[3]);
        x.norm_p(3.0, .., false).unwrap().backward().unwrap();
        let expected = 2f64.powf(-2.0 / 3.0);
        for (found, expected) in gradient(&x).into_iter().zip([expected, -expected, 0.0]) {
            assert!((found - expected).abs() <= 1e-14, "of {size}: {found}");
        }
    }
    for p in [0.5, 1.0, 1.5, 2.0, 3.0, f64::INFINITY] {
        let zero = leaf(&[0.0, -0.0], &[2]);
        zero.norm_p(p, .., false).unwrap().backward().unwrap();
        assert_eq!(gradient(&zero), [0.0, 0.0], "{p}");
    }
}
