//! Traces for Perfetto's and Chrome's viewers (<https://ui.perfetto.dev>): what threads put on which stream, what ran there,
//! who waited for what, and memory over time.
//!
//! `RADDLE_TRACE=FILE` records any program, from the first device that it opens to its end: `main` returning, or `exit` on
//! whatever thread. Not a signal, `abort` or `_exit`. A file that can't be written is told on stderr and changes nothing
//! else. A forked child writes none: the file is its parent's. (One that was forked before there was a device to record is a
//! program of its own, and writes the file at its end as any does.) In a program: [`start`], [`stop`], [`write()`].
//!
//! | in the viewer | what |
//! |---|---|
//! | process `threads` | a track for each thread: submissions, and what it did besides, such as compiling or a callback; one that has ended hands its track on to another of its name |
//! | a process for each device | a track for each stream: what ran |
//! | arrows | from an awaited op to the one that waited |
//! | counters | bytes allocated, and reserved from the device |
//!
//! A span that there was no room for (`RADDLE_TRACE_SPANS`) is missing, and so are arrows from and to it: no arrow lacks an
//! end. How many those are stands in the file, as `dropped`.
//!
//! **CUDA** doesn't say when it runs what. A thread that submits has an event noted behind its launches, and what lies between two
//! of these is shown, on the host's clock, to which the device's is fitted ten times a second, to some microseconds. A span begins
//! when the launch before it on its stream was over, or when it was submitted, if that was later: on a stream that had run dry
//! it holds the way to the device, too. To time a launch takes about as long as a small one, so a thread does it for a twentieth
//! of its time at most: launches that come slower than every 30 µs or so are all shown; of a thread that submits
//! faster some runs of a few dozen in a row are, and the rest, counted as `untimed`, has only its submissions. What is in
//! flight at the end of the process isn't shown.

use super::file::{FileReplacement, replaceable};
use crate::ground::{Error, Result};
use raddle_hal::trace::{self as hal, Source, Span, Trace, What, Work};
use raddle_sync::{
    RaceOnce, fault,
    global::{AtomicBool, Ordering::Relaxed},
    thread,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsString,
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Records from now on, in all threads. What is recorded already stays.
pub fn start() {
    hal::enable();
}

/// Records no more. What is recorded stays, and can be written.
pub fn stop() {
    hal::disable();
}

/// Writes what is recorded so far; recording goes on. Waits for no work. The file is there whole or not at all: it is written
/// beside its place and renamed. The error names the file.
pub fn write(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    write_whole(path, &hal::snapshot())
        .map_err(|error| Error::File { path: path.display().to_string(), reason: error.to_string() })
}

/// As [`write()`], to anything that takes bytes.
pub fn write_to(to: &mut impl Write) -> io::Result<()> {
    render(&hal::snapshot(), to)
}

/// What `RADDLE_TRACE` names, and the process that it was set for.
static AT_EXIT: RaceOnce<(PathBuf, u32)> = RaceOnce::new();

/// Called whenever a device is opened: starts what the environment asks for. When it returns that has been started, whoever else
/// is at it: who comes meanwhile does it, too, rather than wait, as a child that was forked meanwhile would for ever.
pub(crate) fn start_at_open(span_count_max: impl FnOnce() -> usize) {
    static STARTED: RaceOnce<()> = RaceOnce::new();
    static BEGUN: AtomicBool = AtomicBool::new(false);
    fault!(trace_starts_once => if BEGUN.swap(true, Relaxed) { return });
    STARTED.get_or_init(|| start_if_asked(span_count_max));
}

fn start_if_asked(span_count_max: impl FnOnce() -> usize) {
    // Of threads that are here at once the second gives back what the first has taken of it, for a few spans.
    hal::set_span_count_max(span_count_max());
    let asked: OsString = std::env::var_os("RADDLE_TRACE").unwrap_or_default();
    if asked.is_empty() {
        return;
    }
    // Wherever the program goes, it is meant from here.
    AT_EXIT
        .get_or_init(|| (std::path::absolute(&asked).unwrap_or_else(|_| asked.into()), std::process::id()));
    start();
    hal::on_early_end(write_at_exit);
    // SAFETY: the handler uses statics of the process only, no thread-locals, and doesn't unwind.
    unsafe { libc::atexit(at_exit) };
}

/// The first one that is called does it for all.
extern "C" fn at_exit() {
    static IS_WRITTEN: AtomicBool = AtomicBool::new(false);
    if !IS_WRITTEN.swap(true, Relaxed) {
        write_at_exit();
    }
}

/// Other threads may be running, and work in flight: it is written as far as it has come.
fn write_at_exit() {
    let Some((path, process)) = AT_EXIT.get() else { return };
    if *process != std::process::id() {
        return;
    }
    fault!(trace_of_main_only => if thread::current().name() != Some("main") { return });
    let written = write_whole(path, &hal::snapshot());
    if fault!(unwritten_trace_aborts) {
        written.as_ref().expect("the file can be written");
    }
    if let Err(error) = written {
        _ = writeln!(io::stderr(), "RADDLE_TRACE: {}: {error}", path.display());
    }
}

fn write_whole(path: &Path, trace: &Trace) -> io::Result<()> {
    let Some(target) = replaceable(path)? else { return write_file(&File::create(path)?, trace) };
    let replacement = FileReplacement::begin(target)?;
    write_file(replacement.file(), trace)?;
    replacement.finish()
}

fn write_file(file: &File, trace: &Trace) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    render(trace, &mut file)?;
    file.flush()
}

