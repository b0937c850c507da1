//! Gradients of the structured ops and of the views, in f64, against central differences of the op itself: of operands that lie
//! row-major, transposed or stepped. (Those of the op table's rows stand in `pointwise`, against differences of the oracle.)

use crate::{Case, array::Array, random::Random};
use raddle::{DType, Device, Result, Tensor, grad::Autograd};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!("gradients": reductions, reductions_of_narrow_floats, attention_of_16_bits, products_of_extremes, sums_of_16_bits, orders, products, normalizations, indexing, joins, views, ties, bounds, extremes, numbers_without_axes, without_elements, factors_of_zero, not_a_number, unseen, sums_that_are_normalized, gelu_of_what_overflows, confident_rows)
}

/// A tensor whose gradient is kept.
fn leaf(values: &[f64], shape: &[usize], dtype: DType, device: &Device) -> Tensor {
    let leaf = Tensor::from_slice(values, shape, device).unwrap().to(dtype).unwrap().detach();
    leaf.requires_grad_(true).unwrap();
    leaf
}

/// The gradients of Σ f.
fn gradients(leaves: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Vec<f64>> {
    leaves.iter().for_each(Autograd::zero_grad);
    let y = f(leaves).unwrap();
    y.backward_with(&y.detach().ones_like().unwrap()).unwrap();
    let read = |leaf: &Tensor| leaf.grad().unwrap().to(DType::F64).unwrap().to_vec::<f64>().unwrap();
    leaves.iter().map(read).collect()
}

/// The same to the bit, any NaN for a NaN.
fn check_bits(what: &str, found: &[Vec<f64>], expected: &[&[f64]]) {
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
    let all = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(*a, *b));
    let good = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| all(a, b));
    assert!(good, "{what}: expected {expected:?}, found {found:?}");
}

/// What chooses among elements moves with them, and grows with them: so the gradients add up to 1, and weighted by the elements to
/// the result, at every tie. (By powers of two all of it is exact.)
fn ties(device: &Device) {
    type Choice<'a> = (&'a str, &'a dyn Fn(&[Tensor]) -> Result<Tensor>);
    let choices: [Choice<'_>; 12] = [
        ("amax", &|x| x[0].amax(.., false)),
        ("amin", &|x| x[0].amin(0, false)),
        ("max", &|x| Ok(x[0].max(0, false)?.0)),
        ("min", &|x| Ok(x[0].min(0, true)?.0)),
        ("sort", &|x| x[0].sort(0, false)?.0.narrow(0, 1, 1)),
        ("sort descending", &|x| x[0].sort(0, true)?.0.narrow(0, 2, 1)),
        ("topk", &|x| x[0].topk(2, 0, true)?.0.narrow(0, 1, 1)),
        ("maximum", &|x| x[0].select(0, 0)?.maximum(&x[0].select(0, 1)?)),
        ("minimum", &|x| x[0].select(0, 0)?.minimum(&x[0].select(0, 1)?)),
        ("clamp", &|x| x[0].select(0, 0)?.clamp(&x[0].select(0, 1)?, &x[0].select(0, 2)?)),
        ("clamp_min", &|x| x[0].select(0, 0)?.clamp_min(&x[0].select(0, 3)?)),
        ("clamp_max", &|x| x[0].select(0, 0)?.clamp_max(&x[0].select(0, 3)?)),
    ];
    for number in 0..81 {
        let values = [0, 1, 2, 3].map(|at| [1.0, 2.0, 4.0][number / 3usize.pow(at) % 3]);
        // Ties of three are none of powers of two.
        if (0..3).any(|value| values.iter().filter(|&&x| x == [1.0, 2.0, 4.0][value]).count() == 3) {
            continue;
        }
        for (name, choose) in &choices {
            let x = leaf(&values, &[4], DType::F32, device);
            let found = &gradients(std::slice::from_ref(&x), choose)[0];
            let value = choose(&[x.detach()]).unwrap().to_vec::<f32>().unwrap()[0];
            assert_eq!(found.iter().sum::<f64>(), 1.0, "{name} of {values:?}: {found:?}");
            let weighted: f64 = found.iter().zip(values).map(|(gradient, x)| gradient * x).sum();
            assert_eq!(weighted, f64::from(value), "{name} of {values:?}: {found:?}");
        }
    }
    let (x, bound) =
        (leaf(&[0.0, 1.0, 2.0], &[3], DType::F64, device), leaf(&[1.0], &[], DType::F64, device));
    let found = gradients(&[x, bound], |x| x[0].clamp(&x[1], &x[1]));
    check_bits("clamp between one bound", &found, &[&[0.0, 1.0, 0.0], &[2.0]]);
}

const N: f64 = f64::NAN;

/// As [`PAIRS`] says.
type Pair = ([f64; 2], [f64; 2], [f64; 2], f64, f64);

/// Of two numbers: the gradients of the larger, and of the smaller; then that of the first where the second is a number, by which
/// it is bound below, and above. PyTorch 2.15's: of `maximum`, `max`, `clamp_min` and `clamp` with a minimum, all with tensors, and so
/// on.
const PAIRS: [Pair; 8] = [
    ([0.0, 1.0], [0.0, 1.0], [1.0, 0.0], 0.0, 1.0),
    ([1.0, 1.0], [0.5, 0.5], [0.5, 0.5], 0.0, 0.0),
    ([2.0, 1.0], [1.0, 0.0], [0.0, 1.0], 1.0, 0.0),
    ([-0.0, 0.0], [0.5, 0.5], [0.5, 0.5], 0.0, 0.0),
    ([0.0, -0.0], [0.5, 0.5], [0.5, 0.5], 0.0, 0.0),
    ([N, 1.0], [1.0, 1.0], [1.0, 1.0], 0.0, 0.0),
    ([1.0, N], [1.0, 1.0], [1.0, 1.0], 0.0, 0.0),
    ([N, N], [1.0, 1.0], [1.0, 1.0], 0.0, 0.0),
];

