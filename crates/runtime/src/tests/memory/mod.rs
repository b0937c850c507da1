//! What user code sees and does of memory, on the oracle: statistics, limits, hooks, pools, resources, pictures; each
//! guarantee with the planted fault that its check must catch.

mod bounds;
mod pools;
mod resources;

use crate::{
    tests::{
        Random, memory_of,
        oracle::{self, op},
        pair, planted, turn,
    },
    *,
};
use raddle_sync::faults::Fault;
use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

type Verdict = std::result::Result<(), String>;

fn check(holds: bool, what: &str) -> Verdict {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Pieces tile their slabs, and add up to what is counted.
fn tiles(device: Device) -> Verdict {
    let MemorySnapshot { stats, slabs, .. } = device.memory_snapshot();
    let mut allocated_bytes = 0;
    for slab in &slabs {
        let mut end = slab.address;
        for piece in &slab.pieces {
            check(piece.address == end, "pieces have gaps or overlap")?;
            end += piece.size_bytes as u64;
            allocated_bytes += if piece.state == PieceState::Allocated { piece.size_bytes } else { 0 };
            check(piece.asked_bytes <= piece.size_bytes, "more was asked for than there is")?;
        }
        check(end == slab.address + slab.size_bytes as u64, "pieces leave some of their slab out")?;
    }
    check(
        slabs.iter().map(|slab| slab.size_bytes).sum::<usize>() == stats.reserved_bytes,
        "slabs are missing",
    )?;
    check(allocated_bytes == stats.allocated_bytes, "pieces that are given out aren't what is counted")?;
    let sum =
        |pool: &PoolStats| pool.bytes.allocated_bytes + pool.bytes.free_bytes + pool.bytes.pending_bytes;
    check(stats.pools.iter().map(sum).sum::<usize>() == stats.reserved_bytes, "pools don't add up")
}

/// Random sizes, streams and lives; every block that is out is looked at after each step.
fn random_lives(seed: u64) -> Verdict {
    let (device, oracle, a, b) = pair();
    let pool = device.memory_pool();
    let mut random = Random::new(seed);
    let mut held: Vec<Buffer> = Vec::new();
    for _ in 0..120 {
        let _guard = [a, b][random.below(2)].enter();
        let _inside = (random.below(3) == 0).then(|| pool.enter());
        match random.below(8) {
            0..4 => {
                let size_bytes = [0, 100, 5_000, 300_000, 1 << 20, 5_000_000, 40 << 20][random.below(7)];
                let buffer = device.allocate(size_bytes).unwrap();
                let two = held.iter().any(|other| other.is(&buffer));
                held.push(buffer);
                if two {
                    std::mem::forget(held);
                    return Err("a block is in two hands".into());
                }
                op([a, b][random.below(2)], &[], &[held.last().unwrap()]).unwrap();
            }
            4..7 if !held.is_empty() => drop(held.swap_remove(random.below(held.len()))),
            7 if random.below(4) == 0 => device.empty_cache(),
            _ => _ = oracle.complete_next([a, b][random.below(2)].0.slot),
        }
        if let Err(broken) = tiles(device) {
            std::mem::forget(held);
            return Err(broken);
        }
    }
    drop((held, pool));
    oracle.complete_all();
    tiles(device)?;
    check(device.close().unwrap(), "memory stays behind")?;
    oracle.check()
}

#[test]
fn pieces_tile_their_slabs_whatever_happens() {
    let _turn = turn();
    (1..=60).for_each(|seed| random_lives(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}")));
}

#[test]
fn fault_split_loses_bytes() {
    let _planted = planted(Fault::split_loses_bytes);
    assert!((1..=5).any(|seed| random_lives(seed).is_err()));
}

#[test]
fn fault_block_in_two_hands() {
    let _planted = planted(Fault::block_in_two_hands);
    assert!((1..=5).any(|seed| random_lives(seed) == Err("a block is in two hands".into())));
}

/// Neighbours of which one is in flight are given out as one only when that is over, or behind it.
fn neighbours() -> Verdict {
    let (device, oracle, a, b) = pair();
    let _guard = a.enter();
    drop(device.allocate(32 << 20).unwrap()); // they are cut from it
    let [left, right, rest] = [10, 10, 12].map(|mib| device.allocate(mib << 20).unwrap());
    op(b, &[&right], &[]).unwrap();
    drop((left, right));
    op(a, &[], &[&device.allocate(20 << 20).unwrap()]).unwrap();
    oracle.complete_all();
    drop(rest);
    oracle.check()
}

#[test]
fn pieces_in_flight_are_not_merged() {
    let _turn = turn();
    assert_eq!(neighbours(), Ok(()));
}

/// A piece is split off a block that another stream is using; whoever gets it waits for that, too.
fn split_in_flight() -> Verdict {
    let (device, oracle, a, b) = pair();
    let _guard = a.enter();
    let whole = device.allocate(32 << 20).unwrap();
    op(b, &[], &[&whole]).unwrap();
    drop(whole);
    // For b the use is no hindrance, and a gets no other memory.
    oracle.set_slab_bytes_left(0);
    let _held = {
        let _guard = b.enter();
        device.allocate(10 << 20).unwrap()
    };
    op(a, &[], &[&device.allocate(20 << 20).unwrap()]).unwrap();
    oracle.check()
}

#[test]
fn pieces_that_are_split_off_keep_their_marks() {
    let _turn = turn();
    assert_eq!(split_in_flight(), Ok(()));
}

#[test]
fn fault_split_forgets_marks() {
    let _planted = planted(Fault::split_forgets_marks);
    assert!(split_in_flight().is_err());
}

#[test]
fn fault_merge_in_flight() {
    let _planted = planted(Fault::merge_in_flight);
    assert!(neighbours().is_err());
}

/// A mark, then foreign work, then the free: whose fence covers the work.
fn recorded_before_the_work() -> Verdict {
    let (device, oracle, a, b) = pair();
    let _guard = a.enter();
    let buffer = device.allocate(1 << 20).unwrap();
    let first = buffer.id();
    device.record_stream(&buffer, b).unwrap();
    op(b, &[], &[]).unwrap();
    oracle.complete_next(b.0.slot); // what was there at the mark …
    op(b, &[], &[]).unwrap(); // … isn't all
    drop(buffer);
    check(device.allocate(1 << 20).unwrap().id() != first, "memory is reused that foreign work uses")
}

#[test]
fn a_record_covers_what_comes_after_it() {
    let _turn = turn();
    assert_eq!(recorded_before_the_work(), Ok(()));
}

#[test]
fn fault_fence_at_record() {
    let _planted = planted(Fault::fence_at_record);
    assert!(recorded_before_the_work().is_err());
}

/// Buffers are noted on a busy stream and freed, over and over; others have its handle, or not.
#[test]
fn what_is_noted_and_freed_fills_no_stream() {
    const ROOM: u64 = 8;
    let _turn = turn();
    for is_shown in [false, true] {
        let (device, oracle) = oracle::open(ROOM);
        let [own, busy] = [(); 2].map(|()| Stream::from_pool(&device, Priority::Normal).unwrap());
        let _guard = own.enter();
        op(busy, &[], &[]).unwrap();
        if is_shown {
            busy.as_raw();
        }
        for _ in 0..100 {
            let buffer = device.allocate(1 << 20).unwrap();
            device.record_stream(&buffer, busy).unwrap();
            drop(buffer);
            let in_flight = busy.0.latest().sequence() - busy.0.poll();
            assert!(in_flight <= if is_shown { ROOM } else { 1 }, "{in_flight} in flight, {is_shown}");
            assert!(is_shown || in_flight == 1, "nobody waits");
            assert!(device.memory_stats().pending_bytes > 0, "the free is behind what is in flight");
        }
        oracle.complete_all();
        oracle.check().unwrap();
    }
}

#[test]
fn addresses_find_live_buffers_and_nothing_else() {
    let _turn = turn();
    let (device, oracle) = oracle::open(1000);
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    let pool = device.memory_pool();
    assert!(!device.record_stream_raw(0, stream), "null");
    assert!(!device.record_stream_raw(u64::MAX, stream), "foreign");
    for size_bytes in [100, 1 << 20] {
        for inside in [false, true] {
            let guard = inside.then(|| pool.enter());
            let buffer = device.allocate(size_bytes).unwrap();
            let (address, last) = (buffer.address(), buffer.address() + size_bytes as u64 - 1);
            assert!(device.record_stream_raw(address, stream) && device.record_stream_raw(last, stream));
            let (other, _) = oracle::open(8);
            assert!(!other.record_stream_raw(address, stream), "of another device");
            assert!(!device.record_stream_raw(address, Stream::default(&other).unwrap()));
            drop(guard);
            op(stream, &[], &[]).unwrap();
            drop(buffer);
            assert!(!device.record_stream_raw(address, stream), "freed");
            assert!(device.memory_stats().pending_bytes >= size_bytes, "the fence covers it");
            oracle.complete_all();
            assert_eq!(device.memory_stats().pending_bytes, 0);
        }
    }
}

#[test]
fn stats_tell_pools_streams_and_peaks() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let pool = device.memory_pool();
    let small = device.allocate(1000).unwrap();
    let large = device.allocate(3 << 20).unwrap();
    let private = {
        let _inside = pool.enter();
        device.allocate(512).unwrap()
    };
    op(a, &[], &[&small]).unwrap();
    op(b, &[], &[&large, &private]).unwrap();
    drop(large);
    let stats = device.memory_stats();
    assert_eq!(stats.allocated_bytes, 1024 + 512);
    assert_eq!((stats.allocated_peak_bytes, stats.pending_bytes), ((3 << 20) + 1024 + 512, 3 << 20));
    let kinds: Vec<PoolKind> = stats.pools.iter().map(|pool| pool.kind).collect();
    let expected =
        [PoolKind::Small { block_bytes: 1024 }, PoolKind::Large, PoolKind::Private { number: pool.number() }];
    assert_eq!(kinds, expected);
    let allocated: Vec<usize> = stats.pools.iter().map(|pool| pool.bytes.allocated_bytes).collect();
    assert_eq!(allocated, [1024, 0, 512]);
    let of = |stream: Stream| *stats.streams.iter().find(|entry| entry.stream == stream.0.slot).unwrap();
    assert_eq!((of(a).blocks, of(a).bytes.allocated_bytes), (1, 1024));
    // What is left of the slabs that were split has the marks of no stream, as it was split off before.
    assert_eq!((of(b).bytes.allocated_bytes, of(b).bytes.pending_bytes), (512, 3 << 20));
    device.reset_memory_peaks();
    let stats = device.memory_stats();
    assert_eq!(stats.allocated_peak_bytes, stats.allocated_bytes);
    assert_eq!(stats.reserved_peak_bytes, stats.reserved_bytes);
    let text = serde_json::to_string(&stats).unwrap();
    assert_eq!(serde_json::from_str::<MemoryStats>(&text).unwrap(), stats);
    oracle.check().unwrap();
}

#[test]
fn counts_never_run_backwards_while_threads_come_and_go() {
    let _turn = turn();
    let (device, _) = oracle::open(1000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let mut last = MemoryStats::default();
            let mut looks = 0;
            while !done.load(Relaxed) {
                let stats = device.memory_stats();
                let rising = |stats: &MemoryStats| {
                    let MemoryStats { allocations, frees, slab_allocations, .. } = *stats;
                    [allocations, frees, slab_allocations, stats.allocated_peak_bytes as u64]
                };
                assert!(
                    rising(&last).iter().zip(rising(&stats)).all(|(last, now)| *last <= now),
                    "{last:?} {stats:?}"
                );
                (last, looks) = (stats, looks + 1);
            }
            looks
        });
        for _ in 0..30 {
            let live = || {
                let sizes = [100, 5_000, 70_000, 1 << 20];
                let held: Vec<Buffer> = (0..40).map(|at| device.allocate(sizes[at % 4]).unwrap()).collect();
                std::thread::scope(|scope| scope.spawn(|| drop(held)).join().unwrap());
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(live)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        done.store(true, Relaxed);
        assert!(observer.join().unwrap() > 0);
    });
    let stats = device.memory_stats();
    assert_eq!((stats.allocations, stats.frees, stats.allocated_bytes), (4800, 4800, 0));
}

