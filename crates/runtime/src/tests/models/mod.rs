//! Models of the runtime under loom: the shipped code of marks, submission, completion, magazines and free against
//! reuse, in every order of two threads with a few preemptions, judged by the oracle.
//!
//! Loom's threads share one operating-system thread, so the models use magazines and streams by name, and the way past
//! the thread-locals: the centre. Run them by `cargo xtask loom`.

#[cfg(test)]
mod dedicated;
#[cfg(test)]
mod witness;

use super::{
    memory_of,
    oracle::{self, Oracle, op},
    streams_of,
};
use crate::{
    memory::{Counts, Magazine, ThreadCache},
    stream::sharing::{least_shared, let_go},
    *,
};
use loom::thread;
use raddle_sync::faults::{Fault, plant};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Streams of a model: slots 0, 1 and 2.
#[derive(Clone)]
struct Model {
    device: Device,
    oracle: Arc<Oracle>,
}

impl Model {
    fn stream(&self, slot: usize) -> Stream {
        streams_of(&self.device).opened(slot).handle()
    }
    fn op(&self, slot: usize, reads: &[&Buffer], writes: &[&Buffer]) {
        op(self.stream(slot), reads, writes).unwrap();
    }
    fn written(&self, slot: usize) -> Buffer {
        let buffer = self.device.allocate(64).unwrap();
        self.op(slot, &[], &[&buffer]);
        buffer
    }
    fn spawn(&self, body: impl FnOnce(Model) + 'static) -> thread::JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || body(model))
    }
}

/// Runs `body` in every order that loom finds with at most `preemptions`. It must hold, or with a fault planted must be
/// seen not to.
fn explore(
    name: &str,
    fault: Option<Fault>,
    preemptions: usize,
    body: impl Fn(&Model) + Send + Sync + 'static,
) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _planted = fault.map(plant);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Relaxed);
            let (device, oracle) = oracle::open(1000);
            (0..3).for_each(|slot| _ = streams_of(&device).stream(slot).unwrap());
            let model = Model { device, oracle };
            body(&model);
            model.oracle.check().unwrap();
        })
    }));
    let verdict = match result {
        Ok(()) => "holds".to_string(),
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
            .unwrap_or_default(),
    };
    let planted = fault.map_or("no fault", Fault::name);
    println!("{name}, {planted}: {} executions, {preemptions} preemptions: {verdict}", count.load(Relaxed));
    match fault {
        None => assert_eq!(verdict, "holds"),
        Some(_) => {
            let signs = ["race on", "not yet enqueued", "Causality violation", "deadlock"];
            assert!(signs.iter().any(|sign| verdict.contains(sign)), "the fault was not caught");
        }
    }
}

/// Two readers on their own streams, one writer on a third; the table of marks is made in the race.
fn readers_and_writer(fault: Option<Fault>, preemptions: usize) {
    explore("two readers and a writer", fault, preemptions, |model| {
        let buffer = model.written(0);
        let reader = |slot| {
            let buffer = buffer.clone();
            model.spawn(move |model| model.op(slot, &[&buffer], &[]))
        };
        let readers = [reader(0), reader(1)];
        model.op(2, &[], &[&buffer]);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        model.op(2, &[], &[&buffer]); // sees every read mark
    });
}

/// The same with the marks there already: readers don't touch `home`.
fn registered_readers(fault: Option<Fault>, preemptions: usize) {
    explore("two registered readers and a writer", fault, preemptions, |model| {
        let buffer = model.written(2);
        model.op(0, &[&buffer], &[]);
        model.op(1, &[&buffer], &[]);
        let other = {
            let buffer = buffer.clone();
            model.spawn(move |model| model.op(0, &[&buffer], &[]))
        };
        model.op(2, &[], &[&buffer]);
        model.op(1, &[&buffer], &[]);
        other.join().unwrap();
        model.op(2, &[], &[&buffer]);
    });
}

