//! The batcher under loom: callers, a stop and the batcher's own threads in every order with a few preemptions. Requests are due
//! at once and have no end, as models have no time.

use super::*;
use raddle_sync::faults::{Fault, plant};
use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

type Answers = Batcher<u32, u32, ()>;

/// Runs `body` in every order. It must hold, or with a fault planted must be seen not to. What it asserts it does when all
/// threads have ended, so that nothing waits in a destructor for threads that loom doesn't run any more.
fn explore(name: &str, fault: Option<Fault>, preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _planted = fault.map(plant);
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let holds = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Relaxed);
            body();
        });
    }))
    .is_ok();
    let planted = fault.map_or("no fault", Fault::name);
    println!(
        "{name}, {planted}: {} executions, {preemptions} preemptions, holds: {holds}",
        count.load(Relaxed)
    );
    assert_eq!(holds, fault.is_none());
}

/// Doubles its items, and panics at 0.
fn start(running_count_max: usize, batch_count_max: usize, waiting_count_max: usize) -> Arc<Answers> {
    let options = Options {
        buckets_tokens: vec![1],
        batch_count_max,
        waiting_count_max,
        running_count_max,
        wait_max: Duration::ZERO,
        ..Options::default()
    };
    let handler = |batch: Batch<u32>| {
        if batch.items.contains(&0) {
            std::panic::resume_unwind(Box::new("planted")); // says nothing
        }
        batch.items.into_iter().map(|item| Ok(2 * item)).collect()
    };
    Arc::new(Batcher::start(options, handler).unwrap())
}

fn submit(batcher: &Answers, item: u32) -> Result<Answer<u32, u32, ()>, Rejected> {
    batcher.submit(item, Request::new(1))
}

/// The answer that is there now.
fn now(answer: Answer<u32, u32, ()>) -> Option<Result<u32, Error<()>>> {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// A small executor: sleeps until it is woken.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Sleeper(Mutex<bool>, Condvar);
    impl std::task::Wake for Sleeper {
        fn wake(self: std::sync::Arc<Self>) {
            *self.0.lock() = true;
            self.1.notify_one();
        }
    }
    let sleeper = std::sync::Arc::new(Sleeper(Mutex::new(Rank::Leaf, false), Condvar::new()));
    let waker = Waker::from(sleeper.clone());
    loop {
        if let Poll::Ready(output) = pin!(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_woken = sleeper.0.lock();
        while !std::mem::take(&mut *is_woken) {
            is_woken = sleeper.1.wait(is_woken);
        }
    }
}

/// Two callers get what they asked for, in one batch or in two; one blocks, the other is a future's executor.
fn two_callers(fault: Option<Fault>, preemptions: usize) {
    explore("two callers", fault, preemptions, || {
        let batcher = start(1, 2, 2);
        let other = {
            let batcher = batcher.clone();
            thread::spawn(move || submit(&batcher, 2).unwrap().wait())
        };
        let answer = block_on(submit(&batcher, 1).unwrap());
        let other = other.join().unwrap();
        batcher.stop();
        assert_eq!([answer, other], [Ok(2), Ok(4)]);
    });
}

/// Whoever changes the queue has a thread look at it, and so has one that leaves with a batch: two may run at once. Asked of
/// the books, as nobody could end the model who waits for ever; that the books are right is seen where callers wait.
fn watched(fault: Option<Fault>, preemptions: usize) {
    explore("the queue is watched", fault, preemptions, || {
        let batcher = start(2, 1, 2);
        batcher.pause();
        let answers = [1, 2].map(|item| submit(&batcher, item).unwrap());
        batcher.resume();
        let is_watched = || {
            let state = batcher.0.state.lock();
            state.looks_at <= state.scheduler.next_at()
        };
        let watched = [is_watched(), is_watched()];
        batcher.stop();
        assert_eq!(watched, [true, true]);
        assert_eq!(answers.map(now), [Some(Ok(2)), Some(Ok(4))]);
    });
}

/// A request that meets a stop is refused, or answered when the stop is over.
fn submit_races_stop(fault: Option<Fault>, preemptions: usize) {
    explore("submit races stop", fault, preemptions, || {
        let batcher = start(1, 2, 2);
        let other = {
            let batcher = batcher.clone();
            thread::spawn(move || submit(&batcher, 3))
        };
        batcher.stop();
        match other.join().unwrap() {
            Ok(answer) => assert_eq!(now(answer), Some(Ok(6))),
            Err(rejected) => assert_eq!(rejected, Rejected::Stopped),
        }
    });
}

/// The handler panics with one batch; whoever comes then is served.
fn handler_panics(fault: Option<Fault>, preemptions: usize) {
    explore("the handler panics", fault, preemptions, || {
        let batcher = start(1, 1, 2);
        let answers = [0, 1].map(|item| submit(&batcher, item).unwrap());
        batcher.stop();
        let panicked = Err(Error::Panicked { message: "planted".into() });
        assert_eq!(answers.map(now), [Some(panicked), Some(Ok(2))]);
    });
}

/// A caller goes while its batch begins, runs or answers. There is room for one request: the next one has it.
fn cancel_races_delivery(fault: Option<Fault>, preemptions: usize) {
    explore("cancel races delivery", fault, preemptions, || {
        let batcher = start(1, 1, 1);
        let gone = submit(&batcher, 1).unwrap();
        let other = thread::spawn(move || drop(gone));
        other.join().unwrap();
        let answer = submit(&batcher, 2);
        batcher.stop();
        let counts = batcher.counts();
        assert_eq!(answer.map(now), Ok(Some(Ok(4))));
        assert_eq!((counts.accepted_count, counts.run_count + counts.cancelled_count), (2, 2));
    });
}

#[test]
fn model_two_callers() {
    two_callers(None, 2);
}
#[test]
fn model_watched() {
    watched(None, 2);
}
#[test]
fn model_submit_races_stop() {
    submit_races_stop(None, 2);
}
#[test]
fn model_handler_panics() {
    handler_panics(None, 2);
}
#[test]
fn model_cancel_races_delivery() {
    cancel_races_delivery(None, 2);
}

#[test]
fn fault_answer_to_the_wrong_caller() {
    two_callers(Some(Fault::answer_to_the_wrong_caller), 2);
}
#[test]
fn fault_lost_batch_wakeup() {
    watched(Some(Fault::lost_batch_wakeup), 2);
}
#[test]
fn fault_leaves_unwatched() {
    watched(Some(Fault::leaves_unwatched), 2);
}
#[test]
fn fault_sleeps_through_stop() {
    handler_panics(Some(Fault::sleeps_through_stop), 2);
}
#[test]
fn fault_accepted_after_stop() {
    submit_races_stop(Some(Fault::accepted_after_stop), 2);
}
#[test]
fn fault_stuck_on_panic() {
    handler_panics(Some(Fault::stuck_on_panic), 2);
}
#[test]
fn fault_cancel_keeps_slot() {
    cancel_races_delivery(Some(Fault::cancel_keeps_slot), 2);
}
