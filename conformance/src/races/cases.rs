//! The cases. Results are exact: whatever a race would spoil is compared to the bit.

use super::{fixture::*, gradients::*, streams::*, threads::*};
use crate::programs;
use raddle::{Arg, DType, Device, Event, Generator, Result, Stream, Tensor, runtime};
use raddle_sync::faults::Fault;
use std::sync::{
    Barrier, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
    mpsc,
};

/// A case.
pub struct RaceCase {
    pub name: &'static str,
    /// Panics if something is wrong.
    pub body: fn(&Fixture),
    /// Where it is played.
    pub places: &'static [&'static str],
    /// Planted faults that must show on the CPU.
    pub on_cpu: &'static [Fault],
    /// Planted faults that must show in the simulator.
    pub in_sim: &'static [Fault],
    /// Planted faults that must show on a GPU.
    pub on_cuda: &'static [Fault],
}

const ALL: &[&str] = &["cpu", "sim", "cuda"];
/// Of what only shows where work is late by itself.
const LATE: &[&str] = &["sim", "cuda"];

macro_rules! race_cases {
    ($($name:ident on $places:ident, cpu $cpu:tt, sim $sim:tt, cuda $cuda:tt;)*) => {
        &[$(RaceCase {
            name: stringify!($name),
            body: $name,
            places: $places,
            on_cpu: race_cases!(@faults $cpu),
            in_sim: race_cases!(@faults $sim),
            on_cuda: race_cases!(@faults $cuda),
        }),*]
    };
    (@faults [$($fault:ident),*]) => { &[$(Fault::$fault),*] };
}

