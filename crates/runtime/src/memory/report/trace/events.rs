//! What a trace is, and which ones make sense.

use raddle_hal::QUEUE_COUNT_MAX;
use std::io;

/// The most events of a trace: 96 MiB of memory.
pub const TRACE_EVENT_COUNT_MAX: usize = 1 << 22; // guess
/// The most threads of a trace.
pub const TRACE_THREAD_COUNT_MAX: usize = 1 << 12; // guess

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// So many bytes were asked for. Allocations are numbered from 0 in the order of the trace.
    Allocate {
        /// Its size.
        size_bytes: u64,
    },
    /// The last work on the stream that touches an allocation has been put there.
    Use {
        /// Its number.
        allocation: u32,
    },
    /// The last handle of an allocation went.
    Free {
        /// Its number.
        allocation: u32,
    },
    /// The thread has waited for everything on the stream.
    Synchronize,
}

/// An entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Microseconds since the recording was begun.
    pub time_us: u64,
    /// The thread; numbered from 0.
    pub thread: u16,
    /// The stream that is used or waited for, or that was current: 0 is the default stream.
    pub stream: u8,
    /// What happened.
    pub op: TraceOp,
}

/// A trace that makes sense: whoever made it, an allocation is used and freed after it was made, and freed once at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryTrace {
    events: Vec<TraceEvent>,
    /// Of every allocation: has it been freed?
    freed: Vec<bool>,
    allocated_bytes: u64,
    allocated_peak_bytes: u64,
    /// Sizes of all allocations.
    sizes_bytes: Vec<u64>,
}

impl MemoryTrace {
    /// Checks events, in order.
    ///
    /// Errors: the first one that makes no sense where it stands.
    pub fn new(events: impl IntoIterator<Item = TraceEvent>) -> Result<MemoryTrace, TraceError> {
        let mut trace = MemoryTrace::default();
        events.into_iter().try_for_each(|event| trace.push(event))?;
        Ok(trace)
    }

    pub(super) fn push(&mut self, event: TraceEvent) -> Result<(), TraceError> {
        let index = self.events.len();
        let bound = |what, found: usize, bound| match found < bound {
            true => Ok(()),
            false => {
                Err(TraceError::OutOfBounds { event: index, what, found: found as u64, bound: bound as u64 })
            }
        };
        bound("the number of events", index, TRACE_EVENT_COUNT_MAX)?;
        bound("thread", event.thread.into(), TRACE_THREAD_COUNT_MAX)?;
        bound("stream", event.stream.into(), QUEUE_COUNT_MAX)?;
        if let Some(last) = self.events.last()
            && event.time_us < last.time_us
        {
            return Err(TraceError::Backwards {
                event: index,
                time_us: event.time_us,
                last_us: last.time_us,
            });
        }
        match event.op {
            TraceOp::Allocate { size_bytes } => {
                let sum_bytes = self.allocated_bytes.checked_add(size_bytes);
                let Some(sum_bytes) = sum_bytes.filter(|&sum| isize::try_from(sum).is_ok()) else {
                    let (what, bound) = ("bytes", isize::MAX as u64);
                    return Err(TraceError::OutOfBounds { event: index, what, found: size_bytes, bound });
                };
                self.allocated_bytes = sum_bytes;
                self.allocated_peak_bytes = self.allocated_peak_bytes.max(sum_bytes);
                self.sizes_bytes.push(size_bytes);
                self.freed.push(false);
            }
            TraceOp::Use { allocation } | TraceOp::Free { allocation } => {
                let is_live = self.freed.get(allocation as usize) == Some(&false);
                if !is_live {
                    let op = if matches!(event.op, TraceOp::Use { .. }) { "use" } else { "free" };
                    return Err(TraceError::NotLive { event: index, op, allocation });
                }
                if matches!(event.op, TraceOp::Free { .. }) {
                    self.freed[allocation as usize] = true;
                    self.allocated_bytes -= self.sizes_bytes[allocation as usize];
                }
            }
            TraceOp::Synchronize => {}
        }
        self.events.push(event);
        Ok(())
    }

    /// All events, in order.
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// How many allocations there are.
    pub fn allocation_count(&self) -> usize {
        self.sizes_bytes.len()
    }

    /// How many bytes were asked for by an allocation; panics if there is none of that number.
    pub fn size_bytes(&self, allocation: u32) -> u64 {
        self.sizes_bytes[allocation as usize]
    }

    /// The most bytes that were live at once, as asked for.
    pub fn allocated_peak_bytes(&self) -> u64 {
        self.allocated_peak_bytes
    }
}

/// What is wrong with a trace. Data, not sentences; the text says where, what, expected, found.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum TraceError {
    /// The file doesn't start as one.
    #[error("trace: expected the first line \"raddle memory trace {expected}\", found {found:?}")]
    Header { expected: u32, found: String },
    /// It ends in the middle.
    #[error("trace: byte {at_byte}: the file ends inside of event {event}")]
    Truncated { at_byte: u64, event: usize },
    /// It goes on after its end.
    #[error("trace: byte {at_byte}: expected the end of the file, found more")]
    Trailing { at_byte: u64 },
    /// A first byte of an event that isn't one.
    #[error("trace: byte {at_byte}: event {event} starts with {found:#04x}, which no event does")]
    Tag { at_byte: u64, event: usize, found: u8 },
    /// A number of more than 64 bits.
    #[error("trace: byte {at_byte}: event {event} has a number of more than 64 bits")]
    Number { at_byte: u64, event: usize },
    /// A number that could be shorter.
    #[error("trace: byte {at_byte}: event {event} has a number of more bytes than it needs")]
    Overlong { at_byte: u64, event: usize },
    /// Something is said to have changed that hasn't.
    #[error("trace: event {event}: expected another {what} than before, found the same")]
    Same { event: usize, what: &'static str },
    /// The count at the end is another one.
    #[error("trace: expected {expected} events, as its end says, found {found}")]
    Count { expected: u64, found: usize },
    /// A number that is larger than it may be.
    #[error("trace: event {event}: {what} is {found}, expected less than {bound}")]
    OutOfBounds { event: usize, what: &'static str, found: u64, bound: u64 },
    /// Time runs backwards.
    #[error("trace: event {event}: its time is {time_us} us, that of the event before {last_us} us")]
    Backwards { event: usize, time_us: u64, last_us: u64 },
    /// An allocation that isn't there is used or freed.
    #[error("trace: event {event}: {op} of allocation {allocation}, which is not live")]
    NotLive { event: usize, op: &'static str, allocation: u32 },
    /// A recording has more events than there is room for.
    #[error("trace: a recording holds {count_max} events at most; record less")]
    Full { count_max: usize },
    /// A recording has lost events.
    #[error("trace: {expected} events were recorded, only {found} are there")]
    Lost { expected: u64, found: usize },
    /// The process records already.
    #[error("trace: another recording is under way in this process")]
    Recording,
    /// A forked child has a recording of its parent.
    #[error("trace: the recording was begun before this process was forked, and stays with the parent")]
    Forked,
    /// The file can't be read or written.
    #[error("trace: {0}")]
    Io(#[from] io::Error),
}
