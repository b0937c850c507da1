//! Locks of the process, which a fork takes before it happens: so none of them is held in the child by a thread that exists
//! only in the parent. For statics that are locked rarely; what belongs to a device or a tensor looks after itself.
//!
//! They are taken from the first lock on, and given back on both sides. Forks are counted, too: by that whatever has threads
//! knows that they have stayed behind.
//!
//! This is arranged for when the program is loaded, before it has a thread that could fork. Handlers that are registered
//! while a fork is under way have no part in it: a device that is opened just then would count as the child's own, and a
//! lock that is taken just then would be held there for ever. (Where loaders call no functions of ours it is arranged for at the
//! first use, without waiting for a thread that does so, since a child would for ever; a fork that is under way then is such.)

use crate::Rank;
use std::{
    any::Any,
    cell::RefCell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::*},
    },
};

/// A lock that can be held without knowing what it guards.
pub(crate) trait Hold: Sync {
    fn hold(&'static self) -> Box<dyn Any>;
    fn rank(&self) -> Rank;
}

static LOCKS: Mutex<Vec<&'static dyn Hold>> = Mutex::new(Vec::new());
/// 0 in the process that first [watched](install); each child has more than its parent.
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static TAKEN: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
    /// Those that this thread has locked: it has them on both sides of a fork, and gives them back itself.
    static OWN: RefCell<Vec<&'static dyn Hold>> = const { RefCell::new(Vec::new()) };
}

fn is_same(lock: &'static dyn Hold) -> impl Fn(&&'static dyn Hold) -> bool {
    move |other| std::ptr::addr_eq(*other, lock)
}

/// That this thread has a lock, until it is dropped. (A thread that is ending notes nothing: it forks no more.)
pub(crate) struct Own(&'static dyn Hold);

#[cfg(not(loom))]
impl Own {
    pub(crate) fn note(lock: &'static dyn Hold) -> Own {
        _ = OWN.try_with(|own| own.borrow_mut().push(lock));
        Own(lock)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        _ = OWN.try_with(|own| own.borrow_mut().retain(|lock| !is_same(self.0)(lock)));
    }
}

fn locks() -> MutexGuard<'static, Vec<&'static dyn Hold>> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of [watched](install) processes, two one of which is a child of the other have different counts.
pub fn fork_count() -> u32 {
    FORKS.load(Relaxed)
}

/// Called by the loader, before `main`.
#[cfg(all(unix, not(any(loom, miri))))]
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // Handlers are called in the reverse order of their registration, and ours allocate: before those of the allocator are
        // called, so after it has been used.
        drop(std::hint::black_box(Box::new(0_u8)));
        if !crate::fault!(forks_watched_late) {
            install();
        }
    }
    at_load
};

/// Arranges for forks to be counted and to take the locks, unless the loader has done so. Threads that are the first at once may
/// do it twice, which does no harm.
pub fn install() {
    #[cfg(unix)]
    {
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Relaxed);
            give_back();
        }
        extern "C" fn before() {
            take();
        }
        extern "C" fn in_parent() {
            give_back();
        }
        static WATCHES: AtomicBool = AtomicBool::new(false);
        // Models and Miri don't fork.
        if !WATCHES.load(Acquire) && !cfg!(any(loom, miri)) {
            // SAFETY: the handlers don't unwind and live as long as the process.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            WATCHES.store(true, Release); // with the Acquire above: whoever sees it may fork
        }
    }
}

#[cfg(not(loom))]
pub(crate) fn add(lock: &'static dyn Hold) {
    install(); // before anybody holds the first one
    let mut locks = locks();
    if !locks.iter().any(is_same(lock)) {
        locks.push(lock);
    }
}

/// Takes all of them but this thread's own, in the order in which they nest, unless this was done. Blocks while other threads
/// hold them. The list comes last: whoever holds it waits for nothing.
fn take() {
    if TAKEN.try_with(|held| !held.borrow().is_empty()).unwrap_or(false) {
        return;
    }
    let taken = loop {
        let mut known = locks().clone();
        known.sort_by_key(|lock| lock.rank());
        let is_own = |lock| OWN.try_with(|own| own.borrow().iter().any(is_same(lock))).unwrap_or(false);
        let mut taken: Vec<Box<dyn Any>> =
            known.iter().filter(|lock| !is_own(**lock)).map(|lock| lock.hold()).collect();
        let list = locks();
        if list.len() == known.len() {
            taken.push(Box::new(list));
            break taken;
        }
        // Another one was locked for the first time meanwhile.
    };
    // Where the thread is ending they are let go at once: better than for ever.
    _ = TAKEN.try_with(|held| held.replace(taken));
}

/// Lets them go. To be called by the thread that took them, or by what a fork has made of it.
fn give_back() {
    _ = TAKEN.try_with(RefCell::take);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Mutex;

    static FIRST: Mutex<u32> = Mutex::new(Rank::Leaf, 0);
    static SECOND: Mutex<u32> = Mutex::new(Rank::Registry, 0);

    #[test]
    fn what_was_locked_once_is_held_and_let_go() {
        *FIRST.lock_global() += 1;
        *SECOND.lock_global() += 1;
        take();
        take(); // of a second handler
        assert!(FIRST.try_lock().is_none() && SECOND.try_lock().is_none());
        give_back();
        let own = FIRST.lock_global();
        take(); // as what this thread calls may fork
        assert!(SECOND.try_lock().is_none());
        give_back();
        drop(own);
        assert_eq!(*FIRST.lock_global(), 1);
        assert_eq!(*SECOND.lock_global(), 1);
        assert_eq!(locks().iter().filter(|lock| lock.rank() == Rank::Registry).count(), 1);
    }
}
