//! Random programs of many threads and streams, compared with running them in sequence on the host.
//!
//! A program is drawn from a seed while it runs: tensors are made, viewed, changed in place, read, dropped, handed over,
//! used on other streams; a `family` is a tensor with its views, and the same numbers in a plain list. Whenever a tensor
//! is read, and at the end, it must hold what the list holds, to the bit.
//!
//! - `in_turns`: one thread plays all of them, each with a stream of its own. Any op of any stream may follow any other
//!   of another, on the same memory; on the simulator a seed replays exactly.
//! - `in_threads`: threads for real. Between two hand-overs a family belongs to one thread, which may change it, or to
//!   nobody, and then all may read it; so the result is defined, and everything else is left to chance.
//! - `gradients`: threads that change one tensor in parts of their own, and the gradients of that.
//!
//! [`run`] opens the devices as a seed has it; [`on_device`] plays on one that is there, a GPU say.

mod family;
mod gradients;
mod step;
mod stop;

use crate::random::Random;
use family::{Families, Number};
use raddle::{Device, Error, Priority, Result, Stream};
use raddle::{OutOfMemory, SimOptions};
use std::{
    fmt,
    sync::{Barrier, Mutex, PoisonError, RwLock},
};
use step::Player;
use stop::Stop;

/// How large a program gets.
#[derive(Clone, Copy)]
struct Bounds {
    /// Threads, or streams of the one that plays them all.
    thread_count_max: usize,
    op_count_max: usize,
    /// How often what the threads own is dealt anew.
    round_count_max: usize,
    /// Now and then squares of [`LARGE`].
    large: bool,
}

const LONG: Bounds = Bounds { thread_count_max: 8, op_count_max: 200, round_count_max: 5, large: true };
/// So short that a million of them take minutes.
const SHORT: Bounds = Bounds { thread_count_max: 3, op_count_max: 12, round_count_max: 2, large: false };

/// How a program goes wrong.
#[derive(Debug)]
pub struct Wrong {
    /// The seed that shows it again.
    pub seed: u64,
    /// Which kind of program.
    pub kind: Kind,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, {:?}: {}", self.seed, self.kind, self.what)
    }
}

/// Kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `in_turns` on the simulator.
    Turns,
    /// `in_threads` on the simulator.
    SimThreads,
    /// `in_threads` on the CPU.
    CpuThreads,
    /// `in_turns` on a device that is there.
    DeviceTurns,
    /// `in_threads` on a device that is there.
    DeviceThreads,
    /// `in_turns` on the simulator, few ops of few streams.
    ShortTurns,
    /// `in_threads` on the simulator, few ops of few threads.
    ShortThreads,
    /// `gradients` of one thread that plays all, on the simulator.
    GradientTurns,
    /// `gradients` of threads on the simulator.
    GradientSimThreads,
    /// `gradients` of threads on the CPU.
    GradientCpuThreads,
    /// `gradients` of threads on a device that is there.
    GradientDevice,
}

impl Kind {
    /// Then the device may be told to be lost.
    fn is_in_turns(self) -> bool {
        matches!(self, Kind::Turns | Kind::ShortTurns)
    }
}

/// Runs the programs of a seed: in turns always, in threads now and then.
pub fn run(seed: u64) -> std::result::Result<(), Wrong> {
    run_kind(seed, Kind::Turns)?;
    if seed.is_multiple_of(4) {
        run_kind(seed, Kind::SimThreads)?;
    }
    if seed % 4 == 2 {
        run_kind(seed, Kind::CpuThreads)?;
    }
    run_kind(seed, Kind::GradientTurns)?;
    run_kind(seed, Kind::GradientSimThreads)?;
    run_kind(seed, Kind::GradientCpuThreads)
}

/// Runs the short program of a seed, one of four on real threads.
pub fn run_short(seed: u64) -> std::result::Result<(), Wrong> {
    run_kind(seed, if seed.is_multiple_of(4) { Kind::ShortThreads } else { Kind::ShortTurns })
}

/// Runs one program.
pub fn run_kind(seed: u64, kind: Kind) -> std::result::Result<(), Wrong> {
    run_observed(seed, kind, |_| ())
}