/// A number and two bounds: the gradients of all three, and that of the first between numbers. PyTorch 2.15's of `clamp`.
const CLAMPS: [([f64; 3], [f64; 3], f64); 36] = [
    ([0.0, 1.0, 3.0], [0.0, 1.0, 0.0], 0.0),
    ([1.0, 1.0, 3.0], [0.5, 0.5, 0.0], 0.0),
    ([2.0, 1.0, 3.0], [1.0, 0.0, 0.0], 1.0),
    ([3.0, 1.0, 3.0], [0.5, 0.0, 0.5], 0.0),
    ([4.0, 1.0, 3.0], [0.0, 0.0, 1.0], 0.0),
    ([N, 1.0, 3.0], [1.0, 0.0, 0.0], 0.0),
    ([0.0, 1.0, 1.0], [0.0, 1.0, 0.0], 0.0),
    ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0], 0.0),
    ([2.0, 1.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([3.0, 1.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([4.0, 1.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([N, 1.0, 1.0], [1.0, 0.0, 0.0], 0.0),
    ([0.0, 3.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([1.0, 3.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([2.0, 3.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([3.0, 3.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([4.0, 3.0, 1.0], [0.0, 0.0, 1.0], 0.0),
    ([N, 3.0, 1.0], [1.0, 0.0, 1.0], 0.0),
    ([0.0, N, 1.0], [1.0, 0.0, 0.0], 0.0),
    ([1.0, N, 1.0], [1.0, 0.0, 0.0], 0.0),
    ([2.0, N, 1.0], [0.0, 0.0, 0.0], 0.0),
    ([3.0, N, 1.0], [0.0, 0.0, 0.0], 0.0),
    ([4.0, N, 1.0], [0.0, 0.0, 0.0], 0.0),
    ([N, N, 1.0], [1.0, 0.0, 0.0], 0.0),
    ([0.0, 1.0, N], [0.0, 0.0, 0.0], 0.0),
    ([1.0, 1.0, N], [1.0, 0.0, 0.0], 0.0),
    ([2.0, 1.0, N], [1.0, 0.0, 0.0], 0.0),
    ([3.0, 1.0, N], [1.0, 0.0, 0.0], 0.0),
    ([4.0, 1.0, N], [1.0, 0.0, 0.0], 0.0),
    ([N, 1.0, N], [1.0, 0.0, 0.0], 0.0),
    ([0.0, N, N], [1.0, 0.0, 0.0], 0.0),
    ([1.0, N, N], [1.0, 0.0, 0.0], 0.0),
    ([2.0, N, N], [1.0, 0.0, 0.0], 0.0),
    ([3.0, N, N], [1.0, 0.0, 0.0], 0.0),
    ([4.0, N, N], [1.0, 0.0, 0.0], 0.0),
    ([N, N, N], [1.0, 0.0, 0.0], 0.0),
];

/// Who has the gradient of what is bound, at ties and at NaN, by tensors, tensors without axes, and numbers.
fn bounds(device: &Device) {
    type Two<'a> = (&'a str, bool, &'a dyn Fn(&Tensor, &Tensor) -> Result<Tensor>);
    let twos: [Two<'_>; 4] = [
        ("maximum", true, &|x, y| x.maximum(y)),
        ("clamp_min", true, &|x, y| x.clamp_min(y)),
        ("minimum", false, &|x, y| x.minimum(y)),
        ("clamp_max", false, &|x, y| x.clamp_max(y)),
    ];
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        for shape in [&[1][..], &[]] {
            for (values, of_larger, of_smaller, above, below) in PAIRS {
                let leaves = || values.map(|value| leaf(&[value], shape, dtype, device));
                for (name, larger, f) in twos {
                    let expected = if larger { of_larger } else { of_smaller };
                    let found = gradients(&leaves(), |x| f(&x[0], &x[1]));
                    let what = format!("{name} of {values:?} in {dtype}");
                    check_bits(&what, &found, &[&expected[..1], &expected[1..]]);
                }
                let [x, _] = leaves();
                let found = gradients(std::slice::from_ref(&x), |x| x[0].clamp_min(values[1]));
                check_bits(&format!("clamp_min of {values:?}, by a number, in {dtype}"), &found, &[&[above]]);
                let found = gradients(&[x], |x| x[0].clamp_max(values[1]));
                check_bits(&format!("clamp_max of {values:?}, by a number, in {dtype}"), &found, &[&[below]]);
            }
            for (values, expected, between) in CLAMPS {
                let leaves = values.map(|value| leaf(&[value], shape, dtype, device));
                let found = gradients(&leaves, |x| x[0].clamp(&x[1], &x[2]));
                let [x, min, max] = &expected;
                let what = format!("clamp of {values:?} in {dtype}");
                check_bits(&what, &found, &[&[*x], &[*min], &[*max]]);
                // One bound is a number, which PyTorch doesn't have: as of a tensor.
                let found = gradients(&leaves[..2], |x| x[0].clamp(&x[1], values[2]));
                check_bits(&format!("{what}, above a number"), &found, &[&[*x], &[*min]]);
                let found = gradients(&leaves[..1], |x| x[0].clamp(values[1], values[2]));
                check_bits(&format!("{what}, between numbers"), &found, &[&[between]]);
            }
        }
    }
}

/// Reductions and choices of extremes: those that give a value share the gradient among ties, those that give an index, too, give it
/// to that element. At NaN the first kind gives it to what is NaN, as PyTorch's `max()`; its `amax` makes all of it NaN.
fn extremes(device: &Device) {
    const THIRD: f64 = 1.0 / 3.0;
    for (values, of_amax, of_max, of_amin) in [
        ([1.0, 3.0, 3.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
        ([1.0, 1.0, 1.0], [THIRD; 3], [1.0, 0.0, 0.0], [THIRD; 3]),
        ([N, 3.0, 3.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([3.0, N, N], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]),
    ] {
        let x = [leaf(&values, &[3], DType::F64, device)];
        check_bits(&format!("amax of {values:?}"), &gradients(&x, |x| x[0].amax(0, false)), &[&of_amax]);
        check_bits(&format!("amin of {values:?}"), &gradients(&x, |x| x[0].amin(.., false)), &[&of_amin]);
        let largest = gradients(&x, |x| Ok(x[0].max(0, false)?.0));
        check_bits(&format!("max of {values:?}"), &largest, &[&of_max]);
        let first = gradients(&x, |x| Ok(x[0].topk(1, 0, true)?.0));
        check_bits(&format!("topk of {values:?}"), &first, &[&of_max]);
    }
}

/// A tensor without axes has the gradient of one with one element.
fn numbers_without_axes(device: &Device) {
    type Reduce<'a> = (&'a str, &'a dyn Fn(&Tensor) -> Result<Tensor>);
    let reductions: [Reduce<'_>; 11] = [
        ("sum", &|x| x.sum(.., false)),
        ("mean", &|x| x.mean(.., true)),
        ("prod", &|x| x.prod(.., false)),
        ("amax", &|x| x.amax(.., false)),
        ("amin", &|x| x.amin(.., false)),
        ("var", &|x| x.var(.., 1.0, false)),
        ("var 0", &|x| x.var(.., 0.0, false)),
        ("std", &|x| x.std(.., 1.0, false)),
        ("std 0", &|x| x.std(.., 0.0, true)),
        ("norm", &|x| x.norm(.., false)),
        ("norm_p", &|x| x.norm_p(3.0, .., false)),
    ];
    for dtype in [DType::BF16, DType::F32, DType::F64] {
        for value in [0.0, -0.0, 5.0, -2.0, f64::INFINITY, f64::NAN] {
            for (name, reduce) in &reductions {
                let [found, expected] = [&[][..], &[1]].map(|shape| {
                    let x = leaf(&[value], shape, dtype, device);
                    gradients(&[x], |x| reduce(&x[0])).remove(0)
                });
                check_bits(&format!("{name} of {value} in {dtype}"), &[found], &[&expected]);
            }
        }
    }
    let zero = [leaf(&[0.0], &[], DType::F64, device)];
    check_bits("std of 0", &gradients(&zero, |x| x[0].std(.., 1.0, false)), &[&[f64::NAN]]);
}

/// Every op that takes part in a result gives each of its inputs a gradient: zeros of its shape where that has no element, or where
/// none of its elements is in the result.
fn without_elements(device: &Device) {
    let indices = |count: usize| Tensor::zeros([count], DType::I64, device).unwrap();
    let check = |name: &str, shapes: &[&[usize]], f: &dyn Fn(&[Tensor]) -> Result<Tensor>| {
        let leaves: Vec<Tensor> = shapes
            .iter()
            .map(|shape| leaf(&vec![1.0; shape.iter().product()], shape, DType::F32, device))
            .collect();
        let y = f(&leaves).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(y.requires_grad(), "{name}");
        y.backward_with(&y.detach().ones_like().unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (number, leaf) in leaves.iter().enumerate() {
            let Some(grad) = leaf.grad() else { panic!("{name}: input {number} has no gradient") };
            assert_eq!(grad.shape(), leaf.shape(), "{name}: input {number}");
            assert!(grad.to_vec::<f32>().unwrap().iter().all(|x| x.is_finite()), "{name}: input {number}");
        }
    };
    check("cat of [0] and a vector", &[&[0], &[2]], &|x| Tensor::cat(&[&x[0], &x[1]], 0));
    check("cat of a matrix and [0]", &[&[2, 3], &[0]], &|x| Tensor::cat(&[&x[0], &x[1]], 1));
    check("cat of [0] alone", &[&[0]], &|x| Tensor::cat(&[&x[0], &x[0]], 0));
    check("cat of [2, 0] and a matrix", &[&[2, 0], &[2, 3]], &|x| Tensor::cat(&[&x[0], &x[1]], 1));
    check("stack", &[&[0], &[0]], &|x| Tensor::stack(&[&x[0], &x[1]], 0));
    check("add", &[&[0], &[1]], &|x| x[0].add(&x[1]));
    check("where", &[&[0], &[1]], &|x| Tensor::zeros([0], DType::Bool, device)?.where_(&x[0], &x[1]));
    check("maximum", &[&[2, 0], &[2, 1]], &|x| x[0].maximum(&x[1]));
    check("matmul, inner axis", &[&[2, 0], &[0, 3]], &|x| x[0].matmul(&x[1]));
    check("matmul, rows", &[&[0, 2], &[2, 3]], &|x| x[0].matmul(&x[1]));
    check("matmul of batches", &[&[0, 2, 3], &[3, 2]], &|x| x[0].matmul(&x[1]));
    check("addmm", &[&[3], &[2, 0], &[0, 3]], &|x| x[0].addmm(&x[1], &x[2], 1.0, 1.0));
    check("linear", &[&[2, 0], &[3, 0], &[3]], &|x| x[0].linear(&x[1], Some(&x[2])));
    check("linear, rows", &[&[0, 4], &[3, 4], &[3]], &|x| x[0].linear(&x[1], Some(&x[2])));
    check("layer_norm, rows", &[&[0, 3], &[3], &[3]], &|x| {
        x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-5)
    });
    check("layer_norm_add, rows", &[&[0, 3], &[0, 3], &[3]], &|x| {
        x[0].layer_norm_add(&x[1], 1, Some(&x[2]), None, 1e-5)
    });
    check("layer_norm, axis", &[&[2, 0], &[0]], &|x| x[0].layer_norm(1, Some(&x[1]), None, 1e-5));
    check("softmax", &[&[0]], &|x| x[0].softmax(0));
    check("log_softmax", &[&[2, 0]], &|x| x[0].log_softmax(1));
    check("attention, keys", &[&[2, 3], &[0, 3], &[0, 4]], &|x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], None, false, None)
    });
    check("attention, queries", &[&[0, 3], &[2, 3], &[2, 4]], &|x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], None, true, None)
    });
    check("sum", &[&[0]], &|x| x[0].sum(.., false));
    check("sum, kept axis", &[&[0, 2]], &|x| x[0].sum(1, false));
    check("mean", &[&[0]], &|x| x[0].mean(.., false));
    check("prod", &[&[0]], &|x| x[0].prod(.., false));
    check("var", &[&[0]], &|x| x[0].var(.., 1.0, false));
    check("std", &[&[2, 0]], &|x| x[0].std(1, 1.0, false));
    check("norm", &[&[0]], &|x| x[0].norm(.., false));
    check("norm_p", &[&[0]], &|x| x[0].norm_p(3.0, .., false));
    check("amax, kept axis", &[&[0, 2]], &|x| x[0].amax(1, false));
    check("max, kept axis", &[&[0, 2]], &|x| Ok(x[0].max(1, false)?.0));
    check("cumsum", &[&[0]], &|x| x[0].cumsum(0));
    check("sort", &[&[0]], &|x| Ok(x[0].sort(0, false)?.0));
    check("topk of none", &[&[3]], &|x| Ok(x[0].topk(0, 0, true)?.0));
    check("gather of none", &[&[3]], &|x| x[0].gather(0, &indices(0)));
    check("index_select of none", &[&[3]], &|x| x[0].index_select(0, &indices(0)));
    check("embedding of none", &[&[3, 2]], &|x| x[0].embedding(&indices(0)));
    check("index_add of none", &[&[3], &[0]], &|x| x[0].index_add(0, &indices(0), &x[1], 1.0));
    check("scatter of none", &[&[3], &[2]], &|x| x[0].scatter(0, &indices(0), &x[1]));
    check("scatter_add of none", &[&[3], &[0]], &|x| x[0].scatter_add(0, &indices(0), &x[1]));
    check("masked_select of none", &[&[3]], &|x| {
        x[0].masked_select(&Tensor::zeros([3], DType::Bool, device)?)
    });
    check("tril", &[&[0, 3]], &|x| x[0].tril(0));
    check("expand", &[&[3]], &|x| x[0].expand([0, 3]));
    check("narrow", &[&[3]], &|x| x[0].narrow(0, 1, 0));
    check("slice", &[&[3]], &|x| x[0].slice(0, 2, 2, 1));
    check("unfold", &[&[2]], &|x| x[0].narrow(0, 0, 0)?.reshape([0, 1])?.unfold(1, 1, 1));
    check("as_strided", &[&[3]], &|x| x[0].as_strided([0], [1], 0));
    check("diagonal", &[&[0, 3]], &|x| x[0].diagonal(0, 0, 1));
    check("reshape", &[&[0, 3]], &|x| x[0].reshape([7, 0]));
    check("copy", &[&[0, 3]], &|x| x[0].copy());
    check("to", &[&[0]], &|x| x[0].to(DType::F64));
    check("dropout", &[&[0]], &|x| x[0].dropout(0.5, None));
}

/// What has a factor of 0 doesn't count, in the value or in gradients.
fn factors_of_zero(device: &Device) {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for junk in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for [m, k, n] in [[2, 3, 2], [1, 3, 4], [4, 3, 1], [1, 33, 1], [33, 3, 1], [3, 1, 3]] {
                let of = |value: f64, shape: &[usize]| {
                    leaf(&vec![value; shape.iter().product()], shape, dtype, device)
                };
                let what = format!("{dtype}, [{m}, {k}] × [{k}, {n}] and {junk}");
                let ones = [of(2.0, &[n]), of(junk, &[m, k]), of(1.0, &[k, n])];
                let y = ones[0].addmm(&ones[1], &ones[2], 1.0, 0.0).unwrap();
                assert!(Array::read(&y).data.iter().all(|y| y.to_f64() == 2.0), "{what}: {y}");
                let found = gradients(&ones, |x| x[0].addmm(&x[1], &x[2], 1.0, 0.0));
                check_bits(&what, &found, &[&vec![m as f64; n], &vec![0.0; m * k], &vec![0.0; k * n]]);
                let ones = [of(junk, &[m, n]), of(1.0, &[m, k]), of(1.0, &[k, n])];
                let y = ones[0].addmm(&ones[1], &ones[2], 0.0, 1.0).unwrap();
                assert!(Array::read(&y).data.iter().all(|y| y.to_f64() == k as f64), "{what}: {y}");
                y.backward_with(&Tensor::full([m, n], junk, dtype, device).unwrap()).unwrap();
                let found = Array::read(&ones[0].grad().unwrap());
                assert!(found.data.iter().all(|x| x.to_f64() == 0.0), "{what}: {found:?}");
            }
        }
    }
}

/// A norm that is NaN has no gradient that looks like one.
fn not_a_number(device: &Device) {
    const NAN: f64 = f64::NAN;
    for dtype in [DType::BF16, DType::F32, DType::F64] {
        let x = [leaf(&[NAN, 1.0, 0.0], &[3], dtype, device)];
        for p in [0.5, 1.5, 2.0, 3.0] {
            let found = gradients(&x, |x| x[0].norm_p(p, .., false));
            // PyTorch's is NaN for elements that are 0, too, of any p.
            let of_zero = if p == 2.0 { NAN } else { 0.0 };
            check_bits(&format!("{p}-norm in {dtype}"), &found, &[&[NAN, NAN, of_zero]]);
        }
        // Of these two each element's gradient is a sign, as PyTorch's.
        check_bits("1-norm", &gradients(&x, |x| x[0].norm_p(1.0, .., false)), &[&[0.0, 1.0, 0.0]]);
        let largest = gradients(&x, |x| x[0].norm_p(f64::INFINITY, .., false));
        check_bits("∞-norm", &largest, &[&[0.0, 0.0, 0.0]]);
    }
}

/// What isn't finite in keys that a query doesn't see has no part in its gradient, nor a query that sees none in those of keys.
fn unseen(device: &Device) {
    let of = |values: &[f64], shape: &[usize]| leaf(values, shape, DType::F32, device);
    let mask = |values: &[bool], shape: &[usize]| Tensor::from_slice(values, shape, device).unwrap();
    for junk in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let attend = |junk: f64, mask: &Tensor, causal: bool| {
            let query = of(&[1.0, 0.5, 0.25, 2.0], &[2, 2]);
            let key = of(&[1.0, 0.0, 0.5, -1.0, junk, 1.0], &[3, 2]);
            let value = of(&[1.0, 3.0, 2.0], &[3, 1]);
            gradients(&[query, key, value], |x| {
                x[0].scaled_dot_product_attention(&x[1], &x[2], Some(mask), causal, None)
            })
        };
        let seen = mask(&[true, true, false], &[1, 3]);
        let expected = attend(7.0, &seen, false);
        assert_eq!(attend(junk, &seen, false), expected, "a key that is {junk}");
        let all = mask(&[true; 3], &[1, 3]);
        assert_eq!(attend(junk, &all, true), attend(7.0, &all, true), "a later key that is {junk}");
        // The second query sees it: the first one's gradient is its own affair.
        let some = mask(&[true, true, false, true, true, true], &[2, 3]);
        let found = attend(f64::NAN, &some, false);
        let by_first = attend(7.0, &some, false)[0][..2].to_vec();
        assert_eq!(found[0][..2], by_first);
        assert!(found[0][2..].iter().all(|x| x.is_nan()), "{found:?}");
        // A query of padding, which sees nothing.
        let none = mask(&[true, true, false, false, false, false], &[2, 3]);
        let by_query = |junk: f64| {
            let query = of(&[1.0, 0.5, junk, 2.0], &[2, 2]);
            let (key, value) = (of(&[1.0, 0.0, 0.5, -1.0, 2.0, 1.0], &[3, 2]), of(&[1.0, 3.0, 2.0], &[3, 1]));
            gradients(&[query, key, value], |x| {
                x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&none), false, None)
            })
        };
        assert_eq!(by_query(junk), by_query(7.0), "a query that sees nothing and is {junk}");
    }
}

/// Backward takes the sum as the op did, unrounded: against the same in `f64`, of numbers that lie near each other and far from 0.
fn sums_that_are_normalized(device: &Device) {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for (count, size) in [(1, 1.0), (2, 8.0), (64, 8.0), (64, 1000.0)] {
            // Exact in 8 bits; the sums aren't.
            let x = vec![size; 2 * count];
            let addend: Vec<f64> = (0..2 * count).map(|i| (i % 7) as f64 / 256.0).collect();
            let weight: Vec<f64> = (0..count).map(|i| 0.5 + (i % 4) as f64 / 8.0).collect();
            let of = |dtype: DType| {
                let leaves = [
                    leaf(&x, &[2, count], dtype, device),
                    leaf(&addend, &[2, count], dtype, device),
                    leaf(&weight, &[count], dtype, device),
                ];
                let y = leaves[0].layer_norm_add(&leaves[1], 1, Some(&leaves[2]), None, 1e-5).unwrap();
                let g: Vec<f64> = (0..2 * count).map(|i| (i % 5) as f64 / 4.0 - 0.5).collect();
                let g = Tensor::from_slice(&g, [2, count], device).unwrap().to(dtype).unwrap();
                y.backward_with(&g).unwrap();
                leaves.map(|leaf| leaf.grad().unwrap().to(DType::F64).unwrap().to_vec::<f64>().unwrap())
            };
            let (found, expected) = (of(dtype), of(DType::F64));
            // f32 has 2^-24 of the sums, beside deviations of 2^-8; the result is rounded to the dtype.
            let slack = 4.0 * size * 2f64.powi(-24) * 256.0 + if dtype == DType::BF16 { 0.01 } else { 0.002 };
            for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let most = expected.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
                for (found, expected) in found.iter().zip(expected) {
                    let is_near = (found - expected).abs() <= slack * most;
                    assert!(is_near, "{dtype}, {count} near {size}, {number}: {expected}, found {found}");
                }
            }
        }
    }
}

/// What `linear` sums is infinite in `f16` where it is computed again; gelu's slope there is 0 or 1.
fn gelu_of_what_overflows(device: &Device) {
    let leaves = [leaf(&[-300.0], &[1, 1], DType::F16, device), leaf(&[300.0], &[1, 1], DType::F16, device)];
    let found = gradients(&leaves, |x| x[0].linear_with(&x[1], None, raddle::Activation::Gelu));
    check_bits("gelu of -90000", &found, &[&[0.0], &[0.0]]);
    let found = gradients(&leaves, |x| x[0].neg()?.linear_with(&x[1], None, raddle::Activation::Gelu));
    check_bits("gelu of 90000", &found, &[&[-300.0], &[300.0]]);
}

/// Where a class has nearly all of the probability, loss and gradient are small, not 0: in `f32` as in `f64`.
fn confident_rows(device: &Device) {
    let rows: [&[f64]; 5] = [&[20.0, 0.0], &[0.0, 30.0, -5.0], &[-70.0, 12.5], &[3.0, 3.0, -20.0], &[0.1; 9]];
    for row in rows {
        for target in 0..row.len() {
            let of = |dtype: DType| {
                let x = [leaf(row, &[1, row.len()], dtype, device)];
                let loss = |x: &[Tensor]| x[0].log_softmax(1)?.narrow(1, target, 1)?.neg();
                let value = loss(&x).unwrap().detach().to(DType::F64).unwrap().to_vec::<f64>().unwrap()[0];
                [vec![value], gradients(&x, loss).remove(0)].concat()
            };
            // By the definition: what the others have, beside the target.
            let most = row.iter().copied().fold(f64::MIN, f64::max);
            let powers: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
            let total: f64 = powers.iter().sum();
            let others: f64 = (0..row.len()).filter(|&at| at != target).map(|at| powers[at]).sum();
            let mut expected = vec![(others / powers[target]).ln_1p()];
            let part = |at: usize| if at == target { -others / total } else { powers[at] / total };
            expected.extend((0..row.len()).map(part));
            for (dtype, digits) in [(DType::F32, 2e-6), (DType::F64, 1e-14)] {
                for (found, expected) in of(dtype).iter().zip(&expected) {
                    let least = if dtype == DType::F32 { 1e-37 } else { 0.0 };
                    let is_near = (found - expected).abs() <= digits * expected.abs() * 8.0 + least;
                    assert!(
                        is_near,
                        "{row:?}, class {target}, {dtype}: expected {expected:e}, found {found:e}"
                    );
                }
            }
        }
    }
}

/// Checks ops on one device, each with operands of its own.
struct Differences<'a> {
    device: &'a Device,
    random: Random,
}

impl<'a> Differences<'a> {
    fn new(name: &str, device: &'a Device) -> Differences<'a> {
        Differences { device, random: Random::named(name) }
    }

    fn tensor(&self, values: &[f64], shape: &[usize]) -> Tensor {
        Tensor::from_vec(values.to_vec(), shape, self.device).unwrap()
    }

    /// Random elements, apart from each other and from 0, where several ops have a kink; laid out as `layout` says.
    fn leaf(&mut self, shape: &[usize], layout: usize) -> Tensor {
        let count: usize = shape.iter().product();
        let mut values: Vec<f64> = (0..count).map(|i| 0.5 + (i as f64 + 0.5) / count.max(1) as f64).collect();
        for i in (1..count).rev() {
            values.swap(i, self.random.uniform(0.0, (i + 1) as f64) as usize);
        }
        let packed = self.tensor(&values, shape);
        let leaf = match (layout % 3, shape.len()) {
            (1, 2..) => packed.transpose(0, -1).and_then(|turned| turned.contiguous()?.transpose(0, -1)),
            (2, 1..) => {
                let wide = Tensor::zeros([shape, &[2]].concat(), DType::F64, self.device).unwrap();
                let stepped = wide.select(-1, 1).unwrap();
                stepped.copy_(&packed).unwrap();
                Ok(stepped)
            }
            _ => Ok(packed),
        };
        let leaf = leaf.unwrap().detach();
        leaf.requires_grad_(true).unwrap();
        leaf
    }

    fn check(&mut self, name: &str, shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
        for layout in 0..3 {
            let leaves: Vec<Tensor> =
                shapes.iter().enumerate().map(|(i, shape)| self.leaf(shape, layout + i)).collect();
            let weighted = |inputs: &[Tensor]| -> Result<Tensor> {
                let y = f(inputs)?;
                let weight: Vec<f64> = (0..y.element_count()).map(|i| 0.3 + (i as f64 * 0.7).sin()).collect();
                y.mul(&self.tensor(&weight, y.shape()))?.sum(.., false)
            };
            let y = weighted(&leaves).unwrap_or_else(|error| panic!("{name}: {error}"));
            y.backward().unwrap_or_else(|error| panic!("{name}: {error}"));
            for (which, leaf) in leaves.iter().enumerate() {
                let at = leaf.to_vec::<f64>().unwrap();
                let found = leaf.grad().unwrap_or_else(|| panic!("{name}: input {which} has no gradient"));
                for (element, found) in found.to_vec::<f64>().unwrap().into_iter().enumerate() {
                    let step = 1e-6;
                    let side = |by: f64| -> f64 {
                        let mut moved = at.clone();
                        moved[element] += by;
                        let mut inputs: Vec<Tensor> = leaves.iter().map(Tensor::detach).collect();
                        inputs[which] = self.tensor(&moved, leaf.shape());
                        weighted(&inputs).unwrap().item().unwrap()
                    };
                    let expected = (side(step) - side(-step)) / (2.0 * step);
                    assert!(
                        (found - expected).abs() <= 2e-6 * expected.abs().max(1.0),
                        "{name}, layout {layout}: input {which} element {element}: expected {expected}, found {found}"
                    );
                }
            }
        }
    }
}

fn reductions(device: &Device) {
    let x: &[&[usize]] = &[&[2, 3, 4]];
    let mut of = Differences::new("reductions", device);
    for keepdim in [false, true] {
        of.check("sum", x, |x| x[0].sum([0, 2], keepdim));
        of.check("mean", x, |x| x[0].mean(1, keepdim));
        of.check("prod", x, |x| x[0].prod(1, keepdim));
        of.check("amax", x, |x| x[0].amax([1, -1], keepdim));
        of.check("amin", x, |x| x[0].amin(.., keepdim));
        of.check("max", x, |x| Ok(x[0].max(1, keepdim)?.0));
        of.check("min", x, |x| Ok(x[0].min(-1, keepdim)?.0));
        of.check("var", x, |x| x[0].var([0, 1], 1.0, keepdim));
        of.check("std", x, |x| x[0].std(.., 0.0, keepdim));
        of.check("norm", x, |x| x[0].norm([2], keepdim));
    }
    of.check("norm_p", x, |x| x[0].norm_p(3.0, .., false));
    of.check("sum of a number", &[&[]], |x| x[0].sum(.., false));
}

/// Means, products and norms that 16 or 32 bits don't hold are no less exact in gradients.
fn reductions_of_narrow_floats(device: &Device) {
    let check = |what: &str, dtype: DType, values: &[f32], reduce: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let narrow = Tensor::from_slice(values, [values.len()], device).unwrap().to(dtype).unwrap().detach();
        let wide = narrow.to(DType::F64).unwrap();
        let [found, expected] = [&narrow, &wide].map(|x| {
            x.requires_grad_(true).unwrap();
            reduce(x).unwrap().backward().unwrap();
            x.grad().unwrap().to(DType::F64).unwrap().to_vec::<f64>().unwrap()
        });
        let (bits, least) = match dtype {
            DType::F16 => (11, 2f64.powi(-24)),
            DType::BF16 => (8, 0.0),
            _ => (24, 0.0),
        };
        for (found, expected) in found.iter().zip(&expected) {
            let tolerance = (expected.abs() * 2f64.powi(1 - bits)).max(least);
            let is_near = (found - expected).abs() <= tolerance || found == expected;
            assert!(is_near, "{what} of {dtype}, {values:?}: expected {expected}, found {found}");
        }
    };
    for dtype in [DType::F16, DType::BF16] {
        for values in [&[100.0f32, 100.5][..], &[1000.0, 1008.0, 1016.0, 1040.0], &[0.5, -0.25, 4.0]] {
            check("var", dtype, values, &|x| x.var(.., 1.0, false));
            check("std", dtype, values, &|x| x.std(0, 0.0, false));
        }
        let tiny = if dtype == DType::F16 { 2f32.powi(-24) } else { 2f32.powi(-133) };
        check("std", dtype, &[tiny, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &|x| x.std(.., 0.0, false));
        check("std", dtype, &[65_000.0, -65_000.0], &|x| x.std(.., 1.0, false));
        check("norm", dtype, &[60_000.0, -60_000.0, 1.0], &|x| x.norm(.., false));
        check("prod", dtype, &[300.0, 300.0], &|x| x.prod(0, false));
        check("prod", dtype, &[2f32.powi(-13), 2f32.powi(-13), 1024.0, 1024.0], &|x| x.prod(.., false));
    }
    for dtype in [DType::BF16, DType::F32] {
        for values in [&[16_777_216.0f32, 16_777_218.0][..], &[-2e38, -3e38, 1e38], &[2e-30, -1e-30, 5e-30]] {
            check("var", dtype, values, &|x| x.var(.., 1.0, false));
            check("std", dtype, values, &|x| x.std(0, 0.0, false));
            check("norm", dtype, values, &|x| x.norm(.., false));
        }
    }
}

/// Weights change by the differences of values, which the rounded result doesn't hold; and not by values that aren't seen.
fn attention_of_16_bits(device: &Device) {
    let of = |dtype: DType, values: &[f32], shape: &[usize]| {
        let leaf = Tensor::from_slice(values, shape, device).unwrap().to(dtype).unwrap().detach();
        leaf.requires_grad_(true).unwrap();
        leaf
    };
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let (query, key) = (of(dtype, &[1.0], &[1, 1]), of(dtype, &[1.0, 1.0], &[2, 1]));
        let value = of(dtype, &[100.0, 100.5], &[2, 1]);
        let y = query.scaled_dot_product_attention(&key, &value, None, false, Some(1.0)).unwrap();
        y.sum(.., false).unwrap().backward().unwrap();
        let found = key.grad().unwrap().to(DType::F32).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found, [-0.125, 0.125], "{dtype}");
    }
    let (query, key) = (of(DType::F32, &[1.0], &[1, 1]), of(DType::F32, &[0.0; 3], &[3, 1]));
    let value = of(DType::F32, &[1.0, 3.0, f32::INFINITY], &[3, 1]);
    let mask = Tensor::from_slice(&[true, true, false], [1, 3], device).unwrap();
    let y = query.scaled_dot_product_attention(&key, &value, Some(&mask), false, Some(1.0)).unwrap();
    y.backward().unwrap();
    assert_eq!(key.grad().unwrap().to_vec::<f32>().unwrap(), [-0.5, 0.5, 0.0]);
}

