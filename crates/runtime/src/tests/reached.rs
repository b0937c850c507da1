//! What follows when a stream gets somewhere: times, callbacks, futures. Over the simulator, where a stream can be held.

use super::{
    external::{SIZE_BYTES, bytes, fresh, open},
    planted, streams_of, turn,
};
use crate::{tests::oracle::op, *};
use raddle_sim::{Sim, SimOptions};
use raddle_sync::faults::Fault;
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

#[test]
fn times_pass_between_events() {
    let _turn = turn();
    for seed in 0..20 {
        let (device, _) = open(seed);
        let (stream, other) = (fresh(&device), fresh(&device));
        let (start, end) = (Event::timing(), Event::timing());
        let [from, to] = [0; 2].map(|_| device.allocate(SIZE_BYTES).unwrap());
        start.record(stream);
        (0..10).for_each(|_| op(stream, &[&from], &[&to]).unwrap());
        end.record(stream);
        end.synchronize().unwrap();
        let elapsed_ms = end.elapsed_ms(&start).unwrap();
        assert!(elapsed_ms > 0.0);
        assert_eq!(start.elapsed_ms(&end).unwrap(), -elapsed_ms);
        assert_eq!(start.elapsed_ms(&start).unwrap(), 0.0);
        // Other threads, other streams, and records anew.
        thread::scope(|scope| {
            let ask = || assert_eq!(end.elapsed_ms(&start).unwrap(), elapsed_ms);
            (0..4).map(|_| scope.spawn(ask)).for_each(|thread| thread.join().unwrap());
        });
        other.wait_event(&end).unwrap();
        let last = Event::timing();
        last.record(other);
        last.synchronize().unwrap();
        assert!(last.elapsed_ms(&end).unwrap() > 0.0);
        start.record(other);
        start.synchronize().unwrap();
        assert!(start.elapsed_ms(&last).unwrap() > 0.0);
        // Timing events come back: a thousand events leave no more than were in flight at once.
        for _ in 0..1000 {
            let event = Event::timing();
            event.record(stream);
            event.synchronize().unwrap();
        }
        assert!(
            streams_of(&device).timing_events.count() < 40,
            "{}",
            streams_of(&device).timing_events.count()
        );
        // Nor do many that were held at once.
        let held: Vec<Event> = (0..3000)
            .map(|_| {
                let event = Event::timing();
                event.record(stream);
                event
            })
            .collect();
        stream.synchronize().unwrap();
        drop(held);
        assert_eq!(streams_of(&device).timing_events.count(), 1024);
    }
}

#[test]
fn times_that_are_not_there_are_errors() {
    let _turn = turn();
    let (device, others) = open(9);
    let stream = fresh(&device);
    let (start, end) = (Event::timing(), Event::timing());
    let told = |end: &Event, start: &Event| end.elapsed_ms(start).unwrap_err().to_string();
    assert_eq!(told(&end, &start), "elapsed: the start event has not been recorded");
    start.record(stream);
    start.synchronize().unwrap();
    assert_eq!(told(&end, &start), "elapsed: the end event has not been recorded");
    let untimed = stream.record();
    assert_eq!(told(&untimed, &start), "elapsed: the end event takes no time, make it by Event::timing()");
    assert_eq!(told(&start, &untimed), "elapsed: the start event takes no time, make it by Event::timing()");
    others.hold(stream.0.queue());
    end.record(stream);
    assert_eq!(told(&end, &start), "elapsed: the end event is not complete, synchronize it first");
    // Recorded anew, what is in flight is no longer asked about.
    end.record(fresh(&device));
    end.synchronize().unwrap();
    assert!(end.elapsed_ms(&start).unwrap() > 0.0);
    others.let_go(stream.0.queue());
    let (elsewhere, _) = open(10);
    end.record(fresh(&elsewhere));
    end.synchronize().unwrap();
    assert_eq!(
        told(&end, &start),
        "elapsed: the end event was recorded on another device than the start event"
    );
    let capture = Capture::begin(&device).unwrap();
    end.record(stream);
    drop(capture);
    assert_eq!(
        told(&end, &start),
        "elapsed: the end event was recorded inside of a capture, where nothing runs"
    );
}

/// An event is dropped while it is in flight; does that change another one's time?
fn is_time_disturbed() -> bool {
    let (device, others) = open(2);
    let (held, stream) = (fresh(&device), fresh(&device));
    let (start, end) = (Event::timing(), Event::timing());
    start.record(stream);
    others.hold(held.0.queue());
    let dropped = Event::timing();
    dropped.record(held);
    drop(dropped);
    end.record(stream);
    end.synchronize().unwrap();
    let before = end.elapsed_ms(&start).unwrap();
    others.let_go(held.0.queue());
    held.synchronize().unwrap();
    end.elapsed_ms(&start).unwrap() != before
}

