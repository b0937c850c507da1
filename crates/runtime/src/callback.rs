//! Callbacks: what a program wants to do when a stream gets somewhere.
//!
//! A callback runs on a thread of the runtime, after its tick is complete, with no lock held: it may use the runtime as it
//! likes, unlike one that a driver calls. Its stream is the thread's current one. The stream doesn't wait for it.
//!
//! Each stream with callbacks has a thread while it has some: those of one stream run one at a time, in the order of their
//! ticks, and neither a slow stream nor a slow callback holds up those of another stream. So there are at most as many
//! threads as streams. A panic ends its callback and nothing else.
//!
//! **Forks.** The child of a callback that forks has the callback's thread alone. It may use the device as any child; when the
//! callback returns there, that thread ends, and the child with it. The other callbacks are its parent's.
//!
//! **The end.** [`Device::close`] waits for the callbacks of the device. A process that ends doesn't: what hasn't run then,
//! never runs.

use crate::{Device, Error, Result, Stream, device::DeviceInner, fork, local};
use raddle_hal::trace;
use raddle_sync::{Condvar, Mutex, Rank, caught, fault, thread};
use std::{cell::Cell, collections::VecDeque, ptr};

/// Callbacks that wait on one stream (guess: as many as a stream has ops in flight).
pub(crate) const CALLBACK_COUNT_MAX: usize = 1024;

type Body = Box<dyn FnOnce(Result<()>) + Send>;

struct Waiting {
    /// What of the stream has to be complete.
    sequence: u64,
    /// Names the callback: how many there had been.
    number: u64,
    stream: Stream,
    body: Body,
}

#[derive(Default)]
struct List {
    /// In the order of their sequences, and of arrival. A slot's handles differ while one of a former life has callbacks.
    waiting: VecDeque<Waiting>,
    /// Is there a thread that runs them? It looks at the list before it says no.
    has_thread: bool,
    /// How many there have been.
    added: u64,
}

/// Of one stream.
pub(crate) struct Callbacks {
    list: Mutex<List>,
    /// Signalled when the thread has ended.
    idle: Condvar,
}

thread_local! {
    /// The device of whose stream a callback runs on this thread.
    static RUNNING: Cell<*const DeviceInner> = const { Cell::new(ptr::null()) };
}

impl Callbacks {
    pub(crate) fn new() -> Callbacks {
        Callbacks { list: Mutex::new(Rank::Leaf, List::default()), idle: Condvar::new() }
    }

    /// Blocks until there is none; how many there have been.
    pub(crate) fn drain(&self) -> u64 {
        let mut list = self.list.lock();
        while list.has_thread {
            list = self.idle.wait(list);
        }
        list.added
    }

    /// Takes one back that was [added](add), unless it is running or over.
    pub(crate) fn remove(&self, sequence: u64, number: u64) {
        let mut list = self.list.lock();
        let first = list.waiting.partition_point(|other| other.sequence < sequence);
        let mut same = list.waiting.range(first..).take_while(|other| other.sequence == sequence);
        let found = same.position(|other| other.number == number);
        let removed = found.and_then(|place| list.waiting.remove(first + place));
        drop(list);
        drop(removed); // what it owns may want locks
    }
}

impl Stream {
    /// Calls a closure once everything that is on the stream now is complete, on a thread of the runtime; see the module. It
    /// is given what [`Stream::synchronize`] would have returned: after a loss of the device it is called, too, with the
    /// error. Later work on the stream doesn't wait for it, nor does [`Stream::synchronize`]; [`Device::close`] does.
    ///
    /// Doesn't block, except that on a wrapped stream it takes a place and waits for one, and that it does the work here if
    /// the system gives no thread. In a forked child the closure is called here. A closure may end the process by `exit`, and
    /// fork: the child has its thread alone, and ends when the closure returns there.
    ///
    /// Errors: [`Error::TooManyCallbacks`], [`Error::StreamClosed`]; then it is not called.
    pub fn on_complete(self, closure: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        if fork::is_child(self.0.device) {
            closure(fork::check(self.0.device));
            return Ok(());
        }
        self.check_open()?;
        add(self, self.now()?.sequence(), Box::new(closure)).map(drop)
    }
}

/// Calls `body` when a number of a stream is complete. The name by which it can be [taken back](Callbacks::remove).
pub(crate) fn add(stream: Stream, sequence: u64, body: Body) -> Result<u64> {
    if fault!(one_callback_thread) && stream.0.slot != 0 {
        let default = Stream::default(&stream.device())?;
        return add(default, 0, Box::new(move |_| body(stream.0.synchronize(sequence))));
    }
    let mut list = stream.0.callbacks.list.lock();
    if list.waiting.len() >= CALLBACK_COUNT_MAX && !fault!(callbacks_without_end) {
        return Err(Error::TooManyCallbacks {
            device: stream.device().name().into(),
            stream: stream.id().0,
            count_max: CALLBACK_COUNT_MAX,
        });
    }
    let place = list.waiting.partition_point(|other| other.sequence <= sequence);
    let number = list.added;
    list.waiting.insert(place, Waiting { sequence, number, stream, body });
    list.added += 1;
    if std::mem::replace(&mut list.has_thread, true) {
        return Ok(number);
    }
    drop(list);
    let builder = thread::Builder::new().name("raddle-callbacks".into());
    if builder.spawn(move || work(stream, true)).is_err() {
        work(stream, false);
    }
    Ok(number)
}

/// Runs the callbacks of a stream until there is none. A thread of its own gives back what it has of the device before it says
/// that it is idle: who waits for that may be closing the device.
fn work(first: Stream, on_own_thread: bool) {
    let callbacks = &first.0.callbacks;
    let mut has_things = on_own_thread;
    loop {
        let mut list = callbacks.list.lock();
        let Some(Waiting { sequence, stream, body, .. }) = list.waiting.pop_front() else {
            if has_things {
                drop(list);
                local::release(first.0.device);
                has_things = false;
                continue;
            }
            list.has_thread = false;
            callbacks.idle.notify_all();
            return;
        };
        drop(list);
        has_things = on_own_thread;
        let stream = if fault!(callback_of_another) { first } else { stream };
        let result = if fault!(callback_early) { Ok(()) } else { stream.0.synchronize(sequence) };
        let outer = RUNNING.replace(stream.0.device);
        let guard = (!fault!(callback_stream)).then(|| stream.enter());
        let trace = trace::start();
        // Of a panic there is nobody else to tell.
        _ = caught(|| body(result));
        if on_own_thread && fork::has_forked_in(first.0.device) {
            return; // a child, of which this is the last thread: what else waits is its parent's
        }
        if let Some(start) = trace {
            trace::here("callback", start);
        }
        drop(guard);
        RUNNING.set(outer);
    }
}

impl Device {
    /// Waits for all callbacks, which is refused in one of them.
    pub(crate) fn drain_callbacks(&self, op: &'static str) -> Result<()> {
        if ptr::eq(RUNNING.get(), self.0) {
            return Err(Error::InCallback { op, device: self.name().into() });
        }
        if !fault!(closes_before_callbacks) {
            // A callback may have brought one on a stream that had none. Where a second round meets no new one, there was none
            // on any stream when the first had ended.
            let round = || self.0.all_streams().map(|stream| stream.callbacks.drain()).sum::<u64>();
            let mut added = round();
            while !fault!(callbacks_of_callbacks_unseen) {
                let before = std::mem::replace(&mut added, round());
                if before == added {
                    break;
                }
            }
        }
        Ok(())
    }
}
