//! Loom models of the queues: the shipped code, with tasks that touch memory which loom watches for races.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p raddle-cpu --lib models`

use crate::queue::Queues;
use raddle_hal::{QueueId, Wait};
use raddle_sync::{
    Arc, UnsafeCell,
    faults::{Fault, plant},
    thread,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const Q0: QueueId = QueueId(0);
const Q1: QueueId = QueueId(1);

struct Model {
    /// A task is what it waits for.
    queues: Queues<Vec<Wait>>,
    /// How many tasks have run, on each queue. Not atomic: tasks of a queue exclude each other, and what they wrote is
    /// seen by whoever sees their number.
    ran: [UnsafeCell<u64>; 2],
}

// SAFETY: the cells are what the model is about; loom reports any access that isn't ordered.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    fn new() -> Arc<Model> {
        let model = Model { queues: Queues::new(2), ran: [UnsafeCell::new(0), UnsafeCell::new(0)] };
        model.queues.open(Q0, false);
        model.queues.open(Q1, false);
        Arc::new(model)
    }

    fn task(&self, queue: QueueId, sequence: u64) {
        self.ran[queue.0 as usize].with_mut(|ran| {
            // SAFETY: the queue runs one task at a time, and loom would tell.
            unsafe {
                assert_eq!(*ran + 1, sequence);
                *ran = sequence;
            }
        });
    }

    /// A task that came with waits.
    fn waited(&self, queue: QueueId, sequence: u64, waits: Vec<Wait>) {
        assert!(waits.iter().all(|wait| self.ran(wait.queue) >= wait.sequence), "a task before its waits");
        self.task(queue, sequence);
    }

    fn ran(&self, queue: QueueId) -> u64 {
        // SAFETY: read after the number has been seen, and loom would tell.
        self.ran[queue.0 as usize].with(|ran| unsafe { *ran })
    }

    fn submit(&self, queue: QueueId, sequence: u64, waits: &[Wait]) -> bool {
        let claimed = self.queues.claim(queue, sequence, waits);
        if !claimed {
            self.queues.push(queue, waits.iter().copied(), waits.to_vec());
        }
        claimed
    }

    fn run(&self, queue: QueueId, sequence: u64) {
        self.task(queue, sequence);
        self.queues.finish(queue, sequence);
    }

    fn synchronize(&self, queue: QueueId, sequence: u64) {
        self.queues.synchronize(queue, sequence, &|queue, sequence, waits| {
            self.waited(queue, sequence, waits);
        });
        assert!(self.ran(queue) >= sequence);
    }
}

fn worker(model: &Arc<Model>) -> thread::JoinHandle<()> {
    let model = model.clone();
    thread::spawn(move || model.queues.work(&|queue, sequence, waits| model.waited(queue, sequence, waits)))
}

/// Held by each test: a planted fault is seen by the whole process.
fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All interleavings with at most two preemptions: enough for each pair of updates to meet in each order.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!("{} executions", count.load(Relaxed));
}

/// A task arrives while the thread that runs its predecessor inline is finishing.
fn push_meets_finish() {
    let model = Model::new();
    assert!(model.submit(Q0, 1, &[]));
    let worker = worker(&model);
    let runner = {
        let model = model.clone();
        thread::spawn(move || model.run(Q0, 1))
    };
    if model.submit(Q0, 2, &[]) {
        model.run(Q0, 2);
    }
    model.synchronize(Q0, 2);
    model.queues.stop();
    runner.join().unwrap();
    worker.join().unwrap();
}

/// A queue parks on another one whose number is just being completed.
fn park_meets_completion() {
    let model = Model::new();
    assert!(model.submit(Q0, 1, &[]));
    let worker = worker(&model);
    let runner = {
        let model = model.clone();
        thread::spawn(move || model.run(Q0, 1))
    };
    if model.submit(Q1, 1, &[Wait { queue: Q0, sequence: 1 }]) {
        assert_eq!(model.ran(Q0), 1);
        model.run(Q1, 1);
    }
    model.synchronize(Q1, 1);
    assert_eq!(model.ran(Q0), 1, "what a task waited for is seen by whoever sees the task");
    model.queues.stop();
    runner.join().unwrap();
    worker.join().unwrap();
}

/// A task with a wait arrives while the worker that has run its predecessor finds nothing left.
fn push_meets_an_empty_list() {
    let model = Model::new();
    assert!(model.submit(Q0, 1, &[]));
    let worker = worker(&model);
    model.queues.push(Q1, [], Vec::new());
    // Another thread, so that this one's switches don't count among the preemptions.
    let submitter = {
        let model = model.clone();
        thread::spawn(move || {
            assert!(!model.submit(Q1, 2, &[Wait { queue: Q0, sequence: 1 }]));
            model.run(Q0, 1);
        })
    };
    submitter.join().unwrap();
    model.synchronize(Q1, 2);
    model.queues.stop();
    worker.join().unwrap();
}

/// A thread goes to sleep for a number that another thread is just completing.
fn sleep_meets_completion() {
    let model = Model::new();
    assert!(model.submit(Q0, 1, &[]));
    let runner = {
        let model = model.clone();
        thread::spawn(move || model.run(Q0, 1))
    };
    model.synchronize(Q0, 1);
    runner.join().unwrap();
}

#[test]
fn model_no_task_is_left_behind() {
    let _turn = one_at_a_time();
    check(push_meets_finish);
}

#[test]
fn model_no_parked_queue_is_left_behind() {
    let _turn = one_at_a_time();
    check(park_meets_completion);
}

#[test]
fn model_no_sleeper_is_left_behind() {
    let _turn = one_at_a_time();
    check(sleep_meets_completion);
}

#[test]
fn model_no_wait_is_left_out() {
    let _turn = one_at_a_time();
    check(push_meets_an_empty_list);
}

/// The planted fault: whoever found no head to wait for takes one that has come since, unseen.
#[test]
#[should_panic(expected = "Causality violation")]
fn fault_head_unseen() {
    let _turn = one_at_a_time();
    let _planted = plant(Fault::head_unseen);
    check(push_meets_an_empty_list);
}

/// The planted fault: whoever completes a number forgets who waits for it.
#[test]
#[should_panic(expected = "deadlock")]
fn fault_lost_wakeup() {
    let _turn = one_at_a_time();
    let _planted = plant(Fault::lost_wakeup);
    check(sleep_meets_completion);
}
