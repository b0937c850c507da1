//! The examples of the README, as they stand there: compiled, and run in 8 threads. One test in a program of its own, since it
//! changes the folder in which it runs.

use raddle::nn::text::{BertConfig, SentenceEncoder, write_random_model};
use raddle::prelude::*;
use std::path::Path;

const README: &str = include_str!("../../../README.md");
const OWN: &str = include_str!("readme.rs");

/// A tensor that all threads read.
#[rustfmt::skip]
fn tensors() -> raddle::Result<()> {
// The first example begins.
let device = Device::new("cpu")?;
let weight = Tensor::randn([512, 512], DType::F32, &device, None)?;
std::thread::scope(|scope| {
    for _ in 0..8 {
        scope.spawn(|| {
            let x = Tensor::ones([1, 512], DType::F32, &device)?;
            x.linear(&weight, None)?.relu()?.sum(.., false)?.item::<f32>()   // each thread has a stream; that is all
        });
    }
});
// The first example ends.
    Ok(())
}

/// A classifier, trained and published.
#[rustfmt::skip]
fn training(device: Device, batches: Vec<(Tensor, Tensor)>) -> Result<(), Box<dyn std::error::Error>> {
// The second example begins.
use raddle::{Publisher, nn::{Function, Linear, LossReduction, Sequential, cross_entropy}, optim::{Adam, AdamOptions}};

let model = Sequential::new()
    .then(Linear::new(64, 32, true, DType::F32, &device, None)?)
    .then(Function(Tensor::relu))
    .then(Linear::new(32, 10, true, DType::F32, &device, None)?);
let mut adam = Adam::new(model.parameters(), AdamOptions::default())?;
let publisher = Publisher::new(&model.parameters())?;
for (images, labels) in batches {
    adam.zero_grad();
    cross_entropy(&model.forward(&images)?, &labels, LossReduction::Mean)?.backward()?;
    adam.step()?;
    publisher.publish(&model.parameters())?;
}
// The second example ends.
    for (live, published) in model.parameters().iter().zip(publisher.load().tensors()) {
        assert_eq!(live.to_vec::<f32>()?, published.to_vec::<f32>()?);
    }
    assert_eq!(publisher.load().id(), 3);
    Ok(())
}

/// A model that all threads use.
#[rustfmt::skip]
fn sentences(device: Device, texts: &[String]) -> Result<(), raddle::nn::text::ModelError> {
// The third example begins.
let model = SentenceEncoder::load("model-dir", &device)?;
std::thread::scope(|scope| {
    for part in texts.chunks(64) {
        scope.spawn(|| model.encode(part));     // [64, 384]; a text's vector has the same bits whatever stands beside it
    }
});
// The third example ends.
    Ok(())
}

/// What stands between two lines of this file.
fn example(which: &str) -> &'static str {
    let (begins, ends) =
        (format!("// The {which} example begins.\n"), format!("// The {which} example ends.\n"));
    let (_, rest) = OWN.split_once(&begins).expect("it begins");
    rest.split_once(&ends).expect("it ends").0
}

#[test]
fn the_readmes_examples_run() {
    for which in ["first", "second", "third"] {
        assert!(
            README.contains(example(which)),
            "the README's {which} example is another:\n{}",
            example(which)
        );
    }
    tensors().unwrap();
    let device = Device::new("cpu").unwrap();
    let batch = |seed| {
        let generator = Generator::new(seed);
        let images = Tensor::rand([16, 64], DType::F32, &device, &generator).unwrap();
        (images, Tensor::randint(0, 10, [16], DType::I64, &device, &generator).unwrap())
    };
    training(device, (0..3).map(batch).collect()).unwrap();

    let folder = std::env::temp_dir().join(format!("raddle-{}-readme", std::process::id()));
    let words = ["a", "thread", "waits", "stream"];
    write_random_model(folder.join("model-dir"), &BertConfig::tiny(8), &words, 32, 1, &device).unwrap();
    std::env::set_current_dir(&folder).unwrap();
    let texts: Vec<String> = (0..512).map(|index| "a thread waits ".repeat(index % 9)).collect();
    assert_eq!(texts.chunks(64).count(), 8);
    sentences(device, &texts).unwrap();
    assert!(Path::new("model-dir").exists());
    std::env::set_current_dir("/").unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
