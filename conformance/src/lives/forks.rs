//! Children of a process whose threads are all busy: with locks, memory, streams, devices.

use super::{
    ends,
    process::{LIFE, TIME_MAX, keep_busy},
};
use crate::{
    child::{self, Ended},
    training::{Outcome, Training},
};
use raddle::{
    DType, Device, Event, Generator, Priority, Stream, Tensor,
    grad::{self, Autograd, clip_grad_norm_},
    optim::{Adam, AdamOptions},
    testing::hold,
};
use raddle_runtime::{
    Error,
    process::{End, Leave, in_child},
};
use std::{
    env,
    io::{Read, Write, pipe},
    process::Command,
    sync::{Barrier, mpsc},
    thread,
};

/// A child that takes longer hangs.
const TIME_S_MAX: u32 = 60;
/// Children, one after the other: enough for one that finds each lock held, if it could (guess).
const CHILD_COUNT: usize = 20;

/// What a child computes, as its parent reads it from a pipe. Children leave in either way.
fn from_child(number: usize, body: impl FnOnce() -> Outcome<Vec<u8>>) -> Outcome<Vec<u8>> {
    let (mut reader, mut writer) = pipe()?;
    let leave = if number.is_multiple_of(2) { Leave::AtOnce } else { Leave::Normally };
    let end = in_child(TIME_S_MAX, leave, move || {
        let written = body().and_then(|bytes| Ok(writer.write_all(&bytes)?));
        if let Err(error) = &written {
            // The pipe is what the parent reads anyway.
            _ = write!(writer, "{error}");
        }
        i32::from(written.is_err())
    })?;
    let mut found = Vec::new();
    reader.read_to_end(&mut found)?;
    match end {
        End::Code(0) => Ok(found),
        end => Err(format!("child {number}: {end:?}, {}", String::from_utf8_lossy(&found)).into()),
    }
}

/// Products, orders, sums and random numbers of small and of large tensors, on this stream and on others.
fn results(device: &Device, seed: u64) -> Outcome<Vec<u8>> {
    let generator = Generator::new(seed);
    let x = Tensor::randn([150, 150], DType::F32, device, &generator)?;
    let large = Tensor::rand([300_000], DType::F32, device, &generator)?;
    let guard = Stream::from_pool(device, Priority::Normal)?.enter();
    let (order, _) = x.matmul(&x)?.layer_norm(1, None, None, 1e-5)?.sort(0, true)?;
    drop(guard);
    let sums = [large.square()?.sum(.., false)?, order.exp()?.sum(1, false)?, x.softmax(0)?.amax(1, false)?];
    device.synchronize()?;
    let mut bits = Vec::new();
    for sum in sums {
        bits.extend(sum.to_vec::<f32>()?.into_iter().flat_map(f32::to_ne_bytes));
    }
    // The process's own generator goes on in both; its numbers needn't be the same.
    Tensor::randn([10], DType::F32, device, None)?;
    Ok(bits)
}

pub fn children_compute(device: &str) -> Outcome {
    let device = Device::new(device)?;
    keep_busy(&device, 4);
    for number in 0..CHILD_COUNT {
        let expected = results(&device, number as u64)?;
        let found = from_child(number, || results(&device, number as u64))?;
        assert!(found == expected, "child {number}: other bits");
        assert!(results(&device, number as u64)? == expected, "after child {number}: other bits");
    }
    Ok(())
}

/// Parent and child go on with the same model from where it was, while other threads read its weights.
pub fn children_train(device: &str) -> Outcome {
    let device = Device::new(device)?;
    let mut model = Training::new(&device, 1)?;
    keep_busy(&device, 3);
    let weight = model.weights[0].clone();
    thread::spawn(move || while weight.t().and_then(|weight| weight.sum(.., false)).is_ok() {});
    for number in 0..CHILD_COUNT {
        model.step()?;
        device.synchronize()?;
        let found = from_child(number, || {
            model.step()?;
            model.step()?;
            let grad = model.weights[0].grad().ok_or("no gradient")?.to_vec::<f32>()?;
            Ok([model.bits()?, grad.into_iter().flat_map(f32::to_ne_bytes).collect()].concat())
        })?;
        model.step()?;
        model.step()?;
        let grad = model.weights[0].grad().ok_or("no gradient")?.to_vec::<f32>()?;
        let expected = [model.bits()?, grad.into_iter().flat_map(f32::to_ne_bytes).collect()].concat();
        assert!(found == expected, "child {number}: other bits");
    }
    Ok(())
}

/// A process that was started and not forked has nothing of its parent's: it uses the same device, to its end.
pub fn a_process_that_is_started_uses_the_device_too(device: &str) -> Outcome {
    let name = device;
    let device = Device::new(name)?;
    keep_busy(&device, 4);
    let expected = results(&device, 5)?;
    for _ in 0..2 {
        let mut command = Command::new(env::current_exe()?);
        let Ended { status, out, err } =
            child::run(command.env(LIFE, format!("locals_of_main {name}")), TIME_MAX)?;
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{err}");
        assert_eq!(out, ends::LOCALS);
        assert!(results(&device, 5)? == expected, "the parent: other bits");
    }
    Ok(())
}

