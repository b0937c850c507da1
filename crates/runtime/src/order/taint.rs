//! Errors along ticks: which results are spoilt by a kernel that failed on the device.
//!
//! Few kernels can fail once their launch is right (an index out of range). Each such launch gets a record; the blocks
//! that it writes carry the record's number, and whatever is computed from them carries it on, so that reading a result
//! tells of the failure that it depends on, with its origin, and no other result does (T10). All other ops pay one load
//! an operand. A block sheds its number when it is written whole.
//!
//! A record that turns out well is dropped: a number without a record is clean. Failures are kept, the newest
//! `failure_count` of them; results of older ones count as clean: whoever meets this many is past caring.
//!
//! **Bound.** Whoever opens a record looks at all of them first, if there are twice as many as the last such look has left.
//! What a look leaves is in flight, or joins such records and belongs to an op behind them: so there are at most twice as many
//! as ops in flight (or a few), and opening one costs a constant number of looks in the mean.

use super::tick::Tick;
use raddle_hal::KernelError;
use raddle_sync::{Mutex, Rank, fault, pause};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// So many open records are never looked through.
pub(crate) const OPEN_COUNT: usize = 64; // guess

/// The number of whatever was allocated inside of a capture, where nothing runs: it has no value, ever.
pub(crate) const CAPTURED: u64 = u64::MAX;

/// Tells how launches have ended.
pub(crate) trait Launches {
    /// Is it over?
    fn is_complete(&self, tick: Tick) -> bool;
    /// The error of a kernel that is over, if it has failed; told once.
    fn take_error(&self, tick: Tick) -> Option<KernelError>;
}

/// The origin of a failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    Kernel { op: &'static str, tick: Tick, error: KernelError },
    Captured,
}

struct Open {
    /// The launch, unless this only joins others or has been settled as good.
    launch: Option<Launched>,
    /// Older ones.
    parents: SmallVec<[u64; 2]>,
}

#[derive(Clone, Copy)]
struct Launched {
    op: &'static str,
    tick: Tick,
    /// Whoever runs it tells how it ended, by `settle`; otherwise the device does.
    inline: bool,
}

/// An inline launch is complete, and whoever ran it is about to say how it ended.
struct Unsettled;

struct Records {
    failure_count_max: usize,
    last: u64,
    open: BTreeMap<u64, Open>,
    /// So many open ones are looked through before there is one more.
    open_count_max: usize,
    failed: BTreeMap<u64, Failure>,
}

pub(crate) struct Taints(Mutex<Records>);

impl Taints {
    pub(crate) fn new(failure_count_max: usize) -> Taints {
        let (open, failed) = (BTreeMap::new(), BTreeMap::new());
        let records = Records { failure_count_max, last: 0, open, open_count_max: OPEN_COUNT, failed };
        Taints(Mutex::new(Rank::Taints, records))
    }

    /// A number that stands for both.
    pub(crate) fn join(&self, a: u64, b: u64, launches: &impl Launches) -> u64 {
        if a == 0 || a == b {
            return b;
        }
        let mut records = self.0.lock();
        match [a, b].map(|taint| records.is_clean(taint)) {
            [true, _] => b,
            [_, true] => a,
            _ => records.open(None, &[a, b], launches),
        }
    }

    /// The number of a launch that may fail and whose inputs carry `parent`.
    pub(crate) fn add(
        &self,
        op: &'static str,
        tick: Tick,
        inline: bool,
        parent: u64,
        launches: &impl Launches,
    ) -> u64 {
        self.0.lock().open(Some(Launched { op, tick, inline }), &[parent], launches)
    }

