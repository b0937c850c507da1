//! The runtime against the oracle: random programs of several threads, the allocator, events, errors along ticks.

use crate::{
    tests::{
        memory_of,
        oracle::{self, Oracle, op, op_of, waits},
    },
    *,
};
use raddle_hal::{Kernel, KernelError};
use raddle_sync::faults::{Fault, Planted, plant};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Tests that plant a fault, and those that a planted fault would disturb, run one at a time.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fault is out again before the turn is over.
pub(crate) fn planted(fault: Fault) -> (Planted, MutexGuard<'static, ()>) {
    let turn = turn();
    (plant(fault), turn)
}

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// Threads that share streams and buffers, replace buffers (free and reuse), and complete ops in any allowed order.
fn program(seed: u64, thread_count: usize, step_count: usize) -> (std::result::Result<(), String>, u64) {
    const STREAM_COUNT: usize = 4;
    let (device, oracle) = oracle::open(64);
    let streams: Vec<Stream> =
        (0..STREAM_COUNT).map(|_| Stream::from_pool(&device, Priority::Normal).unwrap()).collect();
    let slots: Vec<usize> = streams.iter().map(|stream| stream.0.slot).collect();
    let buffers: Vec<_> = (0..5).map(|_| RwLock::new(device.allocate(300).unwrap())).collect();
    let thread = |index: usize| {
        let mut random = Random::new(seed * 31 + index as u64);
        streams[index % STREAM_COUNT].set_current();
        for _ in 0..step_count {
            let stream = streams[random.below(STREAM_COUNT)];
            let pick = |random: &mut Random, bound: usize| -> Vec<Buffer> {
                (0..random.below(bound)).map(|_| buffers[random.below(5)].read().unwrap().clone()).collect()
            };
            match random.below(12) {
                0..6 => {
                    let (reads, writes) = (pick(&mut random, 3), pick(&mut random, 2));
                    let (reads, writes): (Vec<&Buffer>, Vec<&Buffer>) =
                        (reads.iter().collect(), writes.iter().collect());
                    op(stream, &reads, &writes).unwrap();
                }
                6..9 => {
                    // Sometimes of a size of its own class, sometimes large: splits and merges take part.
                    let size = [300, 300, 4096, 700_000, 1_500_000][random.below(5)];
                    let fresh = device.allocate(size).unwrap();
                    op(stream, &[], &[&fresh]).unwrap();
                    drop(std::mem::replace(&mut *buffers[random.below(5)].write().unwrap(), fresh));
                }
                9 if random.below(8) == 0 => device.empty_cache(),
                10 => {
                    let noted = pick(&mut random, 2);
                    noted.iter().for_each(|buffer| device.record_stream(buffer, stream).unwrap());
                }
                _ => (0..random.below(4))
                    .for_each(|_| _ = oracle.complete_next(slots[random.below(STREAM_COUNT)])),
            }
        }
        device.release_current_thread();
    };
    std::thread::scope(|scope| {
        (1..thread_count).for_each(|index| drop(scope.spawn(move || thread(index))));
        thread(0);
    });
    memory_of(&device).large.lock().check();
    drop(buffers);
    oracle.complete_all();
    let stats = device.memory_stats();
    assert_eq!(stats.allocated_bytes, 0, "seed {seed}: {stats:?}");
    assert_eq!(stats.allocations, stats.frees);
    assert!(device.close().unwrap(), "seed {seed}: memory stays behind");
    (oracle.check(), waits(device))
}

#[test]
fn random_programs_have_no_race() {
    let _turn = turn();
    let mut wait_count = 0;
    for seed in 1..=150 {
        for thread_count in [1, 2, 4] {
            let (result, waits) = program(seed, thread_count, 120);
            result.unwrap_or_else(|race| panic!("seed {seed}, {thread_count} threads: {race}"));
            wait_count += waits;
        }
    }
    assert!(wait_count > 10_000, "the programs hardly wait: {wait_count}");
    println!("450 schedules");
}

/// Of programs of one thread, the first that shows the fault.
fn caught_by(fault: Fault) -> Option<u64> {
    let _planted = planted(fault);
    (1..=200).find(|seed| program(*seed, 1, 120).0.is_err())
}

#[test]
fn planted_faults_are_caught() {
    for fault in [
        Fault::forget_marks,
        Fault::free_without_fence,
        Fault::one_read_mark,
        Fault::no_wait_after_read,
        Fault::current_clock,
        Fault::release_in_flight,
    ] {
        let seed = caught_by(fault);
        println!("{}: caught by seed {seed:?}", fault.name());
        assert!(seed.is_some(), "{} was not caught", fault.name());
    }
}

