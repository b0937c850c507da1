//! What a server holds.

use super::{Options, counts::Metrics, samples::Samples};
use crate::engine::Engine;
use raddle_sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use tokio::sync::Semaphore;

/// A server's state: an engine, limits, and what has been counted.
pub struct App {
    pub(super) engine: Engine,
    pub(super) options: Options,
    pub(super) metrics: Metrics,
    pub(super) samples: Samples,
    /// One for each request that may be computed at once.
    pub(super) permits: Arc<Semaphore>,
    /// Set once: each answer then ends its connection.
    is_stopping: AtomicBool,
}

impl App {
    /// The state of a server that begins.
    pub fn new(engine: Engine, options: Options) -> Arc<App> {
        let permits = Semaphore::new(options.concurrent_request_count_max.min(Semaphore::MAX_PERMITS));
        let permits = Arc::new(permits);
        let (metrics, samples) = (Metrics::default(), Samples::new());
        Arc::new(App { engine, options, metrics, samples, permits, is_stopping: AtomicBool::new(false) })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The name of the model.
    pub(super) fn name(&self) -> &str {
        self.options.name.as_deref().unwrap_or(&self.engine.about().name)
    }

    /// From now on answers end their connections, and `/health` says that this server is none to be sent requests.
    pub fn begin_stop(&self) {
        // Relaxed: it is only a hint to clients. Nothing that is accepted depends on it.
        self.is_stopping.store(true, Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// Connections that are open, of a server that [`listen`](super::listen)s.
    pub fn connection_count(&self) -> usize {
        self.metrics.connections.load(Relaxed)
    }

    /// Requests that were accepted (their head was read), and those that were answered or whose client has gone. Equal if
    /// nothing is being served.
    pub fn served(&self) -> (u64, u64) {
        self.metrics.served()
    }
}
