//! A record of what was submitted and what ran when, for the viewers of traces. The runtime writes it as a file.
//!
//! Off unless asked for: then a place that records costs one relaxed load. On, it costs two looks at a counter and a lock that
//! nobody else wants: each thread has a record of its own, which outlives the thread and goes on with the next thread of its
//! name, so that there are as many as threads at once. All records together are bounded ([`set_span_count_max`]), and each
//! has a span; what there is no room for is counted.

pub use raddle_sync::Timestamp;
use raddle_sync::{
    RaceOnce, Reading,
    global::{
        Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering::Relaxed,
        PoisonError, TryLockError, current_thread, yield_now,
    },
    locks_at_fork::fork_count,
};
use std::{
    cell::OnceCell,
    sync::Weak,
    time::{Duration, Instant},
};

static ON: AtomicBool = AtomicBool::new(false);
/// The count of forks of the process that has asked for it.
static ON_AT: AtomicU32 = AtomicU32::new(0);
/// Spans that there is room for in all records; what threads have taken for their next ones counts.
static ROOM: AtomicUsize = AtomicUsize::new(1 << 20);
/// So much room a thread takes at once, so that threads don't meet at each span (guess).
const ROOM_TAKEN: usize = 64;
/// So many spans lie in one piece: what there is isn't copied when more come (guess).
const PIECE: usize = 1024;
static DROPPED: AtomicU64 = AtomicU64::new(0);
static TRACKS: Mutex<Tracks> = Mutex::new(Tracks { all: Vec::new(), idle: Vec::new() });
/// What devices have told later, whatever thread has heard of it. In a place of its own, as it may be told by a thread whose
/// thread-locals are gone.
static LATE: Mutex<Record> = Mutex::new(Record { thread_name: None, pieces: Vec::new(), room: 0 });
/// Devices that have more to tell.
static TELLERS: Mutex<Vec<Weak<dyn Late>>> = Mutex::new(Vec::new());
/// Launches of which it isn't known when they ran, so that tracing takes no longer.
static UNTIMED: AtomicU64 = AtomicU64::new(0);
/// What is to be done where the process ends without its handlers.
static EARLY_END: RaceOnce<fn()> = RaceOnce::new();
/// Devices in service.
static DEVICES: Mutex<Vec<(Source, String)>> = Mutex::new(Vec::new());

/// Whose work it is: each device has one of its own, for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(u32);

impl Source {
    /// One that nobody else has.
    #[expect(clippy::new_without_default, reason = "no two are alike")]
    pub fn new() -> Source {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Source(NEXT.fetch_add(1, Relaxed))
    }

    /// Takes it into traces under a name. Of devices without one, such as those that another one wraps, none is shown.
    pub fn show(self, name: &str) {
        if let Some(mut devices) = lock_soon(&DEVICES) {
            devices.push((self, name.to_string()));
        }
    }
}

/// A piece of work on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Work {
    /// The device that did the work.
    pub source: Source,
    /// On which queue.
    pub queue: u8,
    /// Its number there.
    pub sequence: u64,
}

/// What a span shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Work was put on a queue, behind others of its device.
    Submitted(Work, Box<[(u8, u64)]>),
    /// Work, or a part of it, ran.
    Ran(Work),
    /// The thread did something else, e.g. compile or wait.
    Here,
    /// So many bytes were given to the program, or back if negative.
    Allocated(Source, i64),
    /// So many bytes were taken from the device, or given back if negative.
    Reserved(Source, i64),
}

/// One thing that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What happened.
    pub what: What,
    /// The op.
    pub name: &'static str,
    /// Nanoseconds since recording began.
    pub start_ns: u64,
    /// The same.
    pub end_ns: u64,
}

impl Span {
    /// The device that it is of.
    pub fn source(&self) -> Option<Source> {
        match self.what {
            What::Submitted(work, _) | What::Ran(work) => Some(work.source),
            What::Allocated(source, _) | What::Reserved(source, _) => Some(source),
            What::Here => None,
        }
    }
}

