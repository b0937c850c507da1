//! Who may run what, and when: the queues of a device, apart from what their tasks do.
//!
//! **Guarantees.** Tasks of a queue run one at a time, in the order of their numbers, each after the waits that came with
//! it. A thread that sees a number complete sees what was written up to it. No wake-up is lost, nobody polls, no lock is
//! held while a task runs, and no thread blocks inside a task; so as long as one worker is left, everything that can run
//! does run.
//!
//! **How.** A queue is one atomic word: the completed number, and four bits.
//!
//! | bit | means | changed |
//! |---|---|---|
//! | `HELD` | somebody holds the right to run the head: a submitter that was told to run inline, a worker, the list of ready queues, or the queue that this one waits for | set by `claim` and `push`, cleared by `finish` and under the lock by `leave` |
//! | `RUNS` | a task is being executed (tells how busy the device is) | by the holder |
//! | `PENDING` | the list of tasks isn't empty | under the queue's lock, with the list |
//! | `WAITED` | the list of waiters isn't empty | under the queue's lock, with the list |
//!
//! The way of an op that may run at once is two compare-exchanges: `claim` from "everything before it is complete, no bit"
//! to `HELD | RUNS`, and `finish` from exactly that to the next number without a bit. Neither takes a lock.
//!
//! **Why no wake-up is lost.** All changes are read-modify-writes of one word, so they have one order, and each sees the
//! one before.
//! - *A task arrives while the holder leaves.* `push` sets `HELD | PENDING` and looks at the former value. If `HELD` was
//!   there, the holder has not left: an inline holder's `finish` then fails on `PENDING` and takes the long way, any other
//!   holder leaves under the lock, under which it sees the list. If it was not, `push` now holds the right itself and
//!   passes it on.
//! - *A waiter arrives while the awaited number is completed.* It registers under the lock by an update that refuses if the
//!   number in the same word has been reached. Completing is an update of that word that returns the bits: if the waiter
//!   was first, `WAITED` is seen and the lists are gone through; if not, the waiter is refused and goes on.
//! - *The right is never held twice*: it is handed over as a value (`Held`) that each way of passing on consumes.
//!
//! A wait names only what has been submitted, so waits form no circle and the head of some queue can always run.
//!
//! **Locks.** A queue's lock has rank `Queue`, the list of ready queues is a `Leaf`. Never two queues' at once.

use raddle_hal::{QueueId, Wait};
use raddle_sync::{
    Condvar, Mutex, Padded, Rank,
    atomic::{AcqRel, Acquire, AtomicBool, AtomicU64, AtomicUsize, Relaxed, Release},
    fault,
};
use smallvec::SmallVec;
use std::collections::VecDeque;

const HELD: u64 = 1;
const RUNS: u64 = 2;
const PENDING: u64 = 4;
const WAITED: u64 = 8;
/// The number stands above the bits.
const NUMBER_SHIFT: u32 = 4;
const NUMBER_ONE: u64 = 1 << NUMBER_SHIFT;

/// After so many tasks in a row a worker lets the other ready queues have their turn (guess).
const TASKS_IN_A_ROW_MAX: usize = 32;
/// After so many urgent queues in a row one of the others gets its turn (guess).
const URGENT_IN_A_ROW_MAX: u32 = 8;

/// The right to run the head of a queue. Not `Clone`: passing it on consumes it.
#[derive(Debug)]
#[must_use = "a queue whose right is dropped never runs again"]
pub struct Held(QueueId);

struct Task<T> {
    waits: SmallVec<[Wait; 4]>,
    body: T,
}

/// Who wants to know that a number has been reached.
enum Waiter {
    /// The head of that queue; here lies the right to run it.
    Head(Held),
    /// A thread that sleeps on the condition variable.
    Thread,
}

struct Lists<T> {
    tasks: VecDeque<Task<T>>,
    waiters: Vec<(u64, Waiter)>,
}

struct Queue<T> {
    /// The completed number and the bits. Anyone reads it; who may change it is said above.
    word: AtomicU64,
    /// Before others? Set once, when the queue is opened.
    urgent: AtomicBool,
    lists: Mutex<Lists<T>>,
    /// Sleepers wait for it under the lock of `lists`.
    progress: Condvar,
}

