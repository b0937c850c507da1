//! Threads that want a stream for themselves, where there is one: no two get it, and none sleeps for ever.

use super::{Model, explore};
use crate::dedicated::{Exhausted, claim, let_go, release};
use raddle_sync::faults::Fault;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Takes the stream, is alone on it, gives it back. The flag is std's, so that it orders nothing in the model.
fn take(model: &Model, is_taken: &AtomicBool) {
    let (stream, hold) = claim(model.device.0, Exhausted::Wait).unwrap();
    assert!(!is_taken.swap(true, Relaxed), "race on a dedicated stream");
    model.stream(0).query(); // a point where the other thread can take over
    is_taken.store(false, Relaxed);
    release(stream, hold);
}

fn two_want_it(fault: Option<Fault>, preemptions: usize) {
    explore("two threads want one stream", fault, preemptions, |model| {
        let is_taken = std::sync::Arc::new(AtomicBool::new(false));
        let other = {
            let is_taken = is_taken.clone();
            model.spawn(move |model| take(&model, &is_taken))
        };
        take(model, &is_taken);
        other.join().unwrap();
    });
}

/// A thread that never asked for the stream lets go of it while another one is about to sleep.
fn a_user_leaves(fault: Option<Fault>, preemptions: usize) {
    explore("a user leaves what is wanted", fault, preemptions, |model| {
        let stream = model.device.0.opened(1);
        stream.users.fetch_add(1, Relaxed);
        let other = model.spawn(|model| take(&model, &AtomicBool::new(false)));
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
    two_want_it(Some(Fault::lost_slot_wakeup), 2)
}