// ------------------------------------------------------------ limits

fn limit() -> Verdict {
    let (device, ..) = pair();
    device.set_memory_limit(64 << 20);
    let held = device.allocate(40 << 20).unwrap();
    let refused = device.allocate(30 << 20).is_err();
    drop(held);
    check(refused, "past the limit")?;
    check(device.allocate(30 << 20).is_ok(), "what is free makes room")
}

#[test]
fn the_high_watermark_is_hard() {
    let _turn = turn();
    assert_eq!(limit(), Ok(()));
}

#[test]
fn fault_limit_ignored() {
    let _planted = planted(Fault::limit_ignored);
    assert!(limit().is_err());
}

/// As a user sets them, in the environment.
#[test]
fn watermarks_are_limits_of_a_device() {
    let _turn = turn();
    let open = |low: &'static str, high: &'static str| {
        let environment = |variable: &str| match variable {
            "RADDLE_MEMORY_LOW_BYTES" => Some(low.into()),
            "RADDLE_MEMORY_HIGH_BYTES" => Some(high.into()),
            _ => None,
        };
        let bounds = raddle_hal::Limits::default().resolve_with(environment).unwrap();
        Device::open(Box::new(raddle_cpu::Cpu::with_bounds(bounds)))
    };
    let device = open("4M", "40M").unwrap();
    drop(device.allocate(3 << 20).unwrap());
    let first = device.memory_stats().reserved_bytes;
    let held = device.allocate(10 << 20).unwrap();
    let reserved = device.memory_stats().reserved_bytes;
    assert!(first > 0 && reserved < first + (10 << 20), "{first}, then {reserved}: what was unused is back");
    let refused = device.allocate(35 << 20).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    device.set_memory_limit(80 << 20);
    drop((device.allocate(35 << 20).unwrap(), held));
    assert!(device.close().unwrap());
    let error = open("2M", "1M").unwrap_err().to_string();
    let marks = "expected a low mark up to the high one of 1048576 bytes, found 2097152";
    assert_eq!(error, format!("open: cpu, {marks}"));
}