/// The queues whose head can run and is run by nobody.
struct Ready {
    urgent: VecDeque<Held>,
    normal: VecDeque<Held>,
    urgent_in_a_row: u32,
    sleeper_count: usize,
    stopped: bool,
}

/// All queues of a device; `T` is what a task is.
pub struct Queues<T> {
    queues: Box<[Padded<Queue<T>>]>,
    /// One above the highest opened.
    open_count: AtomicUsize,
    ready: Mutex<Ready>,
    work: Condvar,
}

impl<T> Queues<T> {
    /// `count` queues, all closed and empty.
    pub fn new(count: usize) -> Queues<T> {
        let queue = |_| {
            Padded(Queue {
                word: AtomicU64::new(0),
                urgent: AtomicBool::new(false),
                lists: Mutex::new(Rank::Queue, Lists { tasks: VecDeque::new(), waiters: Vec::new() }),
                progress: Condvar::new(),
            })
        };
        let ready = Ready {
            urgent: VecDeque::new(),
            normal: VecDeque::new(),
            urgent_in_a_row: 0,
            sleeper_count: 0,
            stopped: false,
        };
        Queues {
            queues: (0..count).map(queue).collect(),
            open_count: AtomicUsize::new(0),
            ready: Mutex::new(Rank::Leaf, ready),
            work: Condvar::new(),
        }
    }

    fn queue(&self, id: QueueId) -> &Queue<T> {
        &self.queues[id.0 as usize].0
    }

    /// Takes a queue into use.
    pub fn open(&self, id: QueueId, urgent: bool) {
        self.queue(id).urgent.store(urgent, Relaxed);
        self.open_count.fetch_max(id.0 as usize + 1, Relaxed);
    }

    /// The completed number. One load; pairs with the release of whoever completed it.
    #[inline]
    pub fn completed(&self, id: QueueId) -> u64 {
        self.queue(id).word.load(Acquire) >> NUMBER_SHIFT
    }

    fn is_over(&self, wait: &Wait) -> bool {
        self.completed(wait.queue) >= wait.sequence
    }

    /// How many queues execute a task just now. A hint: it is out of date when it returns.
    pub fn running_count(&self) -> usize {
        let open = &self.queues[..self.open_count.load(Relaxed)];
        open.iter().filter(|queue| queue.word.load(Relaxed) & RUNS != 0).count()
    }

    /// Does anybody wait for it?
    #[cfg(all(test, not(loom)))]
    pub fn is_awaited(&self, id: QueueId) -> bool {
        self.queue(id).word.load(Relaxed) & WAITED != 0
    }

    /// The last number that was claimed or pushed.
    pub fn submitted(&self, id: QueueId) -> u64 {
        let queue = self.queue(id);
        let lists = queue.lists.lock();
        // In one word, and tasks are taken off the list under the lock: what runs is counted once.
        let word = queue.word.load(Acquire);
        (word >> NUMBER_SHIFT) + u64::from(word & RUNS != 0) + lists.tasks.len() as u64
    }

    // ------------------------------------------------------------ submission, one caller at a time for a queue

    /// Takes the right to run `sequence` on this thread, if the queue is idle and all waits are over. Then comes `finish`.
    #[inline]
    pub fn claim(&self, id: QueueId, sequence: u64, waits: &[Wait]) -> bool {
        let queue = self.queue(id);
        let before = (sequence - 1) << NUMBER_SHIFT;
        waits.iter().all(|wait| self.is_over(wait))
            // Acquire pairs with the release of whoever completed the number before.
            && queue.word.compare_exchange(before, before | HELD | RUNS, Acquire, Relaxed).is_ok()
    }

    /// Completes what was claimed, and passes the right on if tasks have come meanwhile.
    #[inline]
    pub fn finish(&self, id: QueueId, sequence: u64) {
        let claimed = (sequence - 1) << NUMBER_SHIFT | HELD | RUNS;
        // Release: what the task wrote belongs to the number. On a failure the long way does it.
        let word = &self.queue(id).word;
        if word.compare_exchange(claimed, sequence << NUMBER_SHIFT, Release, Relaxed).is_err() {
            self.complete(id);
            self.leave(Held(id));
        }
    }

