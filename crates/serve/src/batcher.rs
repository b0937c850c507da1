//! The scheduler on threads.
//!
//! **Threads.** There is one more than may run batches at once, so that one always watches: for requests that are due, and for
//! those that expire while all others run. A thread runs what it finds, and so no batch is handed from thread to thread.
//!
//! **No wake-up is lost.** `looks_at` is a time by which some thread looks at the queue: the one that sleeps until then, or one
//! that has been called. Whoever changes the queue compares it, under the lock, with the time at which there is something to
//! do, and calls a thread if that is earlier. A thread that leaves, with a batch, does the same for what it leaves behind.
//!
//! **No future is stuck.** A request is accepted and put into the queue under one lock, or refused. From there its promise goes to
//! the thread that runs its batch. Threads leave when the scheduler is stopped and nothing waits. Should one die of an error of
//! ours, it stops the batcher and drops what waits. A promise that is dropped answers.
//!
//! **A handler that panics** costs the requests of its batch, and nothing else. No lock is held while code of others runs: handlers,
//! wakers, destructors of items and results.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::{
    Counts, Decision, Error, Options, Rejected, Request, Scheduler, StartError, Ticket,
    promise::{Outcome, Promise, Slot, contained},
};
use raddle_sync::{
    Arc, Condvar, Mutex, MutexGuard, Rank, fault,
    thread::{self, JoinHandle},
};
use std::{
    any::Any,
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// What a handler is given.
#[derive(Debug)]
pub struct Batch<T> {
    /// At least one, in the order of their priority and arrival.
    pub items: Vec<T>,
    /// What to pad to: the length of their bucket.
    pub length_tokens: usize,
}

struct Job<T, R, E> {
    item: T,
    promise: Promise<R, E>,
    begin_within: Option<Duration>,
}

struct State<T, R, E> {
    scheduler: Scheduler,
    /// Those that wait.
    jobs: HashMap<Ticket, Job<T, R, E>>,
    /// Some thread looks by then; see the module.
    looks_at: Duration,
    threads: Vec<JoinHandle<()>>,
    /// Threads that have not ended.
    thread_count: usize,
}

struct Queue<T, R, E> {
    state: Mutex<State<T, R, E>>,
    /// Signalled when there may be something to do before `looks_at`.
    changed: Condvar,
    /// Signalled when the last thread has ended.
    ended: Condvar,
    start: Instant,
    process: u32,
}

/// Runs requests in batches; see the crate. All methods may be called from any thread. Dropping it stops it, and so blocks.
///
/// A forked child has none of its threads. There it refuses requests and holds nothing; other methods do nothing.
pub struct Batcher<T, R, E>(Arc<Queue<T, R, E>>);

impl<T: Send + 'static, R: Send + 'static, E: Send + 'static> Batcher<T, R, E> {
    /// Starts `running_count_max` threads to run `handler`, and one more, which are named `raddle-batcher`. The handler makes a
    /// result for each item, in the order of the items; it may submit, but not wait for an answer.
    ///
    /// Errors: [`StartError`]; no thread is left.
    pub fn start(
        options: Options,
        handler: impl Fn(Batch<T>) -> Vec<Result<R, E>> + Send + Sync + 'static,
    ) -> Result<Batcher<T, R, E>, StartError> {
        let thread_count = options.running_count_max.saturating_add(1);
        let state = State {
            scheduler: Scheduler::new(options)?,
            jobs: HashMap::new(),
            looks_at: Duration::MAX,
            threads: Vec::new(),
            thread_count: 0,
        };
        let batcher = Batcher(Arc::new(Queue {
            state: Mutex::new(Rank::Leaf, state),
            changed: Condvar::new(),
            ended: Condvar::new(),
            start: Instant::now(),
            process: std::process::id(),
        }));
        let handler = Arc::new(handler);
        for _ in 0..thread_count {
            let worker = Worker(batcher.0.clone());
            let handler = handler.clone();
            worker.0.state.lock().thread_count += 1;
            let builder = thread::Builder::new().name("raddle-batcher".into());
            // If it fails, it has dropped the worker, and the batcher joins those that there are.
            let thread = builder.spawn(move || worker.work(&*handler)).map_err(StartError::Thread)?;
            batcher.0.state.lock().threads.push(thread);
        }
        Ok(batcher)
    }
}

impl<T, R, E> Batcher<T, R, E> {
    /// Puts a request into the queue. Doesn't block.
    ///
    /// Errors: [`Rejected`]; the item is dropped.
    pub fn submit(&self, item: T, request: Request) -> Result<Answer<T, R, E>, Rejected> {
        let queue = &self.0;
        let slot = Arc::new(Slot::new());
        let job = Job { item, promise: Promise(slot.clone()), begin_within: request.begin_within };
        let Some(mut state) = queue.lock() else { return Err(Rejected::Forked) };
        let submitted = state.scheduler.submit(queue.start.elapsed(), request);
        let ticket = match submitted {
            Ok(ticket) => ticket,
            Err(rejected) => {
                drop(state); // before the job
                return Err(rejected);
            }
        };
        state.jobs.insert(ticket, job);
        queue.call(&mut state);
        drop(state);
        Ok(Answer { slot, queue: queue.clone(), ticket })
    }

