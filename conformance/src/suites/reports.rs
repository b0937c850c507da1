//! Cases of kinds c, d and e that people reported on other libraries: streams, events and memory; threads; random numbers. They
//! are named by the letter and number under which the project lists them. Those of other kinds, and some of these for many
//! seeds, are in `tests/cases.rs`.

use crate::Case;
use raddle::{DType, Device, Event, Generator, Limits, Priority, Stream, Tensor, fused, testing::hold};
use std::{
    collections::HashSet,
    sync::{Barrier, mpsc},
    thread,
    time::Instant,
};

/// The suite.
pub fn cases() -> Vec<Case> {
    crate::cases!("reports":
        c_11_a_fitting_block_in_the_pool_is_found_when_memory_is_short,
        c_13_elapsed_says_what_it_lacks,
        c_14_fresh_streams_strand_no_memory,
        d_15_kernels_that_nobody_knows_yet_are_made_at_once,
        d_16_buffers_may_outlive_handles_and_die_anywhere,
        e_18_integers_are_drawn_as_integers,
        e_19_views_are_filled_whole_and_their_gaps_stay,
        e_20_a_shared_generator_repeats_nothing;
        holding: c_12_a_buffer_that_another_stream_still_reads_is_not_given_out,
        c_13_events_tell_the_truth,
    )
}

pub(super) fn is_sim(device: &Device) -> bool {
    device.name().starts_with("sim")
}

/// Runs a body on a device of its own, whose limits and counts no other case meets. A simulator is that already.
pub(super) fn alone(device: &Device, body: impl FnOnce(&Device)) {
    if is_sim(device) {
        return body(device);
    }
    let own = Device::with_limits(device.name(), &Limits::default()).unwrap();
    body(&own);
    assert!(own.close().unwrap(), "buffers are alive after the case");
}

pub(super) fn stream(device: &Device) -> Stream {
    Stream::from_pool(device, Priority::Normal).unwrap()
}

pub(super) fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

// ------------------------------------------------------------ streams, events, allocator

fn c_11_a_fitting_block_in_the_pool_is_found_when_memory_is_short(device: &Device) {
    alone(device, memory_is_short);
}

fn memory_is_short(device: &Device) {
    device.set_memory_limit(24 << 20);
    let (first, second) = (stream(device), stream(device));
    for round in 0..20 {
        let guard = first.enter();
        let a = Tensor::full([4 << 20], round as f32, DType::F32, device).unwrap();
        drop(guard);
        let guard = second.enter();
        let read = a.slice(0, 0, 4 << 20, 1 << 16).unwrap().add(1.0).unwrap();
        drop(guard);
        device.record_stream(a.buffer(), second).unwrap();
        drop(a);
        // Fits only where `a` was, which is still being read.
        let guard = first.enter();
        let b = Tensor::full([15 << 18], -1.0, DType::F32, device).unwrap();
        drop(guard);
        assert!(read.to_vec::<f32>().unwrap().iter().all(|&found| found == round as f32 + 1.0));
        drop((b, read));
    }
    // What can't fit is an error once, and what fits comes after it.
    let live = Tensor::ones([1 << 18], DType::F32, device).unwrap();
    assert!(Tensor::ones([8 << 20], DType::F32, device).is_err());
    let next = Tensor::ones([1 << 20], DType::F32, device).unwrap();
    drop((live, next));
}

fn c_12_a_buffer_that_another_stream_still_reads_is_not_given_out(device: &Device) {
    alone(device, |device| {
        let x = Tensor::full([3000], 2.0, DType::F32, device).unwrap();
        assert_eq!(read(&x.copy().unwrap()), [2.0; 3000]); // loaded before a stream is held
        (0..100).for_each(|trial| c_12(device, trial));
    });
}

