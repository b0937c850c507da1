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
//! all work before it says so. None of these notices that it waits for its own thread.
//!
//! **What doesn't wait**: a thread that ends and a process that ends, which drop what is held, and [`Device::close`], which lets
//! go of it. So a [`Held`] that is leaked holds its stream until one of these.

use crate::{Device, Result, Stream, device::DeviceInner, fork, tick::Tick};
use raddle_hal::{DeviceError, Gate, Launch};
use raddle_sync::{Mutex, Rank, atomic::Ordering::Acquire, fault};
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
        return fork::submit(stream.0.device, "spin", &launch, &[]);
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
    device.release_gates();
    let gate = device.hal.make_gate().map_err(|error| device.error(error))?;
    let number = device.holds.add(gate);
    if fault!(hold_holds_nothing) {
        device.let_go(number);
    }
    // If it is refused nothing waits for the gate.
    let held = Held { device, number };
    let submitted = stream.launch("hold", &Launch::Gate(gate), &mut []);
    device.holds.note(number, if submitted.is_ok() { stream.0.latest() } else { Tick::NONE });
    submitted.map(|_| held)
}

/// A stream that stands still until this is dropped, on any thread. Doesn't block then. See [`hold`].
///
/// Leaked, it holds the stream until the device is closed or the process ends. In a forked child it does nothing: the stream is
/// its parent's.
#[must_use = "the stream goes on when it is dropped"]
pub struct Held {
    device: &'static DeviceInner,
    number: u64,
}

impl Held {
    /// Lets the stream go on: by a name, what dropping does.
    pub fn release(self) {}

    /// The device of the stream.
    pub fn device(&self) -> Device {
        Device(self.device)
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
            self.device.let_go(self.number);
        }
    }
}

/// A gate of a device in front of what is held.
struct Hold {
    number: u64,
    gate: Gate,
    is_open: bool,
    /// The op that waits for the gate, or a later one; none before it is submitted.
    behind: Option<Tick>,
}

/// All gates of a device that haven't been given back, and how many there have been.
pub(crate) struct Holds(Mutex<(Vec<Hold>, u64)>);

impl Holds {
    pub(crate) fn new() -> Holds {
        Holds(Mutex::new(Rank::Leaf, (Vec::new(), 0)))
    }

    fn add(&self, gate: Gate) -> u64 {
        let (all, count) = &mut *self.0.lock();
        *count += 1;
        all.push(Hold { number: *count, gate, is_open: false, behind: None });
        *count
    }

    fn take(&self, number: u64) -> Option<Hold> {
        let (all, _) = &mut *self.0.lock();
        let at = all.iter().position(|hold| hold.number == number)?;
        Some(all.swap_remove(at))
    }

    fn note(&self, number: u64, behind: Tick) {
        let (all, _) = &mut *self.0.lock();
        if let Some(hold) = all.iter_mut().find(|hold| hold.number == number) {
            hold.behind = Some(behind);
        }
    }
}

impl DeviceInner {
    fn let_go(&self, number: u64) {
        self.open_gates(|hold| hold.number == number);
    }

    pub(crate) fn let_go_of_all(&self) {
        self.open_gates(|_| true);
    }

    fn open_gates(&self, which: impl Fn(&Hold) -> bool) {
        let mut closed = Vec::new();
        for hold in self.holds.0.lock().0.iter_mut().filter(|hold| !hold.is_open && which(hold)) {
            hold.is_open = true;
            closed.push(hold.gate);
        }
        // Under no lock: what goes on takes some.
        for gate in closed {
            // SAFETY: it is in the list, so it has not been given back; who finds it closed opens it, under the lock.
            unsafe { self.hal.open_gate(gate) };
        }
    }

    /// Gives back the gates behind which all is over. Of a lost device they stay: there everything counts as complete, while
    /// a gate may still be about to be opened.
    pub(crate) fn release_gates(&self) {
        let behind = |hold: &Hold| hold.behind.filter(|_| hold.is_open).map(|tick| (hold.number, tick));
        let open: Vec<(u64, Tick)> = self.holds.0.lock().0.iter().filter_map(behind).collect();
        for (number, tick) in open {
            if !self.is_complete(tick) || self.lost.load(Acquire) {
                continue;
            }
            if let Some(hold) = self.holds.take(number) {
                // SAFETY: it has left the list, and was opened: the op that waits for it is complete.
                unsafe { self.hal.release_gate(hold.gate) };
            }
        }
    }
}