    /// Lets no batch begin until it is resumed or stopped; those that run go on. Requests are still accepted, up to the limit,
    /// and expire. Doesn't block.
    pub fn pause(&self) {
        if let Some(mut state) = self.0.lock() {
            state.scheduler.pause();
        }
    }

    /// Ends a pause. Doesn't block.
    pub fn resume(&self) {
        if let Some(mut state) = self.0.lock() {
            state.scheduler.resume();
            self.0.call(&mut state);
        }
    }

    /// Accepts no more, runs what waits, and blocks until all of it is answered and the threads have ended; also when another
    /// thread has stopped it before. Called by the handler it doesn't wait, as that would be for itself.
    pub fn stop(&self) {
        self.0.stop(false);
    }

    /// As [`Batcher::stop`], but what waits is not run: it is answered with [`Error::Stopped`], and counts as cancelled. Blocks
    /// until the batches that run are over.
    pub fn stop_at_once(&self) {
        self.0.stop(true);
    }

    /// Does it accept no more? It has been stopped, has stopped itself as a thread of its own ended, or is a parent's.
    /// Doesn't block.
    pub fn is_stopped(&self) -> bool {
        self.0.lock().is_none_or(|state| state.scheduler.is_stopped())
    }

    /// What it holds and has done, all at one moment. Doesn't block.
    pub fn counts(&self) -> Counts {
        self.0.lock().map_or_else(Counts::default, |state| state.scheduler.counts())
    }
}

impl<T, R, E> Drop for Batcher<T, R, E> {
    fn drop(&mut self) {
        self.0.stop(false);
    }
}

impl<T, R, E> fmt::Debug for Batcher<T, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

/// The answer to a request: a future, on any executor, or to be waited for. It is ready at the latest when the batcher has
/// stopped. Dropping it takes the request back if it has not begun, and makes its room free; else its result is dropped.
/// In a forked child it is [`Error::Forked`].
#[must_use = "dropping it takes the request back"]
pub struct Answer<T, R, E> {
    slot: Arc<Slot<R, E>>,
    queue: Arc<Queue<T, R, E>>,
    ticket: Ticket,
}

impl<T, R, E> Answer<T, R, E> {
    /// Blocks until there is an answer. Not to be called by the handler of the same batcher: it may wait for itself.
    pub fn wait(self) -> Outcome<R, E> {
        if self.queue.is_forked() {
            return Err(Error::Forked);
        }
        self.slot.wait()
    }

    /// Blocks until there is an answer, but at most for `limit`; `None` if there is none by then, and it can be waited for
    /// again. Once it has given the answer, it gives [`Error::Taken`]. Not for handlers, as [`Answer::wait`].
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Outcome<R, E>> {
        if self.queue.is_forked() {
            return Some(Err(Error::Forked));
        }
        self.slot.wait_timeout(limit)
    }
}

impl<T, R, E> Future for Answer<T, R, E> {
    type Output = Outcome<R, E>;

    /// Polled again after it was ready, it is [`Error::Taken`].
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<R, E>> {
        if self.queue.is_forked() {
            return Poll::Ready(Err(Error::Forked));
        }
        self.slot.poll(context)
    }
}

impl<T, R, E> Drop for Answer<T, R, E> {
    fn drop(&mut self) {
        if !self.queue.is_forked() && !self.slot.is_answered() {
            self.queue.withdraw(self.ticket);
        }
    }
}

impl<T, R, E> fmt::Debug for Answer<T, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({:?})", self.ticket)
    }
}

impl<T, R, E> Queue<T, R, E> {
    /// Is this a child of the process that has the threads? A lock may be held there for ever, by one of them.
    fn is_forked(&self) -> bool {
        fault!(child_waits_for_batch => return false);
        std::process::id() != self.process
    }

