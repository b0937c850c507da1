//! The stream that a thread's work on a device goes to.
//!
//! A thread is bound at its first op; when it ends, the stream is let go. What the thread has in flight stays where it is:
//! nobody waits for it, and nothing of it is dropped. Others are ordered behind it as before. Code that runs after the
//! thread-locals are gone works on stream 0.

use super::sharing;
use crate::{
    ground::{Device, Floor, Result, fork},
    memory,
    order::{Stream, StreamInner, Streams},
};
use raddle_sync::{atomic::Ordering::*, fault};
use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    ptr,
};

/// The current stream of a thread, which is counted as one of the stream's users.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    stream: Stream,
    /// Was it chosen here, by the thread's first op, rather than by the user?
    is_bound: bool,
}

/// What a thread has of one device's streams.
struct Binding {
    device: &'static Streams,
    current: Option<Current>,
    /// The stream that the thread has for itself, and the name of that hold.
    dedicated: Option<(&'static StreamInner, u64)>,
}

impl Binding {
    /// Makes another stream current, or none. Whoever gets what was current lets go of it.
    fn replace(&mut self, current: Option<Current>) -> Option<Current> {
        LAST.set(current.map(|current| (self.device, current.stream)));
        if let Some(local) = memory::local(self.device.core) {
            local.set_slot(current.map(|current| current.stream.0.slot));
        }
        std::mem::replace(&mut self.current, current)
    }