/// Runs one program; `observe` sees the device when all is done and dropped.
pub fn run_observed(seed: u64, kind: Kind, observe: impl FnOnce(&Device)) -> std::result::Result<(), Wrong> {
    let wrong = |what: String| Wrong { seed, kind, what };
    let mut random = Random::new(seed ^ (kind as u64 + 1) << 60);
    let fails = |error: Error| wrong(format!("the device can't be opened: {error}"));
    let device = match kind {
        Kind::CpuThreads | Kind::GradientCpuThreads => Device::cpu().map_err(fails)?,
        _ => Device::sim(options(seed, kind, &mut random)).map_err(fails)?,
    };
    let result = match kind {
        Kind::Turns => in_turns(&device, &mut random, LONG),
        Kind::ShortTurns => in_turns(&device, &mut random, SHORT),
        Kind::ShortThreads => in_threads(&device, &mut random, SHORT),
        Kind::GradientTurns => gradients::run(&device, &mut random, false),
        Kind::GradientSimThreads | Kind::GradientCpuThreads => gradients::run(&device, &mut random, true),
        _ => in_threads(&device, &mut random, LONG),
    };
    match result {
        Ok(()) => {}
        Err(Stop::Lost) if kind.is_in_turns() => {}
        Err(Stop::Lost) => return Err(wrong("the device was lost, though nobody told it to be".into())),
        Err(Stop::Wrong(what)) => return Err(wrong(what)),
    };
    observe(&device);
    if matches!(kind, Kind::CpuThreads | Kind::GradientCpuThreads) {
        return Ok(());
    }
    match device.close() {
        Ok(true) => Ok(()),
        Ok(false) => Err(wrong("memory is still held after everything was dropped".into())),
        Err(error) => Err(wrong(format!("close: {error}"))),
    }
}

/// Plays a program on a device that nobody else uses meanwhile: in turns, or on up to so many threads, if that is above 1.
pub fn on_device(device: &Device, seed: u64, thread_count_max: usize) -> std::result::Result<(), Wrong> {
    let kind = if thread_count_max > 1 { Kind::DeviceThreads } else { Kind::DeviceTurns };
    let mut random = Random::new(seed ^ (kind as u64 + 1) << 60);
    // As many ops for each thread, however many there are.
    let op_count_max = LONG.op_count_max * thread_count_max / LONG.thread_count_max;
    let result = match kind {
        Kind::DeviceTurns => in_turns(device, &mut random, LONG),
        _ => in_threads(device, &mut random, Bounds { thread_count_max, op_count_max, ..LONG }),
    };
    let result = result.and_then(|()| {
        let mut random = Random::new(seed ^ (Kind::GradientDevice as u64 + 1) << 60);
        gradients::run(device, &mut random, thread_count_max > 1)
    });
    device.set_memory_limit(usize::MAX);
    let what = match result {
        Ok(()) => return Ok(()),
        Err(Stop::Lost) => "the device is lost".into(),
        Err(Stop::Wrong(what)) => what,
    };
    Err(Wrong { seed, kind, what })
}

/// Faults on demand, in some of the programs each.
fn options(seed: u64, kind: Kind, random: &mut Random) -> SimOptions {
    let plain = SimOptions { seed, ..SimOptions::default() };
    if matches!(kind, Kind::GradientTurns | Kind::GradientSimThreads) {
        return plain; // a graph that lost an op half-way has no defined gradient
    }
    SimOptions {
        cut_probability: *random.pick(&[0.0, 0.5, 0.9]),
        slow_probability: *random.pick(&[0.0, 0.1, 0.3]),
        in_flight_count_max: *random.pick(&[2, 4, 32, 256]) as u64,
        needs_flush: random.one_of(4),
        out_of_memory: if random.one_of(4) { OutOfMemory::Rate(0.3) } else { OutOfMemory::Never },
        lose_after_count: (kind.is_in_turns() && random.one_of(16)).then(|| random.below(100) as u64 + 1),
        ..plain
    }
}

/// Streams of a program, normal and high, some of them shared.
fn streams(device: &Device, count: usize, random: &mut Random) -> Result<Vec<Stream>> {
    let mut streams: Vec<Stream> = Vec::new();
    for _ in 0..count {
        let stream = match random.below(8) {
            0 => Stream::default(device)?,
            1 => Stream::from_pool(device, Priority::High)?,
            2 if !streams.is_empty() => *random.pick(&streams),
            _ => Stream::from_pool(device, Priority::Normal)?,
        };
        streams.push(stream);
    }
    Ok(streams)
}

/// The side of the largest squares: their memory is cut from slabs, not kept in classes.
const LARGE: usize = 260;

/// The side of all squares of a program, and how many ops it may have.
fn size(bounds: Bounds, random: &mut Random) -> (usize, usize) {
    if bounds.large && random.one_of(12) {
        (LARGE, bounds.op_count_max / 3)
    } else {
        (*random.pick(&[1, 2, 3, 5, 8, 33]), bounds.op_count_max)
    }
}

