//! A record of what ran when, for the Chrome and Perfetto trace viewers. Off unless asked for; then each op costs a few
//! dozen nanoseconds and the record is bounded.

use raddle_sync::global::{AtomicBool, Mutex, MutexGuard, OnceLock, Ordering::Relaxed, PoisonError};
use std::time::Instant;

/// Spans that are kept; later ones are counted only.
const SPAN_COUNT_MAX: usize = 1 << 20; // guess: about 100 MiB of JSON

static ON: AtomicBool = AtomicBool::new(false);
static RECORD: Mutex<Trace> = Mutex::new(Trace { spans: Vec::new(), dropped: 0 });

/// What a span shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An op was put on a stream, by the thread that did.
    Enqueue,
    /// An op ran.
    Run,
    /// A buffer was given out, or back; `sequence` holds its bytes, as `i64`.
    Memory,
}

/// One thing that took time.
#[derive(Clone, Debug)]
pub struct Span {
    /// Which.
    pub kind: SpanKind,
    /// The op.
    pub name: &'static str,
    /// Device and queue.
    pub queue: (u8, u8),
    /// Its number there.
    pub sequence: u64,
    /// Nanoseconds since the trace was started.
    pub start_ns: u64,
    /// The same.
    pub end_ns: u64,
    /// What it waited for: queue and sequence.
    pub waits: Vec<(u8, u64)>,
}

/// All that was recorded.
#[derive(Debug, Default)]
pub struct Trace {
    /// In the order in which they ended.
    pub spans: Vec<Span>,
    /// How many there was no room for.
    pub dropped: u64,
}

fn record() -> MutexGuard<'static, Trace> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Starts recording.
pub fn enable() {
    origin();
    ON.store(true, Relaxed);
}

/// Stops recording and takes what there is.
pub fn take() -> Trace {
    ON.store(false, Relaxed);
    std::mem::take(&mut *record())
}

/// The time, if a trace is being recorded.
#[inline]
pub fn start() -> Option<u64> {
    ON.load(Relaxed).then(now_ns)
}

fn now_ns() -> u64 {
    origin().elapsed().as_nanos() as u64
}

/// Notes that an op was enqueued, from `start_ns` until now.
#[cold]
pub fn enqueued(
    queue: (u8, u8),
    sequence: u64,
    name: &'static str,
    start_ns: u64,
    waits: impl Iterator<Item = (u8, u64)>,
) {
    push(Span {
        kind: SpanKind::Enqueue,
        name,
        queue,
        sequence,
        start_ns,
        end_ns: now_ns(),
        waits: waits.collect(),
    });
}

/// Notes that an op ran, from `start_ns` until now. Backends don't know the index of their device and give 0.
#[cold]
pub fn ran(queue: (u8, u8), sequence: u64, name: &'static str, start_ns: u64) {
    push(Span { kind: SpanKind::Run, name, queue, sequence, start_ns, end_ns: now_ns(), waits: Vec::new() });
}

/// Notes that so many bytes were given out, or back if negative.
#[cold]
pub fn memory(bytes: i64, start_ns: u64) {
    let (kind, name) = (SpanKind::Memory, "memory");
    push(Span {
        kind,
        name,
        queue: (0, 0),
        sequence: bytes as u64,
        start_ns,
        end_ns: start_ns,
        waits: Vec::new(),
    });
}

fn push(span: Span) {
    let mut record = record();
    if record.spans.len() < SPAN_COUNT_MAX {
        record.spans.push(span);
    } else {
        record.dropped += 1;
    }
}
