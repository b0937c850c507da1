//! The cache with a compiler that counts.

use super::*;
use crate::faults::{self, Fault, Planted};
use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::*},
        mpsc,
    },
    thread,
};

static TURN: Mutex<()> = Mutex::new(());

/// Tests that plant a fault, and those that it would break, run one by one.
fn quiet() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plant(fault: Fault) -> (Planted, MutexGuard<'static, ()>) {
    let turn = quiet();
    (faults::plant(fault), turn)
}

/// The value of a key, built if need be as this one of so many bytes, and what was evicted.
fn get<V: Clone>(cache: &Cache<u32, V>, key: u32, built: V, size_bytes: usize) -> (V, Vec<V>) {
    let Ok((value, evicted)) = cache.get(&key, || Ok::<_, Infallible>((built, size_bytes)));
    ((*value).clone(), evicted.iter().map(|evicted| (**evicted).clone()).collect())
}

/// The most builds of one key when 32 threads ask for 4 keys at once. Whoever builds waits until another one does (which
/// right code never lets happen) or until all have asked.
fn builds_of_a_key() -> usize {
    let (cache, start) = (Cache::new(10, 100), Barrier::new(32));
    let (builds, asked) = ([const { AtomicUsize::new(0) }; 4], [const { AtomicUsize::new(0) }; 4]);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                start.wait();
                for key in 0..4 {
                    asked[key].fetch_add(1, Relaxed);
                    let build = || {
                        builds[key].fetch_add(1, Relaxed);
                        while builds[key].load(Relaxed) == 1 && asked[key].load(Relaxed) < 32 {
                            thread::yield_now();
                        }
                        Ok::<_, Infallible>((key, 1))
                    };
                    assert_eq!(*cache.get(&key, build).unwrap().0, key);
                }
            });
        }
    });
    builds.iter().map(|builds| builds.load(Relaxed)).max().unwrap()
}

#[test]
fn one_build_a_key_under_32_threads() {
    let _quiet = quiet();
    assert_eq!(builds_of_a_key(), 1);
}

#[test]
fn fault_build_twice() {
    let _planted = plant(Fault::build_twice);
    assert!(builds_of_a_key() > 1, "the check sees it");
}

#[test]
fn a_build_holds_up_its_own_key_only() {
    let _quiet = quiet();
    let cache = Cache::new(10, 100);
    let (begun, has_begun) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel();
    thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            let build = || {
                begun.send(()).unwrap();
                may_finish.recv().unwrap();
                Ok::<_, Infallible>((1, 1))
            };
            cache.get(&1, build).unwrap();
        });
        has_begun.recv().unwrap();
        assert_eq!(get(cache, 2, 2, 1), (2, vec![]), "built while the other is under way");
        finish.send(()).unwrap();
        assert_eq!(get(cache, 1, 7, 1).0, 1, "it waits for the one under way");
    });
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses, counts.cached_bytes), (1, 2, 2));
}

/// While a key is being built another one can be had.
#[cfg(debug_assertions)]
#[test]
fn fault_build_under_lock() {
    let _planted = plant(Fault::build_under_lock);
    let cache = Cache::new(10, 100);
    let nested = || Ok::<_, Infallible>((get(&cache, 2, 2, 1).0, 1));
    let panic = catch_unwind(AssertUnwindSafe(|| cache.get(&1, nested))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("lock ranks: Leaf is taken while [Leaf] are held"), "{text}");
}

