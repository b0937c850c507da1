//! Wrapped streams, times and callbacks, over the simulator: other code works on streams of its own, and any of them can be
//! held.

use super::{planted, turn};
use crate::{oracle::op, *};
use raddle_hal::{Launch, QueueId};
use raddle_sim::{Others, Sim, SimOptions};
use raddle_sync::faults::Fault;
use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Barrier, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
};

const SIZE_BYTES: usize = 2048;

fn open(seed: u64) -> (Device, Others) {
    let sim = Sim::new(Box::new(raddle_cpu::Cpu::new()), SimOptions { seed, ..SimOptions::default() });
    let sim = sim.unwrap();
    let others = sim.others();
    (Device::open(Box::new(sim)).unwrap(), others)
}

fn wrap(device: &Device, handle: u64) -> ExternalStream {
    // SAFETY: streams of the simulator's other code live for ever and don't capture.
    unsafe { Stream::wrap(device, handle) }.unwrap()
}

fn fresh(device: &Device) -> Stream {
    Stream::from_pool(device, Priority::Normal).unwrap()
}

/// Other code fills a buffer, some time.
fn fill(others: &Others, handle: u64, buffer: &Buffer, value: u8) {
    let launch = Launch::FillBytes { to: buffer.block().address, size_bytes: SIZE_BYTES, value };
    // SAFETY: slabs of the test's device are given back by `close`, when everything that is recorded is over.
    unsafe { others.submit(handle, &launch) };
}

fn bytes(device: &Device, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; SIZE_BYTES];
    device.download(buffer, 0, &mut bytes).unwrap();
    bytes
}

/// When a wrapped stream is closed.
#[derive(Clone, Copy, Debug)]
enum Close {
    AfterTheFree,
    BeforeTheFree,
    /// And its slot stands for another one when the block is freed.
    Reopened,
}

/// Other code writes buffers that are noted by `record_stream`, also after that; does it ever write what comes after them?
fn is_spoilt(seed: u64, close: Close) -> bool {
    let (device, others) = open(seed);
    let handle = others.make_stream().unwrap();
    let stream = fresh(&device);
    let guard = stream.enter();
    let mut spoilt = false;
    for round in 0..12 {
        let external = wrap(&device, handle);
        let buffer = device.allocate(SIZE_BYTES).unwrap();
        device.upload(&buffer, 0, &[1; SIZE_BYTES]).unwrap();
        external.wait_stream(stream).unwrap();
        device.record_stream(&buffer, *external).unwrap();
        fill(&others, handle, &buffer, 7);
        fill(&others, handle, &buffer, 8);
        let mut kept = Some(external);
        if !matches!(close, Close::AfterTheFree) {
            kept = None;
        }
        if matches!(close, Close::Reopened) {
            device.synchronize().unwrap();
            kept = Some(wrap(&device, handle));
            fill(&others, handle, &buffer, 9);
        }
        drop(buffer);
        let next = device.allocate(SIZE_BYTES).unwrap();
        device.upload(&next, 0, &[2; SIZE_BYTES]).unwrap();
        if round % 3 == 0 {
            device.empty_cache(); // the simulator sees it if memory goes that is in use
        }
        spoilt |= bytes(&device, &next) != [2; SIZE_BYTES];
        drop(kept);
        if round % 2 == 0 || matches!(close, Close::Reopened) {
            device.synchronize().unwrap(); // so that the slot is used again
        }
    }
    drop(guard);
    device.synchronize().unwrap();
    assert!(device.close().unwrap());
    spoilt
}

#[test]
fn memory_is_kept_from_other_code_that_was_told_of() {
    let _turn = turn();
    for close in [Close::AfterTheFree, Close::BeforeTheFree, Close::Reopened] {
        for seed in 0..40 {
            assert!(!is_spoilt(seed, close), "seed {seed}, {close:?}");
        }
    }
}

#[test]
fn fault_unfenced_close() {
    let _planted = planted(Fault::unfenced_close);
    assert!((0..200).any(|seed| is_spoilt(seed, Close::BeforeTheFree)), "not caught");
}

