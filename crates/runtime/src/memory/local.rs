//! A thread's own store of a device's memory.
//!
//! Made at the thread's first use of the device; when the thread ends, its blocks go to the central lists, and the store is
//! kept for the next new thread. So short-lived threads leave no trace, and the number of these is the most threads that were
//! alive at once. No driver is called at thread exit. Code that runs after the thread-locals are gone works without.

use super::{
    magazine::{Local, ThreadCache},
    store::Memory,
};
use crate::ground::{Core, Floor, fork};
use raddle_sync::fault;
use std::cell::{Cell, RefCell};

impl Local {
    /// Works on the thread's own magazine. Others spin meanwhile, so `work` calls nothing that blocks or goes in once more.
    ///
    /// Who has called code of the user since it got the `Local` gets it anew: the thread may have let go of it.
    #[inline]
    pub(crate) fn own_magazine<R>(&self, work: impl FnOnce(&mut ThreadCache) -> R) -> R {
        debug_assert!(is_mine(self), "another thread may have it by now");
        // SAFETY: this is called by the thread that the `Local` belongs to at the time.
        unsafe { self.magazine.own(work) }
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
    Memory::of(local.device).put_local(local);
}

thread_local! {
    static LOCALS: Locals = const { Locals(RefCell::new(Vec::new())) };
    /// The one used last. Without a destructor, so that looking at it costs a load.
    static LAST: Cell<Option<&'static Local>> = const { Cell::new(None) };
}

/// What this thread has on a device; none while the thread-locals are being destroyed.
#[inline]
pub(crate) fn get(device: &'static Core) -> Option<&'static Local> {
    if cfg!(loom) {
        return None; // loom's threads share one thread's locals: models have magazines of their own
    }
    match LAST.get() {
        Some(local) if std::ptr::eq(local.device, device) => Some(local),
        _ => find(device),
    }
}

#[cold]
fn find(device: &'static Core) -> Option<&'static Local> {
    let found = LOCALS.try_with(|locals| {
        let mut locals = locals.0.borrow_mut();
        if let Some(local) = locals.iter().find(|local| std::ptr::eq(local.device, device)) {
            return Some(*local);
        }
        // A thread that a forked child makes gets none.
        let local = (!fork::is_child(device)).then(|| Memory::of(device).take_local())?;
        locals.push(local);
        Some(local)
    });
    fault!(use_after_exit => if found.is_err() { LOCALS.with(|_| ()) });
    let local = found.ok()??;
    LAST.set(Some(local));
    Some(local)
}

/// Gives back what this thread has now rather than at its end.
pub(crate) fn release(device: &'static Core) {
    LAST.set(None);
    _ = LOCALS.try_with(|locals| {
        let mut locals = locals.0.borrow_mut();
        if let Some(position) = locals.iter().position(|local| std::ptr::eq(local.device, device)) {
            give_back(locals.swap_remove(position));
        }
    });
}
