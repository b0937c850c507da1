//! What is around every request: its id, its key, its line in the log, its counts, and what is left of a panic.

use super::{
    App,
    body::Rest,
    counts::Cost,
    failure::{Dialect, Failure, Kind},
};
use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
    middleware::Next,
};
use futures_util::FutureExt;
use raddle_sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
    fault,
};
use std::{
    hash::{BuildHasher, RandomState},
    panic::AssertUnwindSafe,
    sync::LazyLock,
    time::Instant,
};
use subtle::ConstantTimeEq;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ids aren't taken over: they would fill logs.
const ID_LENGTH_MAX: usize = 128;
/// What a load balancer asks, a scraper, and the pages, which show nothing of this server without a key.
const OPEN: [&str; 6] = ["/health", "/ping", "/metrics", "/", "/docs", "/openapi.json"];

/// Wraps the routes.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response<Body> {
    let start = Instant::now();
    let id = request_id(request.headers());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let dialect = Dialect::of(request.uri().path());
    let is_open = OPEN.contains(&request.uri().path()) && (method == "GET" || method == "HEAD");
    let counted = Counted::begin(&app, id.clone());
    // A client that waits to be told to send its body is told the answer instead.
    let is_sending = !request.headers().contains_key(header::EXPECT);
    let (request, rest) = Rest::of(request);
    let result = match check_key(app.options.key.as_deref(), request.headers()) {
        Err(failure) if !is_open => {
            drop(request);
            Ok(axum::response::IntoResponse::into_response(failure))
        }
        _ => AssertUnwindSafe(next.run(request)).catch_unwind().await,
    };
    let mut response = result.unwrap_or_else(|_| {
        tracing::error!(id = id.to_str().unwrap_or(""), "a handler panicked");
        let message = "the server failed";
        let failure = Failure::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Backend, message);
        axum::response::IntoResponse::into_response(failure)
    });
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        // Of these as much was read as ever is.
        let was_read = matches!(failure.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT);
        if is_sending && !was_read {
            rest.discard(&app).await;
        }
        response = failure.into_response(dialect);
    }
    if app.is_stopping() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let elapsed = start.elapsed();
    let cost = response.extensions().get::<Cost>().copied();
    counted.end(cost, response.extensions().get::<Kind>().copied(), elapsed);
    tracing::info!(
        id = id.to_str().unwrap_or(""),
        method = method.as_str(),
        route = route.as_ref().map_or("none", MatchedPath::as_str),
        status = response.status().as_u16(),
        micros = elapsed.as_micros() as u64,
        texts = cost.map_or(0, |cost| cost.texts),
        tokens = cost.map_or(0, |cost| cost.tokens),
        "request"
    );
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Counts a request from its head to its answer. Dropped before, its client has gone.
struct Counted<'a> {
    app: &'a App,
    id: HeaderValue,
    is_ended: bool,
}

impl<'a> Counted<'a> {
    fn begin(app: &'a App, id: HeaderValue) -> Counted<'a> {
        app.metrics.accepted.fetch_add(1, Relaxed);
        Counted { app, id, is_ended: false }
    }

    fn end(mut self, cost: Option<Cost>, failure: Option<Kind>, elapsed: std::time::Duration) {
        self.is_ended = true;
        self.app.metrics.answered(cost, failure, elapsed);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.app.metrics.cancelled.fetch_add(1, Relaxed);
            tracing::info!(id = self.id.to_str().unwrap_or(""), "left before its answer");
        }
    }
}

/// The client's, if it can be put into a log, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_plain = |byte: &u8| byte.is_ascii_graphic();
    match headers.get(REQUEST_ID) {
        Some(id) if (1..=ID_LENGTH_MAX).contains(&id.len()) && id.as_bytes().iter().all(is_plain) => {
            id.clone()
        }
        _ => {
            // Unlike those of other processes, and of this one.
            static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let text = format!("{:016x}{:08x}", *START, COUNT.fetch_add(1, Relaxed));
            HeaderValue::from_str(&text).expect("hexadecimal digits are fine in a header")
        }
    }
}

/// Compares in a time that doesn't tell how much of a key is right; its length may be told.
fn check_key(key: Option<&str>, headers: &HeaderMap) -> Result<(), Failure> {
    let Some(key) = key else { return Ok(()) };
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
    let is_right = |(scheme, shown): (&[u8], &[u8])| {
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(shown.ct_eq(key.as_bytes()))
    };
    let mut is_let_in = shown.is_some_and(is_right);
    fault!(any_key_is_right => is_let_in = true);
    if is_let_in {
        return Ok(());
    }
    let message = "expected the header Authorization: Bearer with the server's key";
    Err(Failure::new(StatusCode::UNAUTHORIZED, Kind::Unauthorized, message))
}

pub async fn no_such_path() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, Kind::Validation, "there is no such path")
}

pub async fn no_such_method() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, Kind::Validation, "the path has no such method")
}
