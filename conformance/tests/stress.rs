//! Many threads on one device: results bit for bit, whatever the number of threads. `cargo xtask tsan` runs these.

use raddle::{Arg, DType, Device, Event, Generator, Result, Stream, Tensor, runtime};
use std::sync::{Barrier, mpsc};

/// A small model: two layers, a normalisation between them.
struct Model {
    first: Tensor,
    scale: Tensor,
    shift: Tensor,
    second: Tensor,
}

const WIDTH: usize = 24;

impl Model {
    fn new(device: &Device) -> Result<Model> {
        let generator = Generator::new(7);
        let normal = |shape: &[usize]| Tensor::randn(shape, DType::F32, device, &generator);
        Ok(Model {
            first: normal(&[WIDTH, WIDTH])?,
            scale: normal(&[WIDTH])?,
            shift: normal(&[WIDTH])?,
            second: normal(&[WIDTH, 8])?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = x.matmul(&self.first)?.layer_norm(1, Some(&self.scale), Some(&self.shift), 1e-5)?;
        hidden.gelu()?.matmul(&self.second)?.softmax(-1)
    }
}

/// An input that depends on its number alone.
fn input(number: usize, device: &Device) -> Result<Tensor> {
    let value = |at: usize| ((at * 31 + number * 17) % 101) as f32 / 50.0 - 1.0;
    Tensor::from_vec((0..3 * WIDTH).map(value).collect(), [3, WIDTH], device)
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn cpu() -> Device {
    Device::new("cpu").unwrap()
}

/// Each thread runs the model on inputs of its own; all must be what one thread computes.
fn forward_from_many_threads(device: &Device, threads: usize, iterations: usize) {
    /// Distinct inputs.
    const INPUT_COUNT: usize = 16;
    let model = Model::new(device).unwrap();
    let expected: Vec<Vec<u32>> = (0..INPUT_COUNT)
        .map(|number| bits(&model.forward(&input(number, device).unwrap()).unwrap()))
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (model, expected) = (&model, &expected);
            scope.spawn(move || {
                for iteration in 0..iterations {
                    let number = (thread * 7 + iteration) % INPUT_COUNT;
                    let found = bits(&model.forward(&input(number, device).unwrap()).unwrap());
                    assert_eq!(found, expected[number], "thread {thread}, iteration {iteration}");
                }
            });
        }
    });
}

#[test]
fn forward_8_threads_50_times() {
    forward_from_many_threads(&cpu(), 8, 50);
}

#[test]
fn forward_31_threads_100_times() {
    forward_from_many_threads(&cpu(), 31, 100);
}

#[test]
fn forward_64_threads_200_times() {
    forward_from_many_threads(&cpu(), 64, 200);
}

#[test]
fn forward_on_the_simulator() {
    let device = Device::new("sim:11").unwrap();
    forward_from_many_threads(&device, 8, 6);
    assert!(device.close().unwrap());
}

// ------------------------------------------------------------ record_stream

/// Reads a buffer on `other` while it was made here, marks it, drops it, and reuses its memory at once. `early`: the mark
/// comes before the work, which it must cover all the same.
fn record_once(device: &Device, other: &[Stream], early: bool, seed: usize) {
    let value = seed as f32;
    let a = Tensor::full([4096], value, DType::F32, device).unwrap();
    let mut reads = Vec::new();
    for stream in other {
        if early {
            device.record_stream(a.buffer(), *stream).unwrap();
        }
        let _guard = stream.enter();
        reads.push(a.mul(2.0).unwrap().add(1.0).unwrap());
        if !early {
            device.record_stream(a.buffer(), *stream).unwrap();
        }
    }
    drop(a);
    let b = Tensor::full([4096], -5.0, DType::F32, device).unwrap();
    for read in reads {
        assert!(read.to_vec::<f32>().unwrap().iter().all(|&found| found == 2.0 * value + 1.0), "seed {seed}");
    }
    assert!(b.to_vec::<f32>().unwrap().iter().all(|&found| found == -5.0));
}

fn pool(device: &Device, count: usize) -> Vec<Stream> {
    (0..count).map(|_| Stream::from_pool(device, raddle::Priority::Normal).unwrap()).collect()
}

/// The six record-stream tests, on each backend.
fn record_stream(device: &Device) {
    let streams = pool(device, 3);
    // Basic.
    (0..20).for_each(|seed| record_once(device, &streams[..1], seed % 2 == 0, seed));
    // One buffer on several streams.
    (0..20).for_each(|seed| record_once(device, &streams, seed % 2 == 0, seed));
    // Passed between threads: made here, used, marked and dropped there.
    let (sender, receiver) = mpsc::channel::<(usize, Tensor)>();
    std::thread::scope(|scope| {
        let stream = streams[0];
        scope.spawn(move || {
            for (seed, tensor) in receiver {
                let _guard = stream.enter();
                let sum = tensor.add(1.0).unwrap();
                device.record_stream(tensor.buffer(), stream).unwrap();
                drop(tensor);
                assert!(sum.to_vec::<f32>().unwrap().iter().all(|&found| found == seed as f32 + 1.0));
            }
        });
        for seed in 0..20 {
            sender.send((seed, Tensor::full([1000], seed as f32, DType::F32, device).unwrap())).unwrap();
        }
        drop(sender);
    });
    // Nothing in it: a safe no-op.
    let empty = Tensor::zeros([0], DType::F32, device).unwrap();
    device.record_stream(empty.buffer(), streams[0]).unwrap();
    // Freed as a tensor; only the handle of its memory is left.
    let buffer = Tensor::zeros([10], DType::F32, device).unwrap().buffer().clone();
    device.record_stream(&buffer, streams[1]).unwrap();
    drop(buffer);
    // 8 threads × 20 at once.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let streams = &streams;
            scope.spawn(move || {
                (0..20).for_each(|seed| record_once(device, streams, seed % 2 == 0, thread + seed))
            });
        }
    });
}