#[test]
fn past_the_low_watermark_caches_are_given_back_first() {
    let _turn = turn();
    let (device, _, a, _) = pair();
    device.set_memory_watermarks(Watermarks { low_bytes: 100 << 20, high_bytes: 300 << 20 }).unwrap();
    let _guard = a.enter();
    for mib in [40, 41, 42, 43, 44, 45] {
        drop(device.allocate(mib << 20).unwrap());
    }
    let stats = device.memory_stats();
    assert!(stats.reserved_peak_bytes <= 100 << 20, "{stats:?}");
    // What is alive may go past it.
    let held: Vec<Buffer> = (0..6).map(|_| device.allocate(45 << 20).unwrap()).collect();
    assert!(device.memory_stats().reserved_bytes > 100 << 20);
    assert!(device.allocate(45 << 20).is_err());
    drop(held);
    let error = device.set_memory_watermarks(Watermarks { low_bytes: 2, high_bytes: 1 }).unwrap_err();
    let expected =
        "set_memory_watermarks: oracle, expected a low mark up to the high one of 1 bytes, found 2";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn fractions_are_checked() {
    let _turn = turn();
    let (device, ..) = pair();
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let error = device.set_memory_fraction(fraction).unwrap_err();
        let expected =
            format!("set_memory_fraction: oracle, expected a number from 0 to 1, found {fraction}");
        assert_eq!(error.to_string(), expected);
    }
    let error = device.set_memory_fraction(0.5).unwrap_err();
    assert!(
        error.to_string().ends_with("doesn't say how much memory it has, use set_memory_limit"),
        "{error}"
    );
    let bounds = raddle_hal::Bounds { memory_bytes: 64 << 20, ..Default::default() };
    let cpu = Device::open(Box::new(raddle_cpu::Cpu::with_bounds(bounds))).unwrap();
    cpu.set_memory_fraction(0.0).unwrap();
    assert!(cpu.allocate(1).is_err());
    cpu.set_memory_fraction(0.5).unwrap();
    assert!(cpu.allocate(33 << 20).is_err() && cpu.allocate(32 << 20).is_ok());
    assert!(cpu.close().unwrap());
}

