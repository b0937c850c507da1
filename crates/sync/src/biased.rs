//! A lock that belongs to one thread: its owner goes in by a store and a load, and whoever else visits pays for both.
//!
//! Dekker's algorithm with asymmetric fences. The owner notes that it is inside, then looks for a visitor; a visitor notes
//! that it is there, then looks for the owner. With a sequentially consistent fence between the two steps of each, at least
//! one sees the other: the owner goes back out until the visitor has left, or the visitor waits for the owner to come out. The
//! owner comes a hundred million times a second, the visitor hardly ever: so the owner's fence binds the compiler alone,
//! and the visitor has the kernel run a fence on every core that runs a thread of the process, which a thread that runs on none
//! has passed. Where there is no such call, both fences are real.
//!
//! Sources: membarrier(2) of Linux, `PRIVATE_EXPEDITED` (4.14); P1202 of the C++ committee, which argues that the pair
//! orders as two real fences do. The models check the algorithm with two real ones, a test with two threads what ships.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::{
    UnsafeCell,
    atomic::{AtomicBool, Ordering::*},
    fault, pause,
};

/// A value of one thread, which others may visit. The flags lie in front, beside what the value has first.
///
/// | field | stored by | loaded by |
/// |---|---|---|
/// | `inside` | the owner | visitors |
/// | `visited` | visitors, one after the other | the owner |
/// | `value` | whoever is inside | the same |
#[derive(Debug)]
#[repr(C)]
pub struct Biased<T> {
    inside: AtomicBool,
    visited: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched by one thread at a time: see `own` and `visit`.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Stores false when dropped. Release: what was done to the value comes before who goes in next.
struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// A visitor who has said that it is there, until it is dropped.
struct Visit<'a, T> {
    lock: &'a Biased<T>,
    _leave: Leave<'a>,
}

impl<T> Biased<T> {
    /// Of nobody yet.
    pub fn new(value: T) -> Biased<T> {
        fence::choose();
        Biased {
            inside: AtomicBool::new(false),
            visited: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Works on the value. A visitor spins meanwhile, so `work` calls nothing that blocks.
    ///
    /// # Safety
    /// - The caller is the owner: no other thread calls it meanwhile, and if another one was the owner before, what that did
    ///   happened before.
    /// - `work` neither calls it nor visits.
    #[inline]
    pub unsafe fn own<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        debug_assert!(!self.inside.load(Relaxed), "its owner is inside");
        let _leave = self.enter();
        // SAFETY: by the contract no other owner is inside. A visitor that came before the fence was seen and has left; one
        // that came after it sees `inside` and waits.
        self.value.with_mut(|value| work(unsafe { &mut *value }))
    }

    #[inline]
    fn enter(&self) -> Leave<'_> {
        self.inside.store(true, Relaxed); // ordered by the fence
        if !fault!(owns_without_fence) {
            fence::light();
        }
        // Acquire pairs with the Release of a visitor that leaves.
        if self.visited.load(Acquire) {
            self.wait_outside();
        }
        Leave(&self.inside)
    }

    /// Goes in once nobody visits.
    #[cold]
    fn wait_outside(&self) {
        let mut turns = 0;
        loop {
            self.inside.store(false, Release); // or they would wait for each other
            while self.visited.load(Relaxed) {
                pause(&mut turns);
            }
            self.inside.store(true, Relaxed);
            fence::light();
            if !self.visited.load(Acquire) {
                return;
            }
        }
    }