/// Somebody looks whether all uses of a buffer are over, of which two reads aren't, while a writer takes them over.
fn looked_at(fault: Option<Fault>, preemptions: usize) {
    explore("a buffer is looked at", fault, preemptions, |model| {
        for reader_count in [1, 2] {
            let buffer = model.written(0);
            while model.oracle.complete_next(0) {}
            (0..reader_count).for_each(|slot| model.op(slot, &[&buffer], &[]));
            let writer = {
                let buffer = buffer.clone();
                model.spawn(move |model| model.op(2, &[], &[&buffer]))
            };
            assert!(!buffer.query(), "race on a buffer that is read");
            writer.join().unwrap();
            assert!(!buffer.query(), "race on a buffer that is written");
        }
    });
}

/// A stream reads again while another one makes the table and registers it there: the table must be seen whole.
fn registered_by_another(fault: Option<Fault>, preemptions: usize) {
    explore("registered by another", fault, preemptions, |model| {
        let buffer = model.written(2);
        model.op(0, &[&buffer], &[]);
        let other = {
            let buffer = buffer.clone();
            model.spawn(move |model| model.op(1, &[&buffer], &[]))
        };
        model.op(0, &[&buffer], &[]);
        other.join().unwrap();
        model.op(2, &[], &[&buffer]);
    });
}

/// A reader whose op may complete, and who drops the last handle or not, while the owner frees and takes memory again.
fn free_and_reuse(fault: Option<Fault>, preemptions: usize) {
    explore("reader against free and reuse", fault, preemptions, |model| {
        let buffer = model.written(0);
        let reader = {
            let buffer = buffer.clone();
            model.spawn(move |model| {
                model.op(1, &[&buffer], &[]);
                drop(buffer);
                model.stream(1).query(); // a point where the other thread can take over
                model.oracle.complete_next(0);
                model.oracle.complete_next(1);
            })
        };
        drop(buffer);
        let next = model.device.allocate(64).unwrap();
        model.op(0, &[], &[&next]);
        reader.join().unwrap();
        let last = model.device.allocate(64).unwrap();
        model.op(2, &[], &[&last, &next]);
    });
}

/// Two threads on one stream with operands in opposite orders, then a stream that depends on both.
fn one_stream(fault: Option<Fault>, preemptions: usize) {
    explore("two threads on one stream", fault, preemptions, |model| {
        let (a, b) = (model.written(0), model.written(1));
        let other = {
            let (a, b) = (a.clone(), b.clone());
            model.spawn(move |model| model.op(2, &[&b], &[&a]))
        };
        model.op(2, &[&a], &[&b]);
        model.op(1, &[&a], &[&b]);
        other.join().unwrap();
    });
}

/// Opposite operands on two streams: no deadlock, and one of the two orders for both buffers.
fn opposite_operands(fault: Option<Fault>, preemptions: usize) {
    explore("opposite operands", fault, preemptions, |model| {
        let (a, b) = (model.device.allocate(64).unwrap(), model.device.allocate(64).unwrap());
        let other = {
            let (a, b) = (a.clone(), b.clone());
            model.spawn(move |model| model.op(1, &[&b], &[&a]))
        };
        model.op(0, &[&a], &[&b]);
        other.join().unwrap();
        model.op(2, &[&a, &b], &[]);
    });
}

/// Stream 1 hands `y` over and only then learns of `x`: who waits for `y` has not waited for `x`.
fn learns_after_the_tick(fault: Option<Fault>, preemptions: usize) {
    explore("the producer learns after the tick", fault, preemptions, |model| {
        let (x, y) = (model.device.allocate(64).unwrap(), model.device.allocate(64).unwrap());
        let producer = {
            let (x, y) = (x.clone(), y.clone());
            model.spawn(move |model| {
                model.op(2, &[], &[&x]);
                model.op(1, &[], &[&y]);
                model.op(1, &[&x], &[]);
            })
        };
        model.op(0, &[&y], &[]);
        model.op(0, &[&x], &[]);
        producer.join().unwrap();
    });
}