// ------------------------------------------------------------ hooks

/// A hook gives back what makes the allocation succeed.
fn hook_frees() -> Verdict {
    let (device, ..) = pair();
    device.set_memory_limit(64 << 20);
    let kept = Arc::new(Mutex::new(Some(device.allocate(60 << 20).unwrap())));
    let needs = Arc::new(Mutex::new(Vec::new()));
    let guard = device.on_out_of_memory({
        let (kept, needs) = (kept.clone(), needs.clone());
        move |need| {
            needs.lock().unwrap().push(*need);
            let freed = kept.lock().unwrap().take();
            if freed.is_some() { AfterNeed::Retry } else { AfterNeed::GiveUp }
        }
    });
    check(device.allocate(50 << 20).is_ok(), "the hook frees enough")?;
    let need = MemoryNeed {
        asked_bytes: 50 << 20,
        allocated_bytes: 60 << 20,
        free_bytes: 0,
        pending_bytes: 0,
        attempt: 0,
    };
    assert_eq!(*needs.lock().unwrap(), [need]);
    check(device.allocate(70 << 20).is_err(), "it has nothing left to free")?;
    drop(guard);
    assert!(device.allocate(70 << 20).is_err());
    assert_eq!(needs.lock().unwrap().len(), 2, "it is gone");
    let stats = device.memory_stats();
    assert_eq!((stats.out_of_memory, stats.out_of_memory_retries), (2, 1));
    Ok(())
}

