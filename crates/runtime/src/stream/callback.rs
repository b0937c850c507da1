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
//! **The end.** [`Device::close`](crate::Device::close) waits for the callbacks of the device. A process that ends doesn't: what hasn't run then,
//! never runs.

use super::binding;
use crate::{
    ground::{Core, Error, Result, fork},
    order::{
        Stream, Streams,
        callbacks::{Added, Body, CALLBACK_COUNT_MAX, Waiting},
    },
};
use raddle_hal::trace;
use raddle_sync::{caught, fault, thread};
use std::{cell::Cell, ptr};

thread_local! {
    /// The device of whose stream a callback runs on this thread.
    static RUNNING: Cell<*const Core> = const { Cell::new(ptr::null()) };
}

impl Stream {
    /// Calls a closure once everything that is on the stream now is complete, on a thread of the runtime; see the module. It
    /// is given what [`Stream::synchronize`] would have returned: after a loss of the device it is called, too, with the
    /// error. Later work on the stream doesn't wait for it, nor does [`Stream::synchronize`]; [`Device::close`](crate::Device::close) does.
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

/// Calls `body` when a number of a stream is complete. The number by which it can be taken back.
pub(crate) fn add(stream: Stream, sequence: u64, body: Body) -> Result<u64> {
    if fault!(one_callback_thread) && stream.0.slot != 0 {
        let default = Stream::default(&stream.device())?;
        return add(default, 0, Box::new(move |_| body(stream.0.synchronize(sequence))));
    }
    let Some(added) = stream.0.callbacks.add(sequence, stream.1, body, CALLBACK_COUNT_MAX) else {
        return Err(Error::TooManyCallbacks {
            device: stream.device().name().into(),
            stream: stream.id().0,
            count_max: CALLBACK_COUNT_MAX,
        });
    };
    bring_thread(stream, &added);
    Ok(added.number)
}

/// As [`add`], of what has a bound of its own: one for each piece of memory that others wait for.
pub(crate) fn add_unbounded(stream: Stream, sequence: u64, body: Body) {
    let added = stream.0.callbacks.add(sequence, stream.1, body, usize::MAX);
    bring_thread(stream, &added.expect("there is always room"));
}

fn bring_thread(stream: Stream, added: &Added) {
    if added.needs_thread {
        let builder = thread::Builder::new().name("raddle-callbacks".into());
        if builder.spawn(move || work(stream, true)).is_err() {
            work(stream, false);
        }
    }
}

/// Runs the callbacks of a stream until there is none. A thread of its own gives back what it has of the device before it says
/// that it is idle: who waits for that may be closing the device.
fn work(first: Stream, on_own_thread: bool) {
    let mut has_things = on_own_thread;
    loop {
        let Some(Waiting { sequence, generation, body, .. }) = first.0.callbacks.next(!has_things) else {
            if !has_things {
                return;
            }
            binding::release(first.0.device);
            has_things = false;
            continue;
        };
        has_things = on_own_thread;
        let stream = Stream(first.0, generation);
        let stream = if fault!(callback_of_another) { first } else { stream };
        let result = if fault!(callback_early) { Ok(()) } else { stream.0.synchronize(sequence) };
        let outer = RUNNING.replace(stream.0.device.core);
        let mut guard = None;
        if !fault!(callback_stream) {
            guard = Some(stream.enter());
        }
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

/// Waits for all callbacks of a device, which is refused in one of them.
pub(crate) fn drain(device: &'static Streams, op: &'static str) -> Result<()> {
    if ptr::eq(RUNNING.get(), device.core) {
        return Err(Error::InCallback { op, device: device.name().into() });
    }
    if !fault!(closes_before_callbacks) {
        // A callback may have brought one on a stream that had none. Where a second round meets no new one, there was none
        // on any stream when the first had ended.
        let round = || device.all_streams().map(|stream| stream.callbacks.drain()).sum::<u64>();
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
