//! Plays a script against a policy: a thread of its own for each of the trace.
//!
//! *In step*, event by event in the order of the trace: what is counted then is the policy's alone. *Free*, as fast as the
//! threads go: a block is used and freed after it was allocated, and freed after its uses; and no thread gets far ahead of
//! the slowest, as queues between threads would see to in the program that was recorded.

use super::{
    policy::Policy,
    script::{Action, Place, Script, Step},
};
use raddle_cli::{
    output::{Failure, Outcome},
    threads::start_threads,
};
use std::{
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*},
    },
    time::Instant,
};

/// How many events a thread may be ahead of the slowest.
const AHEAD_COUNT_MAX: usize = 1024; // guess
/// How often it looks, in events.
const LOOK_COUNT: usize = 64; // guess

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    InStep,
    Free,
}

#[repr(align(128))]
struct Progress(AtomicUsize);

struct Shared<B> {
    block: Mutex<Option<B>>,
    /// Uses that are to come before it may be freed.
    uses_left: AtomicU32,
}

struct Play<'a, P: Policy> {
    policy: &'a P,
    script: &'a Script,
    pace: Pace,
    shared: Vec<Shared<P::Block>>,
    /// The next event of each thread.
    progress: Vec<Progress>,
    /// The next event of all, in step.
    next: AtomicUsize,
    /// Somebody has failed: the others stop.
    stopped: AtomicBool,
    /// Held until all threads run.
    start: RwLock<()>,
}

/// Plays it once; how many seconds it took from the start of the first thread to the end of the last. Blocks that are live at
/// the end of the trace are freed after that.
pub fn play<P: Policy>(policy: &P, script: &Script, pace: Pace) -> Outcome<f64> {
    let shared = |&uses: &u32| Shared { block: Mutex::new(None), uses_left: AtomicU32::new(uses) };
    let play = Play {
        policy,
        script,
        pace,
        shared: script.shared_uses.iter().map(shared).collect(),
        progress: script.threads.iter().map(|_| Progress(AtomicUsize::new(0))).collect(),
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        start: RwLock::new(()),
    };
    let times = std::thread::scope(|scope| {
        let play = &play;
        let held = play.start.write().unwrap_or_else(PoisonError::into_inner);
        let threads =
            start_threads(scope, "replay", script.threads.len(), |index| move || play.thread(index))
                .inspect_err(|_| play.stopped.store(true, Release));
        drop(held);
        let joined = threads?.into_iter().map(|thread| match thread.join() {
            Ok(times) => times,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Outcome<Vec<_>>>()
    })?;
    for shared in play.shared {
        let left = shared.block.into_inner().unwrap_or_else(PoisonError::into_inner);
        left.into_iter().for_each(|block| policy.free(block));
    }
    (0..script.stream_count).try_for_each(|stream| policy.synchronize(stream as u8))?;
    let start = times.iter().map(|time| time.0).min();
    let end = times.iter().map(|time| time.1).max();
    Ok(start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64()))
}

impl<P: Policy> Play<'_, P> {
    /// When it started and ended.
    fn thread(&self, index: usize) -> Outcome<(Instant, Instant)> {
        let mut own: Vec<Option<P::Block>> = (0..self.script.own_counts[index]).map(|_| None).collect();
        drop(self.start.read().unwrap_or_else(PoisonError::into_inner));
        if self.stopped.load(Acquire) {
            return Err(stopped());
        }
        let start = Instant::now();
        let played = self.steps(index, &mut own);
        let end = Instant::now();
        self.progress[index].0.store(usize::MAX, Release);
        if played.is_err() {
            self.stopped.store(true, Release);
        }
        own.into_iter().flatten().for_each(|block| self.policy.free(block));
        played.map(|()| (start, end))
    }

    fn steps(&self, index: usize, own: &mut [Option<P::Block>]) -> Outcome {
        let mut stream = 0;
        for (count, &Step { event, action }) in self.script.threads[index].iter().enumerate() {
            let event = event as usize;
            match self.pace {
                Pace::InStep => self.wait(|| self.next.load(Acquire) == event)?,
                Pace::Free if count % LOOK_COUNT == 0 && self.progress.len() > 1 => {
                    self.progress[index].0.store(event, Release);
                    let slowest = || self.progress.iter().map(|other| other.0.load(Acquire)).min();
                    self.wait(|| {
                        slowest().is_none_or(|slowest| event <= slowest.saturating_add(AHEAD_COUNT_MAX))
                    })?;
                }
                Pace::Free => {}
            }
            if let Action::Enter(entered) = action {
                self.policy.enter(entered);
                stream = entered;
                continue; // of the same event as the next step
            }
            self.step(index, event, action, stream, own)?;
            if self.pace == Pace::InStep {
                self.next.store(event + 1, Release);
            }
        }
        Ok(())
    }

    fn step(
        &self,
        index: usize,
        event: usize,
        action: Action,
        stream: u8,
        own: &mut [Option<P::Block>],
    ) -> Outcome {
        let shared = |place: u32| {
            let shared = &self.shared[place as usize];
            (shared, shared.block.lock().unwrap_or_else(PoisonError::into_inner))
        };
        // What another thread has to do first comes earlier in the trace, so the slowest thread never waits.
        let wait = |is_done: &dyn Fn() -> bool| -> Outcome {
            if !is_done() {
                self.progress[index].0.store(event, Release);
                self.wait(is_done)?;
            }
            Ok(())
        };
        match action {
            Action::Enter(_) => {}
            Action::Allocate { size_bytes, place } => {
                let block = self.policy.allocate(size_bytes, stream)?;
                match place {
                    Place::Own(place) => own[place as usize] = Some(block),
                    Place::Shared(place) => *shared(place).1 = Some(block),
                }
            }
            Action::Use(Place::Own(place)) => {
                let block = own[place as usize].as_ref().ok_or_else(impossible)?;
                self.policy.note_use(block, stream)?;
            }
            Action::Use(Place::Shared(place)) => {
                wait(&|| shared(place).1.is_some())?;
                let (shared, block) = shared(place);
                self.policy.note_use(block.as_ref().ok_or_else(impossible)?, stream)?;
                shared.uses_left.fetch_sub(1, Release); // pairs with the Acquire below
            }
            Action::Free(Place::Own(place)) => {
                self.policy.free(own[place as usize].take().ok_or_else(impossible)?);
            }
            Action::Free(Place::Shared(place)) => {
                let is_ready = || {
                    let (shared, block) = shared(place);
                    block.is_some() && shared.uses_left.load(Acquire) == 0
                };
                wait(&is_ready)?;
                let block = shared(place).1.take();
                self.policy.free(block.ok_or_else(impossible)?);
            }
            Action::Synchronize(stream) => self.policy.synchronize(stream)?,
        }
        Ok(())
    }

    fn wait(&self, is_done: impl Fn() -> bool) -> Outcome {
        let mut turns = 0;
        while !is_done() {
            if self.stopped.load(Acquire) {
                return Err(stopped());
            }
            turns += 1;
            if turns > 64 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

fn stopped() -> Failure {
    Failure::Other("replay: another thread has failed".into())
}

fn impossible() -> Failure {
    Failure::Other("replay: a block isn't where the trace has put it".into())
}