/// The process of all threads; those of devices follow.
const THREADS: usize = 1;

/// An event of the file: its time, and the rest of its text.
struct Event {
    ns: u64,
    text: String,
}

/// When a piece of work was submitted, and when it ran.
#[derive(Clone, Copy, Default)]
struct Times {
    name: Option<&'static str>,
    submitted: Option<Place>,
    ran: Option<Place>,
}

/// A span on a track. It is at least 1 ns long, so that what points into it finds it.
#[derive(Clone, Copy)]
struct Place {
    process: usize,
    track: usize,
    start_ns: u64,
    end_ns: u64,
}

/// The trace as JSON in Chrome's format, a line an event: names of tracks first, then all events by time.
fn render(trace: &Trace, to: &mut impl Write) -> io::Result<()> {
    let process: HashMap<Source, usize> =
        trace.devices.iter().enumerate().map(|(index, (source, _))| (*source, THREADS + 1 + index)).collect();
    let is_shown = |span: &Span| span.source().is_none_or(|source| process.contains_key(&source));
    let spans = || {
        let threads = trace.threads.iter().enumerate();
        let all = threads.flat_map(|(track, thread)| thread.spans.iter().map(move |span| (track, span)));
        // What ran is on the track of its stream, whoever has told it.
        let all = all.chain(trace.late.iter().map(|span| (0, span)));
        all.filter(|(_, span)| is_shown(span))
    };
    let work = times(spans(), &process);
    let mut events = Vec::new();
    for (track, span) in spans() {
        match &span.what {
            What::Submitted(of, waits) => {
                let place = Place::new(THREADS, track, span);
                events.push(place.slice(span.name, Some(*of)));
                for &(queue, sequence) in waits {
                    let producer = work.get(&Work { queue, sequence, ..*of });
                    arrow(producer, work[of], &mut events);
                }
            }
            What::Ran(of) => {
                let place = Place::new(process[&of.source], of.queue.into(), span);
                events.push(place.slice(work[of].name.unwrap_or(span.name), Some(*of)));
            }
            What::Here => events.push(Place::new(THREADS, track, span).slice(span.name, None)),
            What::Allocated(..) | What::Reserved(..) => {}
        }
    }
    counters(spans(), &process, &mut events);
    events.sort_by_key(|event| event.ns);

    writeln!(
        to,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"dropped\":{},\"untimed\":{}}},\"traceEvents\":[",
        trace.dropped_count, trace.untimed_count
    )?;
    let mut lines =
        tracks(trace, &work, &process).into_iter().chain(events.into_iter().map(|event| event.text));
    if let Some(first) = lines.next() {
        write!(to, "{first}")?;
    }
    lines.try_for_each(|line| write!(to, ",\n{line}"))?;
    writeln!(to, "\n]}}")
}

impl Place {
    fn new(process: usize, track: usize, span: &Span) -> Place {
        let end_ns = span.end_ns.max(span.start_ns + 1);
        Place { process, track, start_ns: span.start_ns, end_ns }
    }

    fn event(&self, phase: char, name: &str, ns: u64, more: std::fmt::Arguments<'_>) -> Event {
        let Place { process, track, .. } = self;
        let (name, ts) = (quoted(name), micros(ns));
        let text = format!(
            "{{\"ph\":\"{phase}\",\"name\":{name},\"pid\":{process},\"tid\":{track},\"ts\":{ts}{more}}}"
        );
        Event { ns, text }
    }

    fn slice(&self, name: &str, of: Option<Work>) -> Event {
        let duration = micros(self.end_ns - self.start_ns);
        let args = of.map_or_else(String::new, |Work { queue, sequence, .. }| {
            format!(",\"args\":{{\"stream\":{queue},\"sequence\":{sequence}}}")
        });
        self.event('X', name, self.start_ns, format_args!(",\"dur\":{duration}{args}"))
    }
}

