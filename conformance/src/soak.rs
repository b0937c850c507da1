//! Many threads on one device for a long time: every result is checked to the bit, and memory must be flat.
//!
//! Threads run a model whose weights they share, hand tensors to each other, copy batches up and down, read a buffer on
//! several streams and drop it, start threads that are gone at once; one of them trains. What is held, by the device and by
//! the process, is compared between the end of a warm-up and the end of the run: caches that have a bound have reached it by
//! then.

use crate::{races::Model, random::Random};
use raddle::{
    DType, Device, Event, Generator, Priority, Result, Stream, Tensor,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions},
};
use std::{
    collections::VecDeque,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What a soak is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads, one of which trains.
    pub threads: usize,
    /// How long.
    pub time: Duration,
    /// Names what is drawn.
    pub seed: u64,
}

/// What is held at a moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// In slabs of the device.
    pub reserved: usize,
    /// By the process; 0 where that can't be told.
    pub resident: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// As the device is named.
    pub device: String,
    /// Threads that ran.
    pub threads: usize,
    /// How long it took.
    pub seconds: f64,
    /// Things that threads did, each of several ops and a check.
    pub steps: u64,
    /// Ops that were put on streams.
    pub ops: u64,
    /// Steps that went wrong.
    pub errors: u64,
    /// The first of them in words.
    pub first_errors: Vec<String>,
    /// At each tenth of the time.
    pub samples: Vec<Held>,
    /// At the end of the warm-up.
    pub start: Held,
    /// At the end.
    pub end: Held,
}

/// The part of the time that is warm-up.
const WARM_UP: f64 = 0.2;
/// Memory may grow by so much after the warm-up: the deepest backlog of all threads comes when it comes (guess).
const GROWTH_RATIO_MAX: f64 = 1.1;
/// And by so much where little is held at all.
const GROWTH_BYTES_MAX: usize = 64 << 20;
/// No step for so long is a hang.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
/// A device that is lost fails every step from then on.
const ERROR_COUNT_MAX: u64 = 100;
const ERROR_TEXT_COUNT_MAX: usize = 5;
/// Tensors that are on their way from a thread to another.
const HANDED_COUNT_MAX: usize = 64;

impl Held {
    fn now(device: &Device) -> Held {
        // The second number: resident pages.
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        Held { reserved: device.memory_stats().reserved_bytes, resident: pages * 4096 }
    }
}

impl Report {
    /// Has memory stayed where it was?
    pub fn is_flat(&self) -> bool {
        let flat = |start: usize, end: usize| {
            end <= (start as f64 * GROWTH_RATIO_MAX) as usize || end <= start + GROWTH_BYTES_MAX
        };
        flat(self.start.reserved, self.end.reserved) && flat(self.start.resident, self.end.resident)
    }

    /// Nothing went wrong and memory is flat.
    pub fn is_good(&self) -> bool {
        self.errors == 0 && self.is_flat()
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let mut errors = String::new();
        for (index, error) in self.first_errors.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let text = error.replace('\\', "/").replace('"', "'").replace('\n', " ");
            write!(errors, "{comma}\"{text}\"").expect("a string takes any text");
        }
        let held = |held: Held| {
            format!("{{\"reserved_bytes\": {}, \"resident_bytes\": {}}}", held.reserved, held.resident)
        };
        format!(
            "{{\"device\": \"{}\", \"threads\": {}, \"seconds\": {:.1}, \"steps\": {}, \"ops\": {}, \"errors\": {}, \
             \"first_errors\": [{errors}], \"memory_start\": {}, \"memory_end\": {}, \"memory_tenths\": [{}], \"flat\": {}}}",
            self.device,
            self.threads,
            self.seconds,
            self.steps,
            self.ops,
            self.errors,
            held(self.start),
            held(self.end),
            self.samples.iter().map(|&sample| held(sample)).collect::<Vec<_>>().join(", "),
            self.is_flat()
        )
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        write!(
            f,
            "{}, {} threads, {:.0} s: {} ops in {} steps, {} errors; MiB on the device {:.1} to {:.1}, of the process \
             {:.0} to {:.0}: {}",
            self.device,
            self.threads,
            self.seconds,
            self.ops,
            self.steps,
            self.errors,
            mib(self.start.reserved),
            mib(self.end.reserved),
            mib(self.start.resident),
            mib(self.end.resident),
            if self.is_flat() { "flat" } else { "grown" }
        )
    }
}

/// What the threads share.
struct Shared<'a> {
    device: &'a Device,
    model: Model,
    /// Of each input.
    expected: Vec<Vec<u32>>,
    streams: Vec<Stream>,
    /// Full of one number each.
    handed: Mutex<VecDeque<(Tensor, f32)>>,
    steps: AtomicU64,
    errors: AtomicU64,
    first_errors: Mutex<Vec<String>>,
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a step says if it is wrong.
type Step = std::result::Result<(), String>;

