//! How long the operands of an op live that runs later, under a lock: a model of handles and threads, explored whole.
//!
//! An op is *started* with operands that the caller's frame holds, *encoded* later by a thread that first has to get the
//! lock of the queue, and over once the device has run it. Meanwhile the collector may free what the frame held. An op
//! that owns its operands takes a handle of each when it is started and drops it when it is over; one that borrows an
//! operand doesn't. [`explore`] visits every state that can be reached and returns the shortest way to one in which an
//! operand is read after its death.
//!
//! This is a model: no change of the runtime can make it fail. It is `spec/Lifetime.tla` as well, with the ids TL.001 to TL.004.
//! The shipped code has the owning way only: each op reaches a queue by `submit`, which stamps the marks of all operands before it
//! returns, and a block is reused behind its marks only. The models of the runtime and the programs of `tests/lifetime.rs` check
//! that, and the fault `borrowed_operand` plants the borrowing way in the shipped code.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
};

/// An op whose operands are at stake.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What it is called.
    pub name: &'static str,
    /// The names of its operands, and whether the op takes a handle of each when it is started.
    pub operands: &'static [(&'static str, bool)],
    /// Threads that do such an op at once, on the same operands and the same queue.
    pub threads: usize,
}

/// Where an op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Called,
    Started,
    Locked,
    Encoded,
    Over,
}

/// Handles of each operand, whether the frame's is one of them, and where each thread is.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    created: bool,
    counts: Vec<u8>,
    held: Vec<bool>,
    stages: Vec<Stage>,
    /// An operand that was read after its death.
    read_dead: Option<usize>,
}

/// What came of an exploration.
#[derive(Debug)]
pub struct Explored {
    /// States that were visited.
    pub states: usize,
    /// The shortest story in which an operand is read after its death.
    pub story: Option<Story>,
    /// Were all handles gone whenever nobody could go on?
    pub nothing_is_left: bool,
}

/// One step a line.
#[derive(Debug)]
pub struct Story(pub Vec<String>);

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "{}. {step}", index + 1))
    }
}

impl Op {
    fn steps(&self, state: &State) -> Vec<(String, State)> {
        let mut steps = Vec::new();
        if !state.created {
            let counts = vec![1; self.operands.len()];
            steps.push(("create".into(), State { created: true, counts, ..state.clone() }));
            return steps;
        }
        // The frame holds its operands until the op is started.
        let all_started = state.stages.iter().all(|stage| *stage != Stage::Called);
        for (index, (name, _)) in self.operands.iter().enumerate() {
            if state.held[index] && all_started {
                let mut next = state.clone();
                next.held[index] = false;
                next.counts[index] -= 1;
                steps.push((format!("the collector frees {name}"), next));
            }
        }
        for thread in 0..self.threads {
            let mut next = state.clone();
            let who = if self.threads == 1 { "the thread".into() } else { format!("thread {thread}") };
            let what = match state.stages[thread] {
                Stage::Called => {
                    next.stages[thread] = Stage::Started;
                    self.owned().for_each(|index| next.counts[index] += 1);
                    let counts: Vec<_> = next.counts.iter().map(u8::to_string).collect();
                    format!("start {} with counts {}", self.name, counts.join(", "))
                }
                Stage::Started if state.stages.contains(&Stage::Locked) => continue,
                Stage::Started => {
                    next.stages[thread] = Stage::Locked;
                    format!("{who} gets the lock")
                }
                Stage::Locked => {
                    next.stages[thread] = Stage::Encoded;
                    next.read_dead = next.counts.iter().position(|count| *count == 0);
                    match next.read_dead {
                        Some(dead) => format!("encode reads {}, which is dead", self.operands[dead].0),
                        None => format!("{who} encodes and lets go of the lock"),
                    }
                }
                Stage::Encoded => {
                    next.stages[thread] = Stage::Over;
                    self.owned().for_each(|index| next.counts[index] -= 1);
                    format!("the op of {who} is over")
                }
                Stage::Over => continue,
            };
            steps.push((what, next));
        }
        steps
    }

    fn owned(&self) -> impl Iterator<Item = usize> {
        self.operands.iter().enumerate().filter(|(_, (_, owned))| *owned).map(|(index, _)| index)
    }
}

/// Visits every state, the nearest first.
pub fn explore(op: Op) -> Explored {
    let count = op.operands.len();
    let start = State {
        created: false,
        counts: vec![0; count],
        held: vec![true; count],
        stages: vec![Stage::Called; op.threads],
        read_dead: None,
    };
    let mut from: HashMap<State, Option<(State, String)>> = HashMap::from([(start.clone(), None)]);
    let mut next = VecDeque::from([start]);
    let mut explored = Explored { states: 0, story: None, nothing_is_left: true };
    while let Some(state) = next.pop_front() {
        explored.states += 1;
        if state.read_dead.is_some() {
            explored.story.get_or_insert_with(|| story(&from, &state));
            continue;
        }
        let steps = op.steps(&state);
        explored.nothing_is_left &= !steps.is_empty() || state.counts.iter().all(|count| *count == 0);
        for (what, reached) in steps {
            if !from.contains_key(&reached) {
                from.insert(reached.clone(), Some((state.clone(), what)));
                next.push_back(reached);
            }
        }
    }
    explored
}

fn story(from: &HashMap<State, Option<(State, String)>>, end: &State) -> Story {
    let mut steps = Vec::new();
    let mut state = end;
    while let Some((before, what)) = &from[state] {
        steps.push(what.clone());
        state = before;
    }
    steps.reverse();
    Story(steps)
}