/// All of them.
pub const TABLE: &[RaceCase] = race_cases! {
    programs_in_turns on LATE, cpu [], sim [no_wait_after_read, no_wait_after_write], cuda [free_without_fence, no_wait_after_read, no_wait_after_write];
    programs_of_8_threads on ALL, cpu [falling_rank], sim [no_wait_after_write], cuda [];
    programs_of_64_threads on ALL, cpu [block_in_two_hands], sim [no_wait_after_write], cuda [];
    forward_of_8_threads_50_times on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    forward_of_few_threads_and_many on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    forward_of_31_threads_100_times on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    forward_of_64_threads_200_times on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    record_basic on ALL, cpu [free_without_fence], sim [free_without_fence], cuda [free_without_fence];
    record_on_several_streams on ALL, cpu [free_without_fence], sim [free_without_fence], cuda [free_without_fence];
    record_passed_between_threads on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    record_nothing on ALL, cpu [unknown_is_noted], sim [unknown_is_noted], cuda [];
    record_freed on ALL, cpu [freed_is_live, unknown_is_noted], sim [freed_is_live, unknown_is_noted], cuda [];
    record_of_8_threads_20_times on ALL, cpu [free_without_fence], sim [free_without_fence], cuda [free_without_fence];
    record_covers_what_comes_later on ALL, cpu [free_without_fence], sim [free_without_fence, fence_at_record], cuda [free_without_fence];
    allocator_race on ALL, cpu [free_without_fence], sim [free_without_fence], cuda [free_without_fence];
    allocator_race_without_room on ALL, cpu [free_without_fence, forget_marks], sim [free_without_fence, forget_marks], cuda [free_without_fence, forget_marks];
    memory_is_not_reused_while_another_stream_reads on ALL, cpu [free_without_fence, borrowed_operand], sim [free_without_fence, borrowed_operand], cuda [free_without_fence];
    fresh_memory_is_first_used_on_another_stream on ALL, cpu [free_without_fence, forget_ordered], sim [free_without_fence, forget_ordered], cuda [free_without_fence];
    two_readers_then_a_writer on ALL, cpu [one_read_mark, no_wait_after_read], sim [one_read_mark, no_wait_after_read], cuda [one_read_mark, no_wait_after_read];
    an_owner_drops_while_another_thread_reads on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    a_chain_is_handed_over on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [no_wait_after_write, download_early];
    weights_are_read_by_32_threads on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [];
    events_are_shared on ALL, cpu [event_born_complete], sim [event_born_complete], cuda [event_born_complete];
    an_event_covers_all_before_it on ALL, cpu [event_early], sim [event_early], cuda [];
    a_stream_of_another_device_is_refused on ALL, cpu [foreign_stream_is_taken], sim [foreign_stream_is_taken], cuda [];
    errors_of_kernels_reach_who_depends_on_them on ALL, cpu [error_to_the_next, error_stops_at_op], sim [error_to_the_next, error_stops_at_op], cuda [error_to_the_next];
    callbacks_see_their_stream_and_its_work on ALL, cpu [callback_early, callback_stream], sim [callback_early, callback_stream], cuda [callback_early, callback_stream];
    threads_have_streams_for_themselves on ALL, cpu [shared_dedicated], sim [shared_dedicated], cuda [];
    times_follow_each_other on ALL, cpu [stamp_in_flight], sim [stamp_in_flight], cuda [];
    streams_are_shared_by_256_threads on ALL, cpu [unbind_keeps_count], sim [unbind_keeps_count], cuda [];
    streams_go_round on ALL, cpu [streams_from_the_front], sim [streams_from_the_front], cuda [];
    ids_name_streams on ALL, cpu [stray_id_decodes], sim [stray_id_decodes], cuda [];
    a_thread_keeps_its_stream on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [];
    guards_nest_in_threads on ALL, cpu [guard_stays_at_panic], sim [guard_stays_at_panic], cuda [];
    released_threads_go_on on ALL, cpu [exit_insists_on_idle], sim [exit_insists_on_idle], cuda [];
    streams_are_waited_for_while_others_submit on ALL, cpu [synchronizes_early], sim [synchronizes_early], cuda [];
    linear_algebra_of_8_threads on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    sizes_at_boundaries on ALL, cpu [last_element_left], sim [last_element_left], cuda [];
    kernels_are_made_at_once on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [];
    models_are_trained_by_8_threads on ALL, cpu [block_in_two_hands], sim [block_in_two_hands], cuda [];
    a_view_is_looked_at_while_its_base_changes on ALL, cpu [block_in_two_hands], sim [view_keeps_its_place], cuda [];
    rows_are_filled_by_4_threads on ALL, cpu [told_after_release], sim [told_after_release], cuda [];
    a_tensor_joins_while_a_part_is_filled on ALL, cpu [block_in_two_hands], sim [views_join_unseen], cuda [];
    a_saved_tensor_is_overwritten on ALL, cpu [checked_before_it_reads, version_not_bumped], sim [checked_before_it_reads, version_not_bumped], cuda [];
    gradients_of_8_threads_add_up on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [];
    a_tensor_goes_through_16_threads on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [no_wait_after_write];
    a_long_chain_is_read_elsewhere on ALL, cpu [no_wait_after_write], sim [no_wait_after_write], cuda [];
    load_is_uneven on ALL, cpu [event_early], sim [event_early], cuda [];
    memory_runs_out_for_8_threads on ALL, cpu [exit_loses_magazine], sim [exit_loses_magazine], cuda [];
    panics_poison_nothing on ALL, cpu [guard_stays_at_panic], sim [guard_stays_at_panic], cuda [];
};

// ------------------------------------------------------------ programs

/// Enough for each kind of op to meet each other in each order of streams (guess).
fn random_programs(fixture: &Fixture, count: usize, thread_count_max: usize) {
    let seeds = 0..count as u64;
    let wrong: Vec<String> = seeds
        .filter_map(|seed| programs::on_device(&fixture.device, seed, thread_count_max).err())
        .map(|wrong| wrong.to_string())
        .collect();
    assert!(wrong.is_empty(), "{} of {count} seeds fail\n{}", wrong.len(), wrong.join("\n"));
}

fn programs_in_turns(fixture: &Fixture) {
    random_programs(fixture, fixture.count(200, 20), 1);
}