/// A thread's magazine, emptied by another thread while its owner allocates and frees: no block in two hands.
fn magazine_is_stolen_from(fault: Option<Fault>, preemptions: usize) {
    explore("a magazine is stolen from", fault, preemptions, |model| {
        let magazine = loom::sync::Arc::new(Magazine::new(ThreadCache::new()));
        let is_complete = {
            let device = model.device;
            move |tick| streams_of(&device).is_complete(tick)
        };
        let buffer = model.written(1);
        let mut blocks = Vec::new();
        drop(buffer); // to the centre
        memory_of(&model.device).take_all(&mut blocks);
        assert!(!blocks.is_empty());
        let mut rest = Vec::new();
        magazine
            .visit(|cache| blocks.drain(..).for_each(|block| cache.put(block, 0, is_complete, &mut rest)));
        let thief = {
            let magazine = magazine.clone();
            model.spawn(move |model| {
                let mut taken = Vec::new();
                magazine.visit(|cache| cache.drain(&mut taken));
                taken.into_iter().for_each(|block| model.op(2, &[], &[&Buffer::give(block, 64)]));
            })
        };
        // SAFETY: only this thread calls it.
        let taken = unsafe { magazine.own(|cache| cache.take(0, 0, true, is_complete)) };
        if let Some(block) = taken {
            model.op(0, &[], &[&Buffer::give(block, 64)]);
        }
        thief.join().unwrap();
    });
}

/// A graph of one instance, replayed on two streams whose threads read the output and let go of it: nobody gets memory that
/// another one holds, and whoever gets the instance next is ordered behind the reads. `capture` is this thread's, so it is
/// over before there are others.
fn replays_share_an_instance(fault: Option<Fault>, preemptions: usize) {
    explore("replays share an instance", fault, preemptions, |model| {
        let weight = model.written(0);
        let capture = Capture::begin(&model.device).unwrap();
        let output = model.device.allocate(64).unwrap();
        model.op(0, &[&weight], &[&output]);
        let graph = loom::sync::Arc::new(capture.end(&[&output]).unwrap());
        drop(output);
        graph.set_instance_count_max(1);
        // std's, so that it orders nothing in the model.
        let held = Arc::new(Mutex::new(std::collections::HashSet::new()));
        let replay = move |model: &Model, graph: &Graph, slot: usize| {
            let outputs = graph.replay_on(model.stream(slot), &[], &[]).unwrap();
            assert!(held.lock().unwrap().insert(outputs[0].id()), "race on an output that is held");
            model.op(slot, &[&outputs[0]], &[]);
            held.lock().unwrap().remove(&outputs[0].id());
        };
        let other = {
            let (graph, replay) = (graph.clone(), replay.clone());
            model.spawn(move |model| replay(&model, &graph, 1))
        };
        replay(model, &graph, 2);
        other.join().unwrap();
        model.op(0, &[], &[&weight]);
    });
}

/// Threads hand in what they have counted while another one looks: nothing is lost, and no count falls.
fn counts(fault: Option<Fault>, preemptions: usize) {
    explore("threads hand in counts", fault, preemptions, |model| {
        let allocator = memory_of(&model.device);
        let hand_in = || allocator.collect(&mut Counts { allocations: 1, ..Counts::default() });
        let look = || allocator.allocations.load(raddle_sync::atomic::Relaxed);
        let other = model.spawn(move |_| hand_in());
        let first = look();
        hand_in();
        let second = look();
        other.join().unwrap();
        assert!(first <= second && look() == 2, "race on a count: {first}, {second}, {}", look());
    });
}

/// One thread adds, another one resets the peak: what is there after both is in it, though it goes.
fn peak_is_reset(fault: Option<Fault>, preemptions: usize) {
    explore("a peak is reset", fault, preemptions, |model| {
        let gauge = &memory_of(&model.device).reserved;
        let before = gauge.now() as i64;
        let other = model.spawn(move |_| gauge.add(5));
        gauge.reset_peak();
        other.join().unwrap();
        gauge.add(-5);
        let (_, peak) = gauge.now_and_peak();
        assert!(peak as i64 == before + 5, "race on a peak: {peak}, {before} before");
    });
}