#[test]
fn hooks_free_memory() {
    let _turn = turn();
    assert_eq!(hook_frees(), Ok(()));
}

/// A hook may let go of what its thread has on the device, so that another thread gets it.
#[test]
fn a_hook_may_release_its_thread() {
    let _turn = turn();
    let (device, ..) = pair();
    let kept = Mutex::new(Some(device.allocate(1 << 20).unwrap()));
    device.set_memory_limit(device.memory_stats().reserved_bytes);
    let _guard = device.on_out_of_memory(move |_| {
        device.release_current_thread();
        let Some(kept) = kept.lock().unwrap().take() else { return AfterNeed::GiveUp };
        std::thread::spawn(move || drop(kept)).join().unwrap();
        AfterNeed::Retry
    });
    let small = device.allocate(64).unwrap();
    assert_eq!(device.memory_stats().allocated_bytes, 256);
    drop(small);
    assert_eq!(device.memory_stats().allocated_bytes, 0);
}

/// What a hook calls takes locks, whose ranks tell (and a hook that panics counts as one that gives up).
#[test]
fn fault_hook_under_lock() {
    let _planted = planted(Fault::hook_under_lock);
    assert_eq!(hook_frees(), Err("the hook frees enough".into()));
}

/// Sizes that can't be rounded to a block's end in the same error as others, and count.
#[test]
fn sizes_that_no_device_has_count_as_refused() {
    let _turn = turn();
    let (device, ..) = pair();
    let pool = device.memory_pool();
    let sizes = [usize::MAX, usize::MAX - 1, isize::MAX as usize];
    for (refused, size_bytes) in (1..).zip(sizes) {
        let error = device.allocate(size_bytes).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { asked_bytes, .. } if asked_bytes == size_bytes));
        let _inside = pool.enter();
        assert!(device.allocate(size_bytes).is_err());
        assert_eq!(device.memory_stats().out_of_memory, 2 * refused, "{size_bytes}");
    }
}

#[test]
fn hooks_are_bounded_and_their_panics_poison_nothing() {
    let _turn = turn();
    let (device, ..) = pair();
    device.set_memory_limit(64 << 20);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let stubborn = device.on_out_of_memory(move |need| {
        assert_eq!(counted.fetch_add(1, Relaxed), need.attempt);
        AfterNeed::Retry
    });
    assert!(device.allocate(100 << 20).is_err());
    assert_eq!(calls.load(Relaxed), OUT_OF_MEMORY_RETRY_COUNT_MAX);
    drop(stubborn);
    let nested = device.on_out_of_memory(move |_| {
        assert!(device.allocate(200 << 20).is_err(), "hooks aren't asked by hooks");
        AfterNeed::GiveUp
    });
    let panics = device.on_out_of_memory(|_| panic!("planted"));
    for _ in 0..3 {
        assert!(matches!(device.allocate(100 << 20), Err(Error::OutOfMemory { .. })));
        assert!(device.allocate(30 << 20).is_ok());
    }
    drop((nested, panics));
}

// ------------------------------------------------------------ pictures

