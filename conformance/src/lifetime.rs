//! How long the operands of an op live that runs later, under a lock: a model of handles and threads, explored whole.
//!
//! An op is *started* with operands that the caller's frame holds, *encoded* later by a thread that first has to get the
//! lock of the queue, and over once the device has run it. Meanwhile the collector may free what the frame held. An op
//! that owns its operands takes a handle of each when it is started and drops it when it is over; one that borrows an
//! operand doesn't. [`explore`] visits every state that can be reached and returns the shortest way to one in which an
//! operand is read after its death.
//!
//! It is `spec/Lifetime.tla` as well, with the ids TL.001 to TL.004. The shipped code has the owning way only: each op reaches a
//! queue by `submit`, which stamps the marks of all operands before it returns, and a block is reused behind its marks only. The
//! fault `borrowed_operand` plants the borrowing way there. [`schedules`] are what the model can do as far as a program can do it:
//! start the op of a thread, free an operand, let the device run the op. `tests/lifetime.rs` drives the shipped code through all of
//! them: the owning way has to give the right result in each, and the borrowing way a wrong one in those that the model condemns.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
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

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Start(usize),
    Free(usize),
    Lock(usize),
    Encode(usize),
    End(usize),
}

/// A step that a program can make, with the number of the thread or operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Move {
    /// The thread starts its op.
    Start(usize),
    /// The collector frees the operand, and its memory is used by others.
    Free(usize),
    /// The device runs the op of the thread.
    Run(usize),
}

/// Moves in an order that the model allows: all of them, or those up to the one that reads an operand after its death.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    /// In their order.
    pub moves: Vec<Move>,
    /// Is the last of them such a read?
    pub dies: bool,
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
    fn steps(&self, state: &State) -> Vec<Step> {
        if !state.created {
            return vec![Step::Create];
        }
        // The frame holds its operands until the op is started.
        let all_started = state.stages.iter().all(|stage| *stage != Stage::Called);
        let held = (0..self.operands.len()).filter(|&operand| all_started && state.held[operand]);
        let step = |thread| match state.stages[thread] {
            Stage::Called => Some(Step::Start(thread)),
            Stage::Started if state.stages.contains(&Stage::Locked) => None,
            Stage::Started => Some(Step::Lock(thread)),
            Stage::Locked => Some(Step::Encode(thread)),
            Stage::Encoded => Some(Step::End(thread)),
            Stage::Over => None,
        };
        held.map(Step::Free).chain((0..self.threads).filter_map(step)).collect()
    }

    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::Create => (next.created, next.counts) = (true, vec![1; self.operands.len()]),
            Step::Free(operand) => {
                next.held[operand] = false;
                next.counts[operand] -= 1;
            }
            Step::Start(thread) => {
                next.stages[thread] = Stage::Started;
                self.owned().for_each(|operand| next.counts[operand] += 1);
            }
            Step::Lock(thread) => next.stages[thread] = Stage::Locked,
            Step::Encode(thread) => {
                next.stages[thread] = Stage::Encoded;
                next.read_dead = next.counts.iter().position(|count| *count == 0);
            }
            Step::End(thread) => {
                next.stages[thread] = Stage::Over;
                self.owned().for_each(|operand| next.counts[operand] -= 1);
            }
        }
        next
    }

    /// The step in words, with the state that it leads to.
    fn told(&self, step: Step, after: &State) -> String {
        let who = |thread| if self.threads == 1 { "the thread".into() } else { format!("thread {thread}") };
        match step {
            Step::Create => "create".into(),
            Step::Free(operand) => format!("the collector frees {}", self.operands[operand].0),
            Step::Start(_) => {
                let counts: Vec<_> = after.counts.iter().map(u8::to_string).collect();
                format!("start {} with counts {}", self.name, counts.join(", "))
            }
            Step::Lock(thread) => format!("{} gets the lock", who(thread)),
            Step::Encode(thread) => match after.read_dead {
                Some(dead) => format!("encode reads {}, which is dead", self.operands[dead].0),
                None => format!("{} encodes and lets go of the lock", who(thread)),
            },
            Step::End(thread) => format!("the op of {} is over", who(thread)),
        }
    }

    fn start(&self) -> State {
        let count = self.operands.len();
        State {
            created: false,
            counts: vec![0; count],
            held: vec![true; count],
            stages: vec![Stage::Called; self.threads],
            read_dead: None,
        }
    }

    fn owned(&self) -> impl Iterator<Item = usize> {
        self.operands.iter().enumerate().filter(|(_, (_, owned))| *owned).map(|(index, _)| index)
    }
}

/// Visits every state, the nearest first.
pub fn explore(op: Op) -> Explored {
    let start = op.start();
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
        for step in steps {
            let reached = op.after(&state, step);
            if !from.contains_key(&reached) {
                let told = op.told(step, &reached);
                from.insert(reached.clone(), Some((state.clone(), told)));
                next.push_back(reached);
            }
        }
    }
    explored
}

/// Every order of moves that the model allows, each once.
pub fn schedules(op: Op) -> BTreeSet<Schedule> {
    rest(op, &op.start(), &mut HashMap::new())
}

/// Those from a state on. `known`: of states that were asked for before.
fn rest(op: Op, state: &State, known: &mut HashMap<State, BTreeSet<Schedule>>) -> BTreeSet<Schedule> {
    if let Some(found) = known.get(state) {
        return found.clone();
    }
    let steps = if state.read_dead.is_some() { Vec::new() } else { op.steps(state) };
    let mut found = BTreeSet::new();
    if steps.is_empty() {
        found.insert(Schedule { moves: Vec::new(), dies: state.read_dead.is_some() });
    }
    for step in steps {
        let made = match step {
            Step::Start(thread) => Some(Move::Start(thread)),
            Step::Free(operand) => Some(Move::Free(operand)),
            Step::Encode(thread) => Some(Move::Run(thread)),
            Step::Create | Step::Lock(_) | Step::End(_) => None,
        };
        let later = rest(op, &op.after(state, step), known);
        found.extend(later.into_iter().map(|Schedule { moves, dies }| Schedule {
            moves: made.into_iter().chain(moves).collect(),
            dies,
        }));
    }
    known.insert(state.clone(), found.clone());
    found
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