/// `layer_norm` of X, gamma and bias, on its way to a queue while the collector frees bias and somebody else gets the
/// memory: operands are owned by the submission, all three of them.
fn operands_are_freed(fault: Option<Fault>, preemptions: usize) {
    explore("operands are freed", fault, preemptions, |model| {
        let [x, gamma, bias] = [(); 3].map(|()| model.written(0));
        let output = model.device.allocate(64).unwrap();
        let held = bias.clone();
        let thread = model.spawn(move |model| {
            model.op(1, &[&x, &gamma, &held], &[&output]);
            drop(held);
            model.stream(1).query(); // a point where the collector can take over
        });
        drop(bias);
        let next = model.device.allocate(64).unwrap();
        model.op(0, &[], &[&next]);
        thread.join().unwrap();
        let last = model.device.allocate(64).unwrap();
        model.op(2, &[], &[&last, &next]);
    });
}

/// Two threads ask the device what is complete while it completes more: what is known never falls.
fn two_threads_poll(fault: Option<Fault>, preemptions: usize) {
    explore("two threads poll", fault, preemptions, |model| {
        model.op(0, &[], &[]);
        model.op(0, &[], &[]);
        let poll = |model: &Model| {
            model.oracle.complete_next(0);
            let seen = model.stream(0).0.poll();
            let known = model.stream(0).0.completed.load(raddle_sync::atomic::Acquire);
            assert!(known >= seen, "race on what is complete: {known} is known after {seen} was");
        };
        let other = model.spawn(move |model| poll(&model));
        poll(model);
        other.join().unwrap();
    });
}

/// One thread records an event again and lets go of it, another one asks it: it has the old tick or the new one, and never
/// none, for which nobody would wait.
fn event_is_shared(fault: Option<Fault>, preemptions: usize) {
    explore("an event is shared", fault, preemptions, |model| {
        model.op(0, &[], &[]);
        let event = Arc::new(Event::new());
        event.record(model.stream(0));
        let other = {
            let event = event.clone();
            model.spawn(move |model| {
                model.op(0, &[], &[]);
                event.record(model.stream(0));
            })
        };
        model.oracle.complete_next(0);
        let is_complete = event.query();
        let (_, tick) = event.tick().expect("race on an event: it has recorded nothing");
        assert!((1..=2).contains(&tick.sequence()), "race on an event: {tick:?}");
        assert!(!is_complete || model.stream(0).0.completed.load(raddle_sync::atomic::Acquire) >= 1);
        other.join().unwrap();
        assert_eq!(
            event.tick().map(|(_, tick)| tick.sequence()),
            Some(2),
            "race on an event: the last record"
        );
    });
}

/// Who sees a tick complete sees what the device wrote before; loom's cell is the device's memory.
fn completion_publishes(fault: Option<Fault>, preemptions: usize) {
    explore("completion publishes", fault, preemptions, |model| {
        model.op(0, &[], &[]);
        let result = loom::sync::Arc::new(raddle_sync::UnsafeCell::new(0));
        let accelerator = {
            let result = result.clone();
            model.spawn(move |model| {
                // SAFETY: loom checks it: the only reader comes after the completion.
                result.with_mut(|result| unsafe { *result = 1 });
                model.oracle.complete_next(0);
                model.stream(0).0.poll();
            })
        };
        model.oracle.meet();
        if model.stream(0).0.completed.load(raddle_sync::atomic::Acquire) >= 1 {
            // SAFETY: as above.
            assert_eq!(result.with(|result| unsafe { *result }), 1);
        }
        accelerator.join().unwrap();
    });
}

