//! The callbacks that wait on one stream, in the order of what they wait for. Who runs them:
//! [`stream::callback`](crate::stream).

use crate::ground::Result;
use raddle_sync::{Condvar, Mutex, Rank, fault};
use std::collections::VecDeque;

/// Callbacks that wait on one stream (guess: as many as a stream has ops in flight).
pub(crate) const CALLBACK_COUNT_MAX: usize = 1024;

pub(crate) type Body = Box<dyn FnOnce(Result<()>) + Send>;

pub(crate) struct Waiting {
    /// What of the stream has to be complete.
    pub(crate) sequence: u64,
    /// Names the callback: how many there had been.
    number: u64,
    /// Of the handle that it was given by: a slot's handles differ while one of a former life has callbacks.
    pub(crate) generation: u32,
    pub(crate) body: Body,
}

#[derive(Default)]
struct List {
    /// In the order of their sequences, and of arrival.
    waiting: VecDeque<Waiting>,
    /// Is there a thread that runs them? It looks at the list before it says no.
    has_thread: bool,
    /// How many there have been.
    added: u64,
}

/// Of one stream.
pub(crate) struct Callbacks {
    list: Mutex<List>,
    /// Signalled when the thread has ended.
    idle: Condvar,
}

/// A callback that was taken in.
pub(crate) struct Added {
    /// By which it can be [taken back](Callbacks::remove).
    pub(crate) number: u64,
    /// Is there no thread yet that will run it? Whoever is told so brings one.
    pub(crate) needs_thread: bool,
}

impl Callbacks {
    pub(crate) fn new() -> Callbacks {
        Callbacks { list: Mutex::new(Rank::Leaf, List::default()), idle: Condvar::new() }
    }

    /// Takes one in; nothing if there are so many already.
    pub(crate) fn add(&self, sequence: u64, generation: u32, body: Body, count_max: usize) -> Option<Added> {
        let mut list = self.list.lock();
        let mut is_full = list.waiting.len() >= count_max;
        fault!(callbacks_without_end => is_full = false);
        if is_full {
            return None;
        }
        let place = list.waiting.partition_point(|other| other.sequence <= sequence);
        let number = list.added;
        list.waiting.insert(place, Waiting { sequence, number, generation, body });
        list.added += 1;
        let needs_thread = !std::mem::replace(&mut list.has_thread, true);
        Some(Added { number, needs_thread })
    }

    /// Takes the first one out. If there is none its thread has ended, if `may_end`.
    pub(crate) fn next(&self, may_end: bool) -> Option<Waiting> {
        let mut list = self.list.lock();
        let next = list.waiting.pop_front();
        if next.is_none() && may_end {
            list.has_thread = false;
            self.idle.notify_all();
        }
        next
    }

    /// Blocks until there is none; how many there have been.
    pub(crate) fn drain(&self) -> u64 {
        let mut list = self.list.lock();
        while list.has_thread {
            list = self.idle.wait(list);
        }
        list.added
    }

    /// Takes one back that was [added](Callbacks::add), unless it is running or over.
    pub(crate) fn remove(&self, sequence: u64, number: u64) {
        let mut list = self.list.lock();
        let first = list.waiting.partition_point(|other| other.sequence < sequence);
        let mut same = list.waiting.range(first..).take_while(|other| other.sequence == sequence);
        let found = same.position(|other| other.number == number);
        let removed = found.and_then(|place| list.waiting.remove(first + place));
        drop(list);
        drop(removed); // what it owns may want locks
    }
}
