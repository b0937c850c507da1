//! Random numbers from a counter: what is drawn depends on the generator's seed and on how much was drawn from it before,
//! never on thread, stream, device load or the strides of the tensor.
//!
//! A [`Generator`] is a key and a counter of Philox blocks. Each draw takes a range of the counter with one atomic
//! addition, so threads that share a generator never get the same numbers (but then their order decides who gets which:
//! give each thread a generator of its own by [`Generator::split`]).
//!
//! Without a generator the one of the thread is used. The first is derived from the process's seed, which is drawn from
//! the system's randomness unless [`manual_seed`] sets it.

use raddle_sync::{
    Arc, Mutex, Rank,
    atomic::{AtomicU64, Ordering},
    fault,
};
use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
};

/// Where random numbers come from. Clones share the counter.
#[derive(Clone, Debug)]
pub struct Generator(Arc<State>);

#[derive(Debug)]
struct State {
    key: u64,
    /// The next block that nobody has drawn.
    counter: AtomicU64,
}

/// SplitMix64's finaliser: a bijection in which every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Generator {
    /// The generator of a seed. Equal seeds give equal sequences, in every process.
    pub fn new(seed: u64) -> Generator {
        Generator::from_state(mix(seed), 0)
    }

    /// `count` generators, independent of each other, of this one and of those of earlier splits: one for each thread.
    pub fn split(&self, count: usize) -> Vec<Generator> {
        let (key, first) = self.take(count as u64);
        // Children of one parent have different keys, since `mix` is a bijection.
        let child = |index: u64| Generator::from_state(mix(mix(key) ^ first.wrapping_add(index)), 0);
        (0..count as u64).map(child).collect()
    }

    /// Key and counter: all that there is to save.
    pub fn state(&self) -> (u64, u64) {
        (self.0.key, self.0.counter.load(Ordering::Acquire))
    }

    /// The generator with that [state](Generator::state).
    pub fn from_state(key: u64, counter: u64) -> Generator {
        Generator(Arc::new(State { key, counter: AtomicU64::new(counter) }))
    }

    /// The generator of this thread.
    pub fn of_thread() -> Generator {
        let epoch = EPOCH.load(Ordering::Acquire);
        let split = || {
            let mut root = ROOT.lock_global();
            let root = root.get_or_insert_with(|| Generator::new(RandomState::new().hash_one(0)));
            root.split(1).remove(0)
        };
        let kept = OF_THREAD.try_with(|own| match &mut *own.borrow_mut() {
            Some((seeded, generator)) if *seeded == epoch => generator.clone(),
            own => own.insert((epoch, split())).1.clone(),
        });
        // A thread that ends has no own one any more.
        kept.unwrap_or_else(|_| split())
    }

    /// Takes a range of blocks of a generator, or of the thread's.
    pub(crate) fn draw(generator: Option<&Generator>, blocks: u64) -> (u64, u64) {
        match generator {
            Some(generator) => generator.take(blocks),
            None => Generator::of_thread().take(blocks),
        }
    }

    /// Takes a range of blocks: the key and the first of them.
    fn take(&self, blocks: u64) -> (u64, u64) {
        // Only the numbers matter; they order nothing else.
        let count = if fault!(range_drawn_twice) { 0 } else { blocks };
        (self.0.key, self.0.counter.fetch_add(count, Ordering::Relaxed))
    }
}

/// The generator from which those of the threads are split.
static ROOT: Mutex<Option<Generator>> = Mutex::new(Rank::Leaf, None);
/// How often [`manual_seed`] was called. Pairs a release with the acquire of whoever draws next.
static EPOCH: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THREAD: RefCell<Option<(u64, Generator)>> = const { RefCell::new(None) };
}

/// Seeds the process. This thread's generator is now `Generator::new(seed)`; the other threads get generators split from
/// it, in the order in which they next draw.
pub fn manual_seed(seed: u64) {
    let mut root = ROOT.lock_global();
    *root = Some(Generator::new(seed));
    let epoch = EPOCH.fetch_add(1, Ordering::AcqRel) + 1;
    drop(root);
    _ = OF_THREAD.try_with(|own| own.replace(Some((epoch, Generator::new(seed)))));
}
