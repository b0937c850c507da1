//! A listener that bounds what connections hold, and ends when it is told to.
//!
//! **Stopping.** At the signal:
//! 1. Connections that the system has taken for us are accepted, and then the listener is closed: others are refused by the
//!    system.
//! 2. For [`Options::linger`](super::Options::linger), or until no connection is left, requests still come through connections
//!    that are there, are answered, and end them. A client that is between two requests so has an answer rather than a
//!    broken connection.
//! 3. Connections on which nothing is being answered are closed, also in the middle of a head, and the others when they have been
//!    answered.
//! 4. What isn't answered within [`Options::drain_within`](super::Options::drain_within) of the signal is given up.
//!
//! So every request that was accepted, which is to say that its head was read, is answered in full, or the result says how
//! many were given up.

use super::{App, io::Paced, router, status};
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use raddle_sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
    fault,
};
use std::{io, pin::pin, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

/// Heads are small: names, a key, an id.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADER_COUNT_MAX: usize = 100;
/// Without a free file or memory a connection can't be accepted now, but soon maybe.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// How a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Requests that were accepted in its life.
    pub accepted: u64,
    /// Those that were left by their clients before they were answered.
    pub cancelled: u64,
    /// Those that were neither answered nor left by their client when its time was over.
    pub given_up: u64,
}

/// Serves until `stop` is ready, then drains; see the [module](self). The engine is not stopped.
pub async fn serve(app: Arc<App>, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
    let routes = TowerToHyperService::new(router(app.clone()));
    let permits = Arc::new(Semaphore::new(app.options.connection_count_max.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let (end, ending) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let begin = |tasks: &mut JoinSet<()>, stream: TcpStream, permit: OwnedSemaphorePermit| {
        let (routes, watcher, ending) = (routes.clone(), graceful.watcher(), ending.clone());
        let open = Open::begin(app.clone());
        tasks.spawn(async move {
            connection(&open.0, stream, routes, watcher, ending).await;
            drop(permit);
        });
    };
    let sampling = app.clone();
    let mut ticks = tokio::time::interval(status::INTERVAL);
    tasks.spawn(async move {
        // Ends with the tasks: nothing waits for it.
        loop {
            ticks.tick().await;
            status::sample(&sampling);
        }
    });
    let mut stop = pin!(stop);
    loop {
        let accept = async {
            let permit = permits.clone().acquire_owned().await;
            let stream = accept(&listener).await;
            (stream, permit.expect("nobody closes it"))
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            (stream, permit) = accept => begin(&mut tasks, stream, permit),
            // So that those that have ended take no memory.
            Some(_) = tasks.join_next() => {}
        }
    }
    app.begin_stop();
    let within = if fault!(leaves_at_stop) { Duration::ZERO } else { app.options.drain_within };
    let deadline = Instant::now() + within;
    while let Ok(permit) = permits.clone().try_acquire_owned()
        && let Ok(Ok((stream, _))) = timeout(Duration::ZERO, listener.accept()).await
    {
        begin(&mut tasks, stream, permit);
    }
    drop(listener);
    let linger = deadline.min(Instant::now() + app.options.linger);
    // One is the one that samples.
    while tasks.len() > 1 && timeout_at(linger, tasks.join_next()).await.is_ok() {}
    _ = end.send(true);
    _ = timeout_at(deadline, graceful.shutdown()).await;
    // Before the tasks are ended: requests that are dropped with them count as left by their clients.
    let (accepted, done) = app.served();
    let cancelled = app.metrics.cancelled.load(Relaxed);
    tasks.shutdown().await;
    Drained { accepted, cancelled, given_up: accepted - done }
}

/// Counts a connection while it is open, however it ends.
struct Open(Arc<App>);

impl Open {
    fn begin(app: Arc<App>) -> Open {
        app.metrics.connections.fetch_add(1, Relaxed);
        Open(app)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections.fetch_sub(1, Relaxed);
    }
}

/// The next connection. What a client does wrong is no reason to stop, and nor is what the system lacks for now.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection can't be accepted");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

async fn connection(
    app: &App,
    stream: TcpStream,
    routes: TowerToHyperService<axum::Router>,
    watcher: Watcher,
    mut ending: watch::Receiver<bool>,
) {
    // Answers are written whole; waiting for more would only delay them.
    _ = stream.set_nodelay(true);
    // Has the head of a request been read? It is this task's alone.
    let is_asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        is_asked.store(true, Relaxed);
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.head_within)
        .max_headers(HEADER_COUNT_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Paced::new(stream, app.options.send_within)), service);
    let mut watched = pin!(watcher.watch(connection));
    let ended = tokio::select! {
        biased;
        ended = &mut watched => Some(ended),
        () = async { _ = ending.wait_for(|is_ending| *is_ending).await } => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None if is_asked.load(Relaxed) => watched.await,
        // Of a first head that has come in part the rest would be waited for.
        None => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
