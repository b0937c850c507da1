//! What watches or changes a device's allocations when somebody asks for it: a history, a [resource](MemoryResource) in
//! front of the allocator. As long as there is none, and no private pool, an allocation pays one load that is false.

use super::resource::{Allocation, MemoryResource};
use crate::{
    ground::{Core, Floor, Result, capturing, fork},
    memory::{
        allocate::put_back,
        block::FreeBlock,
        child, local,
        report::history::{History, MemoryEvent, MemoryEventKind},
        store::Memory,
    },
};
use raddle_sync::{
    Mutex, Rank,
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

/// What stands between the users of a device and its allocator.
pub(crate) struct AllocInterceptors {
    device: &'static Core,
    history: Mutex<Option<History>>,
    installed: Mutex<Option<Installed>>,
    install_count: AtomicU32,
}

// SAFETY: no other floor has the number.
unsafe impl Floor for AllocInterceptors {
    const NUMBER: usize = 2;
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
    capturing::uncaptured(call) // what it does is no part of what the user does
}

/// Is a resource at work on this thread?
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// A resource that panics loses nothing but its say: this may be part of a `Drop`.
fn give_back(resource: &dyn MemoryResource, allocation: Allocation) {
    _ = raddle_sync::caught(|| inside(|| resource.free(allocation)));
}

impl AllocInterceptors {
    pub(crate) fn new(device: &'static Core) -> AllocInterceptors {
        AllocInterceptors {
            device,
            history: Mutex::new(Rank::Leaf, None),
            installed: Mutex::new(Rank::Leaf, None),
            install_count: AtomicU32::new(0),
        }
    }

    /// Starts a history of that many events, or ends it if it is none; what was recorded is lost.
    pub(crate) fn set_history(&self, event_count: usize) {
        let history = (event_count > 0).then(|| History::new(event_count));
        if history.is_some() {
            self.device.add_watcher();
        }
        if std::mem::replace(&mut *self.history.lock(), history).is_some() {
            self.device.remove_watcher();
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
            self.device.add_watcher();
            Installed { number: self.install_count.fetch_add(1, Relaxed) + 1, resource }
        });
        let before = std::mem::replace(&mut *self.installed.lock(), next)?;
        self.device.remove_watcher();
        Some(before.resource)
    }

    fn installed(&self) -> Option<Installed> {
        self.installed.lock().clone()
    }

    pub(in crate::memory) fn record(&self, kind: MemoryEventKind, block: &FreeBlock, asked_bytes: usize) {
        if fork::has_forked_in(self.device) {
            return; // the history is its parent's
        }
        // Before the lock: a thread that frees what others have allocated gets a store of its own here.
        let stream = local::get(self.device).map_or(0, |local| local.slot());
        if let Some(history) = &mut *self.history.lock() {
            history.push(kind, block.get().address.number(), block.get().capacity_bytes, asked_bytes, stream);
        }
    }
}

/// As [`Memory::block`], by way of what watches.
#[cold]
pub(in crate::memory) fn watched_block(memory: &'static Memory, size_bytes: usize) -> Result<FreeBlock> {
    let interceptors = AllocInterceptors::of(memory.core);
    let block = match interceptors.installed().filter(|_| !INSIDE.get()) {
        Some(Installed { number, resource }) => {
            memory.user_calls.fetch_add(1, Relaxed);
            let given = inside(|| resource.allocate(size_bytes));
            if fork::has_forked_in(memory) {
                drop(given); // what it was for is the parent's allocation
                return child::block(memory.core, size_bytes);
            }
            fault!(refusal_passed_over => if given.is_err() { return memory.pooled_block(size_bytes) });
            let given = given?.into_block(memory.core, size_bytes);
            // What is refused goes back the way it came, or the resource would count it for ever.
            let block = given.map_err(|(allocation, error)| {
                give_back(&*resource, allocation);
                error
            })?;
            block.get().resource.store(number, Relaxed);
            block
        }
        None => memory.pooled_block(size_bytes)?,
    };
    interceptors.record(MemoryEventKind::Allocate, &block, size_bytes);
    Ok(block)
}

/// As [`put_back`], by way of what watches.
#[cold]
pub(in crate::memory) fn free_watched(block: FreeBlock) {
    let interceptors = AllocInterceptors::of(block.get().device);
    interceptors.record(MemoryEventKind::Free, &block, block.get().asked_bytes.load(Relaxed));
    let number = block.get().resource.load(Relaxed);
    block.get().resource.store(0, Relaxed);
    // A resource may keep it and give it out again, and what it was is over.
    if !fault!(kept_failure) {
        block.get().taint.store(0, Relaxed);
    }
    match interceptors.installed() {
        Some(installed) if installed.number == number => {
            give_back(&*installed.resource, Allocation::new(block));
        }
        _ => put_back(block),
    }
}
