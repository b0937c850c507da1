//! What is made once for a key and then used by all threads: kernels, and the algorithms of matrix products.
//!
//! - One build per key: whoever comes meanwhile waits for that one; builds of other keys go on, since none runs under the
//!   lock. If a build fails, the next who waits tries.
//! - Bounded: beyond the limit the least recently used value that no thread holds goes, or, if all are held, the least
//!   recently used.
//! - In front of it each thread keeps a few values of its own ([`Local`]), so that a launch takes no lock and touches no
//!   shared count. [`Cache::generation`] tells a thread that something was evicted, which it then lets go.
//! - What was evicted is destroyed when nobody can use it any more ([`Retired`]).

use raddle_hal::Wait;
use raddle_sync::{
    Arc, Condvar, Mutex, Rank,
    atomic::{AtomicU64, Ordering::*},
    fault,
};
use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    rc::Rc,
};

enum Entry<V> {
    Building,
    Ready { value: Arc<V>, used: u64 },
}

struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Counts uses.
    clock: u64,
}

/// A bounded cache that builds once.
pub struct Cache<K, V> {
    state: Mutex<State<K, V>>,
    /// Signalled when a build is over.
    built: Condvar,
    count_max: usize,
    generation: AtomicU64,
}

/// Takes the note of a build back if it fails or panics.
struct Building<'a, K: Hash + Eq, V> {
    cache: &'a Cache<K, V>,
    key: Option<&'a K>,
}

impl<K: Hash + Eq, V> Drop for Building<'_, K, V> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.cache.state.lock().entries.remove(key);
        }
        self.cache.built.notify_all();
    }
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    pub fn new(count_max: usize) -> Cache<K, V> {
        let state = State { entries: HashMap::new(), clock: 0 };
        Cache {
            state: Mutex::new(Rank::Leaf, state),
            built: Condvar::new(),
            count_max,
            generation: AtomicU64::new(0),
        }
    }

    /// Grows with each eviction. A thread that sees it late lets go late.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// The value of a key, and what had to go for it. Blocks while it is built, here or by another thread.
    pub fn get<E>(
        &self,
        key: &K,
        build: impl FnOnce() -> Result<V, E>,
    ) -> Result<(Arc<V>, Option<Arc<V>>), E> {
        let mut state = self.state.lock();
        loop {
            state.clock += 1;
            let now = state.clock;
            match state.entries.get_mut(key) {
                Some(Entry::Ready { value, used }) => {
                    *used = now;
                    return Ok((value.clone(), None));
                }
                Some(Entry::Building) => state = self.built.wait(state),
                None => break,
            }
        }
        state.entries.insert(key.clone(), Entry::Building);
        drop(state);
        let mut building = Building { cache: self, key: Some(key) };
        let value = Arc::new(build()?);
        let mut state = self.state.lock();
        let evicted = if state.entries.len() > self.count_max { state.evict() } else { None };
        let used = state.clock;
        state.entries.insert(key.clone(), Entry::Ready { value: value.clone(), used });
        drop(state);
        building.key = None;
        if evicted.is_some() {
            self.generation.fetch_add(1, Relaxed);
        }
        Ok((value, evicted))
    }
}

impl<K: Hash + Eq + Clone, V> State<K, V> {
    fn evict(&mut self) -> Option<Arc<V>> {
        let age = |(key, entry): (&K, &Entry<V>)| match entry {
            Entry::Ready { value, used } => Some(((Arc::strong_count(value) > 1, *used), key.clone())),
            Entry::Building => None,
        };
        let (_, oldest) = self.entries.iter().filter_map(age).min_by_key(|(age, _)| *age)?;
        match self.entries.remove(&oldest) {
            Some(Entry::Ready { value, .. }) => Some(value),
            _ => None,
        }
    }
}

/// Values that have left a cache, until nobody can use them.
pub struct Retired<V>(Mutex<Vec<Old<V>>>);

struct Old<V> {
    value: Arc<V>,
    /// What was in flight when no thread held it any more.
    in_flight: Option<Vec<Wait>>,
}

impl<V> Retired<V> {
    pub fn new() -> Retired<V> {
        Retired(Mutex::new(Rank::Leaf, Vec::new()))
    }

