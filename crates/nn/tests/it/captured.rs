//! Passes that are captured as graphs, on a device of their own, whose graphs are counted.

use crate::text::Folder;
use raddle_nn::text::{ModelOptions, SentenceEncoder};
use raddle_tensor::Device;

/// Texts of so many tokens, special ones included.
fn texts(lengths: &[usize]) -> Vec<String> {
    lengths
        .iter()
        .map(|length| {
            "a thread waits for the device "
                .repeat(3)
                .split(' ')
                .take(length - 2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn captured_passes_give_the_same_vectors() {
    let folder = Folder::new("captured");
    let device = Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    let load = |captured_tokens_max| {
        let options = ModelOptions { pad_to: Some(4), captured_tokens_max, ..ModelOptions::default() };
        SentenceEncoder::load_with(&folder.0, &device, &options).unwrap()
    };
    let (plain, captured) = (load(None), load(Some(64)));
    // Lengths, and whether there is one graph for them: of one padded length, or of lengths that padding makes one of.
    let cases: [(&[usize], bool); 8] = [
        (&[6], true),
        (&[7, 8, 5], true),
        (&[8, 6, 7, 8], true),
        (&[7, 10], true),
        (&[10, 7, 12, 8], true),
        (&[3, 15], false),
        (&[16; 5], false),
        (&[16; 4], true),
    ];
    for (lengths, is_one) in cases {
        let texts = texts(lengths);
        let expected = plain.encode(&texts).unwrap().to_vec::<f32>().unwrap();
        for _ in 0..2 {
            let before = device.cache_stats().graphs.replays;
            let found = captured.encode(&texts).unwrap();
            let replays = device.cache_stats().graphs.replays - before;
            assert_eq!(replays, u64::from(is_one), "{lengths:?}");
            let found = found.to_vec::<f32>().unwrap();
            assert_eq!(found.len(), expected.len());
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 2e-6;
            assert!(found.iter().zip(&expected).all(near), "{lengths:?}");
        }
    }
    // 1 and 4 texts of 8 tokens, 2 and 4 of 12, 4 of 16.
    assert_eq!(device.cache_stats().graphs.captured, 5);
}

/// What a caller keeps isn't overwritten by the next replay.
#[test]
fn kept_vectors_stay() {
    let folder = Folder::new("kept");
    let device = Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    let options = ModelOptions { captured_tokens_max: Some(64), ..ModelOptions::default() };
    let model = SentenceEncoder::load_with(&folder.0, &device, &options).unwrap();
    let kept: Vec<_> = ["a", "b", "thread"].map(|text| model.encode(&[text]).unwrap()).into();
    let values: Vec<_> = kept.iter().map(|rows| rows.to_vec::<f32>().unwrap()).collect();
    assert!(values[0] != values[1] && values[1] != values[2]);
    model.encode(&["stream"]).unwrap();
    assert_eq!(kept.iter().map(|rows| rows.to_vec::<f32>().unwrap()).collect::<Vec<_>>(), values);
}
