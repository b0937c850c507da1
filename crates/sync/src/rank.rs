//! The ranks of locks, and which of them each thread holds.

/// The order in which locks nest; every lock of the project has its rank here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// The list of devices of the process, and whatever is made once.
    Registry,
    /// The instances of a graph: held while one is chosen, never while one is replayed.
    Graph,
    /// The stream pool of a device.
    Pool,
    /// A stream: held while an op is enqueued, never while waiting for a device.
    Stream,
    /// Records of kernels that may fail.
    Taints,
    /// A shard of the allocator's centre.
    Centre,
    /// Free ranges of large blocks and slabs.
    Slabs,
    /// The simulator's state, a device driver's list of queues.
    Device,
    /// A queue of a device.
    Queue,
    /// The clocks that a stream remembers.
    History,
    /// Anything that is held for a few instructions and under which nothing is locked.
    Leaf,
}

#[cfg(all(any(debug_assertions, raddle_faults), not(loom)))]
pub(crate) mod held {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// During the destruction of thread-locals there is nothing to check against.
    pub fn push(rank: Rank) {
        _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(&last) = held.last()
                && last >= rank
                && !std::thread::panicking()
            {
                let held = std::mem::take(&mut *held);
                panic!("lock ranks: {rank:?} is taken while {held:?} are held");
            }
            held.push(rank);
        });
    }

    pub fn assert_none() {
        _ = HELD.try_with(|held| {
            let held = held.borrow().clone();
            assert!(held.is_empty(), "locks: {held:?} are held while a device is waited for");
        });
    }

    pub fn pop(rank: Rank) {
        _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(position) = held.iter().rposition(|other| *other == rank) {
                held.remove(position);
            }
        });
    }
}

/// To be called before waiting for a device: a lock that is held meanwhile stops everybody else (T5). Panics in debug
/// builds if this thread holds one.
#[inline]
pub fn assert_no_lock_is_held() {
    held::assert_none();
}

#[cfg(not(all(any(debug_assertions, raddle_faults), not(loom))))]
pub(crate) mod held {
    use super::Rank;
    #[inline(always)]
    pub fn push(_: Rank) {}
    #[inline(always)]
    pub fn pop(_: Rank) {}
    #[inline]
    pub fn assert_none() {}
}