/// The gradient of a product by a factor is the product of the others, whatever the factor is and the product comes to.
fn products_of_extremes(device: &Device) {
    const INFINITY: f32 = f32::INFINITY;
    let cases: &[&[f32]] = &[
        &[1e-25, 1e-25],
        &[1e25, 1e25],
        &[1e30, 1e30, 1e-30],
        &[1e-30, 1e-30, 1e30],
        &[INFINITY],
        &[2.0, INFINITY, 3.0],
        &[2.0, -INFINITY, INFINITY],
        &[0.0, INFINITY],
        &[0.0, INFINITY, 2.0],
        &[0.0, 0.0, 2.0],
        &[-3.0, 0.0, 5.0],
        &[0.0, -0.0],
    ];
    for values in cases {
        let x = Tensor::from_slice(values, [values.len()], device).unwrap();
        x.requires_grad_(true).unwrap();
        x.prod(.., false).unwrap().backward().unwrap();
        let found = x.grad().unwrap().to_vec::<f32>().unwrap();
        for (at, found) in found.into_iter().enumerate() {
            let others = values.iter().enumerate().filter(|(other, _)| *other != at);
            let expected = others.map(|(_, value)| f64::from(*value)).product::<f64>() as f32;
            let is_near = (found - expected).abs() <= 1e-6 * expected.abs();
            assert!(
                is_near || found == expected || (found.is_nan() && expected.is_nan()),
                "{values:?} element {at}: expected {expected}, found {found}"
            );
        }
    }
}

