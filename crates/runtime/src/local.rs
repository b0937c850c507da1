//! What a thread has of its own on a device: the stream that it is bound to, and a magazine.
//!
//! Made at the thread's first use of the device; when the thread ends, the stream is let go, the magazine's blocks go to
//! the centre, and the whole is kept for the next new thread. So short-lived threads leave no trace, and the number of
//! these is the most threads that were alive at once. No driver is called at thread exit (trap 16). Code that runs after
//! the thread-locals are gone works without: stream 0 and the centre.
//!
//! What a thread has in flight stays where it is when the thread ends: nobody waits for it, and nothing of it is dropped.
//! Others are ordered behind it as before.

use crate::{
    Access, Buffer, Result, Stream,
    block::FreeBlock,
    dedicated,
    device::DeviceInner,
    fork,
    magazine::{Magazine, Shelves},
    stream::StreamInner,
    submit::Touch,
};
use raddle_hal::Launch;
use raddle_sync::{atomic::Ordering::*, fault};
use std::cell::{Cell, RefCell};

/// What a thread has on one device. `current` and `dedicated` are the thread's own; `magazine` is, too, and others visit it.
/// What each op needs lies on the first line, and no line is another thread's as well.
#[repr(C, align(128))]
pub(crate) struct Local {
    pub(crate) device: &'static DeviceInner,
    current: Cell<Option<Current>>,
    pub(crate) magazine: Magazine,
    /// The stream that the thread has for itself, and the name of that hold.
    dedicated: Cell<Option<(&'static StreamInner, u64)>>,
}

/// The current stream of a thread, which is counted as one of the stream's users.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    stream: Stream,
    /// Was it chosen here, by the thread's first op, rather than by the user?
    is_bound: bool,
}

// SAFETY: `current` and `dedicated` are touched only by the thread that the `Local` belongs to at the time: it is handed
// out under the lock of `idle_locals` and comes back by it. The rest is `Sync`.
unsafe impl Sync for Local {}
// SAFETY: as above.
unsafe impl Send for Local {}

impl Local {
    pub(crate) fn new(device: &'static DeviceInner) -> Local {
        Local {
            device,
            current: Cell::new(None),
            dedicated: Cell::new(None),
            magazine: Magazine::new(Shelves::new()),
        }
    }

    /// The slot of the bound stream; of the default one before the thread is bound.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.current.get().map_or(0, |current| current.stream.0.slot)
    }

    /// Works on the thread's own magazine. Others spin meanwhile, so `work` calls nothing that blocks or goes in once more.
    ///
    /// Who has called code of the user since it got the `Local` gets it anew: the thread may have let go of it.
    #[inline]
    pub(crate) fn own_magazine<R>(&self, work: impl FnOnce(&mut Shelves) -> R) -> R {
        debug_assert!(is_mine(self), "another thread may have it by now");
        // SAFETY: as for `current`: this is called by the thread that the `Local` belongs to at the time.
        unsafe { self.magazine.own(work) }
    }

    /// Has the thread a current stream?
    pub(crate) fn is_bound(&self) -> bool {
        self.current.get().is_some()
    }

    /// Binds the thread that it belongs to.
    #[cfg(all(test, loom))]
    pub(crate) fn bind_now(&self) -> Result<Stream> {
        bind(self)
    }

    pub(crate) fn unbind(&self) {
        if let Some(current) = self.current.take()
            && !fault!(unbind_keeps_count)
        {
            dedicated::let_go(current.stream.0);
        }
    }

    /// Lets go of a stream that was chosen here, so that nobody waits for it while this thread waits for one of its own.
    pub(crate) fn unbind_chosen(&self) {
        if self.current.get().is_some_and(|current| current.is_bound) {
            self.unbind();
        }
    }

    pub(crate) fn set_dedicated(&self, dedicated: Option<(&'static StreamInner, u64)>) {
        self.dedicated.set(dedicated);
    }

    /// Ends a hold, unless it has ended and there is another.
    pub(crate) fn end_dedicated(&self, hold: u64) {
        if self.dedicated.get().is_some_and(|(_, current)| current == hold) {
            self.dedicated.set(None);
        }
    }

    pub(crate) fn has_dedicated(&self) -> bool {
        self.dedicated.get().is_some()
    }
}

