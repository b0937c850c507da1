//! The cache under loom: two threads in every order with a few preemptions, and a compiler that takes its time.

use super::*;
use crate::faults::{Fault, plant};
use loom::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};
use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

/// It must hold, or with a fault planted must be seen not to.
fn explore(fault: Option<Fault>, body: impl Fn() + Send + Sync + 'static) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _planted = fault.map(plant);
    let holds = catch_unwind(AssertUnwindSafe(|| loom::model(body))).is_ok();
    assert_eq!(holds, fault.is_none(), "{fault:?}");
}

/// Two threads ask for one key: the compiler runs once, and both have what it made.
fn one_build() {
    let (cache, builds) = (Arc::new(Cache::new(2, 10)), Arc::new(AtomicUsize::new(0)));
    let ask = {
        let (cache, builds) = (cache.clone(), builds.clone());
        move || {
            let build = || {
                thread::yield_now();
                Ok::<_, Infallible>((builds.fetch_add(1, SeqCst), 1))
            };
            let Ok((value, _)) = cache.get(&1, build);
            assert_eq!(*value, 0);
        }
    };
    let other = thread::spawn(ask.clone());
    ask();
    other.join().unwrap();
    assert_eq!(builds.load(SeqCst), 1);
}

#[test]
fn model_one_build() {
    explore(None, one_build);
}

#[test]
fn fault_build_twice() {
    explore(Some(Fault::build_twice), one_build);
}

/// The build of one key waits for another key, which another thread builds. (With `build_under_lock` nobody can go on: loom
/// ends the process, so the fault is planted in `tests`.)
#[test]
fn model_two_keys() {
    explore(None, two_keys);
}

fn two_keys() {
    let cache = Arc::new(Cache::new(2, 10));
    let other = {
        let cache = cache.clone();
        thread::spawn(move || _ = cache.get(&2, || Ok::<_, Infallible>((2, 1))))
    };
    let build = || Ok::<_, Infallible>((*cache.get(&2, || Ok::<_, Infallible>((2, 1))).unwrap().0 + 1, 1));
    assert_eq!(*cache.get(&1, build).unwrap().0, 3);
    other.join().unwrap();
}

/// A thread launches a kernel and lets go of it; meanwhile another kernel takes its place and what nobody uses is
/// unloaded. Never while the launch is in flight.
fn evicted_while_running() {
    let cache = Arc::new(Cache::new(1, 10));
    let (retired, submitted) = (Arc::new(Retired::default()), Arc::new(AtomicUsize::new(0)));
    let launch = {
        let (cache, submitted) = (cache.clone(), submitted.clone());
        thread::spawn(move || {
            let Ok((kernel, evicted)) = cache.get(&1, || Ok::<_, Infallible>((1, 1)));
            submitted.store(1, SeqCst);
            drop(kernel);
            evicted
        })
    };
    let Ok((_, evicted)) = cache.get(&2, || Ok::<_, Infallible>((2, 1)));
    evicted.into_iter().for_each(|kernel| retired.add(kernel));
    // Nothing completes.
    for unused in retired.collect(|| vec![submitted.load(SeqCst)], |newest| *newest == 0) {
        assert!(*unused != 1 || submitted.load(SeqCst) == 0, "a launch of it is in flight");
    }
    launch.join().unwrap();
}

#[test]
fn model_evicted_while_running() {
    explore(None, evicted_while_running);
}

#[test]
fn fault_unload_in_flight() {
    explore(Some(Fault::unload_in_flight), evicted_while_running);
}
