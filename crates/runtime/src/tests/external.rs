//! Wrapped streams, over the simulator: other code works on streams of its own, and any of them can be held.

use super::{planted, turn};
use crate::{tests::oracle::op, *};
use raddle_hal::{Launch, QueueId};
use raddle_sim::{Others, Sim, SimOptions};
use raddle_sync::faults::Fault;
use std::{
    sync::{Barrier, mpsc},
    thread,
    time::Duration,
};

pub(super) const SIZE_BYTES: usize = 2048;

pub(super) fn open(seed: u64) -> (Device, Others) {
    let sim = Sim::new(Box::new(raddle_cpu::Cpu::new()), SimOptions { seed, ..SimOptions::default() });
    let sim = sim.unwrap();
    let others = sim.others();
    (Device::open(Box::new(sim)).unwrap(), others)
}

fn wrap(device: &Device, handle: u64) -> ExternalStream {
    // SAFETY: streams of the simulator's other code live for ever and don't capture.
    unsafe { Stream::wrap(device, handle) }.unwrap()
}

pub(super) fn fresh(device: &Device) -> Stream {
    Stream::from_pool(device, Priority::Normal).unwrap()
}

/// Other code fills a buffer, some time.
fn fill(others: &Others, handle: u64, buffer: &Buffer, value: u8) {
    let launch = Launch::FillBytes { to: buffer.block().address, size_bytes: SIZE_BYTES, value };
    // SAFETY: slabs of the test's device are given back by `close`, when everything that is recorded is over.
    unsafe { others.submit(handle, &launch) };
}

pub(super) fn bytes(device: &Device, buffer: &Buffer) -> Vec<u8> {
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

/// A wrapped stream is closed, and another gets its slot, while a callback of the first runs and another one waits behind it:
/// does the callback of each see its own stream, and does work go there?
fn are_callbacks_of_a_slot_told_apart() -> bool {
    let (device, others) = open(2);
    let [first, second] = [0, 1].map(|_| others.make_stream().unwrap());
    let (sender, receiver) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let external = wrap(&device, first);
    let closed = *external;
    let sees = |stream: Stream| {
        let sender = sender.clone();
        move |result: Result<()>| {
            result.unwrap();
            let (from, to) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
            let current = Stream::current(&device).unwrap();
            sender.send((current == stream, op(current, &[&from], &[&to]))).unwrap();
        }
    };
    external.on_complete(move |_| gate.recv().unwrap()).unwrap();
    external.on_complete(sees(closed)).unwrap();
    external.close().unwrap();
    device.synchronize().unwrap();
    let external = wrap(&device, second);
    assert_eq!(external.0.slot, closed.0.slot);
    external.on_complete(sees(*external)).unwrap();
    go.send(()).unwrap();
    let seen = [(); 2].map(|()| receiver.recv().unwrap());
    drop(external);
    assert!(device.close().unwrap());
    let refused = Error::StreamClosed { device: "sim:2".into(), stream: closed.id().0 };
    seen == [(true, Err(refused)), (true, Ok(()))]
}

#[test]
fn callbacks_of_a_slot_keep_their_streams() {
    let _turn = turn();
    assert!(are_callbacks_of_a_slot_told_apart());
}

#[test]
fn fault_callback_of_another() {
    let _planted = planted(Fault::callback_of_another);
    assert!(!are_callbacks_of_a_slot_told_apart(), "not caught");
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

/// Does the end of one stream come only with that of another, which is held? It is let go of when that takes so long.
fn is_another_waited_for(seed: u64, patience: Duration) -> bool {
    let (device, others) = open(seed);
    let (held, free) = (fresh(&device), fresh(&device));
    let [a, b, c, d] = [0; 4].map(|_| device.allocate(64).unwrap());
    device.synchronize().unwrap();
    others.hold(held.0.queue());
    op(held, &[&a], &[&b]).unwrap();
    op(free, &[&c], &[&d]).unwrap();
    let event = free.record();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            free.synchronize().unwrap();
            event.synchronize().unwrap();
            _ = sender.send(());
        });
        let waits = receiver.recv_timeout(patience).is_err();
        if !waits {
            assert!(free.query() && event.query() && !held.query() && !held.record().query(), "seed {seed}");
        }
        others.let_go(held.0.queue());
        waiter.join().unwrap();
        held.synchronize().unwrap();
        assert!(held.query());
        waits
    })
}

#[test]
fn one_stream_is_synchronized_without_the_others() {
    let _turn = turn();
    for seed in 0..20 {
        assert!(!is_another_waited_for(seed, Duration::from_secs(60)), "seed {seed}");
    }
}

#[test]
fn fault_waits_for_all() {
    let _planted = planted(Fault::waits_for_all);
    // Nobody lets go before that is over, however fast the machine is.
    assert!(is_another_waited_for(0, Duration::from_secs(5)), "not caught");
}
