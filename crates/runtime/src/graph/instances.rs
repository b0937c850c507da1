//! The instances of a graph, and which of them a replay takes.

use super::template::{Bound, Instance, State, is_same};
use crate::memory::Memory;
use raddle_sync::{Condvar, Mutex, Padded};

/// Each instance has a place of its own, so that streams that find their own ones again share no more than the lock.
#[derive(Default)]
pub(super) struct InstancePool {
    /// Empty: the instance is being submitted, or there is none.
    pub(super) places: Vec<Padded<Option<Instance>>>,
    /// Places that no instance has.
    vacant: Vec<usize>,
    /// By stream, the place of what it has used last.
    last: Vec<usize>,
    /// Instances, also those that are being submitted.
    pub(super) count: usize,
    clock: u64,
    /// Threads that wait for an instance.
    pub(super) waiting: usize,
}

impl InstancePool {
    /// A place for a new instance.
    pub(super) fn grow(&mut self) -> usize {
        self.count += 1;
        self.vacant.pop().unwrap_or_else(|| {
            self.places.push(Padded(None));
            self.places.len() - 1
        })
    }

    /// What the stream has used last, if it has these operands and can start at once. Nothing else is looked at: the others
    /// lie in caches of other cores.
    pub(super) fn take_own(
        &mut self,
        device: &'static Memory,
        slot: usize,
        bound: &[Bound],
    ) -> Option<(usize, Instance)> {
        let place = *self.last.get(slot)?;
        let Padded(own) = self.places.get_mut(place)?;
        let is_own = |own: &mut Instance| {
            own.slot == slot && is_same(&own.bound, bound) && own.state(device, slot) == State::Ready
        };
        Some((place, own.take_if(is_own)?))
    }

    /// Puts an instance back that `slot` has used.
    pub(super) fn put(&mut self, place: usize, mut instance: Instance, slot: usize) {
        self.clock += 1;
        (instance.used, instance.slot) = (self.clock, slot);
        self.places[place].0 = Some(instance);
        if self.last.len() <= slot {
            self.last.resize(slot + 1, usize::MAX);
        }
        // Mostly it stands there already; a store would take the line from all other streams' cores.
        if self.last[slot] != place {
            self.last[slot] = place;
        }
    }

    /// Drops an instance that was in no place.
    pub(super) fn forget(&mut self, place: usize) {
        self.count -= 1;
        self.vacant.push(place);
    }
}

/// What [`choose`] knows of an instance in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Has it the operands that are wanted?
    pub(super) fits: bool,
    pub(super) state: State,
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This one.
    Take(usize),
    /// A new one.
    Grow,
    /// None is in the pool.
    Wait,
}

/// Which instance to use. `room`: whether there may be one more.
///
/// The one that was used last among those that can start at once, as its memory is likely in a cache. Then a new one, if
/// that lets replays overlap, or keeps operands from being replaced (`is_cheap`); otherwise one whose turn comes next, and
/// a leased one last, since its outputs have to be made anew.
pub(super) fn choose(seen: &[Seen], room: bool, is_cheap: bool) -> Choice {
    let best = |state: State, fits: bool, newest: bool| {
        let among = seen.iter().enumerate().filter(|(_, seen)| seen.state == state && (seen.fits || !fits));
        let key = |(_, seen): &(usize, &Seen)| if newest { u64::MAX - seen.used } else { seen.used };
        among.min_by_key(key).map(|(index, _)| index)
    };
    if let Some(index) = best(State::Ready, true, true) {
        return Choice::Take(index);
    }
    let other = best(State::Ready, false, false);
    if room && (other.is_none() || is_cheap) {
        return Choice::Grow;
    }
    let next = other.or_else(|| best(State::Busy, true, false)).or_else(|| best(State::Busy, false, false));
    match next.or_else(|| best(State::Leased, false, false)) {
        Some(index) => Choice::Take(index),
        None if room => Choice::Grow,
        None => Choice::Wait,
    }
}

/// The instances of a graph, which the device knows, too.
pub(crate) struct Instances {
    pub(super) pool: Mutex<InstancePool>,
    /// Signalled when an instance comes back, or room for one.
    pub(super) returned: Condvar,
    /// Of one.
    pub(crate) size_bytes: usize,
}

impl Instances {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.pool.lock().count
    }

    /// Frees those that are in the pool, as any memory is freed: whoever holds an output keeps it, and work in flight goes on.
    pub(crate) fn clear(&self) {
        let mut pool = self.pool.lock();
        let mut free = Vec::new();
        for place in 0..pool.places.len() {
            if let Some(instance) = pool.places[place].0.take() {
                free.push(instance);
                pool.forget(place);
            }
        }
        drop(pool);
        drop(free); // frees memory, which isn't for under the lock
        self.returned.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seen(fits: bool, state: State, used: u64) -> Seen {
        Seen { fits, state, used }
    }

    #[test]
    fn what_is_ready_comes_first_and_what_is_leased_last() {
        use State::*;
        let all = [seen(true, Leased, 1), seen(true, Busy, 2), seen(false, Ready, 3), seen(true, Ready, 4)];
        assert_eq!(choose(&all, true, true), Choice::Take(3));
        assert_eq!(choose(&all[..3], true, true), Choice::Grow, "so that nothing has to be replaced");
        assert_eq!(choose(&all[..3], true, false), Choice::Take(2), "memory is dear");
        assert_eq!(choose(&all[..2], true, false), Choice::Grow, "so that they overlap");
        assert_eq!(choose(&all[..2], false, false), Choice::Take(1));
        assert_eq!(choose(&all[..1], true, false), Choice::Grow);
        assert_eq!(choose(&all[..1], false, false), Choice::Take(0));
        assert_eq!(choose(&[], true, false), Choice::Grow);
        assert_eq!(choose(&[], false, true), Choice::Wait);
    }

    #[test]
    fn of_ready_ones_the_newest_of_busy_ones_the_oldest() {
        let ready = [seen(true, State::Ready, 5), seen(true, State::Ready, 9), seen(true, State::Ready, 7)];
        assert_eq!(choose(&ready, true, true), Choice::Take(1));
        let busy = [seen(true, State::Busy, 5), seen(true, State::Busy, 3), seen(false, State::Busy, 1)];
        assert_eq!(choose(&busy, false, true), Choice::Take(1));
    }
}
