//! Locks with ranks. A thread takes locks in growing rank only, so no circle of waiting threads can form (T5). Builds that
//! can plant faults check it at every lock; in models and in release the rank costs nothing.
//!
//! A panic while a lock is held doesn't poison it: whoever holds one of these restores what it guards by `Drop`.

use crate::{
    Rank, fault,
    locks_at_fork::{self, Own},
    rank::held,
};
#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;
use std::{
    ops::{Deref, DerefMut},
    sync::{PoisonError, TryLockError},
    time::Duration,
};

/// A mutex with a rank.
#[derive(Debug)]
pub struct Mutex<T> {
    rank: Rank,
    inner: imp::Mutex<T>,
}

/// Unlocks when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    rank: Rank,
    inner: Option<imp::MutexGuard<'a, T>>,
}

/// As [`MutexGuard`], of [`Mutex::lock_global`].
#[must_use]
pub struct GlobalGuard<T: 'static> {
    guard: MutexGuard<'static, T>,
    _own: Own,
}

impl<T> Deref for GlobalGuard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for GlobalGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Mutex<T> {
    /// A mutex of that rank.
    #[cfg(not(loom))]
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank, inner: imp::Mutex::new(value) }
    }
    /// A mutex of that rank.
    #[cfg(loom)]
    pub fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank, inner: imp::Mutex::new(value) }
    }

    /// Locks; blocks while another thread holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        held::push(self.rank);
        let inner = self.inner.lock();
        if fault!(poisoned_stays) {
            inner.as_ref().expect("nobody has panicked");
        }
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        MutexGuard { rank: self.rank, inner: Some(inner) }
    }

    /// As [`Mutex::lock`], for a static. From its first call on a fork waits until nobody holds the lock, so that a child,
    /// in which no thread would ever let it go, finds it free.
    #[cfg(not(loom))]
    pub fn lock_global(&'static self) -> GlobalGuard<T>
    where
        T: Send,
    {
        locks_at_fork::add(self);
        GlobalGuard { guard: self.lock(), _own: Own::note(self) }
    }

    /// As [`Mutex::lock`], of what was made when this process, or the one that it descends from, had that
    /// [count of forks](crate::locks_at_fork::fork_count). None if a thread of a parent has it for ever.
    #[inline]
    pub fn lock_made_at(&self, forks: u32) -> Option<MutexGuard<'_, T>> {
        if forks == locks_at_fork::fork_count() || fault!(child_takes_locks) {
            return Some(self.lock());
        }
        self.lock_in_child()
    }

    /// A child's own threads hold it for a few instructions, or until a thread that was put off there comes back.
    #[cold]
    fn lock_in_child(&self) -> Option<MutexGuard<'_, T>> {
        const TRY_TIME: Duration = Duration::from_millis(100); // guess
        let start = std::time::Instant::now();
        loop {
            let locked = self.try_lock();
            if locked.is_some() || start.elapsed() > TRY_TIME {
                return locked;
            }
            crate::thread::yield_now();
        }
    }

    /// Locks if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        held::push(self.rank);
        Some(MutexGuard { rank: self.rank, inner: Some(inner) })
    }

    /// The value, which nobody else can reach.
    #[cfg(not(loom))]
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(loom))]
impl<T: Send> locks_at_fork::Hold for Mutex<T> {
    /// Without a look at ranks: they are taken in order, by a thread that may hold some already.
    fn hold(&'static self) -> Box<dyn std::any::Any> {
        Box::new(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn rank(&self) -> Rank {
        self.rank
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the lock is held until the guard is dropped")
    }
}
impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the lock is held until the guard is dropped")
    }
}
impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            held::pop(self.rank);
        }
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// A condition variable.
    pub fn new() -> Condvar {
        Condvar(imp::Condvar::new())
    }

    /// Unlocks, sleeps until woken (or for no reason), locks again.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let inner = guard.inner.take().expect("the lock is held until the guard is dropped");
        let inner = self.0.wait(inner).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { rank: guard.rank, inner: Some(inner) }
    }

    /// As [`Condvar::wait`], but at most for `timeout`; false if that passed.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let inner = guard.inner.take().expect("the lock is held until the guard is dropped");
        let (inner, result) = self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { rank: guard.rank, inner: Some(inner) }, !result.timed_out())
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
    /// Wakes all sleepers.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use super::*;
    use crate::faults::{Fault, assert_caught};

    #[test]
    fn growing_ranks_are_fine() {
        let (stream, leaf) = (Mutex::new(Rank::Stream, 1), Mutex::new(Rank::Leaf, 2));
        let outer = stream.lock();
        assert_eq!(*outer + *leaf.lock(), 3);
        drop(outer);
        drop(leaf.lock());
        drop(stream.lock());
    }

    #[test]
    #[should_panic(expected = "lock ranks: Stream is taken while [Leaf] are held")]
    fn falling_ranks_are_caught() {
        let (stream, leaf) = (Mutex::new(Rank::Stream, ()), Mutex::new(Rank::Leaf, ()));
        let _outer = leaf.lock();
        let _inner = stream.lock();
    }

    #[test]
    fn a_panic_poisons_nothing() {
        let lock = Mutex::new(Rank::Leaf, 0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("planted");
        }));
        assert!(result.is_err());
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn what_a_parent_holds_is_not_waited_for() {
        let (lock, forks) = (Mutex::new(Rank::Leaf, 7), crate::locks_at_fork::fork_count());
        assert_eq!(lock.lock_made_at(forks.wrapping_sub(1)).as_deref(), Some(&7));
        let held = lock.inner.lock().unwrap(); // by a thread that isn't here, for all that is known
        assert!(lock.lock_made_at(forks.wrapping_sub(1)).is_none());
        drop(held);
        assert_eq!(lock.lock_made_at(forks).as_deref(), Some(&7));
    }

    #[test]
    fn fault_poisoned_stays() {
        assert_caught(Fault::poisoned_stays, "lock::tests::a_panic_poisons_nothing");
    }
}