    pub fn add(&self, value: Arc<V>) {
        self.0.lock().push(Old { value, in_flight: None });
    }

    /// Those that no thread holds and no launch in flight uses. `in_flight` lists the newest number of each queue. A thread
    /// that let go before it was asked for has submitted all its launches of the value before.
    pub fn collect(
        &self,
        in_flight: impl Fn() -> Vec<Wait>,
        is_complete: impl Fn(&Wait) -> bool,
    ) -> Vec<Arc<V>> {
        let mut old = self.0.lock();
        let mut unused = Vec::new();
        old.retain_mut(|old| {
            if Arc::strong_count(&old.value) > 1 {
                return true;
            }
            let waits = old.in_flight.get_or_insert_with(&in_flight);
            let is_used = !waits.iter().all(&is_complete) && !fault!(unload_in_flight);
            if !is_used {
                unused.push(old.value.clone());
            }
            is_used
        });
        unused
    }
}

/// Values that a thread keeps: a place is the key's hash. (Two keys of one place take turns.)
const LOCAL_COUNT: usize = 256; // guess: a model has some dozens of kernels

struct Kept<K, V> {
    device: u64,
    key: K,
    value: Rc<Held<V>>,
}

/// A thread's one count of a value; within the thread it is shared without touching that.
pub struct Held<V>(pub Arc<V>);

impl<V> std::ops::Deref for Held<V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0
    }
}

/// Multiplies: the default hasher takes some 50 ns for a key, where all else that a small launch takes in this crate is 140.
/// Who finds keys that share a place makes them take turns, no more.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    /// As FxHash: odd, with bits that look random.
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
}

macro_rules! mixed {
    ($($write:ident($number:ty)),*) => {$(
        #[inline]
        fn $write(&mut self, number: $number) {
            self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(Mix::FACTOR);
        }
    )*};
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The upper bits depend on all that was written.
        self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }
    mixed!(
        write_u8(u8),
        write_u16(u16),
        write_u32(u32),
        write_u64(u64),
        write_usize(usize),
        write_isize(isize)
    );
}

/// The values that a thread has used last.
pub struct Local<K, V> {
    places: Vec<Option<Kept<K, V>>>,
    /// Of each device that it was used with.
    generations: Vec<(u64, u64)>,
}

impl<K: Hash + Eq + Clone, V> Local<K, V> {
    pub fn new() -> Local<K, V> {
        Local { places: Vec::new(), generations: Vec::new() }
    }

    /// The value that the thread keeps for a key, or what `find` finds. `device` tells devices apart.
    #[inline]
    pub fn get<E>(
        &mut self,
        device: u64,
        generation: u64,
        key: &K,
        find: impl FnOnce() -> Result<Arc<V>, E>,
    ) -> Result<Rc<Held<V>>, E> {
        if !self.generations.contains(&(device, generation)) {
            self.renew(device, generation);
        }
        let place = BuildHasherDefault::<Mix>::new().hash_one(key) as usize % LOCAL_COUNT;
        if let Some(kept) = &self.places[place]
            && kept.device == device
            && kept.key == *key
        {
            return Ok(kept.value.clone());
        }
        let value = Rc::new(Held(find()?));
        self.places[place] = Some(Kept { device, key: key.clone(), value: value.clone() });
        Ok(value)
    }

