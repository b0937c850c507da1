//! A value that is made when it is first asked for, and that nobody waits for.
//!
//! For statics of the process. `std`'s once-cells let whoever comes meanwhile wait for the thread that makes the value; in a child
//! that was forked just then, that thread isn't there, and the wait has no end. Here who comes meanwhile makes the value, too: the
//! first one that is put down stays, and the others are dropped. So what makes it is a function of nothing, and cheap enough to
//! be called twice.

use std::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::*},
};

/// See the module. Null until the value is there; then a box's pointer, until this is dropped.
#[derive(Debug)]
pub struct RaceOnce<T>(AtomicPtr<T>, PhantomData<T>);

// SAFETY: it owns a `T`, or nothing.
unsafe impl<T: Send> Send for RaceOnce<T> {}
// SAFETY: others get `&T`, and the thread that drops it may not be the one that has made it.
unsafe impl<T: Send + Sync> Sync for RaceOnce<T> {}

impl<T> RaceOnce<T> {
    /// Not made yet.
    pub const fn new() -> RaceOnce<T> {
        RaceOnce(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// The value; made if it isn't there. Waits for nobody.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        // Acquire pairs with the Release of who has put it down.
        let made = self.0.load(Acquire);
        let made = if made.is_null() { self.put(make()) } else { made };
        // SAFETY: made by `Box::into_raw`, and freed by `drop` alone.
        unsafe { &*made }
    }

    /// The value, if it is there.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: as in `get_or_init`, as is the order.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Puts a value down, unless there is one.
    #[cold]
    fn put(&self, value: T) -> *mut T {
        let own = Box::into_raw(Box::new(value));
        // Orders as in `get_or_init`.
        match self.0.compare_exchange(ptr::null_mut(), own, Release, Acquire) {
            Ok(_) => own,
            Err(there) => {
                // SAFETY: made above, and shown to nobody.
                drop(unsafe { Box::from_raw(own) });
                there
            }
        }
    }
}

impl<T> Default for RaceOnce<T> {
    fn default() -> RaceOnce<T> {
        RaceOnce::new()
    }
}

impl<T> Drop for RaceOnce<T> {
    fn drop(&mut self) {
        let made = *self.0.get_mut();
        if !made.is_null() {
            // SAFETY: made by `Box::into_raw`; nobody has a reference any more.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc::channel};

    /// As a forked child has to be: the thread that makes it never comes back there.
    #[test]
    fn nobody_waits_for_who_makes_it() {
        let made = RaceOnce::new();
        let (begun, has_begun) = channel();
        let (go_on, may_go_on) = channel::<()>();
        std::thread::scope(|scope| {
            let made = &made;
            let slow = scope.spawn(move || {
                *made.get_or_init(|| {
                    begun.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    1
                })
            });
            has_begun.recv().unwrap();
            assert_eq!(*made.get_or_init(|| 2), 2, "it is made by who comes meanwhile");
            go_on.send(()).unwrap();
            assert_eq!(slow.join().unwrap(), 2, "the first that was put down stays");
        });
    }

    #[test]
    fn each_value_is_dropped_once() {
        let value = Arc::new(());
        let made = RaceOnce::new();
        let inner = || value.clone();
        // One that is made while it is made.
        made.get_or_init(|| {
            made.get_or_init(inner);
            inner()
        });
        assert_eq!(Arc::strong_count(&value), 2);
        drop(made);
        drop(RaceOnce::<Arc<()>>::default());
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn threads_get_one_value() {
        static MADE: RaceOnce<Box<usize>> = RaceOnce::new();
        let places: Vec<usize> = std::thread::scope(|scope| {
            let ask = |own| scope.spawn(move || ptr::from_ref(&**MADE.get_or_init(|| Box::new(own))).addr());
            let threads: Vec<_> = (0..8).map(ask).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(places.iter().all(|place| *place == places[0]));
    }
}
