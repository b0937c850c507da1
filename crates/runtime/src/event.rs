//! Events: ticks with names.
//!
//! A new event has recorded nothing: it isn't complete, and waiting for it waits for nothing. To record is to note the
//! stream's latest tick: no call of the device. Whoever waits has taken the tick, so recording again disturbs nobody
//! (T4). Elapsed time between events comes with the backends that can measure it.

use crate::{NotCapturable, Result, Stream, capture, device::DeviceInner, tick::Tick};
use raddle_sync::{Mutex, Rank, fault};

/// A point in the work of a stream. May be shared by threads; dropping it disturbs nobody who waits for it.
#[derive(Debug)]
pub struct Event {
    recorded: Mutex<Option<(&'static DeviceInner, Tick)>>,
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl Event {
    /// An event that has recorded nothing.
    pub fn new() -> Event {
        Event { recorded: Mutex::new(Rank::Leaf, None) }
    }

    /// Records everything that is on the stream now, in place of what it had recorded. Doesn't block.
    pub fn record(&self, stream: Stream) {
        let tick = stream.recorded();
        *self.recorded.lock() = Some((stream.0.device, tick));
    }

    /// Is everything complete that was on the stream when it was last recorded? False before the first record.
    /// Doesn't block; sees to it that the work gets going.
    pub fn query(&self) -> bool {
        match self.tick() {
            Some((device, tick)) => device.opened(tick.slot()).query(tick.sequence()),
            None => fault!(event_born_complete),
        }
    }

    /// Blocks until what was last recorded is complete; returns at once if nothing was.
    pub fn synchronize(&self) -> Result<()> {
        match self.tick() {
            Some((device, tick)) => {
                capture::refuse(device, "synchronize", NotCapturable::Wait)?;
                device.stream(tick.slot())?.synchronize(tick.sequence())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn tick(&self) -> Option<(&'static DeviceInner, Tick)> {
        *self.recorded.lock()
    }
}