#[test]
fn record_stream_on_the_cpu() {
    record_stream(&cpu());
}

#[test]
fn record_stream_on_the_simulator() {
    for seed in 0..4 {
        let device = Device::new(&format!("sim:{seed}")).unwrap();
        record_stream(&device);
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let (device, other) = (cpu(), Device::new("sim:1").unwrap());
    let stream = Stream::default(&other).unwrap();
    let tensor = Tensor::zeros([4], DType::F32, &device).unwrap();
    let error = device.record_stream(tensor.buffer(), stream).unwrap_err();
    assert!(matches!(error, runtime::Error::StreamDevice { .. }), "{error}");
    assert_eq!(error.to_string(), "record_stream: expected a stream of cpu, found one of sim:1");
}

// ------------------------------------------------------------ sharing

#[test]
fn weights_are_read_from_32_threads() {
    for device in [cpu(), Device::new("sim:5").unwrap()] {
        let weight = Tensor::arange(0, 1024, 1, DType::F32, &device).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let (weight, device) = (&weight, &device);
                scope.spawn(move || {
                    let own = Tensor::full([1024], thread as f32, DType::F32, device).unwrap();
                    for _ in 0..10 {
                        own.add_(weight).unwrap();
                    }
                    let found = own.to_vec::<f32>().unwrap();
                    assert!((0..1024).all(|at| found[at] == thread as f32 + 10.0 * at as f32));
                });
            }
        });
    }
}

#[test]
fn a_writer_waits_for_readers_on_other_streams() {
    for seed in 0..40 {
        let device = Device::new(&format!("sim:{seed}")).unwrap();
        let streams = pool(&device, 3);
        let shared = Tensor::full([777], 1.0, DType::F32, &device).unwrap();
        let reads: Vec<Tensor> = streams[..2]
            .iter()
            .map(|stream| {
                let _guard = stream.enter();
                shared.mul(3.0).unwrap()
            })
            .collect();
        let guard = streams[2].enter();
        shared.fill_(50.0).unwrap();
        drop(guard);
        for read in &reads {
            assert!(read.to_vec::<f32>().unwrap().iter().all(|&found| found == 3.0), "seed {seed}");
        }
        assert!(shared.to_vec::<f32>().unwrap().iter().all(|&found| found == 50.0), "seed {seed}");
        drop((shared, reads));
        assert!(device.close().unwrap());
    }
}

#[test]
fn an_owner_may_drop_while_another_stream_reads() {
    for device in [cpu(), Device::new("sim:9").unwrap()] {
        let barrier = Barrier::new(2);
        let (sender, receiver) = mpsc::channel::<Tensor>();
        std::thread::scope(|scope| {
            let (device, barrier) = (&device, &barrier);
            scope.spawn(move || {
                for round in 0..50 {
                    let shared = Tensor::full([2048], round as f32, DType::F32, device).unwrap();
                    sender.send(shared.clone()).unwrap();
                    drop(shared);
                    // Memory that would be the shared one's, if it were free already.
                    let noise = Tensor::full([2048], -1.0, DType::F32, device).unwrap();
                    barrier.wait();
                    drop(noise);
                }
            });
            for (round, shared) in receiver.into_iter().enumerate() {
                let read = shared.add(0.5).unwrap();
                drop(shared);
                barrier.wait();
                assert!(read.to_vec::<f32>().unwrap().iter().all(|&found| found == round as f32 + 0.5));
            }
        });
    }
}

#[test]
fn a_chain_of_one_thread_is_read_by_another_at_once() {
    for (device, rounds) in [(cpu(), 200), (Device::new("sim:21").unwrap(), 20)] {
        let (sender, receiver) = mpsc::channel::<Tensor>();
        std::thread::scope(|scope| {
            let device = &device;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut chain = Tensor::full([512], round as f32, DType::F32, device).unwrap();
                    for _ in 0..40 {
                        chain = chain.add(1.0).unwrap();
                    }
                    sender.send(chain).unwrap();
                }
            });
            let mut right = 0;
            for (round, chain) in receiver.into_iter().enumerate() {
                right += usize::from(
                    chain.to_vec::<f32>().unwrap().iter().all(|&found| found == round as f32 + 40.0),
                );
            }
            assert_eq!(right, rounds);
        });
    }
}

#[test]
fn events_are_shared_while_others_release_them() {
    let device = cpu();
    let event = Event::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (event, device) = (&event, &device);
            scope.spawn(move || {
                let x = Tensor::ones([64], DType::F32, device).unwrap();
                for _ in 0..100 {
                    x.add_(Arg::from(1.0)).unwrap();
                    event.record(Stream::current(device).unwrap());
                    Stream::current(device).unwrap().wait_event(event).unwrap();
                    event.synchronize().unwrap();
                }
                assert_eq!(x.to_vec::<f32>().unwrap(), vec![101.0; 64]);
            });
        }
    });
    assert!(event.query());
}
