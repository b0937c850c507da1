//! Ops that are composed of others, against values written from their definitions; on copies and on views of other strides.

use crate::{device, tensor};
use raddle_tensor::{Between, DType, Fold, Padding, Result, Scalar, Tensor, einsum};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// The same elements, every other one of a larger tensor, in the reverse order of axes.
fn strided(x: &Tensor) -> Tensor {
    let order: Vec<isize> = (0..x.rank() as isize).rev().collect();
    let turned = x.permute(&order).unwrap();
    let twice = Tensor::stack(&[&turned, &turned], -1).unwrap();
    twice.select(-1, 1).unwrap().permute(&order).unwrap()
}

fn matrix(rows: &[[f64; 3]]) -> Tensor {
    tensor(&rows.concat(), &[rows.len(), 3])
}

/// Checks an op on both layouts; NaN equals NaN, and nothing may be off by more than rounding.
fn check(name: &str, x: &Tensor, op: impl Fn(&Tensor) -> Result<Tensor>, shape: &[usize], expected: &[f64]) {
    for x in [x.clone(), strided(x)] {
        let found = op(&x).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.shape()[..], *shape, "{name}");
        let values = found.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
        for (found, expected) in values.iter().zip(expected) {
            let near = (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
            assert!(near || found == expected || found.is_nan() && expected.is_nan(), "{name}: {values:?}");
        }
    }
}