/// Ops that nobody has used in this process, forwards and backwards, of the first device that it opens.
fn first_uses(device: &str) -> Outcome<Vec<u8>> {
    let device = Device::new(device)?;
    let x = Tensor::arange(1, 9, 1, DType::F32, &device)?.mul(0.1)?;
    x.requires_grad_(true)?;
    let mut bits = Vec::new();
    macro_rules! each {
        ($($op:ident),*) => {$(
            let y = x.$op()?.sum(.., false)?;
            y.backward()?;
            bits.extend(y.item::<f32>()?.to_ne_bytes());
        )*};
    }
    each!(
        exp, log, sin, cos, tan, sinh, cosh, tanh, asin, acos, atan, sqrt, rsqrt, abs, neg, sigmoid, relu,
        gelu, silu, square, erf, expm1, log1p, reciprocal
    );
    let square = Tensor::ones([100, 100], DType::F32, &device)?;
    bits.extend(square.matmul(&square)?.sum(.., false)?.item::<f32>()?.to_ne_bytes());
    clip_grad_norm_(&[&x], 1.0)?;
    Adam::new(vec![x.clone()], AdamOptions::default())?.step()?;
    Ok(bits)
}

/// What is made once a process is being made as it forks, by a thread that children don't have.
pub fn children_of_first_uses(device: &str) -> Outcome {
    const FORKING_COUNT: usize = 4;
    let start = Barrier::new(FORKING_COUNT + 1);
    let told = |bits: Outcome<Vec<u8>>| bits.map_err(|error| error.to_string());
    thread::scope(|scope| {
        let (start, told) = (&start, &told);
        let user = scope.spawn(move || {
            start.wait();
            told(first_uses(device))
        });
        let fork = |number| {
            scope.spawn(move || {
                start.wait();
                told(from_child(number, || first_uses(device)))
            })
        };
        let children: Vec<_> = (0..FORKING_COUNT).map(fork).collect();
        let expected = user.join().expect("it doesn't panic")?;
        for child in children {
            assert!(child.join().expect("it doesn't panic")? == expected, "a child: other bits");
        }
        Ok(())
    })
}

/// Threads go backwards through one graph, again and again. A child goes through it, too, or is told where one of them was.
pub fn children_share_a_graph(device: &str) -> Outcome {
    let device = Device::new(device)?;
    let x = Tensor::full([8], 0.5, DType::F32, &device)?;
    x.requires_grad_(true)?;
    let mut y = x.clone();
    for _ in 0..30 {
        y = y.tanh()?.mul(&x)?;
    }
    let loss = y.sum(.., false)?;
    let (has_begun, begun) = mpsc::channel();
    for _ in 0..6 {
        let (loss, has_begun) = (loss.clone(), has_begun.clone());
        thread::spawn(move || while loss.backward_retain().is_ok() && has_begun.send(()).is_ok() {});
    }
    drop(has_begun); // if they all fail nobody waits for them
    // One in a hundred finds a thread of its parent at an op of the graph.
    for _ in 0..10 * CHILD_COUNT {
        begun.recv()?;
        let end = in_child(TIME_S_MAX, Leave::AtOnce, || match loss.backward_retain() {
            Ok(()) | Err(grad::Error::LostAtFork { .. }) => 0,
            // The gradient was being written.
            Err(grad::Error::Tensor(raddle::Error::Runtime(Error::LostAtFork { .. }))) => 0,
            Err(_) => 1,
        })?;
        assert_eq!(end, End::Code(0));
    }
    Ok(())
}

pub fn a_child_opens_devices(device: &str) -> Outcome {
    let device = Device::new(device)?;
    keep_busy(&device, 4);
    let expected = results(&device, 7)?;
    for number in 0..CHILD_COUNT / 2 {
        let found = from_child(number, || {
            let fresh = Device::new("sim:3")?;
            let on_threads = thread::scope(|scope| {
                let run = || results(&fresh, 7).map_err(|error| error.to_string());
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect::<Vec<_>>()
            });
            let first = results(&fresh, 7)?;
            for found in on_threads {
                assert!(found? == first, "a thread of the child: other bits");
            }
            assert!(fresh.close()?, "memory is still held");
            // The parent's, from threads of the child.
            let on_threads = thread::scope(|scope| {
                let run = || results(&device, 7).map_err(|error| error.to_string());
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().expect("it doesn't panic")).collect::<Vec<_>>()
            });
            for found in on_threads {
                assert!(found? == first, "a thread of the child on the parent's device: other bits");
            }
            Ok(first)
        })?;
        assert!(found == expected, "child {number}: other bits");
    }
    Ok(())
}

pub fn a_child_of_a_child(device: &str) -> Outcome {
    let device = Device::new(device)?;
    keep_busy(&device, 4);
    let expected = results(&device, 3)?;
    for number in 0..CHILD_COUNT / 2 {
        let found = from_child(number, || {
            let own = results(&device, 3)?;
            // A device of the child's, which the child's child must not use, and threads that are busy with it.
            let fresh = Device::new("sim:4")?;
            keep_busy(&fresh, 2);
            let found = from_child(number + 1, || {
                assert!(Tensor::ones([4], DType::F32, &fresh).is_err(), "the simulator is the child's");
                results(&device, 3)
            })?;
            assert!(own == found, "the child of the child: other bits");
            results(&device, 3)
        })?;
        assert!(found == expected, "child {number}: other bits");
    }
    Ok(())
}

