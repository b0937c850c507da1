use crate::{check, gradient, leaf, random, tensor, values};
use raddle_grad::{Autograd, Error, no_grad};
use raddle_tensor::{DType, Tensor};

#[test]
fn a_saved_tensor_that_was_changed_is_named() {
    let x = leaf(&[1.0, 2.0], &[2]);
    let y = x.mul(3.0).unwrap();
    let z = y.mul(&y).unwrap().sum(.., false).unwrap();
    y.add_(1.0).unwrap();
    let error = z.backward().unwrap_err();
    assert_eq!(
        error.to_string(),
        "backward: input 0 of mul, of shape [2], was changed in place since it was saved, \
         expected version 1, found 2"
    );
    assert!(matches!(error, Error::Changed { op: "mul", saved: 1, current: 2, .. }));
    let s = x.softmax(0).unwrap();
    let loss = s.sum(.., false).unwrap();
    no_grad(|| s.detach().zero_().map(|_| ())).unwrap();
    assert!(loss.backward().unwrap_err().to_string().starts_with("backward: output 0 of softmax"));
    // What isn't needed may change.
    let y = x.mul(3.0).unwrap();
    let sum = y.add(&y).unwrap();
    y.zero_().unwrap();
    x.zero_grad();
    sum.sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [6.0, 6.0]);
}

#[test]
fn fault_version_not_bumped() {
    let test = "in_place::a_saved_tensor_that_was_changed_is_named";
    raddle_sync::faults::assert_caught(raddle_sync::faults::Fault::version_not_bumped, test);
}

#[test]
fn leaves_are_refused() {
    let x = leaf(&[1.0, 2.0], &[2]);
    let leaf_text = "add: a leaf that requires grad can't be changed in place, use no_grad or detach()";
    assert_eq!(x.add_(1.0).unwrap_err().to_string(), leaf_text);
    let view = x.narrow(0, 0, 1).unwrap();
    assert!(view.mul_(2.0).unwrap_err().to_string().starts_with("mul: a view of a leaf that requires grad"));
    assert!(x.zero_().is_err() && x.normal_(0.0, 1.0, None).is_err());
    let out = tensor(&[0.0, 0.0], &[2]);
    assert!(x.exp_out(&out).unwrap_err().to_string().starts_with("exp: a given output has no gradient"));
    assert_eq!(values(&x), [1.0, 2.0]);
    no_grad(|| x.add_(1.0).map(|_| ())).unwrap();
    no_grad(|| x.exp_out(&out)).unwrap();
    assert_eq!(values(&x), [2.0, 3.0]);
    assert!(x.is_leaf() && x.requires_grad());
}

/// PyTorch goes on with gradients of 0 there.
#[test]
fn what_is_overwritten_with_constants_leaves_the_graph() {
    let x = leaf(&[1.0, 2.0], &[2]);
    type Overwrite = fn(&Tensor) -> Result<&Tensor, raddle_tensor::Error>;
    let overwrites: [Overwrite; 4] =
        [|y| y.zero_(), |y| y.fill_(3.0), |y| y.copy_(4.0), |y| y.normal_(0.0, 1.0, None)];
    for overwrite in overwrites {
        let y = x.mul(2.0).unwrap();
        overwrite(&y).unwrap();
        assert!(!y.requires_grad());
        assert!(matches!(y.sum(.., false).unwrap().backward(), Err(Error::NoGraph { .. })));
        // Beside others it adds nothing to gradients.
        x.zero_grad();
        y.add(&x).unwrap().sum(.., false).unwrap().backward().unwrap();
        assert_eq!(gradient(&x), [1.0, 1.0]);
        // Of a part that is overwritten the rest stays.
        let y = x.mul(2.0).unwrap();
        overwrite(&y.narrow(0, 0, 1).unwrap()).unwrap();
        assert!(y.requires_grad());
        x.zero_grad();
        y.sum(.., false).unwrap().backward().unwrap();
        assert_eq!(gradient(&x), [0.0, 2.0]);
    }
}

