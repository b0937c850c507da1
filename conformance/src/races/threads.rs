//! Cases of many threads: how they share streams, meet, stop and fail.

use super::fixture::{Backlog, Fixture, filled, is_all, on_threads, pool, trials};
use crate::training::Training;
use raddle::{
    DType, Device, Error, Event, Generator, Priority, Stream, StreamId, Tensor, fused,
    grad::{Autograd, is_grad_enabled, no_grad},
    runtime,
    testing::Held,
};
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
};

// ------------------------------------------------------------ streams

/// Many more threads than streams, and than cores, all alive at once.
pub fn streams_are_shared_by_256_threads(fixture: &Fixture) {
    fixture.alone(|device| share_streams(fixture, *device));
}

fn share_streams(fixture: &Fixture, device: Device) {
    let users_before: u32 = device.stream_users().iter().sum();
    let (thread_count, count) = (fixture.count(256, 64), fixture.count(20, 2));
    let all_are_bound = Barrier::new(thread_count);
    on_threads(thread_count, |thread| {
        let x = filled(&device, 100, thread as f32);
        let stream = Stream::current(&device).unwrap();
        all_are_bound.wait();
        let users = device.stream_users();
        assert!(users.iter().sum::<u32>() as usize >= thread_count, "each thread has a stream");
        assert!(users.len() <= 1 + 32 + 32, "{} streams", users.len());
        // Nobody lets go before all have looked.
        all_are_bound.wait();
        trials(count, |trial| {
            fixture.be_late(thread + trial);
            x.add_(1.0).unwrap();
            is_all(&x, (thread + trial + 1) as f32) && Stream::current(&device).unwrap() == stream
        });
    });
    assert_eq!(device.stream_users().iter().sum::<u32>(), users_before, "all have let go");
}

/// Each stream of a pool is given out as often as any other, whoever asks.
pub fn streams_go_round(fixture: &Fixture) {
    fixture.alone(|device| {
        for priority in [Priority::Normal, Priority::High] {
            let counts = Mutex::new(HashMap::<StreamId, usize>::new());
            on_threads(8, |_| {
                for _ in 0..40 {
                    let stream = Stream::from_pool(device, priority).unwrap();
                    assert_eq!(stream.priority(), priority);
                    *counts.lock().unwrap().entry(stream.id()).or_default() += 1;
                }
            });
            let counts = counts.into_inner().unwrap();
            assert!(counts.len() == 32 && counts.values().all(|&count| count == 10), "{counts:?}");
        }
    });
}

/// An id names its stream on every thread; others name nothing, and say so.
pub fn ids_name_streams(fixture: &Fixture) {
    let device = fixture.device;
    let mut streams = pool(&device, 32);
    streams.push(Stream::default(&device).unwrap());
    streams.push(Stream::from_pool(&device, Priority::High).unwrap());
    on_threads(8, |_| {
        for stream in &streams {
            assert_eq!(Stream::from_id(&device, StreamId(stream.id().0)).unwrap(), *stream);
            for bit in 16..64 {
                let stray = StreamId(stream.id().0 ^ 1 << bit);
                if let Ok(other) = Stream::from_id(&device, stray) {
                    assert!(other.id() == stray && other != *stream, "{stray:?} is not {other:?}");
                }
            }
        }
        for stray in [0, 1, 65, u64::MAX, u64::MAX >> 1] {
            let error = Stream::from_id(&device, StreamId(stray)).unwrap_err();
            assert_eq!(error.to_string(), format!("{}: no stream has the id {stray:#x}", device.name()));
        }
    });
}

/// The stream of a thread is its own: what others enter and choose doesn't change it.
pub fn a_thread_keeps_its_stream(fixture: &Fixture) {
    let device = fixture.device;
    on_threads(16, |thread| {
        let own = Stream::current(&device).unwrap();
        let x = filled(&device, 64, 0.0);
        for round in 0..fixture.count(50, 5) {
            let chosen = Stream::from_pool(&device, Priority::High).unwrap();
            let guard = chosen.enter();
            fixture.be_late(round);
            x.add_(1.0).unwrap();
            assert_eq!(Stream::current(&device).unwrap(), chosen);
            drop(guard);
            assert_eq!(Stream::current(&device).unwrap(), own, "thread {thread}, round {round}");
        }
        own.synchronize().unwrap();
        let chosen = Stream::from_pool(&device, Priority::Normal).unwrap();
        chosen.set_current();
        assert_eq!(Stream::current(&device).unwrap(), chosen);
        assert!(is_all(&x, fixture.count(50, 5) as f32));
    });
}