fn all(what: &str, tensor: &Tensor, value: f32) -> Step {
    let found = tensor.to_vec::<f32>().map_err(|error| error.to_string())?;
    match found.iter().find(|found| **found != value) {
        None => Ok(()),
        Some(found) => Err(format!("{what}: expected {value} everywhere, found {found}")),
    }
}

impl Shared<'_> {
    fn filled(&self, size: usize, value: f32) -> Result<Tensor> {
        Tensor::full([size], value, DType::F32, self.device)
    }

    fn forward(&self, random: &mut Random) -> Step {
        let number = random.below(self.expected.len());
        let found = self.model.forward(number, self.device).map_err(|error| error.to_string())?;
        if found == self.expected[number] {
            Ok(())
        } else {
            Err(format!("forward: input {number} gives other bits"))
        }
    }

    /// Takes what another thread has made, checks it, goes on with it and hands it on; or makes something.
    fn hand_over(&self, random: &mut Random) -> Step {
        let taken = locked(&self.handed).pop_front();
        let (tensor, value) = match taken {
            Some((tensor, value)) if random.one_of(2) => return all("hand over", &tensor, value),
            Some(taken) => taken,
            None => (self.filled(1 + random.below(20_000), 1.0).map_err(|error| error.to_string())?, 1.0),
        };
        let chain = || -> Result<(Tensor, f32)> {
            let (mut chain, count) = (tensor, 1 + random.below(20));
            for _ in 0..count {
                chain = chain.add(1.0)?;
            }
            chain.mul_(0.5)?;
            Ok((chain, (value + count as f32) * 0.5))
        };
        let made = chain().map_err(|error| error.to_string())?;
        let mut handed = locked(&self.handed);
        if handed.len() < HANDED_COUNT_MAX {
            handed.push_back(made);
        }
        Ok(())
    }

    /// A batch up, two ops, and down again.
    fn transfer(&self, random: &mut Random) -> Step {
        let size = 1 + random.below(200_000);
        let value = random.below(1000) as f32;
        let run = || Tensor::from_vec(vec![value; size], [size], self.device)?.add(1.0)?.mul(2.0);
        all("transfer", &run().map_err(|error| error.to_string())?, 2.0 * (value + 1.0))
    }

    /// Read on other streams and dropped at once; whoever gets the memory writes to it.
    fn read_and_drop(&self, random: &mut Random) -> Step {
        let (value, size) = (random.below(1000) as f32, 1 + random.below(50_000));
        let run = |random: &mut Random| -> Result<(Vec<Tensor>, Tensor)> {
            let shared = self.filled(size, value)?;
            let mut reads = Vec::new();
            for _ in 0..1 + random.below(3) {
                let stream = *random.pick(&self.streams);
                let _guard = stream.enter();
                reads.push(shared.mul(2.0)?);
                if random.one_of(4) {
                    self.device.record_stream(shared.buffer(), stream)?;
                }
            }
            drop(shared);
            Ok((reads, self.filled(size, -1.0)?))
        };
        let (reads, reused) = run(random).map_err(|error| error.to_string())?;
        reads.iter().try_for_each(|read| all("read and drop", read, 2.0 * value))?;
        all("read and drop", &reused, -1.0)
    }

    fn event(&self, random: &mut Random) -> Step {
        let run = |random: &mut Random| -> Result<bool> {
            let (other, event) = (*random.pick(&self.streams), Event::new());
            let x = self.filled(1000, 1.0)?;
            x.add_(1.0)?;
            event.record(Stream::current(self.device)?);
            other.wait_event(&event)?;
            event.synchronize()?;
            Ok(event.query())
        };
        match run(random) {
            Ok(true) => Ok(()),
            Ok(false) => Err("event: not complete after it was waited for".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A thread that does one thing and is gone.
    fn short_thread(&self, random: &mut Random) -> Step {
        let mut random = Random::new(random.bits());
        let thread = std::thread::scope(|scope| scope.spawn(|| self.forward(&mut random)).join());
        thread.unwrap_or_else(|_| Err("a thread panicked".into()))
    }

    fn step(&self, random: &mut Random) -> Step {
        match random.below(32) {
            0..12 => self.forward(random),
            12..20 => self.hand_over(random),
            20..24 => self.transfer(random),
            24..29 => self.read_and_drop(random),
            29 | 30 => self.event(random),
            _ => self.short_thread(random),
        }
    }

    /// Steps until the time is up. A panic is an error as any other.
    fn steps(&self, mut step: impl FnMut() -> Step) {
        while !self.stop.load(Relaxed) {
            let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut step));
            if let Err(error) = stepped.unwrap_or_else(|_| Err("a step panicked".into())) {
                let mut first = locked(&self.first_errors);
                if first.len() < ERROR_TEXT_COUNT_MAX {
                    first.push(error);
                }
                if self.errors.fetch_add(1, Relaxed) + 1 >= ERROR_COUNT_MAX {
                    self.stop.store(true, Relaxed);
                }
            }
            self.steps.fetch_add(1, Relaxed);
        }
    }

    /// The thread that trains: a loss that isn't a number, or grows, is an error.
    fn train(&self, seed: u64) -> Step {
        let generator = Generator::new(seed);
        let make = || -> std::result::Result<_, Box<dyn std::error::Error>> {
            let options = AutoencoderOptions::new(64, 256, 8);
            let model = TopKAutoencoder::new(options, DType::F32, self.device, Some(&generator))?;
            let adam = Adam::new(model.parameters(), AdamOptions::default())?;
            Ok((model, adam, Tensor::randn([128, 64], DType::F32, self.device, &generator)?))
        };
        let (mut model, mut adam, x) = make().map_err(|error| error.to_string())?;
        let mut first = None;
        self.steps(|| {
            let step = || -> std::result::Result<f32, Box<dyn std::error::Error>> {
                Ok(model.train_step::<Box<dyn std::error::Error>>(&x, || Ok(adam.step()?))?.item::<f32>()?)
            };
            let loss = { step }().map_err(|error| error.to_string())?;
            let first = *first.get_or_insert(loss);
            if loss <= 1.5 * first {
                Ok(())
            } else {
                Err(format!("train: the loss is {loss}, it was {first}"))
            }
        });
        Ok(())
    }
}