    /// Works on somebody else's value, or one's own: see [`Biased::visit_all`].
    pub fn visit<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let visit = self.announce();
        visited_fence();
        visit.wait();
        visit.work(work)
    }

    /// Works on the values of many, one at a time, for one call of the kernel. Owners and other visitors spin until it has
    /// been at theirs, so `work` calls nothing that blocks. Nobody is visited yet when that call is refused, which panics.
    ///
    /// Those whose owner is inside come last, in whatever order the owners come out: an owner that loses its core inside
    /// holds up this call, and nobody else.
    ///
    /// Never from inside of `own` or a visit: it would wait for itself. All who visit several name them in one order.
    pub fn visit_all<'a>(locks: impl Iterator<Item = &'a Biased<T>>, mut work: impl FnMut(&mut T))
    where
        T: 'a,
    {
        let mut visits: Vec<Visit<'a, T>> = locks.map(Biased::announce).collect();
        visited_fence();
        if fault!(sweeps_in_order) {
            visits.iter().for_each(Visit::wait);
        }
        let mut turns = 0;
        loop {
            visits.extract_if(.., |visit| visit.is_alone()).for_each(|visit| visit.work(&mut work));
            if visits.is_empty() {
                return;
            }
            pause(&mut turns);
        }
    }

    fn announce(&self) -> Visit<'_, T> {
        let mut turns = 0;
        // Acquire pairs with the Release of the last visitor.
        while self.visited.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            pause(&mut turns);
        }
        Visit { lock: self, _leave: Leave(&self.visited) }
    }
}

impl<T> Visit<'_, T> {
    /// Is the owner outside? Asked behind a heavy fence that comes after `announce`. Once it is outside, it stays so until
    /// `self` is dropped: an owner that goes in from now on sees the visit, and goes out before it touches the value.
    fn is_alone(&self) -> bool {
        !self.lock.inside.load(Acquire) // pairs with the Release of an owner that leaves
    }

    fn wait(&self) {
        let mut turns = 0;
        while !self.is_alone() {
            pause(&mut turns);
        }
    }

    /// For whoever has seen that it [is alone](Visit::is_alone).
    fn work<R>(self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `visited` was free and is ours until `self` is dropped, and the owner is outside until then.
        self.lock.value.with_mut(|value| work(unsafe { &mut *value }))
    }
}

fn visited_fence() {
    if !fault!(visits_without_fence) {
        fence::heavy();
    }
}

/// Two fences of which the light one costs nothing where the kernel can make up for it: on processors whose switches from thread
/// to thread are known to be fences.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
mod fence {
    use libc::{
        MEMBARRIER_CMD_PRIVATE_EXPEDITED as PRIVATE_EXPEDITED,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as REGISTER_PRIVATE_EXPEDITED,
    };
    use std::sync::atomic::{AtomicU8, Ordering::*, compiler_fence, fence};

    /// Which fences this process has. Stored before there is a lock, and never again.
    static CHOICE: AtomicU8 = AtomicU8::new(NONE_YET);
    const NONE_YET: u8 = 0;
    /// The kernel doesn't do it: both are real.
    const SYMMETRIC: u8 = 1;
    /// The visitor pays for both.
    const ASYMMETRIC: u8 = 2;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Finds out which fences this process has. Who comes meanwhile tries it, too, rather than wait: the first to be done decides.
    pub(super) fn choose() {
        if CHOICE.load(Relaxed) == NONE_YET {
            let works = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
            let choice = if works { ASYMMETRIC } else { SYMMETRIC };
            // Relaxed: a lock is given to other threads in a synchronized way, after this.
            _ = CHOICE.compare_exchange(NONE_YET, choice, Relaxed, Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn is_asymmetric() -> bool {
        CHOICE.load(Relaxed) == ASYMMETRIC
    }

    #[inline(always)]
    pub(super) fn light() {
        if is_asymmetric() {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    /// Panics if what worked in `choose` is refused now, as by a filter of system calls: owners have gone without a fence.
    pub(super) fn heavy() {
        fence(SeqCst);
        if !is_asymmetric() || membarrier(PRIVATE_EXPEDITED) {
            return;
        }
        // A process that came to another kernel, as checkpoints do, may have lost its registration.
        let again = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        assert!(again, "membarrier worked and is refused now: {}", std::io::Error::last_os_error());
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(loom, miri))
)))]
mod fence {
    #[cfg(loom)]
    use loom::sync::atomic::{Ordering::SeqCst, fence};
    #[cfg(not(loom))]
    use std::sync::atomic::{Ordering::SeqCst, fence};

    pub(super) fn choose() {}

    #[cfg(all(test, not(loom)))]
    pub(super) fn is_asymmetric() -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn light() {
        fence(SeqCst);
    }

    pub(super) fn heavy() {
        fence(SeqCst);
    }
}