#[test]
fn results_may_be_changed() {
    let inputs = [random(&[3], 0.5, 1.0, 1), random(&[3], 0.5, 1.0, 2)];
    check("mul_", &inputs, |i| Ok(i[0].mul(2.0)?.mul_(&i[1])?.clone()));
    check("exp_ then mul_ by itself", &inputs, |i| {
        let y = i[0].mul(&i[1])?;
        y.exp_()?.mul_(&y.clone())?;
        Ok(y)
    });
    check("copy_", &inputs, |i| {
        let y = i[0].mul(2.0)?;
        y.copy_(&i[1])?;
        y.mul(&i[0])
    });
    check("into a plain tensor", &inputs, |i| {
        let sum = tensor(&[1.0, 2.0, 3.0], &[3]);
        sum.addcmul_(&i[0], &i[1], 0.5)?;
        Ok(sum)
    });
    check("fill_", &inputs, |i| {
        let y = i[0].mul(&i[1])?;
        let z = y.mul(3.0)?;
        y.fill_(4.0)?;
        z.add(&y)
    });
    check("scatter_add_", &inputs, |i| {
        let y = i[0].mul(2.0)?;
        y.scatter_add_(0, &tensor(&[1i64, 1, 0], &[3]), &i[1])?;
        y.square()
    });
    check("addmm_", &[random(&[2, 2], -1.0, 1.0, 3), random(&[2, 2], -1.0, 1.0, 4)], |i| {
        let y = i[0].mul(2.0)?;
        y.addmm_(&i[0], &i[1], 0.5, 2.0)?;
        Ok(y)
    });
}

#[test]
fn views_and_what_they_are_views_of() {
    let inputs = [random(&[2, 3], 0.5, 1.0, 1), random(&[3], 0.5, 1.0, 2)];
    check("a row of a result", &inputs, |i| {
        let y = i[0].mul(2.0)?;
        y.select(0, 1)?.mul_(&i[1])?;
        y.square()
    });
    check("a row of a plain tensor", &inputs, |i| {
        let buffer = tensor(&[1.0; 6], &[2, 3]);
        buffer.select(0, 0)?.copy_(&i[1])?;
        buffer.mul(&i[0])
    });
    check("the base, seen through a view made before", &inputs, |i| {
        let y = i[0].mul(2.0)?;
        let column = y.t()?.select(0, 1)?;
        y.select(0, 1)?.mul_(&i[1])?;
        y.mul_(3.0)?;
        column.square()
    });
    check("a base without a gradient, seen through a view made before", &inputs, |i| {
        let y = i[0].zeros_like()?;
        let (row, column) = (y.select(0, 0)?, y.t()?.select(0, 1)?);
        y.select(0, 0)?.copy_(&i[0].select(0, 1)?)?;
        row.mul(&column.sum(.., false)?)?.square()
    });
    check("a base without a gradient, changed itself, seen through views made before", &inputs, |i| {
        let y = i[0].zeros_like()?;
        let (row, column) = (y.select(0, 0)?, y.t()?.select(0, 1)?);
        y.copy_(&i[0])?;
        row.mul(&column.sum(.., false)?)?.square()
    });
    check("a view that is changed when its base is gone", &inputs, |i| {
        let columns = i[0].mul(2.0)?.t()?;
        let column = columns.select(1, 1)?;
        columns.exp_()?;
        columns.mul(&columns)?.select(1, 0)?.mul(&column)
    });
    check("views of a plain tensor that is gone", &inputs, |i| {
        let y = i[0].zeros_like()?;
        let (columns, row) = (y.t()?, y.select(0, 1)?);
        drop(y);
        columns.copy_(&i[0].t()?)?;
        row.mul(&i[1])?.square()
    });
    check("a reshape that copies", &inputs, |i| {
        let row = i[0].transpose(0, 1)?.reshape([6])?;
        row.exp_()?;
        Ok(row)
    });
    check("the view itself", &inputs, |i| {
        let y = i[0].mul(2.0)?;
        let row = y.select(0, 1)?;
        row.exp_()?;
        row.mul(&y)
    });
    check("a zeroed column", &inputs, |i| {
        let y = i[0].transpose(0, 1)?.mul(2.0)?;
        y.select(0, 2)?.zero_()?;
        y.square()
    });
}

#[test]
fn a_view_joins_the_graph_of_its_base() {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    let y = tensor(&[0.0; 4], &[2, 2]);
    let v = y.t().unwrap();
    assert!(!v.requires_grad());
    y.copy_(&x).unwrap();
    assert!(v.requires_grad() && !v.is_leaf());
    v.mul(&tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2])).unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [1.0, 3.0, 2.0, 4.0]);
    y.zero_().unwrap();
    assert!(!v.requires_grad(), "it holds constants now");
}