#[test]
fn snapshots_are_whole_and_their_pictures_stand_alone() {
    let _turn = turn();
    let (device, _, a, _) = pair();
    let _guard = a.enter();
    let early = device.allocate(2000).unwrap();
    device.set_memory_history(1000);
    for size_bytes in [100, 3000, 1 << 20] {
        let buffer = device.allocate(size_bytes).unwrap();
        op(a, &[], &[&buffer]).unwrap();
    }
    drop(early);
    let mut snapshot = device.memory_snapshot();
    let kinds: Vec<MemoryEventKind> = snapshot.events.iter().map(|event| event.kind).collect();
    use MemoryEventKind::{Allocate, Free};
    assert_eq!(kinds, [Allocate, Free, Allocate, Free, Allocate, Free, Free]);
    assert!(snapshot.events.is_sorted_by_key(|event| event.time_ns));
    assert_eq!(MemorySnapshot::from_json(&snapshot.to_json()).unwrap(), snapshot);
    let error = MemorySnapshot::from_json("{\"device\": 1}").unwrap_err();
    assert!(error.to_string().starts_with("memory snapshot: invalid type"), "{error}");
    // The ring is bounded.
    device.set_memory_history(3);
    (0..5).for_each(|_| drop(device.allocate(10).unwrap()));
    let (events, dropped) = (device.memory_snapshot().events.len(), device.memory_snapshot().events_dropped);
    assert_eq!((events, dropped), (3, 7));
    device.set_memory_history(0);
    assert!(!device.0.is_watched());
    // A name can't break out, and nothing comes from elsewhere.
    snapshot.device = "</script><img src=\"http://x\">&amp; \u{2028}".into();
    let html = snapshot.to_html();
    assert_eq!(html, snapshot.to_html());
    let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let value: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(value["device"].as_str().unwrap(), snapshot.device);
    assert_eq!(value["events"].as_array().unwrap().len(), 7);
    let page = html.replace(data, "");
    for outside in ["http", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // 10^5 events make a page that can still be read.
    let event = snapshot.events[0];
    snapshot.events = (0..100_000).map(|time_ns| MemoryEvent { time_ns, ..event }).collect();
    assert!(snapshot.to_html().len() < 8 << 20);
}

// ------------------------------------------------------------ bounds

const THREAD_COUNT: usize = 64;
const WORKING_SET: [usize; 4] = [2000, 60_000, 200_000, 20 << 20];

/// What 64 threads hold at most that go round so many streams each, one working set after the other, on a device that is as
/// far behind as it may be. They take turns, so that the number is the same at every run.
fn reserved_by_threads(stream_count: usize) -> usize {
    let (device, _) = oracle::open(64);
    let streams: Vec<Stream> =
        (0..32).map(|_| Stream::from_pool(&device, Priority::Normal).unwrap()).collect();
    let (turn, turned) = (Mutex::new(0), Condvar::new());
    let thread = &|thread: usize| {
        for round in 0..3 {
            let mut now =
                turned.wait_while(turn.lock().unwrap(), |now| *now % THREAD_COUNT != thread).unwrap();
            for step in 0..16 {
                let stream = streams[(thread + (16 * round + step) % stream_count) % 32];
                let _guard = stream.enter();
                let set = WORKING_SET.map(|size| device.allocate(size).unwrap());
                op(stream, &[], &set.each_ref()).unwrap();
            }
            *now += 1;
            turned.notify_all();
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREAD_COUNT).map(|index| scope.spawn(move || thread(index))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    device.memory_stats().reserved_peak_bytes
}

/// One after the other, 8 threads have the same 16 MiB in pieces of other sizes, and keep what they can until all have ended.
fn large_blocks_go_round() -> Verdict {
    let (device, oracle, a, _) = pair();
    drop(device.allocate(16 << 20).unwrap());
    let (turn, turned) = (Mutex::new(0), Condvar::new());
    let thread = &|thread: usize| {
        let mut now = turned.wait_while(turn.lock().unwrap(), |now| *now < thread).unwrap();
        let _guard = a.enter();
        let size_bytes = 1 << (20 + thread % 4);
        let held: Vec<Buffer> =
            (0..(16 << 20) / size_bytes).map(|_| device.allocate(size_bytes).unwrap()).collect();
        op(a, &[], &held.iter().collect::<Vec<_>>()).unwrap();
        drop(held);
        oracle.complete_all();
        *now += 1;
        turned.notify_all();
        drop(turned.wait_while(now, |now| *now < 8).unwrap());
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|index| scope.spawn(move || thread(index))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    oracle.check()?;
    let reserved_bytes = device.memory_stats().reserved_bytes;
    check(reserved_bytes == 16 << 20, "free memory is kept from those who need some")
}

#[test]
fn large_blocks_that_threads_keep_serve_all() {
    let _turn = turn();
    assert_eq!(large_blocks_go_round(), Ok(()));
}

#[test]
fn fault_hoarded_large() {
    let _planted = planted(Fault::hoarded_large);
    assert!(large_blocks_go_round().is_err());
}

/// One thread gives the only slab back, and the device takes its time; another one finds nothing meanwhile. The slab is there
/// when the other has looked everywhere: four times.
fn short_while_another_gives_back() -> Verdict {
    let (device, oracle) = oracle::open(1000);
    oracle.set_slab_bytes_left(1 << 16);
    drop(device.allocate(4096).unwrap());
    oracle.hold_releases(4);
    std::thread::scope(|scope| {
        scope.spawn(|| device.empty_cache());
        while !oracle.is_releasing() {
            std::thread::yield_now();
        }
        device.allocate(4096).map(drop).map_err(|error| error.to_string())
    })?;
    oracle.check()
}

#[test]
fn memory_that_another_thread_gives_back_is_waited_for() {
    let _turn = turn();
    assert_eq!(short_while_another_gives_back(), Ok(()));
}

#[test]
fn fault_looks_once() {
    let _planted = planted(Fault::looks_once);
    assert!(short_while_another_gives_back().is_err_and(|error| error.contains("out of memory")));
}

/// Two threads that take everything to the centre at once: each of them finds it there.
fn two_drain() -> Verdict {
    let (device, _) = oracle::open(1000);
    let all = device.allocate(4096).map(|buffer| buffer.block().capacity_bytes).unwrap();
    let whole = device.memory_stats().reserved_bytes / all;
    for _ in 0..500 {
        drop((0..8).map(|_| device.allocate(4096).unwrap()).collect::<Vec<_>>());
        let start = std::sync::Barrier::new(2);
        let look = || {
            start.wait();
            memory_of(&device).drain_magazines();
            memory_of(&device)
                .central
                .iter()
                .map(|class_cache| class_cache.lock().blocks.len())
                .sum::<usize>()
        };
        let found = std::thread::scope(|scope| {
            let threads = [scope.spawn(look), scope.spawn(look)];
            threads.map(|thread| thread.join().unwrap())
        });
        check(found == [whole; 2], "free blocks are in no list")?;
    }
    Ok(())
}

#[test]
fn whoever_drains_finds_all_free_blocks() {
    let _turn = turn();
    assert_eq!(two_drain(), Ok(()));
}

#[test]
fn fault_blocks_on_their_way() {
    let _planted = planted(Fault::blocks_on_their_way);
    assert!(two_drain().is_err());
}

/// What one stream has in flight of another's large blocks is reused, with a wait, before memory grows without end.
fn in_flight_is_bounded() -> Verdict {
    let (device, _, a, b) = pair();
    let _guard = a.enter();
    for _ in 0..200 {
        let buffer = device.allocate(1 << 20).unwrap();
        op(b, &[&buffer], &[]).unwrap();
    }
    check(device.memory_stats().reserved_bytes <= 16 << 20, "memory grows with what is in flight")
}

fn does_not_grow() -> Verdict {
    let (one, many) = (reserved_by_threads(1), reserved_by_threads(16));
    let needed = THREAD_COUNT * WORKING_SET.iter().sum::<usize>();
    println!(
        "64 threads hold {one} bytes on one stream each, {many} on 16 each; their working sets are {needed} bytes"
    );
    check(many as f64 <= 1.3 * one.min(needed) as f64, "memory grows with threads × streams")
}

#[test]
fn memory_does_not_grow_with_threads_times_streams() {
    let _turn = turn();
    assert_eq!(does_not_grow(), Ok(()));
}

#[test]
fn large_blocks_in_flight_are_bounded() {
    let _turn = turn();
    assert_eq!(in_flight_is_bounded(), Ok(()));
}

#[test]
fn fault_growth_without_end() {
    let _planted = planted(Fault::growth_without_end);
    assert!(in_flight_is_bounded().is_err());
    assert!(does_not_grow().is_err());
}
