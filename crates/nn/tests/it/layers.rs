use crate::{device, tensor};
use raddle_grad::Autograd;
use raddle_nn::{
    Dropout, Embedding, Function, LayerNorm, Linear, LossReduction, Module, Sequential, bce_with_logits,
    cross_entropy, init, l1_loss, mse_loss,
};
use raddle_tensor::{DType, Generator, Tensor};

#[test]
fn a_stack_of_layers() {
    let generator = Generator::new(1);
    let linear =
        |inputs, outputs| Linear::new(inputs, outputs, true, DType::F32, device(), Some(&generator)).unwrap();
    let mut model = Sequential::new()
        .then(Embedding::new(10, 6, DType::F32, device(), Some(&generator)).unwrap())
        .then(LayerNorm::new(&[6], DType::F32, device()).unwrap())
        .then(linear(6, 3))
        .then(Function(Tensor::relu))
        .then(Dropout::new(0.5, None));
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "1.weight", "1.bias", "2.weight", "2.bias"]);
    model.set_training(false);
    let words = tensor(&[1i64, 9, 0, 1], &[2, 2]);
    let y = model.forward(&words).unwrap();
    assert_eq!(**y.shape(), [2, 2, 3]);
    assert_eq!(y.to_vec::<f32>().unwrap(), model.forward(&words).unwrap().to_vec::<f32>().unwrap());
    y.sum(.., false).unwrap().backward().unwrap();
    assert!(model.parameters().iter().all(|parameter| parameter.grad().is_some()));
}

#[test]
fn initial_values_are_as_wide_as_they_say() {
    let generator = Generator::new(2);
    let linear = Linear::new(25, 400, true, DType::F32, device(), &generator).unwrap();
    for values in [linear.weight.detach(), linear.bias.unwrap().detach()] {
        let values: Vec<f32> = values.to_vec().unwrap();
        assert!(values.iter().all(|value| value.abs() <= 0.2));
        assert!(values.iter().any(|value| *value > 0.15) && values.iter().any(|value| *value < -0.15));
    }
    let weight = tensor(&[0f64; 24], &[2, 4, 3]);
    assert_eq!(init::fans(&weight), (12, 6));
    init::xavier_uniform_(&weight, 1.0, &generator).unwrap();
    let bound = (6f64 / 18.0).sqrt();
    assert!(weight.to_vec::<f64>().unwrap().iter().all(|value| value.abs() <= bound));
    // 10,000 draws: their deviation is known to 1 in 140, and this allows 4 of those.
    let weight = linear.weight.detach();
    let assert_deviation = |expected: f64| {
        let found = f64::from(weight.std(.., 1.0, false).unwrap().item::<f32>().unwrap());
        assert!((found / expected - 1.0).abs() < 4.0 / 140.0, "expected {expected}, found {found}");
    };
    init::xavier_normal_(&weight, 3.0, &generator).unwrap();
    assert_deviation(3.0 * (2f64 / 425.0).sqrt());
    init::kaiming_normal_(&weight, 0.5, &generator).unwrap();
    assert_deviation((2f64 / (1.25 * 25.0)).sqrt());
}

#[test]
fn losses_and_their_gradients() {
    let leaf = |values: &[f64], shape: &[usize]| {
        let leaf = tensor(values, shape);
        leaf.requires_grad_(true).unwrap();
        leaf
    };
    let gradient = |leaf: &Tensor| leaf.grad().unwrap().to_vec::<f64>().unwrap();
    let x = leaf(&[1.0, 2.0, -1.0], &[3]);
    let y = tensor(&[1.0, 0.0, 1.0], &[3]);
    let mse = mse_loss(&x, &y, LossReduction::Mean).unwrap();
    mse.backward().unwrap();
    assert_eq!((mse.item::<f64>().unwrap(), gradient(&x)), (8.0 / 3.0, vec![0.0, 4.0 / 3.0, -4.0 / 3.0]));
    x.zero_grad();
    l1_loss(&x, &y, LossReduction::Sum).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), [0.0, 1.0, -1.0]);
    let logits = leaf(&[0.0, 800.0, -800.0], &[3]);
    let bce = bce_with_logits(&logits, &y, LossReduction::None).unwrap();
    assert_eq!(bce.to_vec::<f64>().unwrap(), [2f64.ln(), 800.0, 800.0]);
    bce.sum(.., false).unwrap().backward().unwrap();
    assert_eq!(gradient(&logits), [-0.5, 1.0, -1.0]);
    // A good guess has a small loss and a small gradient, not none.
    let logits = leaf(&[-40.0, 40.0, -10.0], &[3]);
    let bce = bce_with_logits(&logits, &tensor(&[0.0, 1.0, 0.0], &[3]), LossReduction::None).unwrap();
    bce.sum(.., false).unwrap().backward().unwrap();
    let [small, larger] = [40.0f64, 10.0].map(|x| (-x).exp());
    for (found, expected) in bce.to_vec::<f64>().unwrap().iter().zip([small, small, larger.ln_1p()]) {
        assert!((found / expected - 1.0).abs() < 1e-14, "{found:e} {expected:e}");
    }
    for (found, expected) in gradient(&logits).iter().zip([small, -small, larger / (1.0 + larger)]) {
        assert!((found / expected - 1.0).abs() < 1e-14, "{found:e} {expected:e}");
    }
    let [logit, none] = [-20.0f32, 0.0].map(|value| tensor(&[value], &[1]));
    logit.requires_grad_(true).unwrap();
    let loss = bce_with_logits(&logit, &none, LossReduction::Sum).unwrap();
    loss.backward().unwrap();
    let gradient_of_20 = logit.grad().unwrap().to_vec::<f32>().unwrap()[0];
    for found in [loss.item::<f32>().unwrap(), gradient_of_20] {
        assert!((found / 2.061_153_6e-9 - 1.0).abs() < 1e-5, "{found:e}");
    }
    let rows = leaf(&[0.0, 0.0, 1000.0, 0.0], &[2, 2]);
    let loss = cross_entropy(&rows, &tensor(&[1i64, 0], &[2]), LossReduction::Mean).unwrap();
    loss.backward().unwrap();
    assert_eq!(
        (loss.item::<f64>().unwrap(), gradient(&rows)),
        (2f64.ln() / 2.0, vec![0.25, -0.25, 0.0, 0.0])
    );
    let error = mse_loss(&x, &tensor(&[1.0], &[1]), LossReduction::Mean).unwrap_err();
    assert_eq!(error.to_string(), "mse_loss: the target has the wrong shape, expected [3], found [1]");
    assert!(cross_entropy(&x, &tensor(&[1i64], &[1]), LossReduction::Mean).is_err());
}
