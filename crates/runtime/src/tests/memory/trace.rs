use super::*;
use crate::{
    Device, Stream,
    tests::{
        oracle::{self, op},
        planted, turn,
    },
};
use raddle_hal::Priority;
use raddle_sync::faults::Fault;
use std::{
    io::Cursor,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
};

fn event(thread: u16, stream: u8, op: TraceOp) -> TraceEvent {
    TraceEvent { time_us: 0, thread, stream, op }
}

fn ops(trace: &MemoryTrace) -> Vec<(u16, TraceOp)> {
    trace.events().iter().map(|event| (event.thread, event.op)).collect()
}

fn bytes(trace: &MemoryTrace) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<MemoryTrace, String> {
    MemoryTrace::read(Cursor::new(bytes)).map_err(|error| error.to_string())
}

struct Random(u64);
impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// A trace of any form that makes sense.
fn random_trace(seed: u64) -> MemoryTrace {
    let mut random = Random(seed * 2 + 1);
    let (mut live, mut allocations, mut time_us) = (Vec::new(), 0, 0);
    MemoryTrace::new((0..random.below(300)).map(|_| {
        time_us += random.below(3) * random.below(1 << 20);
        let op = match random.below(4) {
            0 => TraceOp::Synchronize,
            1 if !live.is_empty() => {
                TraceOp::Use { allocation: live[random.below(live.len() as u64) as usize] }
            }
            2 if !live.is_empty() => {
                TraceOp::Free { allocation: live.swap_remove(random.below(live.len() as u64) as usize) }
            }
            _ => {
                live.push(allocations);
                allocations += 1;
                let bits = random.below(40);
                TraceOp::Allocate { size_bytes: random.below(1 << bits) }
            }
        };
        TraceEvent { time_us, thread: random.below(300) as u16, stream: random.below(128) as u8, op }
    }))
    .unwrap()
}

#[test]
fn what_is_written_is_read_again() {
    for seed in 0..200 {
        let trace = random_trace(seed);
        assert_eq!(read(&bytes(&trace)).as_ref(), Ok(&trace), "seed {seed}");
    }
}

#[test]
fn a_file_that_is_cut_off_or_changed_is_an_error_or_another_trace_that_makes_sense() {
    for seed in 0..40 {
        let whole = bytes(&random_trace(seed));
        for end in 0..whole.len() {
            let error = read(&whole[..end]).unwrap_err();
            assert!(error.contains("ends inside") || error.contains("first line"), "seed {seed}: {error}");
        }
        let mut random = Random(seed + 1);
        for _ in 0..300 {
            let mut changed = whole.clone();
            let at = random.below(changed.len() as u64) as usize;
            changed[at] ^= 1 << random.below(8);
            if let Ok(trace) = read(&changed) {
                assert_eq!(MemoryTrace::new(trace.events().iter().copied()).unwrap(), trace, "seed {seed}");
            }
        }
    }
}

#[test]
fn errors_say_where_and_what() {
    let with = |records: &[u8]| [b"raddle memory trace 1\n", records].concat();
    let cases: [(Vec<u8>, &str); 16] = [
        (b"".into(), "trace: expected the first line \"raddle memory trace 1\", found \"\""),
        (
            b"raddle memory trace 2\n".into(),
            "trace: expected the first line \"raddle memory trace 1\", found \"raddle memory trace 2\"",
        ),
        (with(&[]), "trace: byte 22: the file ends inside of event 0"),
        (with(&[0, 0x80]), "trace: byte 24: the file ends inside of event 0"),
        (with(&[3, 3, 0x44]), "trace: byte 24: event 2 starts with 0x44, which no event does"),
        (
            with(&[&[0][..], &[0xff; 9], &[2]].concat()),
            "trace: byte 33: event 0 has a number of more than 64 bits",
        ),
        // One form only: no number of spare bytes, and no change that is none.
        (with(&[0, 0x88, 0]), "trace: byte 25: event 0 has a number of more bytes than it needs"),
        (with(&[0x0b, 0]), "trace: event 0: expected another thread than before, found the same"),
        (with(&[0x13, 1, 0x13, 1]), "trace: event 1: expected another stream than before, found the same"),
        (with(&[0x23, 0]), "trace: event 0: expected another time than before, found the same"),
        (
            with(&[&[0x23][..], &[0xff; 9], &[1, 0x23, 1]].concat()),
            "trace: byte 35: event 1 has a number of more than 64 bits",
        ),
        (with(&[7, 1]), "trace: expected 1 events, as its end says, found 0"),
        (with(&[7, 0, 0]), "trace: byte 24: expected the end of the file, found more"),
        (with(&[0, 8, 2, 0, 2, 0]), "trace: event 2: free of allocation 0, which is not live"),
        (with(&[0, 8, 1, 1]), "trace: event 1: use of allocation 4294967295, which is not live"),
        (with(&[0x13, 0x80, 1]), "trace: event 0: stream is 128, expected less than 128"),
    ];
    for (file, expected) in cases {
        assert_eq!(read(&file).unwrap_err(), expected);
    }
    let backwards = [2, 1].map(|time_us| TraceEvent { time_us, ..event(0, 0, TraceOp::Synchronize) });
    let error = MemoryTrace::new(backwards).unwrap_err().to_string();
    assert_eq!(error, "trace: event 1: its time is 1 us, that of the event before 2 us");
    let huge = [event(0, 0, TraceOp::Allocate { size_bytes: 1 << 62 }); 2];
    let error = MemoryTrace::new(huge).unwrap_err().to_string();
    assert!(error.starts_with("trace: event 1: bytes is 4611686018427387904"), "{error}");
}