    fn lock(&self) -> Option<MutexGuard<'_, State<T, R, E>>> {
        (!self.is_forked()).then(|| self.state.lock())
    }

    /// Calls a thread if there is something to do before one looks.
    fn call(&self, state: &mut State<T, R, E>) {
        let mut is_early = state.scheduler.next_at() < state.looks_at;
        fault!(lost_batch_wakeup => is_early = false);
        if is_early {
            state.looks_at = Duration::ZERO;
            self.changed.notify_one();
        }
    }

    /// The caller has gone. Of a request that has begun, the result is dropped when it is there.
    fn withdraw(&self, ticket: Ticket) {
        let Some(mut state) = self.lock() else { return };
        fault!(cancel_keeps_slot => return);
        let is_withdrawn = state.scheduler.cancel(ticket);
        let job = if is_withdrawn { state.jobs.remove(&ticket) } else { None };
        drop(state);
        drop(job);
    }

    fn stop(&self, at_once: bool) {
        let Some(mut state) = self.lock() else { return };
        state.scheduler.stop();
        let dropped = if at_once { state.abandon() } else { Vec::new() };
        self.changed.notify_all();
        drop(state);
        drop(dropped);
        let mut state = self.state.lock();
        let here = thread::current().id();
        if state.threads.iter().any(|thread| thread.thread().id() == here) {
            return;
        }
        while state.thread_count > 0 {
            state = self.ended.wait(state);
        }
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

impl<T, R, E> State<T, R, E> {
    /// Takes all that waits out of the queue.
    fn abandon(&mut self) -> Vec<Job<T, R, E>> {
        let tickets: Vec<Ticket> = self.jobs.keys().copied().collect();
        tickets.iter().for_each(|ticket| _ = self.scheduler.cancel(*ticket));
        self.take(&tickets)
    }

    fn take(&mut self, tickets: &[Ticket]) -> Vec<Job<T, R, E>> {
        let take = |ticket| self.jobs.remove(ticket).expect("a ticket that waits has a job");
        tickets.iter().map(take).collect()
    }
}

/// A thread's part in the queue, from before it is spawned until it has ended.
struct Worker<T, R, E>(Arc<Queue<T, R, E>>);

impl<T, R, E> Worker<T, R, E> {
    fn work(&self, handler: &dyn Fn(Batch<T>) -> Vec<Result<R, E>>) {
        let queue = &*self.0;
        let mut state = queue.state.lock();
        loop {
            let now = queue.start.elapsed();
            state = match state.scheduler.next(now) {
                Decision::Run(planned) => {
                    let jobs = self.leave(state, &planned.tickets);
                    contained(|| run(handler, planned.length_tokens, jobs));
                    let mut state = queue.state.lock();
                    state.scheduler.finished(planned);
                    state
                }
                Decision::Expired(tickets) => {
                    let jobs = self.leave(state, &tickets);
                    let expire = |job: Job<T, R, E>| {
                        let begin_within = job.begin_within.unwrap_or_default();
                        job.promise.answer(Err(Error::Expired { begin_within }));
                    };
                    jobs.into_iter().for_each(|job| contained(|| expire(job)));
                    queue.state.lock()
                }
                Decision::WaitUntil(at) => {
                    state.looks_at = at;
                    queue.changed.wait_timeout(state, at.saturating_sub(now)).0
                }
                Decision::Idle => {
                    state.looks_at = Duration::MAX;
                    queue.changed.wait(state)
                }
                Decision::Stopped => {
                    // The others may sleep: when they looked, something was left that couldn't run yet.
                    if !fault!(sleeps_through_stop) {
                        queue.changed.notify_all();
                    }
                    return;
                }
            };
        }
    }

    /// Takes these out of the queue, and leaves it to another thread.
    fn leave(&self, mut state: MutexGuard<'_, State<T, R, E>>, tickets: &[Ticket]) -> Vec<Job<T, R, E>> {
        let jobs = state.take(tickets);
        state.looks_at = Duration::MAX;
        if !fault!(leaves_unwatched) {
            self.0.call(&mut state);
        }
        jobs
    }
}

impl<T, R, E> Drop for Worker<T, R, E> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.thread_count -= 1;
        let is_last = state.thread_count == 0;
        let mut left = Vec::new();
        if is_last || std::thread::panicking() {
            state.scheduler.stop();
            left = state.abandon();
            self.0.changed.notify_all();
        }
        if is_last {
            self.0.ended.notify_all();
        }
        drop(state);
        drop(left);
    }
}

/// Runs a batch and answers each of its requests.
fn run<T, R, E>(
    handler: &dyn Fn(Batch<T>) -> Vec<Result<R, E>>,
    length_tokens: usize,
    jobs: Vec<Job<T, R, E>>,
) {
    let (items, mut promises): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.item, job.promise)).unzip();
    if fault!(answer_to_the_wrong_caller) {
        promises.rotate_left(1);
    }
    let expected_count = promises.len();
    match catch_unwind(AssertUnwindSafe(|| handler(Batch { items, length_tokens }))) {
        Ok(results) if results.len() == expected_count => {
            let answers = promises.into_iter().zip(results);
            answers.for_each(|(promise, result)| promise.answer(result.map_err(Error::Handler)));
        }
        Ok(results) => {
            let found_count = results.len();
            fail(promises, || Error::ResultCount { expected_count, found_count });
        }
        Err(panic) => {
            fault!(stuck_on_panic => return std::mem::forget(promises));
            let message = message(&*panic);
            fail(promises, || Error::Panicked { message: message.to_string() });
            contained(|| drop(panic));
        }
    }
}

fn fail<R, E>(promises: Vec<Promise<R, E>>, error: impl Fn() -> Error<E>) {
    promises.into_iter().for_each(|promise| promise.answer(Err(error())));
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "without a text",
    }
}