/// What one thread has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// In the order in which they ended.
    pub spans: Vec<Span>,
}

/// All that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Devices in service, by name.
    pub devices: Vec<(Source, String)>,
    /// Threads in the order in which they first recorded something.
    pub threads: Vec<Thread>,
    /// What devices have told later of what they ran.
    pub late: Vec<Span>,
    /// How many spans there was no room for.
    pub dropped_count: u64,
    /// Of how many launches devices didn't find out when they ran, since that would have slowed them down.
    pub untimed_count: u64,
}

/// A device that hears only later of what it ran.
pub trait Late: Send + Sync {
    /// Hands over what it knows by now, by [`ran_late`]. Called on any thread, under no lock; doesn't wait for the device.
    fn tell(&self);
}

/// Asks a device, too, whenever somebody looks at the trace.
pub fn ask(device: Weak<dyn Late>) {
    if let Some(mut tellers) = lock_soon(&TELLERS) {
        tellers.retain(|known| known.strong_count() > 0);
        tellers.push(device);
    }
}

/// Has [`write_early`] do this: what else a handler at the end of the process would do. The first one stays.
pub fn on_early_end(write: fn()) {
    EARLY_END.get_or_init(|| write);
}

/// For whoever is about to end the process without its handlers: writes the trace, if that is wanted.
pub fn write_early() {
    EARLY_END.get().into_iter().for_each(|write| write());
}

/// A span whose times aren't told yet.
struct Recorded {
    what: What,
    name: &'static str,
    start: Timestamp,
    end: Timestamp,
}

/// The records of all threads that have made one.
struct Tracks {
    all: Vec<Arc<Track>>,
    /// Those whose thread has ended, with its name.
    idle: Vec<(Option<String>, Arc<Track>)>,
}

struct Track(Mutex<Record>);

struct Record {
    thread_name: Option<String>,
    /// In pieces of [`PIECE`], all but the last full.
    pieces: Vec<Vec<Recorded>>,
    /// Spans that may still come.
    room: usize,
}

impl Record {
    /// Takes in as many spans as there is room for. How many those are.
    fn take_in<const N: usize>(&mut self, spans: [Recorded; N]) -> usize {
        if self.room < N {
            self.room += take_room();
        }
        let count = self.room.min(N);
        self.room -= count;
        spans.into_iter().take(count).for_each(|span| self.push(span));
        count
    }

    fn push(&mut self, span: Recorded) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(span),
            last => {
                // Of the many threads that record a few spans none takes much: only what follows a full piece is whole at once.
                let mut piece = Vec::with_capacity(if last.is_some() { PIECE } else { 1 });
                piece.push(span);
                self.pieces.push(piece);
            }
        }
    }
}

/// The record of a thread that lives.
struct Own(Arc<Track>);

impl Drop for Own {
    /// What the thread has taken goes to others.
    fn drop(&mut self) {
        let Some(mut record) = lock_soon(&self.0.0) else { return };
        let name = record.thread_name.clone();
        ROOM.fetch_add(std::mem::take(&mut record.room), Relaxed);
        drop(record);
        if let Some(mut tracks) = lock_soon(&TRACKS) {
            tracks.idle.push((name, self.0.clone()));
        }
    }
}

thread_local! {
    static TRACK: OnceCell<Own> = const { OnceCell::new() };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who holds a lock for longer than this isn't there any more (guess: a thread may lose its core meanwhile). A time and not a
/// number of turns: on a machine with much to do each takes milliseconds.
const HELD_MAX: Duration = Duration::from_millis(100);

/// Locks, unless the lock is held for long: by a thread that is no more, in a forked child or at the end of the process.
fn lock_soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let start = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() < HELD_MAX => yield_now(),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// When recording began.
fn origin() -> &'static Reading {
    static ORIGIN: RaceOnce<Reading> = RaceOnce::new();
    ORIGIN.get_or_init(Reading::now)
}