    /// Lets go of everything of a device: some of it was evicted.
    #[cold]
    fn renew(&mut self, device: u64, generation: u64) {
        self.places.resize_with(LOCAL_COUNT, || None);
        self.places
            .iter_mut()
            .filter(|kept| kept.as_ref().is_some_and(|kept| kept.device == device))
            .for_each(|kept| *kept = None);
        self.generations.retain(|(other, _)| *other != device);
        self.generations.push((device, generation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::plant;
    use raddle_hal::QueueId;
    use raddle_sync::faults::Fault;
    use std::{
        convert::Infallible,
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering::Relaxed},
            mpsc,
        },
        thread,
    };

    fn value<V: Clone>(cache: &Cache<u32, V>, key: u32, value: V) -> (V, Option<V>) {
        let Ok((value, evicted)) = cache.get(&key, || Ok::<V, Infallible>(value));
        ((*value).clone(), evicted.map(|evicted| (*evicted).clone()))
    }

    #[test]
    fn one_build_a_key_under_32_threads() {
        let (cache, builds, start) = (Cache::new(10), AtomicUsize::new(0), Barrier::new(32));
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    start.wait();
                    for key in 0..4 {
                        let build = || {
                            thread::yield_now();
                            Ok::<usize, Infallible>(builds.fetch_add(1, Relaxed))
                        };
                        cache.get(&key, build).unwrap();
                    }
                });
            }
        });
        assert_eq!(builds.load(Relaxed), 4);
    }

    #[test]
    fn a_build_holds_up_its_own_key_only() {
        let cache = Cache::new(10);
        let (begun, has_begun) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel();
        thread::scope(|scope| {
            let cache = &cache;
            scope.spawn(move || {
                let build = || {
                    begun.send(()).unwrap();
                    may_finish.recv().unwrap();
                    Ok::<u32, Infallible>(1)
                };
                cache.get(&1, build).unwrap();
            });
            has_begun.recv().unwrap();
            assert_eq!(value(cache, 2, 2), (2, None), "built while the other is under way");
            finish.send(()).unwrap();
            assert_eq!(value(cache, 1, 7).0, 1, "it waits for the one under way");
        });
    }

    #[test]
    fn a_build_that_fails_or_panics_can_be_tried_again() {
        let cache = Cache::new(10);
        assert_eq!(cache.get(&1, || Err::<u32, &str>("no")).unwrap_err(), "no");
        let panics =
            std::panic::AssertUnwindSafe(|| cache.get(&1, || -> Result<u32, &str> { panic!("planted") }));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(value(&cache, 1, 3), (3, None));
    }

    #[test]
    fn the_least_recently_used_goes_unless_it_is_held() {
        let cache = Cache::new(3);
        for key in 0..3 {
            assert_eq!(value(&cache, key, key).1, None);
        }
        value(&cache, 0, 9);
        assert_eq!(value(&cache, 3, 3).1, Some(1));
        assert_eq!(cache.generation(), 1);
        let Ok((held, _)) = cache.get(&2, || Ok::<u32, Infallible>(9));
        value(&cache, 0, 9);
        value(&cache, 3, 9);
        assert_eq!(value(&cache, 4, 4).1, Some(0), "2 is older, but held");
        assert_eq!(*held, 2);
        assert_eq!(value(&cache, 0, 10).0, 10, "built anew");
    }

    #[test]
    fn a_thread_keeps_values_until_one_of_its_device_is_evicted() {
        let mut local: Local<u32, u32> = Local::new();
        let found = Arc::new(5);
        let mut get = |device, generation| {
            let mut asked = false;
            let Ok(_) = local.get(device, generation, &1, || {
                asked = true;
                Ok::<_, Infallible>(found.clone())
            });
            asked
        };
        assert_eq!([get(7, 0), get(7, 0), get(7, 1), get(7, 1)], [true, false, true, false]);
        assert_eq!([get(8, 0), get(8, 0)], [true, false]);
        drop(local);
        assert_eq!(Arc::strong_count(&found), 1);
    }

    /// What is destroyed while a thread holds it, while a launch is in flight, and after both.
    fn destroyed() -> [usize; 3] {
        let (retired, value) = (Retired::new(), Arc::new(1));
        retired.add(value.clone());
        let completed = AtomicUsize::new(0);
        let collect = || {
            let newest = || vec![Wait { queue: QueueId(0), sequence: 3 }];
            retired.collect(newest, |wait| wait.sequence as usize <= completed.load(Relaxed)).len()
        };
        let while_held = collect();
        drop(value);
        let in_flight = collect();
        completed.store(3, Relaxed);
        [while_held, in_flight, collect()]
    }

    #[test]
    fn what_was_evicted_lives_until_nothing_uses_it() {
        let _quiet = crate::tests::quiet();
        assert_eq!(destroyed(), [0, 0, 1]);
    }

    #[test]
    fn fault_unload_in_flight() {
        let _planted = plant(Fault::unload_in_flight);
        assert_ne!(destroyed(), [0, 0, 1], "the check sees it");
    }
}