/// What is used often has a sum for its gradient, which is rounded once.
fn sums_of_16_bits(device: &Device) {
    let index = Tensor::zeros([3000], DType::I64, device).unwrap();
    let check = |what: &str, count: usize, expected: f64, f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::ones([count], dtype, device).unwrap();
            x.requires_grad_(true).unwrap();
            let y = f(&x).unwrap();
            y.backward_with(&y.detach().ones_like().unwrap()).unwrap();
            let found = x.grad().unwrap().to(DType::F64).unwrap().amax(.., false).unwrap();
            let found = found.item::<f64>().unwrap();
            assert!((found / expected - 1.0).abs() < 0.005, "{what} of {dtype}: {expected}, found {found}");
        }
    };
    check("gather", 2, 3000.0, &|x| x.gather(0, &index));
    check("index_select", 2, 3000.0, &|x| x.index_select(0, &index));
    check("embedding", 2, 3000.0, &|x| x.unsqueeze(1)?.embedding(&index));
    check("unfold", 2200, 700.0, &|x| x.unfold(0, 700, 1));
    check("as_strided", 2, 3000.0, &|x| x.as_strided([3000], [0], 0));
    check("expand", 1, 3000.0, &|x| x.expand([3000]));
    // Each part is too small for an f16, their sum isn't.
    for dtype in [DType::F16, DType::BF16] {
        let x = Tensor::ones([1], dtype, device).unwrap();
        x.requires_grad_(true).unwrap();
        let small = Tensor::full([4096], 2f64.powi(-13), dtype, device).unwrap();
        x.mul(&small).unwrap().backward_with(&small).unwrap();
        assert_eq!(x.grad().unwrap().to(DType::F32).unwrap().item::<f32>().unwrap(), 2f32.powi(-14));
    }
}