/// What is recorded of one thread: an allocation from before, one that is used on two streams, one that stays.
#[test]
fn a_recording_holds_what_was_done() {
    let _turn = turn();
    let (device, _oracle) = oracle::open(64);
    let [a, b] = [(); 2].map(|()| Stream::from_pool(&device, Priority::Normal).unwrap());
    a.set_current();
    let earlier = device.allocate(100).unwrap();
    let recording = device.record_memory().unwrap();
    assert!(matches!(device.record_memory(), Err(TraceError::Recording)));
    let buffer = device.allocate(1000).unwrap();
    op(a, &[&earlier], &[&buffer]).unwrap();
    op(a, &[&buffer], &[]).unwrap();
    op(b, &[&buffer], &[&earlier]).unwrap();
    drop(earlier);
    let stays = device.allocate(2000).unwrap();
    drop(buffer);
    b.synchronize().unwrap();
    let trace = recording.finish().unwrap();
    drop(stays);
    let [a, b] = [a, b].map(|stream| stream.0.slot as u8);
    let expected = [
        (a, TraceOp::Allocate { size_bytes: 1000 }),
        (a, TraceOp::Use { allocation: 0 }),
        (b, TraceOp::Use { allocation: 0 }),
        (a, TraceOp::Allocate { size_bytes: 2000 }),
        (a, TraceOp::Free { allocation: 0 }),
        (b, TraceOp::Synchronize),
    ];
    let found: Vec<_> = trace.events().iter().map(|event| (event.stream, event.op)).collect();
    assert_eq!(found, expected);
    // Blocks that were given out during one recording are unknown to the next.
    let again = device.record_memory().unwrap();
    drop(device.allocate(1).unwrap());
    assert_eq!(again.finish().unwrap().allocation_count(), 1);
}

/// Two threads that free what the other has allocated, while others come and go.
fn exchange(device: Device) -> Result<MemoryTrace, TraceError> {
    const COUNT: usize = 200;
    let recording = device.record_memory()?;
    let (to_left, from_right) = mpsc::channel();
    let (to_right, from_left) = mpsc::channel();
    let side = move |give: mpsc::Sender<crate::Buffer>, take: mpsc::Receiver<crate::Buffer>| {
        for _ in 0..COUNT {
            give.send(device.allocate(300).unwrap()).unwrap();
            drop(take.recv().unwrap());
        }
    };
    let threads = [
        std::thread::spawn(move || side(to_left, from_left)),
        std::thread::spawn(move || side(to_right, from_right)),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    recording.finish()
}

#[test]
fn a_recording_of_threads_is_in_an_order_that_makes_sense() {
    let _turn = turn();
    let trace = exchange(oracle::open(64).0).unwrap();
    let frees = ops(&trace).iter().filter(|(_, op)| matches!(op, TraceOp::Free { .. })).count();
    assert_eq!((trace.allocation_count(), frees), (400, 400));
}

/// Each recording of threads that go on all the time is a whole piece of what they do, and knows nothing of the one before.
#[test]
fn recordings_may_begin_and_end_at_any_moment() {
    let _turn = turn();
    let (device, _oracle) = oracle::open(64);
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let maker = |give: mpsc::SyncSender<crate::Buffer>| {
        while !stop.load(Relaxed) {
            give.send(device.allocate(300).unwrap()).unwrap();
            drop(device.allocate(600).unwrap());
            rounds.fetch_add(1, Relaxed);
        }
    };
    let (give, take) = mpsc::sync_channel(16);
    let maker = &maker;
    std::thread::scope(|scope| {
        let threads = [give.clone(), give].map(|give| scope.spawn(move || maker(give)));
        let taker = scope.spawn(move || take.into_iter().for_each(drop));
        for _ in 0..100 {
            let recording = device.record_memory().unwrap();
            let before = rounds.load(Relaxed);
            while rounds.load(Relaxed) < before + 20 {
                std::thread::yield_now();
            }
            assert!(recording.finish().unwrap().allocation_count() >= 20);
        }
        stop.store(true, Relaxed);
        threads.into_iter().chain([taker]).for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn fault_lost_trace_event() {
    let _planted = planted(Fault::lost_trace_event);
    let error = exchange(oracle::open(64).0).unwrap_err();
    assert!(matches!(error, TraceError::Lost { expected: 800, found: 750 }), "{error}");
}

#[test]
fn fault_unordered_trace() {
    let _planted = planted(Fault::unordered_trace);
    let error = exchange(oracle::open(64).0).unwrap_err();
    assert!(matches!(error, TraceError::NotLive { op: "free", .. }), "{error}");
}