/// One thread plays all.
fn in_turns(device: &Device, random: &mut Random, bounds: Bounds) -> std::result::Result<(), Stop> {
    let count = 2 + random.below(bounds.thread_count_max - 1);
    let streams = streams(device, count, random)?;
    let (size, op_count_max) = size(bounds, random);
    if size == LARGE {
        // So little that memory is given out again while it is still in use.
        device.set_memory_limit((2 + random.below(6)) << 20);
    }
    let mut floats = Families::<f32>::new(size);
    let mut integers = Families::<i64>::new(size);
    let ops = 1 + random.below(op_count_max);
    let mut player = Player::new(device, streams.clone(), true);
    for _ in 0..ops {
        let _guard = random.pick(&streams).enter();
        if random.one_of(2) {
            player.step(&mut floats, &Families::new(size), random)?;
        } else {
            player.step(&mut integers, &Families::new(size), random)?;
        }
    }
    let _guard = random.pick(&streams).enter();
    floats.check_all()?;
    integers.check_all()
}

/// What a thread owns between two hand-overs.
struct Hand {
    floats: Families<f32>,
    integers: Families<i64>,
}

impl Hand {
    fn new(size: usize) -> Hand {
        Hand { floats: Families::new(size), integers: Families::new(size) }
    }
}

/// Threads for real; they meet between rounds, and what they own is dealt anew.
fn in_threads(device: &Device, random: &mut Random, bounds: Bounds) -> std::result::Result<(), Stop> {
    let count = 2 + random.below(bounds.thread_count_max - 1);
    let (size, op_count_max) = size(bounds, random);
    let rounds = 2 + random.below(bounds.round_count_max - 1);
    let ops = 1 + random.below((op_count_max / (count * rounds)).max(1));
    let mut streams = streams(device, count, random)?;
    if random.one_of(3) {
        // All on one, or on two.
        let few = 1 + random.below(2);
        (few..count).for_each(|thread| streams[thread] = streams[thread % few]);
    }
    let own_stream = random.one_of(2);
    let hands: Vec<Mutex<Hand>> = (0..count).map(|_| Mutex::new(Hand::new(size))).collect();
    let shared = RwLock::new(Hand::new(size));
    let stop: Mutex<Option<Stop>> = Mutex::new(None);
    let barrier = Barrier::new(count);
    let seeds: Vec<u64> = (0..count).map(|_| random.bits()).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..count {
            let (hands, shared, stop, barrier, streams) = (&hands, &shared, &stop, &barrier, &streams);
            let mut random = Random::new(seeds[thread]);
            threads.push(scope.spawn(move || {
                // Some threads choose their stream, others are given one by the runtime.
                let _guard = own_stream.then(|| streams[thread].enter());
                let mut player = Player::new(device, streams.clone(), false);
                for _ in 0..rounds {
                    if barrier.wait().is_leader() {
                        deal(hands, shared, &mut random);
                    }
                    barrier.wait();
                    // After a failure the others are met at the barriers, but nothing is done.
                    if locked(stop).is_some() {
                        continue;
                    }
                    let read = shared.read().unwrap_or_else(PoisonError::into_inner);
                    let mut hand = locked(&hands[thread]);
                    let play = || {
                        (0..ops).try_for_each(|_| {
                            if random.one_of(2) {
                                player.step(&mut hand.floats, &read.floats, &mut random)
                            } else {
                                player.step(&mut hand.integers, &read.integers, &mut random)
                            }
                        })
                    };
                    // Whoever panics would leave the others at the barrier.
                    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
                    let failed = match played {
                        Ok(played) => played.err(),
                        Err(_) => Some(Stop::Wrong("a thread panicked".into())),
                    };
                    if let Some(failed) = failed {
                        locked(stop).get_or_insert(failed);
                    }
                }
            }));
        }
        // The scope alone would not wait for the thread-locals, in which free blocks are kept.
        threads.into_iter().for_each(|thread| thread.join().expect("panics are caught"));
    });
    if let Some(stop) = stop.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(stop);
    }
    let all = hands.into_iter().map(|hand| hand.into_inner().unwrap_or_else(PoisonError::into_inner));
    for hand in all.chain([shared.into_inner().unwrap_or_else(PoisonError::into_inner)]) {
        hand.floats.check_all()?;
        hand.integers.check_all()?;
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Deals all families anew: to the threads, or to all for reading.
fn deal(hands: &[Mutex<Hand>], shared: &RwLock<Hand>, random: &mut Random) {
    let mut shared = shared.write().unwrap_or_else(PoisonError::into_inner);
    fn gather<T: Number>(
        hands: &[Mutex<Hand>],
        shared: &mut Families<T>,
        of: fn(&mut Hand) -> &mut Families<T>,
        random: &mut Random,
    ) {
        let mut all = shared.take();
        hands.iter().for_each(|hand| all.extend(of(&mut locked(hand)).take()));
        for family in all {
            match random.below(hands.len() + 2) {
                place if place < hands.len() => of(&mut locked(&hands[place])).put(family),
                _ => shared.put(family),
            }
        }
    }
    let Hand { floats, integers } = &mut *shared;
    gather(hands, floats, |hand| &mut hand.floats, random);
    gather(hands, integers, |hand| &mut hand.integers, random);
}