/// Inside of guards the innermost is current; each gives way to the one around it, by a panic too.
pub fn guards_nest_in_threads(fixture: &Fixture) {
    fn nest(streams: &[Stream], x: &Tensor) -> ! {
        let Some((stream, inner)) = streams.split_first() else { resume_unwind(Box::new("on purpose")) };
        let _guard = stream.enter();
        x.add_(1.0).unwrap();
        let unwound = catch_unwind(AssertUnwindSafe(|| nest(inner, x)));
        assert_eq!(Stream::current(&stream.device()).unwrap(), *stream);
        x.add_(1.0).unwrap();
        resume_unwind(unwound.unwrap_err())
    }
    let (device, count) = (fixture.device, fixture.count(50, 5));
    on_threads(8, |_| {
        let (streams, x) = (pool(&device, 4), filled(&device, 64, 0.0));
        let own = Stream::current(&device).unwrap();
        for round in 0..count {
            fixture.be_late(round);
            let unwound = catch_unwind(AssertUnwindSafe(|| nest(&streams, &x)));
            assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"on purpose"));
            assert_eq!(Stream::current(&device).unwrap(), own);
        }
        assert!(is_all(&x, (8 * count) as f32));
    });
}

/// A thread lets go of its stream and its memory with work in flight, as often as it likes.
pub fn released_threads_go_on(fixture: &Fixture) {
    let device = fixture.device;
    on_threads(8, |thread| {
        let backlog = Backlog::new(&device);
        trials(fixture.count(100, 10), |trial| {
            let value = (thread * 100 + trial) as f32;
            let x = filled(&device, 3000, value);
            backlog.put();
            let sum = x.add(1.0).unwrap();
            drop(x);
            device.release_current_thread();
            // Its memory is others' now, and perhaps ours.
            let next = filled(&device, 3000, -1.0);
            is_all(&sum, value + 1.0) & is_all(&next, -1.0)
        });
    });
}

