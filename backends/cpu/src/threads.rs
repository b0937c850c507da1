//! Intra-op threads: several threads for one kernel.
//!
//! **Guarantees.** [`Threads::for_each_part`] runs each part once and returns when all are done; the calling thread takes
//! parts itself, starting at once, and waits only for parts of its own job that a helper is in the middle of. So it never
//! waits for another job, work of a stream never runs inside the helpers' stealing, and a kernel whose helpers are all busy
//! elsewhere is as fast as on one thread. Which thread runs which part is open; results can't depend on it as long as parts
//! are cut by shape (T8).
//!
//! The helpers are a `rayon` pool of one thread less than the thread count, made at the first parallel kernel and kept for
//! the life of the process. Its `scope` and `install` are not used: the first waits for helpers that have not even
//! started, the second changes the thread.
//!
//! **Each thread begins with a share of its own**, the same one in each job, and takes parts of others only then: so it reads
//! what it wrote in the kernel before, and caches that cores don't share matter less. (A machine of 2 virtual cores whose host
//! moves them between two third-level caches and one, 2026-11-29: it reads what the other core wrote at 26 or 72 GB/s.)
//!
//! The statics here are std's, also in models: which thread runs a part is no part of any modelled protocol, and loom has
//! no atomics that outlive a model.

use raddle_sync::{
    Arc, Condvar, Mutex, Padded, RaceOnce, Rank,
    atomic::{AcqRel, Acquire, AtomicUsize, Relaxed},
    global, locks_at_fork,
};
use std::{
    any::Any,
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// How many threads a kernel may use; 1 where it must stay on its own.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

/// Behind [`is_forked`].
static HELPERS: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();

thread_local! {
    static OTHERS_ARE_MADE: Cell<bool> = const { Cell::new(false) };
    /// Made after the thread-locals of others, so destroyed before them.
    static OTHERS_LIVE: Mark = const { Mark };
}

struct Mark;

impl Drop for Mark {
    /// For its being there: what has a destructor can be asked whether that has run.
    fn drop(&mut self) {}
}

/// Runs what uses thread-locals of libraries, which panic once they are destroyed: then on a thread made for it, so that
/// kernels work while the calling thread ends.
///
/// # Safety
/// - The body may run on any thread.
pub unsafe fn with_locals_of_others(body: impl FnOnce()) {
    #[cfg(not(loom))]
    if OTHERS_ARE_MADE.get() && OTHERS_LIVE.try_with(|_| ()).is_err() {
        struct Portable<F>(F);
        // SAFETY: by contract.
        unsafe impl<F> Send for Portable<F> {}
        impl<F: FnOnce()> Portable<F> {
            fn run(self) {
                (self.0)()
            }
        }
        let body = Portable(body);
        raddle_sync::thread::scope(|scope| _ = scope.spawn(move || body.run()));
        return;
    }
    body();
    if !OTHERS_ARE_MADE.replace(true) {
        _ = OTHERS_LIVE.try_with(|_| ());
    }
}

/// The count of forks where helpers were begun, and 1; 0 as long as nobody has.
static BEGUN: global::AtomicU32 = global::AtomicU32::new(0);

fn place() -> u32 {
    locks_at_fork::fork_count().wrapping_add(1)
}

/// Have the helpers, and perhaps the lock under which they are made, stayed behind in a parent? Then a kernel has one thread.
fn is_forked() -> bool {
    ![0, place()].contains(&BEGUN.load(Relaxed))
}

/// The most threads that a device has asked for.
static WANTED: global::AtomicUsize = global::AtomicUsize::new(1);

/// The cores that this process may use.
pub fn core_count() -> usize {
    static COUNT: RaceOnce<usize> = RaceOnce::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A device uses so many threads for a kernel. No more helpers are made once a kernel has run in parallel: then fewer do.
pub fn want_helpers_for(thread_count: usize) {
    WANTED.fetch_max(thread_count, Relaxed);
}

/// `None` where no thread could be made: then everything is serial.
fn helpers() -> Option<&'static rayon::ThreadPool> {
    let make = || {
        let count = WANTED.load(Relaxed).saturating_sub(1).max(1);
        let name = |index| format!("raddle-help-{index}");
        rayon::ThreadPoolBuilder::new().num_threads(count).thread_name(name).build().ok()
    };
    locks_at_fork::install(); // before there is one to be left behind
    _ = BEGUN.compare_exchange(0, place(), Relaxed, Relaxed); // and this, for children
    HELPERS.get_or_init(make).as_ref()
}

/// One call of `for_each_part`. Helpers own it jointly with the caller, since they may come when all is over.
struct Job {
    /// That the caller was on, if that can be told.
    core: Option<usize>,
    /// Borrowed from the caller; called only for a part that has been drawn from `shares`.
    body: *const (dyn Fn(usize) + Sync),
    parts: usize,
    /// All parts. The caller's comes first, then those of helpers.
    shares: Box<[Padded<Share>]>,
    /// How many parts are over, counted by each thread when it finds no more. The caller returns when it is `parts`.
    done: AtomicUsize,
    end: Mutex<End>,
    is_over: Condvar,
}

/// Parts that follow each other.
struct Share {
    /// The next one that nobody has drawn, if it is below `end`.
    next: AtomicUsize,
    end: usize,
}

impl Share {
    fn draw(&self) -> Option<usize> {
        // Looked at first, so that threads that find nothing leave the line to others.
        (self.next.load(Relaxed) < self.end)
            .then(|| self.next.fetch_add(1, Relaxed))
            .filter(|part| *part < self.end)
    }
}

#[derive(Default)]
struct End {
    caller_sleeps: bool,
    panic: Option<Box<dyn Any + Send>>,
}

// SAFETY: `body` points to a `Sync` closure, which any thread may call, and is called only while its owner waits (see
// `work`); everything else is atomic or locked.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Draws parts and runs them until none is left, those of the thread's own share first.
    fn work(&self, own: usize) {
        let mut count = 0;
        for share in self.shares[own..].iter().chain(&self.shares[..own]) {
            while let Some(part) = share.draw() {
                // SAFETY: the part was drawn and is not counted, so `done` is below `parts`, so the caller, who owns the
                // closure, is still in `for_each_part`.
                let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*self.body)(part) }));
                if let Err(panic) = result {
                    self.end.lock().panic.get_or_insert(panic);
                }
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        // Release: what the parts wrote; pairs with the caller's acquire, also through the other threads' additions.
        if self.done.fetch_add(count, AcqRel) + count == self.parts && self.end.lock().caller_sleeps {
            self.is_over.notify_one();
        }
    }

    fn wait(&self) {
        // Parts are alike, so the helper is about to end: spin first, since sleeping costs about 10 µs. Longer, and it is one that
        // waits for a core itself.
        let (since, mut turns) = (Instant::now(), 0);
        while self.done.load(Acquire) < self.parts && since.elapsed() < AWAIT {
            raddle_sync::pause(&mut turns);
        }
        let mut end = self.end.lock();
        while self.done.load(Acquire) < self.parts {
            end.caller_sleeps = true;
            end = self.is_over.wait(end);
        }
    }
}

