//! Hooks that are asked when a device has no memory left, before an error says so.
//!
//! They are called on the thread that needs memory, under no lock, so they may do whatever that thread may: drop tensors,
//! empty other caches, wait. Nothing of it is a part of a capture that the thread is at. A hook that runs into the same need
//! isn't asked again from inside; one that panics counts as
//! one that could do nothing. So a need ends after a bounded number of rounds, in memory or in an error (T10).

use crate::{Device, capture, device::DeviceInner, fork};
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU64, Ordering::*},
    caught, fault,
};
use std::{cell::Cell, sync::Arc};

/// How often one allocation asks the hooks.
pub const OUT_OF_MEMORY_RETRY_COUNT_MAX: u32 = 8; // guess

/// A need that nothing meets any more, all that can be given back having been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Asked for.
    pub asked_bytes: usize,
    /// In buffers that are alive.
    pub allocated_bytes: usize,
    /// Free, but not in one piece, or of other sizes.
    pub free_bytes: usize,
    /// Freed, but used by work in flight.
    pub pending_bytes: usize,
    /// How often the hooks have been asked for this allocation before.
    pub attempt: u32,
}

/// What a hook says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterNeed {
    /// Something has been freed: look again.
    Retry,
    /// It had nothing to free.
    GiveUp,
}

type Hook = Arc<dyn Fn(&MemoryNeed) -> AfterNeed + Send + Sync>;

/// The hooks of a device, each with its number.
pub(crate) struct Hooks {
    list: Mutex<Vec<(u64, Hook)>>,
    made: AtomicU64,
}

impl Hooks {
    pub(crate) fn new() -> Hooks {
        Hooks { list: Mutex::new(Rank::Leaf, Vec::new()), made: AtomicU64::new(0) }
    }
}

thread_local! {
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Takes its hook away when dropped. A call that another thread has begun goes on.
#[must_use = "the hook is taken away when the guard is dropped"]
pub struct HookGuard {
    device: &'static DeviceInner,
    number: u64,
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        if fork::is_child(self.device) {
            return; // the lock is the parent's
        }
        let mut list = self.device.allocator.hooks.list.lock();
        let hook = list.iter().position(|(number, _)| *number == self.number).map(|at| list.remove(at));
        drop(list);
        drop(hook); // what it owns may want locks
    }
}

/// Is a hook at work on this thread?
pub(crate) fn is_asking() -> bool {
    ASKING.get()
}

impl DeviceInner {
    /// Asks all hooks; did any free something?
    pub(crate) fn hooks_free_memory(&self, asked_bytes: usize, attempt: u32) -> bool {
        let hooks: Vec<Hook> =
            self.allocator.hooks.list.lock().iter().map(|(_, hook)| hook.clone()).collect();
        if hooks.is_empty() || attempt >= OUT_OF_MEMORY_RETRY_COUNT_MAX || ASKING.replace(true) {
            return false;
        }
        self.allocator.user_calls.fetch_add(1, Relaxed);
        let need = MemoryNeed { attempt, ..self.need(asked_bytes) };
        let _held = fault!(hook_under_lock).then(|| self.allocator.large.lock());
        let mut retry = false;
        for hook in hooks {
            // The hook's count, too: it may be the last by now, and what it owns may panic when it goes.
            let said = caught(move || {
                raddle_sync::assert_no_lock_is_held();
                if fault!(hook_is_captured) { hook(&need) } else { capture::uncaptured(|| hook(&need)) }
            });
            retry |= said == Some(AfterNeed::Retry);
            if fork::has_forked_in(self) {
                break; // a child asks no hooks
            }
        }
        ASKING.set(false);
        retry
    }
}

impl Device {
    /// Registers a hook that is called when an allocation finds no memory although all that can be given back has been,
    /// on the thread that allocates, under no lock. It may drop buffers, and says whether to look again; hooks are asked up
    /// to [`OUT_OF_MEMORY_RETRY_COUNT_MAX`] times for one allocation. In a hook no hook of any device is called; a panic
    /// in it counts as [`AfterNeed::GiveUp`]. What a [`MemoryResource`](crate::MemoryResource) refuses by itself, as a
    /// [`LimitingResource`](crate::LimitingResource) does past its limit, asks no hook: the device isn't short, and the resource alone
    /// knows what would help. What it does is no part of a capture. In a forked child no hook is ever called;
    /// if a hook forks and returns in the child, the allocation goes on there as any of a child. It may end the process.
    pub fn on_out_of_memory(
        &self,
        hook: impl Fn(&MemoryNeed) -> AfterNeed + Send + Sync + 'static,
    ) -> HookGuard {
        let hooks = &self.0.allocator.hooks;
        let number = hooks.made.fetch_add(1, Relaxed);
        if !fork::is_child(self.0) {
            hooks.list.lock().push((number, Arc::new(hook)));
        } // else the list is behind a lock of the parent, and memory comes from the system
        HookGuard { device: self.0, number }
    }
}