/// When each piece of work was submitted and ran; of one that ran in parts, from the first to the last.
fn times<'a>(
    spans: impl Iterator<Item = (usize, &'a Span)>,
    process: &HashMap<Source, usize>,
) -> HashMap<Work, Times> {
    let mut all: HashMap<Work, Times> = HashMap::new();
    for (track, span) in spans {
        match span.what {
            What::Submitted(work, _) => {
                let times = all.entry(work).or_default();
                (times.name, times.submitted) = (Some(span.name), Some(Place::new(THREADS, track, span)));
            }
            What::Ran(work) => {
                let part = Place::new(process[&work.source], work.queue.into(), span);
                let ran = &mut all.entry(work).or_default().ran;
                *ran = Some(ran.map_or(part, |ran| Place {
                    start_ns: ran.start_ns.min(part.start_ns),
                    end_ns: ran.end_ns.max(part.end_ns),
                    ..ran
                }));
            }
            What::Here | What::Allocated(..) | What::Reserved(..) => {}
        }
    }
    all
}

/// From where the awaited work ran to where the waiting one did; if the device doesn't tell, from submission to submission.
fn arrow(producer: Option<&Times>, consumer: Times, events: &mut Vec<Event>) {
    let ran = |producer: &Times| {
        let (from, to) = (producer.ran?, consumer.ran?);
        // A device's clock may be fitted to the host's otherwise for the one than for the other.
        let from_ns = (from.end_ns - 1).min(to.start_ns.max(from.start_ns));
        (from_ns < to.end_ns).then_some(((from, from_ns), (to, to.start_ns)))
    };
    let submitted = |producer: &Times| {
        let (from, to) = (producer.submitted?, consumer.submitted?);
        Some(((from, from.start_ns), (to, to.end_ns - 1)))
    };
    let ends = producer.and_then(|producer| ran(producer).or_else(|| submitted(producer)));
    let more = |id: usize| format!(",\"cat\":\"wait\",\"id\":{id},\"bp\":\"e\"");
    let id = events.len();
    match (ends, consumer.submitted) {
        (Some(((from, from_ns), (to, to_ns))), _) => {
            events.push(from.event('s', "wait", from_ns, format_args!("{}", more(id))));
            events.push(to.event('f', "wait", to_ns.max(from_ns), format_args!("{}", more(id))));
        }
        (None, Some(to)) if fault!(flow_without_producer) => {
            events.push(to.event('f', "wait", to.start_ns, format_args!("{}", more(id))));
        }
        _ => {}
    }
}

/// Memory of each device as it was after each change.
fn counters<'a>(
    spans: impl Iterator<Item = (usize, &'a Span)>,
    process: &HashMap<Source, usize>,
    events: &mut Vec<Event>,
) {
    let change = |(_, span): (usize, &Span)| match span.what {
        What::Allocated(source, bytes) => Some((span.start_ns, source, span.name, bytes)),
        What::Reserved(source, bytes) => Some((span.start_ns, source, span.name, bytes)),
        _ => None,
    };
    let mut changes: Vec<_> = spans.filter_map(change).collect();
    changes.sort_by_key(|(ns, ..)| *ns);
    let mut now: HashMap<(Source, &str), i64> = HashMap::new();
    for (ns, source, name, bytes) in changes {
        let total = now.entry((source, name)).or_default();
        *total += bytes;
        let place = Place { process: process[&source], track: 0, start_ns: ns, end_ns: ns };
        // What was there before recording began isn't known.
        let bytes = (*total).max(0);
        events.push(place.event(
            'C',
            &format!("{name} bytes"),
            ns,
            format_args!(",\"args\":{{\"bytes\":{bytes}}}"),
        ));
    }
}

/// The names of processes and tracks.
fn tracks(trace: &Trace, work: &HashMap<Work, Times>, process: &HashMap<Source, usize>) -> Vec<String> {
    let mut names: BTreeMap<(usize, Option<usize>), String> = BTreeMap::new();
    names.insert((THREADS, None), "threads".into());
    for (track, thread) in trace.threads.iter().enumerate() {
        let name = thread.name.clone().unwrap_or_else(|| format!("thread {track}"));
        names.insert((THREADS, Some(track)), name);
    }
    for (source, name) in &trace.devices {
        names.insert((process[source], None), name.clone());
    }
    let streams: BTreeSet<_> =
        work.keys().map(|work| (process[&work.source], usize::from(work.queue))).collect();
    for (process, stream) in streams {
        let name = if stream == 0 { "default stream".into() } else { format!("stream {stream}") };
        names.insert((process, Some(stream)), name);
    }
    let line = |((process, track), name): ((usize, Option<usize>), String)| {
        let mut line = format!("{{\"ph\":\"M\",\"pid\":{process},");
        _ = match track {
            None => write!(line, "\"name\":\"process_name\""),
            Some(track) => write!(line, "\"name\":\"thread_name\",\"tid\":{track}"),
        };
        _ = write!(line, ",\"args\":{{\"name\":{}}}}}", quoted(&name));
        line
    };
    names.into_iter().map(line).collect()
}

/// Microseconds, as the format has them, exact to the nanosecond.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\0'..=' ' if letter != ' ' => _ = write!(quoted, "\\u{:04x}", letter as u32),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/trace.rs"]
mod tests;