/// Threads that replay one graph on streams of their own, hold its outputs for a while and read them, and write an operand
/// in between.
fn replays(seed: u64, thread_count: usize) -> std::result::Result<(), String> {
    let (device, oracle) = oracle::open(64);
    let streams: Vec<Stream> =
        (0..4).map(|_| Stream::from_pool(&device, Priority::Normal).unwrap()).collect();
    let (weight, other) = (device.allocate(300).unwrap(), device.allocate(300).unwrap());
    op(streams[0], &[], &[&weight, &other]).unwrap();
    let capture = Capture::begin(&device).unwrap();
    let [inner, output] = [300, 300].map(|size| device.allocate(size).unwrap());
    op(streams[0], &[&weight, &other], &[&inner]).unwrap();
    op(streams[0], &[&inner, &weight], &[&output]).unwrap();
    op(streams[0], &[&output], &[&other]).unwrap();
    let graph = capture.end(&[&output]).unwrap();
    drop((inner, output));
    graph.set_instance_count_max(2);
    let thread = |index: usize| {
        let mut random = Random::new(seed * 57 + index as u64);
        let mut held: Vec<Buffer> = Vec::new();
        for _ in 0..40 {
            let stream = streams[random.below(4)];
            match random.below(6) {
                0..3 => held.extend(graph.replay_on(stream, &[], &[]).unwrap()),
                3 => held.iter().for_each(|output| op(stream, &[output], &[]).unwrap()),
                4 => op(stream, &[], &[[&weight, &other][random.below(2)]]).unwrap(),
                _ => held.truncate(random.below(2)),
            }
            (0..random.below(3)).for_each(|_| _ = oracle.complete_next(streams[random.below(4)].0.slot));
        }
        device.release_current_thread();
    };
    std::thread::scope(|scope| {
        (1..thread_count).for_each(|index| drop(scope.spawn(move || thread(index))));
        thread(0);
    });
    drop((graph, weight, other));
    oracle.complete_all();
    assert_eq!(device.memory_stats().allocated_bytes, 0, "seed {seed}");
    assert!(device.close().unwrap(), "seed {seed}: memory stays behind");
    oracle.check()
}

#[test]
fn replays_have_no_race() {
    let _turn = turn();
    for seed in 1..=60 {
        for thread_count in [1, 3] {
            let result = replays(seed, thread_count);
            result.unwrap_or_else(|race| panic!("seed {seed}, {thread_count} threads: {race}"));
        }
    }
    println!("120 schedules");
}

#[test]
fn unhoisted_waits_are_caught() {
    let _planted = planted(Fault::unhoisted_waits);
    assert!((1..=60).any(|seed| replays(seed, 1).is_err()));
}

/// One device, two streams, and the oracle.
pub(crate) fn pair() -> (Device, Arc<Oracle>, Stream, Stream) {
    let (device, oracle) = oracle::open(1000);
    let stream = || Stream::from_pool(&device, Priority::Normal).unwrap();
    let (a, b) = (stream(), stream());
    (device, oracle, a, b)
}

pub(crate) fn event_truth() -> std::result::Result<(), &'static str> {
    let (device, oracle, a, b) = pair();
    let buffer = device.allocate(64).unwrap();
    let event = Event::new();
    if event.query() {
        return Err("complete before it was recorded");
    }
    event.synchronize().unwrap();
    b.wait_event(&event).unwrap();
    op(a, &[], &[&buffer]).unwrap();
    op(a, &[], &[&buffer]).unwrap();
    event.record(a);
    oracle.complete_next(a.0.slot);
    if event.query() {
        return Err("complete before the last op is");
    }
    b.wait_event(&event).unwrap(); // holds on to the first record …
    op(a, &[], &[&buffer]).unwrap();
    event.record(a); // … whatever is recorded next
    oracle.complete_next(a.0.slot);
    if !oracle.complete_next(b.0.slot) {
        return Err("the wait for the first record sees the second");
    }
    if event.query() {
        return Err("the second record is complete with the first");
    }
    oracle.complete_all();
    if event.query() { Ok(()) } else { Err("never complete") }
}

#[test]
fn events_tell_the_truth() {
    let _turn = turn();
    assert_eq!(event_truth(), Ok(()));
}