#[test]
fn a_time_stays_what_it_was() {
    let _turn = turn();
    assert!(!is_time_disturbed());
}

#[test]
fn fault_stamp_in_flight() {
    let _planted = planted(Fault::stamp_in_flight);
    assert!(is_time_disturbed(), "not caught");
}

/// What a callback sees: is its stream complete, and current? Its stream is held, until it has run if it is `early`.
fn seen_in_callback(early: bool) -> (bool, bool) {
    let (device, others) = open(4);
    // No thread is bound to one of high priority by itself.
    let stream = Stream::from_pool(&device, Priority::High).unwrap();
    let [from, to] = [0; 2].map(|_| device.allocate(64).unwrap());
    device.synchronize().unwrap();
    others.hold(stream.0.queue());
    op(stream, &[&from], &[&to]).unwrap();
    let (sender, receiver) = mpsc::channel();
    stream
        .on_complete(move |result| {
            result.unwrap();
            sender.send((stream.query(), Stream::current(&device).unwrap() == stream)).unwrap();
        })
        .unwrap();
    let seen = early.then(|| receiver.recv().unwrap());
    others.let_go(stream.0.queue());
    seen.unwrap_or_else(|| receiver.recv().unwrap())
}

#[test]
fn a_callback_runs_when_its_stream_got_there_and_on_it() {
    let _turn = turn();
    assert_eq!(seen_in_callback(false), (true, true));
}

#[test]
fn fault_callback_early() {
    let _planted = planted(Fault::callback_early);
    assert!(!seen_in_callback(true).0, "not caught");
}

#[test]
fn fault_callback_stream() {
    let _planted = planted(Fault::callback_stream);
    assert!(!seen_in_callback(false).1, "not caught");
}

#[test]
fn callbacks_use_the_runtime_keep_their_order_and_may_panic() {
    let _turn = turn();
    for seed in 0..20 {
        let (device, others) = open(seed);
        let (slow, stream) = (fresh(&device), fresh(&device));
        let (sender, receiver) = mpsc::channel();
        // A stream that is stuck, and one whose callback is: both hold up nobody else.
        others.hold(slow.0.queue());
        let (stuck, late) = (Event::timing(), sender.clone());
        stuck.record(slow);
        slow.on_complete(move |_| late.send((99, Vec::new())).unwrap()).unwrap();
        let (go, gate) = mpsc::channel::<()>();
        fresh(&device).on_complete(move |_| _ = gate.recv()).unwrap();
        for index in 0..10_u8 {
            let sender = sender.clone();
            let callback = move |result: Result<()>| {
                result.unwrap();
                let buffer = device.allocate(SIZE_BYTES).unwrap();
                device.upload(&buffer, 0, &[index; SIZE_BYTES]).unwrap();
                let read = bytes(&device, &buffer);
                stream.synchronize().unwrap();
                drop(buffer);
                sender.send((index, read)).unwrap();
                assert!(index % 3 != 0, "planted");
            };
            stream.on_complete(callback).unwrap();
        }
        for index in 0..10_u8 {
            assert_eq!(receiver.recv().unwrap(), (index, vec![index; SIZE_BYTES]), "seed {seed}");
        }
        others.let_go(slow.0.queue());
        assert_eq!(receiver.recv().unwrap().0, 99);
        drop(go);
        // Also where it would wait for itself.
        let (sender, receiver) = mpsc::channel();
        stream.on_complete(move |_| sender.send(device.close()).unwrap()).unwrap();
        let error = receiver.recv().unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "close: called in a callback of a stream of sim:{seed}, for which it would wait for ever"
            )
        );
        assert!(device.close().unwrap());
    }
}

/// Does the callback of one stream come only with that of another, which is held? It is let go of when that takes so long.
fn is_held_up(patience: Duration) -> bool {
    let (device, others) = open(5);
    let (held, free) = (fresh(&device), fresh(&device));
    device.synchronize().unwrap();
    others.hold(held.0.queue());
    held.mark().unwrap();
    let (sender, receiver) = mpsc::channel();
    for stream in [held, free] {
        let sender = sender.clone();
        stream.on_complete(move |_| sender.send(stream).unwrap()).unwrap();
    }
    let first = receiver.recv_timeout(patience);
    others.let_go(held.0.queue());
    let first = first.or_else(|_| receiver.recv().map(|_| held)).unwrap();
    receiver.recv().unwrap();
    first != free
}

#[test]
fn a_slow_stream_holds_up_its_own_callbacks_only() {
    let _turn = turn();
    assert!(!is_held_up(Duration::from_secs(60)));
}

#[test]
fn fault_one_callback_thread() {
    let _planted = planted(Fault::one_callback_thread);
    assert!(is_held_up(Duration::from_secs(2)), "not caught");
}

