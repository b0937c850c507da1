//! The threads that encode images, and the check of what they answered.

use super::{
    random::SplitMix,
    train::{ACTIVE_COUNT, Progress, Version},
};
use raddle::{Publisher, Result, Tensor};
use std::{
    collections::{HashMap, hash_map::Entry},
    ops::RangeInclusive,
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
    /// The weights that are trained, in the memory in which they are trained.
    pub live: [Tensor; 2],
    pub progress: &'a Progress,
}

/// One inference: which weights, which images, and a fingerprint of the answer's bits.
pub struct Answer {
    /// The version; of live weights those after one of these steps.
    pub versions: RangeInclusive<u64>,
    pub block: usize,
    pub fingerprint: u64,
}

/// All inferences of one thread.
#[derive(Default)]
pub struct Answers {
    /// By published versions.
    pub published: Vec<Answer>,
    /// By live weights.
    pub live: Vec<Answer>,
}

impl Server<'_> {
    /// Encodes blocks of images with the newest weights until told to stop; at least one.
    pub fn run(&self, seed: u64, index: u16, stop: &AtomicBool) -> Result<Answers> {
        let block_count = self.images.shape()[0] / IMAGE_COUNT;
        let mut random = SplitMix(seed ^ ((u64::from(index) + 1) << 32));
        let mut next_block = || (random.next() % block_count as u64) as usize;
        let mut answers = Answers::default();
        loop {
            let version = self.publisher.load();
            let id = version.id();
            let mut asked = Vec::new();
            for _ in 0..BURST_COUNT {
                let block = next_block();
                asked.push((block, encode(self.images, block, version.tensors())?));
            }
            // From here on nobody may hold the version any more, with the reads of it perhaps still in flight.
            drop(version);
            let live = self.ask_live(next_block())?;
            let answer = |versions, block, (values, indices): (Tensor, Tensor)| {
                Ok::<_, raddle::Error>(Answer {
                    versions,
                    block,
                    fingerprint: fingerprint(&values, &indices)?,
                })
            };
            for (block, features) in asked {
                answers.published.push(answer(id..=id, block, features)?);
            }
            if let Some((steps, block, features)) = live {
                answers.live.push(answer(steps, block, features)?);
            }
            if stop.load(Relaxed) {
                return Ok(answers);
            }
        }
    }

    /// Encodes a block with the weights that the optimizer is writing meanwhile. They are those after one of these steps: the
    /// read comes behind the last step that was done before, and in front of the one that begins next. None when it isn't kept any
    /// more what they have been.
    fn ask_live(&self, block: usize) -> Result<Option<Asked>> {
        if !self.progress.is_kept() {
            return Ok(None);
        }
        let first = self.progress.done();
        let features = encode(self.images, block, &self.live)?;
        let last = self.progress.begun();
        Ok(self.progress.is_kept().then_some((first..=last, block, features)))
    }
}

/// Of which versions, which images, and the features.
type Asked = (RangeInclusive<u64>, usize, (Tensor, Tensor));

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

/// Computes every answer again, on this thread, from copies of the weights; an answer to a question that was asked before is
/// looked up. Each must be that of one of its versions, to the last bit. How many aren't.
pub fn wrong_answers<'a>(
    images: &Tensor,
    versions: &[Version],
    answers: impl Iterator<Item = &'a Answer>,
) -> Result<u64> {
    let mut expected: HashMap<(u64, usize), u64> = HashMap::new();
    let mut by_version: Vec<&Answer> = answers.collect();
    by_version.sort_by_key(|answer| *answer.versions.start());
    let mut restored: HashMap<u64, Vec<Tensor>> = HashMap::new();
    let mut wrong = 0;
    for answer in by_version {
        restored.retain(|id, _| answer.versions.start() <= id);
        let mut is_right = false;
        for id in answer.versions.clone() {
            // One that never was is wrong.
            let Some(version) = versions.iter().find(|version| version.id == id) else { continue };
            let fingerprint = match expected.entry((id, answer.block)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(entry) => {
                    let weights = match restored.entry(id) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(entry) => entry.insert(version.restore(&images.device().into())?),
                    };
                    let (values, indices) = encode(images, answer.block, weights)?;
                    *entry.insert(fingerprint(&values, &indices)?)
                }
            };
            is_right |= fingerprint == answer.fingerprint;
        }
        wrong += u64::from(!is_right);
    }
    Ok(wrong)
}
