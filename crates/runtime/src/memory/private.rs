//! Private pools as the lists know them: memory that is used by those only who ask for it.

use super::large::{Grain, Large};
use crate::ground::Core;
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU64, Ordering::*},
};
use std::cell::RefCell;

/// Lives as long as the process, and serves one pool after the other, so that blocks name it without counting. There are as
/// many as there were pools at once.
pub(crate) struct PoolInner {
    pub(crate) device: &'static Core,
    /// Numbers those of a device, from 1: what blocks say.
    pub(crate) index: u32,
    /// Numbers pools of a device in the order in which they were made.
    pub(crate) number: AtomicU64,
    /// Handles, and blocks that are given out.
    users: AtomicU64,
    pub(crate) large: Mutex<Large>,
}

// As for `Core`.
impl std::panic::RefUnwindSafe for PoolInner {}

impl PoolInner {
    pub(crate) fn leaked(device: &'static Core, index: u32) -> &'static PoolInner {
        Box::leak(Box::new(PoolInner {
            device,
            index,
            number: AtomicU64::new(0),
            users: AtomicU64::new(0),
            large: Mutex::new(Rank::Slabs, Large::new(Grain::PRIVATE, device.bounds())),
        }))
    }

    /// It has one user, and nobody else has it.
    pub(crate) fn begin(&self, number: u64) {
        self.number.store(number, Relaxed);
        self.users.store(1, Relaxed);
    }

    /// One user more, for whom another one is there already.
    pub(crate) fn hold(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// One user less. Is it the last? AcqRel: the last one sees what the others have done.
    #[must_use]
    pub(crate) fn let_go(&self) -> bool {
        self.users.fetch_sub(1, AcqRel) == 1
    }
}

/// The pools of a device: all, by index; those that are in use; those that are idle; and how many were made in all.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) all: Vec<&'static PoolInner>,
    pub(crate) used: Vec<&'static PoolInner>,
    pub(crate) idle: Vec<&'static PoolInner>,
    pub(crate) made: u64,
}

thread_local! {
    /// The pools that this thread's allocations come from, the innermost last.
    static CURRENT: RefCell<Vec<&'static PoolInner>> = const { RefCell::new(Vec::new()) };
}

/// The pool that this thread's allocations on a device come from.
pub(crate) fn current(device: &'static Core) -> Option<&'static PoolInner> {
    let innermost = |pools: &RefCell<Vec<&'static PoolInner>>| {
        pools.borrow().iter().rev().find(|pool| std::ptr::eq(pool.device, device)).copied()
    };
    CURRENT.try_with(innermost).ok().flatten()
}

/// Makes it the innermost. Where the thread is ending there is none to make current, and memory comes from the device's own.
pub(crate) fn enter(pool: &'static PoolInner) {
    _ = CURRENT.try_with(|pools| pools.borrow_mut().push(pool));
}

/// Takes back what [`enter`] did. Guards may be dropped in any order.
pub(crate) fn leave(pool: &'static PoolInner) {
    _ = CURRENT.try_with(|pools| {
        let mut pools = pools.borrow_mut();
        if let Some(position) = pools.iter().rposition(|other| std::ptr::eq(*other, pool)) {
            pools.remove(position);
        }
    });
}