/// Threads bind to a stream and let go while others do: the counts add up, and two threads get different ones as long
/// as there are free ones.
#[test]
fn model_binding() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (device, _) = oracle::open(1000);
        let bind = move || {
            let stream = least_shared(streams_of(&device)).unwrap();
            assert!(stream.users.load(raddle_sync::atomic::Relaxed) >= 1);
            stream
        };
        let other = thread::spawn(move || {
            let_go(bind());
        });
        let stream = bind();
        other.join().unwrap();
        assert_eq!(device.stream_users().iter().sum::<u32>(), 1);
        let_go(stream);
        assert_eq!(device.stream_users().iter().sum::<u32>(), 0);
    });
}

#[test]
fn model_completion_publishes() {
    completion_publishes(None, 6)
}
#[test]
fn model_registered_by_another() {
    registered_by_another(None, 6)
}
#[test]
fn model_readers_and_writer() {
    readers_and_writer(None, 3)
}
#[test]
fn model_registered_readers() {
    registered_readers(None, 5)
}
#[test]
fn model_looked_at() {
    looked_at(None, 4)
}
#[test]
fn fault_write_looked_at_first() {
    looked_at(Some(Fault::write_looked_at_first), 4)
}
#[test]
fn model_free_and_reuse() {
    free_and_reuse(None, 4)
}
#[test]
fn model_one_stream() {
    one_stream(None, 5)
}
#[test]
fn model_opposite_operands() {
    opposite_operands(None, 5)
}
#[test]
fn model_learns_after_the_tick() {
    learns_after_the_tick(None, 5)
}
#[test]
fn model_magazine() {
    magazine_is_stolen_from(None, 5)
}

#[test]
fn model_counts() {
    counts(None, 5)
}

#[test]
fn model_peak_is_reset() {
    peak_is_reset(None, 5)
}

#[test]
fn model_operands_are_freed() {
    operands_are_freed(None, 3)
}
#[test]
fn model_two_threads_poll() {
    two_threads_poll(None, 5)
}
#[test]
fn model_event_is_shared() {
    event_is_shared(None, 4)
}
#[test]
fn model_replays() {
    replays_share_an_instance(None, 3)
}

#[test]
fn fault_blank_while_recorded() {
    event_is_shared(Some(Fault::blank_while_recorded), 2)
}
#[test]
fn fault_lost_count() {
    counts(Some(Fault::lost_count), 2)
}
#[test]
fn fault_peak_overwritten() {
    peak_is_reset(Some(Fault::peak_overwritten), 2)
}
#[test]
fn fault_reuse_leased() {
    replays_share_an_instance(Some(Fault::reuse_leased), 2)
}
#[test]
fn fault_unhoisted_waits() {
    replays_share_an_instance(Some(Fault::unhoisted_waits), 2)
}
#[test]
fn fault_one_read_mark() {
    readers_and_writer(Some(Fault::one_read_mark), 2)
}
#[test]
fn fault_no_wait_after_read() {
    registered_readers(Some(Fault::no_wait_after_read), 2)
}
#[test]
fn fault_current_clock() {
    learns_after_the_tick(Some(Fault::current_clock), 3)
}
#[test]
fn fault_free_without_fence() {
    free_and_reuse(Some(Fault::free_without_fence), 2)
}
#[test]
fn fault_forget_marks() {
    magazine_is_stolen_from(Some(Fault::forget_marks), 2)
}
#[test]
fn fault_visits_without_fence() {
    magazine_is_stolen_from(Some(Fault::visits_without_fence), 2)
}
#[test]
fn fault_borrowed_operand() {
    operands_are_freed(Some(Fault::borrowed_operand), 2)
}
#[test]
fn fault_completed_relaxed() {
    completion_publishes(Some(Fault::completed_relaxed), 2)
}
#[test]
fn fault_completed_falls() {
    two_threads_poll(Some(Fault::completed_falls), 2)
}
#[test]
fn fault_stamp_before_submit() {
    opposite_operands(Some(Fault::stamp_before_submit), 2)
}
#[test]
fn fault_looks_before_it_claims() {
    opposite_operands(Some(Fault::looks_before_it_claims), 2)
}
#[test]
fn fault_elide_enqueued() {
    readers_and_writer(Some(Fault::elide_enqueued), 2)
}