#[test]
fn lying_events_are_caught() {
    for fault in [Fault::event_born_complete, Fault::event_early] {
        let _planted = planted(fault);
        assert!(event_truth().is_err(), "{} was not caught", fault.name());
    }
}

#[test]
fn a_wait_names_the_op_and_not_the_tail() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let (x, y) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    op(a, &[], &[&x]).unwrap();
    (0..5).for_each(|_| op(a, &[], &[]).unwrap());
    op(b, &[&x], &[&y]).unwrap();
    (0..5).for_each(|_| op(a, &[], &[]).unwrap());
    assert!(oracle.complete_next(a.0.slot));
    assert!(oracle.complete_next(b.0.slot), "b needs the first op of a only");
    assert_eq!(waits(device), 1);
    oracle.check().unwrap();
}

#[test]
fn what_is_ordered_already_is_not_waited_for_again() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let buffers: Vec<Buffer> = (0..10).map(|_| device.allocate(64).unwrap()).collect();
    buffers.iter().for_each(|buffer| op(a, &[], &[buffer]).unwrap());
    buffers.iter().rev().for_each(|buffer| op(b, &[buffer], &[]).unwrap());
    let stats = device.stream_stats();
    assert_eq!((stats.waits_inserted, stats.waits_elided), (1, 9));
    oracle.check().unwrap();
}

#[test]
fn memory_crosses_streams_by_ticks() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let guard = a.enter();
    let buffer = device.allocate(4096).unwrap();
    op(a, &[], &[&buffer]).unwrap();
    let first = buffer.id();
    drop(buffer);
    // The same stream gets it back at once, in flight as it is.
    let buffer = device.allocate(4096).unwrap();
    assert_eq!(buffer.id(), first);
    op(b, &[&buffer], &[]).unwrap();
    drop(buffer);
    // Now that another stream reads it, fresh ones are better than a wait.
    let mut held: Vec<Buffer> = (0..10).map(|_| device.allocate(4096).unwrap()).collect();
    assert!(held.iter().all(|other| other.id() != first));
    oracle.complete_all();
    while held.last().unwrap().id() != first {
        assert!(held.len() < 100, "the block never comes back");
        held.push(device.allocate(4096).unwrap());
    }
    drop(guard);
    oracle.check().unwrap();
}

#[test]
fn record_stream_covers_what_comes_until_the_free() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let _guard = a.enter();
    let buffer = device.allocate(1 << 20).unwrap();
    device.record_stream(&buffer, b).unwrap();
    op(b, &[], &[]).unwrap(); // stands for foreign work that the runtime knows nothing of
    let first = buffer.id();
    drop(buffer);
    let next = device.allocate(1 << 20).unwrap();
    assert_ne!(next.id(), first, "in use on b");
    oracle.complete_all();
    drop(next);
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    oracle.check().unwrap();
}

#[test]
fn scarce_memory_is_waited_for_before_an_error_says_so() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let _guard = a.enter();
    oracle.set_slab_bytes_left(256 << 20);
    // Case C-11: a fitting block is free but in flight.
    let big = device.allocate(160 << 20).unwrap();
    op(b, &[&big], &[]).unwrap();
    drop(big);
    let next = device.allocate(150 << 20).unwrap();
    op(a, &[], &[&next]).unwrap();
    drop(next);
    // Its variant: pieces of it are in flight and have to be merged.
    let pieces: Vec<Buffer> = (0..8).map(|_| device.allocate(18 << 20).unwrap()).collect();
    pieces.iter().for_each(|piece| op(b, &[piece], &[]).unwrap());
    drop(pieces);
    drop(device.allocate(150 << 20).unwrap());
    // Truly too much: an error with the numbers, once; and the program goes on.
    let live = device.allocate(10 << 20).unwrap();
    let error = device.allocate(300 << 20).unwrap_err();
    let Error::OutOfMemory { asked_bytes, allocated_bytes, .. } = &error else { panic!("{error}") };
    assert_eq!((*asked_bytes, *allocated_bytes), (300 << 20, 10 << 20));
    assert!(
        error.to_string().starts_with("oracle: out of memory, 314572800 bytes asked, 10485760 allocated")
    );
    device.set_memory_limit(200 << 20);
    let error = device.allocate(300 << 20).unwrap_err();
    assert!(error.to_string().ends_with(", of 209715200 that it may hold"), "{error}");
    drop(device.allocate(50 << 20).unwrap());
    drop(live);
    assert!(device.allocate(usize::MAX).is_err());
    oracle.check().unwrap();
}