/// A callback waits for what comes after the close of its device, for so long. Does the close come first?
fn is_closed_first(patience: Duration) -> bool {
    let (device, _) = open(7);
    let stream = fresh(&device);
    stream.mark().unwrap();
    let (go, gate) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let callback = move |_| {
        _ = gate.recv_timeout(patience);
        sender.send(()).unwrap();
    };
    stream.on_complete(callback).unwrap();
    assert!(device.close().unwrap());
    let is_first = receiver.try_recv().is_err();
    drop(go);
    if is_first {
        receiver.recv().unwrap();
    }
    is_first
}

#[test]
fn a_device_is_closed_behind_its_callbacks() {
    let _turn = turn();
    assert!(!is_closed_first(Duration::from_millis(20)));
}

#[test]
fn fault_closes_before_callbacks() {
    let _planted = planted(Fault::closes_before_callbacks);
    assert!(is_closed_first(Duration::from_secs(60)), "not caught");
}

#[test]
fn callbacks_are_bounded_and_closing_waits_for_them() {
    let _turn = turn();
    let (device, others) = open(6);
    let stream = fresh(&device);
    others.hold(stream.0.queue());
    stream.mark().unwrap();
    let (sender, receiver) = mpsc::channel();
    let mut taken = 0;
    let error = loop {
        let sender = sender.clone();
        match stream.on_complete(move |result| sender.send(result).unwrap()) {
            Ok(()) => taken += 1,
            Err(error) => break error.to_string(),
        }
        assert!(taken < 2000, "as many as one likes");
    };
    // One is with the thread, which may or may not have got to it.
    assert!([1024, 1025].contains(&taken), "{taken}");
    assert_eq!(
        error,
        format!("on_complete: 1024 callbacks wait on stream {:#x} of sim:6 already", stream.id().0)
    );
    others.let_go(stream.0.queue());
    assert!(device.close().unwrap());
    assert_eq!(receiver.try_iter().filter(|result| result.is_ok()).count(), taken);
}

#[test]
fn callbacks_are_told_of_a_loss() {
    let _turn = turn();
    let options = SimOptions { lose_after_count: Some(1), ..SimOptions::default() };
    let sim = Sim::new(Box::new(raddle_cpu::Cpu::new()), options).unwrap();
    let device = Device::open(Box::new(sim)).unwrap();
    let stream = fresh(&device);
    (0..3).for_each(|_| stream.mark().unwrap());
    let event = stream.record();
    let (sender, receiver) = mpsc::channel();
    stream.on_complete(move |result| sender.send(result).unwrap()).unwrap();
    let lost = receiver.recv().unwrap();
    assert!(matches!(&lost, Err(Error::Device { .. })), "{lost:?}");
    assert_eq!(block_on(event.wait()), lost);
    assert_eq!(event.synchronize(), lost);
    device.close().unwrap();
}

/// An executor of a few lines.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn events_can_be_awaited() {
    let _turn = turn();
    for seed in 0..20 {
        let (device, others) = open(seed);
        let stream = fresh(&device);
        block_on(Event::new().wait()).unwrap();
        others.hold(stream.0.queue());
        stream.mark().unwrap();
        let event = Event::new();
        event.record(stream);
        let (first, second, dropped) = (event.wait(), event.wait(), event.wait());
        let mut dropped = Box::pin(dropped);
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop((dropped, event));
        thread::scope(|scope| {
            let second = scope.spawn(|| block_on(second));
            others.let_go(stream.0.queue());
            block_on(first).unwrap();
            second.join().unwrap().unwrap();
        });
        assert!(stream.query());
        assert!(device.close().unwrap());
    }
}

/// A waker that is counted.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// Whoever waits for a while and then does something else, as `select` does, leaves nothing behind: no callback, no waker.
#[test]
fn a_future_that_is_dropped_leaves_no_callback() {
    let _turn = turn();
    let (device, others) = open(8);
    let stream = fresh(&device);
    others.hold(stream.0.queue());
    stream.mark().unwrap();
    let event = stream.record();
    let (waiting, dropped) = (Arc::new(Counted), Arc::new(Counted));
    let poll = |future: &mut EventFuture, counted: &Arc<Counted>| {
        Pin::new(future).poll(&mut Context::from_waker(&counted.clone().into())).is_ready()
    };
    let mut kept: Vec<EventFuture> = (0..3).map(|_| event.wait()).collect();
    // The first one is with the thread, which waits for the stream.
    for round in 0..3000 {
        let mut future = event.wait();
        assert!(!poll(&mut future, &dropped), "round {round}");
        assert!(!poll(&mut kept[round % 3], &waiting));
    }
    assert!(Arc::strong_count(&dropped) == 1, "wakers of futures that are gone are kept");
    others.let_go(stream.0.queue());
    kept.into_iter().for_each(|future| block_on(future).unwrap());
    assert!(device.close().unwrap());
}
