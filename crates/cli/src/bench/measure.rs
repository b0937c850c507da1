//! How a row is measured: warm-up, as many ops as fill a tenth of a second, repeats; the median stands.

use crate::output::Outcome;
use raddle::{Device, Result, Stream};
use std::{sync::Barrier, time::Instant};

/// How often a row is measured.
const REPEAT_COUNT: usize = 7;
const REPEAT_SECONDS: f64 = 0.1;

/// Seconds an op, one number for each repeat. `run(count)` puts `count` ops on the current stream.
pub fn alone(device: &Device, mut run: impl FnMut(usize) -> Result<()>) -> Outcome<Vec<f64>> {
    let mut time = |count: usize| -> Result<f64> {
        let start = Instant::now();
        run(count)?;
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64())
    };
    time(1)?;
    let mut count = 1;
    loop {
        let seconds = time(count)?;
        if seconds >= REPEAT_SECONDS / 2.0 {
            break;
        }
        // At most tenfold: a first run is slower than those to come.
        count = (10 * count).min((count as f64 * REPEAT_SECONDS / seconds) as usize + 1);
    }
    let repeats = (0..REPEAT_COUNT).map(|_| Ok(time(count)? / count as f64));
    Ok(repeats.collect::<Result<_>>()?)
}

/// Waits for what this thread has put on its stream.
fn done(device: &Device) -> Result<()> {
    Ok(Stream::current(device)?.synchronize()?)
}

/// Seconds an op on several threads that start on a barrier: total wall time / total ops. `make` is called on each thread
/// and returns what `run` is for [`alone`].
pub fn together<R: FnMut(usize) -> Result<()>>(
    device: &Device,
    threads: usize,
    make: impl Fn(usize) -> Result<R> + Sync,
) -> Outcome<Vec<f64>> {
    if threads == 1 {
        return alone(device, make(0)?);
    }
    // As many ops as one thread alone does in the time, shared out: all threads together then take about as long.
    let mut count = 64;
    loop {
        let mut run = make(0)?;
        let start = Instant::now();
        run(count)?;
        done(device)?;
        let seconds = start.elapsed().as_secs_f64();
        if seconds >= REPEAT_SECONDS / 8.0 || count > 1 << 22 {
            break;
        }
        count *= 4;
    }
    let barrier = Barrier::new(threads);
    let thread = |index: usize| -> Result<Vec<f64>> {
        let mut run = make(index);
        let mut seconds = Vec::new();
        let mut failed = None;
        for _ in 0..=REPEAT_COUNT {
            barrier.wait();
            let start = Instant::now();
            // Whoever fails goes on to the barriers, where the others are.
            if let (Ok(run), None) = (&mut run, &failed) {
                failed = run(count).and_then(|()| done(device)).err();
            }
            barrier.wait();
            seconds.push(start.elapsed().as_secs_f64() / (count * threads) as f64);
        }
        run?;
        seconds.remove(0); // warm-up
        failed.map_or(Ok(seconds), Err)
    };
    let seconds = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|index| scope.spawn(move || thread(index))).collect();
        let own = thread(0);
        // Of those that failed, one is enough; a panic has said what it is about.
        others.into_iter().fold(own, |all, other| match other.join() {
            Ok(Ok(_)) => all,
            Ok(Err(error)) => Err(error),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    device.synchronize().map_err(raddle::Error::from)?;
    Ok(seconds)
}