fn orders(device: &Device) {
    let x: &[&[usize]] = &[&[2, 3, 4]];
    let mut of = Differences::new("orders", device);
    of.check("sort", x, |x| Ok(x[0].sort(1, true)?.0));
    of.check("topk", x, |x| Ok(x[0].topk(2, 2, true)?.0));
    of.check("cumsum", x, |x| x[0].cumsum(1));
    of.check("cumprod", x, |x| x[0].cumprod(1));
    of.check("logcumsumexp", x, |x| x[0].logcumsumexp(1));
    of.check("cummax", x, |x| Ok(x[0].cummax(1)?.0));
}

fn products(device: &Device) {
    let mut of = Differences::new("products", device);
    of.check("matmul", &[&[3, 4], &[4, 2]], |x| x[0].matmul(&x[1]));
    of.check("matmul of batches", &[&[2, 1, 3, 4], &[3, 4, 2]], |x| x[0].matmul(&x[1]));
    of.check("mm", &[&[3, 4], &[4, 2]], |x| x[0].mm(&x[1]));
    of.check("bmm", &[&[2, 3, 4], &[2, 4, 2]], |x| x[0].bmm(&x[1]));
    of.check("dot", &[&[5], &[5]], |x| x[0].dot(&x[1]));
    of.check("addmm", &[&[2], &[3, 4], &[4, 2]], |x| x[0].addmm(&x[1], &x[2], 0.5, -2.0));
    of.check("linear", &[&[2, 3, 4], &[5, 4], &[5]], |x| x[0].linear(&x[1], Some(&x[2])));
    let index = Tensor::from_vec(vec![0i64, 2, 1, 1, 3, 0], [2, 3], device).unwrap();
    let shapes: &[&[usize]] = &[&[2, 3], &[5, 4], &[5]];
    of.check("sparse_linear", shapes, |x| x[0].sparse_linear(&index, &x[1], Some(&x[2])));
    let shapes: &[&[usize]] = &[&[2, 3, 4], &[2, 5, 4], &[2, 5, 2]];
    of.check("scaled_dot_product_attention", shapes, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], None, true, None)
    });
}