fn programs_of_8_threads(fixture: &Fixture) {
    random_programs(fixture, fixture.count(50, 5), 8);
}

fn programs_of_64_threads(fixture: &Fixture) {
    random_programs(fixture, fixture.count(20, 1), 64);
}

// ------------------------------------------------------------ threads

/// A small model: two layers, a normalization between them.
pub struct Model {
    first: Tensor,
    scale: Tensor,
    shift: Tensor,
    second: Tensor,
}

const WIDTH: usize = 24;

impl Model {
    pub fn new(device: &Device) -> Result<Model> {
        let generator = Generator::new(7);
        let normal = |shape: &[usize]| Tensor::randn(shape, DType::F32, device, &generator);
        Ok(Model {
            first: normal(&[WIDTH, WIDTH])?,
            scale: normal(&[WIDTH])?,
            shift: normal(&[WIDTH])?,
            second: normal(&[WIDTH, 8])?,
        })
    }

    /// Of an input that depends on its number alone.
    pub fn forward(&self, number: usize, device: &Device) -> Result<Vec<u32>> {
        let value = |at: usize| ((at * 31 + number * 17) % 101) as f32 / 50.0 - 1.0;
        let x = Tensor::from_vec((0..3 * WIDTH).map(value).collect(), [3, WIDTH], device)?;
        let hidden = x.matmul(&self.first)?.layer_norm(1, Some(&self.scale), Some(&self.shift), 1e-5)?;
        let found = hidden.gelu()?.matmul(&self.second)?.softmax(-1)?.to_vec::<f32>()?;
        Ok(found.into_iter().map(f32::to_bits).collect())
    }
}

/// Each thread runs the model on inputs of its own; all must be what one thread computes.
fn forward(fixture: &Fixture, threads: usize, iterations: usize) {
    /// Distinct inputs.
    const INPUT_COUNT: usize = 16;
    let device = &fixture.device;
    let model = &Model::new(device).unwrap();
    let expected: Vec<_> = (0..INPUT_COUNT).map(|number| model.forward(number, device).unwrap()).collect();
    let wrong = AtomicUsize::new(0);
    on_threads(threads, |thread| {
        for iteration in 0..iterations {
            let number = (thread * 7 + iteration) % INPUT_COUNT;
            fixture.be_late(thread + iteration);
            let right = model.forward(number, device).unwrap() == expected[number];
            wrong.fetch_add(usize::from(!right), Relaxed);
        }
    });
    let (wrong, count) = (wrong.into_inner(), threads * iterations);
    assert!(wrong == 0, "{wrong} of {count} trials are wrong");
}

fn forward_of_8_threads_50_times(fixture: &Fixture) {
    forward(fixture, 8, fixture.count(50, 6));
}

/// As few as share nothing, as many as there are streams, and around both.
fn forward_of_few_threads_and_many(fixture: &Fixture) {
    for thread_count in [1, 2, 3, 4, 5, 6, 7, 8, 31, 32, 33, 64, 65] {
        forward(fixture, thread_count, fixture.count(10, 1));
    }
}

fn forward_of_31_threads_100_times(fixture: &Fixture) {
    forward(fixture, 31, fixture.count(100, 2));
}

fn forward_of_64_threads_200_times(fixture: &Fixture) {
    forward(fixture, 64, fixture.count(200, 1));
}

fn weights_are_read_by_32_threads(fixture: &Fixture) {
    let device = &fixture.device;
    // What the threads read is written when all of them have asked for it.
    let stream = pool(device, 1)[0];
    let held = Mutex::new(fixture.hold(stream));
    let weight = {
        let _guard = stream.enter();
        &Tensor::arange(0, 1024, 1, DType::F32, device).unwrap()
    };
    let asked = AtomicUsize::new(0);
    on_threads(32, |thread| {
        let own = filled(device, 1024, thread as f32);
        for _ in 0..4 {
            own.add_(weight).unwrap();
        }
        if asked.fetch_add(1, Relaxed) == 31 {
            *held.lock().unwrap() = None;
        }
        let found = own.to_vec::<f32>().unwrap();
        assert!((0..1024).all(|at| found[at] == thread as f32 + 4.0 * at as f32), "thread {thread}");
    });
}