/// Case C-12: one of its trials.
pub fn c_12(device: &Device, trial: u64) {
    const SIZE: usize = 3000;
    let (main, sides) = (stream(device), [stream(device), stream(device)]);
    let sides = &sides[..1 + (trial % 2) as usize];
    let _guard = main.enter();
    let a = Tensor::ones([SIZE], DType::F32, device).unwrap();
    let (mut copies, mut holds) = (Vec::new(), Vec::new());
    for side in sides {
        side.wait_stream(main).unwrap();
        // Sometimes the mark comes before the work, which it must cover all the same.
        if trial.is_multiple_of(3) {
            device.record_stream(a.buffer(), *side).unwrap();
        }
        holds.push(hold(*side).unwrap());
        let _side = side.enter();
        copies.push(a.copy().unwrap());
        if !trial.is_multiple_of(3) {
            device.record_stream(a.buffer(), *side).unwrap();
        }
    }
    drop(a);
    let b = Tensor::full([SIZE], 2.0, DType::F32, device).unwrap();
    drop(holds);
    for copy in &copies {
        assert!(read(copy).iter().all(|&value| value == 1.0), "trial {trial}");
    }
    assert!(read(&b).iter().all(|&value| value == 2.0), "trial {trial}");
}

fn c_13_events_tell_the_truth(device: &Device) {
    alone(device, c_13);
}

/// Case C-13, on a device of its own.
pub fn c_13(device: &Device) {
    let (work, other) = (stream(device), stream(device));
    // Never recorded: not complete, and nobody waits for it.
    let event = Box::new(Event::new());
    assert!(!event.query());
    other.wait_event(&event).unwrap();
    event.synchronize().unwrap();
    assert!(!event.query());
    let x = Tensor::ones([64], DType::F32, device).unwrap();
    x.mul_(1.0).unwrap().add_(0.0).unwrap(); // loaded before a stream is held
    let record_held = || {
        let held = hold(work).unwrap();
        let _guard = work.enter();
        x.mul_(1.0).unwrap();
        event.record(work);
        assert!(!event.query());
        held
    };
    for round in 0..2 {
        record_held().release();
        event.synchronize().unwrap();
        assert!(event.query() && work.query(), "round {round}");
    }
    let held = record_held();
    // Dropped while another stream waits: the wait holds.
    other.wait_event(&event).unwrap();
    drop(event);
    let guard = other.enter();
    x.add_(1.0).unwrap();
    drop(guard);
    assert!(!other.query());
    held.release();
    other.synchronize().unwrap();
    assert!(work.query());
    assert_eq!(read(&x), [2.0; 64]);
}

fn c_13_elapsed_says_what_it_lacks(device: &Device) {
    let stream = stream(device);
    let (start, end) = (Event::timing(), Event::timing());
    let told = |end: &Event, start: &Event| end.elapsed_ms(start).unwrap_err().to_string();
    assert_eq!(told(&end, &start), "elapsed: the start event has not been recorded");
    let clock = Instant::now();
    start.record(stream);
    start.synchronize().unwrap();
    assert_eq!(told(&end, &start), "elapsed: the end event has not been recorded");
    let guard = stream.enter();
    let x = Tensor::ones([1000], DType::F32, device).unwrap();
    (0..20).for_each(|_| _ = x.mul_(1.0).unwrap());
    drop(guard);
    end.record(stream);
    match end.elapsed_ms(&start) {
        Ok(_) => assert!(end.query()),
        Err(error) => {
            let text = "elapsed: the end event is not complete, synchronize it first";
            assert_eq!(error.to_string(), text);
        }
    }
    end.synchronize().unwrap();
    let elapsed_ms = end.elapsed_ms(&start).unwrap();
    assert!(elapsed_ms > 0.0 && elapsed_ms <= clock.elapsed().as_secs_f64() * 1e3);
    assert_eq!(start.elapsed_ms(&end).unwrap(), -elapsed_ms);
    let untimed = stream.record();
    untimed.synchronize().unwrap();
    let text = "elapsed: the end event takes no time, make it by Event::timing()";
    assert_eq!(told(&untimed, &start), text);
}

fn c_14_fresh_streams_strand_no_memory(device: &Device) {
    alone(device, strand_no_memory);
}