#[test]
fn a_build_that_fails_or_panics_can_be_tried_again() {
    let _quiet = quiet();
    let cache = Cache::new(10, 100);
    assert_eq!(cache.get(&1, || Err::<(u32, usize), &str>("no")).unwrap_err(), "no");
    let panics = || cache.get(&1, || -> Result<(u32, usize), &str> { panic!("planted") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(get(&cache, 1, 3, 1), (3, vec![]));
    assert_eq!(cache.counts().misses, 3);
}

#[test]
fn the_least_recently_used_goes_unless_it_is_held() {
    let _quiet = quiet();
    let cache = Cache::new(3, 100);
    for key in 0..3 {
        assert_eq!(get(&cache, key, key, 1).1, []);
    }
    get(&cache, 0, 9, 1);
    assert_eq!(get(&cache, 3, 3, 1).1, [1]);
    assert_eq!(cache.generation(), 1);
    let Ok((held, _)) = cache.get(&2, || Ok::<_, Infallible>((9, 1)));
    get(&cache, 0, 9, 1);
    get(&cache, 3, 9, 1);
    assert_eq!(get(&cache, 4, 4, 1).1, [0], "2 is older, but held");
    assert_eq!(*held, 2);
    assert_eq!(get(&cache, 0, 10, 1).0, 10, "built anew");
}

/// The most values and bytes that a cache of 8 values and 100 bytes holds while threads fill it.
fn most_held() -> (u64, u64) {
    let (cache, is_over) = (Cache::new(8, 100), AtomicBool::new(false));
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = (0, 0);
            loop {
                // Before the look, so that the last one sees all.
                let was_over = is_over.load(Acquire);
                let CacheCounts { cached_count, cached_bytes, .. } = cache.counts();
                most = (most.0.max(cached_count), most.1.max(cached_bytes));
                if was_over {
                    return most;
                }
                thread::yield_now();
            }
        });
        let fill = |first: u32| {
            let cache = &cache;
            move || (first..first + 50).for_each(|key| _ = get(cache, key, key, key as usize % 40))
        };
        let threads = [0, 25, 1000].map(|first| scope.spawn(fill(first)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Release);
        watch.join().unwrap()
    })
}

#[test]
fn values_and_bytes_are_bounded() {
    let _quiet = quiet();
    let (count, bytes) = most_held();
    assert!(count <= 8 && bytes <= 100, "{count} values, {bytes} bytes");
    let cache = Cache::new(8, 100);
    get(&cache, 1, 1, 60);
    get(&cache, 2, 2, 30);
    assert_eq!(get(&cache, 3, 3, 80).1, [1, 2]);
    assert_eq!(get(&cache, 4, 4, 101).1, [3]);
    assert_eq!(cache.counts().cached_count, 1, "larger than all that may be, but in use");
}

#[test]
fn fault_cache_unbounded() {
    let _planted = plant(Fault::cache_unbounded);
    let (count, bytes) = most_held();
    assert!(count > 8 && bytes > 100, "the check sees it");
}

#[test]
fn clearing_leaves_what_is_held_and_counts_go_on() {
    let _quiet = quiet();
    let cache = Cache::new(8, 100);
    let Ok((held, _)) = cache.get(&1, || Ok::<_, Infallible>((5, 10)));
    get(&cache, 2, 6, 10);
    assert_eq!(cache.clear().len(), 2);
    assert_eq!((*held, cache.generation()), (5, 1));
    let CacheCounts { cached_count, cached_bytes, hits, misses, evictions } = cache.counts();
    assert_eq!((cached_count, cached_bytes, hits, misses, evictions), (0, 0, 0, 2, 2));
}

/// What is destroyed while a thread holds it, while work is in flight, and after both.
fn destroyed() -> [usize; 3] {
    let (retired, value) = (Retired::default(), Arc::new(1));
    retired.add(value.clone());
    let completed = AtomicUsize::new(0);
    let collect = || retired.collect(|| vec![3], |newest| *newest <= completed.load(Relaxed)).len();
    let while_held = collect();
    drop(value);
    let in_flight = collect();
    completed.store(3, Relaxed);
    [while_held, in_flight, collect()]
}

#[test]
fn what_was_evicted_lives_until_nothing_uses_it() {
    let _quiet = quiet();
    assert_eq!(destroyed(), [0, 0, 1]);
}

#[test]
fn fault_unload_in_flight() {
    let _planted = plant(Fault::unload_in_flight);
    assert_ne!(destroyed(), [0, 0, 1], "the check sees it");
}
