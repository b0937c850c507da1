//! One model, many threads: the example of the README, on a tiny model of random weights.

use raddle::{
    Device, Tensor,
    nn::text::{BertConfig, ModelOptions, SentenceEncoder, TooLong, write_random_model},
};
use std::path::PathBuf;

struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Folder(std::env::temp_dir().join(format!("raddle-{}-{name}", std::process::id())));
        let config = BertConfig::tiny(8);
        let words = ["a", "thread", "waits", "stream"];
        write_random_model(&folder.0, &config, &words, 32, 1, &Device::new("cpu").unwrap()).unwrap();
        folder
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn texts() -> Vec<String> {
    (0..512).map(|index| ["a thread waits ", "stream "][index % 2].repeat(index % 9)).collect()
}

/// All vectors in the order of the texts, computed on 8 threads, as bits.
fn on_eight_threads(model: &SentenceEncoder, texts: &[String]) -> Vec<u32> {
    let parts = std::thread::scope(|scope| {
        let threads: Vec<_> = texts.chunks(64).map(|part| scope.spawn(|| model.encode(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect::<Vec<Tensor>>()
    });
    bits(&Tensor::cat(&parts, 0).unwrap())
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn eight_threads_share_a_model() {
    let folder = Folder::new("shared");
    let texts = texts();
    let cpu = Device::new("cpu").unwrap();
    let expected = bits(&SentenceEncoder::load(&folder.0, &cpu).unwrap().encode(&texts).unwrap());
    assert_eq!(expected.len(), 512 * 32);
    for device in ["cpu", "sim:3", "sim:4"] {
        let device = Device::new(device).unwrap();
        let model = SentenceEncoder::load(&folder.0, &device).unwrap();
        for _ in 0..3 {
            assert!(on_eight_threads(&model, &texts) == expected, "{}", device.info().name);
        }
    }
}

/// One to three texts at a time, of like lengths, from 8 threads at once: what each is given is what it would be without graphs,
/// and stays so.
#[test]
fn captured_passes_are_the_same() {
    let folder = Folder::new("captured");
    let texts = texts();
    let load = |device: &Device, captured: usize| {
        let options =
            ModelOptions { pad_to: Some(8), captured_tokens_max: Some(captured), ..ModelOptions::default() };
        SentenceEncoder::load_with(&folder.0, device, &options).unwrap()
    };
    let cpu = Device::new("cpu").unwrap();
    let expected = bits(&load(&cpu, 0).encode(&texts).unwrap());
    for device in ["cpu", "sim:5", "sim:6"] {
        let device = Device::new(device).unwrap();
        let model = load(&device, 64);
        let encode = |part: &[String], size: usize| -> Vec<Tensor> {
            part.chunks(size).map(|some| model.encode(some).unwrap()).collect()
        };
        let kept: Vec<Tensor> = std::thread::scope(|scope| {
            let parts = texts.chunks(64).enumerate();
            let threads: Vec<_> =
                parts.map(|(at, part)| scope.spawn(move || encode(part, 1 + at % 3))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let found: Vec<u32> = kept.iter().flat_map(bits).collect();
        assert!(found == expected, "{}", device.info().name);
        let tokens = model.tokenizer().tokenize(&texts[..3], TooLong::Truncate).unwrap();
        let read = model.encode_tokens_to_vec(&tokens).unwrap();
        assert!(read.into_iter().map(f32::to_bits).eq(expected[..3 * 32].iter().copied()));
        // Another end of the same passes.
        let pooled = |model: &SentenceEncoder| bits(&model.pool_tokens(&tokens[..1]).unwrap());
        assert!(pooled(&model) == pooled(&load(&cpu, 0)) && pooled(&model) != expected[..32]);
    }
}