    /// How many records are open.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn open_count(&self) -> usize {
        self.0.lock().open.len()
    }

    /// The last number given out, for a planted fault.
    #[cold]
    pub(crate) fn newest(&self) -> u64 {
        self.0.lock().last
    }

    /// Notes how a launch that ran inline has ended.
    pub(crate) fn settle(&self, taint: u64, error: Option<KernelError>, launches: &impl Launches) {
        let mut records = self.0.lock();
        let Some(open) = records.open.get_mut(&taint) else { return };
        match (open.launch.take(), error) {
            (Some(Launched { op, tick, .. }), Some(error)) => {
                records.fail(taint, Failure::Kernel { op, tick, error })
            }
            _ => _ = records.look(taint, launches),
        }
        records.forget_old();
    }

    /// The failure that a block depends on, if there is one. What the block waits for is complete.
    #[cold]
    pub(crate) fn failure(&self, taint: u64, launches: &impl Launches) -> Option<Failure> {
        let mut turns = 0;
        loop {
            let mut records = self.0.lock();
            let taint = if fault!(error_to_next_caller) { records.last } else { taint };
            match records.resolve(taint, launches) {
                Ok(failure) => return failure,
                Err(Unsettled) => {
                    drop(records);
                    pause(&mut turns);
                }
            }
        }
    }

    /// As [`Taints::failure`] in a forked child, where nobody else goes on: nothing if it can't be told.
    #[cold]
    pub(crate) fn try_failure(&self, taint: u64, launches: &impl Launches) -> Option<Option<Failure>> {
        self.0.try_lock()?.resolve(taint, launches).ok()
    }
}

impl Records {
    /// A number for a launch, if there is one, and what it depends on.
    fn open(&mut self, launch: Option<Launched>, parents: &[u64], launches: &impl Launches) -> u64 {
        let mut is_full = self.open.len() >= self.open_count_max;
        fault!(records_without_end => is_full = false);
        if is_full {
            let taints: Vec<u64> = self.open.keys().copied().collect();
            taints.into_iter().for_each(|taint| _ = self.look(taint, launches));
            self.forget_old();
            self.open_count_max = OPEN_COUNT.max(2 * self.open.len());
        }
        let parents = parents.iter().copied().filter(|parent| !self.is_clean(*parent)).collect();
        self.last += 1;
        self.open.insert(self.last, Open { launch, parents });
        self.last
    }

    fn is_clean(&self, taint: u64) -> bool {
        !self.open.contains_key(&taint) && self.failed(taint).is_none()
    }

    fn fail(&mut self, taint: u64, failure: Failure) {
        self.open.remove(&taint);
        self.failed.insert(taint, failure);
    }

    /// Behind all looks, so that a failure gets to all that depend on it first.
    fn forget_old(&mut self) {
        while self.failed.len() > self.failure_count_max {
            self.failed.pop_first();
        }
    }

    fn failed(&self, taint: u64) -> Option<Failure> {
        if taint == CAPTURED {
            return Some(Failure::Captured);
        }
        self.failed.get(&taint).cloned()
    }

    /// What a number stands for. Without recursion: as many launches may lie behind it as are in flight.
    fn resolve(&mut self, taint: u64, launches: &impl Launches) -> Result<Option<Failure>, Unsettled> {
        let (mut behind, mut next) = (BTreeSet::new(), vec![taint]);
        while let Some(taint) = next.pop() {
            if let Some(open) = self.open.get(&taint)
                && behind.insert(taint)
            {
                next.extend(&open.parents);
            }
        }
        let unsettled = behind.into_iter().filter_map(|taint| self.look(taint, launches).err()).last();
        let failure = self.failed(taint);
        self.forget_old();
        match (failure, unsettled) {
            (None, Some(unsettled)) => Err(unsettled),
            (failure, _) => Ok(failure),
        }
    }

    /// Closes a record if it can be told how it ended. Those that it depends on come first, which are older: so the origin
    /// is told. It stays open while a launch under it is in flight.
    fn look(&mut self, taint: u64, launches: &impl Launches) -> Result<(), Unsettled> {
        let Some(Open { launch, parents }) = self.open.get(&taint) else { return Ok(()) };
        if let Some(failure) = parents.iter().find_map(|parent| self.failed(*parent)) {
            self.fail(taint, failure);
            return Ok(());
        }
        let is_settled = !parents.iter().any(|parent| self.open.contains_key(parent));
        if let Some(Launched { op, tick, inline }) = *launch {
            if !launches.is_complete(tick) {
                return Ok(());
            }
            if inline {
                return Err(Unsettled);
            }
            if let Some(error) = launches.take_error(tick) {
                self.fail(taint, Failure::Kernel { op, tick, error });
                return Ok(());
            }
        }
        if is_settled {
            self.open.remove(&taint);
        } else if let Some(open) = self.open.get_mut(&taint) {
            open.launch = None;
        }
        Ok(())
    }
}