/// All that a thread has, given back when it ends.
struct Locals(RefCell<Vec<&'static Local>>);

impl Drop for Locals {
    fn drop(&mut self) {
        LAST.set(None);
        for local in self.0.take() {
            give_back(local);
        }
    }
}

/// Is it among what this thread has, or being given back?
fn is_mine(local: &Local) -> bool {
    let is = |other: &&Local| std::ptr::eq(*other, local);
    LAST.get().as_ref().is_some_and(is)
        || LOCALS.try_with(|locals| locals.0.borrow().iter().any(is)).unwrap_or(true)
}

fn give_back(local: &'static Local) {
    if fork::is_child(local.device) {
        return; // the blocks are the parent's, and so are the locks
    }
    if fault!(exit_insists_on_idle) {
        let is_idle = |stream: &StreamInner| stream.is_complete(stream.latest().sequence());
        assert!(local.device.all_streams().all(is_idle), "a thread ends with work in flight");
    }
    if fault!(exit_waits_for_work) {
        _ = local.device.synchronize_all();
    }
    if fault!(exit_drops_work)
        && let Some(Current { stream, .. }) = local.current.get()
    {
        raddle_sync::raise(&stream.0.completed, stream.0.latest().sequence());
    }
    if !fault!(exit_keeps_stream) {
        local.unbind();
    }
    // The guard was leaked, or is itself in a thread-local.
    if let Some((stream, hold)) = local.dedicated.take()
        && !fault!(exit_keeps_dedicated)
    {
        dedicated::release(stream, hold);
    }
    let mut blocks = Vec::new();
    // Whoever looks through all magazines does so under this lock: it finds the blocks here or in the centre, never on their
    // way. So a device closes behind a scope of threads, whose ends come after the scope.
    let all = local.device.locals.lock();
    let empty = |shelves: &mut Shelves| {
        shelves.drain(&mut blocks);
        local.device.collect(&mut shelves.counts);
    };
    // SAFETY: it is this thread's until `idle_locals` has it.
    unsafe { local.magazine.own(empty) };
    if !fault!(exit_loses_magazine) {
        local.device.to_centre(blocks);
    }
    drop(all);
    local.device.idle_locals.lock().push(local);
}

thread_local! {
    static LOCALS: Locals = const { Locals(RefCell::new(Vec::new())) };
    /// The one used last. Without a destructor, so that looking at it costs a load.
    static LAST: Cell<Option<&'static Local>> = const { Cell::new(None) };
}

/// What this thread has on a device; none while the thread-locals are being destroyed.
#[inline]
pub(crate) fn get(device: &'static DeviceInner) -> Option<&'static Local> {
    if cfg!(loom) {
        return None; // loom's threads share one thread's locals: models have magazines of their own
    }
    match LAST.get() {
        Some(local) if std::ptr::eq(local.device, device) => Some(local),
        _ => find(device),
    }
}

#[cold]
fn find(device: &'static DeviceInner) -> Option<&'static Local> {
    let found = LOCALS.try_with(|locals| {
        let mut locals = locals.0.borrow_mut();
        if let Some(local) = locals.iter().find(|local| std::ptr::eq(local.device, device)) {
            return Some(*local);
        }
        // A thread that a forked child makes gets none.
        let local = (!fork::is_child(device)).then(|| device.local())?;
        locals.push(local);
        Some(local)
    });
    if found.is_err() && fault!(use_after_exit) {
        LOCALS.with(|_| ());
    }
    let local = found.ok()??;
    LAST.set(Some(local));
    Some(local)
}

/// The current stream of this thread; binds it to the least shared one if it has none.
#[inline]
pub(crate) fn current(device: &'static DeviceInner) -> Result<Stream> {
    match get(device) {
        Some(local) => match local.current.get() {
            Some(current) => Ok(current.stream),
            None => bind(local),
        },
        None => device.stream(0).map(StreamInner::handle),
    }
}

#[cold]
fn bind(local: &Local) -> Result<Stream> {
    if fork::is_child(local.device) {
        return fork::stream(local.device, 0).map(StreamInner::handle);
    }
    let stream = dedicated::least_shared(local.device)?.handle();
    local.current.set(Some(Current { stream, is_bound: true }));
    Ok(stream)
}

/// Makes a stream current; who gets what was current before keeps it counted as used, for [`leave`].
pub(crate) fn enter(stream: Stream) -> Option<Current> {
    let local = get(stream.0.device)?;
    stream.0.users.fetch_add(1, Relaxed);
    local.current.replace(Some(Current { stream, is_bound: false }))
}

/// Makes current again what [`enter`] has returned.
pub(crate) fn leave(device: &'static DeviceInner, outer: Option<Current>) {
    match get(device) {
        Some(local) => {
            local.unbind();
            local.current.set(outer);
        }
        None => outer.into_iter().for_each(|outer| dedicated::let_go(outer.stream.0)),
    }
}

/// Makes a stream current in place of the one that is.
pub(crate) fn set(stream: Stream) {
    if let Some(before) = enter(stream) {
        dedicated::let_go(before.stream.0);
    }
}

/// Lets go of this thread's stream and magazine now rather than at its end.
pub(crate) fn release(device: &'static DeviceInner) {
    LAST.set(None);
    _ = LOCALS.try_with(|locals| {
        let mut locals = locals.0.borrow_mut();
        if let Some(position) = locals.iter().position(|local| std::ptr::eq(local.device, device)) {
            give_back(locals.swap_remove(position));
        }
    });
}

/// Fills a fresh buffer with junk, in stream order, on devices that ask for it.
#[cold]
pub(crate) fn poison(device: &'static DeviceInner, buffer: &Buffer, value: u8) {
    fill(device, buffer.block(), value);
}

/// Fills a block with junk when it is freed: whoever still reads it, unordered, reads junk.
#[cold]
pub(crate) fn poison_free(device: &'static DeviceInner, block: FreeBlock) -> FreeBlock {
    fill(device, block.get(), 0xDB);
    block
}

fn fill(device: &'static DeviceInner, block: &crate::block::Block, value: u8) {
    let launch = Launch::FillBytes { to: block.address, size_bytes: block.capacity_bytes, value };
    // A lost device keeps nothing that junk could show; there is nobody to tell, either.
    if let Ok(stream) = current(device) {
        _ = stream.submit("poison", &launch, &mut [Touch { block, access: Access::Write, whole: true }], &[]);
    }
}
