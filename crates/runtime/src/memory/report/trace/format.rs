//! The file: a line `raddle memory trace 1`, then one record an event, then the end. It can be read and written as a
//! stream; compressing is left to others (gzip takes it down to a third).
//!
//! A record is a byte and then numbers in LEB128 (seven bits a byte, the lowest first, in as few bytes as will do), each only
//! if the byte says so; so a trace has one form:
//!
//! | bits | meaning | number |
//! |---|---|---|
//! | 0–2 | 0 allocate, 1 use, 2 free, 3 synchronize, 7 end | allocate: bytes; use, free: how many allocations ago it was made, 0 the last; end: the number of events |
//! | 3 | another thread than the event before (at the start 0) | the thread, first of all numbers |
//! | 4 | another stream than the event before (at the start 0) | the stream, second |
//! | 5 | time has gone on | microseconds since the event before, third |
//! | 6–7 | 0 | |

use super::{MemoryTrace, TraceError, TraceEvent, TraceOp};
use std::io::{BufRead, Read, Write};

const VERSION: u32 = 1;
const HEADER: &str = "raddle memory trace 1\n";

const END: u8 = 7;
const THREAD: u8 = 1 << 3;
const STREAM: u8 = 1 << 4;
const TIME: u8 = 1 << 5;

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl MemoryTrace {
    /// Writes it in the form that [`MemoryTrace::read`] reads.
    pub fn write(&self, mut to: impl Write) -> Result<(), TraceError> {
        let mut bytes = HEADER.as_bytes().to_vec();
        let (mut thread, mut stream, mut time_us, mut allocation_count) = (0, 0, 0, 0);
        for event in self.events() {
            let (op, number) = match event.op {
                TraceOp::Allocate { size_bytes } => (0, Some(size_bytes)),
                TraceOp::Use { allocation } => (1, Some(allocation_count - 1 - u64::from(allocation))),
                TraceOp::Free { allocation } => (2, Some(allocation_count - 1 - u64::from(allocation))),
                TraceOp::Synchronize => (3, None),
            };
            allocation_count += u64::from(op == 0);
            let optional = [
                (THREAD, (event.thread != thread).then_some(event.thread.into())),
                (STREAM, (event.stream != stream).then_some(event.stream.into())),
                (TIME, Some(event.time_us - time_us).filter(|delta| *delta > 0)),
            ];
            bytes.push(
                optional.iter().fold(op, |tag, (bit, number)| if number.is_some() { tag | bit } else { tag }),
            );
            optional
                .iter()
                .filter_map(|(_, number)| *number)
                .chain(number)
                .for_each(|number| put(&mut bytes, number));
            (thread, stream, time_us) = (event.thread, event.stream, event.time_us);
            if bytes.len() > 1 << 16 {
                to.write_all(&bytes)?;
                bytes.clear();
            }
        }
        bytes.push(END);
        put(&mut bytes, self.events().len() as u64);
        to.write_all(&bytes)?;
        Ok(to.flush()?)
    }

    /// Reads and checks a trace.
    ///
    /// Errors: whatever isn't as [`MemoryTrace::write`] would write it, and where. Needs no more memory than the trace does.
    pub fn read(from: impl BufRead) -> Result<MemoryTrace, TraceError> {
        let mut reader = Reader { from, at_byte: 0, event: 0 };
        let mut header = Vec::new();
        reader.from.by_ref().take(HEADER.len() as u64).read_to_end(&mut header)?;
        if header != HEADER.as_bytes() {
            let found = String::from_utf8_lossy(&header).trim_end().into();
            return Err(TraceError::Header { expected: VERSION, found });
        }
        reader.at_byte = HEADER.len() as u64;
        let mut trace = MemoryTrace::default();
        let (mut thread, mut stream, mut time_us) = (0u64, 0u64, 0u64);
        loop {
            let tag = reader.byte()?;
            let op = tag & 7;
            let unknown = TraceError::Tag { at_byte: reader.at_byte - 1, event: reader.event, found: tag };
            if op == END && tag == END {
                let (expected, found) = (reader.number()?, reader.event);
                if expected != found as u64 {
                    return Err(TraceError::Count { expected, found });
                }
                return match reader.from.fill_buf()?.is_empty() {
                    true => Ok(trace),
                    false => Err(TraceError::Trailing { at_byte: reader.at_byte }),
                };
            }
            if op > 3 || tag >= TIME << 1 {
                return Err(unknown);
            }
            if tag & THREAD != 0 {
                thread = reader.other_than(thread, "thread")?;
            }
            if tag & STREAM != 0 {
                stream = reader.other_than(stream, "stream")?;
            }
            if tag & TIME != 0 {
                let delta_us = reader.other_than(0, "time")?;
                time_us = time_us.checked_add(delta_us).ok_or_else(|| reader.too_large())?;
            }
            let number = if op == 3 { 0 } else { reader.number()? };
            let ago =
                (trace.allocation_count() as u64).checked_sub(1).and_then(|last| last.checked_sub(number));
            let allocation = ago.map_or(u32::MAX, |allocation| allocation as u32);
            let op = match op {
                0 => TraceOp::Allocate { size_bytes: number },
                1 => TraceOp::Use { allocation },
                2 => TraceOp::Free { allocation },
                _ => TraceOp::Synchronize,
            };
            // What doesn't fit is out of bounds, too.
            let thread = u16::try_from(thread).unwrap_or(u16::MAX);
            let stream = u8::try_from(stream).unwrap_or(u8::MAX);
            trace.push(TraceEvent { time_us, thread, stream, op })?;
            reader.event += 1;
        }
    }
}

struct Reader<R> {
    from: R,
    at_byte: u64,
    event: usize,
}

impl<R: BufRead> Reader<R> {
    fn byte(&mut self) -> Result<u8, TraceError> {
        let byte = *self
            .from
            .fill_buf()?
            .first()
            .ok_or(TraceError::Truncated { at_byte: self.at_byte, event: self.event })?;
        self.from.consume(1);
        self.at_byte += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte == 0 && shift > 0 {
                return Err(TraceError::Overlong { at_byte: self.at_byte, event: self.event });
            }
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.too_large())
    }

    /// A number that is only there because it differs from this one.
    fn other_than(&mut self, before: u64, what: &'static str) -> Result<u64, TraceError> {
        let number = self.number()?;
        if number == before { Err(TraceError::Same { event: self.event, what }) } else { Ok(number) }
    }

    fn too_large(&self) -> TraceError {
        TraceError::Number { at_byte: self.at_byte, event: self.event }
    }
}
