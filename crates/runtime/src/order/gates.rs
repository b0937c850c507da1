//! The gates of a device in front of what is [held](crate::testing::hold).

use super::tick::Tick;
use raddle_hal::Gate;
use raddle_sync::{Mutex, Rank};

struct Hold {
    number: u64,
    gate: Gate,
    is_open: bool,
    /// The op that waits for the gate, or a later one; none before it is submitted.
    behind: Option<Tick>,
}

/// All gates of a device that haven't been given back, and how many there have been.
pub(crate) struct Gates(Mutex<(Vec<Hold>, u64)>);

impl Gates {
    pub(crate) fn new() -> Gates {
        Gates(Mutex::new(Rank::Leaf, (Vec::new(), 0)))
    }

    /// Takes a closed one in; its number.
    pub(crate) fn add(&self, gate: Gate) -> u64 {
        let (all, count) = &mut *self.0.lock();
        *count += 1;
        all.push(Hold { number: *count, gate, is_open: false, behind: None });
        *count
    }

    /// Says which op is behind it, or a later one.
    pub(crate) fn note(&self, number: u64, behind: Tick) {
        let (all, _) = &mut *self.0.lock();
        if let Some(hold) = all.iter_mut().find(|hold| hold.number == number) {
            hold.behind = Some(behind);
        }
    }

    /// The one of this number, or all, that are closed: they count as open from now on, and whoever gets them opens them.
    pub(crate) fn take_closed(&self, number: Option<u64>) -> Vec<Gate> {
        let (all, _) = &mut *self.0.lock();
        let is_one = |hold: &&mut Hold| !hold.is_open && number.is_none_or(|number| hold.number == number);
        let open = |hold: &mut Hold| {
            hold.is_open = true;
            hold.gate
        };
        all.iter_mut().filter(is_one).map(open).collect()
    }

    /// Takes out the open ones behind which all is over, for the device.
    pub(crate) fn drain(&self, is_complete: impl Fn(Tick) -> bool) -> Vec<Gate> {
        let behind = |hold: &Hold| hold.behind.filter(|_| hold.is_open).map(|tick| (hold.number, tick));
        let open: Vec<(u64, Tick)> = self.0.lock().0.iter().filter_map(behind).collect();
        // Under no lock: the device is asked.
        let over = open.into_iter().filter(|(_, tick)| is_complete(*tick));
        over.filter_map(|(number, _)| self.take(number)).collect()
    }

    fn take(&self, number: u64) -> Option<Gate> {
        let (all, _) = &mut *self.0.lock();
        let at = all.iter().position(|hold| hold.number == number)?;
        Some(all.swap_remove(at).gate)
    }
}
