//! What is queued, what is complete, and what runs next. No thread, no device: the shell in `lib.rs` executes what `begin`
//! hands out and reports to `end`.

use crate::{
    OutOfMemory, SimOptions,
    piece::{self, Piece, cut},
    random::Random,
};
use raddle_hal::{DeviceError, KernelError, Launch, QUEUE_COUNT_MAX, QueueId, Wait};
use std::{collections::VecDeque, fmt};

/// Executed pieces that are remembered for a report (guess: a few screens).
const HISTORY_COUNT_MAX: usize = 256;
/// Kernel errors that wait to be taken; beyond it the oldest is forgotten (guess, above what all tests leave).
const ERROR_COUNT_MAX: usize = 4096;
/// For so many turns one queue is passed over (guess: longer than most programs of tests take to reuse a buffer).
const STARVING_TURNS_MAX: u64 = 64;
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
    sequence: u64,
    waits: Box<[Wait]>,
    name: &'static str,
    pieces: VecDeque<Piece>,
    piece_count: usize,
    idle_turns: u64,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    submitted: u64,
    flushed: u64,
    completed: u64,
}

/// What came of a piece: the device's error, or the kernel's.
pub type Executed = Result<Result<(), KernelError>, DeviceError>;

/// A piece that is to be executed: which, of what, and its number on the wrapped device.
pub struct Begun {
    pub queue: QueueId,
    pub sequence: u64,
    pub name: &'static str,
    pub piece: Piece,
    pub inner_sequence: u64,
}

/// One executed piece.
struct Step {
    queue: QueueId,
    sequence: u64,
    name: &'static str,
    piece: usize,
    piece_count: usize,
}

impl Step {
    fn launch(&self) -> Wait {
        Wait { queue: self.queue, sequence: self.sequence }
    }
}

pub struct State {
    options: SimOptions,
    random: Random,
    /// Up to the highest opened.
    queues: Vec<Queue>,
    turn_is_taken: bool,
    inner_sequence: u64,
    executed_count: u64,
    slab_count: u64,
    starved: Option<QueueId>,
    starving_turns: u64,
    errors: VecDeque<(Wait, KernelError)>,
    lost: Option<DeviceError>,
    history: VecDeque<Step>,
}

impl State {
    pub fn new(options: SimOptions) -> State {
        State {
            options,
            random: Random::new(options.seed),
            queues: Vec::new(),
            turn_is_taken: false,
            inner_sequence: 0,
            executed_count: 0,
            slab_count: 0,
            starved: None,
            starving_turns: 0,
            errors: VecDeque::new(),
            lost: None,
            history: VecDeque::new(),
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
        let count = self.queues.len().max(id.0 as usize + 1);
        self.queues.resize_with(count, Queue::default);
        Ok(())
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
        self.queue(id).entries.len() as u64 >= self.options.in_flight_count_max.max(1)
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
        let cuts = self.random.chance(self.options.cut_probability);
        // SAFETY: by contract.
        let pieces = unsafe { cut(launch, cuts, &mut self.random) };
        let is_slow = self.random.chance(self.options.slow_probability);
        let idle_turns = if is_slow { 1 + self.random.below(SLOW_TURNS_MAX) } else { 0 };
        let (waits, piece_count, name) = (waits.into(), pieces.len(), launch.name());
        let queue = self.queue_mut(id);
        queue.submitted = sequence;
        queue.entries.push_back(Entry { sequence, waits, name, pieces, piece_count, idle_turns });
        Ok(())
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
    fn blocked_on(&self, id: QueueId) -> Option<Wait> {
        let head = self.queue(id).entries.front()?;
        head.waits.iter().find(|wait| self.completed(wait.queue) < wait.sequence).copied()
    }

    /// Has it a head that hal's contract allows to run?
    fn is_ready(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        let is_committed = |head: &Entry| !self.options.needs_flush || head.sequence <= queue.flushed;
        queue.entries.front().is_some_and(is_committed) && self.blocked_on(id).is_none()
    }

    fn next_queue(&mut self, pick: Pick) -> Option<QueueId> {
        if let Pick::For(mut id) = pick {
            while let Some(wait) = self.blocked_on(id) {
                id = wait.queue;
            }
            return self.is_ready(id).then_some(id);
        }
        let all = (0..self.queues.len()).map(|index| QueueId(index as u8));
        let ready: Vec<QueueId> = all.filter(|id| self.is_ready(*id)).collect();
        if ready.is_empty() {
            return None;
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
        let piece = head.pieces.pop_front().expect("the head is not complete");
        let (sequence, name, piece_count) = (head.sequence, head.name, head.piece_count);
        let step = Step { queue: id, sequence, name, piece: piece_count - head.pieces.len(), piece_count };
        if self.history.len() == HISTORY_COUNT_MAX {
            self.history.pop_front();
        }
        self.history.push_back(step);
        self.turn_is_taken = true;
        Ok(Some(Begun { queue: id, sequence, name, piece, inner_sequence }))
    }

    /// Gives the turn back with what came of the piece.
    pub fn end(&mut self, id: QueueId, result: Executed) {
        self.turn_is_taken = false;
        let head = self.queue(id).entries.front().expect("the head stays until its last piece is over");
        let (launch, is_over) = (Wait { queue: id, sequence: head.sequence }, head.pieces.is_empty());
        match result {
            Ok(result) => {
                self.inner_sequence += 1;
                if let Err(error) = result {
                    if self.errors.len() == ERROR_COUNT_MAX {
                        self.errors.pop_front();
                    }
                    self.errors.push_back((launch, error));
                }
            }
            // The wrapped device names its own queue; what it executed last is what was executed here last.
            Err(DeviceError::Lost { reason, .. }) => {
                let mut suspects: Vec<Wait> = self.history.iter().rev().take(2).map(Step::launch).collect();
                suspects.dedup();
                return self.lose(DeviceError::Lost { reason, suspects });
            }
            Err(error) => return self.lose(error),
        }
        if is_over {
            let queue = self.queue_mut(id);
            queue.entries.pop_front();
            queue.completed = launch.sequence;
            self.executed_count += 1;
            if self.options.lose_after_count == Some(self.executed_count) {
                self.lose(DeviceError::Lost { reason: "the simulator was told to", suspects: vec![launch] });
            }
        }
    }

    /// A launch that is not complete and names memory of this slab.
    pub fn user_of(&self, handle: u64) -> Option<Wait> {
        let names = |entry: &&Entry| entry.pieces.iter().any(|piece| piece::names(&piece.launch(), handle));
        self.queues.iter().enumerate().find_map(|(index, queue)| {
            let entry = queue.entries.iter().find(names)?;
            Some(Wait { queue: QueueId(index as u8), sequence: entry.sequence })
        })
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
        for Step { queue, sequence, name, piece, piece_count } in &self.history {
            writeln!(f, "  queue {}, op {sequence}: {name}, piece {piece} of {piece_count}", queue.0)?;
        }
        for (index, queue) in self.queues.iter().enumerate().filter(|(_, queue)| !queue.entries.is_empty()) {
            let (first, last) = (queue.completed + 1, queue.submitted);
            write!(f, "  queue {index} holds ops {first} to {last}")?;
            match self.blocked_on(QueueId(index as u8)) {
                Some(wait) => writeln!(f, ", waiting for op {} of queue {}", wait.sequence, wait.queue.0)?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
