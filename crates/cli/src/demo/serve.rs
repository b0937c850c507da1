//! The threads that encode images, and the check of what they answered.

use super::{
    random::SplitMix,
    train::{ACTIVE_COUNT, Version},
};
use raddle::{Publisher, Result, Tensor};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Images of one inference.
pub const IMAGE_COUNT: usize = 16;

/// Inferences that a thread asks for before it looks at the answers.
const BURST_COUNT: usize = 4;

/// What a thread sees of the world.
pub struct Server<'a> {
    pub images: &'a Tensor,
    pub publisher: &'a Publisher,
}

/// One inference: which weights, which images, and a fingerprint of the answer's bits.
pub struct Answer {
    pub version: u64,
    pub block: usize,
    pub fingerprint: u64,
}

/// All inferences of one thread.
pub struct Answers(pub Vec<Answer>);

impl Server<'_> {
    /// Encodes blocks of images with the newest weights until told to stop; at least one.
    pub fn run(&self, seed: u64, index: u16, stop: &AtomicBool) -> Result<Answers> {
        let block_count = self.images.shape()[0] / IMAGE_COUNT;
        let mut random = SplitMix(seed ^ ((u64::from(index) + 1) << 32));
        let mut answers = Vec::new();
        loop {
            let version = self.publisher.load();
            let id = version.id();
            let mut asked = Vec::new();
            for _ in 0..BURST_COUNT {
                let block = (random.next() % block_count as u64) as usize;
                asked.push((block, encode(self.images, block, version.tensors())?));
            }
            // From here on nobody may hold the version any more, with the reads of it perhaps still in flight.
            drop(version);
            for (block, (values, indices)) in asked {
                answers.push(Answer { version: id, block, fingerprint: fingerprint(&values, &indices)? });
            }
            if stop.load(Relaxed) {
                return Ok(Answers(answers));
            }
        }
    }
}

/// The k largest features of each image of a block, and which they are. `weights`: encoder.weight, encoder.bias, …
fn encode(images: &Tensor, block: usize, weights: &[Tensor]) -> Result<(Tensor, Tensor)> {
    let batch = images.narrow(0, block * IMAGE_COUNT, IMAGE_COUNT)?;
    batch.linear(&weights[0], Some(&weights[1]))?.topk(ACTIVE_COUNT, 1, true)
}

/// FNV-1a over the bits of an answer (Fowler, Noll & Vo).
fn fingerprint(values: &Tensor, indices: &Tensor) -> Result<u64> {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let (values, indices) = (values.to_bytes()?, indices.to_bytes()?);
    Ok(values.iter().chain(&indices).fold(0xcbf2_9ce4_8422_2325, step))
}

/// Computes every answer again, on this thread, from copies of the versions; an answer to a question that was asked
/// before is looked up.
pub fn wrong_answers(images: &Tensor, versions: &[Version], answers: &[Answers]) -> Result<u64> {
    let mut expected: HashMap<(u64, usize), u64> = HashMap::new();
    let mut by_version: Vec<&Answer> = answers.iter().flat_map(|answers| &answers.0).collect();
    by_version.sort_by_key(|answer| answer.version);
    let mut current: Option<(u64, Vec<Tensor>)> = None;
    let mut wrong = 0;
    for answer in by_version {
        let key = (answer.version, answer.block);
        if let Entry::Vacant(entry) = expected.entry(key) {
            let weights = match current.take() {
                Some((id, weights)) if id == answer.version => weights,
                _ => match versions.iter().find(|version| version.id == answer.version) {
                    Some(version) => version.restore(&images.device().into())?,
                    None => {
                        wrong += 1; // it names a version that never was
                        continue;
                    }
                },
            };
            let (values, indices) = encode(images, answer.block, &weights)?;
            entry.insert(fingerprint(&values, &indices)?);
            current = Some((answer.version, weights));
        }
        wrong += u64::from(expected[&key] != answer.fingerprint);
    }
    Ok(wrong)
}
