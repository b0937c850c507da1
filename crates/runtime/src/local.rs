//! What a thread has of its own on a device: the stream that it is bound to, and a magazine.
//!
//! Made at the thread's first use of the device; when the thread ends, the stream is let go, the magazine's blocks go to
//! the centre, and the whole is kept for the next new thread. So short-lived threads leave no trace, and the number of
//! these is the most threads that were alive at once. No driver is called at thread exit (trap 16). Code that runs after
//! the thread-locals are gone works without: stream 0 and the centre.

use crate::{
    Access, Buffer, Result,
    block::FreeBlock,
    device::DeviceInner,
    fork,
    magazine::Magazine,
    stream::{POOL_COUNT, StreamInner},
    submit::Touch,
};
use raddle_hal::Launch;
use raddle_sync::{atomic::Ordering::*, fault};
use std::cell::{Cell, RefCell};

/// What a thread has on one device. `stream` is the thread's own; `magazine` is shared by its flag.
pub(crate) struct Local {
    pub(crate) device: &'static DeviceInner,
    stream: Cell<Option<&'static StreamInner>>,
    pub(crate) magazine: Magazine,
}

// SAFETY: `stream` is touched only by the thread that the `Local` belongs to at the time: it is handed out under the lock
// of `idle_locals` and comes back by it. The rest is `Sync`.
unsafe impl Sync for Local {}
// SAFETY: as above.
unsafe impl Send for Local {}

impl Local {
    pub(crate) fn new(device: &'static DeviceInner) -> Local {
        Local { device, stream: Cell::new(None), magazine: Magazine::new() }
    }

    /// The slot of the bound stream; of the default one before the thread is bound.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.stream.get().map_or(0, |stream| stream.slot)
    }

    /// Binds the thread that it belongs to.
    #[cfg(all(test, loom))]
    pub(crate) fn bind_now(&self) -> Result<&'static StreamInner> {
        bind(self)
    }

    pub(crate) fn unbind(&self) {
        if let Some(stream) = self.stream.take() {
            stream.users.fetch_sub(1, Relaxed);
        }
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

fn give_back(local: &'static Local) {
    if !fault!(exit_keeps_stream) {
        local.unbind();
    }
    if fork::is_child(local.device) {
        return; // the blocks are the parent's, and so are the locks
    }
    let mut blocks = Vec::new();
    local.magazine.with(|shelves| {
        shelves.drain(&mut blocks);
        local.device.collect(&mut shelves.counts);
    });
    if !fault!(exit_loses_magazine) {
        local.device.to_centre(blocks);
    }
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
pub(crate) fn current(device: &'static DeviceInner) -> Result<&'static StreamInner> {
    match get(device) {
        Some(local) => match local.stream.get() {
            Some(stream) => Ok(stream),
            None => bind(local),
        },
        None => device.stream(0),
    }
}

#[cold]
fn bind(local: &Local) -> Result<&'static StreamInner> {
    if fork::is_child(local.device) {
        return fork::stream(local.device, 0);
    }
    // Made streams first, so that a device's few hardware queues aren't spread thin (trap 17): a new one only if all
    // that are there are in use.
    let _pool = local.device.pool.lock();
    let users = |slot: usize| local.device.made(slot).map_or(0, |stream| stream.users.load(Relaxed));
    let slot = (0..=POOL_COUNT).min_by_key(|&slot| users(slot)).unwrap_or(0);
    let stream = local.device.stream_in_pool(slot, &_pool)?;
    stream.users.fetch_add(1, Relaxed);
    local.stream.set(Some(stream));
    Ok(stream)
}

/// Changes the current stream of this thread; returns the one before.
pub(crate) fn replace(
    device: &'static DeviceInner,
    stream: Option<&'static StreamInner>,
) -> Option<&'static StreamInner> {
    let local = get(device)?;
    let before = local.stream.get();
    local.unbind();
    if let Some(stream) = stream {
        stream.users.fetch_add(1, Relaxed);
    }
    local.stream.set(stream);
    before
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