fn normalizations(device: &Device) {
    let mut of = Differences::new("normalizations", device);
    of.check("softmax", &[&[2, 3, 4]], |x| x[0].softmax(1));
    of.check("log_softmax", &[&[2, 3, 4]], |x| x[0].log_softmax(-1));
    of.check("layer_norm", &[&[3, 5], &[5], &[5]], |x| x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-5));
    of.check("layer_norm_add", &[&[3, 5], &[3, 5], &[5]], |x| {
        x[0].layer_norm_add(&x[1], 1, Some(&x[2]), None, 1e-5)
    });
}

fn indexing(device: &Device) {
    let mut of = Differences::new("indexing", device);
    let index = Tensor::from_vec(vec![2i64, 0, 2, 1, 1, 1, 0, 2], [2, 4], device).unwrap();
    let once = Tensor::from_vec(vec![2i64, 0, 1, 1, 0, 2, 0, 2], [2, 4], device).unwrap();
    let picks = Tensor::from_vec(vec![3i64, 0, 3], [3], device).unwrap();
    let mask = Tensor::from_vec(vec![true, false, false, true], [4], device).unwrap();
    of.check("gather", &[&[3, 4]], |x| x[0].gather(0, &index));
    of.check("scatter", &[&[3, 4], &[2, 4]], |x| x[0].scatter(0, &once, &x[1]));
    of.check("scatter_add", &[&[3, 4], &[2, 5]], |x| x[0].scatter_add(0, &index, &x[1]));
    of.check("index_select", &[&[3, 4]], |x| x[0].index_select(1, &picks));
    of.check("index_add", &[&[3, 4], &[3, 3]], |x| x[0].index_add(1, &picks, &x[1], 1.5));
    of.check("embedding", &[&[3, 4]], |x| x[0].embedding(&index));
    of.check("masked_fill", &[&[3, 4]], |x| x[0].masked_fill(&mask, 2.0));
    of.check("masked_select", &[&[3, 4]], |x| x[0].masked_select(&mask));
    of.check("where", &[&[3, 4], &[4]], |x| mask.where_(&x[0], &x[1]));
    of.check("tril", &[&[3, 4]], |x| x[0].tril(1));
    of.check("triu", &[&[3, 4]], |x| x[0].triu(0));
}

