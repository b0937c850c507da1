//! Threads that want a stream for themselves, where there is one: no two get it, and none sleeps for ever.

use super::{Model, explore, streams_of};
use crate::stream::sharing::{Exhausted, claim, let_go, release};
use raddle_sync::{atomic, faults::Fault};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Is the stream in use? The flag is std's, so that it orders nothing in the model; the count is the model's, relaxed: a point
/// where the other thread can take over.
struct Use {
    is_taken: AtomicBool,
    beat: atomic::AtomicU32,
}

impl Use {
    fn new() -> Use {
        Use { is_taken: AtomicBool::new(false), beat: atomic::AtomicU32::new(0) }
    }
}

/// Takes the stream, is alone on it, gives it back.
fn take(model: &Model, used: &Use) {
    let (stream, hold) = claim(streams_of(&model.device), Exhausted::Wait).unwrap();
    assert!(!used.is_taken.swap(true, Relaxed), "race on a dedicated stream");
    used.beat.fetch_add(1, Relaxed);
    used.is_taken.store(false, Relaxed);
    release(stream, hold);
}

fn two_want_it(fault: Option<Fault>, preemptions: usize) {
    explore("two threads want one stream", fault, preemptions, |model| {
        let used = Arc::new(Use::new());
        let other = {
            let used = used.clone();
            model.spawn(move |model| take(&model, &used))
        };
        take(model, &used);
        other.join().unwrap();
    });
}

/// A thread that never asked for the stream lets go of it while another one is about to sleep.
fn a_user_leaves(fault: Option<Fault>, preemptions: usize) {
    explore("a user leaves what is wanted", fault, preemptions, |model| {
        let stream = streams_of(&model.device).opened(1);
        stream.users.fetch_add(1, Relaxed);
        let other = model.spawn(|model| take(&model, &Use::new()));
        let_go(stream);
        other.join().unwrap();
        assert_eq!(model.device.stream_users().iter().sum::<u32>(), 0);
    });
}

#[test]
fn model_dedicated() {
    two_want_it(None, 4)
}
#[test]
fn model_dedicated_user_leaves() {
    a_user_leaves(None, 4)
}
#[test]
fn fault_shared_dedicated() {
    two_want_it(Some(Fault::shared_dedicated), 2)
}
#[test]
fn fault_lost_slot_wakeup() {
    two_want_it(Some(Fault::lost_slot_wakeup), 2);
    a_user_leaves(Some(Fault::lost_slot_wakeup), 2);
}