// ------------------------------------------------------------ record_stream

/// Marks a tensor by its handle, or by an address inside of it as C code would.
fn mark(device: &Device, tensor: &Tensor, stream: Stream, by_address: bool) {
    if by_address {
        let inside = tensor.buffer().size_bytes() as u64 / 2;
        assert!(device.record_stream_raw(tensor.buffer().address() + inside, stream));
    } else {
        tensor.record_stream(stream).unwrap();
    }
}

/// Reads a buffer on other streams while it was made here, marks it, drops it, and reuses its memory at once. In every
/// second trial the mark comes before the work, which it must cover all the same. Is everything right?
fn record_once(device: &Device, backlog: &Backlog, others: &[Stream], trial: usize) -> bool {
    let (value, by_address) = (trial as f32, trial % 4 > 1);
    let a = filled(device, 4096, value);
    let mut reads = Vec::new();
    for stream in others {
        if trial.is_multiple_of(2) {
            mark(device, &a, *stream, by_address);
        }
        let _guard = stream.enter();
        backlog.put();
        reads.push(a.mul(2.0).unwrap().add(1.0).unwrap());
        if trial % 2 == 1 {
            mark(device, &a, *stream, by_address);
        }
    }
    drop(a);
    let b = filled(device, 4096, -5.0);
    reads.iter().all(|read| is_all(read, 2.0 * value + 1.0)) & is_all(&b, -5.0)
}

fn record_basic(fixture: &Fixture) {
    let (streams, backlog) = (pool(&fixture.device, 1), Backlog::new(&fixture.device));
    trials(fixture.count(100, 20), |trial| record_once(&fixture.device, &backlog, &streams, trial));
}

fn record_on_several_streams(fixture: &Fixture) {
    let (streams, backlog) = (pool(&fixture.device, 3), Backlog::new(&fixture.device));
    trials(fixture.count(100, 20), |trial| record_once(&fixture.device, &backlog, &streams, trial));
}

/// Made here; used, marked and dropped there.
fn record_passed_between_threads(fixture: &Fixture) {
    let (device, count) = (&fixture.device, fixture.count(200, 20));
    let (sender, receiver) = mpsc::channel::<Tensor>();
    let stream = pool(device, 1)[0];
    let use_there = move || {
        trials(count, |trial| {
            let tensor = receiver.recv().unwrap();
            let _guard = stream.enter();
            fixture.be_late(trial);
            let sum = tensor.add(1.0).unwrap();
            mark(device, &tensor, stream, trial % 2 == 1);
            drop(tensor);
            is_all(&sum, trial as f32 + 1.0)
        });
    };
    beside(use_there, move || {
        for trial in 0..count {
            sender.send(filled(device, 1000, trial as f32)).unwrap();
        }
    });
}

/// A buffer with nothing in it, and addresses where there is none: safe no-ops.
fn record_nothing(fixture: &Fixture) {
    let stream = pool(&fixture.device, 1)[0];
    let empty = Tensor::zeros([0], DType::F32, &fixture.device).unwrap();
    fixture.device.record_stream(empty.buffer(), stream).unwrap();
    for foreign in [0, 1, u64::MAX, &raw const stream as u64] {
        assert!(!fixture.device.record_stream_raw(foreign, stream), "{foreign:#x}");
    }
    assert!(empty.to_vec::<f32>().unwrap().is_empty());
}

/// A tensor that is gone, of which only the handle of the memory is left; then the address alone. In a private pool, so that
/// no other case gets the memory at that moment.
fn record_freed(fixture: &Fixture) {
    let stream = pool(&fixture.device, 1)[0];
    let private = fixture.device.memory_pool();
    let buffer = {
        let _inside = private.enter();
        filled(&fixture.device, 10, 1.0).buffer().clone()
    };
    fixture.device.record_stream(&buffer, stream).unwrap();
    let address = buffer.address();
    drop(buffer);
    assert!(!fixture.device.record_stream_raw(address, stream));
    assert!(is_all(&filled(&fixture.device, 10, 2.0), 2.0));
}