fn strand_no_memory(device: &Device) {
    let pair = [stream(device), stream(device)];
    for streams in ["fresh ones", "two that take turns"] {
        let mut reserved = Vec::new();
        for round in 0..100 {
            let stream = if streams == "fresh ones" { stream(device) } else { pair[round % 2] };
            let _guard = stream.enter();
            drop(Tensor::ones([1 << 20], DType::F32, device).unwrap());
            device.synchronize().unwrap();
            let stats = device.memory_stats();
            assert_eq!(stats.allocated_bytes, 0, "{streams}, round {round}");
            reserved.push(stats.reserved_bytes);
        }
        // One slab of the device, from which large blocks are cut.
        let is_flat = reserved.iter().all(|&bytes| bytes == reserved[0] && bytes <= 32 << 20);
        assert!(is_flat, "{streams}: {reserved:?}");
        device.empty_cache();
        assert_eq!(device.memory_stats().reserved_bytes, 0, "{streams}");
    }
    // Made on one stream, marked and dropped while another is current.
    let [first, second] = pair;
    let mut most = 0;
    for round in 0..1000 {
        let guard = first.enter();
        let x = Tensor::zeros([1 << 12], DType::F32, device).unwrap();
        drop(guard);
        let _guard = second.enter();
        device.record_stream(x.buffer(), second).unwrap();
        drop(x);
        if round == 100 {
            most = device.memory_stats().reserved_bytes;
        }
    }
    assert!(device.memory_stats().reserved_bytes <= most.max(4 << 20));
}

// ------------------------------------------------------------ threads

