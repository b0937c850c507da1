//! Gradients of the structured ops and of the views, in f64, against central differences of the op itself: of operands that lie
//! row-major, transposed or stepped. (Those of the op table's rows stand in `pointwise`, against differences of the oracle.)

use crate::{Case, array::Array, random::Random};
use raddle::{DType, Device, Result, Tensor, grad::Autograd};

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

fn normalisations(device: &Device) {
    let mut of = Differences::new("normalisations", device);
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