/// So long a helper that has nothing to do looks for the next job before it sleeps: a training step is a chain of kernels with
/// microseconds between them, and to wake a thread costs more than that.
const LINGER: Duration = Duration::from_micros(100); // guess
/// So long a caller looks whether its helpers have ended before it sleeps.
const AWAIT: Duration = Duration::from_micros(5); // guess
/// So often a helper may change cores by itself.
const MOVE_EVERY: Duration = Duration::from_millis(1); // guess: a move takes some ten microseconds

/// Runs jobs as they come, until none has come for a while. Other threads that want the core get it.
fn linger() {
    thread_local! { static LINGERS: Cell<bool> = const { Cell::new(false) }; }
    if LINGERS.replace(true) {
        return; // in a job of the loop below
    }
    let mut idle_since = Instant::now();
    loop {
        match rayon::yield_now() {
            Some(rayon::Yield::Executed) => idle_since = Instant::now(),
            Some(rayon::Yield::Idle) if idle_since.elapsed() < LINGER => global::yield_now(),
            _ => break,
        }
    }
    LINGERS.set(false);
}

/// Linux likes to wake a thread on the core of the one that wakes it. A helper that shares its caller's core is of no use, and
/// once there the two stay together, for seconds (2 cores, 2026-11-29: steps of the autoencoder took 7.4 to 8.2 ms instead of
/// 3.8). So a helper that finds itself there goes to another core, and stays off that one until it finds a caller elsewhere:
/// if it may go anywhere again at once, the next wake brings it back.
#[cfg(all(target_os = "linux", not(miri)))]
mod cores {
    use super::{Cell, Instant, MOVE_EVERY};
    use std::mem::{MaybeUninit, size_of};

    /// The cores of a helper that has moved.
    #[derive(Clone, Copy)]
    struct Moved {
        at: Instant,
        /// Where it may be for its user.
        allowed: libc::cpu_set_t,
        /// Where it has put itself.
        set: libc::cpu_set_t,
    }