fn joins(device: &Device) {
    let mut of = Differences::new("joins", device);
    of.check("cat", &[&[3, 4], &[3, 1]], |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 1));
    of.check("stack", &[&[3, 4], &[3, 4]], |x| Tensor::stack(&[&x[0], &x[1]], -1));
    for (name, part) in [("split", 0), ("chunk", 1), ("unbind", 2)] {
        of.check(name, &[&[3, 4]], |x| {
            let parts = match part {
                0 => x[0].split(2, 1)?,
                1 => x[0].chunk(2, 1)?,
                _ => x[0].unbind(1)?,
            };
            parts[0].mul(&parts[1])
        });
    }
}

fn views(device: &Device) {
    let x: &[&[usize]] = &[&[3, 4, 5]];
    let mut of = Differences::new("views", device);
    of.check("transpose", x, |x| x[0].transpose(0, -1));
    of.check("permute", x, |x| x[0].permute([2, 0, 1]));
    of.check("narrow", x, |x| x[0].narrow(1, 1, 2));
    of.check("slice", x, |x| x[0].slice(2, 1, 5, 3));
    of.check("select", x, |x| x[0].select(1, -1));
    of.check("reshape", x, |x| x[0].reshape([4, 15]));
    of.check("view", x, |x| x[0].contiguous()?.view([15, 4]));
    of.check("flatten", x, |x| x[0].flatten(1, 2));
    of.check("unsqueeze and squeeze", x, |x| x[0].unsqueeze(1)?.mul(2.0)?.squeeze(1));
    of.check("expand", &[&[3, 1]], |x| x[0].expand([2, 3, 4]));
    of.check("unfold", x, |x| x[0].unfold(2, 3, 1));
    of.check("diagonal", x, |x| x[0].diagonal(1, 0, 2));
    of.check("as_strided", x, |x| x[0].contiguous()?.as_strided([2, 3], [7, 3], 11));
    of.check("copy", x, |x| x[0].transpose(1, 2)?.copy());
    of.check("contiguous", x, |x| x[0].transpose(1, 2)?.contiguous());
}
