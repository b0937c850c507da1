//! What is queued, what is complete, and what runs next. No thread, no device: the shell in `lib.rs` executes what `begin`
//! hands out and reports to `end`.

use crate::{
    OutOfMemory, SimOptions,
    piece::{self, Piece, cut},
    random::Random,
};
use raddle_hal::{DeviceError, Gate, KernelError, Launch, QUEUE_COUNT_MAX, QueueId, Wait};
use raddle_sync::fault;
// std's, as in `piece`.
use std::{
    collections::VecDeque,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

/// Executed pieces that are remembered for a report (guess: a few screens).
const HISTORY_COUNT_MAX: usize = 256;
/// Kernel errors that wait to be taken; beyond it the oldest is forgotten (guess, above what all tests leave).
const ERROR_COUNT_MAX: usize = 4096;
/// For so many turns one queue is passed over (guess: longer than most programs of tests take to reuse a buffer).
const STARVING_TURNS_MAX: u64 = 64;
/// What a turn stands for where somebody names a time: a run follows from its seed, and not from a clock (guess: the shortest
/// time that a test asks for is some turns).
const TURN_NS: u64 = 1000;
/// A slow launch lets at most so many turns pass (guess).
const SLOW_TURNS_MAX: u64 = 16;

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A piece was executed.
    Ran,
    /// A slow launch let it pass.
    Passed,
    /// Another thread is executing a piece.
    Taken,
    /// No queue has a head that may run.
    Nothing,
}

/// Among which queues the next is drawn.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// All.
    Any,
    /// The one that this queue can't go on without: everything else stays late.
    For(QueueId),
}

struct Entry {
    /// Its queue and number; none if other code has put it there.
    launch: Option<Wait>,
    waits: Box<[Wait]>,
    name: &'static str,
    pieces: VecDeque<Piece>,
    piece_count: usize,
    idle_turns: u64,
    /// It starts when this is open.
    gate: Option<Gate>,
}

#[derive(Default)]
struct Queue {
    /// Of a queue that stands for a stream of other code they are with that one.
    entries: VecDeque<Entry>,
    submitted: u64,
    flushed: u64,
    completed: u64,
    /// The stream of other code that it stands for.
    stands_for: Option<QueueId>,
    /// Nothing of it starts.
    is_held: bool,
}

/// Streams of other code have the ids from here on.
const OTHERS_FIRST: usize = QUEUE_COUNT_MAX;

/// What came of a piece: the device's error, or the kernel's.
pub type Executed = Result<Result<(), KernelError>, DeviceError>;

/// A piece that is to be executed: which, of what, and its number on the wrapped device.
pub struct Begun {
    pub queue: QueueId,
    /// None if other code put it there.
    pub launch: Option<Wait>,
    pub name: &'static str,
    pub piece: Arc<Piece>,
    pub inner_sequence: u64,
}

/// One executed piece.
struct Step {
    launch: Option<Wait>,
    name: &'static str,
    piece: usize,
    piece_count: usize,
}

pub struct State {
    options: SimOptions,
    random: Random,
    /// Up to the highest opened.
    queues: Vec<Queue>,
    others_count: usize,
    /// Threads that sleep because of what is held.
    pub waiting_count: usize,
    turn_is_taken: bool,
    /// What whoever has the turn executes: of which launch, in which line.
    running: Option<(Option<Wait>, QueueId, Arc<Piece>)>,
    inner_sequence: u64,
    executed_count: u64,
    slab_count: u64,
    starved: Option<QueueId>,
    starving_turns: u64,
    errors: VecDeque<(Wait, KernelError)>,
    lost: Option<DeviceError>,
    history: VecDeque<Step>,
    closed_gates: Vec<Gate>,
    gate_count: u64,
}

impl State {
    pub fn new(options: SimOptions) -> State {
        State {
            options,
            random: Random::new(options.seed),
            queues: Vec::new(),
            others_count: 0,
            waiting_count: 0,
            turn_is_taken: false,
            running: None,
            inner_sequence: 0,
            executed_count: 0,
            slab_count: 0,
            starved: None,
            starving_turns: 0,
            errors: VecDeque::new(),
            lost: None,
            history: VecDeque::new(),
            closed_gates: Vec::new(),
            gate_count: 0,
        }
    }

    fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id.0 as usize]
    }

    fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id.0 as usize]
    }

    /// An error if the device is lost.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    pub fn open(&mut self, id: QueueId) -> Result<(), DeviceError> {
        debug_assert!((id.0 as usize) < QUEUE_COUNT_MAX);
        self.check()?;
        self.make(id);
        Ok(())
    }

    fn make(&mut self, id: QueueId) {
        let count = self.queues.len().max(id.0 as usize + 1);
        self.queues.resize_with(count, Queue::default);
    }

    /// Lets a queue stand for a stream of other code.
    pub fn open_external(&mut self, id: QueueId, handle: u64) -> Result<(), DeviceError> {
        let is_known = (OTHERS_FIRST as u64..(OTHERS_FIRST + self.others_count) as u64).contains(&handle);
        if !is_known {
            return Err(DeviceError::Refused { handle, reason: "no such stream has been made" });
        }
        self.open(id)?;
        self.queue_mut(id).stands_for = Some(QueueId(handle as u8));
        Ok(())
    }

    // ------------------------------------------------------------ what other code does

    /// Makes a stream; none if there are as many as there can be.
    pub fn make_other(&mut self) -> Option<QueueId> {
        let id = QueueId(u8::try_from(OTHERS_FIRST + self.others_count).ok()?);
        self.others_count += 1;
        self.make(id);
        Some(id)
    }

    /// Puts a launch on such a stream.
    ///
    /// # Safety
    /// - The source of an upload is readable.
    pub unsafe fn submit_other(&mut self, id: QueueId, launch: &Launch<'_>) {
        // SAFETY: by contract.
        unsafe { self.append(id, None, &[], launch) };
    }

    /// Lets nothing start on a queue or stream, or again everything.
    pub fn hold(&mut self, id: QueueId, is_held: bool) {
        self.queue_mut(id).is_held = is_held;
    }

    /// Is something held, so that what is stuck may get loose?
    pub fn is_any_held(&self) -> bool {
        self.queues.iter().any(|queue| queue.is_held) || !self.closed_gates.is_empty()
    }

    pub fn make_gate(&mut self) -> Gate {
        self.gate_count += 1;
        self.closed_gates.push(Gate(self.gate_count));
        Gate(self.gate_count)
    }

    pub fn open_gate(&mut self, gate: Gate) {
        self.closed_gates.retain(|closed| *closed != gate);
    }

    /// The number by which other code knows a queue.
    pub fn raw(&self, id: QueueId) -> u64 {
        u64::from(self.line(id).0)
    }

    /// Where the entries of a queue are.
    fn line(&self, id: QueueId) -> QueueId {
        self.queue(id).stands_for.unwrap_or(id)
    }

    /// Counts a request for a slab, and refuses it if that is its fate.
    pub fn allow_slab(&mut self, size_bytes: usize) -> Result<(), DeviceError> {
        self.check()?;
        self.slab_count += 1;
        let refused = match self.options.out_of_memory {
            OutOfMemory::Never => false,
            OutOfMemory::At(number) => number == self.slab_count,
            OutOfMemory::Rate(probability) => self.random.chance(probability),
        };
        if refused { Err(DeviceError::OutOfMemory { size_bytes }) } else { Ok(()) }
    }

    pub fn is_full(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        queue.submitted - queue.completed >= self.options.in_flight_count_max.max(1)
    }

    /// Appends a launch.
    ///
    /// # Safety
    /// - The source of an upload is readable.
    pub unsafe fn submit(
        &mut self,
        id: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<(), DeviceError> {
        self.check()?;
        debug_assert_eq!(sequence, self.queue(id).submitted + 1, "numbers grow by one");
        for wait in waits {
            debug_assert!(wait.queue != id && wait.sequence <= self.queue(wait.queue).submitted);
            // A device waits for what is committed, so it commits what it is told to wait for.
            let awaited = self.queue_mut(wait.queue);
            awaited.flushed = awaited.flushed.max(wait.sequence);
        }
        self.queue_mut(id).submitted = sequence;
        // SAFETY: by contract.
        unsafe { self.append(self.line(id), Some(Wait { queue: id, sequence }), waits, launch) };
        Ok(())
    }

    /// # Safety
    /// - The source of an upload is readable.
    unsafe fn append(&mut self, line: QueueId, launched: Option<Wait>, waits: &[Wait], launch: &Launch<'_>) {
        let cuts = self.random.chance(self.options.cut_probability);
        // SAFETY: by contract.
        let pieces = unsafe { cut(launch, cuts, &mut self.random) };
        let is_slow = self.random.chance(self.options.slow_probability);
        let idle_turns = if is_slow { 1 + self.random.below(SLOW_TURNS_MAX) } else { 0 };
        let (idle_turns, gate) = match *launch {
            Launch::Spin(ns) => (ns / TURN_NS, None),
            Launch::Gate(gate) => (idle_turns, Some(gate)),
            _ => (idle_turns, None),
        };
        let (waits, piece_count, name) = (waits.into(), pieces.len(), launch.name());
        let entry = Entry { launch: launched, waits, name, pieces, piece_count, idle_turns, gate };
        self.queue_mut(line).entries.push_back(entry);
    }

    pub fn completed(&self, id: QueueId) -> u64 {
        self.queue(id).completed
    }

    pub fn flush(&mut self, id: QueueId) {
        let queue = self.queue_mut(id);
        queue.flushed = queue.submitted;
    }

    pub fn take_kernel_error(&mut self, launch: Wait) -> Option<KernelError> {
        let position = self.errors.iter().position(|(other, _)| *other == launch)?;
        self.errors.remove(position).map(|(_, error)| error)
    }

    // ------------------------------------------------------------ turns

    pub fn turn_is_taken(&self) -> bool {
        self.turn_is_taken
    }

    /// How many turns pass behind the back of somebody who asks.
    pub fn drift(&mut self) -> u64 {
        // Often none, so that work stays late; in the mean one, so that polling gets there.
        if self.random.below(2) == 0 { 0 } else { self.random.below(4) }
    }

    /// How the turns for a thread that waits for `id` are drawn.
    pub fn pick_for(&mut self, id: QueueId) -> Pick {
        if self.random.below(2) == 0 { Pick::Any } else { Pick::For(id) }
    }

    /// The first wait of the head that isn't over.
    fn blocked_on(&self, line: QueueId) -> Option<Wait> {
        let head = self.queue(line).entries.front()?;
        head.waits.iter().find(|wait| self.completed(wait.queue) < wait.sequence).copied()
    }

    /// Has it a head that hal's contract allows to run?
    fn is_ready(&self, line: QueueId) -> bool {
        let queue = self.queue(line);
        let is_committed = |head: &Entry| {
            let is_flushed = |launch: Wait| launch.sequence <= self.queue(launch.queue).flushed;
            !self.options.needs_flush || head.launch.is_none_or(is_flushed)
        };
        let is_open = |head: &Entry| head.gate.is_none_or(|gate| !self.closed_gates.contains(&gate));
        !queue.is_held
            && queue.entries.front().is_some_and(|head| is_committed(head) && is_open(head))
            && self.blocked_on(line).is_none()
    }

    /// What may run next.
    fn ready(&self, pick: Pick) -> Vec<QueueId> {
        if let Pick::For(id) = pick {
            let mut line = self.line(id);
            while let Some(wait) = self.blocked_on(line) {
                line = self.line(wait.queue);
            }
            return if self.is_ready(line) { vec![line] } else { Vec::new() };
        }
        let all = (0..self.queues.len()).map(|index| QueueId(index as u8));
        let mut ready: Vec<QueueId> = all.filter(|id| self.is_ready(*id)).collect();
        if fault!(unseeded_order) {
            ready.sort_by_cached_key(|id| RandomState::new().hash_one(id.0)); // as out of a hash map
        }
        ready
    }

    /// Is there no turn to be had before something else happens?
    pub fn is_stuck(&self, pick: Pick) -> bool {
        !self.turn_is_taken && self.ready(pick).is_empty()
    }

    fn next_queue(&mut self, pick: Pick) -> Option<QueueId> {
        let ready = self.ready(pick);
        if matches!(pick, Pick::For(_)) || ready.is_empty() {
            return ready.first().copied();
        }
        if self.starving_turns == 0 {
            self.starving_turns = 1 + self.random.below(STARVING_TURNS_MAX);
            self.starved = Some(ready[self.random.below(ready.len() as u64) as usize]);
        }
        self.starving_turns -= 1;
        let id = ready[self.random.below(ready.len() as u64) as usize];
        if self.starved != Some(id) {
            return Some(id);
        }
        // Drawn once more: a starved queue runs, but rarely, and alone if nobody else can.
        Some(ready[self.random.below(ready.len() as u64) as usize])
    }

    /// Takes the turn and says what to execute and under which number of the wrapped device, or `None` if the head lets it
    /// pass, or why there is no turn to be had.
    pub fn begin(&mut self, pick: Pick) -> Result<Option<Begun>, Turn> {
        if self.turn_is_taken {
            return Err(Turn::Taken);
        }
        let id = self.next_queue(pick).ok_or(Turn::Nothing)?;
        let inner_sequence = self.inner_sequence + 1;
        let head = self.queue_mut(id).entries.front_mut().expect("a ready queue has a head");
        if head.idle_turns > 0 {
            head.idle_turns -= 1;
            return Ok(None);
        }
        let piece = Arc::new(head.pieces.pop_front().expect("the head is not complete"));
        let (launch, name, piece_count) = (head.launch, head.name, head.piece_count);
        let step = Step { launch, name, piece: piece_count - head.pieces.len(), piece_count };
        if self.history.len() == HISTORY_COUNT_MAX {
            self.history.pop_front();
        }
        self.history.push_back(step);
        self.turn_is_taken = true;
        self.running = Some((launch, id, piece.clone()));
        Ok(Some(Begun { queue: id, launch, name, piece, inner_sequence }))
    }

    /// Gives the turn back with what came of the piece.
    pub fn end(&mut self, id: QueueId, result: Executed) {
        self.turn_is_taken = false;
        self.running = None;
        let head = self.queue(id).entries.front().expect("the head stays until its last piece is over");
        let (launch, is_over) = (head.launch, head.pieces.is_empty());
        match result {
            Ok(result) => {
                self.inner_sequence += 1;
                if let (Err(error), Some(launch)) = (result, launch) {
                    if self.errors.len() == ERROR_COUNT_MAX {
                        self.errors.pop_front();
                    }
                    self.errors.push_back((launch, error));
                }
            }
            // The wrapped device names its own queue; what it executed last is what was executed here last.
            Err(DeviceError::Lost { reason, .. }) => {
                let mut suspects: Vec<Wait> =
                    self.history.iter().rev().take(2).filter_map(|step| step.launch).collect();
                suspects.dedup();
                return self.lose(DeviceError::Lost { reason, suspects });
            }
            Err(error) => return self.lose(error),
        }
        if is_over {
            self.queue_mut(id).entries.pop_front();
            if let Some(launch) = launch {
                self.queue_mut(launch.queue).completed = launch.sequence;
            }
            self.executed_count += 1;
            if self.options.lose_after_count == Some(self.executed_count) {
                self.lose(DeviceError::Lost {
                    reason: "the simulator was told to",
                    suspects: launch.into_iter().collect(),
                });
            }
        }
    }

    /// A launch that is not complete and names memory of this slab; one of other code has number 0.
    pub fn user_of(&self, handle: u64) -> Option<Wait> {
        let lines = self.queues.iter().enumerate().map(|(index, queue)| (QueueId(index as u8), queue));
        let entries = lines.flat_map(|(line, queue)| queue.entries.iter().map(move |entry| (line, entry)));
        let waiting = entries
            .flat_map(|(line, entry)| entry.pieces.iter().map(move |piece| (entry.launch, line, piece)));
        let running = self.running.iter().map(|(launch, line, piece)| (*launch, *line, &**piece));
        let user = running.chain(waiting).find(|(.., piece)| piece::names(&piece.launch(), handle));
        user.map(|(launch, queue, _)| launch.unwrap_or(Wait { queue, sequence: 0 }))
    }

    /// From now on everything is complete and nothing else runs. Only for whoever has had the turn: nothing is running.
    fn lose(&mut self, error: DeviceError) {
        self.lost = Some(error);
        for queue in &mut self.queues {
            queue.entries.clear();
            queue.completed = queue.submitted;
        }
    }
}

/// The report of a failure: how to get it again, and what was executed last.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.options.seed;
        writeln!(f, "sim: seed {seed}, replay with sim:{seed}; the last {} pieces:", self.history.len())?;
        for Step { launch, name, piece, piece_count } in &self.history {
            match launch {
                Some(Wait { queue, sequence }) => write!(f, "  queue {}, op {sequence}", queue.0)?,
                None => write!(f, "  other code")?,
            }
            writeln!(f, ": {name}, piece {piece} of {piece_count}")?;
        }
        for (index, queue) in self.queues.iter().enumerate().filter(|(_, queue)| !queue.entries.is_empty()) {
            match index < OTHERS_FIRST {
                true => {
                    write!(f, "  queue {index} holds ops {} to {}", queue.completed + 1, queue.submitted)?
                }
                false => write!(f, "  stream {index} of other code holds {} ops", queue.entries.len())?,
            }
            match self.blocked_on(QueueId(index as u8)) {
                Some(wait) => writeln!(f, ", waiting for op {} of queue {}", wait.sequence, wait.queue.0)?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
