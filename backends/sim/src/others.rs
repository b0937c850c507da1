//! What other code does with the device, behind the runtime's back: for tests.

use crate::shared::Shared;
use raddle_hal::{Launch, QueueId};
use raddle_sync::Arc;

/// Other code on the device of a [`Sim`](crate::Sim). Its streams are FIFO like the device's queues, and wait for nothing.
#[derive(Clone)]
pub struct Others(pub(crate) Arc<Shared>);

impl Others {
    /// Makes a stream. Its number can be wrapped by the runtime, and is the id for [`Others::hold`]. None beyond 128.
    pub fn make_stream(&self) -> Option<u64> {
        self.0.state.lock().make_other().map(|id| id.0.into())
    }

    /// Puts a launch on such a stream, behind what is there.
    ///
    /// # Safety
    /// - `stream` was made by [`Others::make_stream`], and the launch is as for `submit` of a device: what it names lives until
    ///   it has run.
    pub unsafe fn submit(&self, stream: u64, launch: &Launch<'_>) {
        // SAFETY: by the contract.
        unsafe { self.0.state.lock().submit_other(QueueId(stream as u8), launch) };
    }

    /// From now on nothing of a queue, or of a stream of other code, starts.
    pub fn hold(&self, queue: QueueId) {
        self.0.state.lock().hold(queue, true);
    }

    /// It goes on.
    pub fn let_go(&self, queue: QueueId) {
        self.0.state.lock().hold(queue, false);
        self.0.turn_over.notify_all();
    }

    /// How many threads sleep because of what is held, until somebody lets go of it.
    pub fn waiting_count(&self) -> usize {
        self.0.state.lock().waiting_count
    }
}
