//! Streams over the oracle: pools, ids, guards, dedicated streams.

use super::{pair, planted, streams_of, turn};
use crate::{
    tests::oracle::{self, op},
    *,
};
use raddle_sync::faults::Fault;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Barrier, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

fn slots(streams: impl IntoIterator<Item = Stream>) -> HashSet<usize> {
    streams.into_iter().map(|stream| stream.0.slot).collect()
}

#[test]
fn threads_that_ask_a_pool_at_once_get_each_stream_equally_often() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    for priority in [Priority::Normal, Priority::High] {
        let counts = Mutex::new(HashMap::<usize, usize>::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..64 {
                        let stream = Stream::from_pool(&device, priority).unwrap();
                        assert_eq!(stream.priority(), priority);
                        *counts.lock().unwrap().entry(stream.0.slot).or_default() += 1;
                    }
                });
            }
        });
        let counts = counts.into_inner().unwrap();
        assert_eq!(counts.len(), 32);
        assert!(counts.values().all(|count| *count == 16), "{counts:?}");
    }
}

#[test]
fn priorities_reach_the_device() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    Stream::default(&device).unwrap();
    for priority in [Priority::Normal, Priority::High] {
        let stream = Stream::from_pool(&device, priority).unwrap();
        assert_eq!(oracle.priority(stream.0.slot), Some(priority));
    }
    assert_eq!(oracle.priority(0), Some(Priority::Normal));
}

#[test]
fn any_number_may_be_given_for_an_id() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let id = Stream::from_pool(&device, Priority::High).unwrap().id();
    let mut random = super::Random::new(5);
    let strays = (0..20_000).map(|_| (random.below(1 << 30) as u64) << 34 ^ random.below(1 << 30) as u64);
    let near = (0..64).map(|bit| id.0 ^ 1 << bit);
    let ends = [0, 1, u64::MAX, u64::MAX - 1, i64::MIN as u64];
    for stray in strays.chain(near).chain(ends) {
        match Stream::from_id(&device, StreamId(stray)) {
            Ok(stream) => assert_eq!(stream.id(), StreamId(stray)),
            Err(error) => assert_eq!(error, Error::UnknownStream { device: "oracle".into(), id: stray }),
        }
    }
    let (other, _) = oracle::open(8);
    assert!(Stream::from_id(&other, id).is_err());
    oracle.check().unwrap();
    // Nor of one that has its index when it is closed. Others open devices as well, and may take it first.
    let name = device.0.index;
    assert!(device.close().unwrap());
    let heirs: Vec<Device> = (0..8).map(|_| oracle::open(8).0).collect();
    let heir = heirs.iter().find(|heir| heir.0.index == name);
    assert!(heir.is_none_or(|heir| Stream::from_id(heir, id).is_err()));
    heirs.iter().for_each(|heir| assert!(heir.close().unwrap()));
}

#[test]
fn the_current_stream_of_one_device_is_no_other_devices() {
    let _turn = turn();
    let (first, _, a, _) = pair();
    let (second, _, _, other) = pair();
    thread::spawn(move || {
        a.set_current();
        other.set_current();
        assert_eq!((Stream::current(&first).unwrap(), Stream::current(&second).unwrap()), (a, other));
        let guard = Stream::default(&first).unwrap().enter();
        assert_eq!(Stream::current(&second).unwrap(), other);
        drop(guard);
        assert_eq!(Stream::current(&first).unwrap(), a);
        assert_eq!(first.stream_users().iter().sum::<u32>(), 1);
    })
    .join()
    .unwrap();
    assert_eq!(first.stream_users().iter().sum::<u32>() + second.stream_users().iter().sum::<u32>(), 0);
    let error = a.wait_stream(other).unwrap_err();
    assert_eq!(error.to_string(), "wait_stream: expected a stream of oracle, found one of oracle");
}