/// What the runtime says of a wrapped stream covers what others have put there.
#[test]
fn work_of_other_code_is_waited_for() {
    let _turn = turn();
    for seed in 0..40 {
        let (device, others) = open(seed);
        let handle = others.make_stream().unwrap();
        let external = wrap(&device, handle);
        let (stream, buffer) = (fresh(&device), device.allocate(SIZE_BYTES).unwrap());
        let read = || {
            let _guard = stream.enter();
            bytes(&device, &buffer)
        };
        assert_eq!(external.as_raw(), Some(handle));
        assert!(external.is_external() && !stream.is_external());
        while !external.query() {}
        device.synchronize().unwrap(); // of the junk that fresh memory is filled with

        others.hold(QueueId(handle as u8));
        fill(&others, handle, &buffer, 3);
        assert!((0..50).all(|_| !external.query()), "seed {seed}");
        let event = external.record();
        assert!(!event.query());
        others.let_go(QueueId(handle as u8));
        match seed % 4 {
            0 => stream.wait_stream(*external).unwrap(),
            1 => stream.wait_event(&event).unwrap(),
            2 => external.synchronize().unwrap(),
            _ => while !external.query() {},
        }
        assert_eq!(read(), [3; SIZE_BYTES], "seed {seed}");

        // The other way round: it runs behind what it was put behind; and by an op of the runtime.
        device.upload(&buffer, 0, &[4; SIZE_BYTES]).unwrap();
        external.wait_stream(Stream::current(&device).unwrap()).unwrap();
        fill(&others, handle, &buffer, 5);
        let copy = device.allocate(SIZE_BYTES).unwrap();
        op(*external, &[&buffer], &[&copy]).unwrap();
        {
            let _guard = stream.enter();
            assert_eq!(bytes(&device, &copy), [5; SIZE_BYTES], "seed {seed}");
        }
        fill(&others, handle, &buffer, 6);
        if seed % 2 == 0 {
            device.synchronize().unwrap();
        } else {
            let handle = *external;
            external.close().unwrap();
            let event = handle.record(); // everything up to the close
            event.synchronize().unwrap();
            assert!(handle.query() && event.query());
        }
        assert_eq!(read(), [6; SIZE_BYTES], "seed {seed}");
        drop((buffer, copy));
        assert!(device.close().unwrap());
    }
}

#[test]
fn slots_of_wrapped_streams_are_counted_and_used_again() {
    let _turn = turn();
    let (device, others) = open(3);
    let handle = others.make_stream().unwrap();
    let mut open: Vec<ExternalStream> = (0..63).map(|_| wrap(&device, handle)).collect();
    let ids: Vec<StreamId> = open.iter().map(|stream| stream.id()).collect();
    assert!(ids.iter().zip(&open).all(|(id, stream)| Stream::from_id(&device, *id).unwrap() == **stream));
    // SAFETY: as in `wrap`.
    let refused = || unsafe { Stream::wrap(&device, handle) }.unwrap_err().to_string();
    let full = |open, pending| {
        format!(
            "sim:3: no room for another wrapped stream, expected less than 63, found {open} open and {pending} closed \
             with work in flight"
        )
    };
    assert_eq!(refused(), full(63, 0));
    others.hold(QueueId(handle as u8));
    drop(open.remove(10));
    assert_eq!(refused(), full(62, 1));
    others.let_go(QueueId(handle as u8));
    device.synchronize().unwrap();
    let again = wrap(&device, handle);
    assert_eq!(again.0.slot, 65 + 10);
    assert_ne!(again.id(), ids[10]);
    assert!(again.0.latest().sequence() > 0, "its numbers go on");
    drop(open);
    // Churn leaves nothing.
    (0..1000).for_each(|_| {
        wrap(&device, handle).close().unwrap();
        device.synchronize().unwrap();
    });
    let unknown = others.make_stream().unwrap() + 1;
    // SAFETY: none: the simulator looks before it does anything.
    let error = unsafe { Stream::wrap(&device, unknown) }.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("sim:3: the handle {unknown:#x} is refused: no such stream has been made")
    );
    let cpu = Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    // SAFETY: as above, of the CPU.
    let error = unsafe { Stream::wrap(&cpu, 0) }.unwrap_err();
    assert_eq!(error.to_string(), "cpu: the device has no streams of other code");
    assert_eq!(Stream::default(&cpu).unwrap().as_raw(), None);
}

/// Case C-14, with streams of other code, which are new each time.
#[test]
fn fresh_wrapped_streams_strand_no_memory() {
    const LARGE_BYTES: usize = 64 << 20;
    let _turn = turn();
    let (device, others) = open(14);
    let mut reserved = Vec::new();
    for _ in 0..100 {
        let external = wrap(&device, others.make_stream().unwrap());
        let guard = external.enter();
        let buffer = device.allocate(LARGE_BYTES).unwrap(); // which the runtime fills here, with junk
        drop((buffer, guard));
        external.synchronize().unwrap();
        external.close().unwrap();
        device.synchronize().unwrap();
        let stats = device.memory_stats();
        assert_eq!(stats.allocated_bytes, 0);
        reserved.push(stats.reserved_bytes);
    }
    assert!(reserved.iter().all(|bytes| *bytes == LARGE_BYTES), "{reserved:?}");
    device.empty_cache();
    assert_eq!(device.memory_stats().reserved_bytes, 0);
}

