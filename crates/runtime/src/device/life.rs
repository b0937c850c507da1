//! The beginning and the end of a device.

use crate::{
    graph::Graphs,
    ground::{Core, DEVICE_COUNT_MAX, Device, Error, Floor, Result, fork},
    host::trace,
    memory::{Memory, Watermarks, policy::AllocInterceptors},
    order::Streams,
    stream::{StreamsAbove, binding, callback, event, testing},
};
use raddle_hal as hal;
use raddle_sync::{atomic::Ordering::*, fault, global, locks_at_fork};

/// Indices of devices that are open. No lock, which a forked child could find held.
static OPEN: [global::AtomicBool; DEVICE_COUNT_MAX] =
    [const { global::AtomicBool::new(false) }; DEVICE_COUNT_MAX];
/// How often each index has been used.
static USES: [global::AtomicU32; DEVICE_COUNT_MAX] = [const { global::AtomicU32::new(0) }; DEVICE_COUNT_MAX];

/// A device with all its floors, from the ground up.
pub(crate) fn build(hal: Box<dyn hal::Device>, index: u8, use_count: u8) -> Device {
    let core: &'static Core = Box::leak(Box::new(Core::new(hal, index, use_count)));
    Streams::new(core).build(core);
    Memory::new(core, &StreamsAbove).build(core);
    AllocInterceptors::new(core).build(core);
    Graphs::new().build(core);
    Device(core)
}

impl Device {
    /// Takes a hal device into service. It stays so until [`Device::close`] or the end of the process.
    pub fn open(hal: Box<dyn hal::Device>) -> Result<Device> {
        locks_at_fork::install();
        trace::start_at_open(|| hal.info().bounds.trace_span_count);
        Watermarks::of(&hal.info().bounds).check("open", &hal.info().name)?;
        // Nothing but the index is passed on by it.
        let Some(index) = OPEN.iter().position(|open| !open.swap(true, Relaxed)) else {
            return Err(Error::TooManyDevices { name: hal.info().name.clone(), count_max: DEVICE_COUNT_MAX });
        };
        hal.info().source.show(&hal.info().name);
        let use_count = USES[index].fetch_add(1, Relaxed);
        Ok(build(hal, index as u8, use_count as u8))
    }

    /// Takes a device out of service: lets go of [held](crate::testing::hold) streams, waits for its callbacks and its work, and
    /// gives its memory back. False, and nothing
    /// else, if buffers of it are alive, and in a forked child, to which the memory doesn't belong. Using a closed device
    /// afterwards is safe and opens nothing anew; closing it again gives back what it has taken since. A lost one can be
    /// closed, too. [`Error::InCallback`] if it is called in one of
    /// those callbacks.
    pub fn close(self) -> Result<bool> {
        if fork::is_child(self.0) {
            return fork::check(self.0).map(|()| false);
        }
        let streams = Streams::of(self.0);
        if !fault!(close_waits_for_holds) {
            testing::open_gates(streams, None);
        }
        callback::drain(streams, "close")?;
        binding::release(streams);
        let synchronized = if fault!(close_in_flight) { Ok(()) } else { self.synchronize() };
        match synchronized {
            // After a loss nothing is in flight.
            Ok(()) | Err(Error::Device { error: hal::DeviceError::Lost { .. }, .. }) => {}
            Err(error) => return Err(error),
        }
        if fault!(close_unbinds) {
            streams.all_streams().for_each(|stream| stream.users.store(0, Relaxed));
        }
        event::release_stamps(streams);
        testing::release_gates(streams);
        self.empty_cache();
        let closed = Memory::of(self.0).is_empty();
        // Once: the index may be another device's by now.
        if closed && !self.0.closed.swap(true, Relaxed) {
            OPEN[self.0.index as usize].store(false, Relaxed);
        }
        Ok(closed)
    }
}