    /// Keeps a task that can't be claimed.
    pub fn push(&self, id: QueueId, waits: impl IntoIterator<Item = Wait>, body: T) {
        let queue = self.queue(id);
        let task = Task { waits: waits.into_iter().filter(|wait| !self.is_over(wait)).collect(), body };
        let mut lists = queue.lists.lock();
        lists.tasks.push_back(task);
        // Acquire: if the right comes to us, so does what the last holder wrote. Release: the next holder is behind us.
        let former = queue.word.fetch_or(HELD | PENDING, AcqRel);
        drop(lists);
        if former & HELD == 0 {
            self.park_or_make_ready(Held(id));
        }
    }

    // ------------------------------------------------------------ for the holder of the right

    /// The head counts as complete; who waits for it is woken.
    fn complete(&self, id: QueueId) {
        // One more, and without RUNS, which is set. Release: what the task wrote belongs to the number. Acquire: the
        // lists that `WAITED` announces are under a lock anyway; it pairs with the submitter for the next task.
        let former = self.queue(id).word.fetch_add(NUMBER_ONE - RUNS, AcqRel);
        debug_assert_eq!(
            former & (HELD | RUNS),
            HELD | RUNS,
            "only the holder of a running head completes it"
        );
        let mut is_awaited = former & WAITED != 0;
        fault!(lost_wakeup => is_awaited = false);
        if is_awaited {
            self.wake(id);
        }
    }

    fn wake(&self, id: QueueId) {
        let queue = self.queue(id);
        let mut lists = queue.lists.lock();
        let number = queue.word.load(Acquire) >> NUMBER_SHIFT;
        let mut thread_woken = false;
        for (_, waiter) in lists.waiters.extract_if(.., |(sequence, _)| *sequence <= number) {
            match waiter {
                Waiter::Head(held) => self.make_ready(held),
                Waiter::Thread => thread_woken = true,
            }
        }
        if lists.waiters.is_empty() {
            queue.word.fetch_and(!WAITED, Relaxed);
        }
        drop(lists);
        if thread_woken {
            queue.progress.notify_all();
        }
    }

    /// Puts a waiter on the list of the awaited queue, or gives it back if the wait is over.
    fn register(&self, wait: Wait, waiter: Waiter) -> Result<(), Waiter> {
        let queue = self.queue(wait.queue);
        let mut lists = queue.lists.lock();
        let unreached = |word: u64| (word >> NUMBER_SHIFT < wait.sequence).then_some(word | WAITED);
        // Acquire: refused means that the work is seen.
        match queue.word.fetch_update(AcqRel, Acquire, unreached) {
            Ok(_) => {
                lists.waiters.push((wait.sequence, waiter));
                Ok(())
            }
            Err(_) => Err(waiter),
        }
    }

    /// The first wait of the head that isn't over.
    fn blocked_on(&self, id: QueueId) -> Option<Wait> {
        let lists = self.queue(id).lists.lock();
        lists.tasks.front()?.waits.iter().find(|wait| !self.is_over(wait)).copied()
    }

    /// Leaves the right with the queue that the head waits for, if it waits for one.
    fn park(&self, mut held: Held) -> Option<Held> {
        while let Some(wait) = self.blocked_on(held.0) {
            match self.register(wait, Waiter::Head(held)) {
                Ok(()) => return None,
                Err(Waiter::Head(back)) => held = back,
                Err(Waiter::Thread) => unreachable!("what was given comes back"),
            }
        }
        Some(held)
    }

    fn park_or_make_ready(&self, held: Held) {
        if let Some(held) = self.park(held) {
            self.make_ready(held);
        }
    }

    fn make_ready(&self, held: Held) {
        let urgent = self.queue(held.0).urgent.load(Relaxed);
        let mut ready = self.ready.lock();
        if urgent {
            ready.urgent.push_back(held)
        } else {
            ready.normal.push_back(held)
        }
        // Waking is a system call: only where somebody sleeps.
        let wake = ready.sleeper_count > 0;
        drop(ready);
        if wake {
            self.work.notify_one();
        }
    }