/// Does a handle of a closed stream reach the one that has its slot now?
fn is_stale_handle_taken() -> bool {
    let (device, others) = open(1);
    let [first, second] = [0, 1].map(|_| others.make_stream().unwrap());
    let external = wrap(&device, first);
    let stale = *external;
    let id = stale.id();
    external.close().unwrap();
    let closed = stale.mark();
    device.synchronize().unwrap();
    let external = wrap(&device, second);
    assert_eq!(external.0.slot, stale.0.slot);
    let buffer = device.allocate(64).unwrap();
    let guard = stale.enter();
    let taken = op(stale, &[&buffer], &[&device.allocate(64).unwrap()]);
    drop(guard);
    if taken.is_ok() {
        return true;
    }
    let refused = Error::StreamClosed { device: "sim:1".into(), stream: id.0 };
    assert_eq!(
        refused.to_string(),
        format!("sim:1: stream {:#x} was wrapped and has been closed; wrap it again", id.0)
    );
    let event = external.record();
    let calls = [
        closed,
        taken,
        stale.synchronize(),
        stale.wait_event(&event),
        stale.wait_stream(*external),
        external.wait_stream(stale),
        stale.on_complete(|_| ()),
        device.record_stream(&buffer, stale),
    ];
    assert!(calls.iter().all(|call| *call == Err(refused.clone())), "{calls:?}");
    assert_eq!(Stream::from_id(&device, id), Err(Error::UnknownStream { device: "sim:1".into(), id: id.0 }));
    assert!(stale.query() && stale != *external && stale.as_raw().is_none());
    // Where it is the current stream, work is refused, and only there.
    let guard = stale.enter();
    assert_eq!(device.upload(&buffer, 0, &[0; 64]), Err(refused));
    drop(guard);
    device.upload(&buffer, 0, &[0; 64]).unwrap();
    false
}

#[test]
fn a_handle_of_a_closed_stream_is_refused() {
    let _turn = turn();
    assert!(!is_stale_handle_taken());
}

#[test]
fn fault_stale_handle() {
    let _planted = planted(Fault::stale_handle);
    assert!(is_stale_handle_taken(), "not caught");
}

/// Threads use a wrapped stream, which one of them closes meanwhile, and wrap it again.
#[test]
fn wrapped_streams_are_closed_while_others_use_them() {
    let _turn = turn();
    for seed in 0..20 {
        let (device, others) = open(seed);
        let handle = others.make_stream().unwrap();
        let externals: Vec<ExternalStream> = (0..4).map(|_| wrap(&device, handle)).collect();
        let handles: Vec<Stream> = externals.iter().map(|external| **external).collect();
        let barrier = Barrier::new(3);
        let uses = || {
            barrier.wait();
            let (from, to) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
            for stream in handles.iter().cycle().take(40) {
                match op(*stream, &[&from], &[&to]) {
                    Ok(()) | Err(Error::StreamClosed { .. }) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
                stream.record().query();
                _ = device.record_stream(&to, *stream);
            }
            drop((from, to));
            device.release_current_thread();
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(uses), scope.spawn(uses)];
            barrier.wait();
            for external in externals {
                external.close().unwrap();
                drop(wrap(&device, handle));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

#[test]
fn one_stream_is_synchronized_without_the_others() {
    let _turn = turn();
    for seed in 0..20 {
        let (device, others) = open(seed);
        let (held, free) = (fresh(&device), fresh(&device));
        let [a, b, c, d] = [0; 4].map(|_| device.allocate(64).unwrap());
        device.synchronize().unwrap();
        others.hold(held.0.queue());
        op(held, &[&a], &[&b]).unwrap();
        op(free, &[&c], &[&d]).unwrap();
        let event = free.record();
        // The simulator would wait for ever for what is held.
        free.synchronize().unwrap();
        event.synchronize().unwrap();
        assert!(free.query() && event.query() && !held.query() && !held.record().query(), "seed {seed}");
        others.let_go(held.0.queue());
        held.synchronize().unwrap();
        assert!(held.query());
    }
}

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
        // Stamps come back: a thousand events leave no more than were in flight at once.
        for _ in 0..1000 {
            let event = Event::timing();
            event.record(stream);
            event.synchronize().unwrap();
        }
        assert!(device.0.spare_stamps() < 40, "{}", device.0.spare_stamps());
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