/// Records from now on, in this process: a child that is forked from it records nothing unless it says so itself.
pub fn enable() {
    origin();
    ON_AT.store(fork_count(), Relaxed);
    ON.store(true, Relaxed);
}

/// Records no more; what there is stays.
pub fn disable() {
    ON.store(false, Relaxed);
}

/// The most spans from now on, in all.
pub fn set_span_count_max(count_max: usize) {
    ROOM.store(count_max, Relaxed);
}

/// What there is now. Never blocks for long: the record of a thread that is stuck in it is left out.
pub fn snapshot() -> Trace {
    let tellers = lock_soon(&TELLERS).map_or_else(Vec::new, |tellers| tellers.clone());
    tellers.iter().filter_map(Weak::upgrade).for_each(|device| device.tell());
    let tracks = lock_soon(&TRACKS).map_or_else(Vec::new, |tracks| tracks.all.clone());
    let told_ns = origin().nanoseconds(&Reading::now());
    let told = |recorded: &Recorded| Span {
        what: recorded.what.clone(),
        name: recorded.name,
        start_ns: told_ns(recorded.start),
        end_ns: told_ns(recorded.end),
    };
    let thread = |track: Arc<Track>| {
        let record = lock_soon(&track.0)?;
        let spans = record.pieces.iter().flatten().map(told).collect();
        Some(Thread { name: record.thread_name.clone(), spans })
    };
    Trace {
        devices: lock_soon(&DEVICES).map_or_else(Vec::new, |devices| devices.clone()),
        threads: tracks.into_iter().filter_map(thread).collect(),
        late: lock_soon(&LATE).map_or_else(Vec::new, |late| late.pieces.iter().flatten().map(told).collect()),
        dropped_count: DROPPED.load(Relaxed),
        untimed_count: UNTIMED.load(Relaxed),
    }
}

/// Is a trace being recorded?
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// How moments are moved by nanoseconds, as they have passed since recording began.
pub fn moved() -> impl Fn(Timestamp, i64) -> Timestamp {
    origin().moved(&Reading::now())
}

/// The time, if a trace is being recorded.
#[inline]
pub fn start() -> Option<Timestamp> {
    ON.load(Relaxed).then(Timestamp::now)
}

/// Notes that work was put on a queue, from `start` until now, behind `waits` (queue and sequence).
#[cold]
pub fn submitted(work: Work, name: &'static str, start: Timestamp, waits: impl Iterator<Item = (u8, u64)>) {
    push([Recorded { what: What::Submitted(work, waits.collect()), name, start, end: Timestamp::now() }]);
}

