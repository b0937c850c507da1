//! Streams that a thread has for itself.

use super::{
    binding::{self, StreamGuard},
    sharing::{Exhausted, claim, release},
};
use crate::{
    ground::{Device, Error, Floor, Result, fork},
    order::{Stream, Streams},
};
use std::ops::Deref;

/// A stream that this thread has for itself, and that is its current one, until this is dropped (also by a panic) or the
/// thread ends. It stays on its thread.
#[must_use = "the stream is dedicated until this is dropped"]
pub struct DedicatedStream {
    stream: Stream,
    hold: u64,
    /// `None` only while it is dropped.
    guard: Option<StreamGuard>,
}

impl Deref for DedicatedStream {
    type Target = Stream;
    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl std::fmt::Debug for DedicatedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dedicated{:?}", self.stream)
    }
}

impl Stream {
    /// A stream of normal priority for this thread alone, and its current one from now on. Others are neither bound to it
    /// nor given it by [`Stream::from_pool`]: with 32 such threads, or while one waits, threads that don't ask share the
    /// default stream. Blocks only as [`Exhausted`] says; meanwhile this thread holds no stream that it hasn't asked for.
    ///
    /// Errors: [`Error::StreamsTaken`]; [`Error::AlreadyDedicated`] if this thread has one on this device.
    pub fn dedicated(device: &Device, exhausted: Exhausted) -> Result<DedicatedStream> {
        if fork::is_child(device.0) {
            return Err(Error::Forked { device: device.name().into() });
        }
        let streams = Streams::of(device.0);
        if binding::unbind_chosen(streams) {
            return Err(Error::AlreadyDedicated { device: device.name().into() });
        }
        let (inner, hold) = claim(streams, exhausted)?;
        binding::begin_dedicated(inner, hold);
        let stream = inner.handle();
        Ok(DedicatedStream { stream, hold, guard: Some(stream.enter()) })
    }
}

impl Drop for DedicatedStream {
    fn drop(&mut self) {
        drop(self.guard.take()); // while it is current, it has a user
        binding::end_dedicated(self.stream.0, self.hold);
        release(self.stream.0, self.hold);
    }
}