fn record_of_8_threads_20_times(fixture: &Fixture) {
    let device = &fixture.device;
    let streams = &pool(device, 3);
    on_threads(8, |thread| {
        let (backlog, count) = (Backlog::new(device), fixture.count(20, 4));
        trials(count, |trial| record_once(device, &backlog, streams, thread * count + trial));
    });
}

fn a_stream_of_another_device_is_refused(fixture: &Fixture) {
    let (device, other) = (&fixture.device, Device::new("sim:1001").unwrap());
    let tensor = filled(device, 4, 1.0);
    let stream = Stream::default(&other).unwrap();
    let error = device.record_stream(tensor.buffer(), stream).unwrap_err();
    assert!(matches!(error, runtime::Error::StreamDevice { .. }), "{error}");
    let expected = format!("record_stream: expected a stream of {}, found one of sim:1001", device.name());
    assert_eq!(error.to_string(), expected);
    assert_eq!(tensor.record_stream(stream).unwrap_err().to_string(), expected);
    assert!(other.close().unwrap());
}

/// The mark comes first, then work that doesn't name the memory, as a foreign library's wouldn't. Who gets the memory next
/// is behind all of it.
fn record_covers_what_comes_later(fixture: &Fixture) {
    let device = &fixture.device;
    let (stream, backlog) = (pool(device, 1)[0], Backlog::new(device));
    let mut reused = 0;
    let count = fixture.count(200, 20);
    trials(count, |_| {
        let a = filled(device, 4096, 1.0);
        let memory = a.buffer().id();
        mark(device, &a, stream, reused % 2 == 1);
        let guard = stream.enter();
        backlog.put();
        let last = stream.record();
        drop((guard, a));
        // As many as it takes to get the memory again, if it is given out at all before its uses are over.
        let fresh: Vec<Tensor> = (0..4).map(|_| filled(device, 4096, 2.0)).collect();
        let Some(again) = fresh.iter().find(|tensor| tensor.buffer().id() == memory) else { return true };
        reused += 1;
        again.to_vec::<f32>().unwrap();
        last.query()
    });
    println!("the memory was used again at once in {reused} of {count} trials");
}

// ------------------------------------------------------------ memory

/// Elements of a batch: its memory comes from where all threads' comes, not from a thread's own store.
const BATCH: usize = 80 << 10;
const BATCH_BYTES: usize = BATCH * 4;

/// A thread in the background copies batches to the device on a stream of its own; the foreground, with work in front of
/// it, drops its last handle to a batch while the kernel that reads it is only enqueued. The next batch must not land in
/// that memory before the kernel has run. In every second trial the background has the last handle. (The simulator poisons
/// memory on the stream on which it is freed: behind the reader, if that one frees it. Without marks, too.)
fn transfer_and_train(device: &Device, count: usize) {
    let (batches, receiver) = mpsc::sync_channel::<Tensor>(0);
    let (go_on, gone_on) = mpsc::sync_channel::<()>(0);
    let stream = pool(device, 1)[0];
    let backlog = Backlog::new(device);
    let background = move || {
        let _guard = stream.enter();
        for trial in 0..=count {
            let batch = Tensor::from_vec(vec![trial as f32; BATCH], [BATCH], device).unwrap();
            stream.synchronize().unwrap();
            let kept = (trial % 2 == 1).then(|| batch.clone());
            // The next one is made as soon as the last handle of this one is gone.
            if batches.send(batch).is_err() || gone_on.recv().is_err() {
                break;
            }
            drop(kept);
        }
    };
    beside(background, move || {
        let mut next = Some(receiver.recv().unwrap());
        trials(count, |trial| {
            let batch = next.take().expect("there is one for each trial");
            backlog.put();
            let scaled = batch.mul(0.5).unwrap();
            drop(batch);
            go_on.send(()).unwrap();
            // It is on the device before anything is asked of the one before.
            next = Some(receiver.recv().unwrap());
            is_all(&scaled, trial as f32 * 0.5)
        });
    });
}