/// A device is closed while a thread is bound to one of its streams, and has entered another: all goes on as it was, there
/// and on the device that has its index next.
#[test]
fn bindings_survive_the_end_of_their_device() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let (other, _) = oracle::open(8);
    let (is_bound, bound) = mpsc::channel();
    let (close, closed) = mpsc::channel::<Vec<Device>>();
    let use_them = move || {
        let current = |device: &Device| Stream::current(device).unwrap();
        let use_once = |device: &Device| {
            let buffer = device.allocate(1000).unwrap();
            op(current(device), &[], &[&buffer]).unwrap();
        };
        let (own, of_other) = (current(&device), current(&other));
        let entered = Stream::from_pool(&device, Priority::High).unwrap();
        use_once(&device);
        use_once(&other);
        let guard = entered.enter();
        use_once(&device);
        is_bound.send(own).unwrap();
        let heirs = closed.recv().unwrap();
        assert_eq!(current(&device), entered);
        use_once(&device);
        drop(guard);
        assert_eq!((current(&device), current(&other)), (own, of_other));
        for device in [&device, &other].into_iter().chain(&heirs) {
            use_once(device);
            assert_eq!(current(device).device(), *device);
            current(device).synchronize().unwrap();
        }
        assert_eq!(current(&device), own);
        // On its own stream, on the other device and on those that were opened since.
        assert_eq!(device.stream_users().iter().sum::<u32>(), 1);
    };
    let user = thread::spawn(use_them);
    let own = bound.recv().unwrap();
    assert!(device.close().unwrap());
    // One of them has its index, unless others open devices as well.
    let heirs: Vec<Device> = (0..4).map(|_| oracle::open(8).0).collect();
    close.send(heirs.clone()).unwrap();
    user.join().unwrap();
    for device in [device, other].into_iter().chain(heirs) {
        assert_eq!(device.stream_users().iter().sum::<u32>(), 0);
        assert!(device.close().unwrap(), "what was taken since is given back");
    }
    assert!(own.query());
    oracle.check().unwrap();
}

/// Runs a body on a thread of its own, which has used the device, until the guard of what it makes is dropped.
fn dedicated_thread<'a, 'b>(
    scope: &'a thread::Scope<'a, 'b>,
    device: Device,
    exhausted: Exhausted,
) -> (mpsc::Receiver<Result<Stream>>, mpsc::Sender<()>) {
    let (sender, receiver) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    scope.spawn(move || {
        Stream::current(&device).unwrap();
        let taken = Stream::dedicated(&device, exhausted);
        sender.send(taken.as_ref().map(|taken| **taken).map_err(Error::clone)).unwrap();
        if let Ok(taken) = &taken {
            assert_eq!(Stream::current(&device).unwrap(), **taken);
        }
        _ = ended.recv();
    });
    (receiver, end)
}

#[test]
fn dedicated_streams_are_no_two_threads_and_run_out_honestly() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    thread::scope(|scope| {
        let mut holders: Vec<_> =
            (0..32).map(|_| dedicated_thread(scope, device, Exhausted::Error)).collect();
        let taken: Vec<Stream> = holders.iter().map(|(stream, _)| stream.recv().unwrap().unwrap()).collect();
        assert_eq!(slots(taken.iter().copied()), (1..=32).collect());

        // None is left: an error, at once or after a while; threads that don't ask share the default stream.
        let text = "dedicated: all 32 streams of oracle are dedicated or in use; wait, or use shared ones";
        for exhausted in [
            Exhausted::Error,
            Exhausted::WaitFor(Duration::ZERO),
            Exhausted::WaitFor(Duration::from_millis(5)),
        ] {
            assert_eq!(Stream::dedicated(&device, exhausted).unwrap_err().to_string(), text);
        }
        let shared = || Stream::current(&device).unwrap();
        let bound: Vec<_> = (0..40).map(|_| scope.spawn(shared)).collect();
        assert_eq!(slots(bound.into_iter().map(|thread| thread.join().unwrap())), [0].into());
        assert_eq!(slots((0..64).map(|_| Stream::from_pool(&device, Priority::Normal).unwrap())), [0].into());

        // Who waits gets the one that is given back.
        let (waiter, end) = dedicated_thread(scope, device, Exhausted::Wait);
        let (stream, first) = holders.swap_remove(7);
        drop((stream, first));
        assert_eq!(waiter.recv().unwrap().unwrap(), taken[7]);
        let patient = dedicated_thread(scope, device, Exhausted::WaitFor(Duration::from_secs(600)));
        drop(end);
        assert_eq!(patient.0.recv().unwrap().unwrap(), taken[7]);
    });
    assert_eq!(device.stream_users().iter().sum::<u32>(), 0);
    oracle.check().unwrap();
}

