//! Events: ticks with names.
//!
//! A new event has recorded nothing: it isn't complete, and waiting for it waits for nothing. To record is to note the
//! stream's latest tick: no call of the device. Whoever waits has taken the tick, so recording again disturbs nobody
//! (T4).
//!
//! A *timing* event puts a [`TimingEvent`] on the stream, by which the device notes when it gets there.

use super::callback;
use crate::{
    ground::{Error, NoTime, NotCapturable, Result, Which, capturing, fork},
    order::{Stream, Streams, Tick},
};
use raddle_hal::{Launch, TimingEvent};
use raddle_sync::{Arc, Mutex, MutexGuard, Rank, fault};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// A timing event on a stream. The last who holds it gives it back.
#[derive(Debug)]
struct Held {
    device: &'static Streams,
    timing: TimingEvent,
    tick: Tick,
}

impl Held {
    fn is_noted(&self) -> bool {
        self.device.opened(self.tick.slot()).query(self.tick.sequence())
            // SAFETY: it lives while this does, and a tick is given out when its launch has been submitted.
            || !fork::is_child(self.device) && unsafe { self.device.hal.is_noted(self.timing) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if fork::is_child(self.device) {
            return; // the lock is the parent's
        }
        let surplus =
            self.device.timing_events.keep(self.timing, self.tick, |tick| self.device.is_complete(tick));
        // SAFETY: it is complete, and nobody holds it.
        surplus.into_iter().for_each(|timing| unsafe { self.device.hal.release_timing_event(timing) });
    }
}

/// What an event has recorded.
#[derive(Clone, Debug)]
struct Recorded {
    device: &'static Streams,
    tick: Tick,
    /// Of a timing event; or why there is none.
    time: Option<Result<Arc<Held>>>,
}

/// A point in the work of a stream. May be shared by threads; dropping it disturbs nobody who waits for it. It stays in its
/// process: there are no interprocess handles.
#[derive(Debug)]
pub struct Event {
    is_timing: bool,
    recorded: Mutex<Option<Recorded>>,
    /// The process's count of forks when it was made.
    forks: u32,
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl Event {
    /// An event that has recorded nothing, and notes no times: to record it costs no call of the device.
    pub fn new() -> Event {
        Event { is_timing: false, recorded: Mutex::new(Rank::Leaf, None), forks: fork::count() }
    }

    /// As [`Event::new`], and when it is recorded the device notes the time at which it gets there, for
    /// [`Event::elapsed_ms`]. To record it is an op of its own.
    pub fn timing() -> Event {
        Event { is_timing: true, ..Event::new() }
    }

    /// Records everything that is on the stream now, in place of what it had recorded. Doesn't block, except that a timing
    /// event, or any on a wrapped stream, takes a place on the stream and waits for one. It can't fail: of a wrapped
    /// stream that has been closed it records everything until then; and why a time couldn't be noted is told by
    /// [`Event::elapsed_ms`].
    ///
    /// In a forked child an event that another thread of the parent was using at the fork counts as complete for good.
    pub fn record(&self, stream: Stream) {
        fault!(record_first_only => if self.tick().is_some() { return });
        let device = stream.0.device;
        let recorded = if self.is_timing {
            let time = record_time(stream).map(Arc::new);
            // What was enqueued since is covered as well.
            Recorded { device, tick: stream.0.latest(), time: Some(time) }
        } else {
            Recorded { device, tick: stream.recorded(), time: None }
        };
        if fault!(blank_while_recorded) {
            self.recorded().and_then(|mut now| now.take());
        }
        // The old timing event goes back under a lock of its own.
        let before = self.recorded().and_then(|mut now| now.replace(recorded));
        drop(before);
    }

    /// What it has recorded; none if a thread of the parent process has it for ever.
    fn recorded(&self) -> Option<MutexGuard<'_, Option<Recorded>>> {
        self.recorded.lock_made_at(self.forks)
    }

    /// Is everything complete that was on the stream when it was last recorded? False before the first record.
    /// Doesn't block; sees to it that the work gets going.
    pub fn query(&self) -> bool {
        let Some(recorded) = self.recorded() else { return true };
        let tick = recorded.as_ref().map(|recorded| (recorded.device, recorded.tick));
        drop(recorded);
        match tick {
            Some((device, tick)) => device.opened(tick.slot()).query(tick.sequence()),
            None => {
                fault!(event_born_complete => return true);
                false
            }
        }
    }

    /// Blocks until what was last recorded is complete; returns at once if nothing was.
    pub fn synchronize(&self) -> Result<()> {
        match self.tick() {
            Some((device, tick)) => {
                capturing::refuse(device, "synchronize", NotCapturable::Wait)?;
                device.opened(tick.slot()).synchronize(tick.sequence())
            }
            None => Ok(()),
        }
    }

    /// A future that is ready when what is recorded now is complete; at once if nothing is. It needs no executor of any
    /// kind: a thread of the runtime wakes it, in the order of the stream's callbacks ([`Stream::on_complete`]). Its
    /// value is what [`Event::synchronize`] would return. While it waits it counts as one of the stream's callbacks; dropping
    /// it ends that, and disturbs nobody.
    pub fn wait(&self) -> EventFuture {
        EventFuture { tick: self.tick(), told: None }
    }