#[test]
fn small_blocks_come_back_when_memory_is_short() {
    let _turn = turn();
    let (device, oracle, a, _) = pair();
    let _guard = a.enter();
    oracle.set_slab_bytes_left(4 << 20);
    let mut held = Vec::new();
    let error = loop {
        match device.allocate(100_000) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::OutOfMemory { asked_bytes: 100_000, .. }));
    assert!(held.len() >= 16, "{} blocks of 4 MiB", held.len());
    // What one thread has kept, another gets.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(held)).join().unwrap();
    });
    assert!(device.allocate(100_000).is_ok());
    oracle.check().unwrap();
}

/// The only block that the device has room for is in flight: it is given out all the same, and counted as any other.
#[test]
fn scarce_small_blocks_are_counted() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let _guard = a.enter();
    let only = device.allocate(100_000).unwrap();
    oracle.set_slab_bytes_left(0);
    assert!(device.allocate(100_000).is_err(), "there is one");
    op(b, &[&only], &[]).unwrap();
    drop(only);
    let again = device.allocate(100_000).unwrap();
    let stats = device.memory_stats();
    assert_eq!((stats.allocations, stats.frees), (2, 1));
    drop(again);
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    oracle.check().unwrap();
}

/// A thread that only allocates and one that only frees, both far ahead of the device: the centre is full of what is in
/// flight, the last freed on top.
#[test]
fn memory_that_another_thread_frees_in_flight_is_bounded() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Buffer>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for buffer in receiver {
                op(b, &[&buffer], &[]).unwrap();
            }
        });
        let _guard = a.enter();
        for _ in 0..600 {
            let buffer = device.allocate(4096).unwrap();
            op(a, &[], &[&buffer]).unwrap();
            sender.send(buffer).unwrap();
        }
        drop(sender);
    });
    assert!(device.memory_stats().slab_allocations < 8, "{:?}", device.memory_stats());
    oracle.check().unwrap();
}

/// A buffer is dropped by a thread that has never used its device, and by one that has.
#[test]
fn buffers_may_be_dropped_by_any_thread() {
    let _turn = turn();
    let (device, oracle, a, _) = pair();
    for uses in [false, true] {
        let buffer = device.allocate(64).unwrap();
        op(a, &[], &[&buffer]).unwrap();
        let stranger = std::thread::spawn(move || {
            uses.then(|| Stream::current(&device).unwrap());
            drop(buffer);
        });
        stranger.join().unwrap();
    }
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    oracle.complete_all();
    assert!(device.close().unwrap());
    oracle.check().unwrap();
}

#[test]
fn fresh_streams_leave_no_memory_behind() {
    let _turn = turn();
    // Case C-14: each round on another stream; reserved memory stays at one block.
    let (device, oracle, ..) = pair();
    for round in 0..100 {
        let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
        let _guard = stream.enter();
        let buffer = device.allocate(64 << 20).unwrap();
        op(stream, &[], &[&buffer]).unwrap();
        drop(buffer);
        stream.synchronize().unwrap();
        let stats = device.memory_stats();
        assert_eq!((stats.allocated_bytes, stats.reserved_bytes), (0, 64 << 20), "round {round}");
    }
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    oracle.check().unwrap();
}

#[test]
fn errors_go_to_dependents_only() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let buffer = || device.allocate(64).unwrap();
    let (index, good, bad, child, mixed) = (buffer(), buffer(), buffer(), buffer(), buffer());
    let gather = Kernel::Gather { axis: 0, repeats: 1 };
    op_of(&gather, a, &[&index], &[&good]).unwrap();
    let error = KernelError::IndexOutOfRange { index: 9, position: 3, size: 4 };
    oracle.fail(a.0.slot, 2, error);
    op_of(&gather, a, &[&index], &[&bad]).unwrap();
    op(b, &[&bad], &[&child]).unwrap();
    op(b, &[&child, &good], &[&mixed]).unwrap();
    let read = |buffer: &Buffer| device.download(buffer, 0, &mut [0; 4]);
    read(&good).unwrap();
    read(&index).unwrap();
    for spoilt in [&mixed, &child, &bad] {
        let told = read(spoilt).unwrap_err();
        let expected = Error::Kernel { op: "op", error, stream: a.id().0, sequence: 2 };
        assert_eq!(told, expected);
    }
    // Written whole by what is good, it is good again.
    op(b, &[&good], &[&child]).unwrap();
    read(&child).unwrap();
}