#[test]
fn what_is_copied_into_integers_has_no_gradient() {
    for dtype in [DType::I64, DType::Bool] {
        let y = leaf(&[1.5, 0.0], &[2]).mul(2.0).unwrap();
        let whole = tensor(&[0.0; 4], &[2, 2]).to(dtype).unwrap();
        let row = whole.select(0, 1).unwrap();
        row.copy_(&y).unwrap();
        y.copy_out(&whole.select(0, 0).unwrap()).unwrap();
        assert!(!row.requires_grad() && !whole.requires_grad(), "{dtype}");
        assert!(row.is_leaf() && whole.is_leaf());
        // Nor does it take that of the source.
        y.sum(.., false).unwrap().backward().unwrap();
    }
}

/// PyTorch's gradients.
#[test]
fn an_op_may_read_another_view_of_its_output() {
    let a = leaf(&[1.0, 2.0], &[2]);
    let twice = || {
        let y = a.mul(1.0).unwrap();
        (y.clone(), y.narrow(0, 0, 2).unwrap(), y.narrow(0, 0, 2).unwrap())
    };
    let gradient_of = |result: &raddle_tensor::Tensor| {
        a.zero_grad();
        result.sum(.., false).unwrap().backward_retain().unwrap();
        gradient(&a)
    };
    let (y, p, q) = twice();
    p.add_(&q).unwrap();
    assert_eq!(
        (gradient_of(&q), gradient_of(&p), gradient_of(&y)),
        (vec![2.0; 2], vec![2.0; 2], vec![2.0; 2])
    );
    let (y, _, q) = twice();
    y.add_(&q).unwrap();
    assert_eq!((gradient_of(&q), gradient_of(&y)), (vec![2.0; 2], vec![2.0; 2]));
    let (_, p, q) = twice();
    p.addcmul_(&q, &q, 1.0).unwrap(); // x + x²
    assert_eq!(gradient_of(&q), [3.0, 5.0]);
    let (_, p, q) = twice();
    q.addcmul_(&p, &q, 1.0).unwrap();
    p.addcmul_(&p, &q, 2.0).unwrap(); // u + 2 u² of u = x + x²
    assert_eq!(gradient_of(&q), [3.0 * (1.0 + 4.0 * 2.0), 5.0 * (1.0 + 4.0 * 6.0)]);
    let rows = leaf(&[2.0, 3.0], &[2, 1]);
    let y = rows.mul(1.0).unwrap();
    let (p, q) = (y.select(0, 0).unwrap(), y.select(0, 0).unwrap());
    p.mul_(&q).unwrap();
    q.sum(.., false).unwrap().backward_retain().unwrap();
    assert_eq!(gradient(&rows), [4.0, 0.0]);
    rows.zero_grad();
    y.sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&rows), [4.0, 1.0]);
    // Views of one tensor that don't meet.
    check("a row by another", &[random(&[2, 3], 0.5, 1.0, 1)], |i| {
        let y = i[0].mul(1.0)?;
        y.select(0, 1)?.add_(&y.select(0, 0)?)?;
        y.select(0, 0)?.mul_(&y.select(0, 1)?)?;
        y.mul(3.0)
    });
}

#[test]
fn fault_own_view_is_constant() {
    let test = "in_place::an_op_may_read_another_view_of_its_output";
    raddle_sync::faults::assert_caught(raddle_sync::faults::Fault::own_view_is_constant, test);
}

#[test]
fn an_op_that_fails_leaves_the_graph_as_it_was() {
    let a = leaf(&[1.0, 2.0], &[2]);
    let y = a.mul(3.0).unwrap();
    let view = y.narrow(0, 0, 2).unwrap();
    let bad = tensor(&[7i64], &[1]);
    assert!(y.index_add_(0, &bad, &tensor(&[1.0], &[1]), 1.0).is_err());
    let plain = tensor(&[0.0, 0.0], &[2]);
    assert!(plain.index_add_(0, &bad, &a.narrow(0, 0, 1).unwrap(), 1.0).is_err());
    assert!(!plain.requires_grad() && view.requires_grad());
    view.sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&a), [3.0, 3.0]);
}

#[test]
fn views_of_a_view_that_is_a_leaf() {
    let base = tensor(&[1.0, 2.0, 3.0], &[3]);
    let part = base.narrow(0, 0, 2).unwrap();
    part.requires_grad_(true).unwrap();
    let one = part.narrow(0, 0, 1).unwrap();
    assert!(one.requires_grad() && !base.requires_grad());
    let error = one.mul_(2.0).unwrap_err().to_string();
    assert!(error.starts_with("mul: a view of a leaf that requires grad"), "{error}");
    no_grad(|| base.mul_(2.0).map(drop)).unwrap();
    one.square().unwrap().sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&part), [4.0, 0.0]);
}