#[test]
fn a_dedicated_stream_comes_back_however_its_thread_ends() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    let take = move || Stream::dedicated(&device, Exhausted::Error).unwrap();
    for _ in 0..100 {
        // A panic, a leaked guard, one that outlives the thread's other things, and one that is released by hand.
        thread_local!(static KEPT: std::cell::RefCell<Option<DedicatedStream>> = const { std::cell::RefCell::new(None) });
        let panics = thread::spawn(move || {
            let _taken = take();
            panic!("planted");
        });
        let leaks = thread::spawn(move || std::mem::forget(take()));
        let keeps = thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(take())));
        let releases = thread::spawn(move || {
            let taken = take();
            device.release_current_thread();
            let again = take();
            drop(taken); // its hold is over, so this ends nothing
            assert_ne!(again.0.owner.load(Relaxed), 0);
            assert!(Stream::dedicated(&device, Exhausted::Error).is_err(), "it has one");
        });
        assert!(panics.join().is_err());
        [leaks, keeps, releases].into_iter().for_each(|thread| thread.join().unwrap());
    }
    assert_eq!(device.stream_users().iter().sum::<u32>(), 0);
    let owners = streams_of(&device).all_streams().map(|stream| stream.owner.load(Relaxed));
    assert_eq!(owners.sum::<u64>(), 0);
    let taken = take();
    let error = Stream::dedicated(&device, Exhausted::Wait).unwrap_err();
    assert_eq!(error.to_string(), "dedicated: this thread has a stream of oracle for itself already");
    drop(taken);
}

#[test]
fn threads_are_not_bound_to_what_is_dedicated() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    let barrier = Barrier::new(50);
    thread::scope(|scope| {
        let holders: Vec<_> = (0..20).map(|_| dedicated_thread(scope, device, Exhausted::Error)).collect();
        let taken = slots(holders.iter().map(|(stream, _)| stream.recv().unwrap().unwrap()));
        let bound: Vec<_> = (0..50)
            .map(|_| {
                scope.spawn(|| {
                    let stream = Stream::current(&device).unwrap();
                    barrier.wait();
                    stream
                })
            })
            .collect();
        let bound = slots(bound.into_iter().map(|thread| thread.join().unwrap()));
        assert!(bound.is_disjoint(&taken) && bound.len() == 13, "{bound:?} and {taken:?}");
        let pool = slots((0..64).map(|_| Stream::from_pool(&device, Priority::Normal).unwrap()));
        assert!(pool.is_disjoint(&taken) && pool.len() == 12, "{pool:?} and {taken:?}");
    });
}

/// More threads than streams come and go, wait for one, and use it; some of those that don't ask come and go, too.
#[test]
fn churn_keeps_dedicated_streams_apart() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let users: Vec<AtomicU32> = (0..33).map(|_| AtomicU32::new(0)).collect();
    for _ in 0..6 {
        thread::scope(|scope| {
            let dedicated = || {
                op(Stream::current(&device).unwrap(), &[], &[]).unwrap();
                for _ in 0..5 {
                    let taken = Stream::dedicated(&device, Exhausted::Wait).unwrap();
                    assert_eq!(users[taken.0.slot].fetch_add(1, Relaxed), 0, "two on {taken:?}");
                    op(Stream::current(&device).unwrap(), &[], &[]).unwrap();
                    users[taken.0.slot].fetch_sub(1, Relaxed);
                }
            };
            let shared = || op(Stream::current(&device).unwrap(), &[], &[]).unwrap();
            let dedicated: Vec<_> = (0..80).map(|_| scope.spawn(dedicated)).collect();
            let shared: Vec<_> = (0..80).map(|_| scope.spawn(shared)).collect();
            dedicated.into_iter().chain(shared).for_each(|thread| thread.join().unwrap());
        });
    }
    assert_eq!(device.stream_users().iter().sum::<u32>(), 0);
    oracle.check().unwrap();
}

#[test]
fn fault_shared_dedicated() {
    let _planted = planted(Fault::shared_dedicated);
    let (device, _) = oracle::open(8);
    let taken = Stream::dedicated(&device, Exhausted::Error).unwrap();
    // Its thread is on another one for a while: the stream has no user, but an owner.
    Stream::default(&device).unwrap().set_current();
    let other = || *Stream::dedicated(&device, Exhausted::Error).unwrap();
    assert_eq!(thread::scope(|scope| scope.spawn(other).join().unwrap()), *taken, "not caught");
}

#[test]
fn fault_record_first_only() {
    let _planted = planted(Fault::record_first_only);
    assert_eq!(super::ordering::event_truth(), Err("the second record is complete with the first"));
}