fn allocator_race(fixture: &Fixture) {
    transfer_and_train(&fixture.device, fixture.count(200, 50));
}

/// The same with room for one batch and its result, so that memory must be given out again while it is in use.
fn allocator_race_without_room(fixture: &Fixture) {
    fixture.alone(|device| transfer_without_room(device, fixture.count(200, 50)));
}

fn transfer_without_room(device: &Device, count: usize) {
    // Whatever is small gets its memory before the limit.
    let warm = (filled(device, 64, 0.0), [(); 2].map(|()| filled(device, BATCH, 0.0)));
    warm.1.iter().for_each(|batch| _ = batch.to_vec::<f32>().unwrap());
    drop(warm);
    device.synchronize().unwrap();
    let reserved_bytes = device.memory_stats().reserved_bytes;
    // All that there is but two batches.
    device.set_memory_limit(reserved_bytes);
    let mut ballast: Vec<_> = std::iter::from_fn(|| device.allocate(BATCH_BYTES).ok()).collect();
    assert!(ballast.len() >= 2);
    ballast.truncate(ballast.len() - 2);
    transfer_and_train(device, count);
    device.set_memory_limit(usize::MAX);
}

fn memory_is_not_reused_while_another_stream_reads(fixture: &Fixture) {
    let device = &fixture.device;
    let (streams, backlog) = (pool(device, 3), Backlog::new(device));
    trials(fixture.count(200, 30), |trial| {
        let value = trial as f32;
        let shared = filled(device, 4096, value);
        let read = |stream: &Stream| {
            let _guard = stream.enter();
            backlog.put();
            shared.mul(2.0).unwrap()
        };
        let reads: Vec<Tensor> = streams.iter().map(read).collect();
        drop(shared);
        let reused = filled(device, 4096, -5.0);
        is_all(&reused, -5.0) & reads.iter().all(|read| is_all(read, 2.0 * value))
    });
}

/// Allocated on the stream that is still reading the memory's former life, which needs no wait there; first used on another,
/// which does. In every second trial it is that other one that frees it.
fn fresh_memory_is_first_used_on_another_stream(fixture: &Fixture) {
    let device = &fixture.device;
    let (streams, backlog) = (pool(device, 2), Backlog::new(device));
    trials(fixture.count(200, 100), |trial| {
        let value = trial as f32;
        let guard = streams[0].enter();
        let old = filled(device, 4096, value);
        backlog.put();
        let read = old.mul(2.0).unwrap();
        {
            let _guard = streams[trial % 2].enter();
            drop(old);
        }
        let fresh = Tensor::empty([4096], DType::F32, device).unwrap();
        drop(guard);
        let guard = streams[1].enter();
        fresh.fill_(-5.0).unwrap();
        drop(guard);
        // The one that may be too early first.
        is_all(&fresh, -5.0) & is_all(&read, 2.0 * value)
    });
}

fn two_readers_then_a_writer(fixture: &Fixture) {
    let device = &fixture.device;
    let (streams, backlog) = (pool(device, 3), Backlog::new(device));
    trials(fixture.count(200, 30), |trial| {
        let value = trial as f32;
        // New each time: what a buffer has been through decides how its marks are kept.
        let shared = filled(device, 777, value);
        shared.to_vec::<f32>().unwrap();
        let read = |stream: Stream, late: bool| {
            let _guard = stream.enter();
            if late {
                backlog.put();
            }
            shared.mul(3.0).unwrap()
        };
        // The first one is late: one mark for all readers would be the second one's.
        let reads = [read(streams[trial % 3], true), read(streams[(trial + 1) % 3], false)];
        {
            let _guard = streams[(trial + 2) % 3].enter();
            shared.fill_(-1.0).unwrap();
        }
        reads.iter().all(|read| is_all(read, 3.0 * value)) & is_all(&shared, -1.0)
    });
}

