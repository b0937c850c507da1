//! Parameters and gradients that share memory.

use crate::device;
use raddle_grad::Autograd;
use raddle_optim::{Adam, AdamOptions, Error, Group, Sgd, SgdOptions};
use raddle_tensor::{DType, Tensor};

fn part(of: &Tensor, start: usize, count: usize) -> Tensor {
    let part = of.narrow(0, start, count).unwrap().detach();
    part.requires_grad_(true).unwrap();
    part
}

fn value(tensor: &Tensor) -> Vec<f64> {
    tensor.detach().to_vec().unwrap()
}

#[test]
fn parameters_that_meet_are_refused() {
    let base = Tensor::zeros([8], DType::F64, device()).unwrap();
    let parts = [part(&base, 5, 3), part(&base, 0, 3), part(&base, 2, 2)];
    let options = AdamOptions::default();
    let error = Adam::new(parts.to_vec(), options).unwrap_err();
    let expected = Error::Overlap { op: "adam", group: 0, parameter: 2, other_group: 0, other: 1 };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "adam: parameter 2 of group 0 shares memory with parameter 1 of group 0, expected memory of its own"
    );
    let groups = parts.map(|part| Group::new(vec![part], SgdOptions::default()));
    let error = Sgd::with_groups(groups.into()).unwrap_err();
    assert_eq!(error, Error::Overlap { op: "sgd", group: 2, parameter: 0, other_group: 1, other: 0 });
    // The same memory under two handles is no repeated parameter, and refused as well.
    let twice = vec![part(&base, 0, 3), part(&base, 0, 3)];
    assert!(matches!(Adam::new(twice, options), Err(Error::Overlap { .. })));
    let again = part(&base, 0, 3);
    assert!(matches!(
        Adam::new(vec![again.clone(), again], options),
        Err(Error::Repeated { parameter: 1, .. })
    ));
}

#[test]
fn slices_of_one_tensor_are_parameters() {
    const COUNT: usize = 300;
    let base = Tensor::zeros([2 * COUNT], DType::F64, device()).unwrap();
    let parts: Vec<Tensor> = (0..COUNT).map(|at| part(&base, at * 7 % COUNT * 2, 2)).collect();
    for part in &parts {
        part.set_grad(Some(Tensor::ones([2], DType::F64, device()).unwrap())).unwrap();
    }
    Sgd::new(parts, SgdOptions { lr: 0.5, ..SgdOptions::default() }).unwrap().step().unwrap();
    assert_eq!(value(&base), [-0.5; 2 * COUNT]);
}

/// A gradient may be the parameter itself, but no part of another one, and then nothing is stepped.
#[test]
fn gradients_that_are_other_parameters_are_refused() {
    let make = || {
        let parts = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
            .map(|values| part(&Tensor::from_slice(&values, [2], device()).unwrap(), 0, 2));
        for part in &parts {
            part.set_grad(Some(Tensor::ones([2], DType::F64, device()).unwrap())).unwrap();
        }
        parts
    };
    let parts = make();
    parts[1].set_grad(Some(parts[2].detach())).unwrap();
    // In another group than the first, which is in order.
    let group = |parts: &[Tensor]| Group::new(parts.to_vec(), AdamOptions::default());
    let mut adam = Adam::with_groups(vec![group(&parts[..1]), group(&parts[1..])]).unwrap();
    let error = adam.step().unwrap_err().to_string();
    assert_eq!(error, "adam: an output shares memory with a tensor of another group, use copy() first");
    assert_eq!(parts.each_ref().map(value), make().each_ref().map(value));
    assert!(
        adam.state()
            .unwrap()
            .groups
            .iter()
            .flatten()
            .all(|state| state.step == 0 && state.tensors.is_empty())
    );
    parts[1].set_grad(Some(parts[1].detach())).unwrap();
    let mut sgd = Sgd::new(parts.to_vec(), SgdOptions { lr: 0.5, ..SgdOptions::default() }).unwrap();
    sgd.step().unwrap();
    assert_eq!(parts.each_ref().map(value), [[0.5, 1.5], [1.5, 2.0], [4.5, 5.5]]);
}