pub fn a_child_of_a_child_trains(device: &str) -> Outcome {
    let device = Device::new(device)?;
    let mut model = Training::new(&device, 2)?;
    keep_busy(&device, 3);
    model.step()?;
    device.synchronize()?;
    let found = from_child(1, || {
        model.step()?;
        let found = from_child(1, || {
            model.step()?;
            model.bits()
        })?;
        model.step()?;
        assert!(model.bits()? == found, "the child of the child: other bits");
        Ok(found)
    })?;
    model.step()?;
    model.step()?;
    assert!(model.bits()? == found, "the child: other bits");
    Ok(())
}

/// A kernel that failed before the fork, on a thread of the CPU: whoever depends on it is told in the child as in the parent.
pub fn a_child_is_told_of_failures(device: &str) -> Outcome {
    let device = Device::new(device)?;
    let source = Tensor::ones([10], DType::F32, &device)?;
    let (good, bad) =
        (Tensor::from_slice(&[0i64, 9], [2], &device)?, Tensor::from_slice(&[0i64, 10], [2], &device)?);
    // A kernel that runs at once fails at once.
    let stream = Stream::from_pool(&device, Priority::High)?;
    let (held, guard) = (hold(stream)?, stream.enter());
    let (good, bad) = (source.gather(0, &good)?, source.gather(0, &bad)?);
    drop((held, guard));
    device.synchronize()?;
    let text = "index 10 (element 1 of the indices) is out of bounds";
    let is_told = |tensor: &Tensor| match tensor.add(1.0).and_then(|sum| sum.to_vec::<f32>()) {
        Err(error) => error.to_string().contains(text),
        Ok(_) => false,
    };
    keep_busy(&device, 3);
    for number in 0..CHILD_COUNT / 4 {
        from_child(number, || {
            assert!(is_told(&bad), "the child reads what has failed");
            assert_eq!(good.add(1.0)?.to_vec::<f32>()?, [2.0; 2]);
            // Written whole, it depends on nothing any more.
            bad.fill_(4.0)?;
            assert_eq!(bad.to_vec::<f32>()?, [4.0; 2]);
            Ok(Vec::new())
        })?;
    }
    assert!(is_told(&bad), "the parent reads what has failed");
    assert_eq!(good.to_vec::<f32>()?, [1.0; 2]);
    Ok(())
}

/// Each call tells a child that the device is the parent's, at once, and the parent goes on.
pub fn a_child_is_refused(device: &str) -> Outcome {
    let device = Device::new(device)?;
    let tensor = Tensor::ones([100], DType::F32, &device)?;
    let graph = device.capture(|| tensor.add(1.0))?;
    let (event, stream) = (Event::new(), Stream::from_pool(&device, Priority::Normal)?);
    event.record(stream);
    keep_busy(&device, 4);
    let expected = format!(
        "{}: used in a forked child, where only the CPU device works; open the device after the fork",
        device.name()
    );
    for number in 0..CHILD_COUNT {
        from_child(number, || {
            type Call<'a> = (&'a str, &'a dyn Fn() -> Result<(), raddle::Error>);
            let calls: [Call<'_>; 10] = [
                ("allocate", &|| Tensor::zeros([10], DType::F32, &device).map(drop)),
                ("write", &|| tensor.add_(1.0).map(drop)),
                ("read", &|| tensor.to_vec::<f32>().map(drop)),
                ("synchronize", &|| Ok(device.synchronize()?)),
                ("synchronize a stream", &|| Ok(stream.synchronize()?)),
                ("wait for a stream", &|| Ok(stream.wait_stream(Stream::default(&device)?)?)),
                ("capture", &|| device.capture(|| tensor.add(1.0)).map(drop)),
                ("replay", &|| graph.replay().map(drop)),
                ("read on a stream", &|| {
                    let _guard = stream.enter();
                    tensor.to_vec::<f32>().map(drop)
                }),
                ("close", &|| Ok(device.close().map(drop)?)),
            ];
            for (what, call) in calls {
                match call() {
                    Err(raddle::Error::Runtime(error @ Error::Forked { .. })) => {
                        assert_eq!(error.to_string(), expected, "{what}");
                    }
                    found => return Err(format!("{what}: expected a refusal, found {found:?}").into()),
                }
            }
            // These tell nothing, but they don't wait either.
            _ = (stream.query(), event.query(), device.memory_stats(), device.stream_stats());
            device.empty_cache();
            // The CPU goes on.
            drop((tensor.clone(), results(&Device::new("cpu")?, 1)?));
            Ok(Vec::new())
        })?;
        assert_eq!(tensor.add(1.0)?.to_vec::<f32>()?, [2.0; 100], "after child {number}");
    }
    Ok(())
}