    /// Lets the right go if there is nothing left to do, else passes it on.
    fn leave(&self, held: Held) {
        let queue = self.queue(held.0);
        let lists = queue.lists.lock();
        if lists.tasks.is_empty() {
            // Release: whoever claims next is behind us.
            queue.word.fetch_and(!HELD, Release);
        } else {
            drop(lists);
            self.park_or_make_ready(held);
        }
    }

    /// Takes the head off the list, ready to be run. The caller has seen that its waits are over.
    fn pop(&self, held: &Held) -> Option<T> {
        let queue = self.queue(held.0);
        let mut lists = queue.lists.lock();
        // There may have been none when the holder looked for waits, and this one has come since, with waits of its own.
        let mut is_ready = lists.tasks.front()?.waits.iter().all(|wait| self.is_over(wait));
        fault!(head_unseen => is_ready = true);
        if !is_ready {
            return None;
        }
        let task = lists.tasks.pop_front()?;
        // RUNS is clear and PENDING set: one step turns both.
        let turn = if lists.tasks.is_empty() { RUNS | PENDING } else { RUNS };
        queue.word.fetch_xor(turn, Relaxed);
        Some(task.body)
    }

    /// Runs tasks from the head until there are none, one has to wait, `until` is complete, or others should have a turn.
    fn drain(&self, mut held: Held, until: Option<u64>, run: &impl Fn(QueueId, u64, T)) {
        let id = held.0;
        for _ in 0..TASKS_IN_A_ROW_MAX {
            let Some(unblocked) = self.park(held) else { return };
            held = unblocked;
            let Some(task) = self.pop(&held) else { break };
            // Only the holder changes the number.
            run(id, self.completed(id) + 1, task);
            self.complete(id);
            if until.is_some_and(|until| self.completed(id) >= until) {
                break;
            }
        }
        self.leave(held);
    }

    // ------------------------------------------------------------ threads

    /// Runs ready queues until [`Queues::stop`]. `run` is given queue, number and task, and doesn't unwind.
    pub fn work(&self, run: &impl Fn(QueueId, u64, T)) {
        loop {
            let mut ready = self.ready.lock();
            let held = loop {
                if ready.stopped {
                    return;
                }
                if let Some(held) = ready.next() {
                    break held;
                }
                ready.sleeper_count += 1;
                ready = self.work.wait(ready);
                ready.sleeper_count -= 1;
            };
            drop(ready);
            self.drain(held, None, run);
        }
    }

    /// Lets the workers end after the task that they are at. What is still queued never runs.
    pub fn stop(&self) {
        self.ready.lock().stopped = true;
        self.work.notify_all();
    }

    /// Returns when `sequence` is complete. If the queue is ready and nobody has got to it, this thread runs it: that
    /// saves two changes of thread. Otherwise it sleeps.
    pub fn synchronize(&self, id: QueueId, sequence: u64, run: &impl Fn(QueueId, u64, T)) {
        while self.completed(id) < sequence {
            let taken = self.ready.lock().take(id);
            if let Some(held) = taken {
                self.drain(held, Some(sequence), run);
            } else if self.register(Wait { queue: id, sequence }, Waiter::Thread).is_ok() {
                let queue = self.queue(id);
                let mut lists = queue.lists.lock();
                while self.completed(id) < sequence {
                    lists = queue.progress.wait(lists);
                }
            }
        }
    }
}

impl Ready {
    fn next(&mut self) -> Option<Held> {
        let urgent_may = self.urgent_in_a_row < URGENT_IN_A_ROW_MAX || self.normal.is_empty();
        if let Some(held) = self.urgent.pop_front_if(|_| urgent_may) {
            self.urgent_in_a_row += 1;
            return Some(held);
        }
        self.urgent_in_a_row = 0;
        self.normal.pop_front()
    }

    fn take(&mut self, id: QueueId) -> Option<Held> {
        [&mut self.urgent, &mut self.normal].into_iter().find_map(|list| {
            let position = list.iter().position(|held| held.0 == id)?;
            list.remove(position)
        })
    }
}
