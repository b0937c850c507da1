//! The policies against what is published of their decisions, and the engine.

use super::{
    engine::{Pace, play},
    file,
    policy::{Counts, Ours, Policy, Slabs},
    pytorch::PyTorch,
    rmm::Rmm,
    script::Script,
};
use raddle::{
    Completion,
    runtime::{MemoryTrace, TraceEvent, TraceOp},
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn pytorch(completion: Completion) -> PyTorch {
    PyTorch::new(Slabs::default(), completion)
}

fn reserved_mib(policy: &impl Policy) -> u64 {
    policy.counts().reserved_bytes / MIB
}

#[test]
fn pytorch_takes_segments_by_size() {
    let segment = |size_bytes: u64| {
        let policy = pytorch(Completion::AtOnce);
        policy.allocate(size_bytes, 0).unwrap();
        let Counts { allocated_bytes, reserved_bytes, .. } = policy.counts();
        (allocated_bytes, reserved_bytes)
    };
    assert_eq!(segment(0), (0, 0));
    assert_eq!(segment(1), (512, 2 * MIB));
    assert_eq!(segment(513), (1024, 2 * MIB));
    assert_eq!(segment(MIB), (MIB, 2 * MIB));
    assert_eq!(segment(MIB + 1), (MIB + 512, 20 * MIB));
    assert_eq!(segment(10 * MIB - 512), (10 * MIB - 512, 20 * MIB));
    assert_eq!(segment(10 * MIB), (10 * MIB, 10 * MIB));
    assert_eq!(segment(12 * MIB + 512), (12 * MIB + 512, 14 * MIB), "what is left is more than 1 MiB");
    assert_eq!(segment(13 * MIB), (14 * MIB, 14 * MIB), "what is left is not");
}

#[test]
fn pytorch_takes_the_best_fit_and_merges() {
    let policy = pytorch(Completion::AtOnce);
    let blocks: Vec<_> = [4, 2, 3, 2, 5].map(|mib| policy.allocate(mib * MIB, 0).unwrap()).into();
    assert_eq!(reserved_mib(&policy), 20);
    policy.free(blocks[0]);
    policy.free(blocks[2]);
    let address = |block: Option<u32>| policy.address(block);
    let start = address(blocks[0]);
    // The hole of 3 fits better than that of 4 and the 4 at the end.
    let third = policy.allocate(3 * MIB, 0).unwrap();
    assert_eq!(address(third) - start, 6 * MIB);
    policy.free(third);
    policy.free(blocks[1]);
    // 4 + 2 + 3 are one again.
    let all = policy.allocate(9 * MIB, 0).unwrap();
    assert_eq!(address(all), start);
    assert_eq!((reserved_mib(&policy), policy.counts().slab_calls), (20, 1));
    // A rest of 1 MiB stays with a large block.
    policy.free(all);
    policy.allocate(8 * MIB, 0).unwrap();
    assert_eq!(policy.counts().allocated_bytes, (9 + 2 + 5) * MIB);
}

#[test]
fn pytorch_keeps_streams_apart_and_waits_for_events() {
    let policy = pytorch(Completion::AtSync);
    let block = policy.allocate(4 * MIB, 1).unwrap();
    policy.note_use(&block, 1).unwrap();
    policy.free(block);
    let other = policy.allocate(4 * MIB, 2).unwrap();
    assert_eq!(reserved_mib(&policy), 40);
    policy.note_use(&other, 1).unwrap();
    policy.note_use(&other, 3).unwrap();
    policy.free(other);
    assert_eq!(policy.counts().allocated_bytes, 0);
    let fill = policy.allocate(17 * MIB, 2).unwrap();
    assert_eq!(reserved_mib(&policy), 58, "events hold 4 of 20 MiB");
    policy.free(fill);
    policy.synchronize(1).unwrap();
    policy.allocate(19 * MIB, 2).unwrap();
    assert_eq!(reserved_mib(&policy), 78, "one of two events is over");
    policy.synchronize(3).unwrap();
    policy.allocate(20 * MIB, 2).unwrap();
    assert_eq!(reserved_mib(&policy), 78, "the segment is whole again");
}

#[test]
fn rmm_doubles_and_takes_other_streams_lists() {
    let policy = Rmm::new(Slabs::default());
    let first = policy.allocate(100 * KIB, 0).unwrap();
    assert_eq!(policy.counts().reserved_bytes, 100 * KIB);
    let second = policy.allocate(1, 0).unwrap();
    assert_eq!(policy.counts().reserved_bytes, 200 * KIB);
    assert_eq!(policy.counts().allocated_bytes, 100 * KIB + 256);
    policy.free(first);
    // The own list is empty; stream 0's blocks join it.
    let joined = policy.allocate(50 * KIB, 1).unwrap();
    assert_eq!(policy.counts().slab_calls, 2);
    let rest = policy.allocate(100 * KIB - 256, 1).unwrap();
    assert_eq!(policy.counts().slab_calls, 2, "what was left of stream 0's is stream 1's now");
    policy.free(rest);
    policy.allocate(100 * KIB, 2).unwrap();
    assert_eq!(policy.counts().slab_calls, 2, "it has merged with its neighbour");
    // Neighbours in the lists of three streams.
    policy.free(second);
    policy.free(joined);
    policy.allocate(400 * KIB, 2).unwrap();
    assert_eq!((policy.counts().reserved_bytes, policy.counts().slab_calls), (600 * KIB, 3));
    policy.allocate(100 * KIB, 2).unwrap();
    assert_eq!(policy.counts().slab_calls, 3, "they have merged when their lists were joined");
}

fn event(thread: u16, stream: u8, op: TraceOp) -> TraceEvent {
    TraceEvent { time_us: 0, thread, stream, op }
}

/// A producer and a consumer, as in the pipeline; some blocks stay live.
fn pipeline(count: u32) -> MemoryTrace {
    let events = (0..count).flat_map(|batch| {
        let mut events = vec![
            event(0, 1, TraceOp::Allocate { size_bytes: 3 * MIB }),
            event(0, 1, TraceOp::Use { allocation: 2 * batch }),
            event(1, 2, TraceOp::Allocate { size_bytes: 1000 }),
            event(1, 2, TraceOp::Use { allocation: 2 * batch }),
            event(1, 2, TraceOp::Use { allocation: 2 * batch + 1 }),
            event(1, 2, TraceOp::Free { allocation: 2 * batch }),
        ];
        if batch % 8 > 0 {
            events.push(event(1, 2, TraceOp::Free { allocation: 2 * batch + 1 }));
        }
        events.push(event(1, 2, TraceOp::Synchronize));
        events
    });
    MemoryTrace::new(events).unwrap()
}

#[test]
fn every_policy_plays_to_the_end_and_has_everything_back() {
    let trace = pipeline(400);
    for completion in [Completion::AtOnce, Completion::AtSync] {
        for script in [true, false].map(|with_uses| Script::new(&trace, with_uses)) {
            for pace in [Pace::InStep, Pace::Free] {
                let pytorch = pytorch(completion);
                play(&pytorch, &script, pace).unwrap();
                assert_eq!(pytorch.counts().allocated_bytes, 0);
                let rmm = Rmm::new(Slabs::default());
                play(&rmm, &script, pace).unwrap();
                assert_eq!(rmm.counts().allocated_bytes, 0);
                let ours = Ours::new(script.stream_count, completion).unwrap();
                play(&ours, &script, pace).unwrap();
                assert_eq!(ours.counts().allocated_bytes, 0);
                ours.close().unwrap();
            }
        }
    }
}

/// In step, what is counted doesn't depend on how the threads run.
#[test]
fn peaks_in_step_repeat() {
    let trace = pipeline(200);
    let script = Script::new(&trace, true);
    let peaks = || {
        let ours = Ours::new(script.stream_count, Completion::AtSync).unwrap();
        play(&ours, &script, Pace::InStep).unwrap();
        let counts = ours.counts();
        ours.close().unwrap();
        counts
    };
    assert_eq!(peaks(), peaks());
}

#[test]
fn shipped_traces_are_small_and_whole() {
    for (name, threads) in [("training", 1), ("inference", 9), ("pipeline", 2)] {
        let path = format!("{}/traces/{name}.trace.gz", env!("CARGO_MANIFEST_DIR"));
        assert!(std::fs::metadata(&path).unwrap().len() < 200 << 10, "{name}");
        let trace = file::read(path.as_ref()).unwrap();
        assert_eq!(Script::new(&trace, true).threads.len(), threads, "{name}");
        assert!(trace.allocation_count() > 500, "{name}");
    }
}

/// To reach: a peak no higher than the others', whenever work is complete. Of each trace by the policy with the lower one.
#[test]
fn our_peaks_are_no_higher() {
    fn peak(policy: &impl Policy, script: &Script) -> u64 {
        play(policy, script, Pace::InStep).unwrap();
        policy.counts().reserved_peak_bytes
    }
    for (name, rmm_is_lower) in [("training", false), ("inference", true), ("pipeline", false)] {
        let path = format!("{}/traces/{name}.trace.gz", env!("CARGO_MANIFEST_DIR"));
        let script = Script::new(&file::read(path.as_ref()).unwrap(), true);
        let lower = match rmm_is_lower {
            true => peak(&Rmm::new(Slabs::default()), &script),
            false => peak(&pytorch(Completion::AtOnce), &script),
        };
        for completion in [Completion::AtOnce, Completion::AtSync] {
            let policy = Ours::new(script.stream_count, completion).unwrap();
            let ours = peak(&policy, &script);
            policy.close().unwrap();
            assert!(ours <= lower, "{name}, {completion:?}: {ours}, theirs {lower}");
        }
    }
}

#[test]
fn too_many_streams_are_refused() {
    let error = Ours::new(70, Completion::AtOnce).err().unwrap().to_string();
    assert_eq!(error, "replay: expected at most 64 streams, found 69");
}