/// Who writes is told of the failure, and what it would have overwritten is as bad as it was.
#[test]
fn a_failure_inline_heals_nothing() {
    let _turn = turn();
    let (device, oracle, a, _) = pair();
    let [index, spoilt, clean] = [(); 3].map(|()| device.allocate(64).unwrap());
    let gather = Kernel::Gather { axis: 0, repeats: 1 };
    let [first, second] = [9, 8].map(|index| KernelError::IndexOutOfRange { index, position: 3, size: 4 });
    oracle.fail(a.0.slot, 1, first);
    op_of(&gather, a, &[&index], &[&spoilt]).unwrap();
    oracle.complete_all();
    oracle.fail_inline(second);
    let told = op_of(&gather, a, &[&index], &[&spoilt, &clean]).unwrap_err();
    assert_eq!(told, Error::Kernel { op: "op", error: second, stream: a.id().0, sequence: 2 });
    let read = |buffer: &Buffer| device.download(buffer, 0, &mut [0; 4]);
    read(&clean).unwrap();
    let told = read(&spoilt).unwrap_err();
    assert_eq!(told, Error::Kernel { op: "op", error: first, stream: a.id().0, sequence: 1 });
}

/// Its index may be another device's by the second time.
#[test]
fn a_device_that_is_closed_twice_takes_no_index_away() {
    let _turn = turn();
    // Other tests open devices as well: until one gets the index.
    for _ in 0..1000 {
        let closed = oracle::open(8).0;
        assert_eq!(closed.close(), Ok(true));
        let heir = oracle::open(8).0;
        assert_eq!(closed.close(), Ok(true));
        let other = oracle::open(8).0;
        assert_ne!(heir.0.index, other.0.index);
        assert_eq!([heir, other].map(Device::close), [Ok(true), Ok(true)]);
        if heir.0.index == closed.0.index {
            return;
        }
    }
    panic!("nobody got the index of a closed device");
}

#[test]
fn threads_share_streams_and_leave_no_trace() {
    let _turn = turn();
    let (device, oracle) = oracle::open(1000);
    for _ in 0..40 {
        std::thread::scope(|scope| {
            let work = || {
                let buffer = device.allocate(1000).unwrap();
                op(Stream::current(&device).unwrap(), &[], &[&buffer]).unwrap();
            };
            let threads: Vec<_> = (0..50).map(|_| scope.spawn(work)).collect();
            // The end of a scope waits for closures only; a join waits for what threads do when they end, too.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        oracle.complete_all();
    }
    assert_eq!(device.stream_users().iter().sum::<u32>(), 0);
    assert!(
        memory_of(&device).locals.lock().len() <= 50,
        "{} locals",
        memory_of(&device).locals.lock().len()
    );
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    oracle.check().unwrap();
}

#[test]
fn guards_nest_and_unwind() {
    let _turn = turn();
    let (device, _, a, b) = pair();
    let current = || Stream::current(&device).unwrap();
    let bound = current();
    {
        let _a = a.enter();
        assert_eq!(current(), a);
        let unwound = std::panic::catch_unwind(|| {
            let _b = b.enter();
            assert_eq!(current(), b);
            panic!("planted");
        });
        assert!(unwound.is_err());
        assert_eq!(current(), a);
    }
    assert_eq!(current(), bound);
    assert_ne!(std::thread::scope(|scope| scope.spawn(current).join().unwrap()), bound);
}

#[test]
fn pools_go_round_and_ids_are_checked() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    let normal: Vec<Stream> =
        (0..33).map(|_| Stream::from_pool(&device, Priority::Normal).unwrap()).collect();
    assert_eq!(normal[0], normal[32]);
    assert_ne!(normal[0], normal[31]);
    let high = Stream::from_pool(&device, Priority::High).unwrap();
    assert_eq!((high.priority(), normal[0].priority()), (Priority::High, Priority::Normal));
    for stream in [Stream::default(&device).unwrap(), normal[5], high] {
        assert_eq!(Stream::from_id(&device, stream.id()).unwrap(), stream);
    }
    let error = Stream::from_id(&device, StreamId(42)).unwrap_err();
    assert_eq!(error.to_string(), "oracle: no stream has the id 0x2a");
}

#[test]
fn a_full_stream_makes_its_submitter_wait_and_nobody_else() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    // The oracle's `synchronize` panics if nothing can advance: 100 ops go through a queue of 8.
    (0..100).for_each(|_| op(stream, &[], &[]).unwrap());
    assert!(stream.0.enqueued.load(raddle_sync::atomic::Relaxed) - stream.0.poll() <= 8);
    oracle.check().unwrap();
}