fn refused(result: Result<Tensor>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn elements_go_to_other_places() {
    let x = matrix(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    check("flip", &x, |x| x.flip(&[1]), &[2, 3], &[3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    check("flip all", &x, |x| x.flip(&[0, -1]), &[2, 3], &[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    check("roll", &x, |x| x.roll(&[1], &[1]), &[2, 3], &[3.0, 1.0, 2.0, 6.0, 4.0, 5.0]);
    check("roll all", &x, |x| x.roll(&[-1], &[]), &[2, 3], &[2.0, 3.0, 4.0, 5.0, 6.0, 1.0]);
    check("rot90", &x, |x| x.rot90(1, [0, 1]), &[3, 2], &[3.0, 6.0, 2.0, 5.0, 1.0, 4.0]);
    check("rot90 back", &x, |x| x.rot90(-1, [0, 1]), &[3, 2], &[4.0, 1.0, 5.0, 2.0, 6.0, 3.0]);
    let twice = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 4.0, 5.0, 6.0];
    check("repeat", &x, |x| x.repeat(&[1, 2]), &[2, 6], &twice);
    check("tile", &x, |x| x.tile(&[2]), &[2, 6], &twice);
    check("repeat none", &x, |x| x.repeat(&[0, 1]), &[0, 3], &[]);
    let each = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0];
    check("repeat_interleave", &x, |x| x.repeat_interleave(2, 1), &[2, 6], &each);
    let counts = tensor(&[0i64, 2], &[2]);
    let by = |x: &Tensor| x.repeat_interleave_by(&counts, 0);
    check("repeat_interleave_by", &x, by, &[2, 3], &[4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
    check("trace", &x, |x| x.trace(), &[], &[6.0]);
    let v = tensor(&[1.0f64, 2.0], &[2]);
    check("diag", &v, |x| x.diag(1), &[3, 3], &[0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]);
    check("kron", &v, |x| x.kron(&tensor(&[1.0f64, 10.0], &[2])), &[4], &[1.0, 10.0, 2.0, 20.0]);
    check("vander", &v, |x| x.vander(3, false), &[2, 3], &[1.0, 1.0, 1.0, 4.0, 2.0, 1.0]);
    check("select_scatter", &x, |x| x.select_scatter(&v, 1, -1), &[2, 3], &[1.0, 2.0, 1.0, 4.0, 5.0, 2.0]);

    assert!(refused(x.flip(&[0, -2])).contains("axis 0"), "one axis twice");
    assert_eq!(refused(x.roll(&[1, 2], &[0])), "roll: wrong number of shifts, expected 1, found 2");
    assert_eq!(refused(x.repeat(&[2])), "repeat: wrong number of numbers, expected 2, found 1");
    assert!(
        refused(x.repeat_interleave_by(&tensor(&[-1i64, 1], &[2]), 0))
            .ends_with("expected at least 0, found -1")
    );
    assert!(
        refused(x.select_scatter(&x, 0, 0)).starts_with("select_scatter: the source has the wrong shape")
    );
}

#[test]
fn borders_are_padded_in_every_way() {
    let x = matrix(&[[1.0, 2.0, 3.0]]);
    let by = |padding| move |x: &Tensor| x.pad(&[[2, 1]], padding);
    let zero = Padding::Constant(Scalar::Int(0));
    check("constant", &x, by(zero), &[1, 6], &[0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
    check("reflect", &x, by(Padding::Reflect), &[1, 6], &[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    check("replicate", &x, by(Padding::Replicate), &[1, 6], &[1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
    check("circular", &x, by(Padding::Circular), &[1, 6], &[2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    check("cut", &x, |x| x.pad(&[[-1, 1]], zero), &[1, 3], &[2.0, 3.0, 0.0]);
    check("all cut", &x, |x| x.pad(&[[5, -4]], zero), &[1, 4], &[0.0, 0.0, 0.0, 0.0]);
    assert!(
        refused(x.pad(&[[3, 0]], Padding::Reflect))
            .ends_with("expected one that the axis has elements for, found 3")
    );
    assert!(refused(x.pad(&[[-4, 0]], zero)).starts_with("pad: a width is out of range"));
}

#[test]
fn places_are_written_and_looked_up() {
    let x = matrix(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let index = tensor(&[2i64, 0], &[2]);
    check("index_fill", &x, |x| x.index_fill(1, &index, 9), &[2, 3], &[9.0, 2.0, 9.0, 9.0, 5.0, 9.0]);
    let source = tensor(&[7.0f64, 8.0, 9.0, 10.0], &[2, 2]);
    check("index_copy", &x, |x| x.index_copy(1, &index, &source), &[2, 3], &[8.0, 2.0, 7.0, 10.0, 5.0, 9.0]);
    let places = tensor(&[-1i64, 0], &[2]);
    check("take", &x, |x| x.take(&places), &[2], &[6.0, 1.0]);
    let two = tensor(&[7.0f64, 8.0], &[2]);
    check("put", &x, |x| x.put(&places, &two, true), &[2, 3], &[9.0, 2.0, 3.0, 4.0, 5.0, 13.0]);
    assert!(x.put(&tensor(&[6i64, -7], &[2]), &two, false).is_err(), "one beyond each end");
    assert!(x.put(&tensor(&[0i64, -7], &[2]), &two, false).is_err(), "one beyond the front");
    let mask = tensor(&[true, false, true], &[3]);
    let four = tensor(&[7.0f64, 8.0, 9.0, 10.0], &[4]);
    check(
        "masked_scatter",
        &x,
        |x| x.masked_scatter(&mask, &four),
        &[2, 3],
        &[7.0, 2.0, 8.0, 9.0, 5.0, 10.0],
    );
    assert!(x.masked_scatter(&mask, &two).is_err());

    // Onto the first column twice, onto the second not at all.
    let to = tensor(&[0i64, 0, 2, 0, 0, 2], &[2, 3]);
    let values = matrix(&[[2.0, 5.0, 1.0], [-1.0, 0.0, 7.0]]);
    for (fold, with, without) in [
        (Fold::Sum, [8.0, 2.0, 4.0, 3.0, 5.0, 13.0], [7.0, 2.0, 1.0, -1.0, 5.0, 7.0]),
        (Fold::Prod, [10.0, 2.0, 3.0, 0.0, 5.0, 42.0], [10.0, 2.0, 1.0, 0.0, 5.0, 7.0]),
        (Fold::Mean, [8.0 / 3.0, 2.0, 2.0, 1.0, 5.0, 6.5], [3.5, 2.0, 1.0, -0.5, 5.0, 7.0]),
        (Fold::AMax, [5.0, 2.0, 3.0, 4.0, 5.0, 7.0], [5.0, 2.0, 1.0, 0.0, 5.0, 7.0]),
        (Fold::AMin, [1.0, 2.0, 1.0, -1.0, 5.0, 6.0], [2.0, 2.0, 1.0, -1.0, 5.0, 7.0]),
    ] {
        let name = format!("scatter_reduce {fold:?}");
        check(&name, &x, |x| x.scatter_reduce(1, &to, &values, fold, true), &[2, 3], &with);
        check(&name, &x, |x| x.scatter_reduce(1, &to, &values, fold, false), &[2, 3], &without);
        for dtype in [DType::F16, DType::I64, DType::F32] {
            let [x, values] = [&x, &values].map(|x| x.to_dtype(dtype).unwrap());
            let expected: Vec<f64> = with
                .iter()
                .map(|&value: &f64| {
                    Tensor::full(
                        [1],
                        Scalar::Float(if dtype.is_float() { value } else { value.floor() }),
                        dtype,
                        device(),
                    )
                    .unwrap()
                })
                .map(|value| value.to_dtype(DType::F64).unwrap().item::<f64>().unwrap())
                .collect();
            check(&name, &x, |x| x.scatter_reduce(1, &to, &values, fold, true), &[2, 3], &expected);
        }
    }

    let sorted = tensor(&[1.0f64, 3.0, 3.0, 5.0], &[4]);
    let values = tensor(&[0.0f64, 3.0, 5.0, 6.0, NAN], &[5]);
    check(
        "searchsorted",
        &values,
        |x| Tensor::searchsorted(&sorted, x, false),
        &[5],
        &[0.0, 1.0, 3.0, 4.0, 4.0],
    );
    check(
        "searchsorted right",
        &values,
        |x| Tensor::searchsorted(&sorted, x, true),
        &[5],
        &[0.0, 3.0, 4.0, 4.0, 4.0],
    );
    check("isin", &values, |x| x.isin(&sorted), &[5], &[0.0, 1.0, 1.0, 0.0, 0.0]);
    let classes = tensor(&[2i64, 0, 2], &[3]);
    check("bincount", &classes, |x| x.bincount(None, 4), &[4], &[1.0, 0.0, 2.0, 0.0]);
    check("one_hot", &classes, |x| x.one_hot(None), &[3, 3], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    assert!(tensor(&[-1i64], &[1]).bincount(None, 0).is_err());
    let x = tensor(&[3.0f64, 1.0, 3.0, NAN, 1.0, NAN], &[6]);
    check("unique", &x, |x| Ok(x.unique(None)?.values), &[4], &[1.0, 3.0, NAN, NAN]);
    check("unique, inverse", &x, |x| Ok(x.unique(None)?.inverse), &[6], &[1.0, 0.0, 1.0, 2.0, 0.0, 3.0]);
    check("unique, counts", &x, |x| Ok(x.unique(None)?.counts), &[4], &[2.0, 2.0, 1.0, 1.0]);
    let rows = matrix(&[[2.0, 1.0, 0.0], [1.0, 5.0, 5.0], [2.0, 1.0, 0.0]]);
    check("unique rows", &rows, |x| Ok(x.unique(Some(0))?.values), &[2, 3], &[1.0, 5.0, 5.0, 2.0, 1.0, 0.0]);
    check("unique_consecutive", &rows, |x| Ok(x.unique_consecutive(Some(0))?.counts), &[3], &[1.0, 1.0, 1.0]);
}

#[test]
fn scans_order_and_statistics() {
    let x = matrix(&[[2.0, 0.0, -3.0], [NAN, 1.0, 4.0]]);
    check("cumprod", &x, |x| x.cumprod(1), &[2, 3], &[2.0, 0.0, 0.0, NAN, NAN, NAN]);
    check("cummax", &x, |x| Ok(x.cummax(1)?.0), &[2, 3], &[2.0, 2.0, 2.0, NAN, NAN, NAN]);
    check("cummin", &x, |x| Ok(x.cummin(0)?.0), &[2, 3], &[2.0, 0.0, -3.0, NAN, 0.0, -3.0]);
    let ties = tensor(&[1.0f64, 1.0, 0.0, 1.0], &[4]);
    check("cummax, the last of equals", &ties, |x| Ok(x.cummax(0)?.1), &[4], &[0.0, 1.0, 1.0, 3.0]);
    let logs = tensor(&[1000.0f64, 1000.0, -INF, INF], &[4]);
    let two = 1000.0 + 2f64.ln();
    check("logcumsumexp", &logs, |x| x.logcumsumexp(0), &[4], &[1000.0, two, two, INF]);
    check("logsumexp", &logs.narrow(0, 0, 3).unwrap(), |x| x.logsumexp(0, false), &[], &[two]);
    check("logsumexp of nothing", &tensor(&[-INF, -INF], &[2]), |x| x.logsumexp(0, false), &[], &[-INF]);
    check("nansum", &x, |x| x.nansum(1, false), &[2], &[-1.0, 5.0]);
    check("nanmean", &x, |x| x.nanmean(.., false), &[], &[0.8]);
    check("median", &x, |x| Ok(x.median(1, false)?.0), &[2], &[0.0, NAN]);
    check("median, where", &x, |x| Ok(x.median(1, false)?.1), &[2], &[1.0, 0.0]);
    check("nanmedian", &x, |x| Ok(x.nanmedian(1, true)?.0), &[2, 1], &[0.0, 1.0]);
    check("kthvalue", &x, |x| Ok(x.kthvalue(3, 1, false)?.0), &[2], &[2.0, NAN]);
    let often = tensor(&[3.0f64, 1.0, 3.0, 1.0, 2.0], &[5]);
    check("mode", &often, |x| Ok(x.mode(0, false)?.0), &[], &[1.0]);
    check("mode, where", &often, |x| Ok(x.mode(0, false)?.1), &[], &[3.0]);
    let (line, q) = (tensor(&[4.0f64, 1.0, 3.0, 2.0], &[4]), tensor(&[0.0f64, 0.5, 0.9], &[3]));
    for (between, expected) in [
        (Between::Linear, [1.0, 2.5, 3.7]),
        (Between::Lower, [1.0, 2.0, 3.0]),
        (Between::Higher, [1.0, 3.0, 4.0]),
        (Between::Midpoint, [1.0, 2.5, 3.5]),
        (Between::Nearest, [1.0, 3.0, 4.0]),
    ] {
        check("quantile", &line, |x| x.quantile(&q, None, false, between, false), &[3], &expected);
    }
    let half = tensor(&[0.5f64], &[]);
    check(
        "quantile of NaN",
        &x,
        |x| x.quantile(&half, Some(1), false, Between::Linear, false),
        &[2],
        &[0.0, NAN],
    );
    check(
        "nanquantile",
        &x,
        |x| x.quantile(&half, Some(1), true, Between::Linear, true),
        &[2, 1],
        &[0.0, 2.5],
    );
    assert!(
        refused(line.quantile(&tensor(&[1.5f64], &[]), None, false, Between::Linear, false))
            .contains("found 1.5")
    );
    check("diff", &line, |x| x.diff(2, 0), &[2], &[5.0, -3.0]);
    check("trapezoid", &line, |x| x.trapezoid(None, 2.0, 0), &[], &[14.0]);
    check(
        "cdist",
        &matrix(&[[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]]),
        |x| x.cdist(x, 2.0),
        &[2, 2],
        &[0.0, 5.0, 5.0, 0.0],
    );
    let table = matrix(&[[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]);
    check("cov", &table, |x| x.cov(1.0, None, None), &[2, 2], &[1.0, -1.0, -1.0, 1.0]);
    check("corrcoef", &table, |x| x.corrcoef(), &[2, 2], &[1.0, -1.0, -1.0, 1.0]);
    let empty = tensor::<f64>(&[], &[0, 3]);
    assert!(refused(empty.median(0, false).map(|found| found.0)).starts_with("median: axis 0 is empty"));
    check("cumprod of none", &empty, |x| x.cumprod(0), &[0, 3], &[]);
}

#[test]
fn products_of_many_axes() {
    let a = matrix(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let b = matrix(&[[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]);
    let of = |equation: &'static str| {
        move |x: &Tensor| einsum(equation, &[x, &matrix(&[[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])])
    };
    check("product", &a, of("ij,kj->ik"), &[2, 2], &[7.0, 5.0, 16.0, 11.0]);
    check("implicit", &a, of("ij,kj"), &[2, 2], &[7.0, 5.0, 16.0, 11.0]);
    check("elements", &a, of("ij,ij->ji"), &[3, 2], &[1.0, 0.0, 0.0, 5.0, 6.0, 6.0]);
    check("sum", &a, of("ij,kl->"), &[], &[105.0]);
    check("dots", &a, of("...j,...j->..."), &[2], &[7.0, 11.0]);
    let square = |x: &Tensor| einsum("ii->i", &[&x.narrow(1, 0, 2)?]);
    check("diagonal", &a, square, &[2], &[1.0, 5.0]);
    check(
        "three",
        &a,
        |x| einsum("ij,kj,kl->il", &[x, &b, &b]),
        &[2, 3],
        &[7.0, 5.0, 19.0, 16.0, 11.0, 43.0],
    );
    check("tensordot", &a, |x| x.tensordot(&b, &[0, 1], &[0, 1]), &[], &[18.0]);
    check("inner", &a, |x| x.inner(&b), &[2, 2], &[7.0, 5.0, 16.0, 11.0]);
    check("outer", &tensor(&[1.0f64, 2.0], &[2]), |x| x.outer(x), &[2, 2], &[1.0, 2.0, 2.0, 4.0]);
    check("cross", &a, |x| x.cross(&b, 1), &[2, 3], &[4.0, 1.0, -2.0, -1.0, -4.0, 4.0]);
    let nan = tensor(&[NAN, NAN], &[2]);
    let v = tensor(&[1.0f64, 0.0, 0.0], &[3]);
    check("addmv without the addend", &a, |x| nan.addmv(x, &v, 0, 2), &[2], &[2.0, 8.0]);
    let fibonacci = tensor(&[1.0f64, 1.0, 1.0, 0.0], &[2, 2]);
    check("matrix_power", &fibonacci, |x| x.matrix_power(10), &[2, 2], &[89.0, 55.0, 55.0, 34.0]);
    check(
        "multi_dot",
        &a,
        |x| Tensor::multi_dot(&[x.clone(), b.t()?, x.clone()]),
        &[2, 3],
        &[27.0, 39.0, 51.0, 60.0, 87.0, 114.0],
    );
    for (equation, count) in [("ij->ik", 1), ("ij,jk", 1), ("ijk", 1), ("i$", 1), ("ij->ii", 1)] {
        assert!(einsum(equation, &vec![&a; count]).is_err(), "{equation}");
    }
    assert!(einsum("ij,jk", &[&a, &b]).is_err(), "sizes that differ");
}
