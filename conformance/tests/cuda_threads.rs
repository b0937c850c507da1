//! Many threads on a GPU whose kernels take their time at random, so that every missing wait has room to show; and the
//! loss of the device, in a process of its own. Where there is no GPU each test is ignored.

use libtest_mimic::{Arguments, Trial};
use raddle::{
    DType, Device, Generator, Result, Stream, Tensor,
    cuda::{Cuda, CudaOptions, Spin, device_count},
    runtime,
};
use std::{
    process::{Command, ExitCode},
    sync::{Barrier, mpsc},
};

/// A GPU on which one of five launches has to wait, and one of five lasts, up to 0.1 ms.
fn slow(seed: u64) -> Device {
    let spin = Spin { probability: 0.2, ns_max: 100_000, seed };
    Device::cuda(0, CudaOptions { spin: Some(spin), ..CudaOptions::default() }).unwrap()
}

fn filled(device: &Device, size: usize, value: f32) -> Tensor {
    Tensor::full([size], value, DType::F32, device).unwrap()
}

fn is_all(tensor: &Tensor, value: f32) -> bool {
    tensor.to_vec::<f32>().unwrap().iter().all(|&found| found == value)
}

fn pool(device: &Device, count: usize) -> Vec<Stream> {
    (0..count).map(|_| Stream::from_pool(device, raddle::Priority::Normal).unwrap()).collect()
}

fn forward_from_many_threads() {
    const WIDTH: usize = 32;
    let device = &slow(1);
    let generator = Generator::new(7);
    let weights: Vec<Tensor> =
        (0..3).map(|_| Tensor::randn([WIDTH, WIDTH], DType::F32, device, &generator).unwrap()).collect();
    let forward = |number: usize| -> Result<Vec<u32>> {
        let value = |at: usize| ((at * 31 + number * 17) % 101) as f32 / 50.0 - 1.0;
        let mut x = Tensor::from_vec((0..3 * WIDTH).map(value).collect(), [3, WIDTH], device)?;
        for weight in &weights {
            x = x.matmul(weight)?.gelu()?.layer_norm(1, None, None, 1e-5)?;
        }
        Ok(x.softmax(-1)?.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
    };
    let expected: Vec<_> = (0..16).map(|number| forward(number).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (forward, expected) = (&forward, &expected);
            scope.spawn(move || {
                for iteration in 0..20 {
                    let number = (thread * 7 + iteration) % 16;
                    assert_eq!(forward(number).unwrap(), expected[number], "thread {thread}");
                }
            });
        }
    });
}

fn a_chain_of_one_thread_is_read_by_another_at_once() {
    let (device, rounds) = (&slow(2), 200);
    let (sender, receiver) = mpsc::channel::<Tensor>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..rounds {
                let mut chain = filled(device, 512, round as f32);
                for _ in 0..20 {
                    chain = chain.add(1.0).unwrap();
                }
                sender.send(chain).unwrap();
            }
        });
        let right =
            receiver.into_iter().enumerate().filter(|(round, chain)| is_all(chain, *round as f32 + 20.0));
        assert_eq!(right.count(), rounds);
    });
}

fn memory_is_not_reused_while_another_stream_reads() {
    let device = &slow(3);
    let streams = pool(device, 3);
    for round in 0..200 {
        let value = round as f32;
        let shared = filled(device, 4096, value);
        let reads: Vec<Tensor> = streams
            .iter()
            .map(|stream| {
                let _guard = stream.enter();
                shared.mul(2.0).unwrap()
            })
            .collect();
        drop(shared);
        let reused = filled(device, 4096, -5.0);
        assert!(reads.iter().all(|read| is_all(read, 2.0 * value)), "round {round}");
        assert!(is_all(&reused, -5.0));
    }
}

fn a_writer_waits_for_readers_on_other_streams() {
    let device = &slow(4);
    let streams = pool(device, 3);
    let shared = filled(device, 777, 0.0);
    for round in 1..200 {
        let value = round as f32;
        {
            let _guard = streams[round % 3].enter();
            shared.fill_(value).unwrap();
        }
        let read = |stream: Stream| {
            let _guard = stream.enter();
            shared.mul(3.0).unwrap()
        };
        let reads = [read(streams[(round + 1) % 3]), read(streams[(round + 2) % 3])];
        {
            let _guard = streams[round % 3].enter();
            shared.fill_(-value).unwrap();
        }
        assert!(reads.iter().all(|read| is_all(read, 3.0 * value)), "round {round}");
        assert!(is_all(&shared, -value));
    }
}

