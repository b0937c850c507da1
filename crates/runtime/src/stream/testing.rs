//! For tests of code that names streams and events: a stream that is busy for a while, or stands still until it is let go.
//!
//! A race shows only if the other side is late. With these a test says who is late, on any device, instead of putting much
//! work in front and hoping that it lasts:
//!
//! - [`spin`]: the stream is busy for some time.
//! - [`hold`]: nothing that is put on the stream from now on starts, until the [`Held`] is dropped.
//!
//! Both take a place on the stream, in order, as any op, and appear in traces. They are work of the stream alone: a graph that
//! the thread captures meanwhile has no part of them.
//!
//! **What waits for a held stream waits for whoever holds it**: reading what is computed there, `synchronize` of the stream or of
//! the device, who submits to it when it is full (after [`Info::in_flight_count_max`](crate::hal::Info) ops or what
//! [`Limits`](raddle_hal::Limits) say), and an allocation for which the device has no memory left, since that waits for
//! all work before it says so. None of these notices that it waits for its own thread. CUDA's driver lets whoever loads a kernel or
//! makes a stream wait for all streams of the process: while one is held, ops that have not run before and streams that have not been
//! used are refused there. Run them once before, and run such a test in a process of its own.
//!
//! **What doesn't wait**: a thread that ends and a process that ends, which drop what is held, and [`Device::close`](crate::Device::close), which lets
//! go of it. So a [`Held`] that is leaked holds its stream until one of these.

use crate::{
    ground::{Device, Result, fork},
    order::{Stream, Streams, Tick},
    submit,
};
use raddle_hal::{DeviceError, Launch};
use raddle_sync::{atomic::Ordering::Acquire, fault};
use std::time::Duration;

/// Keeps a stream busy for a while, from when it gets there: what is put on it afterwards starts that much later.
///
/// | device | how |
/// |---|---|
/// | CPU | a worker sleeps, at least so long; a stream that is not idle stays busy so much longer |
/// | CUDA | a kernel of one thread looks at the device's clock, to some microseconds |
/// | simulator | a turn passes for each microsecond: time there is what the seed makes of it, and no clock's |
///
/// Doesn't wait for it; blocks while the stream is full. (It sleeps here where the system gives the CPU device no thread,
/// and in a forked child.) From any thread. Errors: those of any op on the stream.
pub fn spin(stream: Stream, duration: Duration) -> Result<()> {
    // Longer than any device lives.
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let launch = Launch::Spin(ns);
    if fork::is_child(stream.0.device) {
        return submit::child::submit(stream.0.device, "spin", &launch, &[]);
    }
    stream.launch("spin", &launch, &mut []).map(drop)
}

/// Holds a stream: what is on it goes on, and nothing starts that is put on it from now on, until what this returns is dropped.
/// Several may hold one stream; it goes on when all have let go.
///
/// Doesn't wait for what is on the stream; blocks while the stream is full. From any thread, which needn't be the one that lets
/// go. What waits for a held stream, and what doesn't, is said [above](self). On CUDA the stream waits in front of the
/// device's units, which are free for other streams; but the device has fewer queues than there may be streams
/// (`CUDA_DEVICE_MAX_CONNECTIONS`), and a stream that shares one with it waits, too.
///
/// Errors: those of any op on the stream; [`Error::Device`](crate::Error::Device) if the device can't hold more streams (64 on the CPU), or any, as in
/// a forked child, where work is over when its call returns. Then nothing is held.
pub fn hold(stream: Stream) -> Result<Held> {
    let device = stream.0.device;
    if fork::is_child(device) {
        fork::check(device)?;
        return Err(device.error(DeviceError::Unsupported { what: "queue to hold in a forked child" }));
    }
    stream.check_open()?;
    release_gates(device);
    let gate = device.hal.make_gate().map_err(|error| device.error(error))?;
    let number = device.gates.add(gate);
    if fault!(hold_holds_nothing) {
        open_gates(device, Some(number));
    }
    // If it is refused nothing waits for the gate.
    let held = Held { device, number };
    let submitted = stream.launch("hold", &Launch::Gate(gate), &mut []);
    device.gates.note(number, if submitted.is_ok() { stream.0.latest() } else { Tick::NONE });
    submitted.map(|_| held)
}

/// A stream that stands still until this is dropped, on any thread. Doesn't block then. See [`hold`].
///
/// Leaked, it holds the stream until the device is closed or the process ends. In a forked child it does nothing: the stream is
/// its parent's.
#[must_use = "the stream goes on when it is dropped"]
pub struct Held {
    device: &'static Streams,
    number: u64,
}

impl Held {
    /// Lets the stream go on: by a name, what dropping does.
    pub fn release(self) {}

    /// The device of the stream.
    pub fn device(&self) -> Device {
        Device(self.device.core)
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({}, {})", self.device.name(), self.number)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !fork::is_child(self.device) {
            open_gates(self.device, Some(self.number));
        }
    }
}

/// Opens the gate of a number, or all.
pub(crate) fn open_gates(device: &Streams, number: Option<u64>) {
    // Under no lock: what goes on takes some.
    for gate in device.gates.take_closed(number) {
        // SAFETY: it was closed, so it has not been given back; who takes it out as closed opens it, once.
        unsafe { device.hal.open_gate(gate) };
    }
}

/// Gives back the gates behind which all is over. Of a lost device they stay: there everything counts as complete, while
/// a gate may still be about to be opened.
pub(crate) fn release_gates(device: &Streams) {
    for gate in device.gates.drain(|tick| device.is_complete(tick) && !device.lost.load(Acquire)) {
        // SAFETY: it has left the list, and was opened: the op that waits for it is complete.
        unsafe { device.hal.release_gate(gate) };
    }
}
