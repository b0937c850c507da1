//! Streams and events. Work is ordered by Raddle on any of them; they say what runs beside what, and when something is done.

use crate::{
    device::{self, PyDevice},
    error::Result,
};
use pyo3::prelude::*;
use raddle::{Device, Event, Priority, Stream, StreamGuard};
use std::cell::RefCell;

thread_local! {
    /// The streams that this thread is inside of by `with`.
    static INSIDE: RefCell<Vec<StreamGuard>> = const { RefCell::new(Vec::new()) };
}

/// A queue of work of a device. `with stream:` makes it the current one of this thread.
#[pyclass(frozen, name = "Stream", module = "raddle")]
pub struct PyStream(Stream);

/// The stream to use: one that was given, or the current one of this thread on the CPU.
fn stream_or_current(py: Python<'_>, stream: Option<&Bound<'_, PyStream>>) -> Result<Stream> {
    match stream {
        Some(stream) => Ok(stream.get().0),
        None => Ok(Stream::current(&*device::parse(py, None)?)?),
    }
}

#[pymethods]
impl PyStream {
    /// The next stream of the device's pool. `priority`: 0, or -1 for a high one.
    #[new]
    #[pyo3(signature = (device=None, priority=0))]
    fn new(py: Python<'_>, device: Option<&Bound<'_, PyAny>>, priority: i64) -> Result<PyStream> {
        let priority = if priority < 0 { Priority::High } else { Priority::Normal };
        Ok(PyStream(Stream::from_pool(&*device::parse(py, device)?, priority)?))
    }

    /// Its number; no other stream of the process has it.
    #[getter]
    fn stream_id(&self) -> u64 {
        self.0.id().0
    }

    /// The device that it belongs to.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice::of(Device::from(self.0.device()))
    }

    /// Is all work on it complete? Doesn't wait.
    fn query(&self) -> bool {
        self.0.query()
    }

    /// Waits for all work on it.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let stream = self.0;
        Ok(py.detach(|| stream.synchronize())?)
    }

    /// Puts what comes from now on behind what is on another stream.
    fn wait_stream(&self, py: Python<'_>, stream: &Bound<'_, PyStream>) -> Result<()> {
        let (own, other) = (self.0, stream.get().0);
        Ok(py.detach(|| own.wait_stream(other))?)
    }

    /// Puts what comes from now on behind what an event has recorded.
    fn wait_event(&self, py: Python<'_>, event: &Bound<'_, PyEvent>) -> Result<()> {
        let (own, event) = (self.0, &event.get().0);
        Ok(py.detach(|| own.wait_event(event))?)
    }

    /// An event that has recorded what is on it now: `event`, or a new one.
    #[pyo3(signature = (event=None))]
    fn record_event<'py>(
        slf: &Bound<'py, PyStream>,
        event: Option<&Bound<'py, PyEvent>>,
    ) -> Result<Bound<'py, PyEvent>> {
        let event = match event {
            Some(event) => event.clone(),
            None => Bound::new(slf.py(), PyEvent(Event::new()))?,
        };
        let (own, recorded) = (slf.get().0, &event.get().0);
        slf.py().detach(|| recorded.record(own));
        Ok(event)
    }

    fn __enter__<'py>(slf: &Bound<'py, PyStream>) -> Bound<'py, PyStream> {
        let guard = slf.get().0.enter();
        INSIDE.with_borrow_mut(|inside| inside.push(guard));
        slf.clone()
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        drop(INSIDE.with_borrow_mut(Vec::pop));
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyStream>().is_ok_and(|other| other.get().0.id() == self.0.id())
    }

    fn __hash__(&self) -> u64 {
        self.0.id().0
    }

    fn __repr__(&self) -> String {
        format!("Stream(device='{}', stream_id={})", self.0.device().name(), self.0.id().0)
    }
}

/// A point in the work of a stream. Any thread may use it.
#[pyclass(frozen, name = "Event", module = "raddle")]
pub struct PyEvent(Event);

#[pymethods]
impl PyEvent {
    /// With `enable_timing` the device notes when it gets there.
    #[new]
    #[pyo3(signature = (enable_timing=false))]
    fn new(enable_timing: bool) -> PyEvent {
        PyEvent(if enable_timing { Event::timing() } else { Event::new() })
    }

    /// Records what is on a stream now: on the current one of the CPU if none is given.
    #[pyo3(signature = (stream=None))]
    fn record(&self, py: Python<'_>, stream: Option<&Bound<'_, PyStream>>) -> Result<()> {
        let (stream, event) = (stream_or_current(py, stream)?, &self.0);
        py.detach(|| event.record(stream));
        Ok(())
    }

    /// Puts what comes to a stream from now on behind what was recorded.
    #[pyo3(signature = (stream=None))]
    fn wait(&self, py: Python<'_>, stream: Option<&Bound<'_, PyStream>>) -> Result<()> {
        let (stream, event) = (stream_or_current(py, stream)?, &self.0);
        Ok(py.detach(|| stream.wait_event(event))?)
    }

    /// Is what was recorded complete? Doesn't wait; false before the first record.
    fn query(&self) -> bool {
        self.0.query()
    }

    /// Waits until what was recorded is complete.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let event = &self.0;
        Ok(py.detach(|| event.synchronize())?)
    }

    /// Milliseconds from this event to `end_event`. Both note times, and are complete.
    fn elapsed_time(&self, end_event: &Bound<'_, PyEvent>) -> Result<f64> {
        Ok(end_event.get().0.elapsed_ms(&self.0)?)
    }
}

/// The stream that this thread's work on a device goes to.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub fn current_stream(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> Result<PyStream> {
    Ok(PyStream(Stream::current(&*device::parse(py, device)?)?))
}

/// Makes a stream the current one of this thread, on its device.
#[pyfunction]
pub fn set_stream(stream: &Bound<'_, PyStream>) {
    stream.get().0.set_current();
}

/// Waits for all work of a device, of all threads.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub fn synchronize(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> Result<()> {
    let device = device::parse(py, device)?;
    Ok(py.detach(|| device.synchronize())?)
}
