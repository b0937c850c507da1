//! A trace as its threads play it.

use raddle::runtime::{MemoryTrace, TraceOp};

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Goes on with another stream.
    Enter(u8),
    Allocate {
        size_bytes: u64,
        place: Place,
    },
    Use(Place),
    Free(Place),
    Synchronize(u8),
}

/// Where a block is kept while it is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a list of the only thread that has to do with it.
    Own(u32),
    /// In a list for all.
    Shared(u32),
}

/// An action, and which event of the trace it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub event: u32,
    pub action: Action,
}

/// What each thread plays. The same for every policy.
pub struct Script {
    pub threads: Vec<Vec<Step>>,
    /// How many own places each thread needs.
    pub own_counts: Vec<usize>,
    /// For each shared place, how often its block is used: it isn't freed before.
    pub shared_uses: Vec<u32>,
    pub event_count: usize,
    /// One more than the highest stream.
    pub stream_count: usize,
}

impl Script {
    /// `with_uses`: otherwise uses and waits are left out.
    pub fn new(trace: &MemoryTrace, with_uses: bool) -> Script {
        let is_played =
            |op: &TraceOp| with_uses || matches!(op, TraceOp::Allocate { .. } | TraceOp::Free { .. });
        let events = || trace.events().iter().filter(|event| is_played(&event.op));
        let thread_count = events().map(|event| event.thread as usize + 1).max().unwrap_or(1);
        // Which allocations more than one thread has to do with.
        let (mut owners, mut is_shared) = (Vec::new(), vec![false; trace.allocation_count()]);
        for event in events() {
            match event.op {
                TraceOp::Allocate { .. } => owners.push(event.thread),
                TraceOp::Use { allocation } | TraceOp::Free { allocation } => {
                    is_shared[allocation as usize] |= owners[allocation as usize] != event.thread;
                }
                TraceOp::Synchronize => {}
            }
        }
        let mut script = Script {
            threads: vec![Vec::new(); thread_count],
            own_counts: vec![0; thread_count],
            shared_uses: Vec::new(),
            event_count: 0,
            stream_count: trace.events().iter().map(|event| event.stream as usize + 1).max().unwrap_or(1),
        };
        let mut unused: Vec<Vec<u32>> = vec![Vec::new(); thread_count];
        let mut streams = vec![None; thread_count];
        let (mut places, mut allocation_count) = (Vec::new(), 0);
        for event in events() {
            let thread = event.thread as usize;
            let mut push =
                |action| script.threads[thread].push(Step { event: script.event_count as u32, action });
            if streams[thread].replace(event.stream) != Some(event.stream) {
                push(Action::Enter(event.stream));
            }
            push(match event.op {
                TraceOp::Allocate { size_bytes } => {
                    let place = if is_shared[allocation_count] {
                        script.shared_uses.push(0);
                        Place::Shared(script.shared_uses.len() as u32 - 1)
                    } else {
                        Place::Own(unused[thread].pop().unwrap_or_else(|| {
                            script.own_counts[thread] += 1;
                            script.own_counts[thread] as u32 - 1
                        }))
                    };
                    allocation_count += 1;
                    places.push(place);
                    Action::Allocate { size_bytes, place }
                }
                TraceOp::Use { allocation } => {
                    let place = places[allocation as usize];
                    if let Place::Shared(index) = place {
                        script.shared_uses[index as usize] += 1;
                    }
                    Action::Use(place)
                }
                TraceOp::Free { allocation } => {
                    let place = places[allocation as usize];
                    if let Place::Own(index) = place {
                        unused[thread].push(index);
                    }
                    Action::Free(place)
                }
                TraceOp::Synchronize => Action::Synchronize(event.stream),
            });
            script.event_count += 1;
        }
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle::runtime::TraceEvent;

    fn event(thread: u16, stream: u8, op: TraceOp) -> TraceEvent {
        TraceEvent { time_us: 0, thread, stream, op }
    }

    #[test]
    fn a_thread_keeps_what_is_its_own_and_shares_the_rest() {
        let trace = MemoryTrace::new([
            event(0, 3, TraceOp::Allocate { size_bytes: 1 }),
            event(0, 3, TraceOp::Free { allocation: 0 }),
            event(0, 3, TraceOp::Allocate { size_bytes: 2 }),
            event(0, 4, TraceOp::Allocate { size_bytes: 3 }),
            event(1, 5, TraceOp::Use { allocation: 2 }),
            event(1, 5, TraceOp::Synchronize),
            event(0, 4, TraceOp::Free { allocation: 2 }),
        ])
        .unwrap();
        let step = |event, action| Step { event, action };
        let script = Script::new(&trace, true);
        let (own, shared) = (Place::Own(0), Place::Shared(0));
        assert_eq!(
            script.threads[0],
            [
                step(0, Action::Enter(3)),
                step(0, Action::Allocate { size_bytes: 1, place: own }),
                step(1, Action::Free(own)),
                step(2, Action::Allocate { size_bytes: 2, place: own }),
                step(3, Action::Enter(4)),
                step(3, Action::Allocate { size_bytes: 3, place: shared }),
                step(6, Action::Free(shared)),
            ]
        );
        let uses = [Action::Enter(5), Action::Use(shared), Action::Synchronize(5)];
        assert_eq!(script.threads[1].iter().map(|step| step.action).collect::<Vec<_>>(), uses);
        assert_eq!((script.own_counts, script.shared_uses, script.stream_count), (vec![1, 0], vec![1], 6));
        let without = Script::new(&trace, false);
        assert_eq!((without.threads.len(), without.event_count, without.shared_uses.len()), (1, 5, 0));
    }
}