/// Whoever waits for a stream sees all that was on it, and waits for nothing that comes later, however much does.
pub fn streams_are_waited_for_while_others_submit(fixture: &Fixture) {
    let device = fixture.device;
    let streams = pool(&device, 4);
    let (is_over, count) = (AtomicBool::new(false), fixture.count(50, 5));
    std::thread::scope(|scope| {
        let submitters: Vec<_> = streams
            .iter()
            .map(|stream| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let _guard = stream.enter();
                    let (x, mut rounds) = (filled(&device, 256, 0.0), 0);
                    while !is_over.load(Relaxed) {
                        fixture.be_late(rounds);
                        x.add_(1.0).unwrap();
                        rounds += 1;
                        // So that numbers stay exact, and one core is enough.
                        if rounds % 100 == 0 {
                            assert!(is_all(&x, 100.0));
                            x.zero_().unwrap();
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let waiters: Vec<_> = (0..3)
            .map(|waiter| {
                let streams = &streams;
                scope.spawn(move || {
                    for round in 0..count {
                        let stream = streams[(waiter + round) % 4];
                        // So that the last op is in flight when the wait begins.
                        {
                            let _guard = stream.enter();
                            fixture.be_late(round);
                        }
                        let event = stream.record();
                        if waiter == 0 { device.synchronize() } else { stream.synchronize() }.unwrap();
                        assert!(event.query(), "waiter {waiter}, round {round}");
                    }
                })
            })
            .collect();
        let ends: Vec<_> = waiters.into_iter().map(|waiter| waiter.join()).collect();
        is_over.store(true, Relaxed);
        submitters.into_iter().for_each(|submitter| submitter.join().expect("a submitter panicked"));
        ends.into_iter().for_each(|end| end.expect("a waiter panicked"));
    });
}

// ------------------------------------------------------------ work

/// Products of all kinds and sizes, with operands that all threads read: the bits of one thread alone.
pub fn linear_algebra_of_8_threads(fixture: &Fixture) {
    const SIZES: [usize; 6] = [1, 2, 17, 32, 65, 130];
    let (device, generator) = (fixture.device, Generator::new(8));
    let matrix = |rows, columns| Tensor::randn([rows, columns], DType::F32, &device, &generator).unwrap();
    let operands: Vec<[Tensor; 2]> =
        SIZES.map(|size| [matrix(size, size + 3), matrix(size + 3, size)]).into();
    let products = |[a, b]: &[Tensor; 2]| -> raddle::Result<Vec<Vec<f32>>> {
        let batch = a.unsqueeze(0)?.expand([3, a.size(0)?, a.size(1)?])?;
        let square = a.matmul(b)?;
        let found = [
            batch.matmul(b)?.sum(0, false)?,
            square.addmm(a, b, 0.5, 2.0)?,
            a.linear(&b.t()?, None)?,
            a.t()?.matmul(&a.matmul(b)?)?,
            square.tril(0)?.matmul(&square.triu(0)?)?,
        ];
        found.iter().map(|tensor| tensor.to_vec::<f32>()).collect()
    };
    let expected: Vec<_> = operands.iter().map(|pair| products(pair).unwrap()).collect();
    on_threads(8, |thread| {
        trials(fixture.count(30, 3), |trial| {
            let at = (thread + trial) % SIZES.len();
            fixture.be_late(trial);
            products(&operands[at]).unwrap() == expected[at]
        });
    });
}

/// Sizes around those at which memory, kernels and copies are cut, from many threads at once.
pub fn sizes_at_boundaries(fixture: &Fixture) {
    const BOUNDARIES: [usize; 9] = [1, 16, 64, 256, 1024, 8192, 16384, 65536, 262_144];
    let device = fixture.device;
    on_threads(8, |thread| {
        let around = BOUNDARIES.iter().flat_map(|&size| [size - 1, size, size + 1]);
        for (at, size) in around.enumerate() {
            // On the simulator each is some thread's.
            if fixture.count(0, 1) == 1 && at % 8 != thread {
                continue;
            }
            fixture.be_late(at);
            let x = filled(&device, size, thread as f32);
            let sum = x.add(1.0).unwrap();
            drop(x);
            assert!(is_all(&sum, thread as f32 + 1.0), "{size} elements");
            let total = sum.gt(0.0).unwrap().to(DType::I64).unwrap().sum(.., false).unwrap();
            assert_eq!(total.item::<i64>().unwrap(), size as i64, "{size} elements");
        }
    });
}

/// Kernels that nobody has seen before: of each thread its own, then all threads the same one.
pub fn kernels_are_made_at_once(fixture: &Fixture) {
    const THREADS: usize = 16;
    let (device, together) = (fixture.device, Barrier::new(THREADS));
    // Of each run another one, so that no cache on disk knows it.
    let start = std::process::id() as f64 / 1024.0;
    // Told when all are through: they wait for each other.
    let wrong = Mutex::new(Vec::new());
    on_threads(THREADS, |thread| {
        let (elsewhere, backlog) = (pool(&device, 1)[0], Backlog::new(&device));
        for round in 0..fixture.count(6, 2) {
            let literal = |number: usize| start + (number + round * 2 * THREADS) as f64;
            for (what, number) in [("its own", thread), ("the same", THREADS + round)] {
                let add = fused(move |[x]| x + literal(number));
                together.wait();
                // Its operand is still being written when it is made.
                let zero = {
                    let _guard = elsewhere.enter();
                    backlog.put();
                    filled(&device, 1, 0.0)
                };
                let found = add.call(&[&zero]).unwrap().item::<f32>().unwrap();
                if found != literal(number) as f32 {
                    wrong.lock().unwrap().push(format!("thread {thread}, round {round}, {what}: {found}"));
                }
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Small models, each trained by a thread: the bits of one thread alone.
pub fn models_are_trained_by_8_threads(fixture: &Fixture) {
    let (device, step_count) = (fixture.device, fixture.count(20, 2));
    let train = |seed| {
        let mut training = Training::new(&device, seed).unwrap();
        for step in 0..step_count {
            fixture.be_late(step);
            training.step().unwrap();
        }
        training.bits().unwrap()
    };
    let expected: Vec<_> = (0..8).map(train).collect();
    on_threads(8, |thread| assert!(train(thread as u64) == expected[thread], "thread {thread}: other bits"));
}

/// All threads run backward into one leaf; nothing is lost.
pub fn gradients_of_8_threads_add_up(fixture: &Fixture) {
    let (device, count) = (fixture.device, fixture.count(40, 4));
    let leaf = filled(&device, 64, 2.0);
    leaf.requires_grad_(true).unwrap();
    on_threads(8, |thread| {
        for round in 0..count {
            fixture.be_late(round);
            let factor = thread as f64 + 1.0;
            leaf.mul(factor).unwrap().sum(.., false).unwrap().backward().unwrap();
        }
    });
    assert!(is_all(&leaf.grad().unwrap(), (36 * count) as f32));
}

/// Around a ring of threads, each of which changes it in place on its own stream and waits for nothing.
pub fn a_tensor_goes_through_16_threads(fixture: &Fixture) {
    const THREADS: usize = 16;
    let (device, lap_count) = (fixture.device, fixture.count(20, 3));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<Tensor>()).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    let (done, ends) = mpsc::channel();
    let start = filled(&device, 200, 0.0);
    senders[0].send(start).unwrap();
    on_threads(THREADS, |thread| {
        let (receiver, backlog) = (receivers[thread].lock().unwrap(), Backlog::new(&device));
        for lap in 0..lap_count {
            let tensor = receiver.recv().unwrap();
            backlog.put();
            tensor.add_(1.0).unwrap();
            let is_last = lap + 1 == lap_count && thread + 1 == THREADS;
            if is_last { done.send(tensor) } else { senders[(thread + 1) % THREADS].send(tensor) }.unwrap();
        }
    });
    assert!(is_all(&ends.recv().unwrap(), (THREADS * lap_count) as f32));
}

/// Far more ops than a stream holds, read from a thread that has had no part in them.
pub fn a_long_chain_is_read_elsewhere(fixture: &Fixture) {
    let (device, count) = (fixture.device, fixture.count(3000, 200));
    let streams = pool(&device, 3);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            let _guard = streams[0].enter();
            let mut chain = filled(&device, 300, 0.0);
            let mut held = None;
            for step in 0..count {
                // The last one runs when it has been read.
                if step + 1 == count {
                    held = fixture.hold(streams[0]);
                }
                chain = if step % 3 == 0 { chain.add(1.0) } else { chain.add_(1.0).cloned() }.unwrap();
            }
            sender.send((chain, held)).unwrap();
        });
        let (chain, held): (Tensor, Option<Held>) = receiver.recv().unwrap();
        let _guard = streams[1].enter();
        let read = chain.add(1.0).unwrap();
        // Whatever isn't behind it runs now: the simulator goes on when it is asked, the CPU's workers do other things meanwhile.
        let is_read = streams[1].record();
        let _guard = streams[2].enter();
        let other = filled(&device, 300, 0.0);
        for trial in 0..200 {
            fixture.be_late(trial);
            other.add_(1.0).unwrap();
            if is_read.query() {
                break;
            }
        }
        drop(held);
        assert!(is_all(&read, count as f32 + 1.0));
        maker.join().expect("the maker panicked");
    });
}

/// Threads with very much and with very little to do, and an event of each that tells the truth.
pub fn load_is_uneven(fixture: &Fixture) {
    fixture.alone(|device| load_unevenly(fixture, device));
}

fn load_unevenly(fixture: &Fixture, device: &Device) {
    on_threads(8, |thread| {
        let size = if thread % 3 == 0 { 100_000 } else { 10 };
        let count = fixture.count(40, 4) * if thread % 2 == 0 { 8 } else { 1 };
        let (x, event, backlog) = (filled(device, size, 0.0), Event::new(), Backlog::new(device));
        for step in 0..count {
            if step + 1 == count {
                backlog.put();
            }
            x.add_(1.0).unwrap();
        }
        let stream = Stream::current(device).unwrap();
        event.record(stream);
        event.synchronize().unwrap();
        // Nobody else is on the stream.
        assert!(event.query() && stream.query() && is_all(&x, count as f32), "thread {thread}");
    });
}

// ------------------------------------------------------------ failures

/// Threads take memory until there is none, drop what they have, and go on; in the end all of it can be had again.
pub fn memory_runs_out_for_8_threads(fixture: &Fixture) {
    fixture.alone(|device| take_all_memory(fixture, device));
}

fn take_all_memory(fixture: &Fixture, device: &Device) {
    const ELEMENTS: usize = 1 << 18;
    filled(device, ELEMENTS, 0.0).to_vec::<f32>().unwrap();
    device.set_memory_limit(device.memory_stats().reserved_bytes + (8 << 20));
    let refused = Mutex::new(0);
    on_threads(8, |thread| {
        for round in 0..fixture.count(20, 3) {
            let mut kept = Vec::new();
            let error = loop {
                match Tensor::full([ELEMENTS], (thread + round) as f64, DType::F32, device) {
                    Ok(tensor) => kept.push(tensor),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Runtime(runtime::Error::OutOfMemory { .. })), "{error}");
            *refused.lock().unwrap() += 1;
            assert!(kept.iter().all(|tensor| is_all(tensor, (thread + round) as f32)));
        }
    });
    assert!(refused.into_inner().unwrap() > 0);
    let last: Vec<_> =
        std::iter::from_fn(|| Tensor::ones([ELEMENTS], DType::F32, device).ok()).take(8).collect();
    assert!(last.len() == 8 && last.iter().all(|tensor| is_all(tensor, 1.0)), "{} blocks again", last.len());
    device.set_memory_limit(usize::MAX);
}

/// A panic inside of everything that takes a closure or holds a guard, beside threads that use the same tensors: the thread
/// itself goes on as if nothing had been, and nobody else notices.
pub fn panics_poison_nothing(fixture: &Fixture) {
    let device = fixture.device;
    let shared = filled(&device, 128, 1.0);
    let stop = || -> ! { resume_unwind(Box::new("on purpose")) };
    on_threads(8, |thread| {
        let own = Stream::current(&device).unwrap();
        trials(fixture.count(30, 4), |trial| {
            fixture.be_late(trial);
            let leaf = filled(&device, 128, 3.0);
            leaf.requires_grad_(true).unwrap();
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _held = (shared.add(1.0).unwrap(), leaf.mul(2.0).unwrap());
                match (thread + trial) % 6 {
                    0 => stop(),
                    1 => {
                        let _guard = Stream::from_pool(&device, Priority::High).unwrap().enter();
                        shared.mul(2.0).unwrap();
                        stop()
                    }
                    2 => drop(device.capture(|| {
                        shared.add(1.0)?.mul_(2.0)?;
                        if thread < 8 { stop() } else { Ok::<Tensor, Error>(shared.clone()) }
                    })),
                    3 => no_grad(|| {
                        leaf.add_(1.0).unwrap();
                        stop()
                    }),
                    4 => drop(fused(|[x]| if thread < 8 { stop() } else { x })),
                    _ => {
                        // Thrown away with the graph, half done.
                        let loss = leaf.square().unwrap().sum(.., false).unwrap();
                        let _loss = loss;
                        stop()
                    }
                }
            }));
            let is_as_before = Stream::current(&device).unwrap() == own && is_grad_enabled();
            leaf.mul(&shared).unwrap().sum(.., false).unwrap().backward().unwrap();
            let graph = device.capture(|| shared.add(2.0)).unwrap();
            unwound.is_err()
                && is_as_before
                && is_all(&leaf.grad().unwrap(), 1.0)
                && is_all(&graph.replay().unwrap(), 3.0)
                && is_all(&shared, 1.0)
        });
    });
}