fn d_15_kernels_that_nobody_knows_yet_are_made_at_once(device: &Device) {
    const THREADS: usize = 16;
    // Each starts cold, as a process does; a compiler is asked in the first, and later ones find its work on disk.
    const ROUNDS: usize = 20;
    let (zero, together) = (Tensor::zeros([1], DType::F32, device).unwrap(), Barrier::new(THREADS));
    // Of each thread its own, then of all of them the same; each from a closure, which is all that can be compiled here.
    let add = |number: usize| {
        let add = fused(move |[x]| x + (number as f64 + 0.015625));
        together.wait();
        add.call(&[&zero]).unwrap().item::<f32>().unwrap()
    };
    for _ in 0..ROUNDS {
        device.clear_caches().unwrap();
        let found: Vec<[f32; 2]> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    scope.spawn(move || {
                        let _guard = stream(device).enter();
                        [add(number), add(THREADS)]
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (number, found) in found.into_iter().enumerate() {
            assert_eq!(found, [number as f32 + 0.015625, THREADS as f32 + 0.015625]);
        }
    }
}

fn d_16_buffers_may_outlive_handles_and_die_anywhere(device: &Device) {
    alone(device, die_anywhere);
}

fn die_anywhere(device: &Device) {
    let before = {
        let device = *device;
        // The handle goes first.
        let x = Tensor::ones([10], DType::F32, &device).unwrap();
        let sum = x.add(1.0).unwrap();
        // On a thread that has never used a device.
        thread::spawn(move || drop(x)).join().unwrap();
        sum
    };
    assert_eq!(read(&before), [2.0; 10]);
    // While another device is in use.
    let cpu = Device::new("cpu").unwrap();
    let there = Tensor::ones([10], DType::F32, &cpu).unwrap();
    assert_eq!(read(&before.mul(2.0).unwrap()), [4.0; 10]);
    drop(before);
    assert_eq!(read(&there), [1.0; 10]);
    // While a panic unwinds.
    let own = *device;
    let unwound = thread::spawn(move || {
        let _held = Tensor::ones([10], DType::F32, &own).unwrap();
        panic!("on purpose");
    });
    assert!(unwound.join().is_err());
    // 8 threads swap what they make.
    let round_count = if is_sim(device) { 1000 } else { 10_000 };
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..8).map(|_| mpsc::channel::<Tensor>()).unzip();
        let mut threads = Vec::new();
        for (number, receiver) in receivers.into_iter().enumerate() {
            let to = senders[(number + 1) % 8].clone();
            threads.push(scope.spawn(move || {
                for round in 0..round_count {
                    to.send(Tensor::empty([1 + round % 100], DType::F32, device).unwrap()).unwrap();
                    if round % 3 == 0 {
                        drop(receiver.try_recv());
                    }
                }
                drop(to);
                receiver.into_iter().for_each(drop);
            }));
        }
        drop(senders);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

// ------------------------------------------------------------ random

fn e_18_integers_are_drawn_as_integers(device: &Device) {
    let drawn = |low: i64, high: i64, count: usize| {
        Tensor::randint(low, high, [count], DType::I64, device, &Generator::new(18))
            .unwrap()
            .to_vec::<i64>()
            .unwrap()
    };
    let set: HashSet<i64> = drawn(1 << 24, (1 << 24) + 3, 10_000).into_iter().collect();
    assert_eq!(set, HashSet::from([16_777_216, 16_777_217, 16_777_218]));
    let far = drawn(1 << 41, (1 << 41) + 500, 10_000);
    assert!(far.iter().all(|value| (0..500).contains(&(value - (1 << 41)))));
    assert!(far.into_iter().collect::<HashSet<_>>().len() >= 499);
    for (low, high, count, slack) in [(-3, 4, 70_000, 500), (0, 2, 10_000, 300)] {
        let values = drawn(low, high, count);
        let expected = count / (high - low) as usize;
        for value in low..high {
            let times = values.iter().filter(|&&drawn| drawn == value).count();
            assert!(times.abs_diff(expected) <= slack, "{value} of {low}..{high} {times} times");
        }
        assert!(values.iter().all(|value| (low..high).contains(value)));
    }
    let wide = drawn(i64::MIN, i64::MAX, 10_000);
    assert!(wide.iter().any(|&value| value < 0) && wide.iter().any(|&value| value > 0));
    assert_eq!(wide.into_iter().collect::<HashSet<_>>().len(), 10_000);
    let top = i64::MAX - 5;
    assert!(drawn(top, i64::MAX, 1000).iter().all(|&value| (top..i64::MAX).contains(&value)));
    for (low, high) in [(5, 5), (5, 4)] {
        assert!(Tensor::randint(low, high, [1], DType::I64, device, None).is_err());
    }
}

fn e_19_views_are_filled_whole_and_their_gaps_stay(device: &Device) {
    let x = Tensor::full([4, 7, 3], -7, DType::F32, device).unwrap();
    x.slice(1, 1, 7, 3).unwrap().uniform_(0.0, 1.0, &Generator::new(19)).unwrap();
    let found = read(&x);
    let inside: HashSet<u32> =
        found.iter().filter(|value| (0.0..1.0).contains(*value)).map(|value| value.to_bits()).collect();
    assert_eq!((inside.len(), found.iter().filter(|&&value| value == -7.0).count()), (24, 60));
    for count in [1, 3, 7, 1001] {
        let storage = Tensor::full([count + 2], -7, DType::F32, device).unwrap();
        storage.narrow(0, 1, count).unwrap().normal_(0.0, 1.0, &Generator::new(20)).unwrap();
        let found = read(&storage);
        assert!(found[0] == -7.0 && found[count + 1] == -7.0 && found[1..=count].iter().all(|&v| v != 0.0));
        let mean = found[1..=count].iter().sum::<f32>() / count as f32;
        assert!(count < 1000 || mean.abs() <= 0.15, "{mean}");
    }
    let certain = Tensor::from_slice(&[0.0f32, 1.0], [2], device).unwrap().expand([4, 3, 2]).unwrap();
    let flips = certain.bernoulli(&Generator::new(21)).unwrap();
    assert_eq!(read(&flips.sum([0, 1], false).unwrap()), [0.0, 12.0]);
}

/// Of the generator of the process `tests/cases.rs` says the same, where no other test seeds it.
fn e_20_a_shared_generator_repeats_nothing(device: &Device) {
    let draw = |generator: &Generator| {
        let drawn = Tensor::randint(i64::MIN, i64::MAX, [256], DType::I64, device, generator).unwrap();
        drawn.to_vec::<i64>().unwrap()
    };
    let block_count = if is_sim(device) { 20 } else { 1000 };
    for on_streams in [false, true] {
        let shared = Generator::new(20);
        let body = || {
            let _guard = on_streams.then(|| stream(device).enter());
            (0..block_count).flat_map(|_| draw(&shared)).collect::<Vec<_>>()
        };
        let drawn: HashSet<i64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(body)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(drawn.len(), 8 * block_count * 256);
    }
    let own: HashSet<Vec<i64>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| draw(&Generator::new(5)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(own.len(), 1);
}
