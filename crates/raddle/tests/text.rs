//! One model, many threads: the example of the README, on a tiny model of random weights.

use raddle::{
    Device, Tensor,
    nn::text::{BertConfig, SentenceEncoder, write_random_model},
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
    bits(&Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0).unwrap())
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
