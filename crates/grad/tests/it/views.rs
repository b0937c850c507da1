use crate::{check, gradient, leaf, random, tensor};
use raddle_grad::Autograd;

#[test]
fn every_view() {
    let x = [random(&[3, 4, 5], -1.0, 1.0, 1)];
    check("transpose", &x, |x| x[0].transpose(0, -1));
    check("permute", &x, |x| x[0].permute([2, 0, 1]));
    check("narrow", &x, |x| x[0].narrow(1, 1, 2));
    check("slice", &x, |x| x[0].slice(2, 1, 5, 3));
    check("empty slice", &x, |x| x[0].slice(2, 3, 3, 1));
    check("select", &x, |x| x[0].select(1, -1));
    check("reshape", &x, |x| x[0].reshape([4, 15]));
    check("reshape with a copy", &x, |x| x[0].transpose(0, 2)?.reshape([20, 3]));
    check("unsqueeze", &x, |x| x[0].unsqueeze(1)?.squeeze(1));
    check("unfold", &x, |x| x[0].unfold(2, 3, 1));
    check("unfold with gaps", &x, |x| x[0].unfold(1, 1, 2));
    check("diagonal", &x, |x| x[0].diagonal(1, 0, 2));
    check("as_strided", &x, |x| x[0].as_strided([2, 3], [7, 3], 11));
    check("as_strided, overlapping", &x, |x| x[0].as_strided([3, 4], [2, 1], 5));
    check("copy", &x, |x| x[0].transpose(1, 2)?.copy());
    check("contiguous", &x, |x| x[0].transpose(1, 2)?.contiguous());
    check("alias", &x, |x| x[0].alias_view());
    let small = [random(&[3, 1], -1.0, 1.0, 2)];
    check("expand", &small, |x| x[0].expand([2, 3, 4]));
    check("as_strided of an expanded one", &small, |x| x[0].expand([3, 2])?.mul(2.0));
}

/// Case A-04.
#[test]
fn a_step_that_picks_one_element() {
    let z = leaf(&[0.0; 8], &[2, 4]);
    let first = z.slice(0, 0, 2, 2).unwrap().mul(&tensor(&[5.0, 6.0, 7.0, 8.0], &[1, 4])).unwrap();
    let second = z.slice(0, 1, 2, 2).unwrap().mul(&tensor(&[-20.0, -30.0, -40.0, -50.0], &[1, 4])).unwrap();
    first.sum(.., false).unwrap().add(&second.sum(.., false).unwrap()).unwrap().backward().unwrap();
    assert_eq!(gradient(&z), [5.0, 6.0, 7.0, 8.0, -20.0, -30.0, -40.0, -50.0]);
    let expected = [0.0, 0.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let w = leaf(&[0.0; 9], &[9]);
    w.slice(0, 3, 8, 6).unwrap().mul(10.0).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&w), expected);
    w.zero_grad();
    w.as_strided([1], [6], 3).unwrap().mul(10.0).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&w), expected);
}

#[test]
fn elements_that_are_one_place_share_its_gradient() {
    // PyTorch: as_strided of an expanded tensor.
    let x = leaf(&[1.0], &[1]);
    let wide = x.expand([4]).unwrap();
    let (wide, _) = (wide.as_strided([1], [1], 0).unwrap(), ());
    wide.mul(8.0).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [8.0]);
}
