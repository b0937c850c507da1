//! The events of one queue: which were recorded, what each covers, which may be used again.
//!
//! An event is recorded by whoever has to wait, on the queue of somebody else, while that one may be submitting. So its
//! label is the number that was *submitted before the record*: the event then covers at least that. (Loaded afterwards it
//! could name a launch that the event doesn't cover: the planted fault.) Labels grow from one to the next, since they are
//! loaded under the lock that this is behind. One event serves all waits up to its label.
//!
//! An event may be recorded anew once its label is complete: a wait that was put on a stream holds what the event had
//! recorded then. Only a thread that sleeps on an event still needs it; it holds the event meanwhile.
//!
//! Bounded by itself: an event is recorded only for a number above the newest label, and freed when its label is complete,
//! so there are at most as many as the queue has launches in flight.

use raddle_sync::{
    atomic::{AtomicU64, Ordering::*},
    fault,
};
use std::collections::VecDeque;

/// What an event is for. Whoever waits for one of `Sleep` on the host sleeps; making one may cost an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Streams wait for it.
    Stream,
    /// Threads wait for it, and streams may.
    Sleep,
}

#[derive(Debug)]
struct Recorded<E> {
    covers: u64,
    event: E,
    kind: Kind,
    /// Threads that sleep on it.
    holders: u32,
}

/// Oldest first.
#[derive(Debug)]
pub struct Events<E> {
    recorded: VecDeque<Recorded<E>>,
    free: Vec<(Kind, E)>,
}

impl<E: Copy + PartialEq> Events<E> {
    pub fn new() -> Events<E> {
        Events { recorded: VecDeque::new(), free: Vec::new() }
    }

    /// The highest label.
    pub fn newest(&self) -> u64 {
        self.recorded.back().map_or(0, |recorded| recorded.covers)
    }

    /// The oldest event that covers a number.
    pub fn covering(&self, sequence: u64) -> Option<E> {
        let first = self.recorded.partition_point(|recorded| recorded.covers < sequence);
        self.recorded.get(first).map(|recorded| recorded.event)
    }

    /// Is there one to sleep on that covers a number?
    pub fn can_sleep(&self, sequence: u64) -> bool {
        self.recorded.iter().any(|recorded| recorded.covers >= sequence && recorded.kind == Kind::Sleep)
    }

    /// The oldest event, and what it covers.
    pub fn oldest(&self) -> Option<(u64, E)> {
        self.recorded.front().map(|recorded| (recorded.covers, recorded.event))
    }

    /// Frees what is complete.
    pub fn recycle(&mut self, completed: u64) {
        while let Some(front) = self.recorded.front()
            && front.covers <= completed
            && front.holders == 0
        {
            self.free.push((front.kind, front.event));
            self.recorded.pop_front();
        }
    }

    /// Records an event on the queue whose submitted number is given. `make` makes one, `record` records it.
    pub fn record<Error>(
        &mut self,
        kind: Kind,
        submitted: &AtomicU64,
        make: impl FnOnce() -> Result<E, Error>,
        record: impl FnOnce(E) -> Result<(), Error>,
    ) -> Result<E, Error> {
        let event = match self.free.iter().rposition(|(other, _)| *other == kind) {
            Some(index) => self.free.swap_remove(index).1,
            None => make()?,
        };
        let before = submitted.load(Acquire); // pairs with the Release in `Queue::publish`
        if let Err(error) = record(event) {
            self.free.push((kind, event));
            return Err(error);
        }
        let covers = if fault!(label_after_record) { submitted.load(Acquire) } else { before };
        self.recorded.push_back(Recorded { covers, event, kind, holders: 0 });
        Ok(event)
    }

    /// Keeps the oldest event to sleep on that covers a number from being recorded anew.
    pub fn hold(&mut self, sequence: u64) -> Option<(u64, E)> {
        let first = self.recorded.partition_point(|recorded| recorded.covers < sequence);
        let found = self.recorded.range_mut(first..).find(|recorded| recorded.kind == Kind::Sleep)?;
        found.holders += 1;
        Some((found.covers, found.event))
    }

    /// Ends a hold.
    pub fn let_go(&mut self, event: E) {
        if let Some(held) = self.recorded.iter_mut().find(|recorded| recorded.event == event) {
            held.holders -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{plant, quiet};
    use raddle_sync::faults::Fault;
    use std::convert::Infallible;

    /// A queue whose owner submits one more launch right after each record: the worst moment.
    struct Owner {
        submitted: AtomicU64,
        made: u32,
        /// What each event has really recorded.
        recorded: Vec<u64>,
    }

    impl Owner {
        fn new() -> Owner {
            Owner { submitted: AtomicU64::new(5), made: 0, recorded: Vec::new() }
        }

        fn record(&mut self, events: &mut Events<u32>, kind: Kind) -> u32 {
            let Owner { submitted, made, recorded } = self;
            let submitted = &*submitted;
            let make = || {
                *made += 1;
                Ok::<u32, Infallible>(*made - 1)
            };
            let Ok(event) = events.record(kind, submitted, make, |event| {
                recorded.resize(recorded.len().max(event as usize + 1), 0);
                recorded[event as usize] = submitted.load(Acquire);
                submitted.fetch_add(1, Release);
                Ok(())
            });
            event
        }

        /// Does every event cover what it is said to?
        fn labels_hold(&self, events: &Events<u32>) -> bool {
            events.recorded.iter().all(|recorded| recorded.covers <= self.recorded[recorded.event as usize])
        }
    }

    #[test]
    fn an_event_covers_its_label_and_serves_all_below() {
        let _quiet = quiet();
        let (mut owner, mut events) = (Owner::new(), Events::new());
        let first = owner.record(&mut events, Kind::Stream);
        let second = owner.record(&mut events, Kind::Sleep);
        assert!(owner.labels_hold(&events));
        assert_eq!(
            (events.covering(1), events.covering(5), events.covering(6)),
            (Some(first), Some(first), Some(second))
        );
        assert_eq!((events.covering(7), events.newest()), (None, 6));
    }

    #[test]
    fn events_are_recorded_anew_when_complete_and_nobody_sleeps_on_them() {
        let _quiet = quiet();
        let (mut owner, mut events) = (Owner::new(), Events::new());
        owner.record(&mut events, Kind::Stream);
        owner.record(&mut events, Kind::Sleep);
        let (covers, held) = events.hold(1).unwrap();
        assert_eq!((covers, held), (6, 1), "only one of the kind that sleeps");
        events.recycle(6);
        assert_eq!(owner.record(&mut events, Kind::Stream), 0, "the first is used again");
        assert_eq!(owner.record(&mut events, Kind::Sleep), 2, "the second is held");
        events.let_go(held);
        events.recycle(6);
        assert_eq!(owner.record(&mut events, Kind::Sleep), 1);
        assert!(owner.labels_hold(&events));
    }

    #[test]
    fn fault_label_after_record() {
        let _planted = plant(Fault::label_after_record);
        let (mut owner, mut events) = (Owner::new(), Events::new());
        owner.record(&mut events, Kind::Stream);
        assert!(!owner.labels_hold(&events), "the check sees it");
    }
}