/// Runs it. Ends the process with exit code 1 if nothing moves any more.
pub fn run(device: &Device, options: Options) -> Result<Report> {
    let model = Model::new(device)?;
    let expected = (0..16).map(|number| model.forward(number, device)).collect::<Result<_>>()?;
    let streams = (0..6)
        .map(|index| Stream::from_pool(device, if index == 0 { Priority::High } else { Priority::Normal }))
        .collect::<Result<_, _>>()?;
    let shared = &Shared {
        device,
        model,
        expected,
        streams,
        handed: Mutex::default(),
        steps: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        first_errors: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    let begin = Instant::now();
    let ops_before = device.stream_stats().ops;
    let (start, samples) = std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let mut random = Random::new(options.seed ^ (thread as u64) << 32);
            scope.spawn(move || {
                if thread == 0 {
                    // What can't even be made is the error of a step.
                    let mut trained = Some(shared.train(options.seed));
                    if trained.as_ref().is_some_and(std::result::Result::is_err) {
                        shared.steps(|| trained.take().unwrap_or(Ok(())));
                    }
                } else {
                    shared.steps(|| shared.step(&mut random));
                }
            });
        }
        let held = sample_memory(shared, begin, options.time);
        shared.stop.store(true, Relaxed);
        held
    });
    locked(&shared.handed).clear();
    // A device that is lost has been told of.
    _ = device.synchronize();
    Ok(Report {
        device: device.name().into(),
        threads: options.threads,
        seconds: begin.elapsed().as_secs_f64(),
        steps: shared.steps.load(Relaxed),
        ops: device.stream_stats().ops - ops_before,
        errors: shared.errors.load(Relaxed),
        first_errors: locked(&shared.first_errors).clone(),
        samples,
        start,
        end: Held::now(device),
    })
}

/// Until the time is up: what was held after the warm-up, and at each tenth of the time.
fn sample_memory(shared: &Shared<'_>, begin: Instant, time: Duration) -> (Held, Vec<Held>) {
    let mut start = None;
    let mut samples = Vec::new();
    let (mut steps, mut moved) = (0, Instant::now());
    while begin.elapsed() < time && !shared.stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100).min(time));
        if begin.elapsed() >= time.mul_f64(WARM_UP) {
            start.get_or_insert_with(|| Held::now(shared.device));
        }
        if begin.elapsed() >= (time / 10) * (samples.len() as u32 + 1) {
            samples.push(Held::now(shared.device));
        }
        let now = shared.steps.load(Relaxed);
        if now != steps {
            (steps, moved) = (now, Instant::now());
        } else if moved.elapsed() > STEP_TIME_MAX {
            println!("no step in {STEP_TIME_MAX:?}, after {steps}");
            std::process::exit(1);
        }
    }
    (start.unwrap_or_else(|| Held::now(shared.device)), samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soak(device: &Device) -> Report {
        run(device, Options { threads: 8, time: Duration::from_millis(500), seed: 1 }).unwrap()
    }

    #[test]
    fn a_short_soak_is_good() {
        for device in [Device::new("cpu").unwrap(), Device::new("sim:1").unwrap()] {
            let report = soak(&device);
            assert!(report.errors == 0 && report.steps > 8 && report.ops > report.steps, "{report:?}");
        }
    }

    #[test]
    fn growth_is_seen() {
        let mut report = soak(&Device::new("cpu").unwrap());
        report.start = Held { reserved: 1 << 30, resident: 1 << 30 };
        report.end = report.start;
        assert!(report.is_good());
        report.end.reserved += 200 << 20;
        assert!(!report.is_flat() && report.json().ends_with("\"flat\": false}"), "{}", report.json());
    }
}