/// As [`submitted`], until `enqueued`, and that from then until now the same thread ran it, as the launch named.
#[cold]
pub fn submitted_and_ran(
    work: Work,
    names: [&'static str; 2],
    start: Timestamp,
    enqueued: Timestamp,
    waits: impl Iterator<Item = (u8, u64)>,
) {
    let [name, launch] = names;
    push([
        Recorded { what: What::Submitted(work, waits.collect()), name, start, end: enqueued },
        Recorded { what: What::Ran(work), name: launch, start: enqueued, end: Timestamp::now() },
    ]);
}

/// Notes that work ran, from `start` until now. For devices of what they queue: of what is `Inline` the runtime knows.
#[cold]
pub fn ran(work: Work, name: &'static str, start: Timestamp) {
    push([Recorded { what: What::Ran(work), name, start, end: Timestamp::now() }]);
}

/// Notes that work ran some time ago, as the device tells now.
#[cold]
pub fn ran_late(work: Work, name: &'static str, start: Timestamp, end: Timestamp) {
    let span = Recorded { what: What::Ran(work), name, start, end };
    count_dropped(1 - lock_soon(&LATE).map_or(0, |mut late| late.take_in([span])));
}

/// Counts work of which the device won't tell when it ran.
pub fn untimed(count: u64) {
    UNTIMED.fetch_add(count, Relaxed);
}

/// Notes what this thread has done, from `start` until now.
#[cold]
pub fn here(name: &'static str, start: Timestamp) {
    push([Recorded { what: What::Here, name, start, end: Timestamp::now() }]);
}

/// Notes that so many bytes were given to the program, or back if negative, just now.
#[cold]
pub fn allocated(source: Source, bytes: i64, now: Timestamp) {
    push([Recorded { what: What::Allocated(source, bytes), name: "allocated", start: now, end: now }]);
}

/// Notes that so many bytes were taken from the device, or given back if negative, just now.
#[cold]
pub fn reserved(source: Source, bytes: i64, now: Timestamp) {
    push([Recorded { what: What::Reserved(source, bytes), name: "reserved", start: now, end: now }]);
}

/// Takes in as many of the spans as there is room for.
fn push<const N: usize>(spans: [Recorded; N]) {
    if ON_AT.load(Relaxed) != fork_count() {
        return disable();
    }
    let count = TRACK.try_with(|track| {
        let mut room = 0;
        if track.get().is_none() {
            room = take_room();
            if room == 0 {
                return 0; // nor is there a record without a span
            }
        }
        let own = track.get_or_init(new_track);
        // In a child it may have been locked by a thread that is not here.
        let record = if fork_count() != 0 { lock_soon(&own.0.0) } else { Some(lock(&own.0.0)) };
        let Some(mut record) = record else { return 0 };
        record.room += room;
        record.take_in(spans)
    });
    // Past the end of its thread-locals a thread records nothing.
    count_dropped(N - count.unwrap_or_default());
}

fn count_dropped(count: usize) {
    if count > 0 {
        DROPPED.fetch_add(count as u64, Relaxed);
    }
}

fn take_room() -> usize {
    let taken = |room: usize| Some(room.saturating_sub(ROOM_TAKEN));
    ROOM.fetch_update(Relaxed, Relaxed, taken).unwrap_or_default().min(ROOM_TAKEN)
}

fn new_track() -> Own {
    let name = current_thread().name().map(str::to_string);
    let new = |name: Option<String>| {
        Own(Arc::new(Track(Mutex::new(Record { thread_name: name, pieces: Vec::new(), room: 0 }))))
    };
    // Of the child of a fork that left it locked there is no trace, nor anybody who wants one.
    let Some(mut tracks) = lock_soon(&TRACKS) else { return new(name) };
    if let Some(at) = tracks.idle.iter().position(|(idle, _)| *idle == name) {
        return Own(tracks.idle.swap_remove(at).1);
    }
    let own = new(name);
    tracks.all.push(own.0.clone());
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A test of its own process's statics: nothing else in this crate records.
    #[test]
    fn short_lived_threads_share_a_record_and_give_their_room_back() {
        enable();
        let source = Source::new();
        let record = || here("short", start().expect("it is on"));
        for _ in 0..10_000 {
            thread::Builder::new().name("short".into()).spawn(record).unwrap().join().unwrap();
        }
        // Of other names, and where there is no room: no record without a span.
        set_span_count_max(3);
        for index in 0..100 {
            let record = move || allocated(source, 1, start().expect("it is on"));
            thread::Builder::new().name(format!("thread {index}")).spawn(record).unwrap().join().unwrap();
        }
        let trace = snapshot();
        let spans: Vec<_> =
            trace.threads.iter().map(|thread| (thread.name.as_deref(), thread.spans.len())).collect();
        let expected = [("short", 10_000), ("thread 0", 1), ("thread 1", 1), ("thread 2", 1)];
        assert_eq!(spans, expected.map(|(name, count)| (Some(name), count)));
        assert_eq!(trace.dropped_count, 97);
        disable();
    }
}