fn an_owner_drops_while_another_thread_reads(fixture: &Fixture) {
    let (device, barrier, count) = (&fixture.device, &Barrier::new(2), fixture.count(200, 20));
    let (sender, receiver) = mpsc::channel::<Tensor>();
    let owner = move || {
        for trial in 0..count {
            let shared = filled(device, 2048, trial as f32);
            sender.send(shared.clone()).unwrap();
            drop(shared);
            // Memory that would be the shared one's, if it were free already.
            let noise = filled(device, 2048, -1.0);
            barrier.wait();
            drop(noise);
        }
    };
    beside(owner, move || {
        let backlog = Backlog::new(device);
        trials(count, |trial| {
            let shared = receiver.recv().unwrap();
            backlog.put();
            let read = shared.add(0.5).unwrap();
            drop(shared);
            barrier.wait();
            is_all(&read, trial as f32 + 0.5)
        });
    });
}

fn a_chain_is_handed_over(fixture: &Fixture) {
    let (device, count) = (&fixture.device, fixture.count(200, 50));
    let (sender, receiver) = mpsc::sync_channel::<Tensor>(4);
    let make = move || {
        for trial in 0..count {
            fixture.be_late(trial);
            let mut chain = filled(device, 512, trial as f32);
            for _ in 0..40 {
                chain = chain.add(1.0).unwrap();
            }
            if sender.send(chain).is_err() {
                break;
            }
        }
    };
    beside(make, move || trials(count, |trial| is_all(&receiver.recv().unwrap(), trial as f32 + 40.0)));
}

// ------------------------------------------------------------ events and errors

fn events_are_shared(fixture: &Fixture) {
    let (device, event) = (&fixture.device, &Event::new());
    assert!(!event.query(), "an event that has recorded nothing isn't complete");
    on_threads(8, |_| {
        let (x, count) = (filled(device, 64, 1.0), fixture.count(100, 10));
        for _ in 0..count {
            fixture.be_late(0);
            x.add_(Arg::from(1.0)).unwrap();
            event.record(Stream::current(device).unwrap());
            Stream::current(device).unwrap().wait_event(event).unwrap();
            event.synchronize().unwrap();
        }
        assert!(is_all(&x, 1.0 + count as f32));
    });
    assert!(event.query());
}

/// On a GPU, what the driver is asked to wait for is mostly the newest op, so that an event that covers less doesn't show.
fn an_event_covers_all_before_it(fixture: &Fixture) {
    let device = &fixture.device;
    let (streams, backlog) = (pool(device, 2), Backlog::new(device));
    trials(fixture.count(200, 30), |_| {
        let guard = streams[0].enter();
        backlog.put();
        let event = streams[0].record();
        drop(guard);
        event.synchronize().unwrap();
        // Nothing was put on the stream since.
        streams[0].query()
    });
}

/// An index out of range is told to who reads what depends on it, and to nobody else, whatever else is in flight.
fn errors_of_kernels_reach_who_depends_on_them(fixture: &Fixture) {
    let device = &fixture.device;
    on_threads(8, |thread| {
        let source = filled(device, 10, 1.0);
        for round in 0..fixture.count(100, 10) {
            let bad = (thread + round) % 3 == 0;
            fixture.be_late(round);
            let index = vec![0, 9, if bad { 10 + round as i64 } else { 3 }];
            let index = Tensor::from_vec(index, [3], device).unwrap();
            let dependent = source.gather(0, &index).and_then(|gathered| gathered.add(1.0));
            let other = source.add(1.0).unwrap();
            assert!(is_all(&other, 2.0));
            match dependent.and_then(|dependent| dependent.to_vec::<f32>()) {
                Ok(found) => assert!(!bad && found == [2.0; 3]),
                Err(error) => {
                    let text = format!("index {} (element 2 of the indices) is out of bounds", 10 + round);
                    assert!(bad && error.to_string().contains(&text), "{error}");
                }
            }
        }
    });
}
