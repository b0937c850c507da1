//! Errors along ticks: which results are spoilt by a kernel that failed on the device.
//!
//! Few kernels can fail once their launch is right (an index out of range). Each such launch gets a record; the blocks
//! that it writes carry the record's number, and whatever is computed from them carries it on, so that reading a result
//! tells of the failure that it depends on, with its origin, and no other result does (T10). All other ops pay one load
//! an operand. A block sheds its number when it is written whole.
//!
//! A record that turns out well is dropped: a number without a record is clean. Failures are kept, the newest
//! `failure_count` of them; results of older ones count as clean: whoever meets this many is past caring.

use crate::{device::DeviceInner, tick::Tick};
use raddle_hal::{KernelError, QueueId};
use raddle_sync::{Mutex, Rank, fault, pause};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};

/// Open records that set off a clean-up.
const OPEN_COUNT: usize = 64; // guess

/// The number of whatever was allocated inside of a capture, where nothing runs: it has no value, ever.
pub(crate) const CAPTURED: u64 = u64::MAX;

/// The origin of a failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    Kernel { op: &'static str, tick: Tick, error: KernelError },
    Captured,
}

struct Open {
    /// The launch, unless this only joins others or has been settled as good.
    launch: Option<Launched>,
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
    open: HashMap<u64, Open>,
    failed: BTreeMap<u64, Failure>,
}

pub(crate) struct Taints(Mutex<Records>);

impl Taints {
    pub(crate) fn new(failure_count_max: usize) -> Taints {
        let records = Records { failure_count_max, last: 0, open: HashMap::new(), failed: BTreeMap::new() };
        Taints(Mutex::new(Rank::Taints, records))
    }

    /// A number that stands for both.
    pub(crate) fn join(&self, a: u64, b: u64) -> u64 {
        if a == 0 || a == b {
            return b;
        }
        self.0.lock().open(Open { launch: None, parents: SmallVec::from_slice(&[a, b]) })
    }

    /// The number of a launch that may fail and whose inputs carry `parent`.
    pub(crate) fn add(&self, op: &'static str, tick: Tick, inline: bool, parent: u64) -> u64 {
        let parents = if parent == 0 { SmallVec::new() } else { SmallVec::from_slice(&[parent]) };
        self.0.lock().open(Open { launch: Some(Launched { op, tick, inline }), parents })
    }

    /// The last number given out, for a planted fault.
    #[cold]
    pub(crate) fn newest(&self) -> u64 {
        self.0.lock().last
    }

    /// Notes how a launch that ran inline has ended.
    pub(crate) fn settle(&self, taint: u64, error: Option<KernelError>) {
        let mut records = self.0.lock();
        let Some(open) = records.open.get_mut(&taint) else { return };
        match (open.launch.take(), error) {
            (Some(Launched { op, tick, .. }), Some(error)) => {
                records.fail(taint, Failure::Kernel { op, tick, error })
            }
            _ if open.parents.is_empty() => _ = records.open.remove(&taint),
            _ => (),
        }
    }

    /// The failure that a block depends on, if there is one. What the block waits for is complete.
    #[cold]
    pub(crate) fn failure(&self, taint: u64, device: &DeviceInner) -> Option<Failure> {
        let mut turns = 0;
        loop {
            let mut records = self.0.lock();
            let taint = if fault!(error_to_next_caller) { records.last } else { taint };
            match records.resolve(taint, device) {
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
    pub(crate) fn try_failure(&self, taint: u64, device: &DeviceInner) -> Option<Option<Failure>> {
        self.0.try_lock()?.resolve(taint, device).ok()
    }

    /// Drops records whose launches are over, once there are many.
    pub(crate) fn tidy(&self, device: &DeviceInner) {
        let mut records = self.0.lock();
        if records.open.len() > OPEN_COUNT {
            let mut taints: Vec<u64> = records.open.keys().copied().collect();
            taints.sort_unstable(); // parents are older
            taints.into_iter().for_each(|taint| _ = records.resolve(taint, device));
        }
    }
}

impl Records {
    fn open(&mut self, open: Open) -> u64 {
        self.last += 1;
        self.open.insert(self.last, open);
        self.last
    }

    fn fail(&mut self, taint: u64, failure: Failure) {
        self.open.remove(&taint);
        self.failed.insert(taint, failure);
        if self.failed.len() > self.failure_count_max {
            self.failed.pop_first();
        }
    }

    /// Parents first, so that the origin is told. A record stays open while a launch under it is in flight.
    fn resolve(&mut self, taint: u64, device: &DeviceInner) -> Result<Option<Failure>, Unsettled> {
        if taint == CAPTURED {
            return Ok(Some(Failure::Captured));
        }
        if let Some(failure) = self.failed.get(&taint) {
            return Ok(Some(failure.clone()));
        }
        let Some(open) = self.open.get(&taint) else { return Ok(None) };
        let (launch, parents) = (open.launch, open.parents.clone());
        for parent in &parents {
            if let Some(failure) = self.resolve(*parent, device)? {
                self.fail(taint, failure.clone());
                return Ok(Some(failure));
            }
        }
        let mut settled = parents.iter().all(|parent| !self.open.contains_key(parent));
        if let Some(Launched { op, tick, inline }) = launch {
            if !device.is_complete(tick) {
                settled = false;
            } else if inline {
                return Err(Unsettled);
            } else if let Some(error) =
                device.hal.take_kernel_error(QueueId(tick.slot() as u8), tick.sequence())
            {
                let failure = Failure::Kernel { op, tick, error };
                self.fail(taint, failure.clone());
                return Ok(Some(failure));
            } else if let Some(open) = self.open.get_mut(&taint) {
                open.launch = None;
            }
        }
        if settled {
            self.open.remove(&taint);
        }
        Ok(None)
    }
}
