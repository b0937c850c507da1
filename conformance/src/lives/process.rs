//! How a process is told which life to live, and what keeps it busy.

use crate::training::{Outcome, Training};
use raddle::{DType, Device, Priority, Stream, Tensor};
use std::{sync::mpsc, thread, time::Duration};

/// They take seconds, on a machine that does other things tens of them. Against hangs only: that ends wait for nothing is checked
/// without a clock, by `exits` of the runtime.
pub const TIME_MAX: Duration = Duration::from_secs(180);
/// What makes this program live a life.
pub const LIFE: &str = "RADDLE_TEST_LIFE";

/// Threads that do all that a program does, until the process ends or the device won't any more. They are at it when this
/// returns.
pub fn keep_busy(device: &Device, thread_count: usize) {
    let (has_begun, begun) = mpsc::channel();
    for thread in 0..thread_count {
        let (device, has_begun) = (*device, has_begun.clone());
        thread::spawn(move || {
            // Errors are for those who are asked for results.
            while do_something(&device, thread).is_ok() {
                _ = has_begun.send(());
            }
        });
    }
    for _ in 0..2 * thread_count {
        begun.recv().expect("the threads go on");
    }
}

/// Allocates, draws, multiplies, changes streams, trains, opens devices, looks at what is held.
pub fn do_something(device: &Device, thread: usize) -> Outcome {
    let x = Tensor::randn([40, 40], DType::F32, device, None)?;
    let large = Tensor::full([100_000], thread as f64, DType::F32, device)?;
    {
        let _guard = Stream::from_pool(device, Priority::Normal)?.enter();
        large.add_(1.0)?;
    }
    let mut model = Training::new(device, thread as u64)?;
    model.step()?;
    Device::new("cpu")?.memory_stats();
    x.matmul(&x)?.sum(.., false)?.add(&large.sum(.., false)?)?.item::<f32>()?;
    Ok(())
}