    /// That this thread is on.
    pub fn current() -> Option<usize> {
        // SAFETY: it asks for a number and takes nothing.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Goes to another core if it is on this one, there are others for it, and it has not just done so.
    pub fn leave(core: Option<usize>) {
        thread_local! { static MOVED: Cell<Option<Moved>> = const { Cell::new(None) }; }
        let Some(core) = core.filter(|_| current() == core) else { return };
        let moved = MOVED.get();
        if moved.is_some_and(|moved| moved.at.elapsed() < MOVE_EVERY) {
            return;
        }
        let size = size_of::<libc::cpu_set_t>();
        let mut now = MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: 0 is this thread; the set has the size that is given, and zeros are a set.
        unsafe {
            if libc::sched_getaffinity(0, size, now.as_mut_ptr()) != 0 {
                return;
            }
            let now = now.assume_init();
            // Unless somebody else has chosen for it since.
            let allowed =
                moved.filter(|moved| libc::CPU_EQUAL(&moved.set, &now)).map_or(now, |moved| moved.allowed);
            if core >= 8 * size || libc::CPU_COUNT(&allowed) < 2 || !libc::CPU_ISSET(core, &allowed) {
                return;
            }
            let mut set = allowed;
            libc::CPU_CLR(core, &mut set);
            // If it fails it stays where it is, which is no harm.
            libc::sched_setaffinity(0, size, &set);
            MOVED.set(Some(Moved { at: Instant::now(), allowed, set }));
        }
    }
}
#[cfg(not(all(target_os = "linux", not(miri))))]
mod cores {
    pub fn current() -> Option<usize> {
        None
    }
    pub fn leave(_: Option<usize>) {}
}

impl Threads {
    /// Runs `body(0)` … `body(parts - 1)`, each once, in any order, on this thread and the helpers that it may use. How
    /// work is cut into parts must depend on shapes only, never on the number of threads (T8). A panic of a part is raised
    /// here when all other parts are done.
    pub fn for_each_part(self, parts: usize, body: impl Fn(usize) + Sync) {
        let helper_count = self.0.min(parts).saturating_sub(1);
        if helper_count == 0 || is_forked() {
            return (0..parts).for_each(body);
        }
        let Some(helpers) = helpers() else {
            return (0..parts).for_each(body);
        };
        let body: &(dyn Fn(usize) + Sync) = &body;
        // SAFETY: only the lifetime changes; `Job::work` says why nobody calls it after this function has returned.
        let body: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(body) };
        let helper_count = helper_count.min(helpers.current_num_threads());
        let bound = |share: usize| (share as u128 * parts as u128 / (helper_count + 1) as u128) as usize;
        let share = |index| Share { next: AtomicUsize::new(bound(index)), end: bound(index + 1) };
        let job = Arc::new(Job {
            core: cores::current(),
            body,
            parts,
            shares: (0..=helper_count).map(|index| Padded(share(index))).collect(),
            done: AtomicUsize::new(0),
            end: Mutex::new(Rank::Leaf, End::default()),
            is_over: Condvar::new(),
        });
        for _ in 0..helper_count {
            let job = job.clone();
            helpers.spawn(move || {
                cores::leave(job.core);
                job.work(1 + rayon::current_thread_index().unwrap_or(0) % helper_count);
                drop(job);
                linger();
            });
        }
        job.work(0);
        job.wait();
        let panic = job.end.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Work below this many elements isn't worth another thread (a guess: about 10 µs of streaming).
const GRAIN: usize = 1 << 15;
/// The most parts of a launch (a guess: enough to balance any number of cores).
const PART_COUNT_MAX: usize = 256;

/// Cuts `units` into ranges of about equal size, by their cost in elements, and runs them.
pub fn for_each_range(threads: Threads, units: usize, unit_cost: usize, body: impl Fn(Range<usize>) + Sync) {
    if units == 0 {
        return;
    }
    // No more parts than give each a grain of work.
    let parts = (units.saturating_mul(unit_cost) / GRAIN).clamp(1, units.min(PART_COUNT_MAX));
    let bound = |part: usize| (part as u128 * units as u128 / parts as u128) as usize;
    threads.for_each_part(parts, |part| body(bound(part)..bound(part + 1)));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_part_runs_once() {
        for (threads, parts) in [(1, 5), (2, 0), (2, 1), (2, 1000), (8, 3), (8, 1000)] {
            let runs: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            Threads(threads).for_each_part(parts, |part| {
                runs[part].fetch_add(1, Relaxed);
            });
            assert!(runs.iter().all(|count| count.load(Relaxed) == 1), "{threads} threads, {parts} parts");
        }
    }

    #[test]
    fn jobs_of_many_threads_and_nested_jobs_end() {
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        Threads(4).for_each_part(8, |_| {
                            Threads(2).for_each_part(3, |_| {
                                total.fetch_add(1, Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Relaxed), 8 * 100 * 8 * 3);
    }

    #[test]
    fn a_panic_comes_out_when_all_parts_are_done() {
        let done = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            Threads(2).for_each_part(100, |part| {
                assert_ne!(part, 50, "planted");
                done.fetch_add(1, Relaxed);
            });
        }));
        let message = *result.expect_err("part 50 panics").downcast::<String>().expect("a formatted message");
        assert!(message.contains("planted"), "{message}");
        assert_eq!(done.load(Relaxed), 99);
    }
}