    fn unbind(&mut self) {
        if let Some(current) = self.replace(None) {
            fault!(unbind_keeps_count => return);
            sharing::let_go(current.stream.0);
        }
    }
}

/// All that a thread has, given back when it ends.
struct Bindings(RefCell<Vec<Binding>>);

impl Drop for Bindings {
    fn drop(&mut self) {
        LAST.set(None);
        self.0.take().into_iter().for_each(give_back);
    }
}

thread_local! {
    static BINDINGS: Bindings = const { Bindings(RefCell::new(Vec::new())) };
    /// The current stream of the device that was used last. Without a destructor, so that looking at it costs a load.
    static LAST: Cell<Option<(&'static Streams, Stream)>> = const { Cell::new(None) };
}

fn give_back(mut binding: Binding) {
    let device = binding.device;
    if fork::is_child(device) {
        return; // the locks are the parent's
    }
    if fault!(exit_insists_on_idle) {
        let is_idle = |stream: &StreamInner| stream.is_complete(stream.latest().sequence());
        assert!(device.all_streams().all(is_idle), "a thread ends with work in flight");
    }
    if fault!(exit_waits_for_work) {
        device.all_streams().for_each(|stream| _ = stream.synchronize(stream.latest().sequence()));
    }
    if fault!(exit_drops_work)
        && let Some(Current { stream, .. }) = binding.current
    {
        raddle_sync::raise(&stream.0.completed, stream.0.latest().sequence());
    }
    if !fault!(exit_keeps_stream) {
        binding.unbind();
    }
    // The guard was leaked, or is itself in a thread-local.
    if let Some((stream, hold)) = binding.dedicated.take() {
        fault!(exit_keeps_dedicated => return);
        sharing::release(stream, hold);
    }
}

/// What this thread has on a device; none while the thread-locals are being destroyed, and on a thread that a forked child
/// makes.
fn with<R>(device: &'static Streams, body: impl FnOnce(&mut Binding) -> R) -> Option<R> {
    if cfg!(loom) {
        return None; // loom's threads share one thread's locals: models name their streams
    }
    let found = BINDINGS.try_with(|bindings| {
        let mut bindings = bindings.0.borrow_mut();
        if let Some(binding) = bindings.iter_mut().find(|binding| ptr::eq(binding.device, device)) {
            return Some(body(binding));
        }
        if fork::is_child(device) {
            return None;
        }
        let mut binding = Binding { device, current: None, dedicated: None };
        let result = body(&mut binding);
        bindings.push(binding);
        Some(result)
    });
    fault!(use_after_exit => if found.is_err() { BINDINGS.with(|_| ()) });
    found.ok().flatten()
}

/// The current stream of this thread; binds it to the least shared one if it has none.
#[inline]
pub(crate) fn current(device: &'static Streams) -> Result<Stream> {
    match LAST.get() {
        Some((last, stream)) if ptr::eq(last, device) => Ok(stream),
        _ => find(device),
    }
}

#[cold]
fn find(device: &'static Streams) -> Result<Stream> {
    match with(device, |binding| binding.current) {
        Some(Some(Current { stream, .. })) => {
            LAST.set(Some((device, stream)));
            Ok(stream)
        }
        Some(None) if !fork::is_child(device) => {
            let stream = sharing::least_shared(device)?.handle();
            with(device, |binding| binding.replace(Some(Current { stream, is_bound: true })));
            Ok(stream)
        }
        _ => device.stream(0).map(StreamInner::handle),
    }
}

/// Makes a stream current; who gets what was current before keeps it counted as used, for [`leave`].
fn enter(stream: Stream) -> Option<Current> {
    with(stream.0.device, |binding| {
        stream.0.users.fetch_add(1, Relaxed);
        binding.replace(Some(Current { stream, is_bound: false }))
    })
    .flatten()
}

/// Makes current again what [`enter`] has returned.
fn leave(device: &'static Streams, outer: Option<Current>) {
    let left = with(device, |binding| {
        binding.unbind();
        binding.replace(outer);
    });
    if left.is_none() {
        outer.into_iter().for_each(|outer| sharing::let_go(outer.stream.0));
    }
}

/// Lets go of this thread's stream and of its free blocks now rather than at its end.
pub(crate) fn release(device: &'static Streams) {
    LAST.set(None);
    _ = BINDINGS.try_with(|bindings| {
        let mut bindings = bindings.0.borrow_mut();
        if let Some(position) = bindings.iter().position(|binding| ptr::eq(binding.device, device)) {
            give_back(bindings.swap_remove(position));
        }
    });
    memory::release_local(device.core);
}

/// Lets go of a stream that was chosen here, so that nobody waits for it while this thread waits for one of its own. Has the
/// thread one of its own already?
pub(super) fn unbind_chosen(device: &'static Streams) -> bool {
    with(device, |binding| {
        let has_own = binding.dedicated.is_some();
        if !has_own && binding.current.is_some_and(|current| current.is_bound) {
            binding.unbind();
        }
        has_own
    })
    .unwrap_or(false)
}

/// Notes that the thread has a stream for itself.
pub(super) fn begin_dedicated(stream: &'static StreamInner, hold: u64) {
    with(stream.device, |binding| binding.dedicated = Some((stream, hold)));
}

/// Notes that a hold has ended, unless there is another one by now.
pub(super) fn end_dedicated(stream: &'static StreamInner, hold: u64) {
    with(stream.device, |binding| {
        if binding.dedicated.is_some_and(|(_, current)| current == hold) {
            binding.dedicated = None;
        }
    });
}

impl Stream {
    /// The stream that this thread's work on a device goes to; binds the thread if it has none.
    pub fn current(device: &Device) -> Result<Stream> {
        current(Streams::of(device.0))
    }

    /// Makes this the current stream of this thread until the guard is dropped (also by a panic); guards nest, and guards
    /// of different devices don't meet.
    pub fn enter(self) -> StreamGuard {
        StreamGuard { device: self.0.device, outer: enter(self), _here: PhantomData }
    }

    /// Makes this the current stream of this thread for work on the stream's device; that on others goes where it went.
    pub fn set_current(self) {
        if let Some(before) = enter(self) {
            sharing::let_go(before.stream.0);
        }
    }
}

/// Restores the stream that was current before. Stays on its thread. Guards are dropped in the opposite order of their making, as
/// scopes do; in another order the stream stays current that was so when the last one to be dropped was made.
#[must_use = "the stream is current until the guard is dropped"]
pub struct StreamGuard {
    device: &'static Streams,
    outer: Option<Current>,
    _here: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        fault!(guard_stays_at_panic => if std::thread::panicking() { return });
        leave(self.device, self.outer);
    }
}