fn an_owner_may_drop_while_another_thread_reads() {
    let (device, barrier) = (&slow(5), &Barrier::new(2));
    let (sender, receiver) = mpsc::channel::<Tensor>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..200 {
                let shared = filled(device, 2048, round as f32);
                sender.send(shared.clone()).unwrap();
                drop(shared);
                // Memory that would be the shared one's, if it were free already.
                let noise = filled(device, 2048, -1.0);
                barrier.wait();
                drop(noise);
            }
        });
        for (round, shared) in receiver.into_iter().enumerate() {
            let read = shared.add(0.5).unwrap();
            drop(shared);
            barrier.wait();
            assert!(is_all(&read, round as f32 + 0.5), "round {round}");
        }
    });
}

/// An index out of range is told to who reads what depends on it, and to nobody else, whatever else is in flight.
fn errors_of_kernels_reach_who_depends_on_them() {
    let device = &slow(6);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let source = filled(device, 10, 1.0);
                for round in 0..100_i64 {
                    let bad = (thread + round) % 3 == 0;
                    let index =
                        Tensor::from_vec(vec![0, 9, if bad { 10 + round } else { 3 }], [3], device).unwrap();
                    let gathered = source.gather(0, &index).unwrap();
                    let (dependent, other) = (gathered.add(1.0).unwrap(), source.add(1.0).unwrap());
                    assert!(is_all(&other, 2.0));
                    match dependent.to_vec::<f32>() {
                        Ok(found) => assert!(!bad && found == [2.0; 3]),
                        Err(error) => {
                            let text =
                                format!("index {} (element 2 of the indices) is out of bounds", 10 + round);
                            assert!(bad && error.to_string().contains(&text), "{error}");
                        }
                    }
                }
            });
        }
    });
}

const LOSS: &str = "RADDLE_TEST_LOSS";

/// In a process of its own: the context of this one must stay whole.
fn a_lost_device_is_told_to_all_and_nothing_hangs() {
    let output = Command::new(std::env::current_exe().unwrap()).env(LOSS, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn lose() {
    let cuda = Cuda::new(0).unwrap();
    let control = cuda.control();
    let device = &Device::from(runtime::Device::open(Box::new(cuda)).unwrap());
    let before = filled(device, 100, 1.0);
    assert!(is_all(&before, 1.0));
    let queue = runtime::hal::QueueId(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let before = &before;
            scope.spawn(move || {
                let error = loop {
                    let result = before.add(thread as f32).and_then(|sum| sum.to_vec::<f32>());
                    if let Err(error) = result {
                        break error;
                    }
                };
                assert!(error.to_string().starts_with("cuda:0: the device is lost: "), "{error}");
            });
        }
        scope.spawn(move || control.plant_trap(queue).unwrap());
    });
    assert!(before.to_vec::<f32>().is_err());
    assert!(device.synchronize().is_err());
    let cpu = Device::new("cpu").unwrap();
    assert!(is_all(&filled(&cpu, 10, 2.0), 2.0), "other devices go on");
}

fn main() -> ExitCode {
    if std::env::var_os(LOSS).is_some() {
        lose();
        return ExitCode::SUCCESS;
    }
    let absent = device_count() == Ok(0);
    if absent {
        println!("skipped: no CUDA device");
    }
    macro_rules! tests {
        ($($name:ident),* $(,)?) => { vec![$(Trial::test(stringify!($name), || {
            $name();
            Ok(())
        }).with_ignored_flag(absent)),*] };
    }
    let tests = tests![
        forward_from_many_threads,
        a_chain_of_one_thread_is_read_by_another_at_once,
        memory_is_not_reused_while_another_stream_reads,
        a_writer_waits_for_readers_on_other_streams,
        an_owner_may_drop_while_another_thread_reads,
        errors_of_kernels_reach_who_depends_on_them,
        a_lost_device_is_told_to_all_and_nothing_hangs,
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
