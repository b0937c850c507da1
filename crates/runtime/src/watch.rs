//! What watches or changes a device's allocations when somebody asks for it: a history, a [resource](MemoryResource) in
//! front of the allocator, private pools. As long as there is none, an allocation pays one load that is false.

use crate::{
    Allocation, MemoryEvent, MemoryEventKind, MemoryResource, Result,
    alloc::put_back,
    block::FreeBlock,
    capture,
    device::DeviceInner,
    fork,
    history::History,
    local,
    pool::{self, PoolInner},
};
use raddle_sync::{
    Mutex, Padded, Rank,
    atomic::{AtomicU32, Ordering::*},
    fault,
};
use std::{cell::Cell, sync::Arc};

/// A resource in front of a device's allocator.
#[derive(Clone)]
struct Installed {
    /// Grows with each one installed; blocks remember which gave them out.
    number: u32,
    resource: Arc<dyn MemoryResource>,
}

/// | field | stored by | loaded by |
/// |---|---|---|
/// | `reasons` | whoever switches something on or off, by read-modify-write | every allocation and free, to choose the path |
/// | others | holder of their locks | the same |
pub(crate) struct Watch {
    /// How many reasons there are not to take the shortest path. On a line of its own, since everybody loads it.
    reasons: Padded<AtomicU32>,
    history: Mutex<Option<History>>,
    installed: Mutex<Option<Installed>>,
    install_count: AtomicU32,
    pools: Mutex<Vec<&'static PoolInner>>,
}

thread_local! {
    /// Is a resource at work on this thread? Then what is allocated goes past it.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call of a resource.
fn inside<R>(call: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _restore = Restore(INSIDE.replace(true));
    capture::uncaptured(call) // what it does is no part of what the user does
}

/// Is a resource at work on this thread?
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// A resource that panics loses nothing but its say: this may be part of a `Drop`.
fn give_back(resource: &dyn MemoryResource, allocation: Allocation) {
    _ = raddle_sync::caught(|| inside(|| resource.free(allocation)));
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            reasons: Padded(AtomicU32::new(0)),
            history: Mutex::new(Rank::Leaf, None),
            installed: Mutex::new(Rank::Leaf, None),
            install_count: AtomicU32::new(0),
            pools: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Relaxed: whoever has switched something on sees it on its own thread; others see it when they are told.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.reasons.load(Relaxed) != 0
    }

    /// One reason more.
    pub(crate) fn add_reason(&self) {
        self.reasons.fetch_add(1, Relaxed);
    }

    /// One reason less.
    pub(crate) fn remove_reason(&self) {
        self.reasons.fetch_sub(1, Relaxed);
    }

    /// Starts a history of that many events, or ends it; what was recorded is lost.
    pub(crate) fn set_history(&self, history: Option<History>) {
        let starts = history.is_some();
        let ended = std::mem::replace(&mut *self.history.lock(), history).is_some();
        if starts {
            self.add_reason();
        }
        if ended {
            self.remove_reason();
        }
    }

    /// What was recorded, oldest first, and how many events were dropped before.
    pub(crate) fn events(&self) -> (Vec<MemoryEvent>, u64) {
        self.history.lock().as_ref().map_or_else(Default::default, History::events)
    }

    /// Puts a resource in front, or takes it away; returns the one before.
    pub(crate) fn install(
        &self,
        resource: Option<Arc<dyn MemoryResource>>,
    ) -> Option<Arc<dyn MemoryResource>> {
        let next = resource.map(|resource| {
            self.add_reason();
            Installed { number: self.install_count.fetch_add(1, Relaxed) + 1, resource }
        });
        let before = std::mem::replace(&mut *self.installed.lock(), next)?;
        self.remove_reason();
        Some(before.resource)
    }

    fn installed(&self) -> Option<Installed> {
        self.installed.lock().clone()
    }

    /// The private pools that are in use.
    pub(crate) fn pools(&self) -> Vec<&'static PoolInner> {
        self.pools.lock().clone()
    }

    pub(crate) fn add_pool(&self, pool: &'static PoolInner) {
        self.pools.lock().push(pool);
    }

    pub(crate) fn remove_pool(&self, pool: &'static PoolInner) {
        self.pools.lock().retain(|other| !std::ptr::eq(*other, pool));
    }

    fn record(
        &self,
        device: &'static DeviceInner,
        kind: MemoryEventKind,
        block: &FreeBlock,
        asked_bytes: usize,
    ) {
        if fork::has_forked_in(device) {
            return; // the history is its parent's
        }
        if let Some(history) = &mut *self.history.lock() {
            let stream = local::get(device).map_or(0, |local| local.slot());
            history.push(kind, block.get().address.number(), block.get().capacity_bytes, asked_bytes, stream);
        }
    }
}

impl DeviceInner {
    /// A block from this thread's pool, or else of the device's own memory.
    pub(crate) fn pooled_block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        match pool::current(self) {
            Some(pool) => self.allocate_large(size_bytes, Some(pool)),
            None => self.block(size_bytes),
        }
    }

    /// As `block`, by way of what watches.
    #[cold]
    pub(crate) fn watched_block(&'static self, size_bytes: usize) -> Result<FreeBlock> {
        let watch = &self.allocator.watch;
        let block = match watch.installed().filter(|_| !INSIDE.get()) {
            Some(Installed { number, resource }) => {
                self.allocator.user_calls.fetch_add(1, Relaxed);
                let given = inside(|| resource.allocate(size_bytes));
                if fork::has_forked_in(self) {
                    drop(given); // what it was for is the parent's allocation
                    return fork::block(self, size_bytes);
                }
                if fault!(refusal_passed_over) && given.is_err() {
                    return self.pooled_block(size_bytes);
                }
                let given = given?.into_block(self, size_bytes);
                // What is refused goes back the way it came, or the resource would count it for ever.
                let block = given.map_err(|(allocation, error)| {
                    give_back(&*resource, allocation);
                    error
                })?;
                block.get().resource.store(number, Relaxed);
                block
            }
            None => self.pooled_block(size_bytes)?,
        };
        watch.record(self, MemoryEventKind::Allocate, &block, size_bytes);
        Ok(block)
    }

    /// As `put_back`, by way of what watches.
    #[cold]
    pub(crate) fn free_watched(&'static self, block: FreeBlock) {
        let watch = &self.allocator.watch;
        watch.record(self, MemoryEventKind::Free, &block, block.get().asked_bytes.load(Relaxed));
        let number = block.get().resource.load(Relaxed);
        block.get().resource.store(0, Relaxed);
        // A resource may keep it and give it out again, and what it was is over.
        if !fault!(kept_failure) {
            block.get().taint.store(0, Relaxed);
        }
        match watch.installed() {
            Some(installed) if installed.number == number => {
                give_back(&*installed.resource, Allocation::new(block));
            }
            _ => put_back(block),
        }
    }
}