    /// Milliseconds from the record of `start` to that of this event, as the device has met them on its way; negative if it
    /// met this one first. Both are timing events, recorded, and complete. Doesn't block. The resolution is the device's:
    /// about half a microsecond on CUDA, that of the system's clock elsewhere.
    ///
    /// Errors: [`Error::Elapsed`] says which event lacks what; [`Error::Device`].
    pub fn elapsed_ms(&self, start: &Event) -> Result<f64> {
        let [start, end] = [start.time(Which::Start)?, self.time(Which::End)?];
        if !std::ptr::eq(start.device, end.device) {
            return Err(Error::Elapsed { which: Which::End, reason: NoTime::Device });
        }
        if fork::is_out_of_reach(end.device) {
            return Err(Error::Forked { device: end.device.name().into() });
        }
        // SAFETY: both are complete, and are held meanwhile.
        let elapsed = unsafe { end.device.hal.elapsed_ms(start.timing, end.timing) };
        elapsed.map_err(|error| end.device.error(error))
    }

    fn time(&self, which: Which) -> Result<Arc<Held>> {
        let lacks = |reason| Err(Error::Elapsed { which, reason });
        if !self.is_timing {
            return lacks(NoTime::Untimed);
        }
        let recorded = self.recorded().and_then(|recorded| recorded.clone());
        match recorded.and_then(|recorded| recorded.time) {
            None => lacks(NoTime::NotRecorded),
            Some(Err(Error::NotCapturable { .. })) => lacks(NoTime::Captured),
            Some(Err(error)) => Err(error),
            Some(Ok(held)) if held.is_noted() => Ok(held),
            Some(Ok(_)) => lacks(NoTime::NotComplete),
        }
    }

    pub(crate) fn tick(&self) -> Option<(&'static Streams, Tick)> {
        self.recorded()?.as_ref().map(|recorded| (recorded.device, recorded.tick))
    }
}

/// Puts a timing event on a stream.
fn record_time(stream: Stream) -> Result<Held> {
    let device = stream.0.device;
    capturing::refuse(device, "record", NotCapturable::Wait)?;
    let timing = match device.timing_events.take(|tick| device.is_complete(tick)) {
        Some(timing) => timing,
        None => device.hal.make_timing_event().map_err(|error| device.error(error))?,
    };
    let submitted = stream.submit("time", &Launch::TimingEvent(timing), &mut [], &[]);
    let held = Held { device, timing, tick: stream.0.latest() };
    submitted.map(|_| held)
}

/// Gives all timing events of a device back that nobody holds.
pub(crate) fn release_stamps(device: &Streams) {
    // SAFETY: they are complete, and nobody holds them.
    device
        .timing_events
        .drain(|tick| device.is_complete(tick))
        .for_each(|timing| unsafe { device.hal.release_timing_event(timing) });
}

/// What a future and the callback that wakes it share.
#[derive(Debug, Default)]
struct Told {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

/// See [`Event::wait`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct EventFuture {
    tick: Option<(&'static Streams, Tick)>,
    /// While a callback is on its way, which has this number.
    told: Option<(Arc<Mutex<Told>>, u64)>,
}

impl Future for EventFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some((device, tick)) = self.tick else { return Poll::Ready(Ok(())) };
        if fork::is_child(device) {
            return Poll::Ready(fork::check(device)); // the threads that call back are the parent's
        }
        if let Some((told, _)) = &self.told {
            // Wakers are code of others, which may do anything when one is cloned or dropped: not under the lock.
            let waker = context.waker().clone();
            let mut told = told.lock();
            let result = told.result.take();
            let mut before = if result.is_none() { told.waker.replace(waker) } else { None };
            fault!(waker_under_lock => before = None);
            drop(told);
            drop(before);
            let Some(result) = result else { return Poll::Pending };
            self.told = None;
            return Poll::Ready(result);
        }
        let stream = device.opened(tick.slot());
        if stream.query(tick.sequence()) {
            return Poll::Ready(stream.synchronize(tick.sequence())); // tells of a loss
        }
        let waker = Some(context.waker().clone());
        let told = Arc::new(Mutex::new(Rank::Leaf, Told { result: None, waker }));
        let own = told.clone();
        let tell = move |result| {
            let mut told = told.lock();
            told.result = Some(result);
            let waker = told.waker.take();
            drop(told);
            waker.into_iter().for_each(Waker::wake);
        };
        match callback::add(stream.handle(), tick.sequence(), Box::new(tell)) {
            Ok(number) => {
                self.told = Some((own, number));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Whoever waits for a while, again and again, would fill the stream's callbacks, and what their wakers own would stay.
impl Drop for EventFuture {
    fn drop(&mut self) {
        if let Some(((told, number), (device, tick))) = self.told.take().zip(self.tick)
            && !fork::is_child(device)
        {
            device.opened(tick.slot()).callbacks.remove(tick.sequence(), number);
            // The thread may have the callback already.
            let waker = told.lock().waker.take();
            drop(waker);
        } // else the locks are the parent's
    }
}

impl Stream {
    /// Puts whatever is submitted to this stream from now on behind what an event has recorded. An event that was never
    /// recorded holds nothing up. Doesn't wait for the event; if there is something to wait behind it takes a place on this
    /// stream, and blocks while there is none.
    pub fn wait_event(self, event: &Event) -> Result<()> {
        self.check_open()?;
        match event.tick() {
            Some((device, tick)) if std::ptr::eq(device, self.0.device) => self.wait_tick(tick),
            Some((device, _)) => Err(Error::StreamDevice {
                op: "wait_event",
                expected: self.device().name().into(),
                found: device.name().into(),
            }),
            None => Ok(()),
        }
    }

    /// An event that has recorded everything that is on the stream now; see [`Event::record`].
    pub fn record(self) -> Event {
        let event = Event::new();
        event.record(self);
        event
    }
}
