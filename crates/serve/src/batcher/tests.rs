//! The batcher on threads. Gates order what happens; nothing sleeps.

use super::*;
use crate::Priority;
use raddle_runtime::process::{End, Leave, in_child};
use raddle_sync::faults::{self, Fault, assert_caught};
use std::{
    pin::pin,
    sync::{
        atomic::{AtomicUsize, Ordering::*},
        mpsc,
    },
    task::{Context, Poll, Waker},
};

type Answers = Batcher<u64, u64, String>;

/// What the handler makes of an item, so that a mix-up shows.
fn expected(item: u64) -> u64 {
    item.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 7
}

fn compute(batch: Batch<u64>) -> Vec<Result<u64, String>> {
    batch.items.into_iter().map(|item| Ok(expected(item))).collect()
}

/// One bucket, so that length doesn't matter.
fn options() -> Options {
    Options { buckets_tokens: vec![8], wait_max: Duration::ZERO, ..Options::default() }
}

fn request() -> Request {
    Request::new(1)
}

fn is_ready<T, R, E>(answer: &mut Answer<T, R, E>) -> bool {
    pin!(answer).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A handler that says when it begins, and goes on when it is told to.
fn gated(options: Options) -> (Answers, mpsc::Receiver<Vec<u64>>, mpsc::Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let goes = Mutex::new(Rank::Registry, goes);
    let handler = move |batch: Batch<u64>| {
        begun.send(batch.items.clone()).unwrap();
        let next = goes.lock();
        next.recv().unwrap();
        drop(next);
        compute(batch)
    };
    (Batcher::start(options, handler).unwrap(), begins, go)
}

#[test]
fn stress_64_threads_with_cancellations() {
    let options = Options {
        buckets_tokens: vec![4, 8, 16],
        batch_tokens_max: 128,
        wait_max: Duration::from_micros(50),
        waiting_count_max: 48,
        running_count_max: 3,
        ..Options::default()
    };
    let batcher = Batcher::start(options, compute).unwrap();
    let (answered, dropped, full) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let handles = (0..64u64).map(|index| {
            let (batcher, answered, dropped, full) = (&batcher, &answered, &dropped, &full);
            scope.spawn(move || {
                for step in 0..300u64 {
                    let item = index * 1000 + step;
                    let mut request = Request::new((item % 17) as usize);
                    request.priority = [Priority::Low, Priority::Normal, Priority::High][(item % 3) as usize];
                    match batcher.submit(item, request) {
                        Ok(mut answer) if item % 20 == 7 => {
                            // Some go at once, some while their batch runs, some when it is over.
                            let patience = Duration::from_micros(step % 100);
                            let outcome = answer.wait_timeout(patience);
                            assert!(outcome.is_none_or(|outcome| outcome == Ok(expected(item))));
                            drop(answer);
                            dropped.fetch_add(1, Relaxed);
                        }
                        Ok(answer) => {
                            assert_eq!(answer.wait(), Ok(expected(item)));
                            answered.fetch_add(1, Relaxed);
                        }
                        Err(Rejected::Full { waiting_count_max: 48 }) => _ = full.fetch_add(1, Relaxed),
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        });
        handles.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    batcher.stop();
    let counts = batcher.counts();
    let [answered, dropped, full] = [answered, dropped, full].map(|count| count.into_inner() as u64);
    assert_eq!(answered + dropped + full, 64 * 300);
    assert_eq!((counts.accepted_count, counts.rejected_count), (answered + dropped, full));
    assert_eq!(counts.run_count + counts.cancelled_count, answered + dropped);
    assert!(counts.cancelled_count <= dropped);
    assert_eq!((counts.waiting_count, counts.running_count, counts.expired_count), (0, 0, 0));
    assert!(batcher.0.state.lock().jobs.is_empty());
}

#[test]
fn fault_answer_to_the_wrong_caller() {
    assert_caught(
        Fault::answer_to_the_wrong_caller,
        "batcher::tests::f_24_callers_that_have_gone_disturb_nobody",
    );
}

/// F-24: of 16 requests 5 callers go, before the batch, while it is computed, and after; then a whole batch goes.
#[test]
fn f_24_callers_that_have_gone_disturb_nobody() {
    let (batcher, begins, go) = gated(Options { batch_count_max: 16, ..options() });
    let is_gone = |item: u64| item < 5;
    let submit_all = |batcher: &Answers| -> Vec<_> {
        batcher.pause();
        (0..16).map(|item| (item, batcher.submit(item, request()).unwrap())).collect()
    };
    for round in 0..4 {
        let mut answers = submit_all(&batcher);
        if round == 0 {
            answers.retain(|(item, _)| !is_gone(*item));
        }
        batcher.resume();
        let begun = begins.recv().unwrap();
        assert_eq!(begun.len(), answers.len());
        match round {
            1 => answers.retain(|(item, _)| !is_gone(*item)),
            3 => answers.clear(),
            _ => {}
        }
        go.send(()).unwrap();
        if round == 2 {
            // The last is answered last.
            let (item, last) = answers.pop().unwrap();
            assert_eq!(last.wait(), Ok(expected(item)));
            answers.retain(|(item, _)| !is_gone(*item));
        }
        for (item, answer) in answers {
            assert_eq!(answer.wait(), Ok(expected(item)));
        }
    }
    let answers = submit_all(&batcher);
    batcher.resume();
    go.send(()).unwrap();
    for (item, answer) in answers {
        assert_eq!(answer.wait(), Ok(expected(item)));
    }
}

/// F-24: 10,000 callers that go leave nothing behind, and their room is free at once.
#[test]
fn f_24_cancelling_frees_the_slot() {
    let batcher = Batcher::start(Options { waiting_count_max: 2, ..options() }, compute).unwrap();
    batcher.pause();
    let kept = batcher.submit(1, request()).unwrap();
    for item in 0..10_000 {
        drop(batcher.submit(item, request()).expect("there is room for one more"));
    }
    let also_kept = batcher.submit(2, request()).unwrap();
    let error = batcher.submit(3, request()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "submit: the queue is full, expected less than 2 requests waiting, found as many"
    );
    assert_eq!(batcher.counts().waiting_count, 2);
    batcher.resume();
    assert_eq!([kept, also_kept].map(Answer::wait), [Ok(expected(1)), Ok(expected(2))]);
    assert!(batcher.0.state.lock().jobs.capacity() < 100);
}

#[test]
fn fault_cancel_keeps_slot() {
    assert_caught(Fault::cancel_keeps_slot, "batcher::tests::f_24_cancelling_frees_the_slot");
}

/// F-24: a panic costs its own batch only, which is told why.
#[test]
fn f_24_a_panic_costs_its_own_batch_only() {
    let handler = |batch: Batch<u64>| match batch.items[..] {
        [0, ..] => panic!("planted by item {}", batch.items[0]),
        [1, ..] => std::panic::resume_unwind(Box::new(5)),
        [2, ..] => vec![Ok(1); 7],
        [3, ..] => vec![Err("refused".to_string())],
        _ => compute(batch),
    };
    let batcher = Batcher::start(Options { batch_count_max: 2, ..options() }, handler).unwrap();
    let two = |item| {
        batcher.pause();
        let answers = [batcher.submit(item, request()).unwrap(), batcher.submit(9, request()).unwrap()];
        batcher.resume();
        answers
    };
    let mut answers = two(0);
    // Not `wait`, or a promise that is never kept would hang this test.
    two(4).into_iter().for_each(|answer| _ = answer.wait());
    assert!(answers.iter_mut().all(|answer| answer.slot.is_answered()), "nobody is stuck");
    let panicked = |text: &str| Err(Error::Panicked { message: text.into() });
    assert_eq!(answers.map(Answer::wait), [panicked("planted by item 0"), panicked("planted by item 0")]);
    assert_eq!(two(1).map(Answer::wait), [panicked("without a text"), panicked("without a text")]);
    for answer in two(2) {
        let error = answer.wait().unwrap_err();
        assert_eq!(
            error.to_string(),
            "batch: the handler gave the wrong number of results, expected 2, found 7"
        );
    }
    let refused = batcher.submit(3, request()).unwrap().wait();
    assert_eq!(refused, Err(Error::Handler("refused".into())));
    assert_eq!(batcher.submit(8, request()).unwrap().wait(), Ok(expected(8)));
}

#[test]
fn fault_stuck_on_panic() {
    assert_caught(Fault::stuck_on_panic, "batcher::tests::f_24_a_panic_costs_its_own_batch_only");
}

/// Wakers and destructors of others may panic.
#[test]
fn panics_outside_of_the_handler_end_no_thread() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            if thread::current().name() == Some("raddle-batcher") {
                panic!("planted in a destructor");
            }
        }
    }
    impl std::task::Wake for Bad {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("planted in a waker");
        }
    }
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let goes = Mutex::new(Rank::Registry, goes);
    let handler = move |batch: Batch<Option<Bad>>| -> Vec<Result<Option<Bad>, ()>> {
        begun.send(()).unwrap();
        goes.lock().recv().unwrap();
        batch.items.into_iter().map(Ok).collect()
    };
    let batcher = Batcher::start(options(), handler).unwrap();
    for _ in 0..4 {
        // Three share a batch: a result that nobody wants, a bad waker, and one that must not suffer from them.
        batcher.pause();
        let unwanted = batcher.submit(Some(Bad), request()).unwrap();
        let mut polled = batcher.submit(None, request()).unwrap();
        let answer = batcher.submit(None, request()).unwrap();
        let waker = Waker::from(std::sync::Arc::new(Bad));
        assert!(pin!(&mut polled).poll(&mut Context::from_waker(&waker)).is_pending());
        batcher.resume();
        begins.recv().unwrap();
        drop(unwanted);
        go.send(()).unwrap();
        assert!(answer.wait().is_ok());
        assert!(polled.wait().is_ok());
        batcher.pause();
        let within = Some(Duration::from_nanos(1));
        let expired = batcher.submit(Some(Bad), Request { begin_within: within, ..request() }).unwrap();
        assert!(expired.wait().is_err());
        batcher.resume();
    }
}

/// A request expires while all batches that may run do, and in a pause; it is told so at once, and never run.
#[test]
fn requests_expire_whatever_runs() {
    let (batcher, begins, go) = gated(options());
    let running = batcher.submit(1, request()).unwrap();
    assert_eq!(begins.recv().unwrap(), [1]);
    let within = Duration::from_micros(10);
    let hurried = Request { begin_within: Some(within), ..request() };
    assert_eq!(batcher.submit(2, hurried).unwrap().wait(), Err(Error::Expired { begin_within: within }));
    batcher.pause();
    go.send(()).unwrap();
    assert_eq!(running.wait(), Ok(expected(1)));
    let error = batcher.submit(3, hurried).unwrap().wait().unwrap_err();
    assert_eq!(error.to_string(), "batch: the request has not begun within 10µs");
    batcher.resume();
    go.send(()).unwrap();
    assert_eq!(batcher.submit(4, request()).unwrap().wait(), Ok(expected(4)));
    assert_eq!(begins.recv().unwrap(), [4], "2 and 3 have not been run");
    let late = Request { begin_within: Some(Duration::ZERO), ..request() };
    assert_eq!(batcher.submit(5, late).unwrap_err(), Rejected::Late);
}

/// Answers are futures on any executor: polled, woken, and dropped at any time.
#[test]
fn answers_are_futures() {
    struct Told(mpsc::Sender<()>);
    impl std::task::Wake for Told {
        fn wake(self: std::sync::Arc<Self>) {
            _ = self.0.send(());
        }
    }
    let (batcher, _begins, go) = gated(options());
    batcher.pause();
    let mut answer = batcher.submit(5, request()).unwrap();
    let last = batcher.submit(6, request()).unwrap();
    assert!(!is_ready(&mut answer));
    let (told, is_told) = mpsc::channel();
    let waker = Waker::from(std::sync::Arc::new(Told(told)));
    let mut context = Context::from_waker(&waker);
    assert!(pin!(&mut answer).poll(&mut context).is_pending());
    assert_eq!(answer.wait_timeout(Duration::from_nanos(1)), None);
    batcher.resume();
    go.send(()).unwrap();
    // They share a batch, which is answered in order.
    assert_eq!(last.wait(), Ok(expected(6)));
    is_told.try_recv().expect("the last one to poll was woken");
    assert_eq!(pin!(&mut answer).poll(&mut context), Poll::Ready(Ok(expected(5))));
    assert_eq!(pin!(&mut answer).poll(&mut context), Poll::Ready(Err(Error::Taken)));
    assert_eq!(answer.wait_timeout(Duration::MAX), Some(Err(Error::Taken)));
}

#[test]
fn fault_answer_wakes_nobody() {
    assert_caught(Fault::answer_wakes_nobody, "batcher::tests::answers_are_futures");
}

/// A thread that finds the queue broken stops the batcher; nobody waits for ever.
#[test]
fn an_error_of_ours_leaves_nobody_waiting() {
    let batcher = Batcher::start(Options { batch_count_max: 1, ..options() }, compute).unwrap();
    batcher.pause();
    let answers = [1, 2].map(|item| batcher.submit(item, request()).unwrap());
    let lost = batcher.0.state.lock().jobs.remove(&answers[0].ticket);
    drop(lost);
    batcher.resume();
    assert_eq!(answers.map(Answer::wait), [Err(Error::Stopped), Err(Error::Stopped)]);
    batcher.stop();
    assert_eq!(batcher.submit(3, request()).unwrap_err(), Rejected::Stopped);
}

/// `stop` runs what waits, `stop_at_once` doesn't, a drop stops; a pause holds none of them up.
#[test]
fn stops_leave_nobody_waiting() {
    for at_once in [false, true] {
        let batcher = Batcher::start(options(), compute).unwrap();
        batcher.pause();
        let answers: Vec<_> = (0..10).map(|item| (item, batcher.submit(item, request()).unwrap())).collect();
        if at_once {
            batcher.stop_at_once()
        } else {
            batcher.stop()
        }
        for (item, answer) in answers {
            assert_eq!(answer.wait(), if at_once { Err(Error::Stopped) } else { Ok(expected(item)) });
        }
        assert_eq!(batcher.submit(0, request()).unwrap_err(), Rejected::Stopped);
        batcher.stop();
    }
    let batcher = Batcher::start(options(), compute).unwrap();
    let answer = batcher.submit(3, request()).unwrap();
    drop(batcher);
    assert_eq!(answer.wait(), Ok(expected(3)));
}

/// Many threads submit and stop at once: each request is answered or refused.
#[test]
fn submits_race_stops() {
    for _ in 0..50 {
        let batcher = Batcher::start(options(), compute).unwrap();
        thread::scope(|scope| {
            let submit = |item| {
                let batcher = &batcher;
                scope.spawn(move || {
                    for _ in 0..20 {
                        match batcher.submit(item, request()) {
                            Ok(answer) => assert_eq!(answer.wait(), Ok(expected(item))),
                            Err(error) => assert_eq!(error, Rejected::Stopped),
                        }
                    }
                })
            };
            let mut threads: Vec<_> = (0..8).map(submit).collect();
            threads.extend((0..2).map(|_| scope.spawn(|| batcher.stop())));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// A handler may stop its batcher, and may be the last to hold it.
#[test]
fn a_handler_may_stop_its_batcher() {
    let (give, given) = mpsc::channel::<Answers>();
    let given = Mutex::new(Rank::Registry, given);
    let handler = move |batch: Batch<u64>| {
        let given = given.lock();
        let batcher = given.recv().unwrap();
        drop(given);
        batcher.stop();
        drop(batcher);
        compute(batch)
    };
    let batcher = Batcher::start(options(), handler).unwrap();
    let answer = batcher.submit(1, request()).unwrap();
    give.send(batcher).unwrap();
    assert_eq!(answer.wait(), Ok(expected(1)));
}

/// Forks while another thread has the queue locked, one request runs and one waits. The child uses everything; then the parent
/// goes on. How the child has ended: the number of the step that failed.
fn use_in_child() -> End {
    // With the fault it is waited for in vain.
    let time_s_max = if faults::is(Fault::child_waits_for_batch) { 1 } else { 10 };
    let (batcher, begins, go) = gated(options());
    let mut first = Some(batcher.submit(1, request()).unwrap());
    begins.recv().unwrap();
    let mut second = Some(batcher.submit(2, request()).unwrap());
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let end = thread::scope(|scope| {
        let queue = &batcher.0;
        let holder = scope.spawn(move || {
            let _guard = queue.state.lock();
            held.send(()).unwrap();
            released.recv().unwrap();
        });
        is_held.recv().unwrap();
        let end = in_child(time_s_max, Leave::AtOnce, || {
            let steps = [
                batcher.submit(3, request()).is_err_and(|error| error == Rejected::Forked),
                first.take().is_some_and(|answer| answer.wait() == Err(Error::Forked)),
                second.as_mut().is_some_and(is_ready),
                second.take().is_some(),
                batcher.counts() == Counts::default(),
            ];
            batcher.pause();
            batcher.resume();
            batcher.stop();
            steps.iter().position(|holds| !holds).map_or(0, |step| step as i32 + 1)
        });
        release.send(()).unwrap();
        holder.join().unwrap();
        end.unwrap()
    });
    for (item, answer) in [(1, first), (2, second)] {
        go.send(()).unwrap();
        assert_eq!(answer.unwrap().wait(), Ok(expected(item)));
    }
    end
}

#[test]
fn a_forked_child_waits_for_nobody() {
    assert_eq!(use_in_child(), End::Code(0));
}

#[test]
fn fault_child_waits_for_batch() {
    assert_caught(Fault::child_waits_for_batch, "batcher::tests::a_forked_child_waits_for_nobody");
}

#[test]
fn threads_have_a_name() {
    let handler = |batch: Batch<()>| {
        let name = thread::current().name().map(str::to_string).unwrap_or_default();
        batch.items.iter().map(|()| Ok::<_, ()>(name.clone())).collect()
    };
    let batcher = Batcher::start(options(), handler).unwrap();
    assert_eq!(batcher.submit((), request()).unwrap().wait(), Ok("raddle-batcher".into()));
}

/// A batch is put together as the scheduler says, and measured.
#[test]
fn batches_are_measured() {
    let options = Options {
        buckets_tokens: vec![8, 32],
        batch_tokens_max: 64,
        wait_max: Duration::from_secs(3600),
        ..Options::default()
    };
    let (batcher, begins, go) = gated(options);
    let lengths = [20, 5, 30];
    let answers = lengths.map(|length| batcher.submit(length as u64, Request::new(length)).unwrap());
    assert_eq!(begins.recv().unwrap(), [20, 30], "full, so that it needn't wait");
    go.send(()).unwrap();
    go.send(()).unwrap();
    batcher.stop();
    assert_eq!(begins.recv().unwrap(), [5]);
    answers.into_iter().zip(lengths).for_each(|(answer, item)| {
        assert_eq!(answer.wait(), Ok(expected(item as u64)));
    });
    let counts = batcher.counts();
    assert_eq!((counts.batch_count, counts.run_count, counts.room_count), (2, 3, 2 + 8));
    assert_eq!((counts.run_tokens, counts.padded_tokens), (55, 72));
    assert_eq!((counts.fill(), counts.padding()), (0.3, 17.0 / 72.0));
    assert!(counts.waited_max <= counts.waited_total);
}

#[test]
fn handles_may_go_to_any_thread() {
    fn check<T: Send + Sync>() {}
    check::<Batcher<Vec<u8>, Vec<u8>, String>>();
    check::<Answer<Vec<u8>, Vec<u8>, String>>();
}
