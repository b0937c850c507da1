//! What is made once for a key and then used by all threads: compiled kernels, chosen algorithms.
//!
//! - **One build per key**: whoever comes meanwhile waits for that one; builds of other keys go on, since none runs under the
//!   lock. If a build fails or panics, the next who waits tries.
//! - **Bounded** in values and in bytes: beyond a bound the least recently used value that no thread holds goes, or, if all
//!   are held, the least recently used. The one that was just built stays, even if it is larger than all that may be.
//! - **Nothing is destroyed in use**: what was evicted is [`Retired`] until no thread holds it and no work in flight can be
//!   of it.
//!
//! A thread that keeps values of its own compares [`Cache::generation`] to learn that something was evicted, and lets go.
//! What is built, by whom and for what device is the caller's, so the code that models and tests drive with a compiler of
//! theirs is the code that ships.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::{
    Arc, Condvar, Mutex, MutexGuard, Rank,
    atomic::{AtomicU64, Ordering::*},
    fault,
};
use std::{collections::HashMap, fmt, hash::Hash};

enum Entry<V> {
    Building,
    Ready { value: Arc<V>, size_bytes: usize, used: u64 },
}

/// What a cache holds and has done. All but the first two only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Values that are in it.
    pub cached_count: u64,
    /// What they take, as those who built them say.
    pub cached_bytes: u64,
    /// Times that a value was found, perhaps after waiting for its build.
    pub hits: u64,
    /// Times that one had to be built.
    pub misses: u64,
    /// Values that had to go, or were cleared.
    pub evictions: u64,
}

struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Counts uses.
    clock: u64,
    counts: CacheCounts,
}

/// A bounded cache that builds once. All methods may be called from any thread.
pub struct Cache<K, V> {
    state: Mutex<State<K, V>>,
    /// Signalled when a build is over.
    built: Condvar,
    count_max: usize,
    bytes_max: usize,
    generation: AtomicU64,
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.lock().counts.fmt(f)
    }
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
    /// An empty one that holds at most so many values (at least 1) of so many bytes in all.
    pub fn new(count_max: usize, bytes_max: usize) -> Cache<K, V> {
        let state = State { entries: HashMap::new(), clock: 0, counts: CacheCounts::default() };
        Cache {
            state: Mutex::new(Rank::Leaf, state),
            built: Condvar::new(),
            count_max: count_max.max(1),
            bytes_max,
            generation: AtomicU64::new(0),
        }
    }

    /// Grows when something has left the cache. A thread that sees it late lets go late.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// What it holds and has done.
    pub fn counts(&self) -> CacheCounts {
        self.state.lock().counts
    }

    /// The value of a key, and what had to go for it. `build` says how many bytes the value takes; it runs under no lock.
    /// Blocks while the value is built, here or by another thread.
    pub fn get<E>(
        &self,
        key: &K,
        build: impl FnOnce() -> Result<(V, usize), E>,
    ) -> Result<(Arc<V>, Vec<Arc<V>>), E> {
        let mut state = self.state.lock();
        loop {
            let State { entries, clock, counts } = &mut *state;
            *clock += 1;
            match entries.get_mut(key) {
                Some(Entry::Ready { value, used, .. }) => {
                    *used = *clock;
                    counts.hits += 1;
                    return Ok((value.clone(), Vec::new()));
                }
                Some(Entry::Building) if !fault!(build_twice) => state = self.built.wait(state),
                _ => break,
            }
        }
        state.counts.misses += 1;
        state.entries.insert(key.clone(), Entry::Building);
        let mut building = Building { cache: self, key: Some(key) };
        let held = Some(state).filter(|_| fault!(build_under_lock));
        let (value, size_bytes) = build()?;
        drop(held);
        let value = Arc::new(value);
        let mut state = self.state.lock();
        let evicted = self.make_room(&mut state, size_bytes);
        state.counts.cached_count += 1;
        state.counts.cached_bytes += size_bytes as u64;
        let used = state.clock;
        state.entries.insert(key.clone(), Entry::Ready { value: value.clone(), size_bytes, used });
        drop(state);
        building.key = None;
        Ok((value, evicted))
    }

    /// Empties it; what was in it. Builds that are under way are not disturbed.
    pub fn clear(&self) -> Vec<Arc<V>> {
        let mut state = self.state.lock();
        let cleared = std::iter::from_fn(|| state.evict()).collect();
        self.generation.fetch_add(1, Relaxed);
        cleared
    }

    /// Evicts until one value more, of so many bytes, is within the bounds.
    fn make_room(&self, state: &mut MutexGuard<'_, State<K, V>>, size_bytes: usize) -> Vec<Arc<V>> {
        let mut evicted = Vec::new();
        loop {
            let CacheCounts { cached_count, cached_bytes, .. } = state.counts;
            let is_full = cached_count >= self.count_max as u64
                || cached_bytes.saturating_add(size_bytes as u64) > self.bytes_max as u64;
            if !is_full || fault!(cache_unbounded) {
                break;
            }
            let Some(value) = state.evict() else { break };
            evicted.push(value);
        }
        if !evicted.is_empty() {
            self.generation.fetch_add(1, Relaxed);
        }
        evicted
    }
}

impl<K: Hash + Eq + Clone, V> State<K, V> {
    fn evict(&mut self) -> Option<Arc<V>> {
        let age = |(key, entry)| match entry {
            &Entry::Ready { ref value, used, .. } => Some(((Arc::strong_count(value) > 1, used), key)),
            Entry::Building => None,
        };
        let (_, oldest) = self.entries.iter().filter_map(age).min_by_key(|(age, _)| *age)?;
        let oldest: K = Clone::clone(oldest);
        let Some(Entry::Ready { value, size_bytes, .. }) = self.entries.remove(&oldest) else { return None };
        self.counts.cached_count -= 1;
        self.counts.cached_bytes -= size_bytes as u64;
        self.counts.evictions += 1;
        Some(value)
    }
}

/// Values that have left a cache, until nobody can use them. `W` names the newest work of a queue.
pub struct Retired<V, W>(Mutex<Vec<Old<V, W>>>);

struct Old<V, W> {
    value: Arc<V>,
    /// What was in flight when no thread held it any more.
    in_flight: Option<Vec<W>>,
}

impl<V, W> fmt::Debug for Retired<V, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retired({})", self.count())
    }
}

impl<V, W> Default for Retired<V, W> {
    fn default() -> Retired<V, W> {
        Retired(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

impl<V, W> Retired<V, W> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Takes a value that threads may hold, and work in flight may be of.
    pub fn add(&self, value: Arc<V>) {
        self.0.lock().push(Old { value, in_flight: None });
    }

    /// Those that no thread holds and no work in flight uses: each is handed out once, to be destroyed. `in_flight` lists
    /// the newest work of each queue. A thread that let go before it was asked for has submitted all its work of the value
    /// before.
    pub fn collect(&self, in_flight: impl Fn() -> Vec<W>, is_complete: impl Fn(&W) -> bool) -> Vec<Arc<V>> {
        let mut unused = Vec::new();
        self.0.lock().retain_mut(|old| {
            // Not the count: `get_mut` acquires what those who let go have released, their submissions.
            if Arc::get_mut(&mut old.value).is_none() {
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