#[test]
fn a_slow_stream_holds_back_no_frees_of_others() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let slow = device.allocate(64 << 20).unwrap();
    op(a, &[], &[&slow]).unwrap(); // in flight until the end
    drop(slow);
    let guard = b.enter();
    for round in 0..100 {
        let buffer = device.allocate(64 << 20).unwrap();
        op(b, &[], &[&buffer]).unwrap();
        drop(buffer);
        oracle.complete_next(b.0.slot);
        assert_eq!(device.memory_stats().reserved_bytes, 128 << 20, "round {round}");
    }
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 64 << 20, "what b has freed is given back");
    drop(guard);
    oracle.complete_all();
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    oracle.check().unwrap();
}

#[test]
fn a_stream_forgets_old_clocks() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let buffer = device.allocate(64).unwrap();
    for _ in 0..100 {
        op(a, &[], &[&buffer]).unwrap();
        op(b, &[], &[&buffer]).unwrap();
    }
    assert_eq!(waits(device), 199);
    assert!(a.0.history.lock().len() <= 16 && b.0.history.lock().len() <= 16);
    oracle.check().unwrap();
}

#[test]
fn a_stream_that_has_used_its_numbers_up_says_so() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    stream.0.state.lock().sequence = order::Tick::SEQUENCE_MAX;
    let error = op(stream, &[], &[]).unwrap_err();
    assert!(error.to_string().contains("has used up its sequence numbers"), "{error}");
    oracle.check().unwrap();
}

#[test]
fn a_stream_that_has_used_its_numbers_up_is_given_to_nobody() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    let exhaust = |Stream(stream, _): Stream| {
        let last = order::Tick::SEQUENCE_MAX;
        stream.state.lock().sequence = last;
        [&stream.enqueued.0, &stream.completed.0]
            .into_iter()
            .for_each(|number| number.store(last, raddle_sync::atomic::Relaxed));
    };
    let next = || Stream::from_pool(&device, Priority::Normal).unwrap();
    let bound =
        || std::thread::scope(|scope| scope.spawn(|| Stream::current(&device)).join().unwrap().unwrap());
    // A thread alone gets the default stream, and the first of the pool beside it.
    let default = Stream::default(&device).unwrap();
    assert_eq!(bound(), default);
    let first = next();
    [default, first].into_iter().for_each(exhaust);
    let fresh = bound();
    assert!(fresh != default && fresh != first);
    op(fresh, &[], &[]).unwrap();
    assert!((0..64).all(|_| next() != first));
    let dedicated = Stream::dedicated(&device, Exhausted::Error).unwrap();
    assert!(*dedicated != default && *dedicated != first);
    drop(dedicated);
    // Where no other is left, it says so.
    (0..31).for_each(|_| exhaust(next()));
    assert_eq!(next(), default);
    let error = op(bound(), &[], &[]).unwrap_err();
    assert!(error.to_string().contains("has used up its sequence numbers"), "{error}");
}

#[test]
fn ranges_outside_of_buffers_are_refused() {
    let _turn = turn();
    let (device, oracle, ..) = pair();
    let (other, ..) = pair();
    let buffer = device.allocate(16).unwrap();
    for (offset_bytes, size_bytes) in [(9, 8), (17, 0), (0, 17), (usize::MAX - 3, 8), (usize::MAX, 1)] {
        let error = |op| Err(Error::BufferRange { op, offset_bytes, size_bytes, buffer_bytes: 16 });
        let mut bytes = vec![0; size_bytes];
        assert_eq!(device.upload(&buffer, offset_bytes, &bytes), error("upload"));
        assert_eq!(device.download(&buffer, offset_bytes, &mut bytes), error("download"));
    }
    let wrong = |op| Err(Error::BufferDevice { op, expected: "oracle".into(), found: "oracle".into() });
    assert_eq!(other.upload(&buffer, 0, &[0]), wrong("upload"));
    assert_eq!(other.download(&buffer, 0, &mut [0]), wrong("download"));
    for (offset_bytes, size_bytes) in [(0, 16), (16, 0), (8, 8)] {
        device.upload(&buffer, offset_bytes, &vec![0; size_bytes]).unwrap();
    }
    oracle.check().unwrap();
}
