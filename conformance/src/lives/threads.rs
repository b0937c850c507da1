//! Threads that are gone at once.

use crate::training::Outcome;
use raddle::{DType, Device, Priority, Stream, Tensor};
use std::{fs, thread};

/// What the process holds: its threads, and resident KiB.
fn held() -> Outcome<(usize, usize)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let number = |name: &str| -> Option<usize> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    number("Threads:").zip(number("VmRSS:")).ok_or_else(|| "no such lines in /proc/self/status".into())
}

/// A life of a thread: bound by its first op, on another stream for a while, with memory in flight when it ends.
fn live_shortly(device: &Device, number: usize) -> raddle::Result<f32> {
    let x = Tensor::full([1 + number % 500], 1, DType::F32, device)?;
    let sum = {
        let _guard = Stream::from_pool(device, Priority::High)?.enter();
        x.add(&Tensor::rand([1], DType::F32, device, None)?.floor()?)?.sum(.., false)?
    };
    Tensor::ones([5000], DType::F32, device)?.exp_()?;
    sum.item::<f32>()
}

/// 10,000 threads on a device, fewer on a simulator, a few at a time: no stream is kept, no memory, no thread of the system.
pub fn come_and_go(name: &str) -> Outcome {
    /// The heap's own (guess); what each thread left would be 10,000 times as much as it has.
    const GROWTH_KIB_MAX: usize = 32 << 10;
    const AT_ONCE: usize = 8;
    let device = Device::new(name)?;
    let round_count = if name.starts_with("sim") { 50 } else { 10_000 / AT_ONCE };
    let mut start = None;
    for round in 0..round_count {
        thread::scope(|scope| {
            let live = |number| live_shortly(&device, number).map_err(|error| error.to_string());
            let threads: Vec<_> = (0..AT_ONCE)
                .map(|thread| round * AT_ONCE + thread)
                .map(|number| (number, scope.spawn(move || live(number))))
                .collect();
            for (number, thread) in threads {
                let found = thread.join().expect("it doesn't panic")?;
                assert_eq!(found, (1 + number % 500) as f32, "thread {number}");
            }
            Ok::<_, String>(())
        })?;
        if round == round_count / 5 {
            device.synchronize()?;
            start = Some((held()?.1, device.memory_stats().reserved_bytes));
        }
    }
    device.synchronize()?;
    let (kib, reserved_bytes) = start.ok_or("too few rounds")?;
    let (thread_count, kib_end) = held()?;
    // Of the CPU, as many workers as cores and as many helpers; some of a driver.
    let own_count_max = 2 * thread::available_parallelism()?.get() + 16;
    assert_eq!(device.stream_users().iter().sum::<u32>(), 0, "threads that ended are on streams");
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    assert!(thread_count <= own_count_max, "{thread_count} threads of the system");
    assert!(kib_end <= kib + GROWTH_KIB_MAX, "{kib} KiB grew to {kib_end}");
    let end = device.memory_stats().reserved_bytes;
    assert!(end <= reserved_bytes + (4 << 20), "{reserved_bytes} reserved bytes grew to {end}");
    // The main thread has used nothing of its own: all memory is in the centre, and goes back.
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 0, "memory went with a thread");
    Ok(())
}
