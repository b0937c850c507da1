use crate::device;
use raddle_grad::Autograd;
use raddle_nn::{AutoencoderOptions, Module, TopKAutoencoder};
use raddle_optim::{Adam, AdamOptions};
use raddle_tensor::{DType, Generator, Tensor};

fn model(options: AutoencoderOptions, dtype: DType) -> TopKAutoencoder {
    TopKAutoencoder::new(options, dtype, device(), Some(&Generator::new(11))).unwrap()
}

fn data(rows: usize, columns: usize, dtype: DType) -> Tensor {
    Tensor::randn([rows, columns], dtype, device(), &Generator::new(12)).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to(DType::F64).unwrap().to_vec().unwrap()
}

/// Trains; the losses, and the model.
fn train(options: AutoencoderOptions, steps: usize) -> (Vec<f32>, TopKAutoencoder) {
    let mut model = model(options, DType::F32);
    let mut adam = Adam::new(model.parameters(), AdamOptions { lr: 3e-3, ..Default::default() }).unwrap();
    let x = data(128, options.inputs, DType::F32);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = model.train_step::<Box<dyn std::error::Error>>(&x, || Ok(adam.step()?)).unwrap();
        losses.push(loss.item::<f32>().unwrap());
    }
    (losses, model)
}

#[test]
fn the_encoder_moves_and_the_loss_falls() {
    let options = AutoencoderOptions { dead_after: 20, ..AutoencoderOptions::new(16, 64, 4) };
    let before = model(options, DType::F32);
    assert_eq!(
        (&**before.encoder_weight.shape(), &**before.encoder_weight.strides()),
        (&[64, 16][..], &[1, 64][..])
    );
    assert_eq!(values(&before.encoder_weight.t().unwrap()), values(&before.decoder_weight));
    let names: Vec<String> = before.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"]);
    let (losses, after) = train(options, 120);
    assert!(losses[119] < 0.6 * losses[0], "{} to {}", losses[0], losses[119]);
    for ((name, before), (_, after)) in before.named_parameters().iter().zip(after.named_parameters()) {
        let moved =
            values(before).iter().zip(values(&after)).any(|(before, after)| (before - after).abs() > 1e-3);
        assert!(moved, "{name} didn't move");
        assert_eq!(before.strides(), after.strides());
    }
    for norm in values(&after.decoder_weight.detach().norm(0, false).unwrap()) {
        assert!((norm - 1.0).abs() < 1e-5);
    }
    // To the last bit.
    assert_eq!(train(options, 120).0, losses);
}

#[test]
fn the_fast_step_has_the_gradients_of_the_tape() {
    let options = AutoencoderOptions { auxiliary: 0.0, ..AutoencoderOptions::new(12, 40, 5) };
    let mut model = model(options, DType::F64);
    let x = data(9, 12, DType::F64);
    let loss = model.compute_gradients(&x).unwrap();
    let fast: Vec<Vec<f64>> = model.parameters().iter().map(|p| values(&p.grad().unwrap())).collect();
    model.parameters().iter().for_each(Tensor::zero_grad);
    let taped = model.loss(&x).unwrap();
    assert!((taped.item::<f64>().unwrap() - loss.item::<f64>().unwrap()).abs() < 1e-12);
    taped.backward().unwrap();
    for ((name, parameter), fast) in model.named_parameters().iter().zip(fast) {
        for (taped, fast) in values(&parameter.grad().unwrap()).iter().zip(fast) {
            assert!((taped - fast).abs() < 1e-12, "{name}: {taped} and {fast}");
        }
    }
    model.adjust_decoder_gradient().unwrap();
    let along = model
        .decoder_weight
        .detach()
        .mul(&model.decoder_weight.grad().unwrap())
        .unwrap()
        .sum(0, false)
        .unwrap();
    assert!(values(&along).iter().all(|value| value.abs() < 1e-12));
    assert_eq!(values(&model.encode_dense(&x).unwrap()).iter().filter(|code| **code != 0.0).count(), 9 * 5);
}

#[test]
fn dead_features_learn_from_what_is_missed() {
    let options = AutoencoderOptions { dead_after: 3, ..AutoencoderOptions::new(6, 12, 2) };
    let mut model = model(options, DType::F64);
    // Feature 0 is never among the largest.
    raddle_grad::no_grad(|| model.encoder_bias.narrow(0, 0, 1).unwrap().fill_(-1e3).map(|_| ())).unwrap();
    let x = data(8, 6, DType::F64);
    let of_dead =
        |model: &TopKAutoencoder| values(&model.decoder_weight.grad().unwrap().select(1, 0).unwrap());
    for _ in 0..2 {
        model.compute_gradients(&x).unwrap();
        assert_eq!(of_dead(&model), [0.0; 6]);
    }
    model.compute_gradients(&x).unwrap();
    assert!(of_dead(&model).iter().all(|value| *value != 0.0));
}
